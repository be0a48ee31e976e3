"""Untuned private quantile regression by noisy gradient descent, against the paper and against no
privacy.

Figure 4 of the quantile paper (delta 1e-2, n = 500 and 1000): relative excess risk of the default
estimator over that of the paper's Algorithm 2 with its printed constants, the better of its two
presets counting. Both relations.

Real data, epsilon 1, delta 1e-7: test pinball loss over that of a fit without privacy, 20 random
splits, with the round public bounds that the loaders state.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
from sklearn.metrics import mean_pinball_loss

from benchmarks import Measurement
from dpconvex import DPQuantileRegressor
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Pinball
from dpconvex.objectives import EmpiricalObjective
from dpconvex.smoothing import LogisticKernel, convolve
from dpconvex.solvers import Newton
from dpconvex_reproduction.datasets import load_bike, load_census_wages
from dpconvex_reproduction.datasets.simulated import make_quantile_regression
from dpconvex_reproduction.quantile_sco import Problem, algorithm_2

QUANTILE = 0.7
DELTA = 1e-2
RADIUS = 10.0
REPEATS = 100
RELATIONS = ("replace_one", "add_or_remove_one")
SEEDS = 20
OUT = Path("out")


def mean_and_error(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def recorded(name: str, measurements: Iterator[Measurement]) -> Iterator[Measurement]:
    """Pass measurements on, and write them to a JSON file at the end."""
    records = []
    for measurement in measurements:
        records.append({**asdict(measurement), "passed": measurement.passed})
        yield measurement
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(records, indent=2) + "\n")


def public_fit(
    X: np.ndarray, y: np.ndarray, bounds: tuple[np.ndarray, np.ndarray], level: float
) -> tuple[np.ndarray, float]:
    """Fit without privacy: Newton on the pinball loss, smoothed over 2 % of the target's spread."""
    row_map = RowMap.from_bounds(X.shape[1], bounds, 1e6)
    centre = float(np.mean(y))
    scale = 1 / float(np.std(y))
    rows = MemoryRows(X, y, row_map, centre, scale)
    objective = EmpiricalObjective(rows, convolve(Pinball(level), LogisticKernel(), 0.02), 1e-7)
    theta = Newton().solve(objective, np.zeros(rows.dim), 1e-7).point
    return row_map.to_user_units(theta, centre, scale)


def figure_4(repeats: int) -> Iterator[Measurement]:
    for epsilon in (0.5, 1.0):
        for n in (500, 1000):
            rng = np.random.default_rng([n, round(10 * epsilon)])
            mine: dict[str, list[float]] = {relation: [] for relation in RELATIONS}
            theirs: list[list[float]] = []
            for seed in range(repeats):
                data = make_quantile_regression(n, quantile=QUANTILE, rng=rng)
                for relation, risks in mine.items():
                    model = DPQuantileRegressor(
                        QUANTILE,
                        epsilon=epsilon,
                        delta=DELTA,
                        neighbors=relation,
                        nominal_samples=None if relation == "replace_one" else n,
                        feature_bounds=(-RADIUS, RADIUS),
                        target_bounds=(-60.0, 80.0),
                        random_state=seed,
                    ).fit(data.X, data.y)
                    risks.append(data.relative_excess_risk(np.r_[model.intercept_, model.coef_]))
                reach = 2 * float(np.linalg.norm(data.theta_star))
                problem = Problem(QUANTILE, epsilon, DELTA, RADIUS, reach)
                printed = [algorithm_2(data.X, data.y, problem, part, rng) for part in (1, 2)]
                theirs.append([data.relative_excess_risk(theta) for theta in printed])
            rival = np.array(theirs)
            value, error = mean_and_error(rival[:, rival.mean(axis=0).argmin()])
            for relation, risks in mine.items():
                mean, deviation = mean_and_error(np.array(risks))
                yield Measurement(
                    f"excess over Algorithm 2, eps={epsilon:g} n={n} {relation}",
                    mean / value,
                    0.1,
                    detail=f"{mean:.4f} ± {deviation:.4f} against {value:.3f} ± {error:.3f}",
                )


def real_data(seeds: int) -> Iterator[Measurement]:
    for load in (load_bike, load_census_wages):
        data = load()
        for quantile in (0.5, 0.9):
            model = DPQuantileRegressor(
                quantile,
                epsilon=1.0,
                delta=1e-7,
                feature_bounds=data.feature_bounds,
                target_bounds=data.target_bounds,
            )
            ratios = []
            for seed in range(seeds):
                order = np.random.default_rng(seed).permutation(len(data.y))
                test, train = np.split(order, [len(order) // 5])
                coef, intercept = public_fit(
                    data.X[train], data.y[train], data.feature_bounds, quantile
                )
                model.set_params(random_state=seed).fit(data.X[train], data.y[train])
                losses = [
                    mean_pinball_loss(data.y[test], orders, alpha=quantile)
                    for orders in (model.predict(data.X[test]), data.X[test] @ coef + intercept)
                ]
                ratios.append(losses[0] / losses[1])
            mean, error = mean_and_error(np.array(ratios))
            yield Measurement(
                f"test loss over non-private, {data.name} quantile {quantile:g}",
                mean,
                1.05,
                detail=f"± {error:.4f}, largest {max(ratios):.4f}, {model.certificate_.mechanism}",
            )


def run(quick: bool = False) -> Iterator[Measurement]:
    def all_of_it() -> Iterator[Measurement]:
        yield from real_data(3 if quick else SEEDS)
        yield from figure_4(10 if quick else REPEATS)

    yield from recorded("gradient_accuracy", all_of_it())
