"""The programs that `bench/real.py` measures. Each makes its own input from scratch and returns its command."""

import os
import random
import shutil
import subprocess

from machine import write
from workloads.kit import RANDOM_C, Missing, Workloads, built, fill_script, generated_c, source, system_python, tool

PROGRAMS = Workloads()
program = PROGRAMS.program


@program("jq", "jq group_by")
def jq(place, scale):
    path, pick = os.path.join(place, "records.json"), random.Random(1)
    with open(path, "w") as file:
        file.write("[")
        for number in range(int(80_000 * scale)):
            file.write(f'{"," if number else ""}{{"id":{number},"key":"k{pick.randrange(5000)}","value":{pick.random():.6f},'
                       f'"text":"{pick.getrandbits(1600):0400x}"}}')
        file.write("]")
    return [tool("jq", "jq"), "-c", "group_by(.key) | map({key: .[0].key, n: length, sum: (map(.value) | add)}) | .[]", path]


@program("node", "Node.js")
def node(place, scale):
    return [tool("node", "nodejs"), source(place, "group.js", f"""
let x = 1;
const next = () => (x = (Math.imul(x, 1664525) + 1013904223) >>> 0);
const rows = [];
for (let i = 0; i < {int(550_000 * scale)}; i++)
    rows.push({{id: i, name: 'name' + (next() % 100000), value: next() / 4294967296, tag: String(next())}});
const groups = new Map();
for (const row of rows) {{
    if (!groups.has(row.name)) groups.set(row.name, []);
    groups.get(row.name).push(row);
}}
rows.sort((a, b) => a.value - b.value || a.id - b.id);
let sum = 0;
for (const [, group] of groups) sum += group.length * group[0].value;
console.log(rows[0].tag, rows[rows.length - 1].tag, groups.size, sum.toFixed(6));
""")]


@program("java", "Java, G1")
def java(place, scale):
    path = source(place, "Groups.java", f"""
import java.util.*;
public class Groups {{
    record Row(int id, String name, double value) {{}}
    public static void main(String[] arguments) {{
        var random = new Random(1);
        var groups = new HashMap<String, List<Row>>();
        int rows = {int(500_000 * scale)};
        for (int i = 0; i < rows; i++) {{
            String name = "name" + random.nextInt(100000);
            groups.computeIfAbsent(name, key -> new ArrayList<>()).add(new Row(i, name, random.nextDouble()));
        }}
        var names = new ArrayList<>(groups.keySet());
        Collections.sort(names);
        double sum = 0;
        for (int again = 0; again < 3; again++)
            for (String name : names) for (Row row : groups.get(name)) sum += row.value() * (row.id() % 7);
        System.out.printf(Locale.ROOT, "%d %s %.6f%n", names.size(), names.get(0), sum);
    }}
}}
""")
    built([tool("javac", "default-jdk-headless"), path], place)
    # The heap's first and largest size are fixed: without them the collector takes a share of the machine's memory.
    return [tool("java", "default-jre-headless"), "-XX:+UseG1GC", "-Xms32m", "-Xmx256m", "-cp", place, "Groups"]


@program("bytearray", "CPython, one bytearray")
def bytearray_(place, scale):
    return [system_python(), source(place, "fill.py", fill_script(int(200 * scale), int(50_000 * scale)))]


@program("dicts", "CPython, dictionaries")
def dicts(place, scale):
    return [system_python(), source(place, "dicts.py", f"""import random
pick = random.Random(1)
people = {{}}
for number in range({int(500_000 * scale)}):
    people.setdefault(f"name{{pick.randrange(200_000)}}", []).append((number, pick.random()))
total = 0
for name in sorted(people):
    for number, value in people[name]:
        total += value * (number % 7)
print(len(people), f"{{total:.6f}}")
""")]


@program("sqlite", "SQLite in memory")
def sqlite(place, scale):
    path = source(place, "queries.sql", f"""CREATE TABLE events (id INTEGER PRIMARY KEY, person INTEGER, kind TEXT, note TEXT);
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {int(800_000 * scale)})
INSERT INTO events SELECT x, (x * 7919) % 50021, 'kind' || (x % 17),
    printf('%016x note of event %d, %s', (x * 2654435761) % 4294967296 * 2654435761, x, hex(x * 31)) FROM n;
CREATE INDEX by_person ON events (person, kind);
SELECT kind, count(*), sum(person), min(note), max(note) FROM events GROUP BY kind ORDER BY kind;
SELECT person, count(*) AS c, sum(id) FROM events GROUP BY person ORDER BY c DESC, person LIMIT 20;
PRAGMA integrity_check;
""")
    return [tool("sqlite3", "sqlite3"), ":memory:", f".read {path}"]


