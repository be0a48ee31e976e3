"""``dpconvex reproduce``: the papers' tables and figures, run again, each with its verdict."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpconvex.cli.output_and_errors import output_console, print_json, reports_errors
from dpconvex.cli.task_options import JsonOption
from dpconvex.inputs import InputError

if TYPE_CHECKING:
    from dpconvex_reproduction.pages import Outcome
    from dpconvex_reproduction.runner import Results

app = typer.Typer(add_completion=False)


#: Other commands of this distribution: the first word, and the module whose ``main`` takes the
#: others.
_OTHERS = {
    "bench": "bench.command",
    "canaries": "canaries",
    "evidence": "evidence",
    "fingerprint": "fingerprint",
    "numbers": "numbers",
    "scale": "scale",
}


def main(words: list[str] | None = None) -> None:
    """Run the command with these words, or with those of the command line."""
    words = sys.argv[1:] if words is None else words
    if words and words[0] in _OTHERS:
        importlib.import_module(f"dpconvex_reproduction.{_OTHERS[words[0]]}").main(words[1:])
        return
    app(words, prog_name="dpconvex reproduce")


@app.command()
@reports_errors
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="all, a paper, or one exhibit such as quantile-sco/figure-4.", show_default=False
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer repeats, error bars shown.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for pages, figures and numbers.")] = Path(
        "reproduced"
    ),
    within: Annotated[
        float | None,
        typer.Option(
            help="Run all repeats of what they take at most so many minutes for, in all, cheapest "
            "first; fewer of the rest.",
            min=0,
            show_default=False,
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(help="Processes at a time; all cores by default.", min=1, show_default=False),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget what was finished before.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show what there is and end.")] = False,
    install_peers: Annotated[
        bool,
        typer.Option(
            "--install-peers",
            help="First make the environments that peers need, from the package index.",
        ),
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Run the papers' tables and figures again and write a page with a verdict for each.

    Without a name it lists what there is. A run that was interrupted goes on where it stopped, and
    says what is done and what is left; compressed single runs stand beside the pages in `cells`,
    for another machine to go on with, but for measured times, which belong to one machine. What
    takes less than a minute is never run in part. Real data are read from the folder named by
    `DPCONVEX_DATA`; without it the exhibits that need them are named with the reason. The exit code
    is 1 if nothing that was asked for could be run.

    Other commands, each with a `--help`: `dpconvex reproduce bench` compares private methods,
    `... canaries` lets jax-privacy's auditor attack our fits, `... numbers` sets other accountants'
    numbers beside ours, `... scale` extrapolates to a cluster. `... fingerprint` lists pages that
    are older than the default, `... evidence` writes the tables of README from stored results.
    """
    from dpconvex_reproduction import catalogue

    if install_peers:
        install_environments()
    if list_ or not names:
        _list(out, json_)
        return
    chosen = list(
        {exhibit.name: exhibit for name in names for exhibit in catalogue.find(name)}.values()
    )
    from dpconvex_reproduction.outputs import check_outputs
    from dpconvex_reproduction.pages import (
        exhibit_files,
        index_files,
        write_exhibit,
        write_index,
    )
    from dpconvex_reproduction.progress import shown_progress
    from dpconvex_reproduction.runner import (
        affordable,
        available_cores,
        cheap,
        run_studies,
        study_files,
    )

    studies = [study for exhibit in chosen for study in exhibit.studies]
    pages = [file for exhibit in chosen for file in exhibit_files(exhibit, out)]
    cells = study_files(studies, out / "runs", out / "cells")
    check_outputs([*pages, *index_files(out), *cells], out)
    with shown_progress() as report:
        run = functools.partial(
            run_studies,
            studies,
            out / "runs",
            jobs=jobs,
            packed=out / "cells",
            report=report,
        )
        part = quick or within is not None
        results = run(quick=part, fresh=fresh)
        if part:  # what the quick cells took says what all of them will
            seconds = 60 * (within or 0.0) * (jobs or available_cores())
            exhibits = [[study.name for study in exhibit.studies] for exhibit in chosen]
            full = cheap(results.work, exhibits) | affordable(results.work, exhibits, seconds)
            results = run(quick=True, full=full)
    outcomes = [write_exhibit(exhibit, results, out) for exhibit in chosen]
    index = write_index(outcomes, out)
    if json_:
        print_json(
            {
                "index": str(index),
                "exhibits": [
                    {
                        "name": outcome.exhibit.name,
                        "verdict": outcome.verdict,
                        "claims": outcome.share("paper"),
                        "ours": outcome.share("dpconvex"),
                        "not_run_because": outcome.reason,
                    }
                    for outcome in outcomes
                ],
                "failed_cells": sum(map(len, results.failures.values())),
            }
        )
    else:
        _show(outcomes, results, index)
    if all(outcome.reason for outcome in outcomes):
        raise typer.Exit(1)


def _show(outcomes: Sequence[Outcome], results: Results, index: Path) -> None:
    """Print verdicts, what was not run and why, and where the pages are."""
    from rich.table import Table

    screen = output_console()
    table = Table("exhibit", "verdict", "paper's claims", "ours", box=None)
    absent: dict[str, list[str]] = {}
    for outcome in outcomes:
        table.add_row(
            outcome.exhibit.name, outcome.verdict, outcome.share("paper"), outcome.share("dpconvex")
        )
        if outcome.reason:
            absent.setdefault(outcome.reason, []).append(outcome.exhibit.name)
    screen.print(table)
    for reason, names in absent.items():
        screen.print(f"Not run: {', '.join(names)}. {reason}", markup=False)
    failed = sum(map(len, results.failures.values()))
    if failed:
        screen.print(
            f"{failed} cells failed; their pages say how, and the next run tries them again."
        )
    minutes = sum(work.seconds for work in results.work.values()) / 60
    screen.print(f"Written: {index} ({minutes:.0f} processor minutes)", markup=False)


def install_environments() -> None:
    """Make the environment of every peer.

    Raises
    ------
    InputError
        If one cannot be made; the others are.
    """
    from dpconvex_reproduction.peers.environments import ENVIRONMENTS

    failed = []
    for environment in ENVIRONMENTS:
        try:
            environment.install()
        except RuntimeError as error:
            failed.append(str(error))
    if failed:
        raise InputError(" ".join(failed))


def _list(folder: Path, json_: bool) -> None:
    """Show what can be reproduced, the data files it reads, and what a full run took if one in
    the folder says so.
    """
    from rich.table import Table

    from dpconvex_reproduction import catalogue
    from dpconvex_reproduction.pages import known_outcomes

    listed = catalogue.find("all")
    known = known_outcomes(folder)
    times = {exhibit.name: known.get(exhibit.name, {}).get("a full run", "") for exhibit in listed}
    if json_:
        print_json(
            [
                {
                    "name": exhibit.name,
                    "title": exhibit.title,
                    "data": list(exhibit.data),
                    "full_run": times[exhibit.name] or None,
                }
                for exhibit in listed
            ]
        )
        return
    table = Table("name", "what it shows", box=None)
    table.columns[0].no_wrap = True
    for exhibit in listed:
        more = [f"data: {', '.join(exhibit.data)}"] if exhibit.data else []
        more += [f"a full run: {times[exhibit.name]}"] if times[exhibit.name] else []
        table.add_row(exhibit.name, "\n".join([exhibit.title, *more]))
    screen = output_console()
    screen.print(table)
    if not any(times.values()):
        screen.print("What full runs take is shown with the --out of an earlier run.")
