r"""Losses of a pair: functions of the score difference ``t = s_positive - s_negative``.

Minimising their mean over all pairs of a positive and a negative record maximises a surrogate of
the area under the ROC curve. All are convex; ``monotone`` losses never reward a smaller difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from dpconvex.core.checks import check_positive
from dpconvex.types import Array


@dataclass(frozen=True)
class PairQuadraticPieces:
    """A continuous function, ``c0 + c1 t + c2 t^2`` between knots.

    Attributes
    ----------
    knots : tuple of float
        Increasing; piece k lies between ``knots[k - 1]`` and ``knots[k]``.
    coefficients : tuple of (c0, c1, c2)
        One more than knots.
    """

    knots: tuple[float, ...]
    coefficients: tuple[tuple[float, float, float], ...]

    def at(self, t: ArrayLike, order: int) -> Array:
        """Return the value (order 0), the first or the second derivative at ``t``; at a knot
        that on its left.
        """
        t = np.asarray(t, dtype=np.float64)
        where = np.searchsorted(np.asarray(self.knots), t, side="left")
        c0, c1, c2 = (np.asarray(self.coefficients)[where, column] for column in range(3))
        return np.asarray(
            2 * c2 if order == 2 else c1 + 2 * t * c2 if order == 1 else c0 + t * (c1 + t * c2)
        )


class PairLoss:
    """A convex loss of a pair: its constants, and the piecewise quadratic that it is unless it
    is logistic.
    """

    @property
    def lipschitz(self) -> float:
        """``sup |slope|``; ``inf`` for losses that grow like a square."""
        return math.inf

    @property
    def smoothness(self) -> float:
        """``sup curvature``."""
        return 2.0

    @property
    def monotone(self) -> bool:
        """Whether the loss never increases, which halves noise; False unless a loss says so."""
        return False

    @property
    def piecewise_quadratic(self) -> PairQuadraticPieces | None:
        """The piecewise quadratic that this loss is; None for a :class:`PairLogistic`."""
        return None

    def _derivative(self, t: ArrayLike, order: int) -> Array:
        assert self.piecewise_quadratic is not None, "the other losses have formulas of their own"
        return self.piecewise_quadratic.at(t, order)

    def value(self, t: ArrayLike) -> Array:
        """Loss of the difference ``t``."""
        return self._derivative(t, 0)

    def slope(self, t: ArrayLike) -> Array:
        """First derivative."""
        return self._derivative(t, 1)

    def curvature(self, t: ArrayLike) -> Array:
        """Second derivative."""
        return self._derivative(t, 2)


@dataclass(frozen=True)
class PairLogistic(PairLoss):
    """``log_base(1 + exp(-t))``, with ``log_2`` (1 at t = 0, above the 0-1 loss) or the natural
    logarithm.

    Parameters
    ----------
    base : {"2", "e"}
        The logarithm's base.
    """

    base: str = "2"
    monotone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.base not in ("2", "e"):
            raise ValueError(
                f"The 'base' parameter of PairLogistic must be '2' or 'e'. Got {self.base!r} "
                "instead."
            )

    @property
    def scale(self) -> float:
        """Factor in front of the natural logarithm."""
        return 1 / math.log(2) if self.base == "2" else 1.0

    @property
    def lipschitz(self) -> float:
        """``sup |slope|``."""
        return self.scale

    @property
    def smoothness(self) -> float:
        """``sup curvature``, at 0."""
        return self.scale / 4

    def _derivative(self, t: ArrayLike, order: int) -> Array:
        t = np.asarray(t, dtype=np.float64)
        if order == 0:
            return np.asarray(self.scale * np.logaddexp(0.0, -t))
        return np.asarray(
            -self.scale * expit(-t) if order == 1 else self.scale * expit(t) * expit(-t)
        )


@dataclass(frozen=True)
class PairSquared(PairLoss):
    """``(1 - t)^2``: least squares, whose minimiser has a closed form in the classes' moments."""

    piecewise_quadratic: ClassVar[PairQuadraticPieces] = PairQuadraticPieces(
        (), ((1.0, -2.0, 1.0),)
    )


@dataclass(frozen=True)
class PairSquaredHinge(PairLoss):
    """``max(0, 1 - t)^2``."""

    monotone: ClassVar[bool] = True
    piecewise_quadratic: ClassVar[PairQuadraticPieces] = PairQuadraticPieces(
        (1.0,), ((1.0, -2.0, 1.0), (0.0, 0.0, 0.0))
    )


@dataclass(frozen=True)
class PairHinge(PairLoss):
    """``max(0, 1 - t)``, its kink rounded over ``width`` below 1 (a Moreau envelope of curvature
    ``1 / width``).

    ``(1 - t)^2 / (2 width)`` for t within ``width`` below 1, ``1 - t - width / 2`` further below, 0
    above.

    Parameters
    ----------
    width : float
        0 leaves the kink as it is.
    """

    width: float = 0.5
    lipschitz: ClassVar[float] = 1.0
    monotone: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.width != 0 or isinstance(self.width, bool):
            check_positive("width", "PairHinge", self.width, "Use 0 for the hinge itself.")

    @property
    def smoothness(self) -> float:
        """``sup curvature``."""
        return math.inf if self.width == 0 else 1 / self.width

    @property
    def piecewise_quadratic(self) -> PairQuadraticPieces:
        """Two pieces with a kink, three without."""
        outer = (1.0 - self.width / 2, -1.0, 0.0)
        zero = (0.0, 0.0, 0.0)
        if self.width == 0:
            return PairQuadraticPieces((1.0,), (outer, zero))
        half = 0.5 / self.width
        return PairQuadraticPieces((1.0 - self.width, 1.0), (outer, (half, -2 * half, half), zero))
