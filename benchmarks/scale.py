"""How time and memory grow: rows, columns, passes, estimators, worker processes and files larger
than memory.

Rivals without privacy are timed on the same tables in the same run, in turns. Slopes are those of
log seconds in log size, by least squares. ``DPCONVEX_BENCH_SCALE`` names the parts to run,
separated by commas, all by default: rows, columns, passes, memory, cluster, files.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks import Measurement, _scale_cluster, _scale_files, _scale_memory
from benchmarks.default_speed import labels_of, scikit_learn, smoothed_quantile, table
from dpconvex import DPLogisticRegression, DPQuantileRegressor
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Logistic
from dpconvex.objectives import EmpiricalObjective

ROWS = (10_000, 30_000, 100_000, 300_000, 1_000_000, 3_000_000)
COLUMNS = (10, 30, 100, 200, 400, 1000)
WIDE = 200  # columns from which on growth has a bar
Fit = Callable[[], object]


def logistic(n: int, d: int) -> tuple[Fit, Fit]:
    """Return our fit and scikit-learn's on the same rows."""
    X, signal, bounds = table(n, d, False)
    y = labels_of(signal)
    model = DPLogisticRegression(feature_bounds=bounds, random_state=0)
    return lambda: model.fit(X, y), lambda: scikit_learn(X, y)


def quantile(n: int, d: int) -> tuple[Fit, Fit]:
    """Return our fit and that of the smoothed loss by L-BFGS on the same rows."""
    X, signal, bounds = table(n, d, False)
    y = signal + np.random.default_rng(2).normal(size=n)
    model = DPQuantileRegressor(feature_bounds=bounds, target_bounds=(-10, 10), random_state=0)
    return lambda: model.fit(X, y), lambda: smoothed_quantile(X, y, 0.5, 0.1)


KINDS = {"logistic / scikit-learn": logistic, "quantile / L-BFGS": quantile}


def seconds(fits: tuple[Fit, Fit]) -> list[float]:
    """Return the shortest of up to three times of each fit; they take turns, for at most ten
    seconds.
    """
    found: list[list[float]] = []
    begin = time.perf_counter()
    while len(found) < 3 and (not found or time.perf_counter() - begin < 10):
        row = []
        for fit in fits:
            start = time.perf_counter()
            fit()
            row.append(time.perf_counter() - start)
        found.append(row)
    return np.min(found, axis=0).tolist()


def slopes(sizes: list[int], times: list[list[float]]) -> tuple[float, float]:
    """Return the slopes of log seconds in log size, ours and the rival's."""
    ours, rival = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    return float(ours), float(rival)


def growth(
    what: str, sizes: tuple[int, ...], shape: Callable[[int], tuple[int, int]], least: int
) -> Iterator[tuple[str, float, float, str]]:
    """Yield the name of a comparison, the two slopes from size `least` on, and all times."""
    for name, make in KINDS.items():
        seconds(make(*shape(least)))  # imports and compiles
        times = [seconds(make(*shape(size))) for size in sizes]
        used = [i for i, size in enumerate(sizes) if size >= least]
        ours, rival = slopes([sizes[i] for i in used], [times[i] for i in used])
        pairs = (f"{size:,}: {a:.2f}/{b:.2f}" for size, (a, b) in zip(sizes, times, strict=True))
        yield f"{name}, slope in {what} from {least:,}", ours, rival, "; ".join(pairs)


def rows() -> Iterator[Measurement]:
    """Growth in the number of rows, at 20 columns."""
    # Below 100,000 rows the parts that do not depend on them are most of the time.
    for name, ours, rival, detail in growth("rows", ROWS, lambda n: (n, 20), 100_000):
        yield Measurement(name, ours, 1.05, detail=f"rival {rival:.2f}; seconds {detail}")


def columns() -> Iterator[Measurement]:
    """Growth in the number of columns, at 20,000 rows."""
    for name, ours, rival, detail in growth("columns", COLUMNS, lambda d: (20_000, d), WIDE):
        yield Measurement(
            f"{name}, beyond the rival's",
            ours - rival,
            1.2,
            detail=f"{ours:.2f} - {rival:.2f}; seconds {detail}",
        )


def passes() -> Iterator[Measurement]:
    """What passes of the descent cost in units of X.sum()."""
    for n, d in ((1_000_000, 20), (40_000, 500)):
        X, signal, bounds = table(n, d, False)
        y = np.where(labels_of(signal), 1.0, -1.0)
        data = MemoryRows(X, y, RowMap.from_bounds(d, bounds))
        objective = EmpiricalObjective(data, Logistic(), 1e-4)
        theta = np.linspace(-1, 1, d + 1) / d
        calls: dict[str, Fit] = {
            "gradient": lambda o=objective, t=theta: o.gradient(t),
            "margins": lambda r=data, t=theta: r.predicted(t),
            "mapped rows": lambda r=data: r.sum(lambda block, y, w: (float(w[0]),)),
            "second moments": lambda r=data: r.sum(lambda block, y, w: (block.T @ block,)),
        }
        for name, call in calls.items():
            call()
            ours, sweep = seconds((call, X.sum))
            yield Measurement(
                f"pass for {name} / X.sum(), n={n:.0e} d={d}",
                ours / sweep,
                detail=f"{ours * 1e3:.1f} ms / {sweep * 1e3:.1f} ms",
            )


PARTS: dict[str, Callable[[], Iterator[Any]]] = {
    "rows": rows,
    "columns": columns,
    "passes": passes,
    "memory": _scale_memory.run,
    "cluster": _scale_cluster.run,
    "files": _scale_files.run,
}


def run() -> Iterator[Measurement]:
    """Run the parts that were asked for."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for part in os.environ.get("DPCONVEX_BENCH_SCALE", ",".join(PARTS)).split(","):
            yield from PARTS[part]()
