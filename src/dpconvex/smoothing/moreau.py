"""Moreau envelopes: a loss smoothed from below by an infimal convolution with a parabola."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpconvex.checks import check_positive
from dpconvex.losses.interface import Kind, PointwiseLoss
from dpconvex.losses.kinks import Kinks
from dpconvex.losses.pointwise import Huber, Scaled, Squared
from dpconvex.types import ScalarOrArray


@dataclass(frozen=True)
class MoreauLoss(PointwiseLoss):
    """``e(u) = inf_v c(v) + (b/2) (u - v)**2`` for a piecewise-linear ``c``; see :func:`moreau`.

    With knots ``k_i``, heights ``c(k_i)``, slopes ``s_i`` and ``g_i = clip(b (u - k_i), s_i,
    s_{i+1})``, the slope that the i-th knot allows:

    - ``e(u) = max_i c(k_i) + g_i * (u - k_i) - g_i**2 / (2 b)``
    - ``e'(u) = s_0 + sum_i (g_i - s_i)``: ``s_i`` between ``k_{i-1} + s_i / b`` and
      ``k_i + s_i / b``, and ``b (u - k_i)`` from there to ``k_i + s_{i+1} / b``
    - ``e''(u) = b`` on these closed bends and 0 elsewhere
    """

    loss: PointwiseLoss
    modulus: float

    def __post_init__(self) -> None:
        # Checked here and not in moreau: a loss read back from a file passes through here too.
        remedy = "A larger value is closer to the loss and less smooth."
        object.__setattr__(self, "modulus", check_positive("smoothness", "moreau", self.modulus, remedy))
        if not isinstance(self.loss, PointwiseLoss):
            raise TypeError(
                "The 'loss' parameter of moreau must be piecewise linear, Squared or Huber. "
                f"Got {type(self.loss).__name__} instead. Write it as KinkedLoss(knots, slopes)."
            )
        if self.loss.kinks is None:
            raise ValueError(
                "The 'loss' parameter of moreau must be piecewise linear, Squared or Huber. "
                f"Got {type(self.loss).__name__} instead. Its envelope has no closed form here, "
                f"and it is already smooth (smoothness={self.loss.smoothness:g}): use it as it is."
            )

    @property
    def kind(self) -> Kind:
        """The kind of the loss that is smoothed."""
        return self.loss.kind

    @cached_property
    def _shape(self) -> Kinks:
        kinks = self.loss.kinks
        assert kinks is not None, "checked at construction"
        return kinks

    @property
    def lipschitz(self) -> float:
        """That of the loss: the outermost slopes are unchanged."""
        return self._shape.lipschitz

    @property
    def smoothness(self) -> float:
        """``b``, attained on every bend."""
        return self.modulus

    @property
    def approximation_gap(self) -> float:
        """``sup (c - e) = lipschitz**2 / (2 b)``."""
        return self.lipschitz**2 / (2.0 * self.modulus)

    @property
    def slope_range(self) -> tuple[float, float]:
        """The range of the loss that is smoothed: averages of slopes stay inside it."""
        return self.loss.slope_range

    def value_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``e(u)`` for float64 ``u``."""
        shape, b = self._shape, self.modulus
        value = np.float64(-np.inf)
        for i, (knot, height) in enumerate(zip(shape.knots, shape.heights, strict=True)):
            distance = u - knot
            slope = np.clip(b * distance, shape.slopes[i], shape.slopes[i + 1])
            value = np.maximum(value, slope * (distance - slope * (0.5 / b)) + height)
        return value

    def slope_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``e'(u)`` for float64 ``u``."""
        shape, b = self._shape, self.modulus
        total = np.clip(b * (u - shape.knots[0]), shape.slopes[0], shape.slopes[1])
        for i in range(1, len(shape.knots)):
            low, high = shape.slopes[i], shape.slopes[i + 1]
            total = total + (np.clip(b * (u - shape.knots[i]), low, high) - low)
        return total

    def curvature_at(self, u: ScalarOrArray) -> ScalarOrArray:
        """``e''(u)`` for float64 ``u``; on the closed bends ``b``."""
        shape, b = self._shape, self.modulus
        bent = np.False_
        for i, knot in enumerate(shape.knots):
            slope = b * (u - knot)
            bent = bent | ((slope >= shape.slopes[i]) & (slope <= shape.slopes[i + 1]))
        return np.where(bent, b, 0.0)


def moreau(loss: PointwiseLoss, smoothness: float) -> MoreauLoss | Scaled:
    """Smooth a loss from below: ``e(u) = inf_v c(v) + (smoothness / 2) (u - v)**2``.

    The result is convex, has the loss's own Lipschitz constant, curvature at most ``smoothness``,
    and lies below the loss by at most ``lipschitz**2 / (2 * smoothness)``. Closed forms only:

    - piecewise-linear losses: see :class:`MoreauLoss`;
    - ``Squared()``: ``s * u**2 / 2`` with ``s = smoothness / (1 + smoothness)``;
    - ``Huber(width)``: ``s * Huber(width / s)`` with the same ``s``.

    Parameters
    ----------
    loss : piecewise-linear loss, Squared, Huber, or Scaled of a piecewise-linear loss
        The loss to smooth.
    smoothness : float
        Curvature of the parabola, positive.

    Returns
    -------
    MoreauLoss or Scaled
        A loss with finite smoothness.

    Examples
    --------
    >>> from dpconvex.losses import Absolute
    >>> from dpconvex.smoothing import moreau
    >>> envelope = moreau(Absolute(), smoothness=2.0)
    >>> float(envelope.value(0.25, 0.0)), float(envelope.value(3.0, 0.0))
    (0.0625, 2.75)
    """
    if isinstance(loss, Squared | Huber):
        modulus = check_positive("smoothness", "moreau", smoothness, "A larger value is closer to the loss.")
        factor = modulus / (1.0 + modulus)
        outer = Squared() if isinstance(loss, Squared) else Huber(loss.width / factor)
        return Scaled(outer, factor)
    return MoreauLoss(loss, smoothness)
