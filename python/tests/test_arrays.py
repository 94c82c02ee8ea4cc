"""Arrays under a limit hold the right values, whatever is done to them."""

import concurrent.futures
import contextlib
import gc
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import pytest

import folioswap

MiB = 1 << 20


@pytest.fixture
def sixteen():
    """A limit of 16 MiB. The arrays of each test are about three times as large."""
    with folioswap.limit("16M", swap=["zram,prio=1", "file:/var/tmp,size=1G,prio=0"]) as limit:
        yield limit
    gc.collect()


def pattern(bytes_, seed=1):
    """Returns numbers of which the compressed store takes a part, and the file the rest."""
    return np.random.default_rng(seed).integers(0, 1 << 20, bytes_ // 8, dtype=np.int64)


def was_kept(limit):
    stats = limit.stats()
    assert stats["pswpout"] > 0 and stats["pswpin"] > 0, "the limit was never reached"
    assert stats["times_exceeded"] == 0
    assert stats["charge"] <= limit.size * 41 // 40 + 8 * MiB, stats


def test_sort_fft_product_and_fancy_indexing_are_equal(sixteen):
    plain = pattern(24 * MiB)
    order = np.random.default_rng(2).integers(0, len(plain), 2000)
    square = np.random.default_rng(3).random((800, 800))
    with folioswap.numpy_allocator():
        managed = np.array(plain)
        assert folioswap.is_managed(managed) and not folioswap.is_managed(plain)
        sums = managed[order], np.fft.rfft(managed.astype(float)[: 1 << 20]), np.array(square) @ square
        managed.sort()
    assert np.array_equal(sums[0], plain[order])
    assert np.array_equal(sums[1], np.fft.rfft(plain.astype(float)[: 1 << 20]))
    assert np.allclose(sums[2], square @ square, rtol=1e-12)
    assert np.array_equal(managed, np.sort(plain))
    was_kept(sixteen)


def test_every_way_to_make_an_array(sixteen):
    assert folioswap.empty((3, 4), np.int8).shape == (3, 4)
    zeros = folioswap.zeros((5 * MiB,), np.uint8)
    assert folioswap.is_managed(zeros) and not zeros.any()
    zeros[:] = 7
    del zeros
    assert not folioswap.zeros(5 * MiB, np.uint8).any(), "what was freed is not zero"
    listed = folioswap.array(range(100_000), dtype=np.float32)
    assert folioswap.is_managed(listed) and listed[-1] == 99_999
    fortran = folioswap.empty((1000, 1000), order="F")
    assert fortran.flags.f_contiguous and fortran.flags.owndata
    assert not folioswap.is_managed(np.ones(1 * MiB)), "outside of the block"


def test_arrays_that_grow_and_shrink(sixteen):
    with folioswap.numpy_allocator():
        grown = np.arange(100)
        for length in (5000, 3_000_000, 10, 3000, 1_000_000, 1_000_001):
            grown.resize(length, refcheck=False)
            grown[:] = np.arange(length)
        counted = np.fromiter(range(2_000_000), dtype=np.int64)
    assert np.array_equal(grown, np.arange(1_000_001)) and folioswap.is_managed(grown)
    assert np.array_equal(counted, np.arange(2_000_000)) and folioswap.is_managed(counted)


def test_many_arrays_made_and_freed(sixteen):
    random, kept = np.random.default_rng(5), {}
    with folioswap.numpy_allocator():
        for step in range(300):
            key = int(random.integers(0, 50))
            if key in kept:
                array, seed = kept.pop(key)
                assert (array == seed).all()
            kept[key] = (np.full(int(random.integers(1, 250_000)), step), step)
    for array, seed in kept.values():
        assert (array == seed).all()
    del array
    kept.clear()
    gc.collect()
    assert sixteen.stats()["arrays"] == 0 and sixteen.stats()["freed_bytes_kept"] <= 2 * MiB


def test_files_and_sockets_see_what_is_swapped_out(sixteen):
    plain = pattern(32 * MiB)
    data = folioswap.array(plain)
    folioswap.page_out(data)
    assert folioswap.resident_bytes(data) < MiB
    with tempfile.TemporaryFile() as file:
        data.tofile(file)
        file.seek(0)
        into = folioswap.empty(len(plain), np.int64)
        assert file.readinto(memoryview(into).cast("B")) == into.nbytes
        assert np.array_equal(into, plain)
        file.seek(0)
        with folioswap.numpy_allocator():
            assert np.array_equal(np.fromfile(file, np.int64), plain)
    ours, theirs = socket.socketpair()
    received = folioswap.empty(len(plain), np.int64)

    def receive():
        view = memoryview(received).cast("B")
        while view:
            view = view[theirs.recv_into(view) :]

    thread = threading.Thread(target=receive)
    thread.start()
    ours.sendall(memoryview(data).cast("B"))
    thread.join()
    assert np.array_equal(received, plain)
    was_kept(sixteen)


def test_threads_inside_inherit_and_those_outside_do_not(sixteen):
    made = {}

    def make(name):
        made[name] = np.ones(MiB)

    def run(name):
        thread = threading.Thread(target=make, args=(name,))
        thread.start()
        thread.join()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(make, "before").result()
        with folioswap.numpy_allocator():
            run("inside")
            pool.submit(make, "old pool").result()
            with concurrent.futures.ThreadPoolExecutor(2) as inner:
                inner.submit(make, "pool").result()
        with folioswap.numpy_allocator(new_threads=False):
            run("as numpy has it")
    run("after")
    managed = {name for name, array in made.items() if folioswap.is_managed(array)}
    assert managed == {"inside", "pool"}
    assert threading.Thread.start.__module__ == "threading"


def test_threads_share_an_array(sixteen):
    data = folioswap.empty(3 * MiB, np.int64)
    parts = np.array_split(data, 4)

    def work(part, seed):
        part[:] = pattern(part.nbytes, seed)
        part.sort()

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(work, parts, range(4)))
    for seed, part in enumerate(parts):
        assert np.array_equal(part, np.sort(pattern(part.nbytes, seed)))
    was_kept(sixteen)


