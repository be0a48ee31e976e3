"""A loss averaged over a window of margins: a smoother stand-in for warm starts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.losses.interface import Kind, Loss
from dpconvex.types import Array

__all__ = ["WidenedLoss"]


@dataclass(frozen=True)
class WidenedLoss:
    """The loss averaged over margins in ``z ± width``.

    Any loss can be widened, because only its values and slopes are needed. It guides a solver and
    is never what is certified.
    """

    loss: Loss
    width: float

    @property
    def kind(self) -> Kind:
        """That of the loss."""
        return self.loss.kind

    @property
    def lipschitz(self) -> float:
        """That of the loss."""
        return self.loss.lipschitz

    @property
    def smoothness(self) -> float:
        """``min(smoothness, lipschitz / width)`` of the loss."""
        return float(min(self.loss.smoothness, self.loss.lipschitz / self.width))

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        """Simpson's rule; the value only guides line searches."""
        low, high = self._ends(z)
        loss = self.loss
        return (loss.value(y, low) + 4 * loss.value(y, z) + loss.value(y, high)) / 6

    def gradient(self, y: ArrayLike, z: ArrayLike) -> Array:
        """(loss(z + width) - loss(z - width)) / (2 width)."""
        low, high = self._ends(z)
        return (self.loss.value(y, high) - self.loss.value(y, low)) / (2 * self.width)

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        """(slope(z + width) - slope(z - width)) / (2 width)."""
        low, high = self._ends(z)
        return (self.loss.gradient(y, high) - self.loss.gradient(y, low)) / (2 * self.width)

    def _ends(self, z: ArrayLike) -> tuple[Array, Array]:
        z = np.asarray(z)
        return z - self.width, z + self.width
