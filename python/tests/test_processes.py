"""Processes: forked ones have a copy of all arrays, spawned ones have the pickled arrays."""

import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest

import folioswap

MiB = 1 << 20
SHARED = None


def pattern(seed=1):
    return np.random.default_rng(seed).integers(0, 1 << 20, 5 * MiB // 2, dtype=np.int64)


def in_child(work):
    """Forks, and runs `work` in the child, whose status is 0 if no exception was raised."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def ended_well(child):
    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_child_has_a_copy_of_its_own():
    with folioswap.limit("16M") as limit:
        data, small, buffer = folioswap.array(pattern()), folioswap.zeros(100), folioswap.buffer(MiB)
        buffer[7] = 77

        def child():
            assert np.array_equal(data, pattern()) and buffer[7] == 77
            data[:] = 3
            small[:] = 1
            buffer[7] = 78
            with folioswap.numpy_allocator():
                more = np.sort(pattern(2))
            assert folioswap.is_managed(more) and (data == 3).all()
            assert folioswap.stats()["pswpout"] > 0

            def grandchild():
                assert (data == 3).all() and buffer[7] == 78 and np.array_equal(more, np.sort(pattern(2)))

            ended_well(in_child(grandchild))
            assert (data == 3).all()

        first = in_child(child)
        data[0] = 5
        second = in_child(lambda: None if data[0] == 5 and data[1] == pattern()[1] else 1 / 0)
        ended_well(first)
        ended_well(second)
        assert data[0] == 5 and np.array_equal(data[1:], pattern()[1:]) and buffer[7] == 77 and not small.any()
        assert limit.stats()["arrays"] == 2


def test_a_child_that_dies_at_once_harms_nobody():
    with folioswap.limit("16M"):
        data = folioswap.array(pattern())
        for _ in range(3):
            subprocess.run(["true"], check=True, preexec_fn=lambda: None)
            subprocess.run(["true"], check=True)
        assert np.array_equal(data, pattern())


def test_left_out_of_a_fork_nothing_can_be_made_in_the_child():
    with folioswap.limit("16M", fork="leave"):
        data = folioswap.array(pattern())

        def child():
            global SHARED
            with pytest.raises(MemoryError):
                folioswap.zeros(MiB)
            with pytest.raises(RuntimeError, match="fork"):
                folioswap.stats()
            with folioswap.limit("8M"):
                assert np.array_equal(folioswap.array(pattern(3)), pattern(3))

        ended_well(in_child(child))
        assert np.array_equal(data, pattern())


def total(part):
    return int(part.sum() % 1_000_003)


def total_of_shared(bounds):
    return int(SHARED[slice(*bounds)].sum() % 1_000_003)


def buffer_of(buffer):
    return buffer[:5], folioswap.is_managed(buffer)


def test_pools_that_fork_and_pools_that_spawn():
    global SHARED
    bounds = [(start, start + MiB) for start in range(0, 5 * MiB // 2, MiB)]
    expected = [total(pattern()[slice(*one)]) for one in bounds]
    with folioswap.limit("16M"):
        SHARED = folioswap.array(pattern())
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(total_of_shared, bounds) == expected
            assert pool.map(total, [SHARED[slice(*one)] for one in bounds]) == expected
        buffer = folioswap.buffer(MiB)
        buffer[:5] = b"hello"
        spawn = multiprocessing.get_context("spawn")
        with spawn.Pool(1, initializer=folioswap.limit, initargs=("16M",)) as pool:
            assert pool.map(total, [SHARED[slice(*one)] for one in bounds]) == expected
            assert pool.apply(buffer_of, (buffer,)) == (b"hello", True)
        SHARED = None


def test_under_folioswap_run_it_is_said():
    program = "import folioswap; print(folioswap.is_under_run()); folioswap.limit('16M')"
    environment = {**os.environ, "FOLIOSWAP_GROUP": "1"}
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    if result.stdout.split() != ["True"]:
        pytest.fail(repr(result))
    assert "RuntimeError" in result.stderr and "folioswap run" in result.stderr
