"""Sums over rows of an array in memory, block by block.

A block of raw rows is mapped to bounded rows by one compiled kernel, in the cache; margins of a
block are computed by another, row by row. Both are the same for every number of rows, which may be
private.
"""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
import numpy.typing as npt

from dpconvex.core import summation
from dpconvex.core.block_products import block_margins
from dpconvex.core.row_formulas import FormulaNorms, FormulaSlope, NormFormula, SlopeFormula
from dpconvex.core.row_weights import RowWeights
from dpconvex.core.rows import (
    Partial,
    RawRows,
    RowFunction,
    RowIndices,
    RowMap,
    Sums,
    WeightedRowFunction,
)
from dpconvex.core.summation import block_rows, pairwise_summation
from dpconvex.core.threads import (
    available_cores,
    borrow_thread_array,
    in_threads,
    single_threaded_blas,
)
from dpconvex.types import Array

CACHE_BYTES = 1 << 25  # data whose mapped form is smaller than this is mapped once and cached
ROW_MAJOR_BYTES = (
    1 << 30
)  # column-major tables up to this size are copied row by row once: passes take half the time
_LARGEST = 1e140  # values beyond it are clipped even without bounds: squares must not overflow
_TASKS = 4  # least tasks of a thread, so that none waits for long
_TARGET_BLOCK = 1 << 17  # targets that are read at a time
# Least distance of a column's bounds from its centre at which raw values are multiplied as they
# are: products with weights and slopes keep their digits.
_SMALLEST_WIDTH = 1e-140
_NO_INDICES = np.empty(0, np.int64)
_NO_NUMBERS = np.empty(0)

#: Mapped rows, their targets and their influence weights.
Block = tuple[Array, Array, Array]


class _WritableMemory:
    def __init__(self, array: npt.NDArray[Any]) -> None:
        address, _ = array.__array_interface__["data"]
        self._owner = array  # as long as a view lives
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}