@program("sort", "GNU sort")
def sort(place, scale):
    path, x = os.path.join(place, "lines"), 1
    with open(path, "w") as file:
        for number in range(int(1_700_000 * scale)):
            x = (x * 6364136223846793005 + 1442695040888963407) % (1 << 64)
            file.write(f"{x:016x} line {number:07} of the file, word {x >> 48:04x} {x >> 20 & 0xffff}\n")
    return ["bash", "-c", f"set -o pipefail; LC_ALL=C sort --parallel=2 -S 600M {path} | sha256sum"]


@program("perl", "Perl, hash and sort")
def perl(place, scale):
    return [tool("perl", "perl"), source(place, "hash.pl", f"""use integer;
my ($x, %groups) = (1);
for my $number (1 .. {int(800_000 * scale)}) {{
    $x = ($x * 1103515245 + 12345) % 2147483648;
    push @{{$groups{{"name" . $x % 100000}}}}, $number;
}}
my $sum = 0;
for my $name (sort keys %groups) {{ $sum = ($sum * 31 + $_) % 1000000007 for @{{$groups{{$name}}}} }}
print scalar(keys %groups), " $sum\\n";
""")]


@program("pandas", "pandas group-by")
def pandas(place, scale):
    candidates = [python for python in ("/usr/bin/python3", shutil.which("python3")) if python and os.path.exists(python)]
    for python in candidates:
        if subprocess.run([python, "-c", "import pandas"], stderr=subprocess.DEVNULL).returncode == 0:
            break
    else:
        raise Missing("no Python here has pandas: apt-get install python3-pandas")
    return [python, source(place, "frame.py", f"""import numpy, pandas
random, rows = numpy.random.default_rng(1), {int(1_500_000 * scale)}
frame = pandas.DataFrame({{"key": random.integers(0, 50_000, rows), "kind": random.integers(0, 17, rows),
                          "value": random.random(rows)}})
sums = frame.groupby("key")["value"].agg(["sum", "count", "max"])
kinds = frame.sort_values("value").groupby("kind")["value"].median()
print(sums["count"].sum(), f"{{sums['sum'].sum():.4f}} {{sums['max'].mean():.6f}}")
print(" ".join(f"{{value:.6f}}" for value in kinds))
""")]


@program("gcc", "make -j4, gcc -O2")
def gcc(place, scale):
    folder = os.path.join(place, "build")
    os.makedirs(folder, exist_ok=True)
    names = [f"part{number}" for number in range(4)]
    for number, name in enumerate(names):
        write(os.path.join(folder, f"{name}.c"), generated_c(int(70 * scale), number))
    objects = " ".join(f"{name}.o" for name in names)
    write(os.path.join(folder, "Makefile"), f"all: {objects}\n%.o: %.c\n\t@{tool('gcc', 'gcc')} -O2 -c $< -o $@\n")
    return ["bash", "-c", f"cd {folder} && rm -f *.o && {tool('make', 'make')} -s -j4 && cat {objects} | sha256sum"]


@program("redis", "Redis, fill and BGSAVE")
def redis(place, scale):
    server, client = tool("redis-server", "redis-server"), tool("redis-cli", "redis-tools")
    folder, pick, keys = os.path.join(place, "redis"), random.Random(1), int(250_000 * scale)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "fill"), "w") as file:
        for number in range(keys):
            file.write(f"SET key:{number:08} value:{pick.getrandbits(1024):0256x}:{number}\r\n")
    # Writes go on while the child saves: both sides have copies of some pages. The digest is of all keys and values.
    return ["bash", source(place, "redis.sh", f"""set -e
cd {folder}
rm -f dump.rdb sock
{server} --port 0 --unixsocket $PWD/sock --save '' --appendonly no --dir $PWD --daemonize no --enable-debug-command yes \\
    --logfile log --dbfilename dump.rdb &
server=$!
trap 'kill -9 $server 2>/dev/null || true' EXIT
ask() {{ {client} -s $PWD/sock "$@"; }}
until ask ping >/dev/null 2>&1; do kill -0 $server; sleep 0.01; done
ask --pipe <fill >/dev/null
ask BGSAVE >/dev/null
for number in 1 2 3 4 5; do
    ask EVAL "for i = 0, {keys - 1}, 29 do redis.call('APPEND', string.format('key:%08d', i), ':$number') end" 0 >/dev/null
done
while ask INFO persistence | grep -q rdb_bgsave_in_progress:1; do kill -0 $server; sleep 0.01; done
ask INFO persistence | grep rdb_last_bgsave_status
ask DEBUG DIGEST
ask SHUTDOWN NOSAVE >/dev/null 2>&1 || true
wait $server || true
{tool("redis-check-rdb", "redis-tools")} dump.rdb | grep 'keys read'
""")]


