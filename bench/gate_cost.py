#!/usr/bin/env python3
"""Measures what `folioswap run` costs where nothing is short of memory: processor time (user and system) of a program
and of all that it starts, alone and in each way of managing it, in turn.

    alone                   without folioswap
    --gate never            the kernel reports forks and faults (takes root, or CAP_SYS_PTRACE)
    --gate always           the gate stands before every system call, and makes the forks
    --gate unprivileged     the gate holds what each call uses, too
    user UID                the same as that user, without groups, any capability, and a way to get one (takes root)

Each round runs every row in every way once, each time beginning with another one. A cell has the median, the least
and the greatest of all rounds in ms, and the median of the differences to the run alone of the same round, in percent
of it; in the rows that start programs it has the ms of one program, and the difference in ms. The time is that of
wait4(2), so nothing that ran beside it is counted; but caches are shared, so the line below the table says how busy the
machine was.

    bench/gate_cost.py                      9 rounds, a quarter of an hour on two idle cores
    bench/gate_cost.py --rounds 3 --rows find,dd
    bench/gate_cost.py --user 1000          another ordinary user (default: 65534)
    bench/gate_cost.py --json FILE          all times

Rows: run (a program that does nothing, once: what a run itself costs, which is in every other row too), find, tar,
redis (the server's time; the client runs outside), gcc, dd, execs (programs started by a shell), static (the same,
static: the agent is injected. `--gate never` would leave them unmanaged, so that column has `--gate auto`, which is the
kernel's way too where `--gate never` works).

What a row prints or makes is compared with the run alone: standard output, gcc's object, dd's count, the server's
calls. A difference is said at the end, and the exit status is 1. The binary is --folioswap, else FOLIOSWAP_BIN, else
target/release/folioswap.
"""

import argparse
import atexit
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from typing import Callable, Optional

from machine import User, busy_seconds, end_by_signals, need_command, read, spent
from workloads.kit import Missing, built, generated_c, source, tool

LIMIT = "1G"
EXECS = 1000
REQUESTS = 80_000
# Processors used by other processes from which on the machine is called busy.
FOREIGN = 0.3
ALONE, NEVER, ALWAYS, UNPRIVILEGED = "alone", "--gate never", "--gate always", "--gate unprivileged"


def printed(_place, out, _err):
    """The hash of standard output: what most rows are compared by."""
    return out


@dataclass
class Row:
    """A row of the table."""

    title: str
    # Makes its files in a directory, and returns its command.
    prepare: Callable
    # Of the directory, the hash of standard output, and standard error: what must be the same in all ways.
    says: Callable = printed
    # The programs that it starts, where a cell is about one of them, with the difference in ms.
    programs: Optional[int] = None
    # Runs beside the command, which it ends; its time is not counted. Returns what is compared.
    client: Optional[Callable] = None
    # Static programs take the gate: `--gate never` does not manage them.
    static: bool = False


ROWS = {}


def row(name, title, **further):
    """Registers the function that prepares a row."""
    def register(prepare):
        ROWS[name] = Row(title, prepare, **further)
        return prepare
    return register


@row("run", "`/bin/true` once: a run itself, which is in all rows", programs=1)
def run_itself(_place):
    return ["/bin/true"]


@row("find", "`find /usr/share`")
def find(_place):
    command = [tool("find", "findutils"), "/usr/share"]
    # What an ordinary user may not read is left out, whoever runs it.
    secret = subprocess.run([*command, "-type", "d", "!", "-perm", "-o=rx", "-prune", "-print0"],
                            stdout=subprocess.PIPE, text=True)
    left_out = [word for path in secret.stdout.split("\0") if path for word in ("-path", path, "-prune", "-o")]
    return [*command, *left_out, "-print"]


@row("tar", "`tar` of `/usr/share/doc`, into a pipe")
def tar(_place):
    return [tool("tar", "tar"), "-C", "/usr/share", "-cf", "-", "doc"]


