"""The tutorial is a notebook: each of its cells runs, and its asserts hold."""

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs/python-tutorial.ipynb"


def test_the_tutorial_runs_from_the_first_cell_to_the_last():
    nbformat = pytest.importorskip("nbformat", reason="pip has not installed nbformat")
    nbclient = pytest.importorskip("nbclient", reason="pip has not installed nbclient")
    pytest.importorskip("ipykernel", reason="pip has not installed ipykernel")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code and all(not cell.outputs and cell.execution_count is None for cell in code), "outputs are not committed"
    nbclient.NotebookClient(notebook, timeout=150, kernel_name="python3").execute()
    assert all(cell.execution_count for cell in code)
    shown = [output["data"]["text/html"] for cell in code for output in cell.outputs if "text/html" in output.get("data", {})]
    assert len(shown) >= 4 and all("MiB" in html for html in shown)
