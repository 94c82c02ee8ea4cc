#!/usr/bin/env python3
"""Runs programs without a limit, under folioswap and under the kernel's own swap, in one table.

The kernel has a memory cgroup (v1) with the limit on resident memory, zram with LZ4 as swap, and
each of the settings 4K, 64K, 2M and all of transparent huge pages. The kernel does not charge
zram's memory to the group, so folioswap is compared with --memory-scope resident; a second block
has folioswap with its store counted (total).

All configurations run in turn, round after round. The table has medians and the spread (lowest to
highest). Cgroups, zram and huge page settings are put back, also after Ctrl-C or an error.

    bench/compare.py                          all rows, three rounds (root)
    bench/compare.py --rows touch-2 sort --rounds 5
    bench/compare.py --rows sort --rounds 21 --scopes resident --thp 64K      one against one
    bench/compare.py --quick                  small sizes, one round: does everything work?
    bench/compare.py --command 'make -j4' --limit 500M      a program of yours
    bench/compare.py --json result.json

Build before: cargo build --release -p folioswap-cli -p folioswap-acceptance
"""

import argparse
import atexit
import hashlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile

from machine import THP, Groups, Huge, Zram, chosen, found_command, measure, read, target, vmstat, write
from workloads.kit import fill_script

HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
KERNEL = ["4K", "64K", "2M", "all"]
SCOPES = ["resident", "total"]


def size(text):
    units = {"K": 10, "M": 20, "G": 30}
    return int(float(text[:-1]) * (1 << units[text[-1].upper()])) if text[-1].upper() in units else int(text)


