#!/bin/sh
# Slurm's Prolog (slurm.conf: Prolog=/etc/slurm/folioswap-prolog.sh), as root on each node before a job: lets the job's user open
# /dev/userfaultfd until the epilog, if the job asks for it (`#SBATCH --comment=folioswap` or the feature of that name). `folioswap
# run` works then (x86-64), and the libraries for Python, C and Rust serve system calls too.
set -eu
case ${SLURM_JOB_COMMENT:-},${SLURM_JOB_CONSTRAINTS:-} in
    *folioswap*) ;;
    *) exit 0 ;;
esac
# A node that cannot is not drained for it: the job's own `folioswap doctor` says what is missing.
if [ -c /dev/userfaultfd ] && command -v setfacl >/dev/null; then
    setfacl -m "u:${SLURM_JOB_UID:?Slurm sets it}:rw" /dev/userfaultfd || true
fi
exit 0
