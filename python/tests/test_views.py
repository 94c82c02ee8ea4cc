"""What users see: representations, the list of arrays, a watch, sizes in percent."""

import gc
import io
import os
import re
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pytest

import folioswap
from folioswap import _size, _stats, _watch

MiB = 1 << 20


@pytest.fixture
def sixteen():
    with folioswap.limit("16M") as limit:
        yield limit
    gc.collect()


def worked(limit):
    """Returns an array that is three times as large as the limit."""
    data = folioswap.zeros(6 * MiB, np.int64)
    data[:] = np.arange(6 * MiB)
    return data


def test_a_limit_reads_in_mebibytes_with_its_use(sixteen):
    data = worked(sixteen)
    text = re.fullmatch(r"<folioswap\.limit 16\.0 MiB, ([0-9.]+) MiB in use>", repr(sixteen))
    assert text and 1 < float(text[1]) < 25
    assert len(data) == 6 * MiB
    other = folioswap.limit(1 << 30)
    assert repr(other).startswith("<folioswap.limit 1.0 GiB, ")
    other.close()
    assert "closed" in repr(other)
    assert repr(folioswap.buffer(10 * MiB)) == "<folioswap.Buffer 10.0 MiB>"


def test_stats_have_latencies_that_can_be_read(sixteen):
    data = worked(sixteen)
    text = repr(sixteen.stats())
    assert re.search(r"p50 [0-9.]+ (ns|us|ms|s), p99 [0-9.]+ (ns|us|ms|s)>", text), text
    assert len(data) == 6 * MiB


def parsed(html):
    """Returns the text of HTML whose elements are closed in order."""
    from html.parser import HTMLParser

    class Parser(HTMLParser):
        def __init__(self):
            super().__init__()
            self.open, self.text, self.styles = [], [], []

        def handle_starttag(self, tag, attrs):
            self.open.append(tag)
            self.styles += [value for name, value in attrs if name == "style"]

        def handle_endtag(self, tag):
            assert self.open.pop() == tag

        def handle_data(self, data):
            self.text.append(data)

    parser = Parser()
    parser.feed(html)
    parser.close()
    assert parser.open == [], parser.open
    return " ".join(parser.text), parser.styles


def test_notebooks_show_a_bar_and_tables(sixteen):
    data = worked(sixteen)
    # The beginning is swapped out by now: it comes back, and faults have been measured.
    assert int(data[:MiB].sum()) == MiB * (MiB - 1) // 2
    bars, styles = parsed(sixteen._repr_html_())
    assert re.search(r"folioswap +[0-9.]+ MiB of 16\.0 MiB in use", bars) and "compressed store" in bars
    widths = [float(width) for style in styles for width in re.findall(r"[^-]width:([0-9.]+)%", style)]
    assert len(widths) == 3 and 10 < sum(widths) <= 100.1
    text, _ = parsed(sixteen.stats()._repr_html_())
    quick, slow = (folioswap.Stats({**sixteen.stats(), "thrashing_ms": ms}) for ms in (0, 12_300))
    assert "thrashed" not in quick._repr_html_()
    assert re.search(r"it thrashed for \(raise the limit\) +12\.3 s", parsed(slow._repr_html_())[0])
    assert "swapped out" in text and "pswpin" in text and re.search(r"[0-9.]+ us|[0-9.]+ ms", text)
    listed, _ = parsed(folioswap.arrays()._repr_html_())
    assert "48.0 MiB" in listed and "6291456" in listed and "int64" in listed and "data" in listed
    del data


