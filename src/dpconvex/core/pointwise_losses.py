"""Convex losses of one record, as functions of the margin ``z = x~ . theta``.

A *residual* loss is ``c(u)`` with ``u = y - z``; a *margin* loss is ``c(u)`` with ``u = y * z`` and
``y`` in {-1, +1}. Every loss states ``lipschitz = sup |d/dz|`` and ``smoothness = sup |d2/dz2|``
(``inf`` if kinked): noise is calibrated from these two numbers, so they are exact suprema or upper
bounds, never estimates.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from dpconvex.core.checks import check_positive, parameter_error
from dpconvex.types import ScalarOrArray

Kind = Literal["residual", "margin"]


@dataclass(frozen=True)
class PointwisePiecewiseLinear:
    """A convex piecewise-linear function of one variable: the shape of every kinked loss.

    ``c(u) = offset + slope * u + sum_j weights[j] * |u - knots[j]|`` with
    ``weights[j] = (slopes[j + 1] - slopes[j]) / 2`` and ``slope = (slopes[0] + slopes[-1]) / 2``.

    Knots, slopes and height are those of a :class:`KinkedLoss`.
    """

    knots: tuple[float, ...]
    slopes: tuple[float, ...]
    height: float = 0.0
    weights: tuple[float, ...] = field(
        init=False, repr=False, compare=False
    )  # half the jump of the slope at each knot
    slope: float = field(
        init=False, repr=False, compare=False
    )  # the linear part: mean of the outermost slopes
    lipschitz: float = field(
        init=False, repr=False, compare=False
    )  # the larger of them: slopes increase

    def __post_init__(self) -> None:
        for name in ("knots", "slopes"):
            numbers = tuple(float(number) for number in getattr(self, name))
            object.__setattr__(self, name, numbers)
            increasing = all(left < right for left, right in pairwise(numbers))
            if not (numbers and increasing and all(map(math.isfinite, numbers))):
                remedy = (
                    "A convex function has increasing slopes; drop a knot where the slope "
                    "does not change."
                )
                raise parameter_error(
                    name,
                    "a kinked loss",
                    "finite numbers in increasing order",
                    f"{numbers}",
                    remedy,
                )
        if len(self.slopes) != len(self.knots) + 1:
            raise ValueError(
                "The 'slopes' parameter of a kinked loss must have one entry more than 'knots'. "
                f"Got {len(self.slopes)} slopes for {len(self.knots)} knots instead. Give the "
                "slope left of the first knot, between knots, and right of the last."
            )
        object.__setattr__(self, "height", float(self.height))
        if not math.isfinite(self.height):
            raise parameter_error(
                "height",
                "a kinked loss",
                "finite",
                f"{self.height}",
                "Give the value at the first knot.",
            )
        first = self.slopes[0]
        last = self.slopes[-1]
        object.__setattr__(
            self, "weights", tuple((right - left) / 2 for left, right in pairwise(self.slopes))
        )
        object.__setattr__(self, "slope", (first + last) / 2)
        object.__setattr__(self, "lipschitz", max(abs(first), abs(last)))

    @cached_property
    def heights(self) -> tuple[float, ...]:
        """Value at every knot."""
        heights = [self.height]
        for i in range(1, len(self.knots)):
            heights.append(heights[-1] + self.slopes[i] * (self.knots[i] - self.knots[i - 1]))
        return tuple(heights)

    def scaled(self, factor: float) -> PointwisePiecewiseLinear:
        """Return ``factor * c``."""
        slopes = tuple(factor * slope for slope in self.slopes)
        return PointwisePiecewiseLinear(self.knots, slopes, factor * self.height)

    def value(self, u: ScalarOrArray) -> ScalarOrArray:
        """``c(u)`` pointwise, as the maximum of its tangents: exact zeros stay exact far from
        the knots.
        """
        distance = u - self.knots[0]
        value = np.maximum(self.slopes[0] * distance, self.slopes[1] * distance)
        if self.height:
            value = value + self.height
        for knot, height, slope in zip(
            self.knots[1:], self.heights[1:], self.slopes[2:], strict=True
        ):
            value = np.maximum(value, height + slope * (u - knot))
        return value

    def derivative(self, u: ScalarOrArray) -> ScalarOrArray:
        """``c'(u)``, at a knot the mean of the slopes on its two sides."""
        derivative = np.full(np.shape(u), self.slope)
        for knot, weight in zip(self.knots, self.weights, strict=True):
            derivative = derivative + weight * np.sign(u - knot)
        return derivative


