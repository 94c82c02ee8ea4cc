#!/usr/bin/env bash
# Runs the system-call tests of the Linux Test Project natively and under `folioswap run`, and prints those that end
# otherwise: each name with both exit statuses.
#
#   scripts/ltp.sh LTP [NAME...]      all tests of LTP/testcases/kernel/syscalls, or of these calls
#   FOLIOSWAP_RUN="OPTION..."         the options of `run`: without it --gate unprivileged --evict-all -m 2G
#   FOLIOSWAP_BIN=FILE                the command; otherwise it is built
#   FOLIOSWAP_TEST_SECONDS=N          the time of each test (20)
#
# LTP is the directory of a clone that is built (`make autotools && ./configure && make -C lib && make -C libs && make -C
# testcases/kernel/syscalls`). Takes root: some tests change the machine's settings for their time. All of them take 25
# minutes on two cores; what each printed is in target/ltp. The exit status is 0 if the tests could be run: some differences
# are known (docs/decisions/0049-calls-are-held.md).
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
    '' | -h | --help) sed -n '2,15s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
ltp=$(realpath "$1") seconds=${FOLIOSWAP_TEST_SECONDS:-20}
shift
calls=$ltp/testcases/kernel/syscalls
if [ ! -x "$calls/read/read01" ]; then
    echo "$calls/read/read01 is not there: build LTP first (scripts/ltp.sh --help)" >&2
    exit 1
fi
out=${CARGO_TARGET_DIR:-target}
[ -n "${FOLIOSWAP_BIN:-}" ] || cargo build --release -q -p folioswap-cli
bin=$(realpath "${FOLIOSWAP_BIN:-$out/release/folioswap}")
read -ra options <<<"${FOLIOSWAP_RUN:---gate unprivileged --evict-all -m 2G}"
mkdir -p "$out/ltp"
place=$(realpath "$out/ltp")
export LTPROOT=$place TMPDIR=$place/files PATH=$PATH:$ltp/testcases/lib KCONFIG_SKIP_CHECK=1
mkdir -p "$TMPDIR"
trap 'rm -rf "$TMPDIR"' EXIT

names=("$@")
[ $# -gt 0 ] || mapfile -t names < <(cd "$calls" && ls -d -- */)
mapfile -t tests < <(
    for name in "${names[@]}"; do
        find "$calls/${name%/}" -maxdepth 1 -type f -perm -u+x | sort
    done
)
status_of() { # KIND TEST COMMAND...: runs a test in its directory, and prints its exit status
    local kind=$1 test=$2 status=0
    shift 2
    (cd "$(dirname "$test")" && timeout -k 5 "$seconds" "$@" "$test") >"$place/$kind.$(basename "$test")" 2>&1 </dev/null || status=$?
    echo "$status"
}
differ=0 number=0
for test in "${tests[@]}"; do
    number=$((number + 1))
    [ ! -t 2 ] || printf '\r%d of %d ' "$number" "${#tests[@]}" >&2
    native=$(status_of native "$test")
    ours=$(status_of ours "$test" "$bin" run "${options[@]}" --)
    if [ "$native" != "$ours" ]; then
        differ=$((differ + 1))
        printf '%-28s %3d %3d\n' "$(basename "$test")" "$native" "$ours"
    fi
done
[ ! -t 2 ] || printf '\r' >&2
echo "${#tests[@]} tests, $differ of them end otherwise under folioswap run ${options[*]}; what they printed: $place"
