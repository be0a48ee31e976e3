"""Released coordinates of rows: where a row is placed, how long it is there, and whether sums keep their digits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpconvex.core.length_cover import UNDERFLOW, LengthCover, length_cover
from dpconvex.engine.blocks import placed_rows, row_squares
from dpconvex.engine.sparse import SparseRows
from dpconvex.engine.threads import scratch
from dpconvex.types import Array

__all__ = ["Coordinates", "RowLengths", "cancellation", "row_lengths"]


_POWERS = 20  # that bound a spectral norm


@dataclass(frozen=True)
class Coordinates:
    """Rows ``(h, u) = matrix @ (1, x)``, with ``h = 1`` but for rankings.

    Attributes
    ----------
    matrix : array of shape (dimension, dimension) or (dimension,)
        Public or released; keeps the constant column. A vector is the diagonal of a matrix.
    lead : int
        1 with an intercept, 0 without.
    excess : float, default=0
        Share by which lengths may be taken for longer than they are, where a bound of them saves time.
    added_length : float, default=1
        What counts for the constant in the lengths of rows that have none.
    """

    matrix: Array
    lead: int
    excess: float = 0.0
    added_length: float = 1.0

    @cached_property
    def cover(self) -> LengthCover | None:
        """The bound that stands for lengths; None where there is none that saves time."""
        if not self.excess or self.matrix.ndim == 1:
            return None
        return length_cover(self.matrix, self.lead, self.excess)

    @cached_property
    def stretches(self) -> Array | None:
        """The diagonal of a matrix that only stretches columns; None for others."""
        if self.matrix.ndim == 1:
            return self.matrix
        diagonal = np.diagonal(self.matrix).copy()
        return diagonal if np.array_equal(self.matrix, np.diag(diagonal)) else None

    @cached_property
    def _columns(self) -> Array:
        """The matrix column by column."""
        return np.ascontiguousarray(self.matrix.T)

    @property
    def constant(self) -> float:
        """h, what the constant column becomes."""
        return float(self.matrix.flat[0])

    def place(self, block: Array) -> Array:
        """Return rows ``(1, x)`` in these coordinates, to be used before the thread asks for others.

        What a row gives depends on that row alone, to its last digit: counts of lengths must not move with the number
        of rows, nor what other records add to a sum.
        """
        placed = scratch(*block.shape)
        if self.stretches is not None:
            return np.multiply(block, self.stretches, out=placed)
        return placed_rows(block, self._columns, placed)

    def lengths(self, block: Array) -> Array:
        """Return ``sqrt(h^2 + ||u||^2)`` of rows ``(1, x)`` or ``x``, rounded up, or a bound that stands for it."""
        if self.cover is not None:
            return self.cover.lengths(block, self.lead)
        if self.stretches is not None:
            return self._stretched_lengths(block, self.stretches)
        return row_lengths(self.place(block), 0.0 if self.lead else self.added_length)

    def _stretched_lengths(self, block: Array, stretches: Array) -> Array:
        from dpconvex.engine.mapping import stretched_squares

        squares = np.empty(len(block))
        slopes = stretches[self.lead :]
        stretched_squares(block, self.lead, np.zeros(slopes.size), slopes, squares)
        constant = self.constant if self.lead else self.added_length
        return np.asarray(np.sqrt(constant**2 + squares + UNDERFLOW) * _round_up(block.shape[1]))

    def to_rows(self, phi: Array) -> Array:
        """Return the coefficients of mapped rows that give the margins ``(h, u) . phi``, or of each column of phi."""
        return (self.matrix * phi.T).T if self.matrix.ndim == 1 else self.matrix.T @ phi

    def of_sum(self, total: Array) -> Array:
        """Return a sum of multiples of rows in these coordinates."""
        return self.matrix * total if self.matrix.ndim == 1 else self.matrix @ total


@dataclass(frozen=True)
class RowLengths:
    """Lengths in given coordinates in place of weights; infinite for rows of weight 0, so that they keep it."""

    frame: Coordinates

    def __call__(self, block: Array, w: Array) -> Array:
        """Return the lengths of a block of rows."""
        return np.where(w == 0, np.inf, self.frame.lengths(block))

    @property
    def cover(self) -> LengthCover | None:
        """The bound that stands for lengths where it needs no products of columns."""
        cover = self.frame.cover
        return None if cover is None or cover.factors.size else cover

    def by_nonzeros(self, rows: SparseRows) -> Array:
        """Return the lengths of all rows."""
        stretches = self.frame.stretches
        return rows.lengths(self.frame.matrix if stretches is None else stretches)


def row_lengths(placed: Array, constant: float = 0.0) -> Array:
    """Return ``sqrt(constant^2 + ||u||^2)`` of placed rows, rounded up."""
    squares = constant**2 + row_squares(placed) + UNDERFLOW
    return np.asarray(np.sqrt(squares) * _round_up(placed.shape[1]))


def _round_up(dimension: int) -> float:
    """Return by what factor computed lengths are raised, so that none is shorter than the true one."""
    return 1 + 8 * dimension * 2.0**-52


def cancellation(matrix: Array) -> float:
    """Bound ``|| |M| |M^-1| ||``: how much larger the terms of a mapped sum can be than what they sum to.

    For a matrix P without negative entries ``||P||^2 <= max_i (P^T P v)_i / v_i`` whatever the positive v (Collatz and
    Wielandt); a few powers of ``P^T P`` make it tight. A diagonal, given as a vector, has 1.
    """
    if matrix.ndim == 1:
        return 1.0
    product = np.abs(matrix) @ np.abs(np.linalg.inv(matrix))
    vector = np.ones(len(product))
    for _ in range(_POWERS):
        grown = product.T @ (product @ vector)
        bound = float((grown / vector).max())
        vector = np.maximum(grown / grown.max(), 1e-100)
    return math.sqrt(bound)
