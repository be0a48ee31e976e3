"""``dpconvex reproduce scale``: a default fit of a billion rows on a cluster, from its passes,
bytes and bandwidths.

How many passes a fit makes over the rows is public: its certificate lists every released sum. What
a row costs in all of them together is measured here, on one thread, as the slope of whole fits in
the number of rows; what rows do not cost is the intercept. A cluster reads its part of the table
once, keeps it in memory, and makes every pass on all cores at once; a pass ends with a round trip
and with sums that go up a tree of workers. The same line predicts larger fits on this machine,
which are timed beside it.
"""

from __future__ import annotations

import importlib
import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from dpconvex import DPLogisticRegression, DPQuantileRegressor
from dpconvex.cli.output_and_errors import output_console, reports_errors
from dpconvex_reproduction.exhibit import Row

__all__ = ["Cluster", "Pace", "main", "measure_pace", "passes_of", "predicted_seconds"]


@dataclass(frozen=True)
class Pace:
    """Measured on one thread at one number of columns.

    Attributes
    ----------
    fixed : float
        Seconds of a fit that do not depend on rows: plan, certificate, noise, post-processing.
    row : float
        Seconds per row, all passes together.
    """

    fixed: float
    row: float


@dataclass(frozen=True)
class Cluster:
    """Workers and what connects them; the defaults are those of rented machines with eight cores.

    Attributes
    ----------
    workers, cores : int
        Machines and threads of each.
    speedup : float
        Share of its cores that a pass uses: memory is shared among them.
    read : float
        Bytes that a worker reads from storage in a second, decoding included.
    network : float
        Bytes that a worker sends in a second.
    latency : float
        Seconds that a pass costs however few rows there are: scheduling and a round trip.
    """

    workers: int
    cores: int = 8
    speedup: float = 0.6
    read: float = 2.5e8
    network: float = 1e9
    latency: float = 0.05


def passes_of(certificate: Any) -> dict[str, int]:
    """Return how many sums of each kind of query a fit with this certificate makes, from public
    facts alone.

    Examples
    --------
    >>> model = DPLogisticRegression(epsilon=1.0, delta=1e-6, feature_bounds=(0, 1))
    >>> found = passes_of(model.certify(n_samples=10_000, n_features=5))
    >>> found["second moments"] >= 1 and found["vector"] > found["second moments"]
    True
    """
    found: dict[str, int] = {}
    for term in certificate.noise.values():
        found[term.query] = found.get(term.query, 0) + term.releases
    return found


def _models(bounds: tuple[float, float] = (-5.0, 5.0)) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-10,
        "feature_bounds": bounds,
        "random_state": 0,
    }
    return {
        "logistic": DPLogisticRegression(**facts),
        "median": DPQuantileRegressor(0.5, target_bounds=(-20.0, 20.0), **facts),
    }


def time_fit(name: str, rows: int, columns: int, repeats: int = 3) -> float:
    """Return the least processor seconds of a default fit of made-up rows, on one thread."""
    numba: Any = importlib.import_module("numba")
    rng = np.random.default_rng(1)
    X = rng.normal(size=(rows, columns))
    signal = X[:, 0] + rng.logistic(size=rows)
    y = np.where(signal > 0, 1, -1) if name == "logistic" else signal
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    times = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(repeats):
                model = _models()[name]
                begin = time.process_time()
                model.fit(X, y)
                times.append(time.process_time() - begin)
    finally:
        numba.set_num_threads(threads)
    return min(times)


