"""Rows of records in released coordinates: their map, their norms, and whether sums in them keep
their digits.

Norms are rounded up, so that no clipped row is longer than its clip. What a row gives depends on
that row alone, to its last digit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpconvex.core.block_products import block_margins, block_row_squares, transform_block
from dpconvex.core.threads import thread_scratch
from dpconvex.types import Array

UNDERFLOW = 1e-290  # added to squared norms: none is 0 where squares are too small for a number
_ULPS = (
    8 * 2.0**-52
)  # by this times the dimension computed norms are raised: none is shorter than the true one
_POWERS = 20  # that bound a spectral norm
_MOST_OUTSIDE = 0.25  # share of the directions outside the bulk up to which products are saved
_ROUNDING = 1e-6  # relative: what bounds of norms are raised by, of which rounding may use a tenth
_MOST_CONTRAST = 1e4  # of eigenvalues: differences must keep their digits


@dataclass(frozen=True)
class Coordinates:
    """Rows ``(h, u) = matrix @ (1, x)``, with ``h = 1`` but for rankings.

    The matrix is public or released and keeps the constant column; a vector is the diagonal of a
    matrix. ``lead`` is 1 with an intercept, 0 without. ``norm_slack`` is the share by which norms
    may be taken for longer than they are, where an upper bound saves time; ``constant_norm`` is
    what the constant adds to rows that have none.
    """

    matrix: Array
    lead: int
    norm_slack: float = 0.0
    constant_norm: float = 1.0

    @cached_property
    def norm_upper_bound(self) -> RowNormBound | None:
        """The bound that stands for norms; None where there is none that saves time."""
        if not self.norm_slack or self.matrix.ndim == 1:
            return None
        return row_norm_bound(self.matrix, self.lead, self.norm_slack)

    @cached_property
    def diagonal(self) -> Array | None:
        """The diagonal of a diagonal matrix; None for others."""
        if self.matrix.ndim == 1:
            return self.matrix
        diagonal = np.diagonal(self.matrix).copy()
        return diagonal if np.array_equal(self.matrix, np.diag(diagonal)) else None

    @cached_property
    def _columns(self) -> tuple[Array, ...]:
        """The matrix column by column; or what the constant adds, and the diagonal, where there
        is nothing else.
        """
        # + 0.0: no negative zeros
        constant = self.matrix[:, 0] + 0.0
        diagonal = np.diagonal(self.matrix).copy()
        diagonal[0] = 0.0
        if self.lead and np.array_equal(self.matrix[:, 1:], np.diag(diagonal)[:, 1:]):
            return constant, diagonal
        return (np.ascontiguousarray(self.matrix.T),)

    @property
    def constant(self) -> float:
        """h, what the constant column becomes."""
        return float(self.matrix.flat[0])

    def transform(self, block: Array) -> Array:
        """Return rows ``(1, x)`` in these coordinates, to be used before the thread asks for
        others.
        """
        placed = thread_scratch(*block.shape)
        if self.diagonal is not None:
            return np.multiply(block, self.diagonal, out=placed)
        if len(self._columns) == 1:
            return transform_block(block, *self._columns, placed)
        from dpconvex.core.dense_kernels import dense_shifted_products

        constant, diagonal = self._columns
        dense_shifted_products(np.ascontiguousarray(block, np.float64), constant, diagonal, placed)
        return placed

    def norms(self, block: Array) -> Array:
        """Return ``sqrt(h^2 + ||u||^2)`` of rows in these coordinates, rounded up, or a bound
        that stands for it.
        """
        if self.norm_upper_bound is not None:
            return self.norm_upper_bound.norms(block, self.lead)
        if self.diagonal is None:
            return row_norms(self.transform(block), 0.0 if self.lead else self.constant_norm)
        slopes = self.diagonal[self.lead :]
        squares = _scaled_row_squares(block, self.lead, np.zeros(slopes.size), slopes)
        constant = self.constant if self.lead else self.constant_norm
        return np.asarray(np.sqrt(constant**2 + squares + UNDERFLOW) * (1 + _ULPS * block.shape[1]))

    def row_coefficients(self, phi: Array) -> Array:
        """Return the coefficients of mapped rows that give the margins ``(h, u) . phi``, or of
        each column of phi.
        """
        return (self.matrix * phi.T).T if self.matrix.ndim == 1 else self.matrix.T @ phi

    def transform_sum(self, total: Array) -> Array:
        """Return a sum of multiples of rows in these coordinates."""
        return self.matrix * total if self.matrix.ndim == 1 else self.matrix @ total


@dataclass(frozen=True)
class RowNorms:
    """Norms in given coordinates in place of weights, or what follows from them; infinite for
    rows of weight 0.
    """

    frame: Coordinates
    follows: Callable[[Array], Array] = np.asarray

    def __call__(self, block: Array, w: Array) -> Array:
        """Return the norms of a block of rows, or what follows from them."""
        return self.follows(np.where(w == 0, np.inf, self.frame.norms(block)))

    def by_nonzeros(self, rows: Any) -> Array:
        """Return the same of all rows."""
        return self.follows(
            rows.lengths(self.frame.matrix if self.frame.diagonal is None else self.frame.diagonal)
        )


def row_norms(rows: Array, constant: float = 0.0) -> Array:
    """Return ``sqrt(constant^2 + ||u||^2)`` of transformed rows, rounded up."""
    squares = constant**2 + block_row_squares(rows) + UNDERFLOW
    return np.asarray(np.sqrt(squares) * (1 + _ULPS * rows.shape[1]))


def shorten_rows(block: Array, radius: float) -> Array:
    """Return rows in units of the radius, no longer than 1."""
    return np.asarray(block / np.maximum(row_norms(block), radius)[:, None])


def _scaled_row_squares(block: Array, lead: int, centre: Array, scale: Array) -> Array:
    """Return ``||scale (x - centre)||^2`` of rows ``(1, x)`` or ``x``."""
    from dpconvex.core.dense_kernels import scaled_dense_norms

    squares = np.empty(len(block))
    scaled_dense_norms(block, lead, centre, scale, squares)
    return squares


def coordinate_cancellation(matrix: Array) -> float:
    """Bound ``|| |M| |M^-1| ||``: how much larger the terms of a mapped sum can be than what they
    sum to.

    For a matrix P without negative entries ``||P||^2 <= max_i (P^T P v)_i / v_i`` whatever the
    positive v (Collatz and Wielandt); a few powers of ``P^T P`` make it tight. A diagonal, given as
    a vector, has 1.
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