class Bench:
    def __init__(self, options):
        self.options = options
        self.target = target()
        self.folioswap = found_command(os.environ.get("FOLIOSWAP_BIN"))
        self.touch = os.path.join(self.target, "acc-touch")
        self.directory = tempfile.mkdtemp(prefix="folioswap-acc-bench-", dir="/var/tmp")
        atexit.register(shutil.rmtree, self.directory, True)
        self.huge = Huge()
        self.outputs = {}

    def run(self, row, config):
        """Runs a row once under one configuration; returns a dictionary of figures."""
        kind, setting = config
        limit = row["limit"]
        stats = os.path.join(self.directory, "stats.json")
        out, err = os.path.join(self.directory, "out"), os.path.join(self.directory, "err")
        command = row["command"]
        if kind == "folioswap":
            command = [self.folioswap, "run", "--memory", str(limit), "--memory-scope", setting, "--stats-json", stats,
                       *self.options.option, "--", *command]
            if os.path.exists(stats):
                os.unlink(stats)
        zram = Zram(self.options.zram) if kind == "kernel" else None
        group = Groups(limit if kind == "kernel" else None)
        try:
            self.huge.use(setting if kind == "kernel" else None)
            subprocess.run(["sync"])
            before = vmstat()
            compressed = [0, 0]

            def sample():
                used = zram.used()
                compressed[0], compressed[1] = max(compressed[0], used[0]), max(compressed[1], used[1])

            result = measure(command, group, self.directory, self.options.timeout, sample=sample if zram else None)
            after = vmstat()
            if kind == "kernel":
                result |= {"out": after[0] - before[0], "in": after[1] - before[1], "compressed": compressed[0],
                           "occupied": compressed[1]}
            elif kind == "folioswap" and os.path.exists(stats) and os.path.getsize(stats):
                with open(stats) as file:
                    document = json.load(file)
                counters, fullest = document.get("counters", {}), document.get("levels_fullest", {})
                result |= {"out": counters.get("pswpout"), "in": counters.get("pswpin"),
                           "compressed": fullest.get("compr_data_size"), "occupied": fullest.get("mem_used_total"),
                           "file": fullest.get("file_bytes"), "stats": document}
            errors = read(err)
            result["phases"] = {}
            for line in errors.splitlines():
                if line.startswith('{"phase"'):
                    phase = json.loads(line)
                    result["phases"][phase["phase"]] = phase
            result["ok"] = result["status"] == 0 and result["kills"] == 0
            if result["ok"]:
                with open(out, "rb") as file:
                    digest = hashlib.sha256(file.read()).hexdigest()
                expected = self.outputs.setdefault(row["name"], digest)
                if digest != expected:
                    result["ok"], result["error"] = False, "OTHER OUTPUT"
            else:
                result["error"] = errors[-500:]
            return result
        finally:
            group.close()
            if zram:
                zram.close()
            self.huge.restore()

    def rows(self):
        """Builds the chosen rows. A real program's limit is a part of its peak without a limit."""
        options, rows = self.options, []
        quick = options.quick
        if options.command:
            if not options.limit:
                raise SystemExit("--command needs --limit")
            return [{"name": "command", "command": ["sh", "-c", options.command], "limit": size(options.limit)}]
        for ratio in ("2", "3"):
            if f"touch-{ratio}" in options.rows:
                check = subprocess.run([self.touch, "--kind", ratio, "--phases", "ratio"], check=True, text=True,
                                       stdout=subprocess.PIPE)
                total = 256 * MIB if quick else size(options.size)
                rows.append({"name": f"touch-{ratio}", "limit": total // 4, "verified": check.stdout.split(),
                             "phases": ["fill", "reread", "random"],
                             "command": [self.touch, "--size", str(total), "--kind", ratio, "--writes", "0", "--touches",
                                         "20000" if quick else str(options.touches), "--timing", "--phases",
                                         "fill,reread,random"]})
        if "python" in options.rows:
            script = os.path.join(self.directory, "fill.py")
            write(script, fill_script(40 if quick else 400, 20000 if quick else 100000))
            rows.append({"name": "python", "command": ["/usr/bin/python3", script], "part": 2})
        if "sort" in options.rows:
            lines = os.path.join(self.directory, "lines")
            with open(lines, "w") as file:
                x = 1
                for number in range(200_000 if quick else 2_650_000):
                    x = (x * 6364136223846793005 + 1442695040888963407) % (1 << 64)
                    file.write(f"{x:016x} line {number:07} of the file, word {x >> 48:04x} {x >> 20 & 0xffff}\n")
            rows.append({"name": "sort", "part": 2,
                         "command": ["bash", "-c", f"set -o pipefail; LC_ALL=C sort --parallel=2 -S 600M {lines} | sha256sum"]})
        if "sqlite" in options.rows:
            script = os.path.join(self.directory, "queries.sql")
            write(script, f"""CREATE TABLE events (id INTEGER PRIMARY KEY, person INTEGER, kind TEXT, note TEXT);
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < {100000 if quick else 1500000})
INSERT INTO events SELECT x, (x * 7919) % 50021, 'kind' || (x % 17),
    printf('%016x note of event %d, %s', (x * 2654435761) % 4294967296 * 2654435761, x, hex(x * 31)) FROM n;
CREATE INDEX by_person ON events (person, kind);
SELECT kind, count(*), sum(person), min(note), max(note) FROM events GROUP BY kind ORDER BY kind;
SELECT person, count(*) AS c, sum(id) FROM events GROUP BY person ORDER BY c DESC, person LIMIT 20;
PRAGMA integrity_check;
""")
            rows.append({"name": "sqlite", "command": ["sqlite3", ":memory:", f".read {script}"], "part": 2})
        if "gcc" in options.rows:
            metadata = subprocess.run(
                ["cargo", "metadata", "--format-version", "1", "--manifest-path",
                 os.path.join(HERE, "../crates/acceptance/Cargo.toml")], check=True, stdout=subprocess.PIPE).stdout
            manifest = next(package["manifest_path"] for package in json.loads(metadata)["packages"]
                            if package["name"] == "libsqlite3-sys")
            source = os.path.join(os.path.dirname(manifest), "sqlite3/sqlite3.c")
            rows.append({"name": "gcc", "part": 2,
                         "command": ["sh", "-c", f"gcc -O2 -c {source} -o out.o && sha256sum < out.o"]})
        for row in rows:
            if "limit" not in row:
                free = self.run(row | {"limit": None}, ("unlimited", None))
                if not free["ok"]:
                    raise SystemExit(f"{row['name']} fails without a limit: {free}")
                row["need"] = free["peak"]
                row["limit"] = free["peak"] // row["part"] // 4096 * 4096
        return rows

    def configurations(self):
        options = self.options
        found = [("unlimited", None)]
        if "folioswap" in options.engines and "resident" in options.scopes:
            found.append(("folioswap", "resident"))
        if "kernel" in options.engines:
            found += [("kernel", setting) for setting in KERNEL if setting in options.thp]
        if "folioswap" in options.engines and "total" in options.scopes:
            found.append(("folioswap", "total"))
        return found


