r"""Private Newton steps with two noises (Ganesh, Haghifam, Steinke and Thakurta 2023) for logistic
regression.

Rows are no longer than 1, the objective is a mean over a public number of rows. Each of T steps
releases a noisy gradient ``g``, sensitivity ``1/n``, and then ``(H + floor I)^{-1} g`` with noise
of its own. A row adds ``v v'`` with ``|v|^2 <= 1/(4n)`` to H, so the direction moves by at most
``|g| r / (floor (floor + r))``, ``r = 1/(4n)``. Both noises are Gaussian, and all steps together
are accounted in Gaussian DP.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dpconvex_reproduction.bench.method import ADD_OR_REMOVE, Budget, Method
from dpconvex_reproduction.bench.problems import BenchProblem

Array = NDArray[np.float64]

_FIRST_SHARE = 0.7  # of each step's budget, for the gradient


def newton_steps(
    X: Array, y: Array, mu: float, steps: int, floor: float, rng: np.random.Generator
) -> Array:
    """Return the last point of so many private Newton steps from 0."""
    n, d = X.shape
    per_step = mu / math.sqrt(steps)
    first = per_step * math.sqrt(_FIRST_SHARE)
    second = per_step * math.sqrt(1 - _FIRST_SHARE)
    moved = 1 / (4 * n)
    theta = np.zeros(d)
    for _ in range(steps):
        slopes = expit(-y * (X @ theta))
        gradient = -X.T @ (slopes * y) / n + rng.normal(0, 1 / (n * first), d)
        hessian = (X * (slopes * (1 - slopes) / n)[:, None]).T @ X
        direction = np.linalg.solve(hessian + floor * np.eye(d), gradient)
        reach = np.linalg.norm(gradient) * moved / (floor * (floor + moved))
        theta = theta - direction - rng.normal(0, reach / second, d)
    return theta


class DoubleNoiseNewton(Method):
    """Double-noise Newton, the best of eight settings of steps and of the floor of the Hessian."""

    name = "double-noise Newton"
    relations = (ADD_OR_REMOVE,)
    settings: ClassVar = {
        f"{steps} steps, floor {floor:g} of its scale": {"steps": steps, "floor": floor}
        for steps in (5, 20)
        for floor in (1.0, 3.0, 10.0, 30.0)
    }

    def fit(self, problem: BenchProblem, budget: Budget, seed: int, **setting: Any) -> Self:
        """Fit."""
        self.problem = problem
        rows = problem.unit_rows(problem.X)
        n, d = rows.shape
        # The two noises are of one size at a floor of about (sqrt(T) / (4 n mu)): the scale that
        # floors are shares of.
        scale = math.sqrt(setting["steps"] * d) / (4 * n * budget.mu)
        floor = setting["floor"] * scale
        rng = np.random.default_rng(seed)
        self.theta = newton_steps(rows, problem.y, budget.mu, setting["steps"], floor, rng)
        return self

    def predict(self, X: NDArray[Any]) -> Array:
        """Return log-odds."""
        return np.asarray(self.problem.unit_rows(X) @ self.theta)

    def guarantee(self, problem: BenchProblem, budget: Budget) -> str:
        """Return the budget."""
        return (
            f"({budget.epsilon:g}, {budget.delta:g})-DP, {budget.relation}, in Gaussian DP over "
            "all steps; floating-point sums and noise are not covered"
        )


METHODS = (DoubleNoiseNewton(),)
