"""Weighted slopes of a loss, summed by engines: functions of arrays."""

from __future__ import annotations

from dataclasses import dataclass

from dpconvex.losses import Loss
from dpconvex.types import Array


@dataclass(frozen=True)
class WeightedSlope:
    """The function ``(y, z, w) -> (w * (loss'(y, z) + offset),)``; for margin losses ``- offset * y``.

    ``offset`` is subtracted from the slope c' of the loss as a function of residual or margin.
    """

    loss: Loss
    offset: float = 0.0

    def __call__(self, y: Array, z: Array, w: Array) -> tuple[Array]:
        """Return the weighted slopes of a block."""
        slopes = self.loss.gradient(y, z)
        if self.offset:
            slopes = slopes + self.offset if self.loss.kind == "residual" else slopes - self.offset * y
        return (w * slopes,)
