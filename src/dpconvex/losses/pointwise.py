"""Convex losses of one record, as functions of the margin ``z = x~ . theta``.

A *residual* loss is ``c(u)`` with ``u = y - z``; a *margin* loss is ``c(u)`` with ``u = y * z`` and
``y`` in {-1, +1}. Every loss states ``lipschitz = sup |d/dz|`` and ``smoothness = sup |d2/dz2|``
(``inf`` if kinked): noise is calibrated from these two numbers, so they are exact suprema or upper
bounds, never estimates.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.special import expit

from dpconvex.checks import check_positive
from dpconvex.losses.interface import Kind, Loss, PointwiseLoss
from dpconvex.losses.kinks import Kinks
from dpconvex.types import ScalarOrArray

__all__ = [
    "Absolute",
    "Hinge",
    "Huber",
    "KinkedLoss",
    "Logistic",
    "Loss",
    "Pinball",
    "PointwiseLoss",
    "ReLU",
    "Scaled",
    "SoftThreshold",
    "Squared",
]


class _KinkedPart(PointwiseLoss):
    """The methods shared by all piecewise-linear losses; subclasses say which kinks they have."""

    @property
    def lipschitz(self) -> float:
        """Largest absolute slope."""
        return self.kinks.lipschitz

    @property
    def smoothness(self) -> float:
        """``inf``: the slope jumps."""
        return math.inf

    @property
    @abstractmethod
    def kinks(self) -> Kinks:
        """The piecewise-linear function this loss is."""

    def value_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``c(u)`` for float64 ``u``."""
        return self.kinks.value(u)

    def slope_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``c'(u)``, at a kink the midpoint of the subdifferential."""
        return self.kinks.derivative(u)

    def curvature_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """Zero: the curvature of the linear pieces."""
        return np.zeros_like(u)


@dataclass(frozen=True)
class Pinball(_KinkedPart):
    """Quantile loss ``quantile * u^+ + (1 - quantile) * (-u)^+`` of the residual ``u = y - z``.

    Parameters
    ----------
    quantile : float
        Strictly between 0 and 1.

    Examples
    --------
    >>> float(Pinball(0.75).value(3.0, 1.0)), float(Pinball(0.75).value(1.0, 3.0))
    (1.5, 0.5)
    >>> Pinball(0.75).lipschitz
    0.75
    """

    quantile: float

    def __post_init__(self) -> None:
        remedy = "For a one-sided loss use ReLU()."
        quantile = check_positive("quantile", "Pinball", self.quantile, remedy)
        if quantile >= 1:
            raise ValueError(
                "The 'quantile' parameter of Pinball must be strictly between 0 and 1. "
                f"Got {self.quantile!r} instead. {remedy}"
            )
        object.__setattr__(self, "quantile", quantile)

    @cached_property
    def kinks(self) -> Kinks:
        """One kink at 0 between the slopes ``quantile - 1`` and ``quantile``."""
        return Kinks((0.0,), (self.quantile - 1.0, self.quantile))


@dataclass(frozen=True)
class Absolute(_KinkedPart):
    """Absolute loss ``|y - z|``, twice the pinball loss of the median.

    Examples
    --------
    >>> float(Absolute().value(3.0, 1.0)), Absolute().lipschitz
    (2.0, 1.0)
    """

    @cached_property
    def kinks(self) -> Kinks:
        """One kink at 0 between the slopes -1 and 1."""
        return Kinks((0.0,), (-1.0, 1.0))


@dataclass(frozen=True)
class ReLU(_KinkedPart):
    """One-sided loss ``(y - z)^+``: only predictions below the target cost.

    Examples
    --------
    >>> float(ReLU().value(3.0, 1.0)), float(ReLU().value(2.0, 2.0))
    (2.0, 0.0)
    """

    @cached_property
    def kinks(self) -> Kinks:
        """One kink at 0 between the slopes 0 and 1."""
        return Kinks((0.0,), (0.0, 1.0))


@dataclass(frozen=True)
class SoftThreshold(_KinkedPart):
    """Loss ``(|y - z| - width)^+``: residuals up to ``width`` are free.

    Parameters
    ----------
    width : float
        Half the length of the free interval, positive.

    Examples
    --------
    >>> float(SoftThreshold(0.5).value(3.0, 1.0)), float(SoftThreshold(0.5).value(1.2, 1.0))
    (1.5, 0.0)
    """

    width: float

    def __post_init__(self) -> None:
        width = check_positive("width", "SoftThreshold", self.width, "For width 0 use Absolute().")
        object.__setattr__(self, "width", width)

    @cached_property
    def kinks(self) -> Kinks:
        """Kinks at ``-width`` and ``width`` between the slopes -1, 0 and 1."""
        return Kinks((-self.width, self.width), (-1.0, 0.0, 1.0))


