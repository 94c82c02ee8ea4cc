"""Memory that processes share by name and that swaps: an object in a `folioswap mount` directory.

    shared = SharedMemory("/mnt/folioswap", create=True, size="4G")    # a new object there
    data = numpy.ndarray((1 << 29,), "i8", buffer=shared.buf)
    ...    # pass `shared` to other processes, spawned ones too: its pickle is its name
    shared.close()
    shared.unlink()

The class is used as multiprocessing.shared_memory.SharedMemory. The mount's limit
(`folioswap mount --memory`) holds for the memory, and no limit of this package.
"""

from __future__ import annotations

import mmap
import os
import secrets
from typing import Any

from . import _folioswap

__all__ = ["SharedMemory"]


class SharedMemory:
    """An object in a directory that `folioswap mount` serves, mapped into this process.

    Its pickle is its name: a process that loads the pickle has the same memory.

    name: path of the object. With `create`, the path of an object that does not exist, or of a
        directory, in which the object gets a name of its own.
    size: with `create`, the size in bytes, or text such as "2G". The object is all zero at first,
        and takes memory where it is touched.

    FileNotFoundError, FileExistsError and other OSErrors as from open(2); ValueError where the path
    is not on such a mount, or the size is not positive. When the mount is full, the first touch of
    a page is a SIGBUS, as on a tmpfs.
    """

    def __init__(self, name: str | os.PathLike[str], create: bool = False, size: int | str = 0) -> None:
        self._view: memoryview | None = None
        path = os.path.abspath(os.fspath(name))
        if create:
            bytes_ = _folioswap.parse_size(size)
            if bytes_ <= 0:
                raise ValueError("size must be positive")
            if os.path.isdir(path):
                path = os.path.join(path, f"folioswap-{secrets.token_hex(8)}")
        _check_mount(os.path.dirname(path))
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if create else 0)
        descriptor = os.open(path, flags, 0o600)
        try:
            if create:
                os.ftruncate(descriptor, bytes_)
            self._size = os.fstat(descriptor).st_size
            if self._size == 0:
                raise ValueError(f"{path} is empty")
            self._map = mmap.mmap(descriptor, self._size)
        except BaseException:
            if create:
                os.unlink(path)
            raise
        finally:
            os.close(descriptor)
        self._name = path
        self._view = memoryview(self._map)

    @property
    def name(self) -> str:
        """The object's path, by which any process finds it."""
        return self._name

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self._size

    @property
    def buf(self) -> memoryview:
        """A writable view of all memory. ValueError after `close`."""
        if self._view is None:
            raise ValueError("the shared memory is closed")
        return self._view

    def close(self) -> None:
        """Unmaps the object from this process; it stays. BufferError while views exist."""
        if self._view is not None:
            self._view.release()
            try:
                self._map.close()
            except BufferError:
                self._view = memoryview(self._map)
                raise
            self._view = None

    def unlink(self) -> None:
        """Removes the name. The contents go with the last process that has the object open."""
        os.unlink(self._name)

    def __enter__(self) -> SharedMemory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return SharedMemory, (self._name,)

    def __repr__(self) -> str:
        return f"<folioswap.SharedMemory {self._name!r}, {'closed' if self._view is None else f'{self._size} bytes'}>"


def _check_mount(directory: str) -> None:
    """Raises ValueError unless a folioswap mount has the device number of this directory."""
    device = os.stat(directory).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with open("/proc/self/mountinfo") as mounts:
        for line in mounts:
            before, after = line.split(" - ", 1)
            kind, source = after.split()[:2]
            if before.split()[2] == number and kind.startswith("fuse") and source == "folioswap":
                return
    raise ValueError(f"{directory} is not served by folioswap: mount one with `folioswap mount DIRECTORY --memory SIZE`")