def engine_threads():
    """Returns the number of engine threads in this process."""
    count = 0
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/comm") as file:
            count += "folioswap" in file.read()
    return count


def test_an_array_outlives_its_limit():
    with folioswap.limit("16M") as limit:
        plain = pattern(32 * MiB)
        data = folioswap.array(plain)
        with folioswap.numpy_allocator():
            pass
    assert limit.closed
    del limit
    gc.collect()
    view = data[::2]
    del data
    assert np.array_equal(view, plain[::2])
    assert engine_threads() > 0
    del view
    gc.collect()
    # A thread may be listed for a moment after it was joined.
    until = time.monotonic() + 5
    while engine_threads() and time.monotonic() < until:
        time.sleep(0.01)
    assert engine_threads() == 0, "the engine ends with the last array"


def test_limits_nest_and_the_process_has_one():
    with pytest.raises(RuntimeError, match="no limit holds"):
        folioswap.empty(MiB)
    outer = folioswap.limit("32M")
    assert folioswap.current_limit() is outer
    seen = []
    with folioswap.limit(16 * MiB) as inner:
        assert folioswap.current_limit() is inner
        with folioswap.numpy_allocator(outer):
            in_outer = np.ones(MiB)
        thread = threading.Thread(target=lambda: seen.append(folioswap.current_limit()))
        thread.start()
        thread.join()
        assert (outer.stats()["arrays"], inner.stats()["arrays"]) == (1, 0)
    assert seen == [inner] and folioswap.current_limit() is outer
    outer.size = "16M"
    assert folioswap.stats()["limit"] == 16 * MiB and "of 16.0 MiB occupied" in repr(folioswap.stats())
    outer.close()
    assert (in_outer == 1).all()
    with pytest.raises(ValueError, match="closed"):
        outer.size = "64M"
    with pytest.raises(ValueError, match="closed"), outer:
        pass
    with pytest.raises(ValueError, match="closed"), folioswap.numpy_allocator(outer):
        pass


