"""Private explainable boosting machines (DP-EBM, Nori and others 2021) by interpret."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex_reproduction.bench.method import ADD_OR_REMOVE, Budget
from dpconvex_reproduction.bench.problems import BenchProblem
from dpconvex_reproduction.bench.remote import RemoteMethod
from dpconvex_reproduction.peers.environments import INTERPRET


class ExplainableBoosting(RemoteMethod):
    """interpret's DP-EBM with its own defaults, told the attributes behind indicators and their
    public bounds.
    """

    name = "DP-EBM (interpret)"
    tasks = ("logistic", "linear")
    relations = (ADD_OR_REMOVE,)
    environment = INTERPRET
    worker = "ebm_worker.py"

    def arrays(self, problem: BenchProblem) -> dict[str, NDArray[Any]]:
        """Return a column per attribute: numbers, and codes of choices (-1 where none was made)."""
        return {
            "X": _codes(problem, problem.X),
            "y": problem.y,
            "X_test": _codes(problem, problem.X_test),
        }

    def request(
        self, problem: BenchProblem, budget: Budget, seed: int, setting: dict[str, Any]
    ) -> dict[str, Any]:
        """Return a request with types and bounds of the attributes."""
        low, high = problem.feature_bounds
        numbers = {k: a.columns[0] for k, a in enumerate(problem.attributes) if not a.is_choice}
        return {
            **super().request(problem, budget, seed, setting),
            "types": [
                "nominal" if attribute.is_choice else "continuous"
                for attribute in problem.attributes
            ],
            "bounds": {
                str(k): [float(low[column]), float(high[column])] for k, column in numbers.items()
            },
            "target_bounds": problem.target_bounds,
        }

    def guarantee(self, problem: BenchProblem, budget: Budget) -> str:
        """Return interpret's own accounting, and what it leaves out."""
        return (
            f"({budget.epsilon:g}, {budget.delta:g})-DP, {budget.relation}, by interpret's own "
            "accounting in Gaussian DP; which categories occur is read from the rows and not "
            "paid for, and floating point is not covered"
        )


def _codes(problem: BenchProblem, X: NDArray[Any]) -> NDArray[np.float64]:
    found = []
    for attribute in problem.attributes:
        block = X[:, list(attribute.columns)]
        chosen = np.where(block.max(axis=1) > 0, block.argmax(axis=1), -1)
        found.append(chosen if attribute.is_choice else block[:, 0])
    return np.stack(found, axis=1).astype(float)


METHODS = (ExplainableBoosting(),)
