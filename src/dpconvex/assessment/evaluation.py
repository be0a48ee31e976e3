r"""Private scores of a model on private rows: a noisy value, its interval and its certificate.

A score computed on private rows is a release like any other. Every row gives a number within a
public range, lies in one of a few bins, or is ranked against the others; the total gets noise, and
a ledger can be charged. Use rows that the fit has not seen: on its own rows a model looks better
than it is.
"""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import check_is_fitted

from dpconvex.assessment.evaluation_certificate import EvaluationCertificate
from dpconvex.assessment.evaluation_statistics import (
    METRICS,
    RESIDUAL_METRICS,
    ROW_METRICS,
    ROW_STEPS,
    SURVIVAL_METRICS,
    EvaluatedRows,
    clipped_row_scores,
    evaluation_statistic,
    exact_evaluation,
    period_lengths,
    scored_level,
    steps_of_scores,
    sum_evaluated_scores,
)
from dpconvex.core.calibration import check_neighbors
from dpconvex.core.checks import check_count, check_number, check_share, parameter_error
from dpconvex.core.noise_source import NoiseSource
from dpconvex.core.private_rows import PrivateAnswers
from dpconvex.core.rows import is_partitioned
from dpconvex.engine.dask.partitions import PartitionTargets
from dpconvex.estimators.private_model import without_model_warnings
from dpconvex.estimators.quantile_and_newsvendor import DPNewsvendor, DPQuantileRegressor
from dpconvex.estimators.survival import DPDiscreteHazard, HazardOutcomes, signed_times
from dpconvex.estimators.tweedie import PrivateRateRegressor, tweedie_deviance
from dpconvex.inputs import settings as input_settings
from dpconvex.inputs.containers import read_target_numbers, readable_twice
from dpconvex.inputs.labels import LabelPositions
from dpconvex.inputs.people_and_weights import RowsOfPeople, read_people, split_people
from dpconvex.inputs.public_table import PublicTable, fitted_schema, pipeline_steps
from dpconvex.inputs.records import are_of_table
from dpconvex.inputs.schema import Schema
from dpconvex.inputs.training_data import is_encoded_data, read_training, takes_columns_in_order
from dpconvex.planning.cost_warning import PrivacyCostWarning
from dpconvex.privacy.charging import charge_private_model, noted_as_spent
from dpconvex.privacy.ledger import Ledger
from dpconvex.releases.auc_pairs import CLASS_WEIGHT, ROW_WEIGHT
from dpconvex.reports.wording import guarantee_wording
from dpconvex.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["METRICS", "PrivateScore", "private_score", "private_score_difference"]

_DRAWS = 5_000  # of the noise, for intervals
_LOG_LOSS = (
    5.0  # largest log loss of a row: a probability below 0.7 % of what happened counts as that
)
_LEVEL = 0.95
_WIDE = 0.2  # of the range: an interval that is wider tells next to nothing
_RANGE_QUESTIONS = 3  # that find a range privately, among 8
_FARTHEST = 1e100  # of released numbers, which noise does not reach
_BEYOND = 0.02  # of the rows, at most, lie beyond it
_NEEDS = {
    "accuracy": "classes_",
    "log_loss": "predict_proba",
    "cost": "underage_cost",
    "auc": "decision_function",
    "deviance": "rate_bounds",
    "calibration": "predict_proba",
}
_OF_CLASSIFIERS = {"accuracy", "log_loss", "auc", "calibration"}


