#!/usr/bin/env python3
"""Runs many real programs and runtimes within a half and a quarter of the memory that they need, and says of each whether
it was right.

    alone       no limit; its peak of resident memory is the need (a memory cgroup, version 1, only to measure it)
    half        `folioswap run -m NEED/2`, defaults otherwise
    quarter     `folioswap run -m NEED/4`; 8M, the least that folioswap takes, for a need below 32 MiB

The output is compared with that of the run alone. A cell is one of

    right 1.8x         ended with status 0 and the same output, in 1.8 times the time of the run alone
    refused            folioswap refused to run it (status 125), with the reason below the table
    ended 3.2 s        folioswap ended it after so long, and said why: the limit that it needs, or a note below the table
    out of time        still running after --timeout; at a half it is run again with `--thrashing end`, and when that
                       ended it is behind it: *out of time; ended 11.2 s*
    status N           the program itself failed
    WRONG OUTPUT       the one thing that must never be

    bench/programs.py                          all programs (root; an hour on two cores with --timeout 60)
    bench/programs.py --programs lua,ruby      these
    bench/programs.py --parts half             within a half only
    bench/programs.py --user 65534 --programs ordinary --parts half --timeout 300
                                               what people run every day, within a half, as an ordinary user
    bench/programs.py --short                  a few that most machines have, small; exits with 1 unless all are right
    bench/programs.py --list                   names and titles
    bench/programs.py --json FILE              all figures
    bench/programs.py --show FILE FILE         the table of runs that --json has written

With --user all of it, alone and within the limit, is run by that user, without groups, with an empty capability
bounding set, and with no_new_privs, so that folioswap takes the way of somebody without any permission. Only the cgroup
that measures the need is root's. A binary that the user cannot reach is copied to where it can. Above the table is the
way that `run` took. `ordinary` is a set of programs; --list has what is in it.

The programs come from Debian; one that is missing is a row with the package that has it. The binary is --folioswap, else
FOLIOSWAP_BIN, else target/release/folioswap.
"""

import argparse
import atexit
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile

from machine import Groups, User, end_by_signals, measure, need_command, read, warm
from workloads.compiled import COMPILED
from workloads.kit import Missing
from workloads.languages import LANGUAGES
from workloads.real import PROGRAMS as REAL
from workloads.science import SCIENCE
from workloads.servers import SERVERS
from workloads.tools import TOOLS

MIB = 1 << 20
PROGRAMS = {**LANGUAGES, **COMPILED, **TOOLS, **SCIENCE, **SERVERS, **REAL}
SHORT = ["gcc-large", "sort-unique", "bash", "cpp", "python-zlib", "numpy-save"]
# Sets of programs, each of which --programs takes as a name.
SETS = {"ordinary": ["bytearray", "dicts", "python-fork", "python-threads", "gcc", "gcc-large", "node", "java", "redis",
                     "sqlite", "sqlite-file", "sort", "sort-unique", "git", "trees", "go-build", "go-static",
                     "c-static", "busybox"]}
# The need is divided by the first number, and --timeout by the second.
PARTS = {"half": (2, 1), "quarter": (4, 3)}
# What folioswap says of the limit that would be enough.
NEEDS = re.compile(r"needs about (\S+) to run well|at least --memory (\S+)")
# The least limit that folioswap takes.
LEAST = 8 << 20
# The status with which folioswap ends when it refuses to run a program, or must end it.
OWN_STATUS = 125


class Runner:
    """Runs programs in a directory of its own, with and without a limit."""

    def __init__(self, options, folioswap):
        self.options = options
        self.place = tempfile.mkdtemp(prefix=f"folioswap-acc-programs-{os.getpid()}-", dir=options.place)
        os.chmod(self.place, 0o711)
        atexit.register(shutil.rmtree, self.place, True)
        self.user = None if options.user is None else User(options.user)
        if self.user and not self.user.can("test", "-x", self.place):
            raise SystemExit(f"user {options.user} cannot reach {options.place}: take another --place")
        self.folioswap = self.user.reachable(folioswap, self.place) if self.user else folioswap

    def prepare(self, name, make):
        """The command of a program, its files in a directory of their own."""
        place = os.path.join(self.place, name)
        os.mkdir(place)
        command = make(place, self.options.scale)
        if self.user:
            self.user.own(place)
        return place, command

    def run(self, place, command, limit=None, haste=1, options=()):
        """One run: the figures of `measure`, the output's hash, what was said on standard error, and the way that
        folioswap took."""
        statistics = os.path.join(place, "statistics.json")
        if limit is not None:
            command = [self.folioswap, "run", "-m", str(limit), "--stats-json", statistics, *self.options.option,
                       *options, "--", *command]
        group = Groups(None)
        try:
            result = measure(command, group, place, self.options.timeout / haste, every=0.005 if limit is None else 0.1,
                             user=self.user)
        finally:
            group.close()
        try:
            result["way"] = json.loads(read(statistics)).get("way")
            os.unlink(statistics)
        except ValueError:
            # Without a limit, refused, or killed when the time was up.
            result["way"] = None
        with open(os.path.join(place, "out"), "rb") as file:
            result["output"] = hashlib.sha256(file.read()).hexdigest()
        result["said"] = read(os.path.join(place, "err"))[-2000:].strip()
        return result


