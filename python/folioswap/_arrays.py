"""Arrays under the current limit: making them, advice, and a list of them."""

from __future__ import annotations

import contextlib
import html
import sys
from typing import Any, Iterator, Mapping, NamedTuple

from . import _folioswap
from ._limit import current_limit, limit, numpy_allocator
from ._size import show

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
    _folioswap.advise(exporter(memory), "page_out")


def cold(memory: Any) -> None:
    """Lets an array, slice or buffer leave before anything else when memory is short."""
    _folioswap.advise(exporter(memory), "cold")


def will_need(memory: Any) -> None:
    """Brings an array, slice or buffer back now, in order, as far as there is room."""
    _folioswap.advise(exporter(memory), "will_need")


def resident_bytes(memory: Any) -> int:
    """Returns how many bytes of the pages of an array, slice or buffer are in memory now.

    ValueError where the memory is not managed.
    """
    return _folioswap.resident_bytes(exporter(memory))


def is_managed(memory: Any) -> bool:
    """Returns whether the memory of an array, slice or buffer is managed by a limit."""
    return _folioswap.is_managed(exporter(memory))


def exporter(memory: Any) -> Any:
    """Returns something with the same memory that has the buffer protocol.

    Arrays of dates and of some other types do not have it; their bytes do.
    """
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(memory, numpy.ndarray) or memory.size == 0:
        return memory
    if memory.flags.c_contiguous:
        return memory.view(numpy.ndarray).reshape(-1).view(numpy.uint8)
    if memory.flags.f_contiguous:
        return memory.view(numpy.ndarray).T.reshape(-1).view(numpy.uint8)
    return memory


class ArrayInfo(NamedTuple):
    """Memory of one array or buffer: sizes in bytes, and the names of variables that refer to it."""

    bytes: int
    resident_bytes: int
    names: tuple[str, ...]
    shape: tuple[int, ...] | None
    dtype: str | None
    address: int


class Arrays(list):
    """A list of `ArrayInfo`, the largest first. Its repr is a table."""

    _HEAD = ("SIZE", "RESIDENT", "SHAPE", "TYPE", "NAMES")

    def _rows(self) -> list[tuple[str, ...]]:
        def row(each: ArrayInfo) -> tuple[str, ...]:
            names = ", ".join(each.names[:3]) + (", ..." if len(each.names) > 3 else "")
            shape = "-" if each.shape is None else "x".join(map(str, each.shape)) or "scalar"
            return show(each.bytes), show(each.resident_bytes), shape, each.dtype or "-", names or "-"

        return [row(each) for each in self]

    def __repr__(self) -> str:
        rows = [self._HEAD, *self._rows()]
        widths = [max(len(row[column]) for row in rows) for column in range(4)]
        lines = []
        for row in rows:
            sizes = [cell.rjust(width) for cell, width in zip(row[:2], widths)]
            texts = [cell.ljust(width) for cell, width in zip(row[2:4], widths[2:])]
            lines.append("  ".join([*sizes, *texts, row[4]]))
        return "\n".join(lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{name}</th>" for name in self._HEAD)
        body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in self._rows())
        return f"<table><tr>{head}</tr>{body}</table>"


def arrays(limit: limit | None = None, *, namespace: Mapping[str, Any] | None = None) -> Arrays:
    """Returns the memory of all arrays and buffers of the limit, the largest first.

    namespace: where names are looked for: variables that are arrays, buffers or pandas frames, and
    lists, tuples and dicts of arrays, one deep. Without it, the caller's variables. Memory that no
    such variable refers to (an array in an object, a temporary one) has no name. Cost: a system call
    and some microseconds a GiB for each.
    """
    if namespace is None:
        caller = sys._getframe(1)
        namespace = {**caller.f_globals, **caller.f_locals}
    pieces = (limit or current_limit())._engine.pieces()
    named = list(_named(namespace))
    found = []
    for address, size, resident in pieces:
        within = [(name, value) for name, value, first in named if address <= first < address + size]
        whole = max((value for _, value in within), key=lambda value: getattr(value, "nbytes", 0), default=None)
        shape, dtype = getattr(whole, "shape", None), getattr(whole, "dtype", None)
        names = tuple(dict.fromkeys(name for name, _ in within))
        found.append(ArrayInfo(size, resident, names, shape, None if dtype is None else str(dtype), address))
    return Arrays(sorted(found, key=lambda each: (-each.bytes, each.address)))


def _named(namespace: Mapping[str, Any]) -> Iterator[tuple[str, Any, int]]:
    """Returns arrays and buffers, each with its name and its address."""
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    for name, value in list(namespace.items()):
        if name.startswith("_"):
            continue
        inner: list[tuple[str, Any]] = [(name, value)]
        if isinstance(value, (list, tuple)):
            inner = [(f"{name}[{index}]", each) for index, each in enumerate(value[:1000])]
        elif isinstance(value, dict):
            inner = [(f"{name}[{key!r}]", each) for key, each in list(value.items())[:1000]]
        elif pandas is not None and isinstance(value, (pandas.DataFrame, getattr(pandas, "Series", pandas.DataFrame))):
            columns = [(name, value)] if value.ndim == 1 else [(f"{name}[{key!r}]", value[key]) for key in value.columns]
            # Only NumPy's own types: others would be converted, at some cost.
            inner = [(text, each.to_numpy()) for text, each in columns if isinstance(each.dtype, numpy.dtype)]
        for text, each in inner:
            is_buffer = isinstance(each, _folioswap.Buffer) and not each.closed
            if is_buffer or (numpy is not None and isinstance(each, numpy.ndarray) and each.nbytes):
                with contextlib.suppress(TypeError, ValueError, BufferError):
                    yield text, each, _address(each)


def _address(memory: Any) -> int:
    interface = getattr(memory, "__array_interface__", None)
    return interface["data"][0] if interface else _folioswap.address(memory)
