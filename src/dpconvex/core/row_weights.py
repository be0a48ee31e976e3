"""Weights of rows, and the people behind the rows.

A row weight multiplies everything that a row adds to a sum, a count or a moment. Weights of one
person sum to at most 1, so what a person contributes is a mean of what its rows contribute, or
less: no longer than the longest of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpconvex.core.person_identifiers import NOBODY, Tags, mix_identifier_bits
from dpconvex.core.rows import RowIndices
from dpconvex.types import Array

_FINEST = 40  # bits of the grid of row weights where records are few
_DIGITS = 52  # of a sum of row weights that is exact
_LOOKUP_ROWS = 1 << 20  # rows whose weights are looked up at a time


@dataclass(frozen=True)
class RowWeights:
    """One number per row between 0 and 1, and the people behind the rows.

    Privacy: values, tags and the number of rows of a person are private; `records` is public.
    """

    values: Array  # what each row counts for; those of one record sum to at most 1
    records: int  # people, or rows where every row is a record of its own
    # Of the person behind each row: a public function of its identifier, evenly spread over 64
    # bits; `NOBODY` where it names nobody. None where every row is a record of its own.
    tags: Tags | None = None

    def __post_init__(self) -> None:
        # What a record adds is bounded only if no row counts for more than a whole one. Readers of
        # weights see to it, so that no data of a user ever raise this.
        if not (self.values.min(initial=0.0) >= 0 and self.values.max(initial=0.0) <= 1):
            raise ValueError("Weights of rows must lie between 0 and 1.")

    def take(self, rows: npt.NDArray[np.integer]) -> RowWeights:
        """Return the weights of some rows, chosen for speed alone: the number of records is
        scaled.
        """
        return self.part(rows, max(1, round(self.records * rows.size / max(1, self.values.size))))

    def part(self, rows: npt.NDArray[np.integer] | slice, records: int) -> RowWeights:
        """Return the weights of the rows of a part of so many records."""
        return RowWeights(
            self.values[rows], records, None if self.tags is None else self.tags[rows]
        )

    def rows_in_part(self, records: int) -> RowIndices:
        """Return which rows belong to a part of about `records` people."""
        # Whether a person is in the part follows from its tag and public numbers, never from other
        # people: replacing one person changes what one person contributes to sums over the part.
        assert self.tags is not None, "rows that are records of their own"
        return np.flatnonzero(
            self.tags < np.uint64(min(2**64 - 1, records * 2**64 // max(1, self.records)))
        )

    def _rows_by_person(self) -> tuple[RowIndices, RowIndices]:
        """Return rows of positive weight sorted by person, and where each person's begin, and
        their number.
        """
        # As many people as there are records: those without a weight have no rows. Their order
        # follows from their tags: nothing but a uniformly random choice among all of them may use
        # it.
        assert self.tags is not None, "rows that are records of their own"
        positive = np.flatnonzero(self.values > 0)
        order = positive[np.argsort(self.tags[positive], kind="stable")]
        starts = _first_of_each(self.tags[order])
        return order, np.concatenate(
            [starts, np.full(max(0, self.records - starts.size), order.size), [order.size]]
        )

    def rows_of_people(self, people: RowIndices) -> RowIndices:
        """Return all rows of some people, numbered from 0 to ``records - 1``."""
        order, starts = self._rows_by_person()
        counts = starts[people + 1] - starts[people]
        first = np.repeat(starts[people] - np.cumsum(counts) + counts, counts)
        return np.asarray(order[first + np.arange(counts.sum())])

    def one_row_each(
        self, people: RowIndices, generator: np.random.Generator
    ) -> tuple[RowIndices, Array]:
        """Return a random row of each of some people, and what it counts for: on average what
        all of them do.
        """
        # One of the m rows of positive weight, each as likely, times m: between 0 and 1. People
        # without one count nothing.
        order, starts = self._rows_by_person()
        counts = starts[people + 1] - starts[people]
        drawn = starts[people] + (generator.random(people.size) * counts).astype(np.int64)
        present = counts > 0
        rows = np.zeros(people.size, dtype=np.int64)
        rows[present] = order[drawn[present]]
        return rows, np.where(present, np.minimum(self.values[rows] * counts, 1.0), 0.0)


def _first_of_each(ordered: Tags) -> RowIndices:
    """Return where each tag begins in a sorted array."""
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])[: ordered.size])


def join_row_weights(parts: Sequence[RowWeights]) -> RowWeights | None:
    """Return the weights of consecutive parts of one table; None for none."""
    if not parts:
        return None
    tags = None if parts[0].tags is None else _concatenate_weights([part.tags for part in parts])
    return RowWeights(_concatenate_weights([part.values for part in parts]), parts[0].records, tags)


def _concatenate_weights(parts: Sequence[Any]) -> Any:
    """Return arrays one after the other: the one that all of them are views of, if they are."""
    whole = parts[0].base
    size = sum(part.size for part in parts)
    if whole is not None and whole.size == size and all(part.base is whole for part in parts):
        return whole
    return np.concatenate(parts)


def round_weights_to_grid(values: Array, most_records: int) -> Array:
    """Round weights down to a public grid on which sums of as many of them as there are records
    at most are exact.
    """
    # A count that is a sum of such numbers has no rounding error, whatever the order of addition.
    bits = min(_FINEST, _DIGITS - math.ceil(math.log2(max(2, most_records))))
    rounded = np.ldexp(values, bits)
    np.floor(rounded, out=rounded)
    return np.asarray(np.ldexp(rounded, -bits, out=rounded))


def equal_person_weights(tags: Tags) -> tuple[int, Array]:
    """Return the number of people and ``1 / m`` for each row of somebody with m rows; 0 for rows
    that name nobody.
    """
    ordered = np.sort(tags)
    ordered = ordered[: np.searchsorted(ordered, NOBODY)]  # the largest tag there is
    starts = _first_of_each(ordered)
    found = ordered[starts]
    counts = np.diff(np.append(starts, ordered.size))
    del ordered
    shares = np.append(1.0 / counts, 0.0)
    values = np.empty(tags.size)
    for start in range(0, tags.size, _LOOKUP_ROWS):  # little memory beside the result
        part = slice(start, start + _LOOKUP_ROWS)
        values[part] = shares[np.searchsorted(found, tags[part])]
    return found.size, values


def weights_limiting_rows(tags: Tags, rows: int) -> Array:
    """Return 1 for at most so many rows of every person, and 0 for its others and for rows that
    name nobody.
    """
    # Which ones follows from the person's tag and the order of its own rows, never from other
    # people's.
    order = np.argsort(tags, kind="stable")
    ordered = tags[order]
    starts = _first_of_each(ordered)
    own = np.arange(tags.size) - np.repeat(starts, np.diff([*starts, tags.size]))
    with np.errstate(over="ignore"):
        drawn = mix_identifier_bits(ordered + mix_identifier_bits(own.astype(np.uint64)))
    by_person = np.lexsort((drawn, ordered))  # people stay where they are
    chosen = np.zeros(tags.size)
    chosen[order[by_person]] = own < rows
    chosen[tags == NOBODY] = 0.0
    return chosen
