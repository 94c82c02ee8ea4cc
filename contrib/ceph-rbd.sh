#!/usr/bin/env bash
# Swap on a Ceph cluster: an RBD image, served to folioswap by qemu-nbd. With a cluster of one node that it makes itself, to try it on one machine.
#
#   contrib/ceph-rbd.sh install              the packages, from Debian (root)
#   contrib/ceph-rbd.sh up [SIZE]            a monitor, an OSD and an image of SIZE (4G), and qemu-nbd before it; prints the device for --swap
#   contrib/ceph-rbd.sh serve CONF POOL/IMAGE    qemu-nbd before an image of a cluster that is there; prints the device for --swap
#   contrib/ceph-rbd.sh status               what runs
#   contrib/ceph-rbd.sh down                 ends all of it, and removes what `up` made
#   contrib/ceph-rbd.sh test                 up; a program within a limit over it, twice: undisturbed, and while the OSD is killed and comes back; down
#
# All state is in $FOLIOSWAP_CEPH (/var/tmp/folioswap-ceph). The cluster has one copy of everything, and no authentication, on 127.0.0.1: for trials.
# With your own cluster: `rbd create --size 64G POOL/IMAGE`, then `serve`, on each machine with an image of its own.
set -euo pipefail

state=${FOLIOSWAP_CEPH:-/var/tmp/folioswap-ceph}
conf=$state/ceph.conf
socket=$state/nbd.sock
root=$(cd "$(dirname "$0")/.." && pwd)

fail() { echo "ceph-rbd.sh: $*" >&2; exit 1; }
need() {
    local command
    for command in "$@"; do
        command -v "$command" >/dev/null || fail "$command is not installed: contrib/ceph-rbd.sh install"
    done
}
ceph() { command ceph --conf "$conf" --connect-timeout 20 "$@"; }
rbd() { command rbd --conf "$conf" "$@"; }
device() { echo "nbd+unix:///?socket=$socket"; }

install() {
    [ "$(id -u)" -eq 0 ] || fail "installing takes root"
    # A freshly installed daemon must not be started.
    local policy=
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        policy=/usr/sbin/policy-rc.d
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
    fi
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends ceph-mon ceph-osd ceph-common qemu-utils qemu-block-extra || {
        [ -z "$policy" ] || rm -f "$policy"
        fail "apt-get failed"
    }
    [ -z "$policy" ] || rm -f "$policy"
}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

start_osd() { ceph-osd --conf "$conf" -i 0 2>>"$state/start.log"; }

# Is the process of this pid file there?
runs() { [ -s "$state/$1.pid" ] && kill -0 "$(cat "$state/$1.pid")" 2>/dev/null; }

stop() { # NAME [SIGNAL]: ends it, and waits until it has
    local pid try
    runs "$1" || return 0
    pid=$(cat "$state/$1.pid")
    kill "-${2:-TERM}" "$pid"
    for try in $(seq 100); do
        kill -0 "$pid" 2>/dev/null || { rm -f "$state/$1.pid"; return 0; }
        [ "$try" -ne 80 ] || kill -KILL "$pid" 2>/dev/null || true
        sleep 0.1
    done
}

serve() { # CONF POOL/IMAGE
    need qemu-nbd
    mkdir -p "$state"
    ! runs qemu-nbd || fail "qemu-nbd runs already: contrib/ceph-rbd.sh down"
    # Raw, persistent (it stays when its client goes), trims passed on, several connections.
    qemu-nbd --fork --pid-file="$state/qemu-nbd.pid" --socket="$socket" --persistent --shared=16 --discard=unmap -f raw "rbd:$2:conf=$1"
}

