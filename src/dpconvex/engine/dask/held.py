"""Partitions held by the workers of a cluster: checked once, parked on the worker's disk, summed where they lie.

Everything here runs on workers. What a client holds of a partition is a future of its `Held`; when that is gone, so is
the file.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dpconvex.engine.dask.partitions import Clean, PartitionFacts, check_partition
from dpconvex.engine.dask.sources import Call, Change, Mapping, Source, quiet, run_here, run_source
from dpconvex.engine.dask.spill import SpilledArray, SpillFile, default_spill_limit
from dpconvex.engine.summation_order import accumulate

__all__ = [
    "GROUP",
    "Block",
    "Held",
    "HeldFacts",
    "Table",
    "Work",
    "fold",
    "fold_groups",
    "hold",
    "run_held",
    "run_share",
    "run_unheld",
]

GROUP = 16  # partitions whose results are added before those of others are

#: Position of the first partition, number of partitions, and their sums.
Block = tuple[int, int, Any]

_lock = threading.Lock()
_files: weakref.WeakValueDictionary[str, SpillFile] = weakref.WeakValueDictionary()
_held: weakref.WeakValueDictionary[tuple[str, int], Held] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Table:
    """What workers must know of a table to check its partitions.

    Attributes
    ----------
    name : str
        Under which its partitions are held.
    width : int
        Number of features.
    numeric : bool
        Whether the target holds numbers.
    clean : Clean or None
        Marks invalid rows.
    limit : int or None
        Bytes that a worker may park; half of the free space, shared by all workers, if None.
    workers : int
        Of which all might share one disk.
    """

    name: str
    width: int
    numeric: bool
    clean: Clean | None
    limit: int | None
    workers: int


class Held:
    """A partition on its worker. Sent elsewhere, it is what was found out about the partition, without its rows.

    Parameters
    ----------
    facts : PartitionFacts
        What checking found.
    address : str
        Of the worker.
    """

    def __init__(self, facts: PartitionFacts, address: str) -> None:
        told = replace(facts, X=None, y=None)
        self.told = HeldFacts(told, None if facts.X is None else address)
        self.source = Source(facts.rows, facts.mark, 0, X=facts.X, y=facts.y)
        self._weights: dict[Any, SpilledArray] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return HeldFacts, (self.told.facts, self.told.owner)

    def changed(self, mapping: Mapping, pending: tuple[Change, ...]) -> Source:
        """Return the partition with changed weights, which are computed once where there is room for them."""
        if not pending:
            return self.source
        key = (mapping.row_map, *(change.name for change in pending))
        if key not in self._weights:
            before = self.changed(mapping, pending[:-1])
            rows = before.open(mapping)
            weights = pending[-1](rows).weights
            before.close(rows)
            file = self.source.X.file if self.source.X is not None else None
            kept = None if file is None else file.write(weights)
            if kept is None:
                return replace(before, pending=(*before.pending, pending[-1]))
            self._weights[key] = kept
        return replace(self.source, weights=self._weights[key])


@dataclass(frozen=True)
class HeldFacts:
    """What others know of a partition that a worker checked.

    Attributes
    ----------
    facts : PartitionFacts
        What checking found.
    owner : str or None
        The worker that holds it; None if it had no room.
    """

    facts: PartitionFacts
    owner: str | None

    @property
    def told(self) -> HeldFacts:
        """The same, as of a `Held` that was not sent because client and worker are one process."""
        return self


def hold(table: Table, number: int, pair: tuple[Any, Any]) -> Held:
    """Check a partition and keep it on this worker."""
    from distributed import get_worker

    worker = get_worker()
    with quiet():
        file = _spill_file(table, worker.local_directory)
        facts = check_partition(pair, table.width, table.numeric, file, table.clean, reread=True)
    held = Held(facts, worker.address)
    _held[table.name, number] = held
    return held


def _spill_file(table: Table, folder: str) -> SpillFile | None:
    with _lock:
        file = _files.get(table.name)
        if file is None:
            limit = table.limit
            if limit is None:
                limit = default_spill_limit(folder) // max(1, table.workers)
            if limit <= 0:
                return None
            file = _files[table.name] = SpillFile(limit, folder)
        return file


@dataclass(frozen=True)
class Work:
    """Part of a pass: what one thread of a worker does.

    Attributes
    ----------
    table : str
        Name of the table.
    mapping : Mapping
        How partitions become rows.
    items : sequence of tuple
        Position in the pass, number in the table, changes of weights and what is asked of each partition.
    grouped : bool
        Whether results are sums that may be added up.
    """

    table: str
    mapping: Mapping
    items: Sequence[tuple[int, int, tuple[Change, ...], Call]]
    grouped: bool


def run_held(work: Work) -> tuple[list[Block], list[int]]:
    """Return the results of all partitions that this worker holds, and the positions of those that it does not."""
    missing: list[int] = []

    def results() -> Iterable[Block]:
        for position, number, pending, call in work.items:
            held = _held.get((work.table, number))
            if held is None or held.source.X is None:
                missing.append(position)
                continue
            source = held.changed(work.mapping, pending)
            yield position, 1, run_here(call, work.mapping, source)

    with quiet():
        blocks = fold(results()) if work.grouped else list(results())
    return blocks, missing


async def run_share(
    works: Sequence[Work], dask_worker: Any = None
) -> list[tuple[list[Block], list[int]] | BaseException]:
    """Return what `run_held` makes of each part of a pass, or its error, from the threads of this worker.

    Called by name, beside the worker's tasks: a task's way through the states that a scheduler keeps of it takes
    longer than many a pass. Errors are results, so that no log quotes what they were about.
    """
    call, executor = asyncio.get_running_loop().run_in_executor, dask_worker.executors["default"]
    parts = (call(executor, run_held, work) for work in works)
    return list(await asyncio.gather(*parts, return_exceptions=True))


def answer() -> bool:
    """Say that this worker is there."""
    return True


def run_unheld(
    position: int, call: Call, mapping: Mapping, source: Source, pair: tuple[Any, Any]
) -> tuple[list[Block], list[int]] | None:
    """Return the result of a partition that nobody has room for, as `run_held` does; None if it changed."""
    found = run_source(call, mapping, source.mark, source.pending, pair)
    return None if found is None else ([(position, 1, found)], [])


def fold(blocks: Iterable[Block]) -> list[Block]:
    """Add sums of neighbours, two blocks of equally many partitions at a time, as `accumulate` does within a group.

    Blocks come in order of their positions. Which are added depends on positions alone, never on who holds them, so
    that sums of the same partitions have the same bits wherever they were computed.
    """
    folded: list[Block] = []
    for block in blocks:
        folded.append(block)
        while len(folded) > 1:
            (first, size, sums), (second, other, more) = folded[-2:]
            aligned = first % (2 * size) == 0 and first + size == second and size == other
            if not aligned or 2 * size > GROUP:
                break
            folded[-2:] = [(first, 2 * size, tuple(accumulate([sums, more])))]
    return folded


def fold_groups(blocks: Iterable[Block]) -> list[tuple[Any, ...]]:
    """Return the sums of all groups, of blocks that cover all partitions."""
    groups: list[list[Block]] = []
    for block in fold(blocks):
        if block[0] % GROUP == 0:
            groups.append([])
        groups[-1].append(block)
    found = []
    for group in groups:  # what is left of an incomplete one is added from its end, as `accumulate` does
        total = group[-1][2]
        for _, _, sums in reversed(group[:-1]):
            total = tuple(accumulate([sums, total]))
        found.append(total)
    return found
