r"""Lengths of rows in coordinates, bounded from above by what few products tell: for tables of very many rows.

A row's length in coordinates M needs as many products with the row as there are coordinates. With
``M (1, x) = (h, W (x - c))`` and ``D_j = ||W_j||``, the columns' norms, ``G = D^-1 W^T W D^-1`` has ones on its
diagonal and eigenvalues near 1 in most directions unless columns are strongly correlated. With its eigenvectors v,
``y = D (x - c)`` and ``b`` the largest eigenvalue of a bulk of them

    h^2 + ||W (x - c)||^2  <=  h^2 + b ||y||^2 + sum over v outside the bulk of (eigenvalue - b) (v . y)^2,

which is the length itself but for directions in the bulk, whose eigenvalues are all taken for ``b``. Clips are measured
in these lengths, and so is the typical row: what they exceed the true ones by costs noise, never privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpconvex.engine.blocks import placed_rows, row_margins
from dpconvex.types import Array

__all__ = ["LengthCover", "length_cover"]


UNDERFLOW = 1e-290  # added to squared lengths: none is 0 where squares are too small for a number
_MOST_OUTSIDE = 0.25  # share of the directions outside the bulk up to which products are saved
_ROUNDING = 1e-6  # relative: what lengths are raised by, of which rounding may use a tenth
_MOST_CONTRAST = 1e4  # of eigenvalues: differences must keep their digits


@dataclass(frozen=True)
class LengthCover:
    """An upper bound of the lengths of rows ``(1, x)`` or ``x``.

    Attributes
    ----------
    height : float
        Length of the constant.
    centre, stretch : array of shape (n_features,)
        c, and D times the square root of b.
    directions : array of shape (outside, n_features)
        Eigenvectors outside the bulk.
    factors : array of shape (outside,)
        Their eigenvalues over b, less 1.
    """

    height: float
    centre: Array
    stretch: Array
    directions: Array
    factors: Array
    raised: ClassVar[float] = 1 + _ROUNDING

    def lengths(self, block: Array, lead: int) -> Array:
        """Return bounds on the lengths of mapped rows."""
        from dpconvex.engine.mapping import stretched_squares

        squares = np.empty(len(block))
        stretched_squares(block, lead, self.centre, self.stretch, squares)
        if self.factors.size:
            # Row by row: what one gives must not depend on how many there are, which is private where people vote.
            columns = np.zeros((block.shape[1], self.factors.size))  # whole rows, of which the constant is left out
            columns[lead:] = (self.directions * self.stretch).T
            moved = placed_rows(block, columns)
            moved -= self.directions @ (self.stretch * self.centre)
            # A difference of rounded numbers: what it may lose is within what lengths are raised by.
            squares = np.maximum(squares + row_margins(moved**2, self.factors), 0.0)
        return np.asarray(np.sqrt(self.height**2 + squares + UNDERFLOW) * self.raised)


def length_cover(matrix: Array, lead: int, excess: float) -> LengthCover | None:
    """Return a bound that exceeds the root mean square length of white rows by at most a share; None if none pays.

    Parameters
    ----------
    matrix : array of shape (dimension, dimension)
        Released coordinates, as in ``Coordinates``.
    lead : int
        1 with an intercept, 0 without.
    excess : float
        Largest share by which lengths may be exceeded.

    Notes
    -----
    Everything here is post-processing of the released matrix. None is returned where rounding could use up more than
    a tenth of what lengths are raised by: with ``||y|| sqrt(least eigenvalue) <= N``, the true bound, ``N >= h`` and at
    most ``k = 4 (dimension + 4)`` roundings per term, squares err by
    ``k u (contrast + (1 + ||D c|| / h)^2)`` relative to ``N^2``, contrast being the ratio of the bulk's largest to the
    least eigenvalue.
    """
    size = len(matrix) - lead
    height = float(matrix[0, 0]) if lead else 1.0
    inner = matrix[lead:, lead:]
    norms = np.sqrt(np.einsum("ij,ij->j", inner, inner))
    if size < 2 or not (norms.min() > 0 and height > 0) or (lead and matrix[0, 1:].any()):
        return None
    normal = inner / norms
    values, vectors = np.linalg.eigh(normal.T @ normal)
    first, last, top = _bulk(values, excess)
    # Decompositions err by some ulp of the trace; a bound must be one.
    slack = 1e-10 * size
    top = top * (1 + 1e-9) + slack
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
    factors = (values[outside] + slack) / top - 1
    return LengthCover(height, centre, norms * math.sqrt(top), np.ascontiguousarray(vectors[:, outside].T), factors)


def _bulk(values: Array, excess: float) -> tuple[int, int, float]:
    """Return the longest stretch ``[first, last)`` of ascending eigenvalues that may all be taken for its largest.

    In white rows the square along an eigenvector has mean 1 / eigenvalue: taken for b it counts b / eigenvalue.
    """
    size = values.size
    allowed = ((1 + excess) ** 2 - 1) * (1 + size)
    inverse = np.concatenate([[0.0], np.cumsum(1 / np.maximum(values, 1e-300))])
    best, first = (0, 0, 0.0), 0
    for last in range(1, size + 1):
        top = float(values[last - 1])
        while top * (inverse[last] - inverse[first]) - (last - first) > allowed:
            first += 1
        if last - first > best[1] - best[0]:
            best = first, last, top
    return best
