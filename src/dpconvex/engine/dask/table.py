"""Tables of Dask collections: checked and counted in one pass, parked where there is room.

Dask is imported lazily.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dpconvex.engine.dask.cluster import HeldTable
from dpconvex.engine.dask.partitions import Clean, PartitionFacts, check_partition, delayed_parts
from dpconvex.engine.dask.rows import DaskRows
from dpconvex.engine.dask.schedule import Recipe, cluster_client, compute, in_process, recipes, run_all
from dpconvex.engine.dask.sources import Mapping, Source
from dpconvex.engine.dask.spill import SpillFile, default_spill_limit
from dpconvex.engine.failures import SourceChangedError
from dpconvex.engine.memory import MemoryRows
from dpconvex.engine.rows import RowMap
from dpconvex.engine.votes import Votes, exact_values

__all__ = ["DaskTable"]


class DaskTable:
    """Features and target of Dask collections, checked and counted in one pass.

    Parameters
    ----------
    X : dask array or dataframe of shape (n_rows, n_features)
        Partitions may be empty, uneven and of different dtypes.
    y : dask array or series of shape (n_rows,)
        With the partitions of X.
    owner : str
        Who asks, for error messages.
    numeric : bool, default=True
        Whether the target must be finite numbers; otherwise it holds labels.
    clean : Clean, optional
        Marks invalid rows, which are then void instead of refused.
    least : int, default=1
        Smallest number of rows, 0 or 1.

    Attributes
    ----------
    shape : tuple of int
        Number of rows and of features.

    Notes
    -----
    The checking pass also parks partitions in an uncompressed temporary file without a name, up to ``dask.config``
    setting ``dpconvex.spill-limit`` (bytes, or text such as "8 GB"; half of the free space by default, 0 to read the
    source in every pass), in ``temporary-directory``. On a ``dask.distributed`` cluster every worker parks what it
    checked in its own local directory, with the limit for each of them, and later passes move sums only. Partitions
    beyond the limit are read from their source in every pass, and those of a worker that died once more.

    What is read again must be what was checked, in number, types and bytes: else `SourceChangedError` is raised. A
    cluster without scheduler, or without workers for ``dask.config`` setting ``dpconvex.timeout`` ("5 minutes" by
    default), raises `ClusterLostError`; nothing falls back to threads of this process.

    Privacy: error messages name what is wrong and never a value. The number of rows is public under replace-one.
    Checksums stay inside.
    """

    def __init__(
        self, X: Any, y: Any, owner: str, numeric: bool = True, clean: Clean | None = None, least: int = 1
    ) -> None:
        import dask

        pairs, width = delayed_parts(X, y, owner)
        self.spill: SpillFile | None = None
        self.held: HeldTable | None = None
        own: list[Recipe] | None = None
        client = cluster_client()
        if client is None and in_process():
            own = recipes(pairs)
            folder = dask.config.get("temporary-directory", None)
            limit = dask.config.get("dpconvex.spill-limit", None)
            limit = default_spill_limit(folder) if limit is None else dask.utils.parse_bytes(limit)
            self.spill = SpillFile(limit, folder) if limit > 0 else None
        facts: list[PartitionFacts]
        if client is not None:
            self.held = HeldTable(client, pairs, width, numeric, clean)
            facts = self.held.facts
        elif own is not None:
            spill = self.spill
            facts = list(
                run_all(lambda part: check_partition(part.compute(), width, numeric, spill, clean), own, watched=True)
            )
        else:
            check = dask.delayed(check_partition, pure=False, traverse=False)
            tasks = [check(pair, width, numeric, self.spill, clean) for pair in pairs]
            facts = compute(tasks, watched=True)
        PartitionFacts.require(facts, owner, least)
        self._clean, self._read = clean, (X, y, owner)
        self.shape = (sum(fact.rows for fact in facts), width)
        self.lengths = [fact.rows for fact in facts]
        self.sources = [
            Source(fact.rows, fact.mark, number, pair, recipe, fact.X, fact.y)
            for number, (fact, pair, recipe) in enumerate(
                zip(facts, pairs, own or itertools.repeat(None), strict=False)
            )
            if fact.rows
        ]
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
        votes: Votes | None = None,
    ) -> DaskRows | MemoryRows:
        """Return sums over these rows; ``target(y)`` is applied to each partition's target first."""
        if not self.sources:  # no rows at all fit into memory
            return MemoryRows(np.empty((0, self.shape[1])), np.empty(0), row_map)
        shift, scale = float(target_shift), float(target_scale)
        mapping = Mapping(row_map, target, shift, scale, self._clean)
        return DaskRows(self._with_votes(votes), mapping, self.spill, self.held)

    def _with_votes(self, votes: Votes | None) -> list[Source]:
        """Return the partitions with what their rows count for, which stays in the memory of this process."""
        if votes is None:
            return self.sources
        self._require_threads()
        ends = np.cumsum([source.rows for source in self.sources])
        return [
            replace(source, votes=votes.part(slice(end - source.rows, end), votes.records))
            for source, end in zip(self.sources, ends.tolist(), strict=True)
        ]

    def _require_threads(self) -> None:
        if self.held is not None or not all(source.at_hand for source in self.sources):
            raise ValueError(
                "Weights and groups must be summed by threads of this process: workers of a cluster, and partitions "
                "that have work in common, are not supported. Close the client, or persist the collection."
            )

    def column(self, values: Any, function: Callable[[Any], Any], problem: str) -> list[Any]:
        """Return ``function(values)`` of every partition of a further column, or raise if it has other partitions.

        Rows are read beside it once more, and must be those that were checked, in their order: else a person's
        identifiers would stand beside others' rows.
        """
        import dask

        self._require_threads()
        X, y, owner = self._read
        alike = hasattr(X, "rechunk") == hasattr(values, "rechunk")
        if not alike or np.prod(values.npartitions) != len(self.lengths):
            raise ValueError(problem)
        triples, _ = delayed_parts(X, y, owner, values)
        sources = {source.number: source for source in self.sources}
        call = dask.delayed(_of_column, pure=False, traverse=False)
        found = compute(
            [call(function, triple, sources.get(number), self._clean) for number, triple in enumerate(triples)]
        )
        if [count for count, _ in found] != self.lengths:
            raise ValueError(problem)
        return [result for _, result in found]


def _of_column(
    function: Callable[[Any], Any], triple: tuple[Any, Any, Any], source: Source | None, clean: Clean | None
) -> tuple[int, Any]:
    """Return the length of a partition of one column, and what a function makes of it; rows beside it must be known."""
    if source is not None and not source.holds(triple[:2], clean):
        raise SourceChangedError
    values = exact_values(triple[2])
    return len(values), function(values)
