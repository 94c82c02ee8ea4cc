#!/usr/bin/env bash
# Runs all tests. Looks for Rust first, then installs what they need with apt when it is root; says what it skips otherwise.
#
#   scripts/test.sh                 everything (30 to 70 minutes on two cores)
#   scripts/test.sh checks          formatting, lints, licences, documentation, names and links (scripts/tidy.py)
#   scripts/test.sh unit            the tests of the crates
#   scripts/test.sh python          the Python package: its wheel is built, installed in an environment of its own, and tested
#   scripts/test.sh acceptance      real programs and hard cases under a limit
#   scripts/test.sh packages        packs the binaries, and installs them below scratch directories; checks contrib
#   scripts/test.sh msrv            only on request: builds with the Rust version that Cargo.toml states, and runs the library's unit tests with it
#   FOLIOSWAP_LONG=1 scripts/test.sh ...    the long form: timed programs run for 60 s, others do two to three times as much
#   FOLIOSWAP_NO_APT=1              installs nothing
#   FOLIOSWAP_NO_MIRI=1             leaves Miri out
#   FOLIOSWAP_NO_FUZZ=1             leaves the fuzz targets out
#
# The last line is the sum: N passed, N failed, N skipped. The exit status is 0 only when nothing failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

what=${1:-all}
case $what in all | checks | unit | python | packages | acceptance | msrv) ;; *) sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 2 ;; esac

. scripts/toolchain.sh
if ! need_toolchain; then
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi

passed=0 failed=0 skipped=0
logs=$(mktemp -d /var/tmp/folioswap-acc-test-XXXXXX)
export FOLIOSWAP_SKIP_FILE=$logs/skipped
: >"$FOLIOSWAP_SKIP_FILE"
failures=()
policy=
declare -A beside=() # what runs beside other tests: its name, its number and its process
wheel= # the process that builds the Python package, if one does
clean() {
    local each
    [ -z "$wheel" ] || kill "$wheel" 2>/dev/null
    for each in "${beside[@]}"; do kill "${each#* }" 2>/dev/null; done
    rm -rf "$logs"
    [ -z "$policy" ] || rm -f "$policy"
}
trap clean EXIT
trap 'exit 130' INT TERM
started=$SECONDS