@dataclass(frozen=True)
class Hinge(_KinkedPart):
    """Support-vector loss ``(1 - y * z)^+`` with ``y`` in {-1, +1}.

    Examples
    --------
    >>> float(Hinge().value(1.0, 0.25)), float(Hinge().value(-1.0, 0.25))
    (0.75, 1.25)
    """

    @property
    def kind(self) -> Kind:
        """``"margin"``: a loss of ``y * z``."""
        return "margin"

    @cached_property
    def kinks(self) -> Kinks:
        """One kink at 1 between the slopes -1 and 0."""
        return Kinks((1.0,), (-1.0, 0.0))


@dataclass(frozen=True)
class KinkedLoss(_KinkedPart):
    """Your own convex piecewise-linear loss, from its knots and slopes.

    Parameters
    ----------
    knots : sequence of m >= 1 floats, increasing
        Where the slope in ``u`` changes.
    slopes : sequence of m + 1 floats, increasing
        Slope in ``u`` left of the first knot, between knots, right of the last.
    height : float, default=0.0
        Value at the first knot.
    kind : {"residual", "margin"}, default="residual"
        Whether ``u = y - z`` or ``u = y * z``.

    Examples
    --------
    A newsvendor who pays 3 per unit of unmet demand and 1 per unit left over:

    >>> cost = KinkedLoss(knots=(0.0,), slopes=(-1.0, 3.0))
    >>> float(cost.value(10.0, 8.0)), float(cost.value(10.0, 12.0))
    (6.0, 2.0)
    >>> cost.lipschitz
    3.0
    """

    knots: Sequence[float]
    slopes: Sequence[float]
    height: float = 0.0
    # The field shadows the property of PointwiseLoss: here the kind is the user's choice.
    kind: Kind = "residual"

    def __post_init__(self) -> None:
        if self.kind not in ("residual", "margin"):
            raise ValueError(
                "The 'kind' parameter of KinkedLoss must be 'residual' or 'margin'. "
                f"Got {self.kind!r} instead. Use 'residual' for a loss of y - z."
            )
        kinks = Kinks(tuple(self.knots), tuple(self.slopes), self.height)
        for name in ("knots", "slopes", "height"):
            object.__setattr__(self, name, getattr(kinks, name))

    @classmethod
    def from_weights(
        cls,
        knots: Sequence[float],
        weights: Sequence[float],
        slope: float = 0.0,
        offset: float = 0.0,
        kind: Kind = "residual",
    ) -> KinkedLoss:
        """Return ``offset + slope * u + sum_j weights[j] * |u - knots[j]|`` with positive weights.

        Examples
        --------
        >>> KinkedLoss.from_weights(knots=(0.0,), weights=(2.0,), slope=1.0)
        KinkedLoss(knots=(0.0,), slopes=(-1.0, 3.0), height=0.0, kind='residual')
        """
        if len(knots) != len(weights) or not all(weight > 0 for weight in weights):
            raise ValueError(
                "The 'weights' parameter of KinkedLoss.from_weights must be one positive number "
                f"per knot. Got {tuple(weights)} for {len(knots)} knots instead. Drop knots of "
                "weight 0; a negative weight is not convex."
            )
        pairs = sorted(zip(knots, weights, strict=True))
        total = math.fsum(weights)
        slopes = [slope - total]
        for _, weight in pairs:
            slopes.append(slopes[-1] + 2 * weight)
        first = pairs[0][0] if pairs else 0.0
        height = offset + slope * first + sum(w * (knot - first) for knot, w in pairs)
        return cls(tuple(knot for knot, _ in pairs), tuple(slopes), height, kind)

    @cached_property
    def kinks(self) -> Kinks:
        """The knots and slopes given."""
        return Kinks(tuple(self.knots), tuple(self.slopes), self.height)


