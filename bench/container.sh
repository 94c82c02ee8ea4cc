#!/usr/bin/env bash
# A program that needs 200 MiB in a container of 128 MiB, alone and with folioswap in front: bench/container.sh [ROUNDS]
#
# Takes root and podman (apt-get install podman crun); builds with cargo unless FOLIOSWAP_BIN is set. The image is made of the
# binaries and the libraries that they are linked with, and is removed at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=$PWD/contrib/seccomp/folioswap.json
rounds=${1:-3} image=folioswap-acc-container-$$ need=200 memory=128m
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
tree=$(mktemp -d /var/tmp/folioswap-acc-container-XXXXXX)
trap 'podman rmi -f "$image" >/dev/null 2>&1; rm -rf "$tree"' EXIT
trap 'exit 130' INT TERM

mkdir -p "$tree"/{bin,tmp,var/tmp,proc,dev,sys,etc}
chmod 1777 "$tree/tmp" "$tree/var/tmp"
cp "${FOLIOSWAP_BIN:-$out/folioswap}" "$tree/bin/folioswap"
cp "$out/four-times" "$tree/bin/"
strip "$tree"/bin/* 2>/dev/null || true
for library in $(ldd "$tree/bin/folioswap" "$tree/bin/four-times" | grep -oE '/lib[^ ]+' | sort -u); do
    install -D "$(readlink -f "$library")" "$tree$library"
done
tar -C "$tree" -c . | podman import -q - "$image" >/dev/null

# Limits of our own: podman's default raises them, which a shell with a lower hard limit may not.
run() { podman run --rm --network none --ulimit "nofile=$(ulimit -n)" --ulimit nproc=4096 "$@"; }
timed() { # NAME COMMAND...
    local name=$1 start=$EPOCHREALTIME status=0
    shift
    "$@" >"$tree/said" 2>&1 || status=$?
    printf '%-28s status %3d  %5.2f s  %s\n' "$name" "$status" "$(awk "BEGIN { print $EPOCHREALTIME - $start }")" "$(tail -n 1 "$tree/said")"
}
for _ in $(seq "$rounds"); do
    timed "no limit, alone" run "$image" /bin/four-times "$need"
    timed "--memory $memory, alone" run --memory "$memory" "$image" /bin/four-times "$need"
    timed "--memory $memory, folioswap" run --memory "$memory" --cap-add SYS_PTRACE --device /dev/userfaultfd "$image" \
        /bin/folioswap run -- /bin/four-times "$need"
    timed "the same, no capability" run --memory "$memory" --device /dev/userfaultfd "$image" \
        /bin/folioswap run -- /bin/four-times "$need"
    timed "a user, all dropped" run --memory "$memory" --user 1000 --cap-drop ALL --security-opt no-new-privileges \
        --security-opt "seccomp=$profile" "$image" /bin/folioswap run -- /bin/four-times "$need"
done
