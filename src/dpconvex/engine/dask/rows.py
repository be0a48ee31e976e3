"""Sums over rows of Dask collections: partition by partition, with no more in memory at a time.

`dpconvex.engine.dask.table` checks and counts the rows of a collection once, and `DaskRows` offers what `MemoryRows`
offers for sums over them. Dask is imported lazily.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpconvex.engine.dask.cluster import HeldTable
from dpconvex.engine.dask.held import GROUP
from dpconvex.engine.dask.schedule import compute, run_all, threads
from dpconvex.engine.dask.sources import Array, Call, Change, Mapping, Reweigh, Source, add_up, run_here, run_source
from dpconvex.engine.dask.spill import SpillFile
from dpconvex.engine.failures import SourceChangedError
from dpconvex.engine.memory import MemoryRows
from dpconvex.engine.nonzero_arrays import stack_rows
from dpconvex.engine.rows import RowMap
from dpconvex.engine.sparse import rows_in_memory
from dpconvex.engine.summation_order import accumulate, sum_depth
from dpconvex.engine.votes import Votes, joined_votes

__all__ = ["DaskRows"]


class DaskRows:
    """Rows and targets in partitions: what `MemoryRows` offers for sums, without holding the rows.

    Results are added in the order of the partitions, so they do not depend on who computed them.
    A partition whose worker dies is computed again by another one. Functions given to `sum` and
    `combine` are sent to the workers.

    Parameters
    ----------
    sources : sequence of Source
        The partitions that have rows.
    mapping : Mapping
        How they become bounded rows.
    spill : SpillFile or None
        Where weights may be kept.
    held : HeldTable or None
        The workers that hold the partitions.
    """

    def __init__(
        self, sources: Sequence[Source], mapping: Mapping, spill: SpillFile | None = None, held: HeldTable | None = None
    ) -> None:
        self._sources = list(sources)
        self._mapping = mapping
        self._spill = spill
        self._held = held
        self.row_map = mapping.row_map
        self.n_rows = sum(source.rows for source in self._sources)
        self.dim = mapping.row_map.dim

    def __reduce__(self) -> tuple[Any, ...]:
        # Functions that are sent to workers may refer to the rows they are about; the facts are
        # enough there, and the data must not travel.
        return _RowFacts, (self.n_rows, self.dim, self.row_map)

    @property
    def n_records(self) -> int:
        """Number of records that the rows are of."""
        votes = self._sources[0].votes
        return self.n_rows if votes is None else votes.records

    @property
    def voted(self) -> bool:
        """Whether rows may count for less than a whole one."""
        return self._sources[0].votes is not None

    @property
    def people_vote(self) -> bool:
        """Whether several rows may be of one person."""
        votes = self._sources[0].votes
        return votes is not None and votes.tags is not None

    def _votes(self) -> Votes | None:
        """What all rows count for."""
        return joined_votes([source.votes for source in self._sources if source.votes is not None])

    @property
    def additions(self) -> int:
        """Bound on the number of roundings any one term of `sum` passes through."""
        longest = max(source.rows for source in self._sources)
        groups = -(-len(self._sources) // GROUP)
        return MemoryRows.additions_for(longest, self.dim) + sum_depth(GROUP) + sum_depth(groups)

    @property
    def own_weights(self) -> bool:
        """Whether weights were given that take the place of those of the row map."""
        return any(source.weights is not None or source.pending for source in self._sources)

    @cached_property
    def mean_target_size(self) -> float:
        """Mean of ``|y|`` over mapped targets (a private number)."""
        (total,) = self._pass(lambda rows: (rows.mean_target_size * rows.n_records,))
        return float(total) / self.n_records

    def sum(self, function: Any) -> tuple[Any, ...]:
        """Add ``function(block, y, w)`` over all blocks of rows, as `MemoryRows.sum` does."""
        return self._pass(lambda rows: rows.sum(function))

    def sum_votes(self, function: Any) -> tuple[Any, ...]:
        """Add ``function(block, y, w, v)`` over all blocks of rows, as `MemoryRows.sum_votes` does."""
        return self._pass(lambda rows: rows.sum_votes(function))

    def combine(self, theta: Array, function: Any) -> tuple[Any, ...]:
        """Add ``m_i x~_i`` over all rows, as `MemoryRows.combine` does."""
        return self._pass(lambda rows: rows.combine(theta, function))

    def reweighted(self, function: Callable[[Array, Array], Array]) -> DaskRows:
        """Return the same rows with weights ``function(block, w)``, as `MemoryRows.reweighted` does."""
        return self._changed(lambda rows: rows.reweighted(function))

    def rescaled(self, function: Callable[[Array], Array]) -> DaskRows:
        """Return the same rows with weights ``function(weights)``."""
        return self._changed(lambda rows: rows.rescaled(function))

    def predicted(self, theta: Array) -> DaskRows:
        """Return the same rows with their margins ``x~_i . theta`` in place of weights."""
        return self._changed(lambda rows: rows.predicted(theta))

    def _changed(self, function: Reweigh) -> DaskRows:
        """Return the same rows with other weights, computed once where they can be parked and else in every pass."""
        named = Change(function)

        def change(source: Source) -> Source:
            if source.spilled and self._spill is not None:
                rows = source.open(self._mapping)
                kept = self._spill.write(named(rows).weights)
                source.close(rows)
                if kept is not None:
                    return replace(source, weights=kept, pending=())
            return replace(source, pending=(*source.pending, named))

        return DaskRows(list(run_all(change, self._sources)), self._mapping, self._spill, self._held)

    def with_labels(self) -> DaskRows:
        """Return the same rows with mapped targets clipped to [-1, 1], as `MemoryRows.with_labels` does."""
        mapping = self._mapping.with_labels()
        return DaskRows(self._sources, mapping, self._spill, self._held)

    def sum_targets(self, function: Any) -> tuple[Any, ...]:
        """Add ``function(y, w, v)`` over targets, given weights and votes, as `MemoryRows.sum_targets` does."""
        return self._pass(lambda rows: rows.sum_targets(function))

    def counter(self, function: Any, level: float = 0.0) -> Callable[[float], float]:
        """Return the votes of rows whose ``function(y, w)`` is below a point, as `MemoryRows.counter` does."""

        def count(point: float) -> float:
            def below(y: Array, w: Array, v: Array) -> tuple[float, float]:
                return float(v @ (function(y, w) < point)), float(v.sum())

            found, every = self.sum_targets(below)
            return float(found) - level * float(every)

        return count

    def take(self, indices: npt.NDArray[np.integer[Any]]) -> MemoryRows:
        """Return the given rows, in the given order, as `MemoryRows`."""
        indices = np.asarray(indices)
        order = np.argsort(indices, kind="stable")
        ends = np.cumsum([source.rows for source in self._sources])
        cuts = np.searchsorted(indices[order], np.concatenate([[0], ends]))
        starts = ends - np.array([source.rows for source in self._sources])
        chosen = [
            indices[order[first:last]] - start
            for (first, last), start in zip(itertools.pairwise(cuts.tolist()), starts, strict=True)
        ]
        calls = [_Take(local) for local in chosen]
        # Of no rows at all, the first partition gives none.
        picked = [number for number, local in enumerate(chosen) if local.size] or [0]
        parts = list(self._each([self._sources[i] for i in picked], [calls[i] for i in picked]))
        X, y, w = (stack_rows([part[item] for part in parts]) for item in range(3))
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        any_weights = any(source.weights or source.pending for source in self._sources)
        # Targets are mapped already.
        weights = w[back] if any_weights else None
        taken = rows_in_memory(X[back], y[back], self.row_map, weights=weights)
        votes = self._votes()
        return taken if votes is None else taken.with_votes(votes.take(indices))

    def subsample(self, rows: int) -> MemoryRows:
        """Return about `rows` rows in memory, those that `MemoryRows.subsample` would take."""
        return self.take(MemoryRows.spread(self.n_rows, rows))

    def part(self, rows: int) -> MemoryRows | DaskRows:
        """Return exactly `rows` rows in memory, those of `MemoryRows.part`."""
        if rows >= self.n_records:
            return self
        votes = self._votes()
        if votes is not None and votes.tags is not None:
            chosen = votes.in_part(rows)
        else:
            starts, size = MemoryRows.stretches(self.n_rows, rows)
            chosen = (starts[:, None] + np.arange(size)).ravel()[:rows]
        taken = self.take(chosen)
        return taken if votes is None else taken.with_votes(votes.part(chosen, rows))

    def each(self, call: Call | Sequence[Call]) -> Iterator[tuple[Any, ...]]:
        """Yield ``call(rows)``, a tuple, of every partition's `MemoryRows` in order.

        Parameters
        ----------
        call : callable or sequence of callables
            For all partitions, or one for each.
        """
        calls = itertools.repeat(call) if callable(call) else call
        return self._each(self._sources, calls)

    def _pass(self, call: Call) -> tuple[Any, ...]:
        parts = self._each(self._sources, itertools.repeat(call), grouped=True)
        return tuple(accumulate(parts))

    def _each(
        self, sources: Sequence[Source], calls: Iterable[Call], grouped: bool = False
    ) -> Iterator[tuple[Any, ...]]:
        """Yield the results of all partitions in order, added up in groups if asked for."""
        jobs = list(zip(sources, calls, strict=False))
        if self._held is not None:
            yield from self._held.run(jobs, self._mapping, grouped)
            return
        if all(source.at_hand for source in sources):
            cores = threads() if len(jobs) == 1 else 1
            results = run_all(lambda job: run_here(job[1], self._mapping, job[0], cores), jobs)
            if not grouped:
                yield from results
                return
            while group := list(itertools.islice(results, GROUP)):
                yield tuple(accumulate(group))
            return
        import dask

        run = dask.delayed(run_source, pure=False, traverse=False)
        opened = dask.delayed(run_here, pure=False, traverse=False)
        tasks = [
            opened(call, self._mapping, replace(source, pair=None, recipe=None))
            if source.spilled
            else run(call, self._mapping, source.mark, source.pending, source.pair)
            for source, call in jobs
        ]
        if grouped:
            add = dask.delayed(add_up, pure=False)
            tasks = [add(tasks[i : i + GROUP]) for i in range(0, len(tasks), GROUP)]
        for result in compute(tasks):
            if result is None:
                raise SourceChangedError
            yield result


@dataclass(frozen=True)
class _Take:
    """Rows of a partition by their positions: raw features, mapped targets, weights."""

    indices: npt.NDArray[np.integer[Any]]

    def __call__(self, rows: MemoryRows) -> tuple[Any, ...]:
        taken = rows.take(self.indices)
        return taken.raw, taken.marked_targets, taken.weights


@dataclass(frozen=True)
class _RowFacts:
    """What a worker may know of rows that it does not hold."""

    n_rows: int
    dim: int
    row_map: RowMap
