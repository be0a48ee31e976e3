"""A table on a cluster: workers hold its partitions, only sums move, and nobody waits for ever.

Workers check a partition once, park it on their disk and sum it there. A pass is one call of every
worker that holds something. Partitions of a lost worker are read and checked again by others.
Nothing random happens in a call and nothing is charged, so that a repeated one gives the same sums.
Files live as long as a client's futures of `ClusterPartition`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from typing import Any

from dpconvex.core.rows import ClusterLostError, SourceChangedError, Sums
from dpconvex.core.summation import pairwise_summation
from dpconvex.engine.dask import partitions
from dpconvex.engine.dask.partitions import (
    Call,
    Pair,
    Partition,
    PartitionFacts,
    PartitionMap,
    PartitionTargets,
)
from dpconvex.engine.dask.schedule import report_progress
from dpconvex.engine.dask.spill import SpillFile, configured_spill_limit, default_spill_limit
from dpconvex.system.lazy_imports import dask

TIMEOUT = "5 minutes"
POLL = 0.5  # seconds after which a waiting pass asks whether those it waits for are there
MOST_LOSSES = 10  # of tasks in a pass
GROUP = 16  # partitions whose results are added before those of others are
_LOST = ("KilledWorker", "FutureCancelledError", "CancelledError", "CommClosedError")

#: A task, the positions it is about, and the worker that alone can do it.
Task = tuple[Any, Sequence[int], str | None]
#: Position of the first partition, number of partitions, and their sums.
Block = tuple[int, int, Any]
#: The sums of a worker, and the positions of partitions that it does not hold.
Found = tuple[list[Block], list[int]]
#: Of each partition: its position in the pass, its number in the table, changes of weights, and the
#: call.
Items = Sequence[tuple[int, int, tuple[partitions.Reweigh, ...], Call]]

# On workers: the open files and the partitions that live there.
_lock = threading.Lock()
_files: weakref.WeakValueDictionary[str, SpillFile] = weakref.WeakValueDictionary()
_held: weakref.WeakValueDictionary[tuple[str, int], ClusterPartition] = (
    weakref.WeakValueDictionary()
)


class ClusterTable:
    """The partitions of a table, held by the workers of a cluster; ``facts`` are the findings of
    their checks.

    `ClusterLostError` is raised if the scheduler is gone, or there has been no worker, or no answer
    of one that is waited for, for as long as ``dask.config`` setting ``dpconvex.timeout`` says.
    """

    def __init__(
        self,
        client: Any,
        pairs: Sequence[Any],
        width: int,
        numeric: bool,
        clean: PartitionTargets | None,
    ) -> None:
        self._client = client
        self._pairs = pairs
        limit = configured_spill_limit()
        timeout = dask.config.get("dpconvex.timeout", None)
        self._timeout = float(dask.utils.parse_timedelta(TIMEOUT if timeout is None else timeout))
        self._threads: dict[str, int] = {}  # by worker
        self._find_cluster_workers()
        self._table = ClusterTableFacts(
            uuid.uuid4().hex, width, numeric, clean, limit, len(self._threads)
        )
        self._futures: dict[int, Any] = {}  # as long as they live, workers keep their partitions
        self._found: dict[int, PartitionFacts] = {}
        self._hold_on_cluster(range(len(pairs)))
        self.facts = [self._found[i] for i in range(len(pairs))]

    def _hold_on_cluster(self, numbers: Iterable[int]) -> None:
        """Let the cluster's workers check and hold partitions; those that were checked before
        must be as they were.
        """
        first = not self._found
        task = dask.delayed(hold_on_cluster, pure=False, traverse=False)

        def submit(waiting: Sequence[int]) -> list[Task]:
            for number in waiting:
                self._futures.pop(number, None)  # or Dask would compute it again, too
            futures = self._client.compute(
                [task(self._table, number, self._pairs[number]) for number in waiting]
            )
            self._futures.update(zip(waiting, futures, strict=True))
            return [
                (future, [number], None) for number, future in zip(waiting, futures, strict=True)
            ]

        def accept_on_cluster(
            positions: Sequence[int], held: ClusterPartition | PartitionFacts
        ) -> Sequence[int]:
            (number,) = positions
            result = held.told if isinstance(held, ClusterPartition) else held
            before = self._found.get(number)
            if before is not None and before.mark != result.mark:
                raise SourceChangedError
            self._found[number] = result
            if first:
                report_progress(len(self._found), len(self._pairs))
            return positions

        self._finish_on_cluster(set(numbers), submit, accept_on_cluster)

    def run(
        self, jobs: Sequence[tuple[Partition, Call]], mapping: PartitionMap, grouped: bool
    ) -> list[Sums]:
        """Run a call on each partition of the cluster and return the results, in order; sums of
        groups if `grouped`.
        """
        blocks: list[Block] = []

        def submit_to_cluster(waiting: Sequence[int]) -> list[Task]:
            held_once = [
                jobs[i][0].number
                for i in waiting
                if self._found[jobs[i][0].number].owner is not None
            ]
            there = {
                number for number in self._futures if self._found[number].owner in self._threads
            }
            if lost := [number for number in held_once if number not in there]:
                self._hold_on_cluster(lost)
            unheld = dask.delayed(run_unheld_on_cluster, pure=False, traverse=False)
            shares: dict[str, list[int]] = {}
            single: dict[int, Any] = {}
            for position in waiting:
                source, call = jobs[position]
                owner = self._found[source.number].owner
                if owner is None:
                    bare = replace(source, pair=None)
                    pair = self._pairs[source.number]
                    single[position] = unheld(position, call, mapping, bare, pair)
                else:
                    shares.setdefault(owner, []).append(position)
            futures = self._client.compute(list(single.values()))
            tasks: list[Task] = [
                (future, [i], None) for i, future in zip(single, futures, strict=True)
            ]
            for owner, positions in shares.items():
                size = -(-len(positions) // max(1, self._threads.get(owner, 1)))
                items = [(i, jobs[i][0].number, jobs[i][0].pending, jobs[i][1]) for i in positions]
                parts = [items[k : k + size] for k in range(0, len(items), size)]
                share = _ClusterWorkerCall(
                    self._client, owner, run_share, self._table.name, mapping, parts, grouped
                )
                tasks.append((share, positions, owner))
            return tasks

        def accept_from_cluster(positions: Sequence[int], result: Any) -> Sequence[int]:
            if result is None:
                raise SourceChangedError
            lost: set[int] = set()
            for part in result if isinstance(result, list) else [result]:
                if isinstance(part, BaseException):
                    raise part
                found, missing = part
                blocks.extend(found)
                lost.update(missing)
            for position in lost:
                self._futures.pop(jobs[position][0].number, None)
            return [position for position in positions if position not in lost]

        self._finish_on_cluster(set(range(len(jobs))), submit_to_cluster, accept_from_cluster)
        blocks.sort(key=lambda block: block[0])
        return add_cluster_groups(blocks) if grouped else [block[2] for block in blocks]

    def _finish_on_cluster(
        self,
        pending: set[int],
        submit: Callable[[Sequence[int]], list[Task]],
        accept: Callable[[Sequence[int], Any], Sequence[int]],
    ) -> None:
        """Submit tasks to the cluster until every position is accepted."""
        active: dict[Any, tuple[Sequence[int], str | None]] = {}
        asked: dict[str, tuple[_ClusterWorkerCall, float]] = {}
        losses = 0
        reason = ""
        while pending:
            waiting = pending.difference(*(positions for positions, _ in active.values()))
            if waiting:
                for future, positions, owner in submit(sorted(waiting)):
                    active[future] = positions, owner
            self._wait_for_cluster(active)
            ended = [future for future in active if future.status != "pending"]
            finished = [future for future in ended if future.status == "finished"]
            for future, result in zip(finished, self._gather_from_cluster(finished), strict=False):
                pending.difference_update(accept(active.pop(future)[0], result))
            failed = [future for future in ended if future in active]
            for future in failed:
                if future.status == "error" and type(future.exception()).__name__ not in _LOST:
                    raise future.exception()
                reason = getattr(future, "reason", "") or reason
                active.pop(future)
            losses += len(failed) > 0
            if losses > MOST_LOSSES:
                raise ClusterLostError(
                    "Workers of the Dask cluster die again and again, or cannot do what they are "
                    "asked"
                    + (f" ({reason})" if reason else "")
                    + ". If they die, give them more memory, or smaller partitions."
                )
            if not finished:
                self._find_cluster_workers()
                # Tasks without an owner may be on any of them.
                owners = {owner for _, owner in active.values()}
                self._ping_cluster(
                    [worker for worker in self._threads if worker in owners or None in owners],
                    asked,
                )
                for future, (_, owner) in list(active.items()):
                    if owner is not None and owner not in self._threads:
                        del active[future]

    def _ping_cluster(
        self, workers: Iterable[str], asked: dict[str, tuple[_ClusterWorkerCall, float]]
    ) -> None:
        """Ask whether the cluster's workers are there, since a frozen one stays registered;
        raise if one is silent.
        """
        now = time.monotonic()
        for owner in workers:
            call, since = asked.get(owner, (None, now))
            if call is None or call.status != "pending":
                asked[owner] = _ClusterWorkerCall(self._client, owner, ping), now
            elif now - since > self._timeout:
                raise ClusterLostError(
                    "A worker of the Dask cluster has not answered for as long as dask.config "
                    f"'dpconvex.timeout' allows, {self._timeout:g} seconds."
                )

    def _wait_for_cluster(self, tasks: Iterable[Any]) -> None:
        """Wait until all of the cluster's tasks ended, or for a short time: results fetched one
        by one take longer.
        """
        calls = [task.future for task in tasks if isinstance(task, _ClusterWorkerCall)]
        futures = [task for task in tasks if not isinstance(task, _ClusterWorkerCall)]
        if futures:
            import distributed

            with _forget_cluster_errors():  # their states tell
                distributed.wait(futures, timeout=POLL)
        if calls:
            wait(calls, timeout=POLL)

    def _gather_from_cluster(self, tasks: list[Any]) -> list[Any]:
        futures = [task for task in tasks if not isinstance(task, _ClusterWorkerCall)]
        with _forget_cluster_errors():
            fetched = iter(self._client.gather(futures) if futures else [])
            return [
                task.future.result() if isinstance(task, _ClusterWorkerCall) else next(fetched)
                for task in tasks
            ]
        self._find_cluster_workers()
        return []

    def _find_cluster_workers(self) -> None:
        """Note the cluster's workers and their threads; wait for some if there are none, up to
        the time-out.
        """
        started = time.monotonic()
        while True:
            status = self._client.status
            if status in ("closed", "closing"):
                raise ClusterLostError("The Dask scheduler is gone.")
            self._threads = {}
            if status == "running":
                with _forget_cluster_errors():
                    self._threads = dict(
                        self._client.nthreads(callback_timeout=max(1.0, min(10.0, self._timeout)))
                    )
            if self._threads:
                return
            if time.monotonic() - started > self._timeout:
                raise ClusterLostError(
                    "The Dask cluster has had no workers, or no scheduler, for as long as "
                    f"dask.config 'dpconvex.timeout' allows, {self._timeout:g} seconds."
                )
            time.sleep(min(POLL, self._timeout))


class _ClusterWorkerCall:
    """One worker's part of a pass, called from a thread that nobody waits for at the end; it has
    a task's states.
    """

    def __init__(
        self, client: Any, owner: str, function: Callable[..., Any], *arguments: Any
    ) -> None:
        self.future: Future[Any] = Future()
        self.reason = ""  # the name of an error, which must not quote what it was about

        def run_on_cluster_worker() -> None:
            found = None
            with _forget_cluster_errors():
                try:
                    found = client.run(function, *arguments, workers=[owner])[owner]
                except (Exception, asyncio.CancelledError) as error:
                    self.reason = type(error).__name__
                    raise
            self.future.set_result(found)

        threading.Thread(target=run_on_cluster_worker, daemon=True).start()

    @property
    def status(self) -> str:
        if not self.future.done():
            return "pending"
        return "cancelled" if self.future.result() is None else "finished"


@contextlib.contextmanager
def _forget_cluster_errors() -> Iterator[None]:
    """Go on after any error, and let its traceback go: Dask's refer to themselves, and would
    keep the table alive.
    """
    try:
        yield
    except (Exception, asyncio.CancelledError) as error:
        error.__traceback__ = None


@dataclass(frozen=True)
class ClusterTableFacts:
    """Facts that workers need to check a table's partitions."""

    name: str
    width: int
    numeric: bool
    clean: PartitionTargets | None
    limit: (
        int | None
    )  # bytes that a worker may park; None for half of the free space, shared by all workers
    workers: int


