r"""Private choice among candidates under one stated total budget.

Rows are split once, independently of the data, into training and validation rows. A record lies in
one of the two, so fitting and scoring do not add up. Two strategies:

*Exponential*: fit each of k candidates with ``mu / sqrt(k)`` on the training rows and draw the
winner with probability proportional to ``exp(epsilon u / 2)``, where ``u`` is its score on the
validation rows in units of what one record can change.

*Repeat*: draw the number of runs from a geometric law; each run draws a candidate at random, fits
it with ``mu`` and scores it with Gaussian noise of ``1 / mu``; the best run is released. The cost
hardly grows with the number of candidates: the accountant of dp-accounting bounds it by the Rényi
theorems for repeated selection.

Scores add up one number per row: a function of your own is asked about one row at a time, and its
answers are clipped to a public range. :class:`AUCScore` is no sum over rows and has a sensitivity
of its own. Scores are whole numbers of steps, ``SCORE_GRID`` to what one record can change. NaN
counts as the worst score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier, is_regressor
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpconvex.assessment.selection_certificate import (
    SelectionCertificate,
    selection_certificate_shares,
)
from dpconvex.core.certificate import Certificate
from dpconvex.core.checks import parameter_error
from dpconvex.core.guarantees import ApproxDP, GaussianDP, Guarantee
from dpconvex.core.noise_source import NoiseSource
from dpconvex.core.person_identifiers import Tags
from dpconvex.engine.sparse_rows import refuse_sparse_row_weights
from dpconvex.estimators.linear import PrivateLinearModel
from dpconvex.estimators.parameters import with_parameters
from dpconvex.estimators.private_model import keep_model_on_failure, without_model_warnings
from dpconvex.inputs import settings as input_settings
from dpconvex.inputs.labels import declared_label_set, read_label_set
from dpconvex.inputs.people_and_weights import read_row_weights, split_people
from dpconvex.inputs.pipelines import PrivateStep
from dpconvex.inputs.records import are_of_table, told_of_records
from dpconvex.inputs.training_data import (
    read_training,
    refuse_partitioned_data,
    takes_columns_in_order,
)
from dpconvex.privacy.bounds.scores import AUCScoreBounds, RowScoreBounds
from dpconvex.privacy.charging import charge_private_model, noted_as_spent
from dpconvex.privacy.ledger import Ledger
from dpconvex.releases.auc_pairs import twice_ordered_pairs
from dpconvex.releases.exponential_choices import SCORE_GRID, ExponentialChoices, repeat_and_choose
from dpconvex.types import Array

__all__ = ["AUCScore", "DPSelect", "RowScore", "SelectionCertificate"]

Targets = NDArray[Any]  # numbers or labels
_RESPONSES = ("predict", "predict_proba", "decision_function")


def _predict_for_selection(
    model: input_settings.Classifier, X: Array, response: str
) -> tuple[Targets, NDArray[np.bool_]]:
    if issparse(X):  # checked when it was read
        return getattr(model, response)(X), np.ones(X.shape[0], dtype=np.bool_)
    usable = np.asarray(np.isfinite(X).all(axis=1))
    return getattr(model, response)(np.where(usable[:, None], X, 0.0)), usable


class _SelectionScoreSum:
    """A score that adds up one number per row."""

    @property
    def bounds(self) -> RowScoreBounds:
        """Public range of one row's number."""
        return RowScoreBounds()

    def _values(self, model: input_settings.Classifier, X: Array, y: Targets) -> Array:
        """Return one number per row, not clipped; NaN stands for the worst."""
        raise NotImplementedError

    def steps(
        self,
        model: input_settings.Classifier,
        X: Array,
        y: Targets,
        neighbors: str,
        people: Tags | None = None,
    ) -> int:
        """Return a candidate's exact score in steps of the selection's grid: private. A person's
        is the rows' mean.
        """
        if not len(y):
            return 0
        low = self.bounds.low
        high = self.bounds.high
        with without_model_warnings():
            values = np.nan_to_num(self._values(model, X, y), nan=low, posinf=high, neginf=low)
            unit = (np.clip(values, low, high) - low) / (high - low)
            steps = np.floor(np.clip(unit, 0.0, 1.0) * SCORE_GRID)
        if people is not None:
            _, person_indices, rows = np.unique(people, return_inverse=True, return_counts=True)
            # Sums of whole numbers, exact: nobody's mean can exceed the largest of its rows.
            steps = np.floor(np.bincount(person_indices, steps) / rows)
        return int(steps.astype(np.int64).sum())


