"""The pairwise objective of rows in partitions or in memory: tables of scores add, rows stay where they are.

Rows are mapped block by block in every pass, by several threads, and never copied as a whole.

Every evaluation is two passes. The first collects the scores of each class, for logistic losses as moments per unit
interval of scores, which add over partitions; the second combines the rows of each partition with the slopes at their
scores. Piecewise quadratics, and scores that spread over more intervals than pay, take the scores themselves: one
number per row.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dpconvex.engine.memory import MemoryRows
from dpconvex.engine.rows import RowFunction, Sums
from dpconvex.engine.summation_order import accumulate
from dpconvex.losses.pairwise import PairLoss
from dpconvex.objectives.pair_sums import CellMoments
from dpconvex.objectives.pairwise import PairwiseObjective, RowChange, combine_pairs
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.engine.dask.rows import DaskRows

__all__ = ["PartitionedPairwiseObjective"]


_SAMPLE = 1 << 15  # records whose Hessian stands for that of all


class PartitionedPairwiseObjective(PairwiseObjective):
    """`PairwiseObjective` of rows that are not copied, with the same sums up to rounding.

    Parameters
    ----------
    rows : DaskRows or MemoryRows
        Bounded rows without constant column; targets above 0 are positive, below 0 negative, and void rows have 0.
    loss, alpha, min_positive, min_negative, linear, row_norm
        As for `PairwiseObjective`.

    Attributes
    ----------
    hessian_is_sampled : bool
        True: `hessian` is that of a sample, so Newton's method may need many steps, or fail.

    Notes
    -----
    Privacy: that of `PairwiseObjective`. Counts of classes and tables of scores are private and stay inside.
    """

    hessian_is_sampled = True

    def __init__(
        self,
        rows: DaskRows | MemoryRows,
        loss: PairLoss,
        alpha: float,
        min_positive: int = 1,
        min_negative: int = 1,
        linear: npt.ArrayLike | None = None,
        *,
        row_norm: float,
    ) -> None:
        nothing = np.empty((0, rows.dim))
        super().__init__(nothing, nothing[:, 0] > 0, loss, alpha, min_positive, min_negative, linear, row_norm)
        del self.positives, self.negatives
        self.rows = rows
        self.row_map = rows.row_map
        self.n_rows = rows.n_rows
        self._changes: tuple[RowChange, ...] = ()
        self._last: tuple[Array, tuple[CellMoments, CellMoments]] | None = None

    @cached_property
    def _class_counts(self) -> list[tuple[int, int]]:
        """Numbers of positive and negative records of every partition."""
        return [tuple(part) for part in self.rows.each(_count)]

    @property
    def counts(self) -> tuple[int, int]:
        """Numbers of positive and negative records: private."""
        ahead, behind = np.sum(self._class_counts, axis=0)
        return int(ahead), int(behind)

    def sum(self, function: RowFunction) -> Sums:
        """Add ``function(block, y, w)`` over blocks of both classes' rows, labels +1 and -1 and weights of 1."""
        changed = _Changed(self._changes)

        def part(block: Array, y: Array, w: Array) -> Sums:
            there = y != 0  # void rows belong to no class
            if not there.all():
                block, y, w = block[there], y[there], w[there]
            return tuple(function(changed(block), y, w))

        return tuple(self.rows.sum(part))

    def each_row(self, function: RowChange) -> Array:
        """Return ``function(block)``, one number per row, of all rows of both classes: private."""
        parts = self.rows.each(_Numbers(_Changed((*self._changes, function))))
        return np.concatenate([side for part in parts for side in part])

    def _change_rows(self, function: RowChange) -> None:
        self._changes = (*self._changes, function)
        self._last = None

    def subsample(self, rows: int) -> PairwiseObjective:
        """Return the objective of the records in memory that `PairwiseObjective.subsample` would take."""
        shares = self._shares(rows)
        chosen = [MemoryRows.spread(count, size) for count, size in shares]
        ends = np.cumsum([(0, 0), *self._class_counts], axis=0)
        calls = []
        for start, stop in itertools.pairwise(ends):
            local = []
            for side in range(2):
                first, last = np.searchsorted(chosen[side], (start[side], stop[side]))
                local.append(chosen[side][first:last] - start[side])
            calls.append(_Pick(_Changed(self._changes), local[0], local[1]))
        parts = list(self.rows.each(calls))
        return self._of_sample(*(np.concatenate([part[side] for part in parts]) for side in (0, 1)))

    @cached_property
    def _sampled(self) -> dict[tuple[RowChange, ...], PairwiseObjective]:
        return {}

    def hessian(self, w: npt.ArrayLike) -> Array:
        """Hessian of F, of a sample if there are many rows, which may miss a direction: see `hessian_is_sampled`."""
        if self._changes not in self._sampled:
            self._sampled[self._changes] = self.subsample(_SAMPLE)
        return self._sampled[self._changes].hessian(w)

    def _cells(self, w: Array) -> tuple[CellMoments, CellMoments]:
        """Return the tables of both classes' scores; those of the last w are remembered."""
        if self._last is None or not np.array_equal(self._last[0], w):
            ahead, behind = self.rows.sum(_Collect(_Changed(self._changes), w))
            self._last = (w.copy(), (ahead, behind))
        return self._last[1]

    def _data_value(self, w: Array) -> float:
        if self.loss.pieces is None:
            ahead, behind = self._cells(w)
            if not (ahead.wide or behind.wide):
                if not (ahead.floors.size and behind.floors.size):
                    return 0.0
                coefficients = behind.sums_at(ahead.floors, "value", mirrored=True)
                return float(self._scale * np.einsum("ck,ck->", coefficients, ahead.moments))
        return self._total(*self._gather(w))

    def _data_gradient(self, w: Array) -> Array:
        if self.loss.pieces is None:
            ahead, behind = self._cells(w)
            if not (ahead.wide or behind.wide):
                if not (ahead.floors.size and behind.floors.size):
                    return np.zeros(self.dim)
                near = [_with_neighbours(cells.floors) for cells in (ahead, behind)]
                largest = [self._scale * count for count in self.counts]
                below = -self._scale * behind.sums_at(near[0], mirrored=True)
                above = self._scale * ahead.sums_at(near[1])
                tables = (_Slopes(near[0], below, -largest[1], 0.0), _Slopes(near[1], above, 0.0, largest[0]))
                (total,) = self.rows.sum(_Combine(_Changed(self._changes), w, *tables))
                return np.asarray(total)
        s, t = self._gather(w)
        if s.size == 0 or t.size == 0:
            return np.zeros(self.dim)
        cuts = np.cumsum(self._class_counts, axis=0)[:-1]
        slopes = [np.split(multiples, cuts[:, side]) for side, multiples in enumerate(self._slopes(s, t))]
        changed = _Changed(self._changes)
        calls = [_Weigh(changed, *both) for both in zip(*slopes, strict=True)]
        (total,) = accumulate(self.rows.each(calls))
        return np.asarray(total)

    def _data_both(self, w: Array) -> tuple[float, Array]:
        return self._data_value(w), self._data_gradient(w)

    def _gather(self, w: Array) -> tuple[Array, Array]:
        """Return the scores of both classes, partition after partition."""
        parts = list(self.rows.each(_Numbers(_Changed((*self._changes, _Scores(w))))))
        if len(parts) == 1:
            return parts[0][0], parts[0][1]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    @property
    def _additions(self) -> int:
        return super()._additions + int(self.rows.additions) + len(self._class_counts)


