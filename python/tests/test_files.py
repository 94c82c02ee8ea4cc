"""Arrays to files and back by pieces: for everybody, of every layout, through every kind of file."""

import errno
import gc
import gzip
import io
import os
import signal
import subprocess
import sys
import tempfile
import threading

import numpy as np
import pytest

import folioswap

MiB = 1 << 20


@pytest.fixture
def sixteen():
    with folioswap.limit("16M", swap=["zram,prio=1", "file:/var/tmp,size=1G,prio=0"]) as limit:
        yield limit
    gc.collect()


def pattern(bytes_, seed=1):
    return np.random.default_rng(seed).integers(0, 1 << 20, bytes_ // 8, dtype=np.int64)


def test_what_is_larger_than_the_limit_goes_through_a_file(sixteen, tmp_path):
    plain = pattern(40 * MiB)
    data = folioswap.array(plain)
    folioswap.page_out(data)
    folioswap.save(tmp_path / "data", data)
    assert np.array_equal(np.load(tmp_path / "data.npy"), plain), "NumPy reads it"
    again = folioswap.load(tmp_path / "data.npy")
    assert folioswap.is_managed(again) and np.array_equal(again, plain)
    del again
    np.save(tmp_path / "theirs.npy", plain)
    assert np.array_equal(folioswap.load(tmp_path / "theirs.npy"), plain), "NumPy has written it"
    folioswap.tofile(data, tmp_path / "raw")
    assert (tmp_path / "raw").read_bytes() == plain.tobytes()
    raw = folioswap.fromfile(tmp_path / "raw", np.int64, offset=80)
    assert folioswap.is_managed(raw) and np.array_equal(raw, plain[10:])
    assert np.array_equal(folioswap.fromfile(str(tmp_path / "raw"), np.int64, 5), plain[:5])
    assert sixteen.stats()["times_exceeded"] == 0 and sixteen.stats()["pswpin"] > 0


LAYOUTS = {
    "C": lambda: np.arange(60_000).reshape(300, 200),
    "Fortran": lambda: np.asfortranarray(np.arange(60_000.0).reshape(300, 200)),
    "strided": lambda: np.arange(90_000).reshape(300, 300)[::2, 1::3],
    "backwards": lambda: np.arange(60_000)[::-1],
    "transposed": lambda: np.arange(60_000).reshape(20, 30, 100).transpose(1, 2, 0),
    "broadcast": lambda: np.broadcast_to(np.arange(200), (300, 200)),
    "scalar": lambda: np.array(7.5),
    "empty": lambda: np.empty((0, 5), np.int16),
    "dates": lambda: np.arange(20_000).astype("datetime64[s]"),
    "records": lambda: np.zeros(5_000, [("a", "i4"), ("b", "f8", (3,))]),
    "text": lambda: np.array(["one", "three"] * 5_000),
    "big endian": lambda: np.arange(20_000, dtype=">i8"),
    "nothing in an item": lambda: np.zeros(3, "V0"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_and_type_is_what_numpy_writes(sixteen, layout):
    plain = LAYOUTS[layout]()
    with folioswap.numpy_allocator():
        managed = LAYOUTS[layout]()
    for array in (plain, managed):
        for opened in (tempfile.TemporaryFile, io.BytesIO):
            ours, theirs = opened(), io.BytesIO()
            folioswap.save(ours, array)
            np.save(theirs, plain)
            ours.seek(0)
            assert ours.read() == theirs.getvalue()
            ours.seek(0)
            again = folioswap.load(ours)
            assert again.dtype == plain.dtype and again.shape == plain.shape
            assert again.tobytes() == plain.tobytes() and again.flags.f_contiguous == np.load(io.BytesIO(theirs.getvalue())).flags.f_contiguous
            raw = opened()
            folioswap.tofile(array, raw)
            raw.seek(0)
            assert raw.read() == plain.tobytes()


def test_several_arrays_in_one_file_and_what_is_between(sixteen):
    first, second = pattern(5 * MiB), pattern(3 * MiB, 2)
    for opened in (tempfile.TemporaryFile, lambda: tempfile.TemporaryFile(buffering=0), io.BytesIO, tempfile.NamedTemporaryFile):
        with opened() as file:
            file.write(b"before")
            folioswap.save(file, folioswap.array(first))
            file.write(b"between")
            folioswap.tofile(folioswap.array(second), file)
            file.write(b"after")
            file.seek(0)
            assert file.read(6) == b"before"
            assert np.array_equal(folioswap.load(file), first)
            assert file.read(7) == b"between"
            assert np.array_equal(folioswap.fromfile(file, np.int64, len(second)), second)
            assert file.read() == b"after"


def test_compressed_files_and_pipes(sixteen, tmp_path):
    data = folioswap.array(pattern(20 * MiB))
    folioswap.page_out(data)
    with gzip.open(tmp_path / "data.gz", "wb", compresslevel=1) as file:
        folioswap.save(file, data)
    with gzip.open(tmp_path / "data.gz") as file:
        assert np.array_equal(np.load(file), data)
    with gzip.open(tmp_path / "data.gz") as file:
        assert np.array_equal(folioswap.load(file), data)
    for buffering in (-1, 0):
        reading, writing = os.pipe()
        with open(reading, "rb", buffering) as source, open(writing, "wb", buffering) as sink:

            def write():
                with sink:
                    folioswap.save(sink, data)
                    folioswap.tofile(data, sink)

            thread = threading.Thread(target=write)
            thread.start()
            assert np.array_equal(folioswap.load(source), data)
            # Arrays are made meanwhile, so nothing holds the heap while the pipe is empty.
            assert np.array_equal(folioswap.fromfile(source, np.int64, len(data)), data)
            thread.join()


def test_what_goes_wrong_is_said(sixteen, tmp_path):
    data = folioswap.array(pattern(4 * MiB))
    with pytest.raises(OSError) as full, open("/dev/full", "wb") as file:
        folioswap.tofile(data, file)
    assert full.value.errno == errno.ENOSPC
    with pytest.raises(FileNotFoundError):
        folioswap.load(tmp_path / "none.npy")
    with pytest.raises(OSError), open("/dev/null", "rb", 0) as file:
        folioswap.tofile(data, file)
    folioswap.save(tmp_path / "short.npy", data)
    os.truncate(tmp_path / "short.npy", 1000)
    with pytest.raises(ValueError, match="too early: 872 bytes"):
        folioswap.load(tmp_path / "short.npy")
    (tmp_path / "other").write_bytes(b"no array at all")
    with pytest.raises(ValueError):
        folioswap.load(tmp_path / "other")
    with pytest.raises(ValueError, match="1 of 2 items"):
        folioswap.fromfile(tmp_path / "other", np.int64, 2)
    with pytest.raises(ValueError, match="give count"), open("/dev/zero", "rb") as file:
        folioswap.fromfile(file, np.int64)
    for arguments in ({"count": -2}, {"offset": -1}, {"dtype": "V0"}, {"dtype": object}):
        with pytest.raises(ValueError):
            folioswap.fromfile(tmp_path / "other", **{"dtype": np.int64, **arguments})
    with pytest.raises(ValueError, match="objects"):
        folioswap.save(tmp_path / "objects", np.array([{}, []], object))
    assert not (tmp_path / "objects.npy").exists(), "what is refused leaves no file"
    with pytest.raises(TypeError, match="binary"), open(tmp_path / "text", "w") as file:
        folioswap.tofile(data, file)
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with open(reading, "rb"), open(writing, "wb", 0) as file, pytest.raises(BlockingIOError):
        folioswap.tofile(data, file)


def test_an_interrupt_ends_a_transfer_that_waits(sixteen):
    reading, writing = os.pipe()
    main = threading.main_thread().ident

    def interrupt():
        while not handled:
            signal.pthread_kill(main, signal.SIGALRM)
            ended.wait(0.01)

    handled, ended = [], threading.Event()

    def handler(*_):
        handled.append(True)
        raise TimeoutError("the test's")

    before = signal.signal(signal.SIGALRM, handler)
    thread = threading.Thread(target=interrupt)
    try:
        with open(reading, "rb", 0) as source, open(writing, "wb", 0):
            with pytest.raises(TimeoutError):
                thread.start()
                folioswap.fromfile(source, np.int64, MiB)
    finally:
        handled.append(True)
        ended.set()
        thread.join()
        signal.signal(signal.SIGALRM, before)


def as_nobody(program, directory, **environment):
    """Runs a program as a user without privilege, who may write to the directory."""
    os.chmod(directory, 0o777)
    return subprocess.run(
        [sys.executable, "-c", BECOME_NOBODY + program, directory],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )


BECOME_NOBODY = """
import ctypes, io, os, socket, subprocess, sys, threading, numpy as np, folioswap
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: as for a user who logged in
os.chdir(sys.argv[1])
"""


def test_an_ordinary_user_needs_nothing():
    """NumPy's and Python's own functions work on what is swapped out, while threads wait in calls."""
    program = """
plain = np.arange(6 << 20)
ends = os.pipe()
waiting = [threading.Thread(target=os.read, args=(ends[0], 1)) for _ in range(3)]
for thread in waiting:
    thread.start()
np.ones((300, 300)) @ np.ones((300, 300))  # by threads of the linear algebra
with folioswap.limit("16M") as limit:
    print(limit.serves_system_calls)
    data = folioswap.array(plain)
    def away():
        folioswap.page_out(data)
        return data
    np.save("theirs", away())
    print(np.array_equal(np.load("theirs.npy"), plain))
    away().tofile("raw")
    print(np.array_equal(np.fromfile("raw", np.int64), plain))
    with open("raw", "rb", buffering=0) as raw:
        print(raw.readinto(memoryview(away()).cast("B")) == plain.nbytes, np.array_equal(data, plain))
    with folioswap.numpy_allocator():
        print(np.array_equal(np.fromfile("raw", np.int64), plain))
    one, other = socket.socketpair()
    sender = threading.Thread(target=one.sendall, args=(memoryview(away()).cast("B"),))
    sender.start()
    found = folioswap.array(np.zeros_like(plain))
    view = memoryview(found).cast("B")
    while view:
        view = view[other.recv_into(view):]
    sender.join()
    print(np.array_equal(found, plain))
    print(subprocess.run(["cat"], input=memoryview(away()).cast("B"), capture_output=True).stdout == plain.tobytes())
os.write(ends[1], b"abc")
for thread in waiting:
    thread.join()
"""
    if os.geteuid() != 0:
        pytest.skip("takes root to become somebody without permission")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        result = as_nobody(program, directory)
    assert result.stdout.split() == ["True"] * 8, result


def test_an_ordinary_user_can_save_and_load():
    """NumPy's own functions fail there without the gate, or return other items, which is shown first."""
    program = """
with folioswap.limit("16M", user_faults_only="allow") as limit:
    print(limit.serves_system_calls)
    plain = np.arange(6 << 20)
    data = folioswap.array(plain)
    folioswap.page_out(data)
    try:
        np.save("theirs", data)
        print("saved")
    except OSError as error:
        print("refused")
    folioswap.page_out(data)
    folioswap.save("ours", data)
    print(np.array_equal(np.load("ours.npy"), plain))
    del data
    with folioswap.numpy_allocator():
        print(np.array_equal(np.fromfile("ours.npy", np.int64)[16:], plain))
    data = folioswap.load("ours.npy")
    print(np.array_equal(data, plain), folioswap.is_managed(data))
    del data
    data = folioswap.fromfile("ours.npy", np.int64, offset=128)
    print(np.array_equal(data, plain))
    folioswap.page_out(data)
    folioswap.tofile(data[1:], "raw")
    print(np.array_equal(np.fromfile("raw", np.int64), plain[1:]))
    folioswap.page_out(data)
    strided = io.BytesIO()
    folioswap.save(strided, data[::7])
    print(np.array_equal(np.load(io.BytesIO(strided.getvalue())), plain[::7]))
"""
    if os.geteuid() != 0:
        pytest.skip("takes root to become somebody without permission")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        result = as_nobody(program, directory, FOLIOSWAP_GATE="never")
    words = result.stdout.split()
    if words[:1] == ["True"]:
        pytest.skip("this machine allows userfaultfd to everybody")
    assert words == ["False", "refused", "True", "False", "True", "True", "True", "True", "True"], result


def test_without_a_limit_and_without_management_it_is_a_plain_write(tmp_path):
    plain = pattern(3 * MiB)
    folioswap.save(tmp_path / "plain", plain)
    assert np.array_equal(np.load(tmp_path / "plain.npy"), plain)
    with pytest.raises(RuntimeError, match="no limit holds"):
        folioswap.load(tmp_path / "plain.npy")
