"""``dpconvex demo``: a private fit end to end on data it generates."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dpconvex.cli.errors import reports_errors
from dpconvex.cli.fit import JsonOption
from dpconvex.cli.screen import console, print_json, progress
from dpconvex.inputs.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table

    from dpconvex.datasets.synthetic import Synthetic
    from dpconvex.inputs.estimator_protocols import Fitted

    Result = tuple[np.ndarray, Fitted, float]

ROWS, QUANTILE = 20_000, 0.75
EPSILONS = (0.25, 1.0, 4.0)
DAYS = 5_000
BOUNDS = """\
# What is known without the data.
[features]
temperature = [-20, 40]
price = [0, 10]

[target]
demand = [0, 150]

[categories]
city = ["berlin", "paris"]
"""


def register_commands(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(demo)


@reports_errors
def demo(
    seed: Annotated[int, typer.Option(help="Seed of the generated data, never of the noise.")] = 0,
    files: Annotated[
        Path | None, typer.Option(help="Write sales.csv and bounds.toml into this folder to try, and stop.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Fit private models to generated demand and show the certificate and the cost of privacy."""
    if files is not None:
        _write_files(files, seed, json_)
        return
    from dpconvex.datasets import make_newsvendor
    from dpconvex.reports.terminal import certificate_table, guarantee_in_words

    sample = make_newsvendor(ROWS, rng=seed, quantile=QUANTILE)
    with progress("Fitting (the first run compiles, which takes a few seconds)"):
        reference = _reference(sample)
        results = [_private(sample, epsilon) for epsilon in EPSILONS]
    best = sample.risk(sample.theta_star)
    rows = [
        {"fit": name, "cost": sample.risk(theta), "excess": sample.risk(theta) / best - 1}
        for name, theta in [
            ("best possible", sample.theta_star),
            ("without privacy", reference),
            *((f"private, epsilon = {e:g}", theta) for e, (theta, *_) in zip(EPSILONS, results, strict=True)),
        ]
    ]
    chosen = EPSILONS.index(1.0)
    theta, model, seconds = results[chosen]
    if json_:
        print_json(
            {
                "rows": ROWS,
                "quantile": QUANTILE,
                "costs": rows,
                "coefficients": {"true": sample.theta_star.tolist(), "private": theta.tolist()},
                "certificate": json.loads(model.certificate_.to_json()),
                "seconds": seconds,
            }
        )
        return
    screen = console()
    screen.print(
        f"Demand of {ROWS:,} days, {len(theta) - 1} features, generated. A unit too little costs "
        f"{QUANTILE:g}, a unit too much {1 - QUANTILE:g}: the best order is the {QUANTILE:g} quantile "
        "of demand given the features.\n"
    )
    screen.print("The certificate of the fit with epsilon = 1, known before any data is read:")
    screen.print(certificate_table(model.certificate_))
    model.certificate_.verify()
    screen.print("It verifies: all of it was derived again from the public facts.\n")
    screen.print(_coefficients(sample, reference, results))
    screen.print(_costs(rows))
    screen.print(
        f"The fit took {seconds:.2f} s. Its model and certificate may be published: "
        f"{guarantee_in_words(model.certificate_.guarantee)} for everyone in the data. "
        "The other fits are shown to compare; together they would cost more."
    )


def _write_files(folder: Path, seed: int, json_: bool) -> None:
    """Write a generated table and its bounds, and never over a file that is there."""
    table, bounds = folder / "sales.csv", folder / "bounds.toml"
    if not folder.is_dir():
        raise InputError(f"{str(folder)!r} is not a folder.")
    for path in (table, bounds):
        if path.exists():
            raise InputError(f"There is a file {str(path)!r} already. It is kept.")
    import numpy as np

    rng = np.random.default_rng(seed)
    temperature, price = rng.normal(15, 8, DAYS), rng.uniform(1, 9, DAYS)
    city = rng.choice(["berlin", "paris", "rome"], DAYS)
    demand = 40 + 1.5 * temperature - 3 * price + 10 * (city == "paris") + rng.normal(0, 6, DAYS)
    lines = ["day,temperature,price,city,demand"]
    columns = zip(temperature, price, city, demand, strict=True)
    lines += [f"{day},{t:.2f},{p:.2f},{c},{y:.1f}" for day, (t, p, c, y) in enumerate(columns)]
    table.write_text("\n".join(lines) + "\n", encoding="utf-8")
    bounds.write_text(BOUNDS, encoding="utf-8")
    if json_:
        print_json({"data": str(table), "bounds": str(bounds)})
        return
    console().print(f"Written to {table}: {DAYS:,} generated days", markup=False)
    console().print(f"Written to {bounds}: their public bounds", markup=False)


def _private(sample: Synthetic, epsilon: float) -> Result:
    """Return coefficients (intercept first), the model and the time of a private fit."""
    import numpy as np

    from dpconvex import DPQuantileRegressor

    model = DPQuantileRegressor(QUANTILE, epsilon=epsilon, feature_bounds=(-4, 4), target_bounds=(-20, 20))
    start = time.perf_counter()
    model.fit(sample.X, sample.y)
    seconds = time.perf_counter() - start
    return np.r_[model.intercept_, model.coef_], model, seconds


def _reference(sample: Synthetic) -> np.ndarray:
    """Return the coefficients of a fit without privacy."""
    import numpy as np

    from dpconvex.engine import MemoryRows, RowMap
    from dpconvex.losses import Pinball
    from dpconvex.objectives import EmpiricalObjective
    from dpconvex.smoothing import KERNELS, convolve
    from dpconvex.solvers import Newton

    width = sample.X.shape[1]
    rows = MemoryRows(sample.X, sample.y, RowMap(width, 1e6))
    loss = convolve(Pinball(QUANTILE), KERNELS["logistic"], 0.05)
    solution = Newton().solve(EmpiricalObjective(rows, loss, 1e-9), np.zeros(width + 1), 1e-8)
    return np.asarray(solution.point)


def _coefficients(sample: Synthetic, reference: np.ndarray, results: list[Result]) -> Table:
    from rich.table import Table

    table = Table(title="Coefficients")
    heads = ["true", "without privacy", *(f"epsilon = {epsilon:g}" for epsilon in EPSILONS)]
    table.add_column("")
    for head in heads:
        table.add_column(head, justify="right")
    names = ["(intercept)", *sample.feature_names]
    vectors = [sample.theta_star, reference, *(theta for theta, *_ in results)]
    for name, *values in zip(names, *vectors, strict=True):
        table.add_row(name, *(f"{value:.3f}" for value in values))
    return table


def _costs(rows: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table(title="The cost of privacy: expected cost per day on fresh data, exact")
    table.add_column("fit")
    table.add_column("cost", justify="right")
    table.add_column("above the best possible", justify="right")
    for row in rows:
        table.add_row(row["fit"], f"{row['cost']:.5f}", f"{row['excess']:.3%}")
    return table
