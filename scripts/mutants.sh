#!/usr/bin/env bash
# Makes small wrong changes, one at a time, in a copy of the tree, and says which of them no test
# notices.
#
#   scripts/mutants.sh               all of scripts/mutants/changes.toml
#   scripts/mutants.sh M3 M15        these
#   scripts/mutants.sh --check       only that each change can still be made: its text stands where
#                                    it says (a second; scripts/test.sh makes this check)
#   scripts/mutants.sh --list        prints them
#
# The copy and its builds are in target/mutants; the tree itself is never changed. First the tests
# run without a change: they must pass, or nothing is judged. Then a line for each change: caught
# (with the tests that failed), survived, equivalent, gone, no end (within five times what the tests
# took without a change), or broken (it does not compile, its text is not there any more, or cargo
# failed without a test that did). The last line is the sum. The exit status is 0 only if nothing
# but the equivalent ones survived, and nothing is broken or without an end; 2 if nothing could be
# judged.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 -u scripts/mutants/run.py "$@"