def test_arrays_are_listed_by_size_with_their_names(sixteen):
    data = worked(sixteen)
    half, view = folioswap.zeros((1000, 500), np.float32), data[100:200]
    held = {"key": folioswap.zeros(MiB, np.uint8)}
    buffer = folioswap.buffer("3M")
    kept = types.SimpleNamespace(hidden=folioswap.zeros(5 * MiB, np.uint8))
    folioswap.page_out(half)
    listed = folioswap.arrays()
    assert [each.bytes for each in listed] == sorted((each.bytes for each in listed), reverse=True)
    by_name = {name: each for each in listed for name in each.names}
    assert set(by_name) == {"data", "view", "half", "held['key']", "buffer"}
    assert by_name["data"] is by_name["view"] and by_name["data"].shape == (6 * MiB,) and by_name["data"].dtype == "int64"
    assert by_name["data"].bytes == 48 * MiB and 0 < by_name["data"].resident_bytes < 25 * MiB
    assert by_name["half"].shape == (1000, 500) and by_name["half"].resident_bytes == 0
    assert by_name["buffer"].bytes == 3 * MiB and by_name["buffer"].shape is None
    assert [each.bytes for each in listed if not each.names] == [5 * MiB]
    lines = repr(listed).splitlines()
    assert lines[0].split() == ["SIZE", "RESIDENT", "SHAPE", "TYPE", "NAMES"] and len(lines) == 6
    assert lines[1].split()[:2] == ["48.0", "MiB"] and lines[1].endswith("data, view")
    assert folioswap.arrays(namespace={"other": kept.hidden})[1].names == ("other",)
    with folioswap.limit("16M"):
        assert folioswap.arrays() == [] and len(folioswap.arrays(sixteen)) == 5
    del data, view, half, held


def test_a_list_of_arrays_sees_this_module_too(sixteen):
    globals()["of_the_module"] = folioswap.zeros(MiB)
    try:
        assert folioswap.arrays()[0].names == ("of_the_module",)
    finally:
        del globals()["of_the_module"]


def until(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it does not come true"
        time.sleep(0.005)


def swapped_out(seen):
    """The MiB that the last whole line says; 0 where it says fewer than one."""
    out = re.search(r"([0-9.]+) MiB swapped out", seen.getvalue().rpartition("\n")[0].rpartition("\n")[2])
    return float(out[1]) if out else 0.0


def test_a_watch_writes_lines_until_it_is_stopped(sixteen):
    seen = io.StringIO()
    with folioswap.watch(interval=0.01, file=seen) as watch:
        data = worked(sixteen)
        until(lambda: re.search(r"out [0-9.]+ [KM]iB/s", seen.getvalue()))
        # The figure of what is out is made some times a second. 48 MiB are written within 16:
        # what is not in memory is swapped out, or on its way.
        until(lambda: swapped_out(seen) > 16)
        assert "runs" in repr(watch)
    lines = seen.getvalue().splitlines()
    assert all(re.match(r"[0-9.]+ \w+ of 16\.0 MiB \[#*-*\]  [0-9.]+ \w+ swapped out", line) for line in lines), lines
    assert 16 < swapped_out(seen) <= 48, lines[-1]
    count = len(seen.getvalue())
    watch.stop()
    assert len(seen.getvalue()) == count and "ended" in repr(watch)
    assert not [thread for thread in threading.enumerate() if thread.name == "folioswap watch"]
    del data


def test_a_watch_writes_over_its_line_in_a_terminal(sixteen):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    seen = Terminal()
    with folioswap.watch(interval=0.01, file=seen):
        until(lambda: seen.getvalue().count("\r") > 3)
    assert seen.getvalue().count("\n") == 1 and seen.getvalue().endswith("\n")


def test_a_watch_ends_with_its_limit():
    seen, limit = io.StringIO(), folioswap.limit("16M")
    watch = folioswap.watch(limit, interval=0.01, file=seen)
    limit.close()
    until(lambda: not watch._thread.is_alive())
    assert "ended" in repr(watch)
    watch.stop()
    for interval in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="more than 0"):
            folioswap.watch(limit, interval=interval)


def test_durations_and_sizes_have_few_digits():
    for nanoseconds, text in [(None, "-"), (999, "999 ns"), (1000, "1.00 us"), (114_688, "115 us"), (999_600, "1.00 ms"), (61e9, "61.0 s")]:
        assert _size.show_duration(nanoseconds) == text
    for number, text in [(0, "0 B"), (1023, "1023 B"), (MiB, "1.0 MiB"), (3 << 39, "1.5 TiB"), (5 << 50, "5120.0 TiB")]:
        assert _size.show(number) == text


