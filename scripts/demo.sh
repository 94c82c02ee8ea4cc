#!/usr/bin/env bash
# Builds everything and runs a program that needs 512 MiB within 128 MiB. The program checks its own data.
# Installs Rust and a linker with apt when there are none and it is root (FOLIOSWAP_NO_APT=1: installs nothing).
# FOLIOSWAP_BUILT=1 takes what is built already.
set -euo pipefail
cd "$(dirname "$0")/.."
memory=${1:-128M}
if [ -z "${FOLIOSWAP_BUILT:-}" ]; then
    . scripts/toolchain.sh
    need_toolchain
    cargo build --release -p folioswap-cli -p folioswap-demo
fi
out=${CARGO_TARGET_DIR:-target}/release
echo
echo "\$ folioswap run --memory $memory --stats -- four-times"
exec "$out/folioswap" run --memory "$memory" --stats -- "$out/four-times" 512
