#!/usr/bin/env bash
# Builds everything and runs a program that needs 512 MiB within 128 MiB. The program checks its own data.
set -euo pipefail
cd "$(dirname "$0")/.."
memory=${1:-128M}
cargo build --release -p folioswap-cli -p folioswap-demo
out=${CARGO_TARGET_DIR:-target}/release
echo
echo "\$ folioswap run --memory $memory --stats -- four-times"
exec "$out/folioswap" run --memory "$memory" --stats -- "$out/four-times" 512
