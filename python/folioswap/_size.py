"""Sizes and durations: as users give them, and as they read them."""

from __future__ import annotations

import os
import re

from . import _folioswap

# What `limit()` takes of the memory that the cgroup's limit leaves; the rest is for the interpreter.
_PART_OF_CGROUP = 0.9
_PERCENT = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*%\s*")


def show(number: int) -> str:
    """Returns a number of bytes in the largest binary unit that leaves at least one: "64.0 MiB"."""
    if number < 1024:
        return f"{number} B"
    size = float(number)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if size < 1024:
            break
    return f"{size:.1f} {unit}"


def show_duration(nanoseconds: int | None) -> str:
    """Returns a duration with three digits: "115 us", "1.25 ms". None is "-"."""
    if nanoseconds is None:
        return "-"
    value = float(nanoseconds)
    for unit in ("ns", "us", "ms"):
        if value < 999.5:
            break
        value /= 1000
    else:
        unit = "s"
    digits = 0 if value >= 99.5 or unit == "ns" else 1 if value >= 9.95 else 2
    return f"{value:.{digits}f} {unit}"


def bytes_of(size: int | str) -> int:
    """Returns the bytes of a size, which may be text such as "2G" or "50%".

    A percentage is of the cgroup's memory limit, or else of the machine's memory.
    """
    percent = _PERCENT.fullmatch(size) if isinstance(size, str) else None
    if percent is None:
        return _folioswap.parse_size(size)
    part = float(percent[1]) / 100
    if not 0 < part <= 1:
        raise ValueError(f"{size!r}: give more than 0% and at most 100%")
    tightest = _tightest()
    return int((tightest[0] if tightest else _machine_bytes()) * part)


def of_cgroup() -> int:
    """Returns nine tenths of what the cgroup's limit leaves beside what its processes take now."""
    tightest = _tightest()
    if tightest is None:
        raise ValueError('there is no memory limit on this process\'s cgroup: give a size such as "2G" or "50%"')
    limit, taken = tightest
    size = int((limit - taken) * _PART_OF_CGROUP)
    if size < _folioswap.LEAST_LIMIT:
        raise ValueError(
            f"the cgroup's limit of {show(limit)} leaves {show(max(0, limit - taken))} for arrays, and nine tenths of that are"
            f" less than {show(_folioswap.LEAST_LIMIT)}, the least: raise that limit, or give a size"
        )
    return size


def _machine_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _tightest() -> tuple[int, int] | None:
    """Returns the tightest limit on this process's memory and what counts towards it now.

    None: no cgroup has a limit below the machine's memory. Files in the page cache do not count,
    because the kernel gives them up.
    """
    machine, tightest = _machine_bytes(), None
    for directory, names in _cgroups():
        try:
            limit = _number(os.path.join(directory, names[0]))
            taken = _number(os.path.join(directory, names[1]))
            with open(os.path.join(directory, "memory.stat")) as file:
                stat = dict(line.split() for line in file)
        except (OSError, ValueError):
            continue  # "max", or a directory that cannot be seen from here
        taken -= sum(int(stat.get(names[2] + name, 0)) for name in ("active_file", "inactive_file"))
        if limit < (tightest[0] if tightest else machine):
            tightest = limit, max(0, taken)
    return tightest


def _number(path: str) -> int:
    with open(path) as file:
        return int(file.read())


_V2 = ("memory.max", "memory.current", "")
_V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")


def _cgroups() -> list[tuple[str, tuple[str, str, str]]]:
    """Returns the directories that may limit this process, each with the names of its files."""
    found = []
    with open("/proc/self/cgroup") as file:
        memberships = [line.rstrip("\n").split(":", 2) for line in file]
    with open("/proc/self/mountinfo") as file:
        mounts = [line.rstrip("\n").split(" - ", 1) for line in file]
    for hierarchy, controllers, path in memberships:
        if hierarchy == "0" and not controllers:
            kind, names = "cgroup2", _V2
        elif "memory" in controllers.split(","):
            kind, names = "cgroup", _V1
        else:
            continue
        for before, after in mounts:
            root, point = before.split()[3:5]
            options = after.split()
            if options[0] != kind or (kind == "cgroup" and "memory" not in options[-1].split(",")):
                continue
            # In a container the mount shows a part of the hierarchy, of which the root is the top.
            inside = path[len(root) :] if root != "/" and path.startswith(root) else path
            directory = os.path.normpath(point + "/" + inside)
            while directory.startswith(point):
                found.append((directory, names))
                directory = os.path.dirname(directory)
    return found
