"""Exact sums of scores over private rows: one number per row, bins, or pairs; whole numbers of steps.

A row that holds a missing value, or a label that the model does not know, counts nowhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpconvex.core.evaluation_certificate import ROW_WEIGHT
from dpconvex.core.pairs import pair_statistic, pair_statistic_of_people
from dpconvex.inputs.estimator_protocols import Classifier, Fitted
from dpconvex.inputs.labels import LabelPositions
from dpconvex.inputs.people import People
from dpconvex.types import Array

__all__ = ["METRICS", "ScoredRows", "exact_statistic", "scored_level", "statistic_of"]


# Steps of the range of a row's number, and of a person's vote in a histogram: sums of 2^32 of them are exact, however
# many there are. Their number may be private, and a grid that followed it would move everybody's votes.
_GRID = 2**20
_PARTS = 2**10  # steps of a person's share of valid rows
_VOTES = 2**30  # steps of a person's vote in pairs, which are counted in Python's whole numbers


@dataclass(frozen=True)
class ScoredRows:
    """Private rows, marked, and a model's answers to them."""

    model: Fitted
    features: Array
    target: Array  # numbers, or positions of labels; NaN where a row is invalid
    people: People | None = None
    column: int | None = None  # of predictions at several levels

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Which rows count: those without a missing value, or a label that the model does not know."""
        return ~np.isnan(self.target)

    @property
    def count(self) -> int:
        """Number of records: people, or rows."""
        return len(self.target) if self.people is None else self.people.count

    def answers(self, method: str) -> Array:
        """Return the model's answers; what is said of invalid rows does not count."""
        usable = np.asarray(np.isfinite(self.features).all(axis=1))
        # A model answers to at least one row: where there is none, zeros stand for it.
        shown = np.zeros((max(1, len(usable)), self.features.shape[1]))
        shown[: len(usable)] = np.where(usable[:, None], self.features, 0)
        return np.asarray(getattr(self.model, method)(shown))[: len(usable)]

    def residuals(self) -> Array:
        """Return targets minus predictions, NaN for invalid rows."""
        found = self.answers("predict")
        return np.asarray(self.target - (found if self.column is None else found[:, self.column]))

    def positive(self) -> Array:
        """Return the probability of the second of two classes."""
        return np.asarray(self.answers("predict_proba")[:, 1])


# Row metrics: numbers of rows in the metric's own units. What is no number for a valid row counts as the worst.
RowMetric = Callable[[ScoredRows], Array]


def _accuracy(rows: ScoredRows) -> Array:
    classes = cast(Classifier, rows.model).classes_
    places = LabelPositions(tuple(classes.tolist()))(rows.answers("predict"))
    return np.where(places == rows.target, 1.0, 0.0)


def _log_loss(rows: ScoredRows) -> Array:
    probabilities = rows.answers("predict_proba")
    place = np.nan_to_num(rows.target, nan=0.0).astype(int)
    return np.asarray(-np.log(probabilities[np.arange(len(place)), place]))


def _pinball(rows: ScoredRows) -> Array:
    level, residual = scored_level(rows.model, rows.column), rows.residuals()
    return np.asarray(np.where(residual >= 0, level, level - 1) * residual)


def _cost(rows: ScoredRows) -> Array:
    residual, model = rows.residuals(), cast(Any, rows.model)
    return np.asarray(np.where(residual >= 0, model.underage_cost * residual, -model.overage_cost * residual))


def _coverage(rows: ScoredRows) -> Array:
    if hasattr(rows.model, "predict_interval"):
        low, high = rows.answers("predict_interval").T
        return np.where((low <= rows.target) & (rows.target <= high), 1.0, 0.0)
    return np.where(rows.residuals() <= 0, 1.0, 0.0)


