#!/bin/sh
# Slurm's Epilog: takes back what prolog.sh has given, unless the user has another job on this node.
set -eu
user=${SLURM_JOB_UID:?Slurm sets it}
if [ -c /dev/userfaultfd ] && command -v setfacl >/dev/null; then
    others=0
    if command -v squeue >/dev/null; then
        others=$(squeue --noheader --states=running --user="$user" --nodelist="$(hostname -s)" --format=%A 2>/dev/null |
            grep -cvx "${SLURM_JOB_ID:-0}" || true)
    fi
    [ "$others" -gt 0 ] || setfacl -x "u:$user" /dev/userfaultfd || true
fi
exit 0
