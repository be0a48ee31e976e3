"""Compiled kernels on rows of which only the non-zeros are stored.

A mapped row is ``x = f (base + scale * c)``: ``c = clip(value) - clip(0)`` is 0 wherever nothing is
stored (`sparse_offset_kernel`), ``base`` is what the public map makes of a zero (0 in columns whose
bounds contain it), and f shortens the row (0 for ignored ones). Neither base nor f is ever
multiplied out: base enters margins as one number and sums as one multiple of it.

Sums over rows keep what their additions round away (Knuth), so what a record contributes is what is
added, and no number of rows makes the rounding of others matter. Imported lazily, because importing
numba takes half a second.
"""

import math
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from dpconvex.core.dense_kernels import clip_value
from dpconvex.core.rows import RowIndices
from dpconvex.engine.compensated_kernels import dense_product_error
from dpconvex.types import Array

Columns = npt.NDArray[
    np.uint32
]  # unsigned: numba would ask of others whether they count from the end
Values = npt.NDArray[Any]

_TILE = 256  # rows whose products are added column by column
_FAST = {"reassoc", "contract"}
_UNIT = 2.3e-16
_UNDERFLOW = 1e-290  # added to squared lengths: none is 0 where squares are too small for a number


@numba.njit(nogil=True, cache=True, inline="always")
def _first_of(indptr: RowIndices, row: int) -> Any:
    """Return where a row begins among the stored values, unsigned."""
    return np.uint64(indptr[row])


@numba.njit(nogil=True, cache=True)
def is_canonical_sparse(
    indptr: npt.NDArray[Any], columns: npt.NDArray[Any], stored: int, width: int
) -> bool:
    """Return whether every row holds columns in increasing order, all of them there, and all
    rows what is stored.
    """
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


@numba.njit(nogil=True, cache=True)
def sparse_offset_kernel(
    columns: Columns, values: Values, low: Array, high: Array, zero: Array, out: Array
) -> None:
    """``out = clip(value) - clip(0)`` for everything that is stored; a missing value falls on
    the lower bound.
    """
    for k in range(values.size):
        j = columns[k]
        out[k] = clip_value(np.float64(values[k]), low[j], high[j]) - zero[j]


