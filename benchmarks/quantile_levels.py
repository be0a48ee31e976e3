"""Nine quantile levels under one budget, against one level with all of it and nine fits with a
third of mu each.

Rows are uniform, noise is normal and its scale depends on the row, so that slopes differ from level
to level and every quantile is linear. Excess is the expected pinball loss over that of the true
quantile, at fresh rows. ``python -m benchmarks.quantile_levels --runs 40`` measures more than the
default.
"""

from __future__ import annotations

import argparse
import math
import warnings
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from benchmarks import Measurement
from dpconvex import DPQuantileRegressor
from dpconvex.datasets import expected_pinball
from dpconvex.privacy import ApproxDP

Array = NDArray[np.float64]

LEVELS = tuple(round(0.1 * k, 1) for k in range(1, 10))
ROWS = 20_000
TEST = 4000
NOISE = 0.25
BARS = {1.0: 1.5, 0.3: 4.0}  # excess of nine levels over that of one, by epsilon
SEPARATE = 0.6  # and over that of nine fits


def scale(X: Array) -> Array:
    """Return the standard deviation of the target at rows."""
    return np.asarray(NOISE * (1 + 0.5 * X[:, 0] - 0.3 * X[:, 1]))


def location(X: Array) -> Array:
    """Return the median of the target at rows."""
    return np.asarray(X @ np.linspace(-0.4, 0.4, X.shape[1]) + 0.1)


def excess(X: Array, predicted: Array, level: float) -> float:
    """Return the expected pinball loss of predictions over that of the true quantile."""
    std = scale(X)
    middle = location(X)
    best = middle + std * ndtri(level)
    losses = [expected_pinball(middle - at, std, level) for at in (predicted, best)]
    return float(np.mean(losses[0] - losses[1]))


def compare(d: int, epsilon: float, seed: int) -> tuple[Array, Array, Array]:
    """Return the excess of each level: of one fit, of fits with the whole budget, of fits with a
    third of mu.
    """
    rng = np.random.default_rng([seed, d])
    X = rng.uniform(-1, 1, (ROWS, d))
    fresh = rng.uniform(-1, 1, (TEST, d))
    y = location(X) + scale(X) * rng.normal(size=ROWS)
    mu = ApproxDP(epsilon, 1e-6).as_gaussian().mu
    facts = {"feature_bounds": (-1, 1), "target_bounds": (-2, 2), "random_state": seed}
    together = DPQuantileRegressor(LEVELS, mu=mu, **facts).fit(X, y).predict(fresh)
    if (np.diff(together, axis=1) < 0).any():
        raise AssertionError("Quantiles cross.")
    found = [[excess(fresh, together[:, k], level) for k, level in enumerate(LEVELS)]]
    for each in (mu, mu / math.sqrt(len(LEVELS))):
        fits = (DPQuantileRegressor(level, mu=each, **facts).fit(X, y) for level in LEVELS)
        pairs = zip(fits, LEVELS, strict=True)
        found.append([excess(fresh, fit.predict(fresh), level) for fit, level in pairs])
    one, whole, thirds = map(np.array, found)
    return one, whole, thirds


def run(runs: int = 5) -> Iterator[Measurement]:
    """Measure with so many runs."""
    for d in (5, 10):
        for epsilon, bar in BARS.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                together, whole, thirds = np.mean(
                    [compare(d, epsilon, seed) for seed in range(runs)], axis=0
                )
            where = f"d={d}, epsilon={epsilon:g}"
            yield Measurement(
                f"nine levels over one, {where}",
                together.sum() / whole.sum(),
                bar,
                detail=f"excess {together.mean():.2e}, one level {whole.mean():.2e}, {runs} runs",
            )
            yield Measurement(
                f"nine levels over nine fits, {where}",
                together.sum() / thirds.sum(),
                SEPARATE,
                detail=f"nine fits {thirds.mean():.2e}",
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    for measurement in run(parser.parse_args().runs):
        verdict = "ok" if measurement.passed else "MISSED"
        print(
            f"{measurement.name:<46} {measurement.value:6.3f} <= {measurement.bar:g} {verdict}",
            end="  ",
        )
        print(measurement.detail, flush=True)
