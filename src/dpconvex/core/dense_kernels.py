"""Compiled kernels on dense rows: the map into a block of mapped rows, and products of every row of
a block.

No fastmath in here: every row is computed by the operations as written, in their order, whichever
rows stand beside it and however arrays lie in memory. Bounds on what one record changes rest on it.
Libraries for matrices take rows in groups, and those at the end of a block in another order: the
last digit of a row may then depend on how many rows there are. Imported lazily by the engines,
because importing numba takes half a second.
"""

import math

import numba
import numpy as np

from dpconvex.core.rows import RawRows, RowIndices
from dpconvex.types import Array

_PANEL = 32  # rows that share what is read of a matrix
_LANES = 8  # numbers that are computed at once: matrices get as many columns, or a multiple
_GLANCES = 8  # columns that are looked at before a row's norm is computed


@numba.njit(nogil=True, cache=True, inline="always")
def clip_value(value: float, low: float, high: float) -> float:
    """Return a value within its bounds; a missing one falls on the lower bound."""
    value = value if value > low else low
    return value if value < high else high


@numba.njit(nogil=True, cache=True)
def map_dense_rows(
    raw: RawRows,
    indices: RowIndices,
    low: Array,
    high: Array,
    shift: Array,
    scale: Array,
    lead: int,
    row_norm: float,
    shorten: bool,
    by_columns: bool,
    out: Array,
    weights: Array,
) -> None:
    """Map the rows at `indices` of `raw`, transposed if `by_columns`, into `out` and `weights`.

    ``out[i, lead:] = (clip(raw[indices[i]], low, high) - shift) * scale``; with ``lead = 1`` the
    first column is the constant 1. ``weights[i] = min(1, row_norm / ||x_i||)`` with the norm
    rounded up, so that the bound holds in exact arithmetic as well; an infinite `row_norm` asks for
    no norms.
    """
    rows = out.shape[0]
    columns = low.size
    for i in range(rows):
        # Views of the row: indices known to be in range let the loop run in vector lanes.
        target = out[i][lead:]
        if by_columns:
            for j in range(columns):
                target[j] = raw[j, indices[i]]
            for j in range(columns):
                target[j] = (clip_value(target[j], low[j], high[j]) - shift[j]) * scale[j]
        else:
            source = raw[indices[i]]
            for j in range(columns):
                target[j] = (clip_value(np.float64(source[j]), low[j], high[j]) - shift[j]) * scale[
                    j
                ]
    out[:, :lead] = 1.0
    weights[:] = 1.0
    if row_norm == math.inf:
        return
    # The computed norm has relative error below (columns + 4) ulp.
    round_up = 1.0 + (columns + 4) * 2.3e-16
    limit = (row_norm / round_up) ** 2 * (1.0 - 1e-15)
    # No entry is larger than the larger end of its column: most rows are short by what their first
    # entries lack.
    ends = np.maximum(np.abs((low - shift) * scale), np.abs((high - shift) * scale)) ** 2
    roundings = 1e-9 + columns * 1e-15  # more than those of both sums, of however many columns
    missing = ends.sum() * (1.0 + roundings) - limit
    squares = np.empty(4)
    glances = _GLANCES if missing <= ends[:_GLANCES].sum() else 0
    for first in range(0, rows, 4):
        last = min(first + 4, rows)
        if missing <= 0 or _rows_lack(out[first:last, lead:], ends[:glances], missing):
            continue
        dense_squared_norms(out[first:last], lead, squares)
        for i in range(first, last):
            if squares[i - first] <= limit:  # no square root
                continue
            norm = math.sqrt(squares[i - first]) * round_up
            if norm > row_norm:
                factor = row_norm / norm
                if shorten:
                    for j in range(columns):
                        out[i, j + lead] *= factor
                else:
                    weights[i] = factor


@numba.njit(nogil=True, cache=True)
def _rows_lack(rows: Array, ends: Array, missing: float) -> bool:
    """Whether the squares of the first entries of every row are less than `ends` by `missing` in
    all.
    """
    for i in range(rows.shape[0]):
        left = missing
        for j in range(ends.size):
            left -= ends[j] - rows[i, j] * rows[i, j]
            if left <= 0:
                break
        if not left <= 0:  # nor NaN
            return False
    return True


@numba.njit(nogil=True, cache=True)
def dense_vector_products(block: Array, theta: Array, out: Array) -> None:
    """``out[i] = block[i] . theta``: four sums of every fourth product, so that none waits for
    another, and the rest.

    The error is at most about ``(columns / 4 + 5) u sum_j |block_ij theta_j|``, whatever the other
    rows are.
    """
    rows = block.shape[0]
    whole = theta.size - theta.size % 4
    for i in range(
        0, rows, 2
    ):  # two rows share what is read of theta; the last one may be its own partner
        k = min(i + 1, rows - 1)
        row = block[i]
        other = block[k]
        a = b = c = d = rest = 0.0
        e = f = g = h = left = 0.0
        for j in range(0, whole, 4):
            t0 = theta[j]
            t1 = theta[j + 1]
            t2 = theta[j + 2]
            t3 = theta[j + 3]
            a += row[j] * t0
            b += row[j + 1] * t1
            c += row[j + 2] * t2
            d += row[j + 3] * t3
            e += other[j] * t0
            f += other[j + 1] * t1
            g += other[j + 2] * t2
            h += other[j + 3] * t3
        for j in range(whole, theta.size):
            rest += row[j] * theta[j]
            left += other[j] * theta[j]
        out[i] = ((a + b) + (c + d)) + rest
        out[k] = ((e + f) + (g + h)) + left