@numba.njit(nogil=True, cache=True)
def fill_sparse_kernel(
    indptr: RowIndices,
    columns: Columns,
    values: Values,
    indices: RowIndices,
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
    for i in range(indices.size):
        target = out[i]
        target[:lead] = 1.0
        if base.size:
            for j in range(base.size):
                target[lead + j] = base[j]
        else:
            target[lead:] = 0.0
        for k in range(_first_of(indptr, indices[i]), _first_of(indptr, indices[i] + 1)):
            j = columns[k]
            target[lead + j] = (
                clip_value(np.float64(values[k]), low[j], high[j]) - shift[j]
            ) * scale[j]
        if factors.size:
            for j in range(lead, target.size):
                target[j] *= factors[i]


@numba.njit(nogil=True, cache=True)
def sparse_octave_kernel(
    indptr: RowIndices,
    columns: Columns,
    values: Values,
    indices: RowIndices,
    low: Array,
    high: Array,
    shift: Array,
    scale: Array,
    factors: Array,
    max_octave: int,
    counts: Array,
) -> None:
    """Count the octaves of stored values, as `dense_kernels.count_dense_octaves` counts those of
    all.
    """
    # Factors are 0 for ignored rows, which hold zeros in all columns, and else 1.
    most = (counts.shape[1] - 1) // 2
    one = np.zeros(1)
    bits = one.view(np.int64)
    # no mapped number has these bits, which are NaN's
    before = np.int64(-1)
    octave = most
    for i in range(indices.size):
        if factors.size and factors[i] == 0.0:
            continue
        for k in range(_first_of(indptr, indices[i]), _first_of(indptr, indices[i] + 1)):
            j = columns[k]
            mapped = (clip_value(np.float64(values[k]), low[j], high[j]) - shift[j]) * scale[j]
            one[0] = mapped  # by its bits: two zeros are equal numbers, and of two octaves
            if bits[0] != before:  # most often it is the one before
                before = bits[0]
                away = most - 1022 - max_octave + ((before >> 52) & 0x7FF)
                away = min(max(away, 0), most)
                octave = most - away if before < 0 else most + away
            counts[j, octave] += 1.0


# Kernels from here on take offsets c in place of stored values.


@numba.njit(nogil=True, cache=True)
def sparse_margin_kernel(
    indptr: RowIndices,
    columns: Columns,
    offsets: Array,
    indices: RowIndices,
    scaled: Array,
    start: float,
    rest: float,
    margins: Array,
) -> None:
    """``margins[i] = start + rest + sum of c scaled`` over the stored values of a row."""
    # start + rest is the margin of a row of zeros, all of which a row's own part may cancel.
    # Products and additions keep their errors (Dekker, Knuth), so a margin is right to its own last
    # digits, whatever the other rows are.
    for i in range(indices.size):
        total = start
        error = rest
        for k in range(_first_of(indptr, indices[i]), _first_of(indptr, indices[i] + 1)):
            a = offsets[k]
            b = scaled[columns[k]]
            product = a * b
            added = total + product
            back = added - total
            error += ((total - (added - back)) + (product - back)) + dense_product_error(
                a, b, product
            )
            total = added
        margins[i] = total + error


@numba.njit(nogil=True, cache=True)
def sparse_combine_kernel(
    indptr: RowIndices,
    columns: Columns,
    offsets: Array,
    indices: RowIndices,
    multiples: Array,
    totals: Array,
    errors: Array,
) -> None:
    """Add ``multiples_i c_ij`` to the unevaluated sums ``totals_j + errors_j``."""
    for i in range(indices.size):
        multiple = multiples[i]
        for k in range(_first_of(indptr, indices[i]), _first_of(indptr, indices[i] + 1)):
            j = columns[k]
            term = multiple * offsets[k]
            total = totals[j]
            added = total + term
            back = added - total
            errors[j] += (total - (added - back)) + (term - back)
            totals[j] = added


@numba.njit(nogil=True, cache=True)
def _sparse_squared_norm(
    indptr: RowIndices,
    columns: Columns,
    offsets: Array,
    row: int,
    scale: Array,
    lengths: Array,
    base: Array,
) -> tuple[float, float]:
    """Return ``sum_j lengths_j^2 (x_j^2 - base_j^2)`` over stored values, and the size of its
    terms.
    """
    # Numbers are stretched before they are squared, in this order: a square alone may be too small
    # for a number.
    total = size = 0.0
    for k in range(_first_of(indptr, row), _first_of(indptr, row + 1)):
        j = columns[k]
        d = lengths[j] * (offsets[k] * scale[j])
        if base.size:
            zero = lengths[j] * base[j]
            total += d * (2.0 * zero + d)
            size += d * d + zero * zero
        else:
            total += d * d
    return total, size if base.size else total


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def sparse_shortening_kernel(
    indptr: RowIndices,
    columns: Columns,
    offsets: Array,
    indices: RowIndices,
    scale: Array,
    base: Array,
    base_square: float,
    row_norm: float,
    factors: Array,
) -> None:
    """``factors[i] = min(1, row_norm / ||x_i||)``, the norm raised by a bound of what rounding
    took.
    """
    ones = np.ones(scale.size)
    for i in range(indices.size):
        total, size = _sparse_squared_norm(indptr, columns, offsets, indices[i], scale, ones, base)
        stored = indptr[indices[i] + 1] - indptr[indices[i]]
        square = base_square + total
        size = base_square + size
        norm = math.sqrt(square + size * (3.0 * stored + 8.0) * _UNIT) * (1.0 + 4 * _UNIT)
        factors[i] = row_norm / norm if norm > row_norm else 1.0


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def sparse_diagonal_lengths(
    indptr: RowIndices,
    columns: Columns,
    offsets: Array,
    indices: RowIndices,
    scale: Array,
    diagonal: Array,
    base: Array,
    start: float,
    rounding: float,
    lengths: Array,
) -> None:
    """``lengths_i >= sqrt(start + sum_j diagonal_j^2 (x_j^2 - base_j^2))``, `start` is what a
    row of zeros has.
    """
    for i in range(indices.size):
        total, size = _sparse_squared_norm(
            indptr, columns, offsets, indices[i], scale, diagonal, base
        )
        bound = (start + total) + 3.0 * rounding * (start + size) + _UNDERFLOW
        lengths[i] = math.sqrt(bound if bound > 0.0 else 0.0) * (1.0 + 1e-15)


@numba.njit(nogil=True, cache=True)
def _sparse_tile_columns(
    indptr: RowIndices,
    columns: Columns,
    offsets: Array,
    indices: RowIndices,
    scale: Array,
    begins: RowIndices,
) -> tuple[Columns, Array, Columns, Columns, Any]:
    """Turn a tile of rows into columns: all that belongs to one of them then needs one row of a
    matrix, in the cache.

    Returns columns and mapped values of the rows one after the other, each with its constant in
    front; for every column in turn, up to ``begins[j]``, where the rows begin that hold it, and
    where they hold it; and how many numbers.
    """
    stored = indices.size
    for i in range(indices.size):
        stored += indptr[indices[i] + 1] - indptr[indices[i]]
    where = np.empty(stored, dtype=np.uint32)
    moved = np.empty(stored)
    heads = np.empty(stored, dtype=np.uint32)
    by_column = np.empty(stored, dtype=np.uint32)
    begins[:] = 0
    at = np.uint64(0)
    for i in range(indices.size):
        where[at] = 0
        moved[at] = 1.0
        begins[1] += 1
        at += np.uint64(1)
        for k in range(_first_of(indptr, indices[i]), _first_of(indptr, indices[i] + 1)):
            j = columns[k]
            where[at] = j + 1
            moved[at] = offsets[k] * scale[j]
            begins[j + 2] += 1
            at += np.uint64(1)
    for j in range(1, begins.size):
        begins[j] += begins[j - 1]
    head = np.uint32(0)
    for k in range(at):
        if where[k] == 0:
            head = np.uint32(k)
        position = np.uint64(begins[where[k]])
        begins[where[k]] += 1
        heads[position] = head
        by_column[position] = np.uint32(k)
    return where, moved, heads, by_column, at


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def sparse_quadratic_lengths(
    indptr: RowIndices,
    columns: Columns,
    offsets: Array,
    indices: RowIndices,
    scale: Array,
    square: Array,
    norms: Array,
    rounding: float,
    lengths: Array,
) -> None:
    """``lengths_i >= ||M (1, d_i)||``, ``d = scale c``, from ``square = M^T M`` and the norms of
    M's columns.
    """
    # q = sum_jk S_jk d_j d_k with d_0 = 1 errs by at most rounding (sum_j |d_j| norms_j)^2: that is
    # added.
    width = square.shape[0]
    begins = np.empty(width + 1, dtype=np.int64)
    for start in range(0, indices.size, _TILE):
        stop = min(start + _TILE, indices.size)
        where, moved, heads, by_column, at = _sparse_tile_columns(
            indptr, columns, offsets, indices[start:stop], scale, begins
        )
        row_of = np.empty(at, dtype=np.uint32)
        totals = np.zeros(stop - start)
        sizes = np.zeros(stop - start)
        i = 0
        for k in range(at):
            i += where[k] == 0
            row_of[k] = i - 1
            sizes[i - 1] += abs(moved[k]) * norms[where[k]]
        before = np.uint64(0)
        for j in range(width):
            after = np.uint64(begins[j])
            row = square[j]
            for position in range(before, after):
                last = np.uint64(by_column[position])
                part = 0.5 * row[j] * moved[last]
                for k in range(np.uint64(heads[position]), last):
                    part += row[where[k]] * moved[k]
                totals[row_of[last]] += 2.0 * moved[last] * part
            before = after
        for i in range(stop - start):
            bound = totals[i] + rounding * sizes[i] * sizes[i] + _UNDERFLOW
            lengths[start + i] = math.sqrt(bound if bound > 0.0 else 0.0) * (1.0 + 1e-15)


@numba.njit(nogil=True, cache=True)
def sparse_moment_kernel(
    indptr: RowIndices,
    columns: Columns,
    offsets: Array,
    indices: RowIndices,
    scale: Array,
    factors: Array,
    totals: Array,
    errors: Array,
) -> None:
    """Add ``a a^T`` with ``a = factor (1, d)``, on and below the diagonal, to the sum
    ``totals + errors``.
    """
    # Every product is a number of its record alone, and its rounding is no other record's.
    width = totals.shape[0]
    begins = np.empty(width + 1, dtype=np.int64)
    for start in range(0, indices.size, _TILE):
        stop = min(start + _TILE, indices.size)
        where, moved, heads, by_column, at = _sparse_tile_columns(
            indptr, columns, offsets, indices[start:stop], scale, begins
        )
        i = start - 1
        for k in range(at):
            i += where[k] == 0
            moved[k] *= factors[i]
        before = np.uint64(0)
        for j in range(width):
            after = np.uint64(begins[j])
            row = totals[j]
            lost = errors[j]
            for position in range(before, after):
                last = np.uint64(by_column[position])
                a = moved[last]
                for k in range(np.uint64(heads[position]), last + np.uint64(1)):
                    m = where[k]
                    term = a * moved[k]
                    total = row[m]
                    added = total + term
                    back = added - total
                    lost[m] += (total - (added - back)) + (term - back)
                    row[m] = added
            before = after


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def sparse_gram_kernel(
    indptr: RowIndices,
    columns: Columns,
    offsets: Array,
    indices: RowIndices,
    scale: Array,
    factors: Array,
    multiples: Array,
    totals: Array,
) -> None:
    """Add ``m_i a a^T`` with ``a = (1, f_i, f_i d)``, on and below the diagonal."""
    moved = np.empty(totals.shape[0])
    where = np.empty(totals.shape[0], dtype=np.uint64)
    where[0] = 0
    where[1] = 1
    for i in range(indices.size):
        factor = factors[i] if factors.size else 1.0
        first = _first_of(indptr, indices[i])
        count = _first_of(indptr, indices[i] + 1) - first
        moved[0] = 1.0
        moved[1] = factor
        for k in range(count):
            j = columns[first + k]
            moved[k + np.uint64(2)] = factor * (offsets[first + k] * scale[j])
            where[k + np.uint64(2)] = j + 2
        for k in range(count + np.uint64(2)):
            row = totals[where[k]]
            a = multiples[i] * moved[k]
            for other in range(k + np.uint64(1)):
                row[where[other]] += a * moved[other]
