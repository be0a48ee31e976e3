r"""Full-batch noisy gradient descent with momentum: what DP-SGD becomes when every step sees every
row.

A step adds noise to the sum of all rows' gradients, each limited to a length of ``clip``. A
neighbour moves that sum by ``clip`` (one row more or less) or ``2 clip`` (one replaced), and
``steps`` Gaussian sums of standard deviation ``records clip sqrt(steps) / mu`` are mu-Gaussian
private together. Step sizes fall to 0, so the last iterate is an average of late noise.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dpconvex_reproduction.bench.method import Budget, Method, Request
from dpconvex_reproduction.bench.problems import BenchProblem

Array = NDArray[Any]
_MOMENTUM = 0.9


def slopes(task: str, quantile: float | None, y: Array, scores: Array) -> Array:
    """Return the derivatives of the rows' losses in their scores, a column for each fit."""
    if task == "logistic":
        return np.asarray(-y * expit(-y * scores))
    if task == "linear":
        return np.asarray(scores - y)
    level = float(quantile or 0.5)
    return np.where(y > scores, -level, 1 - level)


def clipped_sums(X: Array, lengths: Array, slope: Array, clips: Array) -> Array:
    """Return sums over rows of ``slope_i x_i``, each summand limited to a length of ``clip``; a
    column for each fit.
    """
    sizes = np.abs(slope) * lengths[:, None]
    weights = slope * np.minimum(1.0, clips / np.maximum(sizes, 1e-30))
    return np.asarray(X.T @ weights.astype(X.dtype))


def descend(
    problem: BenchProblem,
    steps: int,
    rates: Sequence[float],
    clips: Sequence[float],
    stds: Sequence[float],
    seeds: Sequence[Sequence[int]],
) -> Array:
    """Return the last iterates, a column for each rate, limit, noise and seed; all fits pass
    over the rows together.
    """
    X = problem.with_constant(problem.X).astype(np.float32)
    y = problem.unit_targets().astype(np.float32)[:, None]
    lengths = np.linalg.norm(X, axis=1)
    generators = [np.random.default_rng(list(seed)) for seed in seeds]
    theta = np.zeros((X.shape[1], len(seeds)))
    velocity = np.zeros((X.shape[1], len(seeds)))
    limits = np.asarray(clips, dtype=np.float32)
    for step in range(steps):
        slope = slopes(problem.task, problem.quantile, y, X @ theta.astype(np.float32))
        noise = np.column_stack(
            [rng.normal(0, std, len(theta)) for rng, std in zip(generators, stds, strict=True)]
        )
        velocity = _MOMENTUM * velocity + (clipped_sums(X, lengths, slope, limits) + noise) / len(y)
        theta = theta - np.asarray(rates) * (1 - step / steps) * velocity
    return theta


class NoisyGradientDescent(Method):
    """All rows in every step, the best of many settings."""

    name = "noisy gradient descent"
    tasks = ("logistic", "linear", "quantile")
    settings: ClassVar = {
        f"{steps} steps, rate {rate:g}, clip {clip:g}": {"steps": steps, "rate": rate, "clip": clip}
        for steps in (100, 300, 1000)
        for rate in (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
        for clip in (0.3, 1.0, 3.0)
    }

    def run(
        self, problem: BenchProblem, requests: Sequence[Request]
    ) -> Iterator[tuple[Array, float]]:
        """Yield test scores of each request; fits of as many steps share their passes and their
        time.
        """
        rows = problem.with_constant(problem.X_test)
        asked = [
            (self.settings[name], budget, (seed, self._number(name)))
            for name, budget, seed in requests
        ]
        found: dict[int, tuple[Array, float]] = {}
        for steps in dict.fromkeys(setting["steps"] for setting, _, _ in asked):
            places = [k for k, (setting, _, _) in enumerate(asked) if setting["steps"] == steps]
            started = time.perf_counter()
            rates, clips = ([asked[k][0][word] for k in places] for word in ("rate", "clip"))
            stds = [_std(asked[k][1], steps, asked[k][0]["clip"]) for k in places]
            theta = descend(problem, steps, rates, clips, stds, [asked[k][2] for k in places])
            seconds = (time.perf_counter() - started) / len(places)
            for k, scores in zip(places, problem.target_units(rows @ theta).T, strict=True):
                found[k] = scores, seconds
        yield from (found[k] for k in range(len(asked)))

    def _number(self, name: str) -> int:
        """Return the place of a setting: part of the seed, so that a fit does not depend on
        those run beside it.
        """
        return list(self.settings).index(name)

    def fit(self, problem: BenchProblem, budget: Budget, seed: int, **setting: Any) -> Self:
        """Fit one setting."""
        std = _std(budget, setting["steps"], setting["clip"])
        number = next(self._number(name) for name, kept in self.settings.items() if kept == setting)
        self.problem = problem
        alone = [setting["rate"]], [setting["clip"]], [std], [(seed, number)]
        self.theta = descend(problem, setting["steps"], *alone)[:, 0]
        return self

    def predict(self, X: Array) -> Array:
        """Return log-odds or predictions."""
        return self.problem.target_units(self.problem.with_constant(X) @ self.theta)

    def guarantee(self, problem: BenchProblem, budget: Budget) -> str:
        """Return the budget: Gaussian sums."""
        promise = f"({budget.epsilon:g}, {budget.delta:g})-DP, {budget.relation}"
        free = (
            f"the choice among {len(self.settings)} settings is not charged, floating point is "
            "not covered"
        )
        return f"{promise}: Gaussian sums of clipped gradients, composed exactly; {free}"


def _std(budget: Budget, steps: int, clip: float) -> float:
    return budget.records * clip * math.sqrt(steps) / budget.mu


METHODS = (NoisyGradientDescent(),)
