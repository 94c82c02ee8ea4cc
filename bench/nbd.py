#!/usr/bin/env python3
"""Compares our NBD client with fio's (libnbd): throughput to a server and back.

    bench/nbd.py [--rounds N]

The server is nbdkit's memory plugin on a Unix socket. Each round of either client has a server of
its own and runs the shapes 64 KiB at depths 8 and 32 and 256 KiB at depth 8, a second each; the
best counts. Prints medians in MB/s, from the slowest round to the fastest. Needs nbdkit and fio.

Build before: cargo bench -p folioswap-nbd --bench throughput --no-run
"""
import argparse, glob, json, os, statistics, subprocess, tempfile, time

from machine import target

SHAPES = [("64k", 8), ("64k", 32), ("256k", 8)]
LINES = {("64K", "8"), ("64K", "32"), ("256K", "8")}


def with_server(work):
    """Calls `work` with the URI of a fresh server."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        server = subprocess.Popen(["nbdkit", "-f", "-U", directory + "/socket", "memory", "1G"], stderr=subprocess.DEVNULL)
        try:
            while not os.path.exists(directory + "/socket"):
                time.sleep(0.01)
            time.sleep(0.1)
            return work(f"nbd+unix:///?socket={directory}/socket")
        finally:
            server.terminate()
            server.wait()


def fio(uri):
    best = {}
    for block, depth in SHAPES:
        for way in ("write", "read"):
            words = ["fio", "--name=x", "--ioengine=nbd", f"--uri={uri}", "--size=256M", "--time_based", "--runtime=1", f"--bs={block}",
                     f"--iodepth={depth}", f"--rw={way}", "--output-format=json"]
            text = subprocess.run(words, capture_output=True, text=True, check=True).stdout
            rate = json.loads(text[text.index("{"):])["jobs"][0][way]["bw_bytes"] / 1e6
            best["fio", way] = max(best.get(("fio", way), 0), rate)
    return best


def ours(uri):
    found = [path for path in glob.glob(target() + "/deps/throughput-*") if not path.endswith(".d")]
    program = max(found, key=os.path.getmtime)
    text = subprocess.run([program, "--bench", uri], capture_output=True, text=True, check=True).stdout
    best = {}
    for line in text.splitlines():
        words = line.split()
        if tuple(words[:2]) in LINES:
            name = " ".join(words[2:-2])
            name = "client" if name.startswith("client") else name
            for way, rate in zip(("write", "read"), words[-2:]):
                best[name, way] = max(best.get((name, way), 0), float(rate))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each client (%(default)s)")
    arguments = parser.parse_args()
    rounds = []
    for _ in range(arguments.rounds):
        rounds.append({**with_server(fio), **with_server(ours)})
    for name in ("fio", "client", "pages", "pages, encrypted"):
        for way in ("write", "read"):
            rates = [found[name, way] for found in rounds]
            parts = [found[name, way] / found["fio", way] for found in rounds]
            print(f"{name:17} {way:5} {statistics.median(rates):6.0f} MB/s ({min(rates):.0f} to {max(rates):.0f}), "
                  f"of fio's {statistics.median(parts):.2f} ({min(parts):.2f} to {max(parts):.2f})")


main()
