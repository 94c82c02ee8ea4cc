#!/usr/bin/env bash
# Records the slot allocations of two real programs, and fits the parameters of a build to each.
#
#   bench/record_traces.sh DIRECTORY
#
#   make.trace    make -j4 of generated C files (gcc -O2) within a limit at which it swaps
#   redis.trace   redis-server under writes and reads, with BGSAVE meanwhile
#   *.json        the result of `folioswap lab fit`; *.stats.json: the counters of the run
#
# Needs gcc, make, python3, redis; a release build of folioswap, or its path in $FOLIOSWAP_BIN.
set -euo pipefail
[ $# -eq 1 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2; }
cd "$(dirname "$0")/.."
out=$(mkdir -p "$1" && cd "$1" && pwd)
folioswap=${FOLIOSWAP_BIN:-target/release/folioswap}
[ -x "$folioswap" ] || { echo "build it first: cargo build --release -p folioswap-cli, or set FOLIOSWAP_BIN" >&2; exit 2; }
folioswap=$(realpath "$folioswap")
for command in gcc make python3 redis-server redis-cli redis-benchmark; do
    command -v "$command" >/dev/null || { echo "$command is not installed" >&2; exit 2; }
done

FILES=${FILES:-20}               # number of C files
MAKE_LIMIT=${MAKE_LIMIT:-320M}   # four compilers at a time need 60 to 180 MiB each
REDIS_LIMIT=${REDIS_LIMIT:-96M} # the data below needs about twice as much
REDIS_KEYS=${REDIS_KEYS:-200000}
REDIS_BYTES=${REDIS_BYTES:-512}

work=$(mktemp -d /var/tmp/folioswap-record-XXXXXX)
server=
clean() {
    [ -z "$server" ] || { kill "$server" 2>/dev/null && wait "$server" 2>/dev/null; } || true
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT TERM

record() { # NAME LIMIT COMMAND...
    local name=$1 limit=$2
    shift 2
    "$folioswap" run --memory "$limit" --trace "$out/$name.trace" --stats-json "$out/$name.stats.json" -- "$@"
}
derive() { # NAME
    "$folioswap" lab fit "$out/$1.trace" >"$out/$1.json"
    echo "$1: $(du -h "$out/$1.trace" | cut -f1), $(python3 - "$out/$1.json" "$out/$1.stats.json" <<'EOF'
import json, sys
fit, stats = (json.load(open(name)) for name in sys.argv[1:])
print(f"{fit['allocations']} allocations, {fit['seconds']:.1f} s, {stats['trace']['members']} members, {stats['trace']['lost']} events lost")
EOF
    )"
}

# The files are the same on every host: functions with loops, switches and calls among them, for
# which a compiler needs 60 to 180 MiB.
python3 - "$work" "$FILES" <<'EOF'
import random, sys
directory, files = sys.argv[1], int(sys.argv[2])
names = [f"part{number:03}" for number in range(files)]
for number, name in enumerate(names):
    rng = random.Random(number)
    text = ["struct node { int key, count; struct node *left, *right; long sum[8]; };"]
    for f in range(rng.randint(40, 160)):
        text.append(f"static long {name}_{f}(struct node *n, long a, int b) {{ long s = a; int i, j;")
        for _ in range(rng.randint(2, 6)):
            k = rng.randint(2, 60)
            text.append(f" for (i = 0; i < b % {k + 1}; i++) {{ s = s * {rng.randint(3, 99)} + (n ? n->sum[i & 7] : a) % {k};")
            text.append(f"  switch ((int)(s & 7)) {{ case 0: s ^= a >> {rng.randint(1, 9)}; break; case 3: s += b * {k}; break; case 5: if (n) n->count += i; break; default: s -= i; }}")
            text.append(f"  for (j = 0; j < {rng.randint(4, 16)}; j++) if (n) n->sum[j & 7] += s >> j; }}")
        if f:
            text.append(f" if (b > {rng.randint(1, 50)} && n) s += {name}_{rng.randrange(f)}(n->left, s, b - 1);")
        text.append(" return s; }")
    text.append(f"long {name}(struct node *n) {{ long s = 0;")
    text += [f" s += {name}_{f}(n, s, {f % 37});" for f in range(0, len([t for t in text if ' return s; }' in t]))]
    text.append(" return s; }")
    open(f"{directory}/{name}.c", "w").write("\n".join(text) + "\n")
with open(f"{directory}/main.c", "w") as main:
    main.write("struct node;\n" + "".join(f"long {name}(struct node *);\n" for name in names))
    main.write("int main(void) { long s = 0;\n" + "".join(f" s += {name}(0);\n" for name in names) + " return s == 42; }\n")
objects = " ".join(f"{name}.o" for name in names + ["main"])
open(f"{directory}/Makefile", "w").write(f"CFLAGS = -O2 -g\nall: {objects}\n\tgcc -o all {objects}\n")
EOF

record make "$MAKE_LIMIT" make -s -j4 -C "$work"
derive make

socket=$work/redis.sock
record redis "$REDIS_LIMIT" redis-server --port 0 --unixsocket "$socket" --dir "$work" --save '' --appendonly no --daemonize no \
    --loglevel warning &
server=$!
ask() { redis-cli -s "$socket" "$@"; }
until ask ping 2>/dev/null | grep -q PONG; do kill -0 "$server"; sleep 0.1; done
load() { redis-benchmark -s "$socket" -r "$REDIS_KEYS" -d "$REDIS_BYTES" -c 8 -P 8 -q "$@" >/dev/null; }
load -t set -n $((2 * REDIS_KEYS))
ask bgsave >/dev/null
load -t set,get -n $((REDIS_KEYS / 4))
while ask info persistence | grep -q 'rdb_bgsave_in_progress:1'; do sleep 0.2; done
load -t get -n $((REDIS_KEYS / 4))
ask shutdown nosave >/dev/null 2>&1 || true
wait "$server" || true
server=
derive redis
