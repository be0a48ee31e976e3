"""Sums over rows of an array in memory, block by block."""

from __future__ import annotations

import copy
import itertools
import threading
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpconvex.engine.rows import RowMap
from dpconvex.engine.threads import available_cores, single_threaded_blas, worker_pool

__all__ = ["MemoryRows", "Survey", "accumulate", "block_rows", "most_additions"]

Array = npt.NDArray[np.float64]
BlockFunction = Callable[[Array, Array, Array], tuple[Any, ...]]
MarginFunction = Callable[[Array, Array, Array], tuple[Any, ...]]

BLOCK_BYTES = 1 << 20  # a mapped block stays in cache; smaller ones cost more calls than they save
CACHE_BYTES = 1 << 25  # data whose mapped form is smaller than this is mapped once and kept
LARGEST = 1e140  # values beyond it are clipped even without bounds: squares must not overflow
TARGET_BLOCK = 1 << 17  # targets that are read at a time where rows are not needed
RUNS = 64  # partial sums: a constant, so that results do not depend on the number of threads
CHAIN = 16  # blocks that compiled kernels add one after the other


class Survey(NamedTuple):
    """What rows need beyond scale and shift.

    Attributes
    ----------
    plain : array of bool
        Which tiles need neither clipping nor a shift; empty: not known, so none.
    weights, factors : array or None
        Influence weights, or factors by which rows are shortened; None stands for ones.
    """

    plain: npt.NDArray[np.bool_]
    weights: Array | None
    factors: Array | None


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
    ) -> None:
        raw = np.asarray(X)
        if raw.ndim != 2 or raw.shape[1] != row_map.n_features:
            raise ValueError(
                f"The 'X' parameter of MemoryRows must have shape (n, {row_map.n_features}). "
                f"Got shape {raw.shape} instead."
            )
        if raw.dtype.kind != "f" or raw.dtype.itemsize not in (4, 8):
            raw = raw.astype(np.float64)
        if not raw.dtype.isnative:
            raw = raw.astype(raw.dtype.newbyteorder("="))
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
        self._columns = (low, high, np.array(row_map.shift), np.array(row_map.scale))
        self._by_columns = abs(raw.strides[0]) < abs(raw.strides[1])
        self._small = self._blocks == 1 or (keep and 8 * self.n_rows * self.dim <= CACHE_BYTES)
        self._kept: list[tuple[Array, Array, Array]] | None = None
        self._weights: Array | None = weights
        self._keep = keep
        self.survey: Survey | None = None
        self._keeping = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        # A lock cannot be pickled, and mapped rows are cheaper to map again than to send.
        return {**vars(self), "_kept": None, "survey": None, "_keeping": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _keeping=threading.Lock())

    @cached_property
    def mean_target_size(self) -> float:
        """Mean of ``|y|`` over mapped targets (a private number)."""
        return float(np.abs(self._targets).sum()) / max(1, self.n_rows)

    @property
    def own_weights(self) -> bool:
        """Whether weights were given that take the place of those of the row map."""
        return self._weights is not None

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
        return size + min(blocks, CHAIN) + depth(-(-blocks // runs)) + depth(runs)

    @property
    def raw(self) -> npt.NDArray[Any]:
        """The rows as they were given."""
        return self._raw

    @property
    def targets(self) -> Array:
        """The mapped targets; 0 for void rows."""
        return self._targets

    @property
    def marked_targets(self) -> Array:
        """The mapped targets; NaN for void rows."""
        return self._targets if self._void is None else np.where(self._void, np.nan, self._targets)

    @property
    def weights(self) -> Array:
        """The weights of all rows."""
        if self._weights is None:
            return np.concatenate([w.copy() for _, _, w in self._mapped(0, self._blocks)])
        return self._weights

    def _given_weights(self, survey: Survey) -> Array | None:
        """Return the weights of all rows, void ones 0; None stands for ones."""
        given = survey.weights if self._weights is None else self._weights
        if self._void is None:
            return given
        return np.where(self._void, 0.0, 1.0 if given is None else given)

    def sum(self, function: BlockFunction) -> tuple[Any, ...]:
        """Add ``function(block, y, w)`` over all blocks of rows.

        Parameters
        ----------
        function : callable
            Takes a mapped block of shape (rows, dim), its targets and its weights, none of which
            it may change or keep, and returns a tuple of new arrays or numbers. It runs in several
            threads.

        Returns
        -------
        tuple
            The sums, in float64.
        """
        if self._blocks == 1:
            ((block, y, w),) = self._kept_blocks()
            return function(block, y, w)

        def run(span: tuple[int, int]) -> list[Any]:
            return accumulate(function(*part) for part in self._mapped(*span))

        return self._sum_runs(run)

    def combine(self, theta: Array, function: MarginFunction) -> tuple[Any, ...]:
        """Add ``m_i x~_i`` over all rows, where the multiples m depend on the margins.

        Large data is read once and mapped on the fly, which is faster than `sum`; where the function
        has an attribute ``sigmoid`` (see `dpconvex.objectives.slopes`), by one compiled kernel.

        Parameters
        ----------
        theta : array of shape (dim,)
            Coefficients that define the margins ``z_i = x~_i . theta``.
        function : callable
            Takes targets, margins and weights of a block and returns a tuple: the multiples m, and
            any further numbers or arrays to be added up.

        Returns
        -------
        tuple
            ``sum_i m_i x~_i`` and the further sums.
        """
        if self._small:

            def part(block: Array, y: Array, w: Array) -> tuple[Any, ...]:
                multiples, *extra = function(y, block @ theta, w)
                return multiples @ block, *extra

            return self.sum(part)
        lead = int(self.row_map.fit_intercept)
        constant = float(theta[0]) if lead else 0.0
        slopes = np.ascontiguousarray(theta[lead:], dtype=np.float64)
        sigmoid = getattr(function, "sigmoid", None)
        if sigmoid is None:
            return self._combine_blocks(constant, slopes, function)
        return self._combine_sigmoids(constant, slopes, sigmoid)

    def _combine_sigmoids(self, constant: float, slopes: Array, sigmoid: Any) -> tuple[Any, ...]:
        """Combine with slopes that the compiled kernel computes itself."""
        from dpconvex.engine.fused import sigmoid_gradient

        survey = self._survey()
        lead = int(self.row_map.fit_intercept)
        edges = np.minimum(np.arange(self._blocks + 1) * self.block_rows, self.n_rows)
        nothing = np.empty(0)
        given = self._given_weights(survey)

        def chain(first: int, last: int) -> list[Any]:
            total = np.zeros(self.dim)
            constant_sum = sigmoid_gradient(
                self._raw,
                self._targets,
                edges[first : last + 1],
                *self._columns,
                survey.plain,
                nothing if given is None else given,
                nothing if survey.factors is None else survey.factors,
                self._by_columns,
                self._tile,
                constant,
                slopes,
                *sigmoid,
                total[lead:],
            )
            if lead:
                total[0] = constant_sum
            return [total]

        def run(span: tuple[int, int]) -> list[Any]:
            starts = range(span[0], span[1], CHAIN)
            return accumulate(chain(start, min(start + CHAIN, span[1])) for start in starts)

        return self._sum_runs(run)

    def _combine_blocks(self, constant: float, slopes: Array, function: Any) -> tuple[Any, ...]:
        """Combine with slopes from a Python function, which is called on large blocks."""
        from dpconvex.engine.fused import combine_rows, row_margins

        survey = self._survey()
        lead = int(self.row_map.fit_intercept)
        low, high, shift, scale = self._columns
        scaled = slopes * scale
        ones = np.ones(self.block_rows)
        given = self._given_weights(survey)

        def parts(span: tuple[int, int]) -> Iterator[list[Any]]:
            margins = np.empty(self.block_rows)
            for index in range(*span):
                start = index * self.block_rows
                y = self._targets[start : start + self.block_rows]
                rows = slice(start, start + y.size)
                z, w = margins[: y.size], ones[: y.size] if given is None else given[rows]
                tiles = slice(start // self._tile, (start + y.size - 1) // self._tile + 1)
                plain = bool(survey.plain.size and survey.plain[tiles].all())
                row_margins(self._raw, start, low, high, shift, scaled, plain, self._by_columns, z)
                if survey.factors is not None:
                    z *= survey.factors[rows]
                z += constant
                multiples, *extra = function(y, z, w)
                partial = np.zeros(self.dim)
                if lead:
                    partial[0] = multiples.sum()
                if survey.factors is not None:
                    multiples = multiples * survey.factors[rows]
                multiples = np.ascontiguousarray(multiples, dtype=np.float64)
                combine_rows(
                    self._raw,
                    start,
                    low,
                    high,
                    shift,
                    plain,
                    self._by_columns,
                    multiples,
                    partial[lead:],
                )
                partial[lead:] *= scale
                yield [partial, *extra]

        return self._sum_runs(lambda span: accumulate(parts(span)))

    def _survey(self) -> Survey:
        """Return what the rows need beyond scale and shift; found out once, in one pass."""
        if self.survey is None:
            # Where the bounds alone keep rows short, norms need not be computed.
            measure = not self.row_map.max_norm * (1 + 1e-12) <= self.row_map.row_norm
            shorten = self.row_map.influence == "shorten"
            measure = measure and (shorten or self._weights is None)
            plain, factors = np.empty(0, dtype=np.bool_), np.empty(0)
            if measure or self._keep:  # for a single pass it is not worth its time
                plain, factors = self._survey_rows(measure)
            found = factors if measure and bool((factors < 1.0).any()) else None
            self.survey = Survey(plain, None if shorten else found, found if shorten else None)
        return self.survey

    def _survey_rows(self, measure: bool) -> tuple[npt.NDArray[np.bool_], Array]:
        from dpconvex.engine.fused import survey_rows

        tiles = -(-self.n_rows // self._tile)
        plain = np.zeros(tiles, dtype=np.bool_)
        factors = np.empty(self.n_rows if measure else 0)
        edges = np.linspace(0, tiles, min(tiles, RUNS) + 1).astype(int).tolist()

        def run(span: tuple[int, int]) -> None:
            survey_rows(
                self._raw,
                span[0] * self._tile,
                min(span[1] * self._tile, self.n_rows),
                *self._columns,
                self.row_map.row_norm,
                measure,
                self._by_columns,
                self._tile,
                plain,
                factors,
            )

        spans = list(itertools.pairwise(edges))
        list(map(run, spans) if self.threads <= 1 else worker_pool(self.threads).map(run, spans))
        return plain, factors

    @cached_property
    def _tile(self) -> int:
        from dpconvex.engine.fused import tile_rows

        return tile_rows(self.row_map.n_features, self._by_columns)

    def _sum_runs(self, run: Callable[[tuple[int, int]], list[Any]]) -> tuple[Any, ...]:
        edges = np.linspace(0, self._blocks, min(self._blocks, RUNS) + 1).astype(int).tolist()
        spans = list(itertools.pairwise(edges))
        with single_threaded_blas():
            if self.threads <= 1:
                return tuple(accumulate(map(run, spans)))
            return tuple(accumulate(worker_pool(self.threads).map(run, spans)))

    def reweighted(self, function: Callable[[Array, Array], Array]) -> MemoryRows:
        """Return the same rows with other weights, ``function(block, w)`` for each block, computed once."""

        def run(span: tuple[int, int]) -> list[Any]:
            return [[function(block, w) for block, _, w in self._mapped(*span)]]

        (parts,) = self._sum_runs(run)
        other = copy.copy(self)
        other._weights = np.concatenate(parts)
        return other

    def rescaled(self, function: Callable[[Array], Array]) -> MemoryRows:
        """Return the same rows with weights ``function(weights)``; the rows themselves are not read."""
        other = copy.copy(self)
        other._weights = function(self.weights)
        return other

    def predicted(self, theta: Array) -> MemoryRows:
        """Return the same rows with their margins ``x~_i . theta`` in place of weights."""
        if self._small:
            return self.reweighted(lambda block, w: block @ theta)
        from dpconvex.engine.fused import row_margins

        survey, lead = self._survey(), int(self.row_map.fit_intercept)
        low, high, shift, scale = self._columns
        scaled = np.ascontiguousarray(theta[lead:], dtype=np.float64) * scale
        constant = float(theta[0]) if lead else 0.0
        margins = np.empty(self.n_rows)

        def run(span: tuple[int, int]) -> list[Any]:
            for index in range(*span):
                start = index * self.block_rows
                z = margins[start : start + self.block_rows]
                tiles = slice(start // self._tile, (start + z.size - 1) // self._tile + 1)
                plain = bool(survey.plain.size and survey.plain[tiles].all())
                row_margins(self._raw, start, low, high, shift, scaled, plain, self._by_columns, z)
                if survey.factors is not None:
                    z *= survey.factors[start : start + z.size]
                z += constant
            return []

        self._sum_runs(run)
        other = copy.copy(self)
        other._weights = margins
        return other

    def sum_targets(self, function: Callable[[Array, Array], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Add ``function(y, w)`` over stretches of targets and weights; the rows themselves are not read.

        Weights are those that were given, or ones: what the row map says would need the rows.
        """
        given, stretch = self._weights, TARGET_BLOCK
        edges = range(0, max(1, self.n_rows), stretch)  # no rows are one empty stretch

        def part(start: int) -> tuple[Any, ...]:
            y = self._targets[start : start + stretch]
            w = np.ones(y.size) if given is None else given[start : start + stretch]
            return function(y, w)

        if self.threads <= 1 or len(edges) == 1:
            return tuple(accumulate(map(part, edges)))
        return tuple(accumulate(worker_pool(self.threads).map(part, edges)))

    def counter(self, function: Callable[[Array, Array], Array]) -> Callable[[float], int]:
        """Return a function of a point: how many of the numbers ``function(y, w)``, one per row, are below it.

        They are computed once; weights are those of `sum_targets`.
        """
        values = np.empty(self.n_rows)
        edges = range(0, max(1, self.n_rows), TARGET_BLOCK)

        def fill(start: int) -> None:
            part = slice(start, start + TARGET_BLOCK)
            y = self._targets[part]
            w = np.ones(y.size) if self._weights is None else self._weights[part]
            values[part] = function(y, w)

        def count(point: float) -> int:
            return sum(int(np.count_nonzero(values[i : i + TARGET_BLOCK] < point)) for i in edges)

        list(map(fill, edges) if self.threads <= 1 else worker_pool(self.threads).map(fill, edges))
        return count

    def mapped(self) -> tuple[Array, Array, Array]:
        """Return the whole mapped data (rows, targets, weights) as new arrays."""
        parts = [tuple(map(np.copy, part)) for part in self._mapped(0, self._blocks)]
        rows, targets, weights = zip(*parts, strict=True)
        return np.concatenate(rows), np.concatenate(targets), np.concatenate(weights)

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

    def take(self, indices: npt.NDArray[np.integer[Any]]) -> MemoryRows:
        """Return the given rows as their own `MemoryRows`."""
        taken = MemoryRows(
            self._raw[indices], self.marked_targets[indices], self.row_map, threads=self.threads
        )
        if self._weights is not None:
            taken._weights = self._weights[indices]
        return taken

    def subsample(self, rows: int) -> MemoryRows:
        """Return about `rows` rows, the same ones at every call, spread over the data.

        One row is drawn at random from each of `rows` equal stretches with a fixed seed: spread
        evenly, yet blind to any period in the order of the data.
        """
        return self.take(self.spread(self.n_rows, rows))

    @staticmethod
    def spread(n_rows: int, rows: int) -> npt.NDArray[np.int64]:
        """Return the positions of the rows that `subsample` takes out of `n_rows`."""
        rows = min(int(rows), n_rows)
        edges = np.linspace(0, n_rows, rows + 1)
        drawn = edges[:-1] + np.random.default_rng(0).random(rows) * np.diff(edges)
        return np.minimum(drawn.astype(np.int64), n_rows - 1)

    def _kept_blocks(self) -> list[tuple[Array, Array, Array]]:
        if self._kept is None:
            with self._keeping:
                if self._kept is None:
                    self._kept = list(self._fresh(0, self._blocks, reuse=False))
        return self._kept

    def _mapped(self, first: int, last: int) -> Iterator[tuple[Array, Array, Array]]:
        if self._small:
            return iter(self._kept_blocks()[first:last])
        return self._fresh(first, last, reuse=True)

    def _fresh(self, first: int, last: int, reuse: bool) -> Iterator[tuple[Array, Array, Array]]:
        from dpconvex.engine.mapping import map_block

        low, high, shift, scale = self._columns
        block = np.empty((self.block_rows, self.dim))
        weights = np.empty(self.block_rows)
        for index in range(first, last):
            start = index * self.block_rows
            stop = min(start + self.block_rows, self.n_rows)
            if not reuse:
                block = np.empty((stop - start, self.dim))
                weights = np.empty(stop - start)
            part, influence = block[: stop - start], weights[: stop - start]
            map_block(
                self._raw,
                start,
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
            if self._weights is not None:
                influence = self._weights[start:stop]
            if self._void is not None:
                void = self._void[start:stop]
                part[void, int(self.row_map.fit_intercept) :] = 0.0
                influence = np.where(void, 0.0, influence)
            yield part, self._targets[start:stop], influence


def block_rows(dim: int) -> int:
    """Return how many rows a block has at most."""
    return max(64, BLOCK_BYTES // (8 * dim))


def depth(count: int) -> int:
    """Return how many additions any one of `count` parts passes through in `accumulate`."""
    return (count - 1).bit_length()


def most_additions(n_rows: int, dim: int) -> int:
    """Return a bound on `additions` for this many rows in memory, or in partitions of any sizes.

    A partition's blocks, chains, blocks in a run and runs; then groups of partitions.
    """
    return min(n_rows, block_rows(dim)) + CHAIN + 2 * depth(n_rows) + 4


def accumulate(parts: Any) -> list[Any]:
    """Add tuples of arrays or numbers, neighbours first: two sums of equally many parts at a time.

    No part passes through more than ``log2(number of parts)`` additions, rounded up. The order of the parts is kept,
    and no more than that many sums are held. Arrays of the first of two sums are changed in place.
    """
    sums: list[list[Any]] = []
    for count, part in enumerate(parts, 1):
        sums.append(list(part))
        for _ in range((count & -count).bit_length() - 1):
            _add_last_two(sums)
    while len(sums) > 1:
        _add_last_two(sums)
    return sums[0] if sums else []


def _add_last_two(sums: list[list[Any]]) -> None:
    last = sums.pop()
    for position, term in enumerate(last):
        sums[-1][position] += term
