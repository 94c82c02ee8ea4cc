"""NumPy arrays and buffers larger than the memory they may take.

    import numpy as np
    import folioswap

    with folioswap.limit("2G"):
        with folioswap.numpy_allocator():
            data = np.random.default_rng(1).random(1_000_000_000)   # 8 GB
            data.sort()
        print(folioswap.stats())

What is cold is swapped out to compressed RAM within the limit and to files behind it, and comes back when it is touched: by any thread, by C
code, and inside system calls. `docs/python.md` in the repository says what is counted, and what new threads, forks and pickles do.
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
__version__ = "0.1.0"

# Limits that are open in this process, the latest last; and the one that a `with` has made this context's.
_open: list[limit] = []
_of_context: contextvars.ContextVar[limit | None] = contextvars.ContextVar("folioswap limit", default=None)


class limit:
    """A limit on the memory of arrays and buffers, with the devices behind it.

    It holds from now on: for the whole process until it is closed, or, as a context manager, for the block (new threads take the process's
    latest that is open). It counts what is resident of them, the compressed store and the tables; not the interpreter, and not what is smaller than
    `MANAGED_BYTES`. Arrays that outlive it stay valid, and within it.

    size: bytes, or text such as "2G" (binary units); at least `LEAST_LIMIT`.
    swap: devices as `folioswap run --swap` takes them: "zram,prio=1", "file:/var/tmp,size=10G,prio=0", "ram,size=64M". Without it compressed
        RAM, and a file without a name in /var/tmp behind it.
    when_full: "exceed" lets the limit give way when every device is full (`stats()["times_exceeded"]`); "abort" ends the process.
    scope: "total" counts everything that arrays and buffers take; "resident" leaves out the compressed store and the tables, as the kernel does with
        zram in a memory cgroup: for comparisons, since the store then has no bound.
    user_faults_only: "refuse" raises PermissionError where system calls could not be served; "allow" goes on without them.
    fork: "copy" gives a forked child a copy of everything, under a limit of its own; "leave" gives it nothing, and touching is SIGSEGV.
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
        """No array or buffer can be made under it any more. Those that there are go on, and the engine with the last of them."""
        self._engine.close()
        if self in _open:
            _open.remove(self)

    @property
    def closed(self) -> bool:
        return self._engine.closed

    @property
    def size(self) -> int:
        """In bytes. It may be set: what is too much then is swapped out in the background."""
        return self._engine.limit

    @size.setter
    def size(self, size: int | str) -> None:
        self._engine.set_limit(size)

    @property
    def serves_system_calls(self) -> bool:
        """Do tofile, readinto and sockets work on what is swapped out?"""
        return self._engine.serves_system_calls

    def stats(self) -> Stats:
        """As `folioswap.stats`, of this limit."""
        figures, text = self._engine.stats()
        return Stats(figures, text)

    def __repr__(self) -> str:
        return f"<folioswap.limit {self.size} bytes{', closed' if self.closed else ''}>"


class Stats(dict):
    """Figures by their names, the kernel's where it has one (`pswpin`, `pgmajfault`, "64kB/swpout"); sizes in bytes."""

    def __init__(self, figures: dict[str, int | None], text: str = "") -> None:
        super().__init__(figures)
        self._text = text

    def __repr__(self) -> str:
        return f"<folioswap: {self._text}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def current_limit() -> limit:
    """The limit that holds here: that of the innermost `with`, else the process's latest that is open."""
    innermost = _of_context.get()
    if innermost is not None and not innermost.closed:
        return innermost
    if _open:
        return _open[-1]
    raise RuntimeError('no limit holds: call folioswap.limit("2G") first, or use it in a with statement')


def stats() -> Stats:
    """What the current limit's engine has done and holds: a dict with a short repr."""
    return current_limit().stats()


class Buffer(_folioswap.Buffer):
    """Managed memory like a bytearray of fixed length, all zero at first, made by `buffer`.

    It has the buffer protocol, writable: memoryview, numpy.frombuffer, readinto, pyarrow.py_buffer. Items are integers, slices are copied as bytes.
    `close` gives the memory back (BufferError while views exist); using it afterwards is a ValueError. Pickles hold a copy.
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
    """A `Buffer` under the current limit. MemoryError where it cannot be had."""
    return Buffer(current_limit()._engine, size)


@contextlib.contextmanager
def numpy_allocator(limit: limit | None = None, *, new_threads: bool = True) -> Iterator[None]:
    """Every NumPy array made inside that takes `MANAGED_BYTES` or more lives in managed memory (NEP 49), whoever makes it.

    NumPy keeps its allocator by context. With `new_threads` threads that are started from inside by the threading module (and so those of
    concurrent.futures) have it too; those that were started before, or by C code, have not. A task of asyncio has what its creator had.
    """
    engine = (limit or current_limit())._engine
    before = _folioswap.set_handler(engine.handler())
    try:
        with _threads_inherit() if new_threads else contextlib.nullcontext():
            yield
    finally:
        _folioswap.set_handler(before)


class _Inheritance:
    """Replaces `threading.Thread.start` while anyone wants it."""

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
            # Whoever replaced it after us keeps what is theirs: ours goes on in it, and does nothing without a handler of ours.
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
    """As numpy.empty, under the current limit."""
    with _under_current_limit() as numpy:
        return numpy.empty(shape, dtype, order)


def zeros(shape: Any, dtype: Any = float, order: Any = "C") -> Any:
    """As numpy.zeros, under the current limit: takes memory only where it is touched."""
    with _under_current_limit() as numpy:
        return numpy.zeros(shape, dtype, order)


def array(object: Any, dtype: Any = None, *, order: Any = "K") -> Any:
    """As numpy.array: a copy under the current limit."""
    with _under_current_limit() as numpy:
        return numpy.array(object, dtype, order=order)


def page_out(memory: Any) -> None:
    """The memory of an array, slice or buffer is not needed for long: its pages leave now. ValueError where it is not managed."""
    _folioswap.advise(memory, "page_out")


def cold(memory: Any) -> None:
    """It leaves before anything else when memory is short."""
    _folioswap.advise(memory, "cold")


def will_need(memory: Any) -> None:
    """It is brought back now, in order, as far as there is room."""
    _folioswap.advise(memory, "will_need")


os.register_at_fork(
    before=_folioswap.before_fork,
    after_in_parent=_folioswap.after_fork_in_parent,
    after_in_child=_folioswap.after_fork_in_child,
)
