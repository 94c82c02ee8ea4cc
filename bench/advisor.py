#!/usr/bin/env python3
"""Measures how well the miss-ratio curve of `folioswap advise` predicts: each program runs once within the least limit,
whose curve predicts the pages in within larger ones; then it runs within those.

    bench/advisor.py                        four programs, five limits
    bench/advisor.py --programs sort,random
    bench/advisor.py --rounds 3             medians of three runs; the prediction is of the run with the median
    bench/advisor.py --scope resident
    bench/advisor.py --json FILE            all figures

The table has, for each limit, pages in as measured, as predicted, and the error in percent of what is measured. Where
less than 2 % of the pages of the first run come back, the difference is given in percent of the first run instead
(marked with *): a few pages more or less than none are no error that anybody would notice. The binary is --folioswap,
else FOLIOSWAP_BIN, else target/release/folioswap. No root is needed beyond what `run` needs.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

from machine import found_command
from workloads.kit import Missing, source
from workloads.real import PROGRAMS, program

MIB = 1 << 20
# The limits in percent of the first one.
STEPS = [112, 125, 150, 175, 200]

RANDOM = """
import random
n = 160 << 20
b = bytearray(random.Random(1).randbytes(1 << 20) * 160)
r = random.Random(2)
for turn in range(400_000):
    b[r.randrange(n)] = 1
"""

SKEWED = """
import random
n = 160 << 20
b = bytearray(random.Random(1).randbytes(1 << 20) * 160)
r = random.Random(2)
for turn in range(800_000):
    b[int(n * r.random() ** 4)] = 1
"""


@program("random", "pages at random")
def at_random(place, scale):
    return ["/usr/bin/python3", source(place, "touch.py", RANDOM)]


@program("skewed", "pages at random, some far more often")
def skewed(place, scale):
    return ["/usr/bin/python3", source(place, "touch.py", SKEWED)]


# The least limit of each program in MiB: about half of its need.
LEAST = {"random": 90, "skewed": 60, "sort": 100, "sqlite": 39, "bytearray": 102, "pagerank": 84, "jq": 43, "dict": 70}
USUAL = ["random", "skewed", "sort", "sqlite"]


def run(folioswap, command, limit, place, options):
    stats = os.path.join(place, "stats.json")
    with open(os.path.join(place, "out"), "wb") as out:
        done = subprocess.run([folioswap, "run", "-m", str(limit), *options, "--stats-json", stats, "--", *command],
                              stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, cwd=place, timeout=500)
    if done.returncode != 0:
        sys.exit(f"{command[0]} within {limit}: status {done.returncode}: {done.stderr.decode()[-500:]}")
    with open(stats) as file:
        return json.load(file)


def at(curve, limit):
    """The curve at a limit, on the line between two points."""
    for (low, high) in zip(curve, curve[1:]):
        if low["limit_bytes"] <= limit <= high["limit_bytes"]:
            part = (limit - low["limit_bytes"]) / (high["limit_bytes"] - low["limit_bytes"])
            return low["pages_in"] + (high["pages_in"] - low["pages_in"]) * part
    return curve[-1]["pages_in"] if curve else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default=",".join(USUAL))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--scope", default="total", choices=["total", "resident"])
    parser.add_argument("--folioswap", default=os.environ.get("FOLIOSWAP_BIN"))
    parser.add_argument("--json")
    arguments = parser.parse_args()
    folioswap, options = found_command(arguments.folioswap), ["--memory-scope", arguments.scope]
    everything = {}
    print("| Program | Limit | Pages in | Predicted | Error |\n|---|---|---|---|---|")
    for name in arguments.programs.split(","):
        title, prepare = PROGRAMS[name]
        place = tempfile.mkdtemp(prefix=f"folioswap-advisor-{os.getpid()}-", dir="/var/tmp")
        try:
            command = prepare(place, 1)
            least = LEAST[name] * MIB
            runs = {percent: [run(folioswap, command, least * percent // 100, place, options)
                              for _ in range(arguments.rounds)] for percent in [100, *STEPS]}
        except Missing as missing:
            print(f"| {title} | {missing} | | | |")
            continue
        finally:
            shutil.rmtree(place, True)
        pages = {percent: [one["counters"]["pswpin"] for one in all] for percent, all in runs.items()}
        first = statistics.median_low(pages[100])
        curve = runs[100][pages[100].index(first)]["refaults"]["curve"]
        everything[name] = {"pages": pages, "curve": curve, "refaults": runs[100][0]["refaults"],
                            "stats": [one[0] for one in runs.values()]}
        print(f"| {title} | {LEAST[name]}M | {first} | (measured) | |", flush=True)
        for percent in STEPS:
            real, said = statistics.median_low(pages[percent]), at(curve, least * percent // 100)
            small = real < first * 0.02
            error = f"{(said - real) / first:+.1%}*" if small else f"{(said - real) / real:+.0%}"
            print(f"| | {LEAST[name] * percent // 100}M | {real} | {said:.0f} | {error} |", flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(everything, file)


if __name__ == "__main__":
    main()
