"""A fit on clusters of one and two worker processes next to the same fit in memory, on Parquet
files, in turns.

The two clusters and the table in memory live side by side, and rounds of passes and of fits go from
one to the next: what a shared machine does to one of them, it does to all. Times are medians of the
rounds. Workers have one thread and 2 GB each. ``DPCONVEX_BENCH_CLUSTER_ROWS`` is the number of
rows, 20 million by default.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import Measurement
from benchmarks._scale_files import generate
from dpconvex import DPLogisticRegression
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.engine.dask.rows_and_table import DaskTable
from dpconvex.losses import Logistic
from dpconvex.objectives import EmpiricalObjective

ROWS = int(float(os.environ.get("DPCONVEX_BENCH_CLUSTER_ROWS", 2e7)))
MEMORY = "2GB"
PLACES = {"memory": 0, "one worker": 1, "two workers": 2}
FITS = 3
PASSES = 15


class Place:
    """The table where some workers hold it, or none: what is timed there."""

    def __init__(self, folder: Path, workers: int, stack: ExitStack) -> None:
        import dask.dataframe as dd
        from distributed import Client, LocalCluster

        self.workers = workers
        self.model = DPLogisticRegression(feature_bounds=(-5, 5), random_state=0)
        self.client: Any = None
        frame = dd.read_parquet(folder, blocksize=None, split_row_groups=True)
        names = [name for name in frame.columns if name != "y"]
        self.row_map = RowMap.from_bounds(len(names), (-5, 5))
        if workers:
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                memory_limit=MEMORY,
                dashboard_address=None,
                silence_logs=50,
            )
            self.client = stack.enter_context(
                Client(stack.enter_context(cluster), set_as_default=False)
            )
            self.X = frame[names]
            self.y = frame["y"] > 0
            first = frame.partitions[: 2 * workers]
            self.head = first[names], first["y"] > 0
        else:
            table = frame.compute(scheduler="threads")
            self.X = np.ascontiguousarray(table[names].to_numpy())
            self.y = table["y"].to_numpy() > 0
            self.head = self.X[:500_000], self.y[:500_000]

    def timed(self, call: Callable[[], Any]) -> float:
        """Return the seconds of a call that uses this place's cluster."""
        with ExitStack() as stack:
            if self.client is not None:
                stack.enter_context(self.client.as_current())
            begin = time.perf_counter()
            call()
            return time.perf_counter() - begin

    def fit(self) -> None:
        """Fit the default."""
        self.model.fit(self.X, self.y)

    def read(self) -> None:
        """Read and check the table, and keep it for passes."""
        if self.workers:
            self.rows: Any = DaskTable(self.X, self.y.astype(float), "it").rows(self.row_map)
        else:
            self.rows = MemoryRows(self.X, self.y.astype(float), self.row_map)
        self.objective = EmpiricalObjective(self.rows, Logistic(), 1e-4)

    def gradient(self) -> None:
        """Sum the gradient once."""
        self.objective.gradient(np.linspace(-1, 1, self.row_map.dim))

    def reweighted(self) -> None:
        """Change all weights, and sum the gradient."""
        rows = self.rows.reweighted(lambda block, w: w / 2)
        EmpiricalObjective(rows, Logistic(), 1e-4).gradient(np.linspace(-1, 1, self.row_map.dim))


def measure(folder: Path) -> tuple[dict[str, dict[str, float]], float]:
    """Return the median seconds of everything, by name and place, and how far coefficients
    differ.
    """
    with ExitStack() as stack:
        places = {name: Place(folder, workers, stack) for name, workers in PLACES.items()}
        for place in places.values():  # imports and compiles
            place.timed(lambda place=place: place.model.fit(*place.head))

        def rounds(what: str, count: int) -> dict[str, float]:
            times = {name: [0.0] * count for name in places}
            for i in range(count):
                for name, place in places.items():
                    times[name][i] = place.timed(getattr(place, what))
            return {name: float(np.median(found)) for name, found in times.items()}

        found = {"fit": rounds("fit", FITS), "read": rounds("read", 1)}
        rounds("gradient", 1)
        found |= {"pass": rounds("gradient", PASSES), "reweighted": rounds("reweighted", 3)}
        coefficients = [place.model.coef_.ravel() for place in places.values()]
    apart = max(float(np.abs(other - coefficients[0]).max()) for other in coefficients[1:])
    return found, apart / float(np.abs(coefficients[0]).max())


def run(rows: int = ROWS) -> Iterator[Measurement]:
    """Compare memory, one worker and two."""
    with tempfile.TemporaryDirectory() as name:
        generate(Path(name), 0, rows)
        found, apart = measure(Path(name))
    size = f"n={rows:.0e} d=20"
    fits = found["fit"]
    passes = found["pass"]
    yield Measurement(
        f"seconds of a fit on two workers of {MEMORY}, {size}",
        fits["two workers"],
        300.0,
        detail=f"one worker {fits['one worker']:.1f} s, in memory {fits['memory']:.1f} s",
    )
    yield Measurement(
        f"time per pass, two workers / memory, {size}",
        passes["two workers"] / passes["memory"],
        2.0,
        detail=f"{passes['two workers'] * 1e3:.0f} ms / {passes['memory'] * 1e3:.0f} ms",
    )
    for what, times in found.items():
        one = times["one worker"]
        two = times["two workers"]
        yield Measurement(
            f"{what}: one worker / two workers, {size}",
            one / two,
            1.8 if what in ("fit", "pass") else None,
            at_most=False,
            detail=f"{one:.2f} s / {two:.2f} s",
        )
    yield Measurement(f"coefficients on a cluster against memory, {size}, relative", apart, 1e-8)