def verdict(run, alone):
    """The word of a cell, and what folioswap or the program said where it was not right."""
    ours = [line for line in run["said"].splitlines() if line.startswith("folioswap")]
    if run["timeout"]:
        return "out of time", ours[-1] if ours else ""
    if run["status"] == 0:
        if run["output"] != alone["output"]:
            return "WRONG OUTPUT", run["said"][-200:]
        unmanaged = next((line for line in ours if "unmanaged" in line or "not managed" in line), "")
        return f"right {run['wall'] / alone['wall']:.1f}x", unmanaged
    if run["status"] == OWN_STATUS or run["status"] in (-9, 137) and ours:
        return ("refused" if run["wall"] < 0.5 else f"ended {run['wall']:.1f} s"), ours[-1] if ours else run["said"][-200:]
    return f"status {run['status']}", run["said"].splitlines()[-1] if run["said"] else ""


def fill(row, runner):
    """Fills the row of a program. Its files are removed at the end."""
    title, make = PROGRAMS[row["program"]]
    row["title"] = title
    try:
        place, command = runner.prepare(row["program"], make)
    except Missing as reason:
        row["skipped"] = " ".join(str(reason).split())
        return
    alone = runner.run(place, command)
    again = runner.run(place, command)
    if alone["status"] != 0 or again["output"] != alone["output"]:
        row["skipped"] = f"alone: status {alone['status']}: {alone['said'][-200:]}" if alone["status"] else "two runs alone differ in output"
        return
    row |= {"need": max(alone["peak"], again["peak"]), "wall": min(alone["wall"], again["wall"]), "cells": {}}
    expected = {"wall": row["wall"], "output": alone["output"]}
    for part in runner.options.parts:
        divisor, haste = PARTS[part]
        limit = max(row["need"] // divisor // 4096 * 4096, LEAST)
        run = runner.run(place, command, limit, haste)
        word, said = verdict(run, expected)
        row["cells"][part] = {"limit": limit, "verdict": word, "said": said, "wall": run["wall"],
                              "status": run["status"], "way": run["way"]}
        if run["timeout"] and part == "half":
            ended = runner.run(place, command, limit, haste, ["--thrashing", "end"])
            word_of_end, said = verdict(ended, expected)
            row["cells"][part] |= {"verdict": f"{word}; {word_of_end}", "said": said, "end_wall": ended["wall"]}
    shutil.rmtree(place, ignore_errors=True)


def parts_of(rows):
    """The parts that any of these rows has."""
    return [part for part in PARTS if any(part in row.get("cells", {}) for row in rows)]


def markdown(rows):
    parts, notes = parts_of(rows), {}
    lines = [f"| Program | Need, MiB | Alone, s | {' | '.join(map(str.title, parts))} |", "|---" * (3 + len(parts)) + "|"]
    for row in rows:
        if "skipped" in row:
            lines.append(f"| {row['title']} | skipped: {row['skipped'].replace('|', '/')} | |" + " |" * len(parts))
            continue
        cells = []
        for part in parts:
            cell = row["cells"].get(part)
            if cell is None:
                cells.append("not run")
                continue
            needs = NEEDS.search(cell["said"])
            if needs:
                mark = f", needs {needs.group(1) or needs.group(2)}"
            else:
                mark = f" [{notes.setdefault(cell['said'], len(notes) + 1)}]" if cell["said"] else ""
            cells.append(cell["verdict"] + mark)
        lines.append(f"| {row['title']} | {row['need'] / MIB:.0f} | {row['wall']:.2f} | {' | '.join(cells)} |")
    lines += [""] + [f"{number}. {said}" for said, number in notes.items()]
    return "\n".join(lines)


def summary(rows):
    done = [row for row in rows if "cells" in row]
    counts = []
    for part in parts_of(rows):
        words = {}
        for row in (row for row in done if part in row["cells"]):
            word = row["cells"][part]["verdict"]
            word, ended, _ = word.partition("; ended")
            word = word.split()[0] if word.startswith(("right", "ended", "status")) else word
            word += ", but ended with --thrashing end" if ended else ""
            words[word] = words.get(word, 0) + 1
        counts.append(f"{part}: " + ", ".join(f"{count} {word}" for word, count in sorted(words.items(), key=lambda pair: -pair[1])))
    return f"{len(done)} programs ({'; '.join(counts)}); {len(rows) - len(done)} skipped."


def who(rows, user):
    """The user who ran everything, and the ways that `run` took."""
    ways = {}
    for cell in (cell for row in rows for cell in row.get("cells", {}).values()):
        if way := cell.get("way"):
            ways[way] = ways.get(way, 0) + 1
    said = "root" if user is None else f"user {user}, without groups, with an empty bounding set and no_new_privs"
    took = ", ".join(f"`{way}` ({count} runs)" for way, count in ways.items()) or "unknown"
    return f"Run by {said}. Way that `run` took: {took}."


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="", help="names, or `ordinary`, with commas between them")
    parser.add_argument("--short", action="store_true", help="a few programs, small; status 1 unless all are right")
    parser.add_argument("--list", action="store_true", help="print the names of the programs")
    parser.add_argument("--user", type=int, metavar="UID", help="run all as this user, without any permission")
    parser.add_argument("--folioswap", default=os.environ.get("FOLIOSWAP_BIN"), help="the binary")
    parser.add_argument("--option", action="append", default=[], help="a further option of `folioswap run`, as in --option=--huge=never")
    parser.add_argument("--timeout", type=float, default=120, help="seconds that a run may take, at a quarter a third of it (default %(default)s)")
    parser.add_argument("--parts", default=",".join(PARTS), help="of what a program needs: half, quarter (default: both)")
    parser.add_argument("--scale", type=float, help="size of the inputs, 0 to 1 (default 1; 0.5 with --short)")
    parser.add_argument("--place", default="/var/tmp", help="where files are made (default %(default)s)")
    parser.add_argument("--json", help="write all figures to this file")
    parser.add_argument("--show", nargs="+", metavar="FILE", help="print the table of these files; runs nothing")
    options = parser.parse_args()
    names = [name for name in options.programs.split(",") if name] or (SHORT if options.short else list(PROGRAMS))
    options.programs = list(dict.fromkeys(name for one in names for name in SETS.get(one, [one])))
    if options.user == 0:
        parser.error("--user takes an ordinary user; without it root runs everything")
    unknown = [name for name in options.programs if name not in PROGRAMS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; see --list")
    options.parts = options.parts.split(",")
    if not set(options.parts) <= set(PARTS):
        parser.error(f"--parts takes some of {', '.join(PARTS)}")
    options.scale = options.scale or (0.5 if options.short else 1)
    return options


def print_table(rows, user):
    print(summary(rows))
    print(who(rows, user) + "\n")
    print(markdown(rows))


def main():
    options = arguments()
    if options.list:
        for name, (title, _) in PROGRAMS.items():
            print(f"{name:16} {title}")
        for name, programs in SETS.items():
            print(f"{name:16} a set: {','.join(programs)}")
        return
    if options.show:
        documents = [json.loads(read(path)) for path in options.show]
        rows = {row["program"]: row for document in documents for row in document["rows"]}
        return print_table([rows[name] for name in PROGRAMS if name in rows], documents[0].get("user"))
    if os.geteuid() != 0:
        raise SystemExit("the cgroup that measures what a program needs takes root")
    folioswap = need_command(options.folioswap)
    end_by_signals()
    runner, rows = Runner(options, folioswap), []
    warm(1 << 30)
    try:
        for name in options.programs:
            row = {"program": name}
            fill(row, runner)
            rows.append(row)
            if "skipped" in row and os.environ.get("FOLIOSWAP_SKIP_FILE"):
                with open(os.environ["FOLIOSWAP_SKIP_FILE"], "a") as file:
                    print(f"SKIP bench/programs.py: {row['title']}: {row['skipped']}", file=file)
            said = row.get("skipped") or ", ".join(f"{part} {cell['verdict']}" for part, cell in row["cells"].items())
            print(f"{len(rows)} of {len(options.programs)}, {row['title']}: {said}", file=sys.stderr, flush=True)
    finally:
        if options.json:
            with open(options.json, "w") as file:
                json.dump({"command": sys.argv, "user": options.user, "rows": rows}, file, indent=1)
        print_table(rows, options.user)
    verdicts = [cell["verdict"] for row in rows for cell in row.get("cells", {}).values()]
    if "WRONG OUTPUT" in verdicts:
        raise SystemExit("a run printed something else than alone")
    if options.short and not all(word.startswith("right") for word in verdicts):
        raise SystemExit("not all are right")


if __name__ == "__main__":
    main()
