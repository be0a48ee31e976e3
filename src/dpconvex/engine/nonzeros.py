"""Compiled kernels on rows of which only the non-zeros are stored: margins, and sums of multiples.

A mapped row is ``x = f (base + scale * c)``: ``c = clip(value) - clip(0)`` is 0 wherever nothing is stored, ``base`` is
what the public map makes of a zero (0 in columns whose bounds contain it), and f shortens the row (0 for void ones).
Neither base nor f is ever multiplied out: base enters margins as one number and sums as one multiple of it.

Sums over rows keep what their additions round away (Knuth), so what a record contributes is what is added, and no
number of rows makes the rounding of others matter. Imported lazily, because importing numba takes half a second.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from dpconvex.engine.fused import _add_sigmoids, _arguments, _limit, _negate_and_sum, _scale
from dpconvex.engine.rows import Places
from dpconvex.types import Array

__all__ = [
    "combine_nonzeros",
    "fill_dense",
    "is_canonical",
    "margins_of_nonzeros",
    "sigmoid_of_nonzeros",
    "survey_nonzeros",
]

Columns = npt.NDArray[np.uint32]  # unsigned: numba would ask of others whether they count from the end
Values = npt.NDArray[Any]

TILE = 512  # rows between margins and sums: their non-zeros stay in the cache
_FAST = {"reassoc", "contract"}
_SPLITTER = 134217729.0  # 2^27 + 1


@numba.njit(nogil=True, cache=True, inline="always")
def offset(value: float, low: float, high: float, zero: float) -> float:
    """Return ``clip(value) - clip(0)``; a missing value falls on the lower bound."""
    value = value if value > low else low
    value = value if value < high else high
    return value - zero


@numba.njit(nogil=True, cache=True, inline="always")
def first_of(indptr: Places, row: int) -> Any:
    """Return where a row begins among the stored values, unsigned."""
    return np.uint64(indptr[row])


@numba.njit(nogil=True, cache=True)
def is_canonical(indptr: npt.NDArray[Any], columns: npt.NDArray[Any], stored: int, width: int) -> bool:
    """Return whether every row holds columns in increasing order, all of them there, and all rows what is stored."""
    if indptr.size == 0 or indptr[0] != 0 or indptr[indptr.size - 1] != stored:
        return False
    if columns.size != stored:
        return False
    for i in range(indptr.size - 1):
        if indptr[i + 1] < indptr[i] or indptr[i + 1] > stored:
            return False
        before = -1
        for k in range(indptr[i], indptr[i + 1]):
            if columns[k] <= before or columns[k] >= width:
                return False
            before = columns[k]
    return True


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def survey_nonzeros(
    indptr: Places,
    columns: Columns,
    values: Values,
    places: Places,
    low: Array,
    high: Array,
    zero: Array,
    scale: Array,
    base: Array,
    base_square: float,
    row_norm: float,
    measure: bool,
    factors: Array,
) -> bool:
    """Return whether no value is clipped, and store ``min(1, row_norm / ||x_i||)``, the norm rounded up.

    ``||x||^2 = ||base||^2 + sum of (base + d)^2 - base^2`` over stored values, plus a bound of what rounding took.
    """
    inside = True
    unit = 2.3e-16
    for i in range(places.size):
        first, last = first_of(indptr, places[i]), first_of(indptr, places[i] + 1)
        square, size = base_square, base_square
        for k in range(first, last):
            j = columns[k]
            value = np.float64(values[k])
            clipped = offset(value, low[j], high[j], 0.0)
            inside = inside and clipped == value
            moved = (clipped - zero[j]) * scale[j]
            if base.size:
                square += moved * (2.0 * base[j] + moved)
                size += moved * moved + base[j] * base[j]
            else:
                square += moved * moved
        if base.size == 0:
            size = square
        if measure:
            norm = math.sqrt(square + size * (3.0 * (last - first) + 8.0) * unit) * (1.0 + 4 * unit)
            factors[i] = row_norm / norm if norm > row_norm else 1.0
    return inside


@numba.njit(nogil=True, cache=True)
def fill_dense(
    indptr: Places,
    columns: Columns,
    values: Values,
    places: Places,
    low: Array,
    high: Array,
    shift: Array,
    scale: Array,
    base: Array,
    factors: Array,
    lead: int,
    out: Array,
) -> None:
    """Write mapped rows with all their zeros into a block."""
    for i in range(places.size):
        target = out[i]
        target[:lead] = 1.0
        if base.size:
            for j in range(base.size):
                target[lead + j] = base[j]
        else:
            target[lead:] = 0.0
        for k in range(first_of(indptr, places[i]), first_of(indptr, places[i] + 1)):
            j = columns[k]
            inside = offset(np.float64(values[k]), low[j], high[j], 0.0)
            target[lead + j] = (inside - shift[j]) * scale[j]
        if factors.size:
            for j in range(lead, target.size):
                target[j] *= factors[i]


# No fastmath from here on: whether any value is clipped must not change bits of other rows' margins, and error terms
# vanish if the compiler may reorder sums.


@numba.njit(nogil=True, cache=True)
def margins_of_nonzeros(
    indptr: Places,
    columns: Columns,
    values: Values,
    places: Places,
    low: Array,
    high: Array,
    zero: Array,
    scaled: Array,
    plain: bool,
    margins: Array,
) -> None:
    """``margins[i] = sum of c scaled`` over the stored values of a row; with `plain` nothing is clipped or shifted."""
    for i in range(places.size):
        total = 0.0
        if plain:
            for k in range(first_of(indptr, places[i]), first_of(indptr, places[i] + 1)):
                total += np.float64(values[k]) * scaled[columns[k]]
        else:
            for k in range(first_of(indptr, places[i]), first_of(indptr, places[i] + 1)):
                j = columns[k]
                total += offset(np.float64(values[k]), low[j], high[j], zero[j]) * scaled[j]
        margins[i] = total


@numba.njit(nogil=True, cache=True, inline="always")
def _product_error(a: float, b: float, product: float) -> float:
    """Return ``a b - product`` exactly (Dekker)."""
    scaled = _SPLITTER * a
    a_high = scaled - (scaled - a)
    a_low = a - a_high
    scaled = _SPLITTER * b
    b_high = scaled - (scaled - b)
    b_low = b - b_high
    return a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low)


@numba.njit(nogil=True, cache=True)
def shifted_margins(
    indptr: Places,
    columns: Columns,
    values: Values,
    places: Places,
    low: Array,
    high: Array,
    zero: Array,
    scaled: Array,
    start: float,
    rest: float,
    margins: Array,
) -> None:
    """Margins that begin at ``start + rest``, that of a row of zeros: a row's own part may cancel all of it.

    Products and additions keep their errors, so a margin is right to its own last digits.
    """
    for i in range(places.size):
        total, error = start, rest
        for k in range(first_of(indptr, places[i]), first_of(indptr, places[i] + 1)):
            j = columns[k]
            a = offset(np.float64(values[k]), low[j], high[j], zero[j])
            product = a * scaled[j]
            lost = _product_error(a, scaled[j], product)
            added = total + product
            back = added - total
            error += ((total - (added - back)) + (product - back)) + lost
            total = added
        margins[i] = total + error


@numba.njit(nogil=True, cache=True)
def combine_nonzeros(
    indptr: Places,
    columns: Columns,
    values: Values,
    places: Places,
    low: Array,
    high: Array,
    zero: Array,
    plain: bool,
    multiples: Array,
    totals: Array,
    errors: Array,
) -> None:
    """Add ``multiples_i c_ij`` to the unevaluated sums ``totals_j + errors_j``."""
    for i in range(places.size):
        multiple = multiples[i]
        for k in range(first_of(indptr, places[i]), first_of(indptr, places[i] + 1)):
            j = columns[k]
            value = np.float64(values[k])
            if not plain:
                value = offset(value, low[j], high[j], zero[j])
            term = multiple * value
            total = totals[j]
            added = total + term
            back = added - total
            errors[j] += (total - (added - back)) + (term - back)
            totals[j] = added


@numba.njit(nogil=True, cache=True)
def add_numbers(numbers: Array, sums: Array, place: int) -> None:
    """Add numbers to the unevaluated sum ``sums[place] + sums[place + 1]``."""
    total, error = sums[place], sums[place + 1]
    for i in range(numbers.size):
        added = total + numbers[i]
        back = added - total
        error += (total - (added - back)) + (numbers[i] - back)
        total = added
    sums[place], sums[place + 1] = total, error


@numba.njit(nogil=True, cache=True)
def sigmoid_of_nonzeros(
    indptr: Places,
    columns: Columns,
    values: Values,
    places: Places,
    low: Array,
    high: Array,
    zero: Array,
    scaled: Array,
    plain: bool,
    shifted: bool,
    start: float,
    rest: float,
    constant: float,
    targets: Array,
    weights: Array,
    factors: Array,
    residual: bool,
    limit: float,
    rate: float,
    first: float,
    knots: Array,
    jumps: Array,
    clip: float,
    totals: Array,
    errors: Array,
    sums: Array,
) -> None:
    """Add slopes times rows, as `dpconvex.engine.fused.sigmoid_gradient` does, from non-zeros.

    ``sums`` receives the unevaluated sums of the slopes, and of the slopes times factors.
    """
    arguments = np.empty(TILE)
    slopes = np.empty(2 * TILE)
    powers = np.empty(TILE, dtype=np.int64)
    scales = powers.view(np.float64)
    for begin in range(0, places.size, TILE):
        rows = min(TILE, places.size - begin)
        u, multiples = arguments[:rows], slopes[:rows]
        here = places[begin : begin + rows]
        if shifted:
            shifted_margins(indptr, columns, values, here, low, high, zero, scaled, start, rest, u)
        else:
            margins_of_nonzeros(indptr, columns, values, here, low, high, zero, scaled, plain, u)
        if factors.size:
            _scale(u, factors[begin : begin + rows])
        y = targets[begin : begin + rows]
        _arguments(u, y, constant, limit, residual)
        multiples[:] = first
        for k in range(knots.size):
            _add_sigmoids(u, knots[k], rate, jumps[k], powers, scales, slopes[: 2 * rows])
        sign = -1.0
        if not residual:
            sign = 1.0
            _scale(multiples, y)
        if clip > 0.0:
            _limit(multiples, weights[begin : begin + rows], clip)
        elif weights.size:
            _scale(multiples, weights[begin : begin + rows])
        _negate_and_sum(multiples, sign)
        add_numbers(multiples, sums, 0)
        if factors.size:
            _scale(multiples, factors[begin : begin + rows])
        add_numbers(multiples, sums, 2)
        combine_nonzeros(indptr, columns, values, here, low, high, zero, plain, multiples, totals, errors)
