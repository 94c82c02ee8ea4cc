#!/usr/bin/env python3
"""The same NumPy job within a quarter of its need, six ways, and without a limit.

    python/bench/side_by_side.py            all jobs, three rounds (root; a quarter of an hour)
    python/bench/side_by_side.py --jobs sort fft --rounds 1
    python/bench/side_by_side.py --write docs/reference/python.md docs/reference/python-side-by-side.svg
                                            also replaces the documentation's table and plot

* kernel zram: plain NumPy in a memory cgroup; swap is zram with LZ4, not charged to the cgroup
* memmap: numpy.memmap on disk in the same memory cgroup, to which its page cache is charged
* allocator: folioswap.numpy_allocator; the limit counts arrays, compressed store and tables
* resident: the same with scope="resident": the limit counts resident arrays, as with kernel zram
* run: `folioswap run --memory-scope resident python`: the limit counts all resident memory
* dask: dask.array in chunks of 2 MiB, from and to numpy.memmap on disk, in a memory cgroup as for
  memmap; it has no sort

The limit is a quarter of the arrays' size. Where it counts the interpreter too, the anonymous
memory of an interpreter after `import numpy` is added. A way that exceeds the time limit in one
round is not tried again in the next. The result is a table and a plot.

Requirements: the folioswap package (python/build.sh DIRECTORY dask) and the command
(cargo build --release -p folioswap-cli).
"""

import argparse
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
MIB = 1 << 20
NEED = 128 * MIB
CHUNK = 2 * MIB
WAYS = ["no limit", "kernel zram", "memmap", "allocator", "resident", "run", "dask"]
BEGIN, END = "<!-- side by side: begin -->", "<!-- side by side: end -->"


# The jobs. `make` makes an array, and each job makes all of its large arrays with it.


def fill(array, seed, below=1 << 20):
    import numpy as np

    random, flat = np.random.default_rng(seed), array.reshape(-1)
    for start in range(0, len(flat), 1 << 16):
        part = flat[start : start + (1 << 16)]
        part[:] = random.integers(0, below, len(part))


def digest(array):
    flat, sha = array.reshape(-1), hashlib.sha256()
    for start in range(0, len(flat), 1 << 16):
        sha.update(flat[start : start + (1 << 16)].tobytes())
    return sha.hexdigest()


