#!/bin/sh
# Installs a release of folioswap in a development container. VERSION comes from the feature's options; FOLIOSWAP_ARCHIVE names an
# archive that is there already. A feature can give no seccomp profile of its own, so it takes the filter away; whoever would rather
# keep it starts the container with contrib/seccomp/folioswap.json instead.
set -eu
version=${VERSION:-0.2.0}
[ "$(uname -m)" = x86_64 ] || { echo "there is a package of folioswap for x86_64 only" >&2; exit 1; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
name=folioswap-$version-x86_64-linux-gnu
if [ -n "${FOLIOSWAP_ARCHIVE:-}" ]; then
    cp "$FOLIOSWAP_ARCHIVE" "$work/$name.tar.gz"
else
    from=https://github.com/folioswap/folioswap/releases/download/v$version
    command -v curl >/dev/null || { apt-get update && apt-get install -y --no-install-recommends curl ca-certificates; }
    curl -fsSL "$from/$name.tar.gz" -o "$work/$name.tar.gz"
    curl -fsSL "$from/SHA256SUMS" -o "$work/SHA256SUMS"
    (cd "$work" && grep " $name.tar.gz\$" SHA256SUMS | sha256sum --check -)
fi
tar -C "$work" -xzf "$work/$name.tar.gz"
"$work/$name/install.sh" --prefix /usr/local
