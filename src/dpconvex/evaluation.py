r"""Scores that may be published: how good a model is on private rows, with noise, an interval and a certificate.

A score computed on private rows is a release like any other. Here every row gives a number within a public range (or
lies in one of a few bins, or is ranked against the others), the total gets noise, and a ledger can be charged. Use rows
that the fit has not seen: on its own rows a model looks better than it is.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import clone, is_classifier
from sklearn.utils.validation import check_is_fitted

from dpconvex.checks import check_count, check_number
from dpconvex.core.evaluation_certificate import EvaluationCertificate
from dpconvex.core.release import Answers
from dpconvex.engine.dask.partitions import Clean, numbers_or_missing
from dpconvex.estimators.release import charge
from dpconvex.inputs.labels import LabelPositions
from dpconvex.inputs.people import RowsOfPeople, read_people, with_people
from dpconvex.inputs.public_table import PublicTable
from dpconvex.inputs.settings import least_rows, resolve_guarantee
from dpconvex.inputs.tables import is_encoded, is_partitioned, read_training, takes_columns_in_order
from dpconvex.privacy.calibration import check_neighbors
from dpconvex.privacy.ledger.ledger import Ledger
from dpconvex.privacy.noise import NoiseSource
from dpconvex.reports.score_results import PrivateScore, described_score
from dpconvex.scored_rows import METRICS, ScoredRows, exact_statistic, scored_level, statistic_of
from dpconvex.scores import silent
from dpconvex.types import Array

__all__ = ["METRICS", "PrivateScore", "private_score"]


_LOG_LOSS = 5.0  # largest log loss of a row: a probability below 0.7 % of what happened counts as that
_LEVEL = 0.95
_NEEDS = {
    "accuracy": "classes_",
    "log_loss": "predict_proba",
    "cost": "underage_cost",
    "auc": "decision_function",
    "calibration": "predict_proba",
}
_OF_CLASSIFIERS = {"accuracy", "log_loss", "auc", "calibration"}


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
    residual_bound: float | None = None,
    bins: int = 10,
    neighbors: str = "replace_one",
    level: float = _LEVEL,
    random_state: int | None = None,
) -> PrivateScore:
    r"""Return how good a fitted model is on private rows, as a number that may be published.

    Row metrics: ``low + (high - low) (1/2 + (sum_i (u_i - 1/2) + noise) / r)`` over the valid rows, with ``u_i`` the
    row's number, clipped to the public range ``[low, high]`` and scaled to [0, 1], and r their noisy number. AUC:
    ``1/2 + (V + noise) / (p q)``, with noisy numbers ``p`` and ``q`` of positive and negative rows and ``V`` the sum
    over their pairs of +1/2 for the right order, 0 for a tie, -1/2 for the wrong one.

    Parameters
    ----------
    model : fitted estimator
        Of dpconvex; public by now. Also a pipeline of a :class:`~dpconvex.preprocessing.PublicTable` and an estimator,
        and a model that was loaded with its schema: X is then a table as it comes.
    X, y : array or dataframe, array
        Private rows that the fit has not seen. A row with a missing value, or a label that the model does not know,
        counts nowhere; how many are left is paid for, and part of the result.
    metric : str, optional
        ``"pinball"``, ``"cost"``, ``"absolute"``, ``"squared"``, ``"residuals"`` (a histogram) for regressions;
        ``"accuracy"``, ``"log_loss"``, ``"auc"``, ``"calibration"`` (a curve) for classifiers, the last two with two
        classes; ``"coverage"``, the share of rows in the intervals of
        :class:`~dpconvex.intervals.DPConformal`, or at or below a predicted quantile. By default what the estimator
        minimises: cost, pinball loss, squared error, AUC or accuracy.
    epsilon, delta, mu : float, optional
        Budget: 1.0 and 1e-6 by default, ``delta=0`` for pure epsilon-DP, or ``mu``.
    ledger : Ledger, optional
        Charged before noise is drawn, in full: the rows may belong to people whom the fit has seen.
    groups : array of shape (n_samples,), optional
        Identifiers of people. The promise is then made to a person with all its rows: a person's number is the mean of
        those of its rows, and the score the mean over people. By default those of the schema's ``[person]``, where X is
        a table as it comes. For AUC a row has the share ``1 / m`` of its person's m
        rows, and a pair the product of both; pairs of one person's rows count as ties. A row that names nobody counts
        for nobody.
    quantile : float, optional
        Which of its levels is scored, of a model with several.
    residual_bound : float, optional
        Residuals beyond it, in the target's units, count as that far; by default the width of the target's range.
        Noise grows with it.
    bins : int, default=10
        Of ``"calibration"`` and ``"residuals"``.
    neighbors : {"replace_one", "add_or_remove_one"}
        Whether the number of rows is public or private.
    level : float, default=0.95
        Of the interval.
    random_state : None or int
        For tests: a seeded score is not private.

    Returns
    -------
    PrivateScore

    Notes
    -----
    Privacy: the promise is about the rows given here; those of the fit have the model's own certificate. A person in
    both is protected by both together, which a shared ledger adds up. Sums are sums of whole numbers and exact, noise
    is exact on a public grid.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex import DPQuantileRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(0, 1, (4000, 2)); y = X.sum(axis=1) + rng.normal(0, 0.2, 4000)
    >>> model = DPQuantileRegressor(0.5, feature_bounds=(0, 1), target_bounds=(-1, 3), random_state=0)
    >>> fitted = model.fit(X[:3000], y[:3000])
    >>> score = private_score(fitted, X[3000:], y[3000:], epsilon=1.0, random_state=0)
    >>> bool(score.interval[0] < score.value < score.interval[1])
    True
    """
    owner = "private_score"
    model, X, groups = _taken_apart(model, X, groups)
    check_is_fitted(model, "certificate_")
    metric = _default_metric(model) if metric is None else metric
    column = _column(model, quantile)
    _check_metric(model, metric, column)
    check_neighbors(neighbors, owner)
    allowed = "a number between 0 and 1"
    level = check_number("level", owner, level, allowed, 0, 1, low_open=True)
    check_count("bins", owner, bins, 2, 1000)
    if ledger is not None and not hasattr(ledger, "charge"):
        raise TypeError(
            f"The 'ledger' parameter of {owner} must be None or a Ledger. Got {type(ledger).__name__} instead."
        )
    guarantee = resolve_guarantee(epsilon, delta, mu, owner)
    low, high = _range(model, metric, residual_bound, column)
    rows = replace(_read(model, X, y, groups, least_rows(neighbors)), column=column)
    n = rows.count
    statistic, dimension = statistic_of(metric, bins)
    certificate = EvaluationCertificate.issue(
        guarantee, "score", statistic, n, dimension, 1, neighbors,
        seeded=random_state is not None, people=groups is not None,
    )  # fmt: skip
    noise = NoiseSource(random_state)
    charge(ledger, certificate, owner)
    with silent():
        exact = exact_statistic(rows, metric, low, high, bins)
        released = _add(exact, certificate, noise)
    return described_score(released, certificate, metric, (low, high), n, level)


def _taken_apart(model: Any, X: Any, groups: object) -> tuple[Any, Any, Any]:
    """Return an estimator, its rows and their people: a pipeline's `PublicTable` or a loaded schema reads tables."""
    steps = [step for _, step in getattr(model, "steps", [])]
    if len(steps) == 2 and isinstance(steps[0], PublicTable):
        table, model = steps
    elif steps:
        raise TypeError(
            "The 'model' parameter of private_score must be an estimator, or a pipeline of a PublicTable and an "
            "estimator. Got another pipeline instead. Transform the rows, and give its last step."
        )
    else:
        schema = getattr(model, "schema_", None)
        if schema is None or isinstance(X, RowsOfPeople) or is_partitioned(X) or is_encoded(X, schema):
            return model, *with_people(X, groups)
        table = PublicTable(schema)
    if groups is not None:
        return model, table.transform(X), groups
    return model, *with_people(clone(table).fit_transform(X), None)


