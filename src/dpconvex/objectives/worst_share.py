"""The mean of the worst losses with a ridge: between the mean of all and the largest one."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dpconvex.engine.blocks import takes_sparse, weighted_gram
from dpconvex.engine.rows import Rows, Sums
from dpconvex.losses.interface import Loss
from dpconvex.objectives.objective import LOSS_ULPS, UNIT, OverRows
from dpconvex.types import Array

__all__ = ["WorstShareObjective"]


Part = Callable[[Array, Array, Array, Array], Sums]

_STEPS = 200  # of the search for the threshold; bisection alone needs about 60


class WorstShareObjective(OverRows):
    r"""Mean of the worst share of losses, smoothed, with a ridge.

    ``F(theta) = min_{t >= 0} [t + (1/k) sum_i s(l_i - t)] + (alpha/2) ||theta||^2`` with ``k = share N``, weighted
    losses ``l_i = w_i loss(y_i, x~_i . theta)`` and ``s(u) = width log(1 + exp(u / width))``. With weights ``p_i =
    s'(l_i - t) / k`` at the best t, ``q_i = s''(l_i - t) / k`` and gradients ``g_i`` of ``l_i``::

        gradient  sum_i p_i g_i + alpha theta
        Hessian   sum_i (p_i w_i loss_i'' x~_i x~_i^T + q_i g_i g_i^T) - (sum_i q_i g_i)(sum_i q_i g_i)^T / sum_i q_i
                  + alpha I,  without the last product where t = 0

    It is convex, because t and theta are so together. As the width shrinks it becomes the mean of the k largest
    losses (the superquantile): for ``share = 1/n`` the largest loss, for ``share = 1`` the mean of all. Where people
    vote, a row counts with its person's share of a vote in the sum.

    Parameters
    ----------
    rows : MemoryRows or another engine
        Mapped rows, targets and influence weights, which multiply the loss. Targets are clipped to [-1, 1].
    loss : Loss
        Smooth pointwise loss of the margin, never negative.
    alpha : float
        Ridge; it covers the intercept too.
    share : float
        Above 0 and at most 1.
    width : float
        Of the smoothing, above 0.
    divisor : float, optional
        The public N; the number of records by default.

    Examples
    --------
    The worst of two records decides:

    >>> from dpconvex.engine import MemoryRows, RowMap
    >>> from dpconvex.losses import Logistic
    >>> rows = MemoryRows([[1.0], [-1.0]], [1.0, 1.0], RowMap(1, 1.0, fit_intercept=False))
    >>> round(WorstShareObjective(rows, Logistic(), alpha=0.1, share=0.5, width=0.001).value([3.0]), 4)
    3.4986
    """

    def __init__(
        self, rows: Rows, loss: Loss, alpha: float, share: float, width: float = 0.01, divisor: float | None = None
    ) -> None:
        super().__init__(rows, loss, alpha, divisor)
        if not 0 < share <= 1:
            raise ValueError(
                f"The 'share' parameter of WorstShareObjective must be above 0 and at most 1. Got {share!r} instead."
            )
        if not 0 < width < math.inf:
            raise ValueError(
                f"The 'width' parameter of WorstShareObjective must be a finite number above 0. Got {width!r} instead."
            )
        self.share, self.width = float(share), float(width)
        self._found: tuple[bytes, float] = (b"", 0.0)  # the last theta, and its threshold

    @property
    def public_facts(self) -> dict[str, object]:
        """What the certificate of a release must say about this objective, too."""
        own = {"share": self.share, "width": self.width}
        return {**self._facts("mean of the worst losses"), **own}

    @property
    def gradient_bound(self) -> float:
        """``L = lipschitz w||x~||``: of one record, and of the data term."""
        return float(self.loss.lipschitz * self.rows.row_map.weighted_norm)

    @property
    def smoothness(self) -> float:
        """``beta + L^2 / width + alpha``."""
        record = self.loss.smoothness * self.rows.row_map.weighted_square
        return float(record + self.gradient_bound**2 / self.width + self.alpha)

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """F and its gradient: passes that find the threshold, and one that sums."""
        theta = np.asarray(theta, dtype=np.float64)
        threshold, width = self.threshold(theta), self.width

        def part(block: Array, slopes: Array, u: Array, v: Array) -> Sums:
            excess = width * float(v @ np.logaddexp(0.0, u))
            return (v * expit(u) * slopes) @ block, excess

        gradient, excess = self._sum(theta, threshold, part)
        data = threshold + excess / self._worst
        return self._value(data, theta), self._gradient(gradient / self._worst, theta)

    def hessian(self, theta: npt.ArrayLike) -> Array:
        """Hessian of F."""
        theta = np.asarray(theta, dtype=np.float64)
        threshold, width, loss = self.threshold(theta), self.width, self.loss

        @takes_sparse
        def part(block: Array, y: Array, w: Array, v: Array | None = None) -> Sums:
            y, w, v = self._record(y, w, v)
            z = block @ theta
            slopes, weights = (w * loss.gradient(y, z), expit((w * loss.value(y, z) - threshold) / width))
            bends = v * weights * (1 - weights) / width
            curvature = v * weights * np.maximum(w * loss.curvature(y, z), 0.0)
            return (weighted_gram(block, curvature + bends * slopes**2), (bends * slopes) @ block, float(bends.sum()))

        second, pull, bend = self.rows.sum_votes(part) if self.rows.voted else self.rows.sum(part)
        if threshold > 0 and bend > 0:
            second = second - np.outer(pull, pull / bend)
        return self._hessian(second / self._worst)

    def threshold(self, theta: npt.ArrayLike) -> float:
        """Return the best t: the root of ``sum_i s'(l_i - t) = k``, or 0 where the losses are too few or too small.

        Newton's method within a bracket, which is halved where that does not help. At ``t = T + width log(n / k)``, T
        at least the largest loss, every weight is at most ``k / n``.
        """
        theta = np.asarray(theta, dtype=np.float64)
        if self._found[0] == theta.tobytes():
            return self._found[1]

        def part(block: Array, slopes: Array, u: Array, v: Array) -> Sums:
            weights = expit(u)
            return float(v @ weights), float(v @ (weights * (1 - weights))) / self.width

        largest = self._start + self.gradient_bound * float(np.linalg.norm(theta))
        low, t = 0.0, 0.0
        high = largest + self.width * math.log(max(1.0, self._share / self.share))
        last = math.inf
        for _ in range(_STEPS):
            weight, fall = self._sum(theta, t, part)
            excess = weight - self._worst
            if t == 0 and excess <= 0:
                break
            low, high = (t, high) if excess > 0 else (low, t)
            close = abs(excess) <= 4 * UNIT * self._worst * (1 + t / self.width)
            if close or high - low <= 4 * UNIT * max(high, self.width):
                break
            new = t + excess / fall if fall > 0 and abs(excess) < 0.5 * last else math.nan
            if t == 0 and low < self._found[1] < high:
                new = self._found[1]  # where the last search ended
            last = abs(excess)
            t = new if low < new < high else 0.5 * (low + high)
        self._found = (theta.tobytes(), t)
        return t

    def rounding_allowance(self, theta: npt.ArrayLike) -> float:
        """Bound the norm of the floating-point error of `gradient` at theta.

        Margins, slopes and losses err as in `TiltedObjective.rounding_allowance`. A weight turns by its part
        ``e / width`` with an error e of its loss, and so do all weights together at a fixed threshold. An error of the
        threshold moves all weights to one side: together by what their sum differs from 1, which the search leaves at
        ``4 (1 + t / width)`` roundings, the errors of weights and those of their sum.
        """
        theta = np.asarray(theta, dtype=np.float64)
        row_map, loss = self.rows.row_map, self.loss
        size, bound = float(np.linalg.norm(theta)), self.gradient_bound
        slopes = loss.smoothness * ((self.dim + 10) * row_map.weighted_square * size + 4 * row_map.weighted_norm)
        losses = loss.lipschitz * ((self.dim + 10) * row_map.weighted_norm * size + 4)
        losses += LOSS_ULPS * (self._start + bound * size)
        weights = 2 * losses / self.width + 2 * (self.rows.additions + 8) + 8
        weights += 8 * (self._start + bound * size) / self.width + 8 * math.log(max(1.0, self._share / self.share))
        roundings = slopes + (LOSS_ULPS + weights) * bound + 3 * self.alpha * size
        return float(1.01 * UNIT * roundings)

    @property
    def _worst(self) -> float:
        """``k = share N``."""
        return self.share * self.divisor

    @property
    def _start(self) -> float:
        """The largest loss at theta = 0."""
        return float(np.max(self.loss.value(np.array([1.0, -1.0]), np.zeros(2))))

    def _record(self, y: Array, w: Array, v: Array | None) -> tuple[Array, Array, Array]:
        """Return clipped targets, weights of losses and votes outside of them."""
        whole = np.ones(y.size)
        w, v = (w, whole) if v is None else (w, v) if self.rows.people_vote else (w * v, whole)
        return np.clip(y, -1.0, 1.0), w, v

    def _sum(self, theta: Array, threshold: float, part: Part) -> Sums:
        """Sum over rows what `part` makes of the block, slopes, ``(l - t) / width`` and votes."""
        loss, width = self.loss, self.width

        @takes_sparse
        def whole(block: Array, y: Array, w: Array, v: Array | None = None) -> Sums:
            y, w, v = self._record(y, w, v)
            z = block @ theta
            u = (w * loss.value(y, z) - threshold) / width
            return part(block, w * loss.gradient(y, z), u, v)

        return self.rows.sum_votes(whole) if self.rows.voted else self.rows.sum(whole)
