"""Compiled sums and products of dense rows with twice the digits of float64, for certified gaps of
minimisers.

No fastmath, as in :mod:`dpconvex.core.dense_kernels`. A default fit needs none of them.
"""

import numba

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