@dataclass(frozen=True)
class RowScore(_SelectionScoreSum):
    """Score of one row by a function of your own, added up over the validation rows.

    Parameters
    ----------
    function : callable
        ``function(target, response)`` returns the score of one row, more being better. A row for
        which it raises or returns no number counts as the worst.
    low, high : float, default=0 and 1
        Public range that scores are clipped to.
    response : {"predict", "predict_proba", "decision_function"}
        Answer of the candidate that the function gets.

    Notes
    -----
    Privacy: a record moves the sum by at most ``high - low``, whatever the function makes of a row.
    It must not keep rows for the next call or pass them on.

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
        """Raise if the score cannot serve a selection: it must score an invented row of a
        possible target or label.
        """
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
                "The 'scoring' parameter of DPSelect must be a function of one row: "
                f"scoring(target, response) returns one number. It raised {type(error).__name__} "
                "on an invented row. For a score of all rows at once use AUCScore, or the sum of "
                "a score of each row."
            ) from error

    def _values(self, model: input_settings.Classifier, X: Array, y: Targets) -> Array:
        rows = zip(y, *_predict_for_selection(model, X, self.response), strict=True)
        return np.array(
            [self._value(target, answer) if valid else np.nan for target, answer, valid in rows]
        )

    def _value(self, target: object, response: object) -> float:
        try:
            return float(self.function(target, response))
        except Exception:  # that it cannot score this row is private
            return float("nan")


@dataclass(frozen=True)
class SelectionAccuracy(_SelectionScoreSum):
    """1 for a row whose label is predicted, 0 for any other."""

    def _values(self, model: input_settings.Classifier, X: Array, y: Targets) -> Array:
        predicted, usable = _predict_for_selection(model, X, "predict")
        return np.asarray((predicted == y) & usable, dtype=np.float64)


@dataclass(frozen=True)
class SelectionResidualScore(_SelectionScoreSum):
    """One minus the row's pinball loss relative to that of a residual ``bound``; absolute loss
    without a quantile.

    Residuals beyond the bound, in the target's units, count as equally bad.
    """

    bound: float

    def _values(self, model: input_settings.Classifier, X: Array, y: Targets) -> Array:
        predicted, usable = _predict_for_selection(model, X, "predict")
        residual = np.where(usable, np.asarray(y, dtype=np.float64) - predicted, np.nan)
        level = model.certificate_.parameters.get("quantile", 0.5)
        # Divided first: the product of two large numbers has no limit.
        part = residual / self.bound / max(level, 1 - level)
        return np.asarray(1.0 - np.where(part >= 0, level, level - 1) * part)


@dataclass(frozen=True)
class AUCScore:
    """Area under the ROC curve of the validation rows, counted over at least so many rows of each
    class.

    Parameters
    ----------
    min_positive, min_negative : int
        Public lower bounds on the class counts among the validation rows: noise shrinks with them.
        The guarantee holds even if there are fewer rows; the score is then lower for every
        candidate.

    Notes
    -----
    Privacy: its sensitivity is that of :class:`~dpconvex.privacy.bounds.scores.AUCScoreBounds`,
    about ``2 / min(min_positive, min_negative)``, half of it if labels are public. Two classes
    only.

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

    def steps(
        self,
        model: input_settings.Classifier,
        X: Array,
        y: Targets,
        neighbors: str,
        people: Tags | None = None,
    ) -> int:
        """Return a candidate's exact AUC in steps of the selection's grid: private."""
        if not len(y):
            return 0
        sensitivity = self.bounds.sensitivity(neighbors)
        with without_model_warnings():
            margins, usable = _predict_for_selection(model, X, "decision_function")
            margins = np.where(usable, margins, np.nan)
            # A margin that is not a number ranks its row where it does most harm.
            lost = np.isnan(margins)
            positive = np.where(lost, -np.inf, margins)[y == model.classes_[1]]
            negative = np.where(lost, np.inf, margins)[y == model.classes_[0]]
        pairs = max(len(positive), self.min_positive) * max(len(negative), self.min_negative)
        # Whole numbers throughout: a tie counts half, hence the 2.
        twice = twice_ordered_pairs(positive, negative)
        return twice * SCORE_GRID * sensitivity.denominator // (2 * pairs * sensitivity.numerator)


Candidate = dict[str, Any]  # parameters by name
Grid = Mapping[str, Sequence[Any]]
Score = RowScore | AUCScore | SelectionAccuracy | SelectionResidualScore

