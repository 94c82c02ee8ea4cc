#!/usr/bin/env python3
"""Runs real programs within half of the memory that they need, each peer a fair one, and prints a table in Markdown.

    alone               no limit; its peak of resident memory is the need, measured at the start
    kernel, swap file   the peer of folioswap's default: an ordinary swap file on the same disk, a memory cgroup (version 1)
                        with the limit
    kernel, zram lz4    the peer of scope resident: the kernel charges zram's memory to nobody
    ours, default       `folioswap run -m LIMIT`: store and tables count towards the limit
    ours, resident      `folioswap run -m LIMIT --memory-scope resident`

The five run in turn, round after round. Every output is compared with that of the run alone. A run that ended otherwise
than with status 0, or in which the kernel killed a process, is no result: the table says how many were killed, and how
many reached the time limit. A run beside which other processes used more than 0.3 processors is disturbed, and counts
only where all runs of a cell are (marked with *). Cells are medians in seconds, with best and worst. All that is set up (cgroups, swap, huge
page settings, files) is removed and restored at the end, on Ctrl-C and on an error; the table of
the runs made until then is printed and written.

    bench/real.py                            all programs, three rounds (root; about half an hour on two cores)
    bench/real.py --programs jq,sort --rounds 5
    bench/real.py --thp all                  the kernel also with 64K, 2M and all sizes of huge pages: its best counts
    bench/real.py --quick                    small and once: does everything work?
    bench/real.py --json FILE                all figures of all runs
    bench/real.py --show FILE FILE           the table of runs that --json has written

The programs come from Debian: apt-get install jq nodejs default-jdk-headless python3 python3-pandas sqlite3 perl gcc make
redis-server golang-go rustc. One that is missing is a row with the reason. The binary is --folioswap, else FOLIOSWAP_BIN,
else target/release/folioswap (cargo build --release -p folioswap-cli).
"""

import argparse
import atexit
import hashlib
import json
import os
import shutil
import statistics
import sys
import tempfile

from machine import THP, Groups, Huge, SwapFile, Zram, chosen, end_by_signals, found_command, measure, need_command, read, warm
from workloads.kit import Missing
from workloads.real import PROGRAMS

MIB = 1 << 20
KERNEL_THP = ["4K", "64K", "2M", "all"]
# Processors used by other processes from which on a run counts as disturbed.
FOREIGN = 0.3
COLUMNS = ["alone", "kernel, swap file", "kernel, zram lz4", "ours, default", "ours, resident"]


def size(text):
    units = {"K": 10, "M": 20, "G": 30}
    return int(float(text[:-1]) * (1 << units[text[-1].upper()])) if text[-1].upper() in units else int(text)


class Runner:
    """Runs one program in one configuration, and puts the machine back after each run."""

    def __init__(self, options, folioswap):
        self.options = options
        self.folioswap = folioswap
        self.place = tempfile.mkdtemp(prefix=f"folioswap-acc-real-{os.getpid()}-", dir=options.place)
        atexit.register(shutil.rmtree, self.place, True)
        self.huge = Huge()
        self.files = 0

    def prepare(self, make):
        """Command of a program, its files in a directory of their own."""
        self.files += 1
        place = os.path.join(self.place, str(self.files))
        os.mkdir(place)
        return make(place, 0.3 if self.options.quick else 1)

    def command(self, command, column, limit, stats):
        if column not in ("ours, default", "ours, resident"):
            return command
        scope = ["--memory-scope", "resident"] if column == "ours, resident" else []
        return [self.folioswap, "run", "-m", str(limit), *scope, "--stats-json", stats, *self.options.option, "--", *command]

    def run(self, command, column, limit=None, thp=None):
        """One run. Returns the figures of `measure`, with `ok`, the output's hash, and the reason of a failure."""
        stats = os.path.join(self.place, "stats.json")
        if os.path.exists(stats):
            os.unlink(stats)
        kernel = column.startswith("kernel")
        swap = None
        group = Groups(limit if kernel else None)
        try:
            if kernel:
                swap = SwapFile(self.options.swap, self.place) if "file" in column else Zram(self.options.swap)
                self.huge.use(thp)
            result = measure(self.command(command, column, limit, stats), group, self.place, self.options.timeout,
                             every=0.01 if limit is None else 0.05)
        finally:
            group.close()
            if swap:
                swap.close()
            self.huge.restore()
        if thp:
            result["thp"] = thp
        with open(os.path.join(self.place, "out"), "rb") as file:
            result["output"] = hashlib.sha256(file.read()).hexdigest()
        result["ok"] = result["status"] == 0 and result["kills"] == 0 and not result["timeout"]
        if not result["ok"]:
            result["error"] = read(os.path.join(self.place, "err"))[-500:]
        try:
            result["stats"] = json.loads(read(stats))
        except ValueError:
            pass
        return result


