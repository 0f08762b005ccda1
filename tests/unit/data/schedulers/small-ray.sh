#!/bin/bash
# Save this in a file and type on the head node of the Ray cluster, in the checkout, which all
# nodes see under the same path, with its environment active: bash FILE
# A wave begins when all jobs of the one before have ended; the script stops after a wave in which
# one failed. (To Ray, a job that was stopped has not failed; tasks that need its run then do.)
# Jobs go on when the script is interrupted. Typed again, it submits all tasks again: `rstar2`
# skips those that are done. Print it again for what is left.

set -euo pipefail

at_once=2
run=$(date -u +%Y%m%d-%H%M%S)-$$ # Ray takes the name of a job once
# What `ray job stop` leaves a task for its checkpoint; Ray's own default is 3 s.
environment='{"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "300"}}'

# `ray job submit` would start a cluster of its own where there is none.
ray job list &>/dev/null ||
    { echo "no Ray cluster answers here: type this on its head node" >&2; exit 2; }
mkdir -p runs/ray

task() { # NUMBER: submits a task and waits until it has ended
    local job="rstar2-small-$1-$run"
    local log="runs/ray/$job.log"
    echo "task $1: $log (to stop it: ray job stop $job)"
    ray job submit --submission-id "$job" --runtime-env-json "$environment" \
        --entrypoint-num-cpus 8 --entrypoint-num-gpus 1 -- \
        env --chdir="$PWD" rstar2 batch run --task "$1" -- sweeps/small.yaml \
        >"$log" 2>&1 || { echo "task $1 failed: $log" >&2; return 1; }
}

wave() { # NUMBER...: runs tasks, some at once; fails when one has failed
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
}

wave 0 1 2 3 7
wave 4 5 6