@dataclass(frozen=True)
class RowNormBound:
    r"""An upper bound of the norms of rows ``(1, x)`` or ``x`` by few products.

    It saves a quarter of the time of a default fit of 1,000,000 x 50 numbers, and half of one of
    100,000 x 500.

    The norm of a row in coordinates M needs as many products with the row as there are coordinates.
    With ``M (1, x) = (h, W (x - c))`` and ``D_j = ||W_j||``, the columns' norms,
    ``G = D^-1 W^T W D^-1`` has ones on its diagonal and eigenvalues near 1 in most directions
    unless columns are strongly correlated. With its eigenvectors v, ``y = D (x - c)`` and ``b`` the
    largest eigenvalue of a bulk of them

        h^2 + ||W (x - c)||^2 <= h^2 + b ||y||^2 + sum over v outside the bulk of (eigenvalue - b)
        (v . y)^2,

    which is the norm itself but for directions in the bulk, whose eigenvalues are all taken for
    ``b``. Clips are measured in these norms, and so is the median row: what they exceed the true
    ones by costs noise, never privacy.

    ``column_scale`` is D times the square root of b, ``factors`` are eigenvalues outside the bulk
    over b, less 1.
    """

    height: float
    centre: Array
    column_scale: Array
    directions: Array
    factors: Array

    def norms(self, block: Array, lead: int) -> Array:
        """Return bounds on the norms of mapped rows."""
        squares = _scaled_row_squares(block, lead, self.centre, self.column_scale)
        if self.factors.size:
            # Row by row: what one gives must not depend on how many there are, which may be
            # private.
            columns = np.zeros(
                (block.shape[1], self.factors.size)
            )  # whole rows, of which the constant is left out
            columns[lead:] = (self.directions * self.column_scale).T
            moved = transform_block(block, columns)
            moved -= self.directions @ (self.column_scale * self.centre)
            # A difference of rounded numbers: what it may lose is within what bounds are raised by.
            squares = np.maximum(squares + block_margins(moved**2, self.factors), 0.0)
        return np.asarray(np.sqrt(self.height**2 + squares + UNDERFLOW) * (1 + _ROUNDING))