@numba.njit(nogil=True, cache=True)
def limited_products(slopes: Array, largest: float, weights: Array, clip: bool, out: Array) -> None:
    """``out[i] = w_i clip(s_i, largest)``, or with `clip` ``clip(s_i, w_i largest)``; what is
    not a number is 0.
    """
    for i in range(out.size):
        limit = largest * weights[i] if clip else largest
        slope = clip_value(slopes[i], -limit, limit) if slopes[i] == slopes[i] else 0.0
        out[i] = slope if clip else weights[i] * slope


@numba.njit(nogil=True, cache=True)
def dense_squared_norms(block: Array, lead: int, out: Array) -> None:
    """``out[i] = sum of block[i, j]^2 over j from lead on``, in the order of the columns."""
    rows = block.shape[0]
    for i in range(
        0, rows, 4
    ):  # four sums at a time, so that none waits for another; a last row is its own partner
        i1 = min(i + 1, rows - 1)
        i2 = min(i + 2, rows - 1)
        i3 = min(i + 3, rows - 1)
        row0 = block[i]
        row1 = block[i1]
        row2 = block[i2]
        row3 = block[i3]
        a = b = c = d = 0.0
        for j in range(lead, block.shape[1]):
            a += row0[j] * row0[j]
            b += row1[j] * row1[j]
            c += row2[j] * row2[j]
            d += row3[j] * row3[j]
        out[i] = a
        out[i1] = b
        out[i2] = c
        out[i3] = d


@numba.njit(nogil=True, cache=True)
def scaled_dense_norms(block: Array, lead: int, centre: Array, scale: Array, out: Array) -> None:
    """``out[i] = sum_j ((block[i, lead + j] - centre_j) * scale_j)^2``, in the order of the
    columns.
    """
    rows = block.shape[0]
    for i in range(0, rows, 4):  # as above
        i1 = min(i + 1, rows - 1)
        i2 = min(i + 2, rows - 1)
        i3 = min(i + 3, rows - 1)
        row0 = block[i][lead:]
        row1 = block[i1][lead:]
        row2 = block[i2][lead:]
        row3 = block[i3][lead:]
        a = b = c = d = 0.0
        for j in range(centre.size):
            middle = centre[j]
            factor = scale[j]
            a += ((row0[j] - middle) * factor) ** 2
            b += ((row1[j] - middle) * factor) ** 2
            c += ((row2[j] - middle) * factor) ** 2
            d += ((row3[j] - middle) * factor) ** 2
        out[i] = a
        out[i1] = b
        out[i2] = c
        out[i3] = d


# Contraction alone: every product is added in the order of the columns, by one instruction that all
# rows share.
@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def dense_matrix_products(block: Array, columns: Array, out: Array) -> None:
    """``out[i] = block[i] @ columns``, each row added up in the same order wherever it stands."""
    # Four columns at a time, so that sums are stored seldom; _PANEL rows share what is read of
    # columns. Columns of zeros make the number of lanes whole.
    size = block.shape[1]
    width = columns.shape[1]
    whole = size - size % 4
    lanes = -(-width // _LANES) * _LANES
    matrix = np.zeros((size, lanes))
    panel = np.empty((_PANEL, lanes))
    matrix[:, :width] = columns
    for first in range(0, block.shape[0], _PANEL):
        rows = block[first : first + _PANEL]
        panel[:] = 0.0
        for j in range(0, whole, 4):
            m0 = matrix[j]
            m1 = matrix[j + 1]
            m2 = matrix[j + 2]
            m3 = matrix[j + 3]
            for i in range(rows.shape[0]):
                row = rows[i]
                total = panel[i]
                a0 = row[j]
                a1 = row[j + 1]
                a2 = row[j + 2]
                a3 = row[j + 3]
                for k in range(lanes):
                    total[k] = (((total[k] + a0 * m0[k]) + a1 * m1[k]) + a2 * m2[k]) + a3 * m3[k]
        for j in range(whole, size):
            m0 = matrix[j]
            for i in range(rows.shape[0]):
                total = panel[i]
                a0 = rows[i, j]
                for k in range(lanes):
                    total[k] += a0 * m0[k]
        for i in range(rows.shape[0]):
            target = out[first + i]
            total = panel[i]
            for k in range(width):
                target[k] = total[k]


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def dense_shifted_products(block: Array, constant: Array, diagonal: Array, out: Array) -> None:
    """``out[i] = constant + block[i] * diagonal``: as `dense_matrix_products` where all other
    products are 0.
    """
    for i in range(block.shape[0]):
        row = block[i]
        target = out[i]
        for k in range(diagonal.size):
            target[k] = constant[k] + row[k] * diagonal[k]


@numba.njit(nogil=True, cache=True)
def count_dense_octaves(
    block: Array, row_weights: Array, lead: int, max_octave: int, counts: Array
) -> None:
    """Add a row's weight to ``counts[j, k]`` for every value of column ``lead + j`` in signed
    octave k.

    Of ``2 m + 1`` bins the middle one holds zeros and what is smaller than all octaves. Sizes from
    ``2^(max_octave - 1)`` to below ``2^max_octave``, and larger ones, are m bins away from it, on
    the side of their sign; half as large ones are one bin nearer. The exponent is read from the
    bits.
    """
    most = (counts.shape[1] - 1) // 2
    bits = block.view(np.int64)
    for i in range(block.shape[0]):
        for j in range(counts.shape[0]):
            away = most - 1022 - max_octave + ((bits[i, lead + j] >> 52) & 0x7FF)
            away = min(max(away, 0), most)
            counts[j, most - away if bits[i, lead + j] < 0 else most + away] += row_weights[i]
