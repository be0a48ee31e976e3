"""Which rows a part of the data has: the same ones at every call, spread over the data by public numbers alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpconvex.engine.rows import Places

__all__ = ["RowRuns", "spread", "stretches"]

STRETCH = 64  # rows next to each other in a part of the rows


@dataclass(frozen=True, eq=False)
class RowRuns:
    """Where rows lie, in stretches of rows next to each other.

    Attributes
    ----------
    starts : array
        Where each stretch begins among all rows.
    size : int
        Rows of a stretch; the last one may be shorter.
    rows : int
        How many rows there are in all stretches.
    """

    starts: Places
    size: int
    rows: int

    @classmethod
    def whole(cls, n_rows: int, size: int) -> RowRuns:
        """Return all rows, in stretches of this size."""
        return cls(np.arange(-(-n_rows // size)) * size, size, n_rows)

    @cached_property
    def edges(self) -> Places:
        """Where each stretch begins if they lie one after the other; the number of rows stands at the end."""
        return np.minimum(np.arange(self.starts.size + 1) * self.size, self.rows)

    def places(self) -> Places:
        """Return where each row lies."""
        return np.repeat(self.starts - self.edges[:-1], np.diff(self.edges)) + np.arange(self.rows)


def stretches(n_rows: int, rows: int) -> tuple[Places, int]:
    """Return where stretches of `rows` out of `n_rows` rows begin, and their length; the last one may be shorter.

    One is drawn at random, with a fixed seed, from each of equally long parts of the data.
    """
    size = max(1, min(STRETCH, rows // STRETCH))
    if n_rows // -(-rows // size) < size:
        size = 1
    return _one_in_each(n_rows, -(-rows // size), size), size


def spread(n_rows: int, rows: int) -> Places:
    """Return the positions of `rows` out of `n_rows` rows.

    One is drawn at random, with a fixed seed, from each of equally long parts of the data: spread evenly, yet blind to
    any period in its order.
    """
    return _one_in_each(n_rows, max(0, min(int(rows), n_rows)), 1)


def _one_in_each(n_rows: int, parts: int, size: int) -> Places:
    """Return where a stretch of this size begins in each of so many parts of the data."""
    # Ends are whole and each part holds its stretch: no row is taken twice, or a record would count twice.
    edges = np.arange(parts + 1, dtype=np.int64) * n_rows // max(1, parts)
    room = np.diff(edges) - size + 1
    drawn = np.random.default_rng(0).random(parts) * room
    return np.asarray(edges[:-1] + drawn.astype(np.int64))
