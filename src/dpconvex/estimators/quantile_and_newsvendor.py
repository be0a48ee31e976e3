"""Quantile regression, and the newsvendor: order quantities from features.

Here are levels, the plan of a fit (``_plan``), predictions and scores; ``fit`` is that of all
linear models (:mod:`dpconvex.estimators.linear`), along the one path of
:mod:`dpconvex.estimators.private_model`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, replace
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.metrics import d2_pinball_score
from sklearn.utils import Tags
from sklearn.utils.validation import check_consistent_length, column_or_1d

from dpconvex.core.certificate import Certificate
from dpconvex.core.checks import parameter_error
from dpconvex.core.description import describe
from dpconvex.core.guarantees import PureDP
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.core.rows import is_partitioned
from dpconvex.engine.dask.partitions import PartitionTargets
from dpconvex.estimators.linear import (
    LinearConfidenceIntervals,
    PrivateLinearRegressor,
    linear_shrinkage_facts,
)
from dpconvex.estimators.parameters import with_parameters
from dpconvex.estimators.private_model import StatedSettings
from dpconvex.inputs import settings
from dpconvex.inputs.containers import (
    as_marked_column,
    as_marked_table,
    declared_columns,
    is_plain_container,
    read_rows,
    read_target_numbers,
    undeclared_width,
)
from dpconvex.inputs.people_and_weights import PersonUnit
from dpconvex.inputs.public_table import public_column_names
from dpconvex.inputs.records import check_table_setting
from dpconvex.inputs.settings import MOST_LEVELS, RAREST, is_sequence
from dpconvex.inputs.training_data import read_training, shape_of_data
from dpconvex.losses import Pinball, PointwiseLoss
from dpconvex.mechanisms.mechanism import certified_kind
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.planning.mechanism_choice import decide_fit
from dpconvex.smoothing import ConvolvedLoss, Kernel, MoreauLoss, convolve


@with_parameters
class PrivateQuantileModel(PrivateLinearRegressor):
    """Base of fits of conditional quantiles; subclasses give the levels (``_quantile_levels``).

    Parameters
    ----------
    bandwidth : float, optional
        Smoothing bandwidth, in the target's units. By default: 'gradient', fixed multiples of the
        privately estimated target and residual scales; 'objective', smallest predicted excess risk;
        'output', 'phased-erm' none; 'sgd', 'phased-sgd' the smallest for which a gradient step is
        non-expansive.
    kernel : str or Kernel, default="logistic"
        Smoothing kernel: logistic, gaussian, uniform, epanechnikov, laplacian, exponential, or an
        object such as a :class:`~dpconvex.smoothing.MixtureKernel` of one's own.
    smoothing : {"convolution", "moreau"}, default="convolution"
        How kinks are rounded: averaged with the kernel, from above, or by a Moreau envelope of the
        same curvature, from below. The latter is for comparison; ``mechanism="gradient"`` takes the
        former alone.
    """

    _: KW_ONLY
    bandwidth: float | None = None
    kernel: str | Kernel = "logistic"
    smoothing: str = "convolution"
    _target_of_each_level: ClassVar[bool] = False  # whether levels are of a target each

    def _quantile_levels(self, n_targets: int | None = None) -> float | tuple[float, ...]:
        """Return the quantile level to fit, or several, checked; ``n_targets`` of a table of
        targets.
        """
        raise AttributeError(f"{type(self).__name__} does not say which quantile it fits.")

    def _stated(self, certificate: Certificate, facts: FitRequest) -> StatedSettings:
        kernel = settings.resolve_kernel_setting(self.kernel, type(self).__name__)
        named = certificate.parameters.get("quantile")
        levels = self._quantile_levels(len(named) if isinstance(named, list) else None)
        several = levels if isinstance(levels, tuple) else (levels,)
        level = max(several, key=lambda level: abs(level - 0.5))
        loss = certificate.bounds.loss
        parameters = certificate.parameters
        smooth = isinstance(loss, ConvolvedLoss)
        base = loss.loss if smooth or isinstance(loss, MoreauLoss) else loss
        kind = certified_kind(certificate)
        planned = kind.stated_choices(certificate)
        bandwidth = settings.check_optional_positive(
            "bandwidth", self.bandwidth, type(self).__name__, unit=1 / facts.target_scale
        )
        stated = {
            "kind of bounds": (type(certificate.bounds), LinearBounds),
            "loss": (base, Pinball(level)),
            "quantile": (named, levels),
            "levels": (planned.get("levels", []), list(several) if len(several) > 1 else []),
            "targets": (
                planned.get("targets", 1),
                len(several) if self._target_of_each_level else 1,
            ),
            "kernel": (
                describe(loss.kernel) if smooth else planned.get("kernel", describe(kernel)),
                describe(kernel),
            ),
        }
        envelopes = self._envelopes(type(self).__name__)
        if isinstance(loss, MoreauLoss):
            stated["kind of smoothing"] = (envelopes, True)
            width = parameters["bandwidth"] * facts.target_scale
            stated["smoothing"] = (loss, _envelope(Pinball(level), kernel, width))
        elif smooth or planned:
            stated["kind of smoothing"] = (envelopes, False)
        if smooth:
            stated["smoothing"] = (loss.bandwidth / facts.target_scale, parameters["bandwidth"])
            if bandwidth is None:
                # Smoothing moves quantiles, so the level that is smoothed may be another one,
                # within limits that the mechanism has.
                moved = kind.may_smooth_level
                stated["loss"] = (type(base) is Pinball and moved(base.quantile, level), True)
        if bandwidth is not None:
            stated["bandwidth"] = (parameters.get("bandwidth"), bandwidth)
        return stated

    def _plan(
        self, privacy_unit: PersonUnit, n_features: int, n_targets: int | None = None
    ) -> FitDecision:
        owner = type(self).__name__
        levels = self._quantile_levels(n_targets)
        several = levels if isinstance(levels, tuple) else (levels,)
        quantile = max(
            several, key=lambda level: abs(level - 0.5)
        )  # of the steepest loss, for bounds
        loss = Pinball(quantile)
        facts = self._public_facts(privacy_unit, n_features)
        named = {"quantile": list(levels) if isinstance(levels, tuple) else levels}
        if self.inference is not False:
            return cast(LinearConfidenceIntervals, self)._interval_plan(
                facts, "quantiles", loss, named, several
            )
        bandwidth = settings.check_optional_positive(
            "bandwidth", self.bandwidth, owner, unit=1 / facts.target_scale
        )
        request = replace(
            facts,
            task="quantiles",
            parameters={**facts.parameters, **named},
            bounds=facts.linear_bounds(loss),
            kernel=settings.resolve_kernel_setting(self.kernel, owner),
            alpha=settings.check_optional_positive("alpha", self.alpha, owner),
            bandwidth=None if bandwidth is None else bandwidth * facts.target_scale,
            states_bandwidth=True,
            levels=several if len(several) > 1 else (),
            targets=len(several) if self._target_of_each_level else 1,
            raw_target=facts.parameters["target_bounds"] is None,
            envelope=partial(_quantile_envelope, loss) if self._envelopes(owner) else None,
        )
        if request.levels and isinstance(request.guarantee, PureDP):
            raise ValueError(
                f"Several quantiles in one fit of {owner} need an (epsilon, delta) or mu budget. "
                "Got pure epsilon instead. Give a delta above 0, or fit one quantile at a time."
            )
        return decide_fit(self.mechanism, request)

    def _envelopes(self, owner: str) -> bool:
        if self.smoothing not in ("convolution", "moreau"):
            raise parameter_error(
                "smoothing", owner, "'convolution' or 'moreau'", repr(self.smoothing)
            )
        return self.smoothing == "moreau"

    def _summary_facts(self) -> list[tuple[str, str]]:
        parameters = self.certificate_.parameters
        levels = np.atleast_1d(parameters["quantile"])
        name = "quantile" if len(levels) == 1 else "quantiles"
        facts = [(name, ", ".join(f"{level:g}" for level in levels))]
        if "bandwidth" in parameters:
            facts.append(("bandwidth", f"{parameters['bandwidth']:.4g} (target's units)"))
        return [*facts, *linear_shrinkage_facts(self.released_)]


def _envelope(loss: Pinball, kernel: Kernel, width: float) -> MoreauLoss:
    """Return the Moreau envelope with the curvature that convolution over this width would have."""
    return MoreauLoss(loss, convolve(loss, kernel, width).smoothness)


def _quantile_envelope(plain: Pinball, loss: PointwiseLoss) -> PointwiseLoss:
    """Return the envelope with the curvature of a quantile's convolved loss, so that noise stays;
    what is kinked is not smoothed, or by the mechanism itself.
    """
    if not isinstance(loss, ConvolvedLoss):
        return loss
    return _envelope(plain, loss.kernel, loss.bandwidth)


@with_parameters
class DPQuantileRegressor(LinearConfidenceIntervals, PrivateQuantileModel):
    r"""Linear quantile regression under differential privacy.

    Estimates the minimiser of the mean pinball loss. 'objective' and 'output' minimise ``F(theta) =
    (1/n) sum_i w_i loss(y_i - x_i . theta) + (alpha/2) ||theta||^2``, with the pinball loss
    convolved with a kernel if a bandwidth is set, rows and targets mapped by public bounds, the
    intercept part of row and penalty. The default 'gradient' takes noisy Newton-type steps in
    privately whitened coordinates and shrinks coefficients towards a private constant prediction
    (empirical Bayes).

    Parameters
    ----------
    quantile : float or sequence of float, default=0.5
        Quantile level, between 0 and 1, or several in increasing order: one fit, one budget, one
        certificate. They share all that is found out about rows and target, so that nine levels err
        little more than one (:doc:`/howto/curves`).

    Examples
    --------
    >>> from dpconvex import DPQuantileRegressor
    >>> model = DPQuantileRegressor(0.9, epsilon=1.0, feature_bounds=(0, 10), target_bounds=(0, 50))
    >>> certificate = model.certify(n_samples=10_000, n_features=3)
    >>> certificate.guarantee
    ApproxDP(epsilon=1.0, delta=1e-06)
    >>> certificate.verify()
    """

    quantile: float | Sequence[float] = 0.5

    def _quantile_levels(self, n_targets: int | None = None) -> float | tuple[float, ...]:
        owner = type(self).__name__
        if is_sequence(self.quantile):
            return settings.check_quantile_settings(cast(Sequence[float], self.quantile), owner)
        return settings.check_quantile_setting(self.quantile, owner)

    def predict(self, X: object) -> NDArray[np.float64]:
        """Return predicted quantiles, in the target's units, of shape (n_samples,), or (n_samples,
        n_levels).

        Of several levels each row is sorted, so that quantiles never cross. Lines of noisy
        coefficients may; the sorted ones are never further from the true quantiles, and sorting
        costs no privacy.
        """
        found = self._linear(X)
        return found if found.ndim == 1 else np.sort(found, axis=1)

    def _problem_name(self, problem: int) -> str:
        return f"quantile {np.atleast_1d(np.asarray(self.quantile))[problem]:g}"

    def score(self, X: object, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the D² of the pinball loss, the mean over levels: 1 is perfect, 0 as good as
        the constant quantile.
        """
        found = self.predict(X)
        found = found[:, None] if found.ndim == 1 else found
        scores = [
            d2_pinball_score(y, column, alpha=level, sample_weight=sample_weight)
            for column, level in zip(found.T, np.atleast_1d(np.asarray(self.quantile)), strict=True)
        ]
        return float(np.mean(scores))