@runtime_checkable
class Loss(Protocol):
    """A pointwise loss, as objectives and mechanisms use it."""

    @property
    def kind(self) -> Kind:
        """``"residual"`` (loss of ``y - z``) or ``"margin"`` (loss of ``y * z``)."""

    @property
    def lipschitz(self) -> float:
        """``sup |d/dz|``, ``inf`` if unbounded."""

    @property
    def smoothness(self) -> float:
        """``sup |d2/dz2|``, ``inf`` if the loss has a kink."""

    def value(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        """Loss of target ``y`` at margin ``z``, elementwise in float64."""

    def gradient(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        """First derivative in ``z``."""

    def curvature(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        """Second derivative in ``z``."""


class PointwiseLoss(ABC):
    """A loss written once as a function ``c(u)``; this class puts ``y`` and ``z`` into it.

    Subclasses give ``value_at``, ``slope_at`` and ``curvature_at`` (c, c' and c'' at ``u``),
    ``lipschitz`` and ``smoothness``, and ``kind`` where it is not ``"residual"``. Then

    - residual: ``u = y - z``, ``d/dz = -c'(u)``, ``d2/dz2 = c''(u)``;
    - margin: ``u = y * z``, ``d/dz = y * c'(u)``, ``d2/dz2 = y**2 * c''(u)``.
    """

    @property
    def kind(self) -> Kind:
        """``"residual"`` (loss of ``y - z``) or ``"margin"`` (loss of ``y * z``)."""
        return "residual"

    @property
    def piecewise_linear(self) -> PointwisePiecewiseLinear | None:
        """The piecewise-linear function this loss is, or None if it is something else."""
        return None

    @property
    @abstractmethod
    def lipschitz(self) -> float:
        """``sup |c'|``, ``inf`` if unbounded."""

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """``sup |c''|``, ``inf`` if the loss has a kink."""

    @property
    def slope_range(self) -> tuple[float, float]:
        """Interval that holds every slope ``c'``."""
        if self.piecewise_linear is not None:
            return self.piecewise_linear.slopes[0], self.piecewise_linear.slopes[-1]
        return -self.lipschitz, self.lipschitz

    @abstractmethod
    def value_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``c(u)`` for float64 ``u``."""

    @abstractmethod
    def slope_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``c'(u)`` for float64 ``u``."""

    @abstractmethod
    def curvature_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``c''(u)`` for float64 ``u``."""

    def _argument(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        combine = np.subtract if self.kind == "residual" else np.multiply
        return combine(y, z, dtype=np.float64)

    def value(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        """Loss of target ``y`` at margin ``z``, elementwise with broadcasting, in float64."""
        return self.value_at(self._argument(y, z))

    def gradient(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        """First derivative in ``z``; at a kink the midpoint of the subdifferential."""
        slope = self.slope_at(self._argument(y, z))
        return -slope if self.kind == "residual" else slope * np.asarray(y)

    def curvature(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        """Second derivative in ``z``; 0 for a piecewise-linear loss, at its kinks too."""
        curvature = self.curvature_at(self._argument(y, z))
        return curvature if self.kind == "residual" else curvature * np.square(y, dtype=np.float64)


def that_of_the_loss(name: str) -> Any:
    """Return the property of a loss made from another one, ``self.loss``, that it has from it."""
    return property(lambda made: getattr(made.loss, name), doc="That of the loss.")


class _KinkedPointwiseLoss(PointwiseLoss):
    """Value and derivatives of a loss that is a piecewise-linear function."""

    smoothness: ClassVar[float] = math.inf  # the slope jumps

    @property
    @abstractmethod
    def piecewise_linear(self) -> PointwisePiecewiseLinear:
        """The piecewise-linear function this loss is."""

    @property
    def lipschitz(self) -> float:
        return self.piecewise_linear.lipschitz

    def value_at(self, u: ScalarOrArray) -> ScalarOrArray:
        return self.piecewise_linear.value(u)

    def slope_at(self, u: ScalarOrArray) -> ScalarOrArray:
        return self.piecewise_linear.derivative(u)

    def curvature_at(self, u: ScalarOrArray) -> ScalarOrArray:
        return np.zeros_like(u)


@dataclass(frozen=True)
class Pinball(_KinkedPointwiseLoss):
    """Quantile loss ``quantile * u^+ + (1 - quantile) * (-u)^+`` of the residual ``u = y - z``.

    Parameters
    ----------
    quantile : float
        Strictly between 0 and 1.

    Examples
    --------
    >>> (
    ...     float(Pinball(0.75).value(3.0, 1.0)),
    ...     float(Pinball(0.75).value(1.0, 3.0)),
    ...     Pinball(0.75).lipschitz,
    ... )
    (1.5, 0.5, 0.75)
    """

    quantile: float

    def __post_init__(self) -> None:
        remedy = "For a one-sided loss use ReLU()."
        quantile = check_positive("quantile", "Pinball", self.quantile, remedy)
        if quantile >= 1:
            raise parameter_error(
                "quantile", "Pinball", "strictly between 0 and 1", repr(self.quantile), remedy
            )
        object.__setattr__(self, "quantile", quantile)

    @cached_property
    def piecewise_linear(self) -> PointwisePiecewiseLinear:
        """One kink at 0 between the slopes ``quantile - 1`` and ``quantile``."""
        return PointwisePiecewiseLinear((0.0,), (self.quantile - 1.0, self.quantile))


@dataclass(frozen=True)
class Absolute(_KinkedPointwiseLoss):
    """Absolute loss ``|y - z|``, twice the pinball loss of the median."""

    piecewise_linear: ClassVar[PointwisePiecewiseLinear] = PointwisePiecewiseLinear(
        (0.0,), (-1.0, 1.0)
    )


@dataclass(frozen=True)
class ReLU(_KinkedPointwiseLoss):
    """One-sided loss ``(y - z)^+``: only predictions below the target cost."""

    piecewise_linear: ClassVar[PointwisePiecewiseLinear] = PointwisePiecewiseLinear(
        (0.0,), (0.0, 1.0)
    )


@dataclass(frozen=True)
class SoftThreshold(_KinkedPointwiseLoss):
    """Loss ``(|y - z| - width)^+``: residuals up to ``width`` are free.

    Parameters
    ----------
    width : float
        Half the length of the free interval, positive.
    """

    width: float

    def __post_init__(self) -> None:
        width = check_positive("width", "SoftThreshold", self.width, "For width 0 use Absolute().")
        object.__setattr__(self, "width", width)

    @cached_property
    def piecewise_linear(self) -> PointwisePiecewiseLinear:
        """Kinks at ``-width`` and ``width`` between the slopes -1, 0 and 1."""
        return PointwisePiecewiseLinear((-self.width, self.width), (-1.0, 0.0, 1.0))


@dataclass(frozen=True)
class Hinge(_KinkedPointwiseLoss):
    """Support-vector loss ``(1 - y * z)^+`` with ``y`` in {-1, +1}."""

    kind: ClassVar[Kind] = "margin"
    piecewise_linear: ClassVar[PointwisePiecewiseLinear] = PointwisePiecewiseLinear(
        (1.0,), (-1.0, 0.0)
    )


@dataclass(frozen=True)
class KinkedLoss(_KinkedPointwiseLoss):
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
    >>> float(cost.value(10.0, 8.0)), float(cost.value(10.0, 12.0)), cost.lipschitz
    (6.0, 2.0, 3.0)
    """

    knots: Sequence[float]
    slopes: Sequence[float]
    height: float = 0.0
    # The field shadows the property of PointwiseLoss: here the kind is the user's choice.
    kind: Kind = "residual"

    def __post_init__(self) -> None:
        if self.kind not in ("residual", "margin"):
            raise parameter_error(
                "kind",
                "KinkedLoss",
                "'residual' or 'margin'",
                repr(self.kind),
                "Use 'residual' for a loss of y - z.",
            )
        shape = self.piecewise_linear
        for name in ("knots", "slopes", "height"):
            object.__setattr__(self, name, getattr(shape, name))

    @cached_property
    def piecewise_linear(self) -> PointwisePiecewiseLinear:
        """The knots and slopes given."""
        return PointwisePiecewiseLinear(tuple(self.knots), tuple(self.slopes), self.height)


@dataclass(frozen=True)
class Logistic(PointwiseLoss):
    """Logistic loss ``log(1 + exp(-y * z))`` with ``y`` in {-1, +1}, stable for every margin."""

    kind: ClassVar[Kind] = "margin"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 0.25
    slope_range: ClassVar[tuple[float, float]] = (-1.0, 0.0)

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
    """Least squares ``(y - z)**2 / 2``; its slope is unbounded, so ``lipschitz`` is ``inf``."""

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
