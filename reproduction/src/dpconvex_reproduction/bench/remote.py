"""Methods of packages that live in an environment of their own: their fits run in a worker
script there.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpconvex_reproduction.bench.method import ADD_OR_REMOVE, Budget, Method, Request
from dpconvex_reproduction.bench.problems import BenchProblem
from dpconvex_reproduction.peers.environments import PeerEnvironment

__all__ = ["SGD_SETTINGS", "RemoteMethod", "RemoteSGD"]


class RemoteMethod(Method):
    """A method with an environment and a worker script; all requests of a problem are answered by
    one process.

    Attributes
    ----------
    environment : PeerEnvironment
        Pinned packages.
    worker : str
        Script beside the file of the class that names it.
    """

    environment: ClassVar[PeerEnvironment]
    worker: ClassVar[str]

    def script(self) -> Path:
        """Return the path of the worker."""
        owner = next((each for each in type(self).__mro__ if "worker" in vars(each)), type(self))
        return Path(inspect.getfile(owner)).parent / self.worker

    def arrays(self, problem: BenchProblem) -> dict[str, NDArray[Any]]:
        """Return what the worker reads: ``X``, ``y`` and ``X_test`` in the package's own units."""
        return {
            "X": problem.with_constant(problem.X),
            "y": problem.y,
            "X_test": problem.with_constant(problem.X_test),
        }

    def request(
        self, problem: BenchProblem, budget: Budget, seed: int, setting: dict[str, Any]
    ) -> dict[str, Any]:
        """Return one request."""
        return {
            "task": problem.task,
            "quantile": problem.quantile,
            "epsilon": budget.epsilon,
            "delta": budget.delta,
            "seed": seed,
            **setting,
        }

    def scores(self, problem: BenchProblem, answered: NDArray[Any]) -> NDArray[np.float64]:
        """Return log-odds, or predictions in the target's units."""
        return np.asarray(answered, dtype=float)

    def run(
        self, problem: BenchProblem, requests: Sequence[Request]
    ) -> Iterator[tuple[NDArray[np.float64], float]]:
        """Yield test scores and seconds of each request."""
        problem = replace(
            problem, y_test=np.empty(0)
        )  # rows to predict, and nobody is told their targets
        asked = [
            self.request(problem, budget, seed, dict(self.settings[name]))
            for name, budget, seed in requests
        ]
        answers = self.environment.ask(self.script(), self.arrays(problem), asked)
        for line, seconds in zip(answers["scores"], answers["seconds"], strict=True):
            yield self.scores(problem, line), float(seconds)

    def fit(self, problem: BenchProblem, budget: Budget, seed: int, **setting: Any) -> Self:
        """Keep what is asked for; the worker fits when it knows the rows to predict."""
        self.problem = problem
        self.asked = (budget, seed)
        self.setting = next(name for name, kept in self.settings.items() if dict(kept) == setting)
        return self

    def predict(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Fit in the worker and return scores of these rows."""
        problem = replace(self.problem, X_test=X)
        ((found, _),) = self.run(problem, [(self.setting, *self.asked)])
        return found


#: What the two packages of DP-SGD are run with: the best of these, chosen with hindsight. Fewer
#: epochs were rarely the best when they were tried, and larger batches never.
SGD_SETTINGS = {
    f"rate {rate:g}, clip {clip:g}": {"rate": rate, "epochs": 20, "batch": 1024, "clip": clip}
    for rate, clip in ((0.5, 0.3), (0.1, 1.0), (0.5, 1.0), (2.0, 1.0), (8.0, 1.0), (8.0, 3.0))
}


class RemoteSGD(RemoteMethod):
    """DP-SGD on rows ``(1, x)``: 20 epochs of Poisson batches of 1024 rows, clipped gradients,
    the last iterate.
    """

    tasks = ("logistic", "linear", "quantile")
    relations = (ADD_OR_REMOVE,)
    settings = SGD_SETTINGS

    def arrays(self, problem: BenchProblem) -> dict[str, NDArray[Any]]:
        """Return mapped rows, and targets in [-1, 1]."""
        return {**super().arrays(problem), "y": problem.unit_targets()}

    def scores(self, problem: BenchProblem, answered: NDArray[Any]) -> NDArray[np.float64]:
        """Return log-odds, or predictions in the target's units."""
        return problem.target_units(np.asarray(answered, dtype=float))

    def guarantee(self, problem: BenchProblem, budget: Budget) -> str:
        """Return the package's own accounting."""
        return (
            f"({budget.epsilon:g}, {budget.delta:g})-DP, {budget.relation}, by "
            f"{self.environment.pins[0]}'s own accounting of Poisson batches, to its tolerance; "
            f"the choice among {len(self.settings)} settings is not charged, and single-precision "
            "sums and noise are not covered"
        )
