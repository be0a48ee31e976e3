r"""Scores that `DPSelect` compares candidates by: one number per row, or the area under the ROC curve.

A function that sees all rows could let one change everything. So your function is asked about one row at a time,
its answers are clipped to a public range, and the library adds them up. :class:`AUCScore` is no sum over rows and has a
sensitivity of its own. Scores are whole numbers of steps, ``SCORE_GRID`` to what one record can change. NaN counts as
the worst score.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from dpconvex.core.choices import SCORE_GRID
from dpconvex.core.pairs import twice_in_order
from dpconvex.engine.row_weights import Tags
from dpconvex.inputs.settings import Classifier
from dpconvex.privacy.bounds.scores import AUCScoreBounds, RowScoreBounds
from dpconvex.types import Array

Targets = NDArray[Any]  # numbers or labels
Scored = Classifier  # or a regressor, which is never asked for labels
_RESPONSES = ("predict", "predict_proba", "decision_function")


@contextmanager
def without_warnings() -> Iterator[None]:
    """Suppress warnings: one that depends on values is an output."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


def _predict_by_row(model: Scored, X: Array, response: str) -> tuple[Targets, NDArray[np.bool_]]:
    """Return the model's answers row by row, and whether each row is finite."""
    if issparse(X):  # checked when it was read
        return getattr(model, response)(X), np.ones(X.shape[0], dtype=np.bool_)
    usable = np.asarray(np.isfinite(X).all(axis=1))
    return getattr(model, response)(np.where(usable[:, None], X, 0.0)), usable


class _SumOverRows:
    """A score that adds up one number per row."""

    @property
    def bounds(self) -> RowScoreBounds:
        """Public range of one row's number."""
        return RowScoreBounds()

    def _values(self, model: Scored, X: Array, y: Targets) -> Array:
        """Return one number per row, not clipped; NaN stands for the worst."""
        raise NotImplementedError

    def steps(self, model: Scored, X: Array, y: Targets, neighbors: str, people: Tags | None = None) -> int:
        """Return the exact score in steps of the grid: private. A person's is the mean of its rows', rounded down."""
        if not len(y):
            return 0
        low, high = self.bounds.low, self.bounds.high
        with without_warnings():
            values = np.nan_to_num(self._values(model, X, y), nan=low, posinf=high, neginf=low)
            unit = (np.clip(values, low, high) - low) / (high - low)
            steps = np.floor(np.clip(unit, 0.0, 1.0) * SCORE_GRID)
        if people is not None:
            _, person_indices, rows = np.unique(people, return_inverse=True, return_counts=True)
            # Sums of whole numbers, exact: nobody's mean can exceed the largest of its rows.
            steps = np.floor(np.bincount(person_indices, steps) / rows)
        return int(steps.astype(np.int64).sum())


@dataclass(frozen=True)
class RowScore(_SumOverRows):
    """Score of one row by a function of your own, added up over the validation rows.

    Parameters
    ----------
    function : callable
        ``function(target, response)`` returns the score of one row, more being better. A row for which it raises or
        returns no number counts as the worst.
    low, high : float, default=0 and 1
        Public range that scores are clipped to.
    response : {"predict", "predict_proba", "decision_function"}
        Answer of the candidate that the function gets.

    Notes
    -----
    Privacy: a record moves the sum by at most ``high - low``, whatever the function makes of a row. It must not keep
    rows for the next call or pass them on.

    Examples
    --------
    >>> near = RowScore(lambda target, prediction: -abs(target - prediction), low=-5, high=0)
    >>> near.bounds
    RowScoreBounds(low=-5.0, high=0.0)
    """

    function: Callable[[Any, Any], float]
    low: float = 0.0
    high: float = 1.0
    response: str = "predict"

    @property
    def bounds(self) -> RowScoreBounds:
        """Public range of one row's number."""
        return RowScoreBounds(self.low, self.high)

    def check(self, target: float, labels: Targets | None) -> None:
        """Raise if the function cannot score an invented row: a possible target, or the first of the labels."""
        if not callable(self.function) or self.response not in _RESPONSES:
            raise TypeError(
                f"A RowScore must hold a function and one of the responses {_RESPONSES}. "
                f"Got {type(self.function).__name__} and {self.response!r} instead."
            )
        truth = target if labels is None else labels[0]
        response = truth
        if labels is not None and self.response != "predict":
            several = self.response == "predict_proba" or len(labels) > 2
            response = np.full(len(labels), 1 / len(labels)) if several else 0.5
        try:
            float(self.function(truth, response))
        except Exception as error:
            raise ValueError(
                "The 'scoring' parameter of DPSelect must be a function of one row: scoring(target, response) returns "
                f"one number. It raised {type(error).__name__} on an invented row. For a score of all rows at once "
                "use AUCScore, or the sum of a score of each row."
            ) from error

    def _values(self, model: Scored, X: Array, y: Targets) -> Array:
        answers, usable = _predict_by_row(model, X, self.response)
        return np.array(
            [
                self._value(target, answer) if valid else np.nan
                for target, answer, valid in zip(y, answers, usable, strict=True)
            ]
        )

    def _value(self, target: object, response: object) -> float:
        try:
            return float(self.function(target, response))
        except Exception:  # that it cannot score this row is private
            return float("nan")


