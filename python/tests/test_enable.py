"""`enable` and `disable`, alone, in IPython and in a notebook that is run."""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import folioswap

MiB = 1 << 20


@pytest.fixture(autouse=True)
def disabled():
    yield
    folioswap.disable()
    gc.collect()


def test_it_holds_until_disable_and_arrays_live_on():
    limit = folioswap.enable("16M")
    assert folioswap.current_limit() is limit
    data = np.arange(4 * MiB)
    assert folioswap.is_managed(data)
    made = []
    thread = threading.Thread(target=lambda: made.append(np.ones(MiB)))
    thread.start()
    thread.join()
    assert folioswap.is_managed(made[0])
    folioswap.disable()
    assert limit.closed and not folioswap.is_managed(np.ones(MiB))
    assert np.array_equal(data, np.arange(4 * MiB)) and folioswap.is_managed(data)
    assert threading.Thread.start.__module__ == "threading"
    with pytest.raises(RuntimeError, match="no limit holds"):
        folioswap.current_limit()
    folioswap.disable()


def test_twice_changes_the_size_and_other_options_are_refused():
    limit = folioswap.enable("16M", swap=["zram"])
    assert folioswap.enable("32M", swap=["zram"]) is limit and limit.size == 32 * MiB
    assert folioswap.enable(swap=["zram"]) is limit and limit.size == 32 * MiB
    with pytest.raises(RuntimeError, match="disable"):
        folioswap.enable("32M")
    with pytest.raises(ValueError):
        folioswap.enable("1K", swap=["zram"])
    assert limit.size == 32 * MiB and folioswap.is_managed(np.ones(MiB))


def test_what_is_refused_enables_nothing():
    for arguments in ({"size": "lots"}, {"size": "1G", "swap": ["disk"]}, {"size": "1G", "nonsense": 1}):
        with pytest.raises((ValueError, TypeError)):
            folioswap.enable(**arguments)
    assert not folioswap.is_managed(np.ones(MiB)) and threading.Thread.start.__module__ == "threading"


def test_closing_the_limit_disables():
    limit = folioswap.enable("16M")
    limit.close()
    assert not folioswap.is_managed(np.ones(MiB)) and threading.Thread.start.__module__ == "threading"
    with folioswap.enable("16M"):
        assert folioswap.is_managed(np.ones(MiB))
    assert not folioswap.is_managed(np.ones(MiB))


def test_a_block_within_has_its_own_limit():
    outer = folioswap.enable("32M")
    with folioswap.limit("16M") as inner, folioswap.numpy_allocator():
        data = np.ones(MiB)
        assert (outer.stats()["arrays"], inner.stats()["arrays"]) == (0, 1)
    more = np.ones(MiB)
    assert outer.stats()["arrays"] == 1 and len(data) == len(more)


def test_magics_in_ipython():
    pytest.importorskip("IPython", reason="pip has not installed IPython")
    program = r"""
from IPython.testing.globalipapp import start_ipython
shell = start_ipython()
def run(cell):
    result = shell.run_cell(cell)
    return result.error_before_exec or result.error_in_exec or result.result
print(run("%load_ext folioswap"))
print(run("import numpy as np, folioswap"))
print(run("%folioswap"))
print(run("%folioswap 16M scope=resident swap=zram,prio=1 swap=file:/var/tmp,size=64M,prio=0"))
print(run("data = np.ones(1 << 20)"))
print(run("folioswap.is_managed(data)"))
print(run("%folioswap 32M scope=resident swap=zram,prio=1 swap=file:/var/tmp,size=64M,prio=0").size)
print(run("%folioswap").size)
print(type(run("%folioswap 32M nonsense")).__name__, type(run("%folioswap 32M nonsense=1")).__name__)
print(type(run("%folioswap lots scope=resident swap=zram,prio=1 swap=file:/var/tmp,size=64M,prio=0")).__name__)
print(run("[each.names for each in folioswap.arrays()]"))
print(run("watch = get_ipython().run_line_magic('folioswap', 'watch')"), run("watch.stop()"))
print(run("%folioswap off"))
print(run("folioswap.is_managed(np.ones(1 << 20)), folioswap.is_managed(data)"))
print(run("%unload_ext folioswap"))
"""
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, env={**os.environ, "NO_COLOR": "1"}
    )
    out = result.stdout
    for text in ("a limit for all further cells", "<folioswap.limit 16.0 MiB", "True\n", "is not OPTION=VALUE",
                 "[('data',)]", "(False, True)"):
        assert text in out, (text, result)
    assert out.count("33554432\n") >= 2 and "RuntimeError" in out and "ValueError" in out, result


def test_a_limit_spans_the_cells_of_a_notebook():
    """The kernel of Jupyter may run each cell in a context of its own."""
    nbformat = pytest.importorskip("nbformat", reason="pip has not installed nbformat")
    nbclient = pytest.importorskip("nbclient", reason="pip has not installed nbclient")
    pytest.importorskip("ipykernel", reason="pip has not installed ipykernel")
    notebook = nbformat.v4.new_notebook()
    cells = [
        "%load_ext folioswap\nimport numpy as np, folioswap\n%folioswap 16M",
        "data = np.arange(6 << 20)\nassert folioswap.is_managed(data)",
        "import asyncio\nawait asyncio.sleep(0)\nmore = np.ones(1 << 20)\nassert folioswap.is_managed(more)",
        "with folioswap.watch(interval=0.01):\n    assert (data == np.arange(6 << 20)).all()",
        "folioswap.stats()",
        "folioswap.arrays()",
        "folioswap.disable()\nassert not folioswap.is_managed(np.ones(1 << 20)) and folioswap.is_managed(data)",
        "assert not folioswap.is_managed(np.ones(1 << 20))",
    ]
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in cells]
    nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3").execute()
    shown = [[output.get("data", {}) for output in cell.outputs] for cell in notebook.cells]
    assert "folioswap" in shown[0][0]["text/html"], "a limit is a bar"
    assert "of 16.0 MiB in use" in shown[3][0]["text/html"], "and so is a watch"
    assert "pswpout" in shown[4][0]["text/html"] and "NAMES" in shown[5][0]["text/html"] and "more" in shown[5][0]["text/html"]