_COSTS = ("underage_cost", "overage_cost")


@with_parameters
class DPNewsvendor(PrivateQuantileModel):
    r"""Order quantities from features under differential privacy.

    Ordering ``q`` when demand is ``y`` costs ``underage_cost (y - q)^+ + overage_cost (q - y)^+``.
    The best linear policy is the conditional quantile at the service level
    ``underage_cost / (underage_cost + overage_cost)``, so the fit is that of
    :class:`DPQuantileRegressor` at this level; both costs are public. Several products are ordered
    by one fit to a table of demands, under one budget: a record is a row with all of its demands.

    Parameters
    ----------
    underage_cost, overage_cost : float or sequence of float, default=1.0
        Cost of one unit too few and of one unit too many, both above 0; of all products, or one of
        each. With ``invalid_rows="ignore"`` a list of demands needs the cost of each product, which
        says how many there are; arrays and dataframes do so themselves.

    Attributes
    ----------
    product_names_ : list of str
        Names of the columns of y, of a fit to a table that has them.

    Notes
    -----
    Privacy: as for :class:`DPQuantileRegressor`. Products share what is found out about rows;
    otherwise each has ``mu / sqrt(n_products)`` of the budget. Polynomial or spline features belong
    in a scikit-learn pipeline in front of it, with public knots; the feature bounds then are those
    of the transformed columns.

    Examples
    --------
    >>> from dpconvex import DPNewsvendor
    >>> model = DPNewsvendor(
    ...     underage_cost=3.0,
    ...     overage_cost=1.0,
    ...     mu=0.5,
    ...     feature_bounds=(0, 1),
    ...     target_bounds=(0, 90),
    ... )
    >>> model.service_level
    0.75
    >>> model.certify(n_samples=5_000, n_features=4).mechanism
    'gradient'
    >>> DPNewsvendor(underage_cost=[3.0, 9.0]).service_level
    (0.75, 0.9)
    """

    underage_cost: float | Sequence[float] = 1.0
    overage_cost: float | Sequence[float] = 1.0
    _target_of_each_level = True

    @property
    def service_level(self) -> float | tuple[float, ...]:
        """Probability of meeting demand that the costs ask for, of every product where they
        differ.
        """
        return self._quantile_levels()

    def _quantile_levels(self, n_targets: int | None = None) -> float | tuple[float, ...]:
        owner = type(self).__name__
        costs: list[Any] = [self.underage_cost, self.overage_cost]
        counts = {len(cost) for cost in costs if is_sequence(cost)} | (
            set() if n_targets is None else {n_targets}
        )
        if not counts:
            return self._service_level(*costs)
        products = max(counts)
        if len(counts) > 1 or not 1 <= products <= MOST_LEVELS:
            raise ValueError(
                f"The 'underage_cost' and 'overage_cost' parameters of {owner} must be numbers, "
                f"or one for each column of y, at most {MOST_LEVELS}. Got {sorted(counts)} of "
                "them instead."
            )
        pairs = zip(
            *(cost if is_sequence(cost) else [cost] * products for cost in costs), strict=True
        )
        return tuple(self._service_level(*pair) for pair in pairs)

    def _service_level(self, underage_cost: object, overage_cost: object) -> float:
        owner = type(self).__name__
        pairs = zip(_COSTS, (underage_cost, overage_cost), strict=True)
        under, over = (settings.check_positive_setting(name, cost, owner) for name, cost in pairs)
        level = under / (under + over)
        if not RAREST <= level < 1 - RAREST:
            raise ValueError(
                f"The 'underage_cost' and 'overage_cost' parameters of {owner} must be such that "
                f"the service level is at least {RAREST:g} and below 1 - {RAREST:g}. Got "
                f"{under!r} and {over!r} instead."
            )
        return level

    def certify(
        self,
        n_samples: int,
        n_features: int,
        n_products: int | None = None,
        *,
        groups: bool = False,
        sample_weight: bool = False,
        table: bool = False,
    ) -> Certificate:
        """Return the certificate of a newsvendor's fit, before any data: equal to ``certificate_``
        after such a fit.

        Parameters
        ----------
        n_products : int, optional
            Number of columns of y, where it is a table; by default that of the costs, if they are
            sequences.
        """
        of_table = check_table_setting(table, f"{type(self).__name__}.certify")
        unit = PersonUnit.of(self, n_samples, groups, sample_weight, of_table)
        return self._plan(unit, n_features, n_products).certificate

    def _read(self, X: Any, y: Any) -> tuple[object, Sequence[object], tuple[int, ...]]:
        owner = type(self).__name__
        levels = self._quantile_levels()
        table = isinstance(levels, tuple)
        ignored = settings.invalid_rows_setting(self)
        if ignored:
            y = self._demands_by_record(y, len(levels) if isinstance(levels, tuple) else None)
        shape = shape_of_data(y) or ()
        wide = len(shape) == 2 and shape[1] > (0 if table else 1)
        # What is no table of numbers is refused as any other target is.
        if not wide or issparse(y) or isinstance(y, np.ma.MaskedArray):
            if table and not wide:
                raise ValueError(
                    f"The y given to {owner} must have a column for each product, because there "
                    "are costs of each. Got an array that is not 2D, or that has none, instead. "
                    "Use y.reshape(-1, 1) for one product."
                )
            return super()._read(X, y)
        if is_partitioned(X) or is_partitioned(y):
            raise TypeError(
                f"The X and y given to {owner} must be in memory for several products. Got a Dask "
                "collection instead. Use X.compute(), or fit one product at a time, each with "
                "its part of the budget."
            )
        names = public_column_names(y) or []
        self.__dict__.pop("product_names_", None)  # of an earlier fit
        texts = {name for name in names if isinstance(name, str)}
        if names and len(texts) == len(names):
            self.product_names_ = [str(name) for name in names]
        clean = PartitionTargets(read_target_numbers) if ignored else None
        if ignored and is_plain_container(X):  # read once for all products
            X = as_marked_table(X, declared_columns(self.feature_bounds), owner)
        found = []
        least = settings.least_rows(self.neighbors)
        for column in np.asarray(y).T:
            rows, target = read_training(self, X, column, clean, least, y_numeric=True)
            found.append(target)
        # A record is a row of all demands: one that cannot be read makes all of it invalid.
        void = np.isnan(found).any(axis=0)
        return rows, [np.where(void, np.nan, target) for target in found], (*rows.shape, len(found))

    def _demands_by_record(self, y: Any, products: int | None) -> Any:
        """Return demands whose invalid records are ignored: those of containers that declare no
        shape as an array of one column per product, others as they are.
        """
        owner = type(self).__name__
        if is_plain_container(y) and products is None:
            remedy = "give the costs of each product, like underage_cost=[3.0]"
            raise undeclared_width("y", y, owner, "products", remedy)
        if is_partitioned(y) or public_column_names(y) is not None:  # a table
            return y
        column = as_marked_column("y", y, owner)
        objects = isinstance(column, np.ndarray) and column.dtype.kind == "O"
        if products is not None and objects and column.ndim == 1:
            return read_rows(column, products)
        return column

    def _problem_name(self, problem: int) -> str:
        names = vars(self).get("product_names_")
        return f"product {problem}" if names is None else str(names[problem])

    def _summary_facts(self) -> list[tuple[str, str]]:
        levels = np.atleast_1d(self.certificate_.parameters["quantile"])
        under, over = (
            ", ".join(f"{cost:g}" for cost in np.atleast_1d(getattr(self, name))) for name in _COSTS
        )
        return [
            ("service level", ", ".join(f"{level:.4g}" for level in levels)),
            ("underage cost", f"{under} per unit"),
            ("overage cost", f"{over} per unit"),
            *super()._summary_facts()[1:],
        ]

    def cost(self, X: object, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the newsvendor's mean cost of ordering ``predict(X)`` when demand is ``y``, of all
        products together.

        ``(1/n) sum_i underage_cost (y_i - q_i)^+ + overage_cost (q_i - y_i)^+``, summed over
        products.
        """
        orders = self.predict(X)
        demand = column_or_1d(y) if orders.ndim == 1 else np.asarray(y, dtype=np.float64)
        check_consistent_length(orders, demand)
        if demand.shape != orders.shape:
            raise ValueError(
                f"The y given to {type(self).__name__}.cost must have shape {orders.shape}. Got "
                f"{demand.shape} instead."
            )
        under, over = (
            np.asarray(cost, dtype=np.float64) for cost in (self.underage_cost, self.overage_cost)
        )
        costs = under * np.maximum(demand - orders, 0.0) + over * np.maximum(orders - demand, 0.0)
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
