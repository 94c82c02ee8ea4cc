"""NumPy arrays and buffers larger than the memory they may take.

    import numpy as np
    import folioswap

    with folioswap.limit("2G"):
        with folioswap.numpy_allocator():
            data = np.random.default_rng(1).random(1_000_000_000)   # 8 GB
            data.sort()
        print(folioswap.stats())

The engine swaps cold pages out, to compressed RAM within the limit and to files behind it. A page
comes back when it is touched: by any thread, by C code, and inside system calls.

See `limit` for the memory that counts, for forks and for errors, `numpy_allocator` for threads, and
`SharedMemory` for memory that spawned processes share. Pickles of arrays and buffers are copies: an
array arrives as an ordinary one unless a `numpy_allocator` is active at the receiver, and a buffer
needs a limit there.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import threading
from typing import Any, Iterator

from . import _folioswap
from ._folioswap import LEAST_LIMIT, MANAGED_BYTES, is_managed, is_under_run, resident_bytes
from .shared_memory import SharedMemory

__all__ = [
    "LEAST_LIMIT",
    "MANAGED_BYTES",
    "Buffer",
    "SharedMemory",
    "Stats",
    "array",
    "buffer",
    "cold",
    "current_limit",
    "empty",
    "is_managed",
    "is_under_run",
    "limit",
    "numpy_allocator",
    "page_out",
    "resident_bytes",
    "stats",
    "will_need",
    "zeros",
]
__version__ = "0.2.0"

# The open limits of this process, the latest last; and the limit of the context's innermost `with`.
_open: list[limit] = []
_of_context: contextvars.ContextVar[limit | None] = contextvars.ContextVar("folioswap limit", default=None)


class limit:
    """A limit on the memory of arrays and buffers, with the devices behind it.

    The limit holds for the whole process until it is closed, or, as a context manager, for the
    block. A new thread takes the latest open limit of the process. The limit counts resident memory
    of arrays and buffers, the compressed store and the tables. It does not count the interpreter,
    nor allocations smaller than `MANAGED_BYTES`. Arrays that outlive the limit stay valid, and within
    it.

    size: bytes, or text such as "2G" (binary units); at least `LEAST_LIMIT`.
    swap: devices in the grammar of `folioswap run --swap`: "zram,prio=1",
        "file:/var/tmp,size=10G,prio=0", "ram,size=64M". Without it there are compressed RAM, and a
        file without a name in /var/tmp behind it.
    when_full: "exceed" lets the limit give way when every device is full
        (`stats()["times_exceeded"]`); "abort" ends the process.
    scope: "total" counts all memory that arrays and buffers take; "resident" leaves out the
        compressed store and the tables, as the kernel does with zram in a memory cgroup. The latter
        is meant for comparisons, since the store then has no bound.
    user_faults_only: "refuse" raises PermissionError where system calls on swapped-out memory could
        not be served; "allow" goes on without them.
    fork: "copy" gives a forked child a copy of everything, under a limit of its own, and the parent
        waits for the copy; "leave" gives it nothing, and touching an array is a SIGSEGV.

    ValueError for sizes, devices and options; MemoryError for arrays that are too large (the tables
    of an array may take at most half of the limit, so it has at most 64 times the limit); OSError
    where the swap file cannot be made; PermissionError; RuntimeError under `folioswap run`.
    """

    def __init__(
        self,
        size: int | str,
        *,
        swap: list[str] | tuple[str, ...] | None = None,
        when_full: str = "exceed",
        scope: str = "total",
        user_faults_only: str = "refuse",
        fork: str = "copy",
    ) -> None:
        if isinstance(swap, str):
            raise TypeError("swap is a list of devices: swap=[%r]" % swap)
        self._tokens: list[contextvars.Token[limit | None]] = []
        self._engine = _folioswap.Engine(
            size, swap=list(swap or ()), when_full=when_full, scope=scope, user_faults_only=user_faults_only, fork=fork
        )
        _open.append(self)

    def __enter__(self) -> limit:
        if self.closed:
            raise ValueError("the limit is closed")
        self._tokens.append(_of_context.set(self))
        return self

    def __exit__(self, *_: object) -> None:
        _of_context.reset(self._tokens.pop())
        if not self._tokens:
            self.close()

    def close(self) -> None:
        """Refuses further arrays and buffers. Existing ones live on, and the engine with them."""
        self._engine.close()
        if self in _open:
            _open.remove(self)

    @property
    def closed(self) -> bool:
        return self._engine.closed

    @property
    def size(self) -> int:
        """The limit in bytes. When it is set lower, memory is swapped out in the background."""
        return self._engine.limit

    @size.setter
    def size(self, size: int | str) -> None:
        self._engine.set_limit(size)

    @property
    def serves_system_calls(self) -> bool:
        """Whether tofile, readinto and sockets work on swapped-out memory."""
        return self._engine.serves_system_calls

    def stats(self) -> Stats:
        """Returns `folioswap.stats` of this limit."""
        figures, text = self._engine.stats()
        return Stats(figures, text)

    def __repr__(self) -> str:
        return f"<folioswap.limit {self.size} bytes{', closed' if self.closed else ''}>"


class Stats(dict):
    """Figures by name; sizes are in bytes.

    The names are the kernel's where it has one: `pswpin`, `pgmajfault`, "64kB/swpout".
    """

    def __init__(self, figures: dict[str, int | None], text: str = "") -> None:
        super().__init__(figures)
        self._text = text

    def __repr__(self) -> str:
        return f"<folioswap: {self._text}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def current_limit() -> limit:
    """Returns the limit that holds here.

    It is that of the innermost `with`, or else the process's latest open one. RuntimeError if none
    is open.
    """
    innermost = _of_context.get()
    if innermost is not None and not innermost.closed:
        return innermost
    if _open:
        return _open[-1]
    raise RuntimeError('no limit holds: call folioswap.limit("2G") first, or use it in a with statement')


def stats() -> Stats:
    """Returns the figures of the current limit: a dict with a short repr."""
    return current_limit().stats()


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
        return f"<folioswap.Buffer {'closed' if self.closed else f'{len(self)} bytes'}>"


def _restore(data: Any) -> Buffer:
    made = buffer(memoryview(data).nbytes)
    made[:] = data
    return made


def buffer(size: int | str) -> Buffer:
    """Makes a `Buffer` of `size` bytes under the current limit.

    MemoryError where the limit or the address space is too small for it.
    """
    return Buffer(current_limit()._engine, size)


@contextlib.contextmanager
def numpy_allocator(limit: limit | None = None, *, new_threads: bool = True) -> Iterator[None]:
    """Makes NumPy allocate arrays of `MANAGED_BYTES` or more in managed memory (NEP 49).

    This holds inside the block, for any code that makes arrays. NumPy keeps its allocator by
    context. With `new_threads`, threads that the threading module starts inside the block (and so
    those of concurrent.futures) have the allocator too. Threads that were started before, or by C
    code, do not have it. A task of asyncio inherits its creator's.
    """
    engine = (limit or current_limit())._engine
    before = _folioswap.set_handler(engine.handler())
    try:
        with _threads_inherit() if new_threads else contextlib.nullcontext():
            yield
    finally:
        _folioswap.set_handler(before)


class _Inheritance:
    """Replaces `threading.Thread.start` while any block wants it."""

    def __init__(self) -> None:
        self.lock, self.wanted, self.start = threading.Lock(), 0, threading.Thread.start

    def begin(self) -> None:
        with self.lock:
            self.wanted += 1
            if self.wanted == 1:
                self.start = threading.Thread.start
                threading.Thread.start = _start  # type: ignore[method-assign]

    def end(self) -> None:
        with self.lock:
            self.wanted -= 1
            # A later replacement by other code stays. It calls ours, which then does nothing.
            if self.wanted == 0 and threading.Thread.start is _start:
                threading.Thread.start = self.start  # type: ignore[method-assign]


_inheritance = _Inheritance()


@contextlib.contextmanager
def _threads_inherit() -> Iterator[None]:
    _inheritance.begin()
    try:
        yield
    finally:
        _inheritance.end()


def _start(thread: threading.Thread) -> None:
    handler = _folioswap.get_handler()
    if _inheritance.wanted:
        run = thread.run

        def run_with_handler() -> None:
            _folioswap.set_handler(handler)
            run()

        thread.run = run_with_handler  # type: ignore[method-assign]
    _inheritance.start(thread)


@contextlib.contextmanager
def _under_current_limit() -> Iterator[Any]:
    import numpy

    with numpy_allocator(new_threads=False):
        yield numpy


def empty(shape: Any, dtype: Any = float, order: Any = "C") -> Any:
    """Returns numpy.empty under the current limit."""
    with _under_current_limit() as numpy:
        return numpy.empty(shape, dtype, order)


def zeros(shape: Any, dtype: Any = float, order: Any = "C") -> Any:
    """Returns numpy.zeros under the current limit. It takes memory only where it is touched."""
    with _under_current_limit() as numpy:
        return numpy.zeros(shape, dtype, order)


def array(object: Any, dtype: Any = None, *, order: Any = "K") -> Any:
    """Returns numpy.array under the current limit: a copy of `object`."""
    with _under_current_limit() as numpy:
        return numpy.array(object, dtype, order=order)


def page_out(memory: Any) -> None:
    """Says that an array, slice or buffer is not needed for long: its pages leave now.

    ValueError where the memory is not managed.
    """
    _folioswap.advise(memory, "page_out")


def cold(memory: Any) -> None:
    """Lets an array, slice or buffer leave before anything else when memory is short."""
    _folioswap.advise(memory, "cold")


def will_need(memory: Any) -> None:
    """Brings an array, slice or buffer back now, in order, as far as there is room."""
    _folioswap.advise(memory, "will_need")


os.register_at_fork(
    before=_folioswap.before_fork,
    after_in_parent=_folioswap.after_fork_in_parent,
    after_in_child=_folioswap.after_fork_in_child,
)
