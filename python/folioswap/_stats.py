"""The figures of a limit, for programs, terminals and notebooks."""

from __future__ import annotations

import html
from typing import Any

from ._size import show, show_duration

_PAGE_BYTES = 4096


class Stats(dict):
    """Figures by name; sizes are in bytes.

    The names are the kernel's where it has one: `pswpin`, `pgmajfault`, "64kB/swpout". Its repr is
    three lines; a notebook shows a bar and a table.
    """

    def __init__(self, figures: dict[str, int | None], text: str = "") -> None:
        super().__init__(figures)
        self._text = text

    def __repr__(self) -> str:
        return f"<folioswap: {self._text}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        rows = [
            ("swapped out", show(self["swapped"])),
            ("... in compressed RAM", f"{show(self['orig_data_size'])} as {show(self['mem_used_total'])}"),
            ("... in files", show(self["file_bytes"])),
            ("arrays and buffers", f"{self['arrays']}, {show(self['array_bytes'])}"),
            ("pages out, in", f"{self['pswpout']:,}, {self['pswpin']:,}"),
            ("faults, of them major", f"{self['faults']:,}, {self['pgmajfault']:,}"),
            ("a fault takes (p50, p99)", f"{show_duration(self['fault_p50_ns'])}, {show_duration(self['fault_p99_ns'])}"),
        ]
        if self["times_exceeded"]:
            rows.append(("the limit gave way, times", f"{self['times_exceeded']:,}"))
        if self["thrashing_ms"]:
            rows.append(("it thrashed for (raise the limit)", show_duration(self["thrashing_ms"] * 1_000_000)))
        return bar(self) + table(rows) + _details(self)


def bar(stats: Stats) -> str:
    """Returns a bar of HTML: what counts towards the limit, and the rest of it."""
    limit, store, resident = stats["limit"], stats["mem_used_total"], stats["resident"]
    others = max(0, stats["charge"] - resident - store)
    whole = max(limit, stats["charge"], 1)
    parts = [("#3b82c4", resident, "resident"), ("#d08a2e", store, "compressed store"), ("#8a8a8a", others, "tables and staging")]
    pieces = "".join(
        f'<span style="display:inline-block;height:100%;width:{100 * size / whole:.2f}%;background:{colour}"'
        f' title="{name}: {show(size)}"></span>'
        for colour, size, name in parts
    )
    legend = ", ".join(f'<span style="color:{colour}">&#9632;</span> {name} {show(size)}' for colour, size, name in parts)
    return (
        '<div style="font-family:sans-serif;font-size:13px">'
        f"<div><b>folioswap</b> {show(stats['charge'])} of {show(limit)} in use</div>"
        '<div style="height:12px;width:24em;border:1px solid #8888;border-radius:3px;overflow:hidden;font-size:0">'
        f"{pieces}</div><div>{legend}</div></div>"
    )


def table(rows: list[tuple[str, str]]) -> str:
    """Returns a table of HTML with a row for each name and value."""
    cells = "".join(
        f'<tr><td style="text-align:left">{html.escape(name)}</td><td style="text-align:right">{html.escape(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table>{cells}</table>"


def _details(stats: Stats) -> str:
    rows = [(name, f"{value:,}") for name, value in stats.items() if value]
    return f"<details><summary>all counters that are not 0</summary>{table(rows)}</details>"


class Rates:
    """The traffic between two looks at the figures."""

    def __init__(self) -> None:
        self._before: tuple[float, Stats] | None = None

    def line(self, stats: Stats, now: float) -> str:
        """Returns one line about the figures; `now` is in seconds of any clock that only goes on."""
        before, self._before = self._before, (now, stats)
        used = min(10, round(10 * stats["charge"] / max(1, stats["limit"])))
        text = (
            f"{show(stats['charge'])} of {show(stats['limit'])} [{'#' * used}{'-' * (10 - used)}]"
            f"  {show(stats['swapped'])} swapped out"
        )
        if before and now > before[0]:
            seconds = now - before[0]
            out, back = (
                show(int((stats[name] - before[1][name]) * _PAGE_BYTES / seconds)) for name in ("pswpout", "pswpin")
            )
            faults = (stats["pgmajfault"] - before[1]["pgmajfault"]) / seconds
            text += f"  out {out}/s, in {back}/s  {faults:.0f} major faults/s"
        return text
