"""Memory that processes share by name, in a directory of `folioswap mount`."""

import multiprocessing
import os
import pickle
import shutil
import subprocess

import numpy as np
import pytest

import folioswap

MiB = 1 << 20
HERE = os.path.dirname(os.path.abspath(__file__))


@pytest.fixture(scope="module")
def mount(tmp_path_factory):
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "..", "..", "target"))
    command = os.environ.get("FOLIOSWAP_BIN") or os.path.join(target, "release", "folioswap")
    if not os.path.exists(command):
        command = shutil.which("folioswap") or pytest.skip("no folioswap command (cargo build --release -p folioswap-cli)")
    directory = str(tmp_path_factory.mktemp("folioswap-acc-shared"))
    mounted = subprocess.run([command, "mount", directory, "--memory", "32M", "--size", "256M"], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"it cannot be mounted here: {mounted.stderr}")
    yield directory
    subprocess.run([command, "umount", directory], check=True)


def pattern(length):
    return np.random.default_rng(4).integers(0, 1 << 20, length, dtype=np.int64)


def work(shared, start, end):
    data = np.ndarray((shared.size // 8,), "i8", buffer=shared.buf)
    part = data[start:end]
    total = int(part.sum())
    part += 1
    del data, part
    shared.close()
    return total


def test_spawned_processes_have_the_same_memory(mount):
    with folioswap.SharedMemory(mount, create=True, size="64M") as shared:
        data = np.ndarray((shared.size // 8,), "i8", buffer=shared.buf)
        assert not data.any()
        data[:] = pattern(len(data))
        bounds = [(start, start + MiB) for start in range(0, len(data), MiB)]
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            totals = pool.starmap(work, [(shared, *one) for one in bounds])
        assert totals == [int(pattern(len(data))[slice(*one)].sum()) for one in bounds]
        assert np.array_equal(data, pattern(len(data)) + 1), "what they wrote is seen here"
        again = pickle.loads(pickle.dumps(shared))
        again.buf[3] ^= 0xFF
        assert shared.buf[3] == again.buf[3] and again.name == shared.name and again.size == 64 * MiB
        again.close()
        del data
        shared.unlink()
        with pytest.raises(FileNotFoundError):
            folioswap.SharedMemory(shared.name)


def test_names_and_closing(mount):
    path = os.path.join(mount, "mine")
    shared = folioswap.SharedMemory(path, create=True, size=5)
    assert (shared.name, shared.size, bytes(shared.buf)) == (path, 5, bytes(5))
    with pytest.raises(FileExistsError):
        folioswap.SharedMemory(path, create=True, size=5)
    view = np.frombuffer(shared.buf, np.uint8)
    with pytest.raises(BufferError):
        shared.close()
    view[0] = 1
    del view
    shared.close()
    shared.close()
    with pytest.raises(ValueError):
        shared.buf
    with folioswap.SharedMemory(path) as other:
        assert other.buf[0] == 1 and "5 bytes" in repr(other)
    assert "closed" in repr(other)
    other.unlink()


def test_what_is_refused(mount, tmp_path):
    for size in (0, -1, "x", "0"):
        with pytest.raises(ValueError):
            folioswap.SharedMemory(mount, create=True, size=size)
    with pytest.raises(ValueError, match="folioswap mount"):
        folioswap.SharedMemory(tmp_path, create=True, size=5)
    with pytest.raises(OSError):
        folioswap.SharedMemory(mount, create=True, size="1E")
    with pytest.raises(FileNotFoundError):
        folioswap.SharedMemory(os.path.join(mount, "nothing"))
    with pytest.raises(FileNotFoundError):
        folioswap.SharedMemory(os.path.join(mount, "no", "thing"), create=True, size=5)
    open(os.path.join(mount, "empty"), "w").close()
    with pytest.raises(ValueError, match="empty"):
        folioswap.SharedMemory(os.path.join(mount, "empty"))
    os.unlink(os.path.join(mount, "empty"))
    assert os.listdir(mount) == []