def measure_pace(name: str, rows: int, columns: int) -> Pace:
    """Return the line through fits of so many rows and of a quarter of them."""
    time_fit(name, 1000, columns, 1)  # imports and compiles
    few = time_fit(name, rows // 4, columns)
    many = time_fit(name, rows, columns)
    slope = max(0.0, (many - few) / (rows - rows // 4))
    return Pace(max(0.0, many - slope * rows), slope)


def predicted_seconds(
    pace: Pace,
    passes: Mapping[str, int],
    rows: int,
    columns: int,
    cluster: Cluster | None = None,
    width: int = 4,
) -> dict[str, float]:
    """Return the seconds of a fit by part.

    Parameters
    ----------
    pace : Pace
        Of one thread, at this number of columns.
    passes : mapping
        Sums by kind, of :func:`passes_of`.
    rows, columns : int
        Size of the table.
    cluster : Cluster, optional
        None for one thread of this machine, the table in memory.
    width : int
        Bytes of a number of the table on the cluster's storage.

    Returns
    -------
    dict
        ``reading``, ``passing`` over the rows, and ``waiting``: what rows do not cost, round trips,
        sums of workers.

    Examples
    --------
    >>> predicted_seconds(Pace(0.5, 1e-6), {"vector": 10}, 1_000_000, 10)
    {'reading': 0.0, 'passing': 1.0, 'waiting': 0.5}
    """
    if cluster is None:
        return {"reading": 0.0, "passing": rows * pace.row, "waiting": pace.fixed}
    sums = sum(passes.values())
    levels = max(1, math.ceil(math.log2(cluster.workers + 1)))
    sent = 8 * (columns * sums + columns**2 * passes.get("second moments", 0))
    return {
        "reading": rows * columns * width / (cluster.workers * cluster.read),
        "passing": rows * pace.row / (cluster.workers * cluster.cores * cluster.speedup),
        "waiting": pace.fixed + sums * cluster.latency + levels * sent / cluster.network,
    }


def check_here(name: str, pace: Pace, columns: int, sizes: Sequence[int]) -> list[Row]:
    """Return predictions beside measured fits on one thread of this machine, at more rows than
    the line was made of.
    """
    found = []
    for rows in sizes:
        spent = time_fit(name, rows, columns, 2)
        expected = sum(predicted_seconds(pace, {}, rows, columns).values())
        line = {
            "model": name,
            "rows": rows,
            "columns": columns,
            "measured s": spent,
            "predicted s": expected,
        }
        found.append({**line, "measured / predicted": spent / expected})
    return found


def cluster_table(
    paces: Mapping[str, Pace], rows: int, columns: int, workers: Sequence[int]
) -> list[Row]:
    """Return predictions for clusters of so many workers; float32."""
    found = []
    for name, pace in paces.items():
        passes = passes_of(_models()[name].certify(n_samples=rows, n_features=columns))
        for count in workers:
            parts = predicted_seconds(pace, passes, rows, columns, Cluster(count))
            found.append(
                {
                    "model": name,
                    "workers": count,
                    "passes": sum(passes.values()),
                    "GB per worker": rows * columns * 4 / count / 1e9,
                    **{f"{part} s": seconds for part, seconds in parts.items()},
                    "fit, minutes": sum(parts.values()) / 60,
                }
            )
    return found


app = typer.Typer(add_completion=False)


def main(words: list[str]) -> None:
    """Run the command with these words."""
    app(words, prog_name="dpconvex reproduce scale")


@app.command()
@reports_errors
def scale(
    rows: Annotated[
        int, typer.Option(help="Rows of the table on the cluster.", min=1000)
    ] = 1_000_000_000,
    columns: Annotated[int, typer.Option(help="Its columns.", min=1)] = 100,
    quick: Annotated[bool, typer.Option("--quick", help="Smaller tables on this machine.")] = False,
    out: Annotated[Path, typer.Option(help="The page.")] = Path("scale.md"),
) -> None:
    """Extrapolate a default fit to a cluster from passes, bytes per pass and bandwidths, checked
    on this machine.
    """
    from dpconvex_reproduction.fingerprint import made_with
    from dpconvex_reproduction.outputs import check_outputs, write_output
    from dpconvex_reproduction.pages import markdown_table

    check_outputs([out], out.parent)
    small = 8_000 if quick else 1_000_000
    paces = {name: measure_pace(name, small, columns) for name in _models()}
    here = [
        line
        for name, pace in paces.items()
        for line in check_here(name, pace, columns, (2 * small, 4 * small))
    ]
    there = cluster_table(paces, rows, columns, (10, 40, 160))
    cluster = Cluster(10)
    off = [line["measured / predicted"] for line in here]
    costs = " and ".join(
        f"{1e9 * pace.row:.0f} ns per row ({name})" for name, pace in paces.items()
    )
    lines = [
        f"# {rows:,} rows of {columns} columns on a cluster: an extrapolation",
        "",
        made_with(),
        "",
        "Nobody ran this: it is a sum of what was measured and of stated bandwidths. The number "
        "of passes is public and follows from the certificate. On one thread of this machine all "
        f"passes of a default fit together cost {costs} at {columns} columns, the slope between "
        f"{small // 4:,} and {small:,} rows. A worker has {cluster.cores} cores of which a pass "
        f"uses {cluster.speedup:.0%}, reads {cluster.read / 1e6:.0f} MB/s from storage, sends "
        f"{cluster.network / 1e9:.0f} GB/s, and a pass costs {1000 * cluster.latency:.0f} ms "
        "however few rows there are. The table is float32, read once, and kept in the workers' "
        "memory.",
        "",
        *markdown_table(there),
        "",
        "## The same line on this machine",
        "",
        "One thread, float64, in memory, at two and four times as many rows as the line was made "
        f"of: measured over predicted is {min(off):.2f} to {max(off):.2f}.",
        "",
        *markdown_table(here),
        "",
        "Written by `dpconvex reproduce scale`.",
    ]
    write_output(out, ("\n".join(lines) + "\n").encode())
    fastest = min(line["fit, minutes"] for line in there)
    words = (
        f"{fastest:.1f} to {max(line['fit, minutes'] for line in there):.1f} minutes, measured "
        "over predicted here"
    )
    output_console().print(
        f"Written: {out} ({words} {min(off):.2f} to {max(off):.2f})", markup=False
    )