@dataclass(frozen=True)
class Logistic(PointwiseLoss):
    """Logistic loss ``log(1 + exp(-y * z))`` with ``y`` in {-1, +1}, stable for every margin.

    Examples
    --------
    >>> round(float(Logistic().value(1.0, 0.0)), 4), Logistic().smoothness
    (0.6931, 0.25)
    """

    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 0.25

    @property
    def kind(self) -> Kind:
        """``"margin"``: a loss of ``y * z``."""
        return "margin"

    @property
    def slope_range(self) -> tuple[float, float]:
        """Slopes lie between -1 and 0."""
        return -1.0, 0.0

    def value_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``log(1 + exp(-u)) = (-u)^+ + log1p(exp(-|u|))``."""
        return np.log1p(np.exp(-np.abs(u))) - np.minimum(u, 0.0)

    def slope_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``-1 / (1 + exp(u))``."""
        return -expit(-u)

    def curvature_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``exp(-|u|) / (1 + exp(-|u|))**2``."""
        tail = np.exp(-np.abs(u))
        return tail / np.square(1.0 + tail)


@dataclass(frozen=True)
class Huber(PointwiseLoss):
    """``u**2 / 2`` for ``|u| <= width``, else ``width * |u| - width**2 / 2``, with ``u = y - z``.

    Parameters
    ----------
    width : float
        Where the parabola turns into a line, positive; also the largest slope.

    Examples
    --------
    >>> float(Huber(1.0).value(0.5, 0.0)), float(Huber(1.0).value(3.0, 0.0))
    (0.125, 2.5)
    >>> Huber(1.0).lipschitz, Huber(1.0).smoothness
    (1.0, 1.0)
    """

    width: float
    smoothness: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        width = check_positive("width", "Huber", self.width, "For no outer line use Squared().")
        object.__setattr__(self, "width", width)

    @property
    def lipschitz(self) -> float:
        """Slope of the outer lines, ``width``."""
        return self.width

    def value_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``v * (u - v / 2)`` with ``v = clip(u, -width, width)``: no overflow in ``u**2``."""
        clipped = np.clip(u, -self.width, self.width)
        return clipped * (u - 0.5 * clipped)

    def slope_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``clip(u, -width, width)``."""
        return np.clip(u, -self.width, self.width)

    def curvature_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """1 on the closed interval ``|u| <= width``, 0 outside."""
        return np.where(np.abs(u) <= self.width, 1.0, 0.0)


@dataclass(frozen=True)
class Squared(PointwiseLoss):
    """Least squares ``(y - z)**2 / 2``; its slope is unbounded, so ``lipschitz`` is ``inf``.

    Examples
    --------
    >>> float(Squared().value(3.0, 1.0)), Squared().lipschitz
    (2.0, inf)
    """

    lipschitz: ClassVar[float] = math.inf
    smoothness: ClassVar[float] = 1.0

    def value_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``u**2 / 2``."""
        return 0.5 * np.square(u)

    def slope_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``u``."""
        return +u

    def curvature_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """1 everywhere."""
        return np.ones_like(u)


@dataclass(frozen=True)
class Scaled(PointwiseLoss):
    """``factor * loss``, e.g. a cost per unit in place of a normalised loss.

    Parameters
    ----------
    loss : PointwiseLoss
        Any loss of this package.
    factor : float
        Positive.

    Examples
    --------
    >>> cost = Scaled(Pinball(0.75), 4.0)
    >>> cost.kinks == KinkedLoss(knots=(0.0,), slopes=(-1.0, 3.0)).kinks
    True
    """

    loss: PointwiseLoss
    factor: float

    def __post_init__(self) -> None:
        if not isinstance(self.loss, PointwiseLoss):
            raise TypeError(
                "The 'loss' parameter of Scaled must be a loss such as Pinball(0.5). "
                f"Got {type(self.loss).__name__} instead. Derive your own from PointwiseLoss."
            )
        factor = check_positive("factor", "Scaled", self.factor, "A negative loss is not convex.")
        object.__setattr__(self, "factor", factor)

    @property
    def kind(self) -> Kind:
        """The kind of the loss that is scaled."""
        return self.loss.kind

    @cached_property
    def kinks(self) -> Kinks | None:
        """The scaled kinks, or None if the loss is not piecewise linear."""
        return None if self.loss.kinks is None else self.loss.kinks.scaled(self.factor)

    @property
    def lipschitz(self) -> float:
        """``factor`` times that of the loss."""
        return self.factor * self.loss.lipschitz

    @property
    def smoothness(self) -> float:
        """``factor`` times that of the loss."""
        return self.factor * self.loss.smoothness

    @property
    def slope_range(self) -> tuple[float, float]:
        """Factor times the inner loss's range."""
        low, high = self.loss.slope_range
        return self.factor * low, self.factor * high

    def value_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``factor * c(u)``."""
        return self.factor * self.loss.value_at(u)

    def slope_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``factor * c'(u)``."""
        return self.factor * self.loss.slope_at(u)

    def curvature_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``factor * c''(u)``."""
        return self.factor * self.loss.curvature_at(u)