def test_what_cannot_be_is_refused(sixteen):
    for arguments, error in [
        ({"size": "lots"}, ValueError),
        ({"size": 0}, ValueError),
        ({"size": -1}, ValueError),
        ({"size": 1 << 100}, ValueError),
        ({"size": "1K"}, ValueError),
        ({"size": 1.5}, TypeError),
        ({"size": "1G", "swap": ["disk"]}, ValueError),
        ({"size": "1G", "swap": "zram"}, TypeError),
        ({"size": "1G", "swap": ["file:/nowhere"]}, OSError),
        ({"size": "1G", "when_full": "panic"}, ValueError),
        ({"size": "1G", "scope": "some"}, ValueError),
        ({"size": "1G", "fork": "maybe"}, ValueError),
    ]:
        with pytest.raises(error):
            folioswap.limit(**arguments)
    with folioswap.numpy_allocator():
        for bytes_ in (1 << 62, 1 << 47, 1 << 36):
            with pytest.raises(MemoryError):
                np.empty(bytes_, np.uint8)
        with pytest.raises(MemoryError):
            np.zeros(1 << 44)
        assert np.ones(MiB).sum() == MiB
    with pytest.raises(MemoryError):
        folioswap.buffer("100T")
    with pytest.raises(ValueError):
        folioswap.buffer(0)
    with pytest.raises(ValueError, match="not managed"):
        folioswap.page_out(np.ones(100))
    with pytest.raises(TypeError, match="gaps"):
        folioswap.cold(folioswap.zeros((1000, 1000))[:, 3])


def test_interrupt_in_the_middle_of_a_fault_storm():
    program = """
import numpy as np, folioswap, signal, threading, time, os
with folioswap.limit("16M") as limit, folioswap.numpy_allocator():
    data = np.zeros(64 << 20, np.uint8)
    began = time.monotonic()
    def interrupt():
        global began
        while limit.stats()["pgmajfault"] <= 1000:
            time.sleep(0.01)
        began = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        while time.monotonic() < began + 40:
            data[::4096] += 1
        print("never")
    except KeyboardInterrupt:
        print("interrupted", time.monotonic() - began < 10)
    first = data[0]
    assert set(np.unique(data[::4096])) <= {first, first - 1, first + 1}
    data[:] = 5
    print((data == 5).all(), folioswap.stats()["pgmajfault"] > 1000)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert result.stdout.split() == ["interrupted", "True", "True", "True"], result


def test_pickles_and_dlpack_are_copies_and_views(sixteen):
    data = folioswap.array(pattern(20 * MiB))
    for protocol in (2, 5):
        assert np.array_equal(pickle.loads(pickle.dumps(data, protocol)), data)
    view = np.from_dlpack(data)
    assert np.shares_memory(view, data)
    address = data.ctypes.data
    del data
    assert view.ctypes.data == address and np.array_equal(view, pattern(20 * MiB))


def test_stats_are_a_dict_that_reads_well(sixteen):
    data = folioswap.array(pattern(32 * MiB))
    stats = folioswap.stats()
    assert isinstance(stats, dict) and stats["arrays"] == 1 and stats["array_bytes"] == data.nbytes
    assert stats["fault_p50_ns"] > 0 and stats["64kB/swpout"] >= 0
    assert len(repr(stats)) < 400 and "swapped out" in repr(stats)


def test_without_permission_it_is_refused_or_said():
    """A user with userfaultfd for faults of user mode only gets an error, never a short file."""
    program = """
import ctypes, os, sys, numpy as np, folioswap
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: as for a user who logged in
try:
    folioswap.limit("16M")
    print("allowed")
except PermissionError as error:
    print("refused", "folioswap doctor" in str(error))
    with folioswap.limit("16M", user_faults_only="allow") as limit:
        print(limit.serves_system_calls)
        data = folioswap.array(np.arange(6 << 20))
        folioswap.page_out(data)
        try:
            with open("/dev/null", "wb") as null, open("/dev/zero", "rb", buffering=0) as zero:
                zero.readinto(memoryview(data).cast("B"))
            print("no error")
        except OSError as error:
            print(error.errno)
        print(np.array_equal(data, np.arange(6 << 20)))
"""
    if os.geteuid() != 0:
        pytest.skip("takes root to become somebody without permission")
    environment = os.environ | {"FOLIOSWAP_GATE": "never"}
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment
    )
    if result.stdout.split() == ["allowed"]:
        pytest.skip("this machine allows userfaultfd to everybody")
    assert result.stdout.split() == ["refused", "True", "False", "14", "True"], result
