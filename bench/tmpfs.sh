#!/usr/bin/env bash
# Re-reads a file of four times the limit after it was swapped out: folioswap mount beside the
# kernel's tmpfs on zram, within the same limit and in the same run, by read(2) and mmap, with
# huge=never and always. Needs root, zram and cgroup v1.
#
#   bench/tmpfs.sh [LIMIT_MIB [CONTENT_MIB]]      default 256 1024
#
# Each row has MB/s written, re-read with read(2) of 1 MiB, and re-read through a mapping. `null`
# reads a hole through the same mount: the cost of FUSE itself. Every byte of the data is verified
# (2:1 data has half of each page random; 7:1 data has 7/8 of it constant).
set -euo pipefail
limit=${1:-256} content=${2:-1024}
folioswap=${FOLIOSWAP_BIN:-${CARGO_TARGET_DIR:-target}/release/folioswap}
groups=$(awk '$3 == "cgroup" && $4 ~ /memory/ { print $2; exit }' /proc/mounts)
[ -n "$groups" ] || { echo "no memory cgroup of version 1" >&2; exit 1; }
work=$(mktemp -d /var/tmp/folioswap-bench-tmpfs-XXXXXX)
group=$groups/folioswap-bench-tmpfs-$$ point=$work/mount zram=
mkdir "$point" "$group"
clean() {
    echo $$ >"$groups/cgroup.procs"
    mountpoint -q "$point" && { umount "$point" || umount -l "$point"; } 2>/dev/null
    [ -z "$zram" ] || { swapoff "/dev/zram$zram"; echo 1 >"/sys/block/zram$zram/reset"; echo "$zram" >/sys/class/zram-control/hot_remove; } 2>/dev/null
    sleep 0.5
    rmdir "$group" 2>/dev/null
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

cat >"$work/work.py" <<'PYTHON'
import mmap, os, random, sys, time
path, size, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rng = random.Random(1)
part = 2048 if kind == "2:1" else 512
blocks = [b"".join(rng.randbytes(part) + bytes([i]) * (4096 - part) for _ in range(256)) for i in range(8)]
def rate(start): return "%7.0f" % (size * 1.048576 / (time.perf_counter() - start))
start = time.perf_counter()
with open(path, "wb", buffering=0) as f:
    for i in range(size): f.write(blocks[i % 8])
out = [rate(start)]
buffer = bytearray(1 << 20)
for _ in range(2):
    start = time.perf_counter()
    with open(path, "rb", buffering=0) as f:
        for i in range(size):
            f.readinto(buffer)
            assert buffer == blocks[i % 8], i
last = rate(start)
out.append(last)
start = time.perf_counter()
with open(path, "rb", buffering=0) as f, mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ) as m:
    view = memoryview(m)
    for i in range(size): assert view[i << 20:(i + 1) << 20] == blocks[i % 8], i
    view.release()
out.append(rate(start))
hole = path + ".hole"
with open(hole, "wb") as f: f.truncate(size << 20)
start = time.perf_counter()
with open(hole, "rb", buffering=0) as f:
    while f.readinto(buffer): pass
out.append(rate(start))
print(" ".join(out))
PYTHON

row() { # NAME KIND: prints a row; the program runs in the group
    printf '%-34s %s\n' "$1 $2" "$( (echo $BASHPID >"$group/cgroup.procs"; exec nice -n 0 python3 "$work/work.py" "$point/file" "$content" "$2") )"
}
echo "limit $limit MiB, contents $content MiB; MB/s:     write    read    mmap    null"
for kind in 2:1 7:1; do
    for huge in never always; do
        zram=$(cat /sys/class/zram-control/hot_add)
        echo $((content * 2))M >"/sys/block/zram$zram/disksize"
        mkswap -q "/dev/zram$zram" >/dev/null && swapon -p 32767 "/dev/zram$zram"
        echo $((limit << 20)) >"$group/memory.limit_in_bytes"
        mount -t tmpfs -o "size=4G,huge=$huge" bench "$point"
        row "kernel tmpfs on zram, huge=$huge" "$kind"
        umount "$point"
        swapoff "/dev/zram$zram"; echo 1 >"/sys/block/zram$zram/reset"; echo "$zram" >/sys/class/zram-control/hot_remove; zram=
        echo -1 >"$group/memory.limit_in_bytes"
        for mode in "" --direct; do
            (echo $BASHPID >"$group/cgroup.procs"; exec "$folioswap" mount "$point" --memory "${limit}M" --size 4G --huge "$huge" $mode)
            row "folioswap mount ${mode:-(cached)}, huge=$huge" "$kind"
            "$folioswap" umount "$point"
            sleep 0.3
        done
    done
done
