r"""The Moreau envelope of a bowl, in closed form for any number of residuals: convolution stops at three.

``e(x) = inf_u (||u||_1 - l)^+ + (c/2) ||x - u||^2``. The conjugate of the bowl is ``l max_j |y_j|`` where no ``|y_j|``
is above 1, so that ``e(x)`` is the largest ``<y, x> - l s - ||y||^2 / (2 c)`` over ``|y_j| <= s <= 1``. For a given s
this is ``y = clip(c x, -s, s)``, and the best s has ``sum_j (c |x_j| - s)^+ = c l``: water is poured from the largest
down. y is the gradient; e is convex, ``sqrt(m)``-Lipschitz, c-smooth, and below the bowl by at most ``m / (2 c)``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpconvex.losses.structured import Bowl
from dpconvex.smoothing.energy_envelope import EnergyEnvelope
from dpconvex.types import Array

__all__ = ["BowlMoreau"]


@dataclass(frozen=True)
class BowlMoreau(EnergyEnvelope):
    """Envelope of a bowl with curvature c; build it with :func:`~dpconvex.smoothing.moreau_vector`."""

    loss: Bowl
    kind = Bowl

    @property
    def uses_level(self) -> bool:
        """True."""
        return True

    @property
    def approximation_gap(self) -> float:
        """``m / (2 c)``."""
        return self.loss.size / (2 * self.modulus)

    def _height(self, u: Array, level: Array | None) -> tuple[Array, Array]:
        """Return s of every row, and its level of at least 0."""
        levels = np.zeros(len(u)) if level is None else np.maximum(level, 0.0)
        sizes = -np.sort(-self.modulus * np.abs(u), axis=1)
        poured = (np.cumsum(sizes, axis=1) - self.modulus * levels[:, None]) / np.arange(1, u.shape[1] + 1)
        # The best number of clipped residuals has the highest level: one more below it would lower the mean.
        return np.clip(poured.max(axis=1), 0.0, 1.0), levels

    def value(self, u: Array, level: Array | None = None) -> Array:
        """``<y, u> - l s - ||y||^2 / (2 c)``; a level below 0 shifts the norm."""
        s, levels = self._height(u, level)
        y = np.clip(self.modulus * u, -s[:, None], s[:, None])
        found = (y * u).sum(axis=1) - levels * s - np.square(y).sum(axis=1) / (2 * self.modulus)
        return found if level is None else found + (levels - level)

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """``y = clip(c u, -s, s)``."""
        s, _ = self._height(u, level)
        return np.clip(self.modulus * u, -s[:, None], s[:, None])

    def hessian(self, u: Array, level: Array | None = None) -> Array:
        """``c`` on free residuals; clipped ones move together while ``0 < s < 1``."""
        s, _ = self._height(u, level)
        clipped = self.modulus * np.abs(u) >= s[:, None]
        free = np.where(clipped, 0.0, self.modulus)[:, :, None] * np.eye(u.shape[1])
        signs = np.where(clipped, np.sign(u), 0.0)
        moving = (s > 0) & (s < 1)
        share = np.where(moving, self.modulus / np.maximum(clipped.sum(axis=1), 1), 0.0)
        return free + share[:, None, None] * signs[:, :, None] * signs[:, None, :]
