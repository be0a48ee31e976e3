"""Targets too far away to matter, pulled in: sums keep their digits whatever the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.losses.interface import Kind, Loss
from dpconvex.losses.kinks import Kinks
from dpconvex.types import ScalarOrArray

if TYPE_CHECKING:
    from dpconvex.objectives.empirical import EmpiricalObjective

Given = TypeVar("Given")

__all__ = ["ClampedTarget", "with_clamped_targets"]


@dataclass(frozen=True)
class ClampedTarget:
    """A residual loss of ``clip(y, -limit, limit) - z``.

    Where every admissible margin lies well within ``±limit``, a target beyond it acts on a linear
    piece of the loss only, so that the minimiser stays where it is. But its loss would be huge,
    and the rounding error of the sum with it: without a clamp one record could keep a solver from
    certifying anything. Slope and curvature bounds are those of the loss.

    Notes
    -----
    Privacy: a record's loss is another fixed convex function of theta with the same bounds, so every
    calibration holds as it is, whether or not the clamp binds; provided that the limit is public.

    Parameters
    ----------
    loss : Loss
        A residual loss.
    limit : float
        Public.
    """

    loss: Loss
    limit: float

    @property
    def kind(self) -> Kind:
        """That of the loss."""
        return self.loss.kind

    @property
    def kinks(self) -> Kinks | None:
        """Those of the loss."""
        return getattr(self.loss, "kinks", None)

    @property
    def lipschitz(self) -> float:
        """That of the loss."""
        return self.loss.lipschitz

    @property
    def smoothness(self) -> float:
        """That of the loss."""
        return self.loss.smoothness

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


def with_clamped_targets(objective: Given, bounds: object, tilt: float = 0.0) -> Given:
    """Return the objective with targets clamped to a public limit, if it has residuals.

    Parameters
    ----------
    objective : Objective
        The problem; an EmpiricalObjective if the bounds are those of one.
    bounds : LinearBounds
        Public facts; other bounds leave the objective as it is.
    tilt : float
        PUBLIC bound on the norm of a linear term that will be added to the objective: never the
        norm of what was drawn.
    """
    find = getattr(bounds, "target_limit", None)
    limit = None if find is None else find(tilt)
    if limit is None:
        return objective
    linear = cast("EmpiricalObjective", objective)
    return cast(Given, linear.with_loss(ClampedTarget(linear.loss, limit)))
