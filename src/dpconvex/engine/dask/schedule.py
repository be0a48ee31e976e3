"""Schedules of partitions: threads of this process, one partition at a time each, or Dask's
scheduler.

Where partitions do not depend on each other, as those of files, this process needs no graph of all
of them in every pass: each thread computes a partition, works on it, and drops it.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from dpconvex.core.threads import available_cores, in_threads
from dpconvex.system.lazy_imports import dask

_watchers: list[Callable[[int, int], None]] = []


@contextmanager
def watch_schedule(report: Callable[[int, int], None]) -> Iterator[None]:
    """Call ``report(partitions done, all partitions)`` in the checking pass; how many follow
    depends on the data.
    """
    _watchers.append(report)
    try:
        yield
    finally:
        _watchers.remove(report)


def report_progress(done: int, total: int) -> None:
    """Report how far the first pass is."""
    for report in _watchers:
        report(done, total)


def count_threads() -> int:
    """Return how many threads may work on partitions at the same time."""
    return int(dask.config.get("num_workers", None) or available_cores())


@dataclass(frozen=True)
class ScheduledPartition:
    """Dask graph of one partition alone."""

    graph: dict[Any, Any]
    key: Any

    def compute(self) -> Any:
        """Compute the partition in the thread that asks."""
        # Callbacks of the user's are made for one graph at a time.
        return dask.get(self.graph, self.key, callbacks=())


def schedule_separately(partitions: Sequence[Any]) -> list[ScheduledPartition] | None:
    """Return the graph of each partition on its own; None if partitions have work in common."""
    from dask.core import get_dependencies, istask
    from dask.highlevelgraph import HighLevelGraph
    from dask.utils import ensure_dict

    whole = ensure_dict(HighLevelGraph.merge(*(part.__dask_graph__() for part in partitions)))
    found: list[ScheduledPartition] = []
    used: set[Any] = set()
    for part in partitions:
        graph: dict[Any, Any] = {}
        waiting = [part.key]
        while waiting:
            key = waiting.pop()
            if key in graph:
                continue
            graph[key] = whole[key]
            waiting += get_dependencies(whole, key)
        work = {
            key for key, node in graph.items() if type(node).__name__ != "DataNode" and istask(node)
        }
        if not used.isdisjoint(work):
            return None
        used |= work
        found.append(ScheduledPartition(graph, part.key))
    return found


def schedule_in_threads(
    function: Callable[[Any], Any], jobs: Sequence[Any], watched: bool = False
) -> Iterator[Any]:
    """Yield ``function(job)`` in order, from the threads of this process; reported if `watched`."""
    # A single job is run by the thread that asks: the pool is then free for its blocks of rows.
    for done, result in enumerate(in_threads(function, jobs, count_threads()), 1):
        if watched:
            report_progress(done, len(jobs))
        yield result


def scheduled_in_process() -> bool:
    """Whether Dask's current scheduler runs tasks in threads of this process."""
    if _default_scheduler_threads():
        return True
    import dask.local
    import dask.threaded
    from dask.base import get_scheduler
    from dask.delayed import Delayed

    get = get_scheduler(cls=Delayed) or Delayed.__dask_scheduler__
    return get in (dask.threaded.get, dask.local.get_sync)


def scheduler_client() -> Any:
    """Return the client of the cluster that Dask would use now, None if it would use none."""
    if _default_scheduler_threads():
        return None
    from dask.base import get_scheduler
    from dask.delayed import Delayed

    client = getattr(get_scheduler(cls=Delayed), "__self__", None)
    return client if hasattr(client, "scheduler_info") else None


def _default_scheduler_threads() -> bool:
    """Whether only Dask's threads can have been asked for; Dask would import `distributed` for a
    second to know.
    """
    return "distributed" not in sys.modules and dask.config.get("scheduler", None) is None


def compute_on_scheduler(tasks: list[Any], watched: bool = False) -> list[Any]:
    """Compute all tasks with Dask's scheduler; partitions done are reported if `watched`."""
    from dask.callbacks import Callback

    finished = itertools.count(1)
    keys = {task.key for task in tasks}

    class Watch(Callback):
        def _posttask(self, key: Any, *_: Any) -> None:
            if watched and key in keys:
                report_progress(next(finished), len(keys))

    if not scheduled_in_process():
        results = list(dask.compute(*tasks))
        if watched:
            report_progress(len(tasks), len(tasks))
        return results
    chosen = {"scheduler": "threads"} if _default_scheduler_threads() else {}
    with Watch():
        return list(dask.compute(*tasks, **chosen))
