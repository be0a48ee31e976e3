"""One measurement of the scale benchmark, in a process of its own so that peak memory is its own.

``python -m benchmarks._scale_files_worker FOLDER MODE`` prints JSON. Modes: ``parquet`` reads the
files in every pass, ``spill`` parks them once, ``memory`` loads them.

A first small fit of the same kind, from a Parquet file of its own, is not part of the times: in it
Python imports what it needs (the exact sampler alone takes seconds) and compiled code is loaded.
Its time is printed as ``first``.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SETTINGS: dict[str, Any] = {
    "quantile": 0.7,
    "epsilon": 1.0,
    "feature_bounds": (-4, 4),
    "target_bounds": (-10, 10),
    "mechanism": "objective",
    "random_state": 0,
}


def measure(folder: Path, mode: str) -> dict[str, Any]:
    import dask
    import dask.dataframe as dd
    import pandas as pd

    from dpconvex import DPQuantileRegressor
    from dpconvex.engine import MemoryRows, RowMap
    from dpconvex.engine.dask.rows_and_table import DaskTable
    from dpconvex.losses import Pinball
    from dpconvex.objectives import EmpiricalObjective
    from dpconvex.smoothing import LogisticKernel, convolve

    def read(place: Path) -> Any:
        return dd.read_parquet(place, blocksize=None, split_row_groups=True)

    frame = read(folder)
    names = [name for name in frame.columns if name != "y"]
    loss = convolve(Pinball(0.7), LogisticKernel(), 0.05)
    row_map = RowMap.from_bounds(len(names), (-4, 4))
    with tempfile.TemporaryDirectory() as name:
        rng = np.random.default_rng(0)
        small = rng.standard_normal((30_000, len(names) + 1), dtype=np.float32)
        pd.DataFrame(small, columns=[*names, "y"]).to_parquet(Path(name) / "small.parquet")
        firsts = []
        for limit in (None, 0):
            with dask.config.set({"dpconvex.spill-limit": limit}):
                warm = read(Path(name))
                begin = time.perf_counter()
                DPQuantileRegressor(**SETTINGS).fit(warm[names], warm["y"])
                firsts.append(time.perf_counter() - begin)
    for keep in (True, False):
        X = np.ones((30_000, len(names)), np.float32)
        y = np.ones(30_000)
        EmpiricalObjective(MemoryRows(X, y, row_map, cache=keep), loss, 1e-4).gradient(
            np.zeros(row_map.dim)
        )
    fit: dict[str, Any] = {"fit": 0.0, "first": firsts[0]}
    with dask.config.set({"dpconvex.spill-limit": 0 if mode == "parquet" else None}):
        if mode == "memory":
            table = frame.compute()
            X = np.ascontiguousarray(table[names].to_numpy())
            y = table["y"].to_numpy()
            del table
            rows: Any = MemoryRows(X, y, row_map, 0.0, 0.1)
        else:
            X = frame[names]
            y = frame["y"]
        seconds: list[float] = []
        if mode != "parquet":
            # A short fit is repeated: a machine that is busy for a moment would count for much.
            for _ in range(3 if len(X) <= 1_000_000 else 1):
                begin = time.perf_counter()
                model = DPQuantileRegressor(**SETTINGS).fit(X, y)
                seconds.append(time.perf_counter() - begin)
            fit |= {"fit": min(seconds), "coef": model.coef_.tolist()}
        if mode != "memory":
            rows = DaskTable(X, y, "benchmark").rows(row_map, None, 0.0, 0.1)
        objective = EmpiricalObjective(rows, loss, 1e-4)
        theta = np.zeros(objective.dim)
        objective.gradient(theta)
        passes = []
        repeats = 2 if mode == "parquet" else 3
        for _ in range(repeats):
            begin = time.perf_counter()
            objective.gradient(theta)
            passes.append(time.perf_counter() - begin)
    return {**fit, "rows": rows.n_rows, "pass": min(passes), "peak": peak_memory()}


def peak_memory() -> int:
    """Bytes; not getrusage, whose peak is inherited from the process that started this one."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), sys.argv[2])))
