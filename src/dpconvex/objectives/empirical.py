"""The empirical objective: a mean of weighted losses over rows, plus a ridge."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from dpconvex.core.block_products import block_gram, takes_sparse_blocks
from dpconvex.core.pointwise_losses import Loss
from dpconvex.core.rows import Rows, Sums
from dpconvex.engine.compensated_kernels import CompensatedBlockSum
from dpconvex.losses.scaled_and_clamped import ClampedTargetLoss, DerivedPointwiseLoss
from dpconvex.objectives import objective as objectives
from dpconvex.objectives.objective import LOSS_ULPS, UNIT, LinearTermObjective, RowObjective
from dpconvex.types import Array

Given = TypeVar("Given")

# Functions that are summed over rows refer to what they need and not to the objective: engines may
# send them to other machines, where the linear term (often the noise) has no business.


@dataclass(frozen=True)
class EmpiricalSlope:
    """The function ``(y, z, w) -> (w * loss'(y, z),)`` of a block of rows."""

    loss: Loss

    def __call__(self, y: Array, z: Array, w: Array) -> tuple[Array]:
        """Return the weighted slopes of a block."""
        return (w * self.loss.gradient(y, z),)


@dataclass(frozen=True)
class AveragedEmpiricalLoss(DerivedPointwiseLoss):
    """The loss averaged over margins in ``z ± width``: it guides a solver and is never what is
    certified.
    """

    width: float

    @property
    def smoothness(self) -> float:
        """``min(smoothness, lipschitz / width)`` of the loss."""
        return float(min(self.loss.smoothness, self.loss.lipschitz / self.width))

    def value(self, y: ArrayLike, z: ArrayLike) -> Array:
        """Simpson's rule; the value only guides line searches."""
        low, high = self._ends(z)
        return np.asarray(
            (self.loss.value(y, low) + 4 * self.loss.value(y, z) + self.loss.value(y, high)) / 6
        )

    def gradient(self, y: ArrayLike, z: ArrayLike) -> Array:
        """(loss(z + width) - loss(z - width)) / (2 width)."""
        low, high = self._ends(z)
        return np.asarray((self.loss.value(y, high) - self.loss.value(y, low)) / (2 * self.width))

    def curvature(self, y: ArrayLike, z: ArrayLike) -> Array:
        """(slope(z + width) - slope(z - width)) / (2 width)."""
        low, high = self._ends(z)
        return np.asarray(
            (self.loss.gradient(y, high) - self.loss.gradient(y, low)) / (2 * self.width)
        )

    def _ends(self, z: ArrayLike) -> tuple[Array, Array]:
        z = np.asarray(z)
        return z - self.width, z + self.width


class EmpiricalObjective(LinearTermObjective, RowObjective):
    """Weighted empirical risk with a ridge and a linear term, all in MEAN form.

    ``F(theta) = (1/N) sum_i w_i loss(y_i, x~_i . theta) + (alpha/2) ||theta||^2 + <b, theta>``
    with ``N = divisor`` and ``b = linear``.

    Parameters
    ----------
    rows : MemoryRows or another engine
        Mapped rows x~, targets y and weights w.
    loss : Loss
        Pointwise loss of the margin. For one of ``y z`` targets are clipped to [-1, 1].
    alpha : float
        Ridge; it covers the intercept too.
    divisor : float, optional
        The public N; the number of rows by default. Under ``add_or_remove_one`` the nominal number
        of rows.
    linear : array of shape (dim,), optional
        The vector b, already divided by N; zero by default.

    Examples
    --------
    >>> from dpconvex.engine import MemoryRows, RowMap
    >>> from dpconvex.losses import Logistic
    >>> rows = MemoryRows(np.eye(4), np.array([1.0, -1.0, 1.0, 1.0]), RowMap(4, 1.0))
    >>> objective = EmpiricalObjective(rows, Logistic(), alpha=0.1)
    >>> round(objective.value(np.zeros(objective.dim)), 4), objective.strong_convexity
    (0.6931, 0.1)
    """

    def __init__(
        self,
        rows: Rows,
        loss: Loss,
        alpha: float,
        divisor: float | None = None,
        linear: npt.ArrayLike | None = None,
    ) -> None:
        super().__init__(rows, loss, alpha, divisor)
        self.linear = np.zeros(self.dim) if linear is None else self._checked_linear_term(linear)

    @property
    def public_facts(self) -> dict[str, object]:
        """Facts about this objective that the certificate of a release must state."""
        return {**self._facts("mean of losses"), "linear_term": bool(self.linear.any())}

    @property
    def smoothness(self) -> float:
        """Upper bound of the curvature of F: loss curvature times ``w ||x~||^2``, plus alpha."""
        return self._share * self.loss.smoothness * self.rows.row_map.weighted_square + self.alpha

    @property
    def gradient_bound(self) -> float:
        """Upper bound of the gradient norm of the mean of losses, ``(n/N) lipschitz w||x~||``."""
        return float(self._share * self.loss.lipschitz * self.rows.row_map.weighted_norm)

    @property
    def kink_width(self) -> float:
        """Margin over which the loss turns from one slope to the other; zero for a kinked loss."""
        return float(self.loss.lipschitz / self.loss.smoothness) if self.loss.smoothness else np.inf

    def with_loss(self, loss: Loss) -> EmpiricalObjective:
        """Return the objective with another loss."""
        return EmpiricalObjective(
            self.rows, loss, self.alpha, divisor=self.divisor, linear=self.linear
        )

    def subsample(self, rows: int) -> EmpiricalObjective:
        """Return the same objective on about `rows` rows, rescaled to approximate F."""
        other = copy.copy(self)
        other.rows = self.rows.subsample(rows)
        other.divisor = self.divisor * (other.rows.n_rows / self.rows.n_rows)
        return other

    def smoothed(self, width: float) -> EmpiricalObjective:
        """Return the empirical objective with the loss averaged over margins in ``z ± width``.

        Its curvature sees every kink within `width`: a warm start for Newton's method.
        """
        other = copy.copy(self)
        other.loss = AveragedEmpiricalLoss(self.loss, float(width))
        return other

    def margin_scale(self, theta: Array) -> float:
        """Mean of ``|y| + |z|``: the scale on which the data term of F varies."""
        part = takes_sparse_blocks(lambda block, y, w: (np.abs(block @ theta).sum(),))
        (total,) = self.rows.sum(part)
        return self.rows.mean_target_size + float(total) / max(1, self.n_rows)

    def value(self, theta: npt.ArrayLike) -> float:
        """F(theta)."""
        theta = np.asarray(theta, dtype=np.float64)
        loss = self.loss
        part = takes_sparse_blocks(lambda block, y, w: (w @ loss.value(y, block @ theta),))
        (total,) = self.rows.sum(part)
        return self._value(total / self.divisor, theta)

    def gradient(self, theta: npt.ArrayLike) -> Array:
        """Gradient ``(1/N) sum_i w_i loss'(y_i, z_i) x~_i + alpha theta + b``."""
        theta = np.asarray(theta, dtype=np.float64)
        (total,) = self.rows.combine(theta, EmpiricalSlope(self.loss))
        return self._gradient(total / self.divisor, theta)

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """F and its gradient, in one pass."""
        theta = np.asarray(theta, dtype=np.float64)
        loss = self.loss
        gradient, value = self.rows.combine(
            theta, lambda y, z, w: (w * loss.gradient(y, z), w @ loss.value(y, z))
        )
        return (
            self._value(value / self.divisor, theta),
            self._gradient(gradient / self.divisor, theta),
        )

    def hessian(self, theta: npt.ArrayLike) -> Array:
        """Hessian of the empirical risk,
        ``(1/N) sum_i w_i loss''(y_i, z_i) x~_i x~_i^T + alpha I``.
        """
        theta = np.asarray(theta, dtype=np.float64)
        loss = self.loss

        @takes_sparse_blocks
        def part(block: Array, y: Array, w: Array) -> Sums:
            return (block_gram(block, np.maximum(w * loss.curvature(y, block @ theta), 0.0)),)

        (total,) = self.rows.sum(part)
        return self._hessian(total / self.divisor)

    def hessian_diagonal(self, theta: npt.ArrayLike) -> Array:
        """Diagonal of the empirical Hessian,
        ``(1/N) sum_i w_i loss''(y_i, z_i) x~_ij^2 + alpha``.
        """
        theta = np.asarray(theta, dtype=np.float64)
        loss = self.loss

        def part(block: Array, y: Array, w: Array) -> Sums:
            return (
                np.einsum(
                    "i,ij,ij->j",
                    np.maximum(w * loss.curvature(y, block @ theta), 0.0),
                    block,
                    block,
                ),
            )

        return np.asarray(self.rows.sum(part)[0] / self.divisor + self.alpha)

    def rounding_allowance(self, theta: npt.ArrayLike) -> float:
        """Bound the norm of the floating-point error of the empirical `gradient` at theta.

        With u = 2^-53 and the mapped rows taken as exact:

        - the margin of a row is off by at most ``e = u ((dim + 10) ||x~|| ||theta|| + 4 |y|)``: a
          dot product, then the subtraction or product with y and a division by a bandwidth;
        - its slope is off by at most ``loss.smoothness * e``, plus 16 u ``loss.lipschitz`` for its
          own evaluation;
        - every term ``w slope x~`` then passes through at most ``additions + 4`` roundings of its
          size;
        - division by N and the terms ``alpha theta`` and b add a few roundings of their own.

        Summed over rows with the public bounds of ``w ||x~||`` and ``w ||x~||^2``. Where those
        bounds or the loss's constants are infinite, the slope errors are bounded row by row, by the
        slopes at ``z - e`` and ``z + e``.
        """
        theta = np.asarray(theta, dtype=np.float64)
        row_map = self.rows.row_map
        loss = self.loss
        dim = self.dim
        size = float(np.linalg.norm(theta))
        terms = self.gradient_bound
        margins = (dim + 10) * row_map.weighted_square * size
        margins += 4 * row_map.weighted_norm * self.rows.mean_target_size
        slope_errors = self._share * loss.smoothness * UNIT * margins + LOSS_ULPS * UNIT * terms
        if not np.isfinite(slope_errors):

            def part(block: Array, y: Array, w: Array) -> Sums:
                z = block @ theta
                lengths = np.sqrt(np.einsum("ij,ij->i", block, block))
                error = UNIT * ((dim + 10) * size * lengths + 4 * np.abs(y))
                slopes, errors = empirical_slopes_with_error(loss, y, z, error)
                return (w * lengths) @ np.abs(slopes), (w * lengths) @ errors

            sums = self.rows.sum(part)
            terms = float(sums[0]) / self.divisor
            slope_errors = float(sums[1]) / self.divisor
        return self._allowance(terms, slope_errors, size, self.rows.additions)

    def refined_gradient(
        self, theta: npt.ArrayLike, offset: npt.ArrayLike | None = None
    ) -> tuple[Array, float]:
        """Return the empirical gradient at ``theta + offset`` to twice the digits, and a bound on
        its error's norm.

        The residual ``y - z`` is then right to a few roundings of itself, not of y and z, which
        matters when the bandwidth is tiny against the targets, and the sum is rounded once, which
        matters when there are far more rows than the divisor says. The exact slope of a row lies
        between the slopes at the ends of its error interval, because the loss is convex; the rest
        of the bound is as in `rounding_allowance`. Slower than `gradient`: for final certificates.
        The sum ``theta + offset`` need not be a float64.
        """
        theta, shift, size, moved, tail = self._refined_point(theta, offset)
        loss = self.loss
        clamp = loss.clamp if isinstance(loss, ClampedTargetLoss) else None

        def empirical_gradient_part(block: Array, y: Array, w: Array) -> Sums:
            z, correction = objectives.exact_objective_margins(block, theta)
            correction += block @ shift
            lengths = np.sqrt(np.einsum("ij,ij->i", block, block))
            if clamp is not None:  # before errors are sized: those of a far target would swamp z
                y = clamp(y)
            if loss.kind == "residual":
                y = objectives.exact_difference(y, z, correction)
                z = np.zeros(len(block))
            else:
                z = z + correction
            error = 4 * UNIT * (np.abs(y) + np.abs(z)) + tail * lengths
            slopes, errors = empirical_slopes_with_error(loss, y, z, error)
            return (
                CompensatedBlockSum(w * slopes, block),
                (w * lengths) @ np.abs(slopes),
                (w * lengths) @ errors,
            )

        total, terms, errors = self.rows.sum(empirical_gradient_part)
        per_row = float(terms) / self.divisor, float(errors) / self.divisor
        allowance = self._allowance(*per_row, size + moved, additions=1)
        return self._gradient(total.value / self.divisor, theta) + self.alpha * shift, allowance

    def _allowance(self, terms: float, slope_errors: float, size: float, additions: int) -> float:
        roundings = (additions + 8) * terms + 4 * self.alpha * size
        roundings += 2 * float(np.linalg.norm(self.linear))
        return float(1.01 * (slope_errors + UNIT * roundings))  # 1 % covers products of errors


def empirical_slopes_with_error(
    loss: Loss, y: Array, z: Array, error: Array
) -> tuple[Array, Array]:
    """Return the empirical risk's slopes at margins known up to `error`, and bounds of how wrong
    they may be.
    """
    slopes = loss.gradient(y, z)
    # Two roundings of z on top: z + error is itself rounded.
    error = error + 2 * UNIT * np.abs(z)
    spread = np.abs(loss.gradient(y, z + error) - loss.gradient(y, z - error))
    evaluation = loss.lipschitz if np.isfinite(loss.lipschitz) else np.abs(slopes)
    return slopes, spread + LOSS_ULPS * UNIT * evaluation


def empirical_with_clamped_targets(
    objective: Given, bounds: object, linear_norm: float = 0.0
) -> Given:
    """Return the empirical objective with targets clamped to a public limit, if its bounds are
    those of residuals.

    ``linear_norm`` is a PUBLIC bound on the norm of a linear term that will be added: never the
    norm of what was drawn.
    """
    find = getattr(bounds, "target_limit", None)
    limit = None if find is None else find(linear_norm)
    if limit is None:
        return objective
    linear = cast(EmpiricalObjective, objective)
    return cast(Given, linear.with_loss(ClampedTargetLoss(linear.loss, limit)))
