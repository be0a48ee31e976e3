"""What a user gets without naming a mechanism, on twenty awkward but ordinary tables.

Every table states bounds that a careful person could know and no more. Test loss of the default
over that of a fit without privacy, and over that of the better of two private constants that spend
the whole budget on one number. Half of the tables were looked at while the default was made
(``TUNING``), the others are blind.

``python -m benchmarks.shapes --rows 60000 --epsilon 1 --runs 3 --half tuning`` prints one line per
table; with ``DPCONVEX_PREVIOUS`` naming the ``src`` folder of an older checkout its default is run
as well.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, mean_pinball_loss

from benchmarks import Measurement
from dpconvex import DPLogisticRegression, DPQuantileRegressor
from dpconvex.core.calibration import gaussian_mu
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Pinball
from dpconvex.objectives import EmpiricalObjective
from dpconvex.smoothing import LogisticKernel, convolve
from dpconvex.solvers import Newton

Array = np.ndarray
DELTA = 1e-6
TEST_ROWS = 40_000


@dataclass(frozen=True)
class Table:
    """Rows and targets of one kind, with public bounds.

    Attributes
    ----------
    draw : callable
        ``draw(rng, n)`` returns X and y.
    bounds : pair
        Feature bounds.
    target : pair or None
        Target bounds; None for labels.
    level : float
        Quantile; of no meaning for labels.
    bar : float
        Largest loss over that without privacy at epsilon 1 and 60,000 rows.
    """

    draw: Callable[[np.random.Generator, int], tuple[Array, Array]]
    bounds: tuple[Any, Any]
    target: tuple[float, float] | None = None
    level: float = 0.5
    bar: float = 1.05


def labels(rng: np.random.Generator, margins: Array) -> Array:
    return np.where(rng.random(len(margins)) < expit(margins), 1.0, -1.0)


def one_flag(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = (rng.random((n, 1)) < 0.27).astype(float)
    return X, 20 + 3 * X[:, 0] + 4 * rng.standard_normal(n)


def rare_flags(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = (rng.random((n, 5)) < [0.01, 0.02, 0.03, 0.05, 0.08]).astype(float)
    return X, 5 + X @ [6.0, -4, 3, 2, -2] + rng.standard_normal(n)


def zero_inflated(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = rng.gamma(2.0, 10.0, (n, 4)) * (rng.random((n, 4)) < 0.15)
    return X, 10 + X @ [0.3, 0.1, -0.2, 0.4] + (2 + 0.02 * X[:, 0]) * rng.standard_normal(n)


def flag_and_income(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    flag = rng.random(n) < 0.3
    income = np.exp(10.3 + 0.6 * rng.standard_normal(n))
    y = 2000 + 0.3 * income + 4000 * flag + 0.1 * income * rng.standard_normal(n)
    return np.column_stack([flag, income]), y


def wide_target(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = rng.standard_normal((n, 20))
    return X, X @ np.linspace(-1, 1, 20) + 1.5 * rng.standard_normal(n)


def heavy_and_curved(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = rng.standard_t(3, (n, 5))
    y = X[:, 0] + 0.5 * np.abs(X[:, 1]) + np.tanh(X[:, 2]) + 0.5 * rng.standard_t(4, n)
    return X, y


def money(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = np.column_stack([rng.integers(16, 70, n), rng.integers(0, 20, n), rng.random(n) < 0.45])
    centre = 8.5 + 0.01 * X[:, 0] + 0.08 * X[:, 1] - 0.3 * X[:, 2]
    return X.astype(float), np.exp(centre + 0.9 * rng.standard_normal(n))


def unequal_scales(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = rng.standard_normal((n, 6)) * [1, 10, 100, 1, 0.1, 1]
    return X, X @ [1, 0.1, 0.02, -1, 10, 0] + rng.standard_normal(n)


def collinear(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    Z = rng.standard_normal((n, 3))
    X = np.column_stack([Z, Z[:, 0], Z[:, 0] + Z[:, 1], np.full(n, 3.0), np.zeros(n)])
    return X, 1 + Z @ [1.0, -1, 0.5] + 0.7 * rng.standard_normal(n)


def far_targets(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = rng.random((n, 3))
    return X, 100 + X @ [0.5, -0.3, 0.2] + 0.1 * rng.standard_normal(n)


def indicators(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    chance = 1 / np.arange(1, 21)
    chosen = rng.choice(20, (n, 10), p=chance / chance.sum())
    X = np.zeros((n, 200))
    for block in range(10):
        X[np.arange(n), 20 * block + chosen[:, block]] = 1
    effects = np.random.default_rng(1).standard_normal(200)
    return X, X @ effects


def indicator_values(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X, signal = indicators(rng, n)
    return X, signal + 2 * rng.standard_normal(n)


def indicator_labels(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X, signal = indicators(rng, n)
    return X, labels(rng, 0.6 * signal - 0.5)


def off_centre(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = np.column_stack(
        [290 + 10 * rng.standard_normal(n), 1013 + 8 * rng.standard_normal(n), rng.random(n)]
    )
    y = 0.1 * (X[:, 0] - 290) - 0.05 * (X[:, 1] - 1013) + X[:, 2] + rng.gumbel(size=n)
    return X, y


def income_and_flag(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    flag = rng.random(n) < 0.3
    income = np.exp(10.3 + 0.6 * rng.standard_normal(n))
    margins = -0.6 + 1.1 * flag + 1e-5 * (income - 35_000)
    return np.column_stack([income, flag]), labels(rng, margins)


def few_positive(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = rng.standard_normal((n, 8))
    return X, labels(rng, -5.2 + X @ [1.0, 0.5, -0.5, 0, 0, 0.3, 0, 0])


def zero_block(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = np.zeros((n, 15))
    X[:, :5] = rng.random((n, 5))
    return X, labels(rng, X[:, :5] @ [2.0, -2, 1, 0, 1] - 1)


def one_column(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = rng.standard_normal((n, 1))
    return X, labels(rng, 0.5 + 1.5 * X[:, 0])


def unequal_labels(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = rng.standard_normal((n, 6)) * [1, 10, 100, 1, 0.1, 1]
    return X, labels(rng, X @ [1, 0.1, 0.01, -1, 5, 0])


def heavy_labels(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    X = np.exp(1.2 * rng.standard_normal((n, 4)))
    return X, labels(rng, np.log(X) @ [1.0, -0.5, 0.5, 0])


def flag_among_copies(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    flag = (rng.random(n) < 0.05).astype(float)
    x = rng.standard_normal(n)
    X = np.column_stack([flag, x, x, np.ones(n)])
    return X, labels(rng, -1 + 1.5 * flag + 0.5 * x)


WIDE = [1e4, 1e5, 1e6, 1e4, 1e3, 1e4]
TUNING: dict[str, Table] = {
    "one flag, median": Table(one_flag, (0, 1), (0, 100)),
    "zero-inflated, 0.9": Table(zero_inflated, (0, 500), (-100, 300), 0.9, 1.15),
    "wide target, 20 columns, 0.9": Table(wide_target, (-5, 5), (-250, 250), 0.9),
    "money, 0.9": Table(money, ([0, 0, 0], [100, 30, 1]), (0, 1e6), 0.9, 1.15),
    "unequal scales, wide bounds, 0.25": Table(
        unequal_scales, ([-v for v in WIDE], WIDE), (-100, 100), 0.25
    ),
    "targets 100 ranges away": Table(far_targets, (0, 1), (0, 1)),
    "income and flag, labels": Table(income_and_flag, ([0, 0], [1e6, 1])),
    "1 % positive labels": Table(few_positive, (-6, 6)),
    "200 indicators, labels": Table(indicator_labels, (0, 1)),
    "heavy rows, labels": Table(heavy_labels, (0, 1000), bar=1.15),
}
BLIND: dict[str, Table] = {
    "rare flags, median": Table(rare_flags, (0, 1), (-50, 50)),
    "flag and income, median": Table(flag_and_income, ([0, 0], [1, 1e6]), (0, 1e6)),
    "heavy rows, curved, median": Table(heavy_and_curved, (-100, 100), (-100, 100), 0.5, 1.15),
    "constant, copies, collinear, 0.75": Table(collinear, (-10, 10), (-20, 20), 0.75),
    "200 indicators, median": Table(indicator_values, (0, 1), (-50, 50)),
    "off centre, 0.1": Table(off_centre, ([0, 0, 0], [1000, 2000, 10]), (-100, 100), 0.1),
    "a block of zeros, labels": Table(zero_block, (0, 1)),
    "one column, labels": Table(one_column, (-10, 10)),
    "unequal scales, wide bounds, labels": Table(unequal_labels, ([-v for v in WIDE], WIDE)),
    "a flag among copies, labels": Table(flag_among_copies, (-10, 10)),
}
TABLES = {**TUNING, **BLIND}


def loss_of(table: Table, y: Array, predicted: Array) -> float:
    """Return the mean loss of predicted quantiles, or of probabilities of the label 1."""
    if table.target is not None:
        return float(mean_pinball_loss(y, predicted, alpha=table.level))
    return float(log_loss(y, np.clip(predicted, 1e-12, 1 - 1e-12), labels=[-1.0, 1.0]))


def predictions(model: Any, X: Array) -> Array:
    found = model.predict_proba(X)[:, 1] if hasattr(model, "predict_proba") else model.predict(X)
    return np.asarray(found)


def default_model(table: Table, epsilon: float, seed: int) -> Any:
    shared = {"epsilon": epsilon, "delta": DELTA, "feature_bounds": table.bounds}
    if table.target is None:
        return DPLogisticRegression(random_state=seed, **shared)
    return DPQuantileRegressor(table.level, target_bounds=table.target, random_state=seed, **shared)


def public_loss(table: Table, X: Array, y: Array, X_test: Array, y_test: Array) -> float:
    """Fit without privacy on standardised columns."""
    centre = X.mean(axis=0)
    spread = np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    rows = (X - centre) / spread
    test = (X_test - centre) / spread
    if table.target is None:
        plain = LogisticRegression(C=1e6, max_iter=2000).fit(rows, y)
        return loss_of(table, y_test, plain.predict_proba(test)[:, 1])
    # Newton on the pinball loss, smoothed over a hundredth of the quartiles' distance.
    middle = np.median(y)
    spread = float(np.subtract(*np.quantile(y, [0.75, 0.25])))
    row_map = RowMap.from_bounds(X.shape[1], (rows.min(), rows.max()), 1e6)
    engine = MemoryRows(rows, y, row_map, middle, 1 / spread, threads=1)
    smooth = convolve(Pinball(table.level), LogisticKernel(), 0.01)
    theta = (
        Newton().solve(EmpiricalObjective(engine, smooth, 1e-7), np.zeros(engine.dim), 1e-6).point
    )
    coef, intercept = row_map.to_user_units(theta, middle, 1 / spread)
    return loss_of(table, y_test, test @ coef + intercept)


def constant_losses(
    table: Table, y: Array, y_test: Array, epsilon: float, rng: np.random.Generator
) -> list[float]:
    """Return the losses of private constants that spend the whole budget: bisection, and an
    averaged descent.
    """
    n = len(y)
    mu = gaussian_mu(epsilon, DELTA)
    if table.target is None:
        share = (np.count_nonzero(y > 0) + rng.standard_normal() / mu) / n
        chance = np.full(len(y_test), np.clip(share, 1 / n, 1 - 1 / n))
        return [loss_of(table, y_test, chance)]
    low, high = table.target
    steps = 12
    (bottom, top) = table.target
    for _ in range(steps):
        middle = (bottom + top) / 2
        count = np.count_nonzero(y <= middle) + math.sqrt(steps) / mu * rng.standard_normal()
        bottom, top = (bottom, middle) if count > table.level * n else (middle, top)
    found = [(bottom + top) / 2]
    steps = 40
    point = (low + high) / 2
    kept = []
    for step in range(steps):
        rate = (high - low) * 0.5 * 0.9**step
        count = np.count_nonzero(y <= point) + math.sqrt(steps) / mu * rng.standard_normal()
        point = min(max(point + rate * (table.level - count / n), low), high)
        kept += [point] * (step >= steps // 2)
    found.append(float(np.mean(kept)))
    return [loss_of(table, y_test, np.full(len(y_test), value)) for value in found]


def measure(name: str, n: int, epsilon: float, runs: int, rivals: bool = True) -> dict[str, Any]:
    """Return mean test losses over the runs: of the default, without privacy, and of a private
    constant.
    """
    table = TABLES[name]
    losses: dict[str, list[Any]] = {"default": [], "public": [], "constant": []}
    for seed in range(runs):
        rng = np.random.default_rng([seed, 17])
        X, y = table.draw(rng, n)
        X_test, y_test = table.draw(rng, TEST_ROWS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = default_model(table, epsilon, seed).fit(X, y)
        losses["default"].append(loss_of(table, y_test, predictions(model, X_test)))
        if rivals:
            losses["public"].append(public_loss(table, X, y, X_test, y_test))
            losses["constant"].append(constant_losses(table, y, y_test, epsilon, rng))
    return {
        "name": name,
        "default": float(np.mean(losses["default"])),
        "error": float(np.std(losses["default"]) / math.sqrt(max(1, runs - 1))),
        "public": float(np.mean(losses["public"])) if rivals else math.nan,
        "constant": float(np.min(np.mean(losses["constant"], axis=0))) if rivals else math.nan,
    }


def previous(names: list[str], n: int, epsilon: float, runs: int) -> dict[str, float]:
    """Return mean test losses of an older default, in a process of its own; nothing if none is
    named.
    """
    source = os.environ.get("DPCONVEX_PREVIOUS")
    if not source:
        return {}
    command = [
        sys.executable,
        "-m",
        "benchmarks.shapes",
        "--rows",
        str(n),
        "--epsilon",
        str(epsilon),
    ]
    command += ["--runs", str(runs), "--json", "--tables", *names]
    environment = {**os.environ, "PYTHONPATH": source, "DPCONVEX_PREVIOUS": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return {found["name"]: found["default"] for found in map(json.loads, done.stdout.splitlines())}


def run(n: int = 60_000, epsilon: float = 1.0, runs: int = 3) -> Iterator[Measurement]:
    older = previous(list(TABLES), n, epsilon, runs)
    for name, table in TABLES.items():
        found = measure(name, n, epsilon, runs)
        half = "tuning" if name in TUNING else "blind"
        detail = f"{half}; ± {found['error'] / found['public']:.4f}, "
        detail += f"constant {found['constant'] / found['public']:.3f}"
        if name in older:
            detail += f", before {older[name] / found['public']:.3f}"
        yield Measurement(
            f"{name}, n={n:,}, eps={epsilon:g}",
            found["default"] / found["public"],
            table.bar,
            detail=detail,
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shapes")
    parser.add_argument("--rows", type=int, nargs="+", default=[60_000])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[1.0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--half", choices=["tuning", "blind", "all"], default="all")
    parser.add_argument("--tables", nargs="+")
    parser.add_argument("--json", action="store_true", help="losses of the default alone")
    options = parser.parse_args()
    names = options.tables or list({"tuning": TUNING, "blind": BLIND, "all": TABLES}[options.half])
    for n in options.rows:
        for epsilon in options.epsilon:
            older = {} if options.json else previous(names, n, epsilon, options.runs)
            for name in names:
                found = measure(name, n, epsilon, options.runs, rivals=not options.json)
                if options.json:
                    print(json.dumps(found), flush=True)
                    continue
                text = f"{name:<38} n={n:<7} eps={epsilon:<5g}"
                text += f" over public {found['default'] / found['public']:8.4f}"
                text += f" ± {found['error'] / found['public']:.4f}"
                text += f"  over constant {found['default'] / found['constant']:8.4f}"
                text += f"  (constant {found['constant'] / found['public']:.3f}"
                text += f", before {older[name] / found['public']:.3f})" if name in older else ")"
                print(text, flush=True)


if __name__ == "__main__":
    main()
