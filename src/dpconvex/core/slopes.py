"""Registered slopes: what a record's row may be multiplied by in a released sum. Data, never functions of a caller.

A slope is a function of a record's own target, margin and weight, with a public bound. Losses are those of the
library, smoothed or not, or the loss that the certificate states.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from dpconvex.losses import Absolute, Hinge, Huber, Logistic, Pinball, PointwiseLoss, ReLU, SoftThreshold
from dpconvex.objectives.slopes import ClippedSlope, Sigmoid, WeightedSlope
from dpconvex.privacy.description import describe, rebuild
from dpconvex.smoothing import EpanechnikovKernel, GaussianKernel, LaplacianKernel, LogisticKernel, UniformKernel
from dpconvex.smoothing.convolution import ConvolvedLoss
from dpconvex.types import Array

__all__ = ["Factor", "Slope", "registered_factor", "registered_slope"]


_REGISTERED = (Absolute, Hinge, Huber, Logistic, Pinball, ReLU, SoftThreshold)
_KERNELS = (EpanechnikovKernel, GaussianKernel, LaplacianKernel, LogisticKernel, UniformKernel)
_SMALLEST, _LARGEST = 1e-100, 1e100  # of slopes: products with lengths neither under- nor overflow
#: How rows of length l count beyond the length c: ``min(1, c / l)``, its square, or with slopes limited to ``c / l``
#: times the largest one.
WEIGHTINGS = ("weight", "square", "clip")


@dataclass(frozen=True)
class Slope:
    """The slope of a loss, less a constant part.

    Parameters
    ----------
    loss : PointwiseLoss or None
        Pointwise loss of bounded slope; None stands for the slope 1, or the label.
    offset : float, default=0
        What is taken off the slope as a function of residual or margin.
    weighting : {"weight", "square", "clip"}, default="weight"
        How long rows count.
    by_label : bool, default=False
        Without a loss, whether rows are multiplied by their label instead of 1.
    """

    loss: PointwiseLoss | None
    offset: float = 0.0
    weighting: str = "weight"
    by_label: bool = False

    @property
    def largest(self) -> float:
        """Largest size of the slope."""
        if self.loss is None:
            return 1.0
        if not self.offset:
            return float(self.loss.lipschitz)
        low, high = self.loss.slope_range
        return max(abs(low - self.offset), abs(high - self.offset))

    def __call__(self, y: Array, z: Array, w: Array) -> tuple[Array]:
        """Return the weighted slopes of a block, none beyond its bound; what is not a number counts as 0."""
        if self.loss is None:
            return (w * np.clip(y, -1.0, 1.0) if self.by_label else w,)
        slopes = WeightedSlope(self.loss, self.offset)(y, z, np.ones(1))[0]
        largest = self.largest * w if self.weighting == "clip" else self.largest
        limited = np.clip(np.nan_to_num(slopes), -largest, largest)
        return (limited if self.weighting == "clip" else w * limited,)

    @cached_property
    def sigmoid(self) -> Sigmoid | None:
        """The same as numbers for compiled loops, or None for a slope of another shape."""
        if self.loss is None:
            return None
        if self.weighting == "clip":
            return ClippedSlope(self.loss).sigmoid
        return WeightedSlope(self.loss, self.offset).sigmoid


@dataclass(frozen=True)
class Factor:
    """What second moments are weighted by: the square of a number for every record.

    Parameters
    ----------
    kind : {"slope", "curvature", "inside"}
        ``w l' / L``, ``sqrt(w l'' / B)`` with L and B the loss's bounds, or ``sqrt(w)`` for residuals of at most
        ``width`` and 0 for others.
    loss : PointwiseLoss, optional
        For slope and curvature.
    width : float, optional
        For residuals inside.
    weighting : {"weight", "square"}, default="weight"
        How long rows count.
    """

    kind: str
    loss: PointwiseLoss | None = None
    width: float = 0.0
    weighting: str = "weight"

    def __call__(self, y: Array, z: Array, w: Array) -> Array:
        """Return the factors of a block."""
        if self.loss is None:
            return np.where(np.abs(y - z) <= self.width, np.sqrt(w), 0.0)
        if self.kind == "slope":
            return np.asarray(w * self.loss.gradient(y, z) / self.loss.lipschitz)
        return np.sqrt(w * self.loss.curvature(y, z) / self.loss.smoothness)


def registered_slope(slope: Slope, stated: object) -> Slope:
    """Return a slope made anew from plain data, or raise: no subclass, no function of the caller."""
    if slope.weighting not in WEIGHTINGS:
        raise ValueError(
            f"The weighting of a slope must be one of {list(WEIGHTINGS)}. Got {slope.weighting!r} instead."
        )
    loss = None if slope.loss is None else _registered_loss(slope.loss, stated)
    own = Slope(loss, float(slope.offset), str(slope.weighting), bool(slope.by_label))
    if not _SMALLEST <= own.largest <= _LARGEST:
        raise ValueError("The slope of a released sum must be bounded. Use Huber(width).")
    return own


def registered_factor(factor: Factor, stated: object) -> Factor:
    """Return a factor made anew from plain data, or raise."""
    if factor.weighting not in ("weight", "square"):
        raise ValueError(f"The weighting of a factor must be 'weight' or 'square'. Got {factor.weighting!r} instead.")
    weighting = str(factor.weighting)
    if factor.kind == "inside":
        return Factor("inside", None, float(factor.width), weighting)
    if factor.kind not in ("slope", "curvature") or factor.loss is None:
        raise ValueError(
            f"A factor must be the slope or curvature of a loss, or 'inside'. Got {factor.kind!r} instead."
        )
    return Factor(str(factor.kind), _registered_loss(factor.loss, stated), 0.0, weighting)


def _registered_loss(loss: PointwiseLoss, stated: object) -> PointwiseLoss:
    """Return a loss of the library made anew from its numbers, or the one that the certificate states."""
    if loss is stated:
        return loss
    inner = loss.loss if type(loss) is ConvolvedLoss else loss
    if type(loss) is ConvolvedLoss and type(loss.kernel) not in _KERNELS:
        raise TypeError(
            "The kernel of a released sum's slope must be one of dpconvex.smoothing. "
            f"Got {type(loss.kernel).__name__} instead."
        )
    if type(inner) not in _REGISTERED and inner is not stated:
        raise TypeError(
            "The slope of a released sum must be that of a loss of dpconvex.losses or of the certificate. "
            f"Got {type(inner).__name__} instead."
        )
    if type(inner) not in _REGISTERED:
        own = cast(ConvolvedLoss, loss)
        return ConvolvedLoss(inner, rebuild(describe(own.kernel)), float(own.bandwidth))
    return cast(PointwiseLoss, rebuild(describe(loss)))
