"""Sums over rows of an array in memory, block by block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Self

import numpy as np
import numpy.typing as npt

from dpconvex.engine import passes
from dpconvex.engine.array_rows import ArrayRows
from dpconvex.engine.blocks import row_margins
from dpconvex.engine.mapped_blocks import Block, map_blocks
from dpconvex.engine.rows import Partial, Places, RowFunction, RowMap, Sums, VoteFunction
from dpconvex.engine.summation_order import CHAIN, RUNS, accumulate, block_rows, spans, sum_depth
from dpconvex.engine.threads import borrowed, in_threads, single_threaded_blas
from dpconvex.engine.votes import Votes
from dpconvex.types import Array

__all__ = ["MemoryRows"]

CACHE_BYTES = 1 << 25  # data whose mapped form is smaller than this is mapped once and kept


class MemoryRows(ArrayRows):
    """Rows and targets in memory, mapped block by block to bounded rows.

    `sum` adds a function of (mapped block, targets, weights) over all blocks. Blocks and the order
    of addition depend on the shape of the data only, so results are bitwise the same for every
    number of threads.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        Any real dtype and order; float32 and float64 are never copied as a whole when large.
    y : array of shape (n_rows,)
        Targets, mapped to ``(y - target_shift) * target_scale`` and kept below 1e140. NaN marks an ignored row:
        whatever it holds, its mapped features, its mapped target and its weight are 0, and it counts nowhere.
    row_map : RowMap
        Public facts: how a raw row becomes a bounded row.
    target_shift, target_scale : float
        Public map of the targets.
    threads : int, optional
        Number of worker threads, all available cores by default.
    keep : bool, default=True
        Whether small data may be kept in mapped form, for many passes over it.
    weights : array of shape (n_rows,), optional
        Weights that take the place of those the row map gives.
    votes : Votes, optional
        What each row counts for; every row is a whole record by default.

    Attributes
    ----------
    n_rows, dim : int
        Number of rows; number of coefficients, intercept included.
    mean_target_size : float
        Mean of ``|y|`` over mapped targets (a private number).
    survey : Survey or None
        What `combine` found out about the rows; may be handed from one object to another for the
        same rows and row map.
    """

    def __init__(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        row_map: RowMap,
        target_shift: float = 0.0,
        target_scale: float = 1.0,
        threads: int | None = None,
        keep: bool = True,
        weights: npt.NDArray[np.float64] | None = None,
        votes: Votes | None = None,
    ) -> None:
        super().__init__(X, y, row_map, target_shift, target_scale, threads, weights, votes)
        self._keep = keep
        self._divide(1, CACHE_BYTES)
        self._kept: list[Block] | None = None
        self._keeping = threading.Lock()
        self.survey: passes.Survey | None = None
        self._surveys: list[passes.Survey] = []  # of the same rows, whatever their weights

    def _divide(self, stretch: int, most_kept: int) -> None:
        """Decide on blocks of whole stretches, and whether so many bytes are few enough to keep them."""
        # No rows at all are one empty block, over which every sum is 0.
        self.block_rows = max(stretch, min(self.n_rows, block_rows(self.dim)) // stretch * stretch)
        self._blocks = max(1, -(-self.n_rows // self.block_rows))
        kept = self._keep and 8 * self.n_rows * self.dim <= most_kept
        self._small = self._blocks == 1 or kept

    def __getstate__(self) -> dict[str, object]:
        # A lock cannot be pickled, and mapped rows are cheaper to map again than to send.
        return {**vars(self), "_kept": None, "survey": None, "_surveys": [], "_keeping": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _keeping=threading.Lock())

    @property
    def small(self) -> bool:
        """Whether the rows are kept in mapped form: decided by their shape."""
        return self._small

    @property
    def additions(self) -> int:
        """Bound on the number of roundings any one term of `sum` passes through."""
        return self.additions_for(self.n_rows, self.dim)

    @staticmethod
    def additions_for(n_rows: int, dim: int) -> int:
        """Return `additions` for data of this shape."""
        size = max(1, min(n_rows, block_rows(dim)))
        blocks = max(1, -(-n_rows // size))
        runs = min(blocks, RUNS)
        return size + min(blocks, CHAIN) + sum_depth(-(-blocks // runs)) + sum_depth(runs)

    def layout(self) -> tuple[Places, Places, int]:
        """Return stretches of rows that lie next to each other, as kernels add them up one by one.

        Returns
        -------
        starts : array
            Where each stretch begins in `source`.
        edges : array
            Where it begins among the rows; the number of rows stands at the end.
        per_block : int
            RowRuns of a block.
        """
        return self.where.starts, self.where.edges, self.block_rows // self.where.size

    def forget_survey(self) -> None:
        """Free what `combine` found out about the rows."""
        self.survey, self._surveys = None, []

    @property
    def weights(self) -> Array:
        """The weights of all rows, votes apart."""
        if self.numbers.weights is None:
            return np.concatenate([w.copy() for _, _, w in self._mapped(0, self._blocks)])
        return self.numbers.weights

    def sum(self, function: RowFunction) -> Sums:
        """Add ``function(block, y, w)`` over all blocks of rows.

        Parameters
        ----------
        function : callable
            Takes a mapped block of shape (rows, dim), its targets and its weights, none of which
            it may change or keep, and returns a tuple of new arrays or numbers. It runs in several
            threads. Weights are those of the row map times votes, or as they were given.

        Returns
        -------
        tuple
            The sums, in float64.
        """
        if self.voted and not self.own_weights:
            return self.sum_votes(lambda block, y, w, v: function(block, y, w * v))
        if self._blocks == 1:
            ((block, y, w),) = self._kept_blocks()
            return function(block, y, w)

        def run(span: tuple[int, int]) -> Partial:
            return accumulate(function(*part) for part in self._mapped(*span))

        return self.sum_runs(run)

    def sum_votes(self, function: VoteFunction) -> Sums:
        """Add ``function(block, y, w, v)`` over all blocks of rows, with votes v beside the weights w."""
        shares, ones = self.shares, np.ones(self.block_rows)

        def parts(span: tuple[int, int]) -> Iterator[Sums]:
            start = span[0] * self.block_rows
            for block, y, w in self._mapped(*span):
                votes = ones[: y.size] if shares is None else shares[start : start + y.size]
                yield function(block, y, w, votes)
                start += y.size

        if self._blocks == 1:
            return next(parts((0, 1)))
        return self.sum_runs(lambda span: accumulate(parts(span)))

    def combine(self, theta: Array, function: RowFunction) -> Sums:
        """Add ``m_i x~_i`` over all rows, where the multiples m depend on the margins.

        Large data is read once and mapped on the fly, which is faster than `sum`; where the function
        has an attribute ``sigmoid`` (see `dpconvex.objectives.slopes`), by one compiled kernel.

        Parameters
        ----------
        theta : array of shape (dim,)
            Coefficients that define the margins ``z_i = x~_i . theta``.
        function : callable
            Takes targets, margins and weights of a block and returns a tuple: the multiples m, and
            any further numbers or arrays to be added up. Votes are in the weights of the row map; beside given
            weights, the multiples are taken times votes.

        Returns
        -------
        tuple
            ``sum_i m_i x~_i`` and the further sums.
        """
        return passes.combine(self, theta, function)

    def surveyed(self, weights: bool = True) -> passes.Survey:
        """Return what the rows need beyond scale and shift, and their weights unless not asked for; found out once."""
        if self.survey is None and self._surveys and not weights:
            return self._surveys[0]
        if self.survey is None:
            self.survey = self._look()
            self._surveys.append(self.survey)
        return self.survey

    def _look(self) -> passes.Survey:
        return passes.survey(self, self._keep)

    def sum_runs(self, run: Callable[[tuple[int, int]], Partial], most: int = RUNS) -> Sums:
        """Add ``run((first, last))``, lists of sums over these blocks, at most so many, in worker threads."""
        with single_threaded_blas():
            return tuple(accumulate(in_threads(run, spans(self._blocks, most), self.threads)))

    def reweighted(self, function: Callable[[Array, Array], Array]) -> Self:
        """Return the same rows with other weights, ``function(block, w)`` for each block, computed once.

        A function with an attribute ``cover`` (see `passes.stretched_lengths`) stands for such lengths, infinite for
        rows of weight 0: large data is then read once, and what it needs beyond scale and shift is known as well.
        """
        cover = getattr(function, "cover", None)
        whole = not (self._small or self.scattered or self.own_weights)
        if cover is not None and whole and self.row_map.influence != "shorten":
            return self._measured(cover)
        found = np.empty(self.n_rows)

        def run(span: tuple[int, int]) -> Partial:
            first = span[0] * self.block_rows
            for block, _, w in self._mapped(*span):
                found[first : first + w.size] = function(block, w)
                first += w.size
            return []

        self.sum_runs(run)
        return self.with_weights(found)

    def _measured(self, cover: passes.Cover) -> Self:
        """Return the same rows with lengths in place of weights."""
        lengths, found = passes.stretched_lengths(self, cover)
        if self.numbers.void is not None:
            lengths[self.numbers.void] = np.inf
        other = self.with_weights(lengths)
        other.survey = found
        other._surveys.append(found)  # which is that of these rows, too
        return other

    def with_weights(self, weights: Array) -> Self:
        """Return the same rows with these weights."""
        other = self._with_numbers(replace(self.numbers, weights=weights))
        other._surveys = self._surveys
        if self.own_weights:
            other.survey = self.survey
        if self._kept is not None:  # mapped rows are the same
            starts = range(0, max(1, self.n_rows), self.block_rows)
            other._kept = [
                (block, y, other.numbers.influence(slice(start, start + y.size)))
                for start, (block, y, _) in zip(starts, self._kept, strict=True)
            ]
        return other

    def rescaled(self, function: Callable[[Array], Array]) -> Self:
        """Return the same rows with weights ``function(weights)``; the rows themselves are not read."""
        return self.with_weights(function(self.weights))

    def predicted(self, theta: Array) -> Self:
        """Return the same rows with their margins ``x~_i . theta`` in place of weights."""
        # Always the same way, whatever the number of rows, which may be private.
        return self.reweighted(lambda block, w: row_margins(block, theta))

    def each(self, call: Callable[[Self], Sums] | Sequence[Callable[[Self], Sums]]) -> Iterator[Sums]:
        """Yield ``call(rows)`` of the one partition that rows in memory are, as other engines do of all of theirs."""
        yield (call if callable(call) else call[0])(self)

    def mapped(self) -> tuple[Array, Array, Array]:
        """Return the whole mapped data (rows, targets, weights times votes) as new arrays."""
        rows, weights = np.empty((self.n_rows, self.dim)), np.empty(self.n_rows)
        start = 0
        for block, _, w in self._mapped(0, self._blocks):
            rows[start : start + w.size], weights[start : start + w.size] = block, w
            start += w.size
        if self.shares is not None:
            weights *= self.shares
        return rows, self.targets.copy(), weights

    def with_votes(self, votes: Votes) -> Self:
        """Return the same rows, which count for what the votes say."""
        other = super().with_votes(votes)
        other.survey = self.survey
        return other

    def chosen(self, indices: npt.NDArray[np.integer]) -> Self:
        """Return these rows in the order of the data; they are not copied where they are many."""
        if self._small or self.scattered:
            return self.take(indices)
        return self._in_place(np.sort(indices).astype(np.int64), 1, len(indices))

    def _in_place(self, starts: Places, size: int, rows: int) -> Self:
        other = super()._in_place(starts, size, rows)
        other._divide(size, min(CACHE_BYTES, self._raw.nbytes // 8))
        other.survey = self._survey_of_part(starts, size, rows)
        return other

    def _survey_of_part(self, starts: Places, size: int, rows: int) -> passes.Survey | None:
        known = self.survey or (self._surveys[0] if self._surveys else None)
        if known is None or known.factors is not None:
            return None
        return passes.survey_of_part(self, known, starts, size, rows)

    def _kept_blocks(self) -> list[Block]:
        if self._kept is None:
            with self._keeping:
                if self._kept is None:
                    self._kept = list(self._fresh(0, self._blocks))
        return self._kept

    def _mapped(self, first: int, last: int) -> Iterator[Block]:
        if self._small:
            yield from self._kept_blocks()[first:last]
            return
        with borrowed(self.block_rows * (self.dim + 1)) as buffer:
            yield from self._fresh(first, last, buffer)

    def _fresh(self, first: int, last: int, buffer: Array | None = None) -> Iterator[Block]:
        """Yield blocks of mapped rows, one after the other in this buffer, or each in an array of its own."""
        return map_blocks(self, first, last, buffer)
