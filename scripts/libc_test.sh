#!/usr/bin/env bash
# Runs musl's libc-test (its directories functional and regression) natively and under `folioswap run`, and prints the tests
# that end otherwise: each name with both exit statuses. Those of this machine's C library are dynamic programs; those
# whose name ends in -static are static programs of musl.
#
#   scripts/libc_test.sh DIR [NAME...]   all tests of the clone DIR, or those of these names, as `functional/pthread_cancel`
#   FOLIOSWAP_RUN="OPTION..."            the options of `run`: without it --gate unprivileged --evict-all -m 1G
#   FOLIOSWAP_BIN=FILE                   the command; otherwise it is built
#   FOLIOSWAP_TEST_SECONDS=N             the time of each test (20)
#   FOLIOSWAP_TEST_USER=N                the user who runs them, without any permission; he must reach DIR
#
# DIR is a clone of git://nsz.repo.hu:45100/repo/libc-test, which this builds, where it is not built yet: in DIR/src by cc,
# in DIR/musl by musl-gcc, which may be missing. Where a test cannot be built, it is named. All of them take two
# to four minutes on two cores; what each printed is in target/libc-test. The exit status is 0 if the tests could be run:
# one difference is known. malloc-brk-fail.exe finds a heap that has room already, as it does with any library preloaded.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
    '' | -h | --help) sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
suite=$(realpath "$1")
shift
if [ ! -e "$suite/src/functional/argv.c" ]; then
    echo "$suite/src/functional/argv.c is not there: it is no clone of libc-test (scripts/libc_test.sh --help)" >&2
    exit 1
fi
names=("$@")
# Sources named *_dso.c are shared objects that tests load.
[ $# -gt 0 ] || mapfile -t names < <(cd "$suite/src" && find functional regression -name '*.c' ! -name '*_dso.c' | sed 's/\.c$//' | sort)
mapfile -t objects < <(cd "$suite" && find src -name '*_dso.c' | sed 's/c$/so/')
# The suite's first target runs what it builds, so the programs are asked for by name. Some cannot be built everywhere.
build() { make -k -s -C "$suite" "$@" >/dev/null 2>&1 || true; }
programs=("${names[@]/#/src/}")
build CC=cc "${programs[@]/%/.exe}" "${objects[@]}"
programs=("${names[@]/#/musl/}")
if command -v musl-gcc >/dev/null; then
    # All libraries that the suite names for glibc are in musl's one.
    build CC=musl-gcc B=musl LDLIBS=musl/common/libtest.a "${programs[@]/%/-static.exe}"
else
    echo "musl-gcc is not there: no static programs" >&2
fi
tests=() missing=()
for program in "${names[@]/#/src/}" "${names[@]/#/musl/}"; do
    case $program in
        src/*) program=$program.exe ;;
        *) program=$program-static.exe ;;
    esac
    if [ -x "$suite/$program" ]; then tests+=("$suite/$program"); else missing+=("$program"); fi
done
[ ${#missing[@]} -eq 0 ] || echo "not built: ${missing[*]}" >&2

# shellcheck source=scripts/native_and_ours.sh
. scripts/native_and_ours.sh
prepare libc-test --gate unprivileged --evict-all -m 1G
# Some tests look for the shared objects below `src` of the working directory, and some write there.
ln -s "$suite/src" "$TMPDIR/src"
export LD_LIBRARY_PATH=$suite/src/regression
compare "$TMPDIR" "${tests[@]}"
