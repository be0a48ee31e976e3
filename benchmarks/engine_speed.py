"""The in-memory engine at the limit of memory bandwidth, and the time that importing takes.

``X.sum()`` is the yardstick: it reads X once. Both are timed in turns, so that a machine that is
busy for a while slows both.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import HuberRegressor, LogisticRegression

from benchmarks import Measurement, Skipped, one_time
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Logistic, Pinball
from dpconvex.objectives import EmpiricalObjective
from dpconvex.smoothing import LogisticKernel, convolve
from dpconvex.solvers import Newton

N = 1_000_000
D = 50


def in_turns(*functions: Callable[[], object], repeats: int = 25) -> list[float]:
    """Return the shortest time of each function; they take turns."""
    times = [[one_time(function) for function in functions] for _ in range(repeats)]
    return np.min(times, axis=0).tolist()


def gradient_passes() -> Iterator[Measurement]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D))
    y = X[:, 0] + rng.normal(size=N)
    theta = rng.normal(size=D + 1) / 10
    loss = convolve(Pinball(0.7), LogisticKernel(), 0.2)
    wide = RowMap.from_bounds(D, (-7.0, 7.0))
    tight = RowMap.from_bounds(D, (-2.0, 2.0), 3.0)
    load = os.getloadavg()[0]
    for label, table, row_map, bar in (
        ("float64", X, wide, 1.5),
        ("float64, clipped and weighted", X, tight, None),
        ("float64 in Fortran order", np.asfortranarray(X), wide, None),
        ("float32", X.astype(np.float32), wide, None),
    ):
        objective = EmpiricalObjective(MemoryRows(table, y, row_map), loss, 1e-4)
        objective.gradient(theta)  # compiles, and surveys the rows
        sweep, ours = in_turns(table.sum, lambda o=objective: o.gradient(theta))
        yield Measurement(
            f"gradient pass / X.sum(), n=1e6 d=50 {label}",
            ours / sweep,
            bar,
            detail=f"{ours * 1e3:.1f} ms / {sweep * 1e3:.1f} ms, load {load:.1f}",
        )
    objective = EmpiricalObjective(MemoryRows(X, y, wide), loss, 1e-4)
    rows, targets, weights = objective.rows.mapped()

    def numpy_gradient() -> object:
        slope = weights * (0.3 - expit((targets - rows @ theta) / 0.2))
        return slope @ rows / N + 1e-4 * theta

    np.testing.assert_allclose(objective.gradient(theta), numpy_gradient(), rtol=1e-9, atol=1e-12)
    ours, theirs = in_turns(lambda: objective.gradient(theta), numpy_gradient, repeats=8)
    yield Measurement(
        "gradient pass / numpy on mapped rows, n=1e6 d=50",
        ours / theirs,
        detail=f"{ours * 1e3:.1f} ms / {theirs * 1e3:.1f} ms",
    )


MEMORY = """
import re, numpy as np
from dpconvex import DPQuantileRegressor
# Not getrusage: its peak is inherited from the process that started this one.
def peak():
    status = open("/proc/self/status").read()
    return 1024 * int(re.search(r"VmHWM:\\s+(\\d+)", status).group(1))
def fit(X): DPQuantileRegressor(feature_bounds=(-7, 7), random_state=0).fit(X, X[:, 0])
rng = np.random.default_rng(0)
fit(rng.normal(size=(2000, 50)))
small = peak()
X = np.empty((1_000_000, 50))
for start in range(0, len(X), 10_000):
    X[start : start + 10_000] = rng.normal(size=(10_000, 50))
fit(X)
print((peak() - small) / X.nbytes)
"""


def peak_memory() -> Iterator[Measurement]:
    done = subprocess.run(
        [sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True
    )
    yield Measurement("peak memory of a fit / X, n=1e6 d=50", float(done.stdout), 1.2)


def import_time() -> Iterator[Measurement]:
    """Fresh processes in turns, of modules that were compiled before, as those of installed
    packages are.
    """
    settings = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as compiled:
        settings["PYTHONPYCACHEPREFIX"] = compiled

        def run(code: str) -> object:
            return subprocess.run([sys.executable, "-c", code], env=settings, check=True)

        def rival() -> object:
            return run("import sklearn.linear_model")

        def ours() -> object:
            return run("from dpconvex import DPLogisticRegression")

        rival(), ours()  # compile
        theirs, mine = in_turns(rival, ours, repeats=5)
    yield Measurement(
        "from dpconvex import DPLogisticRegression / import sklearn.linear_model",
        mine / theirs,
        1.1,
        detail=f"{mine:.2f} s / {theirs:.2f} s",
    )


def rivals() -> Iterator[Measurement | Skipped]:
    """Fits without privacy by other packages on the same data, against ours with certified
    gradient.
    """
    rng = np.random.default_rng(1)
    n = 200_000
    d = 20
    X = rng.normal(size=(n, d))
    labels = np.where(X[:, 0] + rng.logistic(size=n) > 0, 1.0, -1.0)
    row_map = RowMap(d, 1e6)
    objective = EmpiricalObjective(MemoryRows(X, labels, row_map), Logistic(), 1e-4)
    start = np.zeros(d + 1)

    def ours() -> object:
        return Newton().solve(objective, start, 1e-9).point

    def scikit_learn() -> object:
        return LogisticRegression(C=1 / (n * 1e-4), tol=1e-6, max_iter=500).fit(X, labels)

    def scipy_lbfgs() -> object:
        both = np.column_stack([np.ones(n), X])

        def value(theta: np.ndarray) -> tuple[float, np.ndarray]:
            margins = labels * (both @ theta)
            loss = np.logaddexp(0, -margins).mean() + 5e-5 * theta @ theta
            return loss, -(labels * expit(-margins)) @ both / n + 1e-4 * theta

        return minimize(value, start, jac=True, method="L-BFGS-B", options={"gtol": 1e-7}).x

    contest = [("scikit-learn LogisticRegression", scikit_learn), ("scipy L-BFGS-B", scipy_lbfgs)]
    if importlib.util.find_spec("statsmodels"):
        from statsmodels.discrete.discrete_model import Logit

        both = np.column_stack([np.ones(n), X])
        contest.append(("statsmodels Logit", lambda: Logit((labels + 1) / 2, both).fit(disp=0)))
    else:
        yield Skipped("statsmodels Logit", "pip install statsmodels")
    ours()
    before = objective.passes
    ours()
    passes = objective.passes - before
    for name, theirs in contest:
        theirs()
        mine, rival = in_turns(ours, theirs, repeats=3)
        yield Measurement(
            f"Newton / {name}, logistic n=2e5 d=20",
            mine / rival,
            detail=f"{mine:.3f} s ({passes:.1f} passes) / {rival:.3f} s",
        )
    y = X[:, 0] + rng.standard_t(3, size=n)
    huber = EmpiricalObjective(
        MemoryRows(X, y, row_map), convolve(Pinball(0.5), LogisticKernel(), 0.1), 1e-4
    )
    mine, rival = in_turns(
        lambda: Newton().solve(huber, start, 1e-9), lambda: HuberRegressor().fit(X, y), repeats=3
    )
    yield Measurement(
        "Newton on a smoothed median / scikit-learn HuberRegressor, n=2e5 d=20",
        mine / rival,
        detail=f"{mine:.3f} s / {rival:.3f} s",
    )


def run() -> Iterator[Measurement | Skipped]:
    yield from gradient_passes()
    yield from peak_memory()
    yield from import_time()
    yield from rivals()
