"""The folder of a stage before verl starts: problems, router, and the checkpoint to go on from."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from rstar2.experiments.cluster.checkpoints import begin_from
from rstar2.experiments.cluster.job import StageJob
from rstar2.experiments.cluster.recipe import router_settings
from rstar2.experiments.cluster.rows import drawn, write_problem_rows
from rstar2.problems import Problem
from rstar2.records import atomic_write
from rstar2.records.files import make_folder


def prepare(job: StageJob, pool: Sequence[Problem], before: Path | None) -> Sequence[str]:
    """Writes what verl reads; the same files whenever it is called.

    Args:
        job: The stage.
        pool: Problems of which the preset's number is taken.
        before: The folder ``checkpoints`` of the stage before; None for the first.

    Returns:
        What verl is to load of the checkpoint that it goes on from.

    Raises:
        RecipeError: If the pool is too small, or the stage before is not done.
        RecordError: If the folder cannot be written.
    """
    make_folder(job.folder)
    load = begin_from(job, before)
    problems = drawn(pool, job.preset.data.problems)
    write_problem_rows(job.problems_file, problems, job.preset.rl.problems_per_step)
    atomic_write(job.router_file, yaml.safe_dump(router_settings(job), sort_keys=False).encode())
    return load
