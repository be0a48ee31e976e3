r"""Losses of a pair: functions of the score difference ``t = s_positive - s_negative``.

Minimising their mean over all pairs of a positive and a negative record maximises a surrogate of the area under the
ROC curve. All are convex; ``monotone`` losses never reward a smaller difference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from dpconvex.checks import check_positive
from dpconvex.types import Array

__all__ = ["PairHinge", "PairLogistic", "PairLoss", "PairSquared", "PairSquaredHinge", "Pieces"]

_LOG2 = math.log(2)


@dataclass(frozen=True)
class Pieces:
    """A continuously joined piecewise quadratic, ``c0 + c1 t + c2 t^2`` between knots.

    Attributes
    ----------
    knots : tuple of float
        Increasing; piece k lies between ``knots[k - 1]`` and ``knots[k]``.
    coefficients : tuple of (c0, c1, c2)
        One more than knots.
    """

    knots: tuple[float, ...]
    coefficients: tuple[tuple[float, float, float], ...]

    def _piece(self, t: Array) -> tuple[Array, ...]:
        where = np.searchsorted(np.asarray(self.knots), t, side="left")
        table = np.asarray(self.coefficients)
        return tuple(table[where, column] for column in range(3))

    def value(self, t: Array) -> Array:
        """Value at ``t``."""
        c0, c1, c2 = self._piece(t)
        return np.asarray(c0 + t * (c1 + t * c2))

    def slope(self, t: Array) -> Array:
        """First derivative at ``t``; at a kink the left one."""
        _, c1, c2 = self._piece(t)
        return np.asarray(c1 + 2 * t * c2)

    def curvature(self, t: Array) -> Array:
        """Second derivative at ``t``."""
        return np.asarray(2 * self._piece(t)[2])


class PairLoss(Protocol):
    """What a pairwise objective asks of a loss: its constants, and its pieces unless it is logistic."""

    @property
    def lipschitz(self) -> float:
        """``sup |slope|``."""

    @property
    def smoothness(self) -> float:
        """``sup curvature``."""

    @property
    def pieces(self) -> Pieces | None:
        """The piecewise quadratic that this loss is; None for a :class:`PairLogistic`."""


@dataclass(frozen=True)
class PairLogistic:
    """``log_base(1 + exp(-t))``, with ``log_2`` (1 at t = 0, above the 0-1 loss) or the natural logarithm.

    Parameters
    ----------
    base : {"2", "e"}
        The logarithm's base.

    Examples
    --------
    >>> float(PairLogistic().value(0.0)), PairLogistic("e").smoothness
    (1.0, 0.25)
    """

    base: str = "2"

    def __post_init__(self) -> None:
        if self.base not in ("2", "e"):
            raise ValueError(f"The 'base' parameter of PairLogistic must be '2' or 'e'. Got {self.base!r} instead.")

    @property
    def scale(self) -> float:
        """Factor in front of the natural logarithm."""
        return 1 / _LOG2 if self.base == "2" else 1.0

    @property
    def lipschitz(self) -> float:
        """``sup |slope|``."""
        return self.scale

    @property
    def smoothness(self) -> float:
        """``sup curvature``, at 0."""
        return self.scale / 4

    @property
    def monotone(self) -> bool:
        """Never increasing."""
        return True

    @property
    def pieces(self) -> Pieces | None:
        """None: not piecewise quadratic."""
        return None

    def value(self, t: ArrayLike) -> Array:
        """Loss of the difference ``t``."""
        return np.asarray(self.scale * np.logaddexp(0.0, -np.asarray(t, dtype=np.float64)))

    def slope(self, t: ArrayLike) -> Array:
        """First derivative."""
        return np.asarray(-self.scale * expit(-np.asarray(t, dtype=np.float64)))

    def curvature(self, t: ArrayLike) -> Array:
        """Second derivative."""
        t = np.asarray(t, dtype=np.float64)
        return np.asarray(self.scale * expit(t) * expit(-t))


class _PieceLoss:
    """Value and derivatives of a loss that is given by its pieces."""

    @property
    def pieces(self) -> Pieces:
        """The piecewise quadratic that this loss is."""
        raise AttributeError

    def value(self, t: ArrayLike) -> Array:
        """Loss of the difference ``t``."""
        return self.pieces.value(np.asarray(t, dtype=np.float64))

    def slope(self, t: ArrayLike) -> Array:
        """First derivative."""
        return self.pieces.slope(np.asarray(t, dtype=np.float64))

    def curvature(self, t: ArrayLike) -> Array:
        """Second derivative."""
        return self.pieces.curvature(np.asarray(t, dtype=np.float64))


class _SquareLoss(_PieceLoss):
    """What losses that grow like a square share."""

    @property
    def lipschitz(self) -> float:
        """Unbounded; bounded on the ball that holds the minimisers."""
        return math.inf

    @property
    def smoothness(self) -> float:
        """``sup curvature``."""
        return 2.0


@dataclass(frozen=True)
class PairSquared(_SquareLoss):
    """``(1 - t)^2``: least squares, whose minimiser has a closed form in the classes' moments.

    Examples
    --------
    >>> float(PairSquared().value(0.0)), float(PairSquared().value(3.0))
    (1.0, 4.0)
    """

    @property
    def pieces(self) -> Pieces:
        """One piece."""
        return Pieces((), ((1.0, -2.0, 1.0),))

    @property
    def monotone(self) -> bool:
        """Increasing beyond 1."""
        return False


@dataclass(frozen=True)
class PairSquaredHinge(_SquareLoss):
    """``max(0, 1 - t)^2``.

    Examples
    --------
    >>> float(PairSquaredHinge().value(0.0)), float(PairSquaredHinge().value(3.0))
    (1.0, 0.0)
    """

    @property
    def pieces(self) -> Pieces:
        """Two pieces."""
        return Pieces((1.0,), ((1.0, -2.0, 1.0), (0.0, 0.0, 0.0)))

    @property
    def monotone(self) -> bool:
        """Never increasing."""
        return True


@dataclass(frozen=True)
class PairHinge(_PieceLoss):
    """``max(0, 1 - t)``, its kink rounded over ``width`` below 1 (a Moreau envelope of curvature ``1 / width``).

    ``(1 - t)^2 / (2 width)`` for t within ``width`` below 1, ``1 - t - width / 2`` further below, 0 above.

    Parameters
    ----------
    width : float
        0 leaves the kink as it is.

    Examples
    --------
    >>> float(PairHinge().value(0.0)), float(PairHinge(0.0).value(0.0)), PairHinge().smoothness
    (0.75, 1.0, 2.0)
    """

    width: float = 0.5

    def __post_init__(self) -> None:
        if self.width != 0 or isinstance(self.width, bool):
            check_positive("width", "PairHinge", self.width, "Use 0 for the hinge itself.")

    @property
    def pieces(self) -> Pieces:
        """Two pieces with a kink, three without."""
        if self.width == 0:
            return Pieces((1.0,), ((1.0, -1.0, 0.0), (0.0, 0.0, 0.0)))
        half = 0.5 / self.width
        return Pieces(
            (1.0 - self.width, 1.0), ((1.0 - self.width / 2, -1.0, 0.0), (half, -2 * half, half), (0.0, 0.0, 0.0))
        )

    @property
    def lipschitz(self) -> float:
        """``sup |slope|``."""
        return 1.0

    @property
    def smoothness(self) -> float:
        """``sup curvature``."""
        return math.inf if self.width == 0 else 1 / self.width

    @property
    def monotone(self) -> bool:
        """Never increasing."""
        return True
