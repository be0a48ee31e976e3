"""Run studies on all cores; every finished cell is written at once, so an interrupted run goes
on where it stopped.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import lzma
import math
import multiprocessing
import os
import re
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

from dpconvex.inputs import InputError
from dpconvex_reproduction.datasets.dataset import data_path
from dpconvex_reproduction.exhibit import Cell, Row, Study
from dpconvex_reproduction.fingerprint import STORED, now
from dpconvex_reproduction.outputs import append_output, remove_output, write_output

__all__ = [
    "Progress",
    "Results",
    "Work",
    "affordable",
    "cheap",
    "missing_data",
    "run_studies",
    "study_files",
]

# One thread in each worker: the cells themselves are what runs side by side.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes
    ----------
    done, total : int
        Cells that are done, those of earlier runs too, and cells in all.
    study : str
        Study of the cell that ended last.
    study_done, study_total : int
        Its cells.
    seconds : float
        Processor seconds of what is done.
    left : float
        Processor seconds of what is left, if cells take as long as those that are done and differ
        in their seeds alone, or as the mean of the study; studies of which nothing is done yet
        count as the average cell.
    warning : str
        What the cell warned of, if no cell did before with these or other numbers; otherwise empty.
    """

    done: int
    total: int
    study: str
    study_done: int = 0
    study_total: int = 0
    seconds: float = 0.0
    left: float = 0.0
    warning: str = ""

    def words(self) -> str:
        """Return a line for a log.

        Examples
        --------
        >>> Progress(3, 12, "peers/svm", 1, 4, 90.0, 270.0).words()
        '3 of 12 cells (25 %), 2 processor minutes done, about 4 left; peers/svm: 1 of 4'
        """
        share = self.done / self.total if self.total else 1.0
        return (
            f"{self.done} of {self.total} cells ({100 * share:.0f} %), {self.seconds / 60:.0f} "
            f"processor minutes done, about {self.left / 60:.0f} left; {self.study}: "
            f"{self.study_done} of {self.study_total}"
        )


@dataclass(frozen=True)
class Work:
    """What cells have cost, and what those of a full run would.

    Attributes
    ----------
    done, full : int
        Cells that are done, and cells of a full run.
    seconds, full_seconds : float
        Their processor seconds; those of a full run if its cells take as long as those that are
        done and differ in their seeds alone, or as the mean of all where there are none.
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
    warnings : dict
        The first of each kind of warning of the cells that were run now, and how many cells gave
        that kind.
    measured : dict
        The commits and days of the cells, by study.
    partial : set of str
        Studies of which not every cell was asked for or known from an earlier run.
    quick : Results, optional
        The same of the cells of a quick run alone.
    """

    rows: dict[str, list[Row]]
    failures: dict[str, list[str]]
    skipped: dict[str, str]
    work: dict[str, Work]
    warnings: dict[str, int] = field(default_factory=dict)
    measured: dict[str, set[str]] = field(default_factory=dict)
    partial: set[str] = field(default_factory=set)
    quick: Results | None = None

    def together(self, names: Collection[str]) -> Results:
        """Return what one page shows of these studies: they are compared, so all have all
        repeats or all have few.
        """
        return self.quick if self.quick and len(names) > 1 and self.partial & set(names) else self


def missing_data(study: Study) -> str | None:
    """Return why the study cannot read its data, or None."""
    for filename in study.data:
        try:
            data_path(filename)
        except (FileNotFoundError, ValueError) as error:
            return str(error)
    return None


def _source(study: Study) -> str:
    """Return a digest of the module that measures and of the default: if either changes, cells
    are run again.
    """
    module = sys.modules[study.measure.__module__]
    default = (
        json.loads(STORED.read_text(encoding="utf-8"))["fingerprint"] if study.of_default else ""
    )
    return hashlib.sha256((inspect.getsource(module) + default).encode()).hexdigest()[:12]


def _key(cell: Cell) -> str:
    return json.dumps(cell, sort_keys=True)


def _by_key(cells: Iterable[Cell]) -> dict[str, Cell]:
    """Return each cell once: equal ones have the same rows."""
    return {_key(cell): cell for cell in cells}


#: What the repeats of a cell are called, in one study or another.
_REPEATS = ("seed", "seeds", "first", "last", "start", "block", "repeat")


def _kind(cell: Cell) -> str:
    """Return what a cell is but for its repeats: cells of one kind take as long."""
    return _key({name: value for name, value in cell.items() if name not in _REPEATS})