def _default_metric(model: Any) -> str:
    if hasattr(model, "predict_interval"):
        return "coverage"
    if is_classifier(model):
        return "auc" if type(model).__name__ == "DPAUCClassifier" else "accuracy"
    if hasattr(model, "underage_cost"):
        return "cost"
    return "pinball" if hasattr(model, "quantile") else "squared"


def _levels(model: Any) -> list[float]:
    """Return the levels of a model with several; none of products, which have one each."""
    found = getattr(model.certificate_, "parameters", {}).get("quantile")
    return found if isinstance(found, list) and hasattr(model, "quantile") else []


def _column(model: Any, quantile: object) -> int | None:
    """Return which of several predictions is scored."""
    levels = _levels(model)
    if quantile is None:
        return None
    if quantile not in levels:
        allowed = f"None or one of the model's levels, {levels}" if levels else "None: it has one"
        raise ValueError(f"The 'quantile' parameter of private_score must be {allowed}. Got {quantile!r} instead.")
    return levels.index(quantile)


def _check_metric(model: Any, metric: object, column: int | None) -> None:
    if metric not in METRICS:
        raise ValueError(f"The 'metric' parameter of private_score must be one of {METRICS}. Got {metric!r} instead.")
    name = type(model).__name__
    inner = getattr(model, "estimator_", model)  # of intervals
    if (
        np.ndim(getattr(inner, "coef_", ())) == 2
        and not is_classifier(model)
        and not (metric == "coverage" and hasattr(model, "predict_interval"))
        and column is None
    ):
        levels = _levels(model)
        many = "levels" if levels else "levels or products"
        remedy = "There are no scores of several products."
        if levels:
            remedy = f"Say which one to score, like quantile={levels[0]:g}: the model stays as it is."
        raise ValueError(
            f"private_score is for one prediction per row. Got {name} with {len(inner.coef_)} {many} instead. {remedy}"
        )
    of_labels = metric in _OF_CLASSIFIERS
    needed = _NEEDS.get(str(metric), "predict")
    if of_labels is not is_classifier(model) or not hasattr(model, needed):
        raise ValueError(
            f"The metric {metric!r} needs a {'classifier' if of_labels else 'regression'} with '{needed}', which "
            f"{name} is not. See the documentation of private_score for the metrics of each kind of model."
        )
    if metric in ("auc", "calibration") and len(model.classes_) != 2:
        raise ValueError(
            f"The metric {metric!r} is for two classes. Got {len(model.classes_)} instead. Use 'accuracy'."
        )


