"""Risk measures with a ridge: the tilted mean (log-mean-exp), the smoothed superquantile,
accuracy at the top.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dpconvex.core.block_products import block_gram, takes_sparse_blocks
from dpconvex.core.checks import check_number, parameter_error
from dpconvex.core.memory_rows import MemoryRows
from dpconvex.core.pointwise_losses import Loss
from dpconvex.core.rows import RowMap, Rows, Sums
from dpconvex.objectives.objective import LOSS_ULPS, UNIT, RidgeObjective, RowObjective
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.engine.dask.rows_and_table import DaskRows

RecordPart = Callable[[Array, Array, Array, Array, Array], Any]

_STEPS = 200  # of the search for a threshold; bisection alone needs about 60


def find_risk_threshold(
    excess: Callable[[float], tuple[float, float]],
    high: float,
    width: float,
    tolerance: Callable[[float], float],
    guess: float = math.nan,
) -> float:
    """Return the root ``0 <= t <= high`` of a falling function, or 0 where it is not positive
    there.

    ``excess(t)`` is the function's value and minus its slope. Newton's method within a bracket,
    which is halved where that does not help; ``guess`` is tried first.
    """
    low = 0.0
    t = 0.0
    last = math.inf
    for _ in range(_STEPS):
        value, fall = excess(t)
        if t == 0 and value <= 0:
            break
        low, high = (t, high) if value > 0 else (low, t)
        if abs(value) <= tolerance(t) or high - low <= 4 * UNIT * max(high, width):
            break
        new = t + value / fall if fall > 0 and abs(value) < 0.5 * last else math.nan
        if t == 0 and low < guess < high:
            new = guess
        last = abs(value)
        t = new if low < new < high else 0.5 * (low + high)
    return t


class RiskMeasureObjective(RowObjective):
    """A function of the weighted losses ``w_i loss_i`` of records; targets are clipped to [-1, 1].

    The range of the losses decides how much one record can weigh. Where people have weights, a row
    counts with its share of the person's weight; weights of single rows multiply ``w_i``.
    """

    @property
    def gradient_bound(self) -> float:
        """``L = lipschitz w||x~||``: of one record, and of the data term."""
        return float(self.loss.lipschitz * self.rows.row_map.weighted_norm)

    @property
    def _record_smoothness(self) -> float:
        return float(self.loss.smoothness * self.rows.row_map.weighted_square)

    @property
    def _loss_at_zero(self) -> float:
        return float(np.max(self.loss.value(np.array([1.0, -1.0]), np.zeros(2))))

    def _sum_records(self, theta: Array, part: RecordPart) -> Any:
        """Sum ``part(block, targets, weights, margins, weights outside of losses)`` for a risk
        measure over rows.
        """
        people = self.rows.has_people

        @takes_sparse_blocks
        def whole(block: Array, y: Array, w: Array, v: Array | None = None) -> Sums:
            ones = np.ones(y.size)
            w, v = (w, ones) if v is None else (w, v) if people else (w * v, ones)
            return tuple(part(block, np.clip(y, -1.0, 1.0), w, block @ theta, v))

        return self.rows.sum_weighted(whole) if self.rows.has_row_weights else self.rows.sum(whole)


class _TiltedRiskSum:
    """Sums of ``v_i exp(a_i)`` times something, kept relative to the largest exponent so that
    nothing overflows.

    ``excess`` is ``sum_i v_i expm1(a_i - top)``: exact where all exponents nearly agree, as they do
    for small tilts.
    """

    def __init__(self, exponents: Array, weights: Array) -> None:
        self.top = float(exponents.max(initial=0.0, where=weights > 0))  # losses are never negative
        below = np.where(weights > 0, exponents - self.top, 0.0)
        self.factors = weights * np.exp(below)
        self.count = float(weights.sum())
        self.excess = float(weights @ np.expm1(below))
        self.parts: list[Array | float] = []

    def with_parts(self, *parts: Array | float) -> _TiltedRiskSum:
        """Keep sums of ``factors * something``; the factors themselves are no longer needed."""
        self.parts = list(parts)
        self.factors = np.empty(0)
        return self

    def __iadd__(self, other: _TiltedRiskSum) -> _TiltedRiskSum:
        top = max(self.top, other.top)
        own = self.top - top
        theirs = other.top - top
        mine = math.exp(own) * self.excess + self.count * math.expm1(own)
        self.excess = mine + math.exp(theirs) * other.excess + other.count * math.expm1(theirs)
        both = zip(self.parts, other.parts, strict=True)
        self.parts = [math.exp(own) * part + math.exp(theirs) * more for part, more in both]
        self.count += other.count
        self.top = top
        return self

    @property
    def log_mean(self) -> float:
        """``log((1/n) sum_i v_i exp(a_i))``, n the sum of weights."""
        return self.top + math.log1p(self.excess / self.count)

    @property
    def means(self) -> list[Any]:
        """The parts under softmax weights."""
        return [part / (self.count + self.excess) for part in self.parts]


class TiltedObjective(RiskMeasureObjective):
    r"""Tilted empirical risk with a ridge.

    ``F(theta) = (1/t) log((1/n) sum_i exp(t w_i loss(y_i, x~_i . theta))) + (alpha/2) ||theta||^2 +
    W(theta)`` with ``t = tilt``; for ``t = 0`` the mean of ``w_i loss``.
    ``W(theta) = (K/2) max(0, ||theta|| - B)^2``, ``B = coef_bound`` and ``K = wall``. With softmax
    weights ``p_i`` of ``t w_i loss_i``, gradients ``g_i`` of ``w_i loss_i`` and
    ``g = sum_i p_i g_i``:

        gradient  g + alpha theta + K max(0, 1 - B / ||theta||) theta
        Hessian   sum_i p_i (w_i loss_i'' x~_i x~_i^T + t g_i g_i^T) - t g g^T + alpha I + W''

    Where people have weights, ``sum_i exp(t w_i loss_i)`` becomes
    ``sum_p (1/m_p) sum_{i of p} exp(t w_i loss_i)``: the loss of a person is the log-mean-exp of
    its rows', in their range and no steeper.

    Parameters
    ----------
    rows : MemoryRows or another engine
        Mapped rows, targets (clipped to [-1, 1]) and influence weights, which multiply the loss.
    loss : Loss
        Smooth pointwise loss of the margin.
    alpha : float
        Ridge; it covers the intercept too.
    tilt : float
        At least 0.
    coef_bound, wall : float, optional
        Where a wall begins and how steep it is; no wall by default.

    Examples
    --------
    >>> from dpconvex.engine import MemoryRows, RowMap
    >>> from dpconvex.losses import Logistic
    >>> rows = MemoryRows([[1.0], [-1.0]], [1.0, 1.0], RowMap(1, 1.0, fit_intercept=False))
    >>> round(TiltedObjective(rows, Logistic(), alpha=0.1, tilt=500.0).value([3.0]), 4)
    3.4972
    >>> round(
    ...     WorstShareObjective(rows, Logistic(), alpha=0.1, share=0.5, width=0.001).value([3.0]), 4
    ... )
    3.4986
    """

    def __init__(
        self,
        rows: Rows,
        loss: Loss,
        alpha: float,
        tilt: float,
        coef_bound: float | None = None,
        wall: float = 0.0,
    ) -> None:
        super().__init__(rows, loss, alpha)
        self.tilt = check_number(
            "tilt", "TiltedObjective", tilt, "a finite number >= 0", 0, math.inf
        )
        self.wall = check_number(
            "wall", "TiltedObjective", wall, "a finite number >= 0", 0, math.inf
        )
        self.coef_bound = math.inf if coef_bound is None else float(coef_bound)
        # beta + tilt L^2 + alpha + K
        self.smoothness = (
            self._record_smoothness + self.tilt * self.gradient_bound**2 + self.alpha + self.wall
        )

    @property
    def public_facts(self) -> dict[str, object]:
        """Facts about this objective that the certificate of a release must state."""
        own = {"tilt": self.tilt, "coef_bound": self.coef_bound, "wall": self.wall}
        return {**self._facts("tilted mean of losses"), **own}

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """Return the tilted risk and its gradient, in one pass."""
        theta = np.asarray(theta, dtype=np.float64)
        sums = self._sum(theta)
        gradient, loss = sums.means
        data = sums.log_mean / self.tilt if self.tilt > 0 else float(loss)
        size = float(np.linalg.norm(theta))
        beyond = max(0.0, size - self.coef_bound)
        push = self.wall * beyond / max(size, 1e-300) * theta
        return self._value(data + 0.5 * self.wall * beyond**2, theta), self._gradient(
            gradient + push, theta
        )

    def hessian(self, theta: npt.ArrayLike) -> Array:
        """Hessian of the tilted risk."""
        theta = np.asarray(theta, dtype=np.float64)
        gradient, _, second = self._sum(theta, with_hessian=True).means
        second = self._hessian(second - self.tilt * np.outer(gradient, gradient))
        size = float(np.linalg.norm(theta))
        if size > self.coef_bound and self.wall > 0:
            axis = theta / size
            share = 1 - self.coef_bound / size
            second += self.wall * (share * np.eye(self.dim) + (1 - share) * np.outer(axis, axis))
        return second

    def rounding_allowance(self, theta: npt.ArrayLike) -> float:
        """Bound the norm of the floating-point error of the tilted risk's `gradient` at theta.

        Margins and slopes err as in `EmpiricalObjective.rounding_allowance`, with targets of size
        at most 1. An exponent ``a = t w loss`` then errs by at most ``t w lipschitz e`` for the
        margin's error ``e``, plus 16 roundings of its own size, which is at most
        ``t (w loss(0) + L ||theta||)``; the weights and their sum err by as much relatively, twice,
        and by the roundings of the sum. The wall's part errs with the length of theta.
        """
        row_map = self.rows.row_map
        loss = self.loss
        size = float(np.linalg.norm(theta))
        bound = self.gradient_bound
        slopes = loss.smoothness * (
            (self.dim + 10) * row_map.weighted_square * size + 4 * row_map.weighted_norm
        )
        exponents = loss.lipschitz * ((self.dim + 10) * row_map.weighted_norm * size + 4)
        exponents = self.tilt * (exponents + LOSS_ULPS * (self._loss_at_zero + bound * size))
        roundings = slopes + (LOSS_ULPS + 2 * (self.rows.additions + 8) + 2 * exponents) * bound
        roundings += 3 * self.alpha * size
        if size > 0.999 * self.coef_bound:
            roundings += 2 * (self.dim + 8) * self.wall * size
        return float(1.01 * UNIT * roundings)

    def _sum(self, theta: Array, with_hessian: bool = False) -> _TiltedRiskSum:
        tilt = self.tilt
        loss = self.loss

        def tilted_risk_part(
            block: Array, y: Array, w: Array, z: Array, v: Array
        ) -> tuple[_TiltedRiskSum]:
            losses = w * loss.value(y, z)
            slopes = w * loss.gradient(y, z)
            sums = _TiltedRiskSum(tilt * losses, v)
            factors = sums.factors
            parts: list[Array | float] = [(factors * slopes) @ block, float(factors @ losses)]
            if with_hessian:
                curvature = np.maximum(w * loss.curvature(y, z), 0.0) + tilt * slopes**2
                parts.append(block_gram(block, factors * curvature))
            return (sums.with_parts(*parts),)

        (sums,) = self._sum_records(theta, tilted_risk_part)
        return cast(_TiltedRiskSum, sums)


class WorstShareObjective(RiskMeasureObjective):
    r"""Mean of the worst share of losses, smoothed, with a ridge.

    ``F(theta) = min_{t >= 0} [t + (1/k) sum_i s(l_i - t)] + (alpha/2) ||theta||^2`` with
    ``k = share N``, weighted losses ``l_i = w_i loss(y_i, x~_i . theta)`` and
    ``s(u) = width log(1 + exp(u / width))``. With weights ``p_i = s'(l_i - t) / k`` at the best t,
    ``q_i = s''(l_i - t) / k`` and gradients ``g_i`` of ``l_i``::

        gradient  sum_i p_i g_i + alpha theta
        Hessian   sum_i (p_i w_i loss_i'' x~_i x~_i^T + q_i g_i g_i^T)
                  - (sum_i q_i g_i)(sum_i q_i g_i)^T / sum_i q_i + alpha I,
                  without the product of sums where t = 0

    It is convex, because t and theta are so together. As the width shrinks it becomes the mean of
    the k largest losses (the superquantile): for ``share = 1/n`` the largest loss, for
    ``share = 1`` the mean of all.

    Parameters
    ----------
    rows, loss, alpha
        As for :class:`TiltedObjective`; the loss is never negative.
    share : float
        Above 0 and at most 1.
    width : float
        Of the smoothing, above 0.
    divisor : float, optional
        The public N; the number of records by default.
    """

    def __init__(
        self,
        rows: Rows,
        loss: Loss,
        alpha: float,
        share: float,
        width: float = 0.01,
        divisor: float | None = None,
    ) -> None:
        super().__init__(rows, loss, alpha, divisor)
        if not 0 < share <= 1:
            raise parameter_error(
                "share", "WorstShareObjective", "above 0 and at most 1", repr(share)
            )
        self.share = float(share)
        owner = "WorstShareObjective"
        self.width = check_number(
            "width", owner, width, "a finite number above 0", 0, math.inf, low_open=True
        )
        self._worst = self.share * self.divisor  # k = share N
        # beta + L^2 / width + alpha
        self.smoothness = self._record_smoothness + self.gradient_bound**2 / self.width + self.alpha
        self._found: tuple[bytes, float] = (b"", 0.0)  # the last theta, and its threshold

    @property
    def public_facts(self) -> dict[str, object]:
        """Facts about this objective that the certificate of a release must state."""
        return {**self._facts("mean of the worst losses"), "share": self.share, "width": self.width}

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """Return the risk of the worst share and its gradient: passes that find the threshold,
        and one that sums.
        """
        theta = np.asarray(theta, dtype=np.float64)
        threshold = self.threshold(theta)
        width = self.width

        def part(block: Array, slopes: Array, u: Array, v: Array) -> Sums:
            return (v * expit(u) * slopes) @ block, width * float(v @ np.logaddexp(0.0, u))

        gradient, excess = self._sum(theta, threshold, part)
        return self._value(threshold + excess / self._worst, theta), self._gradient(
            gradient / self._worst, theta
        )

    def hessian(self, theta: npt.ArrayLike) -> Array:
        """Hessian of the risk of the worst share."""
        theta = np.asarray(theta, dtype=np.float64)
        threshold = self.threshold(theta)
        width = self.width
        loss = self.loss

        def part(block: Array, y: Array, w: Array, z: Array, v: Array) -> Sums:
            slopes = w * loss.gradient(y, z)
            weights = expit((w * loss.value(y, z) - threshold) / width)
            bends = v * weights * (1 - weights) / width
            curvature = v * weights * np.maximum(w * loss.curvature(y, z), 0.0)
            return (
                block_gram(block, curvature + bends * slopes**2),
                (bends * slopes) @ block,
                float(bends.sum()),
            )

        second, pull, bend = self._sum_records(theta, part)
        if threshold > 0 and bend > 0:
            second = second - np.outer(pull, pull / bend)
        return self._hessian(second / self._worst)

    def threshold(self, theta: npt.ArrayLike) -> float:
        """Return the risk's best threshold: the root of ``sum_i s'(l_i - t) = k``, or 0 if losses
        are few or small.

        At ``t = T + width log(n / k)``, T at least the largest loss, every weight is at most
        ``k / n``.
        """
        theta = np.asarray(theta, dtype=np.float64)
        if self._found[0] == theta.tobytes():
            return self._found[1]

        def part(block: Array, slopes: Array, u: Array, v: Array) -> Sums:
            weights = expit(u)
            return float(v @ weights), float(v @ (weights * (1 - weights))) / self.width

        def excess(t: float) -> tuple[float, float]:
            weight, fall = self._sum(theta, t, part)
            return weight - self._worst, fall

        largest = self._loss_at_zero + self.gradient_bound * float(np.linalg.norm(theta))
        high = largest + self.width * math.log(max(1.0, self._share / self.share))
        close = 4 * UNIT * self._worst
        t = find_risk_threshold(
            excess, high, self.width, lambda t: close * (1 + t / self.width), guess=self._found[1]
        )
        self._found = (theta.tobytes(), t)
        return t

    def rounding_allowance(self, theta: npt.ArrayLike) -> float:
        """Bound the norm of the floating-point error of the worst share's risk `gradient` at theta.

        Margins, slopes and losses err as in `TiltedObjective.rounding_allowance`. A weight turns by
        its part ``e / width`` with an error e of its loss, and so do all weights together at a
        fixed threshold. An error of the threshold moves all weights to one side: together by what
        their sum differs from 1, which the search leaves at ``4 (1 + t / width)`` roundings, the
        errors of weights and those of their sum.
        """
        row_map = self.rows.row_map
        loss = self.loss
        size = float(np.linalg.norm(theta))
        bound = self.gradient_bound
        slopes = loss.smoothness * (
            (self.dim + 10) * row_map.weighted_square * size + 4 * row_map.weighted_norm
        )
        losses = loss.lipschitz * ((self.dim + 10) * row_map.weighted_norm * size + 4)
        losses += LOSS_ULPS * (self._loss_at_zero + bound * size)
        weights = 2 * losses / self.width + 2 * (self.rows.additions + 8) + 8
        more = max(1.0, self._share / self.share)
        weights += 8 * (self._loss_at_zero + bound * size) / self.width + 8 * math.log(more)
        return float(1.01 * UNIT * (slopes + (LOSS_ULPS + weights) * bound + 3 * self.alpha * size))

    def _sum(
        self, theta: Array, threshold: float, part: Callable[[Array, Array, Array, Array], Sums]
    ) -> Any:
        """Sum ``part(block, slopes, (l - t) / width, weights outside of losses)`` for the worst
        share's risk.
        """
        loss = self.loss
        width = self.width

        def whole(block: Array, y: Array, w: Array, z: Array, v: Array) -> Sums:
            return part(
                block, w * loss.gradient(y, z), (w * loss.value(y, z) - threshold) / width, v
            )

        return self._sum_records(theta, whole)


class TopRankObjective(RidgeObjective):
    r"""Mean loss of positive records below the mean of the K largest negative scores, with a ridge.

    ``F(theta) = (1/N+) sum_{positive i} c(x_i . theta - T(theta)) + (alpha/2) ||theta||^2`` with
    ``N+ = max(n+, min_positive)`` and ``T(theta) = min_t [t + (1/K) sum_{negative j} s(x_j . theta
    - t) + 2 s(-t)]``, ``s(u) = width log(1 + exp(u / width))``: the smoothed mean of the
    ``K = top`` largest scores of negative records and of 2K public ones at 0. A list is then read
    from its top, and positive records should come first.

    Parameters
    ----------
    X : array of shape (n, d), MemoryRows or another engine
        Rows; longer ones than ``row_norm`` are shortened, and ones with invalid values are rows of
        zeros. An engine holds mapped rows without constant column, and targets 0 of ignored rows,
        which count in n and nowhere else.
    y : array of shape (n,), or None for an engine
        Labels; above 0 is positive.
    loss : Loss
        Smooth margin loss that never increases.
    row_norm, alpha, top, min_positive, width
        As in :class:`~dpconvex.privacy.bounds.ranking.TopRankBounds`.

    Notes
    -----
    Privacy: pass it to :class:`~dpconvex.mechanisms.OutputPerturbation` with bounds of the same
    constants.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.mechanisms import OutputPerturbation
    >>> from dpconvex.privacy import GaussianDP, TopRankBounds
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 5000)
    >>> X = rng.uniform(-0.5, 0.5, (5000, 2)) + np.outer(y, [0.3, 0.0])
    >>> public = {
    ...     "loss": Logistic(),
    ...     "row_norm": 1.0,
    ...     "top": 500,
    ...     "min_positive": 1000,
    ...     "alpha": 0.05,
    ... }
    >>> certificate = OutputPerturbation().certify(
    ...     TopRankBounds(5000, 2, **public), GaussianDP(1.0)
    ... )
    >>> score = OutputPerturbation().release(TopRankObjective(X, y, **public), certificate)
    >>> score.shape
    (2,)
    """

    def __init__(
        self,
        X: npt.ArrayLike | DaskRows | MemoryRows,
        y: npt.ArrayLike | None,
        loss: Loss,
        row_norm: float,
        top: int,
        min_positive: int,
        alpha: float,
        width: float = 0.05,
    ) -> None:
        if y is None:
            rows = cast("DaskRows | MemoryRows", X)
        else:
            raw = np.array(X, dtype=np.float64)
            raw[~np.isfinite(raw).all(axis=1)] = (
                0.0  # a fixed row: an error would depend on the data
            )
            # A little shorter than the bound, so that rounding does not exceed it.
            shortened = RowMap(raw.shape[1], (1 - 1e-14) * float(row_norm), fit_intercept=False)
            rows = MemoryRows(raw, np.where(np.asarray(y) > 0, 1.0, -1.0), shortened)
        super().__init__(rows.dim, alpha)
        self.rows = rows
        self.n_rows = rows.n_rows
        self.loss = loss
        self.row_norm = float(row_norm)
        self.width = float(width)
        self.top = int(top)
        self.min_positive = int(min_positive)
        self._labels = np.concatenate([y for (y,) in rows.each(_signs)])
        self._count = max(int((self._labels > 0).sum()), self.min_positive)
        self.gradient_bound = float(loss.lipschitz) * 2 * self.row_norm  # slope D
        # c'' D^2 + slope B^2 / width + alpha
        bend = float(loss.lipschitz) * self.row_norm**2 / self.width
        self.smoothness = float(loss.smoothness) * (2 * self.row_norm) ** 2 + bend + self.alpha

    @property
    def public_facts(self) -> dict[str, object]:
        """Facts about this objective that the certificate of a release must state."""
        own = {
            "row_norm": self.row_norm,
            "top": self.top,
            "min_positive": self.min_positive,
            "width": self.width,
        }
        objective = "losses below the top negative scores"
        return {
            "objective": objective,
            "loss": self.loss,
            "alpha": self.alpha,
            "n_features": self.dim,
            **own,
        }

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """Return the top-rank objective and its gradient: a pass for the scores, and one that
        sums.
        """
        theta = np.asarray(theta, dtype=np.float64)
        found = self._top_level(theta)
        value = float(np.sum(self.loss.value(1.0, found.margins))) / self._count
        share = -found.pull / self.top

        def multiples(y: Array, z: Array, w: Array) -> tuple[Array]:
            above = share * expit((z - found.threshold) / self.width)
            return (
                np.where(
                    y > 0, self.loss.gradient(1.0, z - found.level), np.where(y < 0, above, 0.0)
                ),
            )

        (gradient,) = self.rows.combine(theta, multiples)
        return self._value(value, theta), self._gradient(gradient / self._count, theta)

    def hessian(self, theta: npt.ArrayLike) -> Array:
        """Hessian of the top-rank objective."""
        theta = np.asarray(theta, dtype=np.float64)
        found = self._top_level(theta)
        width = self.width
        share = -found.pull / self.top  # not negative

        @takes_sparse_blocks
        def part(block: Array, y: Array, w: Array) -> Sums:
            z = block @ theta
            weights = np.where(y < 0, expit((z - found.threshold) / width), 0.0)
            bends = weights * (1 - weights) / width
            curved = np.maximum(self.loss.curvature(1.0, z - found.level), 0.0) * (y > 0)
            gram = block_gram(block, curved + share * bends)
            return gram, curved @ block, float(curved.sum()), weights @ block, bends @ block

        second, first, total, slope, pull = self.rows.sum(part)
        slope = slope / self.top
        turned = np.outer(first, slope)
        second = second - turned - turned.T + total * np.outer(slope, slope)
        if found.bend > 0:  # scores far apart may turn nowhere in floating point
            second -= share * np.outer(pull, pull / found.bend)
        return self._hessian(second / self._count)

    def rounding_allowance(self, theta: npt.ArrayLike) -> float:
        """Bound the norm of the floating-point error of the top-rank `gradient` at theta.

        Scores err by ``(d + 4) B ||theta||`` roundings, the level by as much and by the search for
        t; weights of the level turn with scores over the width; sums of n terms err by their
        logarithm (NumPy adds in pairs) or, in products with BLAS, by n roundings.
        """
        size = float(np.linalg.norm(theta))
        scores = (self.dim + 10) * (self.row_norm * size + self.width)
        slopes = 2 * float(self.loss.smoothness) * 2 * self.row_norm * (scores + 4)
        weights = (2 * scores / self.width + self.n_rows + 2 * self.top + 32) * self.gradient_bound
        sums = (LOSS_ULPS + self.n_rows + self.dim) * self.gradient_bound
        return float(1.01 * UNIT * (slopes + weights + sums + 3 * self.alpha * size))

    def _top_level(self, theta: Array) -> _TopRankLevel:
        """Return the top's level T with its derivatives, and the margins of positive records."""
        scores = np.concatenate(
            [z for (z,) in self.rows.each(lambda rows: (rows.predicted(theta).weights,))]
        )
        negative = scores[self._labels < 0]
        t = self._top_threshold(negative)
        width = self.width
        extra = 2 * self.top
        u = (negative - t) / width
        above = float(np.logaddexp(0.0, u).sum()) + extra * float(np.logaddexp(0.0, -t / width))
        level = t + width * above / self.top
        weights = expit(u)
        at_zero = float(expit(-t / width))
        bend = float((weights * (1 - weights)).sum()) + extra * at_zero * (1 - at_zero)
        margins = scores[self._labels > 0] - level
        return _TopRankLevel(
            level, t, bend / width, margins, float(np.sum(self.loss.gradient(1.0, margins)))
        )

    def _top_threshold(self, scores: Array) -> float:
        """Return the threshold t of the top, the root of ``sum_j s'(score_j - t) + 2K s'(-t) = K``.

        t is at least 0, where the public records alone weigh K, and at most where all weights are K
        over their number.
        """
        total = float(self.top)
        extra = 2.0 * self.top

        def excess(t: float) -> tuple[float, float]:
            weights = expit((scores - t) / self.width)
            at_zero = float(expit(-t / self.width))
            fall = (
                float(np.sum(weights * (1 - weights))) + extra * at_zero * (1 - at_zero)
            ) / self.width
            return float(weights.sum()) + extra * at_zero - total, fall

        high = max(0.0, float(scores.max(initial=0.0))) + self.width * math.log(
            2 + scores.size / total
        )
        return find_risk_threshold(excess, high, self.width, lambda t: 4 * UNIT * total)


class _TopRankLevel(NamedTuple):
    level: float  # T
    threshold: float  # the t that attains it
    bend: float  # sum_j s'' at t, public records included
    margins: Array  # scores of positive records less T
    pull: float  # sum_i c' of positive records; never positive


def _signs(rows: MemoryRows) -> tuple[npt.NDArray[np.int8]]:
    return (np.sign(rows.targets).astype(np.int8),)
