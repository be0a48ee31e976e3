"""What the benchmark asks of a method: fit, predict, and the guarantee that it truly has."""

from __future__ import annotations

import inspect
import re
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dpconvex.core.calibration import gaussian_mu
from dpconvex_reproduction.bench.problems import BenchProblem

__all__ = [
    "ADD_OR_REMOVE",
    "REPLACE",
    "Budget",
    "FitError",
    "Method",
    "Request",
    "checked_guarantee",
    "checked_scores",
    "without_test_rows",
]

ADD_OR_REMOVE = "add_or_remove_one"
REPLACE = "replace_one"


@dataclass(frozen=True)
class Budget:
    """What may be spent: ``(epsilon, delta)`` and who counts as a neighbour.

    Attributes
    ----------
    epsilon, delta : float
        The budget.
    relation : str
        ``"add_or_remove_one"`` or ``"replace_one"``. Under the first the number of training rows is
        a public guess that happens to be right, for every method alike.

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


_HALF_SIGNS = re.compile("[\ud800-\udfff]")  # no file of text can hold them

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
        Keyword arguments of ``fit`` by name. Of several the best is shown, chosen with hindsight
        and not charged.
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
        """Fit ``problem.X`` and ``problem.y`` and return ``self``; the problem has no test rows
        here.
        """

    @abstractmethod
    def predict(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return log-odds of the label +1, or predictions of the target, for rows like
        ``problem.X``.
        """

    @abstractmethod
    def guarantee(self, problem: BenchProblem, budget: Budget) -> str:
        """Return what can be proven of it, in a line: neighbours, epsilon, delta, and what is
        taken for granted.
        """

    def run(
        self, problem: BenchProblem, requests: Sequence[Request]
    ) -> Iterator[tuple[NDArray[np.float64], float]]:
        """Yield test scores and seconds of each request; peers in an environment of their own
        answer all at once.
        """
        training = without_test_rows(problem)
        for setting, budget, seed in requests:
            started = time.perf_counter()
            try:
                fitted = self.fit(training, budget, seed, **self.settings[setting])
                seconds = time.perf_counter() - started
                if not hasattr(fitted, "predict"):
                    raise ValueError(f"fit must return self. Got {type(fitted).__name__}.")
                scores = np.asarray(fitted.predict(problem.X_test), dtype=float)
            except (Exception, SystemExit) as error:
                raise FitError(_where(error, type(self), setting, seed)) from error
            yield scores, seconds


class FitError(Exception):
    """A method failed; says in which line of its file, with which setting and seed."""


def _where(error: BaseException, owner: type, setting: str, seed: int) -> str:
    """Return what an error says, and where in a method's file it arose."""
    path = inspect.getfile(owner)
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == path
    ]
    place = [f"{Path(path).name} line {lines[-1]}"] if lines else []
    place += [f"setting '{setting}'"] if setting else []
    return f"{type(error).__name__}: {error} ({', '.join([*place, f'seed {seed}'])})"


def without_test_rows(problem: BenchProblem) -> BenchProblem:
    """Return the problem with its training rows and public facts, and no test rows.

    Parameters
    ----------
    problem : BenchProblem
        The problem.
    """
    # New arrays: an empty slice would still lead to the rows that it was taken from.
    return replace(problem, X_test=np.empty((0, problem.X.shape[1])), y_test=np.empty(0))


def checked_scores(
    method: Method, problem: BenchProblem, scores: NDArray[Any], where: str = ""
) -> NDArray[np.float64]:
    """Return the scores if there is one finite number for each test row.

    Parameters
    ----------
    method : Method
        Whose scores they are, to be named.
    problem : BenchProblem
        Problem with its test rows.
    scores : array
        What ``predict`` returned.
    where : str
        The setting and the seed, to be named.

    Raises
    ------
    ValueError
        If the shape is another one, such as a single column, or a score is not finite.
    """
    scores = np.asarray(scores, dtype=float)
    expected = (len(problem.y_test),)
    where = f" ({where})" if where else ""
    asked = (
        f"The method '{method.name}' must return a finite score for each test row, an array of "
        f"shape {expected}."
    )
    if scores.shape != expected:
        raise ValueError(f"{asked} Got shape {scores.shape}{where}.")
    wrong = np.flatnonzero(~np.isfinite(scores))
    if len(wrong):
        raise ValueError(
            f"{asked} Got {len(wrong)} that are not finite, the first, {scores[wrong[0]]}, in row "
            f"{wrong[0]}{where}."
        )
    return scores


def checked_guarantee(method: Method, stated: object) -> str:
    """Return the stated guarantee if there is one.

    Parameters
    ----------
    method : Method
        Whose guarantee it is, to be named.
    stated : object
        What ``guarantee`` returned.

    Raises
    ------
    ValueError
        If it is no text, or an empty one.
    """
    if not isinstance(stated, str) or not stated.strip() or _HALF_SIGNS.search(stated):
        asked = (
            f"guarantee of the method '{method.name}' must return what can be proven of it as text"
        )
        raise ValueError(f"{asked}, and 'none' if nothing can. Got {stated!r}.")
    return stated