def fill(row, runner, columns, thp_settings, rounds):
    """Fills the row of a program: its need and limit, and the runs of all configurations, made in turn. The row is valid
    also when the measurement is interrupted."""
    title, make = PROGRAMS[row["program"]]
    row |= {"title": title, "runs": []}
    try:
        command = runner.prepare(make)
    except Missing as reason:
        row["skipped"] = str(reason)
        return
    print(f"{title}: alone", file=sys.stderr, flush=True)
    first = runner.run(command, "alone")
    if not first["ok"]:
        row["skipped"] = f"fails without a limit: status {first['status']}: {first['error'].strip()[-200:]}"
        return
    row |= {"command": command, "need": first["peak"], "limit": first["peak"] // 2 // 4096 * 4096}
    for number in range(rounds):
        for column in columns:
            for thp in thp_settings if column.startswith("kernel") else [None]:
                run = runner.run(command, column, None if column == "alone" else row["limit"], thp)
                if run["ok"] and run["output"] != first["output"]:
                    run["ok"], run["error"] = False, "OTHER OUTPUT"
                row["runs"].append({"column": column, "round": number + 1, **run})
                said = f"{run['wall']:.2f} s" + ("" if run["ok"] else f", {outcome(run)}")
                print(f"{title}: round {number + 1}, {column}{f' {thp}' if thp else ''}: {said}", file=sys.stderr, flush=True)


def outcome(run):
    """Why a run is no result, in a word or two."""
    if run.get("error") == "OTHER OUTPUT":
        return "WRONG OUTPUT"
    if run["timeout"]:
        return "out of time"
    if run["kills"] or run["status"] in (-9, 137):
        return "killed"
    return f"status {run['status']}"


def cell(runs):
    """Median, best and worst of the runs that came to their end, and how many of the others there were of each kind."""
    if not runs:
        return "-"
    calm = [run for run in runs if run["foreign"] <= FOREIGN]
    if not calm:
        return counted(runs) + " *"
    return counted(calm)


def counted(runs):
    walls = [run["wall"] for run in runs if run["ok"]]
    failures = {}
    for run in runs:
        if not run["ok"]:
            failures[outcome(run)] = failures.get(outcome(run), 0) + 1
    parts = [f"{word} {count} of {len(runs)}" for word, count in sorted(failures.items())]
    if walls:
        spread = f" ({min(walls):.1f} to {max(walls):.1f})" if len(walls) > 1 else ""
        parts.insert(0, f"{statistics.median(walls):.1f}{spread}")
    return "; ".join(parts)


def best_setting(runs):
    """The runs under the huge page setting that serves the kernel best: most runs ended, then the lowest median."""
    settings = {}
    for run in runs:
        settings.setdefault(run.get("thp"), []).append(run)

    def rank(one):
        walls = [run["wall"] for run in one if run["ok"]]
        return (-len(walls), statistics.median(walls) if walls else 0)
    return min(settings.values(), key=rank) if settings else []


def markdown(rows):
    lines = ["| Program, need -> limit (MiB) | " + " | ".join(COLUMNS) + " |", "|---" * (len(COLUMNS) + 1) + "|"]
    for row in rows:
        if "skipped" in row:
            lines.append(f"| {row['title']} | skipped: {' '.join(row['skipped'].split()).replace('|', '/')} |" + " |" * (len(COLUMNS) - 1))
            continue
        cells = []
        for column in COLUMNS:
            runs = best_setting([run for run in row["runs"] if run["column"] == column])
            several = len({run.get("thp") for run in row["runs"] if run["column"] == column}) > 1
            cells.append(cell(runs) + (f" [{runs[0]['thp']}]" if several else ""))
        lines.append(f"| {row['title']}, {row['need'] / MIB:.0f} -> {row['limit'] / MIB:.0f} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def heading(document):
    host = document["host"]
    return (f"Seconds, medians of {document['rounds']} rounds in turn (best to worst); *killed*: by the kernel's OOM killer, or ended by"
            f" folioswap. Linux {host['release']}, {host['processors']} processors, {host['memory_mib']} MiB,"
            f" swappiness {host['swappiness']}, huge pages of the kernel's runs: {', '.join(document['thp'])}; of the others:"
            f" {host['thp']}. Out of time: after {document['timeout']:.0f} s. A star: other"
            " processes disturbed all runs of the cell.\n")


def described(options):
    return {"command": sys.argv, "rounds": options.rounds, "thp": options.thp, "timeout": options.timeout, "host": {
        "release": os.uname().release, "processors": os.cpu_count(), "memory_mib": int(read("/proc/meminfo").split()[1]) // 1024,
        "swappiness": read("/proc/sys/vm/swappiness").strip(), "thp": chosen(read(f"{THP}/enabled", "[none]"))}}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=",".join(PROGRAMS), help="some of " + ",".join(PROGRAMS))
    parser.add_argument("--columns", nargs="+", default=COLUMNS, choices=COLUMNS, help="configurations")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--thp", nargs="+", default=["4K"], choices=KERNEL_THP,
                        help="huge pages of the kernel's runs; `all` given alone stands for each setting")
    parser.add_argument("--folioswap", default=os.environ.get("FOLIOSWAP_BIN"), help="the binary")
    parser.add_argument("--option", action="append", default=[], help="a further option of folioswap run")
    parser.add_argument("--swap", type=size, default=2 << 30, help="size of the swap file and of zram")
    parser.add_argument("--place", default="/var/tmp", help="directory of the swap file and of the programs' files")
    parser.add_argument("--timeout", type=float, default=60, help="seconds for a run")
    parser.add_argument("--warm", type=size, default=6 << 30, help="memory touched beforehand, at most half of what is free")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", help="write all figures to this file")
    parser.add_argument("--show", nargs="+", metavar="FILE", help="print the table of these files; runs nothing")
    options = parser.parse_args()
    options.programs = [name for name in options.programs.split(",") if name]
    unknown = [name for name in options.programs if name not in PROGRAMS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; programs are {', '.join(PROGRAMS)}")
    if options.thp == ["all"]:
        options.thp = KERNEL_THP
    if options.quick:
        options.rounds, options.timeout = 1, min(options.timeout, 30)
    return options


def show(files):
    """Prints one table of several files. Runs of a program are put together where its need is the same to 5 %."""
    documents = []
    for path in files:
        with open(path) as file:
            documents.append(json.load(file))
    rows = []
    for row in (row for document in documents for row in document["rows"]):
        same = next((other for other in rows if other["program"] == row["program"] and "need" in other and "need" in row
                     and abs(other["need"] - row["need"]) * 20 <= other["need"]), None)
        if same:
            same["runs"] += row["runs"]
        else:
            rows.append(row)
    print(heading(documents[0] | {"rounds": max(len([run for run in row["runs"] if run["column"] == COLUMNS[0]]) for row in rows)}))
    print(markdown(rows))


def main():
    options = arguments()
    if options.show:
        return show(options.show)
    if os.geteuid() != 0:
        raise SystemExit("setting up cgroups, swap and zram takes root")
    is_wanted = any(column.startswith("ours") for column in options.columns)
    folioswap = (need_command if is_wanted else found_command)(options.folioswap)
    if read("/sys/module/zswap/parameters/enabled").strip() == "Y":
        raise SystemExit("zswap is enabled: the kernel's swap would not be a plain file or zram")
    end_by_signals()
    runner = Runner(options, folioswap)
    available = next(int(line.split()[1]) << 10 for line in read("/proc/meminfo").splitlines() if line.startswith("MemAvailable"))
    warm(min(options.warm, available // 2))
    document = described(options) | {"rows": []}
    try:
        for name in options.programs:
            row = {"program": name}
            document["rows"].append(row)
            fill(row, runner, options.columns, options.thp, options.rounds)
    finally:
        document["rows"] = [row for row in document["rows"] if "need" in row or "skipped" in row]
        if options.json:
            with open(options.json, "w") as file:
                json.dump(document, file, indent=1)
        print(heading(document))
        print(markdown(document["rows"]))
    if any(run.get("error") == "OTHER OUTPUT" for row in document["rows"] for run in row["runs"]):
        raise SystemExit("a run printed something else than alone")


if __name__ == "__main__":
    main()