def test_a_size_in_percent_is_of_the_cgroup_or_the_machine(monkeypatch):
    monkeypatch.setattr(_size, "_tightest", lambda: None)
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert _size.bytes_of("50%") == machine // 2
    monkeypatch.setattr(_size, "_tightest", lambda: (100 * MiB, 20 * MiB))
    assert _size.bytes_of("25%") == 25 * MiB and _size.bytes_of(" 12.5 % ") == 12 * MiB + MiB // 2
    with folioswap.limit("50%") as limit:
        assert limit.size == 50 * MiB
        limit.size = "100%"
        assert limit.size == 100 * MiB
    with folioswap.limit() as limit:
        assert limit.size == 72 * MiB
    monkeypatch.setattr(_size, "_tightest", lambda: (24 * MiB, 20 * MiB))
    with pytest.raises(ValueError, match="leaves 4.0 MiB"):
        folioswap.limit()
    for nonsense in ("0%", "101%", "%", "-5%", "5%%"):
        with pytest.raises(ValueError):
            folioswap.limit(nonsense)


def test_the_cgroup_that_this_process_is_in_is_found():
    """A cgroup with a limit is made for a child, which asks for its own."""
    found = [(directory, names[0]) for directory, names in _size._cgroups() if os.path.exists(f"{directory}/{names[1]}")]
    if not found:
        pytest.skip("takes a cgroup that counts memory")
    top, limit_file = found[0]
    path = f"{top}/folioswap-python-test-{os.getpid()}"
    try:
        os.mkdir(path)
        with open(f"{path}/{limit_file}", "r+") as file:  # it exists only where the controller is on
            file.write(str(300 * MiB))
    except OSError as error:
        if os.path.isdir(path):
            os.rmdir(path)
        pytest.skip(f"takes a cgroup that may be written: {error}")
    try:
        program = f"""
import os
open("{path}/cgroup.procs", "w").write(str(os.getpid()))
import folioswap
held = bytearray(os.urandom(60 << 20))
with folioswap.limit() as limit:
    print(limit.size >> 20)
with folioswap.limit("50%") as limit:
    print(limit.size >> 20)
"""
        result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        by_cgroup, half = map(int, result.stdout.split())
        # 60 MiB are held, and what the interpreter has.
        assert 150 < by_cgroup < (300 - 60) * 9 // 10 and half == 150, result
    finally:
        os.rmdir(path)


def test_without_a_limit_of_the_cgroup_a_size_is_asked_for(monkeypatch):
    monkeypatch.setattr(_size, "_tightest", lambda: None)
    with pytest.raises(ValueError, match="give a size"):
        folioswap.limit()


def test_a_wrong_type_is_said_in_pythons_words(sixteen):
    for wrong, name in [(1.5, "float"), ([], "list"), (b"1G", "bytes")]:
        for call in (folioswap.limit, folioswap.buffer, folioswap.enable):
            with pytest.raises(TypeError) as error:
                call(wrong)
            text = str(error.value)
            assert f"{wrong!r} of type {name} is not a size" in text and '"512M"' in text and "Size" not in text, text
    for wrong in (-1, 1 << 70, 1 << 200, "lots"):
        with pytest.raises(ValueError, match="not a size"):
            folioswap.limit(wrong)
    with folioswap.limit(np.int64(16 * MiB)) as limit:
        assert limit.size == 16 * MiB


def test_advice_reaches_arrays_of_every_type(sixteen):
    for dtype in ("datetime64[ns]", "timedelta64[s]", "float16", "complex64", "U5", [("a", "i4")]):
        data = folioswap.zeros(200_000, dtype)
        data[:] = data[0]
        assert folioswap.is_managed(data)
        folioswap.page_out(data)
        assert folioswap.resident_bytes(data) < data.nbytes
        folioswap.will_need(data[10:])
    with pytest.raises(TypeError, match="gaps"):
        folioswap.cold(folioswap.zeros((1000, 1000))[:, 3])


def test_names_in_help_are_those_of_the_package():
    for name in folioswap.__all__:
        thing = getattr(folioswap, name)
        assert getattr(thing, "__module__", "folioswap").startswith("folioswap") and "._" not in getattr(thing, "__module__", "")
        assert isinstance(thing, int) or thing.__doc__, name
    assert _stats.Stats is folioswap.Stats and _watch.Watch is folioswap.Watch