@noted_as_spent()
def private_score(
    model: Any,
    X: object,
    y: object,
    metric: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    ledger: Ledger | None = None,
    *,
    groups: object = None,
    quantile: float | None = None,
    residual_bound: float | str | None = None,
    bins: int = 10,
    neighbors: str = "replace_one",
    level: float = _LEVEL,
    random_state: int | None = None,
    verbose: int = 0,
) -> PrivateScore:
    r"""Evaluate a fitted model on private rows: return its score as a number that may be published.

    Row metrics: ``low + (high - low) (1/2 + (sum_i (u_i - 1/2) + noise) / r)`` over the valid rows,
    with ``u_i`` the row's number, clipped to the public range ``[low, high]`` and scaled to [0, 1],
    and r their noisy number. AUC: ``1/2 + (V + noise) / (p q)``, with noisy numbers ``p`` and ``q``
    of positive and negative rows and ``V`` the sum over their pairs of +1/2 for the right order, 0
    for a tie, -1/2 for the wrong one. Concordance: the same of pairs of which one has its event in
    a period that the other survives, over their noisy number.

    Parameters
    ----------
    model, X, y : fitted estimator of dpconvex, array or dataframe, array
        Private rows that the fit has not seen; a raw table for a pipeline of a
        :class:`~dpconvex.preprocessing.PublicTable` and an estimator, and for a model that was
        loaded with its schema. A row with a missing value, or an unknown label, counts nowhere; how
        many are left is released with noise.
    metric : str, optional
        ``"pinball"``, ``"cost"``, ``"absolute"``, ``"squared"``, ``"residuals"`` (a histogram) for
        regressions, and ``"deviance"`` for rates; ``"accuracy"``, ``"log_loss"``, ``"auc"``,
        ``"calibration"`` (a curve) for classifiers, the last two with two classes;
        ``"concordance"`` and ``"brier"`` (integrated over periods, records weighted by one over the
        released probability of being watched so long) for survival; ``"coverage"``, the share of
        rows in the intervals of :class:`~dpconvex.intervals.DPConformal`, or at or below a
        predicted quantile. Other metrics of intervals are those of their estimator. By default what
        the estimator minimises: cost, pinball loss, squared error, deviance, AUC, accuracy or
        concordance.
    epsilon, delta, mu, ledger : float, Ledger, optional
        Budget: 1.0 and 1e-6 by default, ``delta=0`` for pure epsilon-DP, or ``mu``. A ledger is
        charged before noise is drawn, in full: the rows may belong to people whom the fit has seen.
    groups : array of shape (n_samples,), optional
        Identifiers of people; by default those of the schema's ``[person]`` where X is a raw table.
        The promise is then made to a person with all its rows: a person's number is the mean of its
        rows', and the score the mean over people. For AUC a row weighs ``1 / m`` of its person's m
        rows, a pair the product of both, and pairs of one person's rows count as ties. A row
        without an identifier counts nowhere.
    quantile : float, optional
        The level to score, of a model with several.
    residual_bound : float or "private", optional
        Residuals beyond it, in the target's units, count as that far; the width of the target's
        range by default, that of the estimator or its schema; a row's deviance counts up to that of
        this number where an eighth of it was predicted. ``"private"`` pays for one that nearly all
        rows are within, down to 1/128 of the target's range: noise doubles and the range may shrink
        far more.
    bins, level : int, default=10, and float, default=0.95
        Bins of ``"calibration"`` and ``"residuals"``, and the level of the interval.
    neighbors : {"replace_one", "add_or_remove_one"}
        Whether the number of rows is public or private.
    random_state : None or int
        For tests: a seeded score is not private.
    verbose : int, default=0
        Say on stderr, before anything is charged, how wide the interval will be. Where that is more
        than a fifth of the range, a ``PrivacyCostWarning`` says it.

    Notes
    -----
    Privacy: a private range asks three times, adaptively, for the noisy share of rows whose number
    is beyond a point: each is a row metric of its own, under the same certificate.

    The promise is about the rows given here; those of the fit have the model's own certificate. A
    person in both is protected by both together, which a shared ledger adds up. Sums are sums of
    whole numbers and exact, noise is exact on a public grid.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex import DPQuantileRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 1, (4000, 2))
    >>> y = X.sum(axis=1) + rng.normal(0, 0.2, 4000)
    >>> model = DPQuantileRegressor(
    ...     0.5, feature_bounds=(0, 1), target_bounds=(-1, 3), random_state=0
    ... )
    >>> fitted = model.fit(X[:3000], y[:3000])
    >>> score = private_score(fitted, X[3000:], y[3000:], epsilon=1.0, random_state=0)
    >>> bool(score.interval[0] < score.value < score.interval[1])
    True
    """
    owner = "private_score"
    schema = _evaluated_schema(model)
    of_table = are_of_table(model, X, y, groups)
    model, X, groups = _read_evaluated_table(model, X, groups)
    check_is_fitted(model, "certificate_")
    metric = _default_evaluation_metric(model) if metric is None else metric
    model = _evaluated_predictor(model, metric)
    column = _evaluated_level_column(model, quantile)
    _check_evaluation_metric(model, metric, column)
    check_neighbors(neighbors, owner)
    level = check_share("level", owner, level)
    check_count("bins", owner, bins, 2, 1000)
    input_settings.check_ledger_setting(ledger, owner)
    guarantee = input_settings.resolve_budget_setting(epsilon, delta, mu, owner)
    paid = isinstance(residual_bound, str)
    if paid and (residual_bound != "private" or metric not in RESIDUAL_METRICS):
        allowed = f"a number, or 'private' for {RESIDUAL_METRICS}"
        raise parameter_error("residual_bound", owner, allowed, repr(residual_bound))
    low, high = _evaluation_range(model, metric, None if paid else residual_bound, column, schema)
    if metric == "concordance" and groups is not None:
        raise ValueError(
            "The metric 'concordance' needs one record per person. Got groups instead. Leave "
            "them out."
        )
    rows = replace(
        _read_evaluated_rows(model, X, y, groups, input_settings.least_rows(neighbors)),
        column=column,
    )
    n = rows.count
    statistic, dimension = evaluation_statistic(metric, bins)
    asked = 1 + _RANGE_QUESTIONS * paid
    certificate = EvaluationCertificate.issue(
        guarantee,
        "score",
        statistic,
        n,
        dimension,
        asked,
        neighbors,
        seeded=random_state is not None,
        people=groups is not None,
        table=of_table,
    )
    if (
        neighbors == "replace_one" and statistic != "histogram"
    ):  # else the number of rows is private
        _say_expected_interval(certificate, metric, (low, high), n, level, paid, verbose)
    noise = NoiseSource(random_state)
    charge_private_model(ledger, certificate, owner)
    with without_model_warnings():
        answers = PrivateAnswers({"score": certificate.term}, noise)
        if paid:
            high = _release_evaluation_range(rows, metric, high, answers)
        exact = exact_evaluation(rows, metric, low, high, bins)
        released = answers.release(answers.claim("score"), exact)
    return describe_evaluation(released, certificate, metric, (low, high), n, level)