up() {
    local size=${1:-4G} fsid port
    need ceph-mon ceph-osd ceph rbd monmaptool qemu-nbd python3
    [ ! -e "$conf" ] || fail "$state is there already: contrib/ceph-rbd.sh down"
    mkdir -p "$state/mon" "$state/osd"
    fsid=$(cat /proc/sys/kernel/random/uuid)
    port=$(free_port)
    cat >"$conf" <<CONF
[global]
fsid = $fsid
mon host = [v2:127.0.0.1:$port]
public addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 1
osd pool default min size = 1
mon allow pool size one = true
mon warn on pool no redundancy = false
osd crush chooseleaf type = 0
run dir = $state
mon cluster log file = $state/cluster.log
[mon]
pid file = $state/\$name.pid
admin socket = $state/\$name.asok
log file = $state/\$name.log
mon data = $state/mon
mon data avail warn = 1
auth allow insecure global id reclaim = false
[osd]
pid file = $state/\$name.pid
admin socket = $state/\$name.asok
log file = $state/\$name.log
osd data = $state/osd
osd objectstore = bluestore
bluestore block size = 17179869184
osd memory target = 1073741824
CONF
    monmaptool --create --fsid "$fsid" --addv a "[v2:127.0.0.1:$port]" "$state/monmap" >/dev/null
    ceph-mon --conf "$conf" --mkfs -i a --monmap "$state/monmap"
    ceph-mon --conf "$conf" -i a
    local uuid
    uuid=$(cat /proc/sys/kernel/random/uuid)
    ceph osd new "$uuid" 0 >/dev/null
    ceph-osd --conf "$conf" -i 0 --mkfs --osd-uuid "$uuid" 2>>"$state/mkfs.log"
    start_osd
    ceph osd pool create rbd 8 8 >/dev/null 2>&1
    rbd pool init rbd
    rbd create --size "$size" rbd/swap
    serve "$conf" rbd/swap
}

down() {
    local name
    for name in qemu-nbd osd.0 mon.a; do stop "$name"; done
    [ ! -e "$conf" ] || rm -rf "$state"
    rm -rf "$socket"
}

status() {
    local name
    for name in mon.a osd.0 qemu-nbd; do echo "$name: $(runs $name && echo runs || echo "does not run")"; done
    [ ! -e "$conf" ] || ceph health
}

# A program that fills and checks its memory, four times its limit, for as many seconds as it is told.
program='
import sys, time
import random
size, seconds = 192 << 20, float(sys.argv[1])
noise = [random.Random(seed).randbytes(4096) for seed in range(64)]
def page(number, round): return (number * 1000003 + round).to_bytes(8, "little") + noise[(number + round) % 64][8:]
memory, rounds, until = bytearray(size), 0, time.monotonic() + seconds
while rounds < 2 or time.monotonic() < until:
    for number in range(size >> 12):
        memory[number << 12 : (number + 1) << 12] = page(number, rounds)
    for number in range(size >> 12):
        assert memory[number << 12 : (number + 1) << 12] == page(number, rounds), f"page {number} of round {rounds}"
    rounds += 1
print(f"{rounds} rounds of {size >> 20} MiB: every byte as it was written")
'

run() { # SECONDS
    local folioswap=${FOLIOSWAP_BIN:-${CARGO_TARGET_DIR:-$root/target}/release/folioswap}
    [ -x "$folioswap" ] || fail "no $folioswap: cargo build --release -p folioswap-cli, or set FOLIOSWAP_BIN"
    "$folioswap" run --memory 48M --swap zram,prio=1 --swap "$(device),prio=0,timeout=120" -- python3 -c "$program" "$1"
}

check() {
    trap down EXIT
    up 4G
    echo "=== undisturbed"
    run 0 || fail "the program failed"
    rbd du rbd/swap 2>/dev/null || true
    echo "=== the OSD is killed, is away for ten seconds, and comes back"
    run 40 &
    local program=$!
    sleep 10
    stop osd.0 KILL
    sleep 10
    start_osd
    wait "$program" || fail "the program failed"
    echo "passed: nothing was lost"
}

case ${1:-help} in
install) install ;;
up) up "${2:-4G}"; device ;;
serve) [ $# -eq 3 ] || fail "serve CONF POOL/IMAGE"; serve "$2" "$3"; device ;;
status) status ;;
down) down ;;
test) check ;;
*) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