def _range(model: Any, metric: str, residual_bound: object, column: int | None = None) -> tuple[float, float]:
    """Return the public range of a row's number."""
    if metric in ("accuracy", "coverage", "auc", "calibration"):
        return 0.0, 1.0
    if metric == "log_loss":
        return 0.0, _LOG_LOSS
    if residual_bound is None:
        target = getattr(model, "target_bounds", None)
        if target is None:
            raise ValueError(
                "The 'residual_bound' parameter of private_score must be given where the model has no "
                "'target_bounds': what a row can add must be bounded by public facts."
            )
        residual_bound = float(target[1]) - float(target[0])
    bound = check_number(
        "residual_bound", "private_score", residual_bound, "a number above 0", 0, 1e150, low_open=True
    )  # fmt: skip
    if metric == "residuals":
        return -bound, bound
    steepest = 1.0
    if metric == "pinball":
        level = scored_level(model, column)
        steepest = max(level, 1 - level)
    if metric == "cost":
        steepest = max(model.underage_cost, model.overage_cost)
    return 0.0, (bound if metric == "squared" else steepest) * bound


def _read(model: Any, X: object, y: object, groups: object = None, least: int = 1) -> ScoredRows:
    """Return rows and targets, marked where a value is missing: no error tells of values."""
    owner = "private_score"
    if is_partitioned(X) or is_partitioned(y) or issparse(X):
        kind = "a sparse table" if issparse(X) else "a Dask collection"
        raise TypeError(
            f"{owner} needs dense rows in memory. Got {kind} instead. Use X.toarray(), or X.compute() and y.compute(), "
            "or a public sample of the rows."
        )
    probe = copy(model)
    labels = is_classifier(model)
    clean = Clean(LabelPositions(tuple(model.classes_.tolist())) if labels else numbers_or_missing)
    features, target = read_training(probe, X, y, clean, least, **({} if labels else {"y_numeric": True}))  # fmt: skip
    if features.shape[1] != model.n_features_in_:
        raise ValueError(
            f"The X given to {owner} has {features.shape[1]} columns, but the model was fitted on "
            f"{model.n_features_in_}."
        )
    names, known = (getattr(each, "feature_names_in_", None) for each in (probe, model))
    if names is not None and known is not None and list(names) != list(known):
        raise ValueError(f"The columns of X given to {owner} must be those of the fit, in the same order.")
    people = None if groups is None else read_people(groups, features, owner)
    model = takes_columns_in_order(copy(model))
    return ScoredRows(model, np.asarray(features, dtype=np.float64), target, people)


def _add(exact: Array, certificate: EvaluationCertificate, noise: NoiseSource) -> Array:
    answers = Answers({"score": certificate.term}, noise)
    return answers.release(answers.claim("score"), exact)
