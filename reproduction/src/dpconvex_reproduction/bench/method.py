"""What the benchmark asks of a method: fit, predict, and the guarantee that it truly has."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpconvex.privacy.calibration import gaussian_mu
from dpconvex_reproduction.bench.problems import BenchProblem

__all__ = ["ADD_OR_REMOVE", "REPLACE", "Budget", "Method", "Request"]

ADD_OR_REMOVE, REPLACE = "add_or_remove_one", "replace_one"


@dataclass(frozen=True)
class Budget:
    """What may be spent: ``(epsilon, delta)`` and who counts as a neighbour.

    Attributes
    ----------
    epsilon, delta : float
        The budget.
    relation : str
        ``"add_or_remove_one"`` or ``"replace_one"``. Under the first the number of training rows is a public guess that
        happens to be right, for every method alike.

    Examples
    --------
    >>> Budget(1.0, 1e-6).relation
    'add_or_remove_one'
    """

    epsilon: float
    delta: float
    relation: str = ADD_OR_REMOVE

    @property
    def mu(self) -> float:
        """Gaussian privacy that is worth this budget."""
        return float(gaussian_mu(self.epsilon, self.delta))

    @property
    def records(self) -> int:
        """How many rows a neighbour changes: 1 comes or goes, or 2 trade places."""
        return 1 if self.relation == ADD_OR_REMOVE else 2


#: One fit: the name of a setting, the budget, and a seed of batches and noise.
Request = tuple[str, Budget, int]


class Method(ABC):
    """A private (or open) method; subclass it, and list an instance in ``METHODS`` of your file.

    Attributes
    ----------
    name : str
        Unique.
    tasks : tuple of str
        Of ``"logistic"``, ``"linear"`` and ``"quantile"``.
    relations : tuple of str
        Neighbours for which the guarantee holds; empty for a method that is not private.
    settings : mapping of str to dict
        Keyword arguments of ``fit`` by name. Of several the best is shown, chosen with hindsight and not charged.
    ours : bool
        Whether wins and losses are counted for it.
    probabilities : bool
        Whether scores of the logistic task are log-odds; otherwise only their order counts.
    """

    name: ClassVar[str]
    tasks: ClassVar[tuple[str, ...]] = ("logistic",)
    relations: ClassVar[tuple[str, ...]] = (ADD_OR_REMOVE, REPLACE)
    settings: ClassVar[Mapping[str, Mapping[str, Any]]] = {"": {}}
    ours: ClassVar[bool] = False
    probabilities: ClassVar[bool] = True

    def suits(self, problem: BenchProblem) -> bool:
        """Whether it can be run on a problem."""
        return problem.task in self.tasks

    @abstractmethod
    def fit(self, problem: BenchProblem, budget: Budget, seed: int, **setting: Any) -> Self:
        """Fit ``problem.X`` and ``problem.y``; the test rows are not for this function."""

    @abstractmethod
    def predict(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return log-odds of the label +1, or predictions of the target, for rows like ``problem.X``."""

    @abstractmethod
    def guarantee(self, problem: BenchProblem, budget: Budget) -> str:
        """Return what can be proven of it, in a line: neighbours, epsilon, delta, and what is taken for granted."""

    def run(self, problem: BenchProblem, requests: Sequence[Request]) -> Iterator[tuple[NDArray[np.float64], float]]:
        """Yield test scores and seconds of each request; peers in an environment of their own answer all at once."""
        for setting, budget, seed in requests:
            started = time.perf_counter()
            fitted = self.fit(problem, budget, seed, **self.settings[setting])
            seconds = time.perf_counter() - started
            yield np.asarray(fitted.predict(problem.X_test), dtype=float), seconds
