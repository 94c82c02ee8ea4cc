# shellcheck shell=bash
# Sourced by scripts/ltp.sh and scripts/libc_test.sh: runs tests natively and under `folioswap run`, and prints those that end
# otherwise, each name with both exit statuses. The working directory is the tree's root. The environment says how:
#
#   FOLIOSWAP_RUN="OPTION..."         the options of `run`
#   FOLIOSWAP_BIN=FILE                the command; otherwise it is built
#   FOLIOSWAP_TEST_SECONDS=N          the time of each test (20)
#   FOLIOSWAP_TEST_USER=N             root lets this user run them, who may do nothing but that; he must reach the tests

prepare() { # NAME OPTION...: finds the command; what the tests print will be in target/NAME
    local name=$1
    shift
    seconds=${FOLIOSWAP_TEST_SECONDS:-20}
    read -ra options <<<"${FOLIOSWAP_RUN:-$*}"
    local out=${CARGO_TARGET_DIR:-target}
    [ -n "${FOLIOSWAP_BIN:-}" ] || cargo build --release -q -p folioswap-cli
    bin=$(realpath "${FOLIOSWAP_BIN:-$out/release/folioswap}")
    mkdir -p "$out/$name"
    place=$(realpath "$out/$name")
    TMPDIR=$(mktemp -d /var/tmp/folioswap-acc-XXXXXX)
    export TMPDIR HOME=$TMPDIR
    trap 'rm -rf "$TMPDIR"' EXIT
    as_user=()
    if [ -n "${FOLIOSWAP_TEST_USER:-}" ]; then
        local user=$FOLIOSWAP_TEST_USER
        as_user=(setpriv --reuid "$user" --regid "$user" --clear-groups --bounding-set=-all --inh-caps=-all)
        # The tree may lie where he may not look.
        cp "$bin" "$TMPDIR/folioswap"
        bin=$TMPDIR/folioswap
        chmod 755 "$bin"
        chown "$user:$user" "$TMPDIR"
    fi
}
status_of() { # KIND DIRECTORY TEST COMMAND...: runs a test in a directory, and prints its exit status
    local kind=$1 directory=$2 test=$3 status=0
    shift 3
    (cd "$directory" && exec timeout -k 5 "$seconds" "${as_user[@]}" "$@" "$test") \
        >"$place/$kind.$(basename "$test")" 2>&1 </dev/null || status=$?
    echo "$status"
}
compare() { # DIRECTORY TEST...: runs each test both ways, in that directory or, where it is empty, in the test's own
    local directory=$1 differ=0 pass=0 number=0 test native ours
    shift
    for test; do
        number=$((number + 1))
        [ ! -t 2 ] || printf '\r%d of %d ' "$number" $# >&2
        native=$(status_of native "${directory:-$(dirname "$test")}" "$test")
        ours=$(status_of ours "${directory:-$(dirname "$test")}" "$test" "$bin" run "${options[@]}" --)
        [ "$native" != 0 ] || pass=$((pass + 1))
        if [ "$native" != "$ours" ]; then
            differ=$((differ + 1))
            printf '%-28s %3d %3d\n' "$(basename "$test")" "$native" "$ours"
        fi
    done
    [ ! -t 2 ] || printf '\r' >&2
    echo "$# tests, $pass of them pass natively, $differ end otherwise under folioswap run ${options[*]}; what they printed: $place"
}