@noted_as_spent()
def private_score_difference(
    first: Any,
    second: Any,
    X: object,
    y: object,
    metric: str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    mu: float | None = None,
    ledger: Ledger | None = None,
    *,
    groups: object = None,
    bound: float | None = None,
    residual_bound: float | None = None,
    neighbors: str = "replace_one",
    level: float = _LEVEL,
    random_state: int | None = None,
) -> PrivateScore:
    r"""Evaluate two models on the same private rows: return how much larger one's score is, by one
    charge.

    ``-b + 2 b (1/2 + (sum_i (u_i - 1/2) + noise) / r)`` over the rows that are valid for both, with
    ``u_i`` the difference of both numbers of a row, clipped to ``[-b, b]`` and scaled to [0, 1],
    and r their noisy number.

    Parameters
    ----------
    first, second : fitted estimators or pipelines
        As in :func:`private_score`, for the same rows.
    X, y, metric, epsilon, delta, mu, ledger, groups, residual_bound, neighbors, level, random_state
        As in :func:`private_score`; the metric is one with a number per row, by default what
        ``first`` minimises.
    bound : float, optional
        Public bound b of a row's difference, in the metric's units: its whole range by default. Two
        models that mostly agree differ little, and noise is proportional to the bound.

    Returns
    -------
    PrivateScore
        Positive where the number of ``first`` is larger: worse for losses, better for accuracy and
        coverage.

    Notes
    -----
    Privacy: as that of a mean in :func:`private_score`, whose numbers lie in [0, 1]. With the
    default bound, noise is as large as that of the difference of two scores with half of the budget
    each, and with half of that bound half.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex import DPQuantileRegressor
    >>> from dpconvex.evaluation import private_score_difference
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 1, (4000, 2))
    >>> y = X.sum(axis=1) + rng.normal(0, 0.2, 4000)
    >>> model = DPQuantileRegressor(
    ...     0.5, feature_bounds=(0, 1), target_bounds=(-1, 3), random_state=0
    ... )
    >>> whole, half = model.fit(X, y), DPQuantileRegressor(**model.get_params()).fit(X * [1, 0], y)
    >>> found = private_score_difference(whole, half, X, y, epsilon=1.0, bound=0.5, random_state=0)
    >>> found.value < 0  # the loss of the first is smaller
    True
    """
    owner = "private_score_difference"
    evaluated = []
    ranges = []
    named = set()
    check_neighbors(neighbors, owner)
    level = check_share("level", owner, level)
    input_settings.check_ledger_setting(ledger, owner)
    guarantee = input_settings.resolve_budget_setting(epsilon, delta, mu, owner)
    X = readable_twice("X", X, owner)
    y = readable_twice("y", y, owner)
    groups = readable_twice("'groups'", groups, owner)
    for given in (first, second):
        schema = _evaluated_schema(given)
        model, rows, people = _read_evaluated_table(given, X, groups)
        check_is_fitted(model, "certificate_")
        metric = _default_evaluation_metric(model) if metric is None else metric
        if metric not in ROW_METRICS:
            raise parameter_error(
                "metric", owner, f"one with a number per row: {list(ROW_METRICS)}", repr(metric)
            )
        model = _evaluated_predictor(model, metric)
        _check_evaluation_metric(model, metric, None)
        if groups is None and people is not None:
            named.add(None if schema is None else schema.person)
        ranges.append(_evaluation_range(model, metric, residual_bound, None, schema))
        evaluated.append(
            _read_evaluated_rows(model, rows, y, people, input_settings.least_rows(neighbors))
        )
    if len(named) > 1:
        raise ValueError(
            f"The models given to {owner} must have schemas that name the same column of people. "
            "Got two columns instead, and a promise to one would not hold for the other. Say "
            "whose it is with groups."
        )
    widest = max(high - low for low, high in ranges)
    allowed = "None or a number above 0"
    bound = (
        widest
        if bound is None
        else check_number("bound", owner, bound, allowed, 0, 1e150, low_open=True)
    )
    ours, theirs = evaluated
    if ours.people is None:  # the promise is to people where either model's schema names them
        ours = replace(ours, people=theirs.people)
    certificate = EvaluationCertificate.issue(
        guarantee,
        "score",
        "mean",
        ours.count,
        2,
        1,
        neighbors,
        seeded=random_state is not None,
        people=ours.people is not None,
        table=are_of_table(first, X, y, groups),
    )
    noise = NoiseSource(random_state)
    charge_private_model(ledger, certificate, owner)
    with without_model_warnings():
        numbers = [
            clipped_row_scores(rows, str(metric), *ends)
            for rows, ends in zip(evaluated, ranges, strict=True)
        ]
        unit = ((numbers[0] - numbers[1]) / bound + 1) / 2
        both = replace(ours, target=np.where(theirs.valid, ours.target, np.nan))
        answers = PrivateAnswers({"score": certificate.term}, noise)
        exact = sum_evaluated_scores(both, steps_of_scores(unit))
        released = answers.release(answers.claim("score"), exact)
    limits = -bound, bound
    return describe_evaluation(
        released, certificate, f"difference of {metric}", limits, ours.count, level
    )


