r"""Preprocessing with a stated cost: public maps for free, private bounds and moments for a budget.

A scaler that is fitted on the data releases something about it. :class:`PublicScaler` reads nothing but the number of
columns. :class:`DPQuantileBounds` and :class:`DPMoments` read the data, pay, and charge a ledger. All are scikit-learn
transformers; attributes that end with ``_`` may be published.
"""

from __future__ import annotations

import math
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dpconvex.checks import check_count, check_number, parameter_error
from dpconvex.core.exponential_choices import ExponentialChoices
from dpconvex.core.private_rows import PrivateAnswers
from dpconvex.engine.block_products import transform_block
from dpconvex.engine.summation import pairwise_summation
from dpconvex.estimators.private_model import charge_private_model
from dpconvex.inputs.public_table import PublicTable
from dpconvex.inputs.settings import resolve_bounds_setting, resolve_budget_setting
from dpconvex.inputs.training_data import read_features
from dpconvex.privacy.ledger import Ledger
from dpconvex.privacy.noise import EXACT, SEEDED, NoiseSource
from dpconvex.privacy.preprocessing_selection_certificates import (
    MOMENT_BLOCK,
    PreprocessingCertificate,
    moment_certificate_noise,
    quantile_certificate_noise,
)
from dpconvex.types import Array

__all__ = ["DPMoments", "DPQuantileBounds", "PreprocessingCertificate", "PublicScaler", "PublicTable"]


# Rows times epsilon beyond a quantile: exp(-20) outweighs a search range a million times too wide.
_TAIL_ROWS_EPSILON = 40.0
_SMALLEST_TAIL, _LARGEST_TAIL = 0.01, 0.25


def _require_bounds(name: str, bounds: object, columns: int, owner: str) -> tuple[Array, Array]:
    found = resolve_bounds_setting(name, bounds, columns, owner)
    if found is None:
        raise parameter_error(name, owner, "a pair (low, high)", "None", "Write what is known without the data.")
    return found


