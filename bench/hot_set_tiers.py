#!/usr/bin/env python3
"""Measures how much of a hot set stays in the fast tier while a cold stream passes through.

    bench/hot_set_tiers.py [--rounds N] [--hot MIB] [--limit MIB]

folioswap runs beside the kernel's zram and swap file with priorities (root; memory cgroup v1). The
figure is the part of the pages that came back that came from RAM, not from the file.

The program (acc-lost hot) touches a hot set at random, four pages for each page of a stream of ten
times the size, which it writes once and never reads; LZ4 halves both. folioswap has LIMIT for
everything, at most half of it for its store. The kernel has LIMIT less such a store resident, and
a zram of that size besides.

Build before: cargo build --release -p folioswap-cli -p folioswap-acceptance
"""
import argparse, json, os, statistics, subprocess, tempfile, time

from machine import found_command, target

CGROUP = "/sys/fs/cgroup/memory/folioswap-tiers"


def text(path):
    with open(path) as file:
        return file.read()


def write(path, value):
    with open(path, "w") as file:
        file.write(str(value))


def ours(program, limit):
    """Pages that came back, pages that came from the file, and wall time."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        stats = directory + "/stats.json"
        begin = time.monotonic()
        subprocess.run([found_command(None), "run", "--memory", f"{limit}M", "--swap", "zram,prio=1", "--swap", f"file:{directory},prio=0",
                        "--stats-json", stats, "--"] + program, check=True, stdout=subprocess.DEVNULL)
        wall = time.monotonic() - begin
        counters = json.loads(text(stats))["counters"]
    return counters["pswpin"] + counters["swap_cache_hits"], counters["file_pswpin"], wall


def pages_in():
    return next(int(line.split()[1]) for line in text("/proc/vmstat").splitlines() if line.startswith("pswpin "))


def kernel(program, limit):
    """The same under the kernel's swap; everything is undone."""
    number = text("/sys/class/zram-control/hot_add").strip()
    zram, store = f"/sys/block/zram{number}/", limit // 2
    handle, path = tempfile.mkstemp(dir="/var/tmp")
    undo = [lambda: os.unlink(path), lambda: write("/sys/class/zram-control/hot_remove", number)]
    try:
        os.posix_fallocate(handle, 0, 1 << 30)
        os.close(handle)
        write(zram + "comp_algorithm", "lz4")
        write(zram + "disksize", store << 20)
        for device, priority in ((f"/dev/zram{number}", 32000), (path, 31000)):
            subprocess.run(["mkswap", device], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            subprocess.run(["swapon", "--priority", str(priority), device], check=True)
            undo.append(lambda device=device: subprocess.run(["swapoff", device]))
        os.mkdir(CGROUP)
        undo.append(lambda: os.rmdir(CGROUP))
        write(CGROUP + "/memory.limit_in_bytes", (limit - store) << 20)
        zram_reads, all_reads = int(text(zram + "stat").split()[0]), pages_in()
        begin = time.monotonic()
        subprocess.run(program, check=True, stdout=subprocess.DEVNULL, preexec_fn=lambda: write(CGROUP + "/cgroup.procs", os.getpid()))
        wall = time.monotonic() - begin
        zram_pages = int(text(zram + "stat").split()[2]) // 8
        total = pages_in() - all_reads
        return total, max(total - zram_pages, 0), wall
    finally:
        for step in reversed(undo):
            step()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each engine (%(default)s)")
    parser.add_argument("--hot", type=int, default=16, metavar="MIB",
                        help="size of the hot set (%(default)s)")
    parser.add_argument("--limit", type=int, default=64, metavar="MIB",
                        help="limit of the program (%(default)s)")
    parser.add_argument("--ours-only", action="store_true", help="do not run the kernel's swap")
    arguments = parser.parse_args()
    program = [os.path.join(target(), "acc-lost"), "hot", str(arguments.hot), str(10 * arguments.hot)]
    engines = {"folioswap": ours} if arguments.ours_only else {"folioswap": ours, "kernel": kernel}
    found = {name: [] for name in engines}
    for _ in range(arguments.rounds):
        for name, engine in engines.items():
            found[name].append(engine(program, arguments.limit))
    for name, rounds in found.items():
        parts = [100 * (1 - from_file / all_pages) if all_pages else 100 for all_pages, from_file, _ in rounds]
        print(f"{name:10} came back {statistics.median(r[0] for r in rounds):.0f} pages, from the file {statistics.median(r[1] for r in rounds):.0f}, "
              f"from RAM {statistics.median(parts):.1f} % ({min(parts):.1f} to {max(parts):.1f}), wall {statistics.median(r[2] for r in rounds):.2f} s")


main()
