"""Managed memory that is like a bytearray."""

from __future__ import annotations

from typing import Any

from . import _folioswap
from ._limit import current_limit
from ._size import show


class Buffer(_folioswap.Buffer):
    """Managed memory that behaves like a bytearray of fixed length. `buffer` makes one, all zero.

    It has the buffer protocol, writable: memoryview, numpy.frombuffer, readinto, pyarrow.py_buffer.
    Items are integers, and slices are copied as bytes. `close` frees the memory (BufferError while
    views exist); later use is a ValueError. A pickle holds a copy.
    """

    def __enter__(self) -> Buffer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        if protocol >= 5:
            import pickle

            return _restore, (pickle.PickleBuffer(self),)
        return _restore, (bytes(self),)

    def __repr__(self) -> str:
        return f"<folioswap.Buffer {'closed' if self.closed else show(len(self))}>"


def _restore(data: Any) -> Buffer:
    made = buffer(memoryview(data).nbytes)
    made[:] = data
    return made


def buffer(size: int | str) -> Buffer:
    """Makes a `Buffer` of `size` bytes under the current limit.

    MemoryError where the limit or the address space is too small for it.
    """
    return Buffer(current_limit()._engine, size)
