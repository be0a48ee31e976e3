r"""Envelopes with the energies ``|x|^p / p`` of Table 2, of piecewise-linear losses of one residual.

The product has p = 2 (:func:`dpconvex.smoothing.moreau`). Other powers serve comparisons: below 2 the envelope bends
without bound where its slope is 0, above 2 it bends most where the slope is largest, and the printed smoothness of 1
holds for p = 2 alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpconvex.checks import check_number, check_positive
from dpconvex.losses.pointwise import PointwiseLoss

__all__ = ["PowerEnvelope"]


@dataclass(frozen=True)
class PowerEnvelope:
    r"""``e(u) = inf_v c(v) + w |(u - v)/w|^p / p`` for a piecewise-linear c.

    By duality the largest ``y u - c*(y) - w |y|^q / q``, ``1/p + 1/q = 1``; at a knot k with slopes from s to t it is
    ``c(k) + y d - w |y|^q / q``, ``d = u - k`` and ``y = sign(d) (|d|/w)^{p-1}`` limited to [s, t].

    Parameters
    ----------
    loss : PointwiseLoss
        Piecewise linear, of a residual.
    power, width : float
        p, above 1, and w.

    Examples
    --------
    >>> from dpconvex.losses import Absolute
    >>> envelope = PowerEnvelope(Absolute(), 2.0, 0.5)
    >>> envelope.value([0.25, 3.0]).tolist(), envelope.smoothness
    ([0.0625, 2.75], 2.0)
    """

    loss: PointwiseLoss
    power: float = 2.0
    width: float = 1.0

    def __post_init__(self) -> None:
        if self.loss.piecewise_linear is None:
            raise ValueError("PowerEnvelope needs a piecewise-linear loss. Use Pinball, Absolute or KinkedLoss.")
        check_number("power", "PowerEnvelope", self.power, "a finite number above 1", 1, math.inf, low_open=True)
        check_positive("width", "PowerEnvelope", self.width, "A smaller one is closer to the loss.")

    def _pieces(self, u: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return value and slope."""
        shape, u = self.loss.piecewise_linear, np.asarray(u, dtype=np.float64)
        assert shape is not None
        q = self.power / (self.power - 1)
        value, slope = np.full(u.shape, -np.inf), np.full(u.shape, shape.slopes[0])
        for i, (knot, height) in enumerate(zip(shape.knots, shape.heights, strict=True)):
            d = u - knot
            raw = np.sign(d) * (np.abs(d) / self.width) ** (self.power - 1)
            y = np.clip(raw, shape.slopes[i], shape.slopes[i + 1])
            value = np.maximum(value, height + y * d - self.width * np.abs(y) ** q / q)
            slope = slope + (y - shape.slopes[i])
        return value, slope

    def value(self, u: ArrayLike) -> NDArray[np.float64]:
        """``e(u)``."""
        return self._pieces(u)[0]

    def slope(self, u: ArrayLike) -> NDArray[np.float64]:
        """``e'(u)``."""
        return self._pieces(u)[1]

    @property
    def smoothness(self) -> float:
        """``sup (p - 1) |y|^{(p-2)/(p-1)} / w`` over the slopes y between the first and the last."""
        shape = self.loss.piecewise_linear
        assert shape is not None
        low, high = shape.slopes[0], shape.slopes[-1]
        size = max(abs(low), abs(high))
        if self.power < 2:
            size = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
        if self.power == 2:
            return 1 / self.width
        if size == 0:
            return math.inf
        return float((self.power - 1) * size ** ((self.power - 2) / (self.power - 1)) / self.width)

    @property
    def approximation_gap(self) -> float:
        """``w L^q / q``: how far the envelope lies below the loss at most."""
        q = self.power / (self.power - 1)
        return float(self.width * self.loss.lipschitz**q / q)
