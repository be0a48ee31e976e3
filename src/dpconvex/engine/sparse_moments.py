"""Second moments of sparse rows, by products and sums that keep what floating point rounds away.

Second moments of rows are summed in the rows' own units and mapped afterwards, where most of them
cancels: what is left must still have all its digits.
"""

from __future__ import annotations

import math
from typing import Self

import numpy as np

from dpconvex.core.summation import most_summation_additions
from dpconvex.types import Array

_SPLITTER = 2.0**27 + 1


def exact_moment_sums(a: Array, b: Array) -> tuple[Array, Array]:
    """Return ``a + b`` as rounded sums and their errors (Knuth)."""
    added = a + b
    back = added - a
    return added, (a - (added - back)) + (b - back)


def exact_moment_products(a: Array, b: Array) -> tuple[Array, Array]:
    """Return ``a * b`` as rounded products and their errors (Dekker)."""
    product = a * b
    (a_high, a_low) = _split_halves(a)
    (b_high, b_low) = _split_halves(b)
    lost = a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)
    return product, lost


def _split_halves(values: Array) -> tuple[Array, Array]:
    scaled = _SPLITTER * values
    high = scaled - (scaled - values)
    return high, values - high


def affine_moment_map(matrix: Array, lead: int, base: Array) -> tuple[Array, Array]:
    """Return ``M'`` with ``M (1, base + d) = M' (1, d)``, and columns' norms before anything
    cancels, rounded up.
    """
    # Without lead, where M has no column for a constant, a row (1, 0) stands in front of M'. Empty
    # base is 0.
    slopes = matrix[:, lead:]
    base = base if base.size else np.zeros(slopes.shape[1])
    constant = matrix[:, 0] if lead else np.zeros(len(matrix))
    mapped = np.column_stack([constant + slopes @ base, slopes])
    sizes = np.column_stack([np.abs(constant) + np.abs(slopes) @ np.abs(base), slopes])
    if not lead:
        top = np.eye(1, mapped.shape[1])
        mapped = np.vstack([top, mapped])
        sizes = np.vstack([top, sizes])
    round_up = 1 + 2 * len(mapped) * 2.3e-16
    return mapped, np.sqrt(np.einsum("ij,ij->j", sizes, sizes)) * round_up


class MomentSums:
    """Sums ``high + low`` of ``a a^T``, rows ``a = f (1, d)`` without their base, on and below the
    diagonal.

    Engines add what parts of the rows return with ``+=``; here that keeps what an addition rounds
    away. `base` is what was left out of rows, or empty; `lead` is 1 if rows have a constant, else
    0.
    """

    def __init__(self, high: Array, low: Array, base: Array, lead: int) -> None:
        self.high = high
        self.low = low
        self.base = base
        self.lead = lead

    def __iadd__(self, other: MomentSums) -> Self:
        self.high, lost = exact_moment_sums(self.high, other.high)
        self.low = self.low + (lost + other.low)
        return self

    def mapped(self, matrix: Array, n_rows: int) -> Array:
        """Return the mapped second moments ``sum f^2 (M x~) (M x~)^T``, M a matrix or its
        diagonal.
        """
        # To the digits that a sum of so many vectors of length 1 would have.
        high, low = (np.tril(part) + np.tril(part, -1).T for part in (self.high, self.low))
        if matrix.ndim == 1 and not self.base.size:
            first = 1 - self.lead
            return np.asarray((high + low)[first:, first:] * matrix * matrix[:, None])
        full = np.diag(matrix) if matrix.ndim == 1 else matrix
        mapped, _ = affine_moment_map(full, self.lead, self.base)
        mapped = mapped[1 - self.lead :]
        # M G M^T with an error of at most so much in Frobenius norm; powers of 2 give columns of M
        # a norm of about 1.
        allowed = n_rows * most_summation_additions(n_rows, len(matrix)) * 2.0**-53
        norms = np.maximum(np.sqrt(np.einsum("ij,ij->j", mapped, mapped)), 1e-280)
        unit = 2.0 ** np.round(np.log2(norms))
        scaled = mapped / unit
        outer = unit * unit[:, None]
        half = allowed / (2 * float(np.linalg.norm(scaled)))
        right, rest = _moment_product(high * outer, low * outer, scaled.T, half)
        found, lost = _moment_product(right.T, rest.T, scaled.T, allowed / 2)
        found = found + lost
        return np.asarray((found + found.T) / 2)


def _moment_product(
    left: Array, left_low: Array, right: Array, allowed: float
) -> tuple[Array, Array]:
    """Return ``(left + left_low) @ right`` as an unevaluated sum that errs by `allowed` at most
    (Frobenius).
    """
    # Both factors are cut into slices of so few bits that sums of products of slices are exact
    # (Ozaki's scheme): L R = sum_{p + q < s} L_p R_q + sum_{p < s} L_p R^{(s - p)} + L^{(s)} R,
    # R^{(k)} what k slices leave. The first sum is computed, with so many slices that the norms of
    # the rest allow to leave it out.
    left, left_low = exact_moment_sums(left, left_low)
    for most in (4, 8, 16):
        width = (53 - math.ceil(math.log2(most * left.shape[1]))) // 2
        ahead = _MomentSlices(left, left_low, width, 1)
        behind = _MomentSlices(right, None, width, 0)
        for count in range(1, most + 1):
            ahead.cut()
            behind.cut()
            out = sum(2 * ahead.left[p] * behind.left[count - p] for p in range(count))
            if out + ahead.left[count] * behind.left[0] <= allowed:
                return _sum_moment_slices(ahead.parts, behind.parts)
    return _sum_moment_slices(ahead.parts, behind.parts)  # hundreds of bits


def _sum_moment_slices(lefts: list[Array], rights: list[Array]) -> tuple[Array, Array]:
    """Return the product of two sliced matrices as an exact sum and the rest that it leaves out."""
    total = np.zeros((lefts[0].shape[0], rights[0].shape[1]))
    rest = np.zeros_like(total)
    for level in range(len(lefts), 0, -1):  # of one level all products are multiples of one number
        ahead = np.hstack(lefts[:level])
        total, lost = exact_moment_sums(total, ahead @ np.vstack(rights[:level][::-1]))
        rest += lost
    return total, rest


class _MomentSlices:
    """Numbers cut into slices: multiples of ``2^{-k w}`` of the largest of a row or column, at
    most ``2^w`` each.
    """

    def __init__(self, high: Array, low: Array | None, width: int, axis: int) -> None:
        self.high = high
        self.low = low
        self.width = width
        largest = np.max(np.abs(high), axis=axis, keepdims=True)
        self.top = 2.0 ** np.ceil(np.log2(np.maximum(largest, 1e-290)))
        self.parts: list[Array] = []
        self.left = [self._norm()]

    def cut(self) -> None:
        """Cut another slice off the numbers whose moments are summed."""
        # What two slices leave has so few bits that the low part, half an ulp of the high one,
        # finds room.
        if len(self.parts) == 2 and self.low is not None:
            self.high = self.high + self.low
            self.low = None
        # Adding and taking away a large number rounds to a multiple of its last digit.
        anchor = 0.75 * self.top * 2.0 ** (53 - (len(self.parts) + 1) * self.width)
        part = (self.high + anchor) - anchor
        self.parts.append(part)
        self.high = self.high - part
        self.left.append(self._norm())

    def _norm(self) -> float:
        found = float(np.linalg.norm(self.high))
        return found if self.low is None else found + float(np.linalg.norm(self.low))
