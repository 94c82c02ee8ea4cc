#!/usr/bin/env bash
# Runs the fuzz targets (fuzz/fuzz_targets) with the stable compiler and without cargo-fuzz, from their kept inputs
# (fuzz/corpus/TARGET) on.
#
#   scripts/fuzz.sh [SECONDS] [TARGET...]    each target, or these, for SECONDS (60); 0: the kept inputs alone
#   scripts/fuzz.sh --keep [TARGET...]       takes the new inputs into the kept ones: the fewest and shortest with their edges
#   scripts/fuzz.sh --list                   prints the targets
#   FOLIOSWAP_FUZZ_SEED=N                    the seed of the changes; otherwise the time
#   FOLIOSWAP_FUZZ_JOBS=N                    how many targets run at a time (1)
#
# A line for each target: what was executed, what it covers, and its seed. An input that fails is written to
# target/fuzz/failed, and a line says how to try it again. What is new goes to target/fuzz/corpus. The exit status is 0 only
# when no target failed. It takes a C++ compiler for libFuzzer; clang, where it is there, also counts coverage in C code.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

targets() { sed -n 's/^path = "fuzz_targets\/\(.*\)\.rs"/\1/p' fuzz/Cargo.toml; }

seconds=60 keep=
case ${1:-} in
    -h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --list) targets; exit 0 ;;
    --keep) keep=1; shift ;;
    -*) sed -n '2,15s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    [0-9]*) seconds=$1; shift ;;
esac
mapfile -t chosen < <(targets)
for each; do
    if ! targets | grep -qxF -e "$each"; then
        echo "there is no target '$each'; there are: $(targets | xargs)" >&2
        exit 2
    fi
done
[ $# -eq 0 ] || chosen=("$@")

skip() { # REASON: says that the targets cannot run here; counted by scripts/test.sh
    echo "SKIP: $*"
    if [ -n "${FOLIOSWAP_SKIP_FILE:-}" ]; then
        echo "SKIP scripts/fuzz.sh: $*" >>"$FOLIOSWAP_SKIP_FILE"
        echo "test result: ok. 1 passed; 0 failed" # as a test that skips itself
    fi
    exit 0
}
# shellcheck source=scripts/toolchain.sh
. scripts/toolchain.sh
need_toolchain || exit 1
command -v "${CXX:-c++}" >/dev/null || skip "no fuzz target ran: libFuzzer needs a C++ compiler (g++ or clang++)"

host=$(rustc -vV | sed -n 's/^host: //p')
built=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
build() {
    local flags=(-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
        -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares '--cfg fuzzing') names=()
    if command -v clang >/dev/null; then
        local variable=${host//-/_}
        export "CC_$variable=clang" "CFLAGS_$variable=-fsanitize-coverage=inline-8bit-counters,pc-table,trace-cmp"
    fi
    for each in "${chosen[@]}"; do names+=(--bin "$each"); done
    # With --target the flags are not those of build scripts.
    RUSTFLAGS=${flags[*]} CARGO_TARGET_DIR=$built cargo build --release --locked --manifest-path fuzz/Cargo.toml --target "$host" "${names[@]}"
}
build || exit 1

if [ -n "$keep" ]; then
    for each in "${chosen[@]}"; do
        new=$(mktemp -d "$built/keep-XXXXXX")
        mkdir -p "fuzz/corpus/$each" "$built/corpus/$each"
        "$built/$host/release/$each" -set_cover_merge=1 -use_counters=0 "$new" "fuzz/corpus/$each" "$built/corpus/$each" >"$built/$each.log" 2>&1 || {
            tail -n 30 "$built/$each.log"
            exit 1
        }
        # Inputs that failed once are kept by their names.
        find "fuzz/corpus/$each" -name 'found-*' -exec cp {} "$new" \;
        rm -rf "fuzz/corpus/$each" && mv "$new" "fuzz/corpus/$each" && chmod 755 "fuzz/corpus/$each"
        find "fuzz/corpus/$each" -type f -exec cat {} + | wc -c |
            xargs printf '%-16s %4d inputs, %6d bytes\n' "$each" "$(find "fuzz/corpus/$each" -type f | wc -l)"
    done
    exit 0
fi

fuzz() { # TARGET: prints its line; the status is its own
    local target=$1 log=$built/$1.log status limit=(-max_total_time="$seconds") executed cover seed
    local new=$built/corpus/$1 kept=fuzz/corpus/$1
    mkdir -p "$built/failed" "$new" "$kept"
    [ "$seconds" -gt 0 ] || limit=(-runs=0)
    # An input may take 10 s and 1 GiB, thousands of times what any takes.
    timeout $((seconds + 120)) "$built/$host/release/$target" "${limit[@]}" -seed="${FOLIOSWAP_FUZZ_SEED:-$(date +%s)}" -timeout=10 -rss_limit_mb=1024 \
        -max_len=9000 -print_final_stats=1 -artifact_prefix="$built/failed/$target-" "$new" "$kept" >"$log" 2>&1
    status=$?
    executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    cover=$(sed -n 's/.* cov: \([0-9]*\) ft: \([0-9]*\) .*/\1 edges, \2 features/p' "$log" | tail -n 1)
    seed=$(sed -n 's/^INFO: Seed: //p' "$log")
    printf '%-16s %s executions, %s, seed %s\n' "$target" "${executed:-0}" "${cover:-no coverage}" "${seed:-unknown}"
    [ $status -ne 0 ] || return 0
    tail -n 60 "$log"
    echo "FAILED: $target (exit status $status)"
    sed -n 's/.*Test unit written to \(.*\)/the input is \1/p' "$log"
    sed -n "s|.*Test unit written to \(.*\)|again: $built/$host/release/$target \1|p" "$log"
    return 1
}

running=0 passed=0 failed=()
finished() { # waits for one target, and counts it
    local process
    if wait -n -p process; then passed=$((passed + 1)); else failed+=("${target_of[$process]}"); fi
    running=$((running - 1))
}
declare -A target_of
for each in "${chosen[@]}"; do
    fuzz "$each" &
    target_of[$!]=$each
    running=$((running + 1))
    [ $running -lt "${FOLIOSWAP_FUZZ_JOBS:-1}" ] || finished
done
while [ $running -gt 0 ]; do finished; done
# The sum has cargo's form, for scripts/test.sh.
if [ ${#failed[@]} -gt 0 ]; then printf 'failures:\n' && printf '    %s\n' "${failed[@]}"; fi
echo "test result: $([ ${#failed[@]} -eq 0 ] && echo ok || echo FAILED). $passed passed; ${#failed[@]} failed"
[ ${#failed[@]} -eq 0 ]
