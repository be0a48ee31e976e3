"""dpconvex: the default on the columns as they are, on public splines of them, and the model of
the AUC.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpconvex import DPAUCClassifier, DPLinearRegression, DPLogisticRegression, DPQuantileRegressor
from dpconvex.preprocessing import PublicTable
from dpconvex_reproduction.bench.method import ADD_OR_REMOVE, Budget, Method
from dpconvex_reproduction.bench.problems import BenchProblem

_MODELS = {
    "logistic": DPLogisticRegression,
    "linear": DPLinearRegression,
    "quantile": DPQuantileRegressor,
}


class Plain(Method):
    """The estimator of the task with nothing set but bounds and budget."""

    name = "dpconvex"
    tasks: ClassVar[tuple[str, ...]] = ("logistic", "linear", "quantile")
    ours = True
    models: ClassVar[dict[str, Any]] = _MODELS

    def columns(self, problem: BenchProblem, X: NDArray[Any]) -> NDArray[Any]:
        """Return the columns of the model."""
        return X

    def facts(self, problem: BenchProblem) -> dict[str, Any]:
        """Return what is public of the columns."""
        return {"feature_bounds": problem.feature_bounds}

    def model(self, problem: BenchProblem, budget: Budget, seed: int | None) -> Any:
        """Return the estimator, not fitted."""
        facts = {
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "neighbors": budget.relation,
            "random_state": seed,
        }
        if budget.relation == ADD_OR_REMOVE:
            facts["nominal_samples"] = len(problem.y)
        if problem.task == "logistic":
            facts["classes"] = (-1.0, 1.0)
        else:
            facts["target_bounds"] = problem.target_bounds
        if problem.quantile is not None:
            facts["quantile"] = problem.quantile
        return self.models[problem.task](**facts, **self.facts(problem))

    def fit(self, problem: BenchProblem, budget: Budget, seed: int, **setting: Any) -> Self:
        """Fit."""
        self.problem = problem
        self.fitted = self.model(problem, budget, seed).fit(
            self.columns(problem, problem.X), problem.y
        )
        return self

    def predict(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return log-odds or predictions."""
        columns = self.columns(self.problem, X)
        score = (
            self.fitted.decision_function
            if self.problem.task == "logistic"
            else self.fitted.predict
        )
        return np.asarray(score(columns), dtype=float)

    def guarantee(self, problem: BenchProblem, budget: Budget) -> str:
        """Return the certificate's numbers, verified."""
        width = self.columns(problem, problem.X[:2]).shape[1]
        certificate = self.model(problem, budget, None).certify(
            n_samples=len(problem.y), n_features=width
        )
        certificate.verify()
        return (
            f"({certificate.epsilon(budget.delta):.4g}, {budget.delta:g})-DP, "
            f"{certificate.neighbors}, by its certificate ({certificate.mechanism}), which "
            "verifies from public facts"
        )


class Splines(Plain):
    """The same model on hat functions with public knots for every number."""

    name = "dpconvex, splines"

    def suits(self, problem: BenchProblem) -> bool:
        """Whether there is a number."""
        return super().suits(problem) and any(attribute.knots for attribute in problem.attributes)

    def table(self, problem: BenchProblem) -> PublicTable:
        """Return the public schema as a transformer."""
        low, high = problem.feature_bounds
        numbers: dict[str, Any] = {}
        choices: dict[str, list[str]] = {}
        for attribute in problem.attributes:
            if attribute.is_choice:
                choices[attribute.name] = [f"c{k}" for k in range(len(attribute.columns))]
                continue
            (column,) = attribute.columns
            bounds = [float(low[column]), float(high[column])]
            knots = {"knots": list(attribute.knots)} if attribute.knots else {}
            numbers[attribute.name] = {"bounds": bounds, **knots}
        schema: dict[str, object] = {"features": numbers}
        if choices:
            schema["categories"] = choices
        return PublicTable(schema)

    def columns(self, problem: BenchProblem, X: NDArray[Any]) -> NDArray[Any]:
        """Return hat functions and indicators."""
        return np.asarray(
            self.table(problem).transform(problem.raw_columns(X)).to_numpy(), dtype=float
        )

    def facts(self, problem: BenchProblem) -> dict[str, Any]:
        """Return bounds and the longest row."""
        table = self.table(problem)
        return {"feature_bounds": table.feature_bounds, "row_norm": table.row_norm}


class AUC(Plain):
    """The model that ranks; its scores are no log-odds."""

    name = "dpconvex, AUC"
    tasks = ("logistic",)
    probabilities = False
    models: ClassVar[dict[str, Any]] = {"logistic": DPAUCClassifier}


METHODS = (Plain(), Splines(), AUC())
