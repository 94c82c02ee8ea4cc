"""Buffers: a bytearray of fixed length in managed memory."""

import gc
import os
import pickle
import tempfile

import numpy as np
import pytest

import folioswap

MiB = 1 << 20


@pytest.fixture
def limit():
    with folioswap.limit("16M") as limit:
        yield limit
    gc.collect()


def test_it_is_like_a_bytearray(limit):
    buffer, like = folioswap.buffer(50_000), bytearray(50_000)
    for one in (buffer, like):
        one[3] = 7
        one[-1] = 9
        one[100:104] = b"abcd"
        one[10:20:2] = bytes(range(5))
    assert buffer[:] == like and len(buffer) == len(like) and buffer[-1] == 9
    assert bytes(buffer) == like and buffer[99:105] == b"\0abcd\0"
    for bad in (lambda: buffer[50_000], lambda: buffer.__setitem__(50_000, 1)):
        with pytest.raises(IndexError):
            bad()
    with pytest.raises(ValueError):
        buffer[0:3] = b"four"
    with pytest.raises(ValueError):
        buffer[0] = 256


def test_larger_than_the_limit_through_every_door(limit):
    buffer = folioswap.buffer("40M")
    numbers = np.frombuffer(buffer, np.int64)
    numbers[:] = np.random.default_rng(1).integers(0, 1 << 20, len(numbers))
    with tempfile.TemporaryFile() as file:
        file.write(buffer)
        file.seek(0)
        copy = folioswap.buffer("40M")
        assert file.readinto(copy) == 40 * MiB
    assert np.array_equal(np.frombuffer(copy, np.int64), numbers)
    folioswap.page_out(memoryview(copy)[: 20 * MiB])
    assert folioswap.resident_bytes(memoryview(copy)[: 20 * MiB]) < MiB
    assert memoryview(copy) == memoryview(buffer)
    assert limit.stats()["pswpin"] > 0


def test_close_and_what_comes_after(limit):
    with folioswap.buffer(MiB) as buffer:
        view = memoryview(buffer)
        with pytest.raises(BufferError):
            buffer.close()
        view.release()
    assert buffer.closed and limit.stats()["arrays"] == 0
    for bad in (lambda: buffer[0], lambda: memoryview(buffer), lambda: np.frombuffer(buffer, np.uint8), lambda: bytes(buffer)):
        with pytest.raises((ValueError, BufferError), match="closed"):
            bad()
    buffer.close()
    assert "closed" in repr(buffer)
    held = np.frombuffer(folioswap.buffer(MiB), np.uint8)
    gc.collect()
    assert not held.any() and limit.stats()["arrays"] == 1


def test_pickles_are_copies(limit):
    buffer = folioswap.buffer(3 * MiB)
    buffer[5:10] = b"hello"
    for protocol in (2, 4, 5):
        copy = pickle.loads(pickle.dumps(buffer, protocol))
        copy[0] = 1
        assert type(copy) is folioswap.Buffer and copy[5:10] == b"hello" and buffer[0] == 0
    out = []
    pickled = pickle.dumps(buffer, 5, buffer_callback=out.append)
    assert len(pickled) < 1000
    assert pickle.loads(pickled, buffers=out)[:] == buffer[:]


def test_read_only_views_stay_so(limit):
    view = memoryview(folioswap.buffer(MiB)).toreadonly()
    with pytest.raises(TypeError):
        view[0] = 1