_ROW_METRICS: dict[str, RowMetric] = {
    "accuracy": _accuracy,
    "log_loss": _log_loss,
    "pinball": _pinball,
    "cost": _cost,
    "absolute": lambda rows: np.abs(rows.residuals()),
    "squared": lambda rows: rows.residuals() ** 2,
    "coverage": _coverage,
}
_HIGHER_IS_BETTER = {"accuracy", "coverage"}
METRICS = (*_ROW_METRICS, "auc", "calibration", "residuals")


def scored_level(model: Any, column: int | None) -> float:
    """Return the level of the prediction that is scored."""
    found = model.certificate_.parameters.get("quantile", 0.5)
    return float(found if column is None else found[column])


def statistic_of(metric: str, bins: int) -> tuple[str, int]:
    """Return what noise is added to, and how long it is."""
    if metric == "auc":
        return "auc", 3
    if metric in ("calibration", "residuals"):
        return "histogram", bins * (2 if metric == "calibration" else 1)
    return "mean", 2


def exact_statistic(rows: ScoredRows, metric: str, low: float, high: float, bins: int) -> Array:
    """Return the statistic without noise: private."""
    if metric == "auc":
        return _pairs(rows)
    if metric == "residuals":
        return _binned(rows, rows.residuals(), low, high, bins)
    if metric == "calibration":
        predicted = rows.positive()
        of_label = [np.where(rows.target == place, predicted, np.nan) for place in (0, 1)]
        return np.concatenate([_binned(rows, each, 0.0, 1.0, bins) for each in of_label])
    values = _ROW_METRICS[metric](rows)
    worst = low if metric in _HIGHER_IS_BETTER else high
    values = np.nan_to_num(values, nan=worst, posinf=high, neginf=low)
    unit = np.clip((np.clip(values, low, high) - low) / (high - low), 0.0, 1.0)
    return _sums(rows, np.rint(unit * _GRID) - _GRID / 2)


def _sums(rows: ScoredRows, steps: Array) -> Array:
    """Return the sum over valid rows of whole steps, from minus to plus a half, and their number times its weight.

    A person adds the mean over all its rows, to which invalid ones add 0. Its number is rounded towards 0 and its share
    of valid rows up, so that the first is at most half of the second.
    """
    valid, people = rows.valid, rows.people
    steps = np.where(valid, steps, 0.0)
    if people is None:
        number, total = int(valid.sum()) * _PARTS, int(steps.astype(np.int64).sum())
    else:
        sums, there, every = (
            np.bincount(people.places, each, minlength=people.count + 1)[:-1]
            for each in (steps, valid, np.ones(len(steps)))
        )
        every = np.maximum(every, 1.0)
        number = int(np.ceil(there * _PARTS / every).astype(np.int64).sum())
        total = int(np.trunc(sums / every).astype(np.int64).sum())
    return np.array([total / _GRID, ROW_WEIGHT * (number / _PARTS)])


def _binned(rows: ScoredRows, values: Array, low: float, high: float, bins: int) -> Array:
    """Return votes for values in equal bins, the outermost with all beyond; what is no number is in none."""
    scaled = (values - low) / (high - low) * bins
    votes = np.ones(len(scaled))
    if rows.people is not None:
        votes = np.floor(rows.people.shares * _GRID) / _GRID
    votes = np.where(np.isnan(scaled), 0.0, votes)
    places = np.clip(np.nan_to_num(np.floor(scaled), nan=0.0), 0, bins - 1).astype(np.int64)
    return np.asarray(np.bincount(places, votes, minlength=bins), dtype=np.float64)


def _pairs(rows: ScoredRows) -> Array:
    """Return the statistic of :mod:`dpconvex.core.pairs`."""
    margins, labels = rows.answers("decision_function"), np.where(rows.valid, rows.target, -1.0)
    # A row that cannot be ranked is wrong in all its pairs.
    lost = np.where(labels == 1, -np.inf, np.inf)
    ranked = np.where(np.isnan(margins), lost, margins)
    if rows.people is None:
        return pair_statistic(ranked, labels)
    people = rows.people
    return pair_statistic_of_people(ranked, labels, people.shares, people.places, people.count)
