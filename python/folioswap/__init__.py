"""NumPy arrays and buffers larger than the memory they may take.

    import numpy as np
    import folioswap

    with folioswap.limit("2G"):
        with folioswap.numpy_allocator():
            data = np.random.default_rng(1).random(1_000_000_000)   # 8 GB
            data.sort()
        print(folioswap.stats())

In a notebook, where a block cannot span cells: `folioswap.enable("2G")`, or `%load_ext folioswap`
and `%folioswap 2G`.

The engine swaps cold pages out, to compressed RAM within the limit and to files behind it. A page
comes back when it is touched: by any thread, by C code, and inside system calls. `save`, `load`,
`tofile` and `fromfile` work also for users for whom the last does not hold.

See `limit` for the memory that counts, for forks and for errors, `numpy_allocator` for threads, and
`SharedMemory` for memory that spawned processes share. Pickles of arrays and buffers are copies: an
array arrives as an ordinary one unless a `numpy_allocator` is active at the receiver, and a buffer
needs a limit there.
"""

from __future__ import annotations

import os

from . import _folioswap
from ._arrays import (
    ArrayInfo,
    Arrays,
    array,
    arrays,
    cold,
    empty,
    is_managed,
    page_out,
    resident_bytes,
    will_need,
    zeros,
)
from ._arrow import arrow
from ._buffer import Buffer, buffer
from ._files import fromfile, load, save, tofile
from ._folioswap import LEAST_LIMIT, MANAGED_BYTES, is_under_run
from ._limit import current_limit, disable, enable, limit, numpy_allocator, stats
from ._notebook import load_ipython_extension, unload_ipython_extension
from ._stats import Stats
from ._watch import Watch, watch
from .shared_memory import SharedMemory

__all__ = [
    "LEAST_LIMIT",
    "MANAGED_BYTES",
    "ArrayInfo",
    "Arrays",
    "Buffer",
    "SharedMemory",
    "Stats",
    "Watch",
    "array",
    "arrays",
    "arrow",
    "buffer",
    "cold",
    "current_limit",
    "disable",
    "empty",
    "enable",
    "fromfile",
    "is_managed",
    "is_under_run",
    "limit",
    "load",
    "load_ipython_extension",
    "numpy_allocator",
    "page_out",
    "resident_bytes",
    "save",
    "stats",
    "tofile",
    "unload_ipython_extension",
    "watch",
    "will_need",
    "zeros",
]
__version__ = "0.2.0"

# Help and pickles name the package, not the file that has the code.
for _name in __all__:
    if getattr(globals()[_name], "__module__", "").startswith("folioswap._"):
        globals()[_name].__module__ = __name__

os.register_at_fork(
    before=_folioswap.before_fork,
    after_in_parent=_folioswap.after_fork_in_parent,
    after_in_child=_folioswap.after_fork_in_child,
)
