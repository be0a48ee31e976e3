"""Nothing jumps: five per cent more rows change what is planned, forecast and measured by little.

Planned: every phase's noise, clips, and what is given to the search for a constant, for rows from
200 to 1e6 and budgets from 0.02 to 2. Measured: the default's loss on the same tables, cut at 5 %
more and more rows.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator

import numpy as np

from benchmarks import Measurement
from benchmarks.shapes import TABLES, default_model, loss_of, predictions
from dpconvex.engine import RowMap
from dpconvex.fit.fit_plan import plan_fit, planned_gradient_noise, small_budget_weight
from dpconvex.losses import Logistic, Pinball, Squared
from dpconvex.mechanisms import NoisyGradientDescent
from dpconvex.privacy import LinearBounds

STEP = 1.05
MEASURED = ("one flag, median", "money, 0.9", "one column, labels", "a block of zeros, labels")


def planned() -> dict[str, float]:
    """Return the largest factor by which a step changes each planned number; of all gradients,
    beyond its trend.
    """
    worst: dict[str, float] = {}
    settings = NoisyGradientDescent().settings()
    sizes = np.unique(np.geomspace(200, 1e6, math.ceil(math.log(5000, STEP))).astype(int)).tolist()
    for loss in (Pinball(0.5), Pinball(0.9), Squared(), Logistic()):
        for d, mu in itertools.product((1, 10, 100), (0.02, 0.2, 2.0)):
            row_map = RowMap.from_bounds(d, (-1.0, 1.0))
            rows = []
            for n in sizes:
                bounds = LinearBounds(n, d, loss, row_map.row_norm, row_map.max_norm)
                plan = plan_fit(bounds, mu, settings)
                noise = plan.calibrated_noise(bounds, mu)
                row = {
                    "all gradients": (planned_gradient_noise(plan.config, noise, bounds) * n) ** 2
                }
                for name, term in noise.items():
                    row[f"noise, {name}"] = term.scale**2 / term.releases
                row |= {
                    f"limit, {name}": getattr(plan.config, name)
                    for name in ("clip", "late_clip", "width", "radius_multiple")
                }
                row["1 + share of a constant"] = 1 + small_budget_weight(n * mu)
                rows.append(row)
            for one, other in itertools.pairwise(rows):
                for name in one.keys() & other.keys():  # late rounds begin with a small share
                    change = math.exp(abs(math.log(other[name] / one[name])))
                    worst[name] = max(worst.get(name, 1.0), change)
    return worst


def measured(name: str, epsilon: float, start: int, steps: int, runs: int) -> list[float]:
    """Return mean test losses at ``start``, ``1.05 start``, ...: same rows, same seeds."""
    table = TABLES[name]
    losses = np.zeros(steps)
    for seed in range(runs):
        rng = np.random.default_rng([seed, 29])
        X, y = table.draw(rng, round(start * STEP**steps))
        X_test, y_test = table.draw(rng, 10_000)
        for step in range(steps):
            n = round(start * STEP**step)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = default_model(table, epsilon, seed).fit(X[:n], y[:n])
            losses[step] += loss_of(table, y_test, predictions(model, X_test)) / runs
    return losses.tolist()


def run(runs: int = 20) -> Iterator[Measurement]:
    for name, change in planned().items():
        yield Measurement(f"planned, {name}", change, 1.2)
    for name in MEASURED:
        for start in (1000, 4000):
            losses = measured(name, 0.3, start, 6, runs)
            change = max(other / one for one, other in itertools.pairwise(losses))
            yield Measurement(
                f"measured, {name}, from {start:,} rows",
                change,
                1.2,
                detail="largest rise of the loss within a step; noise included",
            )
