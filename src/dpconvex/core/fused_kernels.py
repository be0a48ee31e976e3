"""Compiled kernels that read raw rows once: clip, centre, multiply, take slopes, limit and add up.

A block of raw rows stays in the cache between its margins and its sum, so that a pass costs little
more than reading the table. Imported lazily by the engine, because importing numba takes half a
second.

**What a row gives depends on that row alone, to its last digit.** Margins are sums over columns
that the compiler may reorder ("reassoc"), so that they run in vector lanes. It chooses one order
when it compiles a kernel, for a row of any length: which lanes there are, and what the columns
after the last whole vector do. That order depends on the number of columns, on the type of the
numbers and on the layout of the array, which are public, and on nothing of a row. Every row is one
turn of one loop: no two rows are computed together, and none is at the end of anything. Arrays
come in one layout, row after row without gaps: the engine copies others. Slopes are
computed number by number, without any reordering.

Sums over rows are added in an order that public numbers fix. Their rounding is paid for
(:mod:`dpconvex.core.summation`): within a block every order is.

No flag here assumes that numbers are finite: cells that are missing fall on the lower bound, as in
:func:`dpconvex.core.dense_kernels.clip_value`.
"""

import numba
import numpy as np

from dpconvex.core.dense_kernels import clip_value
from dpconvex.core.row_formulas import LIMIT, LOGISTIC, SlopeFormula
from dpconvex.core.rows import RawRows, RowIndices
from dpconvex.types import Array

CHUNK = 256  # rows whose margins, slopes and sums follow each other while they are in the cache
_LARGEST_EXPONENT = 708.0  # exp(-708) is the smallest power that is a normal number
_LOG2_E = 1.4426950408889634
# log 2 in two parts, of which the first has so few bits that its multiples are exact.
_LOG_2_HIGH = 6.93147180369123816490e-01
_LOG_2_LOW = 1.90821492927058770002e-10
# Added to a number below 2^51, it rounds to a whole number, which then stands in the last bits.
_ROUNDER = 6755399441055744.0
_LANE_FLAGS = {"contract", "reassoc", "nsz"}


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def lane_sigmoids(u: Array, count: int, out: Array, powers: Array) -> None:
    """``out[i] = 1 / (1 + exp(-u[i]))`` of the first numbers, in vector lanes.

    The relative error is below ``2^-48``; ``powers`` is scratch. The exponential of
    ``-|u| = k log 2 + r``, ``|r| <= log(2) / 2``, is ``2^k`` times a Taylor polynomial of degree 13
    in r, whose remainder is below ``2^-57``. ``2^k`` is written into the bits of a number.
    """
    bits = powers.view(np.int64)
    for i in range(count):
        exponent = -abs(u[i])
        exponent = exponent if exponent > -_LARGEST_EXPONENT else -_LARGEST_EXPONENT
        rounded = exponent * _LOG2_E + _ROUNDER
        powers[i] = rounded
        whole = rounded - _ROUNDER
        r = (exponent - whole * _LOG_2_HIGH) - whole * _LOG_2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        out[i] = p * r + 1.0
    for i in range(count):
        bits[i] = (bits[i] + 1023) << 52
    for i in range(count):
        power = out[i] * powers[i]
        out[i] = (1.0 if u[i] >= 0 else power) / (1.0 + power)


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def lane_multiples(
    slope: SlopeFormula,
    y: Array,
    weights: Array,
    row_weights: Array,
    margins: Array,
    count: int,
    out: Array,
    u: Array,
    powers: Array,
) -> None:
    """Write what the first rows are multiplied by, from their targets, margins and weights.

    ``row_weights`` may be empty: all are then 1. ``u`` and ``powers`` are scratch.
    """
    if slope.residual:
        for i in range(count):
            u[i] = y[i] - margins[i]
    else:
        for i in range(count):
            u[i] = y[i] * margins[i]
    if slope.formula == LIMIT:
        for i in range(count):
            out[i] = clip_value(u[i], -slope.width, slope.width)
    elif slope.formula == LOGISTIC:
        _logistic_slopes(slope, u, count, out, margins, powers)
    else:
        for i in range(count):
            out[i] = slope.first
        for k in range(slope.knots.size):
            for i in range(count):
                away = u[i] - slope.knots[k]
                side = 1.0 if away > 0 else (-1.0 if away < 0 else 0.0)
                out[i] += slope.jumps[k] * side
    if slope.residual:
        for i in range(count):
            out[i] = slope.offset - out[i]
    else:
        for i in range(count):
            out[i] = y[i] * (out[i] - slope.offset)
    for i in range(count):
        limit = slope.largest * weights[i] if slope.clip else slope.largest
        limited = clip_value(out[i], -limit, limit) if out[i] == out[i] else 0.0
        out[i] = limited if slope.clip else weights[i] * limited
    for i in range(min(count, row_weights.size)):
        out[i] *= row_weights[i]


