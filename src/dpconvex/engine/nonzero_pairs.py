"""Compiled kernels on rows of which only the non-zeros are stored: their sizes, lengths and products of pairs.

What they have in common with other kernels, and what a stored value stands for, is in `nonzeros`.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

from dpconvex.engine.nonzeros import Columns, Values, first_of, offset
from dpconvex.engine.rows import Places
from dpconvex.types import Array

__all__ = ["count_nonzero_octaves", "diagonal_lengths", "gram_nonzeros", "moments_of_nonzeros", "quadratic_lengths"]

GRAM_TILE = 256  # rows whose products are added column by column
_FAST = {"reassoc", "contract"}


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
    most = (counts.shape[1] - 1) // 2
    one = np.zeros(1)
    bits = one.view(np.int64)
    octave = most
    for i in range(places.size):
        if factors.size and factors[i] == 0.0:
            continue
        for k in range(first_of(indptr, places[i]), first_of(indptr, places[i] + 1)):
            j = columns[k]
            inside = offset(np.float64(values[k]), low[j], high[j], 0.0)
            mapped = (inside - shift[j]) * scale[j]
            if mapped != one[0]:  # most often it is the one before
                one[0] = mapped
                away = most - 1022 - above + ((bits[0] >> 52) & 0x7FF)
                away = min(max(away, 0), most)
                octave = most - away if bits[0] < 0 else most + away
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
        for k in range(first_of(indptr, places[i]), first_of(indptr, places[i] + 1)):
            j = columns[k]
            d = offset(np.float64(values[k]), low[j], high[j], zero[j]) * scale[j]
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
        for k in range(first_of(indptr, places[i]), first_of(indptr, places[i] + 1)):
            j = columns[k]
            d = offset(np.float64(values[k]), low[j], high[j], zero[j]) * scale[j]
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
        first = first_of(indptr, places[i])
        count = first_of(indptr, places[i] + 1) - first
        moved[0], moved[1] = 1.0, factor
        for k in range(count):
            j = columns[first + k]
            d = offset(np.float64(values[first + k]), low[j], high[j], zero[j]) * scale[j]
            moved[k + np.uint64(2)], where[k + np.uint64(2)] = factor * d, j + 2
        for k in range(count + np.uint64(2)):
            row, a = totals[where[k]], multiples[i] * moved[k]
            for other in range(k + np.uint64(1)):
                row[where[other]] += a * moved[other]
