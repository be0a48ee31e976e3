"""Time and memory of the default fits on large tables, next to fits without privacy on the same
rows.

After a first small fit, which imports and compiles, fits and rivals take turns, so that a machine
that is busy for a while slows both; the shortest time of each counts. Peak memory is measured in a
process of its own.
"""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from benchmarks import Measurement
from dpconvex import DPAUCClassifier, DPLogisticRegression, DPQuantileRegressor

REPEATS = 3


def table(n: int, d: int, unequal: bool, dtype: Any = np.float64) -> tuple[Any, Any, Any]:
    """Return normal rows, columns of equal scale or from 1 to 100, a linear signal, and public
    bounds.
    """
    rng = np.random.default_rng(d)
    scales = np.geomspace(1.0, 100.0, d) if unequal else np.ones(d)
    X = np.empty((n, d), dtype)
    signal = np.empty(n)
    theta = np.linspace(-1, 1, d) / np.sqrt(d) / scales
    for start in range(0, n, 10_000):  # no temporary array as large as X: peak memory is measured
        block = rng.standard_normal((min(10_000, n - start), d)) * scales
        X[start : start + 10_000] = block
        signal[start : start + 10_000] = block @ theta
    return X, signal, (-5 * scales, 5 * scales)


def in_turns(*functions: Callable[[], object]) -> tuple[list[float], list[float]]:
    """Return the shortest wall and processor time of each function; they take turns."""
    wall = []
    processor = []
    for _ in range(REPEATS):
        row = []
        for function in functions:
            begin = time.perf_counter(), time.process_time()
            function()
            row.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
        wall.append([pair[0] for pair in row])
        processor.append([pair[1] for pair in row])
    return np.min(wall, axis=0).tolist(), np.min(processor, axis=0).tolist()


def compared(
    name: str, bar: float | None, ours: Callable[[], object], rival: Callable[[], object]
) -> Measurement:
    """Measure one fit against its rival."""
    wall, processor = in_turns(ours, rival)
    detail = f"{wall[0]:.2f} s / {wall[1]:.2f} s; processor {processor[0]:.2f} / {processor[1]:.2f}"
    return Measurement(name, wall[0] / wall[1], bar, detail=detail)


def labels_of(signal: Any) -> Any:
    return np.random.default_rng(1).random(signal.size) < expit(2 * signal)


def scikit_learn(X: Any, y: Any) -> object:
    with warnings.catch_warnings():  # it stops at 100 steps where scales differ
        warnings.simplefilter("ignore")
        return LogisticRegression().fit(X, y)


def smoothed_quantile(X: Any, y: Any, level: float, width: float) -> object:
    """Minimise the pinball loss convolved with a logistic kernel by L-BFGS to gradient norm
    1e-5.
    """
    n = len(X)

    def value(theta: Any) -> tuple[float, Any]:
        residual = y - theta[0] - X @ theta[1:]
        # (level - 1) r + width log(1 + exp(r / width)) is the convolved loss.
        loss = (level - 1) * residual + width * np.logaddexp(0.0, residual / width)
        slope = (1 - level) - expit(residual / width)
        return float(loss.mean()), np.concatenate([[slope.sum()], slope @ X]) / n

    options = {"gtol": 1e-5 / np.sqrt(X.shape[1] + 1), "ftol": 0.0, "maxiter": 2000}
    start = np.zeros(X.shape[1] + 1)
    return minimize(value, start, jac=True, method="L-BFGS-B", options=options)


def logistic(n: int, d: int, unequal: bool, bar: float, dtype: Any = np.float64) -> Measurement:
    X, signal, bounds = table(n, d, unequal, dtype)
    y = labels_of(signal)
    columns = "scales 1 to 100" if unequal else "equal scales"
    return compared(
        f"logistic / scikit-learn, n={n:.0e} d={d} {columns} {np.dtype(dtype)}",
        bar,
        lambda: DPLogisticRegression(feature_bounds=bounds, random_state=0).fit(X, y),
        lambda: scikit_learn(X, y),
    )


def quantile(n: int, d: int, unequal: bool, bar: float, level: float) -> Measurement:
    X, signal, bounds = table(n, d, unequal)
    y = signal + np.random.default_rng(2).normal(size=n)
    columns = "scales 1 to 100" if unequal else "equal scales"
    return compared(
        f"quantile {level} / L-BFGS, n={n:.0e} d={d} {columns}",
        bar,
        lambda: DPQuantileRegressor(
            quantile=level, feature_bounds=bounds, target_bounds=(-10, 10), random_state=0
        ).fit(X, y),
        lambda: smoothed_quantile(X, y, level, 0.1),
    )


FITS: dict[str, Callable[[Any], Any]] = {
    "logistic": lambda bounds: DPLogisticRegression(feature_bounds=bounds, random_state=0),
    "quantile": lambda bounds: DPQuantileRegressor(
        feature_bounds=bounds, target_bounds=(-10, 10), random_state=0
    ),
    "auc": lambda bounds: DPAUCClassifier(feature_bounds=bounds, random_state=0),
}


def peak(kind: str, n: int, d: int, dtype: str) -> float:
    """Return the peak of a fit in this process, X included, in units of X."""

    def resident() -> int:
        # Not getrusage: its peak is inherited from the process that started this one.
        with open("/proc/self/status") as status:
            return 1024 * int(status.read().split("VmHWM:")[1].split()[0])

    def fit(n: int) -> int:
        X, signal, bounds = table(n, d, True, np.dtype(dtype))
        FITS[kind](bounds).fit(X, signal if kind == "quantile" else labels_of(signal))
        return X.nbytes

    fit(2000)  # imports and compiles
    small = resident()
    size = fit(n)
    return (resident() - small) / size


def peak_memory(kind: str, n: int, d: int, dtype: str, bar: float | None) -> Measurement:
    code = f"from benchmarks.default_speed import peak; print(peak({kind!r}, {n}, {d}, {dtype!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    name = f"peak memory of a fit / X, {kind}, n={n:.0e} d={d} {dtype}"
    return Measurement(name, float(done.stdout), bar)


def run() -> Iterator[Measurement]:
    for kind in ("logistic", "quantile"):
        for dtype in (np.float32, np.float64):
            X, signal, bounds = table(60_000, 100, True, dtype)
            FITS[kind](bounds).fit(X, signal if kind == "quantile" else labels_of(signal))
    yield logistic(1_000_000, 50, False, 1.0)
    yield logistic(1_000_000, 50, True, 0.5)
    yield logistic(1_000_000, 50, False, 1.0, np.float32)
    yield quantile(1_000_000, 50, False, 0.8, 0.5)
    yield quantile(1_000_000, 50, False, 0.8, 0.9)
    yield quantile(1_000_000, 50, True, 0.8, 0.9)
    yield logistic(100_000, 500, True, 1.0)
    for kind in FITS:
        for dtype in ("float64", "float32"):
            yield peak_memory(kind, 1_000_000, 50, dtype, 1.2)
