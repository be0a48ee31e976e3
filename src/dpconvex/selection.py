r"""Private choice among candidates under one stated total budget.

Rows are split once, independently of the data, into training and validation rows. A record lies in one of the two, so
fitting and scoring do not add up. Two strategies:

*Exponential*: fit every one of k candidates with ``mu / sqrt(k)`` on the training rows and draw the winner with
probability proportional to ``exp(epsilon u / 2)``, where ``u`` is its sum of validation scores in [0, 1].

*Repeat*: draw the number of runs from a geometric law; each run draws a candidate at random, fits it with ``mu`` and
scores it with Gaussian noise of ``1 / mu``; the best run is released. What the whole costs hardly grows with the number
of candidates: the accountant of dp-accounting bounds it by the Rényi theorems for repeated selection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from dpconvex.estimators.labels import declared_classes, label_set
from dpconvex.estimators.settings import optional_positive, resolve_guarantee
from dpconvex.estimators.tables import read_training
from dpconvex.privacy.calibration import exact_gaussian_std
from dpconvex.privacy.guarantees import GaussianDP, Guarantee
from dpconvex.privacy.noise import NoiseSource
from dpconvex.privacy.selection import SelectionCertificate, selection_epsilon

__all__ = ["DPSelect", "SelectionCertificate"]

Array = NDArray[np.float64]

_RESERVED = {"epsilon", "delta", "mu", "ledger", "random_state", "neighbors", "nominal_samples"}
_RESERVED |= {"invalid_rows"}  # all rows are checked before they are split
_STRATEGIES = ("auto", "exponential", "repeat")


def _delegates(name: str) -> Callable[[Any], bool]:
    return lambda self: hasattr(self.estimator, name)


class DPSelect(MetaEstimatorMixin, BaseEstimator):
    r"""Choose parameters and fit, for one total budget.

    Parameters
    ----------
    estimator : dpconvex estimator
        Unfitted, under replace-one, without a budget, ledger or ``random_state`` of its own.
    param_grid : dict or list of dict
        Candidates, as in scikit-learn's ``ParameterGrid``. Write it down before you see the data.
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
    scoring : callable, optional
        ``scoring(model, X, y)`` gives each row a score; clipped to [0, 1]. By default right or wrong for
        classifiers, one minus the loss relative to ``score_bound`` for regressions (pinball loss for quantiles and
        the newsvendor, absolute otherwise).
    ledger : Ledger, optional
        Charged once with the total, before anything is fitted.
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
    Privacy: replace-one. Public: the number of rows and columns, the grid, the bounds, the label set. The winner's own
    certificate is about one fit and is not shown, because the choice costs too: ``certificate_`` states the total.
    How long a fit takes tells how many runs there were.

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
        estimator: Any,
        param_grid: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Sequence[Any]]],
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        strategy: str = "auto",
        validation_share: float = 0.25,
        mean_repeats: float | None = None,
        score_bound: float | None = None,
        scoring: Callable[..., Any] | None = None,
        ledger: Any = None,
        random_state: Any = None,
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

    def _candidates(self) -> list[dict[str, Any]]:
        """Return the candidates, checked."""
        own = self.estimator.get_params(deep=False)
        for name in sorted(_RESERVED & set(own)):
            default = {"neighbors": "replace_one", "invalid_rows": "error"}.get(name)
            if own[name] != default:
                raise ValueError(
                    f"The '{name}' parameter of the estimator of DPSelect must be left at {default!r}: DPSelect sets "
                    "the budget of every fit and checks all rows. Got another value instead. Give it to DPSelect where "
                    "it applies."
                )
        candidates = list(ParameterGrid(self.param_grid))
        for candidate in candidates:
            foreign = sorted(set(candidate) & _RESERVED | set(candidate) - set(own))
            if foreign:
                raise ValueError(
                    f"The 'param_grid' parameter of DPSelect must hold parameters of {type(self.estimator).__name__} "
                    f"other than its budget. Got {foreign[0]!r} instead."
                )
        return candidates

    def certify(self, n_samples: int, n_features: int) -> SelectionCertificate:
        """Return the total guarantee before any data, after checking that every candidate can be fitted.

        Parameters
        ----------
        n_samples, n_features : int
            Public size of the data.
        """
        candidates = self._candidates()
        guarantee = resolve_guarantee(self.epsilon, self.delta, self.mu, "DPSelect")
        if self.strategy not in _STRATEGIES:
            raise ValueError(
                f"The 'strategy' parameter of DPSelect must be one of {_STRATEGIES}. Got {self.strategy!r} instead."
            )
        if not 0 < self.validation_share < 1:
            raise ValueError(
                "The 'validation_share' parameter of DPSelect must be a number between 0 and 1. "
                f"Got {self.validation_share!r} instead."
            )
        repeats = optional_positive("mean_repeats", self.mean_repeats, "DPSelect")
        if repeats is not None and repeats < 1:
            raise ValueError(
                f"The 'mean_repeats' parameter of DPSelect must be at least 1. Got {repeats!r} instead."
            )
        held = round(self.validation_share * n_samples)
        if not 1 <= held < n_samples:
            raise ValueError(
                "DPSelect needs training and validation rows. Give more rows or another 'validation_share'."
            )
        certificate = SelectionCertificate.issue(
            guarantee,
            self.strategy,
            len(candidates),
            repeats,
            n_samples - held,
            held,
            self.random_state is not None,
        )
        for candidate in candidates:
            self._candidate(candidate, certificate.per_fit).certify(n_samples - held, n_features)
        self._bound()
        return certificate

    def _candidate(self, parameters: dict[str, Any], per_fit: Guarantee, seed: Any = None) -> Any:
        """Return an unfitted candidate with its share of the budget."""
        if isinstance(per_fit, GaussianDP):
            budget: dict[str, Any] = {"mu": per_fit.mu}
        else:
            budget = {"epsilon": per_fit.epsilon_bound, "delta": 0.0}
        return clone(self.estimator).set_params(**parameters, **budget, random_state=seed)

    def _bound(self) -> float | None:
        """Return the residual at which scores end, or None where scores are bounded already."""
        bound = optional_positive("score_bound", self.score_bound, "DPSelect")
        if self.scoring is not None or is_classifier(self.estimator):
            return None
        if bound is not None:
            return bound
        target = getattr(self.estimator, "target_bounds", None)
        if target is None:
            raise ValueError(
                "The 'score_bound' parameter of DPSelect must be given where the estimator has no 'target_bounds': "
                "scores must be bounded by public facts."
            )
        return (float(target[1]) - float(target[0])) / 8

    def fit(self, X: Any, y: Any) -> DPSelect:
        """Choose a candidate privately, and keep its fit.

        Parameters
        ----------
        X : array or dataframe of shape (n_samples, n_features)
            Rows.
        y : array of shape (n_samples,)
            Targets.

        Returns
        -------
        self
        """
        labels = self._check_data(X, y)
        X = X if hasattr(X, "shape") else np.asarray(X)
        y = np.asarray(y)
        certificate = self.certify(*X.shape)
        noise = NoiseSource(self.random_state)
        order = noise.generator.permutation(len(y))
        training, held = order[certificate.validation_rows :], order[: certificate.validation_rows]
        parts = (_take(X, training), y[training], _take(X, held), y[held])
        if self.ledger is not None:
            # Durable before anything is fitted: a crash from here on costs budget, never privacy.
            self.ledger.charge(
                certificate.guarantee,
                mechanism=f"select-{certificate.strategy}",
                description="DPSelect.fit",
                neighbors=certificate.neighbors,
            )
        search = self._repeat if certificate.strategy == "repeat" else self._exponential
        self._chosen, self.best_params_ = search(certificate, parts, labels, noise)
        self.certificate_ = certificate
        self.n_features_in_ = self._chosen.n_features_in_
        if hasattr(self._chosen, "feature_names_in_"):
            self.feature_names_in_ = self._chosen.feature_names_in_
        return self

    def _check_data(self, X: Any, y: Any) -> Array | None:
        """Raise what a fit would raise, before anything is charged; return the label set of a classifier."""
        probe, owner = clone(self.estimator), type(self.estimator).__name__
        if not is_classifier(probe):
            read_training(probe, X, y, y_numeric=True)
            return None
        _, checked = read_training(probe, X, y)
        return label_set(checked, declared_classes(getattr(probe, "classes", None), owner), owner)

    def _fit_one(
        self,
        parameters: dict[str, Any],
        per_fit: Guarantee,
        parts: Any,
        labels: Any,
        noise: NoiseSource,
    ) -> tuple[Any, float]:
        """Return a fitted candidate and its exact score on the validation rows, which is private."""
        seed = int(noise.generator.integers(2**31 - 1)) if noise.seeded else None
        model = self._candidate(parameters, per_fit, seed)
        if labels is not None and getattr(model, "classes", 0) is None:
            model.set_params(classes=labels.tolist())
        X, y, held, target = parts
        model.fit(X, y)
        return model, float(np.sum(self._scores(model, held, target)))

    def _scores(self, model: Any, X: Any, y: Array) -> Array:
        if self.scoring is not None:
            scores = np.asarray(self.scoring(model, X, y), dtype=np.float64)
            if scores.shape != y.shape:
                raise ValueError(
                    "The 'scoring' parameter of DPSelect must return one score per row."
                )
            return np.clip(np.nan_to_num(scores), 0.0, 1.0)
        predicted = model.predict(X)
        if is_classifier(model):
            return np.asarray(predicted == y, dtype=np.float64)
        bound = self._bound()
        assert bound is not None
        with np.errstate(all="ignore"):
            residual = np.asarray(y, dtype=np.float64) - predicted
        level = model.certificate_.parameters.get("quantile", 0.5)
        loss = (
            np.where(residual >= 0, level, level - 1) * residual / (max(level, 1 - level) * bound)
        )
        return 1.0 - np.clip(np.nan_to_num(loss, nan=1.0), 0.0, 1.0)

    def _exponential(
        self, certificate: SelectionCertificate, parts: Any, labels: Any, noise: NoiseSource
    ) -> tuple[Any, dict[str, Any]]:
        candidates = self._candidates()
        fits = [self._fit_one(c, certificate.per_fit, parts, labels, noise) for c in candidates]
        epsilon = selection_epsilon(certificate.guarantee)
        # A replaced row moves every sum by at most 1; Gumbel noise on scores draws from the exponential mechanism.
        scores = np.array([score for _, score in fits]) * epsilon / 2
        winner = int(np.argmax(scores + noise.generator.gumbel(size=len(fits))))
        return fits[winner][0], candidates[winner]

    def _repeat(
        self, certificate: SelectionCertificate, parts: Any, labels: Any, noise: NoiseSource
    ) -> tuple[Any, dict[str, Any]]:
        candidates, per_fit = self._candidates(), certificate.per_fit
        assert isinstance(per_fit, GaussianDP)
        std = exact_gaussian_std(per_fit.mu, 1.0, 1)
        best: tuple[float, Any, dict[str, Any]] | None = None
        for _ in range(int(noise.generator.geometric(1 / certificate.mean_repeats))):
            candidate = candidates[int(noise.generator.integers(len(candidates)))]
            model, score = self._fit_one(candidate, per_fit, parts, labels, noise)
            shown = float(noise.add_gaussian(np.array([score]), std)[0])
            if best is None or shown > best[0]:
                best = (shown, model, candidate)
        assert best is not None
        return best[1], best[2]

    def predict(self, X: Any) -> Any:
        """Return the winner's predictions."""
        check_is_fitted(self)
        return self._chosen.predict(X)

    @available_if(_delegates("decision_function"))
    def decision_function(self, X: Any) -> Any:
        """Return the winner's decision function."""
        check_is_fitted(self)
        return self._chosen.decision_function(X)

    @available_if(_delegates("predict_proba"))
    def predict_proba(self, X: Any) -> Any:
        """Return the winner's probabilities."""
        check_is_fitted(self)
        return self._chosen.predict_proba(X)

    def score(self, X: Any, y: Any) -> float:
        """Return the winner's score; on the training data it is not private."""
        check_is_fitted(self)
        return float(self._chosen.score(X, y))

    @property
    def coef_(self) -> Array:
        """Coefficients of the winner."""
        return np.asarray(self._chosen.coef_)

    @property
    def intercept_(self) -> Any:
        """Intercept of the winner."""
        return self._chosen.intercept_

    @property
    def classes_(self) -> Any:
        """Labels of the winner."""
        return self._chosen.classes_


def _take(X: Any, rows: NDArray[np.intp]) -> Any:
    """Return rows of an array or dataframe."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]
