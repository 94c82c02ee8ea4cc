#!/usr/bin/env bash
# Installs the file system test suites fsx and pjdfstest (crates, into the build directory) and runs them on a mount of folioswap.
# The first time takes some minutes, to compile them.
set -euo pipefail
cd "$(dirname "$0")/.."
place=${CARGO_TARGET_DIR:-target}/tmpfs-suites
mkdir -p "$place"
place=$(cd "$place" && pwd)
[ -x "$place/bin/fsx" ] || CARGO_TARGET_DIR=$place/build cargo install -q --root "$place" --version 0.3.2 fsx
[ -x "$place/bin/pjdfstest" ] || CARGO_TARGET_DIR=$place/build cargo install -q --root "$place" --version 0.2.2 pjdfstest
cargo build -q --release -p folioswap-cli
export FOLIOSWAP_TMPFS_SUITES=$place RUST_TEST_THREADS=1
cargo test -q --release -p folioswap-acceptance --test tmpfs_programs -- --nocapture the_file_system_exerciser the_posix_suite