@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def _logistic_slopes(
    slope: SlopeFormula, u: Array, count: int, out: Array, scratch: Array, powers: Array
) -> None:
    """``out = first + sum_k jump_k / (1 + exp(-(u - knot_k) / width))``; scratch is overwritten."""
    inverse = 1.0 / slope.width
    for i in range(count):
        out[i] = slope.first
    shares = np.empty(count)
    for k in range(slope.knots.size):
        for i in range(count):
            scratch[i] = (u[i] - slope.knots[k]) * inverse
        lane_sigmoids(scratch, count, shares, powers)
        for i in range(count):
            out[i] += slope.jumps[k] * shares[i]


@numba.njit(nogil=True, cache=True, fastmath=_LANE_FLAGS)
def raw_margins(
    raw: RawRows,
    indices: RowIndices,
    first: int,
    low: Array,
    high: Array,
    shift: Array,
    steps: Array,
    constant: float,
    out: Array,
) -> None:
    """``out[i] = constant + sum_j (clip(x_ij, low_j, high_j) - shift_j) steps_j`` of some rows.

    They are the rows ``first + i``, or those at ``indices[first + i]`` where there are indices.
    """
    columns = low.size
    for i in range(out.size):
        row = raw[indices[first + i] if indices.size else first + i]
        margin = 0.0
        for j in range(columns):
            value = clip_value(np.float64(row[j]), low[j], high[j])
            margin += (value - shift[j]) * steps[j]
        out[i] = margin + constant


@numba.njit(nogil=True, cache=True, fastmath=_LANE_FLAGS)
def raw_scaled_squares(
    raw: RawRows,
    indices: RowIndices,
    first: int,
    low: Array,
    high: Array,
    shift: Array,
    scale: Array,
    centre: Array,
    factor: Array,
    out: Array,
) -> None:
    """``out[i] = sum_j (((clip(x_ij) - shift_j) scale_j - centre_j) factor_j)^2`` of some rows."""
    columns = low.size
    for i in range(out.size):
        row = raw[indices[first + i] if indices.size else first + i]
        total = 0.0
        for j in range(columns):
            value = clip_value(np.float64(row[j]), low[j], high[j])
            term = ((value - shift[j]) * scale[j] - centre[j]) * factor[j]
            total += term * term
        out[i] = total


@numba.njit(nogil=True, cache=True, fastmath=_LANE_FLAGS)
def add_raw_multiples(
    raw: RawRows,
    indices: RowIndices,
    first: int,
    count: int,
    low: Array,
    high: Array,
    shift: Array,
    multiples: Array,
    total: Array,
) -> None:
    """Add ``multiples[i] (clip(x_i, low, high) - shift)`` of some rows to ``total``."""
    columns = low.size
    whole = count - count % 4
    for i in range(0, whole, 4):  # four rows share what is read and written of the total
        place = first + i
        row0 = raw[indices[place] if indices.size else place]
        row1 = raw[indices[place + 1] if indices.size else place + 1]
        row2 = raw[indices[place + 2] if indices.size else place + 2]
        row3 = raw[indices[place + 3] if indices.size else place + 3]
        m0 = multiples[i]
        m1 = multiples[i + 1]
        m2 = multiples[i + 2]
        m3 = multiples[i + 3]
        for j in range(columns):
            least = low[j]
            most = high[j]
            middle = shift[j]
            v0 = clip_value(np.float64(row0[j]), least, most) - middle
            v1 = clip_value(np.float64(row1[j]), least, most) - middle
            v2 = clip_value(np.float64(row2[j]), least, most) - middle
            v3 = clip_value(np.float64(row3[j]), least, most) - middle
            total[j] += (v0 * m0 + v1 * m1) + (v2 * m2 + v3 * m3)
    for i in range(whole, count):
        row = raw[indices[first + i] if indices.size else first + i]
        for j in range(columns):
            value = clip_value(np.float64(row[j]), low[j], high[j])
            total[j] += (value - shift[j]) * multiples[i]


@numba.njit(nogil=True, cache=True)
def fused_slope_sums(
    raw: RawRows,
    indices: RowIndices,
    low: Array,
    high: Array,
    shift: Array,
    steps: Array,
    constant: float,
    slope: SlopeFormula,
    y: Array,
    weights: Array,
    row_weights: Array,
    first: int,
    block_rows: int,
    totals: Array,
) -> None:
    """Add multiples of raw rows by their slopes, block by block, into a row of ``totals`` each.

    The rows begin at ``first`` and are as many as targets. ``totals[b, 0]`` is the sum of the
    multiples of a block and ``totals[b, 1:]`` that of ``multiple (clip(x) - shift)``.
    """
    z = np.empty(CHUNK)
    multiples = np.empty(CHUNK)
    u = np.empty(CHUNK)
    powers = np.empty(CHUNK)
    for block in range(totals.shape[0]):
        total = totals[block]
        total[:] = 0.0
        begin = block * block_rows
        for start in range(begin, min(begin + block_rows, y.size), CHUNK):
            count = min(CHUNK, min(begin + block_rows, y.size) - start)
            place = first + start
            raw_margins(raw, indices, place, low, high, shift, steps, constant, z[:count])
            lane_multiples(
                slope,
                y[start:],
                weights[start:],
                row_weights[start:],
                z,
                count,
                multiples,
                u,
                powers,
            )
            whole = 0.0
            for i in range(count):
                whole += multiples[i]
            total[0] += whole
            add_raw_multiples(raw, indices, place, count, low, high, shift, multiples, total[1:])
