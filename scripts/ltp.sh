#!/usr/bin/env bash
# Runs the system-call tests of the Linux Test Project natively and under `folioswap run`, and prints those that end
# otherwise: each name with both exit statuses.
#
#   scripts/ltp.sh LTP [NAME...]      all tests of LTP/testcases/kernel/syscalls, or of these calls
#   FOLIOSWAP_RUN="OPTION..."         the options of `run`: without it --gate unprivileged --evict-all -m 2G
#   FOLIOSWAP_BIN=FILE                the command; otherwise it is built
#   FOLIOSWAP_TEST_SECONDS=N          the time of each test (20)
#   FOLIOSWAP_TEST_USER=N             the user who runs them, without any permission; he must reach LTP
#
# LTP is the directory of a clone that is built (`make autotools && ./configure && make -C lib && make -C libs && make -C
# testcases/kernel/syscalls`). Takes root: some tests change the machine's settings for their time. All of them take 25
# minutes on two cores; what each printed is in target/ltp. The exit status is 0 if the tests could be run: some differences
# are known (docs/decisions/0049-calls-are-held.md).
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
    '' | -h | --help) sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 0 ;;
esac
ltp=$(realpath "$1")
shift
calls=$ltp/testcases/kernel/syscalls
if [ ! -x "$calls/read/read01" ]; then
    echo "$calls/read/read01 is not there: build LTP first (scripts/ltp.sh --help)" >&2
    exit 1
fi
# shellcheck source=scripts/native_and_ours.sh
. scripts/native_and_ours.sh
prepare ltp --gate unprivileged --evict-all -m 2G
export LTPROOT=$place PATH=$PATH:$ltp/testcases/lib KCONFIG_SKIP_CHECK=1

names=("$@")
[ $# -gt 0 ] || mapfile -t names < <(cd "$calls" && ls -d -- */)
mapfile -t tests < <(
    for name in "${names[@]}"; do
        find "$calls/${name%/}" -maxdepth 1 -type f -perm -u+x | sort
    done
)
compare '' "${tests[@]}"
