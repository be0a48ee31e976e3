"""Linear regression from noisy second moments: AdaSSP (Wang 2018) and boosted AdaSSP (Tang and
others 2023).

Both see rows ``(1, x)`` of norm at most 1 and targets in [-1, 1], and release Gaussian sums, so the
noise is calibrated in Gaussian DP; what the papers spend by weaker composition is not held against
them.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpconvex_reproduction.bench.method import Budget, Method
from dpconvex_reproduction.bench.problems import BenchProblem

Array = NDArray[np.float64]


def noisy_moments(
    X: Array, mu: float, records: int, rng: np.random.Generator
) -> tuple[Array, float]:
    """Return noisy second moments with AdaSSP's penalty added, and the share of the budget that is
    left for products.

    Rows are no longer than 1; ``records`` is 1 where a neighbour has a row more or less, 2 where
    one is replaced. The moments then move by 1 or sqrt(2) in Frobenius norm and the least
    eigenvalue by 1. Two thirds of the budget.
    """
    d = X.shape[1]
    share = mu / math.sqrt(3)
    std = math.sqrt(records) / share
    noise = np.triu(rng.normal(0, std, (d, d)))
    noise += np.triu(noise, 1).T
    exact = X.T @ X
    least = float(np.linalg.eigvalsh(exact)[0]) + rng.normal(0, 1 / share)
    least = max(0.0, least - 1.7 / share)
    penalty = max(0.0, std * math.sqrt(d * math.log(2 * d**2 / 0.05)) - least)
    return exact + noise + penalty * np.eye(d), share


def adassp(X: Array, y: Array, mu: float, records: int, rng: np.random.Generator) -> Array:
    """Return AdaSSP's coefficients; rows no longer than 1, targets in [-1, 1]."""
    system, share = noisy_moments(X, mu, records, rng)
    products = X.T @ np.clip(y, -1, 1) + rng.normal(0, records / share, X.shape[1])
    return np.asarray(np.linalg.solve(system, products))


def boosted_adassp(
    X: Array, y: Array, mu: float, records: int, rounds: int, clip: float, rng: np.random.Generator
) -> Array:
    """Return boosted AdaSSP's coefficients: rounds fit residuals, limited to ``clip``, with one
    set of moments.
    """
    system, share = noisy_moments(X, mu, records, rng)
    theta = np.zeros(X.shape[1])
    std = records * clip * math.sqrt(rounds) / share
    for _ in range(rounds):
        residual = np.clip(y - X @ theta, -clip, clip)
        theta += np.linalg.solve(system, X.T @ residual + rng.normal(0, std, theta.size))
    return theta


class AdaSSP(Method):
    """AdaSSP as printed: a third of the budget for the least eigenvalue, the moments and the
    products each.
    """

    name = "AdaSSP"
    tasks = ("linear",)

    def fit(self, problem: BenchProblem, budget: Budget, seed: int, **setting: Any) -> Self:
        """Fit."""
        self.problem = problem
        rng = np.random.default_rng(seed)
        rows = problem.unit_rows(problem.X)
        targets = np.clip(problem.unit_targets(), -1, 1)
        if setting:
            self.theta = boosted_adassp(
                rows, targets, budget.mu, budget.records, rng=rng, **setting
            )
        else:
            self.theta = adassp(rows, targets, budget.mu, budget.records, rng)
        return self

    def predict(self, X: NDArray[Any]) -> Array:
        """Return predictions."""
        return self.problem.target_units(self.problem.unit_rows(X) @ self.theta)

    def guarantee(self, problem: BenchProblem, budget: Budget) -> str:
        """Return the budget: three Gaussian releases."""
        return (
            f"({budget.epsilon:g}, {budget.delta:g})-DP, {budget.relation}: Gaussian releases of "
            "sensitivities computed from the row norm; floating-point sums and noise are not "
            "covered"
        )


class BoostedAdaSSP(AdaSSP):
    """Boosted AdaSSP, the best of six settings."""

    name = "boosted AdaSSP"
    settings: ClassVar = {
        f"{rounds} rounds, clip {clip:g}": {"rounds": rounds, "clip": clip}
        for rounds in (3, 10)
        for clip in (0.1, 0.3, 1.0)
    }


METHODS = (AdaSSP(), BoostedAdaSSP())
