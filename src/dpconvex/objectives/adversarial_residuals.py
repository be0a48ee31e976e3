"""The robust objective of regression: every residual is widened by what an adversary can add to it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dpconvex.engine.blocks import moved_gram, takes_sparse, weighted_gram
from dpconvex.engine.rows import Rows, Sums
from dpconvex.losses import PointwiseLoss
from dpconvex.objectives.adversary_sets import Shape, Support
from dpconvex.objectives.moved_rows import OverMovedRows
from dpconvex.objectives.objective import LOSS_ULPS, UNIT
from dpconvex.types import Array

__all__ = ["AdversarialResidualObjective"]


_FAR = 1e3  # where a loss that falls or rises forever is taken to be least


class AdversarialResidualObjective(OverMovedRows):
    r"""Mean of worst-case residual losses with a ridge.

    An adversary who adds v of ``radius S`` to a row changes its residual ``r = y - x~ . theta`` by anything up to ``h =
    radius M(theta)``, M the support function of S (symmetric) without the intercept. For a convex loss c with its
    minimum at ``u``, whatever its shape,

        max_v c(r - v . theta) = max(c(r + h), c(r - h)) = max(up(r + h), down(r - h)),
        up(s) = c(max(s, u)),   down(s) = c(min(s, u)),

    of which ``up`` rises and ``down`` falls, so that both terms are convex in theta. The objective is

        F(theta) = (1/N) sum_i w_i width log(exp(up_i / width) + exp(down_i / width)) + (alpha/2) ||theta||^2,

    with M smoothed over the width, too. With p the softmax weight of ``up``, ``a = p up'`` and ``b = -(1 - p) down'``
    the gradient of a record is ``(b - a) x~ + (a + b) radius grad M``.

    Parameters
    ----------
    rows : MemoryRows or another engine
        Mapped rows, targets, influence weights. Targets are clipped to [-1, 1].
    loss : Loss
        Smooth residual loss of bounded slope.
    alpha : float
        Ridge; it covers the intercept too.
    radius, norm, width, shape, support
        The adversary, as in :class:`~dpconvex.objectives.moved_rows.OverMovedRows`.
    divisor : float, optional
        The public N; the number of records by default.

    Examples
    --------
    A residual of 0 with a slope of 2, moved by 0.1, is one of 0.2:

    >>> from dpconvex.engine import MemoryRows, RowMap
    >>> from dpconvex.losses import Huber
    >>> rows = MemoryRows([[0.5]], [1.0], RowMap(1, 1.0, fit_intercept=False))
    >>> F = AdversarialResidualObjective(rows, Huber(1.0), alpha=0.0, radius=0.1, width=1e-6)
    >>> round(F.value([2.0]), 4)
    0.02
    """

    kind = "mean of residual losses of moved rows"

    def __init__(
        self,
        rows: Rows,
        loss: PointwiseLoss,
        alpha: float,
        radius: float,
        norm: str = "l2",
        width: float = 0.01,
        divisor: float | None = None,
        shape: Shape | None = None,
        support: Support | None = None,
    ) -> None:
        if getattr(loss, "kind", None) != "residual" or not hasattr(loss, "slope_at"):
            raise ValueError(
                "The 'loss' parameter of AdversarialResidualObjective must be a residual loss, such as Huber(0.2). "
                f"Got {type(loss).__name__} instead."
            )
        super().__init__(rows, loss, alpha, radius, norm, width, divisor, shape, support)
        self._loss = loss
        self._least = least_at(loss)

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """F and its gradient, in one pass."""
        theta = np.asarray(theta, dtype=np.float64)
        wide, slope, _ = self._adversary(theta)

        def part(y: Array, z: Array, w: Array) -> Sums:
            up, down, a, b, _, _ = self._sides(y, z, wide)
            value = self.width * np.logaddexp(up / self.width, down / self.width)
            return w * (b - a), float(w @ (a + b)), float(w @ value)

        total, pull, value = self.rows.combine(theta, part)
        gradient = self._gradient((total + pull * slope) / self.divisor, theta)
        return self._value(value / self.divisor, theta), gradient

    def hessian(self, theta: npt.ArrayLike) -> Array:
        r"""Hessian of F.

        Of a record: ``p up'' m m^T + (1 - p) down'' k k^T + (a + b) radius M'' + p (1 - p) e e^T / width`` with
        ``m = x~ - radius M'``, ``k = x~ + radius M'`` and ``e = (up' - down') x~ - (up' + down') radius M'``.
        """
        theta = np.asarray(theta, dtype=np.float64)
        wide, slope, bend = self._adversary(theta)

        @takes_sparse
        def part(block: Array, y: Array, w: Array) -> Sums:
            _, _, a, b, p, (rise, fall, curved_up, curved_down) = self._sides(y, block @ theta, wide)
            ones = np.ones(y.size)
            second = moved_gram(block, w * p * curved_up, -ones, slope)
            second = second + moved_gram(block, w * (1 - p) * curved_down, ones, slope)
            mixed = w * p * (1 - p) / self.width
            outer, cross = rise - fall, -(rise + fall)
            second = second + weighted_gram(block, mixed * outer**2)
            side = (mixed * outer * cross) @ block
            second = second + np.outer(side, slope) + np.outer(slope, side)
            second = second + float(mixed @ cross**2) * np.outer(slope, slope)
            return second, float(w @ (a + b))

        second, pull = self.rows.sum(part)
        return self._hessian((second + pull * bend) / self.divisor)

    def rounding_allowance(self, theta: npt.ArrayLike) -> float:
        """Bound the norm of the floating-point error of `gradient` at theta.

        As in `AdversarialObjective.rounding_allowance` with targets of size at most 1; the softmax weight turns with
        the two values over the width, which adds to the curvature ``lipschitz^2 / width``, and errs by the roundings
        of values, at most ``lipschitz (1 + (||x~|| + reach) ||theta||)``, over it.
        """
        theta = np.asarray(theta, dtype=np.float64)
        row_map, loss, reach = self.rows.row_map, self.loss, self.adversary_reach
        size = float(np.linalg.norm(theta))
        square = row_map.weighted_square + 2 * row_map.weighted_norm * reach + reach**2
        longest = row_map.weighted_norm + reach
        margins = (self.dim + 10) * square * size + 4 * longest
        turned = loss.smoothness + loss.lipschitz**2 / self.width
        values = LOSS_ULPS * loss.lipschitz / self.width * (1 + abs(self._least) + longest * size)
        slopes = self._share * turned * margins + (LOSS_ULPS + values) * self.gradient_bound
        sums = (self.rows.additions + self.dim + 20) * self.gradient_bound
        unit = self._unit_reach
        bend = float(self.shape[1]) if self.norm == "own" else unit**2 / self.width  # type: ignore[index, arg-type]
        turning = (self.dim + 20) * self._share * loss.lipschitz * self.radius * (bend * size + unit)
        return float(1.01 * UNIT * (slopes + sums + turning + 3 * self.alpha * size))

    def _sides(
        self, y: Array, z: Array, wide: float
    ) -> tuple[Array, Array, Array, Array, Array, tuple[Array, Array, Array, Array]]:
        """Return up, down, a, b, p, and the slopes and curvatures of up and down."""
        residual = np.clip(y, -1.0, 1.0) - z
        high = np.maximum(residual + wide, self._least)
        low = np.minimum(residual - wide, self._least)
        loss = self._loss
        up, down = loss.value_at(high), loss.value_at(low)
        rise = np.maximum(loss.slope_at(high), 0.0)
        fall = np.minimum(loss.slope_at(low), 0.0)
        p = expit((up - down) / self.width)
        # Beyond the minimum the clipped side is constant.
        bent_up = np.where(residual + wide > self._least, np.maximum(loss.curvature_at(high), 0.0), 0.0)  # fmt: skip
        bent_down = np.where(residual - wide < self._least, np.maximum(loss.curvature_at(low), 0.0), 0.0)  # fmt: skip
        return up, down, p * rise, -(1 - p) * fall, p, (rise, fall, bent_up, bent_down)


def least_at(loss: PointwiseLoss) -> float:
    """Return a residual at which a convex loss is least; ``±1000`` if it falls or rises all the way."""
    low, high = -_FAR, _FAR
    if loss.slope_at(np.array([low]))[0] >= 0:
        return low
    if loss.slope_at(np.array([high]))[0] <= 0:
        return high
    while high - low > 4 * UNIT * max(1.0, abs(low)):
        middle = 0.5 * (low + high)
        if not low < middle < high:
            break
        slope = float(loss.slope_at(np.array([middle]))[0])
        if slope == 0:
            return middle
        low, high = (middle, high) if slope < 0 else (low, middle)
    return 0.5 * (low + high)
