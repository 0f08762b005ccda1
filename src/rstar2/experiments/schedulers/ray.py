"""Ray: a bash script that submits each task as a job and waits, wave after wave."""

import json

from rstar2.experiments.resources import ResourcesSpec
from rstar2.experiments.schedulers.array import Array

_LOGS = "runs/ray"

_USE = """\
#!/bin/bash
# Save this in a file and type on the head node of the Ray cluster, in the checkout, which all
# nodes see under the same path, with its environment active: bash FILE
# A wave begins when all jobs of the one before have ended; the script stops after a wave in which
# one failed. (To Ray, a job that was stopped has not failed; tasks that need its run then do.)
# Jobs go on when the script is interrupted. Typed again, it submits all tasks again: `rstar2`
# skips those that are done. Print it again for what is left.
"""

_BODY = """\
set -euo pipefail

at_once={at_once}
run=$(date -u +%Y%m%d-%H%M%S)-$$ # Ray takes the name of a job once
# What `ray job stop` leaves a task for its checkpoint; Ray's own default is 3 s.
environment={environment}

# `ray job submit` would start a cluster of its own where there is none.
ray job list &>/dev/null ||
    {{ echo "no Ray cluster answers here: type this on its head node" >&2; exit 2; }}
mkdir -p {logs}

task() {{ # NUMBER: submits a task and waits until it has ended
    local job="{name}-$1-$run"
    local log="{logs}/$job.log"
    echo "task $1: $log (to stop it: ray job stop $job)"
    ray job submit --submission-id "$job" --runtime-env-json "$environment"{reserve} -- \\
        env --chdir="$PWD" {command} \\
        >"$log" 2>&1 || {{ echo "task $1 failed: $log" >&2; return 1; }}
}}

wave() {{ # NUMBER...: runs tasks, some at once; fails when one has failed
    local failed=0 running=0 number
    for number; do
        if ((running == at_once)); then
            wait -n || failed=1
            running=$((running - 1))
        fi
        task "$number" &
        running=$((running + 1))
    done
    while ((running > 0)); do
        wait -n || failed=1
        running=$((running - 1))
    done
    return "$failed"
}}

{waves}
"""


def ray_script(array: Array) -> str:
    """A bash script that runs the tasks as jobs of a Ray cluster (2.x).

    A task of one node reserves its cores and GPUs for its command. One of several nodes reserves
    nothing: its notebook runs on the head, and the run's own actors reserve the GPUs; reserved
    twice, they would wait for themselves. Memory is not reserved, since Ray offers only a part
    of a node's, and the preset's ``hours`` and ``image`` are not used.

    Raises:
        SchedulerError: If there is nothing to do.
    """
    body = _BODY.format(
        at_once=array.at_once,
        environment=f"'{json.dumps(_environment(array))}'",
        logs=_LOGS,
        name=array.name,
        reserve=_reserve(array.resources),
        command=array.command('"$1"'),
        waves="\n".join(f"wave {' '.join(map(str, wave))}" for wave in array.waves_left()),
    )
    return "\n".join([_USE + _note(array.resources), body])


def _environment(array: Array) -> dict[str, dict[str, str]]:
    return {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(array.checkpoint_seconds)}}


def _reserve(resources: ResourcesSpec) -> str:
    if resources.nodes > 1:
        return ""
    gpus = f" --entrypoint-num-gpus {resources.gpus_per_node}" if resources.gpus_per_node else ""
    return f" \\\n        --entrypoint-num-cpus {resources.cpus_per_node}{gpus}"


def _note(resources: ResourcesSpec) -> str:
    if resources.nodes == 1:
        return ""
    return (
        f"# A task takes {resources.nodes} nodes: its notebook runs here, on the head, and the\n"
        f"# run's own actors reserve its {resources.gpus} GPUs.\n"
    )
