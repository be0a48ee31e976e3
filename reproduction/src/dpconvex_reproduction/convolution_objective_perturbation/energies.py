r"""Envelopes of Table 2 that the product does not offer: with energies ``|x|^p / p``, and with
Hellinger's function.

The product has p = 2 (:func:`dpconvex.smoothing.moreau`). Other powers serve comparisons: below 2
the envelope bends without bound where its slope is 0, above 2 it bends most where the slope is
largest, and the printed smoothness of 1 holds for p = 2 alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpconvex.core.checks import check_number, check_positive
from dpconvex.losses import Bowl, L1Norm, PiecewiseLinear, PointwiseLoss
from dpconvex.smoothing import moreau_vector

__all__ = ["HellingerEnvelope", "PowerEnvelope"]


@dataclass(frozen=True)
class PowerEnvelope:
    r"""``e(u) = inf_v c(v) + w |(u - v)/w|^p / p`` for a piecewise-linear c.

    By duality the largest ``y u - c*(y) - w |y|^q / q``, ``1/p + 1/q = 1``; at a knot k with slopes
    from s to t it is ``c(k) + y d - w |y|^q / q``, ``d = u - k`` and ``y = sign(d) (|d|/w)^{p-1}``
    limited to [s, t].

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
            raise ValueError(
                "PowerEnvelope needs a piecewise-linear loss. Use Pinball, Absolute or KinkedLoss."
            )
        check_number(
            "power",
            "PowerEnvelope",
            self.power,
            "a finite number above 1",
            1,
            math.inf,
            low_open=True,
        )
        check_positive("width", "PowerEnvelope", self.width, "A smaller one is closer to the loss.")

    def _pieces(self, u: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return value and slope."""
        shape = self.loss.piecewise_linear
        u = np.asarray(u, dtype=np.float64)
        assert shape is not None
        q = self.power / (self.power - 1)
        value = np.full(u.shape, -np.inf)
        slope = np.full(u.shape, shape.slopes[0])
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
        """``sup (p - 1) |y|^{(p-2)/(p-1)} / w`` over the slopes y between the first and the
        last.
        """
        shape = self.loss.piecewise_linear
        assert shape is not None
        low = shape.slopes[0]
        high = shape.slopes[-1]
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


@dataclass(frozen=True)
class HellingerEnvelope:
    r"""``inf_u g(u) + w b sqrt(1 + ||x - u||^2 / w^2)`` of an l1 norm, of pieces or a bowl: from
    above.

    By duality it is the largest ``<y, x> - g*(y) + w sqrt(b^2 - ||y||^2)``. The root is the least
    ``(b^2 - ||y||^2) / (2 t) + t / 2`` over t, so that the envelope is the least over t of that
    with the parabola of curvature ``c = t / w``, plus ``w (b^2 / t + t) / 2``. At the best t,
    ``t^2 + ||y_t||^2 = b^2`` with the slope y_t of the parabola's envelope, which grows with t:
    found by bisection. ``-w b <= g - e <= 0``, and e is ``b/w``-smooth.

    Parameters
    ----------
    loss : L1Norm, PiecewiseLinear or Bowl
        g, of a residual vector.
    curvature, width : float
        b, at least the loss's Lipschitz constant, and w.

    Examples
    --------
    >>> HellingerEnvelope(L1Norm(1), 1.0, 0.5).value(np.zeros((1, 1))).tolist()
    [0.5]
    """

    loss: L1Norm | PiecewiseLinear | Bowl
    curvature: float
    width: float

    def __post_init__(self) -> None:
        if not isinstance(self.loss, (L1Norm, PiecewiseLinear, Bowl)):
            raise TypeError(
                "HellingerEnvelope needs a loss of a residual vector. Use L1Norm, "
                "PiecewiseLinear or Bowl."
            )
        least = self.loss.lipschitz * (1 - 1e-12)
        check_number(
            "curvature", "HellingerEnvelope", self.curvature, f"at least {least:g}", least, math.inf
        )
        check_positive(
            "width", "HellingerEnvelope", self.width, "A smaller one is closer to the loss."
        )

    @property
    def smoothness(self) -> float:
        """``b / w``."""
        return self.curvature / self.width

    @property
    def approximation_gap(self) -> float:
        """``w b``, which bounds how far the envelope lies above the loss."""
        return self.width * self.curvature

    def _solved(
        self, u: NDArray[np.float64], *level: NDArray[np.float64]
    ) -> list[tuple[float, float, Any, Any]]:
        """Return t, the value, the slope and the projection on directions in which it can turn,
        of every row.
        """
        return [
            self._solved_row(u[i : i + 1], *(each[i : i + 1] for each in level))
            for i in range(len(u))
        ]

    def _solved_row(
        self, u: NDArray[np.float64], *level: NDArray[np.float64]
    ) -> tuple[float, float, Any, Any]:
        low = 0.0
        high = self.curvature
        for _ in range(60):
            t = (low + high) / 2
            slope = moreau_vector(self.loss, "energy", t, self.width).gradient(u, *level)
            low, high = (
                (t, high) if t**2 + float(np.square(slope).sum()) < self.curvature**2 else (low, t)
            )
        parabola = moreau_vector(self.loss, "energy", high, self.width)
        c = high / self.width
        slope = parabola.gradient(u, *level)[0]
        projection = parabola.hessian(u, *level)[0] / c
        value = float(parabola.value(u, *level)[0] + slope @ slope / (2 * c) + self.width * high)
        return high, value, slope, projection

    def value(self, u: NDArray[np.float64], *level: NDArray[np.float64]) -> NDArray[np.float64]:
        """Value ``<y, u> - g*(y) + w t`` of every row."""
        return np.array([value for _, value, _, _ in self._solved(u, *level)])

    def gradient(self, u: NDArray[np.float64], *level: NDArray[np.float64]) -> NDArray[np.float64]:
        """The dual maximiser y of every row."""
        return np.array([slope for _, _, slope, _ in self._solved(u, *level)])

    def hessian(self, u: NDArray[np.float64], *level: NDArray[np.float64]) -> NDArray[np.float64]:
        """``(t/w) (P - P y y^T P / (t^2 + ||P y||^2))`` with the projection P, where it exists."""
        bends = []
        for t, _, slope, projection in self._solved(u, *level):
            turned = projection @ slope
            bends.append(
                t / self.width * (projection - np.outer(turned, turned) / (t**2 + turned @ turned))
            )
        return np.array(bends)
