#!/bin/bash
# A job script: the job's own memory limit (its cgroup, with ConstrainRAMSpace=yes) is the limit of `folioswap run`.
#
#   sbatch contrib/slurm/job.sh ./program --its options
#
# `run` needs a userfaultfd: prolog.sh opens the device to the job's user (x86-64). Where it cannot, CAP_SYS_PTRACE and the device do
# (pam_cap, or AmbientCapabilities=CAP_SYS_PTRACE in slurmd's unit, where slurmd keeps it); `folioswap doctor` says what is missing.
#SBATCH --job-name=folioswap
#SBATCH --mem=4G
#SBATCH --comment=folioswap
set -eu
[ $# -gt 0 ] || { echo "usage: sbatch $0 PROGRAM [ARGUMENT...]" >&2; exit 2; }
folioswap doctor >&2 || exit
# The node's scratch disk takes what does not fit even compressed.
exec folioswap run --swap-dir "${SLURM_TMPDIR:-${TMPDIR:-/var/tmp}}" --stats -- "$@"
