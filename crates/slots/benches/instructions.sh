#!/bin/sh
# Instructions per pair of one allocation and one free: the same on every run and every machine of the architecture.
# Needs valgrind (Debian, Ubuntu: apt install valgrind). Counts a long and a short run and divides the difference.
set -e
cd "$(dirname "$0")/.."
binary=$(cargo bench -p folioswap-slots --bench instructions --no-run --message-format=json 2>/dev/null |
    sed -n 's/.*"name":"instructions".*"executable":"\([^"]*\)".*/\1/p')
[ -x "$binary" ] || { echo "the bench does not build: cargo bench -p folioswap-slots --bench instructions" >&2; exit 1; }
count() {
    valgrind --tool=none --log-file=/dev/null true 2>/dev/null || { echo "valgrind is missing" >&2; exit 1; }
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$binary" "$@" 2>&1 | sed -n 's/.*Collected : //p'
}
printf '%-11s %-7s %5s %s\n' allocator pattern order 'instructions per pair'
for workload in "today tasks 0" "today oldest 0" "today random 0" "today tasks 4" \
    "slot-cache tasks 0" "slot-cache oldest 0" "bitmap tasks 0" "bitmap tasks 4"; do
    short=$(count $workload 102400)
    long=$(count $workload 204800)
    # shellcheck disable=SC2086
    printf '%-11s %-7s %5s %d\n' $workload $(((long - short) / 102400))
done
