"""Which libraries' memory is managed: measured, one process for each row.

    python python/covered.py [--run target/release/folioswap] [--write docs/reference/python.md]

Each row makes data of 64 MiB in the library's own way, with NumPy's allocator under a limit of 32
MiB, works with it and compares the result with that of plain memory. *Managed* is the part of the
data that lies in managed memory. With --run each row is also run unchanged under
`folioswap run --memory`, in the memory that interpreter and imports take and 40 MiB, with the result
compared. Rows whose library is not installed say so. The table replaces the one between the marks
"covered: begin" and "covered: end" of --write.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from pathlib import Path

BYTES = 64 << 20
ITEMS = BYTES // 8
LIMIT = "32M"
# What a run gets besides the memory that the interpreter and the imports take.
HEADROOM = 40 << 20
SECONDS = 60

# Of each row: the library, its imports, the code that makes `data` and its `size`, and that which
# works with it.
ROWS = {
    "NumPy": ("numpy", "pass", "data = np.arange(N) % 1000; size = data.nbytes", "(int(data.sum()), int(np.sort(data)[N // 3]))"),
    "SciPy, sparse": (
        "scipy",
        "from scipy import sparse",
        "data = sparse.diags_array(np.arange(1.0, N // 2 + 1), format='csr')\n"
        "    size = data.data.nbytes + data.indices.nbytes + data.indptr.nbytes",
        "float((data @ np.ones(N // 2)).sum())",
    ),
    "scikit-learn": (
        "sklearn",
        "from sklearn.decomposition import PCA",
        "data = np.random.default_rng(1).random((N // 32, 32)); size = data.nbytes",
        "[round(float(value), 9) for value in PCA(3, svd_solver='covariance_eigh').fit(data).explained_variance_]",
    ),
    "pandas, numbers": (
        "pandas",
        "import pandas as pd",
        "data = pd.DataFrame({'key': np.arange(N // 2) % 7, 'value': np.arange(N // 2)}); size = int(data.memory_usage().sum())",
        "[int(value) for value in data.groupby('key')['value'].sum()]",
    ),
    "pandas, text (`str`)": (
        "pandas",
        "import pandas as pd, pyarrow",
        "data = pd.Series(['%07d' % number for number in range(1000)]).astype('str').take(np.arange(N // 2) % 1000).reset_index(drop=True)\n"
        "    size = int(data.memory_usage(index=False))",
        "int(data.str.len().sum())",
    ),
    "Arrow, its own": (
        "pyarrow",
        "import pyarrow as pa, pyarrow.compute as pc",
        "data = pc.add(pa.array(np.arange(N)), 1); size = data.nbytes",
        "pc.sum(data).as_py()",
    ),
    "Arrow, `pa.array(array)`": (
        "pyarrow",
        "import pyarrow as pa, pyarrow.compute as pc",
        "data = pa.array(np.arange(N)); size = data.nbytes",
        "pc.sum(data).as_py()",
    ),
    "Polars, its own": (
        "polars",
        "import polars as pl",
        "data = pl.select(pl.int_range(0, N) * 2).to_series(); size = data.estimated_size()",
        "int(data.sum())",
    ),
    "PyTorch, its own": (
        "torch",
        "import torch",
        "data = torch.arange(N); size = data.numel() * data.element_size()",
        "int(data.sum())",
    ),
    "PyTorch, `from_numpy(array)`": (
        "torch",
        "import torch",
        "data = torch.from_numpy(np.arange(N)); size = data.numel() * data.element_size()",
        "int(data.sum())",
    ),
    "JAX, its own": (
        "jax",
        "import jax, jax.numpy as jnp; jax.config.update('jax_enable_x64', True); jnp.arange(1000).sum().block_until_ready()",
        "data = jnp.arange(N); data.block_until_ready(); size = data.nbytes",
        "int(data.sum())",
    ),
}

PROGRAM = """
import contextlib, json
import numpy as np
{imports}
N, managed, limit = {items}, None, {limit!r}
with open("/proc/self/status") as file:
    before = next(int(line.split()[1]) << 10 for line in file if line.startswith("RssAnon"))
with contextlib.ExitStack() as stack:
    if limit:
        import folioswap
        stack.enter_context(folioswap.limit(limit))
        stack.enter_context(folioswap.numpy_allocator())
    {make}
    if limit:
        managed = sum(each.bytes for each in folioswap.arrays())
    result = {work}
    print(json.dumps([size, managed, result, before]))
"""

DISTRIBUTIONS = {"sklearn": "scikit-learn"}


def version(library: str) -> str | None:
    try:
        return importlib.metadata.version(DISTRIBUTIONS.get(library, library))
    except importlib.metadata.PackageNotFoundError:
        return None


def run(row: tuple[str, str, str, str], limit: str | None, before: tuple[str, ...] = ()) -> list:
    _, imports, make, work = row
    program = PROGRAM.format(imports=imports, items=ITEMS, limit=limit, make=make, work=work)
    # Pools of threads would take memory of their own.
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "POLARS_MAX_THREADS": "2"}
    result = subprocess.run(
        [*before, sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS, env=environment
    )
    if result.returncode != 0:
        raise RuntimeError(f"status {result.returncode}: {(result.stderr.strip().splitlines() or [''])[-1][:120]}")
    return json.loads(result.stdout.splitlines()[-1])


def rows(command: str | None, only: str) -> list[str]:
    lines = []
    for name, row in ROWS.items():
        if only not in name:
            continue
        found = version(row[0])
        if found is None:
            lines.append(f"| {name} | not installed | | |")
            continue
        try:
            size, _, wanted, before = run(row, None)
            _, managed, result, _ = run(row, LIMIT)
            assert result == wanted, (name, result, wanted)
            allocator = f"{min(100, round(100 * managed / size))} %"
        except subprocess.TimeoutExpired:
            lines.append(f"| {name} | {found} | not done after {SECONDS} s | |")
            continue
        except RuntimeError as error:
            lines.append(f"| {name} | {found} | {error} | |")
            continue
        under = "not tried"
        if command:
            memory = before + HEADROOM
            try:
                result = run(row, None, (command, "run", "--memory", str(memory), "--"))[2]
                under = f"right, in {memory >> 20} MiB" if result == wanted else "WRONG"
            except subprocess.TimeoutExpired:
                under = f"not done after {SECONDS} s, in {memory >> 20} MiB"
            except RuntimeError as error:
                under = str(error)
        lines.append(f"| {name} | {found} | {allocator} | {under} |")
        print(lines[-1], file=sys.stderr)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", help="the command folioswap")
    parser.add_argument("--only", default="", help="rows whose name has this text, for a try")
    parser.add_argument("--write", type=Path, help="the document whose table is replaced")
    arguments = parser.parse_args()
    head = ["| Data of 64 MiB | Version | Managed by `numpy_allocator` | Under `folioswap run` |", "|---|---|---|---|"]
    table = "\n".join([*head, *rows(arguments.run, arguments.only)])
    print(table)
    if arguments.write:
        text = arguments.write.read_text()
        marks = re.compile(r"(<!-- covered: begin -->\n).*?(\n<!-- covered: end -->)", re.DOTALL)
        assert marks.search(text), f"{arguments.write} has no marks for the table"
        arguments.write.write_text(marks.sub(lambda found: found[1] + table + found[2], text))


if __name__ == "__main__":
    main()
