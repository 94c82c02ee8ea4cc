#!/usr/bin/env bash
# Records the running kernel's swap while a command runs in a memory cgroup (v1) on a zram device of
# its own, and writes the trace in the text form of `folioswap lab import`.
#
#     kernel.sh LIMIT OUTPUT.txt COMMAND [ARGUMENT...]
#     kernel.sh 256M build.txt make -j4
#
# LIMIT is in bytes, or with K, M or G. Needs root, clang, gcc, libbpf, bpftool, and a kernel with BTF.
# Folios of 64 kB and other sizes are used if the machine's settings of huge pages allow them. The
# device, the groups and the programs are removed at the end, also after Ctrl-C.
#
# A process frees its slots when it ends. To see that, each process of the command that is to count
# must have a memory group of its own: put CC="KERNEL_SH_DIRECTORY/own_group.sh gcc" before a make.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 3 ]; then
    sed -n '2,14s/^# \{0,1\}//p' "$0"
    exit 2
fi
limit=$1 output=$2
shift 2
for tool in clang gcc bpftool python3 flock; do
    command -v "$tool" >/dev/null || command -v "$tool-14" >/dev/null ||
        { echo "kernel.sh needs $tool" >&2; exit 1; }
done
clang=$(command -v clang || command -v clang-14)
memory=/sys/fs/cgroup/memory
[ -d "$memory" ] || { echo "kernel.sh needs the memory controller of cgroup v1 at $memory" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "kernel.sh must be run as root" >&2; exit 1; }
# The lock of everybody who changes the machine's swap.
exec 9>/run/folioswap-acc.lock
flock 9
if [ "$(wc -l </proc/swaps)" -gt 1 ]; then
    echo "kernel.sh must be alone with its device, but swap is on: swapoff it first" >&2
    exit 1
fi

work=$(mktemp -d)
group=$memory/folioswap-trace-$$
mounted= zram= loader= reader= buffer=
clean_up() {
    set +e
    [ -n "$loader" ] && exec 8>&- && wait "$loader"
    [ -n "$reader" ] && kill "$reader" && wait "$reader" 2>/dev/null
    find "$group" -name cgroup.procs -exec cat {} + 2>/dev/null | xargs -r kill -9 2>/dev/null
    [ -n "$zram" ] && swapoff "/dev/zram$zram" && echo "$zram" >/sys/class/zram-control/hot_remove
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
    [ -n "$buffer" ] && echo "$buffer" >/sys/kernel/tracing/buffer_size_kb
    [ -n "$mounted" ] && umount /sys/kernel/tracing
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM HUP

bpftool btf dump file /sys/kernel/btf/vmlinux format c >"$work/vmlinux.h"
"$clang" -O2 -g -target bpf "-D__TARGET_ARCH_$(uname -m | sed s/x86_64/x86/)" -I"$work" \
    -c "$here/swap.bpf.c" -o "$work/swap.bpf.o"
gcc -O2 -o "$work/load" "$here/load.c" -lbpf
if [ ! -e /sys/kernel/tracing/trace_pipe ]; then
    mount -t tracefs tracefs /sys/kernel/tracing
    mounted=yes
fi
buffer=$(sed 's/ .*//' /sys/kernel/tracing/buffer_size_kb)
echo 65536 >/sys/kernel/tracing/buffer_size_kb
zram=$(cat /sys/class/zram-control/hot_add)
echo 16G >"/sys/block/zram$zram/disksize"
mkswap "/dev/zram$zram" >/dev/null
swapon -p 32767 "/dev/zram$zram"
mkdir "$group"
echo 1 >"$group/memory.use_hierarchy" 2>/dev/null || true
echo "$limit" >"$group/memory.limit_in_bytes"

cat /sys/kernel/tracing/trace_pipe >"$work/printed" &
reader=$!
mkfifo "$work/hold"
"$work/load" "$work/swap.bpf.o" <"$work/hold" >"$work/ready" &
loader=$!
exec 8>"$work/hold"
until grep -q ready "$work/ready"; do
    kill -0 "$loader" 2>/dev/null || exit 1
    sleep 0.1
done
status=0
FOLIOSWAP_TRACE_GROUP=$group sh -c 'echo $$ >"$FOLIOSWAP_TRACE_GROUP/cgroup.procs" && exec "$@"' sh "$@" || status=$?
exec 8>&-
wait "$loader" || true
loader=
# The reader has everything once the buffer is empty.
until [ "$(cat /sys/kernel/tracing/per_cpu/cpu*/stats | awk '/^entries:/ {sum += $2} END {print sum + 0}')" = 0 ]; do
    sleep 0.1
done
kill "$reader"
wait "$reader" 2>/dev/null || true
reader=
python3 "$here/to_text.py" "$(sed 's/ *$//' "/sys/block/zram$zram/dev")" <"$work/printed" >"$output"
[ "$status" = 0 ] || echo "the command ended with $status" >&2
exit "$status"