@dataclass(frozen=True)
class RightOrWrong(_SumOverRows):
    """1 for a row whose label is predicted, 0 for any other."""

    def _values(self, model: Scored, X: Array, y: Targets) -> Array:
        predicted, usable = _predict_by_row(model, X, "predict")
        return np.asarray((predicted == y) & usable, dtype=np.float64)


@dataclass(frozen=True)
class ResidualScore(_SumOverRows):
    """One minus the row's pinball loss relative to that of a residual ``bound``; absolute loss without a quantile.

    Residuals beyond the bound, in the target's units, count as equally bad.
    """

    bound: float

    def _values(self, model: Scored, X: Array, y: Targets) -> Array:
        predicted, usable = _predict_by_row(model, X, "predict")
        residual = np.where(usable, np.asarray(y, dtype=np.float64) - predicted, np.nan)
        level = model.certificate_.parameters.get("quantile", 0.5)
        # Divided first: the product of two large numbers has no limit.
        part = residual / self.bound / max(level, 1 - level)
        return np.asarray(1.0 - np.where(part >= 0, level, level - 1) * part)


@dataclass(frozen=True)
class AUCScore:
    """Area under the ROC curve of the validation rows, counted over at least so many rows of each class.

    Parameters
    ----------
    min_positive, min_negative : int
        Public lower bounds on the class counts among the validation rows: noise shrinks with them. The guarantee holds
        even if there are fewer rows; the score is then lower for every candidate.

    Notes
    -----
    Privacy: its sensitivity is that of :class:`~dpconvex.privacy.bounds.scores.AUCScoreBounds`, about
    ``2 / min(min_positive, min_negative)``, half of it if labels are public. Two classes only.

    Examples
    --------
    >>> round(float(AUCScore(100, 100).bounds.sensitivity("replace_one")), 4)
    0.0198
    """

    min_positive: int
    min_negative: int

    @property
    def bounds(self) -> AUCScoreBounds:
        """Lower bounds of the class counts."""
        return AUCScoreBounds(self.min_positive, self.min_negative)

    def steps(self, model: Scored, X: Array, y: Targets, neighbors: str, people: Tags | None = None) -> int:
        """Return the exact score in steps of the grid: private."""
        if not len(y):
            return 0
        sensitivity = self.bounds.sensitivity(neighbors)
        with without_warnings():
            margins, usable = _predict_by_row(model, X, "decision_function")
            margins = np.where(usable, margins, np.nan)
            # A margin that is not a number ranks its row where it does most harm.
            lost = np.isnan(margins)
            positive = np.where(lost, -np.inf, margins)[y == model.classes_[1]]
            negative = np.where(lost, np.inf, margins)[y == model.classes_[0]]
        pairs = max(len(positive), self.min_positive) * max(len(negative), self.min_negative)
        # Whole numbers throughout: a tie counts half, hence the 2.
        twice = twice_in_order(positive, negative)
        return twice * SCORE_GRID * sensitivity.denominator // (2 * pairs * sensitivity.numerator)
