"""A table on a cluster: workers hold its partitions, only sums move, and nobody waits for ever.

A pass is one call of every worker that holds something. What a worker held that is gone is read and checked
again by others. Nothing random happens in a call and nothing is charged, so that a repeated one gives the same sums.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import Any

from dpconvex.engine.dask.held import Block, HeldFacts, Table, Work, answer, fold_groups, hold, run_share, run_unheld
from dpconvex.engine.dask.partitions import Clean, PartitionFacts
from dpconvex.engine.dask.schedule import tell
from dpconvex.engine.dask.sources import Call, Mapping, Source
from dpconvex.engine.failures import ClusterLostError, SourceChangedError

__all__ = ["HeldTable"]

TIMEOUT = "5 minutes"
POLL = 0.5  # seconds after which a pass that waits looks whether those it waits for are there
MOST_LOSSES = 10  # of tasks in a pass
UNEVEN = 1 << 22  # numbers that a thread may hold more than another: some milliseconds of a pass
_LOST = ("KilledWorker", "FutureCancelledError", "CancelledError", "CommClosedError")

#: A task, the positions it is about, and the worker that alone can do it.
Task = tuple[Any, Sequence[int], str | None]


class HeldTable:
    """The partitions of a table, held by the workers of a cluster.

    Parameters
    ----------
    client : distributed.Client
        The cluster; it stays the same for as long as the table lives.
    pairs : sequence of Delayed
        Features and target of every partition.
    width, numeric, clean
        As for `check_partition`.

    Attributes
    ----------
    facts : list of PartitionFacts
        What checking found.

    Raises
    ------
    ClusterLostError
        If the scheduler is gone, or there has been no worker, or no answer of one that is waited for, for as long as
        ``dask.config`` setting ``dpconvex.timeout`` says.
    """

    def __init__(self, client: Any, pairs: Sequence[Any], width: int, numeric: bool, clean: Clean | None) -> None:
        import dask

        self._client = client
        self._pairs = pairs
        limit = dask.config.get("dpconvex.spill-limit", None)
        limit = None if limit is None else dask.utils.parse_bytes(limit)
        timeout = dask.config.get("dpconvex.timeout", None)
        self._timeout = float(dask.utils.parse_timedelta(TIMEOUT if timeout is None else timeout))
        self._threads: dict[str, int] = {}
        self._look()
        self._table = Table(uuid.uuid4().hex, width, numeric, clean, limit, len(self._threads))
        self._futures: dict[int, Any] = {}  # as long as they live, workers keep what they hold
        self._found: dict[int, HeldFacts] = {}
        self._hold(range(len(pairs)))
        self._even_out()
        self.facts: list[PartitionFacts] = [self._found[i].facts for i in range(len(pairs))]

    def _even_out(self) -> None:
        """Let workers that hold far less than others take partitions over: a pass waits for the longest of them."""
        rows = {number: found.facts.rows for number, found in self._found.items()}
        held: dict[str, list[int]] = {owner: [] for owner in self._threads}
        for number, found in self._found.items():
            if found.owner in held:
                held[found.owner].append(number)
        load = {w: sum(rows[i] for i in held[w]) / self._threads[w] for w in held}
        moves: dict[int, str] = {}
        while True:
            most, least = max(load, key=load.__getitem__), min(load, key=load.__getitem__)
            if (load[most] - load[least]) * self._table.width <= UNEVEN:
                break
            number = min(held[most], key=rows.__getitem__)
            if load[least] + rows[number] / self._threads[least] >= load[most]:
                break
            held[most].remove(number)
            held[least].append(number)
            load[most] -= rows[number] / self._threads[most]
            load[least] += rows[number] / self._threads[least]
            moves[number] = least
        self._hold(moves, moves)

    def _hold(self, numbers: Iterable[int], owners: dict[int, str] | None = None) -> None:
        """Let workers check and hold partitions; those that were checked before must be as they were.

        Parameters
        ----------
        numbers : iterable of int
            The partitions.
        owners : dict, optional
            Workers that should hold them, any by default or if one is gone.
        """
        import dask

        first = not self._found
        task = dask.delayed(hold, pure=False, traverse=False)

        def submit(waiting: Sequence[int]) -> list[Task]:
            for number in waiting:
                self._futures.pop(number, None)  # or Dask would compute it again, too
            made = [task(self._table, number, self._pairs[number]) for number in waiting]
            futures = (
                self._client.compute(made)
                if owners is None
                else [
                    self._client.compute(one, workers=[owners[n]], allow_other_workers=True)
                    for n, one in zip(waiting, made, strict=True)
                ]
            )
            self._futures.update(zip(waiting, futures, strict=True))
            return [(future, [n], None) for n, future in zip(waiting, futures, strict=True)]

        def accept(positions: Sequence[int], held: HeldFacts) -> Sequence[int]:
            (number,), result = positions, held.told
            before = self._found.get(number)
            if before is not None and before.facts.mark != result.facts.mark:
                raise SourceChangedError
            self._found[number] = result
            if first:
                tell(len(self._found), len(self._pairs))
            return positions

        self._finish(set(numbers), submit, accept)

    def run(self, jobs: Sequence[tuple[Source, Call]], mapping: Mapping, grouped: bool) -> list[tuple[Any, ...]]:
        """Return what is asked of each partition, in order; sums of groups if `grouped`."""
        import dask

        blocks: list[Block] = []

        def submit(waiting: Sequence[int]) -> list[Task]:
            lost = [jobs[i][0].number for i in waiting if self._is_lost(jobs[i][0].number)]
            if lost:
                self._hold(lost)
            unheld = dask.delayed(run_unheld, pure=False, traverse=False)
            tasks: list[Task] = []
            shares: dict[str, list[int]] = {}
            single: dict[int, Any] = {}
            for position in waiting:
                source, call = jobs[position]
                owner = self._found[source.number].owner
                if owner is None:
                    bare, pair = replace(source, pair=None), self._pairs[source.number]
                    single[position] = unheld(position, call, mapping, bare, pair)
                else:
                    shares.setdefault(owner, []).append(position)
            futures = self._client.compute(list(single.values()))
            tasks += [(future, [i], None) for i, future in zip(single, futures, strict=True)]
            for owner, positions in shares.items():
                works = [
                    Work(
                        self._table.name,
                        mapping,
                        [(i, jobs[i][0].number, jobs[i][0].pending, jobs[i][1]) for i in part],
                        grouped,
                    )
                    for part in _split(positions, self._threads.get(owner, 1))
                ]
                tasks.append((_Call(self._client, owner, run_share, works), positions, owner))
            return tasks

        def accept(positions: Sequence[int], result: Any) -> Sequence[int]:
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

        self._finish(set(range(len(jobs))), submit, accept)
        blocks.sort(key=lambda block: block[0])
        return fold_groups(blocks) if grouped else [block[2] for block in blocks]

    def _is_lost(self, number: int) -> bool:
        """Whether nobody holds a partition that somebody held."""
        owner = self._found[number].owner
        return owner is not None and (owner not in self._threads or number not in self._futures)

    def _finish(
        self,
        pending: set[int],
        submit: Callable[[Sequence[int]], list[Task]],
        accept: Callable[[Sequence[int], Any], Sequence[int]],
    ) -> None:
        """Submit tasks until every position is accepted."""
        active: dict[Any, tuple[Sequence[int], str | None]] = {}
        losses, reason, pulse = 0, "", _Pulse(self._client, self._timeout)
        while pending:
            waiting = pending.difference(*(positions for positions, _ in active.values()))
            if waiting:
                for future, positions, owner in submit(sorted(waiting)):
                    active[future] = positions, owner
            self._wait(active)
            ended = [future for future in active if future.status != "pending"]
            finished = [future for future in ended if future.status == "finished"]
            for future, result in zip(finished, self._gather(finished), strict=False):
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
                    "Workers of the Dask cluster die again and again, or cannot do what they are asked"
                    + (f" ({reason})" if reason else "")
                    + ". If they die, give them more memory, or smaller partitions."
                )
            if not finished:
                self._look()
                # Tasks without an owner may be on any of them.
                owners = {owner for _, owner in active.values()}
                pulse.require(w for w in self._threads if w in owners or None in owners)
                for future, (_, owner) in list(active.items()):
                    if owner is not None and owner not in self._threads:
                        del active[future]

    def _wait(self, tasks: Iterable[Any]) -> None:
        """Wait until all tasks ended, or for a short time: results that are fetched one by one take longer."""
        calls = [task.future for task in tasks if isinstance(task, _Call)]
        futures = [task for task in tasks if not isinstance(task, _Call)]
        if futures:
            import distributed

            with _forgetting():  # their states tell
                distributed.wait(futures, timeout=POLL)
        if calls:
            wait(calls, timeout=POLL)

    def _gather(self, tasks: list[Any]) -> list[Any]:
        """Return the results; none if some were lost on the way, with their worker."""
        futures = [task for task in tasks if not isinstance(task, _Call)]
        with _forgetting():
            fetched = iter(self._client.gather(futures) if futures else [])
            return [task.result() if isinstance(task, _Call) else next(fetched) for task in tasks]
        self._look()
        return []

    def _look(self) -> None:
        """Note which workers there are; wait for some if there are none, up to the time-out."""
        started = time.monotonic()
        while True:
            status = self._client.status
            if status in ("closed", "closing"):
                raise ClusterLostError("The Dask scheduler is gone.")
            self._threads = self._ask() if status == "running" else {}
            if self._threads:
                return
            if time.monotonic() - started > self._timeout:
                raise ClusterLostError(
                    "The Dask cluster has had no workers, or no scheduler, for as long as dask.config "
                    f"'dpconvex.timeout' allows, {self._timeout:g} seconds."
                )
            time.sleep(min(POLL, self._timeout))

    def _ask(self) -> dict[str, int]:
        with _forgetting():
            limit = max(1.0, min(10.0, self._timeout))
            return dict(self._client.nthreads(callback_timeout=limit))
        return {}


class _Call:
    """One worker's part of a pass, called from a thread that nobody waits for at the end; it has a task's states."""

    def __init__(self, client: Any, owner: str, function: Callable[..., Any], *arguments: Any) -> None:
        self.future: Future[Any] = Future()
        self.reason = ""  # the name of an error, which must not quote what it was about

        def run() -> None:
            found = None
            with _forgetting():
                try:
                    found = client.run(function, *arguments, workers=[owner])[owner]
                except (Exception, asyncio.CancelledError) as error:
                    self.reason = type(error).__name__
                    raise
            self.future.set_result(found)

        threading.Thread(target=run, daemon=True).start()

    @property
    def status(self) -> str:
        if not self.future.done():
            return "pending"
        return "cancelled" if self.future.result() is None else "finished"

    def result(self) -> Any:
        return self.future.result()


class _Pulse:
    """Asks workers that a pass waits for whether they are there: a frozen one keeps its place at the scheduler."""

    def __init__(self, client: Any, timeout: float) -> None:
        self._client, self._timeout = client, timeout
        self._asked: dict[str, tuple[_Call, float]] = {}

    def require(self, owners: Iterable[str]) -> None:
        """Raise if one of them has left a question unanswered for too long."""
        now = time.monotonic()
        for owner in owners:
            call, since = self._asked.get(owner, (None, now))
            if call is None or call.status != "pending":
                self._asked[owner] = _Call(self._client, owner, answer), now
            elif now - since > self._timeout:
                raise ClusterLostError(
                    "A worker of the Dask cluster has not answered for as long as dask.config 'dpconvex.timeout' "
                    f"allows, {self._timeout:g} seconds."
                )


@contextlib.contextmanager
def _forgetting() -> Iterator[None]:
    """Go on after any error, and let its traceback go: Dask's refer to themselves, and would keep the table alive."""
    try:
        yield
    except (Exception, asyncio.CancelledError) as error:
        error.__traceback__ = None


def _split(positions: Sequence[int], parts: int) -> list[Sequence[int]]:
    """Return up to `parts` stretches of about equal length."""
    size = -(-len(positions) // max(1, parts))
    return [positions[i : i + size] for i in range(0, len(positions), size)]
