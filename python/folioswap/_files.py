"""Arrays to files and back, also where system calls do not work on swapped-out memory.

NumPy's own functions hand the array's memory to the kernel. For a process that may use userfaultfd
for its own accesses only, that fails for pages that are away: `numpy.save` with EFAULT, and
`numpy.fromfile` returns zeroes or no items, without an error. These functions pin a piece of at most 1 MiB at a
time, so they work for everybody, and for arrays larger than the limit.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from typing import Any, BinaryIO, Iterator

from . import _folioswap
from ._arrays import empty, exporter

# The bytes that are copied at a time where memory or file cannot be used as they are.
_COPY_BYTES = 1 << 20

File = str | bytes | os.PathLike[Any] | Any


def save(file: File, array: Any) -> None:
    """Writes an array in NumPy's format .npy, as numpy.save without pickles.

    file: a path, to which ".npy" is added if it has another ending, or a binary file. array: any
    array of NumPy, or what numpy.asanyarray makes one of; of any layout, larger than the limit or
    not. OSError where writing fails, with a part of the file written; ValueError for arrays of
    objects. Cost: that of the write, and for an array that is not contiguous of a copy, 1 MiB at a
    time.
    """
    import numpy

    array = numpy.asanyarray(array)
    _refuse_objects(array.dtype)
    if isinstance(file, (str, bytes, os.PathLike)):
        path = os.fspath(file)
        ending = b".npy" if isinstance(path, bytes) else ".npy"
        file = path if path.endswith(ending) else path + ending
    with _opened(file, "wb") as opened:
        header = numpy.lib.format.header_data_from_array_1_0(array)
        _write_header(opened, header)
        _write_array(opened, array.T if header["fortran_order"] else array)


def load(file: File) -> Any:
    """Reads an array in NumPy's format .npy under the current limit, as numpy.load without pickles.

    file: a path or a binary file, which is left behind the array. ValueError where it is no such
    file, has objects, or ends too early; OSError where reading fails; MemoryError and RuntimeError as
    for `empty`.
    """
    with _opened(file, "rb") as opened:
        shape, is_fortran, dtype = _read_header(opened)
        _refuse_objects(dtype)
        array = empty(shape, dtype, "F" if is_fortran else "C")
        done = _read_array(opened, array)
        if done < array.nbytes:
            raise ValueError(f"the file ends too early: {done} bytes of the array's {array.nbytes} are there")
        return array


def tofile(array: Any, file: File) -> None:
    """Writes the bytes of an array in C order, as numpy.ndarray.tofile in binary.

    file: a path or a binary file. Exceptions and cost as for `save`.
    """
    import numpy

    array = numpy.asanyarray(array)
    _refuse_objects(array.dtype)
    with _opened(file, "wb") as opened:
        _write_array(opened, array)


def fromfile(file: File, dtype: Any = float, count: int = -1, *, offset: int = 0) -> Any:
    """Reads items under the current limit into an array of one dimension, as numpy.fromfile in binary.

    file: a path or a binary file, which is left behind the items. count: the items to read; -1: all
    whole ones to the end of the file, which has to be an ordinary file then. offset: bytes that are
    skipped first. ValueError where the file has fewer than `count` items (numpy.fromfile returns
    what there is), is no ordinary file, or the type has objects; OSError, MemoryError and
    RuntimeError as for `load`.
    """
    import numpy

    dtype = numpy.dtype(dtype)
    _refuse_objects(dtype)
    if dtype.itemsize == 0 or count < -1 or offset < 0:
        raise ValueError(f"dtype={dtype}, count={count}, offset={offset}: items take bytes, count is -1 or more, offset 0 or more")
    with _opened(file, "rb") as opened:
        if offset:
            opened.seek(offset, os.SEEK_CUR)
        if count == -1:
            count = _bytes_left(opened) // dtype.itemsize
        array = empty(count, dtype)
        done = _read_array(opened, array)
        if done < array.nbytes:
            raise ValueError(f"the file ends too early: {done // dtype.itemsize} of {count} items are there")
        return array


def _refuse_objects(dtype: Any) -> None:
    if dtype.hasobject:
        raise ValueError("arrays of objects are not written or read: use numpy.save and numpy.load with allow_pickle")


@contextlib.contextmanager
def _opened(file: File, mode: str) -> Iterator[BinaryIO]:
    if isinstance(file, (str, bytes, os.PathLike)):
        with open(file, mode) as opened:
            yield opened
    else:
        if isinstance(file, io.TextIOBase):
            raise TypeError("a file for text: open it in binary mode")
        yield file


def _write_header(file: BinaryIO, header: dict[str, Any]) -> None:
    import numpy

    text = io.BytesIO()
    try:
        numpy.lib.format.write_array_header_1_0(text, header)
    except ValueError:  # longer than 64 KiB
        text = io.BytesIO()
        numpy.lib.format.write_array_header_2_0(text, header)
    file.write(text.getvalue())


def _read_header(file: BinaryIO) -> tuple[tuple[int, ...], bool, Any]:
    import numpy

    version = numpy.lib.format.read_magic(file)
    read = {(1, 0): numpy.lib.format.read_array_header_1_0, (2, 0): numpy.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"version {version[0]}.{version[1]} of .npy is not read here: use numpy.load")
    return read(file)


def _descriptor(file: BinaryIO) -> int | None:
    """Returns the descriptor of a file, if its position can be set, or it has no buffer.

    None: bytes have to go through the file's own methods, as for compressed files and io.BytesIO.
    """
    if isinstance(file, io.FileIO):
        return file.fileno()
    if isinstance(file, (io.BufferedReader, io.BufferedWriter, io.BufferedRandom)) and isinstance(file.raw, io.FileIO):
        # A buffered writer has nothing left after a flush. A reader may have read ahead.
        return file.fileno() if file.seekable() or isinstance(file, io.BufferedWriter) else None
    return None


def _write_array(file: BinaryIO, array: Any) -> None:
    """Writes the items of an array in C order."""
    import numpy

    if array.nbytes == 0:
        return
    descriptor = _descriptor(file)
    if descriptor is not None and array.flags.c_contiguous:
        file.flush()
        with _position(file, descriptor):
            _folioswap.transfer(exporter(array), descriptor, "write")
        return
    flags, items = ["external_loop", "buffered", "zerosize_ok"], max(1, _COPY_BYTES // array.itemsize)
    for chunk in numpy.nditer(array, flags=flags, buffersize=items, order="C"):
        chunk = chunk.reshape(-1)
        for start in range(0, len(chunk), items):
            _write_all(file, chunk[start : start + items].tobytes())


def _write_all(file: BinaryIO, data: bytes) -> None:
    left = memoryview(data)
    while left:
        written = file.write(left)
        if written is None:  # a descriptor that does not wait
            raise BlockingIOError("the file takes no bytes at the moment")
        left = left[written:]


def _read_array(file: BinaryIO, array: Any) -> int:
    """Reads the items of a contiguous array in the order of its memory. Returns the bytes read."""
    if array.nbytes == 0:
        return 0
    descriptor, memory = _descriptor(file), exporter(array)
    if descriptor is not None:
        with _position(file, descriptor):
            return _folioswap.transfer(memory, descriptor, "read")
    into, done = memoryview(memory).cast("B"), 0
    while done < len(into):
        # Bytes are copied by this process, whose own accesses are served always.
        data = file.read(min(_COPY_BYTES, len(into) - done))
        if not data:
            break
        into[done : done + len(data)] = data
        done += len(data)
    return done


@contextlib.contextmanager
def _position(file: BinaryIO, descriptor: int) -> Iterator[None]:
    """Lets the descriptor be used at the file's position, and sets the file's to where it ends."""
    if not file.seekable():
        yield
        return
    os.lseek(descriptor, file.tell(), os.SEEK_SET)
    try:
        yield
    finally:
        file.seek(os.lseek(descriptor, 0, os.SEEK_CUR))


def _bytes_left(file: BinaryIO) -> int:
    """Returns the bytes between the position of an ordinary file and its end."""
    descriptor = _descriptor(file)
    if descriptor is not None and stat.S_ISREG(os.fstat(descriptor).st_mode):
        return max(0, os.fstat(descriptor).st_size - file.tell())
    if isinstance(file, io.BytesIO):
        return max(0, file.getbuffer().nbytes - file.tell())
    raise ValueError("only an ordinary file tells how many items it has: give count")
