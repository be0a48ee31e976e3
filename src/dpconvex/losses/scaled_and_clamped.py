"""Losses made from others: by a factor, or with targets kept within a limit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.core.checks import check_positive, parameter_error
from dpconvex.core.pointwise_losses import (
    Loss,
    PointwiseLoss,
    PointwisePiecewiseLinear,
    that_of_the_loss,
)
from dpconvex.types import ScalarOrArray


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
    >>> from dpconvex.losses import KinkedLoss, Pinball
    >>> cost = Scaled(Pinball(0.75), 4.0)
    >>> cost.piecewise_linear == KinkedLoss(knots=(0.0,), slopes=(-1.0, 3.0)).piecewise_linear
    True
    """

    loss: PointwiseLoss
    factor: float
    kind = that_of_the_loss("kind")

    def __post_init__(self) -> None:
        if not isinstance(self.loss, PointwiseLoss):
            allowed = "a loss such as Pinball(0.5)"
            remedy = "Derive your own from PointwiseLoss."
            raise parameter_error(
                "loss", "Scaled", allowed, type(self.loss).__name__, remedy, kind=TypeError
            )
        factor = check_positive("factor", "Scaled", self.factor, "A negative loss is not convex.")
        object.__setattr__(self, "factor", factor)

    @cached_property
    def piecewise_linear(self) -> PointwisePiecewiseLinear | None:
        """The scaled function, or None if the loss is not piecewise linear."""
        shape = self.loss.piecewise_linear
        return None if shape is None else shape.scaled(self.factor)

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
        """``factor`` times that of the loss."""
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


def piecewise_linear_shape(loss: object) -> PointwisePiecewiseLinear | None:
    """Return the piecewise-linear function that a loss is; None for others, and for a user's
    that does not say.
    """
    return getattr(loss, "piecewise_linear", None)


@dataclass(frozen=True)
class DerivedPointwiseLoss:
    """A loss made from another one, with its kind and its Lipschitz constant."""

    loss: Loss
    kind = that_of_the_loss("kind")
    lipschitz = that_of_the_loss("lipschitz")


@dataclass(frozen=True)
class ClampedTargetLoss(DerivedPointwiseLoss):
    """A residual loss of ``clip(y, -limit, limit) - z``, with the slope and curvature bounds of the
    loss.

    Where every admissible margin lies well within ``±limit``, a target beyond it acts on a linear
    piece of the loss only, so that the minimiser stays where it is. But its loss would be huge, and
    the rounding error of the sum with it: without a clamp one record could keep a solver from
    certifying anything.

    Parameters
    ----------
    loss : Loss
        A residual loss.
    limit : float
        Public.

    Notes
    -----
    Privacy: a record's loss is another fixed convex function of theta with the same bounds, so
    every calibration holds as it is, whether or not the clamp binds; provided that the limit is
    public.
    """

    limit: float
    smoothness = that_of_the_loss("smoothness")

    @property
    def piecewise_linear(self) -> PointwisePiecewiseLinear | None:
        """That of the loss."""
        return piecewise_linear_shape(self.loss)

    def clamp(self, y: ArrayLike) -> ScalarOrArray:
        """``clip(y, -limit, limit)``."""
        return np.clip(y, -self.limit, self.limit)

    def value(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        """Loss of the clamped target."""
        return self.loss.value(self.clamp(y), z)

    def gradient(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        """First derivative in ``z``."""
        return self.loss.gradient(self.clamp(y), z)

    def curvature(self, y: ArrayLike, z: ArrayLike) -> ScalarOrArray:
        """Second derivative in ``z``."""
        return self.loss.curvature(self.clamp(y), z)
