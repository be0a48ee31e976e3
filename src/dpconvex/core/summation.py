"""Order of addition of sums over rows: blocks, runs of blocks, and pairs of sums; and which rows a
part of them has.

Both follow from the shape of the data alone: results are bitwise the same for every number of
threads, and no term passes through more additions than `most_summation_additions` says, on which
bounds on rounding rest.

Those bounds hold for every data set of so many rows. Two neighbouring data sets differ by one
record, but the rounding errors of two sums differ everywhere. With error at most e in each, sums
whose exact values are no more than ``sensitivity`` apart are computed no more than
``sensitivity + 2 e`` apart.
"""

import itertools
import math
from collections.abc import Iterable

import numpy as np

from dpconvex.core.rows import Partial, RowIndices, Sums

BLOCK_BYTES = 1 << 20  # a mapped block stays in cache; smaller ones cost more calls than they save
RUNS = 64  # partial sums: a constant, so that results do not depend on the number of threads
_SPARE = 16  # additions of a term beyond those counted, which certificates allow for
_NEIGHBOURS = 64  # rows next to each other in a part of the rows
UNIT = 2.0**-53
# Roundings of one term before it is added: the shift, the scale and the shortening of a coordinate,
# the weight and the slope of its record, and twice as many in reserve.
_TERM = 12
# Products below the range of floating-point numbers lose their digits: far less than this each.
_UNDERFLOW = 1e-300
# Rows that rounding is paid for where people are summed, whose number of rows is private: more than
# any machine reads.
MANY_ROWS = 2**40


def block_rows(dim: int) -> int:
    """Return how many rows a block has at most."""
    return max(64, BLOCK_BYTES // (8 * dim))


def spans(count: int, most: int = RUNS) -> list[tuple[int, int]]:
    """Return at most so many (first, last) of about equal length, one after the other, that make
    up `count`.
    """
    edges = np.linspace(0, count, min(count, most) + 1).astype(int).tolist()
    return list(itertools.pairwise(edges))


def sum_depth(count: int) -> int:
    """Return how many additions any one of `count` parts passes through in `pairwise_summation`."""
    return (count - 1).bit_length()


def summation_additions(n_rows: int, dim: int) -> int:
    """Return a bound on the number of roundings any one term passes through in a sum over rows
    in memory.
    """
    size = max(1, min(n_rows, block_rows(dim)))
    blocks = max(1, -(-n_rows // size))
    runs = min(blocks, RUNS)
    return size + min(blocks, _SPARE) + sum_depth(-(-blocks // runs)) + sum_depth(runs)


def most_summation_additions(n_rows: int, dim: int) -> int:
    """Return a bound on the same for this many rows in memory, or in partitions of any sizes."""
    # A partition's blocks, blocks in a run and runs; then groups of partitions.
    return min(n_rows, block_rows(dim)) + _SPARE + 2 * (n_rows - 1).bit_length() + 4


def pairwise_summation(parts: Iterable[Sums | Partial]) -> Partial:
    """Add tuples of arrays or numbers, neighbours first: two sums of equally many parts at a time.

    No part passes through more than ``log2(number of parts)`` additions, rounded up. The order of
    the parts is kept, and no more than that many sums are held. Arrays of the first of two sums are
    changed in place.
    """
    sums: list[Partial] = []
    for count, part in enumerate(parts, 1):
        sums.append(list(part))
        for _ in range((count & -count).bit_length() - 1):
            _add_last_two(sums)
    while len(sums) > 1:
        _add_last_two(sums)
    return sums[0] if sums else []


def _add_last_two(sums: list[Partial]) -> None:
    last = sums.pop()
    for position, term in enumerate(last):
        sums[-1][position] += term


def part_indices(n_rows: int, rows: int) -> RowIndices:
    """Return the indices of `rows` out of `n_rows` rows, up to 64 next to each other, spread
    over the data.
    """
    size = max(1, min(_NEIGHBOURS, rows // _NEIGHBOURS))
    if n_rows // -(-rows // size) < size:
        size = 1
    starts = _one_in_each(n_rows, -(-rows // size), size)
    return np.asarray((starts[:, None] + np.arange(size)).ravel()[:rows])


def spread_indices(n_rows: int, rows: int) -> RowIndices:
    """Return the indices of `rows` out of `n_rows` rows: spread evenly, yet blind to any period
    in their order.
    """
    return _one_in_each(n_rows, max(0, min(int(rows), n_rows)), 1)


def _one_in_each(n_rows: int, parts: int, size: int) -> RowIndices:
    """Return where `size` neighbouring rows begin, drawn with a fixed seed from each of equally
    long parts.
    """
    # Ends are whole and each part holds its rows: no row is taken twice, or a record would count
    # twice.
    edges = np.arange(parts + 1, dtype=np.int64) * n_rows // max(1, parts)
    room = np.diff(edges) - size + 1
    drawn = np.random.default_rng(0).random(parts) * room
    return np.asarray(edges[:-1] + drawn.astype(np.int64))


def most_summed_rows(n_samples: int, neighbors: str) -> int:
    """Return for how many rows rounding is paid: ten times a nominal number, at least 2 million,
    if it is private.
    """
    return n_samples if neighbors == "replace_one" else max(10 * n_samples, 2_000_000)


def summation_rounding_error(
    n_rows: int,
    dimension: int,
    largest_term: float,
    additions: int | None = None,
    people: bool = False,
) -> float:
    r"""Bound the norm of the rounding error of a sum over rows.

    A term passes through at most ``k`` roundings: within a block of rows in any order (BLAS may
    choose), then pairwise over blocks, runs and partitions (`most_summation_additions`). The
    computed sum is the exact sum of terms each changed by a relative error of at most
    ``k u / (1 - k u)`` per coordinate, ``u = 2^-53``, so that the error has norm at most
    ``k u / (1 - k u) n_rows largest_term``.

    ``largest_term`` bounds the norm of one record's contribution, and ``dimension`` is the length
    of a mapped row, on which the length of blocks depends. ``additions`` are those that a term
    passes through at most, where sums are not formed by the engine. With ``people``, ``n_rows``
    counts people whose rows have weight 1 together: terms are as large together, but there may be
    ``MANY_ROWS`` of them.

    Privacy: contributions are what the sum adds, multiples ``m_i x_i`` of rows with ``m_i`` as
    computed. How accurate ``m_i`` is does not matter to a sensitivity, as long as it follows from
    the record and public numbers and keeps its bound.
    """
    terms = MANY_ROWS if people else n_rows
    relative = relative_rounding_error(terms, dimension, additions, mapped=False)
    return n_rows * relative * largest_term + terms * math.sqrt(dimension) * _UNDERFLOW


def relative_rounding_error(
    n_rows: int, dimension: int, additions: int | None = None, mapped: bool = True
) -> float:
    """Bound the error of a sum over rows, and of its product with a matrix if `mapped`, relative to
    the terms' norms.

    ``k u / (1 - k u)`` for the k roundings of a term, rounded up; infinite where no digits are
    left. Norms are those of rows that were mapped by the same matrix, and err as their products do.
    `additions` are those that a term passes through at most, where sums are not formed by the
    engine.
    """
    added = most_summation_additions(n_rows, dimension) if additions is None else additions
    roundings = added + _TERM + (2 * (dimension + 1) if mapped else 0)
    return (
        math.inf
        if roundings * UNIT > 0.5
        else roundings * UNIT / (1 - roundings * UNIT) * (1 + 1e-12)
    )
