"""A line, or a part of a notebook, that shows what a limit does."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from ._limit import current_limit, limit
from ._stats import Rates, bar


class Watch:
    """Shows the figures of a limit until `stop`, or until the limit is closed. `watch` makes one."""

    def __init__(self, limit: limit, interval: float, file: Any) -> None:
        self._limit, self._interval, self._file = limit, interval, file
        self._ended = threading.Event()
        self._display = _display() if file is None else None
        self._rates = Rates()
        self._thread = threading.Thread(target=self._run, name="folioswap watch", daemon=True)
        self._show()
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.wait(self._interval) and not self._limit.closed:
            self._show()

    def _show(self) -> None:
        stats = self._limit.stats()
        line = self._rates.line(stats, time.monotonic())
        if self._display is not None:
            from IPython.display import HTML

            self._display.update(HTML(f'{bar(stats)}<div style="font-family:monospace">{line}</div>'))
            return
        stream = self._file if self._file is not None else sys.stderr
        if getattr(stream, "isatty", lambda: False)():
            stream.write(f"\r{line}\x1b[K")
        else:
            stream.write(line + "\n")
        stream.flush()

    def stop(self) -> None:
        """Shows the last figures and ends."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._thread.join()
        if not self._limit.closed:
            self._show()
        stream = self._file if self._file is not None else sys.stderr
        if self._display is None and getattr(stream, "isatty", lambda: False)():
            stream.write("\n")
            stream.flush()

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<folioswap.watch {'ended' if self._ended.is_set() or self._limit.closed else 'runs: stop() ends it'}>"


def _display() -> Any:
    """Returns a part of the notebook's output that can be replaced. None: this is no notebook."""
    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython
    from IPython.display import HTML, display

    shell = get_ipython()
    return display(HTML(""), display_id=True) if shell is not None and hasattr(shell, "kernel") else None


def watch(limit: limit | None = None, *, interval: float = 0.5, file: Any = None) -> Watch:
    """Shows what the limit does, every `interval` seconds, from a thread of its own.

    In a notebook it is a bar in the cell's output; in a terminal a line of stderr, or of `file`,
    that is written over; elsewhere a line each time. It ends with `stop()`, with the block of a
    `with`, or with the limit. Cost: some microseconds each time.
    """
    if not interval > 0:
        raise ValueError(f"interval={interval!r}: give more than 0 seconds")
    return Watch(limit or current_limit(), interval, file)
