#!/usr/bin/env python3
"""Compares the file device with fio (io_uring) on the same file or block device.

    bench/devices.py [--path PATH] [--size MIB] [--seconds S]

PATH is overwritten; the default is a new file in /var/tmp, removed afterwards. Needs fio(1) and
cargo.

Prints MB/s over sizes and depths, and the latency of 4 KiB. The last line of each direction says
how much of fio's best rate the device reaches with the sizes that the engine uses: it writes runs
of up to 512 KiB one after the other, and reads up to 64 KiB with up to 8 requests under way.
"""
import argparse, json, os, subprocess, tempfile

SIZES = [64, 128, 256, 512, 1024, 2048]
DEPTHS = [1, 2, 4, 8, 16, 32]


def fio(path, size_mib, operation, kib, depth, seconds):
    command = ["fio", "--name=x", f"--filename={path}", f"--size={size_mib}M", f"--rw={operation}", f"--bs={kib}k", f"--iodepth={depth}",
               "--ioengine=io_uring", "--direct=1", "--time_based", f"--runtime={seconds}", "--output-format=json"]
    done = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)["jobs"][0]
    side = done["write" if "write" in operation else "read"]
    return side["bw_bytes"] / 1e6, side["clat_ns"].get("percentile", {})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--path", help="file or block device to overwrite (default: a new file in /var/tmp)")
    parser.add_argument("--size", type=int, default=512, metavar="MIB",
                        help="size of the file (%(default)s)")
    parser.add_argument("--seconds", type=float, default=1.0,
                        help="time of each measurement (%(default)s)")
    parser.add_argument("--depths", type=lambda text: [int(word) for word in text.split(",")], default=DEPTHS,
                        help="fio's queue depths, separated by commas")
    arguments = parser.parse_args()
    path = arguments.path
    if path is None:
        handle, path = tempfile.mkstemp(dir="/var/tmp", prefix="folioswap-bench-")
        os.posix_fallocate(handle, 0, arguments.size << 20)
        os.close(handle)
    try:
        compare(path, arguments)
    finally:
        if arguments.path is None:
            os.unlink(path)


def compare(path, arguments):
    # Blocks that were never written read faster than any disk.
    fio(path, arguments.size, "write", 1024, 8, max(arguments.seconds, 2))
    command = ["cargo", "bench", "-q", "-p", "folioswap-devices", "--bench", "throughput", "--", path, str(arguments.size << 20),
               str(arguments.seconds)]
    # Ours runs before and after fio, because a disk that others use too changes from minute to
    # minute.
    theirs = {}
    def round_of_fio():
        for operation in ("write", "read"):
            for kib in SIZES:
                for depth in arguments.depths:
                    key, found = (operation, kib, depth), fio(path, arguments.size, operation, kib, depth, arguments.seconds)[0]
                    theirs[key] = max(found, theirs.get(key, 0))
    ours = {}
    def round_of_ours():
        for line in subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines():
            word, *rest = line.split()
            if word == "latency":
                ours["latency"] = tuple(int(number) / 1000 for number in rest)
            else:
                key = (word, int(rest[0]) >> 10, int(rest[1]))
                ours[key] = max(float(rest[2]), ours.get(key, 0))
    round_of_ours()
    round_of_fio()
    round_of_ours()
    for operation in ("write", "read"):
        print(f"\n{operation}, MB/s: fio at depth {arguments.depths}, ours")
        for kib in SIZES:
            fios = " ".join(f"{theirs[operation, kib, depth]:6.0f}" for depth in arguments.depths)
            depths = [1] if operation == "write" else DEPTHS
            mine = " ".join(f"{ours[operation, kib, depth]:6.0f}" for depth in depths)
            print(f"{kib:5} KiB  {fios}  |  {mine}")
        best = max(value for (which, _, _), value in theirs.items() if which == operation)
        used = {"write": [(64, 1), (512, 1)], "read": [(64, 1), (64, 8)]}[operation]
        parts = ", ".join(f"{kib} KiB at depth {depth}: {ours[operation, kib, depth] / best:.2f}" for kib, depth in used)
        mine = max(value for key, value in ours.items() if key[0] == operation)
        print(f"fio's best {best:.0f}; ours at best {mine:.0f} ({mine / best:.2f} of it); {parts}")
    percentiles = fio(path, arguments.size, "randread", 4, 1, max(arguments.seconds, 2))[1]
    raw = percentiles.get("50.000000", 0) / 1000
    print(f"\n4 KiB at random, one at a time: ours p50 {ours['latency'][0]:.1f} us, p99 {ours['latency'][1]:.1f} us; fio (io_uring) p50 {raw:.1f} us")


main()
