#!/usr/bin/env python3
"""Measures what it costs to look: the same fill alone, with --report, with --timeline, beside `folioswap metrics` and
beside an open `folioswap top`, in turn.

    bench/observe.py                        9 rounds, 256 MiB filled and gone through twice within 96 MiB
    bench/observe.py --rounds 15
    bench/observe.py --size 512 --memory 192
    bench/observe.py --json FILE            all times

Each round runs every way once, each time beginning with another one. The time is that of the whole process, from its
start to its end. The table has medians, the least and the greatest, and the median of the differences to the plain run
of the same round, in percent. The goal is below 2 % each. `metrics` writes a file every second (node_exporter's way),
`top` is in a pseudo-terminal of 120x40, read all the time, with a reading each second. The machine must be idle: the
spread of the plain runs says whether it was. The binary is --folioswap, else FOLIOSWAP_BIN, else
target/release/folioswap.
"""

import argparse
import contextlib
import fcntl
import json
import os
import pty
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time

from machine import found_command

FILL = """
import random, sys
piece = random.Random(1).randbytes(1 << 19) + bytes(1 << 19)
memory = [bytearray(piece) for _ in range(int(sys.argv[1]))]
for turn in range(2):
    for part in memory:
        for at in range(0, len(part), 4096):
            part[at] = turn
"""


@contextlib.contextmanager
def beside(words):
    """A command that runs meanwhile, in a terminal whose output is read."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm"
        os.execv(words[0], words)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))

    def read():
        with contextlib.suppress(OSError):
            while os.read(terminal, 1 << 16):
                pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        yield
    finally:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            sys.exit(f"{' '.join(words)} ended by itself, with status {status}")
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        os.close(terminal)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--size", type=int, default=256, help="MiB that are filled")
    parser.add_argument("--memory", type=int, default=96, help="the limit in MiB")
    parser.add_argument("--folioswap", default=os.environ.get("FOLIOSWAP_BIN"))
    parser.add_argument("--json")
    arguments = parser.parse_args()
    folioswap = found_command(arguments.folioswap)
    place = tempfile.mkdtemp(prefix=f"folioswap-observe-{os.getpid()}-", dir="/var/tmp")
    file = os.path.join(place, "out")
    ways = {
        "plain": ([], None),
        "--report": (["--report", file + ".html"], None),
        "--timeline": (["--timeline", file + ".json"], None),
        "metrics, each second": ([], [folioswap, "metrics", file + ".prom", "--interval", "1"]),
        "top, each second": ([], [folioswap, "top", "-d", "1"]),
    }
    command = ["/usr/bin/python3", "-c", FILL, str(arguments.size)]

    def run(options, other):
        with beside(other) if other else contextlib.nullcontext():
            begun = time.monotonic()
            done = subprocess.run([folioswap, "run", "-m", f"{arguments.memory}M", *options, "--", *command],
                                  stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
            took = time.monotonic() - begun
        if done.returncode:
            sys.exit(done.stderr.decode())
        return took

    times = {name: [] for name in ways}
    try:
        for number in range(arguments.rounds + 1):
            names = list(ways)
            names = names[number % len(names):] + names[:number % len(names)]
            for name in names:
                took = run(*ways[name])
                # The first round warms caches.
                if number:
                    times[name].append(took)
    finally:
        shutil.rmtree(place, True)
    print("| Way | Median s | Least to greatest | Against plain |\n|---|---|---|---|")
    for name, all_times in times.items():
        ratios = [one / plain - 1 for one, plain in zip(all_times, times["plain"])]
        against = "" if name == "plain" else f"{statistics.median(ratios):+.1%}"
        print(f"| {name} | {statistics.median(all_times):.2f} | {min(all_times):.2f} to {max(all_times):.2f} | {against} |")
    if arguments.json:
        with open(arguments.json, "w") as out:
            json.dump(times, out)


if __name__ == "__main__":
    main()
