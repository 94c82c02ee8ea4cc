#!/usr/bin/env python3
"""The long tests of the Python package: test suites of other packages on managed memory.

    python/long_tests.py numpy        NumPy's tests under the allocator, at a limit so small it swaps
    python/long_tests.py pandas       a part of pandas' tests, likewise
    python/long_tests.py libraries    pandas and scikit-learn, unchanged, on four times the limit
    python/long_tests.py              all of them

The script makes an environment of its own (--environment, target/python-long) with python/build.sh,
and installs pandas, scikit-learn and the suites' requirements from the package index.
"""

import argparse
import os
import subprocess
import sys
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(HERE, "..", "target"))

# A plugin for pytest: the allocator is active in the whole run, at a limit so small that it swaps.
PLUGIN = '''
import os

import folioswap

limit = folioswap.limit("24M")
folioswap._folioswap.set_handler(limit._engine.handler())
handler = folioswap._folioswap.get_handler()


def pytest_runtest_setup(item):
    folioswap._folioswap.set_handler(handler)


def pytest_unconfigure(config):
    print("\\n" + repr(limit.stats()))
    assert limit.stats()["pswpout"] > 0, "the limit was never reached"


# The ballast is larger than the limit: the tests' arrays push it out, and the check brings it back.
import numpy

ballast = numpy.arange(6 << 20)


every, ended = int(os.environ["FOLIOSWAP_EVERY"]), 0


def pytest_runtest_teardown(item):
    global ended
    ended += 1
    if ended % every:
        return
    assert ballast[-1] == (6 << 20) - 1 and ballast[:: 1 << 14].sum() == numpy.arange(0, 6 << 20, 1 << 14).sum()
'''

LIBRARIES = """
import numpy as np, pandas as pd, folioswap
from sklearn.linear_model import LinearRegression
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA

def work():
    random = np.random.default_rng(1)
    frame = pd.DataFrame({"key": random.integers(0, 100, 800_000), "value": random.integers(0, 1000, 800_000).astype(float)})
    grouped = frame.groupby("key")["value"].agg(["sum", "mean", "max"])
    merged = frame.merge(grouped.reset_index(), on="key").sort_values(["key", "value"], kind="stable")
    rolled = merged["value"].rolling(50).mean().dropna()
    features = random.integers(0, 100, (120_000, 40)).astype(float)
    target = features @ np.arange(40.0)
    model = LinearRegression().fit(features, target)
    parts = PCA(3, svd_solver="covariance_eigh").fit_transform(features)
    clusters = MiniBatchKMeans(5, random_state=1, n_init=1).fit_predict(features)
    return [grouped.to_numpy(), merged.to_numpy(), rolled.to_numpy(), model.coef_, np.abs(parts), clusters]

plain = work()
with folioswap.limit("16M") as limit, folioswap.numpy_allocator():
    managed = work()
    stats = limit.stats()
for one, other in zip(plain, managed):
    assert np.allclose(one, other, rtol=1e-9, equal_nan=True)
assert stats["pswpin"] > 0
print(stats)
print("equal")
"""


def environment(path, *packages):
    build = subprocess.run([os.path.join(HERE, "build.sh"), path, *packages], stdout=subprocess.PIPE, text=True)
    if build.returncode:
        sys.exit(build.returncode)
    return build.stdout.strip()


# The tests of pandas that work on whole columns. (Its tests of indices, dtypes and files make many
# small objects and few arrays.)
PANDAS = [
    "pandas.tests." + part
    for part in (
        "test_algos test_sorting test_take test_nanops reductions reshape.merge reshape.test_cut reshape.test_pivot groupby.test_groupby "
        "groupby.test_reductions groupby.aggregate groupby.transform window frame.methods.test_sort_values frame.test_arithmetic"
    ).split()
]


def suite(path, packages, every, arguments):
    """Runs the test suites of other packages under the plugin."""
    python = environment(path, "hypothesis", "pytest-timeout", "pandas", "meson", "ninja")
    plugins = os.path.join(path, "plugins")
    os.makedirs(plugins, exist_ok=True)
    with open(os.path.join(plugins, "folioswap_plugin.py"), "w") as file:
        file.write(textwrap.dedent(PLUGIN))
    return subprocess.run(
        [python, "-m", "pytest", "-q", "--pyargs", *packages, "-m", "not slow", "-p", "folioswap_plugin", "-p", "no:cacheprovider",
         "--timeout", "120", "-rfE", "--tb=short", *arguments],
        # NumPy's tests call its commands and meson by name.
        env={
            **os.environ,
            "PATH": f"{os.path.join(path, 'bin')}:{os.environ['PATH']}",
            "PYTHONPATH": plugins,
            "FOLIOSWAP_EVERY": str(every),
        },
        cwd=path,
    ).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="?", choices=["numpy", "pandas", "libraries", "all"], default="all")
    parser.add_argument("--environment", default=os.path.join(TARGET, "python-long"))
    parser.add_argument("--packages", nargs="+", help="in place of the whole suite, or of the chosen part: such as numpy._core numpy.fft")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="walk through what does not fit after each Nth test alone")
    options, arguments = parser.parse_known_args()
    status, path = 0, os.path.abspath(options.environment)
    if options.which in ("libraries", "all"):
        status |= subprocess.run([environment(path, "pandas", "scikit-learn"), "-c", LIBRARIES]).returncode
    if options.which in ("numpy", "all"):
        status |= suite(path, options.packages or ["numpy"], options.every, arguments)
    if options.which in ("pandas", "all"):
        status |= suite(path, options.packages or PANDAS, options.every, arguments)
    sys.exit(status)


if __name__ == "__main__":
    main()
