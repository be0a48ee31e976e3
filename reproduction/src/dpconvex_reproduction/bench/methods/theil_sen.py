"""OpenDP's Theil-Sen regression on one column: private medians of what pairs of rows predict at
two places.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dpconvex_reproduction.bench.method import ADD_OR_REMOVE, Budget, Method
from dpconvex_reproduction.bench.problems import BenchProblem


class TheilSen(Method):
    """OpenDP's estimator with its own defaults; the noise is the smallest that its own map
    certifies.
    """

    name = "OpenDP Theil-Sen"
    tasks = ("linear",)
    relations = (ADD_OR_REMOVE,)

    def suits(self, problem: BenchProblem) -> bool:
        """Whether there is a single column."""
        return super().suits(problem) and problem.X.shape[1] == 1

    def fit(self, problem: BenchProblem, budget: Budget, seed: int, **setting: Any) -> Self:
        """Fit; OpenDP draws its own noise, the seed moves the pairing of rows alone."""
        import opendp.prelude as dp

        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # newer versions have another name for the second feature
            dp.enable_features("contrib", "floating-point", "honest-but-curious")
        low, high = (float(bound[0]) for bound in problem.feature_bounds)
        make = functools.partial(
            dp.sklearn.linear_model.LinearRegression,
            dp.max_divergence(),
            [(low, high)],
            problem.target_bounds,
        )
        scale = dp.binary_search(
            lambda scale: make(scale=scale).measurement.map(1) <= budget.epsilon, bounds=(1e-3, 1e6)
        )
        np.random.seed(seed)  # noqa: NPY002  (what OpenDP's plugin shuffles with)
        self.fitted = make(scale=scale).fit(np.clip(problem.X, low, high), problem.y)
        return self

    def predict(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return predictions."""
        return np.asarray(self.fitted.predict(X), dtype=float)

    def guarantee(self, problem: BenchProblem, budget: Budget) -> str:
        """Return OpenDP's own statement."""
        return (
            f"({budget.epsilon:g}, 0)-DP, {budget.relation}, by OpenDP's map of its plugin, which "
            "it marks as honest-but-curious with idealised numerics"
        )


METHODS = (TheilSen(),)