say() { printf '\n=== [%4d s] %s\n' $((SECONDS - started)) "$*"; }
skip() { # REASON...: counts one check that cannot be made here
    echo "SKIP: $*"
    echo "SKIP scripts/test.sh: $*" >>"$FOLIOSWAP_SKIP_FILE"
    skipped=$((skipped + 1))
}
check() { # NAME COMMAND...: makes one check
    local name=$1
    shift
    say "$name"
    if "$@" >"$logs/check" 2>&1; then
        passed=$((passed + 1))
        tail -n 2 "$logs/check"
    else
        failed=$((failed + 1))
        failures+=("$name")
        tail -n 200 "$logs/check"
        echo "FAILED: $name"
    fi
}
run_tests() { # NUMBER COMMAND...: runs test binaries; what they say, skip and return is kept under this number
    local kept=$logs/tests.$1
    shift
    : >"$kept.skipped"
    # SIGINT and SIGHUP are ignored when this script runs in the background or under nohup. The tests find all signals as
    # at a login.
    FOLIOSWAP_SKIP_FILE=$kept.skipped env --default-signal "$@" >"$kept" 2>&1
    echo $? >"$kept.status"
}
add_sums() { # NUMBER NAME: adds the sums of test binaries that have run
    local kept=$logs/tests.$1 status ok bad ignored notes
    status=$(cat "$kept.status" 2>/dev/null || echo 1)
    notes=$(grep -c '^SKIP ' "$kept.skipped")
    cat "$kept.skipped" >>"$FOLIOSWAP_SKIP_FILE"
    read -r ok bad ignored < <(awk '/^test result: / {
        for (i = 1; i < NF; i++) { if ($(i+1) ~ /^passed/) p += $i; if ($(i+1) ~ /^failed/) f += $i; if ($(i+1) ~ /^ignored/) g += $i }
    } END { print p + 0, f + 0, g + 0 }' "$kept")
    # A test that skips itself has passed as far as cargo can tell.
    passed=$((passed + ok - notes)) failed=$((failed + bad)) skipped=$((skipped + ignored + notes))
    while read -r line; do failures+=("$line"); done < <(awk '/^failures:/ { on = 1; next } /^test result/ { on = 0 }
        on && /^    [a-zA-Z0-9_:]+( - .*)?$/ { print $1 }' "$kept" | sort -u)
    if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then # it did not compile, or a binary died
        failed=$((failed + 1))
        failures+=("$2: exit status $status")
    fi
}
runs=0
tests() { # NAME COMMAND...: runs test binaries and adds their sums
    local name=$1
    shift
    say "$name"
    runs=$((runs + 1))
    run_tests $runs "$@" &
    # The output is seen as it comes.
    tail -n +1 -s 0.2 --pid=$! -F "$logs/tests.$runs" 2>/dev/null
    wait $!
    add_sums $runs "$name"
}
begin_tests() { # NAME COMMAND...: starts test binaries that run beside others
    local name=$1
    shift
    runs=$((runs + 1))
    run_tests $runs "$@" &
    beside[$name]="$runs $!"
}
finish_tests() { # NAME: waits for them, and adds their sums
    local number process
    read -r number process <<<"${beside[$1]}"
    say "$1"
    wait "$process"
    unset "beside[$1]"
    cat "$logs/tests.$number"
    add_sums "$number" "$1"
}

# Everything is built once. Each later command selects the whole workspace too, so cargo gives every crate the same features
# again: a selection of packages would build hundreds of crates once more, and the agent with them.
built=(--lib --bins --tests --examples)
CARGO_SELECT="--manifest-path $PWD/Cargo.toml --workspace ${built[*]}" # for the Makefile of the C library
export CARGO_SELECT
test_targets() { # DIRECTORY...: the names of cargo's test targets in them
    local directory file
    for directory; do
        for file in "$directory"/*.rs "$directory"/*/main.rs; do
            [ ! -e "$file" ] || basename "${file%/main.rs}" .rs
        done
    done | sort -u
}
tests_of_crates() { # the names of all test targets but those of the acceptance tests
    local directory others=()
    for directory in crates/*/tests; do
        [ "$directory" = crates/acceptance/tests ] || others+=("$directory")
    done
    test_targets "${others[@]}"
}

install() { # installs the programs that the tests run
    local wanted=() command package pair
    for pair in cc:gcc c++:g++ make:make git:git xz:xz-utils python3:python3 sqlite3:sqlite3 redis-server:redis-server redis-benchmark:redis-tools \
        stress-ng:stress-ng mkfs.ext4:e2fsprogs losetup:mount nbdkit:nbdkit nbd-server:nbd-server qemu-nbd:qemu-utils valgrind:valgrind \
        openssl:openssl sha256sum:coreutils setpriv:util-linux setcap:libcap2-bin musl-gcc:musl-tools nm:binutils fio:fio rsync:rsync fusermount3:fuse3 setfacl:acl tmux:tmux shellcheck:shellcheck cmake:cmake pkg-config:pkg-config \
        bwrap:bubblewrap gdb:gdb chromium:chromium firefox-esr:firefox-esr go:golang-go busybox:busybox-static; do
        command=${pair%%:*} package=${pair#*:}
        command -v "$command" >/dev/null || wanted+=("$package")
    done
    [ -e /usr/lib/x86_64-linux-gnu/libc.a ] || wanted+=(libc6-dev)
    /usr/bin/python3 -c 'import numpy' 2>/dev/null || wanted+=(python3-numpy)
    # CPython's own tests have the version of this Debian's python3 in the name of their package.
    if command -v /usr/bin/python3 >/dev/null && ! /usr/bin/python3 -c 'import test.test_os' 2>/dev/null; then
        wanted+=("$(/usr/bin/python3 -c 'import sys; print("libpython%d.%d-testsuite" % sys.version_info[:2])')")
    fi
    # What the seccomp profiles of contrib are compared with is that of this Debian.
    if grep -qs '^VERSION_CODENAME=bookworm' /etc/os-release && [ ! -e /usr/share/containers/seccomp.json ]; then
        wanted+=(golang-github-containers-common)
    fi
    # The Python package and py-spy get environments of their own.
    python3 -c 'import ensurepip' 2>/dev/null || wanted+=(python3-venv)
    [ ${#wanted[@]} -eq 0 ] || install_packages "${wanted[@]}"
    if [ "$(uname -m)" = x86_64 ] && ! rust_target_is_there x86_64-unknown-linux-musl; then
        echo "Rust's target for musl could not be added; the tests of its programs are skipped"
    fi
    if ! { [ -x target/tools/bin/py-spy ] || command -v py-spy || { python3 -m venv target/tools && target/tools/bin/pip install -q py-spy; }; } \
        >"$logs/py-spy" 2>&1; then
        echo "py-spy could not be installed; its test is skipped"
    fi
}

install_packages() { # PACKAGE...: by apt, where that may be done
    local wanted=("$@")
    say "installing ${wanted[*]}"
    if [ -n "${FOLIOSWAP_NO_APT:-}" ] || [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        echo "not installed (that takes root and apt); the tests that need them are skipped: ${wanted[*]}"
        return 0
    fi
    # A freshly installed server must not be started.
    if [ ! -e /usr/sbin/policy-rc.d ]; then
        policy=/usr/sbin/policy-rc.d
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
    fi
    export DEBIAN_FRONTEND=noninteractive
    if ! { apt-get update -q && apt-get install -qy --no-install-recommends "${wanted[@]}"; } >"$logs/apt" 2>&1; then
        tail -n 5 "$logs/apt"
        echo "apt failed; the tests that need what is missing are skipped"
    fi
    [ -z "$policy" ] || rm -f "$policy"
    policy=
}

rust_target_is_there() { # TARGET: adds it where rustup can
    rustup target list --installed 2>/dev/null | grep -qx "$1" || timeout 120 rustup target add "$1" >/dev/null 2>&1
}

miri_is_there() { # it comes with a nightly toolchain, if there is one
    cargo +nightly miri --version >/dev/null 2>&1 && return 0
    [ -z "${FOLIOSWAP_NO_APT:-}" ] || return 1
    timeout 120 rustup component add --toolchain nightly miri rust-src >/dev/null 2>&1 &&
        cargo +nightly miri --version >/dev/null 2>&1
}

deny() { # licences, sources and bans of every dependency, in all workspaces
    local manifest
    for manifest in Cargo.toml python/Cargo.toml fuzz/Cargo.toml; do
        cargo deny --manifest-path "$manifest" --config "$PWD/deny.toml" check licenses bans sources || return
    done
}

checks() {
    if command -v python3 >/dev/null; then
        check "the checks of tidy.py fail on bad input" python3 scripts/tidy.py --self-test
        check "names and links of the books, widths, lengths, rooms" python3 scripts/tidy.py
        check "each small wrong change can still be made" bash scripts/mutants.sh --check
    else
        skip "python3 is not there for scripts/tidy.py"
    fi
    if cargo fmt --version >/dev/null 2>&1; then
        check "formatting" cargo fmt --all --check
        check "formatting of the Python extension" cargo fmt --manifest-path python/Cargo.toml --check
        check "formatting of the fuzz targets" cargo fmt --manifest-path fuzz/Cargo.toml --check
    else
        skip "cargo fmt is not installed (rustup component add rustfmt)"
    fi
    if cargo clippy --version >/dev/null 2>&1; then
        check "lints" cargo clippy --release --workspace --all-targets -- -D warnings
        # In the same directory what both need is checked once.
        check "lints of the Python extension" cargo clippy --release --manifest-path python/Cargo.toml \
            --target-dir "${CARGO_TARGET_DIR:-target}" -- -D warnings
    else
        skip "cargo clippy is not installed (rustup component add clippy)"
    fi
    if cargo deny --version >/dev/null 2>&1; then
        check "licences and sources (cargo deny)" deny
    elif command -v python3 >/dev/null; then
        check "licences" python3 scripts/licences.py Cargo.toml python/Cargo.toml fuzz/Cargo.toml
    else
        skip "neither cargo-deny nor python3 for the check of licences"
    fi
    check "documentation without warnings" env RUSTDOCFLAGS="-D warnings" cargo doc --release --workspace --no-deps
}

# Test targets of the command that play members of a group: most of their time they wait for a supervisor. They run beside
# the checks, and beside the tests of the other crates.
waiting=(agents_name damaged_segment hostile_members hostile_reports supervisor_members supervisor_processes supervisor_reports)
begin_waiting() {
    begin_tests "tests of the command with members of a group" \
        cargo test --release --no-fail-fast --workspace "${waiting[@]/#/--test=}"
}

# Miri runs the tests of slots and trace, and of the other crates those modules whose tests map no memory and make few steps. It
# makes two test runs at a time, because each of them runs one thread after the other, whatever the machine has. They run
# beside the checks and the tests of the crates, which leave a quarter of two processors idle, and give way to them. The time
# limit is against a hang.
begin_miri() {
    if [ -n "${FOLIOSWAP_NO_MIRI:-}" ]; then
        skip "Miri is not wanted (FOLIOSWAP_NO_MIRI)"
    elif miri_is_there; then
        begin_tests "crates under Miri" nice -n 5 bash -c '
            run() { timeout 3000 cargo +nightly miri test -p folioswap-slots "$@" \
                -- --skip every_order --skip payload_is_zero --skip no_more_groups 2>&1; }
            export MIRIFLAGS=-Zmiri-disable-isolation
            run --test groups --test handle --test threads --test oracle >"$0" & other=$!
            run --test cluster_scan; status=$?
            of() { PROPTEST_CASES=2 timeout 600 cargo +nightly miri test -p "folioswap-$1" --lib -- "${@:2}" 2>&1; }
            of trace || status=$?
            of group folio_orders:: moments:: protocol:: refaults:: swap_link:: || status=$?
            of devices device:: zram:: || status=$?
            of policy page:: tiers:: units:: || status=$?
            of space shared_devices:: || status=$?
            wait "$other" || status=$?
            cat "$0"; exit "$status"' "$logs/miri"
    else
        skip "Miri is not installed (rustup component add --toolchain nightly miri rust-src)"
    fi
}

# The fuzz targets begin with the kept inputs, 5 s each, one check a target. What they cost is mostly their build. They take what
# the others leave idle.
begin_fuzz() {
    if [ -n "${FOLIOSWAP_NO_FUZZ:-}" ]; then
        skip "fuzz targets are not wanted (FOLIOSWAP_NO_FUZZ)"
    else
        begin_tests "fuzz targets" nice -n 15 bash scripts/fuzz.sh "$([ -n "${FOLIOSWAP_LONG:-}" ] && echo 60 || echo 5)"
    fi
}

begin_beside() { # what runs beside the checks and the tests of the crates
    begin_waiting
    begin_miri
    begin_fuzz
}

unit() {
    local names=() beside_them
    mapfile -t names < <(tests_of_crates | grep -vxF "$(printf '%s\n' "${waiting[@]}")")
    if [ "$what" = all ]; then build_python_meanwhile; else begin_beside; fi
    # The short form of the models of slots (loom and shuttle) is among these tests, and a minute of random messages.
    export FOLIOSWAP_FUZZ_SECONDS=${FOLIOSWAP_FUZZ_SECONDS:-60}
    tests "tests of the crates" cargo test --release --no-fail-fast --workspace --lib "${names[@]/#/--test=}"
    finish_tests "tests of the command with members of a group"
    tests "examples in the documentation" cargo test --release --no-fail-fast --workspace --doc
    without_system
    for beside_them in "crates under Miri" "fuzz targets"; do
        [ -z "${beside[$beside_them]:-}" ] || finish_tests "$beside_them"
    done
}

without_system() { # the crate of pure policies uses no operating system: it builds for a target that has none
    local target=x86_64-unknown-none
    if rust_target_is_there "$target"; then
        check "policy builds without an operating system" cargo build --release -p folioswap-policy --target "$target"
    else
        skip "the target $target is not there for the crate policy (rustup target add $target)"
    fi
}

msrv() {
    local version
    version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
    if ! rustup run "$version" cargo --version >/dev/null 2>&1 &&
        ! timeout 300 rustup toolchain install "$version" --profile minimal >/dev/null 2>&1; then
        skip "Rust $version is not there (rustup toolchain install $version)"
        return
    fi
    # Another compiler has built the usual directory, so this one has its own.
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/msrv
    check "the command and all libraries compile with Rust $version" \
        cargo "+$version" check --release -p folioswap-cli -p folioswap -p folioswap-heap -p folioswap-capi
    tests "unit tests of the library with Rust $version" cargo "+$version" test --release -p folioswap --lib
}

build_python_meanwhile() { # beside the tests of the crates
    bash python/build.sh "${CARGO_TARGET_DIR:-target}/python-tests" >"$logs/wheel" 2>"$logs/build" &
    wheel=$!
}

python() {
    local status python
    say "building the Python package"
    [ -n "$wheel" ] || build_python_meanwhile
    wait "$wheel"
    status=$?
    wheel=
    python=$(cat "$logs/wheel")
    if [ $status -eq 77 ]; then # pip or Python is missing
        skip "the Python package: $(tail -n 1 "$logs/build")"
    elif [ $status -ne 0 ]; then
        tail -n 30 "$logs/build"
        failed=$((failed + 1))
        failures+=("building the Python package")
    else
        say "tests of the Python package"
        # Processes share memory by name in a mount, so the tests need the command.
        (cd python/tests && FOLIOSWAP_BIN=$(realpath "../../${CARGO_TARGET_DIR:-target}/release/folioswap" 2>/dev/null || true) timeout 300 "$python" -m pytest -q -rs --tb=short -p no:cacheprovider -o faulthandler_timeout=100 .) 2>&1 |
            tee "$logs/tests"
        status=${PIPESTATUS[0]}
        read -r ok bad left < <(awk '/ in [0-9.]+s/ { for (i = 2; i <= NF; i++) {
            if ($i ~ /^passed/) p = $(i-1); if ($i ~ /^(failed|error)/) f += $(i-1); if ($i ~ /^skipped/) s = $(i-1) }
            } END { gsub(/=/, "", p); print p + 0, f + 0, s + 0 }' "$logs/tests")
        passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + left))
        [ "$bad" -eq 0 ] || failures+=("tests of the Python package")
        if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then
            failed=$((failed + 1))
            failures+=("tests of the Python package: exit status $status")
        fi
    fi
}

packages() { # its own sum is the last line of what it says
    local ok bad left
    say "packages"
    bash scripts/test_release.sh short 2>&1 | tee "$logs/packages"
    read -r ok bad left < <(awk '/^[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/ { p = $1; f = $3; s = $5 } END { print p + 0, f + 0, s + 0 }' "$logs/packages")
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + left))
    if [ "$bad" -gt 0 ]; then failures+=("packages (scripts/test_release.sh short)"); fi
    if [ "$ok" -eq 0 ]; then
        failed=$((failed + 1))
        failures+=("packages: no check was made")
    fi
}

programs_in_short() { # a few real programs at a half and a quarter of their need
    if ! command -v python3 >/dev/null || [ "$(id -u)" -ne 0 ]; then
        skip "the programs in short want python3, and root for the cgroup that measures their need"
        return
    fi
    local notes
    notes=$(grep -c '^SKIP bench/programs.py' "$FOLIOSWAP_SKIP_FILE")
    check "real programs at a half and a quarter of their need" timeout 900 python3 bench/programs.py --short
    skipped=$((skipped + $(grep -c '^SKIP bench/programs.py' "$FOLIOSWAP_SKIP_FILE") - notes))
}

acceptance() {
    local first=() second=() third=() name
    check "the demonstration of the README" env FOLIOSWAP_BUILT=1 bash scripts/demo.sh
    programs_in_short
    echo "host: $(uname -sr), $(nproc) processors, $(awk '/MemTotal/ {printf "%d MiB", $2 / 1024}' /proc/meminfo)"
    # The tests run in three lanes of about the same length, because most of them wait for devices, timers or each other, and
    # leave much of a processor idle.
    while read -r name; do
        case $name in
            # bench changes the settings of huge pages, on which orders relies: both are in one lane.
            bench | device_faults | exec | exec_forms | mappings | orders | readahead | rotation | trace | tree) second+=("--test=$name") ;;
            advice | injection | input_output | nbd | recompression | suites | swap_devices | swapoff | tmpfs_devices | tmpfs_programs | verified) third+=("--test=$name") ;;
            *) first+=("--test=$name") ;;
        esac
    done < <(test_targets crates/acceptance/tests)
    name=$(comm -12 <(test_targets crates/acceptance/tests) <(tests_of_crates) | xargs)
    [ -z "$name" ] || { failed=$((failed + 1)) && failures+=("acceptance tests with the name of another crate's test: $name"); }
    tests "acceptance: real programs and hard cases under a limit" bash -c '
        export RUST_TEST_THREADS=1
        lane() { cargo test --release --no-fail-fast --workspace $1 -- --nocapture >"$2" 2>&1; }
        lane "$1" "$0.1" & first=$!
        lane "$2" "$0.2" & second=$!
        lane "$3" "$0.3"; status=$?
        wait "$first" || status=$?
        wait "$second" || status=$?
        cat "$0".?; exit "$status"' "$logs/lane" "${first[*]}" "${second[*]}" "${third[*]}"
}

if [ "$what" = msrv ]; then
    msrv
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
fi
install
say "building"
if ! cargo build --release --workspace "${built[@]}"; then
    echo "the build failed"
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
fi
[ "$what" != all ] || begin_beside
[ "$what" != all ] && [ "$what" != checks ] || checks
[ "$what" != all ] && [ "$what" != unit ] || unit
[ "$what" != all ] && [ "$what" != python ] || python
[ "$what" != all ] && [ "$what" != packages ] || packages
[ "$what" != all ] && [ "$what" != acceptance ] || acceptance

say "done"
if [ -s "$FOLIOSWAP_SKIP_FILE" ]; then
    echo "skipped, or left out in part:"
    sort "$FOLIOSWAP_SKIP_FILE" | uniq -c | sed 's/^/  /'
fi
if [ ${#failures[@]} -gt 0 ]; then
    echo "failed:"
    printf '  %s\n' "${failures[@]}"
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