def _costs(done: Iterable[Mapping[str, Any]], cells: Iterable[Cell]) -> float:
    """Return the processor seconds that cells will take, by records of those that are done."""
    spent: dict[str, list[float]] = {}
    for record in done:
        spent.setdefault(_kind(record["cell"]), []).append(record["seconds"])
    every = [seconds for several in spent.values() for seconds in several]
    mean = sum(every) / max(1, len(every))
    typical = {kind: sum(several) / len(several) for kind, several in spent.items()}
    return sum(typical.get(_kind(cell), mean) for cell in cells)


def _unpacked(path: Path) -> bytes:
    try:
        return lzma.decompress(path.read_bytes())
    except lzma.LZMAError as error:
        raise InputError(
            f"{path} holds cells of earlier runs and cannot be read: it is damaged, or Git LFS "
            "has not fetched it yet. Fetch it again, or delete it to run its cells again."
        ) from error


def _store_files(study: Study, folder: Path, packed: Path | None) -> tuple[Path, Path | None]:
    """Return where finished cells of a study are kept, and where they are kept compressed."""
    name = study.name.replace("/", "--")
    # Times stay where they were measured: those of two machines cannot be compared.
    here = packed is None or study.timed
    return folder / f"{name}.jsonl", None if packed is None or here else packed / f"{name}.jsonl.xz"


def study_files(studies: Iterable[Study], folder: Path, packed: Path | None = None) -> list[Path]:
    """Return the files that :func:`run_studies` may write.

    Parameters
    ----------
    studies : iterable of Study
        What is run.
    folder, packed : Path
        As of :func:`run_studies`.
    """
    files = [path for study in studies for path in _store_files(study, folder, packed)]
    return [path for path in files if path is not None]


class _Store:
    """Finished cells of one study: a line of JSON each while it goes on, one compressed file
    afterwards.
    """

    def __init__(self, folder: Path, packed: Path | None, study: Study, fresh: bool) -> None:
        self.path, self.packed = _store_files(study, folder, packed)
        self.source = _source(study)
        self.now = now()
        self.done: dict[str, dict[str, Any]] = {}
        self.before = ""  # ends the line of a run that was killed while it wrote
        for path in (self.packed, self.path):
            if path is None or not path.is_file():
                continue
            if fresh:
                remove_output(path)
            else:
                content = _unpacked(path) if path == self.packed else path.read_bytes()
                if path == self.path and not content.endswith(b"\n"):
                    self.before = "\n"
                self._read(content)

    def _read(self, content: bytes) -> None:
        for line in content.decode("utf-8").splitlines():
            try:
                record = json.loads(line)
            except json.JSONDecodeError:  # the last line of a run that was killed
                continue
            if record["source"] == self.source and "made" in record:
                self.done[_key(record["cell"])] = record

    def add(self, cell: Cell, rows: list[Row], seconds: float) -> None:
        record = {
            "source": self.source,
            "made": self.now,
            "cell": cell,
            "rows": rows,
            "seconds": seconds,
        }
        text = json.dumps(record, default=float)
        append_output(self.path, f"{self.before}{text}\n")
        self.before = ""
        self.done[_key(cell)] = json.loads(text)

    def pack(self, cells: Collection[str]) -> None:
        """Keep the finished ones of these cells in one file, which can go where the pages go.

        More of them, of other code, stay there until all or as many are done.
        """
        if self.packed is None or not self.done:
            return
        lines = [json.dumps(self.done[key]) for key in cells if key in self.done]
        content = "\n".join(lines).encode()
        kept = _unpacked(self.packed) if self.packed.is_file() else b""
        if content == kept or len(lines) < min(len(kept.splitlines()), len(cells)):
            return
        write_output(self.packed, lzma.compress(content, preset=9))


#: Rows of a cell, its processor seconds, a message if it failed, and what it warned of.
_Outcome = tuple[list[Row], float, str, list[str]]