@dataclass(frozen=True)
class _Changed:
    """Rows after all changes."""

    changes: tuple[RowChange, ...]

    def __call__(self, block: Array) -> Array:
        for change in self.changes:
            block = change(block)
        return block


def _count(rows: MemoryRows) -> tuple[int, int]:
    return int(np.count_nonzero(rows.targets > 0)), int(np.count_nonzero(rows.targets < 0))


@dataclass(frozen=True)
class _Pick:
    """Some rows of each class, by their position in it."""

    changed: _Changed
    ahead: npt.NDArray[np.int64]
    behind: npt.NDArray[np.int64]

    def __call__(self, rows: MemoryRows) -> tuple[Array, Array]:
        sides = (rows.targets > 0, self.ahead), (rows.targets < 0, self.behind)
        ahead, behind = (
            self.changed(rows.take(np.flatnonzero(which)[chosen]).mapped()[0])
            if chosen.size
            else np.empty((0, rows.dim))
            for which, chosen in sides
        )
        return ahead, behind


@dataclass(frozen=True)
class _Collect:
    """Tables of both classes' scores."""

    changed: _Changed
    w: Array

    def __call__(self, block: Array, y: Array, w: Array) -> tuple[CellMoments, CellMoments]:
        scores = self.changed(block) @ self.w
        return CellMoments.of(scores[y > 0]), CellMoments.of(scores[y < 0])


@dataclass(frozen=True)
class _Slopes:
    """A sum over the other class as a function of the score."""

    floors: Array
    coefficients: Array
    low: float
    high: float

    def __call__(self, scores: Array) -> Array:
        from dpconvex.objectives.pair_cells import evaluate_cells

        each = np.floor(scores)
        place = np.minimum(np.searchsorted(self.floors, each), self.floors.size - 1)
        # The same scores were collected before, so that each lies in its interval; one that falls on an end of it may
        # be rounded to the other side, where the neighbour's coefficients are.
        found = evaluate_cells(scores, self.floors[place], place, self.coefficients)
        # Rows that changed between two passes must not weigh more than the bounds of a slope allow.
        return np.clip(found, self.low, self.high)


@dataclass(frozen=True)
class _Combine:
    """Rows times slopes at their scores."""

    changed: _Changed
    w: Array
    ahead: _Slopes
    behind: _Slopes

    def __call__(self, block: Array, y: Array, w: Array) -> tuple[Array]:
        block = self.changed(block)
        scores, multiples = block @ self.w, np.zeros(len(block))
        for which, slopes in ((y > 0, self.ahead), (y < 0, self.behind)):
            multiples[which] = slopes(scores[which])
        return (combine_pairs(block, multiples),)


@dataclass(frozen=True)
class _Scores:
    """Scores of rows."""

    w: Array

    def __call__(self, block: Array) -> Array:
        return np.asarray(block @ self.w)


@dataclass(frozen=True)
class _Numbers:
    """One number per row, of both classes."""

    number: _Changed

    def __call__(self, rows: MemoryRows) -> tuple[Array, Array]:
        numbers = rows.reweighted(lambda block, w: self.number(block)).weights
        return numbers[rows.targets > 0], numbers[rows.targets < 0]


@dataclass(frozen=True)
class _Weigh:
    """Rows times given slopes."""

    changed: _Changed
    ahead: Array
    behind: Array

    def __call__(self, rows: MemoryRows) -> tuple[Array]:
        multiples = np.zeros(rows.n_rows)
        multiples[rows.targets > 0] = self.ahead
        multiples[rows.targets < 0] = -self.behind
        (total,) = rows.with_weights(multiples).sum(self._combined)
        return (total,)

    def _combined(self, block: Array, y: Array, w: Array) -> tuple[Array]:
        return (combine_pairs(self.changed(block), w),)


def _with_neighbours(floors: Array) -> Array:
    return np.unique(np.concatenate([floors - 1, floors, floors + 1]))
