"""Numbers of private rows that scores are made of, exact and private: what a row adds, sums over
rows and people, bins.

Noise is added in :mod:`dpconvex.evaluation`, where sensitivities are certified.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dpconvex.core.row_weights import RowWeights
from dpconvex.estimators.tweedie import tweedie_deviance
from dpconvex.inputs.labels import LabelPositions
from dpconvex.inputs.people_and_weights import person_indices
from dpconvex.inputs.settings import Classifier, Fitted, FittedIntervals
from dpconvex.releases.auc_pairs import (
    ROW_WEIGHT,
    concordance_statistic,
    pair_statistic,
    pair_statistic_of_people,
)
from dpconvex.types import Array

# Steps of a row's number and of a person's weight in a bin: sums of 2^32 of them are exact. The
# grid is fixed, because the number of rows may be private and a grid that followed it would move
# everybody's numbers.
ROW_STEPS = 2**20
_PARTS = 2**10  # steps of a person's share of valid rows


@dataclass(frozen=True)
class EvaluatedRows:
    """Private rows, marked, and a model's answers to them."""

    model: Fitted
    features: Array
    target: Array  # numbers, or positions of labels; NaN where a row is invalid
    people: RowWeights | None = None
    column: int | None = None  # of predictions at several levels

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Whether a row counts: it has no missing value, and a label that the model knows."""
        return ~np.isnan(self.target)

    @property
    def count(self) -> int:
        """Number of records: people, or rows."""
        return len(self.target) if self.people is None else self.people.records

    def answers(self, method: str) -> Array:
        """Return the model's answers; those of invalid rows do not count."""
        usable = np.asarray(np.isfinite(self.features).all(axis=1))
        # A model needs at least one row: zeros stand for none, and for invalid ones.
        asked = np.zeros((max(1, len(usable)), self.features.shape[1]))
        asked[: len(usable)] = np.where(usable[:, None], self.features, 0)
        return np.asarray(getattr(self.model, method)(asked))[: len(usable)]

    def residuals(self) -> Array:
        """Return targets minus predictions, NaN for invalid rows."""
        found = self.answers("predict")
        return np.asarray(self.target - (found if self.column is None else found[:, self.column]))


# Row metrics return one number per row, in the metric's own units. NaN for a valid row counts as
# the worst.
def _accuracy_by_row(rows: EvaluatedRows) -> Array:
    classes = cast(Classifier, rows.model).classes_
    positions = LabelPositions(tuple(classes.tolist()))(rows.answers("predict"))
    return np.where(positions == rows.target, 1.0, 0.0)


def _log_loss(rows: EvaluatedRows) -> Array:
    probabilities = rows.answers("predict_proba")
    position = np.nan_to_num(rows.target, nan=0.0).astype(int)
    return np.asarray(-np.log(probabilities[np.arange(len(position)), position]))


def _pinball(rows: EvaluatedRows) -> Array:
    level = scored_level(rows.model, rows.column)
    residual = rows.residuals()
    return np.asarray(np.where(residual >= 0, level, level - 1) * residual)


def _cost(rows: EvaluatedRows) -> Array:
    residual = rows.residuals()
    model = cast(Any, rows.model)
    return np.asarray(
        np.where(residual >= 0, model.underage_cost * residual, -model.overage_cost * residual)
    )


def period_lengths(model: Any) -> Array:
    """Return the lengths of periods over that of all."""
    ends = np.array(model._public_horizons())
    return np.diff(ends / ends[-1], prepend=0.0)


