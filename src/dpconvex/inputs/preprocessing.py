r"""Preprocessing with a stated cost: a public table for free, private bounds for a budget.

:class:`PublicTable` learns nothing from rows. :class:`DPQuantileBounds` reads the data, pays, and
charges a ledger. Both are scikit-learn transformers; attributes that end with ``_`` may be
published.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dpconvex.core.checks import check_count, parameter_error
from dpconvex.core.noise_source import EXACT, SEEDED, NoiseSource
from dpconvex.inputs.preprocessing_certificate import (
    PreprocessingCertificate,
    quantile_certificate_noise,
)
from dpconvex.inputs.public_table import PublicTable
from dpconvex.inputs.settings import resolve_bounds_setting, resolve_budget_setting
from dpconvex.inputs.training_data import read_features
from dpconvex.privacy.charging import charge_private_model, noted_as_spent
from dpconvex.privacy.ledger import Ledger
from dpconvex.releases.exponential_choices import ExponentialChoices
from dpconvex.types import Array

__all__ = ["DPQuantileBounds", "PreprocessingCertificate", "PublicTable"]


# Rows times epsilon beyond a quantile: exp(-20) outweighs a search range a million times too wide.
_TAIL_ROWS_EPSILON = 40.0
_SMALLEST_TAIL = 0.01
_LARGEST_TAIL = 0.25
_MARGIN = 0.25  # of the ends' distance: narrow bounds cost more than wide ones


class DPQuantileBounds(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Find bounds of columns privately, clip to them and map to [-1, 1].

    Each end of each column is a quantile drawn by the exponential mechanism: a point ``t`` of a
    public grid on the search range, 2^40 steps wide, has probability proportional to
    ``exp(-epsilon |#{x_i < t} - q n| / 2)``. The share q of the rows beyond each end is
    ``40 / (n epsilon)``, between 0.01 and 0.25: fewer rows cannot hold a draw against a range
    thousands of times too wide. Ends are moved outwards by a quarter of their distance.

    Parameters
    ----------
    search_bounds : pair (low, high)
        Public range to search, scalars or one value per column; may be far too wide.
    epsilon, delta, mu : float, optional
        Budget, as for the estimators: 1.0 and 1e-6 by default, ``delta=0`` for pure epsilon-DP, or
        ``mu``.
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
    Privacy: replace-one; a replaced record moves a count by at most 1. The ``2 d`` quantiles share
    the budget. Bounds are points of the grid whatever the rows are; draws are exact. Later steps
    may use ``feature_bounds=(-1, 1)``; their budget comes on top.

    Examples
    --------
    >>> import numpy as np
    >>> ages = np.random.default_rng(0).normal(40, 10, (5000, 1))
    >>> bounds = DPQuantileBounds((0, 1000), random_state=0).fit(ages)
    >>> bool(0 < bounds.low_[0] < 25 and 55 < bounds.high_[0] < 90)
    True
    """

    privacy_: str = "paid"  # for :func:`dpconvex.check_pipeline`

    def __init__(
        self,
        search_bounds: tuple[ArrayLike, ArrayLike],
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        mu: float | None = None,
        ledger: Ledger | None = None,
        random_state: int | None = None,
    ) -> None:
        self.search_bounds = search_bounds
        self.epsilon = epsilon
        self.delta = delta
        self.mu = mu
        self.ledger = ledger
        self.random_state = random_state

    def certify(self, n_samples: int, n_features: int) -> PreprocessingCertificate:
        """Return the certificate of a fit, before any data.

        Parameters
        ----------
        n_samples, n_features : int
            Public size of the data.
        """
        owner = "DPQuantileBounds"
        for name, value in (("n_samples", n_samples), ("n_features", n_features)):
            check_count(name, f"{owner}.certify", value)
        guarantee = resolve_budget_setting(self.epsilon, self.delta, self.mu, owner)
        self._searched(int(n_features))
        noise = quantile_certificate_noise(guarantee, int(n_features))
        sampler = EXACT if self.random_state is None else SEEDED
        return PreprocessingCertificate(
            guarantee, "quantile-bounds", int(n_samples), int(n_features), noise, sampler
        )

    def _searched(self, columns: int) -> tuple[Array, Array]:
        found = resolve_bounds_setting(
            "search_bounds", self.search_bounds, columns, "DPQuantileBounds"
        )
        if found is None:
            remedy = "Write what is known without the data."
            raise parameter_error(
                "search_bounds", "DPQuantileBounds", "a pair (low, high)", "None", remedy
            )
        return found

    def _read_rows(self, X: object, reset: bool) -> Array:
        if issparse(X):  # centred, it would have no zeros
            raise TypeError(
                "The X given to DPQuantileBounds must be a dense array or dataframe. Sparse data "
                "was passed, but dense data is required. Give the estimator feature_bounds "
                "instead, or use X.toarray()."
            )
        return np.asarray(read_features(self, X, reset), dtype=np.float64)

    @noted_as_spent()
    def fit(self, X: object, y: object = None) -> Self:
        """Release bounds of the columns; ``y`` is ignored."""
        rows = self._read_rows(X, reset=True)
        certificate = self.certify(*rows.shape)
        noise = NoiseSource(self.random_state)
        charge_private_model(self.ledger, certificate, "DPQuantileBounds.fit")
        lowest, highest = self._searched(rows.shape[1])
        columns = rows.shape[1]
        epsilon = certificate.noise["epsilon"]
        tail = min(
            _LARGEST_TAIL,
            max(_SMALLEST_TAIL, _TAIL_ROWS_EPSILON / (certificate.n_samples * epsilon)),
        )
        choices = ExponentialChoices(epsilon, 2 * columns, noise)
        ends = np.empty((2, columns))
        for column in range(columns):
            low = float(lowest[column])
            high = float(highest[column])
            drawn = sorted(choices.quantiles(rows[:, column], (tail, 1 - tail), low, high))
            # Released numbers only from here on; a width of zero is no use as a bound.
            extra = max(_MARGIN * (drawn[1] - drawn[0]), 1e-6 * (high - low))
            ends[:, column] = max(low, drawn[0] - extra), min(high, drawn[1] + extra)
        self.low_, self.high_ = ends
        self.privacy_ = "paid"
        self.certificate_ = certificate
        return self

    def transform(self, X: object) -> Array:
        """Return rows clipped to the released bounds and mapped to [-1, 1]."""
        check_is_fitted(self)
        rows = self._read_rows(X, reset=False)
        low = self.low_
        high = self.high_
        middle = low / 2 + high / 2
        half = high / 2 - low / 2
        return np.asarray(np.clip((np.clip(rows, low, high) - middle) / half, -1.0, 1.0))
