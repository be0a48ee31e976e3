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


def test_import_is_light():
    # One process for both questions. Processor time of the second import alone: what other processes
    # do on the machine hardly counts. It takes 0.09 s; heavy packages take 0.5 s to 4 s. A first
    # import may have to compile, so there are three attempts.
    code = f"""
import sys, time, sklearn.linear_model
before, start = set(sys.modules), time.process_time()
import dpconvex
print(time.process_time() - start, *[n for n in {HEAVY} if n in sys.modules and n not in before])
"""
    for _attempt in range(3):
        seconds, *heavy = run(code).split()
        assert heavy == []
        if float(seconds) <= 0.3:
            return
    raise AssertionError(f"importing dpconvex adds {seconds} s to scikit-learn's linear models")