def _brier(rows: EvaluatedRows) -> Array:
    """Return weighted squared errors of the probability to survive, averaged over time; 0 where
    nothing is known.
    """
    survival = rows.answers("predict_survival")
    weights = cast(Any, rows.model)._censoring_weights()
    last = np.nan_to_num(rows.target).astype(int)[:, None]
    period = np.arange(weights.size)
    ended = (last % 2 == 1) & (last < 2 * period + 2)
    alive = last >= 2 * period + 2
    known = np.where(
        ended, weights[np.minimum(last // 2, weights.size - 1)], np.where(alive, weights, 0.0)
    )
    return np.asarray((known * (alive - survival) ** 2 * period_lengths(rows.model)).sum(axis=1))


def _deviance(rows: EvaluatedRows) -> Array:
    mean = rows.answers("predict")
    y = np.where(rows.target >= 0, rows.target, np.nan)
    return tweedie_deviance(y, mean, rows.model._variance_power())  # type: ignore[attr-defined]


def _coverage_by_row(rows: EvaluatedRows) -> Array:
    if isinstance(rows.model, FittedIntervals):
        low, high = rows.answers("predict_interval").T
        return np.where((low <= rows.target) & (rows.target <= high), 1.0, 0.0)
    return np.where(rows.residuals() <= 0, 1.0, 0.0)


ROW_METRICS: dict[str, Callable[[EvaluatedRows], Array]] = {
    "accuracy": _accuracy_by_row,
    "log_loss": _log_loss,
    "pinball": _pinball,
    "cost": _cost,
    "absolute": lambda rows: np.abs(rows.residuals()),
    "squared": lambda rows: rows.residuals() ** 2,
    "coverage": _coverage_by_row,
    "brier": _brier,
    "deviance": _deviance,
}
_HIGHER_IS_BETTER = {"accuracy", "coverage"}
RESIDUAL_METRICS = ("pinball", "cost", "absolute", "squared", "deviance")
SURVIVAL_METRICS = ("concordance", "brier")
METRICS = (*ROW_METRICS, "auc", "concordance", "calibration", "residuals")


def scored_level(model: Any, column: int | None) -> float:
    """Return the level of the prediction that is scored."""
    found = model.certificate_.parameters.get("quantile", 0.5)
    return float(found if column is None else found[column])


def evaluation_statistic(metric: str, bins: int) -> tuple[str, int]:
    """Return the name of the statistic that gets noise, and its dimension."""
    if metric in ("auc", "concordance"):
        return metric, 3 if metric == "auc" else 2
    if metric in ("calibration", "residuals"):
        return "histogram", bins * (2 if metric == "calibration" else 1)
    return "mean", 2


def exact_evaluation(rows: EvaluatedRows, metric: str, low: float, high: float, bins: int) -> Array:
    """Return the statistic without noise: private."""
    if metric == "auc":
        return _evaluate_auc_pairs(rows)
    if metric == "concordance":
        # A row that cannot be ranked is ranked last.
        return concordance_statistic(
            np.nan_to_num(rows.answers("predict"), nan=-np.inf), rows.target
        )
    if metric == "residuals":
        return _bin_evaluated_scores(rows, rows.residuals(), low, high, bins)
    if metric == "calibration":
        predicted = rows.answers("predict_proba")[:, 1]
        of_label = [np.where(rows.target == label, predicted, np.nan) for label in (0, 1)]
        return np.concatenate(
            [_bin_evaluated_scores(rows, each, 0.0, 1.0, bins) for each in of_label]
        )
    unit = (clipped_row_scores(rows, metric, low, high) - low) / (high - low)
    return sum_evaluated_scores(rows, steps_of_scores(unit))


def steps_of_scores(unit: Array) -> Array:
    """Return numbers in [0, 1] as whole steps from the middle: never NaN, which would be the
    largest of all numbers.
    """
    return np.rint(np.clip(np.nan_to_num(unit), 0.0, 1.0) * ROW_STEPS) - ROW_STEPS / 2


def clipped_row_scores(rows: EvaluatedRows, metric: str, low: float, high: float) -> Array:
    """Return a number of each row within the range; the worst where it is none."""
    worst = low if metric in _HIGHER_IS_BETTER else high
    values = np.nan_to_num(ROW_METRICS[metric](rows), nan=worst, posinf=high, neginf=low)
    return np.clip(values, low, high)


def sum_evaluated_scores(rows: EvaluatedRows, steps: Array) -> Array:
    """Return the sum over valid rows of whole steps, from minus to plus a half, and their number
    times its weight.

    A person adds the mean over all its rows, to which invalid ones add 0. Its number is rounded
    towards 0 and its share of valid rows up, so that the first is at most half of the second.
    """
    valid = rows.valid
    people = rows.people
    steps = np.where(valid, steps, 0.0)
    if people is None:
        number = int(valid.sum()) * _PARTS
        total = int(steps.astype(np.int64).sum())
    else:
        sums, there, every = (
            np.bincount(_people_of(people), each, minlength=people.records + 1)[:-1]
            for each in (steps, valid, np.ones(len(steps)))
        )
        every = np.maximum(every, 1.0)
        number = int(np.ceil(there * _PARTS / every).astype(np.int64).sum())
        total = int(np.trunc(sums / every).astype(np.int64).sum())
    return np.array([total / ROW_STEPS, ROW_WEIGHT * (number / _PARTS)])


def _people_of(people: RowWeights) -> NDArray[np.int64]:
    assert people.tags is not None  # they were read from identifiers
    return person_indices(people.tags)


def _bin_evaluated_scores(
    rows: EvaluatedRows, values: Array, low: float, high: float, bins: int
) -> Array:
    """Return the weights of rows in equal bins, the outermost with all beyond; a NaN lies in
    none.
    """
    scaled = (values - low) / (high - low) * bins
    weights = np.ones(len(scaled))
    if rows.people is not None:
        weights = np.floor(rows.people.values * ROW_STEPS) / ROW_STEPS
    weights = np.where(np.isnan(scaled), 0.0, weights)
    bin_indices = np.clip(np.nan_to_num(np.floor(scaled), nan=0.0), 0, bins - 1).astype(np.int64)
    return np.asarray(np.bincount(bin_indices, weights, minlength=bins), dtype=np.float64)


def _evaluate_auc_pairs(rows: EvaluatedRows) -> Array:
    margins = rows.answers("decision_function")
    labels = np.where(rows.valid, rows.target, -1.0)
    # A row that cannot be ranked is wrong in all its pairs.
    lost = np.where(labels == 1, -np.inf, np.inf)
    ranked = np.where(np.isnan(margins), lost, margins)
    if rows.people is None:
        return pair_statistic(ranked, labels)
    people = rows.people
    return pair_statistic_of_people(
        ranked, labels, people.values, _people_of(people), people.records
    )
