"""Private newsvendor: how much to order."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_consistent_length, column_or_1d

from dpconvex.estimators.parameters import estimator
from dpconvex.estimators.quantile import PrivateQuantileModel
from dpconvex.inputs.settings import RAREST, positive


@estimator
class DPNewsvendor(PrivateQuantileModel):
    r"""Order quantities from features under differential privacy.

    Ordering ``q`` when demand is ``y`` costs ``underage_cost (y - q)^+ + overage_cost (q - y)^+``. The best linear
    policy is the conditional quantile at the service level ``underage_cost / (underage_cost + overage_cost)``, so the
    fit is that of :class:`DPQuantileRegressor` at this level; both costs are public.

    Parameters
    ----------
    underage_cost, overage_cost : float, default=1.0
        Cost of one unit too few and of one unit too many, both above 0.
    target_bounds : pair (low, high), optional
        Public range of demand; sets the scale, clips nothing. Without it demand should be of order 1.
    alpha, bandwidth : float, optional
        Penalty, and smoothing bandwidth in units of demand. By default those with the smallest predicted risk, from
        public facts.

    Attributes
    ----------
    coef_, intercept_, certificate_, released_
        As in :class:`DPQuantileRegressor`.

    Notes
    -----
    Privacy: as for :class:`DPQuantileRegressor`. Polynomial or spline features belong in a scikit-learn pipeline in
    front of it, with public knots; the feature bounds then are those of the transformed columns.

    Examples
    --------
    >>> from dpconvex import DPNewsvendor
    >>> model = DPNewsvendor(underage_cost=3.0, overage_cost=1.0, mu=0.5, feature_bounds=(0, 1), target_bounds=(0, 90))
    >>> model.service_level
    0.75
    >>> model.certify(n_samples=5_000, n_features=4).mechanism
    'gradient'
    """

    underage_cost: float = 1.0
    overage_cost: float = 1.0

    @property
    def service_level(self) -> float:
        """Probability of meeting demand that the costs ask for."""
        return self._wanted()

    def _wanted(self, n_targets: int | None = None) -> float | tuple[float, ...]:
        under, over = (
            positive(name, getattr(self, name), type(self).__name__)
            for name in ("underage_cost", "overage_cost")
        )
        level = under / (under + over)
        if not RAREST <= level < 1 - RAREST:
            raise ValueError(
                f"The 'underage_cost' and 'overage_cost' parameters of {type(self).__name__} must be such that the "
                f"service level is at least {RAREST:g} and below 1 - {RAREST:g}. Got {under!r} and {over!r} instead."
            )
        return level

    def _summary_facts(self) -> list[tuple[str, str]]:
        return [
            ("service level", f"{self.service_level:.4g}"),
            ("underage cost", f"{self.underage_cost:g} per unit"),
            ("overage cost", f"{self.overage_cost:g} per unit"),
            *super()._summary_facts()[1:],
        ]

    def cost(self, X: object, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the mean cost of ordering ``predict(X)`` when demand is ``y``.

        ``(1/n) sum_i underage_cost (y_i - q_i)^+ + overage_cost (q_i - y_i)^+``.
        """
        orders = self.predict(X)
        demand = column_or_1d(y)
        check_consistent_length(orders, demand)
        short = np.maximum(demand - orders, 0.0)
        left = np.maximum(orders - demand, 0.0)
        costs = self.underage_cost * short + self.overage_cost * left
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return float(np.average(costs, weights=weights))

    def score(self, X: object, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the mean cost, so that larger is better."""
        return -self.cost(X, y, sample_weight)
