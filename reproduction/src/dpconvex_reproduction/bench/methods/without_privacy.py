"""Without privacy: the level that a private fit of the same columns may reach, and what no
column is needed for.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit
from sklearn.linear_model import LinearRegression, LogisticRegression, QuantileRegressor

from dpconvex_reproduction.bench.method import Budget, Method
from dpconvex_reproduction.bench.problems import BenchProblem


class ScikitLearn(Method):
    """The exact fit of the same columns."""

    name = "scikit-learn, not private"
    tasks = ("logistic", "linear", "quantile")
    relations = ()

    def fit(self, problem: BenchProblem, budget: Budget, seed: int, **setting: Any) -> Self:
        """Fit."""
        self.problem = problem
        if problem.task == "logistic":
            model: Any = LogisticRegression(C=1e4, max_iter=2000)
        elif problem.task == "linear":
            model = LinearRegression()
        else:
            model = QuantileRegressor(
                quantile=float(problem.quantile or 0.5), alpha=0, solver="highs-ipm"
            )
        self.fitted = model.fit(problem.mapped(problem.X), problem.y)
        return self

    def predict(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return log-odds or predictions."""
        rows = self.problem.mapped(X)
        score = (
            self.fitted.decision_function
            if self.problem.task == "logistic"
            else self.fitted.predict
        )
        return np.asarray(score(rows), dtype=float)

    def guarantee(self, problem: BenchProblem, budget: Budget) -> str:
        """Return that there is none."""
        return "none"


class Constant(Method):
    """The best constant of the training rows: what a model without columns reaches."""

    name = "constant, not private"
    tasks = ("logistic", "linear", "quantile")
    relations = ()

    def fit(self, problem: BenchProblem, budget: Budget, seed: int, **setting: Any) -> Self:
        """Fit."""
        if problem.task == "logistic":
            self.level = float(logit(np.mean(problem.y > 0)))
        elif problem.task == "linear":
            self.level = float(np.mean(problem.y))
        else:
            self.level = float(np.quantile(problem.y, float(problem.quantile or 0.5)))
        return self

    def predict(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return the constant."""
        return np.full(len(X), self.level)

    def guarantee(self, problem: BenchProblem, budget: Budget) -> str:
        """Return that there is none."""
        return "none"


METHODS = (ScikitLearn(), Constant())
