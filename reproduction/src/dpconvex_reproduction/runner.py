"""Run studies on all cores; every finished cell is written at once, so an interrupted run goes on where it stopped."""

from __future__ import annotations

import hashlib
import inspect
import json
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from dpconvex_reproduction.datasets.dataset import data_path
from dpconvex_reproduction.exhibit import Cell, Row, Study

__all__ = ["Progress", "Results", "Work", "affordable", "missing_data", "run_studies"]

# One thread in each worker: the cells themselves are what runs side by side.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Progress:
    """How far a run is: cells done and in all, and the study of the cell that ended last."""

    done: int
    total: int
    study: str


@dataclass(frozen=True)
class Work:
    """What cells have cost, and what those of a full run would.

    Attributes
    ----------
    done, full : int
        Cells that are done, and cells of a full run.
    seconds, full_seconds : float
        Their processor seconds; those of a full run if its cells take as long, on average, as those that are done.
    """

    done: int = 0
    full: int = 0
    seconds: float = 0.0
    full_seconds: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass
class Results:
    """Rows of the studies that were run.

    Attributes
    ----------
    rows : dict
        Rows by study, in the order of its cells.
    failures : dict
        Messages of cells that ended in an error, by study.
    skipped : dict
        Why a study was not run, by study.
    work : dict
        Cells done, cells of a full run and processor seconds, by study.
    """

    rows: dict[str, list[Row]]
    failures: dict[str, list[str]]
    skipped: dict[str, str]
    work: dict[str, Work]


def missing_data(study: Study) -> str | None:
    """Return why the study cannot read its data, or None."""
    for filename in study.data:
        try:
            data_path(filename)
        except (FileNotFoundError, ValueError) as error:
            return str(error)
    return None


def _source(study: Study) -> str:
    """Return a digest of the module that measures: a changed module runs again."""
    module = sys.modules[study.measure.__module__]
    return hashlib.sha256(inspect.getsource(module).encode()).hexdigest()[:12]


def _key(cell: Cell) -> str:
    return json.dumps(cell, sort_keys=True)


class _Store:
    """Finished cells of one study, a line of JSON each."""

    def __init__(self, folder: Path, study: Study, fresh: bool) -> None:
        self.path = folder / (study.name.replace("/", "--") + ".jsonl")
        self.source = _source(study)
        self.done: dict[str, dict[str, Any]] = {}
        if fresh:
            self.path.unlink(missing_ok=True)
        if self.path.is_file():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                try:
                    record = json.loads(line)
                except json.JSONDecodeError:  # the last line of a run that was killed
                    continue
                if record["source"] == self.source:
                    self.done[_key(record["cell"])] = record

    def add(self, cell: Cell, rows: list[Row], seconds: float) -> None:
        record = {"source": self.source, "cell": cell, "rows": rows, "seconds": seconds}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record, default=float) + "\n")
        self.done[_key(cell)] = json.loads(json.dumps(record, default=float))