# Set by DPSelect alone, which spends the budget.
_BUDGET = {"epsilon", "delta", "mu", "ledger", "random_state"}
# Shared by all candidates: the relation, what is public, and progress messages.
_SHARED = {
    "neighbors",
    "nominal_samples",
    "classes",
    "invalid_rows",
    "verbose",
    "rows_per_person",
    "person_weight",
}


def selection_candidates(
    estimator: input_settings.Model, grid: Grid | Sequence[Grid]
) -> list[Candidate]:
    """Return the candidates of a grid, or raise if a selection could not keep its promise for
    them.
    """
    owner = type(estimator).__name__
    if not isinstance(estimator, PrivateLinearModel) or not (
        is_classifier(estimator) or is_regressor(estimator)
    ):
        raise TypeError(
            "The 'estimator' parameter of DPSelect must be a classifier or regressor of "
            f"dpconvex, which states what a fit promises before data. Got {owner} instead. Put "
            "preprocessing in front of DPSelect."
        )
    own = estimator.get_params(deep=False)
    for name in sorted(_BUDGET & set(own)):
        if own[name] is not None:
            raise ValueError(
                f"The '{name}' parameter of the estimator of DPSelect must be left at None: "
                "DPSelect sets the budget of every fit. Got another value instead. Give it to "
                "DPSelect where it applies."
            )
    if own.get("invalid_rows", "error") != "error":
        allowed = "left at 'error': all rows are checked before they are split"
        raise parameter_error("invalid_rows", "the estimator of DPSelect", allowed, "another value")
    candidates = list(ParameterGrid(grid))
    for candidate in candidates:
        foreign = sorted(set(candidate) & (_BUDGET | _SHARED) | set(candidate) - set(own))
        if foreign:
            raise ValueError(
                f"The 'param_grid' parameter of DPSelect must hold parameters of {owner} other "
                f"than its budget and what all candidates share, {sorted(_SHARED)}. Got "
                f"{foreign[0]!r} instead. Set what they share on the estimator."
            )
    return candidates


def candidate_with_budget(
    estimator: input_settings.Model,
    parameters: Candidate,
    per_fit: Guarantee,
    training: int,
    seed: int | None = None,
) -> input_settings.Classifier:
    """Return an unfitted candidate of a selection with its share of the budget."""
    if isinstance(per_fit, GaussianDP):
        settings: Candidate = {"mu": per_fit.mu}
    else:
        settings = {"epsilon": per_fit.epsilon_bound, "delta": per_fit.delta_bound}
    model = clone(estimator).set_params(**parameters, **settings, random_state=seed)
    if model.neighbors == "add_or_remove_one":
        model.set_params(nominal_samples=training)
    model.set_params(verbose=0)  # messages of each run would tell how many there were
    return cast(input_settings.Classifier, takes_columns_in_order(model))


def selection_score(
    estimator: input_settings.Model,
    scoring: Callable[[Any, Any], float] | RowScore | AUCScore | None,
    score_bound: float | None,
) -> Score:
    """Return the score that candidates are compared by."""
    bound = input_settings.check_optional_positive("score_bound", score_bound, "DPSelect")
    if isinstance(scoring, (RowScore, AUCScore)):
        needed = "decision_function" if isinstance(scoring, AUCScore) else scoring.response
        if not hasattr(estimator, needed):
            raise TypeError(
                f"The 'scoring' parameter of DPSelect needs '{needed}', which "
                f"{type(estimator).__name__} does not have."
            )
        return scoring
    if callable(scoring):
        return RowScore(scoring)
    if scoring is not None:
        allowed = (
            "None, a function scoring(target, prediction) of one row, a RowScore or an AUCScore"
        )
        remedy = (
            "For 'roc_auc' use AUCScore(min_positive, min_negative) with public lower bounds "
            "of the class counts."
        )
        raise parameter_error("scoring", "DPSelect", allowed, repr(scoring), remedy, kind=TypeError)
    if is_classifier(estimator):
        return SelectionAccuracy()
    if bound is not None:
        return SelectionResidualScore(bound)
    return SelectionResidualScore(
        input_settings.target_range_setting(estimator, "score_bound", "DPSelect") / 8
    )