def writable_memory_view(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an array of numbers as one of the type of writable arrays, without a copy."""
    # For numba, arrays that are read-only are of another type, for which every kernel would be
    # compiled once more: for seconds. No kernel writes to its rows; whoever does so through this
    # view writes to memory that may be protected.
    return array if array.flags.writeable else np.asarray(_WritableMemory(array))


def floats_in_memory(values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return numbers as float32 or float64 of this machine; copied only if they are not."""
    raw = np.asarray(values)
    if raw.dtype.kind != "f" or raw.dtype.itemsize not in (4, 8):
        raw = raw.astype(np.float64)
    return raw if raw.dtype.isnative else raw.astype(raw.dtype.newbyteorder("="))


class KeptBlocks:
    """Blocks of mapped rows that are kept, and the one array they lie in: many new ones would take
    longer to get.

    The same rows with other numbers share them. Other processes map their rows again, which is
    cheaper than sending.
    """

    def __init__(self, numbers: int, count: int) -> None:
        self.memory: Array = np.empty(numbers)
        self.blocks: list[tuple[Array, Array] | None] = [None] * count
        self.locks = [threading.Lock() for _ in self.blocks]

    def __reduce__(self) -> tuple[type[KeptBlocks], tuple[int, int]]:
        return KeptBlocks, (self.memory.size, len(self.blocks))


class MemoryRows:
    """Rows and targets in memory, mapped block by block to bounded rows.

    `sum` adds a function of (mapped block, targets, influence weights) over all blocks. Blocks and
    the order of addition depend on the shape of the data only, so results are bitwise the same for
    every number of threads.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
        Any real dtype and order. Floats are not copied as a whole, but for column-major tables of
        at most 1 GiB.
    y : array of shape (n_rows,)
        Targets, mapped to ``(y - target_shift) * target_scale`` and kept below 1e140. NaN marks an
        ignored row: whatever it holds, its mapped features, its mapped target and its weight are 0,
        and it counts nowhere.
    row_map : RowMap
        Public facts: how a raw row becomes a bounded row.
    target_shift, target_scale : float
        Public map of the targets.
    threads : int, optional
        Number of worker threads, all available cores by default.
    cache : bool, default=True
        Whether small data may be cached in mapped form, for many passes over it.
    weights : array of shape (n_rows,), optional
        Influence weights that take the place of those the row map gives.
    row_weights : RowWeights, optional
        What each row counts for; every row is a whole record by default.

    Attributes
    ----------
    n_rows, dim : int
        Number of rows; number of coefficients, intercept included.
    targets : array of shape (n_rows,)
        Mapped targets; 0 for ignored rows.
    ignored : array of bool or None
        Which rows are ignored; None for none.
    bounds_and_scales : tuple of arrays
        Bounds, shift and scale of every raw column.
    indices : array or None
        Which rows of the given ones these are; None for all of them.
    """

    def __init__(
        self,
        X: npt.ArrayLike,
        y: npt.ArrayLike,
        row_map: RowMap,
        target_shift: float = 0.0,
        target_scale: float = 1.0,
        threads: int | None = None,
        cache: bool = True,
        weights: Array | None = None,
        row_weights: RowWeights | None = None,
    ) -> None:
        self._raw = self._as_raw(X, cache)
        shape = self._raw.shape
        if len(shape) != 2 or shape[1] != row_map.n_features:
            raise ValueError(
                f"The 'X' parameter of MemoryRows must have shape (n, {row_map.n_features}). Got "
                f"shape {shape} instead."
            )
        targets = np.asarray(np.clip(np.asarray(y, dtype=np.float64), -_LARGEST, _LARGEST))
        # in place: a new array of this size would cost more than what is done to it
        targets -= target_shift
        targets *= target_scale
        np.clip(targets, -_LARGEST, _LARGEST, out=targets)
        if targets.shape != shape[:1]:
            raise ValueError(
                f"The 'y' parameter of MemoryRows must have shape ({shape[0]},), one target per "
                f"row of X. Got shape {targets.shape} instead."
            )
        ignored = np.isnan(targets)
        targets[ignored] = 0.0
        self.targets: Array = np.ascontiguousarray(targets)
        self.ignored: npt.NDArray[np.bool_] | None = ignored if ignored.any() else None
        self._given_weights = weights
        self.row_weights = row_weights
        self.row_map = row_map
        self.threads = available_cores() if threads is None else int(threads)
        self.n_rows = int(shape[0])
        self.dim = row_map.n_features + int(row_map.fit_intercept)
        free = np.full(row_map.n_features, _LARGEST)
        low = -free if row_map.low is None else np.array(row_map.low)
        high = free if row_map.high is None else np.array(row_map.high)
        self.bounds_and_scales = (low, high, np.array(row_map.shift), np.array(row_map.scale))
        self.indices: RowIndices | None = None
        self._cache_allowed = cache
        self._divide(CACHE_BYTES)

    def _as_raw(self, X: npt.ArrayLike, cache: bool) -> RawRows:
        raw = floats_in_memory(X)
        if cache and raw.ndim == 2 and raw.flags.f_contiguous and raw.nbytes <= ROW_MAJOR_BYTES:
            raw = np.ascontiguousarray(raw)
        return raw if raw.flags.writeable else writable_memory_view(raw)

    def _divide(self, most_cached: int, partly: bool = False) -> None:
        """Decide on blocks, and whether so many bytes are few enough to cache them; or, partly,
        as many as fit.
        """
        # No rows at all are one empty block, over which every sum is 0.
        self.block_rows = max(1, min(self.n_rows, block_rows(self.dim)))
        self._blocks = max(1, -(-self.n_rows // self.block_rows))
        self.small = self._blocks == 1 or (
            self._cache_allowed and 8 * self.n_rows * self.dim <= most_cached
        )
        size = self.block_rows * (self.dim + 1)
        kept = most_cached // (8 * size) if partly and self._cache_allowed else 0
        kept = self._blocks if self.small else kept
        self._kept = KeptBlocks(min(kept * size, self.n_rows * (self.dim + 1)), kept)

    # Numbers that go with rows.

    @property
    def n_records(self) -> int:
        """Number of records that the rows are of: people, or the rows themselves."""
        return self.n_rows if self.row_weights is None else self.row_weights.records

    @property
    def has_row_weights(self) -> bool:
        """Whether rows may count for less than a whole one."""
        return self.row_weights is not None

    @property
    def has_people(self) -> bool:
        """Whether several rows may be of one person."""
        return self.row_weights is not None and self.row_weights.tags is not None

    @property
    def own_weights(self) -> bool:
        """Whether influence weights were given that take the place of those of the row map."""
        return self._given_weights is not None

    @property
    def additions(self) -> int:
        """Bound on the number of roundings any one term of `sum` passes through."""
        return summation.summation_additions(self.n_rows, self.dim)

    @cached_property
    def mean_target_size(self) -> float:
        """Mean of ``|y|`` over mapped targets (a private number)."""
        sizes = np.abs(self.targets)
        total = sizes.sum() if self.row_weights is None else sizes @ self.row_weights.values
        return float(total) / max(1, self.n_records)

    @property
    def marked_targets(self) -> Array:
        """The mapped targets; NaN for ignored rows."""
        return (
            self.targets if self.ignored is None else np.where(self.ignored, np.nan, self.targets)
        )

    @property
    def raw(self) -> RawRows:
        """The rows as they were given."""
        return self._raw if self.indices is None else self._raw[self.indices]

    @property
    def weights(self) -> Array:
        """The influence weights of all rows."""
        if self._given_weights is None:
            return np.concatenate(
                [w.copy() for _, _, w in self._mapped_memory_blocks(0, self._blocks)]
            )
        return self._given_weights

    def _without_ignored(self, values: Array | None, rows: slice) -> Array:
        """Return the numbers of some rows, None standing for ones, with 0 for ignored rows."""
        found = np.ones(self.targets[rows].size) if values is None else values[rows]
        return found if self.ignored is None else np.where(self.ignored[rows], 0.0, found)

    # Sums.

    def sum(self, function: RowFunction) -> Sums:
        """Add ``function(block, y, w)`` over all blocks of rows in memory, in several threads.

        The function takes a mapped block of shape (rows, dim), its targets and its weights, none of
        which it may change or keep, and returns a tuple of new arrays or numbers. Weights are those
        of the row map times row weights, or as they were given.
        """
        if self.row_weights is None or self.own_weights:
            return self.sum_weighted(lambda block, y, w, v: function(block, y, w))
        return self.sum_weighted(lambda block, y, w, v: function(block, y, w * v))

    def sum_weighted(self, function: WeightedRowFunction) -> Sums:
        """Add ``function(block, y, w, v)`` over blocks of rows in memory, row weights v beside
        influence weights w.
        """
        values = np.ones(self.block_rows) if self.row_weights is None else self.row_weights.values

        def parts(span: tuple[int, int]) -> Iterator[Sums]:
            start = span[0] * self.block_rows
            for block, y, w in self._mapped_memory_blocks(*span):
                first = 0 if self.row_weights is None else start
                yield function(block, y, w, values[first : first + y.size])
                start += y.size

        if self._blocks == 1:
            return next(parts((0, 1)))
        return self.sum_runs(lambda span: pairwise_summation(parts(span)))

    def combine(self, theta: Array, function: RowFunction) -> Sums:
        """Add ``m_i x~_i`` over all rows in memory, where the multiples m depend on the margins
        ``z_i = x~_i . theta``.

        Of several columns of theta every row has several margins, and it may have several
        multiples, a column each. The function takes targets, margins and weights of a block and
        returns a tuple: the multiples m, and any further numbers or arrays to be added up. Row
        weights are in the weights of the row map; beside given weights, the multiples are taken
        times row weights.
        """
        if isinstance(function, FormulaSlope) and theta.ndim == 1 and self._reads_raw_rows:
            formula = function.formula
            if formula is not None and self._given_weights is not None:
                return (self._fused_sum(theta, formula, self._given_weights),)
        beside = self.row_weights is not None and self._given_weights is not None
        within = self.row_weights is not None and not beside

        def part(block: Array, y: Array, w: Array, v: Array) -> Sums:
            multiples, *extra = function(y, block_margins(block, theta), w * v if within else w)
            multiples = multiples.T * v if beside else multiples.T
            return multiples @ block, *extra

        return self.sum_weighted(part)

    @cached_property
    def _reads_raw_rows(self) -> bool:
        """Whether compiled kernels may read raw rows, which they clip and centre on the way.

        Scales are applied to sums, so that values in raw units must be neither too large nor too
        small for sums of their multiples. Rows that are shortened are mapped first.
        """
        low, high, shift, _ = self.bounds_and_scales
        widths = np.maximum(np.abs(low - shift), np.abs(high - shift))
        sizes = widths[widths > 0]
        fine = bool(np.all((sizes >= _SMALLEST_WIDTH) & (sizes <= _LARGEST)))
        return fine and self.row_map.influence == "weight"

    def _raw_in_one_layout(self, rows: slice) -> tuple[RawRows, RowIndices, int]:
        """Return raw rows in the one layout of the kernels, with indices and where they begin.

        A table whose rows lie one after the other without gaps is read where it is; of others some
        rows are copied.
        """
        if self._raw.flags.c_contiguous:
            indices = _NO_INDICES if self.indices is None else self.indices
            return self._raw, indices, rows.start
        chosen = rows if self.indices is None else self.indices[rows]
        return np.ascontiguousarray(self._raw[chosen]), _NO_INDICES, 0

    def _fused_sum(self, theta: Array, formula: SlopeFormula, weights: Array) -> Array:
        """Return ``sum_i m_i x~_i`` with multiples by a compiled formula: one pass over raw rows.

        As :meth:`combine` with given weights.
        """
        from dpconvex.core.fused_kernels import fused_slope_sums

        lead = int(self.row_map.fit_intercept)
        low, high, shift, scale = self.bounds_and_scales
        steps = scale * theta[lead:]
        constant = float(theta[0]) if lead else 0.0
        weights = self._without_ignored(weights, slice(None))
        counted = _NO_NUMBERS if self.row_weights is None else self.row_weights.values

        def run(span: tuple[int, int]) -> Partial:
            rows = self._span(span)
            raw, indices, first = self._raw_in_one_layout(rows)
            totals = np.empty((span[1] - span[0], low.size + 1))
            fused_slope_sums(
                raw,
                indices,
                low,
                high,
                shift,
                steps,
                constant,
                formula,
                self.targets[rows],
                weights[rows],
                counted[rows],
                first,
                self.block_rows,
                totals,
            )
            return pairwise_summation((total,) for total in totals)

        (total,) = run((0, 1)) if self._blocks == 1 else self.sum_runs(run)
        return np.concatenate([total[:lead], total[1:] * scale])

    def sum_runs(
        self, run: Callable[[tuple[int, int]], Partial], most: int = summation.RUNS
    ) -> Sums:
        """Add ``run((first, last))``, lists of sums over these blocks, at most so many, in
        worker threads.
        """
        parts = summation.spans(self._blocks, most)
        # Handing work to a thread takes as long as a block: few tasks, of a power of two so that
        # sums stay the same.
        size = 1 << max(0, (len(parts) // (_TASKS * self.threads)).bit_length() - 1)
        tasks = [parts[first : first + size] for first in range(0, len(parts), size)]
        with single_threaded_blas():
            sums = in_threads(lambda task: pairwise_summation(map(run, task)), tasks, self.threads)
            return tuple(pairwise_summation(sums))

    def sum_targets(self, function: RowFunction) -> Sums:
        """Add ``function(y, w, v)`` over targets in memory, given weights and row weights; rows are
        not read.

        Ones stand for weights that are not given: what the row map says would need the rows.
        """

        def part(rows: slice) -> Sums:
            return function(self.targets[rows], self._given(rows), self._counted(rows))

        with single_threaded_blas():
            return tuple(pairwise_summation(in_threads(part, self._target_blocks(), self.threads)))

    def counter(
        self, function: Callable[[Array, Array], Array], level: float = 0.0
    ) -> Callable[[float], float]:
        """Return a function of a point: how many rows in memory have a number ``function(y, w)``
        below it.

        They are computed once; weights are those of `sum_targets`. A row counts as its row weight.
        With a level the count is centred: less ``level`` times the number of all rows, 0 at that
        quantile however many are ignored.
        """
        numbers = np.empty(self.n_rows)
        blocks = self._target_blocks()
        counted = (
            None
            if self.row_weights is None and self.ignored is None
            else self._counted(slice(None))
        )
        every = self.n_rows if counted is None else float(counted.sum())

        def fill(rows: slice) -> None:
            numbers[rows] = function(self.targets[rows], self._given(rows))

        def count(point: float) -> float:
            below = (numbers[rows] < point for rows in blocks)
            if counted is None:
                found = float(sum(map(np.count_nonzero, below)))
            else:  # row weights lie on a grid on which their sums are exact
                found = sum(
                    float(counted[rows] @ part) for rows, part in zip(blocks, below, strict=True)
                )
            return found - level * every

        with single_threaded_blas():
            list(in_threads(fill, blocks, self.threads))
        return count

    def _target_blocks(self) -> list[slice]:
        starts = range(0, max(1, self.n_rows), _TARGET_BLOCK)  # no rows are one empty block
        return [slice(start, start + _TARGET_BLOCK) for start in starts]

    def _given(self, rows: slice) -> Array:
        return (
            np.ones(self.targets[rows].size)
            if self._given_weights is None
            else self._given_weights[rows]
        )

    def _counted(self, rows: slice) -> Array:
        return self._without_ignored(
            None if self.row_weights is None else self.row_weights.values, rows
        )

    # The same rows with other numbers.

    def _replace(self, **attributes: Any) -> Self:
        """Return a copy with other attributes, which maps its rows again."""
        other = copy.copy(self)
        vars(other).update(attributes)
        vars(other).pop("mean_target_size", None)
        return other

    def with_clipped_targets(self, low: float = -1.0, high: float = 1.0) -> Self:
        """Return the rows in memory with mapped targets clipped to a public range.

        Losses of ``y z`` need [-1, 1]: their slopes and curvature grow with ``|y|``, and bounds are
        those of labels.
        """
        if self.targets.min(initial=low) >= low and self.targets.max(initial=high) <= high:
            return self
        return self._replace(targets=np.clip(self.targets, low, high))

    def with_row_weights(self, row_weights: RowWeights) -> Self:
        """Return the same rows, which count for what these weights say."""
        return self._replace(row_weights=row_weights)

    def with_weights(self, weights: Array) -> Self:
        """Return the same rows with these influence weights."""
        return self._replace(_given_weights=weights)

    def rescaled(self, function: Callable[[Array], Array]) -> Self:
        """Return the same rows with weights ``function(weights)``, number by number; the rows
        are not read.
        """
        weights = self.weights
        found = np.empty(self.n_rows)
        for rows in self._target_blocks():
            found[rows] = function(weights[rows])
        return self._replace(_given_weights=found)

    def reweighted(self, function: Callable[[Array, Array], Array]) -> Self:
        """Return the rows in memory with other weights, ``function(block, w)`` for each block,
        computed once.
        """
        found = np.empty(self.n_rows)
        unweighted = self._given_weights is None  # else a weight of 0 marks an ignored row
        if isinstance(function, FormulaNorms) and self._reads_raw_rows and unweighted:
            formula = function.formula
            if formula is not None:
                self._fill_from_norms(formula, function.follows_from, found)
                return self._replace(_given_weights=found)

        def run(span: tuple[int, int]) -> Partial:
            first = span[0] * self.block_rows
            for block, _, w in self._mapped_memory_blocks(*span):
                found[first : first + w.size] = function(block, w)
                first += w.size
            return []

        self.sum_runs(run)
        return self._replace(_given_weights=found)

    def _fill_from_norms(
        self, formula: NormFormula, follows: Callable[[Array], Array], found: Array
    ) -> None:
        """Write what follows from the norms of all rows, computed from raw rows."""
        from dpconvex.core.fused_kernels import raw_scaled_squares

        low, high, shift, scale = self.bounds_and_scales

        def run(span: tuple[int, int]) -> Partial:
            for index in range(*span):
                rows = self._span((index, index + 1))
                raw, indices, first = self._raw_in_one_layout(rows)
                squares = found[rows]
                columns = (low, high, shift, scale, formula.centre, formula.factor)
                raw_scaled_squares(raw, indices, first, *columns, squares)
                norms = formula.norms(squares)
                if self.ignored is not None:
                    norms[self.ignored[rows]] = np.inf
                found[rows] = follows(norms)
            return []

        self.sum_runs(run)

    def predicted(self, theta: Array) -> Self:
        """Return the same rows with their margins ``x~_i . theta`` in place of weights."""
        if not self._reads_raw_rows:
            return self.reweighted(lambda block, w: block_margins(block, theta))
        return self._replace(_given_weights=self._raw_margins(theta))

    def _raw_margins(self, theta: Array) -> Array:
        """Return the margins of all rows, computed from raw rows."""
        from dpconvex.core.fused_kernels import raw_margins

        lead = int(self.row_map.fit_intercept)
        low, high, shift, scale = self.bounds_and_scales
        steps = scale * theta[lead:]
        constant = float(theta[0]) if lead else 0.0
        margins = np.empty(self.n_rows)

        def run(span: tuple[int, int]) -> Partial:
            rows = self._span(span)
            raw, indices, first = self._raw_in_one_layout(rows)
            out = margins[rows]
            raw_margins(raw, indices, first, low, high, shift, steps, constant, out)
            return []

        self.sum_runs(run)
        if self.ignored is not None:
            margins[self.ignored] = constant  # all their mapped features are 0
        return margins

    # Some of the rows.

    def take(self, indices: npt.NDArray[np.integer]) -> Self:
        """Return copies of the given rows in memory."""
        raw = self._raw[indices if self.indices is None else self.indices[indices]]
        weights = None if self._given_weights is None else self._given_weights[indices]
        own = None if self.row_weights is None else self.row_weights.take(indices)
        numbers: Any = {"threads": self.threads, "weights": weights, "row_weights": own}
        return type(self)(raw, self.marked_targets[indices], self.row_map, **numbers)

    def take_records(self, records: RowIndices) -> Self:
        """Return the given records: rows, or all rows of people."""
        if self.row_weights is None or not self.has_people:
            return self.take(records)
        rows = self.row_weights.rows_of_people(records)
        return self.take(rows).with_row_weights(self.row_weights.part(rows, records.size))

    def one_row_each(self, records: RowIndices, generator: np.random.Generator) -> Self:
        """Return the given records with a row each: themselves, or a random one of a person's
        rows.
        """
        if self.row_weights is None or not self.has_people:
            return self.take(records)
        rows, values = self.row_weights.one_row_each(records, generator)
        return self.take(rows).with_row_weights(RowWeights(values, records.size))

    def subsample(self, rows: int) -> Self:
        """Return about `rows` rows, the same ones at every call, spread over the data."""
        return self.take(summation.spread_indices(self.n_rows, rows))

    def part(self, rows: int) -> Self:
        """Return exactly `rows` rows in memory, the same at every call, up to 64 next to each
        other, spread over all.

        They are not copied. Where rows are of people, it is the rows of about so many people,
        copied: all rows of a person or none, by its tag.
        """
        if rows >= self.n_records:
            return self
        if self.row_weights is not None and self.has_people:
            chosen = self.row_weights.rows_in_part(rows)
            return self.take(chosen).with_row_weights(self.row_weights.part(chosen, rows))
        return self._memory_rows_in_place(summation.part_indices(self.n_rows, rows))

    def chosen(self, indices: npt.NDArray[np.integer]) -> Self:
        """Return these rows in the order of the data; they are not copied where they are many."""
        if self.small:
            return self.take(indices)
        return self._memory_rows_in_place(np.sort(indices).astype(np.int64))

    def _memory_rows_in_place(self, indices: RowIndices) -> Self:
        """Return the given rows, read where they are in memory."""
        other = self._replace(
            indices=indices if self.indices is None else self.indices[indices],
            n_rows=indices.size,
            targets=self.targets[indices],
            ignored=None if self.ignored is None else self.ignored[indices],
            _given_weights=None if self._given_weights is None else self._given_weights[indices],
            row_weights=None
            if self.row_weights is None
            else self.row_weights.part(indices, indices.size),
        )
        # All rows have targets, weights and margins beside them: with what is kept, a sixth of the
        # table or so.
        other._divide(
            min(2 * CACHE_BYTES, max(0, self._raw.nbytes // 7 - 32 * len(self._raw))), partly=True
        )
        return other

    def each(
        self, call: Callable[[Self], Sums] | Sequence[Callable[[Self], Sums]]
    ) -> Iterator[Sums]:
        """Yield ``call(rows)`` of the one partition that rows in memory are, as other engines do
        of all of theirs.
        """
        yield (call if callable(call) else call[0])(self)

    # Mapped rows.

    def mapped(self) -> tuple[Array, Array, Array]:
        """Return all rows in memory, mapped (rows, targets, influence weights times row
        weights), as new arrays.
        """
        rows = np.empty((self.n_rows, self.dim))
        weights = np.empty(self.n_rows)
        start = 0
        for block, _, w in self._mapped_memory_blocks(0, self._blocks):
            rows[start : start + w.size] = block
            weights[start : start + w.size] = w
            start += w.size
        if self.row_weights is not None:
            weights *= self.row_weights.values
        return rows, self.targets.copy(), weights

    def _span(self, span: tuple[int, int]) -> slice:
        """Return the rows of some blocks."""
        return slice(span[0] * self.block_rows, min(span[1] * self.block_rows, self.n_rows))

    def _indices_of(self, rows: slice) -> RowIndices:
        """Return where some rows lie among the given ones."""
        return np.arange(*rows.indices(self.n_rows)) if self.indices is None else self.indices[rows]

    def _mapped_memory_blocks(self, first: int, last: int) -> Iterator[Block]:
        """Yield blocks of mapped rows in memory, to be used before the next one is asked for."""
        kept = self._kept
        width = self.dim + 1
        with (
            nullcontext() if self.small else borrow_thread_array(self.block_rows * width) as buffer
        ):
            for index in range(first, last):
                rows = slice(
                    index * self.block_rows, min((index + 1) * self.block_rows, self.n_rows)
                )
                if index >= len(kept.blocks):
                    block, weights = self._map_rows(rows, buffer)
                else:
                    with kept.locks[index]:  # nobody reads a block that is being mapped
                        if kept.blocks[index] is None:
                            place = kept.memory[rows.start * width : rows.stop * width]
                            kept.blocks[index] = self._map_rows(rows, place)
                    block, weights = cast(tuple[Array, Array], kept.blocks[index])
                if self._given_weights is not None:
                    weights = self._without_ignored(self._given_weights, rows)
                yield block, self.targets[rows], weights

    def _map_rows(self, rows: slice, buffer: Array | None = None) -> tuple[Array, Array]:
        """Return some mapped rows in memory and the weights of the row map, in this buffer or in
        a new array.
        """
        from dpconvex.core.dense_kernels import map_dense_rows

        count = rows.stop - rows.start
        lead = int(self.row_map.fit_intercept)
        size = count * self.dim
        buffer = np.empty(size + count) if buffer is None else buffer
        block = buffer[:size].reshape(count, self.dim)
        weights = buffer[size : size + count]
        shorten = self.row_map.influence == "shorten"
        # Kept weights also serve the same rows without weights of their own.
        norm = (
            math.inf
            if self.own_weights and not (shorten or self._kept.blocks)
            else self.row_map.row_norm
        )
        by_columns = abs(self._raw.strides[0]) < abs(
            self._raw.strides[1]
        )  # as the given rows lie in memory
        raw = self._raw.T if by_columns else self._raw
        indices = self._indices_of(rows)
        map_dense_rows(
            raw, indices, *self.bounds_and_scales, lead, norm, shorten, by_columns, block, weights
        )
        if self.ignored is not None:
            ignored = self.ignored[rows]
            block[ignored, lead:] = 0.0
            weights[ignored] = 0.0
        return block, weights
