"""Order of addition of sums over rows: blocks, runs of blocks, and pairs of sums; and which rows a part of them has.

Both follow from the shape of the data alone: results are bitwise the same for every number of threads, and no term
passes through more additions than `most_summation_additions` says, on which bounds on rounding rest.
"""

import itertools
from collections.abc import Iterable

import numpy as np

from dpconvex.engine.rows import Partial, RowIndices, Sums

BLOCK_BYTES = 1 << 20  # a mapped block stays in cache; smaller ones cost more calls than they save
RUNS = 64  # partial sums: a constant, so that results do not depend on the number of threads
_SPARE = 16  # additions of a term beyond those counted, which certificates allow for
_NEIGHBOURS = 64  # rows next to each other in a part of the rows


def block_rows(dim: int) -> int:
    """Return how many rows a block has at most."""
    return max(64, BLOCK_BYTES // (8 * dim))


def spans(count: int, most: int = RUNS) -> list[tuple[int, int]]:
    """Return at most so many (first, last) of about equal length, one after the other, that make up `count`."""
    edges = np.linspace(0, count, min(count, most) + 1).astype(int).tolist()
    return list(itertools.pairwise(edges))


def sum_depth(count: int) -> int:
    """Return how many additions any one of `count` parts passes through in `pairwise_summation`."""
    return (count - 1).bit_length()


def summation_additions(n_rows: int, dim: int) -> int:
    """Return a bound on the number of roundings any one term passes through in a sum over rows in memory."""
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

    No part passes through more than ``log2(number of parts)`` additions, rounded up. The order of the parts is kept,
    and no more than that many sums are held. Arrays of the first of two sums are changed in place.
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
    """Return the indices of `rows` out of `n_rows` rows, up to 64 next to each other, spread over the data."""
    size = max(1, min(_NEIGHBOURS, rows // _NEIGHBOURS))
    if n_rows // -(-rows // size) < size:
        size = 1
    starts = _one_in_each(n_rows, -(-rows // size), size)
    return np.asarray((starts[:, None] + np.arange(size)).ravel()[:rows])


def spread_indices(n_rows: int, rows: int) -> RowIndices:
    """Return the indices of `rows` out of `n_rows` rows: spread evenly, yet blind to any period in their order."""
    return _one_in_each(n_rows, max(0, min(int(rows), n_rows)), 1)


def _one_in_each(n_rows: int, parts: int, size: int) -> RowIndices:
    """Return where `size` neighbouring rows begin, drawn with a fixed seed from each of equally long parts."""
    # Ends are whole and each part holds its rows: no row is taken twice, or a record would count twice.
    edges = np.arange(parts + 1, dtype=np.int64) * n_rows // max(1, parts)
    room = np.diff(edges) - size + 1
    drawn = np.random.default_rng(0).random(parts) * room
    return np.asarray(edges[:-1] + drawn.astype(np.int64))
