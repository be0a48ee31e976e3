"""Nothing jumps: five per cent more rows change what is planned, forecast and measured by little.

Planned: every phase's noise, without its trend ``1 / n^2``, and what is given up where noise rules, for rows from 200
to 1e6 and budgets from 0.02 to 2. Measured: the default's loss on the same tables, cut at 5 % more and more rows.
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
from dpconvex.losses import Logistic, Pinball
from dpconvex.mechanisms import NoisyGradientDescent
from dpconvex.mechanisms.gradient_plan import descent_noise, plan_gradient
from dpconvex.mechanisms.gradient_steps import expected_wander
from dpconvex.privacy import LinearBounds

STEP = 1.05
MEASURED = ("one flag, median", "money, 0.9", "one column, labels", "a block of zeros, labels")


def planned() -> dict[str, float]:
    """Return the largest factor by which a step changes each planned number beyond its trend."""
    worst: dict[str, float] = {}
    settings = NoisyGradientDescent().settings()
    sizes = np.unique(np.geomspace(200, 1e6, math.ceil(math.log(5000, STEP))).astype(int)).tolist()
    for loss in (Pinball(0.5), Pinball(0.9), Logistic()):
        for d, mu in itertools.product((1, 10, 100), (0.02, 0.2, 2.0)):
            row_map = RowMap.from_bounds(d, (-1.0, 1.0))
            rows = []
            for n in sizes:
                bounds = LinearBounds(n, d, loss, row_map.row_norm, row_map.max_norm)
                plan = plan_gradient(bounds, mu, settings)
                found = {"excess of the descent": descent_noise(plan, bounds, mu) ** 2}
                for name, phase in plan.phases.items():
                    found[f"noise, {name}"] = phase.std(mu) ** 2 / phase.releases / n**2
                row = {name: value * n**2 for name, value in found.items()}
                # What is given up of a way that noise rules, on top of the loss that is left anyway.
                row["1 + share given up"] = 2 - 1 / (1 + expected_wander(plan, bounds, mu) ** 2)
                rows.append(row)
            for one, other in itertools.pairwise(rows):
                for name in one:
                    change = math.exp(abs(math.log(other[name] / one[name])))
                    worst[name] = max(worst.get(name, 1.0), change)
    return worst


def measured(name: str, epsilon: float, start: int, steps: int, runs: int) -> list[float]:
    """Return mean test losses at ``start``, ``1.05 start``, ...: same rows, same seeds."""
    table, losses = TABLES[name], np.zeros(steps)
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
                f"measured, {name}, from {start:,} rows", change, 1.2,
                detail="largest rise of the loss within a step; noise included",
            )  # fmt: skip
