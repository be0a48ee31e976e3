"""The objective of structured losses: a mean of losses of residual vectors, plus a ridge."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import numpy.typing as npt

from dpconvex.core.block_products import block_margins
from dpconvex.core.pointwise_losses import PointwiseLoss
from dpconvex.core.summation import pairwise_summation
from dpconvex.engine.compensated_kernels import CompensatedBlockSum
from dpconvex.losses.vector_losses import VectorLoss, link_parts
from dpconvex.objectives.objective import (
    UNIT,
    LinearTermObjective,
    exact_difference,
    exact_objective_margins,
)
from dpconvex.privacy.bounds.structured_bounds import SUMMED_RECORDS
from dpconvex.smoothing.vector_convolution import ConvolvedVectorLoss, SmoothedMax
from dpconvex.types import Array

GRADIENT_ULPS = 64  # a gradient is taken to be computed within this many roundings of its bound


@dataclass(frozen=True)
class StructuredLinkLoss:
    """The loss of the last residual, of records that have no other row of their own."""

    link: PointwiseLoss

    def value(self, u: Array, level: Array | None = None) -> Array:
        """Value of every record."""
        return link_parts(self.link, u[:, 0])[0]

    def gradient(self, u: Array, level: Array | None = None) -> Array:
        """Slope of every record."""
        return link_parts(self.link, u[:, 0])[1][:, None]

    def hessian(self, u: Array, level: Array | None = None) -> Array:
        """Curvature of every record, shape (n, 1, 1)."""
        return link_parts(self.link, u[:, 0])[2][:, None, None]


class StructuredNormTerm:
    """``P(theta) = g(-M theta)`` without the link, for a public matrix M: the same term of every
    record's loss.
    """

    def __init__(self, matrix: npt.ArrayLike, loss: VectorLoss) -> None:
        self.matrix = np.array(matrix, dtype=np.float64)
        self.loss = loss

    def _padded(self, residuals: Array) -> Array:
        return np.append(residuals, 0.0)[None]

    def value(self, theta: Array) -> float:
        """P."""
        assert self.loss.link is not None, "the bounds say so"
        u = self._padded(-(self.matrix @ theta))
        return float(self.loss.value(u)[0] - link_parts(self.loss.link, u[:, -1])[0][0])

    def gradient(self, theta: Array) -> Array:
        """``-M^T g'``."""
        slopes = self.loss.gradient(self._padded(-(self.matrix @ theta)))[0, :-1]
        return np.asarray(-(slopes @ self.matrix))

    def hessian(self, theta: Array) -> Array:
        """``M^T g'' M``."""
        bends = self.loss.hessian(self._padded(-(self.matrix @ theta)))[0, :-1, :-1]
        return np.asarray(self.matrix.T @ bends @ self.matrix)

    def refined_gradient(self, theta: Array, shift: Array) -> tuple[Array, float]:
        """Return ``-M^T g'`` at ``theta + shift`` with residuals to twice the digits, and the
        size of these.
        """
        z, correction = exact_objective_margins(self.matrix, theta)
        u = -(z + (correction + self.matrix @ shift))
        slopes = self.loss.gradient(self._padded(u))[0, :-1]
        return CompensatedBlockSum(-slopes, self.matrix).value, float(np.linalg.norm(u))


def structured_spectral_norms(matrices: npt.ArrayLike) -> Array:
    """Return the spectral norm of every matrix of a stack of shape (n, m, d), rounded up a
    little.
    """
    stack = np.asarray(matrices)
    # Block by block: no second array of all matrices is made.
    starts = range(0, max(1, len(stack)), SUMMED_RECORDS)
    return np.concatenate(
        [
            _structured_operator_norms(stack[i : i + SUMMED_RECORDS].astype(np.float64))
            for i in starts
        ]
    )


