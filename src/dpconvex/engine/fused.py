"""Compiled kernels that read rows once: margins, slopes and the sum of slopes times rows.

Rows are taken in tiles that stay in the cache between margins and sum. Mapping happens on the fly:
clipping only in tiles where it changes something, the scale folded into the coefficients. With `by_columns` rows come
transposed, so that tables that lie column by column need no kernels of their own.
Imported lazily by the engines, because importing numba takes half a second.
"""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt

from dpconvex.engine.rows import Array, Places, Raw

__all__ = ["combine_rows", "row_margins", "sigmoid_gradient", "survey_rows", "tile_rows"]


def tile_rows(columns: int, by_columns: bool) -> int:
    """Return how many rows a tile has: it stays in the cache, with long stretches of each column."""
    return 2048 if by_columns else max(32, 32_000 // columns)


# Reassociation lets sums run in vector lanes. Comparisons keep their meaning for NaN (no "nnan"): a
# missing value falls on the lower bound instead of spreading.
_FAST = {"reassoc", "contract"}


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
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

    ``squares[i] = sum_j ((x_ij - centre_j) * stretch_j)^2``; empty `centre` and `stretch` stand for zeros and ones,
    which leave the squared norm, and empty `squares` for lengths that nobody asks for.
    """
    columns = low.size
    placed, measured = centre.size > 0, squares.size > 0
    buffer = np.empty(tile)
    centred = True
    for j in range(columns):
        centred = centred and shift[j] == 0.0
    for first in range(start, stop, tile):
        rows = min(tile, stop - first)
        outside = 0
        if by_columns:
            found = squares[first : first + rows] if measured else buffer[:rows]
            found[:] = 0.0
            for j in range(columns):
                below, above, middle, unit = low[j], high[j], shift[j], scale[j]
                away, factor = (centre[j], stretch[j]) if placed else (0.0, 1.0)
                column = raw[j][first : first + rows]
                for i in range(rows):
                    value = np.float64(column[i])
                    inside = value if value > below else below
                    inside = inside if inside < above else above
                    outside += inside != value
                    inside = ((inside - middle) * unit - away) * factor
                    found[i] += inside * inside
        else:
            for i in range(rows):
                source = raw[first + i]
                square = 0.0
                if placed:
                    for j in range(columns):
                        value = np.float64(source[j])
                        inside = value if value > low[j] else low[j]
                        inside = inside if inside < high[j] else high[j]
                        outside += inside != value
                        inside = ((inside - shift[j]) * scale[j] - centre[j]) * stretch[j]
                        square += inside * inside
                else:
                    for j in range(columns):
                        value = np.float64(source[j])
                        inside = value if value > low[j] else low[j]
                        inside = inside if inside < high[j] else high[j]
                        outside += inside != value
                        inside = (inside - shift[j]) * scale[j]
                        square += inside * inside
                if measured:
                    squares[first + i] = square
        plain[first // tile] = centred and outside == 0


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def row_margins(
    raw: Raw,
    start: int,
    low: Array,
    high: Array,
    shift: Array,
    scaled: Array,
    plain: bool,
    by_columns: bool,
    margins: Array,
) -> None:
    """``margins[i] = sum_j (clip(raw_ij) - shift_j) * scaled_j`` for rows from `start` on.

    With `plain` nothing is beyond its bounds and all shifts are 0.
    """
    rows, columns = margins.size, low.size
    if by_columns:
        margins[:] = 0.0
        for j in range(columns):
            below, above, centre, factor = low[j], high[j], shift[j], scaled[j]
            column = raw[j][start : start + rows]
            if plain:
                for i in range(rows):
                    margins[i] += np.float64(column[i]) * factor
            else:
                for i in range(rows):
                    value = np.float64(column[i])
                    value = value if value > below else below
                    value = value if value < above else above
                    margins[i] += (value - centre) * factor
        return
    # One row after the other: the rows come from memory here, and one stream is read fastest.
    if plain:
        for i in range(rows):
            source = raw[start + i]
            total = 0.0
            for j in range(columns):
                total += np.float64(source[j]) * scaled[j]
            margins[i] = total
        return
    for i in range(rows):
        source = raw[start + i]
        total = 0.0
        for j in range(columns):
            value = np.float64(source[j])
            value = value if value > low[j] else low[j]
            value = value if value < high[j] else high[j]
            total += (value - shift[j]) * scaled[j]
        margins[i] = total


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def combine_rows(
    raw: Raw,
    start: int,
    low: Array,
    high: Array,
    shift: Array,
    plain: bool,
    by_columns: bool,
    multiples: Array,
    out: Array,
) -> None:
    """Add ``sum_i multiples_i (clip(raw_ij) - shift_j)`` over rows from `start` on to ``out_j``."""
    rows, columns = multiples.size, low.size
    if by_columns:
        for j in range(columns):
            below, above, centre = low[j], high[j], shift[j]
            column = raw[j][start : start + rows]
            total = 0.0
            if plain:
                for i in range(rows):
                    total += np.float64(column[i]) * multiples[i]
            else:
                for i in range(rows):
                    value = np.float64(column[i])
                    value = value if value > below else below
                    value = value if value < above else above
                    total += (value - centre) * multiples[i]
            out[j] += total
        return
    done = 0
    if plain:
        # Eight rows at a time: the sums are loaded and stored once for all of them.
        done = rows - rows % 8
        for i in range(0, done, 8):
            k = start + i
            row0, row1, row2, row3 = raw[k], raw[k + 1], raw[k + 2], raw[k + 3]
            row4, row5, row6, row7 = raw[k + 4], raw[k + 5], raw[k + 6], raw[k + 7]
            m0, m1, m2, m3 = multiples[i], multiples[i + 1], multiples[i + 2], multiples[i + 3]
            m4, m5, m6, m7 = multiples[i + 4], multiples[i + 5], multiples[i + 6], multiples[i + 7]
            for j in range(columns):
                one = np.float64(row0[j]) * m0 + np.float64(row1[j]) * m1
                two = np.float64(row2[j]) * m2 + np.float64(row3[j]) * m3
                three = np.float64(row4[j]) * m4 + np.float64(row5[j]) * m5
                four = np.float64(row6[j]) * m6 + np.float64(row7[j]) * m7
                out[j] += (one + two) + (three + four)
    full = done + (rows - done) // 4 * 4
    for i in range(done, full, 4):
        row0, row1 = raw[start + i], raw[start + i + 1]
        row2, row3 = raw[start + i + 2], raw[start + i + 3]
        m0, m1, m2, m3 = multiples[i], multiples[i + 1], multiples[i + 2], multiples[i + 3]
        for j in range(columns):
            below, above, centre = low[j], high[j], shift[j]
            value = np.float64(row0[j])
            value = value if value > below else below
            value = value if value < above else above
            total = (value - centre) * m0
            value = np.float64(row1[j])
            value = value if value > below else below
            value = value if value < above else above
            total += (value - centre) * m1
            value = np.float64(row2[j])
            value = value if value > below else below
            value = value if value < above else above
            total += (value - centre) * m2
            value = np.float64(row3[j])
            value = value if value > below else below
            value = value if value < above else above
            out[j] += total + (value - centre) * m3
    for i in range(full, rows):
        source = raw[start + i]
        for j in range(columns):
            value = np.float64(source[j])
            value = value if value > low[j] else low[j]
            value = value if value < high[j] else high[j]
            out[j] += (value - shift[j]) * multiples[i]


# No reassociation: the two-part logarithm of 2 would collapse into one.
@numba.njit(nogil=True, cache=True, fastmath={"contract"})
def _add_sigmoids(
    u: Array, knot: float, rate: float, jump: float, powers: Array, scales: Array, out: Array
) -> None:
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


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
def _scale(values: Array, factors: Array) -> None:
    for i in range(values.size):
        values[i] *= factors[i]


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
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


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
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


@numba.njit(nogil=True, cache=True, fastmath=_FAST)
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
    partial = np.empty(columns)
    lead = 0.0
    for block in range(edges.size - 1):
        partial[:] = 0.0
        block_lead = 0.0
        for start in range(edges[block], edges[block + 1], tile):
            rows = min(tile, edges[block + 1] - start)
            u, multiples = arguments[:rows], slopes[:rows]
            simple = plain.size > 0 and plain[start // tile] and plain[(start + rows - 1) // tile]
            place = starts[block] + start - edges[block]
            row_margins(raw, place, low, high, shift, scaled, simple, by_columns, u)
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
            combine_rows(raw, place, low, high, shift, simple, by_columns, multiples, partial)
        lead += block_lead
        for j in range(columns):
            total[j] += partial[j] * scale[j]
    return lead