def row_norm_bound(matrix: Array, lead: int, slack: float) -> RowNormBound | None:
    """Return a bound that exceeds the root mean square norm of white rows by at most the slack;
    None if none pays.

    Everything here is post-processing of the released matrix. None is returned where rounding could
    use up more than a tenth of what bounds are raised by: with
    ``||y|| sqrt(least eigenvalue) <= N``, the true bound, ``N >= h`` and at most
    ``k = 4 (dimension + 4)`` roundings per term, squares err by
    ``k u (contrast + (1 + ||D c|| / h)^2)`` relative to ``N^2``, contrast being the ratio of the
    bulk's largest to the least eigenvalue.
    """
    size = len(matrix) - lead
    height = float(matrix[0, 0]) if lead else 1.0
    inner = matrix[lead:, lead:]
    norms = np.sqrt(np.einsum("ij,ij->j", inner, inner))
    if size < 2 or not (norms.min() > 0 and height > 0) or (lead and matrix[0, 1:].any()):
        return None
    normal = inner / norms
    values, vectors = np.linalg.eigh(normal.T @ normal)
    first, last, top = _bulk_of_row_eigenvalues(values, slack)
    # Decompositions err by some ulp of the trace; a bound must be one.
    margin = 1e-10 * size
    top = top * (1 + 1e-9) + margin
    outside = np.r_[0:first, last:size]
    contrast = top / max(float(values[0]), 1e-300)
    if outside.size > _MOST_OUTSIDE * size or contrast > _MOST_CONTRAST:
        return None
    centre: Array = np.zeros(size)
    missed: Array = np.zeros(size)
    if lead:  # the centre is rounded, and so is what is missed
        centre = np.asarray(-np.linalg.solve(inner, matrix[lead:, 0]), dtype=np.float64)
        sizes = np.abs(inner) @ np.abs(centre) + np.abs(matrix[lead:, 0])
        missed = np.abs(inner @ centre + matrix[lead:, 0]) + 4 * len(matrix) * 2.0**-53 * sizes
    offset = float(np.linalg.norm(norms * math.sqrt(top) * centre)) / height
    error = 4 * (size + 5) * 2.0**-53 * (contrast + (1 + offset) ** 2)
    error += 2 * float(np.linalg.norm(missed)) / height
    if error > 0.1 * _ROUNDING:
        return None
    factors = (values[outside] + margin) / top - 1
    return RowNormBound(
        height, centre, norms * math.sqrt(top), np.ascontiguousarray(vectors[:, outside].T), factors
    )


def _bulk_of_row_eigenvalues(values: Array, slack: float) -> tuple[int, int, float]:
    """Return the longest run ``[first, last)`` of ascending eigenvalues that may all be taken for
    its largest.

    In white rows the square along an eigenvector has mean 1 / eigenvalue: taken for b it counts b /
    eigenvalue.
    """
    size = values.size
    allowed = ((1 + slack) ** 2 - 1) * (1 + size)
    inverse = np.concatenate([[0.0], np.cumsum(1 / np.maximum(values, 1e-300))])
    best = (0, 0, 0.0)
    first = 0
    for last in range(1, size + 1):
        top = float(values[last - 1])
        while top * (inverse[last] - inverse[first]) - (last - first) > allowed:
            first += 1
        if last - first > best[1] - best[0]:
            best = first, last, top
    return best