def _evaluated_schema(model: object) -> Schema | None:
    """Return the schema of a pipeline's table or of a loaded model, if it has one."""
    tables = [step for step in pipeline_steps(model) if isinstance(step, PublicTable)]
    return tables[0].fit().schema_ if tables else fitted_schema(model)


def _read_evaluated_table(model: Any, X: Any, groups: object) -> tuple[Any, Any, Any]:
    """Return an estimator, its rows and their people, read by a pipeline's `PublicTable` or a
    loaded schema.
    """
    steps = pipeline_steps(model)
    if len(steps) == 2 and isinstance(steps[0], PublicTable):
        table, model = steps
    elif steps:
        raise TypeError(
            "The 'model' parameter of private_score must be an estimator, or a pipeline of a "
            "PublicTable and an estimator. Got another pipeline instead. Transform the rows, and "
            "give its last step."
        )
    else:
        schema = fitted_schema(model)
        if (
            schema is None
            or isinstance(X, RowsOfPeople)
            or is_partitioned(X)
            or is_encoded_data(model, X, schema)
        ):
            return model, *split_people(X, groups)
        table = PublicTable(schema)
    if groups is not None:
        return model, table.transform(X), groups
    return model, *split_people(clone(table).fit_transform(X), None)


def _default_evaluation_metric(model: Any) -> str:
    if isinstance(model, input_settings.FittedIntervals):
        return "coverage"
    if is_classifier(model):
        return "auc" if type(model).__name__ == "DPAUCClassifier" else "accuracy"
    if isinstance(model, DPDiscreteHazard):
        return "concordance"
    if isinstance(model, DPNewsvendor):
        return "cost"
    if isinstance(model, PrivateRateRegressor):
        return "deviance"
    return "pinball" if isinstance(model, DPQuantileRegressor) else "squared"


