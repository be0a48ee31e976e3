"""Rows of an array in memory, and the numbers that go with them: which rows there are, and parts of them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Self

import numpy as np
import numpy.typing as npt

from dpconvex.engine.arrays import native_rows
from dpconvex.engine.row_numbers import LARGEST, RowNumbers
from dpconvex.engine.rows import Places, Raw, RowFunction, RowMap, Sums
from dpconvex.engine.stretches import RowRuns, spread, stretches
from dpconvex.engine.summation_order import block_rows
from dpconvex.engine.threads import available_cores
from dpconvex.engine.votes import Votes
from dpconvex.types import Array

__all__ = ["ArrayRows"]


class ArrayRows:
    """Raw rows at their places, with a target, a weight and a vote each.

    Parameters
    ----------
    X, y, row_map, target_shift, target_scale, threads, weights, votes
        As for `dpconvex.engine.memory.MemoryRows`.

    Attributes
    ----------
    n_rows, dim : int
        Number of rows; number of coefficients, intercept included.
    columns : tuple of arrays
        Bounds, shift and scale of every raw column.
    numbers : RowNumbers
        Mapped targets, void rows, given weights and votes.
    where : RowRuns
        Where the rows lie in `source`; those of a part, or all of them in stretches of a block.
    scattered : bool
        Whether they are a part of the rows in `source`.
    """

    def __init__(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        row_map: RowMap,
        target_shift: float = 0.0,
        target_scale: float = 1.0,
        threads: int | None = None,
        weights: Array | None = None,
        votes: Votes | None = None,
    ) -> None:
        raw = self._as_raw(X)
        if len(raw.shape) != 2 or raw.shape[1] != row_map.n_features:
            raise ValueError(
                f"The 'X' parameter of MemoryRows must have shape (n, {row_map.n_features}). "
                f"Got shape {raw.shape} instead."
            )
        numbers = RowNumbers.of_targets(y, target_shift, target_scale, weights, votes)
        if numbers.targets.shape != (raw.shape[0],):
            raise ValueError(
                f"The 'y' parameter of MemoryRows must have shape ({raw.shape[0]},), one target "
                f"per row of X. Got shape {numbers.targets.shape} instead."
            )
        self._raw, self.numbers, self.row_map = raw, numbers, row_map
        self.threads = available_cores() if threads is None else int(threads)
        self.n_rows, self.dim = raw.shape[0], row_map.dim
        free = np.full(row_map.n_features, LARGEST)
        low = -free if row_map.low is None else np.array(row_map.low)
        high = free if row_map.high is None else np.array(row_map.high)
        self.columns = (low, high, np.array(row_map.shift), np.array(row_map.scale))
        self._by_columns = isinstance(raw, np.ndarray) and abs(raw.strides[0]) < abs(raw.strides[1])
        self.where = RowRuns.whole(self.n_rows, max(1, min(self.n_rows, block_rows(self.dim))))
        self.scattered = False

    def _as_raw(self, X: npt.ArrayLike) -> Raw:
        return native_rows(X)

    @property
    def mean_target_size(self) -> float:
        """Mean of ``|y|`` over mapped targets (a private number)."""
        return self.numbers.mean_target_size

    @property
    def n_records(self) -> int:
        """Number of records that the rows are of: people, or the rows themselves."""
        return self.numbers.records

    @property
    def voted(self) -> bool:
        """Whether rows may count for less than a whole one."""
        return self.votes is not None

    @property
    def people_vote(self) -> bool:
        """Whether several rows may be of one person."""
        return self.votes is not None and self.votes.tags is not None

    @property
    def votes(self) -> Votes | None:
        """What each row counts for; None stands for ones."""
        return self.numbers.votes

    @property
    def shares(self) -> Array | None:
        """What each row counts for, as numbers; None stands for ones."""
        return self.numbers.shares

    @property
    def own_weights(self) -> bool:
        """Whether weights were given that take the place of those of the row map."""
        return self.numbers.weights is not None

    @property
    def by_columns(self) -> bool:
        """Whether the given rows lie in memory column by column."""
        return self._by_columns

    @property
    def raw(self) -> Raw:
        """The rows as they were given."""
        return self._raw[self.where.places()] if self.scattered else self._raw

    @property
    def source(self) -> Raw:
        """Where the rows lie, at the places that `layout` tells; transposed, as kernels take it, if by columns."""
        return self._raw.T if self._by_columns else self._raw

    @property
    def targets(self) -> Array:
        """The mapped targets; 0 for void rows. They may be moved to another place."""
        return self.numbers.targets

    @targets.setter
    def targets(self, same: Array) -> None:
        self.numbers = replace(self.numbers, targets=same)

    @property
    def marked_targets(self) -> Array:
        """The mapped targets; NaN for void rows."""
        return self.numbers.marked_targets

    def sum_targets(self, function: RowFunction) -> Sums:
        """Add ``function(y, w, v)`` over stretches of targets, weights and votes; the rows themselves are not read.

        Weights are those that were given, or ones: what the row map says would need the rows.
        """
        return self.numbers.sum(function, self.threads)

    def counter(self, function: Callable[[Array, Array], Array], level: float = 0.0) -> Callable[[float], float]:
        """Return a function of a point: how many of the numbers ``function(y, w)``, one per row, are below it.

        They are computed once; weights are those of `sum_targets`. A row counts as its vote. With a level the count is
        centred: less ``level`` times the number of all rows, 0 at that quantile however many rows are ignored.
        """
        return self.numbers.counter(function, self.threads, level)

    def with_labels(self) -> Self:
        """Return the same rows with mapped targets clipped to [-1, 1], as losses of ``y z`` need them.

        Slopes and curvature of such a loss grow with ``|y|``; bounds are those of labels.
        """
        labels = self.numbers.as_labels()
        return self if labels is self.numbers else self._with_numbers(labels)

    def _with_numbers(self, numbers: RowNumbers) -> Self:
        """Return the same rows with other numbers, without what was found out."""
        other = copy.copy(self)
        other.numbers = numbers
        return other

    def take(self, indices: npt.NDArray[np.integer]) -> Self:
        """Return the given rows as rows of their own."""
        places = self.where.places()[indices] if self.scattered else indices
        numbers = self.numbers
        return type(self)(
            self._raw[places],
            self.marked_targets[indices],
            self.row_map,
            threads=self.threads,
            weights=None if numbers.weights is None else numbers.weights[indices],
            votes=None if numbers.votes is None else numbers.votes.take(indices),
        )

    def with_votes(self, votes: Votes) -> Self:
        """Return the same rows, which count for what the votes say."""
        return self._with_numbers(replace(self.numbers, votes=votes))

    def take_records(self, records: Places) -> Self:
        """Return the given records: rows, or all rows of people."""
        if not self.people_vote or self.votes is None:
            return self.take(records)
        rows = self.votes.rows_of(records)
        return self.take(rows).with_votes(self.votes.part(rows, records.size))

    def one_row_each(self, records: Places, generator: np.random.Generator) -> Self:
        """Return the given records with a row each: themselves, or a random one of a person's rows."""
        if not self.people_vote or self.votes is None:
            return self.take(records)
        rows, shares = self.votes.one_row_each(records, generator)
        return self.take(rows).with_votes(Votes(shares, records.size))

    def subsample(self, rows: int) -> Self:
        """Return about `rows` rows, the same ones at every call, spread over the data.

        See `spread`.
        """
        return self.take(spread(self.n_rows, rows))

    def part(self, rows: int) -> Self:
        """Return a part of exactly `rows` rows, the same ones at every call, in short stretches spread over the data.

        The rows themselves are not copied: their margins and sums are read where they are. Where people vote, it is
        the rows of about so many people, copied: all rows of a person or none, by its tag.
        """
        if rows >= self.n_records:
            return self
        if self.people_vote and self.votes is not None:
            chosen = self.votes.in_part(rows)
            return self.take(chosen).with_votes(self.votes.part(chosen, rows))
        return self._in_place(*stretches(self.n_rows, rows), rows)

    def _in_place(self, starts: Places, size: int, rows: int) -> Self:
        """Return so many rows in stretches of this size."""
        if self.scattered:
            raise ValueError("A part of the rows has no parts of its own. Take them of all rows.")
        where = RowRuns(starts, size, rows)
        other = self._with_numbers(self.numbers.at(where.places()))
        other.where, other.scattered, other.n_rows = where, True, rows
        return other

    @staticmethod
    def stretches(n_rows: int, rows: int) -> tuple[Places, int]:
        """Return where the stretches of `part` begin, and their length; the last one may be shorter."""
        return stretches(n_rows, rows)

    @staticmethod
    def spread(n_rows: int, rows: int) -> Places:
        """Return the positions of the rows that `subsample` takes out of `n_rows`."""
        return spread(n_rows, rows)
