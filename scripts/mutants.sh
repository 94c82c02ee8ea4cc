#!/usr/bin/env bash
# Makes small wrong changes, one at a time, in a copy of the tree, and says which of them no test notices.
#
#   scripts/mutants.sh               all of scripts/mutants/changes.toml
#   scripts/mutants.sh M3 M15        these
#   scripts/mutants.sh --check       only that each change can still be made: its text stands where it says (a second)
#   scripts/mutants.sh --list        prints them
#
# The copy and its builds are in target/mutants; the tree itself is never changed. A line for each change: caught (with
# the tests that failed), survived, equivalent, gone, or broken (it does not compile, or its text is not there any more).
# The last line is the sum. The exit status is 0 only if nothing but the equivalent ones survived, and nothing is broken.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 -u scripts/mutants/run.py "$@"
