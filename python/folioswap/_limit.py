"""The limit that holds, and NumPy's allocator under it."""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
from typing import Any, Iterator

from . import _folioswap
from ._size import bytes_of, of_cgroup, show
from ._stats import Stats, bar

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

    size: bytes, or text such as "2G" (binary units) or "50%" (of the cgroup's memory limit, or else
        of the machine's memory); at least `LEAST_LIMIT`. Without it, nine tenths of what the
        cgroup's limit leaves beside what its processes take now (ValueError if it has none).
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
        size: int | str | None = None,
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
            of_cgroup() if size is None else bytes_of(size),
            swap=list(swap or ()),
            when_full=when_full,
            scope=scope,
            user_faults_only=user_faults_only,
            fork=fork,
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
        if _enabled is not None and _enabled.limit is self:
            disable()
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
        self._engine.set_limit(bytes_of(size))

    @property
    def serves_system_calls(self) -> bool:
        """Whether tofile, readinto and sockets work on swapped-out memory."""
        return self._engine.serves_system_calls

    def stats(self) -> Stats:
        """Returns `folioswap.stats` of this limit."""
        figures, text = self._engine.stats()
        return Stats(figures, text)

    def __repr__(self) -> str:
        return f"<folioswap.limit {show(self.size)}, {self._use()}>"

    def _use(self) -> str:
        try:
            use = f"{show(self.stats()['charge'])} in use"
        except RuntimeError:  # a forked child without a copy
            return "of the process that forked"
        return f"closed, {use}" if self.closed else use

    def _repr_html_(self) -> str:
        return bar(self.stats())


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


class _Enabled:
    """A limit that holds, with NumPy's allocator, until `disable`."""

    def __init__(self, limit: limit, options: dict[str, Any]) -> None:
        self.limit, self.options = limit, options
        self.handler = limit._engine.handler()
        self.before = _folioswap.set_handler(self.handler)
        self.shell = _shell()
        _inheritance.begin()
        if self.shell is not None:
            self.shell.events.register("pre_run_cell", _before_cell)

    def end(self) -> None:
        if self.shell is not None:
            self.shell.events.unregister("pre_run_cell", _before_cell)
        _inheritance.end()
        if _folioswap.get_handler() is self.handler:
            _folioswap.set_handler(self.before)


_enabled: _Enabled | None = None


def _shell() -> Any:
    """Returns the shell of IPython in this process, or None."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    return get_ipython()


def _before_cell(*_: object) -> None:
    """Sets the allocator again: a cell may have a context of its own, in which NumPy keeps it."""
    if _enabled is not None and _folioswap.get_handler() is not _enabled.handler:
        _folioswap.set_handler(_enabled.handler)


def enable(size: int | str | None = None, **options: Any) -> limit:
    """Sets a limit and lets NumPy allocate under it until `disable`, for notebooks and scripts.

    size, options: as for `limit`. In IPython and Jupyter it holds for all further cells, since a
    `with` cannot span cells; in a program for this context and for threads that are started from
    now on. Called again with the same options it changes the size of the same limit, so a cell may
    run twice; with others it is a RuntimeError. The other exceptions are those of `limit`.
    """
    global _enabled
    if _enabled is not None:
        if options != _enabled.options:
            raise RuntimeError("a limit with other options is enabled: call folioswap.disable() first")
        if size is not None:
            _enabled.limit.size = size
        _before_cell()
        return _enabled.limit
    made = limit(size, **options)
    try:
        _enabled = _Enabled(made, dict(options))
    except BaseException:  # NumPy is missing, for example
        made.close()
        raise
    return made


def disable() -> None:
    """Ends what `enable` began. Arrays stay valid, and within the limit. Without `enable`: nothing."""
    global _enabled
    ended, _enabled = _enabled, None
    if ended is not None:
        ended.end()
        ended.limit.close()