def requests(place):
    """The client of the server: it waits for it, makes requests one at a time, and ends it."""
    ask = [tool("redis-cli", "redis-tools"), "-s", f"{place}/sock"]
    for _ in range(2000):
        if subprocess.run([*ask, "ping"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
            break
        time.sleep(0.01)
    else:
        return "the server did not answer within 20 s"
    subprocess.run([tool("redis-benchmark", "redis-tools"), "-s", f"{place}/sock", "-c", "1", "-q", "-t", "set,get",
                    "-n", str(REQUESTS // 2), "-d", "100", "-r", "10000"], stdout=subprocess.DEVNULL)
    said = subprocess.run([*ask, "info", "commandstats"], stdout=subprocess.PIPE, text=True).stdout
    subprocess.run([*ask, "shutdown", "nosave"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    calls = (line.split(",")[0] for line in said.split() if line.startswith(("cmdstat_set:", "cmdstat_get:")))
    return " ".join(sorted(calls))


@row("redis", f"`redis-server`, {REQUESTS} requests, one at a time", client=requests)
def redis(place):
    return [tool("redis-server", "redis-server"), "--port", "0", "--unixsocket", f"{place}/sock", "--unixsocketperm",
            "777", "--save", "", "--appendonly", "no", "--dir", place]


def made(place, _out, _err):
    path = os.path.join(place, "made.o")
    with open(path, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    os.unlink(path)
    return digest


@row("gcc", "`gcc -O1`, 60 functions", says=made)
def gcc(place):
    return [tool("gcc", "gcc"), "-O1", "-c", "-o", f"{place}/made.o", source(place, "large.c", generated_c(60, 7))]


@row("dd", "`dd bs=512`, 400 000 blocks", says=lambda _place, _out, err: " ".join(
    line for line in err.splitlines() if line.endswith(("records in", "records out"))))
def dd(_place):
    return [tool("dd", "coreutils"), "if=/dev/zero", "of=/dev/null", "bs=512", "count=400000"]


def loop(program):
    return [tool("sh", "dash"), "-c",
            f"i=0; while [ $i -lt {EXECS} ]; do {program} || exit 1; i=$((i + 1)); done; echo $i"]


@row("execs", f"each of {EXECS} `/bin/true`, by a shell", programs=EXECS)
def execs(_place):
    return loop("/bin/true")


@row("static", f"each of {EXECS} static programs, by a shell: injected", programs=EXECS, static=True)
def static(place):
    path = source(place, "nothing.c", "int main(void) { return 0; }\n")
    built([tool("gcc", "gcc"), "-O1", "-static", "-o", "nothing", path], place)
    return loop(os.path.join(place, "nothing"))


class Bench:
    """The ways of running a command, and a directory for each row."""

    def __init__(self, options, folioswap):
        self.options = options
        self.place = tempfile.mkdtemp(prefix=f"folioswap-acc-gate-cost-{os.getpid()}-", dir="/var/tmp")
        os.chmod(self.place, 0o711)
        atexit.register(shutil.rmtree, self.place, True)
        self.user = User(options.user) if os.geteuid() == 0 else None
        self.folioswap = self.user.reachable(folioswap, self.place) if self.user else folioswap
        self.as_user = f"`{UNPRIVILEGED}`, user {options.user}"
        # The way that each column takes, as the statistics of a run say.
        self.ways = {ALONE: None}
        for name in (NEVER, ALWAYS, UNPRIVILEGED, self.as_user):
            self.look(name)

    def look(self, name):
        """Adds a column, if this machine and this user have it."""
        if name == self.as_user and not self.user:
            return print("no column of another user: that takes root", file=sys.stderr)
        path = os.path.join(self.place, "looked")
        os.makedirs(path, exist_ok=True)
        if self.user:
            self.user.own(path)
        file = os.path.join(path, "statistics.json")
        done = self.spent(name, ROWS["run"], path, ["/bin/true"], ["--stats-json", file])
        if done["status"] != 0:
            return print(f"no column {name}: {done['err'].strip()[:300]}", file=sys.stderr)
        self.ways[name] = json.loads(read(file)).get("way")
        shutil.rmtree(path)

    def spent(self, name, row, place, command, further=()):
        """One run of a command in the way of this column."""
        user = self.user if name == self.as_user else None
        if name != ALONE:
            gate = name.split()[1] if user is None else "unprivileged"
            gate = "auto" if row.static and name == NEVER else gate
            command = [self.folioswap, "run", "-m", LIMIT, "--gate", gate, *further, "--", *command]
        return spent(command, place, self.options.timeout, user, row.client)

    def prepare(self, name):
        place = os.path.join(self.place, name)
        os.mkdir(place)
        command = ROWS[name].prepare(place)
        if self.user:
            # The rows make files, whoever runs them.
            self.user.own(place)
        return place, command


def measure_rows(bench, options):
    """Rounds of all rows in all ways. Returns the times by row and column, the rows left out, and what went wrong."""
    prepared, skipped = {}, {}
    for name in options.rows:
        try:
            prepared[name] = bench.prepare(name)
        except Missing as reason:
            skipped[name] = " ".join(str(reason).split())
    columns = list(bench.ways)
    times = {name: {column: [] for column in columns} for name in prepared}
    wrong, expected = [], {}
    # The first round, alone, brings files into memory.
    for number in range(options.rounds + 1):
        at = number % len(columns)
        for name, (place, command) in prepared.items():
            for column in columns[at:] + columns[:at] if number else [ALONE]:
                done = bench.spent(column, ROWS[name], place, command)
                if done["status"] != 0:
                    wrong.append(f"{name}, {column}: status {done['status']}: {done['err'].strip()[-300:]}")
                    continue
                said = done["said"] if ROWS[name].client else ROWS[name].says(place, done["out"], done["err"])
                if expected.setdefault(name, said) != said:
                    wrong.append(f"WRONG OUTPUT: {name}, {column}: {said} and not {expected[name]}")
                elif number:
                    times[name][column].append(done["seconds"])
        print(f"round {number} of {options.rounds}" if number else "warm", file=sys.stderr, flush=True)
    return times, skipped, wrong


def cell(row, seconds, alone):
    """The text of a cell: median, least and greatest, and the median of what is more than in the run alone."""
    if not seconds:
        return "failed"
    scale, digits = (1000 / row.programs, 2) if row.programs else (1000, 0)
    figures = statistics.median(seconds), min(seconds), max(seconds)
    middle, least, most = (f"{scale * value:.{digits}f}" for value in figures)
    text = f"{middle} ({least} to {most})"
    if seconds is alone or len(alone) != len(seconds):
        return text
    if row.programs:
        return f"{text}, {scale * statistics.median(one - other for one, other in zip(seconds, alone)):+.2f}"
    return f"{text}, {statistics.median(one / other - 1 for one, other in zip(seconds, alone)):+.0%}"


def markdown(ways, times, skipped, rounds):
    heads = [column if "`" in column or column == ALONE else f"`{column}`" for column in ways]
    heads = [head + (f" ({way})" if way else "") for head, way in zip(heads, ways.values())]
    lines = [f"| Processor time, ms, median of {rounds} | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for name, of_row in times.items():
        row = ROWS[name]
        cells = [cell(row, seconds, of_row[ALONE]) + (" [auto]" if row.static and column == NEVER else "")
                 for column, seconds in of_row.items()]
        lines.append(f"| {row.title} | {' | '.join(cells)} |")
    lines += [f"| {ROWS[name].title} | skipped: {reason} |" + " |" * (len(heads) - 1)
              for name, reason in skipped.items()]
    return "\n".join(lines)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9, help="of all rows in all ways (default %(default)s)")
    parser.add_argument("--rows", default=",".join(ROWS), help="names, with commas between them (default: all)")
    parser.add_argument("--user", type=int, default=65534, metavar="UID",
                        help="the ordinary user (default %(default)s)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds that a run may take (default %(default)s)")
    parser.add_argument("--folioswap", default=os.environ.get("FOLIOSWAP_BIN"), help="the binary")
    parser.add_argument("--json", help="write all times, in seconds, to this file")
    options = parser.parse_args()
    options.rows = options.rows.split(",")
    unknown = [name for name in options.rows if name not in ROWS]
    if unknown:
        parser.error(f"--rows takes some of {', '.join(ROWS)}")
    if options.user == 0:
        parser.error("--user takes an ordinary user")
    return options


def main():
    options = arguments()
    folioswap = need_command(options.folioswap)
    end_by_signals()
    bench = Bench(options, folioswap)
    begun, busy, ours = time.monotonic(), busy_seconds(), sum(os.times()[:4])
    times, skipped, wrong = measure_rows(bench, options)
    others = busy_seconds() - busy - (sum(os.times()[:4]) - ours)
    foreign = max(0, others) / (time.monotonic() - begun)
    print(markdown(bench.ways, times, skipped, options.rounds))
    busy = ": the machine was busy." if foreign > FOREIGN else "."
    print(f"\nOther processes used {foreign:.2f} processors meanwhile{busy}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"command": sys.argv, "ways": bench.ways, "foreign": foreign, "rows": times}, file, indent=1)
    for line in wrong:
        print(line)
    if wrong:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
