"""``dpconvex demo`` and ``dpconvex reproduce``: a private fit end to end on generated data, and
the papers' tables.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpconvex.cli.output_and_errors import (
    output_console,
    output_progress,
    output_table,
    print_json,
    reports_errors,
)
from dpconvex.cli.task_options import JsonOption
from dpconvex.inputs import InputError
from dpconvex.system.atomic_files import write_new_file

if TYPE_CHECKING:
    import numpy as np

    from dpconvex.datasets import Synthetic

# Found by name when the command is called, never imported: the library stands without it.
REPRODUCTION_PACKAGE = "dpconvex_reproduction"
# Every word is the other distribution's, `--help` too.
UNREAD = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "allow_interspersed_args": False,
    "help_option_names": [],
}
ROWS = 20_000
QUANTILE = 0.75
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


@reports_errors
def demo(
    seed: Annotated[int, typer.Option(help="Seed of the generated data, never of the noise.")] = 0,
    files: Annotated[
        Path | None, typer.Option(help="Only write sales.csv and bounds.toml to this folder.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Fit private models to generated demand and show the certificate and the cost of privacy."""
    if files is not None:
        _write_demo_files(files, seed, json_)
        return
    import numpy as np

    from dpconvex import DPQuantileRegressor
    from dpconvex.datasets import make_newsvendor
    from dpconvex.reports.summary import certificate_summary_table
    from dpconvex.reports.wording import guarantee_wording

    sample = make_newsvendor(ROWS, rng=seed, quantile=QUANTILE)
    with output_progress("Fitting (the first run compiles, which takes a few seconds)"):
        fits = {
            "best possible": sample.theta_star,
            "without privacy": _fit_demo_without_privacy(sample),
        }
        for epsilon in EPSILONS:
            start = time.perf_counter()
            private = DPQuantileRegressor(
                QUANTILE, epsilon=epsilon, feature_bounds=(-4, 4), target_bounds=(-20, 20)
            )
            fitted = private.fit(sample.X, sample.y)
            fits[f"private, epsilon = {epsilon:g}"] = np.r_[fitted.intercept_, fitted.coef_]
            if epsilon == 1:
                model = fitted
                seconds = time.perf_counter() - start
    best = sample.risk(sample.theta_star)
    costs = {name: sample.risk(theta) for name, theta in fits.items()}
    if json_:
        plain = [
            {"fit": name, "cost": cost, "excess": cost / best - 1} for name, cost in costs.items()
        ]
        vectors = {
            "true": sample.theta_star.tolist(),
            "private": fits["private, epsilon = 1"].tolist(),
        }
        facts = {
            "rows": ROWS,
            "quantile": QUANTILE,
            "costs": plain,
            "coefficients": vectors,
            "seconds": seconds,
        }
        print_json({**facts, "certificate": json.loads(model.certificate_.to_json())})
        return
    screen = output_console()
    screen.print(
        f"Demand of {ROWS:,} days, {sample.X.shape[1]} features, generated. A unit too little "
        f"costs {QUANTILE:g}, a unit too much {1 - QUANTILE:g}: the best order is the "
        f"{QUANTILE:g} quantile of demand given the features.\n"
    )
    screen.print("The certificate of the fit with epsilon = 1, known before any data is read:")
    screen.print(certificate_summary_table(model.certificate_))
    model.certificate_.verify()
    screen.print("It verifies: all of it was derived again from the public facts.\n")
    heads = ("fit", "(intercept)", *sample.feature_names)
    rows = [(name, *(f"{value:.3f}" for value in theta)) for name, theta in fits.items()]
    screen.print(output_table(heads, rows, "Coefficients"))
    priced = [(name, f"{cost:.5f}", f"{cost / best - 1:.3%}") for name, cost in costs.items()]
    heads = ("fit", "cost", "above the best possible")
    screen.print(
        output_table(
            heads, priced, "The cost of privacy: expected cost per day on fresh data, exact"
        )
    )
    screen.print(
        f"The fit took {seconds:.2f} s. Its model and certificate may be published: "
        f"{guarantee_wording(model.certificate_.guarantee)} for everyone in the data. "
        "The other fits are shown to compare; together they would cost more."
    )


def _write_demo_files(folder: Path, seed: int, json_: bool) -> None:
    table = folder / "sales.csv"
    bounds = folder / "bounds.toml"
    if not folder.is_dir():
        raise InputError(f"{str(folder)!r} is not a folder.")
    for path in (table, bounds):
        if os.path.lexists(path):
            raise InputError(f"There is a file {str(path)!r} already. It is kept.")
    import numpy as np

    rng = np.random.default_rng(seed)
    temperature = rng.normal(15, 8, DAYS)
    price = rng.uniform(1, 9, DAYS)
    city = rng.choice(["berlin", "paris", "rome"], DAYS)
    demand = 40 + 1.5 * temperature - 3 * price + 10 * (city == "paris") + rng.normal(0, 6, DAYS)
    lines = ["day,temperature,price,city,demand"]
    columns = zip(temperature, price, city, demand, strict=True)
    lines += [f"{day},{t:.2f},{p:.2f},{c},{y:.1f}" for day, (t, p, c, y) in enumerate(columns)]
    write_new_file(table, ("\n".join(lines) + "\n").encode())
    write_new_file(bounds, BOUNDS.encode())
    if json_:
        print_json({"data": str(table), "bounds": str(bounds)})
        return
    output_console().print(f"Written to {table}: {DAYS:,} generated days", markup=False)
    output_console().print(f"Written to {bounds}: their public bounds", markup=False)


def _fit_demo_without_privacy(sample: Synthetic) -> np.ndarray:
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


@reports_errors
def reproduce(context: typer.Context) -> None:
    """Run the papers' tables and figures again; needs the distribution dpconvex-reproduction."""
    if importlib.util.find_spec(REPRODUCTION_PACKAGE) is None:
        raise InputError(
            "The papers' tables and figures are a distribution of their own, which is not "
            "installed. Install it with `pip install dpconvex-reproduction`, or from a clone of "
            "dpconvex with `pip install . ./reproduction`."
        )
    importlib.import_module(f"{REPRODUCTION_PACKAGE}.command").main(context.args)
