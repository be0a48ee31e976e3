"""No fit holds rows: arrays with an entry for every row are seen by inputs, engine, core and slopes
alone.

Tables have a number of rows that nothing else has. While a model is fitted, every function of the
library that returns is looked at: what its local names hold, and what objects among them hold in
turn.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

from dpconvex import (
    DPAUCClassifier,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPMedian,
    DPNewsvendor,
    DPQuantileRegressor,
)
from dpconvex.core.private_rows import PrivateRows
from dpconvex.fit.private_fit import PrivateFit

ROWS = 1237
#: Rooms that may hold arrays of rows; estimators hand them from inputs to the core. Objectives and
#: solvers are those of perturbed minimisers.
MAY = (
    *("inputs", "core", "engine", "releases", "losses", "smoothing"),
    *("objectives", "solvers", "estimators"),
)


def row_arrays(value: object, depth: int = 2) -> bool:
    """Return whether a value is an array with an entry for every row, or holds one in an
    attribute of its own.
    """
    if isinstance(value, np.ndarray):
        return ROWS in value.shape
    module = type(value).__module__
    if (
        depth
        and module.startswith("dpconvex")
        and not module.startswith(tuple(f"dpconvex.{room}." for room in MAY))
    ):
        return any(row_arrays(each, depth - 1) for each in getattr(value, "__dict__", {}).values())
    return False


def holders(fit) -> set[str]:
    """Return the functions of other rooms that held rows while a model was fitted."""
    found = set()

    def look(frame, event, argument):
        module = frame.f_globals.get("__name__", "")
        if event != "return" or not module.startswith("dpconvex."):
            return
        if module.split(".")[1] in MAY:
            return
        if any(row_arrays(value) for value in (argument, *frame.f_locals.values())):
            found.add(f"{module}.{frame.f_code.co_name}")

    sys.setprofile(look)
    try:
        fit()
    finally:
        sys.setprofile(None)
    return found


RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (ROWS, 3))
Y = X @ [1.0, -0.5, 0.2] + 0.3 * RNG.normal(size=ROWS)
BOUNDS = {"feature_bounds": (-1, 1), "random_state": 0}
TARGET = {"target_bounds": (-3, 3), **BOUNDS}
FITS = {
    "median": lambda: DPQuantileRegressor(0.5, **TARGET).fit(X, Y),
    "levels": lambda: DPQuantileRegressor((0.2, 0.8), **TARGET).fit(X, Y),
    "quantile intervals": lambda: DPQuantileRegressor(0.5, mu=4.0, inference=True, **TARGET).fit(
        X, Y
    ),
    "newsvendor": lambda: DPNewsvendor(3.0, 1.0, **TARGET).fit(X, Y),
    "linear": lambda: DPLinearRegression(**TARGET).fit(X, Y),
    "linear intervals": lambda: DPLinearRegression(mu=4.0, inference=True, **TARGET).fit(X, Y),
    "logistic": lambda: DPLogisticRegression(**BOUNDS).fit(X, Y > 0),
    "people": lambda: DPLogisticRegression(**BOUNDS).fit(X, Y > 0, groups=np.arange(ROWS) // 2),
    "svm": lambda: DPLinearSVC(**BOUNDS).fit(X, Y > 0),
    "auc": lambda: DPAUCClassifier(**BOUNDS).fit(X, Y > 0),
    "moments": lambda: DPAUCClassifier(mechanism="moments", **BOUNDS).fit(X, Y > 0),
    "objective": lambda: DPLogisticRegression(mechanism="objective", **BOUNDS).fit(X, Y > 0),
    "output": lambda: DPLogisticRegression(mechanism="output", **BOUNDS).fit(X, Y > 0),
    "phased": lambda: DPLogisticRegression(mechanism="phased-erm", **BOUNDS).fit(X, Y > 0),
    "matrices": lambda: DPMedian(mechanism="gradient", random_state=0).fit(
        X[:, None, :], Y[:, None]
    ),
}


@pytest.mark.parametrize("name", FITS)
def test_no_fit_holds_rows(name):
    assert holders(FITS[name]) == set()


def test_a_fit_that_takes_rows_out_of_its_handle_is_seen(monkeypatch):
    honest = PrivateFit.run

    def dishonest(self):
        rows: PrivateRows = self.rows
        targets = rows._rows.targets
        return honest(self) + 0.0 * float(targets[0])

    monkeypatch.setattr(PrivateFit, "run", in_room(dishonest, "dpconvex.fit.private_fit"))
    assert holders(FITS["median"]) != set()


def in_room(function, module: str):
    """Return the function as if it stood in a module of the library."""
    scope = {**function.__globals__, "__name__": module}
    return type(function)(function.__code__, scope, function.__name__, None, function.__closure__)
