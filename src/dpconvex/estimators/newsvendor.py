"""The newsvendor: order quantities from features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.utils import Tags
from sklearn.utils.validation import check_consistent_length, column_or_1d

from dpconvex.engine.dask.partitions import CleanTargets, is_partitioned, numbers_or_missing
from dpconvex.engine.row_weights import RowWeights
from dpconvex.estimators.parameters import estimator
from dpconvex.estimators.quantile import PrivateQuantileModel
from dpconvex.inputs.people import PrivacyUnit
from dpconvex.inputs.public_table import column_names
from dpconvex.inputs.settings import MOST_LEVELS, RAREST, ignores_invalid, is_sequence, least_rows, require_positive
from dpconvex.inputs.training_data import as_numbers, read_training, shape_of
from dpconvex.mechanisms.mechanism import Plan
from dpconvex.objectives.empirical import MultiTargetObjective
from dpconvex.objectives.objective import Objective
from dpconvex.privacy.certificate import Certificate

_COSTS = ("underage_cost", "overage_cost")


@estimator
class DPNewsvendor(PrivateQuantileModel):
    r"""Order quantities from features under differential privacy.

    Ordering ``q`` when demand is ``y`` costs ``underage_cost (y - q)^+ + overage_cost (q - y)^+``. The best linear
    policy is the conditional quantile at the service level ``underage_cost / (underage_cost + overage_cost)``, so the
    fit is that of :class:`DPQuantileRegressor` at this level; both costs are public. Several products are ordered by
    one fit to a table of demands, under one budget: a record is a row with all of its demands.

    Parameters
    ----------
    underage_cost, overage_cost : float or sequence of float, default=1.0
        Cost of one unit too few and of one unit too many, both above 0; of all products, or one of each.
    target_bounds : pair (low, high), optional
        Public range of demand, of all products; sets the scale, clips nothing. Without it the mechanism ``"gradient"``
        finds the scale privately; for others demand should be of order 1.

    Attributes
    ----------
    product_names_ : list of str
        Names of the columns of y, of a fit to a table that has them.

    Notes
    -----
    Privacy: as for :class:`DPQuantileRegressor`. Products share what is found out about rows; otherwise each has
    ``mu / sqrt(n_products)`` of the budget. Polynomial or spline features belong in a scikit-learn pipeline in
    front of it, with public knots; the feature bounds then are those of the transformed columns.

    Examples
    --------
    >>> from dpconvex import DPNewsvendor
    >>> model = DPNewsvendor(underage_cost=3.0, overage_cost=1.0, mu=0.5, feature_bounds=(0, 1), target_bounds=(0, 90))
    >>> model.service_level
    0.75
    >>> model.certify(n_samples=5_000, n_features=4).mechanism
    'gradient'
    >>> DPNewsvendor(underage_cost=[3.0, 9.0]).service_level
    (0.75, 0.9)
    """

    underage_cost: float | Sequence[float] = 1.0
    overage_cost: float | Sequence[float] = 1.0

    @property
    def service_level(self) -> float | tuple[float, ...]:
        """Probability of meeting demand that the costs ask for, of every product where they differ."""
        return self._wanted()

    def _wanted(self, n_targets: int | None = None) -> float | tuple[float, ...]:
        owner = type(self).__name__
        counts = {
            len(cast(Sequence[float], getattr(self, name))) for name in _COSTS if is_sequence(getattr(self, name))
        }
        if n_targets is not None:
            counts.add(n_targets)
        if not counts:
            return self._service_level(self.underage_cost, self.overage_cost)
        products = max(counts)
        if len(counts) > 1 or not 1 <= products <= MOST_LEVELS:
            raise ValueError(
                f"The 'underage_cost' and 'overage_cost' parameters of {owner} must be numbers, or one for each column "
                f"of y, at most {MOST_LEVELS}. Got {sorted(counts)} of them instead."
            )
        pairs = zip(*self._costs(products), strict=True)
        return tuple(self._service_level(under, over) for under, over in pairs)

    def _costs(self, products: int) -> list[Sequence[float]]:
        """Return both costs, one for each product."""
        costs = [getattr(self, name) for name in _COSTS]
        return [list(cost) if is_sequence(cost) else [cost] * products for cost in costs]

    def _service_level(self, underage_cost: object, overage_cost: object) -> float:
        owner = type(self).__name__
        pairs = zip(_COSTS, (underage_cost, overage_cost), strict=True)
        under, over = (require_positive(name, cost, owner) for name, cost in pairs)
        level = under / (under + over)
        if not RAREST <= level < 1 - RAREST:
            raise ValueError(
                f"The 'underage_cost' and 'overage_cost' parameters of {owner} must be such that the service level is "
                f"at least {RAREST:g} and below 1 - {RAREST:g}. Got {under!r} and {over!r} instead."
            )
        return level

    def _targets(self, levels: tuple[float, ...]) -> int:
        return max(1, len(levels))

    def certify(
        self,
        n_samples: int,
        n_features: int,
        n_products: int | None = None,
        *,
        groups: bool = False,
        sample_weight: bool = False,
    ) -> Certificate:
        """Return the certificate of a fit, before any data: equal to ``certificate_`` after a fit of this shape.

        Parameters
        ----------
        n_samples, n_features, groups, sample_weight
            As in :meth:`DPQuantileRegressor.certify`.
        n_products : int, optional
            Number of columns of y, where it is a table; by default that of the costs, if they are sequences.
        """
        records = PrivacyUnit.of(self, n_samples, groups, sample_weight)
        return self._plan(records, n_features, n_products).certificate

    def _read(self, X: object, y: object) -> tuple[object, Sequence[object], tuple[int, ...]]:
        owner, table = type(self).__name__, isinstance(self._wanted(), tuple)
        if isinstance(y, (list, tuple)) and ignores_invalid(self):
            y = np.asarray(y, dtype=object)  # one cell must not make text of the others
        shape = shape_of(y) or ()
        wide = len(shape) == 2 and (table or shape[1] > 1)
        # What is no table of numbers is refused as any other target is.
        if not wide or issparse(y) or isinstance(y, np.ma.MaskedArray):
            if table and not wide:
                raise ValueError(
                    f"The y given to {owner} must have a column for each product, because there are costs of each. Got "
                    "an array that is not 2D instead. Use y.reshape(-1, 1) for one product."
                )
            return super()._read(X, y)
        if is_partitioned(X) or is_partitioned(y):
            raise TypeError(
                f"The X and y given to {owner} must be in memory for several products. Got a Dask collection instead. "
                "Use X.compute(), or fit one product at a time, each with its part of the budget."
            )
        names = column_names(y) or []
        self.__dict__.pop("product_names_", None)  # of an earlier fit
        texts = {name for name in names if isinstance(name, str)}
        if names and len(texts) == len(names):
            self.product_names_ = [str(name) for name in names]
        clean = CleanTargets(numbers_or_missing) if ignores_invalid(self) else None
        found, least = [], least_rows(self.neighbors)
        for column in np.asarray(y).T:
            rows, target = read_training(self, X, column, clean, least, y_numeric=True)
            found.append(as_numbers(target))
        # A record is a row of all demands: one that cannot be read makes all of it invalid.
        void = np.isnan(found).any(axis=0)
        return rows, [np.where(void, np.nan, target) for target in found], (*rows.shape, len(found))

    def _objectives(
        self, X: object, targets: Sequence[object], plan: Plan, weights: RowWeights | None
    ) -> Sequence[Objective]:
        if len(targets) == 1:
            return super()._objectives(X, targets, plan, weights)
        rows, bounds = self._mapped_rows(X, targets, plan, weights), plan.certificate.bounds
        return [MultiTargetObjective(rows, bounds.loss, bounds.alpha, divisor=bounds.n_samples)]

    def _problem_name(self, problem: int) -> str:
        names = getattr(self, "product_names_", None)
        return f"product {problem}" if names is None else str(names[problem])

    def _summary_facts(self) -> list[tuple[str, str]]:
        levels = np.atleast_1d(self.certificate_.parameters["quantile"])
        under, over = (", ".join(f"{cost:g}" for cost in np.atleast_1d(getattr(self, name))) for name in _COSTS)
        return [
            ("service level", ", ".join(f"{level:.4g}" for level in levels)),
            ("underage cost", f"{under} per unit"),
            ("overage cost", f"{over} per unit"),
            *super()._summary_facts()[1:],
        ]

    def cost(self, X: object, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the mean cost of ordering ``predict(X)`` when demand is ``y``, of all products together.

        ``(1/n) sum_i underage_cost (y_i - q_i)^+ + overage_cost (q_i - y_i)^+``, summed over products.
        """
        orders = self.predict(X)
        demand = column_or_1d(y) if orders.ndim == 1 else np.asarray(y, dtype=np.float64)
        check_consistent_length(orders, demand)
        if demand.shape != orders.shape:
            raise ValueError(
                f"The y given to {type(self).__name__}.cost must have shape {orders.shape}. Got {demand.shape} instead."
            )
        under, over = (np.asarray(getattr(self, name), dtype=np.float64) for name in _COSTS)
        short = np.maximum(demand - orders, 0.0)
        left = np.maximum(orders - demand, 0.0)
        costs = under * short + over * left
        costs = costs if costs.ndim == 1 else costs.sum(axis=1)
        weights = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        return float(np.average(costs, weights=weights))

    def score(self, X: object, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the mean cost, so that larger is better."""
        return -self.cost(X, y, sample_weight)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
