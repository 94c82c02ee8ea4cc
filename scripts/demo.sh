#!/usr/bin/env bash
# Builds everything and runs a program that needs 512 MiB within 128 MiB. The program checks its own data.
# Installs a linker with apt when there is none and it is root.
set -euo pipefail
cd "$(dirname "$0")/.."
memory=${1:-128M}
if ! command -v cargo >/dev/null; then
    echo "cargo is not there: install Rust (https://rustup.rs), or add ~/.cargo/bin to PATH" >&2
    exit 1
fi
if ! command -v cc >/dev/null; then
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "Rust needs a C compiler as its linker: apt install gcc libc6-dev" >&2
        exit 1
    fi
    echo "installing gcc and libc6-dev: Rust needs them to link"
    apt-get update -q >/dev/null
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends gcc libc6-dev >/dev/null
fi
cargo build --release -p folioswap-cli -p folioswap-demo
out=${CARGO_TARGET_DIR:-target}/release
echo
echo "\$ folioswap run --memory $memory --stats -- four-times"
exec "$out/folioswap" run --memory "$memory" --stats -- "$out/four-times" 512
