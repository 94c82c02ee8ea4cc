#!/usr/bin/env bash
# A program that needs 200 MiB in a container of 128 MiB, alone and with folioswap in front: bench/container.sh [ROUNDS]
#
# Then one of 256 MiB, twice the limit, in an image whose programs are all static but for folioswap itself, as an ordinary user
# without any permission: by itself, started by BusyBox's shell, and a program of Go's.
#
# Takes root and podman (apt-get install podman crun), busybox-static, Go, and Rust's target for musl; builds with cargo unless
# FOLIOSWAP_BIN is set. The images are made of the programs and the libraries that they are linked with, and are removed at the
# end.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=$PWD/contrib/seccomp/folioswap.json
rounds=${1:-3} image=folioswap-acc-container-$$ need=200 memory=128m
static=$image-static musl=x86_64-unknown-linux-musl twice=256
if ! command -v podman >/dev/null; then
    echo "podman is not there: apt-get install podman crun" >&2
    exit 1
fi
# crun refuses the hybrid set-up of cgroups. In a mount namespace of its own the second hierarchy can be out of sight.
if [ -d /sys/fs/cgroup/unified ] && [ -z "${FOLIOSWAP_UNSHARED:-}" ]; then
    FOLIOSWAP_UNSHARED=1 exec unshare --mount bash -c 'umount /sys/fs/cgroup/unified && exec bash "$0" "$@"' "$0" "$@"
fi
out=${CARGO_TARGET_DIR:-target}/release
[ -n "${FOLIOSWAP_BIN:-}" ] || cargo build --release -q -p folioswap-cli
[ -x "$out/four-times" ] || cargo build --release -q -p folioswap-demo
cargo build --release -q -p folioswap-demo --target "$musl"
scratch=$(mktemp -d /var/tmp/folioswap-acc-container-XXXXXX)
trap 'podman rmi -f "$image" "$static" >/dev/null 2>&1; rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
CGO_ENABLED=0 GOCACHE=$scratch/go-cache go build -o "$scratch/chain" crates/acceptance/go/chain.go

image_of() { # NAME PROGRAM...: an image of folioswap, these programs, and the libraries that they are linked with
    local name=$1 tree=$scratch/$1 library
    shift
    mkdir -p "$tree"/{bin,tmp,var/tmp,proc,dev,sys,etc}
    chmod 1777 "$tree/tmp" "$tree/var/tmp"
    cp "${FOLIOSWAP_BIN:-$out/folioswap}" "$tree/bin/folioswap"
    cp "$@" "$tree/bin/"
    strip "$tree"/bin/* 2>/dev/null || true
    [ ! -e "$tree/bin/busybox" ] || ln -s busybox "$tree/bin/echo"
    for library in $(ldd "$tree"/bin/* 2>/dev/null | grep -oE '/lib[^ ]+' | sort -u); do
        install -D "$(readlink -f "$library")" "$tree$library"
    done
    tar -C "$tree" -c . | podman import -q - "$name" >/dev/null
}
only_static() { # PROGRAM...: ends where one of them wants a dynamic linker
    local program
    for program; do
        ! readelf -lW "$program" | grep -q INTERP || { echo "$program is not static" >&2; exit 1; }
    done
}
image_of "$image" "$out/four-times"
busybox=$(command -v busybox)
only_static "$busybox" "$scratch/chain" "$out/../$musl/release/four-times"
image_of "$static" "$busybox" "$scratch/chain" "$out/../$musl/release/four-times"

# Limits of our own: podman's default raises them, which a shell with a lower hard limit may not.
# Where the kernel kills a container, conmon leaves a file `oom` in the current directory.
run() { (cd "$scratch" && podman run --rm --network none --ulimit "nofile=$(ulimit -n)" --ulimit nproc=4096 "$@"); }
user=(--user 1000:1000 --cap-drop ALL --security-opt no-new-privileges --security-opt "seccomp=$profile")
timed() { # NAME COMMAND...
    local name=$1 start=$EPOCHREALTIME status=0
    shift
    "$@" >"$scratch/said" 2>&1 || status=$?
    printf '%-28s status %3d  %5.2f s  %s\n' "$name" "$status" "$(awk "BEGIN { print $EPOCHREALTIME - $start }")" "$(tail -n 1 "$scratch/said")"
}
for _ in $(seq "$rounds"); do
    timed "no limit, alone" run "$image" /bin/four-times "$need"
    timed "--memory $memory, alone" run --memory "$memory" "$image" /bin/four-times "$need"
    timed "--memory $memory, folioswap" run --memory "$memory" --cap-add SYS_PTRACE --device /dev/userfaultfd "$image" \
        /bin/folioswap run -- /bin/four-times "$need"
    timed "the same, no capability" run --memory "$memory" --device /dev/userfaultfd "$image" \
        /bin/folioswap run -- /bin/four-times "$need"
    timed "a user, all dropped" run --memory "$memory" "${user[@]}" "$image" /bin/folioswap run -- /bin/four-times "$need"
    timed "static, no limit, alone" run "${user[@]}" "$static" /bin/four-times "$twice"
    timed "static, alone" run --memory "$memory" "${user[@]}" "$static" /bin/four-times "$twice"
    timed "static, folioswap" run --memory "$memory" "${user[@]}" "$static" /bin/folioswap run -- /bin/four-times "$twice"
    timed "static, by a shell" run --memory "$memory" "${user[@]}" "$static" /bin/folioswap run -- /bin/busybox sh -c \
        "four-times $twice >/tmp/said && busybox tail -n 1 /tmp/said"
    timed "Go, no limit, alone" run "${user[@]}" "$static" /bin/chain "$twice"
    timed "Go, alone" run --memory "$memory" "${user[@]}" "$static" /bin/chain "$twice"
    timed "Go, folioswap" run --memory "$memory" "${user[@]}" "$static" /bin/folioswap run -- /bin/chain "$twice"
done
