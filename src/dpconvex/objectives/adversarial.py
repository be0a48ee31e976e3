"""The robust objective: every row is moved by an adversary before its loss is taken, in closed form."""

from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import numpy.typing as npt

from dpconvex.engine.blocks import moved_gram, takes_sparse
from dpconvex.engine.compensated import CompensatedSum
from dpconvex.engine.rows import Rows, Sums
from dpconvex.losses.interface import Loss
from dpconvex.objectives.adversary_sets import Shape, Support, exact_support
from dpconvex.objectives.empirical import slopes_with_error
from dpconvex.objectives.moved_rows import OverMovedRows
from dpconvex.objectives.objective import LOSS_ULPS, UNIT
from dpconvex.types import Array

__all__ = ["AdversarialObjective"]


class AdversarialObjective(OverMovedRows):
    r"""Mean of worst-case margin losses with a ridge.

    ``F(theta) = (1/N) sum_i w_i c(y_i x~_i . theta - radius M(theta)) + (alpha/2) ||theta||^2`` with M the smoothed
    dual norm of the coefficients without the intercept (:mod:`dpconvex.objectives.adversary_sets`) and ``N = divisor``.
    Up to the smoothing this is ``max c(y_i (x~_i + v_i) . theta)`` over ``||v_i|| <= radius``, because c never
    increases: the worst perturbation points against the label, the same for all rows with one label.

    Parameters
    ----------
    rows : MemoryRows or another engine
        Mapped rows, labels -1 and +1 (others are clipped to [-1, 1]), influence weights.
    loss : Loss
        Smooth margin loss that never increases in ``y z``.
    alpha : float
        Ridge; it covers the intercept too.
    radius, norm, width, shape, support
        The adversary, as in :class:`~dpconvex.objectives.moved_rows.OverMovedRows`.
    divisor : float, optional
        The public N; the number of rows by default.
    """

    kind = "mean of losses of moved rows"

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
        support: Support | None = None,
    ) -> None:
        if getattr(loss, "kind", None) != "margin":
            raise ValueError(
                "The 'loss' parameter of AdversarialObjective must be a margin loss, such as Logistic(). "
                f"Got {type(loss).__name__} instead."
            )
        if norm not in ("l2", "linf", "l1", "box", "hull", "own"):
            raise ValueError(
                "The 'norm' parameter of AdversarialObjective must be 'l2', 'linf', 'l1', 'box', 'hull' or 'own'. "
                f"Got {norm!r} instead."
            )
        super().__init__(rows, loss, alpha, radius, norm, width, divisor, shape, support)

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """F and its gradient ``(1/N) sum_i w_i c'_i (x~_i - y_i radius grad M) + alpha theta``, in one pass.

        ``c'`` is in the margin z.
        """
        theta = np.asarray(theta, dtype=np.float64)
        taken, slope, _ = self._adversary(theta)
        loss = self.loss

        def part(y: Array, z: Array, w: Array) -> Sums:
            z = z - y * taken  # y (z - y taken) = y z - taken
            slopes = w * loss.gradient(y, z)
            return slopes, float(slopes @ y), float(w @ loss.value(y, z))

        total, pull, value = self.rows.combine(theta, part)
        gradient = self._gradient((total - pull * slope) / self.divisor, theta)
        return self._value(value / self.divisor, theta), gradient

    def hessian(self, theta: npt.ArrayLike) -> Array:
        """Hessian ``(1/N) sum_i w_i [c''_i v_i v_i^T - c'_i y_i radius M''] + alpha I``, ``v = x~ - y radius M'``."""
        theta = np.asarray(theta, dtype=np.float64)
        taken, slope, bend = self._adversary(theta)
        loss = self.loss

        @takes_sparse
        def part(block: Array, y: Array, w: Array) -> Sums:
            z = block @ theta - y * taken
            curvature = np.maximum(w * loss.curvature(y, z), 0.0)
            moved = moved_gram(block, curvature, -y, slope)
            return moved, float((w * loss.gradient(y, z)) @ y)

        second, pull = self.rows.sum(part)
        return self._hessian((second - pull * bend) / self.divisor)

    def rounding_allowance(self, theta: npt.ArrayLike) -> float:
        """Bound the norm of the floating-point error of `gradient` at theta.

        As in `EmpiricalObjective.rounding_allowance`, with the adversary's share of a margin, at most
        ``reach ||theta||``, computed within ``dim + 10`` roundings of its size, and its part of the gradient within
        as many of its own. Labels have size 1.
        """
        theta = np.asarray(theta, dtype=np.float64)
        row_map, loss, reach = self.rows.row_map, self.loss, self.adversary_reach
        size = float(np.linalg.norm(theta))
        # sup w ||x~|| (||x~|| + reach) and alike, from the bounds of w ||x~||^2 and w ||x~||
        square = row_map.weighted_square + 2 * row_map.weighted_norm * reach + reach**2
        margins = (self.dim + 10) * square * size + 4 * (row_map.weighted_norm + reach)
        slopes = self._share * loss.smoothness * margins + LOSS_ULPS * self.gradient_bound
        sums = (self.rows.additions + self.dim + 20) * self.gradient_bound
        return float(1.01 * UNIT * (slopes + sums + 3 * self.alpha * size)) + self._turning_error(size)

    def _turning_error(self, size: float) -> float:
        """Bound what rounding in products ``v . c`` of a hull adds to the gradient: M' turns by ``g^2 / width``.

        The other sets' gradients are quotients, computed within a few roundings of themselves.
        """
        if self.norm not in ("l1", "hull", "own"):
            return 0.0
        if self.norm == "own":  # whose gradients are taken to err by as many roundings of their bound
            bend = float(self.shape[1])  # type: ignore[index, arg-type]
            pull = self._share * float(self.loss.lipschitz) * self.radius
            return 1.01 * UNIT * (self.dim + 20) * pull * (bend * size + self.adversary_reach)
        reach = self._unit_reach
        pull = self._share * float(self.loss.lipschitz) * self.radius
        return 1.01 * UNIT * (self.dim + 20) * pull * reach**2 / self.width * size

    def refined_gradient(self, theta: npt.ArrayLike, offset: npt.ArrayLike | None = None) -> tuple[Array, float]:
        """Gradient at ``theta + offset`` with margins and sums computed to twice the digits, and a bound on its error.

        What the adversary takes is computed with 60 decimal digits; the rest is as in
        `EmpiricalObjective.refined_gradient`.
        """
        from dpconvex.engine.mapping import margins_with_error

        theta = np.asarray(theta, dtype=np.float64)
        shift = np.zeros(self.dim) if offset is None else np.asarray(offset, dtype=np.float64)
        size, moved = float(np.linalg.norm(theta)), float(np.linalg.norm(shift))
        _, slope, _ = self._adversary(theta + shift)
        taken, left = self._taken(theta, shift)
        loss, reach = self.loss, self.adversary_reach
        # The value of one's own support function is taken to err by 16 roundings of its bound.
        loose = 0.0 if self.support is None else 16 * UNIT * reach * (size + moved)
        tail = (4 * self.dim * UNIT) ** 2 * size + (self.dim + 6) * UNIT * moved

        def part(block: Array, y: Array, w: Array) -> Sums:
            z, correction = np.empty(len(block)), np.empty(len(block))
            margins_with_error(block, theta, z, correction)
            correction += block @ shift - y * left
            lengths = np.sqrt(np.einsum("ij,ij->i", block, block))
            own = y * taken  # exact: labels are -1 and +1
            rounded = z - own
            lost = (z - (rounded + (z - rounded))) + ((z - rounded) - own)
            z = rounded + (lost + correction)
            error = 4 * UNIT * (1.0 + np.abs(z)) + tail * lengths + loose
            slopes, errors = slopes_with_error(loss, y, z, error)
            weights = w * (lengths + reach)
            sums = CompensatedSum(w * slopes, np.column_stack([block, y]))
            return sums, weights @ np.abs(slopes), weights @ errors

        sums, terms, errors = self.rows.sum(part)
        total, pull = sums.value[:-1], float(sums.value[-1])
        gradient = self._gradient((total - pull * slope) / self.divisor, theta) + self.alpha * shift
        roundings = (self.dim + 20) * float(terms) / self.divisor + 4 * self.alpha * (size + moved)
        error = float(1.01 * (float(errors) / self.divisor + UNIT * roundings))
        return gradient, error + self._turning_error(size + moved)

    def _taken(self, theta: Array, shift: Array) -> tuple[float, float]:
        """Return ``radius M(theta + shift)`` as an unevaluated sum of two floats."""
        with localcontext() as context:
            context.prec = 60
            pairs = zip(theta[self._lead :].tolist(), shift[self._lead :].tolist(), strict=True)
            whole = [Decimal(a) + Decimal(b) for a, b in pairs]
            if self.support is not None:
                taken = self.support((theta + shift)[self._lead :])[0]
                return self.radius * float(taken), 0.0
            norm = exact_support(whole, self.norm, Decimal(self.width), self.shape)
            exact = Decimal(self.radius) * norm
            high = float(exact)
            return high, float(exact - Decimal(high))
