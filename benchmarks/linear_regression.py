"""Test error of private linear regression against AdaSSP and boosted AdaSSP, on the same rows and
under one accounting.

All have the same public bounds, replace-one neighbours, and noise calibrated in Gaussian DP: what a
rival's paper spends by weaker composition is not held against it. AdaSSP (Wang 2018) releases the
smallest eigenvalue, the second moments and the products, a third of the budget each, and adds a
penalty that follows from them. Boosted AdaSSP (Tang and others 2023) fits residuals, limited to a
clip, several times with one release of the moments; rounds and clip are the best of six in
hindsight, on the test rows. diffprivlib's linear regression is not here: its sensitivity is 0 for
bounds (0, 100), which protects nobody.

    python -m benchmarks.linear_regression --runs 5
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LinearRegression

from benchmarks import Measurement
from dpconvex import DPLinearRegression
from dpconvex.core.calibration import gaussian_mu
from dpconvex.engine import RowMap
from dpconvex_reproduction.bench.methods.adassp import adassp, boosted_adassp
from dpconvex_reproduction.datasets import load_bike, load_census_wages

Array = NDArray[np.float64]
Bounds = tuple[Array, Array]
RUNS = 5
DELTA = 1e-6
ROUNDS = (3, 10)
CLIPS = (0.1, 0.3, 1.0)


def errors(
    X: Array, y: Array, bounds: Bounds, target: tuple[float, float], epsilon: float, seed: int
) -> dict[str, float]:
    """Mean squared test errors, in units of the variance of the target, by method."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(y))
    held = max(1000, len(y) // 5)
    test = order[:held]
    train = order[held:]
    row_map = RowMap.from_bounds(X.shape[1], bounds)
    shift = (target[0] + target[1]) / 2
    half = (target[1] - target[0]) / 2
    mapped = (np.clip(X, *bounds) - np.array(row_map.shift)) * np.array(row_map.scale)
    rows = np.column_stack([np.ones(len(y)), mapped]) / math.hypot(1, row_map.max_norm)
    scaled = (y - shift) / half
    mu = gaussian_mu(epsilon, DELTA)

    def error(theta: Array) -> float:
        return float(np.mean((scaled[test] - rows[test] @ theta) ** 2) / np.var(scaled[test]))

    model = DPLinearRegression(
        epsilon=epsilon, delta=DELTA, feature_bounds=bounds, target_bounds=target
    ).fit(X[train], y[train])
    plain = LinearRegression().fit(X[train], y[train])
    private = np.mean((y[test] - model.predict(X[test])) ** 2) / np.var(y[test])
    return {
        "ours": float(private),
        "AdaSSP": error(adassp(rows[train], scaled[train], mu, 2, rng)),
        "boosted": min(
            error(boosted_adassp(rows[train], scaled[train], mu, 2, rounds, clip, rng))
            for rounds, clip in product(ROUNDS, CLIPS)
        ),
        "not private": float(np.mean((y[test] - plain.predict(X[test])) ** 2) / np.var(y[test])),
    }


def generated(rows: int) -> Callable[[int], tuple[Array, Array, Bounds, tuple[float, float]]]:
    """Ten columns of unequal scale, a flag among them, and Student noise; bounds twice too wide."""

    def make(seed: int) -> tuple[Array, Array, Bounds, tuple[float, float]]:
        rng = np.random.default_rng([rows, seed])
        scale = np.geomspace(0.1, 10, 9)
        X = rng.normal(0, scale, (rows + max(1000, rows // 4), 9)).clip(-4 * scale, 4 * scale)
        X = np.column_stack([X, rng.random(len(X)) < 0.2])
        beta = np.r_[rng.normal(0, 1, 9) / scale / 3, 1.0]
        y = X @ beta + 0.5 * rng.standard_t(4, len(X))
        reach = np.r_[8 * scale, 1.0]
        return X, y, (-reach, reach), (-16.0, 16.0)

    return make


def settings() -> dict[
    str, tuple[Callable[[int], tuple[Array, Array, Bounds, tuple[float, float]]], float]
]:
    """The ten named settings."""

    def real(loader: Callable[..., object], **options: bool) -> Callable[[int], tuple]:
        def make(seed: int) -> tuple:
            data = loader(**options)
            low, high = (
                np.broadcast_to(b, data.X.shape[1]).astype(float) for b in data.feature_bounds
            )
            return (
                np.asarray(data.X, float),
                np.asarray(data.y, float),
                (low, high),
                data.target_bounds,
            )

        return make

    return {
        "bike, epsilon 1": (real(load_bike), 1.0),
        "bike with indicators, epsilon 1": (real(load_bike, one_hot=True), 1.0),
        "wages, epsilon 1": (real(load_census_wages), 1.0),
        "wages, epsilon 0.1": (real(load_census_wages), 0.1),
        **{
            f"{rows:,} rows, epsilon {epsilon:g}": (generated(rows), epsilon)
            for rows in (2_000, 20_000, 200_000)
            for epsilon in (0.1, 1.0)
        },
    }


def measure(runs: int = RUNS) -> Iterator[Measurement]:
    """Yield our error over the better rival's, setting by setting, and how many are won."""
    won = 0
    for name, (make, epsilon) in settings().items():
        found = [errors(*make(seed), epsilon, seed) for seed in range(runs)]
        mean = {method: float(np.mean([each[method] for each in found])) for method in found[0]}
        rival = min(mean["AdaSSP"], mean["boosted"])
        won += mean["ours"] <= rival
        detail = ", ".join(f"{method} {value:.4f}" for method, value in mean.items())
        yield Measurement(name, mean["ours"] / rival, 1.0, detail=detail)
    yield Measurement("settings won of ten", won, 9, at_most=False)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    for measurement in measure(parser.parse_args().runs):
        print(f"{measurement.name:<34} {measurement.value:8.4f}  {measurement.detail}", flush=True)