def sort(make):
    data = make((NEED // 8,), "i8")
    fill(data, 1)
    yield
    data.sort()
    yield digest(data)


def fft(make):
    import numpy as np

    data, result = make((2048, NEED // 2 // 16 // 2048), "c16"), make((2048, NEED // 2 // 16 // 2048), "c16")
    fill(data, 2)
    yield
    np.fft.fft(data, axis=1, out=result)
    np.fft.fft(result, axis=0, out=data)
    yield digest(data)


def product(make):
    import numpy as np

    side = int((NEED / 3 / 8) ** 0.5) // 8 * 8
    left, right, result = (make((side, side), "f8") for _ in range(3))
    fill(left, 3, 1000)
    fill(right, 4, 1000)
    yield
    np.matmul(left, right, out=result)
    yield digest(result)


def indexing(make):
    import numpy as np

    data = make((NEED // 8 - (1 << 17),), "i8")
    order = np.random.default_rng(5).integers(0, len(data), 1 << 16)
    fill(data, 6)
    yield
    taken = data[order]
    data[order] = taken[::-1]
    yield digest(taken)


def group_by(make):
    import numpy as np

    keys, values = make((NEED // 16,), "i8"), make((NEED // 16,), "f8")
    fill(keys, 7, 1000)
    fill(values, 8)
    yield
    count, total = np.bincount(keys, minlength=1000), np.bincount(keys, values, minlength=1000)
    np.subtract(values, np.take(total / count, keys, out=values, mode="clip"), out=values)
    yield group_digest(count, total, np.bincount(keys, values, minlength=1000))


def group_digest(count, total, rest):
    """Digests sums near zero, rounded, because their last bits depend on the order of the terms."""
    import numpy as np

    return digest(np.concatenate([count, total, np.round(rest, 3) + 0.0]))


# The jobs with dask.array, chunk by chunk. Large results are stored in arrays of `make`.


class OnDisk:
    """An array that dask.array slices chunk by chunk. It copies a NumPy array whole, in all chunks."""

    def __init__(self, array):
        self.array, self.shape, self.dtype, self.ndim = array, array.shape, array.dtype, array.ndim

    def __getitem__(self, index):
        return self.array[index]


def chunked(array, chunks=None):
    import dask.array as da

    rows = CHUNK // array.dtype.itemsize // array[:1].size
    return da.from_array(OnDisk(array), chunks=chunks or (rows, *array.shape[1:]), name=False)


def dask_fft(make):
    import dask.array as da

    data, result = make((2048, NEED // 2 // 16 // 2048), "c16"), make((2048, NEED // 2 // 16 // 2048), "c16")
    fill(data, 2)
    yield
    da.store(da.fft.fft(chunked(data), axis=1), result, lock=False)
    columns = chunked(result, (2048, CHUNK // 16 // 2048))
    da.store(da.fft.fft(columns, axis=0), data, lock=False)
    yield digest(data)


def dask_product(make):
    import dask.array as da

    side = int((NEED / 3 / 8) ** 0.5) // 8 * 8
    left, right, result = (make((side, side), "f8") for _ in range(3))
    fill(left, 3, 1000)
    fill(right, 4, 1000)
    yield
    block = int((CHUNK / 8) ** 0.5)
    da.store(da.matmul(*(chunked(one, (block, block)) for one in (left, right))), result, lock=False)
    yield digest(result)


def dask_indexing(make):
    import dask.array as da
    import numpy as np

    data = make((NEED // 8 - (1 << 17),), "i8")
    order = np.random.default_rng(5).integers(0, len(data), 1 << 16)
    fill(data, 6)
    yield
    taken = chunked(data)[order].compute()

    def put(part, block_info):
        start, end = block_info[0]["array-location"][0]
        mine, part = np.flatnonzero((order >= start) & (order < end)), part.copy()
        part[order[mine] - start] = taken[::-1][mine]
        return part

    da.store(chunked(data).map_blocks(put, dtype="i8", meta=np.empty(0, "i8")), data, lock=False)
    yield digest(taken)


def dask_group_by(make):
    import dask.array as da
    import numpy as np

    keys, values = make((NEED // 16,), "i8"), make((NEED // 16,), "f8")
    fill(keys, 7, 1000)
    fill(values, 8)
    yield
    key, value = chunked(keys), chunked(values)
    count, total = da.compute(da.bincount(key, minlength=1000), da.bincount(key, value, minlength=1000))
    mean = total / count
    da.store(da.map_blocks(lambda one, group: one - mean[group], value, key, dtype="f8"), values, lock=False)
    yield group_digest(count, total, da.bincount(key, chunked(values), minlength=1000).compute())


DASK_JOBS = {"fft": dask_fft, "product": dask_product, "indexing": dask_indexing, "group-by": dask_group_by}
JOBS = {"sort": sort, "fft": fft, "product": product, "indexing": indexing, "group-by": group_by}


def job(name, way, limit):
    """Runs a job, in a process of its own. Prints the seconds of its work, and the result."""
    import contextlib

    import numpy as np

    context = contextlib.ExitStack()
    if way in ("memmap", "dask"):
        directory = context.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp"))
        number = iter(range(100))
        make = lambda shape, dtype: np.memmap(f"{directory}/{next(number)}", dtype, "w+", shape=shape)
    else:
        make = np.empty
    if way in ("allocator", "resident"):
        import folioswap

        context.enter_context(folioswap.limit(limit, scope="resident" if way == "resident" else "total"))
        context.enter_context(folioswap.numpy_allocator())
    with context:
        steps = (DASK_JOBS if way == "dask" else JOBS)[name](make)
        next(steps)
        began = time.monotonic()
        result = next(steps)
        print(json.dumps({"seconds": time.monotonic() - began, "result": result}))


def measure(name, way, options, baselines):
    from machine import Groups, Zram, read

    limit = NEED // 4
    whole = limit + baselines["dask" if way == "dask" else "numpy"]
    command = [sys.executable, __file__, "--job", name, way, str(limit)]
    if way == "run":
        command = [options.folioswap, "run", "--memory", str(whole), "--memory-scope", "resident", "--", *command]
    zram = Zram(4 * NEED) if way == "kernel zram" else None
    group = Groups(whole if way in ("kernel zram", "memmap", "dask") else None)
    peak, stop = [0], threading.Event()

    def watch():
        while not stop.wait(0.01):
            figures = dict(line.split() for line in read(f"{group.memory}/memory.stat").splitlines())
            now = sum(int(figures.get(f"total_{one}", 0)) for one in ("rss", "shmem", "mapped_file"))
            peak[0] = max(peak[0], now)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        process = subprocess.run(command, capture_output=True, text=True, preexec_fn=group.enter, timeout=options.timeout)
        ending = "" if process.returncode == 0 else f"status {process.returncode}"
        if ending:
            print(process.stderr[-2000:], file=sys.stderr)
    except subprocess.TimeoutExpired:
        process, ending = None, f"above {options.timeout:.0f} s"
    finally:
        stop.set()
        watcher.join()
        group.close()
        if zram:
            zram.close()
    if ending:
        return {"ending": ending, "peak": peak[0]}
    return json.loads(process.stdout) | {"ending": "", "peak": peak[0]}


def baseline_bytes(modules):
    program = f"import {modules}; print([l for l in open('/proc/self/status') if l.startswith('RssAnon')][0].split()[1])"
    return int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout) * 1024


def figure_of(runs):
    """Returns the median seconds, and a table cell: seconds and peak in MiB, or the ending."""
    endings = [run["ending"] for run in runs if run["ending"]] if runs else ["none"]
    if endings:
        how = "killed at the limit" if endings[0] == "status -9" else endings[0]
        return None, how if len(endings) == len(runs) or not runs else f"{how} ({len(endings)} of {len(runs)})"
    seconds = [run["seconds"] for run in runs]
    peak = statistics.median(run["peak"] for run in runs) / MIB
    middle = statistics.median(seconds)
    spread = f" ({min(seconds):.2f}-{max(seconds):.2f})" if len(seconds) > 1 else ""
    return middle, f"{middle:.2f}{spread}; {peak:.0f}"


def table(results, options, baselines):
    lines = [
        f"Seconds of the work (lowest-highest); peak of resident memory in MiB. Arrays of {NEED // MIB} MiB within {NEED // 4 // MIB} MiB"
        f" (interpreter and NumPy: {baselines['numpy'] / MIB:.0f} MiB more; with Dask {baselines['dask'] / MIB:.0f}), {options.rounds} rounds, {os.cpu_count()} CPUs; results equal.",
        "",
        "| | " + " | ".join(WAYS) + " |",
        "|---" * (len(WAYS) + 1) + "|",
    ]
    for name in options.jobs:
        lines.append(f"| {name} | " + " | ".join(figure_of(results[name, way])[1] for way in WAYS) + " |")
    return "\n".join(lines)


def plot(results, options):
    """Returns an SVG with a group of bars for each job: seconds, on a logarithmic scale."""
    import math

    colours = dict(zip(WAYS, ["#9e9e9e", "#d1495b", "#edae49", "#00798c", "#66a182", "#30638e", "#8d6a9f"]))
    width, height, left, top = 760, 320, 50, 40
    seconds = {key: figure_of(runs)[0] for key, runs in results.items()}
    known = [value for value in seconds.values() if value]
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    level = lambda value: top + (height - top - 30) * (high - math.log10(value)) / max(high - low, 1)
    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">']
    svg.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    for power in range(low, high + 1):
        y = level(10**power)
        svg.append(f'<line x1="{left}" x2="{width - 10}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
        svg.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g} s</text>')
    group = (width - left - 10) / len(options.jobs)
    bar = group * 0.8 / len(WAYS)
    for place, name in enumerate(options.jobs):
        for number, way in enumerate(WAYS):
            x, value = left + group * place + group * 0.1 + bar * number, seconds[name, way]
            if value:
                y = level(value)
                bottom = height - 30 - y
                svg.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{bar - 1:.1f}" height="{bottom:.1f}" fill="{colours[way]}"/>')
            else:
                svg.append(f'<text x="{x + bar / 2:.1f}" y="{height - 34}" text-anchor="middle" fill="{colours[way]}">×</text>')
        svg.append(f'<text x="{left + group * (place + 0.5):.1f}" y="{height - 12}" text-anchor="middle">{name}</text>')
    for number, way in enumerate(WAYS):
        x = left + number * 100
        svg.append(f'<rect x="{x}" y="12" width="12" height="12" fill="{colours[way]}"/><text x="{x + 18}" y="22">{way}</text>')
    return "\n".join([*svg, "</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=60, help="seconds for one run")
    parser.add_argument("--json")
    parser.add_argument("--write", nargs=2, metavar=("DOCUMENT", "PLOT"))
    parser.add_argument("--job", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        return job(*options.job[:2], int(options.job[2]))
    if os.geteuid() != 0:
        sys.exit("this comparison sets up cgroups and zram: run it as root")
    sys.path.insert(0, os.path.join(ROOT, "bench"))
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    options.folioswap = os.environ.get("FOLIOSWAP_BIN") or os.path.join(target, "release", "folioswap")
    if not os.path.exists(options.folioswap):
        options.folioswap = shutil.which("folioswap") or sys.exit("no folioswap command: cargo build --release -p folioswap-cli")
    baselines, results = {"numpy": baseline_bytes("numpy, numpy.fft"), "dask": baseline_bytes("dask.array")}, {}
    for _ in range(options.rounds):
        for name in options.jobs:
            for way in WAYS:
                before = results.setdefault((name, way), [])
                has_none = way == "dask" and name not in DASK_JOBS
                if has_none or before and before[-1]["ending"].startswith("above"):
                    continue
                run = measure(name, way, options, baselines)
                before.append(run)
                print(f"{name}, {way}: {run['ending'] or round(run['seconds'], 2)}", file=sys.stderr)
    for name in options.jobs:
        found = {run["result"] for way in WAYS for run in results[name, way] if not run["ending"]}
        if len(found) > 1:
            sys.exit(f"{name}: results differ: {results}")
    text = table(results, options, baselines)
    print(text)
    if options.json:
        with open(options.json, "w") as file:
            json.dump([{"job": name, "way": way, "runs": runs} for (name, way), runs in results.items()], file, indent=1)
    if options.write:
        document, picture = options.write
        with open(document) as file:
            before, rest = file.read().split(BEGIN)
        with open(document, "w") as file:
            file.write(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")
        with open(picture, "w") as file:
            file.write(plot(results, options))


if __name__ == "__main__":
    main()
