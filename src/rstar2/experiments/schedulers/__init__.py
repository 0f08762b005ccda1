"""Scripts that hand the runs of a sweep to Slurm, Kubernetes or Ray: texts, printed and read first.

All run one command, ``rstar2 batch run --task N``, with another variable for N. It ends with 0
when the run is done, with 143 when it was stopped after a checkpoint and goes on when run
again, with 2 on an error of the user.
"""

from rstar2.experiments.schedulers.array import CHECKPOINT_SECONDS, Array, SchedulerError
from rstar2.experiments.schedulers.kubernetes import kubernetes_manifest
from rstar2.experiments.schedulers.ray import ray_script
from rstar2.experiments.schedulers.slurm import slurm_script

__all__ = [
    "CHECKPOINT_SECONDS",
    "Array",
    "SchedulerError",
    "kubernetes_manifest",
    "ray_script",
    "slurm_script",
]
