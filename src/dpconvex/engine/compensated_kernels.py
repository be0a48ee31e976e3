"""Compiled sums and products of dense rows with twice the digits of float64, for certified gaps of
minimisers.

No fastmath, as in :mod:`dpconvex.core.dense_kernels`. A default fit needs none of them.
"""

from __future__ import annotations

import numba
import numpy as np

from dpconvex.types import Array


@numba.njit(nogil=True, cache=True, inline="always")
def dense_product_error(a: float, b: float, product: float) -> float:
    """Return ``a b - product`` exactly (Dekker)."""
    scaled = 134217729.0 * a  # 2^27 + 1
    a_high = scaled - (scaled - a)
    a_low = a - a_high
    scaled = 134217729.0 * b
    b_high = scaled - (scaled - b)
    b_low = b - b_high
    return a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


@numba.njit(nogil=True, cache=True)
def dense_margins_with_error(
    block: Array, theta: Array, margins: Array, corrections: Array
) -> None:
    """Compute ``block @ theta`` as an unevaluated sum ``margins + corrections``."""
    # Every product and every addition is split into its rounded value and its exact error (Dekker,
    # Knuth): the pair has twice the digits of float64.
    for i in range(block.shape[0]):
        total = 0.0
        error = 0.0
        for j in range(block.shape[1]):
            product = block[i, j] * theta[j]
            added = total + product
            back = added - total
            error += ((total - (added - back)) + (product - back)) + dense_product_error(
                block[i, j], theta[j], product
            )
            total = added
        margins[i] = total
        corrections[i] = error


@numba.njit(nogil=True, cache=True)
def combine_dense_with_error(multiples: Array, block: Array, totals: Array, errors: Array) -> None:
    """Add ``multiples @ block`` to the unevaluated sum ``totals + errors``; additions lose
    nothing (Knuth).
    """
    for i in range(block.shape[0]):
        for j in range(block.shape[1]):
            term = multiples[i] * block[i, j]
            total = totals[j]
            added = total + term
            back = added - total
            errors[j] += (total - (added - back)) + (term - back)
            totals[j] = added


class CompensatedBlockSum:
    """``sum_i m_i x_i`` over blocks of rows, as an unevaluated sum of two vectors.

    Engines add what blocks return with ``+=``; here that keeps what an addition rounds away. A term
    passes through the rounding of its product and of the final result; all others together count
    less than one as long as no term passes through more than 2^25 additions.
    """

    def __init__(self, multiples: Array, block: Array) -> None:
        self.total = np.zeros(block.shape[1])
        self.error = np.zeros(block.shape[1])
        plain = np.ascontiguousarray(multiples, dtype=np.float64)
        combine_dense_with_error(plain, block, self.total, self.error)

    def __iadd__(self, other: CompensatedBlockSum) -> CompensatedBlockSum:
        added = self.total + other.total
        back = added - self.total
        lost = (self.total - (added - back)) + (other.total - back)
        self.error = self.error + (lost + other.error)
        self.total = added
        return self

    @property
    def value(self) -> Array:
        """The sum, rounded once."""
        return np.asarray(self.total + self.error)
