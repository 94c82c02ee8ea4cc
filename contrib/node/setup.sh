#!/bin/sh
# Prepares a node, as root, any number of times: the package, the seccomp profiles where the engines look for them, and FUSE.
#
#   contrib/node/setup.sh folioswap_0.2.0_amd64.deb      installs it, then does the rest
#   contrib/node/setup.sh                                does the rest: the package is installed
#
# With DESTDIR=DIR only the files of the profiles are laid, below DIR.
set -eu
root=${DESTDIR:-}
if [ -z "$root" ]; then
    [ "$(id -u)" -eq 0 ] || { echo "setup.sh: run it as root" >&2; exit 1; }
    if [ $# -gt 0 ]; then
        package=$(realpath "$1")
        apt-get install -y --no-install-recommends "$package"
    fi
    command -v folioswap >/dev/null || { echo "setup.sh: folioswap is not installed: give the .deb" >&2; exit 1; }
fi
profiles=${PROFILES:-/usr/share/folioswap}
[ -e "$profiles/seccomp.json" ] || { echo "setup.sh: $profiles/seccomp.json is not there" >&2; exit 1; }
# Podman and Docker are given a path; the kubelet looks in a directory of its own.
install -D -m 644 "$profiles/seccomp.json" "$root/etc/folioswap/seccomp.json"
install -D -m 644 "$profiles/seccomp-flat.json" "$root/var/lib/kubelet/seccomp/folioswap.json"
[ -z "$root" ] || exit 0
modprobe fuse 2>/dev/null || true
printf 'fuse\n' >/etc/modules-load.d/folioswap.conf
folioswap doctor
