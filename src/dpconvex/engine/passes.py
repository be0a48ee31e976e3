"""Passes over large rows in memory that map them on the fly: margins, and sums of multiples of rows.

Raw rows are read once, tile by tile, by compiled kernels; nothing as large as the rows is written. What tiles need
beyond scale and shift, and which weights the row map gives, is found out once (`Survey`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dpconvex.engine.rows import Partial, Places, RowFunction, Sums
from dpconvex.engine.summation_order import CHAIN, accumulate, spans
from dpconvex.engine.threads import in_threads
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.engine.memory import MemoryRows

__all__ = ["Survey", "combine", "stretched_lengths", "survey", "survey_of_part"]


_NOTHING = np.empty(0)
_SHORT = 8  # rows of a stretch below which calls cost more than they save


class Survey(NamedTuple):
    """What rows need beyond scale and shift.

    Attributes
    ----------
    plain : array of bool
        Which tiles need neither clipping nor a shift; empty: not known, so none.
    weights, factors : array or None
        Influence weights, or factors by which rows are shortened; None stands for ones.
    """

    plain: npt.NDArray[np.bool_]
    weights: Array | None
    factors: Array | None


def survey(rows: MemoryRows, several: bool) -> Survey:
    """Find out what `MemoryRows` need, in one pass; where only one pass will follow, just their weights."""
    row_norm = rows.row_map.row_norm
    # Where the bounds alone keep rows short, norms need not be computed.
    measure = not rows.row_map.max_norm * (1 + 1e-12) <= row_norm
    shorten = rows.row_map.influence == "shorten"
    measure = measure and (shorten or not rows.own_weights)
    # The computed norm has relative error below (columns + 4) ulp; rounding it up keeps the influence bound on the
    # safe side.
    round_up = 1.0 + (rows.row_map.n_features + 4) * 2.3e-16
    plain, factors = np.empty(0, dtype=np.bool_), np.empty(0)
    if measure or several:

        def factor(squares: Array) -> Array:
            return row_norm / np.maximum(np.sqrt(squares) * round_up, row_norm)

        columns = rows.row_map.n_features
        plain, factors = _survey_rows(rows, factor if measure else None, np.zeros(columns), np.ones(columns))
    found = factors if measure and bool((factors < 1.0).any()) else None
    return Survey(plain, None if shorten else found, found if shorten else None)


def stretched_lengths(rows: MemoryRows, cover: Cover) -> tuple[Array, Survey]:
    """Return ``sqrt(height^2 + sum_j ((x_j - centre_j) stretch_j)^2) * raised`` of all rows, and what they need.

    One pass finds both. Rows must have weights of their own from then on, and not be shortened.
    """

    def length(squares: Array) -> Array:
        return np.asarray(np.sqrt(cover.height**2 + squares + 1e-290) * cover.raised)

    plain, lengths = _survey_rows(rows, length, cover.centre, cover.stretch)
    return lengths, Survey(plain, None, None)


class Cover(Protocol):
    """Lengths that need no products of columns."""

    height: float
    raised: float
    centre: Array
    stretch: Array


def _survey_rows(
    rows: MemoryRows, number: Callable[[Array], Array] | None, centre: Array, stretch: Array
) -> tuple[npt.NDArray[np.bool_], Array]:
    """Return which tiles are plain, and ``number(squares)`` of all rows unless it is None."""
    from dpconvex.engine.fused import survey_rows

    tile = _tile(rows)
    tiles = -(-rows.n_rows // tile)
    plain = np.zeros(tiles, dtype=np.bool_)
    found = np.empty(0 if number is None else rows.n_rows)

    def run(span: tuple[int, int]) -> None:
        start, stop = span[0] * tile, min(span[1] * tile, rows.n_rows)
        survey_rows(
            rows.source, start, stop, *rows.columns, centre, stretch, rows.by_columns, tile, plain, found,
        )  # fmt: skip
        if number is not None:
            found[start:stop] = number(found[start:stop])

    list(in_threads(run, spans(tiles), rows.threads))
    return plain, found


def survey_of_part(rows: MemoryRows, found: Survey, starts: Places, size: int, count: int) -> Survey:
    """Return what `count` rows in stretches of this size need, from what is known of all rows around them."""
    tile = _tile(rows)
    if not found.plain.size:
        return found

    def none_odd(odd: npt.NDArray[np.bool_], first: Places, last: Places) -> npt.NDArray[np.bool_]:
        """Return for each span, ends included, whether nothing in it is odd."""
        before = np.concatenate([[0], np.cumsum(odd)])
        return np.asarray(before[last + 1] == before[first])

    ends = np.minimum(starts + size, rows.n_rows) - 1
    stretches = none_odd(~found.plain, starts // tile, ends // tile)
    edges = np.arange(0, count, tile)
    plain = none_odd(~stretches, edges // size, (np.minimum(edges + tile, count) - 1) // size)
    return Survey(plain, None, None)


def _tile(rows: MemoryRows) -> int:
    from dpconvex.engine.fused import tile_rows

    return tile_rows(rows.row_map.n_features, rows.by_columns)


def split_intercept(rows: MemoryRows, theta: Array) -> tuple[float, Array]:
    """Return the constant and the coefficients of the columns."""
    lead = int(rows.row_map.fit_intercept)
    return (float(theta[0]) if lead else 0.0, np.ascontiguousarray(theta[lead:], dtype=np.float64))


def combine(rows: MemoryRows, theta: Array, function: RowFunction) -> Sums:
    """Return what `MemoryRows.combine` says, by the same kernels for every number of rows: it may be private."""
    own = rows.numbers.weights
    if rows.scattered:
        # Only where weights are known, and stretches so long that calls are worth it: public numbers decide.
        if own is None or rows.row_map.influence == "shorten" or rows.where.size < _SHORT:
            return _combine_mapped(rows, theta, function)
        found = rows.survey or Survey(np.empty(0, dtype=np.bool_), None, None)
    else:
        found = rows.surveyed()
    given = rows.numbers.without_void(found.weights if own is None else own)
    sigmoid = getattr(function, "sigmoid", None)
    if sigmoid is None:
        return _combine_blocks(rows, theta, function, found, given)
    return _combine_sigmoids(rows, theta, sigmoid, found, given)


def _combine_mapped(rows: MemoryRows, theta: Array, function: RowFunction) -> Sums:
    """Combine blocks of mapped rows."""
    from dpconvex.engine.blocks import row_margins

    def part(block: Array, y: Array, w: Array) -> Sums:
        multiples, *extra = function(y, row_margins(block, theta), w)
        return multiples @ block, *extra

    def voted(block: Array, y: Array, w: Array, v: Array) -> Sums:
        multiples, *extra = function(y, row_margins(block, theta), w)
        return (multiples * v) @ block, *extra

    return rows.sum_votes(voted) if rows.voted and rows.own_weights else rows.sum(part)


def _combine_sigmoids(
    rows: MemoryRows, theta: Array, sigmoid: Sequence[object], found: Survey, weights: Array | None
) -> Sums:
    """Combine with slopes that the compiled kernel computes itself; None stands for ones."""
    from dpconvex.engine.fused import sigmoid_gradient

    lead, tile = int(rows.row_map.fit_intercept), _tile(rows)
    constant, slopes = split_intercept(rows, theta)
    starts, edges, per_block = rows.layout()

    def chain(first: int, last: int) -> Partial:
        total = np.zeros(rows.dim)
        constant_sum = sigmoid_gradient(
            rows.source,
            rows.targets,
            starts[first:last],
            edges[first : last + 1],
            *rows.columns,
            found.plain,
            _NOTHING if weights is None else weights,
            _NOTHING if found.factors is None else found.factors,
            _NOTHING if rows.shares is None else rows.shares,
            rows.by_columns,
            tile,
            constant,
            slopes,
            *sigmoid,
            total[lead:],
        )
        if lead:
            total[0] = constant_sum
        return [total]

    # A term passes through no more additions in a chain of stretches than in a block and a chain of blocks.
    size = rows.block_rows // per_block
    links = min(CHAIN * per_block, CHAIN + rows.block_rows - size)

    def run(span: tuple[int, int]) -> Partial:
        last = min(span[1] * per_block, starts.size)
        firsts = range(span[0] * per_block, last, links) or [0]  # no rows are one empty chain
        return accumulate(chain(first, min(first + links, last)) for first in firsts)

    return rows.sum_runs(run)


def _combine_blocks(rows: MemoryRows, theta: Array, function: RowFunction, found: Survey, given: Array | None) -> Sums:
    """Combine with slopes from a Python function, which is called on large blocks."""
    from dpconvex.engine.fused import row_margins, sum_rows

    lead = int(rows.row_map.fit_intercept)
    low, high, shift, scale = rows.columns
    constant, slopes = split_intercept(rows, theta)
    ones, shares, scaled = np.ones(rows.block_rows), rows.shares, slopes * scale
    starts, edges, per_block = rows.layout()

    def parts(span: tuple[int, int]) -> Iterator[Partial]:
        buffer = np.empty(rows.block_rows)
        for index in range(*span):
            start, first = index * rows.block_rows, index * per_block
            last = min(first + per_block, starts.size)
            y = rows.targets[start : start + rows.block_rows]
            block = slice(start, start + y.size)
            z, w = buffer[: y.size], ones[: y.size] if given is None else given[block]
            stretches = (
                rows.source, starts[first:last], edges[first : last + 1], low, high, shift,
                found.plain, rows.by_columns, _tile(rows),
            )  # fmt: skip
            row_margins(*stretches, scaled, z)
            if found.factors is not None:
                z *= found.factors[block]
            if rows.numbers.void is not None:  # whose features are all 0
                z[rows.numbers.void[block]] = 0.0
            z += constant
            if shares is not None and not rows.own_weights:
                w = w * shares[block]
            multiples, *extra = function(y, z, w)
            if shares is not None and rows.own_weights:
                multiples = multiples * shares[block]
            partial = np.zeros(rows.dim)
            if lead:
                partial[0] = multiples.sum()
            if found.factors is not None:
                multiples = multiples * found.factors[block]
            multiples = np.ascontiguousarray(multiples, dtype=np.float64)
            sum_rows(*stretches, multiples, partial[lead:])
            partial[lead:] *= scale
            yield [partial, *extra]

    return rows.sum_runs(lambda span: accumulate(parts(span)))