def _evaluated_predictor(model: Any, metric: object) -> Any:
    """Return what is scored: intervals by their coverage, and by other metrics the estimator that
    they are around.
    """
    intervals = isinstance(model, input_settings.FittedIntervals)
    return model.estimator_ if intervals and metric != "coverage" else model


def _quantile_levels(model: Any) -> list[float]:
    """Return the levels of a model with several; none for a newsvendor of several products."""
    found = (
        model.certificate_.parameters.get("quantile")
        if isinstance(model, DPQuantileRegressor)
        else None
    )
    return found if isinstance(found, list) else []


def _evaluated_level_column(model: Any, quantile: object) -> int | None:
    if quantile is None:
        return None
    levels = _quantile_levels(model)
    if quantile not in levels:
        allowed = f"None or one of the model's levels, {levels}" if levels else "None: it has one"
        raise ValueError(
            f"The 'quantile' parameter of private_score must be {allowed}. Got {quantile!r} "
            "instead."
        )
    return levels.index(quantile)


def _check_evaluation_metric(model: Any, metric: object, column: int | None) -> None:
    if metric not in METRICS:
        raise ValueError(
            f"The 'metric' parameter of private_score must be one of {METRICS}. Got {metric!r} "
            "instead."
        )
    name = type(model).__name__
    if getattr(model, "takes_matrices", False):
        raise ValueError(
            f"private_score is for models of rows. Got {name} instead, whose records are matrices."
        )
    inner = model.estimator_ if isinstance(model, input_settings.FittedIntervals) else model
    several = (
        np.ndim(getattr(inner, "coef_", ())) == 2 and not is_classifier(model) and column is None
    )
    if several and not (metric == "coverage" and inner is not model):
        levels = _quantile_levels(model)
        many = "levels or products"
        remedy = "There are no scores of several products."
        if levels:
            many = "levels"
            remedy = (
                f"Say which one to score, like quantile={levels[0]:g}: the model stays as it is."
            )
        raise ValueError(
            f"private_score is for one prediction per row. Got {name} with {len(inner.coef_)} "
            f"{many} instead. {remedy}"
        )
    if (metric in SURVIVAL_METRICS) != isinstance(model, DPDiscreteHazard):
        raise ValueError(
            f"The metrics {SURVIVAL_METRICS}, and no others, are for models of survival. Got "
            f"{name} instead."
        )
    of_labels = metric in _OF_CLASSIFIERS
    needed = _NEEDS.get(str(metric), "predict")
    if of_labels is not is_classifier(model) or not hasattr(model, needed):
        raise ValueError(
            f"The metric {metric!r} needs a {'classifier' if of_labels else 'regression'} with "
            f"'{needed}', which {name} is not. See the documentation of private_score for the "
            "metrics of each kind of model."
        )
    if metric in ("auc", "calibration") and len(model.classes_) != 2:
        raise ValueError(
            f"The metric {metric!r} is for two classes. Got {len(model.classes_)} instead. Use "
            "'accuracy'."
        )


