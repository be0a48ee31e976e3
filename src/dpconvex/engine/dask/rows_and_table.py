"""Tables of Dask collections, checked and counted in one pass, and sums over their rows, partition
by partition.

`DaskTable` checks a collection once and parks it where there is room; `DaskRows` offers what
`MemoryRows` offers for sums, with no more in memory at a time than the partitions at work. Dask is
imported lazily.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from dpconvex.core.memory_rows import MemoryRows
from dpconvex.core.person_identifiers import exact_identifiers
from dpconvex.core.row_weights import RowWeights, join_row_weights
from dpconvex.core.rows import RowMap, SourceChangedError, Sums
from dpconvex.core.summation import (
    pairwise_summation,
    part_indices,
    spread_indices,
    sum_depth,
    summation_additions,
)
from dpconvex.engine.dask import partitions as partitioning
from dpconvex.engine.dask import schedule
from dpconvex.engine.dask.cluster import GROUP, ClusterTable
from dpconvex.engine.dask.partitions import (
    Call,
    Partition,
    PartitionFacts,
    PartitionMap,
    PartitionTargets,
    Reweigh,
)
from dpconvex.engine.dask.schedule import compute_on_scheduler, schedule_in_threads
from dpconvex.engine.dask.spill import SpillFile, configured_spill_limit, default_spill_limit
from dpconvex.engine.sparse_rows import rows_in_memory, stack_sparse_rows
from dpconvex.system.lazy_imports import dask
from dpconvex.types import Array


class DaskRows:
    """Rows and targets in partitions: what `MemoryRows` offers for sums, without holding the rows.

    Results are added in the order of the partitions, so they do not depend on who computed them.
    Functions given to `sum` and `combine` are sent to the workers. All ``partitions`` have rows;
    ``spill`` is a file for weights.
    """

    def __init__(
        self,
        partitions: Sequence[Partition],
        mapping: PartitionMap,
        spill: SpillFile | None,
        held: ClusterTable | None,
    ) -> None:
        self._partitions = list(partitions)
        self._mapping = mapping
        self._spill = spill
        self._held = held
        self.row_map = mapping.row_map
        self.dim = mapping.row_map.dim
        self.n_rows = sum(partition.rows for partition in self._partitions)

    def __reduce__(self) -> tuple[Any, ...]:
        # Functions that are sent to workers may refer to the rows, whose data must not travel:
        # public facts alone.
        return partial(SimpleNamespace, n_rows=self.n_rows, dim=self.dim, row_map=self.row_map), ()

    @property
    def n_records(self) -> int:
        """Number of records that the rows are of."""
        weights = self._partitions[0].row_weights
        return self.n_rows if weights is None else weights.records

    @property
    def has_row_weights(self) -> bool:
        """Whether rows may count for less than a whole one."""
        return self._partitions[0].row_weights is not None

    @property
    def has_people(self) -> bool:
        """Whether several rows may be of one person."""
        weights = self._partitions[0].row_weights
        return weights is not None and weights.tags is not None

    def _row_weights(self) -> RowWeights | None:
        return join_row_weights(
            [item.row_weights for item in self._partitions if item.row_weights is not None]
        )

    @property
    def additions(self) -> int:
        """Bound on the number of roundings any one term of `sum` passes through."""
        longest = max(partition.rows for partition in self._partitions)
        groups = -(-len(self._partitions) // GROUP)
        return summation_additions(longest, self.dim) + sum_depth(GROUP) + sum_depth(groups)

    @property
    def own_weights(self) -> bool:
        """Whether weights were given that take the place of those of the row map."""
        return any(
            partition.weights is not None or partition.pending for partition in self._partitions
        )

    @cached_property
    def mean_target_size(self) -> float:
        """Mean of ``|y|`` over mapped targets (a private number)."""
        (total,) = self._pass(lambda rows: (rows.mean_target_size * rows.n_records,))
        return float(total) / self.n_records

    def sum(self, function: Any) -> Sums:
        """Add ``function(block, y, w)`` over all blocks of rows, as `MemoryRows.sum` does."""
        return self._pass(lambda rows: rows.sum(function))

    def sum_weighted(self, function: Any) -> Sums:
        """Add ``function(block, y, w, v)`` over all blocks of rows, as `MemoryRows.sum_weighted`
        does.
        """
        return self._pass(lambda rows: rows.sum_weighted(function))

    def sum_targets(self, function: Any) -> Sums:
        """Add ``function(y, w, v)`` over targets, given weights and row weights, as
        `MemoryRows.sum_targets` does.
        """
        return self._pass(lambda rows: rows.sum_targets(function))

    def combine(self, theta: Array, function: Any) -> Sums:
        """Add ``m_i x~_i`` over all rows, as `MemoryRows.combine` does."""
        return self._pass(lambda rows: rows.combine(theta, function))

    def counter(self, function: Any, level: float = 0.0) -> Callable[[float], float]:
        """Return the weight of Dask rows whose ``function(y, w)`` is below a point, as
        `MemoryRows.counter` does.
        """

        def count(point: float) -> float:
            def below(y: Array, w: Array, v: Array) -> tuple[float, float]:
                return float(v @ (function(y, w) < point)), float(v.sum())

            found, every = self.sum_targets(below)
            return float(found) - level * float(every)

        return count

    def reweighted(self, function: Callable[[Array, Array], Array]) -> DaskRows:
        """Return the same rows with weights ``function(block, w)``, as `MemoryRows.reweighted`
        does.
        """
        return self._change_weights(lambda rows: rows.reweighted(function))

    def rescaled(self, function: Callable[[Array], Array]) -> DaskRows:
        """Return the same rows with weights ``function(weights)``."""
        return self._change_weights(lambda rows: rows.rescaled(function))

    def predicted(self, theta: Array) -> DaskRows:
        """Return the same rows with their margins ``x~_i . theta`` in place of weights."""
        return self._change_weights(lambda rows: rows.predicted(theta))

    def _change_weights(self, function: Reweigh) -> DaskRows:
        """Return the Dask rows with other weights, computed once where they can be parked and
        else in every pass.
        """

        def change(partition: Partition) -> Partition:
            if partition.X is not None and self._spill is not None:
                kept = self._spill.write(function(partition.open(self._mapping)).weights)
                if kept is not None:
                    return replace(partition, weights=kept, pending=())
            return replace(partition, pending=(*partition.pending, function))

        return DaskRows(
            list(schedule_in_threads(change, self._partitions)),
            self._mapping,
            self._spill,
            self._held,
        )

    def with_labels(self) -> DaskRows:
        """Return the same rows with mapped targets clipped to [-1, 1], as
        `MemoryRows.with_labels` does.
        """
        return DaskRows(
            self._partitions, replace(self._mapping, labels=True), self._spill, self._held
        )

    def take(self, indices: npt.NDArray[np.integer[Any]]) -> MemoryRows:
        """Return the given rows of a Dask table, in the given order, as `MemoryRows`."""
        indices = np.asarray(indices)
        order = np.argsort(indices, kind="stable")
        ends = np.cumsum([partition.rows for partition in self._partitions])
        starts = ends - np.array([partition.rows for partition in self._partitions])
        cuts = np.searchsorted(indices[order], np.concatenate([[0], ends]))
        chosen = [
            indices[order[first:last]] - start
            for (first, last), start in zip(itertools.pairwise(cuts.tolist()), starts, strict=True)
        ]
        # Of no rows at all, the first partition gives none.
        picked = [number for number, local in enumerate(chosen) if local.size] or [0]
        calls = [partial(_take_table_rows, chosen[i]) for i in picked]
        parts = list(self._each([self._partitions[i] for i in picked], calls))
        X, y, w = (stack_sparse_rows([part[item] for part in parts]) for item in range(3))
        back = np.empty_like(order)
        back[order] = np.arange(order.size)
        # Targets are mapped already.
        taken = rows_in_memory(
            X[back], y[back], self.row_map, weights=w[back] if self.own_weights else None
        )
        weights = self._row_weights()
        return taken if weights is None else taken.with_row_weights(weights.take(indices))

    def subsample(self, rows: int) -> MemoryRows:
        """Return about `rows` rows in memory, those that `MemoryRows.subsample` would take."""
        return self.take(spread_indices(self.n_rows, rows))

    def part(self, rows: int) -> MemoryRows | DaskRows:
        """Return exactly `rows` rows of a Dask table in memory, those of `MemoryRows.part`."""
        if rows >= self.n_records:
            return self
        weights = self._row_weights()
        people = weights is not None and weights.tags is not None
        chosen = (
            weights.rows_in_part(rows)
            if weights is not None and people
            else part_indices(self.n_rows, rows)
        )
        taken = self.take(chosen)
        return taken if weights is None else taken.with_row_weights(weights.part(chosen, rows))

    def each(self, call: Call | Sequence[Call]) -> Iterator[Sums]:
        """Yield ``call(rows)``, a tuple, of every partition's `MemoryRows` in order; one call
        for all, or one each.
        """
        return self._each(self._partitions, itertools.repeat(call) if callable(call) else call)

    def _pass(self, call: Call) -> Sums:
        return tuple(
            pairwise_summation(self._each(self._partitions, itertools.repeat(call), grouped=True))
        )

    def _each(
        self, partitions: Sequence[Partition], calls: Iterable[Call], grouped: bool = False
    ) -> Iterator[Sums]:
        """Yield the results of all partitions of the Dask rows in order, added up in groups if
        asked for.
        """
        jobs = list(zip(partitions, calls, strict=False))
        if self._held is not None:
            yield from self._held.run(jobs, self._mapping, grouped)
            return
        if all(partition.at_hand for partition in partitions):
            cores = schedule.count_threads() if len(jobs) == 1 else 1
            results = schedule_in_threads(
                lambda job: partitioning.run_here(job[1], self._mapping, job[0], cores), jobs
            )
            while group := list(itertools.islice(results, GROUP if grouped else 1)):
                yield tuple(pairwise_summation(group)) if grouped else group[0]
            return
        run = dask.delayed(partitioning.run_on_partition_source, pure=False, traverse=False)
        opened = dask.delayed(partitioning.run_here, pure=False, traverse=False)
        tasks = [
            run(call, self._mapping, partition.mark, partition.pending, partition.pair)
            if partition.X is None
            else opened(call, self._mapping, replace(partition, pair=None, graph=None))
            for partition, call in jobs
        ]
        if grouped:
            add = dask.delayed(partitioning.add_partitions, pure=False)
            tasks = [add(tasks[i : i + GROUP]) for i in range(0, len(tasks), GROUP)]
        for result in compute_on_scheduler(tasks):
            if result is None:
                raise SourceChangedError
            yield result


def _take_table_rows(indices: npt.NDArray[np.integer[Any]], rows: MemoryRows) -> Sums:
    """Return rows of a partition by their positions: raw features, mapped targets, weights."""
    taken = rows.take(indices)
    return taken.raw, taken.marked_targets, taken.weights


class DaskTable:
    """Features and target of Dask collections, checked and counted in one pass; ``shape`` is that
    of the rows.

    Partitions may be empty, uneven and of different dtypes; the target has those of X: finite
    numbers if ``numeric``, else labels. With ``clean`` invalid rows are marked, to be ignored,
    instead of refused. Checked partitions are parked in a nameless temporary file up to
    ``dask.config`` setting ``dpconvex.spill-limit`` (bytes, or text such as "8 GB"; half of the
    free space by default, 0 for none), in ``temporary-directory``; on a cluster by every worker, in
    its local directory. Others are read from their source in every pass, and must be as they were
    checked in number, types and bytes, or `SourceChangedError` is raised. Nothing falls back from a
    cluster to threads of this process.

    Privacy: error messages name what is wrong and never a value. The number of rows is public under
    replace-one. Checksums stay inside.
    """

    def __init__(
        self,
        X: Any,
        y: Any,
        owner: str,
        numeric: bool = True,
        clean: PartitionTargets | None = None,
        least: int = 1,
    ) -> None:
        pairs, width = partitioning.delayed_partitions(X, y, owner)
        self.spill: SpillFile | None = None
        self.held: ClusterTable | None = None
        graphs: list[schedule.ScheduledPartition] | None = None
        client = schedule.scheduler_client()
        if client is None and schedule.scheduled_in_process():
            graphs = schedule.schedule_separately(pairs)
            folder = dask.config.get("temporary-directory", None)
            limit = configured_spill_limit()
            limit = default_spill_limit(folder) if limit is None else limit
            self.spill = SpillFile(limit, folder) if limit > 0 else None
        check = partitioning.check_partition
        settings = (width, numeric, self.spill, clean)
        facts: list[PartitionFacts]
        if client is not None:
            self.held = ClusterTable(client, pairs, width, numeric, clean)
            facts = self.held.facts
        elif graphs is not None:
            facts = list(
                schedule_in_threads(
                    lambda one: check(one.compute(), *settings), graphs, watched=True
                )
            )
        else:
            delayed = dask.delayed(check, pure=False, traverse=False)
            facts = compute_on_scheduler([delayed(pair, *settings) for pair in pairs], watched=True)
        PartitionFacts.require(facts, owner, least)
        self._clean = clean
        self._read = (X, y, owner)
        self.shape = (sum(fact.rows for fact in facts), width)
        self.lengths = [fact.rows for fact in facts]
        every = [None] * len(facts) if graphs is None else graphs
        made = [
            Partition(fact.rows, fact.mark, i, pairs[i], every[i], fact.X, fact.y)
            for i, fact in enumerate(facts)
        ]
        self.partitions = [partition for partition in made if partition.rows]
        self._labels = [fact.labels for fact in facts if fact.labels is not None]

    def unique(self) -> npt.NDArray[Any]:
        """Return the sorted distinct labels of a target that holds labels."""
        return np.unique(np.concatenate(self._labels))

    def rows(
        self,
        row_map: RowMap,
        target: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None = None,
        target_shift: float = 0.0,
        target_scale: float = 1.0,
        row_weights: RowWeights | None = None,
    ) -> DaskRows | MemoryRows:
        """Return sums over the Dask table's rows; ``target(y)`` is applied to each partition's
        target first.
        """
        if not self.partitions:  # no rows at all fit into memory
            return MemoryRows(np.empty((0, self.shape[1])), np.empty(0), row_map)
        mapping = PartitionMap(
            row_map, target, float(target_shift), float(target_scale), self._clean
        )
        partitions = self.partitions
        if row_weights is not None:  # they stay in the memory of this process
            self._require_threads()
            ends = np.cumsum([partition.rows for partition in partitions])
            partitions = [
                replace(
                    item,
                    row_weights=row_weights.part(slice(end - item.rows, end), row_weights.records),
                )
                for item, end in zip(partitions, ends.tolist(), strict=True)
            ]
        return DaskRows(partitions, mapping, self.spill, self.held)

    def _require_threads(self) -> None:
        if self.held is not None or not all(partition.at_hand for partition in self.partitions):
            raise ValueError(
                "Weights and groups must be summed by threads of this process: workers of a "
                "cluster, and partitions that have work in common, are not supported. Close the "
                "client, or persist the collection."
            )

    def column(self, values: Any, function: Callable[[Any], Any], problem: str) -> list[Any]:
        """Return ``function(values)`` of every partition of a further Dask column, or raise if it
        has other partitions.

        Rows read beside it must be those that were checked, in their order: else identifiers would
        be of others' rows.
        """
        self._require_threads()
        X, y, owner = self._read
        alike = hasattr(X, "rechunk") == hasattr(values, "rechunk")
        if not alike or np.prod(values.npartitions) != len(self.lengths):
            raise ValueError(problem)
        triples, _ = partitioning.delayed_partitions(X, y, owner, values)
        known = {partition.number: partition for partition in self.partitions}
        call = dask.delayed(_map_table_column, pure=False, traverse=False)
        tasks = [
            call(function, triple, known.get(number), self._clean)
            for number, triple in enumerate(triples)
        ]
        found = compute_on_scheduler(tasks)
        if [count for count, _ in found] != self.lengths:
            raise ValueError(problem)
        return [result for _, result in found]


def _map_table_column(
    function: Callable[[Any], Any],
    triple: tuple[Any, Any, Any],
    partition: Partition | None,
    clean: PartitionTargets | None,
) -> tuple[int, Any]:
    """Return the length of a partition of a Dask table's column, and a function of it; rows
    beside it must be known.
    """
    if partition is not None and not partition.holds(triple[:2], clean):
        raise SourceChangedError
    values = exact_identifiers(triple[2])
    return len(values), function(values)
