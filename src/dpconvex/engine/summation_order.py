"""In which order sums over rows are added: blocks, chains, runs, and pairs of sums.

The order depends on the shape of the data alone, so that results are bitwise the same for every number of threads, and
no term passes through more additions than `most_additions` says: bounds on rounding rest on it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from dpconvex.engine.rows import Partial, Sums

__all__ = ["CHAIN", "RUNS", "accumulate", "block_rows", "most_additions", "spans", "sum_depth"]

BLOCK_BYTES = 1 << 20  # a mapped block stays in cache; smaller ones cost more calls than they save
RUNS = 64  # partial sums: a constant, so that results do not depend on the number of threads
CHAIN = 16  # blocks that compiled kernels add one after the other


def block_rows(dim: int) -> int:
    """Return how many rows a block has at most."""
    return max(64, BLOCK_BYTES // (8 * dim))


def spans(count: int, most: int = RUNS) -> list[tuple[int, int]]:
    """Return at most so many (first, last) of about equal length, one after the other, that make up `count`."""
    edges = np.linspace(0, count, min(count, most) + 1).astype(int).tolist()
    return list(itertools.pairwise(edges))


def sum_depth(count: int) -> int:
    """Return how many additions any one of `count` parts passes through in `accumulate`."""
    return (count - 1).bit_length()


def most_additions(n_rows: int, dim: int) -> int:
    """Return a bound on `additions` for this many rows in memory, or in partitions of any sizes.

    A partition's blocks, chains, blocks in a run and runs; then groups of partitions.
    """
    return min(n_rows, block_rows(dim)) + CHAIN + 2 * sum_depth(n_rows) + 4


def accumulate(parts: Iterable[Sums | Partial]) -> Partial:
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