def _measure(measure: Callable[[Cell], list[Row]], cell: Cell) -> tuple[list[Row], float, str]:
    """Run one cell in a worker: its rows, its processor seconds, and a message if it failed."""
    started = time.process_time()
    try:
        rows = measure(dict(cell))
    except Exception as error:
        return [], time.process_time() - started, f"{type(error).__name__}: {error}"
    return rows, time.process_time() - started, ""


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let processes that start meanwhile use one thread each."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update(dict.fromkeys(_ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def run_studies(
    studies: Iterable[Study],
    folder: Path,
    *,
    quick: bool = False,
    jobs: int | None = None,
    fresh: bool = False,
    full: Collection[str] = (),
    report: Callable[[Progress], None] | None = None,
) -> Results:
    """Run what is not done yet and return everything.

    Parameters
    ----------
    studies : iterable of Study
        Named uniquely; repeated ones are run once.
    folder : Path
        Where finished cells are kept.
    quick : bool
        Fewer repeats.
    jobs : int, optional
        Processes at a time; all cores by default. Studies that measure time run alone, one cell at a time.
    fresh : bool
        Forget what was finished before.
    full : collection of str
        Names of studies that are run with all repeats although the others are quick.
    report : callable, optional
        Called after each cell.

    Returns
    -------
    Results
        Cells that failed are reported there and run again next time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    distinct = list({study.name: study for study in studies}.values())
    skipped = {s.name: reason for s in distinct if (reason := missing_data(s)) is not None}
    runnable = [study for study in distinct if study.name not in skipped]
    cells = {s.name: list(s.cells(quick and s.name not in full)) for s in runnable}
    stores = {study.name: _Store(folder, study, fresh) for study in runnable}
    failures: dict[str, list[str]] = {}
    waiting = [
        (study, cell) for study in runnable for cell in cells[study.name] if _key(cell) not in stores[study.name].done
    ]
    total = sum(map(len, cells.values()))
    finished = total - len(waiting)

    def end(study: Study, cell: Cell, outcome: tuple[list[Row], float, str]) -> None:
        nonlocal finished
        rows, seconds, failure = outcome
        finished += 1
        if failure:
            failures.setdefault(study.name, []).append(f"{_key(cell)}: {failure}")
        else:
            stores[study.name].add(cell, rows, seconds)
        if report is not None:
            report(Progress(finished, total, study.name))

    together = [work for work in waiting if not work[0].timed]
    alone = [work for work in waiting if work[0].timed]
    for batch, workers in ((together, jobs or available_cores()), (alone, 1)):
        if batch:
            _run_batch(batch, workers, end)
    rows: dict[str, list[Row]] = {}
    work: dict[str, Work] = {}
    for study in runnable:
        done = stores[study.name].done
        records = [done[_key(cell)] for cell in cells[study.name] if _key(cell) in done]
        rows[study.name] = [row for record in records for row in record["rows"]]
        seconds = sum(record["seconds"] for record in records)
        whole = len(study.cells(False))
        mean = seconds / max(1, len(records))
        work[study.name] = Work(len(records), whole, seconds, mean * whole)
    return Results(rows, failures, skipped, work)


def affordable(work: Mapping[str, Work], seconds: float) -> set[str]:
    """Return the studies, cheapest first, whose full runs take at most so many processor seconds together.

    What is done counts as well, so that a run that goes on after an interruption has the same aim.

    Examples
    --------
    >>> sorted(affordable({"a": Work(1, 9, 1.0, 9.0), "b": Work(2, 2, 5.0, 5.0), "c": Work(1, 9, 2.0, 18.0)}, 15.0))
    ['a', 'b']
    """
    chosen, spent = set(), 0.0
    for name, cost in sorted(work.items(), key=lambda item: item[1].full_seconds):
        spent += cost.full_seconds
        if cost.done and spent <= seconds:
            chosen.add(name)
    return chosen


def available_cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _run_batch(
    batch: Sequence[tuple[Study, Cell]], workers: int, end: Callable[[Study, Cell, tuple[list[Row], float, str]], None]
) -> None:
    """Measure cells in processes of their own; an interruption loses only the cells under way."""
    # A forked process inherits locks of numba's and opendp's threads.
    context = multiprocessing.get_context("spawn")
    # Ctrl-C is for this process, which lets the cells under way end.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    with _one_thread(), ProcessPoolExecutor(workers, context, signal.signal, ignore) as pool:
        running: dict[Future[Any], tuple[Study, Cell]] = {}
        remaining = iter(batch)
        try:
            while True:
                # A short queue: what is not submitted need not be cancelled.
                for study, cell in remaining:
                    running[pool.submit(_measure, study.measure, cell)] = (study, cell)
                    if len(running) > 2 * workers:
                        break
                if not running:
                    return
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    end(*running.pop(future), future.result())
        except BaseException:
            for future in running:
                future.cancel()
            raise
