"""How far a run is, on a terminal as a bar, in a log as lines; each warning is said once."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dpconvex_reproduction.runner import Progress

__all__ = ["shown_progress"]

_EVERY = 30.0  # seconds between lines of a log


@contextmanager
def shown_progress() -> Iterator[Callable[[Progress], None]]:
    """Yield a function that shows progress: a bar on a terminal, otherwise a line of the log every
    half minute.

    The last cell of a study always gets a line, and so does the first of each kind of warning.
    """
    if sys.stderr.isatty():
        with _bar() as shown:
            yield shown
        return
    last = 0.0

    def report(progress: Progress) -> None:
        nonlocal last
        if progress.warning:
            _log(f"warning, said once: {progress.warning}")
        ended = progress.study_done == progress.study_total
        if ended or progress.done == progress.total or time.monotonic() - last >= _EVERY:
            last = time.monotonic()
            _log(progress.words())

    yield report


def _log(words: str) -> None:
    print(time.strftime("%Y-%m-%d %H:%M:%S"), words, file=sys.stderr, flush=True)


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reproducing", total=None)

        def report(progress: Progress) -> None:
            if progress.warning:
                bar.console.print(f"warning, said once: {progress.warning}", markup=False)
            words = (
                f"{progress.study} {progress.study_done}/{progress.study_total}, "
                f"{progress.left / 60:.0f} min left"
            )
            bar.update(task, completed=progress.done, total=progress.total, description=words)

        yield report