def _evaluation_range(
    model: Any,
    metric: str,
    residual_bound: object,
    column: int | None = None,
    schema: Schema | None = None,
) -> tuple[float, float]:
    if metric in ("accuracy", "coverage", "auc", "calibration", "concordance"):
        return 0.0, 1.0
    if metric == "brier":
        return 0.0, float((model._censoring_weights() * period_lengths(model)).sum())
    if metric == "log_loss":
        return 0.0, _LOG_LOSS
    declared = None if schema is None else schema.target_bounds
    if (
        residual_bound is None
        and input_settings.stated_target_bounds(model) is None
        and declared is not None
    ):
        residual_bound = declared[1] - declared[0]
    if residual_bound is None:
        residual_bound = input_settings.target_range_setting(
            model, "residual_bound", "private_score"
        )
    # whose squares are numbers above 0
    least = 1e-150
    most = 1e150
    allowed = f"a number of at least {least:g} and below {most:g}"
    bound = check_number("residual_bound", "private_score", residual_bound, allowed, least, most)
    if metric == "residuals":
        return -bound, bound
    if metric == "deviance":  # of the largest response where an eighth of it was expected
        power = model._variance_power()
        return 0.0, float(tweedie_deviance(np.array(bound), np.array(bound / 8), power))
    steepest = 1.0
    if metric == "pinball":
        level = scored_level(model, column)
        steepest = max(level, 1 - level)
    if metric == "cost":
        steepest = max(model.underage_cost, model.overage_cost)
    return 0.0, (bound if metric == "squared" else steepest) * bound


def _read_evaluated_rows(
    model: Any, X: object, y: object, groups: object = None, least: int = 1
) -> EvaluatedRows:
    """Return rows and targets, NaN where a value is missing: no error depends on values."""
    owner = "private_score"
    if is_partitioned(X) or is_partitioned(y) or issparse(X):
        kind = "a sparse table" if issparse(X) else "a Dask collection"
        raise TypeError(
            f"{owner} needs dense rows in memory. Got {kind} instead. Use X.toarray(), or "
            "X.compute() and y.compute(), or a public sample of the rows."
        )
    probe = copy(model)
    labels = is_classifier(model)
    clean = PartitionTargets(
        LabelPositions(tuple(model.classes_.tolist())) if labels else read_target_numbers
    )
    survival = isinstance(model, DPDiscreteHazard)
    with without_model_warnings():
        y = signed_times(y, owner, loose=True) if survival else y
        features, target = read_training(
            probe, X, y, clean, least, y_numeric=not labels, columns=model.n_features_in_
        )
    target = HazardOutcomes(model._public_horizons())(target) if survival else target
    if features.shape[1] != model.n_features_in_:
        raise ValueError(
            f"The X given to {owner} has {features.shape[1]} columns, but the model was fitted on "
            f"{model.n_features_in_}."
        )
    names = input_settings.fitted_names(probe)
    known = input_settings.fitted_names(model)
    if names is not None and known is not None and list(names) != list(known):
        raise ValueError(
            f"The columns of X given to {owner} must be those of the fit, in the same order."
        )
    with without_model_warnings():
        people = None if groups is None else read_people(groups, features, owner)
    model = takes_columns_in_order(copy(model))
    return EvaluatedRows(model, np.asarray(features, dtype=np.float64), target, people)


def _say_expected_interval(
    certificate: EvaluationCertificate,
    metric: str,
    limits: tuple[float, float],
    n: int,
    level: float,
    paid: bool,
    verbose: int,
) -> None:
    """Say how wide an evaluation's interval will be in mid-range: from public facts, before the
    charge.
    """
    weights = (CLASS_WEIGHT / 2, CLASS_WEIGHT / 2) if metric == "auc" else (ROW_WEIGHT,)
    weights = (
        (ROW_WEIGHT / 4,) if metric == "concordance" else weights
    )  # half of the pairs have an order
    middle = np.array([0.0, *(weight * n for weight in weights)])
    low, high = describe_evaluation(middle, certificate, metric, limits, n, level).interval
    width = high - low
    whole = limits[1] - limits[0]
    words = (
        f"private_score: the interval of {metric} will be about {width:.3g} wide, of a range "
        f"of {whole:.3g}"
    )
    if paid:
        words += (
            f", or down to {width / _range_step(metric) ** (2**_RANGE_QUESTIONS - 1):.3g} by "
            "the private range"
        )
    # Without a standard error print would take the standard output.
    if verbose and sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(f"{words}.", file=sys.stderr)
    if width > _WIDE * whole and not paid:
        remedy = "Give more rows or budget."
        if metric in RESIDUAL_METRICS:
            remedy = (
                "Give more rows or budget, a smaller residual_bound, or residual_bound='private'."
            )
        warnings.warn(f"{words}: it will tell little. {remedy}", PrivacyCostWarning, stacklevel=3)


