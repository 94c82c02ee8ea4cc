#!/bin/bash
# A job script: the job's own memory limit (its cgroup, with ConstrainRAMSpace=yes) is the limit of `folioswap run`.
#
#   sbatch contrib/slurm/job.sh ./program --its options
#
# `run` needs CAP_SYS_PTRACE. Give it to the users of the cluster by pam_cap or in slurmd's unit (AmbientCapabilities=CAP_SYS_PTRACE
# reaches job steps where slurmd keeps it), or let sudo start `setpriv --ambient-caps +sys_ptrace`; `folioswap doctor` says what is
# missing.
#SBATCH --job-name=folioswap
#SBATCH --mem=4G
#SBATCH --comment=folioswap
set -eu
[ $# -gt 0 ] || { echo "usage: sbatch $0 PROGRAM [ARGUMENT...]" >&2; exit 2; }
folioswap doctor >&2 || exit
# The node's scratch disk takes what does not fit even compressed.
exec folioswap run --swap-dir "${SLURM_TMPDIR:-${TMPDIR:-/var/tmp}}" --stats -- "$@"