def median(runs, key):
    values = [run[key] for run in runs if run.get(key) is not None]
    return statistics.median(values) if values else None


def cell(value, scale=1, digits=1):
    return "-" if value is None else f"{value / scale:.{digits}f}"


def reason_of(runs):
    """The reason of the first failed run."""
    run = next(run for run in runs if not run["ok"])
    if run["kills"]:
        return "killed"
    said = run.get("error", "").strip()[-160:]
    return f"status {run['status']}" + (f": {said}" if said else "")


def wall_of(run, phase):
    """Wall time of a phase; of the whole run when `phase` is None."""
    return run["wall"] if phase is None else run["phases"].get(phase, {}).get("seconds")


def table(row, phase, results):
    """Prints one block with a line per configuration."""
    title = row["name"] + (f" {phase}" if phase else "")
    need = f", needs {row['need'] / MIB:.0f} MiB" if "need" in row else ""
    print(f"\n{title}: limit {row['limit'] / MIB:.0f} MiB{need}"
          + (f", LZ4 ratio verified: {' '.join(row['verified'])}" if "verified" in row else ""))
    print(f"  {'':20} {'wall s':>8} {'spread':>15} {'user+sys':>9} {'peak MiB':>9} {'out':>9} {'in':>9} {'compr MiB':>10}"
          f" {'occ MiB':>8} {'ratio':>6}" + (f" {'MB/s':>8} {'p50 us':>8} {'p99 us':>8} {'p99.9':>8}" if phase else ""))
    best = None
    for config, runs in results.items():
        if config[0] == "kernel":
            walls = [wall_of(run, phase) for run in runs if run["ok"]]
            walls = [wall for wall in walls if wall is not None]
            if walls and len(walls) * 2 > len(runs):
                best = min(best or 1e9, statistics.median(walls))
    for config, runs in results.items():
        good = [run for run in runs if run["ok"] and wall_of(run, phase) is not None]
        name = config[0] + (f" {config[1]}" if config[1] else "")
        failed = len(runs) - len(good)
        if not good:
            print(f"  {name:20} {'-':>8} {failed} of {len(runs)} failed: {reason_of(runs)}")
            continue
        walls = [wall_of(run, phase) for run in good]
        wall = statistics.median(walls)
        cpu = statistics.median(run["user"] + run["sys"] for run in good)
        ratio = f"{wall / best:.2f}" if best else "-"
        line = (f"  {name:20} {wall:8.2f} {f'{min(walls):.2f}-{max(walls):.2f}':>15} {cpu:9.2f}"
                f" {cell(median(good, 'peak'), MIB):>9} {cell(median(good, 'out'), 1, 0):>9}"
                f" {cell(median(good, 'in'), 1, 0):>9} {cell(median(good, 'compressed'), MIB):>10}"
                f" {cell(median(good, 'occupied'), MIB):>8} {ratio:>6}")
        if phase:
            phases = [run["phases"][phase] for run in good]
            line += f" {median(phases, 'mb_per_s'):8.0f}"
            if phase == "random":
                line += "".join(f" {median(phases, key) / 1000:8.1f}" for key in ("p50_ns", "p99_ns", "p999_ns"))
        if failed:
            line += f"   ({failed} of {len(runs)} failed: {reason_of(runs)})"
        print(line)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ["touch-2", "touch-3", "python", "sort", "sqlite", "gcc"]
    parser.add_argument("--rows", nargs="+", default=["touch-2", "touch-3", "python", "sort", "sqlite"], choices=names,
                        help="programs to run (default: all but gcc)")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each configuration (%(default)s)")
    parser.add_argument("--size", default="2G", help="memory of the touch rows; their limit is a quarter of it")
    parser.add_argument("--touches", type=int, default=40000,
                        help="random touches of the touch rows (%(default)s)")
    parser.add_argument("--engines", nargs="+", default=["folioswap", "kernel"], choices=["folioswap", "kernel"],
                        help="engines to run besides no limit")
    parser.add_argument("--scopes", nargs="+", default=SCOPES, choices=SCOPES, help="memory that folioswap's limit counts")
    parser.add_argument("--thp", nargs="+", default=KERNEL, choices=KERNEL, help="settings of the kernel's huge pages")
    parser.add_argument("--option", action="append", default=[], help="a further option of folioswap run")
    parser.add_argument("--zram", type=size, default=8 << 30, help="size of the kernel's zram device (8G)")
    parser.add_argument("--timeout", type=float, default=600,
                        help="seconds after which a run is killed (%(default)s)")
    parser.add_argument("--command", help="a program of yours instead of the rows")
    parser.add_argument("--limit", help="the limit of --command")
    parser.add_argument("--quick", action="store_true", help="small sizes, one round")
    parser.add_argument("--json", help="write all figures of all runs to this file")
    options = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("setting up cgroups and zram takes root")
    if options.quick:
        options.rounds = 1
    for name in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda *_: sys.exit(130))
    bench = Bench(options)
    for program in ([bench.folioswap] if "folioswap" in options.engines else []) + [bench.touch]:
        if not os.path.exists(program):
            raise SystemExit(f"{program} is missing: cargo build --release -p folioswap-cli -p folioswap-acceptance")
    processors, memory = os.cpu_count(), int(read("/proc/meminfo").split()[1]) // 1024
    print(f"{' '.join(os.uname()[i] for i in (0, 2))}, {processors} processors, {memory} MiB; {options.rounds} rounds;"
          f" huge pages outside the kernel's runs: {chosen(read(f'{THP}/enabled', '[none]'))};"
          f" swappiness {read('/proc/sys/vm/swappiness').strip()}")
    print("ratio: wall time to the kernel's best; compr: compressed bytes at most, occ: memory that they occupy;"
          " user+sys, peak, out, in of touch rows are of the whole run")
    rows = bench.rows()
    everything = []
    for row in rows:
        results = {config: [] for config in bench.configurations()}
        for round_number in range(options.rounds):
            for config, runs in results.items():
                print(f"\r  {row['name']}: round {round_number + 1}, {' '.join(filter(None, config))}        ",
                      end="", file=sys.stderr, flush=True)
                runs.append(bench.run(row, config))
        print("\r" + " " * 70 + "\r", end="", file=sys.stderr, flush=True)
        for phase in row.get("phases", [None]):
            table(row, phase, results)
        everything.append({"row": row["name"], "limit": row["limit"], "command": row["command"],
                           "runs": [{"engine": config[0], "setting": config[1], **run}
                                    for config, runs in results.items() for run in runs]})
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"host": list(os.uname()), "rows": everything}, file, indent=1)
    if any(run.get("error") == "OTHER OUTPUT" for row in everything for run in row["runs"]):
        raise SystemExit("a run printed something else than without a limit")


if __name__ == "__main__":
    main()
