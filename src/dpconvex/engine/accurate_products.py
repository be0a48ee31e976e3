"""Products and sums that keep what floating point rounds away.

Second moments of rows are summed in the rows' own units and mapped afterwards, where most of them cancels: what is left
must still have all its digits.
"""

from __future__ import annotations

import math
from typing import Self

import numpy as np
import numpy.typing as npt

from dpconvex.engine.summation_order import most_additions

__all__ = ["MomentSums", "affine_map", "exact_products", "exact_sums"]

Array = npt.NDArray[np.float64]

_SPLITTER = 2.0**27 + 1


def exact_sums(a: Array, b: Array) -> tuple[Array, Array]:
    """Return ``a + b`` as rounded sums and their errors (Knuth)."""
    added = a + b
    back = added - a
    return added, (a - (added - back)) + (b - back)


def exact_products(a: Array, b: Array) -> tuple[Array, Array]:
    """Return ``a * b`` as rounded products and their errors (Dekker)."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    lost = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return product, lost


def _halves(values: Array) -> tuple[Array, Array]:
    scaled = _SPLITTER * values
    high = scaled - (scaled - values)
    return high, values - high


def affine_map(matrix: Array, lead: int, base: Array) -> tuple[Array, Array]:
    """Return ``M'`` with ``M (1, base + d) = M' (1, d)``, and its columns' norms before anything cancels, rounded up.

    Without `lead`, where M has no column for a constant, a row ``(1, 0)`` stands in front of M'. Empty `base` is 0.
    """
    slopes = matrix[:, lead:]
    base = base if base.size else np.zeros(slopes.shape[1])
    constant = matrix[:, 0] if lead else np.zeros(len(matrix))
    mapped = np.column_stack([constant + slopes @ base, slopes])
    sizes = np.column_stack([np.abs(constant) + np.abs(slopes) @ np.abs(base), slopes])
    if not lead:
        top = np.eye(1, mapped.shape[1])
        mapped, sizes = np.vstack([top, mapped]), np.vstack([top, sizes])
    round_up = 1 + 2 * len(mapped) * 2.3e-16
    return mapped, np.sqrt(np.einsum("ij,ij->j", sizes, sizes)) * round_up


class MomentSums:
    """Sums ``high + low`` of ``a a^T``, rows ``a = f (1, d)`` without their base, on and below the diagonal.

    Engines add what parts of the rows return with ``+=``; here that keeps what an addition rounds away.

    Parameters
    ----------
    high, low : array of shape (1 + columns, 1 + columns)
        The unevaluated sum.
    base : array
        What was left out of rows, or empty.
    lead : int
        1 if rows have a constant, else 0.
    void : float
        Number of void rows, which were left out.
    """

    def __init__(
        self, high: Array, low: Array, base: Array, lead: int, void: float = 0.0
    ) -> None:
        self.high, self.low, self.base, self.lead, self.void = high, low, base, lead, void

    def __iadd__(self, other: MomentSums) -> Self:
        self.high, lost = exact_sums(self.high, other.high)
        self.low = self.low + (lost + other.low)
        self.void += other.void
        return self

    def mapped(self, matrix: Array, n_rows: int) -> Array:
        """Return ``sum f^2 (M x~) (M x~)^T`` to the digits that a sum of so many vectors of length 1 would have.

        Parameters
        ----------
        matrix : array of shape (dim, dim) or (dim,)
            M, or its diagonal.
        n_rows : int
            Number of rows.
        """
        high, low = (np.tril(part) + np.tril(part, -1).T for part in (self.high, self.low))
        if matrix.ndim == 1 and not self.base.size:
            first = 1 - self.lead
            return np.asarray((high + low)[first:, first:] * matrix * matrix[:, None])
        full = np.diag(matrix) if matrix.ndim == 1 else matrix
        mapped, _ = affine_map(full, self.lead, self.base)
        allowed = n_rows * most_additions(n_rows, len(matrix)) * 2.0**-53
        return _congruence(mapped[1 - self.lead :], high, low, allowed)


def _congruence(matrix: Array, high: Array, low: Array, allowed: float) -> Array:
    r"""Return ``M G M^T`` of a symmetric ``G = high + low`` with an error of at most `allowed` in Frobenius norm.

    G is scaled by powers of 2 so that columns of M have norm about 1. Both factors are cut into slices of so few bits
    that products of slices are exact, and these are added from the smallest on (Ozaki's scheme). With ``w`` bits in a
    slice and ``s`` slices, what is left out of ``G M^T`` has norm at most ``8 (s + 1) d^2 2^{-w s} max |G|``, and M
    makes it ``1.5 sqrt(d)`` times as large; as much again is left out of the second product.
    """
    norms = np.maximum(np.sqrt(np.einsum("ij,ij->j", matrix, matrix)), 1e-280)
    unit = 2.0 ** np.round(np.log2(norms))
    scaled, outer = matrix / unit, unit * unit[:, None]
    high, low, size = high * outer, low * outer, matrix.shape[1]
    width = (53 - math.ceil(math.log2(size + 1))) // 2
    count, left_out = 1, math.inf
    largest = max(float(np.abs(high).max()), 1e-280)
    while left_out > allowed:
        count += 1
        left_out = 24 * (count + 1) * size**2.5 * 2.0 ** (-width * count) * largest
    right, rest = _product(high, low, scaled.T, count, width)
    found, lost = _product(right.T, rest.T, scaled.T, count, width)
    found = found + lost
    return np.asarray((found + found.T) / 2)


def _product(
    left: Array, left_low: Array, right: Array, count: int, width: int
) -> tuple[Array, Array]:
    """Return ``(left + left_low) @ right`` as an unevaluated sum, from exact products of slices."""
    left, left_low = exact_sums(left, left_low)
    nothing = np.zeros_like(right)
    lefts = _slices(left, left_low, count, width, axis=1)
    rights = _slices(right, nothing, count, width, axis=0)
    total = np.zeros((left.shape[0], right.shape[1]))
    rest = np.zeros_like(total)
    for level in range(count + 1, 1, -1):
        for k in range(max(1, level - count), min(count, level - 1) + 1):
            total, lost = exact_sums(total, lefts[k - 1] @ rights[level - k - 1])
            rest += lost
    return total, rest


def _slices(high: Array, low: Array, count: int, width: int, axis: int) -> list[Array]:
    """Cut numbers into slices: multiples of ``2^{-k w}`` of the largest of their row or column, at most ``2^w`` each."""
    largest = np.max(np.abs(high), axis=axis, keepdims=True)
    top = 2.0 ** np.ceil(np.log2(np.maximum(largest, 1e-290)))
    found = []
    for k in range(count):
        if k == 2:  # what is left of the high part has so few bits that the low part, half an ulp, finds room
            high = high + low
        # Adding and taking away a large number rounds to a multiple of its last digit.
        anchor = 0.75 * top * 2.0 ** (53 - (k + 1) * width)
        part = (high + anchor) - anchor
        found.append(part)
        high = high - part
    return found
