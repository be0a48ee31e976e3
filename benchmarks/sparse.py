"""Time and memory of the default fit of sparse rows, next to scikit-learn's LogisticRegression on
the same matrix.

160,000 rows of 40 ones in 500 columns: 40 categories of 12 values each, as likely as in real tables
(one of them much likelier than the last), and all equally likely, which is the easiest problem for
a solver without privacy. Fits take turns after a first one, which imports and compiles; the
shortest time of each counts. Peak memory is that of a process of its own, of which some 300 MB are
Python, its libraries and the matrix.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from benchmarks import Measurement
from benchmarks.default_speed import compared
from dpconvex import DPLogisticRegression

ROWS = 160_000
CATEGORIES = 40
VALUES = 12
COLUMNS = 500


def table(skew: float) -> tuple[Any, Any]:
    """Return indicators of categories whose values have chances in proportion to ``rank^-skew``,
    and labels.
    """
    rng = np.random.default_rng(0)
    chances = 1 / np.arange(1.0, VALUES + 1) ** skew
    chosen = [rng.choice(VALUES, ROWS, p=chances / chances.sum()) for _ in range(CATEGORIES)]
    places = np.column_stack([VALUES * k + values for k, values in enumerate(chosen)])
    starts = np.arange(ROWS + 1) * CATEGORIES
    ones = np.ones(places.size)
    X = sparse.csr_matrix((ones, places.ravel().astype(np.int32), starts), (ROWS, COLUMNS))
    margins = X @ rng.normal(0, 0.5, COLUMNS)
    chance = 1 / (1 + np.exp(margins.mean() - margins))
    return X, (rng.random(ROWS) < chance).astype(int)


def private_fit(X: Any, y: Any) -> DPLogisticRegression:
    """Fit with the default mechanism."""
    return DPLogisticRegression(epsilon=1.0, feature_bounds=(0, 1), classes=[0, 1]).fit(X, y)


def run() -> Iterator[Measurement]:
    """Yield times relative to scikit-learn's, and peak memory."""
    for name, skew, bar in (("categories as in real tables", 1.5, 3.0), ("even ones", 0.0, None)):
        X, y = table(skew)
        private_fit(X, y)
        yield compared(
            f"time by scikit-learn's, {name}",
            bar,
            lambda X=X, y=y: private_fit(X, y),  # type: ignore[misc]
            lambda X=X, y=y: LogisticRegression(max_iter=1000).fit(X, y),  # type: ignore[misc]
        )
    found = subprocess.run(
        [sys.executable, "-c", _PEAK], capture_output=True, text=True, check=True
    )
    yield Measurement("peak memory (GB)", float(found.stdout), 1.0)


# Not getrusage: its peak is inherited from the process that started this one.
_PEAK = """
from benchmarks.sparse import private_fit, table
private_fit(*table(1.5))
lines = open("/proc/self/status").read().splitlines()
print(next(int(line.split()[1]) / 1e6 for line in lines if line.startswith("VmHWM")))
"""