def _range_step(metric: str) -> float:
    """Return the factor between two ranges that are compared: 2 in the residuals."""
    return 4.0 if metric == "squared" else 2.0


def _release_evaluation_range(
    rows: EvaluatedRows, metric: str, high: float, answers: PrivateAnswers
) -> float:
    """Return the smallest of eight ranges beyond which a noisy share of rows is small, in three
    questions.
    """
    values = np.nan_to_num(ROW_METRICS[metric](rows), nan=math.inf)
    enough = 0
    too_far = 2**_RANGE_QUESTIONS
    for _ in range(_RANGE_QUESTIONS):
        middle = (enough + too_far) // 2
        beyond = values > high / _range_step(metric) ** middle
        claim = answers.claim("score")
        found = answers.release(
            claim, sum_evaluated_scores(rows, np.where(beyond, ROW_STEPS / 2, -ROW_STEPS / 2))
        )
        number = max(float(found[1]) / ROW_WEIGHT, 1.0)
        share = 0.5 + float(found[0]) / number + answers.terms["score"].coordinate_std / number
        enough, too_far = (middle, too_far) if share < _BEYOND else (enough, middle)
    return high / _range_step(metric) ** enough


@dataclass(frozen=True)
class PrivateScore:
    """A released score.

    Attributes
    ----------
    metric, value : str, float
        Name of the metric, and the score with its noise; NaN for ``"calibration"`` and
        ``"residuals"``, two curves.
    interval, level : pair of float, float
        Holds the score without noise with probability ``level`` over the noise. It says nothing
        about other rows.
    curve : dict of str to array
        ``"calibration"``: ``predicted`` (middles of bins), ``observed`` shares of positive rows,
        ``low``, ``high`` and ``rows``. ``"residuals"``: ``edges`` of bins, ``share``, ``low`` and
        ``high``. Empty otherwise.
    certificate, rows : EvaluationCertificate, float
        Guarantee of the release, and the noisy number of valid rows (or people), for concordance of
        pairs.
    limits : pair of float
        Range of a row's number: public, or released where it was paid for. Numbers beyond count as
        its end.
    """

    metric: str
    value: float
    interval: tuple[float, float]
    level: float
    certificate: EvaluationCertificate = field(repr=False)
    curve: dict[str, Array] = field(default_factory=dict, repr=False)
    rows: float = math.nan
    limits: tuple[float, float] = (0.0, 1.0)

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        guarantee = guarantee_wording(self.certificate.guarantee)
        if self.curve:
            return f"{self.metric}, {guarantee}"
        low, high = self.interval
        return (
            f"{self.metric} {self.value:.4g} (without noise between {low:.4g} and {high:.4g} with "
            f"probability {self.level:g}; rows count from {self.limits[0]:.3g} to "
            f"{self.limits[1]:.3g}) over about {self.rows:.4g} "
            f"{'comparable pairs' if self.metric == 'concordance' else 'valid rows'}; {guarantee}"
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the evaluation's released curve, or the score with its interval; needs
        matplotlib.
        """
        if ax is None:
            import matplotlib.pyplot as plt

            ax = plt.subplots()[1]
        if self.metric == "calibration":
            x = self.curve["predicted"]
            y = self.curve["observed"]
            ax.plot([0, 1], [0, 1], color="0.7", linewidth=1)
            ax.errorbar(
                x, y, _error_bars(y, self.curve["low"], self.curve["high"]), fmt="o", capsize=3
            )
            ax.set(xlabel="predicted probability", ylabel="share of positive rows")
        elif self.metric == "residuals":
            ax.stairs(self.curve["share"], self.curve["edges"], fill=True, alpha=0.5)
            ax.set(xlabel="target minus prediction", ylabel="share of rows")
        else:
            bars = _error_bars(*(np.array([end]) for end in (self.value, *self.interval)))
            ax.errorbar([0], [self.value], bars, fmt="o", capsize=4)
            ax.set(xticks=[0], xticklabels=[self.metric], ylabel="score")
        return ax


def _error_bars(middle: Array, low: Array, high: Array) -> Array:
    return np.asarray(np.maximum(np.array([middle - low, high - middle]), 0.0))


def describe_evaluation(
    released: Array,
    certificate: EvaluationCertificate,
    metric: str,
    limits: tuple[float, float],
    n: int,
    level: float,
) -> PrivateScore:
    """Return the released score with its interval, from released and public numbers alone."""
    n = max(1, n)  # there may be no identifier at all
    levels = (1 - level) / 2, (1 + level) / 2
    released = np.clip(np.nan_to_num(released), -_FARTHEST, _FARTHEST)
    possible = released - _evaluation_noise_draws(certificate)
    if certificate.statistic == "histogram":
        curve = _describe_evaluated_curve(released, possible, metric, limits, levels)
        rows = float(released.sum())
        return PrivateScore(
            metric, math.nan, (math.nan, math.nan), level, certificate, curve, rows, limits
        )
    low, high = limits
    if metric == "auc":
        low = 0.0
        high = 1.0

    def score(vector: Array) -> Array:
        if metric == "auc":
            classes = np.clip(vector[..., 1:] / CLASS_WEIGHT, 1.0, max(1.0, n - 1.0))
            return np.asarray(0.5 + vector[..., 0] * (n - 1) / classes.prod(axis=-1))
        share = 0.5 + vector[..., 0] / np.maximum(vector[..., 1] / ROW_WEIGHT, 1.0)
        return np.asarray(low + (high - low) * share)

    with np.errstate(over="ignore"):
        ends = np.clip(np.quantile(score(possible), levels), low, high)
        value = float(np.clip(score(released), low, high))
    rows = float(released[1:].sum() / (CLASS_WEIGHT if metric == "auc" else ROW_WEIGHT))
    rows *= n - 1 if metric == "concordance" else 1
    interval = (float(ends[0]), float(ends[1]))
    return PrivateScore(metric, value, interval, level, certificate, rows=rows, limits=(low, high))


def _evaluation_noise_draws(certificate: EvaluationCertificate) -> Array:
    """Return draws of the noise's law for intervals: public, and the same for everybody."""
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((_DRAWS, certificate.dimension))
    if certificate.distribution == "gaussian":
        return draws * certificate.scale
    lengths = rng.gamma(certificate.dimension, certificate.scale, (_DRAWS, 1))
    return np.asarray(draws / np.linalg.norm(draws, axis=1, keepdims=True) * lengths)


def _describe_evaluated_curve(
    released: Array,
    possible: Array,
    metric: str,
    limits: tuple[float, float],
    levels: tuple[float, float],
) -> dict[str, Array]:
    counts = np.maximum(released, 0.0)
    if metric == "residuals":
        rows = max(1.0, float(counts.sum()))
        low, high = np.quantile(np.maximum(possible, 0.0) / rows, levels, axis=0)
        edges = np.linspace(*limits, len(released) + 1)
        return {"edges": edges, "share": counts / rows, "low": low, "high": high}
    bins = len(released) // 2

    def observed(vector: Array) -> Array:
        rest = np.maximum(vector[..., :bins], 0.0)
        positive = np.maximum(vector[..., bins:], 0.0)
        with np.errstate(all="ignore"):
            return np.asarray(np.nan_to_num(positive / (rest + positive), nan=0.5))

    low, high = np.quantile(observed(possible), levels, axis=0)
    return {
        "predicted": (np.arange(bins) + 0.5) / bins,
        "observed": observed(released),
        "low": low,
        "high": high,
        "rows": counts[:bins] + counts[bins:],
    }