class ClusterPartition:
    """A partition on its worker. Sent elsewhere, it becomes `PartitionFacts` without its rows."""

    def __init__(self, facts: PartitionFacts, address: str) -> None:
        self.told = replace(facts, X=None, y=None, owner=None if facts.X is None else address)
        self.partition = Partition(facts.rows, facts.mark, 0, X=facts.X, y=facts.y)

    def __reduce__(self) -> tuple[Any, ...]:
        return replace, (self.told,)


def hold_on_cluster(table: ClusterTableFacts, number: int, pair: Pair) -> ClusterPartition:
    """Check a partition and keep it on this worker."""
    from distributed import get_worker

    worker = get_worker()
    with partitions.quiet():
        with _lock:
            file = _files.get(table.name)
            limit = table.limit
            folder = worker.local_directory
            if limit is None:
                limit = default_spill_limit(folder) // max(1, table.workers)
            if file is None and limit > 0:
                file = _files[table.name] = SpillFile(limit, folder)
        facts = partitions.check_partition(
            pair, table.width, table.numeric, file, table.clean, reread=True
        )
    held = ClusterPartition(facts, worker.address)
    _held[table.name, number] = held
    return held


def run_held_on_cluster(table: str, mapping: PartitionMap, items: Items, grouped: bool) -> Found:
    """Return the results of all partitions that this worker holds, and the positions of those
    that it does not.
    """
    missing: list[int] = []

    def results() -> Iterable[Block]:
        for position, number, pending, call in items:
            held = _held.get((table, number))
            if held is None or held.partition.X is None:
                missing.append(position)
                continue
            yield (
                position,
                1,
                partitions.run_here(call, mapping, replace(held.partition, pending=pending)),
            )

    with partitions.quiet():
        blocks = add_cluster_neighbours(results()) if grouped else list(results())
    return blocks, missing


