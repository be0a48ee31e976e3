r"""Objective perturbation with its tight accounting (Redberg, Koskela and Wang 2023) for logistic
regression.

Minimise ``sum of losses + (penalty/2)|theta|^2 + <b, theta>`` with ``b ~ N(0, std^2 I)`` over rows
of norm at most 1, the slope of a loss limited to ``clip`` (which keeps it convex). A row more or
less moves ``b`` by at most ``clip`` along that row, and the Jacobian by a factor of at most
``1 - (1/4)/penalty``. So the privacy loss is at most

    C + s^2/2 + s |Z|,   C = -log(1 - 1/(4 penalty)),   s = clip/std,   Z standard normal,

and ``delta(epsilon)`` is the expectation of ``max(0, 1 - exp(epsilon - loss))``, in closed form
below.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, log_ndtr

from dpconvex_reproduction.bench.method import ADD_OR_REMOVE, Budget, Method
from dpconvex_reproduction.bench.problems import BenchProblem

Array = NDArray[np.float64]


def perturbed_delta(epsilon: float, jacobian: float, ratio: float) -> float:
    """Return delta of a privacy loss ``jacobian + ratio^2/2 + ratio |Z|``.

    Examples
    --------
    >>> 0 < perturbed_delta(1.0, 0.1, 0.2) < 1e-3 < perturbed_delta(1.0, 0.1, 0.8)
    True
    """
    left = epsilon - jacobian - ratio**2 / 2
    start = max(left, 0.0) / ratio
    above = math.exp(float(log_ndtr(-start)))
    shifted = math.exp(left + ratio**2 / 2 + float(log_ndtr(-start - ratio)))
    return 2 * (above - shifted)


def noise_ratio(epsilon: float, delta: float, jacobian: float) -> float:
    """Return the largest ``clip / std`` that keeps the promise."""

    def excess(log_ratio: float) -> float:
        return math.log(
            max(perturbed_delta(epsilon, jacobian, math.exp(log_ratio)), 1e-300) / delta
        )

    return math.exp(
        float(brentq(excess, math.log(1e-4), math.log(50 * (epsilon + 1)), xtol=1e-10))
    ) * (1 - 1e-9)


def minimise(X: Array, y: Array, penalty: float, clip: float, linear: Array) -> Array:
    """Return the minimiser by Newton steps with halving; the gradient ends below 1e-9."""

    def value_gradient(theta: Array) -> tuple[float, Array, Array]:
        margins = y * (X @ theta)
        slopes = expit(-margins)
        free = slopes <= clip
        # Beyond the limit a loss goes on as the straight line that touches it.
        corner = math.log(1 / clip - 1) if clip < 1 else -math.inf
        losses = np.where(free, np.logaddexp(0, -margins), 0.0)
        if clip < 1:
            losses = np.where(free, losses, np.logaddexp(0, -corner) - clip * (margins - corner))
        slopes = np.minimum(slopes, clip)
        value = float(losses.sum() + penalty / 2 * theta @ theta + linear @ theta)
        gradient = -X.T @ (slopes * y) + penalty * theta + linear
        return value, gradient, np.where(free, slopes * (1 - slopes), 0.0)

    theta = np.zeros(X.shape[1])
    value, gradient, weights = value_gradient(theta)
    for _ in range(200):
        if np.linalg.norm(gradient) <= 1e-9 * max(1.0, len(y) / 1000):
            break
        direction = -np.linalg.solve(
            (X * weights[:, None]).T @ X + penalty * np.eye(len(theta)), gradient
        )
        step = 1.0
        while step > 1e-10:
            found = value_gradient(theta + step * direction)
            if found[0] <= value + 1e-4 * step * gradient @ direction:
                break
            step /= 2
        else:
            break
        theta = theta + step * direction
        value, gradient, weights = found
    return theta


class ObjectivePerturbation(Method):
    """Objective perturbation, the best of six settings of clipping and of the Jacobian's share
    of epsilon.
    """

    name = "objective perturbation"
    relations = (ADD_OR_REMOVE,)
    settings: ClassVar = {
        f"clip {clip:g}, Jacobian {share:g} of epsilon": {"clip": clip, "share": share}
        for clip in (0.3, 1.0)
        for share in (0.03, 0.1, 0.4)
    }

    def fit(self, problem: BenchProblem, budget: Budget, seed: int, **setting: Any) -> Self:
        """Fit."""
        self.problem = problem
        rng = np.random.default_rng(seed)
        rows = problem.unit_rows(problem.X)
        clip = setting["clip"]
        jacobian = setting["share"] * budget.epsilon
        penalty = 0.25 / -math.expm1(-jacobian)
        std = clip / noise_ratio(budget.epsilon, budget.delta, jacobian)
        linear = rng.normal(0, std, rows.shape[1])
        self.theta = minimise(rows, problem.y, penalty, clip, linear)
        return self

    def predict(self, X: NDArray[Any]) -> Array:
        """Return log-odds."""
        return np.asarray(self.problem.unit_rows(X) @ self.theta)

    def guarantee(self, problem: BenchProblem, budget: Budget) -> str:
        """Return the budget, for an exact minimiser."""
        return (
            f"({budget.epsilon:g}, {budget.delta:g})-DP, {budget.relation}, for an exact "
            "minimiser (solved to a gradient of 1e-9 per thousand rows, which is not paid for); "
            "floating point is not covered"
        )


METHODS = (ObjectivePerturbation(),)
