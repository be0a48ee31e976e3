r"""Private choice among candidates under one stated total budget.

Rows are split once, independently of the data, into training and validation rows. A record lies in one of the two, so
fitting and scoring do not add up. Two strategies:

*Exponential*: fit each of k candidates with ``mu / sqrt(k)`` on the training rows and draw the winner with probability
proportional to ``exp(epsilon u / 2)``, where ``u`` is its score on the validation rows in units of what one record can
change.

*Repeat*: draw the number of runs from a geometric law; each run draws a candidate at random, fits it with ``mu`` and
scores it with Gaussian noise of ``1 / mu``; the best run is released. The cost hardly grows with the number of
candidates: the accountant of dp-accounting bounds it by the Rényi theorems for repeated selection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier, is_regressor
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpconvex.checks import check_share
from dpconvex.core.choices import Choices, repeat_and_select
from dpconvex.engine.dask.partitions import is_partitioned
from dpconvex.engine.sparse_rows import refuse_row_weights
from dpconvex.estimators.private_model import unchanged_on_failure
from dpconvex.inputs.labels import declared_classes, read_label_set
from dpconvex.inputs.people import read_row_weights, split_people
from dpconvex.inputs.settings import (
    Classifier,
    Model,
    check_optional_positive,
    least_rows,
    resolve_guarantee,
    resolve_samples,
)
from dpconvex.inputs.training_data import read_training, takes_columns_in_order
from dpconvex.privacy.certificate import Certificate
from dpconvex.privacy.guarantees import ApproxDP, GaussianDP, Guarantee
from dpconvex.privacy.ledger import Ledger
from dpconvex.privacy.noise import NoiseSource
from dpconvex.privacy.pipeline_certificates import SelectionCertificate, share_budget
from dpconvex.scores import AUCScore, ResidualScore, RightOrWrong, RowScore, Targets, without_warnings
from dpconvex.types import Array

__all__ = ["AUCScore", "DPSelect", "RowScore", "SelectionCertificate"]

Candidate = dict[str, Any]  # parameters by name
Grid = Mapping[str, Sequence[Any]]
Score = RowScore | AUCScore | RightOrWrong | ResidualScore

# Set by DPSelect alone, which spends the budget.
_BUDGET = {"epsilon", "delta", "mu", "ledger", "random_state"}
# Shared by all candidates: the relation, what is public, and progress messages.
_SHARED = {
    "neighbors", "nominal_samples", "classes", "invalid_rows", "verbose", "rows_per_person", "person_weight",
}  # fmt: skip


def checked_candidates(estimator: Model, grid: Grid | Sequence[Grid]) -> list[Candidate]:
    """Return the candidates of a grid, or raise if a selection could not keep its promise for them."""
    owner = type(estimator).__name__
    if not hasattr(estimator, "certify") or not (is_classifier(estimator) or is_regressor(estimator)):
        raise TypeError(
            "The 'estimator' parameter of DPSelect must be a classifier or regressor of dpconvex, which states "
            f"what a fit promises before data. Got {owner} instead. Put preprocessing in front of DPSelect."
        )
    own = estimator.get_params(deep=False)
    for name in sorted(_BUDGET & set(own)):
        if own[name] is not None:
            raise ValueError(
                f"The '{name}' parameter of the estimator of DPSelect must be left at None: DPSelect sets "
                "the budget of every fit. Got another value instead. Give it to DPSelect where it applies."
            )
    if own.get("invalid_rows", "error") != "error":
        raise ValueError(
            "The 'invalid_rows' parameter of the estimator of DPSelect must be left at 'error': all rows are "
            "checked before they are split. Got another value instead."
        )
    candidates = list(ParameterGrid(grid))
    for candidate in candidates:
        foreign = sorted(set(candidate) & (_BUDGET | _SHARED) | set(candidate) - set(own))
        if foreign:
            raise ValueError(
                f"The 'param_grid' parameter of DPSelect must hold parameters of {owner} other than its budget "
                f"and what all candidates share, {sorted(_SHARED)}. Got {foreign[0]!r} instead. Set what they "
                "share on the estimator."
            )
    return candidates


def candidate_with_budget(
    estimator: Model, parameters: Candidate, per_fit: Guarantee, training: int, seed: int | None = None
) -> Classifier:
    """Return an unfitted candidate with its share of the budget."""
    if isinstance(per_fit, GaussianDP):
        settings: Candidate = {"mu": per_fit.mu}
    else:
        settings = {"epsilon": per_fit.epsilon_bound, "delta": getattr(per_fit, "delta_bound", 0.0)}
    model = clone(estimator).set_params(**parameters, **settings, random_state=seed)
    if getattr(model, "neighbors", None) == "add_or_remove_one":
        model.set_params(nominal_samples=training)
    if hasattr(model, "verbose"):
        model.set_params(verbose=0)  # messages of each run would tell how many there were
    return takes_columns_in_order(model)


def compared_by(
    estimator: Model, scoring: Callable[[Any, Any], float] | RowScore | AUCScore | None, score_bound: float | None
) -> Score:
    """Return the score that candidates are compared by."""
    bound = check_optional_positive("score_bound", score_bound, "DPSelect")
    if isinstance(scoring, (RowScore, AUCScore)):
        score = scoring
        needed = "decision_function" if isinstance(score, AUCScore) else score.response
        if not hasattr(estimator, needed):
            raise TypeError(
                f"The 'scoring' parameter of DPSelect needs '{needed}', which {type(estimator).__name__} does not have."
            )
        return score
    if callable(scoring):
        return RowScore(scoring)
    if scoring is not None:
        raise TypeError(
            "The 'scoring' parameter of DPSelect must be None, a function scoring(target, prediction) of one row, "
            f"a RowScore or an AUCScore. Got {scoring!r} instead. For 'roc_auc' use "
            "AUCScore(min_positive, min_negative) with public lower bounds of the class counts."
        )
    if is_classifier(estimator):
        return RightOrWrong()
    if bound is not None:
        return ResidualScore(bound)
    target = getattr(estimator, "target_bounds", None)
    if target is None:
        raise ValueError(
            "The 'score_bound' parameter of DPSelect must be given where the estimator has no 'target_bounds': "
            "scores must be bounded by public facts."
        )
    return ResidualScore((float(target[1]) - float(target[0])) / 8)


def held_out(certificate: SelectionCertificate, share: float, count: int, noise: NoiseSource) -> NDArray[np.bool_]:
    """Return the mask of validation rows, drawn independently of what rows hold."""
    if certificate.neighbors == "add_or_remove_one":
        # A coin for each row: one row more or less leaves the law of all others' parts as it is.
        return np.asarray(noise.generator.random(count) < share)
    held = np.zeros(count, dtype=bool)
    held[noise.generator.permutation(count)[: certificate.validation_rows]] = True
    return held


_STRATEGIES = ("auto", "exponential", "repeat")


class DPSelect(MetaEstimatorMixin, BaseEstimator):
    r"""Choose parameters and fit, for one total budget.

    Parameters
    ----------
    estimator : dpconvex classifier or regressor
        Unfitted, without a budget, ledger or ``random_state`` of its own. Its ``nominal_samples`` is about all rows:
        fits get the training rows' share of it.
    param_grid : dict or list of dict
        Candidates, as in scikit-learn's ``ParameterGrid``, written down before you see the data. All must have the same
        neighbouring relation.
    epsilon, delta : float, optional
        Total budget for (epsilon, delta)-DP; 1.0 and 1e-6 by default, ``delta=0`` asks for pure epsilon-DP.
    mu : float, optional
        Total budget for Gaussian DP instead; with ``"exponential"`` only.
    strategy : {"auto", "exponential", "repeat"}
        ``"auto"`` takes the one that leaves each fit more, from public facts: ``"exponential"`` for few candidates.
    validation_share : float, default=0.25
        Share of the rows that candidates are scored on; the winner is not fitted again.
    mean_repeats : float, optional
        Mean number of runs of ``"repeat"``; twice the number of candidates by default.
    score_bound : float, optional
        Regression: residuals beyond it, in the target's units, count as equally bad; an eighth of the target's range
        by default.
    scoring : callable, RowScore or AUCScore, optional
        ``scoring(target, prediction)`` returns the score of ONE row, more being better; it is clipped to [0, 1] and
        added up here. :class:`RowScore` states another range or response, :class:`AUCScore` ranks. By default right
        or wrong for classifiers, one minus the loss relative to ``score_bound`` for regressions (pinball loss for
        quantiles and the newsvendor, absolute otherwise).
    ledger : Ledger, optional
        Charged once with the total, before rows are split, fitted or scored.
    random_state : None or int
        For tests: a seeded selection is not private.

    Attributes
    ----------
    best_params_ : dict
        The candidate that won.
    coef_, intercept_, classes_
        Of the winner.
    certificate_ : SelectionCertificate
        The total guarantee.

    Notes
    -----
    Privacy: under the relation of the candidates' certificates, which ``certificate_`` states. A replaced record (with
    its label kept, where labels are public) is in one of the two parts, which have public sizes. Where the number of
    rows is private, each row is held out by a coin of its own: an added record joins one part and moves no other row.
    Public: the number of columns, the number of rows unless it is private, the grid, the bounds, the label set. The
    winner's own certificate is about one fit; ``certificate_`` states the total, with the choice. How long a fit takes
    tells how many runs there were.

    Examples
    --------
    >>> from dpconvex import DPQuantileRegressor
    >>> model = DPQuantileRegressor(0.9, feature_bounds=(0, 1), target_bounds=(0, 10), mechanism="output")
    >>> search = DPSelect(model, {"alpha": [0.01, 0.1, 1.0]}, mu=0.6)
    >>> round(search.certify(4000, 2).per_fit.mu, 4)
    0.3464
    """

    def __init__(
        self,
        estimator: Model,
        param_grid: Grid | Sequence[Grid],
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        strategy: str = "auto",
        validation_share: float = 0.25,
        mean_repeats: float | None = None,
        score_bound: float | None = None,
        scoring: Callable[[Any, Any], float] | RowScore | AUCScore | None = None,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.param_grid = param_grid
        self.epsilon = epsilon
        self.delta = delta
        self.mu = mu
        self.strategy = strategy
        self.validation_share = validation_share
        self.mean_repeats = mean_repeats
        self.score_bound = score_bound
        self.scoring = scoring
        self.ledger = ledger
        self.random_state = random_state

    def certify(
        self, n_samples: int, n_features: int, n_classes: int | None = None, *, groups: bool = False
    ) -> SelectionCertificate:
        """Return the total guarantee before any data, after checking that every candidate can be fitted.

        Parameters
        ----------
        n_samples, n_features : int
            Public size of the data, people for rows with ``groups=True``; the number of rows gives way to the
            estimator's ``nominal_samples`` under add-or-remove-one.
        n_classes : int, optional
            Number of classes of a classifier, by default that of its ``classes``, or 2.
        groups : bool, default=False
            Whether the fit will be given identifiers of people.
        """
        candidates = checked_candidates(self.estimator, self.param_grid)
        guarantee = resolve_guarantee(self.epsilon, self.delta, self.mu, "DPSelect")
        training, held = self._parts(n_samples)
        score = compared_by(self.estimator, self.scoring, self.score_bound)
        strategy, per_fit, repeats = share_budget(guarantee, self._strategy(), len(candidates), self._repeats())
        found = None
        more: dict[str, int] = {"groups": True} if groups else {}
        if groups and isinstance(score, AUCScore):
            raise ValueError(
                "The 'scoring' parameter of DPSelect must be a RowScore with groups: how far a person can move an AUC "
                "is not proven. Got an AUCScore instead."
            )
        if is_classifier(self.estimator):
            declared = cast(Classifier, self.estimator).classes
            found = "assumed public" if declared is None else "given"
            more |= {} if n_classes is None else {"n_classes": n_classes}

        def certified(each: Guarantee) -> list[Certificate]:
            models = [candidate_with_budget(self.estimator, candidate, each, training) for candidate in candidates]
            return [model.certify(training, n_features, **more) for model in models]

        try:
            fits = certified(per_fit)
        except ValueError:
            # Objective perturbation offers no Gaussian DP: its fits share epsilon and delta instead.
            if not isinstance(guarantee, ApproxDP) or self.strategy == "repeat":
                raise
            strategy, per_fit, repeats = share_budget(guarantee, "exponential", len(candidates), None, basic=True)
            fits = certified(per_fit)
        if any(isinstance(fit.parameters.get("quantile"), list) for fit in fits):
            raise ValueError(
                "The 'estimator' parameter of DPSelect must predict one number per row. Got one of several levels or "
                "products instead. Select for each of them, or for the one that matters most."
            )
        if isinstance(score, AUCScore) and fits[0].parameters.get("n_classes") != 2:
            raise ValueError(
                "The 'scoring' parameter of DPSelect can be an AUCScore for two classes only. Use a RowScore."
            )
        return SelectionCertificate.issue(
            guarantee,
            strategy,
            repeats if strategy == "repeat" else None,
            training,
            held,
            score.bounds,
            fits,
            label_set=found,
            seeded=self.random_state is not None,
        )

    def _strategy(self) -> str:
        if self.strategy not in _STRATEGIES:
            raise ValueError(
                f"The 'strategy' parameter of DPSelect must be one of {_STRATEGIES}. Got {self.strategy!r} instead."
            )
        return self.strategy

    def _repeats(self) -> float | None:
        repeats = check_optional_positive("mean_repeats", self.mean_repeats, "DPSelect")
        if repeats is not None and repeats < 1:
            raise ValueError(f"The 'mean_repeats' parameter of DPSelect must be at least 1. Got {repeats!r} instead.")
        return repeats

    def _parts(self, n_samples: int) -> tuple[int, int]:
        """Return the public numbers of training and validation rows: nominal ones under add-or-remove-one."""
        if self.ledger is not None and not hasattr(self.ledger, "charge"):
            raise TypeError(
                "The 'ledger' parameter of DPSelect must be None or a Ledger. "
                f"Got {type(self.ledger).__name__} instead."
            )
        neighbors = getattr(self.estimator, "neighbors", "replace_one")
        nominal = getattr(self.estimator, "nominal_samples", None)
        total = resolve_samples(neighbors, nominal, n_samples, type(self.estimator).__name__)
        share = check_share("validation_share", "DPSelect", self.validation_share)
        held = round(share * total)
        if not 1 <= held < total:
            raise ValueError(
                "DPSelect needs training and validation rows. Give more rows or another 'validation_share'."
            )
        return total - held, held

    def fit(self, X: object, y: object, groups: object = None) -> DPSelect:
        """Choose a candidate privately, and keep its fit.

        Parameters
        ----------
        X : array, sparse matrix or dataframe of shape (n_samples, n_features)
            Rows.
        y : array of shape (n_samples,)
            Targets.
        groups : array of shape (n_samples,), optional
            Identifiers of people, to whom the guarantee then applies. All rows of a person are in one part, its score
            is the mean of its rows', and candidates are fitted with them.

        Returns
        -------
        self
        """
        with unchanged_on_failure(self):
            self._select(X, y, groups)
        return self

    def _select(self, X: object, y: object, groups: object) -> None:
        """Read, certify, charge, split, fit and choose: nothing is charged before all checks of the input."""
        candidates = checked_candidates(self.estimator, self.param_grid)
        probe = clone(self.estimator)
        X, groups = split_people(X, groups)
        rows, target, labels = self._read(probe, X, y)
        score = compared_by(self.estimator, self.scoring, self.score_bound)
        n_samples, n_features = rows.shape
        if issparse(rows) and (groups is not None or self._weights_classes(candidates)):
            refuse_row_weights()
        people = None
        if groups is not None:
            unit, weights = read_row_weights(cast(Any, probe), rows, None, groups)
            assert weights is not None
            people, n_samples = weights.tags, unit.count
        certificate = self.certify(
            n_samples, n_features, None if labels is None else len(labels), groups=groups is not None
        )
        if isinstance(score, RowScore):
            bounds = getattr(probe, "target_bounds", None)
            score.check(1.0 if bounds is None else float(np.mean(bounds)), labels)
        noise = NoiseSource(self.random_state)
        if self.ledger is not None:
            # Durable before anything is fitted: a crash from here on costs budget, never privacy.
            self.ledger.charge(
                certificate.guarantee,
                mechanism=f"select-{certificate.strategy}",
                description="DPSelect.fit",
                neighbors=certificate.neighbors,
                unit=certificate.unit,
            )
        if people is None:
            held = held_out(certificate, self.validation_share, len(target), noise)
        else:
            found, person_indices = np.unique(people, return_inverse=True)
            held = held_out(certificate, self.validation_share, found.size, noise)[person_indices]
        training, validation = ((rows[part], target[part]) for part in (~held, held))
        tags = (None, None) if people is None else (people[~held], people[held])

        def fit_and_score(number: int) -> tuple[tuple[Classifier, Candidate], int]:
            """Return a fitted candidate, and its exact score on the validation rows in steps of the grid: private."""
            seed = int(noise.generator.integers(2**31 - 1)) if noise.seeded else None
            model = candidate_with_budget(
                self.estimator, candidates[number], certificate.per_fit, certificate.training_rows, seed
            )
            if labels is not None and model.classes is None:
                model.classes = labels.tolist()
            cast(Any, model).fit(*training, **({} if tags[0] is None else {"groups": tags[0]}))
            return (model, candidates[number]), score.steps(model, *validation, certificate.neighbors, tags[1])

        with without_warnings():
            if certificate.strategy == "repeat":
                self._chosen, self.best_params_ = repeat_and_select(
                    fit_and_score, len(candidates), certificate.mean_repeats, certificate.noise["std"], noise
                )
            else:
                fits = [fit_and_score(number) for number in range(len(candidates))]
                steps = np.array([reached for _, reached in fits], dtype=np.int64)
                choices = Choices(certificate.noise["epsilon"], 1, noise)
                winner = choices.candidate(steps, certificate.score, certificate.neighbors)
                self._chosen, self.best_params_ = fits[winner][0]
        self.certificate_ = certificate
        self.n_features_in_ = probe.n_features_in_
        if hasattr(probe, "feature_names_in_"):
            self.feature_names_in_ = self._chosen.feature_names_in_ = probe.feature_names_in_

    def _weights_classes(self, candidates: Sequence[Candidate]) -> bool:
        """Return whether a candidate has class weights."""
        own = getattr(self.estimator, "class_weight", None)
        return any(each.get("class_weight", own) is not None for each in candidates)

    def _read(self, probe: Model, X: object, y: object) -> tuple[Array, Targets, Targets | None]:
        """Return checked rows, targets and label set, or raise what a fit would raise."""
        owner = type(probe).__name__
        if is_partitioned(X) or is_partitioned(y):
            raise TypeError(
                "DPSelect needs rows in memory, because it splits them. Got a Dask collection instead. Use "
                "X.compute() and y.compute()."
            )
        least = least_rows(probe.neighbors)
        if not is_classifier(probe):
            rows, target = read_training(probe, X, y, least=least, y_numeric=True)
            return rows, np.asarray(target, dtype=np.float64), None
        rows, target = read_training(probe, X, y, least=least)
        return rows, target, read_label_set(target, declared_classes(cast(Classifier, probe).classes, owner), owner)

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

    @property
    def coef_(self) -> Array:
        """Coefficients of the winner."""
        return np.asarray(self._chosen.coef_)

    @property
    def intercept_(self) -> float | Array:
        """Intercept of the winner."""
        return self._chosen.intercept_

    @property
    def classes_(self) -> Targets:
        """Labels of the winner."""
        return self._chosen.classes_