@program("go", "Go, map and sort (cgo)")
def go(place, scale):
    source(place, "go.mod", "module groups\n\ngo 1.19\n")
    # With cgo the program is linked with the C library; go-static is not.
    source(place, "groups.go", f"""package main

// #include <stdlib.h>
import "C"
import (
	"fmt"
	"sort"
)

type row struct {{
	id    int
	name  string
	value uint64
}}

func main() {{
	x := uint64(C.abs(-1))
	next := func() uint64 {{ x = x*6364136223846793005 + 1442695040888963407; return x >> 33 }}
	groups := map[string][]*row{{}}
	for i := 0; i < {int(700_000 * scale)}; i++ {{
		name := fmt.Sprintf("name%d", next()%100000)
		groups[name] = append(groups[name], &row{{i, name, next()}})
	}}
	names := []string{{}}
	for name := range groups {{
		names = append(names, name)
	}}
	sort.Strings(names)
	sum := uint64(0)
	for _, name := range names {{
		for _, r := range groups[name] {{
			sum = sum*31 + r.value*uint64(r.id%7)
		}}
	}}
	fmt.Println(len(names), sum)
}}
""")
    environment = ["env", "CGO_ENABLED=1", f"GOCACHE={place}/gocache", "GOFLAGS=-mod=mod", "GOTOOLCHAIN=local"]
    built([*environment, tool("go", "golang-go"), "build", "-o", "groups", "groups.go"], place)
    return [os.path.join(place, "groups")]


@program("rustc", "rustc -O")
def rustc(place, scale):
    pick, text = random.Random(1), []
    for number in range(int(250 * scale)):
        arms = "".join(f"            {arm} => s = s.wrapping_mul({pick.randrange(3, 999)}) ^ v.get(i + {pick.randrange(64)})"
                       f".copied().unwrap_or({pick.randrange(999)}),\n" for arm in range(8))
        text.append(f"pub fn f{number}(v: &[u64]) -> u64 {{\n    let mut s = {number}u64;\n    for i in 0..v.len() {{\n"
                    f"        match v[i] % 9 {{\n{arms}            _ => s += v.iter().skip(i).take(3).sum::<u64>(),\n"
                    f"        }}\n    }}\n    s\n}}\n")
    path = source(place, "generated.rs", "".join(text))
    # The compiler itself and not rustup's proxy, which reads its settings and downloads.
    compiler = tool("rustc", "rustc")
    home = subprocess.run([compiler, "--print", "sysroot"], stdout=subprocess.PIPE, text=True).stdout.strip()
    if os.path.exists(f"{home}/bin/rustc"):
        compiler = f"{home}/bin/rustc"
    return ["bash", "-c", f"cd {place} && {compiler} -O --edition 2021 --crate-type lib --emit obj -o generated.o {path} && "
            "sha256sum <generated.o"]


@program("pagerank", "PageRank, C")
def pagerank(place, scale):
    path = source(place, "pagerank.c", RANDOM_C + r"""int main(int argc, char **argv) {
    uint32_t n = atoi(argv[argc - 1]), degree = 16;
    uint64_t m = (uint64_t)n * degree;
    uint32_t *from = malloc(m * 4), *out = calloc(n, 4);
    double *rank = malloc(n * 8), *share = malloc(n * 8);
    for (uint64_t e = 0; e < m; e++) {
        /* Half of the edges stay near, as in a graph whose vertices are in some order. */
        uint32_t to = e / degree;
        from[e] = next(2) ? next(n) : (to + next(1000)) % n;
        out[from[e]]++;
    }
    for (uint32_t v = 0; v < n; v++) rank[v] = 1.0 / n;
    for (int round = 0; round < 6; round++) {
        for (uint32_t v = 0; v < n; v++) share[v] = out[v] ? rank[v] / out[v] : 0;
        for (uint32_t v = 0; v < n; v++) {
            double sum = 0;
            for (uint32_t e = 0; e < degree; e++) sum += share[from[(uint64_t)v * degree + e]];
            rank[v] = 0.15 / n + 0.85 * sum;
        }
    }
    double sum = 0, most = 0;
    for (uint32_t v = 0; v < n; v++) { sum += rank[v]; if (rank[v] > most) most = rank[v]; }
    printf("%.12f %.12e\n", sum, most);
}
""")
    built([tool("gcc", "gcc"), "-O2", "-o", "pagerank", path], place)
    return [os.path.join(place, "pagerank"), str(int((2 << 20) * scale))]
