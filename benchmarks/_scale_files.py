"""Private quantile fits on Parquet files larger than memory: time, memory, and linearity in n.

The largest number of rows is ``DPCONVEX_BENCH_ROWS`` (50 million by default, less where the disk is
small). Every measurement runs in a process of its own, after a first small fit that imports and
compiles. The fit is by objective perturbation, whose passes over the data are few; the times of a
pass are those of its gradient.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import Measurement

COLUMNS = 20
FILE_ROWS = 500_000
GROUP_ROWS = 250_000
GIGABYTE = 1e9


def largest() -> int:
    wanted = int(float(os.environ.get("DPCONVEX_BENCH_ROWS", 5e7)))
    free = shutil.disk_usage(tempfile.gettempdir()).free
    # The files, as much again for the spill, and as much again left free.
    return min(wanted, int(free / (3 * 4 * (COLUMNS + 1))))


def generate(folder: Path, first: int, last: int) -> None:
    """Write rows `first` to `last` of a linear model as Parquet files of float32."""
    import polars as pl

    for start in range(first, last, FILE_ROWS):
        rng = np.random.default_rng(start)
        rows = min(FILE_ROWS, last - start)
        X = rng.standard_normal((rows, COLUMNS), dtype=np.float32)
        y = X @ np.linspace(-1, 1, COLUMNS, dtype=np.float32)
        y += rng.standard_normal(rows, dtype=np.float32)
        table = pl.DataFrame(X, schema=[f"x{j}" for j in range(COLUMNS)])
        table.with_columns(pl.Series("y", y)).write_parquet(
            folder / f"{start:010d}.parquet", row_group_size=GROUP_ROWS, compression="snappy"
        )


def measured(folder: Path, mode: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks._scale_files_worker", str(folder), mode]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.strip().splitlines()[-1])


def run() -> Iterator[Measurement]:
    most = largest()
    sizes = [n for n in (10_000, 100_000, 1_000_000, 10_000_000) if n < most] + [most]
    in_memory = max([n for n in sizes if n <= 10_000_000])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = 0
        fits = {}
        memory = {}
        for n in sizes:
            generate(folder, written, n)
            written = n
            found = fits[n] = measured(folder, "spill")
            yield Measurement(
                f"seconds of a fit from Parquet, n={n:.0e}",
                found["fit"],
                detail=f"pass {found['pass'] / n * 1e9:.2f} ns per row, "
                f"peak {found['peak'] / GIGABYTE:.2f} GB; a first small fit, which imports, "
                f"{found['first']:.1f} s",
            )
            if n == in_memory:
                memory = measured(folder, "memory")
                same = np.abs(np.subtract(memory["coef"], found["coef"])).max()
                yield Measurement(
                    f"coefficients against in memory, n={n:.0e}, relative",
                    float(same / np.abs(memory["coef"]).max()),
                    1e-8,
                )
        source = measured(folder, "parquet")
    per_row = memory["pass"] / memory["rows"]
    for label, found, bar in (("from Parquet", source, 10.0), ("after the spill", fits[most], 3.0)):
        yield Measurement(
            f"time per row and pass {label} / in memory, n={most:.0e}",
            found["pass"] / found["rows"] / per_row,
            bar,
            detail=f"{found['pass'] / found['rows'] * 1e9:.2f} ns / {per_row * 1e9:.2f} ns",
        )
    for label, found in (("without spill", source), ("with spill", fits[most])):
        yield Measurement(
            f"peak resident memory {label}, n={most:.0e}, GB", found["peak"] / GIGABYTE, 3.0
        )
    used = [n for n in sizes if n >= 100_000]
    if len(used) > 1:
        for what in ("fit", "pass"):
            slope = np.polyfit(np.log(used), np.log([fits[n][what] for n in used]), 1)[0]
            bars: list[tuple[float | None, bool]] = [(1.1, True), (0.9, False)]
            for bar, at_most in bars if what == "fit" else bars[:1]:
                yield Measurement(
                    f"slope of log seconds of a {what} in log n, from 1e5",
                    float(slope),
                    bar,
                    at_most,
                )
    plot({n: found["fit"] for n, found in fits.items()})


def plot(seconds: dict[int, float]) -> None:
    """Draw the seconds of a fit against the number of rows into the folder of results."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    from benchmarks import RESULTS

    RESULTS.mkdir(exist_ok=True)
    figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
    axes.loglog(list(seconds), list(seconds.values()), "o-", label="private fit from Parquet")
    last = max(seconds)
    axes.loglog(
        [last / 500, last], [seconds[last] / 500, seconds[last]], ":", color="grey", label="linear"
    )
    axes.set(xlabel="rows", ylabel="seconds", title=f"{COLUMNS} columns, quantile regression")
    axes.legend()
    figure.savefig(RESULTS / "scale.png", dpi=150)
    plt.close(figure)
