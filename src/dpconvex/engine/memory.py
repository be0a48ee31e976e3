"""Sums over rows of an array in memory, block by block."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpconvex.engine import passes
from dpconvex.engine.arrays import writable_view
from dpconvex.engine.blocks import row_margins
from dpconvex.engine.rows import (
    Partial,
    Places,
    Raw,
    RowFunction,
    RowMap,
    Sums,
    VoteFunction,
)
from dpconvex.engine.summation_order import CHAIN, RUNS, accumulate, block_rows, sum_depth
from dpconvex.engine.threads import available_cores, borrowed, single_threaded_blas, worker_pool
from dpconvex.engine.votes import Votes

__all__ = ["MemoryRows"]

Array = npt.NDArray[np.float64]

CACHE_BYTES = 1 << 25  # data whose mapped form is smaller than this is mapped once and kept
STRETCH = 64  # rows next to each other in a part of the rows
LARGEST = 1e140  # values beyond it are clipped even without bounds: squares must not overflow
_UNKNOWN = passes.Survey(np.empty(0, dtype=np.bool_), None, None)
TARGET_BLOCK = 1 << 17  # targets that are read at a time where rows are not needed


class MemoryRows:
    """Rows and targets in memory, mapped block by block to bounded rows.

    `sum` adds a function of (mapped block, targets, weights) over all blocks. Blocks and the order
    of addition depend on the shape of the data only, so results are bitwise the same for every
    number of threads.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        Any real dtype and order; float32 and float64 are never copied as a whole when large.
    y : array of shape (n_rows,)
        Targets, mapped to ``(y - target_shift) * target_scale`` and kept below 1e140. NaN marks a void row: whatever
        it holds, it is the fixed record with mapped features 0, mapped target 0 and weight 0.
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
        raw = self._as_raw(X)
        if len(raw.shape) != 2 or raw.shape[1] != row_map.n_features:
            raise ValueError(
                f"The 'X' parameter of MemoryRows must have shape (n, {row_map.n_features}). "
                f"Got shape {raw.shape} instead."
            )
        targets = np.clip(np.asarray(y, dtype=np.float64), -LARGEST, LARGEST)
        targets = np.clip((targets - target_shift) * target_scale, -LARGEST, LARGEST)
        void = np.isnan(targets)
        targets[void] = 0.0
        if targets.shape != (raw.shape[0],):
            raise ValueError(
                f"The 'y' parameter of MemoryRows must have shape ({raw.shape[0]},), one target "
                f"per row of X. Got shape {targets.shape} instead."
            )
        self._raw = raw
        self._void: npt.NDArray[np.bool_] | None = void if void.any() else None
        self._targets = np.ascontiguousarray(targets)
        self.row_map = row_map
        self.threads = available_cores() if threads is None else int(threads)
        self.n_rows, self.dim = raw.shape[0], row_map.dim
        # No rows at all are one empty block, over which every sum is 0.
        self.block_rows = max(1, min(self.n_rows, block_rows(self.dim)))
        self._blocks = max(1, -(-self.n_rows // self.block_rows))
        free = np.full(row_map.n_features, LARGEST)
        low = -free if row_map.low is None else np.array(row_map.low)
        high = free if row_map.high is None else np.array(row_map.high)
        self.columns = (low, high, np.array(row_map.shift), np.array(row_map.scale))
        self._by_columns = isinstance(raw, np.ndarray) and abs(raw.strides[0]) < abs(raw.strides[1])
        self._small = self._blocks == 1 or (keep and 8 * self.n_rows * self.dim <= CACHE_BYTES)
        self._kept: list[tuple[Array, Array, Array]] | None = None
        self._weights: Array | None = weights
        self._votes = votes
        self._keep = keep
        self.survey: passes.Survey | None = None
        self._surveys: list[passes.Survey] = []  # of the same rows, whatever their weights
        self._starts: Places | None = None  # of stretches, in a part of the rows
        self._stretch = 0
        self._keeping = threading.Lock()

    def _as_raw(self, X: npt.ArrayLike) -> Raw:
        """Return rows as kernels take them: float32 or float64, native, of the type of writable arrays."""
        raw = np.asarray(X)
        if raw.dtype.kind != "f" or raw.dtype.itemsize not in (4, 8):
            raw = raw.astype(np.float64)
        if not raw.dtype.isnative:
            raw = raw.astype(raw.dtype.newbyteorder("="))
        return writable_view(raw)

    def __getstate__(self) -> dict[str, object]:
        # A lock cannot be pickled, and mapped rows are cheaper to map again than to send.
        return {**vars(self), "_kept": None, "survey": None, "_surveys": [], "_keeping": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _keeping=threading.Lock())

    @cached_property
    def mean_target_size(self) -> float:
        """Mean of ``|y|`` over mapped targets (a private number)."""
        sizes = np.abs(self._targets)
        total = sizes.sum() if self._votes is None else sizes @ self._votes.shares
        return float(total) / max(1, self.n_records)

    @property
    def n_records(self) -> int:
        """Number of records that the rows are of: people, or the rows themselves."""
        return self.n_rows if self._votes is None else self._votes.records

    @property
    def voted(self) -> bool:
        """Whether rows may count for less than a whole one."""
        return self._votes is not None

    @property
    def people_vote(self) -> bool:
        """Whether several rows may be of one person."""
        return self._votes is not None and self._votes.tags is not None

    @property
    def votes(self) -> Votes | None:
        """What each row counts for; None stands for ones."""
        return self._votes

    @property
    def shares(self) -> Array | None:
        """What each row counts for, as numbers; None stands for ones."""
        return None if self._votes is None else self._votes.shares

    @property
    def own_weights(self) -> bool:
        """Whether weights were given that take the place of those of the row map."""
        return self._weights is not None

    @property
    def small(self) -> bool:
        """Whether the rows are kept in mapped form: decided by their shape."""
        return self._small

    @property
    def by_columns(self) -> bool:
        """Whether the given rows lie in memory column by column."""
        return self._by_columns

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

    @property
    def raw(self) -> Raw:
        """The rows as they were given."""
        return self._raw if self._starts is None else self._raw[self._places()]

    @property
    def source(self) -> Raw:
        """Where the rows lie, at the places that `layout` tells; transposed, as kernels take it, if by columns."""
        return self._raw.T if self._by_columns else self._raw

    def layout(self) -> tuple[Places, Places, int]:
        """Return stretches of rows that lie next to each other, as kernels add them up one by one.

        Returns
        -------
        starts : array
            Where each stretch begins in `source`.
        edges : array
            Where it begins among the rows; the number of rows stands at the end.
        per_block : int
            Stretches of a block.
        """
        size = self._stretch or self.block_rows
        edges = np.minimum(np.arange(-(-self.n_rows // size) + 1) * size, self.n_rows)
        return edges[:-1] if self._starts is None else self._starts, edges, self.block_rows // size

    def _places(self) -> Places:
        """Return where the rows of a part lie."""
        starts, edges, _ = self.layout()
        return np.repeat(starts - edges[:-1], np.diff(edges)) + np.arange(self.n_rows)

    @property
    def targets(self) -> Array:
        """The mapped targets; 0 for void rows. They may be moved to another place."""
        return self._targets

    @targets.setter
    def targets(self, same: Array) -> None:
        self._targets = same

    def forget_survey(self) -> None:
        """Free what `combine` found out about the rows."""
        self.survey, self._surveys = None, []

    @property
    def marked_targets(self) -> Array:
        """The mapped targets; NaN for void rows."""
        return self._targets if self._void is None else np.where(self._void, np.nan, self._targets)

    @property
    def weights(self) -> Array:
        """The weights of all rows, votes apart."""
        if self._weights is None:
            return np.concatenate([w.copy() for _, _, w in self._mapped(0, self._blocks)])
        return self._weights

    def _given_weights(self, survey: passes.Survey) -> Array | None:
        """Return the weights of all rows, void ones 0; None stands for ones."""
        given = survey.weights if self._weights is None else self._weights
        if self._void is None:
            return given
        return np.where(self._void, 0.0, 1.0 if given is None else given)

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
        if self._votes is not None and self._weights is None:
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

        def part(block: Array, y: Array, w: Array) -> Sums:
            multiples, *extra = function(y, block @ theta, w)
            return multiples @ block, *extra

        def voted(block: Array, y: Array, w: Array, v: Array) -> Sums:
            multiples, *extra = function(y, block @ theta, w)
            return (multiples * v) @ block, *extra

        beside = self._votes is not None and self._weights is not None
        if self._small:
            return self.sum_votes(voted) if beside else self.sum(part)
        sigmoid = getattr(function, "sigmoid", None)
        if self._starts is not None:
            # Short stretches cost more calls than they save.
            known = self._weights is not None and self.row_map.influence != "shorten"
            if sigmoid is None or not known or self._stretch < 8:
                return self.sum_votes(voted) if beside else self.sum(part)
            known_of = self.survey or _UNKNOWN
            own = self._given_weights(known_of)
            return passes.combine_sigmoids(self, theta, sigmoid, known_of.plain, own, None)
        found = self._survey()
        given = self._given_weights(found)
        if sigmoid is None:
            return passes.combine_blocks(self, theta, function, found, given)
        return passes.combine_sigmoids(self, theta, sigmoid, found.plain, given, found.factors)

    def _survey(self, weights: bool = True) -> passes.Survey:
        """Return what the rows need beyond scale and shift; found out once."""
        if self.survey is None and self._surveys and not weights:
            return self._surveys[0]
        if self.survey is None:
            self.survey = self._look()
            self._surveys.append(self.survey)
        return self.survey

    def _look(self) -> passes.Survey:
        return passes.survey(self, self._keep)

    def sum_runs(self, run: Callable[[tuple[int, int]], Partial]) -> Sums:
        """Add ``run((first, last))``, lists of sums over these blocks, in worker threads."""
        edges = np.linspace(0, self._blocks, min(self._blocks, RUNS) + 1).astype(int).tolist()
        spans = list(itertools.pairwise(edges))
        with single_threaded_blas():
            if self.threads <= 1:
                return tuple(accumulate(map(run, spans)))
            return tuple(accumulate(worker_pool(self.threads).map(run, spans)))

    def reweighted(self, function: Callable[[Array, Array], Array]) -> MemoryRows:
        """Return the same rows with other weights, ``function(block, w)`` for each block, computed once.

        A function with an attribute ``cover`` (see `passes.stretched_lengths`) stands for such lengths, infinite for
        rows of weight 0: large data is then read once, and what it needs beyond scale and shift is known as well.
        """
        cover = getattr(function, "cover", None)
        whole = not (self._small or self._starts is not None or self.own_weights)
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

    def _measured(self, cover: passes.Cover) -> MemoryRows:
        """Return the same rows with lengths in place of weights."""
        lengths, found = passes.stretched_lengths(self, cover)
        if self._void is not None:
            lengths[self._void] = np.inf
        other = self.with_weights(lengths)
        other.survey = found
        other._surveys.append(found)  # which is that of these rows, too
        return other

    def with_weights(self, weights: Array) -> MemoryRows:
        """Return the same rows with these weights."""
        other = copy.copy(self)  # without what was found out
        other._weights = weights
        other._surveys = self._surveys
        if self.own_weights:
            other.survey = self.survey
        if self._kept is not None:  # mapped rows are the same
            starts = range(0, max(1, self.n_rows), self.block_rows)
            other._kept = [
                (block, y, other._influence(start, start + y.size))
                for start, (block, y, _) in zip(starts, self._kept, strict=True)
            ]
        return other

    def _influence(self, start: int, stop: int) -> Array:
        """Return given weights of a block, 0 for void rows."""
        assert self._weights is not None
        given = self._weights[start:stop]
        return given if self._void is None else np.where(self._void[start:stop], 0.0, given)

    def rescaled(self, function: Callable[[Array], Array]) -> MemoryRows:
        """Return the same rows with weights ``function(weights)``; the rows themselves are not read."""
        return self.with_weights(function(self.weights))

    def predicted(self, theta: Array) -> MemoryRows:
        """Return the same rows with their margins ``x~_i . theta`` in place of weights."""
        # Always the same way, whatever the number of rows, which may be private.
        return self.reweighted(lambda block, w: row_margins(block, theta))

    def sum_targets(self, function: RowFunction) -> Sums:
        """Add ``function(y, w, v)`` over stretches of targets, weights and votes; the rows themselves are not read.

        Weights are those that were given, or ones: what the row map says would need the rows.
        """
        given, shares, stretch = self._weights, self.shares, TARGET_BLOCK
        edges = range(0, max(1, self.n_rows), stretch)  # no rows are one empty stretch

        def part(start: int) -> Sums:
            y = self._targets[start : start + stretch]
            w = np.ones(y.size) if given is None else given[start : start + stretch]
            v = np.ones(y.size) if shares is None else shares[start : start + stretch]
            return function(y, w, v)

        if self.threads <= 1 or len(edges) == 1:
            return tuple(accumulate(map(part, edges)))
        return tuple(accumulate(worker_pool(self.threads).map(part, edges)))

    def counter(self, function: Callable[[Array, Array], Array]) -> Callable[[float], float]:
        """Return a function of a point: how many of the numbers ``function(y, w)``, one per row, are below it.

        They are computed once; weights are those of `sum_targets`. A row counts as its vote.
        """
        values = np.empty(self.n_rows)
        edges = range(0, max(1, self.n_rows), TARGET_BLOCK)

        def fill(start: int) -> None:
            part = slice(start, start + TARGET_BLOCK)
            y = self._targets[part]
            w = np.ones(y.size) if self._weights is None else self._weights[part]
            values[part] = function(y, w)

        shares = self.shares

        def count(point: float) -> float:
            below = (values[i : i + TARGET_BLOCK] < point for i in edges)
            if shares is None:
                return float(sum(map(np.count_nonzero, below)))
            # Votes lie on a grid on which their sums are exact.
            return sum(
                float(shares[i : i + TARGET_BLOCK] @ part)
                for i, part in zip(edges, below, strict=True)
            )

        list(map(fill, edges) if self.threads <= 1 else worker_pool(self.threads).map(fill, edges))
        return count

    def each(
        self, call: Callable[[MemoryRows], Sums] | Sequence[Callable[[MemoryRows], Sums]]
    ) -> Iterator[Sums]:
        """Yield ``call(rows)`` of the one partition that rows in memory are, as other engines do of all of theirs."""
        yield (call if callable(call) else call[0])(self)

    def mapped(self) -> tuple[Array, Array, Array]:
        """Return the whole mapped data (rows, targets, weights times votes) as new arrays."""
        rows, weights = np.empty((self.n_rows, self.dim)), np.empty(self.n_rows)
        start = 0
        for block, _, w in self._mapped(0, self._blocks):
            rows[start : start + w.size], weights[start : start + w.size] = block, w
            start += w.size
        if self._votes is not None:
            weights *= self._votes.shares
        return rows, self._targets.copy(), weights

    def with_labels(self) -> MemoryRows:
        """Return the same rows with mapped targets clipped to [-1, 1], as losses of ``y z`` need them.

        Slopes and curvature of such a loss grow with ``|y|``; bounds are those of labels.
        """
        if not (np.abs(self._targets) > 1).any():
            return self
        other = copy.copy(self)
        vars(other).pop("mean_target_size", None)
        other._targets = np.clip(self._targets, -1.0, 1.0)
        return other

    def take(self, indices: npt.NDArray[np.integer]) -> MemoryRows:
        """Return the given rows as their own `MemoryRows`."""
        places = indices if self._starts is None else self._places()[indices]
        taken = MemoryRows(
            self._raw[places], self.marked_targets[indices], self.row_map, threads=self.threads
        )
        if self._votes is not None:
            taken._votes = self._votes.take(indices)
        if self._weights is not None:
            taken._weights = self._weights[indices]
        return taken

    def with_votes(self, votes: Votes) -> MemoryRows:
        """Return the same rows, which count for what the votes say."""
        survey, other = self.survey, copy.copy(self)
        vars(other).pop("mean_target_size", None)
        other._votes, other.survey = votes, survey
        return other

    def take_records(self, records: Places) -> MemoryRows:
        """Return the given records: rows, or all rows of people."""
        if not self.people_vote or self._votes is None:
            return self.take(records)
        rows = self._votes.rows_of(records)
        taken = self.take(rows)
        taken._votes = self._votes.part(rows, records.size)
        return taken

    def one_row_each(self, records: Places, generator: np.random.Generator) -> MemoryRows:
        """Return the given records with a row each: themselves, or a random one of a person's rows."""
        if not self.people_vote or self._votes is None:
            return self.take(records)
        rows, shares = self._votes.one_row_each(records, generator)
        taken = self.take(rows)
        taken._votes = Votes(shares, records.size)
        return taken

    def subsample(self, rows: int) -> MemoryRows:
        """Return about `rows` rows, the same ones at every call, spread over the data.

        One row is drawn at random from each of `rows` equal stretches with a fixed seed: spread
        evenly, yet blind to any period in the order of the data.
        """
        return self.take(self.spread(self.n_rows, rows))

    def part(self, rows: int) -> MemoryRows:
        """Return a part of exactly `rows` rows, the same ones at every call, in short stretches spread over the data.

        The rows themselves are not copied: their margins and sums are read where they are. Where people vote, it is
        the rows of about so many people, copied: all rows of a person or none, by its tag.
        """
        if rows >= self.n_records:
            return self
        if self._votes is not None and self._votes.tags is not None:
            chosen = self._votes.in_part(rows)
            taken = self.take(chosen)
            taken._votes = self._votes.part(chosen, rows)
            return taken
        return self._in_place(*self.stretches(self.n_rows, rows), rows)

    def chosen(self, indices: npt.NDArray[np.integer]) -> MemoryRows:
        """Return these rows in the order of the data; they are not copied where they are many."""
        if self._small or self._starts is not None:
            return self.take(indices)
        return self._in_place(np.sort(indices).astype(np.int64), 1, len(indices))

    def _in_place(self, starts: Places, size: int, rows: int) -> MemoryRows:
        """Return so many rows in stretches of this size."""
        if self._starts is not None:
            raise ValueError("A part of the rows has no parts of its own. Take them of all rows.")
        other = copy.copy(self)
        vars(other).pop("mean_target_size", None)
        other._starts, other._stretch, other.n_rows = starts, size, rows
        other.block_rows = max(size, min(rows, block_rows(self.dim)) // size * size)
        other._blocks = max(1, -(-rows // other.block_rows))
        other._small = other._blocks == 1 or (
            self._keep and 8 * rows * self.dim <= min(CACHE_BYTES, self._raw.nbytes // 8)
        )
        other._kept, other.survey, other._surveys = None, None, []
        other.survey = self._survey_of_part(starts, size, rows)
        other._keeping = threading.Lock()
        places = other._places()
        other._targets = self._targets[places]
        other._void = None if self._void is None else self._void[places]
        other._weights = None if self._weights is None else self._weights[places]
        other._votes = None if self._votes is None else self._votes.part(places, rows)
        return other

    def _survey_of_part(self, starts: Places, size: int, rows: int) -> passes.Survey | None:
        known = self.survey or (self._surveys[0] if self._surveys else None)
        if known is None or known.factors is not None:
            return None
        return passes.survey_of_part(self, known, starts, size, rows)

    @staticmethod
    def stretches(n_rows: int, rows: int) -> tuple[Places, int]:
        """Return where the stretches of `part` begin, and their length; the last one may be shorter.

        One is drawn at random, with a fixed seed, from each of equally long parts of the data.
        """
        size = max(1, min(STRETCH, rows // STRETCH))
        if n_rows // -(-rows // size) < size:
            size = 1
        count = -(-rows // size)
        # Ends are whole and each part holds its stretch: no row is taken twice, or a record would count twice.
        edges = np.arange(count + 1, dtype=np.int64) * n_rows // max(1, count)
        room = np.diff(edges) - size + 1
        drawn = np.random.default_rng(0).random(room.size) * room
        return edges[:-1] + drawn.astype(np.int64), size

    @staticmethod
    def spread(n_rows: int, rows: int) -> Places:
        """Return the positions of the rows that `subsample` takes out of `n_rows`."""
        rows = max(0, min(int(rows), n_rows))
        # One row of every stretch, whose ends are whole: no row is taken twice, or a record would count twice.
        edges = np.arange(rows + 1, dtype=np.int64) * n_rows // max(1, rows)
        drawn = np.random.default_rng(0).random(rows) * np.diff(edges)
        return edges[:-1] + drawn.astype(np.int64)

    def _kept_blocks(self) -> list[tuple[Array, Array, Array]]:
        if self._kept is None:
            with self._keeping:
                if self._kept is None:
                    self._kept = list(self._fresh(0, self._blocks))
        return self._kept

    def _mapped(self, first: int, last: int) -> Iterator[tuple[Array, Array, Array]]:
        if self._small:
            yield from self._kept_blocks()[first:last]
            return
        with borrowed(self.block_rows * (self.dim + 1)) as buffer:
            yield from self._fresh(first, last, buffer)

    def _fresh(
        self, first: int, last: int, buffer: Array | None = None
    ) -> Iterator[tuple[Array, Array, Array]]:
        """Yield blocks of mapped rows, one after the other in this buffer, or each in an array of its own."""
        from dpconvex.engine.mapping import map_stretches

        low, high, shift, scale = self.columns
        for index in range(first, last):
            start = index * self.block_rows
            stop = min(start + self.block_rows, self.n_rows)
            count, size = stop - start, (stop - start) * self.dim
            place_for = np.empty(size + count) if buffer is None else buffer
            part, influence = (
                place_for[:size].reshape(count, self.dim),
                place_for[size : size + count],
            )
            place = (
                np.array([start])
                if self._starts is None
                else self._starts[start // self._stretch : -(-stop // self._stretch)]
            )
            map_stretches(
                self.source,
                place,
                self._stretch or self.block_rows,
                low,
                high,
                shift,
                scale,
                int(self.row_map.fit_intercept),
                self.row_map.row_norm,
                self.row_map.influence == "shorten",
                self._by_columns,
                part,
                influence,
            )
            if self._void is not None:
                void = self._void[start:stop]
                part[void, int(self.row_map.fit_intercept) :] = 0.0
                influence = np.where(void, 0.0, influence)
            if self._weights is not None:
                influence = self._influence(start, stop)
            yield part, self._targets[start:stop], influence