def held_out_for_selection(
    certificate: SelectionCertificate, share: float, count: int, noise: NoiseSource
) -> NDArray[np.bool_]:
    """Return the mask of validation rows, drawn independently of what rows hold."""
    if certificate.neighbors == "add_or_remove_one":
        # A coin for each row: one row more or less leaves the law of all others' parts as it is.
        return np.asarray(noise.generator.random(count) < share)
    held = np.zeros(count, dtype=bool)
    held[noise.generator.permutation(count)[: certificate.validation_rows]] = True
    return held


_STRATEGIES = ("auto", "exponential", "repeat")


@with_parameters
class DPSelect(PrivateStep, MetaEstimatorMixin, BaseEstimator):
    r"""Choose parameters and fit, for one total budget.

    Parameters
    ----------
    estimator : dpconvex classifier or regressor
        Unfitted, without a budget, ledger or ``random_state`` of its own. Its ``nominal_samples``
        is about all rows: fits get the training rows' share of it.
    param_grid : dict or list of dict
        Candidates, as in scikit-learn's ``ParameterGrid``, written down before you see the data.
        All must have the same neighbouring relation.
    epsilon, delta, mu : float, optional
        Total budget; 1.0 and 1e-6 by default, ``delta=0`` for pure epsilon-DP. Or ``mu``, with
        ``"exponential"`` only.
    strategy : {"auto", "exponential", "repeat"}
        ``"auto"`` takes the one that leaves each fit more, from public facts: ``"exponential"`` for
        few candidates.
    validation_share : float, default=0.25
        Share of the rows that candidates are scored on; the winner is not fitted again.
    mean_repeats : float, optional
        Mean number of runs of ``"repeat"``; twice the number of candidates by default.
    score_bound : float, optional
        Residuals beyond it, in the target's units, count as equally bad; an eighth of the target's
        range by default.
    scoring : callable, RowScore or AUCScore, optional
        ``scoring(target, prediction)`` returns the score of ONE row, more being better; it is
        clipped to [0, 1] and added up here. :class:`RowScore` states another range or response,
        :class:`AUCScore` ranks. By default right or wrong for classifiers, one minus the loss
        relative to ``score_bound`` for regressions (pinball loss for quantiles and the newsvendor,
        absolute otherwise).
    ledger : Ledger, optional
        Charged once with the total, before rows are split, fitted or scored.
    random_state : None or int
        For tests: a seeded selection is not private.

    Attributes
    ----------
    best_params_, coef_, intercept_, classes_
        Parameters and released numbers of the candidate that won.
    certificate_ : SelectionCertificate
        The total guarantee.

    Notes
    -----
    Privacy: under the relation of the candidates' certificates, which ``certificate_`` states. A
    replaced record (with its label kept, where labels are public) is in one of the two parts, which
    have public sizes. Where the number of rows is private, each row is held out by a coin of its
    own: an added record joins one part and moves no other row. Public: the number of columns, the
    number of rows unless it is private, the grid, the bounds, the label set. The winner's own
    certificate is about one fit; ``certificate_`` states the total, with the choice. How long a fit
    takes tells how many runs there were.

    Examples
    --------
    >>> from dpconvex import DPQuantileRegressor
    >>> model = DPQuantileRegressor(
    ...     0.9, feature_bounds=(0, 1), target_bounds=(0, 10), mechanism="output"
    ... )
    >>> search = DPSelect(model, {"alpha": [0.01, 0.1, 1.0]}, mu=0.6)
    >>> round(search.certify(4000, 2).per_fit.mu, 4)
    0.3464
    """

    estimator: input_settings.Model
    param_grid: Grid | Sequence[Grid]
    _: KW_ONLY
    epsilon: float | None = None
    delta: float | None = None
    mu: float | None = None
    strategy: str = "auto"
    validation_share: float = 0.25
    mean_repeats: float | None = None
    score_bound: float | None = None
    scoring: Callable[[Any, Any], float] | RowScore | AUCScore | None = None
    ledger: Ledger | None = None
    random_state: int | None = None

    def certify(
        self,
        n_samples: int,
        n_features: int,
        n_classes: int | None = None,
        *,
        groups: bool = False,
        table: bool = False,
    ) -> SelectionCertificate:
        """Return the selection's total guarantee before any data, after checking that every
        candidate can be fitted.

        Parameters
        ----------
        n_samples, n_features : int
            Public size of the data, people for rows with ``groups=True``; the number of rows gives
            way to the estimator's ``nominal_samples`` under add-or-remove-one.
        n_classes, groups : int, optional, and bool, default=False
            Classes of a classifier, by default those of its ``classes``, or 2; and whether people
            will be identified.
        table : bool, default=False
            Whether the fit will be given a dataframe, as for the estimator.
        """
        candidates = selection_candidates(self.estimator, self.param_grid)
        guarantee = input_settings.resolve_budget_setting(
            self.epsilon, self.delta, self.mu, "DPSelect"
        )
        input_settings.check_ledger_setting(self.ledger, "DPSelect")
        model = self.estimator
        total = input_settings.resolve_samples_setting(
            model.neighbors, model.nominal_samples, n_samples, type(model).__name__
        )
        training, held = input_settings.split_sizes_setting(
            total, "validation_share", self.validation_share, "DPSelect"
        )
        score = selection_score(self.estimator, self.scoring, self.score_bound)
        if self.strategy not in _STRATEGIES:
            raise parameter_error(
                "strategy", "DPSelect", f"one of {_STRATEGIES}", repr(self.strategy)
            )
        mean_repeats = input_settings.check_optional_positive(
            "mean_repeats", self.mean_repeats, "DPSelect"
        )
        if mean_repeats is not None and mean_repeats < 1:
            raise parameter_error("mean_repeats", "DPSelect", "at least 1", repr(mean_repeats))
        strategy, per_fit, repeats = selection_certificate_shares(
            guarantee, self.strategy, len(candidates), mean_repeats
        )
        found = None
        more: dict[str, object] = {"table": table, **({"groups": True} if groups else {})}
        if groups and isinstance(score, AUCScore):
            allowed = "a RowScore with groups: how far a person can move an AUC is not proven"
            raise parameter_error("scoring", "DPSelect", allowed, "an AUCScore")
        if is_classifier(self.estimator):
            declared = cast(input_settings.Classifier, self.estimator).classes
            found = "assumed public" if declared is None else "given"
            more |= {} if n_classes is None else {"n_classes": n_classes}

        def certified(each: Guarantee) -> list[Certificate]:
            models = [
                candidate_with_budget(self.estimator, candidate, each, training)
                for candidate in candidates
            ]
            return [model.certify(training, n_features, **more) for model in models]

        try:
            fits = certified(per_fit)
        except ValueError:
            # Objective perturbation offers no Gaussian DP: its fits share epsilon and delta
            # instead.
            if not isinstance(guarantee, ApproxDP) or self.strategy == "repeat":
                raise
            strategy, per_fit, repeats = selection_certificate_shares(
                guarantee, "exponential", len(candidates), None, basic=True
            )
            fits = certified(per_fit)
        if any(isinstance(fit.parameters.get("quantile"), list) for fit in fits):
            raise ValueError(
                "The 'estimator' parameter of DPSelect must predict one number per row. Got one "
                "of several levels or products instead. Select for each of them, or for the one "
                "that matters most."
            )
        if isinstance(score, AUCScore) and fits[0].parameters.get("n_classes") != 2:
            raise ValueError(
                "The 'scoring' parameter of DPSelect can be an AUCScore for two classes only. "
                "Use a RowScore."
            )
        stated = (
            guarantee,
            strategy,
            repeats if strategy == "repeat" else None,
            training,
            held,
            score.bounds,
            fits,
        )
        return SelectionCertificate.issue(
            *stated, label_set=found, seeded=self.random_state is not None
        )

    def fit(self, X: object, y: object, groups: object = None) -> DPSelect:
        """Select a candidate privately, and keep its fit.

        Parameters
        ----------
        X : array, sparse matrix or dataframe of shape (n_samples, n_features)
        y : array of shape (n_samples,)
            Rows and targets.
        groups : array of shape (n_samples,), optional
            Identifiers of people, to whom the guarantee then applies. All rows of a person are in
            one part, its score is the mean of its rows', and candidates are fitted with them.
        """
        with keep_model_on_failure(self), noted_as_spent():
            self._select(X, y, groups)
        return self

    def _select(self, X: object, y: object, groups: object) -> None:
        """Select a candidate: read, certify, charge, split, fit; nothing is charged before all
        checks of the input.
        """
        candidates = selection_candidates(self.estimator, self.param_grid)
        probe = clone(self.estimator)
        of_table = are_of_table(self, X, y, groups)
        X, groups = split_people(X, groups)
        rows, target, labels = self._read(probe, X, y)
        score = selection_score(self.estimator, self.scoring, self.score_bound)
        n_samples, n_features = rows.shape
        own = self.estimator.get_params(deep=False).get("class_weight")
        weighted = groups is not None or any(
            each.get("class_weight", own) is not None for each in candidates
        )
        if issparse(rows) and weighted:
            refuse_sparse_row_weights()
        people = None
        if groups is not None:
            unit, weights = read_row_weights(cast(Any, probe), rows, None, groups)
            assert weights is not None
            people = weights.tags
            n_samples = unit.count
        n_classes = None if labels is None else len(labels)
        certificate = self.certify(
            n_samples, n_features, n_classes, groups=groups is not None, table=of_table
        )
        if isinstance(score, RowScore):
            bounds = input_settings.stated_target_bounds(probe)
            score.check(1.0 if bounds is None else float(np.mean(bounds)), labels)
        noise = NoiseSource(self.random_state)
        charge_private_model(
            self.ledger, certificate, "DPSelect.fit", f"select-{certificate.strategy}"
        )
        if people is None:
            held = held_out_for_selection(certificate, self.validation_share, len(target), noise)
        else:
            found, person_indices = np.unique(people, return_inverse=True)
            held = held_out_for_selection(certificate, self.validation_share, found.size, noise)[
                person_indices
            ]
        training, validation = ((rows[part], target[part]) for part in (~held, held))
        tags = (None, None) if people is None else (people[~held], people[held])

        def fit_and_score(number: int) -> tuple[tuple[input_settings.Classifier, Candidate], int]:
            """Return a selection's fitted candidate, and its exact validation score in steps of
            the grid: private.
            """
            seed = int(noise.generator.integers(2**31 - 1)) if noise.seeded else None
            facts = certificate.per_fit, certificate.training_rows
            model = candidate_with_budget(self.estimator, candidates[number], *facts, seed)
            if labels is not None and model.classes is None:
                model.classes = labels.tolist()
            with told_of_records(model, of_table=of_table):
                cast(Any, model).fit(*training, **({} if tags[0] is None else {"groups": tags[0]}))
            return (model, candidates[number]), score.steps(
                model, *validation, certificate.neighbors, tags[1]
            )

        with without_model_warnings():
            if certificate.strategy == "repeat":
                self._chosen, self.best_params_ = repeat_and_choose(
                    fit_and_score,
                    len(candidates),
                    certificate.mean_repeats,
                    certificate.noise["std"],
                    noise,
                )
            else:
                fits = [fit_and_score(number) for number in range(len(candidates))]
                steps = np.array([reached for _, reached in fits], dtype=np.int64)
                choices = ExponentialChoices(certificate.noise["epsilon"], 1, noise)
                winner = choices.candidate(steps, certificate.score, certificate.neighbors)
                self._chosen, self.best_params_ = fits[winner][0]
        self.certificate_ = certificate
        self.coef_ = np.asarray(self._chosen.coef_)
        self.intercept_ = self._chosen.intercept_
        if labels is not None:
            self.classes_ = self._chosen.classes_
        self.n_features_in_ = probe.n_features_in_
        if (names := input_settings.fitted_names(probe)) is not None:
            self.feature_names_in_ = self._chosen.feature_names_in_ = names

    def _read(
        self, probe: input_settings.Model, X: object, y: object
    ) -> tuple[Array, Targets, Targets | None]:
        """Return a selection's checked rows, targets and label set, or raise what a fit would
        raise.
        """
        owner = type(probe).__name__
        refuse_partitioned_data("DPSelect", X, y)
        least = input_settings.least_rows(probe.neighbors)
        if not is_classifier(probe):
            rows, target = read_training(probe, X, y, least=least, y_numeric=True)
            return rows, np.asarray(target, dtype=np.float64), None
        rows, target = read_training(probe, X, y, least=least)
        declared = declared_label_set(cast(input_settings.Classifier, probe).classes, owner)
        return rows, target, read_label_set(target, declared, owner)

    def predict(self, X: object) -> Targets:
        """Return the winner's predictions."""
        check_is_fitted(self)
        return self._chosen.predict(X)

    @available_if(lambda self: hasattr(self.estimator, "decision_function"))
    def decision_function(self, X: object) -> Targets:
        """Return the winner's decision function."""
        check_is_fitted(self)
        return self._chosen.decision_function(X)

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))
    def predict_proba(self, X: object) -> Targets:
        """Return the winner's probabilities."""
        check_is_fitted(self)
        return self._chosen.predict_proba(X)

    def score(self, X: object, y: object) -> float:
        """Return the winner's score; on the training data it is not private."""
        check_is_fitted(self)
        return float(self._chosen.score(X, y))
