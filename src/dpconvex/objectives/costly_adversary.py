"""The robust objective with a cost on perturbations instead of a radius: a strongly concave adversary."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dpconvex.engine.blocks import moved_gram, takes_sparse
from dpconvex.engine.memory import MemoryRows
from dpconvex.engine.rows import Rows, Sums
from dpconvex.losses.interface import Loss
from dpconvex.objectives.objective import LOSS_ULPS, UNIT, OverRows
from dpconvex.objectives.saddle import SaddleProblem
from dpconvex.types import Array

__all__ = ["CostlyAdversaryObjective"]


_NEWTON_STEPS = 60


class CostlyAdversaryObjective(OverRows):
    r"""Mean of losses against an adversary who pays for moving a row.

    ``G(theta) = (1/N) sum_i w_i max_v [c(y_i (x~_i + v) . theta) - (cost/2) ||v||^2] + (alpha/2) ||theta||^2``, ``v``
    moving the features but not the intercept. With ``t`` the coefficients without the intercept, ``k = ||t||^2 / cost``
    and ``m = y x~ . theta``, the best move is along ``-y t`` and leaves the margin ``u = m + c'(u) k``, so that

        record    c(u) - c'(u)^2 k / 2
        gradient  c'(u) y x~ + (c'(u)^2 / cost) t
        Hessian   c''(u) / (1 - c''(u) k) p p^T + (c'(u)^2 / cost) I_t,   p = y x~ + (2 c'(u) / cost) t

    The adversary's problem is strongly concave while ``curvature k < 1``. Minimisers have
    ``||theta||^2 <= R^2 = 2 c(0) / alpha``, and ``cost >= 2 curvature R^2`` is asked for, so that this holds with room.

    Parameters
    ----------
    rows : MemoryRows or another engine
        Mapped rows, labels -1 and +1 (others are clipped to [-1, 1]), influence weights.
    loss : Loss
        Smooth margin loss that never increases in ``y z``.
    alpha, cost : float
        Ridge, and price of a perturbation.
    divisor : float, optional
        The public N; the number of rows by default.

    Examples
    --------
    >>> from dpconvex.engine import MemoryRows, RowMap
    >>> from dpconvex.losses import Logistic
    >>> rows = MemoryRows([[1.0], [-1.0]], [1.0, -1.0], RowMap(1, 1.0, fit_intercept=False))
    >>> round(CostlyAdversaryObjective(rows, Logistic(), alpha=0.1, cost=10.0).value([1.0]), 6)
    0.366951
    """

    def __init__(self, rows: Rows, loss: Loss, alpha: float, cost: float, divisor: float | None = None) -> None:
        super().__init__(rows, loss, alpha, divisor)
        self.cost = float(cost)
        self._lead = int(rows.row_map.fit_intercept)
        share = max(1.0, self._share)
        self.radius = math.sqrt(2 * share * float(loss.value(1.0, 0.0)) / self.alpha)
        if not self.cost >= 2 * loss.smoothness * self.radius**2 / share:
            least = 2 * loss.smoothness * self.radius**2 / share
            raise ValueError(
                f"The 'cost' parameter of CostlyAdversaryObjective must be at least {least:.4g} here, so that the "
                f"adversary's problem is concave. Got {cost!r} instead. Use a larger cost or alpha."
            )

    @property
    def public_facts(self) -> dict[str, object]:
        """What the certificate of a release must say about this objective, too."""
        return {**self._facts("mean of losses of rows moved at a cost"), "cost": self.cost}

    @property
    def reach(self) -> float:
        """``slope R / cost``: no row is moved further at a minimiser."""
        return float(self.loss.lipschitz * self.radius / self.cost)

    @property
    def gradient_bound(self) -> float:
        """Upper bound of the gradient norm of the mean of losses on the ball that holds minimisers."""
        longest = self.rows.row_map.weighted_norm + self.reach
        return float(self._share * self.loss.lipschitz * longest)

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """G and its gradient, in one pass."""
        theta = np.asarray(theta, dtype=np.float64)
        moved, k = self._moved(theta)

        def part(y: Array, z: Array, w: Array) -> Sums:
            u = self._worst_margin(y * z, k)
            slopes = self.loss.gradient(1.0, u)
            value = self.loss.value(1.0, u) - 0.5 * k * slopes**2
            return w * slopes * y, float(w @ slopes**2), float(w @ value)

        total, squares, value = self.rows.combine(theta, part)
        gradient = self._gradient((total + squares / self.cost * moved) / self.divisor, theta)
        return self._value(value / self.divisor, theta), gradient

    def hessian(self, theta: npt.ArrayLike) -> Array:
        """Hessian of G."""
        theta = np.asarray(theta, dtype=np.float64)
        moved, k = self._moved(theta)

        @takes_sparse
        def part(block: Array, y: Array, w: Array) -> Sums:
            u = self._worst_margin(y * (block @ theta), k)
            slopes = self.loss.gradient(1.0, u)
            curvature = np.maximum(self.loss.curvature(1.0, u), 0.0)
            factors = w * curvature / (1 - curvature * k)
            # Rows y x + (2 / cost) slope theta, up to the sign of y.
            pushed = moved_gram(block, factors, 2 / self.cost * slopes * y, moved)
            return pushed, float(w @ slopes**2)

        second, squares = self.rows.sum(part)
        diagonal = np.full(self.dim, squares / self.cost)
        diagonal[: self._lead] = 0.0
        return self._hessian((second + np.diag(diagonal)) / self.divisor)

    def rounding_allowance(self, theta: npt.ArrayLike) -> float:
        """Bound the norm of the floating-point error of `gradient`; infinite beyond the ball of minimisers.

        A margin ``u`` solves ``u - c'(u) k = m`` with slope at least 1/2, so errors of m and of the equation's terms
        are at most doubled; the rest is as in `EmpiricalObjective.rounding_allowance`.
        """
        theta = np.asarray(theta, dtype=np.float64)
        size = float(np.linalg.norm(theta))
        if size > 1.2 * self.radius:
            return math.inf
        row_map, loss, share = self.rows.row_map, self.loss, self._share
        norm = row_map.weighted_norm + 2 * self.reach
        terms = 64 + 8 * loss.lipschitz * size**2 / self.cost
        margins = 2 * ((self.dim + 10) * row_map.weighted_square * size + terms * norm)
        margins += 2 * (self.dim + 10) * row_map.weighted_norm * 2 * self.reach * size
        bound = share * loss.lipschitz * norm
        slopes = share * loss.smoothness * margins + LOSS_ULPS * bound
        sums = (self.rows.additions + self.dim + 20) * bound
        return float(1.01 * UNIT * (slopes + sums + 3 * self.alpha * size))

    def saddle(self) -> SaddleProblem:
        r"""Return the saddle problem ``min_theta max_v`` itself, for :class:`dpconvex.solvers.MinimaxProximalPoint`.

        The adversary's variables are ``q_i = v_i sqrt(w_i / N)``, one block per row, so that both blocks of the
        Hessian have the same scale. Rows are kept in memory.
        """
        assert isinstance(self.rows, MemoryRows), "the adversary moves rows in memory"
        block, y, w = self.rows.mapped()
        scale = np.sqrt(np.where(w > 0, w, 1.0) / self.divisor)[:, None]
        count, width = len(y), self.dim - self._lead
        loss, cost, lead = self.loss, self.cost, self._lead

        def slopes(theta: Array, q: Array) -> tuple[Array, Array]:
            moves = q.reshape(count, width) / scale
            margins = y * (block @ theta + moves @ theta[lead:])
            return w / self.divisor * loss.gradient(1.0, margins) * y, moves

        def gradient_w(theta: Array, q: Array) -> Array:
            multiples, moves = slopes(theta, q)
            gradient = multiples @ block + self.alpha * theta
            gradient[lead:] += multiples @ moves
            return np.asarray(gradient)

        def gradient_v(theta: Array, q: Array) -> Array:
            multiples, _ = slopes(theta, q)
            return np.asarray((multiples[:, None] / scale * theta[lead:]).ravel() - cost * q)

        longest = self.rows.row_map.weighted_square**0.5 + self.reach
        cross = loss.smoothness * longest * self.radius + loss.lipschitz
        return SaddleProblem(
            dim=self.dim,
            adversary_dim=count * width,
            gradient_w=gradient_w,
            gradient_v=gradient_v,
            strong_convexity=self.alpha,
            strong_concavity=cost - loss.smoothness * self.radius**2,
            smoothness=loss.smoothness * longest**2 + self.alpha + cross + cost,
        )

    def _moved(self, theta: Array) -> tuple[Array, float]:
        """Return the coefficients without the intercept, padded, and ``k``; k is capped far from any minimiser."""
        moved = theta.copy()
        moved[: self._lead] = 0.0
        return moved, min(float(moved @ moved) / self.cost, 0.9 / self.loss.smoothness)

    def _worst_margin(self, m: Array, k: float) -> Array:
        """Solve ``u - c'(u) k = m`` by Newton's method kept within ``[m - slope k, m]``."""
        low, high = m - self.loss.lipschitz * k, m.copy()
        u = m + k * self.loss.gradient(1.0, m)
        for _ in range(_NEWTON_STEPS):
            excess = u - k * self.loss.gradient(1.0, u) - m
            low, high = np.where(excess < 0, u, low), np.where(excess < 0, high, u)
            new = u - excess / (1 - k * self.loss.curvature(1.0, u))
            new = np.where((new < low) | (new > high), 0.5 * (low + high), new)
            if np.all(np.abs(new - u) <= 4 * UNIT * (np.abs(u) + self.loss.lipschitz * k)):
                return np.asarray(new)
            u = new
        return np.asarray(u)
