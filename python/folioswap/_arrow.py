"""Arrow tables in managed memory.

A memory pool of Arrow is a class of its C++ library, whose binary interface changes with each
release, four a year; one package for all of them cannot derive from it. Data is therefore moved into
managed memory once it is made, and Arrow, pandas and Polars use it there without a copy.
"""

from __future__ import annotations

from typing import Any

from ._buffer import buffer


def arrow(data: Any) -> Any:
    """Returns a copy of an Arrow table or record batch whose memory is managed by the current limit.

    data: a pyarrow.Table or pyarrow.RecordBatch, or anything with Arrow's PyCapsule interface (a frame
    of pandas or Polars): a table is returned then. Its columns, text included, lie in one `buffer`,
    which is freed with the last array that uses it. pandas takes text columns from it without a copy:
    `folioswap.arrow(pyarrow.Table.from_pandas(frame)).to_pandas()`; what Arrow computes from it lies
    in Arrow's own memory again.

    ImportError without pyarrow; TypeError for other data; MemoryError and RuntimeError as for
    `buffer`. Cost: one copy.
    """
    import pyarrow

    is_batch = isinstance(data, pyarrow.RecordBatch)
    if not is_batch and not isinstance(data, pyarrow.Table):
        if not hasattr(data, "__arrow_c_stream__") and not hasattr(data, "__arrow_c_array__"):
            raise TypeError(f"{type(data).__name__} is not data of Arrow: give a table, a record batch or a frame")
        data = pyarrow.table(data)
    counted = pyarrow.MockOutputStream()
    _write(data, counted)
    memory = pyarrow.py_buffer(buffer(counted.size()))
    _write(data, pyarrow.FixedSizeBufferWriter(memory))
    reader = pyarrow.ipc.open_stream(memory)
    return reader.read_next_batch() if is_batch else reader.read_all()


def _write(data: Any, sink: Any) -> None:
    import pyarrow

    with pyarrow.ipc.new_stream(sink, data.schema) as writer:
        writer.write(data)
