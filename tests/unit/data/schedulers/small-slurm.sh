#!/bin/bash
# Save this in a file and type, in the checkout with its environment active: bash FILE
# It submits itself, one array per wave. A wave begins when every run of the one before is done;
# when one failed, Slurm cancels the waves after it. Print the script again for what is left then.
# A task near its time limit, preempted, or on a lost node goes back to the queue and goes on from
# its checkpoint. To end tasks: scancel JOB.
#SBATCH --job-name=rstar2-small
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=8
#SBATCH --mem=48G
#SBATCH --gpus-per-node=1
#SBATCH --time=1-00:00:00
#SBATCH --requeue
#SBATCH --signal=B:TERM@300
#SBATCH --open-mode=append
#SBATCH --output=runs/slurm/%x-%A_%a.log

# The preset names the image 'ghcr.io/example/rstar2:0.1.0'. Slurm has no option for one that
# works everywhere: install the environment on the nodes, or put your site's way of
# starting a container before `rstar2 batch run` below.

set -euo pipefail

if [[ -z ${SLURM_ARRAY_TASK_ID:-} ]]; then
    [[ -f $0 ]] || { echo "save this script in a file, then type: bash FILE" >&2; exit 2; }
    mkdir -p runs/slurm
    wave1=$(sbatch --parsable --array=0-3,7%2 "$0")
    wave1=${wave1%%;*} # without the cluster's name
    echo "wave 1: job $wave1, tasks 0-3,7"
    wave2=$(sbatch --parsable --array=4-6%2 \
        --dependency="afterok:$wave1" --kill-on-invalid-dep=yes "$0")
    wave2=${wave2%%;*} # without the cluster's name
    echo "wave 2: job $wave2, tasks 4-6"
    exit
fi

# One task. The signal reaches this shell alone: it hands it on and waits for the checkpoint.
rstar2 batch run --task "$SLURM_ARRAY_TASK_ID" -- sweeps/small.yaml &
command=$!
interrupted=yes
trap 'interrupted=yes; kill -TERM "$command" 2>/dev/null || true' TERM
while [[ $interrupted ]]; do # a signal ends `wait` before the command has ended
    interrupted=
    code=0
    wait "$command" || code=$?
done
if ((code == 143)); then
    # Incomplete: only what still runs, so that a task somebody cancelled stays cancelled.
    scontrol requeue Incomplete "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
fi
exit "$code"