async def run_share(
    table: str,
    mapping: PartitionMap,
    parts: Sequence[Items],
    grouped: bool,
    dask_worker: Any = None,
) -> list[Found | BaseException]:
    """Return the result of `run_held_on_cluster` for each part of a pass, or its error, from
    threads of this worker.

    Called by name, beside the worker's tasks: a task's way through the states that a scheduler
    keeps of it takes longer than many a pass. Errors are results, so that no log quotes what they
    were about.
    """
    call = asyncio.get_running_loop().run_in_executor
    executor = dask_worker.executors["default"]
    results = (
        call(executor, run_held_on_cluster, table, mapping, items, grouped) for items in parts
    )
    return list(await asyncio.gather(*results, return_exceptions=True))


def ping() -> bool:
    """Say that this worker is there."""
    return True


def run_unheld_on_cluster(
    position: int, call: Call, mapping: PartitionMap, source: Partition, pair: Pair
) -> Found | None:
    """Return the result of a partition that nobody has room for, as `run_held_on_cluster` does;
    None if it changed.
    """
    found = partitions.run_on_partition_source(call, mapping, source.mark, source.pending, pair)
    return None if found is None else ([(position, 1, found)], [])


def add_cluster_neighbours(blocks: Iterable[Block]) -> list[Block]:
    """Add sums of neighbours, two blocks of as many partitions at a time, as
    `pairwise_summation` does in a group.
    """
    # Blocks come in order of their positions. Which are added depends on positions alone, never on
    # who holds them, so that sums of the same partitions have the same bits wherever they were
    # computed.
    added: list[Block] = []
    for block in blocks:
        added.append(block)
        while len(added) > 1:
            (first, size, sums), (second, other, more) = added[-2:]
            aligned = first % (2 * size) == 0 and first + size == second and size == other
            if not aligned or 2 * size > GROUP:
                break
            added[-2:] = [(first, 2 * size, tuple(pairwise_summation([sums, more])))]
    return added


def add_cluster_groups(blocks: Iterable[Block]) -> list[Sums]:
    """Return the sums of all groups, of blocks that cover all partitions."""
    groups: list[list[Block]] = []
    for block in add_cluster_neighbours(blocks):
        if block[0] % GROUP == 0:
            groups.append([])
        groups[-1].append(block)
    found = []
    for group in (
        groups
    ):  # the rest of an incomplete one is added from its end, as `pairwise_summation` does
        total = group[-1][2]
        for _, _, sums in reversed(group[:-1]):
            total = tuple(pairwise_summation([sums, total]))
        found.append(total)
    return found
