"""Importing dpconvex stays light: no heavy package, and little time beyond scikit-learn."""

import subprocess
import sys

HEAVY = (
    "numba",
    "opendp",
    "dp_accounting",
    "polars",
    "matplotlib",
    "dask",
    "distributed",
    "pyarrow",
)


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_heavy_packages_are_imported_when_needed():
    loaded = run(f"import sys, dpconvex; print(*[n for n in {HEAVY} if n in sys.modules])")
    assert loaded == ""


def test_import_adds_little_to_scikit_learn():
    # Processor time of the second import alone, the best of three: what other processes do on the
    # machine hardly counts. It takes 0.09 s; heavy packages take 0.5 s to 4 s.
    code = (
        "import time, sklearn.linear_model; start = time.process_time(); import dpconvex; "
        "print(time.process_time() - start)"
    )
    assert min(float(run(code)) for _ in range(3)) <= 0.3
