#!/bin/sh
# Runs a command in a memory group of its own below that of kernel.sh, and removes the group when it
# ended: `make CC="own_group.sh gcc"`.
group=$FOLIOSWAP_TRACE_GROUP/$$
mkdir "$group"
sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@"
status=$?
rmdir "$group"
exit $status
