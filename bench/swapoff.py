#!/usr/bin/env python3
"""Measures how long it takes to take a swap file away from a running program.

    bench/swapoff.py [--rounds N] [--size MIB] [--limit MIB]

folioswap's swapoff runs beside the kernel's (root; memory cgroup v1). There are two files of equal
size on one disk; the first has the higher priority, and its pages go to the second.

The program (acc-lost) fills SIZE with incompressible data within LIMIT, waits until the first file
is off, and verifies every page.

Build before: cargo build --release -p folioswap-cli -p folioswap-acceptance
"""
import argparse, os, statistics, subprocess, tempfile, time

from machine import found_command, target

CGROUP = "/sys/fs/cgroup/memory/folioswap-swapoff"


def write(path, value):
    with open(path, "w") as file:
        file.write(str(value))


def run(words, size, directory, swapoff, before=None):
    """Runs the program, and takes the device away when the memory is full.

    Returns the seconds of the swapoff; None when the program was killed. Every page is verified.
    """
    go = directory + "/go"
    program = subprocess.Popen(words + [os.path.join(target(), "acc-lost"), str(size), go], stdout=subprocess.PIPE, text=True, preexec_fn=before)
    assert program.stdout.readline() == "ready\n"
    time.sleep(1)
    begin = time.monotonic()
    subprocess.run(swapoff(program.pid), check=True)
    took = time.monotonic() - begin
    write(go, "")
    said = program.stdout.read()
    if program.wait() == -9:
        return None
    assert program.returncode == 0 and f"right {size * 256} lost 0 wrong 0" in said, said
    return took


def ours(size, limit):
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        words = [found_command(None), "run", "--memory", f"{limit}M"]
        for name, priority in (("first", 5), ("second", 1)):
            os.mkdir(f"{directory}/{name}")
            words += ["--swap", f"file:{directory}/{name},size={2 * size}M,prio={priority}"]
        return run(words + ["--"], size, directory, lambda pid: [found_command(None), "swapoff", "--pid", str(pid), directory + "/first"])


def kernel(size, limit):
    undo = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        try:
            for name, priority in (("first", 31000), ("second", 30000)):
                path = f"{directory}/{name}"
                with open(path, "w") as file:
                    os.posix_fallocate(file.fileno(), 0, 2 * size << 20)
                os.chmod(path, 0o600)
                subprocess.run(["mkswap", path], check=True, stdout=subprocess.DEVNULL)
                subprocess.run(["swapon", "--priority", str(priority), path], check=True)
                undo.append(lambda path=path: subprocess.run(["swapoff", path], stderr=subprocess.DEVNULL))
            os.mkdir(CGROUP)
            undo.append(lambda: os.rmdir(CGROUP))
            write(CGROUP + "/memory.limit_in_bytes", limit << 20)
            enter = lambda: write(CGROUP + "/cgroup.procs", os.getpid())
            return run([], size, directory, lambda _: ["swapoff", directory + "/first"], enter)
        finally:
            for step in reversed(undo):
                step()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="runs of each engine (%(default)s)")
    parser.add_argument("--size", type=int, default=512, metavar="MIB",
                        help="memory of the program (%(default)s)")
    parser.add_argument("--limit", type=int, default=64, metavar="MIB",
                        help="limit of the program (%(default)s)")
    arguments = parser.parse_args()
    found = {"folioswap": [], "kernel": []}
    for _ in range(arguments.rounds):
        for name, engine in (("folioswap", ours), ("kernel", kernel)):
            found[name].append(engine(arguments.size, arguments.limit))
    for name, rounds in found.items():
        ended = [took for took in rounds if took is not None]
        if not ended:
            print(f"{name:10} the program was killed in {len(rounds)} of {len(rounds)} rounds")
            continue
        middle = statistics.median(ended)
        rate = (arguments.size - arguments.limit) / middle
        print(f"{name:10} {middle:.2f} s ({min(ended):.2f} to {max(ended):.2f}), about {rate:.0f} MiB/s; "
              f"the program was killed in {len(rounds) - len(ended)} of {len(rounds)} rounds")


main()