def _processor_seconds() -> float:
    """Return the time that this process and those that it waited for have used."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _measure(measure: Callable[[Cell], list[Row]], cell: Cell) -> _Outcome:
    """Run one cell in a worker; its warnings are handed over, for the log to say each once."""
    started = _processor_seconds()
    rows: list[Row] = []
    failure = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            rows = measure(dict(cell))
        except (Exception, SystemExit) as error:  # a method of the user's may end the process
            failure = f"{type(error).__name__}: {error}"
    said = dict.fromkeys(
        f"{each.category.__name__}: {str(each.message).splitlines()[0]}" for each in caught
    )
    return rows, _processor_seconds() - started, failure, list(said)


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
    packed: Path | None = None,
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
        Processes at a time; all cores by default. Studies that measure time run alone, one cell at
        a time.
    fresh : bool
        Forget what was finished before.
    full : collection of str
        Names of studies that are run with all repeats although the others are quick.
    packed : Path, optional
        Where finished cells are kept compressed, for another machine to go on with; not those of
        times.
    report : callable, optional
        Called after each cell.

    Returns
    -------
    Results
        Cells that failed are reported there and run again next time.

    Raises
    ------
    InputError
        If a compressed file cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    distinct = list({study.name: study for study in studies}.values())
    skipped = {s.name: reason for s in distinct if (reason := missing_data(s)) is not None}
    runnable = [study for study in distinct if study.name not in skipped]
    stores = {study.name: _Store(folder, packed, study, fresh) for study in runnable}
    every = {study.name: _by_key(study.cells(False)) for study in runnable}
    cells: dict[str, dict[str, Cell]] = {}
    for study in runnable:
        wanted = cells[study.name] = _by_key(study.cells(quick and study.name not in full))
        # What was run before is shown, too.
        if wanted.keys() <= every[study.name].keys():
            known = wanted.keys() | stores[study.name].done.keys()
            cells[study.name] = {
                key: cell for key, cell in every[study.name].items() if key in known
            }
    failures: dict[str, dict[str, str]] = {study.name: {} for study in runnable}
    pending = {
        name: {key: cell for key, cell in listed.items() if key not in stores[name].done}
        for name, listed in cells.items()
    }
    waiting = [(study, cell) for study in runnable for cell in pending[study.name].values()]
    warned: dict[str, int] = {}
    kinds: dict[str, str] = {}
    left: dict[str, float] = {}

    def end(study: Study, cell: Cell, outcome: _Outcome) -> None:
        rows, seconds, failure, said = outcome
        del pending[study.name][_key(cell)]
        if failure:
            failures[study.name][_key(cell)] = failure
        else:
            stores[study.name].add(cell, rows, seconds)
        new = []
        for words in said:
            # One warning in a hundred sizes is one thing to know: its numbers do not count.
            kind = re.sub(r"[0-9][0-9.,e+-]*", "0", words)
            if kind not in kinds:
                new.append(words)
            first = kinds.setdefault(kind, words)
            warned[first] = warned.get(first, 0) + 1
        if not pending[study.name]:  # whatever becomes of the rest of the run
            stores[study.name].pack(every[study.name])
        if report is not None:
            left.pop(study.name, None)
            totals = {name: len(listed) for name, listed in cells.items()}
            report(_progress(study.name, totals, pending, stores, left, new))

    together = [work for work in waiting if not work[0].timed]
    alone = [work for work in waiting if work[0].timed]
    try:
        for batch, workers in ((together, jobs or available_cores()), (alone, 1)):
            if batch:
                _run_batch(batch, workers, end)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("finished cells are kept, the same command goes on.") from None
    finally:
        for name, store in stores.items():
            store.pack(every[name])

    def results(cells: Mapping[str, Collection[str]]) -> Results:
        found = Results({}, {}, skipped, {}, warned)
        for name, store in stores.items():
            records = [store.done[key] for key in cells[name] if key in store.done]
            found.rows[name] = [row for record in records for row in record["rows"]]
            if failed := [
                f"{key}: {failures[name][key]}" for key in cells[name] if key in failures[name]
            ]:
                found.failures[name] = failed
            seconds = sum(record["seconds"] for record in records)
            whole = every[name].values()
            found.work[name] = Work(
                len(records), len(whole), seconds, _costs(store.done.values(), whole)
            )
            found.measured[name] = {record["made"] for record in records}
            if every[name].keys() - cells[name]:
                found.partial.add(name)
        return found

    found = results(cells)
    found.quick = results({study.name: _by_key(study.cells(True)) for study in runnable})
    return found


def _progress(
    study: str,
    totals: Mapping[str, int],
    pending: Mapping[str, Mapping[str, Cell]],
    stores: Mapping[str, _Store],
    left: dict[str, float],
    new: Sequence[str],
) -> Progress:
    """Return how far the run is after a cell of a study; what is left of the others is
    remembered in ``left``.
    """
    spent = [record["seconds"] for store in stores.values() for record in store.done.values()]
    typical = sum(spent) / max(1, len(spent))
    for name in pending.keys() - left.keys():
        if stores[name].done:
            left[name] = _costs(stores[name].done.values(), pending[name].values())
    seconds = sum(
        left[name] if name in left else typical * len(cells) for name, cells in pending.items()
    )
    total = sum(totals.values())
    return Progress(
        total - sum(map(len, pending.values())),
        total,
        study,
        totals[study] - len(pending[study]),
        totals[study],
        sum(spent),
        seconds,
        "; ".join(new),
    )


def _full_cost(work: Mapping[str, Work], names: Iterable[str]) -> float:
    """Return the processor seconds of full runs of studies: infinite if nothing is done of one
    of them.
    """
    costs = [work.get(name, Work()) for name in names]
    return math.fsum(cost.full_seconds if cost.done else math.inf for cost in costs)


def cheap(
    work: Mapping[str, Work], exhibits: Iterable[Collection[str]], seconds: float = 60.0
) -> set[str]:
    """Return the studies of exhibits whose full runs take at most so many processor seconds: never
    run in part.

    Parameters
    ----------
    work : dict of str to Work
        What cells have cost, by study.
    exhibits : iterable of collections of str
        The studies of each exhibit: its checks compare them, so they are run in full together or
        not at all.
    seconds : float
        For one exhibit.

    Examples
    --------
    >>> work = {"a": Work(1, 9, 1.0, 9.0), "b": Work(2, 20, 50.0, 500.0), "c": Work(0, 9)}
    >>> sorted(cheap(work, [["a"], ["b"], ["c"]])), sorted(cheap(work, [["a", "b"]]))
    (['a'], [])
    """
    return {name for names in exhibits if _full_cost(work, names) <= seconds for name in names}


def affordable(
    work: Mapping[str, Work], exhibits: Iterable[Collection[str]], seconds: float
) -> set[str]:
    """Return the studies of exhibits, cheapest first, whose full runs take at most so many
    processor seconds together.

    What is done counts as well, so that a run that goes on after an interruption has the same aim.
    A study of several exhibits counts once.

    Examples
    --------
    >>> work = {"a": Work(1, 9, 1.0, 9.0), "b": Work(2, 2, 5.0, 5.0), "c": Work(1, 9, 2.0, 18.0)}
    >>> (
    ...     sorted(affordable(work, [["a"], ["b"], ["c"], ["a", "b"]], 15.0)),
    ...     sorted(affordable(work, [["a", "c"]], 15.0)),
    ... )
    (['a', 'b'], [])
    """
    chosen: set[str] = set()
    for names in sorted(exhibits, key=lambda names: _full_cost(work, names)):
        if _full_cost(work, chosen.union(names)) <= seconds:
            chosen.update(names)
    return chosen


def available_cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _run_batch(
    batch: Sequence[tuple[Study, Cell]], workers: int, end: Callable[[Study, Cell, _Outcome], None]
) -> None:
    """Measure cells in processes of their own; an interruption loses only the cells under way."""
    waiting = deque(batch)
    while waiting:
        # Of cells under way when a process ended itself, or was ended for want of memory, which one
        # it was shows when each is run alone.
        for study, cell in _run_in_pool(waiting, workers, end):
            if _run_in_pool(deque([(study, cell)]), 1, end):
                end(study, cell, ([], 0.0, _ENDED, []))


_ENDED = "the process that measured it ended: it took too much memory, or ended itself"


def _run_in_pool(
    waiting: deque[tuple[Study, Cell]],
    workers: int,
    end: Callable[[Study, Cell, _Outcome], None],
) -> list[tuple[Study, Cell]]:
    """Measure the waiting cells in a pool of processes; return those that were under way when one
    of the processes ended, or none if all are done.
    """
    # A forked process inherits locks of numba's and opendp's threads.
    context = multiprocessing.get_context("spawn")
    # Ctrl-C is for this process, which lets the cells under way end.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    with _one_thread(), ProcessPoolExecutor(workers, context, signal.signal, ignore) as pool:
        running: dict[Future[Any], tuple[Study, Cell]] = {}
        try:
            while waiting or running:
                # A short queue: what is not submitted need not be cancelled.
                while waiting and len(running) <= 2 * workers:
                    study, cell = waiting[0]
                    running[pool.submit(_measure, study.measure, cell)] = waiting.popleft()
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    outcome = future.result()
                    end(*running.pop(future), outcome)
        except BrokenProcessPool:
            return list(running.values())
        except BaseException:
            for future in running:
                future.cancel()
            raise
    return []