class _Preprocessor(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Reading of rows."""

    def _read_preprocessed_rows(self, X: object, reset: bool) -> Array:
        if not reset:
            check_is_fitted(self)
        if issparse(X):  # centred, it would have no zeros
            raise TypeError(
                f"The X given to {type(self).__name__} must be a dense array or dataframe. Sparse data was passed, but "
                "dense data is required. Give the estimator feature_bounds instead, or use X.toarray()."
            )
        return np.asarray(read_features(self, X, reset), dtype=np.float64)


class _PaidPreprocessor(_Preprocessor):
    """Certificate, ledger and fit of the transformers that pay."""

    _mechanism: str

    def certify(self, n_samples: int, n_features: int) -> PreprocessingCertificate:
        """Return the certificate of a preprocessor's fit, before any data.

        Parameters
        ----------
        n_samples, n_features : int
            Public size of the data.
        """
        owner = type(self).__name__
        for name, value in (("n_samples", n_samples), ("n_features", n_features)):
            check_count(name, f"{owner}.certify", value)
        guarantee = resolve_budget_setting(self.epsilon, self.delta, self.mu, owner)
        self._check(int(n_features))
        derive = quantile_certificate_noise if self._mechanism == "quantile-bounds" else moment_certificate_noise
        noise = derive(guarantee, int(n_samples), int(n_features))
        sampler = EXACT if self.random_state is None else SEEDED
        return PreprocessingCertificate(guarantee, self._mechanism, int(n_samples), int(n_features), noise, sampler)

    def _check(self, columns: int) -> None:
        """Raise if a setting cannot be used."""

    def fit(self, X: object, y: object = None) -> Self:
        """Release what the preprocessor needs to know about the columns; ``y`` is ignored."""
        rows = self._read_preprocessed_rows(X, reset=True)
        certificate = self.certify(*rows.shape)
        noise = NoiseSource(self.random_state)
        charge_private_model(self.ledger, certificate, f"{type(self).__name__}.fit")
        self._release_preprocessing(rows, certificate, noise)
        self.privacy_ = "paid"
        self.certificate_ = certificate
        return self

    def _release_preprocessing(self, rows: Array, certificate: PreprocessingCertificate, noise: NoiseSource) -> None:
        """Store the releases with the certificate's noise."""
        raise NotImplementedError


class PublicScaler(_Preprocessor):
    """Clip columns to public bounds and map them to [-1, 1]: costs nothing.

    ``(clip(x, low, high) - (low + high) / 2) / ((high - low) / 2)``.

    Parameters
    ----------
    bounds : pair (low, high)
        Public facts about the columns, scalars or one value per column.

    Attributes
    ----------
    privacy_ : str
        ``"public"``: the fit reads the number of columns and their names, nothing else.

    Notes
    -----
    Privacy: public, if the bounds are.

    Examples
    --------
    >>> PublicScaler((0, 10)).fit_transform([[0.0], [5.0], [99.0]]).ravel()
    array([-1.,  0.,  1.])
    """

    def __init__(self, bounds: tuple[ArrayLike, ArrayLike]) -> None:
        self.bounds = bounds

    def fit(self, X: object, y: object = None) -> PublicScaler:
        """Check the bounds against the number of columns."""
        columns = self._read_preprocessed_rows(X, reset=True).shape[1]
        _require_bounds("bounds", self.bounds, columns, "PublicScaler")
        self.privacy_ = "public"
        return self

    def transform(self, X: object) -> Array:
        """Return rows in [-1, 1]."""
        rows = self._read_preprocessed_rows(X, reset=False)
        return _scale_to_unit(rows, *_require_bounds("bounds", self.bounds, rows.shape[1], "PublicScaler"))


def _scale_to_unit(rows: Array, low: Array, high: Array) -> Array:
    middle, half = low / 2 + high / 2, high / 2 - low / 2
    return np.clip((np.clip(rows, low, high) - middle) / half, -1.0, 1.0)


class DPQuantileBounds(_PaidPreprocessor):
    r"""Find bounds of columns privately, clip to them and map to [-1, 1].

    Each end of each column is a quantile drawn by the exponential mechanism: a point ``t`` of a public grid on the
    search range, 2^40 steps wide, has probability proportional to ``exp(-epsilon |#{x_i < t} - q n| / 2)``.

    Parameters
    ----------
    search_bounds : pair (low, high)
        Public range to search, scalars or one value per column; may be far too wide.
    tail : float, optional
        Share of the rows beyond each end. By default ``40 / (n epsilon)`` with the epsilon of one draw, between 0.01
        and 0.25: fewer rows cannot hold a draw against a search range thousands of times too wide.
    margin : float, default=0.25
        Share of their distance by which the ends are moved outwards: narrow bounds cost more than wide ones.
    epsilon, delta, mu : float, optional
        Budget, as for the estimators: 1.0 and 1e-6 by default, ``delta=0`` for pure epsilon-DP, or ``mu``.
    ledger, random_state : Ledger or None, int or None
        The ledger is charged before noise is drawn; a seeded fit, for tests, is not private.

    Attributes
    ----------
    low_, high_ : array of shape (n_features,)
        Released bounds in the units of the data.
    privacy_, certificate_ : str, PreprocessingCertificate
        ``"paid"``, and the promise.

    Notes
    -----
    Privacy: replace-one; a replaced record moves a count by at most 1. The ``2 d`` quantiles share the budget. Bounds
    are points of the grid whatever the rows are; draws are exact. Later steps may use
    ``feature_bounds=(-1, 1)``; their budget comes on top.

    Examples
    --------
    >>> import numpy as np
    >>> ages = np.random.default_rng(0).normal(40, 10, (5000, 1))
    >>> bounds = DPQuantileBounds((0, 1000), random_state=0).fit(ages)
    >>> bool(0 < bounds.low_[0] < 25 and 55 < bounds.high_[0] < 90)
    True
    """

    _mechanism = "quantile-bounds"

    def __init__(
        self, search_bounds: tuple[ArrayLike, ArrayLike], *, tail: float | None = None, margin: float = 0.25,
        epsilon: float | None = None, delta: float | None = None, mu: float | None = None, ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:  # fmt: skip
        self.search_bounds, self.tail, self.margin = search_bounds, tail, margin
        self.epsilon, self.delta, self.mu = epsilon, delta, mu
        self.ledger, self.random_state = ledger, random_state

    def _check(self, columns: int) -> None:
        owner = type(self).__name__
        _require_bounds("search_bounds", self.search_bounds, columns, owner)
        check_number("margin", owner, self.margin, "a finite number of at least 0", 0, math.inf)
        if self.tail is not None:
            check_number("tail", owner, self.tail, "None or a number in [0, 0.5)", 0, 0.5)

    def _release_preprocessing(self, rows: Array, certificate: PreprocessingCertificate, noise: NoiseSource) -> None:
        lowest, highest = _require_bounds("search_bounds", self.search_bounds, rows.shape[1], "DPQuantileBounds")
        columns, epsilon, tail = rows.shape[1], certificate.noise["epsilon"], self.tail
        if tail is None:
            tail = min(_LARGEST_TAIL, max(_SMALLEST_TAIL, _TAIL_ROWS_EPSILON / (certificate.n_samples * epsilon)))
        choices = ExponentialChoices(epsilon, 2 * columns, noise)
        ends = np.empty((2, columns))
        for column in range(columns):
            low, high = float(lowest[column]), float(highest[column])
            drawn = sorted(choices.quantiles(rows[:, column], (float(tail), 1 - float(tail)), low, high))
            # Released numbers only from here on; a width of zero is no use as a bound.
            extra = max(self.margin * (drawn[1] - drawn[0]), 1e-6 * (high - low))
            ends[:, column] = max(low, drawn[0] - extra), min(high, drawn[1] + extra)
        self.low_, self.high_ = ends

    def transform(self, X: object) -> Array:
        """Return rows clipped to the released bounds and mapped to [-1, 1]."""
        rows = self._read_preprocessed_rows(X, reset=False)
        return _scale_to_unit(rows, self.low_, self.high_)


class DPMoments(_PaidPreprocessor):
    r"""Release mean and covariance of bounded columns, and standardise or whiten with them.

    Rows are clipped to the bounds and mapped into the unit ball; their sum and second moments are released together
    with Gaussian noise, and mapped back.

    Parameters
    ----------
    bounds : pair (low, high)
        Public bounds of the columns, scalars or one value per column.
    whiten : bool, default=False
        Whether ``transform`` also rotates, so that the released covariance becomes the identity.
    epsilon, delta, mu : float, optional
        Budget: 1.0 and 1e-6 by default, or ``mu``. Pure epsilon-DP is not offered.
    ledger, random_state : Ledger or None, int or None
        The ledger is charged before noise is drawn; a seeded fit, for tests, is not private.

    Attributes
    ----------
    mean_, covariance_ : array
        Released moments in the units of the data; the covariance is positive definite.
    mean_std_ : array of shape (n_features,)
        Standard deviation of the noise in ``mean_``, exactly.
    privacy_, certificate_ : str, PreprocessingCertificate
        ``"paid"``, and the promise.

    Notes
    -----
    Privacy: replace-one, Gaussian DP with exact noise. For unit rows the two releases together move by at most
    ``3 / sqrt(2)``, which is their sensitivity; released one after the other they would need more noise for the mean.

    Examples
    --------
    >>> DPMoments((0, 1), mu=0.5).certify(1000, 3).guarantee
    GaussianDP(mu=0.5)
    """

    _mechanism = "moments"

    def __init__(
        self, bounds: tuple[ArrayLike, ArrayLike], *, whiten: bool = False, epsilon: float | None = None,
        delta: float | None = None, mu: float | None = None, ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:  # fmt: skip
        self.bounds, self.whiten = bounds, whiten
        self.epsilon, self.delta, self.mu = epsilon, delta, mu
        self.ledger, self.random_state = ledger, random_state

    def _check(self, columns: int) -> None:
        _require_bounds("bounds", self.bounds, columns, "DPMoments")

    def _release_preprocessing(self, rows: Array, certificate: PreprocessingCertificate, noise: NoiseSource) -> None:
        n, d = rows.shape
        low, high = _require_bounds("bounds", self.bounds, d, "DPMoments")
        unit = _scale_to_unit(rows, low, high) / math.sqrt(d)
        answers, std = PrivateAnswers({"moments": certificate.term}, noise), certificate.noise["std"]
        released = answers.release(answers.claim("moments"), _stack_preprocessing_moments(unit)) / n
        mean = released[:d]
        second = np.zeros((d, d))
        second[np.triu_indices(d)] = released[d:]
        second[np.triu_indices(d, 1)] /= math.sqrt(2)
        second = second + np.triu(second, 1).T
        values, vectors = np.linalg.eigh(second - np.outer(mean, mean))
        # Noise can make a variance negative: it is raised to the size of the noise.
        values = np.maximum(values, max(std / n * math.sqrt(d) / 2, 1e-12))
        scale = (high / 2 - low / 2) * math.sqrt(d)
        self.mean_ = low / 2 + high / 2 + scale * mean
        self.covariance_ = np.outer(scale, scale) * ((vectors * values) @ vectors.T)
        self.mean_std_ = scale * std / n

    def transform(self, X: object) -> Array:
        """Preprocess rows: clip to the bounds, subtract the released mean, divide by deviations (or whiten)."""
        rows = self._read_preprocessed_rows(X, reset=False)
        rows = np.clip(rows, *_require_bounds("bounds", self.bounds, rows.shape[1], "DPMoments")) - self.mean_
        if not self.whiten:
            return np.asarray(rows / np.sqrt(np.diag(self.covariance_)))
        values, vectors = np.linalg.eigh(self.covariance_)
        # Row by row: what becomes of a record must not depend on how many others there are.
        return transform_block(rows, (vectors / np.sqrt(values)) @ vectors.T)


def _stack_preprocessing_moments(unit: Array) -> Array:
    """Return sums and second moments as one vector whose norm is that of both together."""
    blocks = (unit[start : start + MOMENT_BLOCK] for start in range(0, len(unit), MOMENT_BLOCK))
    first, second = pairwise_summation((block.sum(axis=0), block.T @ block) for block in blocks)
    # Off the diagonal an entry stands for two.
    second = second * (math.sqrt(2) - (math.sqrt(2) - 1) * np.eye(len(second)))
    return np.concatenate([first, second[np.triu_indices(len(second))]])