def _structured_operator_norms(stack: Array) -> Array:
    """Return roots of the largest eigenvalues of Gram matrices, scaled so that squares neither
    overflow nor vanish.
    """
    largest = np.abs(stack).max(axis=(1, 2))
    unit = stack / np.where(largest > 0, largest, 1.0)[:, None, None]
    turned = unit.transpose(0, 2, 1)
    gram = unit @ turned if stack.shape[1] <= stack.shape[2] else turned @ unit
    top = np.linalg.eigvalsh(gram)[:, -1]
    with np.errstate(over="ignore"):  # a norm beyond float64 shrinks its record to 0
        return np.asarray(largest * np.sqrt(np.maximum(top, 0.0)) * (1 + 1e-12))


class StructuredRecords:
    """Records (A, Y) in memory, scaled to public norm bounds.

    A record is multiplied as a whole, matrix and targets, by ``min(1, operator_norm / ||A||)``: its
    residuals shrink and theta keeps its meaning. For an l1 norm, a bowl (whose level shrinks too)
    and pieces without offsets that is exactly an influence weight; pieces with offsets see smaller
    residuals. The row of a link is scaled by itself.

    Parameters
    ----------
    A : array of shape (n, m, d)
        Matrices; the last row is that of the link, where the loss has one.
    Y : array of shape (n, m)
        Targets.
    operator_norm : float
        Bound on the spectral norm.
    link_norm : float
        Bound on the norm of the link's row; 0 without a link.
    level : array of shape (n,), optional
        Levels of bowls.
    target_limit : float, optional
        Scaled targets are clamped to it; public.
    shared : array of shape (k, d), optional
        A public matrix, with targets 0, that stands before the row of every record: A has the row
        of the link alone.
    labelled : bool
        Whether the target of the link is a label y, clipped to [-1, 1]: its row is then ``y z``,
        and its target 0.

    Notes
    -----
    Privacy: every record is mapped by itself, with public numbers.
    """

    def __init__(
        self,
        A: npt.ArrayLike,
        Y: npt.ArrayLike,
        operator_norm: float,
        link_norm: float = 0.0,
        level: npt.ArrayLike | None = None,
        target_limit: float | None = None,
        shared: npt.ArrayLike | None = None,
        labelled: bool = False,
    ) -> None:
        matrices = np.asarray(A)
        if matrices.dtype != np.float32:
            matrices = np.asarray(matrices, dtype=np.float64)
        targets = np.array(Y, dtype=np.float64)
        self.shared: tuple[tuple[float, ...], ...] | None = None
        if shared is not None:
            self.shared = tuple(map(tuple, np.array(shared, dtype=np.float64).tolist()))
        if matrices.ndim != 3 or targets.shape != matrices.shape[:2]:
            raise ValueError(
                "The 'A' and 'Y' parameters of StructuredRecords must have shapes (n, m, d) and "
                f"(n, m). Got {matrices.shape} and {targets.shape} instead."
            )
        inner = matrices.shape[1] - (link_norm > 0)
        self._given = matrices
        self._factors: list[tuple[slice, Array]] = []  # of rows of records, where some are below 1
        if shared is None:  # the bounds check the norm of a shared one
            self._bound(slice(0, inner), operator_norm)
        if link_norm > 0:
            labels = np.clip(targets[:, -1], -1.0, 1.0) if labelled else None
            self._bound(slice(inner, inner + 1), link_norm, labels)
            targets[:, -1] = 0.0 if labelled else targets[:, -1]
        limit = np.inf if target_limit is None else float(target_limit)
        for rows_of, factors in self._factors:
            targets[:, rows_of] *= factors[:, None]
        self.targets = np.clip(targets, -limit, limit, out=targets)
        self.level = None
        if level is not None:
            levels = np.broadcast_to(np.asarray(level, dtype=np.float64), len(targets))
            for rows_of, factors in self._factors:
                levels = levels * factors if rows_of.start == 0 else levels
            self.level = np.clip(levels, -limit, limit)
        self.n_rows, self.outputs, self.dim = map(int, matrices.shape)
        self.operator_norm = float(operator_norm)
        self.link_norm = float(link_norm)
        with np.errstate(over="ignore"):  # infinite: then nothing can be certified without a limit
            sizes = sum(
                float(np.abs(targets[start : start + SUMMED_RECORDS]).max(axis=1).sum())
                for start in range(0, self.n_rows, SUMMED_RECORDS)
            )
            self.mean_target_size = float(np.sqrt(self.outputs) * sizes / max(1, self.n_rows))

    def _bound(self, rows: slice, norm: float, labels: Array | None = None) -> None:
        """Find the factors that shorten some rows of every structured record to a norm, times
        labels of a link.
        """
        norms = structured_spectral_norms(self._given[:, rows])
        if labels is not None:
            norms = np.where(labels == 0, 0.0, norms) * np.abs(labels)  # a norm may be infinite
        with np.errstate(
            divide="ignore", over="ignore"
        ):  # of a record of zeros, or of numbers near them
            factors = np.minimum(1.0, norm / norms) * (1.0 if labels is None else labels)
        if factors.size and float(factors.min()) < 1.0:
            self._factors.append((rows, factors))

    def scaled(self, part: slice | npt.NDArray[np.integer]) -> Array:
        """Return the scaled matrices of some structured records, shape (records, m, d), not to be
        changed.

        They are scaled whenever they are read: no second array of all matrices is made.
        """
        given = self._given[part]
        if not self._factors:
            return np.asarray(given, dtype=np.float64)
        matrices = given.astype(np.float64)
        for rows, factors in self._factors:
            matrices[:, rows] *= factors[part][:, None, None]
        return matrices

    @property
    def matrices(self) -> Array:
        """All scaled matrices, shape (n, m, d)."""
        return self.scaled(slice(None))

    def blocks(
        self, size: int = SUMMED_RECORDS
    ) -> Iterator[tuple[slice, Array, Array, Array | None]]:
        """Yield runs of records: their slice, their rows below each other, targets and levels."""
        for start in range(0, self.n_rows, size):
            part = slice(start, start + size)
            level = None if self.level is None else self.level[part]
            yield part, self.scaled(part).reshape(-1, self.dim), self.targets[part], level

    @property
    def additions(self) -> int:
        """Bound on the number of roundings any term of a sum over records passes through."""
        return (
            SUMMED_RECORDS * self.outputs
            + len(self.shared or ())
            + -(-self.n_rows // SUMMED_RECORDS)
        )

    def residuals(self, theta: Array) -> Array:
        """``Y - A theta``, shape (n, m)."""
        found = np.empty_like(self.targets)
        for part, rows, targets, _ in self.blocks():
            found[part] = _stacked_residuals(rows, targets, theta)
        return found

    def combine(self, theta: Array, slopes: Callable[[Array, Array | None], Array]) -> Array:
        """``sum_i A_i^T slopes(u_i)`` of structured residuals u, block by block."""

        def parts() -> Iterator[tuple[Array]]:
            for _, rows, targets, level in self.blocks():
                u = _stacked_residuals(rows, targets, theta)
                yield (slopes(u, level).reshape(-1) @ rows,)

        return np.asarray(pairwise_summation(parts())[0]) if self.n_rows else np.zeros(self.dim)


def _stacked_residuals(rows: Array, targets: Array, theta: Array) -> Array:
    # Row by row: a kinked slope must not jump because there is another record.
    return np.asarray(targets - block_margins(rows, theta).reshape(targets.shape))


class StructuredObjective(LinearTermObjective):
    r"""Mean of losses of residual vectors with a ridge and a linear term.

    ``F(theta) = (1/N) sum_i g(Y_i - A_i theta) + (alpha/2) ||theta||^2 + <b, theta>`` with
    ``N = divisor`` and ``b = linear``; the link of a loss is its last residual.

    Parameters
    ----------
    records : StructuredRecords
        Scaled matrices and targets.
    loss : VectorLoss
        Loss of a residual vector.
    alpha : float
        Ridge.
    divisor : float, optional
        The public N; the number of records by default.
    linear : array of shape (d,), optional
        The vector b, already divided by N; zero by default.
    """

    def __init__(
        self,
        records: StructuredRecords,
        loss: VectorLoss,
        alpha: float,
        divisor: float | None = None,
        linear: npt.ArrayLike | None = None,
    ) -> None:
        outputs = records.outputs + len(records.shared or ())
        if outputs != loss.outputs:
            raise ValueError(
                f"The 'records' parameter of StructuredObjective must have {loss.outputs} rows "
                f"per record for this loss. Got {outputs} instead."
            )
        super().__init__(records.dim, alpha)
        self.linear = np.zeros(self.dim) if linear is None else self._checked_linear_term(linear)
        self.records = records
        self.loss = loss
        self.divisor = float(records.n_rows if divisor is None else divisor)

    @property
    def n_rows(self) -> int:
        """Number of records."""
        return self.records.n_rows

    @property
    def own_loss(self) -> VectorLoss | StructuredLinkLoss:
        """Loss of the rows that are a record's own."""
        if self.records.shared is None:
            return self.loss
        assert self.loss.link is not None, "the bounds say so"
        return StructuredLinkLoss(self.loss.link)

    @property
    def _norm(self) -> StructuredNormTerm | None:
        shared = self.records.shared
        return None if shared is None else StructuredNormTerm(shared, self.loss)

    @property
    def public_facts(self) -> dict[str, object]:
        """Facts about the structured objective that the certificate of a release must state."""
        return {
            "shared": self.records.shared,
            "objective": "mean of losses of residual vectors",
            "loss": self.loss,
            "alpha": self.alpha,
            "linear_term": bool(self.linear.any()),
            "divisor": self.divisor,
            "n_features": self.dim,
            "operator_norm": self.records.operator_norm,
            "link_norm": self.records.link_norm,
        }

    def _sup(self, power: int, name: str) -> float:
        link = self.loss.link
        records = self.records
        bound = records.operator_norm**power * float(getattr(self.loss, name))
        if link is not None:
            bound += records.link_norm**power * float(getattr(link, name))
        return bound * self.n_rows / self.divisor

    @property
    def gradient_bound(self) -> float:
        """Bound on the gradient norm of the mean of losses."""
        return self._sup(1, "lipschitz")

    @property
    def smoothness(self) -> float:
        """Bound on the curvature of F."""
        return self._sup(2, "smoothness") + self.alpha

    @property
    def kink_width(self) -> float:
        """Residual over which the loss turns; 0 for a kinked loss."""
        return self.loss.bandwidth if isinstance(self.loss, ConvolvedVectorLoss) else 0.0

    def smoothed(self, width: float) -> StructuredObjective:
        """Return the objective smoothed with a bandwidth of at least ``width``, for a warm
        start.
        """
        # whichever smoothed loss it is
        other = copy.copy(self)
        loss = cast(SmoothedMax, self.loss)
        other.loss = replace(loss, bandwidth=max(width, loss.bandwidth))
        return other

    def margin_scale(self, theta: Array) -> float:
        """Mean size of the records' residuals: the scale on which F varies."""
        return float(np.abs(self.records.residuals(theta)).mean()) if self.n_rows else 0.0

    def value(self, theta: npt.ArrayLike) -> float:
        """Value F(theta) of the structured objective."""
        theta = np.asarray(theta, dtype=np.float64)
        loss = self.own_loss
        parts = (
            (loss.value(_stacked_residuals(rows, targets, theta), level).sum(),)
            for _, rows, targets, level in self.records.blocks()
        )
        total = float(pairwise_summation(parts)[0]) if self.n_rows else 0.0
        if (norm := self._norm) is not None:
            total += self.n_rows * norm.value(theta)
        return self._value(total / self.divisor, theta)

    def gradient_sum(self, theta: npt.ArrayLike) -> Array:
        """``-sum_i A_i^T g'(u_i)``: the data term's gradient, as a SUM."""
        return self._sum_slopes(np.asarray(theta, dtype=np.float64), self.own_loss.gradient)

    def _sum_slopes(self, theta: Array, slopes: Callable[[Array, Array | None], Array]) -> Array:
        total = -self.records.combine(theta, slopes)
        norm = self._norm
        return total if norm is None else total + self.n_rows * norm.gradient(theta)

    def gradient(self, theta: npt.ArrayLike) -> Array:
        """Gradient of the structured objective,
        ``-(1/N) sum_i A_i^T g'(u_i) + alpha theta + b``.
        """
        theta = np.asarray(theta, dtype=np.float64)
        return self._gradient(self.gradient_sum(theta) / self.divisor, theta)

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """F and its gradient."""
        return self.value(theta), self.gradient(theta)

    def hessian(self, theta: npt.ArrayLike) -> Array:
        """Hessian of the structured objective, ``(1/N) sum_i A_i^T g''(u_i) A_i + alpha I``."""
        theta = np.asarray(theta, dtype=np.float64)
        norm = self._norm
        loss = self.own_loss
        hessian = (
            np.zeros((self.dim, self.dim)) if norm is None else norm.hessian(theta) * self.n_rows
        )
        for _, rows, targets, level in self.records.blocks():
            bends = loss.hessian(_stacked_residuals(rows, targets, theta), level)
            weighted = bends @ rows.reshape(*targets.shape, self.dim)
            hessian += rows.T @ weighted.reshape(-1, self.dim)
        hessian /= self.divisor
        return self._hessian(0.5 * (hessian + hessian.T))

    def rounding_allowance(self, theta: npt.ArrayLike) -> float:
        """Bound the error of the structured `gradient` at theta: roundings, and the loss's
        quadrature rule.

        With u = 2^-53: a residual is off by at most ``u ((d + 10) ||a|| ||theta|| + 4 |y|)``, which
        moves the loss's gradient by its curvature times that; evaluating the gradient adds 64 u of
        its bound and ``gradient_error``; every term passes through ``additions + 8`` roundings; the
        ridge and b add a few.
        """
        size = float(np.linalg.norm(theta))
        records = self.records
        share = self.n_rows / self.divisor
        longest = max(records.operator_norm, records.link_norm)
        margin = (self.dim + 10) * np.sqrt(self.loss.outputs) * longest * size
        margin += 4 * records.mean_target_size
        errors = (self.smoothness - self.alpha) / longest * UNIT * margin
        errors += share * records.operator_norm * self.loss.gradient_error
        roundings = (
            records.additions + 8 + GRADIENT_ULPS
        ) * self.gradient_bound + 3 * self.alpha * size
        roundings += 2 * float(np.linalg.norm(self.linear))
        return float(1.01 * (errors + UNIT * roundings))

    def refined_gradient(
        self, theta: npt.ArrayLike, offset: npt.ArrayLike | None = None
    ) -> tuple[Array, float]:
        """Return the structured gradient at ``theta + offset`` to twice the digits, and a bound on
        its error.

        As `rounding_allowance`, but a residual is off by two roundings of itself and a term passes
        through a few roundings however many records there are.
        """
        theta, shift, size, moved, tail = self._refined_point(theta, offset)
        records = self.records
        step = max(1, SUMMED_RECORDS // self.records.outputs)
        longest = max(records.operator_norm, records.link_norm)
        sums: CompensatedBlockSum | None = None
        residual_sizes = 0.0
        loss = self.own_loss
        norm = self._norm
        for _, rows, targets, level in records.blocks(step):
            z, correction = exact_objective_margins(rows, theta)
            correction += rows @ shift
            u = exact_difference(targets.ravel(), z, correction).reshape(targets.shape)
            more = CompensatedBlockSum(-loss.gradient(u, level).ravel(), rows)
            if sums is None:
                sums = more
            else:
                sums += more
            residual_sizes += float(np.sqrt(np.einsum("ij,ij->i", u, u)).sum())
        assert sums is not None, "there are records"
        total = sums.value
        if norm is not None:
            found, length = norm.refined_gradient(theta, shift)
            total = total + self.n_rows * found
            residual_sizes += self.n_rows * length
        bend = (
            self.smoothness - self.alpha
        ) / longest  # per unit of a residual's error, all records
        off = 2 * UNIT * residual_sizes / self.n_rows + np.sqrt(self.loss.outputs) * longest * tail
        errors = (
            bend * off
            + self.n_rows / self.divisor * records.operator_norm * self.loss.gradient_error
        )
        roundings = (12 + GRADIENT_ULPS) * self.gradient_bound + 4 * self.alpha * (size + moved)
        roundings += 2 * float(np.linalg.norm(self.linear))
        gradient = self._gradient(total / self.divisor, theta) + self.alpha * shift
        return gradient, float(1.01 * (errors + UNIT * roundings))
