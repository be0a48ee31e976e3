"""Compiled kernels on rows of which only the non-zeros are stored: margins, sums of multiples, lengths, moments.

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

from dpconvex.engine.fused import (
    _add_sigmoids,
    _arguments,
    _limit,
    _negate_and_sum,
    _scale,
)
from dpconvex.engine.rows import Array, Places

__all__ = [
    "combine_nonzeros",
    "count_nonzero_octaves",
    "fill_dense",
    "gram_nonzeros",
    "is_canonical",
    "margins_of_nonzeros",
    "moments_of_nonzeros",
    "quadratic_lengths",
    "sigmoid_of_nonzeros",
    "survey_nonzeros",
]

Columns = npt.NDArray[
    np.uint32
]  # unsigned: numba would ask of others whether they count from the end
Values = npt.NDArray[Any]

TILE = 512  # rows between margins and sums: their non-zeros stay in the cache
GRAM_TILE = 256  # rows whose products are added column by column
_FAST = {"reassoc", "contract"}
_SPLITTER = 134217729.0  # 2^27 + 1


@numba.njit(nogil=True, cache=True, inline="always")
def _offset(value: float, low: float, high: float, zero: float) -> float:
    """Return ``clip(value) - clip(0)``; a missing value falls on the lower bound."""
    value = value if value > low else low
    value = value if value < high else high
    return value - zero


@numba.njit(nogil=True, cache=True, inline="always")
def _first(indptr: Places, row: int) -> Any:
    """Return where a row begins among the stored values, unsigned."""
    return np.uint64(indptr[row])


@numba.njit(nogil=True, cache=True)
def is_canonical(
    indptr: npt.NDArray[Any], columns: npt.NDArray[Any], stored: int, width: int
) -> bool:
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
        first, last = _first(indptr, places[i]), _first(indptr, places[i] + 1)
        square, size = base_square, base_square
        for k in range(first, last):
            j = columns[k]
            value = np.float64(values[k])
            clipped = _offset(value, low[j], high[j], 0.0)
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
        for k in range(_first(indptr, places[i]), _first(indptr, places[i] + 1)):
            j = columns[k]
            inside = _offset(np.float64(values[k]), low[j], high[j], 0.0)
            target[lead + j] = (inside - shift[j]) * scale[j]
        if factors.size:
            for j in range(lead, target.size):
                target[j] *= factors[i]


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
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
            for k in range(_first(indptr, places[i]), _first(indptr, places[i] + 1)):
                total += np.float64(values[k]) * scaled[columns[k]]
        else:
            for k in range(_first(indptr, places[i]), _first(indptr, places[i] + 1)):
                j = columns[k]
                total += _offset(np.float64(values[k]), low[j], high[j], zero[j]) * scaled[j]
        margins[i] = total


# No fastmath from here on: error terms vanish if the compiler may reorder sums.


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
        for k in range(_first(indptr, places[i]), _first(indptr, places[i] + 1)):
            j = columns[k]
            a = _offset(np.float64(values[k]), low[j], high[j], zero[j])
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
        for k in range(_first(indptr, places[i]), _first(indptr, places[i] + 1)):
            j = columns[k]
            value = np.float64(values[k])
            if not plain:
                value = _offset(value, low[j], high[j], zero[j])
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
        combine_nonzeros(
            indptr, columns, values, here, low, high, zero, plain, multiples, totals, errors
        )


@numba.njit(nogil=True, cache=True)
def count_nonzero_octaves(
    indptr: Places,
    columns: Columns,
    values: Values,
    places: Places,
    low: Array,
    high: Array,
    shift: Array,
    scale: Array,
    factors: Array,
    above: int,
    counts: Array,
) -> None:
    """Count the octaves of stored values, as `dpconvex.engine.mapping.count_octaves` counts those of all.

    Factors are 0 for void rows, which hold zeros in all columns, and else 1.
    """
    last = counts.shape[1] - 1
    one = np.zeros(1)
    bits = one.view(np.int64)
    octave = last
    for i in range(places.size):
        if factors.size and factors[i] == 0.0:
            continue
        for k in range(_first(indptr, places[i]), _first(indptr, places[i] + 1)):
            j = columns[k]
            inside = _offset(np.float64(values[k]), low[j], high[j], 0.0)
            mapped = (inside - shift[j]) * scale[j]
            if mapped != one[0]:  # most often it is the one before
                one[0] = mapped
                octave = 1022 + above - ((bits[0] >> 52) & 0x7FF)
                octave = octave if octave > 0 else 0
                octave = octave if octave < last else last
            counts[j, octave] += 1.0


@numba.njit(nogil=True, cache=True)
def _longest(indptr: Places, places: Places) -> int:
    """Return how many values the fullest row stores."""
    width = 0
    for i in range(places.size):
        width = max(width, indptr[places[i] + 1] - indptr[places[i]])
    return width


@numba.njit(nogil=True, cache=True)
def _tile_by_columns(
    indptr: Places,
    columns: Columns,
    values: Values,
    places: Places,
    low: Array,
    high: Array,
    zero: Array,
    scale: Array,
    begins: Places,
) -> tuple[Columns, Array, Columns, Columns, Any]:
    """Turn a tile of rows into columns: all that belongs to one of them then needs one row of a matrix, in the cache.

    Returns columns and mapped values of the rows one after the other, each with its constant in front; for every column
    in turn, up to ``begins[j]``, where the rows begin that hold it, and where they hold it; and how many numbers.
    """
    stored = places.size
    for i in range(places.size):
        stored += indptr[places[i] + 1] - indptr[places[i]]
    where, moved = np.empty(stored, dtype=np.uint32), np.empty(stored)
    heads, by_column = np.empty(stored, dtype=np.uint32), np.empty(stored, dtype=np.uint32)
    begins[:] = 0
    at = np.uint64(0)
    for i in range(places.size):
        where[at], moved[at] = 0, 1.0
        begins[1] += 1
        at += np.uint64(1)
        for k in range(_first(indptr, places[i]), _first(indptr, places[i] + 1)):
            j = columns[k]
            d = _offset(np.float64(values[k]), low[j], high[j], zero[j]) * scale[j]
            where[at], moved[at] = j + 1, d
            begins[j + 2] += 1
            at += np.uint64(1)
    for j in range(1, begins.size):
        begins[j] += begins[j - 1]
    head = np.uint32(0)
    for k in range(at):
        if where[k] == 0:
            head = np.uint32(k)
        place = np.uint64(begins[where[k]])
        begins[where[k]] += 1
        heads[place], by_column[place] = head, np.uint32(k)
    return where, moved, heads, by_column, at


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def quadratic_lengths(
    indptr: Places,
    columns: Columns,
    values: Values,
    places: Places,
    low: Array,
    high: Array,
    zero: Array,
    scale: Array,
    square: Array,
    sizes: Array,
    rounding: float,
    lengths: Array,
) -> None:
    """``lengths_i >= ||M (1, d_i)||``, ``d = scale c``, from ``square = M^T M`` and the norms ``sizes`` of M's columns.

    ``q = sum_jk S_jk d_j d_k`` with ``d_0 = 1`` errs by at most ``rounding (sum_j |d_j| sizes_j)^2``: that is added.
    """
    width = square.shape[0]
    begins = np.empty(width + 1, dtype=np.int64)
    for start in range(0, places.size, GRAM_TILE):
        stop = min(start + GRAM_TILE, places.size)
        where, moved, heads, by_column, at = _tile_by_columns(
            indptr, columns, values, places[start:stop], low, high, zero, scale, begins
        )
        row_of = np.empty(at, dtype=np.uint32)
        totals, reaches = np.zeros(stop - start), np.zeros(stop - start)
        i = 0
        for k in range(at):
            i += where[k] == 0
            row_of[k] = i - 1
            reaches[i - 1] += abs(moved[k]) * sizes[where[k]]
        before = np.uint64(0)
        for j in range(width):
            after = np.uint64(begins[j])
            row = square[j]
            for place in range(before, after):
                last = np.uint64(by_column[place])
                part = 0.5 * row[j] * moved[last]
                for k in range(np.uint64(heads[place]), last):
                    part += row[where[k]] * moved[k]
                totals[row_of[last]] += 2.0 * moved[last] * part
            before = after
        for i in range(stop - start):
            bound = totals[i] + rounding * reaches[i] * reaches[i]
            lengths[start + i] = math.sqrt(bound if bound > 0.0 else 0.0) * (1.0 + 1e-15)


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def diagonal_lengths(
    indptr: Places,
    columns: Columns,
    values: Values,
    places: Places,
    low: Array,
    high: Array,
    zero: Array,
    scale: Array,
    squares: Array,
    base: Array,
    start: float,
    rounding: float,
    lengths: Array,
) -> None:
    """``lengths_i >= sqrt(start + sum_j squares_j (x_j^2 - base_j^2))``, where `start` is what a row of zeros has."""
    for i in range(places.size):
        total, reach = start, start
        for k in range(_first(indptr, places[i]), _first(indptr, places[i] + 1)):
            j = columns[k]
            d = _offset(np.float64(values[k]), low[j], high[j], zero[j]) * scale[j]
            if base.size:
                total += squares[j] * d * (2.0 * base[j] + d)
                reach += squares[j] * (d * d + base[j] * base[j])
            else:
                total += squares[j] * d * d
        if base.size == 0:
            reach = total
        bound = total + 3.0 * rounding * reach
        lengths[i] = math.sqrt(bound if bound > 0.0 else 0.0) * (1.0 + 1e-15)


@numba.njit(nogil=True, cache=True)
def moments_of_nonzeros(
    indptr: Places,
    columns: Columns,
    values: Values,
    places: Places,
    low: Array,
    high: Array,
    zero: Array,
    scale: Array,
    factors: Array,
    totals: Array,
    errors: Array,
) -> None:
    """Add ``a a^T`` with ``a = factor (1, d)``, on and below the diagonal, to the unevaluated sum ``totals + errors``.

    Every product is a number of its record alone, and its rounding is no other record's.
    """
    width = totals.shape[0]
    begins = np.empty(width + 1, dtype=np.int64)
    for start in range(0, places.size, GRAM_TILE):
        stop = min(start + GRAM_TILE, places.size)
        where, moved, heads, by_column, at = _tile_by_columns(
            indptr, columns, values, places[start:stop], low, high, zero, scale, begins
        )
        i = start - 1
        for k in range(at):
            i += where[k] == 0
            moved[k] *= factors[i]
        before = np.uint64(0)
        for j in range(width):
            after = np.uint64(begins[j])
            row, lost = totals[j], errors[j]
            for place in range(before, after):
                last = np.uint64(by_column[place])
                a = moved[last]
                for k in range(np.uint64(heads[place]), last + np.uint64(1)):
                    m = where[k]
                    term = a * moved[k]
                    total = row[m]
                    added = total + term
                    back = added - total
                    lost[m] += (total - (added - back)) + (term - back)
                    row[m] = added
            before = after


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def gram_nonzeros(
    indptr: Places,
    columns: Columns,
    values: Values,
    places: Places,
    low: Array,
    high: Array,
    zero: Array,
    scale: Array,
    factors: Array,
    multiples: Array,
    totals: Array,
) -> None:
    """Add ``m_i a a^T`` with ``a = (1, f_i, f_i d)``, on and below the diagonal."""
    width = _longest(indptr, places) + 2
    moved, where = np.empty(width), np.empty(width, dtype=np.uint64)
    where[0], where[1] = 0, 1
    for i in range(places.size):
        factor = factors[i] if factors.size else 1.0
        first = _first(indptr, places[i])
        count = _first(indptr, places[i] + 1) - first
        moved[0], moved[1] = 1.0, factor
        for k in range(count):
            j = columns[first + k]
            d = _offset(np.float64(values[first + k]), low[j], high[j], zero[j]) * scale[j]
            moved[k + np.uint64(2)], where[k + np.uint64(2)] = factor * d, j + 2
        for k in range(count + np.uint64(2)):
            row, a = totals[where[k]], multiples[i] * moved[k]
            for other in range(k + np.uint64(1)):
                row[where[other]] += a * moved[other]
