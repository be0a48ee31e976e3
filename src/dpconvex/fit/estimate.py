"""What rounds have found so far, and the loss that they ask about."""

from __future__ import annotations

from dataclasses import dataclass

from dpconvex.core.slopes import Factor, Slope
from dpconvex.types import Array

__all__ = ["Estimate", "LocalLoss"]


@dataclass(frozen=True)
class Estimate:
    """The law of a minimiser, after some rounds.

    Attributes
    ----------
    mean, variance : array of shape (dimension,)
        Posterior.
    found, noise : array of shape (dimension,)
        Where gradients alone lead, and its variance: without a prior law.
    kept_share : float
        Length of the posterior mean over that of what was found.
    """

    mean: Array
    variance: Array
    found: Array
    noise: Array
    kept_share: float = 1.0


@dataclass(frozen=True)
class LocalLoss:
    """A loss near its minimiser: the slope that gradients are asked of, and what its curvature is expected to be.

    Attributes
    ----------
    slope : Slope
        Registered.
    curvature : float
        Expected mean second derivative in the prediction, less what clips and weights take away.
    scale : float
        Unit of predictions: 1 for margins, the scale of target or residuals.
    unit : float
        Unit of slopes: 1, or that of limited residuals.
    factor : Factor, optional
        What second moments are weighted by to be a curvature.
    steepest : float
        Largest second derivative that the factor stands for.
    slope_std : float
        Expected standard deviation of slopes at the minimiser.
    """

    slope: Slope
    curvature: float
    scale: float
    unit: float = 1.0
    factor: Factor | None = None
    steepest: float = 1.0
    slope_std: float = 0.5
