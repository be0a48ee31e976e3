"""The tilted objective: a soft maximum of losses over rows, plus a ridge."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpconvex.engine.blocks import takes_sparse, weighted_gram
from dpconvex.engine.rows import Rows
from dpconvex.losses.interface import Loss
from dpconvex.objectives.objective import LOSS_ULPS, UNIT, OverRows
from dpconvex.types import Array

__all__ = ["TiltedObjective"]


class _LogSum:
    """Sums of ``v_i exp(a_i)`` times something, kept relative to the largest exponent so that nothing overflows.

    ``excess`` is ``sum_i v_i expm1(a_i - top)``: exact where all exponents nearly agree, as they do for small tilts.
    """

    def __init__(self, exponents: Array, votes: Array) -> None:
        self.top = float(exponents.max(initial=0.0, where=votes > 0))  # losses are never negative
        below = np.where(votes > 0, exponents - self.top, 0.0)
        self.factors = votes * np.exp(below)
        self.count = float(votes.sum())
        self.excess = float(votes @ np.expm1(below))
        self.parts: list[Array | float] = []

    def with_parts(self, *parts: Array | float) -> _LogSum:
        """Keep sums of ``factors * something``; the factors themselves are no longer needed."""
        self.parts = list(parts)
        self.factors = np.empty(0)
        return self

    def __iadd__(self, other: _LogSum) -> _LogSum:
        top = max(self.top, other.top)
        own, theirs = self.top - top, other.top - top
        self.excess = (
            math.exp(own) * self.excess
            + self.count * math.expm1(own)
            + math.exp(theirs) * other.excess
            + other.count * math.expm1(theirs)
        )
        self.parts = [
            math.exp(own) * mine + math.exp(theirs) * more for mine, more in zip(self.parts, other.parts, strict=True)
        ]
        self.count += other.count
        self.top = top
        return self

    @property
    def log_mean(self) -> float:
        """``log((1/n) sum_i v_i exp(a_i))``, n the sum of votes."""
        return self.top + math.log1p(self.excess / self.count)

    @property
    def means(self) -> list[Any]:
        """The parts under softmax weights."""
        return [part / (self.count + self.excess) for part in self.parts]


class TiltedObjective(OverRows):
    r"""Tilted empirical risk with a ridge.

    ``F(theta) = (1/t) log((1/n) sum_i exp(t w_i loss(y_i, x~_i . theta))) + (alpha/2) ||theta||^2 + W(theta)`` with
    ``t = tilt``; for ``t = 0`` the mean of ``w_i loss``. ``W(theta) = (K/2) max(0, ||theta|| - B)^2``, ``B =
    coef_bound`` and ``K = wall``. With softmax weights ``p_i`` of ``t w_i loss_i``, gradients ``g_i`` of
    ``w_i loss_i`` and ``g = sum_i p_i g_i``:

        gradient  g + alpha theta + K max(0, 1 - B / ||theta||) theta
        Hessian   sum_i p_i (w_i loss_i'' x~_i x~_i^T + t g_i g_i^T) - t g g^T + alpha I + W''

    Where people vote, ``sum_i exp(t w_i loss_i)`` becomes ``sum_p (1/m_p) sum_{i of p} exp(t w_i loss_i)``: the loss of
    a person is the log-mean-exp of its rows', in their range and no steeper. Votes of single rows multiply ``w_i``.

    Parameters
    ----------
    rows : MemoryRows or another engine
        Mapped rows, targets and influence weights, which multiply the loss. Targets are clipped to [-1, 1], because
        the range of the losses decides how much one record can weigh.
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
    """

    def __init__(
        self, rows: Rows, loss: Loss, alpha: float, tilt: float, coef_bound: float | None = None, wall: float = 0.0
    ) -> None:
        super().__init__(rows, loss, alpha)
        for name, value in (("tilt", tilt), ("wall", wall)):
            if not value >= 0 or not math.isfinite(value):
                raise ValueError(
                    f"The '{name}' parameter of TiltedObjective must be a finite number >= 0. Got {value!r} instead."
                )
        self.tilt = float(tilt)
        self.coef_bound = math.inf if coef_bound is None else float(coef_bound)
        self.wall = float(wall)

    @property
    def public_facts(self) -> dict[str, object]:
        """What the certificate of a release must say about this objective, too."""
        own = {"tilt": self.tilt, "coef_bound": self.coef_bound, "wall": self.wall}
        return {**self._facts("tilted mean of losses"), **own}

    @property
    def gradient_bound(self) -> float:
        """``L = lipschitz w||x~||``: of one record, and of the data term."""
        return float(self.loss.lipschitz * self.rows.row_map.weighted_norm)

    @property
    def smoothness(self) -> float:
        """``beta + tilt L^2 + alpha + K``."""
        record = self.loss.smoothness * self.rows.row_map.weighted_square
        return float(record + self.tilt * self.gradient_bound**2 + self.alpha + self.wall)

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """F and its gradient, in one pass."""
        theta = np.asarray(theta, dtype=np.float64)
        sums = self._sum(theta)
        gradient, loss = sums.means
        data = sums.log_mean / self.tilt if self.tilt > 0 else float(loss)
        size = float(np.linalg.norm(theta))
        beyond = max(0.0, size - self.coef_bound)
        push = self.wall * beyond / max(size, 1e-300) * theta
        value = self._value(data + 0.5 * self.wall * beyond**2, theta)
        return value, self._gradient(gradient + push, theta)

    def hessian(self, theta: npt.ArrayLike) -> Array:
        """Hessian of F."""
        theta = np.asarray(theta, dtype=np.float64)
        gradient, _, second = self._sum(theta, with_hessian=True).means
        second = self._hessian(second - self.tilt * np.outer(gradient, gradient))
        size = float(np.linalg.norm(theta))
        if size > self.coef_bound and self.wall > 0:
            axis, share = theta / size, 1 - self.coef_bound / size
            second += self.wall * (share * np.eye(self.dim) + (1 - share) * np.outer(axis, axis))
        return second

    def rounding_allowance(self, theta: npt.ArrayLike) -> float:
        """Bound the norm of the floating-point error of `gradient` at theta.

        Margins and slopes err as in `EmpiricalObjective.rounding_allowance`, with targets of size at most 1. An
        exponent ``a = t w loss`` then errs by at most ``t w lipschitz e`` for the margin's error ``e``, plus 16
        roundings of its own size, which is at most ``t (w loss(0) + L ||theta||)``; the weights and their sum err by
        as much relatively, twice, and by the roundings of the sum. The wall's part errs with the length of theta.
        """
        theta = np.asarray(theta, dtype=np.float64)
        row_map, loss = self.rows.row_map, self.loss
        size, bound = float(np.linalg.norm(theta)), self.gradient_bound
        start = float(np.max(loss.value(np.array([1.0, -1.0]), np.zeros(2))))
        slopes = loss.smoothness * ((self.dim + 10) * row_map.weighted_square * size + 4 * row_map.weighted_norm)
        exponents = loss.lipschitz * ((self.dim + 10) * row_map.weighted_norm * size + 4)
        exponents = self.tilt * (exponents + LOSS_ULPS * (start + bound * size))
        roundings = slopes + (LOSS_ULPS + 2 * (self.rows.additions + 8) + 2 * exponents) * bound
        roundings += 3 * self.alpha * size
        if size > 0.999 * self.coef_bound:
            roundings += 2 * (self.dim + 8) * self.wall * size
        return float(1.01 * UNIT * roundings)

    def _sum(self, theta: Array, with_hessian: bool = False) -> _LogSum:
        tilt, loss, shared = self.tilt, self.loss, self.rows.people_vote

        @takes_sparse
        def part(block: Array, y: Array, w: Array, v: Array | None = None) -> tuple[_LogSum]:
            whole = np.ones(y.size)
            w, v = (w, whole) if v is None else (w, v) if shared else (w * v, whole)
            y = np.clip(y, -1.0, 1.0)
            z = block @ theta
            losses, slopes = w * loss.value(y, z), w * loss.gradient(y, z)
            sums = _LogSum(tilt * losses, v)
            factors = sums.factors
            parts: list[Array | float] = [(factors * slopes) @ block, float(factors @ losses)]
            if with_hessian:
                curvature = np.maximum(w * loss.curvature(y, z), 0.0) + tilt * slopes**2
                parts.append(weighted_gram(block, factors * curvature))
            return (sums.with_parts(*parts),)

        (sums,) = self.rows.sum_votes(part) if self.rows.voted else self.rows.sum(part)
        return sums
