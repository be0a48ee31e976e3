r"""Losses of one record with several margins: classes, periods at risk, ordered levels.

A record has k margins ``z_j`` and k slopes ``s_j``, the derivatives of its loss in them. Margins
have coefficients of their own (``lift = "separate"``: classes), or own intercepts and common
coefficients (``"common"``: periods, levels). Arrays of margins and slopes have a row for each
margin and a column for each record. What a record gives is computed from its own column, margin
after margin in a fixed order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dpconvex.core.checks import check_count, check_number
from dpconvex.types import Array


@dataclass(frozen=True)
class SeveralMarginLoss:
    """Loss of several margins; the target of a record is the number of its outcome, from 0 on.

    ``lipschitz`` is the size of slopes in whose units long rows count less. It bounds the norm of
    the slopes of classes; others have no bound, and what a record adds is clipped whatever they
    are. No mechanism but noisy descent is proved for several margins, so that ``smoothness`` is
    infinite.
    """

    margins: int
    kind: ClassVar[str] = "several"
    lift: ClassVar[str] = "separate"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = math.inf
    slope_range: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def __post_init__(self) -> None:
        check_count("margins", type(self).__name__, self.margins, 1)

    @property
    def outcomes(self) -> int:
        """Number of different targets."""
        return self.margins

    def coefficients(self, size: int) -> int:
        """Return the number of coefficients of rows of this size, constant included."""
        return self.margins * size if self.lift == "separate" else self.margins + size - 1

    def slopes(self, y: Array, z: Array) -> Array:
        """Return slopes of shape (margins, records) at margins of this shape."""
        raise NotImplementedError

    def _is_outcome(self, y: Array, *range_of: int) -> npt.NDArray[np.bool_]:
        """Return whether targets, rounded to outcomes, are those of a range, a row each."""
        found = np.rint(np.clip(np.nan_to_num(y), 0, self.outcomes - 1))
        return np.asarray(found == np.arange(*range_of)[:, None])


@dataclass(frozen=True)
class Softmax(SeveralMarginLoss):
    """``log sum_j exp(z_j) - z_y``, the logistic loss of several classes, with slopes
    ``softmax(z) - e_y``.
    """

    lipschitz: ClassVar[float] = math.sqrt(2)

    def slopes(self, y: Array, z: Array) -> Array:
        """``p_j - 1[j = y]``."""
        own = self._is_outcome(y, self.margins)
        return np.asarray(softmax_shares(z) - own)


@dataclass(frozen=True)
class CrammerSinger(Softmax):
    """``max_j (z_j + 1[j != y]) - z_y``, the hinge of several classes.

    ``width log sum_j exp((z_j + 1[j != y]) / width)`` stands for the maximum.
    """

    width: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = "a finite number above 0"
        check_number("width", type(self).__name__, self.width, allowed, 0, math.inf, low_open=True)

    def slopes(self, y: Array, z: Array) -> Array:
        """``q_j - 1[j = y]`` with the shares q of the margins in the maximum."""
        own = self._is_outcome(y, self.margins)
        return np.asarray(softmax_shares((z + ~own) / self.width) - own)


@dataclass(frozen=True)
class DiscreteHazard(SeveralMarginLoss):
    """Minus log likelihood of survival in periods, with hazards ``sigma(z_j)`` in period j, counted
    from 0.

    The outcome ``2 t + 1`` is an event in period t; ``2 t`` is a record that was censored after t
    periods without one. Slopes are ``sigma(z_j)`` while a record is at risk, less 1 in the period
    of its event.
    """

    lift: ClassVar[str] = "common"

    @property
    def outcomes(self) -> int:
        """Number of events and censorings."""
        return 2 * self.margins + 1

    def slopes(self, y: Array, z: Array) -> Array:
        """``sigma(z_j)`` before the last period, ``sigma(z_j) - 1`` in that of an event, else 0."""
        last = self._is_outcome(y, self.outcomes).argmax(axis=0)  # whole numbers
        event = self._is_outcome(y, 1, self.outcomes, 2)
        period = np.arange(self.margins)[:, None]
        return np.asarray(np.where(event | (2 * period < last - 1), expit(z), 0.0) - event)


@dataclass(frozen=True)
class ProportionalOdds(SeveralMarginLoss):
    """Minus log likelihood of ordered levels, ``P(y <= j) = sigma(z_j)``, with margins that grow
    with j.

    Slopes are ``-f(z_y) / P(y)`` and ``f(z_{y-1}) / P(y)`` with ``f = sigma (1 - sigma)``.
    """

    lift: ClassVar[str] = "common"

    @property
    def outcomes(self) -> int:
        """Number of levels."""
        return self.margins + 1

    def slopes(self, y: Array, z: Array) -> Array:
        """``(1[y = j + 1] - 1[y = j]) f(z_j) / P(y)``, the slope in each of several margins."""
        own = self._is_outcome(y, self.outcomes)
        end = np.full((1, z.shape[1]), np.inf)
        low = np.concatenate([-end, z])
        high = np.concatenate([z, end])
        # Shares of levels next to 1 would cancel: what is left to 1 is compared there.
        shares = np.where(low > 0, expit(-low) - expit(-high), expit(high) - expit(low))
        share = np.maximum(reduce(np.add, np.where(own, shares, 0.0)), 1e-300)
        return np.asarray((own[1:] * 1.0 - own[:-1]) * (expit(z) * expit(-z)) / share)


def softmax_shares(z: Array) -> Array:
    """Return ``exp(z_j) / sum_l exp(z_l)`` of every column, the largest margin subtracted first."""
    shares = np.exp(z - reduce(np.maximum, z))
    return np.asarray(shares / reduce(np.add, shares))
