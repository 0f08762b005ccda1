"""Slurm: one script that submits itself, an array per wave."""

import math

from rstar2.experiments.resources import ResourcesSpec
from rstar2.experiments.schedulers.array import Array
from rstar2.experiments.worker import STOPPED

LARGEST_INDEX = 1000
"""The largest index of an array where ``MaxArraySize`` has its default."""

_LOGS = "runs/slurm"

_USE = """\
#!/bin/bash
# Save this in a file and type, in the checkout with its environment active: bash FILE
# It submits itself, one array per wave. A wave begins when every run of the one before is done;
# when one failed, Slurm cancels the waves after it. Print the script again for what is left then.
# A task near its time limit, preempted, or on a lost node goes back to the queue and goes on from
# its checkpoint. To end tasks: scancel JOB.
"""

_SUBMIT = """\
if [[ -z ${{SLURM_ARRAY_TASK_ID:-}} ]]; then
    [[ -f $0 ]] || {{ echo "save this script in a file, then type: bash FILE" >&2; exit 2; }}
    mkdir -p {logs}
{waves}
    exit
fi
"""

_TASK = """\
# One task. The signal reaches this shell alone: it hands it on and waits for the checkpoint.
{command} &
command=$!
interrupted=yes
trap 'interrupted=yes; kill -TERM "$command" 2>/dev/null || true' TERM
while [[ $interrupted ]]; do # a signal ends `wait` before the command has ended
    interrupted=
    code=0
    wait "$command" || code=$?
done
if ((code == {stopped})); then
    # Incomplete: only what still runs, so that a task somebody cancelled stays cancelled.
    scontrol requeue Incomplete "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
fi
exit "$code"
"""


def slurm_script(array: Array) -> str:
    """A bash script that submits itself to Slurm (19.05 or newer).

    Slurm has no option of its own for the image of a container (``--container-image`` is the
    plugin pyxis, and would hide ``scontrol`` from the script), so an image is a comment.

    Args:
        array: The tasks; their numbers are the indices of the arrays.

    Raises:
        SchedulerError: If there is nothing to do.
    """
    waves = array.waves_left()
    notes = [*_notes(array.resources, max(map(max, waves))), ""]
    submit = _SUBMIT.format(logs=_LOGS, waves=_submissions(waves, array.at_once))
    task = _TASK.format(command=array.command('"$SLURM_ARRAY_TASK_ID"'), stopped=STOPPED)
    parts = ["\n".join([*_options(array), *notes, "set -euo pipefail\n"]), submit, task]
    return _USE + "\n".join(parts)


def compact(numbers: tuple[int, ...]) -> str:
    """Writes numbers as Slurm reads them, ``0-3,7``."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return ",".join(f"{low}-{high}" if low < high else f"{low}" for low, high in ranges)


def _options(array: Array) -> list[str]:
    resources = array.resources
    minutes = math.ceil(resources.hours * 60)
    days, left = divmod(minutes, 24 * 60)
    notice = min(array.checkpoint_seconds, minutes * 60 // 5)
    options = [
        f"job-name={array.name}",
        f"nodes={resources.nodes}",
        "ntasks-per-node=1",
        f"cpus-per-task={resources.cpus_per_node}",
        f"mem={resources.memory_gib_per_node}G",
        *([f"gpus-per-node={resources.gpus_per_node}"] if resources.gpus_per_node else []),
        f"time={days}-{left // 60:02}:{left % 60:02}:00",
        "requeue",
        f"signal=B:TERM@{notice}",
        "open-mode=append",
        f"output={_LOGS}/%x-%A_%a.log",
    ]
    return [f"#SBATCH --{option}" for option in options]


def _notes(resources: ResourcesSpec, largest: int) -> list[str]:
    notes = []
    if resources.nodes > 1:
        notes += [
            f"# A task has {resources.nodes} nodes. This script and its command run on the first;",
            "# the run itself starts its processes on the others.",
        ]
    if resources.image is not None:
        notes += [
            f"# The preset names the image {resources.image!r}. Slurm has no option for one that",
            "# works everywhere: install the environment on the nodes, or put your site's way of",
            "# starting a container before `rstar2 batch run` below.",
        ]
    if largest > LARGEST_INDEX:
        notes += [
            f"# Task {largest} is above {LARGEST_INDEX}, the largest index where MaxArraySize has",
            "# its default. Your cluster's: scontrol show config | grep MaxArraySize",
        ]
    return ["", *notes] if notes else []


def _submissions(waves: tuple[tuple[int, ...], ...], at_once: int) -> str:
    lines = []
    for number, wave in enumerate(waves, start=1):
        tasks = compact(wave)
        after = f' \\\n        --dependency="afterok:$wave{number - 1}" --kill-on-invalid-dep=yes'
        lines += [
            f"wave{number}=$(sbatch --parsable --array={tasks}%{at_once}"
            f'{after if number > 1 else ""} "$0")',
            f"wave{number}=${{wave{number}%%;*}} # without the cluster's name",
            f'echo "wave {number}: job $wave{number}, tasks {tasks}"',
        ]
    return "\n".join(f"    {line}" for line in lines)
