"""Numbers that go with rows in memory: target, weight and vote; and sums over them that do not read the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpconvex.engine.rows import Places, RowFunction, Sums
from dpconvex.engine.summation_order import accumulate
from dpconvex.engine.threads import in_threads, single_threaded_blas
from dpconvex.engine.votes import Votes
from dpconvex.types import Array

__all__ = ["LARGEST", "RowNumbers"]

LARGEST = 1e140  # values beyond it are clipped even without bounds: squares must not overflow
TARGET_BLOCK = 1 << 17  # targets that are read at a time


@dataclass(frozen=True, eq=False)
class RowNumbers:
    """What is known of each row beside its features.

    Attributes
    ----------
    targets : array of shape (n_rows,)
        Mapped targets; 0 for void rows.
    void : array of bool, optional
        Which rows are ignored, whatever they hold: they weigh 0 in sums over rows and have no vote in counts. None for
        none.
    weights : array of shape (n_rows,), optional
        Weights that take the place of those the row map gives.
    votes : Votes, optional
        What each row counts for; None stands for ones.
    """

    targets: Array
    void: npt.NDArray[np.bool_] | None = None
    weights: Array | None = None
    votes: Votes | None = None

    @classmethod
    def of_targets(
        cls, y: npt.ArrayLike, shift: float, scale: float, weights: Array | None, votes: Votes | None
    ) -> RowNumbers:
        """Map targets to ``(y - shift) * scale``, kept below 1e140; NaN marks a void row."""
        targets = np.clip(np.asarray(y, dtype=np.float64), -LARGEST, LARGEST)
        targets = np.clip((targets - shift) * scale, -LARGEST, LARGEST)
        void = np.isnan(targets)
        targets[void] = 0.0
        return cls(np.ascontiguousarray(targets), void if void.any() else None, weights, votes)

    @cached_property
    def mean_target_size(self) -> float:
        """Mean of ``|y|`` (a private number)."""
        sizes = np.abs(self.targets)
        total = sizes.sum() if self.shares is None else sizes @ self.shares
        return float(total) / max(1, self.records)

    @property
    def records(self) -> int:
        """Number of records that the rows are of: people, or the rows themselves."""
        return self.targets.size if self.votes is None else self.votes.records

    @property
    def shares(self) -> Array | None:
        """What each row counts for, as numbers; None stands for ones."""
        return None if self.votes is None else self.votes.shares

    @property
    def marked_targets(self) -> Array:
        """The targets; NaN for void rows."""
        return self.targets if self.void is None else np.where(self.void, np.nan, self.targets)

    def without_void(self, weights: Array | None) -> Array | None:
        """Return weights of all rows, 0 for void ones; None stands for ones."""
        if self.void is None:
            return weights
        return np.where(self.void, 0.0, 1.0 if weights is None else weights)

    def influence(self, rows: slice) -> Array:
        """Return given weights of some rows, 0 for void ones."""
        assert self.weights is not None
        given = self.weights[rows]
        return given if self.void is None else np.where(self.void[rows], 0.0, given)

    def at(self, places: Places) -> RowNumbers:
        """Return the numbers of the rows at these places, of which each is a record of its own or votes as it did."""
        return RowNumbers(
            self.targets[places],
            None if self.void is None else self.void[places],
            None if self.weights is None else self.weights[places],
            None if self.votes is None else self.votes.part(places, places.size),
        )

    def as_labels(self) -> RowNumbers:
        """Return the numbers with targets clipped to [-1, 1]; the same object if they are."""
        if not (np.abs(self.targets) > 1).any():
            return self
        return replace(self, targets=np.clip(self.targets, -1.0, 1.0))

    def sum(self, function: RowFunction, threads: int) -> Sums:
        """Add ``function(y, w, v)`` over stretches of targets, given weights and votes.

        Ones stand for weights and votes that are not given; ignored rows have no vote.
        """

        def part(rows: slice) -> Sums:
            return function(self.targets[rows], self._weights(rows), self._votes(rows))

        with single_threaded_blas():
            return tuple(accumulate(in_threads(part, self._blocks(), threads)))

    def counter(
        self, function: Callable[[Array, Array], Array], threads: int, level: float = 0.0
    ) -> Callable[[float], float]:
        """Return a function of a point: the votes of rows whose number ``function(y, w)`` is below it.

        Less ``level`` times all votes.
        """
        values, blocks = np.empty(self.targets.size), self._blocks()
        whole = self.shares is None and self.void is None
        shares = None if whole else self._votes(slice(None))
        every = values.size if shares is None else float(shares.sum())

        def fill(rows: slice) -> None:
            values[rows] = function(self.targets[rows], self._weights(rows))

        def count(point: float) -> float:
            below = (values[rows] < point for rows in blocks)
            if shares is None:
                found = float(sum(map(np.count_nonzero, below)))
            else:  # votes lie on a grid on which their sums are exact
                found = sum(float(shares[r] @ part) for r, part in zip(blocks, below, strict=True))
            return found - level * every

        with single_threaded_blas():
            list(in_threads(fill, blocks, threads))
        return count

    def _blocks(self) -> list[slice]:
        # No rows are one empty stretch.
        starts = range(0, max(1, self.targets.size), TARGET_BLOCK)
        return [slice(start, start + TARGET_BLOCK) for start in starts]

    def _votes(self, rows: slice) -> Array:
        size = self.targets[rows].size
        votes = np.ones(size) if self.shares is None else self.shares[rows]
        return votes if self.void is None else np.where(self.void[rows], 0.0, votes)

    def _weights(self, rows: slice) -> Array:
        if self.weights is None:
            return np.ones(self.targets[rows].size)
        return self.weights[rows]
