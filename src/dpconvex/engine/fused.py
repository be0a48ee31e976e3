"""Compiled kernels that read rows once: margins, slopes and the sum of slopes times rows.

Rows are taken in tiles that stay in the cache between margins and sum. Mapping happens on the fly: rows are clipped and
shifted only in tiles where it changes something, and the scale is folded into the coefficients. With `by_columns` rows
come transposed, so that tables that lie column by column need no kernels of their own.
What is computed of one row (margin, slope, length) follows from that row and public numbers alone, to its last bit: it
is written without fastmath, by the same operations for either layout and with or without clipping. Sums over rows are
added in any order; certificates pay for their rounding.
Imported lazily by the engines, because importing numba takes half a second.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from dpconvex.engine.mapping import column_products, row_products, row_squares
from dpconvex.engine.rows import Places, Raw
from dpconvex.types import Array

__all__ = ["row_margins", "sigmoid_gradient", "sum_rows", "survey_rows", "tile_rows"]


def tile_rows(columns: int, by_columns: bool) -> int:
    """Return how many rows a tile has: it stays in the cache, with long stretches of each column."""
    return 2048 if by_columns else max(32, 32_000 // columns)


# Reassociation lets sums over rows run in vector lanes. For those alone: see above.
_FAST = {"reassoc", "contract"}


@numba.njit(nogil=True, cache=True)
def _new_tile(columns: int, by_columns: bool, tile: int) -> Array:
    return np.empty((columns, tile)) if by_columns else np.empty((tile, columns))


@numba.njit(nogil=True, cache=True)
def _centre_tile(
    raw: Raw, start: int, rows: int, low: Array, high: Array, shift: Array, by_columns: bool, out: Array
) -> None:
    """Write ``clip(x_ij) - shift_j`` of rows from `start` on into a tile; a missing value falls on the lower bound."""
    if by_columns:
        for j in range(low.size):
            below, above, middle = low[j], high[j], shift[j]
            column, target = raw[j][start : start + rows], out[j]
            for i in range(rows):
                value = np.float64(column[i])
                value = value if value > below else below
                value = value if value < above else above
                target[i] = value - middle
    else:
        for i in range(rows):
            source, target = raw[start + i], out[i]
            for j in range(low.size):
                value = np.float64(source[j])
                value = value if value > low[j] else low[j]
                value = value if value < high[j] else high[j]
                target[j] = value - shift[j]


@numba.njit(nogil=True, cache=True)
def _all_inside(raw: Raw, start: int, rows: int, low: Array, high: Array, by_columns: bool) -> bool:
    """Return whether no number of rows from `start` on is beyond its bounds, or missing."""
    inside = 0
    if by_columns:
        for j in range(low.size):
            below, above, column = low[j], high[j], raw[j][start : start + rows]
            for i in range(rows):
                inside += (column[i] >= below) & (column[i] <= above)
    else:
        for i in range(rows):
            source = raw[start + i]
            for j in range(low.size):
                inside += (source[j] >= low[j]) & (source[j] <= high[j])
    return inside == rows * low.size


@numba.njit(nogil=True, cache=True)
def survey_rows(
    raw: Raw,
    start: int,
    stop: int,
    low: Array,
    high: Array,
    shift: Array,
    scale: Array,
    centre: Array,
    stretch: Array,
    by_columns: bool,
    tile: int,
    plain: npt.NDArray[np.bool_],
    squares: Array,
) -> None:
    """Note which tiles need neither clipping nor a shift, and squared lengths of mapped rows.

    ``squares[i] = sum_j ((x_ij - centre_j) * stretch_j)^2`` of mapped rows x; empty `squares` stand for lengths that
    nobody asks for.
    """
    columns = low.size
    buffer = _new_tile(columns, by_columns, tile)
    centred = not shift.any()
    for first in range(start, stop, tile):
        rows = min(tile, stop - first)
        plain[first // tile] = centred and _all_inside(raw, first, rows, low, high, by_columns)
        if squares.size == 0:
            continue
        _centre_tile(raw, first, rows, low, high, shift, by_columns, buffer)
        found = squares[first : first + rows]
        if by_columns:
            found[:] = 0.0
            for j in range(columns):
                column, unit, away, factor = buffer[j], scale[j], centre[j], stretch[j]
                for i in range(rows):
                    value = (column[i] * unit - away) * factor
                    found[i] += value * value
        else:
            for i in range(rows):
                row = buffer[i]
                for j in range(columns):
                    row[j] = (row[j] * scale[j] - centre[j]) * stretch[j]
            row_squares(buffer[:rows], 0, found)


@numba.njit(nogil=True, cache=True)
def _margins(table: Raw, start: int, scaled: Array, by_columns: bool, sums: Array, margins: Array) -> None:
    """``margins[i] = sum_j table_ij * scaled_j`` for rows from `start` on; `sums` is a place for four numbers each."""
    if by_columns:
        column_products(table, start, scaled, sums, margins)
    else:
        row_products(table[start : start + margins.size], scaled, margins)


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def _sums(table: Raw, start: int, by_columns: bool, multiples: Array, out: Array) -> None:
    """Add ``sum_i multiples_i table_ij`` over rows from `start` on to ``out_j``."""
    rows, columns = multiples.size, out.size
    if by_columns:
        for j in range(columns):
            column = table[j][start : start + rows]
            total = 0.0
            for i in range(rows):
                total += column[i] * multiples[i]
            out[j] += total
        return
    # Eight rows at a time: the sums are loaded and stored once for all of them.
    done = rows - rows % 8
    for i in range(0, done, 8):
        k = start + i
        row0, row1, row2, row3 = table[k], table[k + 1], table[k + 2], table[k + 3]
        row4, row5, row6, row7 = table[k + 4], table[k + 5], table[k + 6], table[k + 7]
        m0, m1, m2, m3 = multiples[i], multiples[i + 1], multiples[i + 2], multiples[i + 3]
        m4, m5, m6, m7 = multiples[i + 4], multiples[i + 5], multiples[i + 6], multiples[i + 7]
        for j in range(columns):
            one = row0[j] * m0 + row1[j] * m1
            two = row2[j] * m2 + row3[j] * m3
            three = row4[j] * m4 + row5[j] * m5
            four = row6[j] * m6 + row7[j] * m7
            out[j] += (one + two) + (three + four)
    for i in range(done, rows):
        row, multiple = table[start + i], multiples[i]
        for j in range(columns):
            out[j] += row[j] * multiple


@numba.njit(nogil=True, cache=True)
def _is_plain(plain: npt.NDArray[np.bool_], start: int, rows: int, tile: int) -> bool:
    """Return whether rows that may lie in two tiles need neither clipping nor a shift."""
    return plain.size > 0 and plain[start // tile] and plain[(start + rows - 1) // tile]


@numba.njit(nogil=True, cache=True)
def row_margins(
    raw: Raw,
    starts: Places,
    edges: Places,
    low: Array,
    high: Array,
    shift: Array,
    plain: npt.NDArray[np.bool_],
    by_columns: bool,
    tile: int,
    scaled: Array,
    margins: Array,
) -> None:
    """``margins[i] = sum_j (clip(raw_ij) - shift_j) * scaled_j`` for stretches of rows, as in `sigmoid_gradient`."""
    buffer, sums = _new_tile(low.size, by_columns, tile), np.empty((4, tile))
    for block in range(edges.size - 1):
        for start in range(edges[block], edges[block + 1], tile):
            rows = min(tile, edges[block + 1] - start)
            place = starts[block] + start - edges[block]
            found = margins[start - edges[0] : start - edges[0] + rows]
            if _is_plain(plain, start, rows, tile):
                _margins(raw, place, scaled, by_columns, sums, found)
            else:
                _centre_tile(raw, place, rows, low, high, shift, by_columns, buffer)
                _margins(buffer, 0, scaled, by_columns, sums, found)


@numba.njit(nogil=True, cache=True)
def sum_rows(
    raw: Raw,
    starts: Places,
    edges: Places,
    low: Array,
    high: Array,
    shift: Array,
    plain: npt.NDArray[np.bool_],
    by_columns: bool,
    tile: int,
    multiples: Array,
    out: Array,
) -> None:
    """Add ``sum_i multiples_i (clip(raw_ij) - shift_j)`` over the rows of `row_margins` to ``out_j``."""
    buffer = _new_tile(low.size, by_columns, tile)
    for block in range(edges.size - 1):
        for start in range(edges[block], edges[block + 1], tile):
            rows = min(tile, edges[block + 1] - start)
            place = starts[block] + start - edges[block]
            times = multiples[start - edges[0] : start - edges[0] + rows]
            if _is_plain(plain, start, rows, tile):
                _sums(raw, place, by_columns, times, out)
            else:
                _centre_tile(raw, place, rows, low, high, shift, by_columns, buffer)
                _sums(buffer, 0, by_columns, times, out)


# No reassociation: the two-part logarithm of 2 would collapse into one.
@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def _add_sigmoids(u: Array, knot: float, rate: float, jump: float, powers: Array, scales: Array, out: Array) -> None:
    """Add ``jump / (1 + exp(-rate (u - knot)))`` to `out`, elementwise in vector lanes.

    ``exp(s) = 2^k exp(r)`` with ``r = s - k log 2`` and Taylor's polynomial of degree 13, below half
    an ulp for ``|r| <= log(2) / 2``; `powers` and `scales` are one buffer seen as integers and as
    floats, in which powers of 2 are made from their bits.
    """
    for i in range(u.size):
        s = (knot - u[i]) * rate
        s = s if s < 700.0 else 700.0  # beyond it the sigmoid is 0 or 1 to all digits that count
        s = s if s > -700.0 else -700.0
        k = np.floor(s * 1.4426950408889634 + 0.5)
        r = (s - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10
        e = 1.6059043836821613e-10
        e = e * r + 2.0876756987868100e-09
        e = e * r + 2.5052108385441720e-08
        e = e * r + 2.7557319223985888e-07
        e = e * r + 2.7557319223985893e-06
        e = e * r + 2.4801587301587302e-05
        e = e * r + 1.9841269841269841e-04
        e = e * r + 1.3888888888888889e-03
        e = e * r + 8.3333333333333333e-03
        e = e * r + 4.1666666666666664e-02
        e = e * r + 1.6666666666666666e-01
        e = e * r + 0.5
        e = e * r + 1.0
        e = e * r + 1.0
        out[i + u.size] = e
        powers[i] = (np.int64(k) + 1023) << 52
    for i in range(u.size):
        out[i] += jump / (1.0 + out[i + u.size] * scales[i])


@numba.njit(nogil=True, cache=True)
def _scale(values: Array, factors: Array) -> None:
    for i in range(values.size):
        values[i] *= factors[i]


@numba.njit(nogil=True, cache=True)
def _limit(values: Array, caps: Array, largest: float) -> None:
    for i in range(values.size):
        cap = largest * caps[i]
        value = values[i] if values[i] < cap else cap
        values[i] = value if value > -cap else -cap


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def _negate_and_sum(values: Array, sign: float) -> float:
    total = 0.0
    for i in range(values.size):
        values[i] *= sign
        total += values[i]
    return total


@numba.njit(nogil=True, cache=True)
def _arguments(margins: Array, y: Array, constant: float, limit: float, residual: bool) -> None:
    """Turn margins without the constant into residuals of clamped targets, or into ``y z``."""
    if residual:
        for i in range(margins.size):
            target = y[i] if y[i] > -limit else -limit
            target = target if target < limit else limit
            margins[i] = target - (margins[i] + constant)
    else:
        for i in range(margins.size):
            margins[i] = y[i] * (margins[i] + constant)


@numba.njit(nogil=True, cache=True)
def sigmoid_gradient(
    raw: Raw,
    targets: Array,
    starts: Places,
    edges: Places,
    low: Array,
    high: Array,
    shift: Array,
    scale: Array,
    plain: npt.NDArray[np.bool_],
    weights: Array,
    factors: Array,
    votes: Array,
    by_columns: bool,
    tile: int,
    constant: float,
    theta: Array,
    residual: bool,
    limit: float,
    rate: float,
    first: float,
    knots: Array,
    jumps: Array,
    clip: float,
    total: Array,
) -> float:
    """Add ``sum_i w_i slope(y_i, z_i) x_i`` to `total` and return ``sum_i w_i slope(y_i, z_i)``.

    With ``u = clip(y, -limit, limit) - z`` (``y z`` unless `residual`) and
    ``c = first + sum_k jumps_k / (1 + exp(-rate (u - knots_k)))`` the slope is -c (``y c``).
    Rows ``edges[b], ..., edges[b + 1] - 1``, which lie from ``starts[b]`` on, are added up before they enter `total`.
    Empty `plain` stands for tiles of which nothing is known, empty `weights`, `factors` and `votes` for ones. With
    `clip` above 0 slopes are limited to ``clip * w_i`` instead of being multiplied by ``w_i``; they are multiplied by
    votes afterwards.
    """
    columns = low.size
    scaled = theta * scale
    arguments = np.empty(tile)
    slopes = np.empty(2 * tile)
    powers = np.empty(tile, dtype=np.int64)
    scales = powers.view(np.float64)
    buffer, sums = _new_tile(columns, by_columns, tile), np.empty((4, tile))
    partial = np.empty(columns)
    lead = 0.0
    for block in range(edges.size - 1):
        partial[:] = 0.0
        block_lead = 0.0
        for start in range(edges[block], edges[block + 1], tile):
            rows = min(tile, edges[block + 1] - start)
            u, multiples = arguments[:rows], slopes[:rows]
            place, simple = (starts[block] + start - edges[block], _is_plain(plain, start, rows, tile))
            if simple:
                _margins(raw, place, scaled, by_columns, sums, u)
            else:
                _centre_tile(raw, place, rows, low, high, shift, by_columns, buffer)
                _margins(buffer, 0, scaled, by_columns, sums, u)
            if factors.size:
                _scale(u, factors[start : start + rows])
            y = targets[start : start + rows]
            _arguments(u, y, constant, limit, residual)
            multiples[:] = first
            for k in range(knots.size):
                _add_sigmoids(u, knots[k], rate, jumps[k], powers, scales, slopes[: 2 * rows])
            if residual:
                sign = -1.0
            else:
                sign = 1.0
                _scale(multiples, y)
            if clip > 0.0:
                _limit(multiples, weights[start : start + rows], clip)
            elif weights.size:
                _scale(multiples, weights[start : start + rows])
            if votes.size:
                _scale(multiples, votes[start : start + rows])
            block_lead += _negate_and_sum(multiples, sign)
            if factors.size:
                _scale(multiples, factors[start : start + rows])
            if simple:
                _sums(raw, place, by_columns, multiples, partial)
            else:
                _sums(buffer, 0, by_columns, multiples, partial)
        lead += block_lead
        for j in range(columns):
            total[j] += partial[j] * scale[j]
    return lead
