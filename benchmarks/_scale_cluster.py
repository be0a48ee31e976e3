"""A fit on a cluster of worker processes next to the same fit in memory: time per pass, and what a second one brings.

``python -m benchmarks._scale_cluster FOLDER WORKERS`` measures one cluster on the Parquet files of a folder, or the
rows in memory with 0 workers, and prints JSON. Workers have one thread and 2 GB each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import Measurement
from benchmarks._scale_files import generate

ROWS = int(float(os.environ.get("DPCONVEX_BENCH_CLUSTER_ROWS", 4e6)))
MEMORY = "2GB"


def measure(folder: Path, workers: int) -> dict[str, Any]:
    """Return seconds of a default fit, of one pass, and of reading and checking."""
    import dask.dataframe as dd

    from dpconvex import DPLogisticRegression
    from dpconvex.engine import MemoryRows, RowMap
    from dpconvex.engine.dask.rows import DaskTable
    from dpconvex.losses import Logistic
    from dpconvex.objectives import EmpiricalObjective

    frame = dd.read_parquet(folder, blocksize=None, split_row_groups=True)
    names = [name for name in frame.columns if name != "y"]
    row_map = RowMap.from_bounds(len(names), (-5, 5))
    model = DPLogisticRegression(feature_bounds=(-5, 5), random_state=0)
    found: dict[str, Any] = {}
    with ExitStack() as stack:
        if workers:
            from distributed import Client, LocalCluster

            cluster = stack.enter_context(
                LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    memory_limit=MEMORY,
                    dashboard_address=None,
                    silence_logs=50,
                )
            )
            stack.enter_context(Client(cluster))
            X, y = frame[names], frame["y"] > 0
            first = frame.partitions[: 2 * workers]
            head = first[names], first["y"] > 0
        else:
            table = frame.compute()
            X, y = np.ascontiguousarray(table[names].to_numpy()), table["y"].to_numpy() > 0
            del table
            head = X[:500_000], y[:500_000]
        model.fit(*head)  # imports and compiles
        begin = time.perf_counter()
        model.fit(X, y)
        found["fit"] = time.perf_counter() - begin
        found["coef"] = model.coef_.ravel().tolist()
        begin = time.perf_counter()
        if workers:
            rows: Any = DaskTable(X, y.astype(float), "benchmark").rows(row_map)
        else:
            rows = MemoryRows(X, y.astype(float), row_map)
        found["read"] = time.perf_counter() - begin
        objective = EmpiricalObjective(rows, Logistic(), 1e-4)
        theta = np.linspace(-1, 1, objective.dim)
        passes = []
        for _ in range(30):
            begin = time.perf_counter()
            objective.gradient(theta)
            passes.append(time.perf_counter() - begin)
        found["pass"] = min(passes[1:])
        begin = time.perf_counter()
        weighted = rows.reweighted(lambda block, w: w / 2)
        EmpiricalObjective(weighted, Logistic(), 1e-4).gradient(theta)
        found["reweighted"] = time.perf_counter() - begin
    return found


def run(rows: int = ROWS) -> Iterator[Measurement]:
    """Compare memory, one worker and two."""
    with tempfile.TemporaryDirectory() as name:
        generate(Path(name), 0, rows)
        found = {}
        for workers in (0, 1, 2):
            command = [sys.executable, "-m", "benchmarks._scale_cluster", name, str(workers)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(done.stderr[-2000:])
            found[workers] = json.loads(done.stdout.strip().splitlines()[-1])
    memory, one, two = found[0], found[1], found[2]
    size = f"n={rows:.0e} d=20"
    yield Measurement(
        f"seconds of a fit on two workers of {MEMORY}, {size}",
        two["fit"],
        300.0,
        detail=f"one worker {one['fit']:.1f} s, in memory {memory['fit']:.1f} s",
    )
    yield Measurement(
        f"time per pass, two workers / memory, {size}",
        two["pass"] / memory["pass"],
        2.0,
        detail=f"{two['pass'] * 1e3:.0f} ms / {memory['pass'] * 1e3:.0f} ms",
    )
    for what in ("fit", "pass", "read", "reweighted"):
        yield Measurement(
            f"{what}: one worker / two workers, {size}",
            one[what] / two[what],
            1.8 if what in ("fit", "pass") else None,
            at_most=False,
            detail=f"{one[what]:.2f} s / {two[what]:.2f} s",
        )
    scale = np.abs(memory["coef"]).max()
    yield Measurement(
        f"coefficients on a cluster against memory, {size}, relative",
        float(np.abs(np.subtract(two["coef"], memory["coef"])).max() / scale),
        1e-8,
    )


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), int(sys.argv[2]))))
