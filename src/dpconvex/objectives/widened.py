"""A loss averaged over a window of margins: a smoother stand-in for warm starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["WidenedLoss"]

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class WidenedLoss:
    """The loss averaged over margins in ``z ± width``.

    Any loss can be widened, because only its values and slopes are needed. It guides a solver and
    is never what is certified.
    """

    loss: Any
    width: float

    @property
    def kind(self) -> str:
        """That of the loss."""
        return str(self.loss.kind)

    @property
    def lipschitz(self) -> float:
        """That of the loss."""
        return float(self.loss.lipschitz)

    @property
    def smoothness(self) -> float:
        """``min(smoothness, lipschitz / width)`` of the loss."""
        return float(min(self.loss.smoothness, self.loss.lipschitz / self.width))

    def value(self, y: Array, z: Array) -> Array:
        """Simpson's rule; the value only guides line searches."""
        return (
            self.loss.value(y, z - self.width)
            + 4 * self.loss.value(y, z)
            + self.loss.value(y, z + self.width)
        ) / 6

    def gradient(self, y: Array, z: Array) -> Array:
        """(loss(z + width) - loss(z - width)) / (2 width)."""
        return (self.loss.value(y, z + self.width) - self.loss.value(y, z - self.width)) / (
            2 * self.width
        )

    def curvature(self, y: Array, z: Array) -> Array:
        """(slope(z + width) - slope(z - width)) / (2 width)."""
        return (self.loss.gradient(y, z + self.width) - self.loss.gradient(y, z - self.width)) / (
            2 * self.width
        )
