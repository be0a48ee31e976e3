"""Peak memory of a fit in memory, X included, in units of X: every estimator and every mechanism
that it takes.

``python -m benchmarks._scale_memory ESTIMATOR MECHANISM DTYPE ROWS`` prints the number for one fit
in a process of its own. A first fit of a table that is large enough for compiled kernels comes
before; Linux then forgets its peak.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import Measurement

ROWS = 400_000
COLUMNS = 50
MATRIX = 5
BAR = 1.3
LINEAR = ("auto", "gradient", "objective", "output", "sgd", "phased-erm", "phased-sgd")
MECHANISMS: dict[str, tuple[str, ...]] = {
    "DPLogisticRegression": LINEAR,
    "DPLinearSVC": LINEAR,
    "DPQuantileRegressor": LINEAR,
    "DPNewsvendor": LINEAR,
    "DPAUCClassifier": ("auto", "gradient", "moments", "objective", "output", "output, hinge"),
    "DPTiltedClassifier": ("auto",),
    "DPTiltedRegressor": ("auto",),
    "DPRobustClassifier": ("auto",),
    "DPRobustRegressor": ("auto",),
    "DPLinearRegression": ("auto",),
    "DPTopRankClassifier": ("auto",),
    "DPL1Link": ("auto",),
    "DPBowl": ("auto",),
    "DPMedian": ("auto", "gradient", "objective"),
    "DPPiecewiseLinear": ("auto", "gradient", "objective"),
}
MATRICES = ("DPMedian", "DPPiecewiseLinear", "DPBowl")
#: Mechanisms that visit records one by one in an order of their own, on a mapped copy of the rows.
RECORD_BY_RECORD = ("sgd", "phased-erm", "phased-sgd")


def estimator(name: str, mechanism: str) -> Any:
    """Return an estimator for the tables of `table`."""
    import dpconvex

    kind = getattr(dpconvex, name)
    settings: dict[str, Any] = {"random_state": 0, "epsilon": 1.0}
    if name == "DPPiecewiseLinear":
        settings |= {"slopes": np.outer([-1.0, 0.0, 1.0], np.ones(MATRIX)), "offsets": np.zeros(3)}
    elif name == "DPL1Link":
        settings["matrix"] = 0.01
    elif name not in MATRICES:
        settings["feature_bounds"] = (-6, 6)
        if not labels(name):
            settings["target_bounds"] = (-10, 10)
    if name == "DPTopRankClassifier":
        settings["top"] = 1000
    mechanism, _, loss = mechanism.partition(", ")
    if loss:
        settings["loss"] = loss
    return kind(mechanism=mechanism, **settings)


def table(name: str, n: int, dtype: str) -> tuple[Any, Any]:
    """Return rows and targets, without a temporary array as large as the rows."""
    rng = np.random.default_rng(0)
    X = np.empty((n, COLUMNS), dtype)
    for start in range(0, n, 10_000):
        X[start : start + 10_000] = rng.standard_normal((min(10_000, n - start), COLUMNS))
    if name in MATRICES:
        X /= 4 * np.sqrt(COLUMNS)
        return X.reshape(n, MATRIX, -1), rng.standard_normal((n, MATRIX)).astype(dtype)
    target = X[:, 0] + 0.5 * rng.standard_normal(n)
    return X, target > 0 if labels(name) else target


def labels(name: str) -> bool:
    """Whether an estimator takes labels."""
    return any(word in name for word in ("Class", "Logistic", "SVC"))


def resident(key: str) -> int:
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split(key)[1].split()[0])


def peak(name: str, mechanism: str, dtype: str, rows: int) -> float:
    """Return the peak of one fit in this process in units of X, which is part of it."""
    warnings.simplefilter("ignore")
    estimator(name, mechanism).fit(*table(name, 100_000, dtype))
    X, y = table(name, rows, dtype)
    before = resident("VmRSS:")
    Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
    estimator(name, mechanism).fit(X, y)
    return 1 + (resident("VmHWM:") - before) / X.nbytes


def run(dtypes: tuple[str, ...] = ("float64", "float32")) -> Iterator[Measurement]:
    """Measure all; those that visit records one by one are reported without a bar."""
    for name, mechanisms in MECHANISMS.items():
        for mechanism in mechanisms:
            for dtype in dtypes:
                command = [sys.executable, "-m", "benchmarks._scale_memory", name, mechanism, dtype]
                done = subprocess.run([*command, str(ROWS)], capture_output=True, text=True)
                label = f"peak of a fit / X, {name} {mechanism}, {dtype}"
                if done.returncode:
                    raise RuntimeError(f"{label}: {done.stderr[-2000:]}")
                bar = None if mechanism in RECORD_BY_RECORD else BAR
                yield Measurement(
                    label, float(done.stdout), bar, detail=f"n={ROWS:.0e} d={COLUMNS}"
                )


if __name__ == "__main__":
    print(peak(*sys.argv[1:4], int(sys.argv[4])))
