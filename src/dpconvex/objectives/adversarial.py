"""Robust objectives: every row is moved by an adversary before its loss is taken, in closed
form.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import cached_property
from typing import ClassVar, cast

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dpconvex.core.block_products import block_gram, moved_block_gram, takes_sparse_blocks
from dpconvex.core.checks import parameter_error
from dpconvex.core.pointwise_losses import Kind, Loss, PointwiseLoss
from dpconvex.core.rows import Rows, Sums
from dpconvex.engine.compensated_kernels import CompensatedBlockSum
from dpconvex.objectives import adversary_sets
from dpconvex.objectives.adversary_sets import Shape
from dpconvex.objectives.empirical import empirical_slopes_with_error
from dpconvex.objectives.objective import (
    LOSS_ULPS,
    UNIT,
    RowObjective,
    exact_difference,
    exact_objective_margins,
)
from dpconvex.types import Array

_FAR = 1e3  # where a loss that falls or rises forever is taken to be least
_NEWTON_STEPS = 60


class AdversarialRowsObjective(RowObjective):
    """An objective over rows that an adversary moves by ``radius`` times a set, the intercept
    apart.

    Parameters
    ----------
    rows, loss, alpha, divisor
        Mapped rows, pointwise loss, ridge (of the intercept too), and the public N (the number of
        records by default).
    radius : float
        How far the adversary moves a row, in mapped units.
    norm : {"l2", "linf", "l1", "box", "hull"}
        Norm of the radius, or the set that it multiplies
        (:mod:`~dpconvex.objectives.adversary_sets`).
    width : float
        Width of the smoothing of the set's support function M.
    shape : tuple, optional
        Half-widths of a box, or vectors of a hull.
    """

    kind: ClassVar[str]  # the name in a certificate
    loss_kind: ClassVar[Kind]

    def __init__(
        self,
        rows: Rows,
        loss: Loss,
        alpha: float,
        radius: float,
        norm: str = "l2",
        width: float = 0.01,
        divisor: float | None = None,
        shape: Shape | None = None,
    ) -> None:
        owner = type(self).__name__
        example = {"margin": "Logistic()", "residual": "Huber(0.2)"}[self.loss_kind]
        needed = PointwiseLoss if self.loss_kind == "residual" else Loss
        if not isinstance(loss, needed) or loss.kind != self.loss_kind:
            raise parameter_error(
                "loss", owner, f"a {self.loss_kind} loss, such as {example}", type(loss).__name__
            )
        if norm not in ("l2", "linf", "l1", "box", "hull"):
            raise parameter_error("norm", owner, "'l2', 'linf', 'l1', 'box' or 'hull'", repr(norm))
        super().__init__(rows, loss, alpha, divisor)
        self.radius = float(radius)
        self.width = float(width)
        self.norm = norm
        self.shape = shape
        self._lead = int(rows.row_map.fit_intercept)
        # sup ||gradient of M||
        self._support_length = adversary_sets.adversary_set_length(
            norm, self.dim - self._lead, shape
        )
        self.perturbation_norm = self.radius * self._support_length
        longest = self.rows.row_map.weighted_norm + self.perturbation_norm
        self.gradient_bound = float(self._share * loss.lipschitz * longest)  # of the mean of losses

    @property
    def public_facts(self) -> dict[str, object]:
        """Facts about this objective that the certificate of a release must state."""
        own = {"radius": self.radius, "norm": self.norm, "width": self.width, "shape": self.shape}
        return {**self._facts(self.kind), **own}

    @property
    def _support_curvature(self) -> float:
        """``sup ||Hessian of M||``."""
        return self._support_length**2 / self.width

    def _adversary(self, theta: Array) -> tuple[float, Array, Array]:
        """Return by how much the adversary moves a score at most, with gradient and Hessian in
        theta.
        """
        smoothed = self.norm, self.width, self.shape
        taken, slope, bend = adversary_sets.smoothed_adversary_support(
            theta[self._lead :], *smoothed
        )
        gradient = np.zeros(self.dim)
        hessian = np.zeros((self.dim, self.dim))
        gradient[self._lead :] = slope
        hessian[self._lead :, self._lead :] = bend
        return self.radius * taken, self.radius * gradient, self.radius * hessian


class AdversarialObjective(AdversarialRowsObjective):
    r"""Mean of worst-case margin losses with a ridge.

    ``F(theta) = (1/N) sum_i w_i c(y_i x~_i . theta - radius M(theta)) + (alpha/2) ||theta||^2``
    with M the smoothed dual norm of the coefficients without the intercept
    (:mod:`dpconvex.objectives.adversary_sets`) and ``N = divisor``. Up to the smoothing this is
    ``max c(y_i (x~_i + v_i) . theta)`` over ``||v_i|| <= radius``, because c never increases: the
    worst perturbation points against the label, the same for all rows with one label.

    Parameters are those of :class:`AdversarialRowsObjective`, with a smooth margin loss that never
    increases in ``y z``. Labels other than -1 and +1 are clipped to [-1, 1].
    """

    kind = "mean of losses of moved rows"
    loss_kind = "margin"

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """Adversarial F and its gradient ``(1/N) sum_i w_i c'_i (x~_i - y_i radius grad M) +
        alpha theta``.
        """
        theta = np.asarray(theta, dtype=np.float64)
        loss = self.loss
        taken, slope, _ = self._adversary(theta)

        def part(y: Array, z: Array, w: Array) -> Sums:
            z = z - y * taken  # y (z - y taken) = y z - taken
            slopes = w * loss.gradient(y, z)
            return slopes, float(slopes @ y), float(w @ loss.value(y, z))

        total, pull, value = self.rows.combine(theta, part)
        return self._value(value / self.divisor, theta), self._gradient(
            (total - pull * slope) / self.divisor, theta
        )

    def hessian(self, theta: npt.ArrayLike) -> Array:
        """Adversarial Hessian ``(1/N) sum w [c'' v v^T - c' y radius M''] + alpha I``,
        ``v = x~ - y radius M'``.
        """
        theta = np.asarray(theta, dtype=np.float64)
        loss = self.loss
        taken, slope, bend = self._adversary(theta)

        @takes_sparse_blocks
        def part(block: Array, y: Array, w: Array) -> Sums:
            z = block @ theta - y * taken
            moved = moved_block_gram(block, np.maximum(w * loss.curvature(y, z), 0.0), -y, slope)
            return moved, float((w * loss.gradient(y, z)) @ y)

        second, pull = self.rows.sum(part)
        return self._hessian((second - pull * bend) / self.divisor)

    def rounding_allowance(self, theta: npt.ArrayLike) -> float:
        """Bound the norm of the floating-point error of the adversarial `gradient` at theta.

        As in `EmpiricalObjective.rounding_allowance`, with the adversary's share of a margin, at
        most ``reach ||theta||``, computed within ``dim + 10`` roundings of its size, and its part
        of the gradient within as many of its own. Labels have size 1.
        """
        row_map = self.rows.row_map
        loss = self.loss
        reach = self.perturbation_norm
        size = float(np.linalg.norm(theta))
        # sup w ||x~|| (||x~|| + reach) and alike, from the bounds of w ||x~||^2 and w ||x~||
        square = row_map.weighted_square + 2 * row_map.weighted_norm * reach + reach**2
        margins = (self.dim + 10) * square * size + 4 * (row_map.weighted_norm + reach)
        slopes = self._share * loss.smoothness * margins + LOSS_ULPS * self.gradient_bound
        sums = (self.rows.additions + self.dim + 20) * self.gradient_bound
        return float(
            1.01 * UNIT * (slopes + sums + 3 * self.alpha * size)
        ) + self._adversary_turning_error(size)

    def _adversary_turning_error(self, size: float) -> float:
        """Bound what rounding of an adversary's hull products ``v . c`` adds: M' turns by
        ``g^2 / width``.

        The other sets' gradients are quotients, computed within a few roundings of themselves.
        """
        if self.norm not in ("l1", "hull"):
            return 0.0
        pull = self._share * float(self.loss.lipschitz) * self.radius
        return 1.01 * UNIT * (self.dim + 20) * pull * self._support_length**2 / self.width * size

    def refined_gradient(
        self, theta: npt.ArrayLike, offset: npt.ArrayLike | None = None
    ) -> tuple[Array, float]:
        """Return the adversarial gradient at ``theta + offset`` to twice the digits, and a bound on
        its error.

        What the adversary takes is computed with 60 decimal digits; the rest is as in
        `EmpiricalObjective.refined_gradient`.
        """
        theta, shift, size, moved, tail = self._refined_point(theta, offset)
        _, slope, _ = self._adversary(theta + shift)
        taken, left = self._adversary_takes(theta, shift)
        loss = self.loss
        reach = self.perturbation_norm

        def adversarial_gradient_part(block: Array, y: Array, w: Array) -> Sums:
            z, correction = exact_objective_margins(block, theta)
            correction += block @ shift - y * left
            lengths = np.sqrt(np.einsum("ij,ij->i", block, block))
            z = exact_difference(z, y * taken, -correction)  # exact products: labels are -1 and +1
            slopes, errors = empirical_slopes_with_error(
                loss, y, z, 4 * UNIT * (1.0 + np.abs(z)) + tail * lengths
            )
            weights = w * (lengths + reach)
            sums = CompensatedBlockSum(w * slopes, np.column_stack([block, y]))
            return sums, weights @ np.abs(slopes), weights @ errors

        sums, terms, errors = self.rows.sum(adversarial_gradient_part)
        total = sums.value[:-1]
        pull = float(sums.value[-1])
        gradient = self._gradient((total - pull * slope) / self.divisor, theta) + self.alpha * shift
        roundings = (self.dim + 20) * float(terms) / self.divisor + 4 * self.alpha * (size + moved)
        error = float(1.01 * (float(errors) / self.divisor + UNIT * roundings))
        return gradient, error + self._adversary_turning_error(size + moved)

    def _adversary_takes(self, theta: Array, shift: Array) -> tuple[float, float]:
        with localcontext() as context:
            context.prec = 60
            pairs = zip(theta[self._lead :].tolist(), shift[self._lead :].tolist(), strict=True)
            whole = [Decimal(a) + Decimal(b) for a, b in pairs]
            norm = adversary_sets.exact_adversary_support(
                whole, self.norm, Decimal(self.width), self.shape
            )
            exact = Decimal(self.radius) * norm
            high = float(exact)
            return high, float(exact - Decimal(high))


class AdversarialResidualObjective(AdversarialRowsObjective):
    r"""Mean of worst-case residual losses with a ridge.

    An adversary who adds v of ``radius S`` to a row changes its residual ``r = y - x~ . theta`` by
    anything up to ``h = radius M(theta)``, M the support function of S (symmetric) without the
    intercept. For a convex loss c with its minimum at ``u``, whatever its shape,

        max_v c(r - v . theta) = max(c(r + h), c(r - h)) = max(up(r + h), down(r - h)),
        up(s) = c(max(s, u)),   down(s) = c(min(s, u)),

    of which ``up`` rises and ``down`` falls, so that both terms are convex in theta. The objective
    is

        F(theta) = (1/N) sum_i w_i width log(exp(up_i / width) + exp(down_i / width)) + (alpha/2)
        ||theta||^2,

    with M smoothed over the width, too. With p the softmax weight of ``up``, ``a = p up'`` and
    ``b = -(1 - p) down'`` the gradient of a record is ``(b - a) x~ + (a + b) radius grad M``.

    Parameters are those of :class:`AdversarialRowsObjective`, with a smooth residual loss of
    bounded slope. Targets are clipped to [-1, 1].

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
    loss_kind = "residual"

    @cached_property
    def _least(self) -> float:
        return adversarial_loss_minimiser(cast(PointwiseLoss, self.loss))

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """Return the adversarial risk of residuals and its gradient, in one pass."""
        theta = np.asarray(theta, dtype=np.float64)
        wide, slope, _ = self._adversary(theta)

        def part(y: Array, z: Array, w: Array) -> Sums:
            up, down, a, b, _, _ = self._adversarial_sides(y, z, wide)
            value = self.width * np.logaddexp(up / self.width, down / self.width)
            return w * (b - a), float(w @ (a + b)), float(w @ value)

        total, pull, value = self.rows.combine(theta, part)
        return self._value(value / self.divisor, theta), self._gradient(
            (total + pull * slope) / self.divisor, theta
        )

    def hessian(self, theta: npt.ArrayLike) -> Array:
        r"""Hessian of the adversarial risk of residuals.

        Of a record: ``p up'' m m^T + (1 - p) down'' k k^T + (a + b) radius M'' + p (1 - p) e e^T /
        width`` with ``m = x~ - radius M'``, ``k = x~ + radius M'`` and
        ``e = (up' - down') x~ - (up' + down') radius M'``.
        """
        theta = np.asarray(theta, dtype=np.float64)
        wide, slope, bend = self._adversary(theta)

        @takes_sparse_blocks
        def adversarial_hessian_part(block: Array, y: Array, w: Array) -> Sums:
            _, _, a, b, p, (rise, fall, curved_up, curved_down) = self._adversarial_sides(
                y, block @ theta, wide
            )
            ones = np.ones(y.size)
            second = moved_block_gram(block, w * p * curved_up, -ones, slope)
            second = second + moved_block_gram(block, w * (1 - p) * curved_down, ones, slope)
            mixed = w * p * (1 - p) / self.width
            outer = rise - fall
            cross = -(rise + fall)
            second = second + block_gram(block, mixed * outer**2)
            side = (mixed * outer * cross) @ block
            second = second + np.outer(side, slope) + np.outer(slope, side)
            second = second + float(mixed @ cross**2) * np.outer(slope, slope)
            return second, float(w @ (a + b))

        second, pull = self.rows.sum(adversarial_hessian_part)
        return self._hessian((second + pull * bend) / self.divisor)

    def rounding_allowance(self, theta: npt.ArrayLike) -> float:
        """Bound the norm of the floating-point error of the adversarial `gradient` at theta.

        As in `AdversarialObjective.rounding_allowance` with targets of size at most 1; the softmax
        weight turns with the two values over the width, which adds to the curvature
        ``lipschitz^2 / width``, and errs by the roundings of values, at most
        ``lipschitz (1 + (||x~|| + reach) ||theta||)``, over it.
        """
        row_map = self.rows.row_map
        loss = self.loss
        reach = self.perturbation_norm
        size = float(np.linalg.norm(theta))
        square = row_map.weighted_square + 2 * row_map.weighted_norm * reach + reach**2
        longest = row_map.weighted_norm + reach
        margins = (self.dim + 10) * square * size + 4 * longest
        turned = loss.smoothness + loss.lipschitz**2 / self.width
        values = LOSS_ULPS * loss.lipschitz / self.width * (1 + abs(self._least) + longest * size)
        slopes = self._share * turned * margins + (LOSS_ULPS + values) * self.gradient_bound
        sums = (self.rows.additions + self.dim + 20) * self.gradient_bound
        turning = (self.dim + 20) * self._share * loss.lipschitz * self.radius
        turning *= self._support_curvature * size + self._support_length
        return float(1.01 * UNIT * (slopes + sums + turning + 3 * self.alpha * size))

    def _adversarial_sides(
        self, y: Array, z: Array, wide: float
    ) -> tuple[Array, Array, Array, Array, Array, tuple[Array, Array, Array, Array]]:
        """Return losses of residuals that the adversary moves up and down, a, b, p, and their
        slopes and curvatures.
        """
        residual = np.clip(y, -1.0, 1.0) - z
        high = np.maximum(residual + wide, self._least)
        low = np.minimum(residual - wide, self._least)
        loss = cast(PointwiseLoss, self.loss)
        up = loss.value_at(high)
        down = loss.value_at(low)
        rise = np.maximum(loss.slope_at(high), 0.0)
        fall = np.minimum(loss.slope_at(low), 0.0)
        p = expit((up - down) / self.width)
        # Beyond the minimum the clipped side is constant.
        bent_up = np.where(
            residual + wide > self._least, np.maximum(loss.curvature_at(high), 0.0), 0.0
        )
        bent_down = np.where(
            residual - wide < self._least, np.maximum(loss.curvature_at(low), 0.0), 0.0
        )
        return up, down, p * rise, -(1 - p) * fall, p, (rise, fall, bent_up, bent_down)


def adversarial_loss_minimiser(loss: PointwiseLoss) -> float:
    """Return a residual at which an adversarial loss is least; ``±1000`` if it falls or rises
    all the way.
    """
    low = -_FAR
    high = _FAR
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


class CostlyAdversaryObjective(RowObjective):
    r"""Mean of losses against an adversary who pays for moving a row.

    ``G(theta) = (1/N) sum_i w_i max_v [c(y_i (x~_i + v) . theta) - (cost/2) ||v||^2] + (alpha/2)
    ||theta||^2``, ``v`` moving the features but not the intercept. With ``t`` the coefficients
    without the intercept, ``k = ||t||^2 / cost`` and ``m = y x~ . theta``, the best move is along
    ``-y t`` and leaves the margin ``u = m + c'(u) k``, so that

        record c(u) - c'(u)^2 k / 2 gradient c'(u) y x~ + (c'(u)^2 / cost) t Hessian c''(u) / (1 -
        c''(u) k) p p^T + (c'(u)^2 / cost) I_t, p = y x~ + (2 c'(u) / cost) t

    The adversary's problem is strongly concave while ``curvature k < 1``. Minimisers have
    ``||theta||^2 <= R^2 = 2 c(0) / alpha``, and ``cost >= 2 curvature R^2`` is asked for, so that
    this holds with room.

    Parameters
    ----------
    rows, loss, alpha, divisor
        As for :class:`AdversarialObjective`.
    cost : float
        Price of a perturbation.
    """

    def __init__(
        self, rows: Rows, loss: Loss, alpha: float, cost: float, divisor: float | None = None
    ) -> None:
        super().__init__(rows, loss, alpha, divisor)
        self.cost = float(cost)
        self._lead = int(rows.row_map.fit_intercept)
        share = max(1.0, self._share)
        self.radius = math.sqrt(2 * share * float(loss.value(1.0, 0.0)) / self.alpha)
        least = 2 * loss.smoothness * self.radius**2 / share
        if not self.cost >= least:
            raise ValueError(
                f"The 'cost' parameter of CostlyAdversaryObjective must be at least {least:.4g} "
                f"here, so that the adversary's problem is concave. Got {cost!r} instead. Use a "
                "larger cost or alpha."
            )
        # No row is moved further than slope R / cost at a minimiser; the bound holds on the ball of
        # minimisers.
        self.reach = float(loss.lipschitz * self.radius / self.cost)
        self.gradient_bound = float(
            self._share * loss.lipschitz * (self.rows.row_map.weighted_norm + self.reach)
        )

    @property
    def public_facts(self) -> dict[str, object]:
        """Facts about this objective that the certificate of a release must state."""
        return {**self._facts("mean of losses of rows moved at a cost"), "cost": self.cost}

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """Return the risk G against an adversary who pays, and its gradient, in one pass."""
        theta = np.asarray(theta, dtype=np.float64)
        moved, k = self._moved(theta)

        def part(y: Array, z: Array, w: Array) -> Sums:
            u = self._worst_adversarial_margin(y * z, k)
            slopes = self.loss.gradient(1.0, u)
            return (
                w * slopes * y,
                float(w @ slopes**2),
                float(w @ (self.loss.value(1.0, u) - 0.5 * k * slopes**2)),
            )

        total, squares, value = self.rows.combine(theta, part)
        gradient = self._gradient((total + squares / self.cost * moved) / self.divisor, theta)
        return self._value(value / self.divisor, theta), gradient

    def hessian(self, theta: npt.ArrayLike) -> Array:
        """Hessian of the risk G against an adversary who pays."""
        theta = np.asarray(theta, dtype=np.float64)
        moved, k = self._moved(theta)

        @takes_sparse_blocks
        def costly_adversary_part(block: Array, y: Array, w: Array) -> Sums:
            u = self._worst_adversarial_margin(y * (block @ theta), k)
            slopes = self.loss.gradient(1.0, u)
            curvature = np.maximum(self.loss.curvature(1.0, u), 0.0)
            factors = w * curvature / (1 - curvature * k)
            # Rows y x + (2 / cost) slope theta, up to the sign of y.
            return moved_block_gram(block, factors, 2 / self.cost * slopes * y, moved), float(
                w @ slopes**2
            )

        second, squares = self.rows.sum(costly_adversary_part)
        diagonal = np.full(self.dim, squares / self.cost)
        diagonal[: self._lead] = 0.0
        return self._hessian((second + np.diag(diagonal)) / self.divisor)

    def rounding_allowance(self, theta: npt.ArrayLike) -> float:
        """Bound the floating-point error of the adversarial `gradient`; infinite beyond the ball of
        minimisers.

        A margin ``u`` solves ``u - c'(u) k = m`` with slope at least 1/2, so errors of m and of the
        equation's terms are at most doubled; the rest is as in
        `EmpiricalObjective.rounding_allowance`.
        """
        size = float(np.linalg.norm(theta))
        if size > 1.2 * self.radius:
            return math.inf
        row_map = self.rows.row_map
        loss = self.loss
        share = self._share
        norm = row_map.weighted_norm + 2 * self.reach
        terms = 64 + 8 * loss.lipschitz * size**2 / self.cost
        margins = 2 * ((self.dim + 10) * row_map.weighted_square * size + terms * norm)
        margins += 2 * (self.dim + 10) * row_map.weighted_norm * 2 * self.reach * size
        bound = share * loss.lipschitz * norm
        slopes = share * loss.smoothness * margins + LOSS_ULPS * bound
        sums = (self.rows.additions + self.dim + 20) * bound
        return float(1.01 * UNIT * (slopes + sums + 3 * self.alpha * size))

    def _moved(self, theta: Array) -> tuple[Array, float]:
        """Return the coefficients without the intercept, padded, and ``k``; k is capped far from
        any minimiser.
        """
        moved = theta.copy()
        moved[: self._lead] = 0.0
        return moved, min(float(moved @ moved) / self.cost, 0.9 / self.loss.smoothness)

    def _worst_adversarial_margin(self, m: Array, k: float) -> Array:
        """Return the margin that a paying adversary leaves: solve ``u - c'(u) k = m`` within
        ``[m - slope k, m]``.
        """
        low = m - self.loss.lipschitz * k
        high = m.copy()
        u = m + k * self.loss.gradient(1.0, m)
        for _ in range(_NEWTON_STEPS):
            excess = u - k * self.loss.gradient(1.0, u) - m
            low = np.where(excess < 0, u, low)
            high = np.where(excess < 0, high, u)
            new = u - excess / (1 - k * self.loss.curvature(1.0, u))
            new = np.where((new < low) | (new > high), 0.5 * (low + high), new)
            if np.all(np.abs(new - u) <= 4 * UNIT * (np.abs(u) + self.loss.lipschitz * k)):
                return np.asarray(new)
            u = new
        return np.asarray(u)
