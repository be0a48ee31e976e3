"""``dpconvex reproduce bench``: private methods on the same problems, as one Parquet file and
one page.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpconvex.cli.output_and_errors import output_console, print_json, reports_errors
from dpconvex.cli.task_options import JsonOption
from dpconvex.inputs import InputError

if TYPE_CHECKING:
    from dpconvex_reproduction.exhibit import Study

app = typer.Typer(add_completion=False)
# what a peer's environment says: its methods are left out, which is no failure
_NOT_INSTALLED = "is not installed. "


def main(words: list[str]) -> None:
    """Run the command with these words."""
    app(words, prog_name="dpconvex reproduce bench")


def _numbers(text: str) -> tuple[float, ...]:
    try:
        found = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise InputError(
            f"--epsilon takes numbers with commas between them, such as 0.5,1,4. Got '{text}'."
        ) from None
    if not all(0 < number < float("inf") for number in found):
        raise InputError(f"--epsilon takes positive numbers. Got '{text}'.")
    return found


@app.command()
@reports_errors
def bench(
    data: Annotated[
        list[str] | None,
        typer.Argument(help="Data sets; all but `toy` by default.", show_default=False),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(help="logistic, linear or quantile; all by default.", show_default=False),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method by name; may be repeated. All by default.", show_default=False),
    ] = None,
    add: Annotated[
        list[Path] | None,
        typer.Option(help="A file of your own with METHODS; may be repeated.", show_default=False),
    ] = None,
    epsilon: Annotated[
        str, typer.Option(help="Budgets, with commas between them.")
    ] = "0.1,0.5,1,4",
    seeds: Annotated[int, typer.Option(help="Fits of every method and setting.", min=1)] = 5,
    rows: Annotated[
        int | None,
        typer.Option(help="Train on so many rows only, for a try.", min=100, show_default=False),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the page, figures and results.parquet.")
    ] = Path("bench"),
    jobs: Annotated[
        int | None,
        typer.Option(help="Processes at a time; all cores by default.", min=1, show_default=False),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Forget what was finished before.")
    ] = False,
    list_: Annotated[
        bool, typer.Option("--list", help="Show data sets and methods, and end.")
    ] = False,
    install_peers: Annotated[
        bool,
        typer.Option(
            "--install-peers", help="First make the environments that peers and added files need."
        ),
    ] = False,
    json_: JsonOption = False,
) -> None:
    """Compare private methods on the same rows, public bounds, budget and neighbours.

    A run that was interrupted goes on where it stopped; a changed method, or a changed default of
    ours, is run again. Fits of earlier runs in the same folder stay in the table and on the page if
    their code is today's. Peers that are not installed are named on the page. Real data are read
    from the folder named by `DPCONVEX_DATA`. The exit code is 1 if a part of the run failed, which
    the page names and the next run tries again.
    """
    from dpconvex_reproduction.bench.methods import find_methods
    from dpconvex_reproduction.bench.page import contests, write_page
    from dpconvex_reproduction.bench.problems import DATA, TASKS, files
    from dpconvex_reproduction.bench.run import Plan, merged, study, write_parquet
    from dpconvex_reproduction.datasets.dataset import data_path
    from dpconvex_reproduction.progress import shown_progress
    from dpconvex_reproduction.runner import run_studies

    added = tuple(str(path.resolve()) for path in add or ())
    if list_:
        _list(json_, added)
        return
    if install_peers:
        _install(added)
    unknown = [name for name in data or () if name not in DATA]
    if unknown:
        raise InputError(f"There is no data set '{unknown[0]}'. There are: {', '.join(DATA)}.")
    if task is not None and task not in TASKS:
        raise InputError(f"--task must be one of {', '.join(TASKS)}. Got '{task}'.")
    chosen = tuple(dict.fromkeys(data or [name for name in DATA if name != "toy"]))
    for filename in files(chosen):
        try:
            data_path(filename)
        except (FileNotFoundError, ValueError) as error:
            raise InputError(str(error)) from error
    budgets = tuple(sorted(set(_numbers(epsilon))))
    try:
        plan = Plan(chosen, task, tuple(method or ()), added, budgets, seeds, rows)
        planned = study(plan)
        find_methods(added)
    except ValueError as error:
        raise InputError(str(error)) from error
    planned_for = {cell["method"] for cell in planned.cells(False)}
    for name in method or ():
        if name not in planned_for:
            able = ", ".join(find_methods(added)[name][0].tasks)
            raise InputError(
                f"The method '{name}' suits none of these problems. Its tasks: {able}."
            )
    if not planned_for:
        raise InputError("No method suits these data sets and this task.")
    _check_folder(out, planned, fresh)
    if not fresh:
        _refuse_other_rows(out / "results.parquet", rows)
    with shown_progress() as report:
        results = run_studies([planned], out / "runs", jobs=jobs, fresh=fresh, report=report)
    found = results.rows["bench"]
    failures = results.failures.get("bench", [])
    if not found:
        raise InputError(
            "Every fit failed. The first: "
            f"{_in_short(failures[0]) if failures else 'no cell was run'}"
        )
    gone: list[str] = []
    if not fresh:
        found, gone = merged(found, out / "results.parquet", plan)
    write_parquet(found, out / "results.parquet")
    fitted = {row["method"] for row in found}
    absent = [words for words in failures if _NOT_INSTALLED in words]
    failures = [words for words in failures if _NOT_INSTALLED not in words]
    names = [name for name in find_methods(added) if method and name not in {*fitted, *method}]
    left_out = [*gone, *(f"{name}: not asked for in this run" for name in names)]
    page = write_page(found, out, [_in_short(words) for words in (*absent, *failures)], left_out)
    verdicts = [contest.verdict for contest in contests(found)]
    counts = {name: verdicts.count(name) for name in ("loss", "tie", "win", "one seed")}
    if json_:
        print_json(
            {
                "page": str(page),
                "fits": len(found),
                "failed_cells": len(failures),
                "failures": [_in_short(words) for words in failures],
                **counts,
            }
        )
    else:
        if failures:
            cells = "1 cell" if len(failures) == 1 else f"{len(failures)} cells"
            first = f"The first: {_in_short(failures[0])}"
            output_console().print(
                f"{cells} failed; the page says how, and the next run tries again. {first}",
                markup=False,
            )
        words = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
        output_console().print(
            f"Written: {page} ({len(found)} fits; {words or 'nothing to compare'})", markup=False
        )
    if failures:
        raise typer.Exit(1)


def _check_folder(out: Path, planned: Study, fresh: bool) -> None:
    """Raise if a run could not write one of its files, or would replace a file of others."""
    import polars as pl

    from dpconvex_reproduction.bench.page import page_files
    from dpconvex_reproduction.bench.problems import TASKS
    from dpconvex_reproduction.outputs import check_outputs
    from dpconvex_reproduction.runner import study_files

    table = out / "results.parquet"
    check_outputs([table, *study_files([planned], out / "runs")], out)
    problems = [(cell["task"], cell["relation"]) for cell in planned.cells(False)]
    if table.is_file() and not fresh:  # of which the page shows what it can
        problems += pl.read_parquet(table, columns=["task", "relation"]).unique().rows()
    known = [(task, relation) for task, relation in problems if task.partition(" ")[0] in TASKS]
    check_outputs(page_files(known, out), out)


def _refuse_other_rows(path: Path, rows: int | None) -> None:
    """Raise if a folder has results of another number of training rows: a try must not replace
    them.
    """
    import polars as pl

    if not path.is_file() or "most_rows" not in (stored := pl.read_parquet(path)).columns:
        return
    found = stored["most_rows"].unique().to_list()
    if found and rows not in found:
        words = "all" if found[0] is None else f"at most {found[0]:,}"
        raise InputError(
            f"The folder '{path.parent}' has fits of {words} training rows, which this run would "
            "replace. Name another folder with --out, or say --fresh."
        )


def _in_short(failure: str) -> str:
    """Return which method failed, where, and how."""
    import json

    try:
        cell, end = json.JSONDecoder().raw_decode(failure)
        epsilon = "" if cell["epsilon"] is None else f", ε {cell['epsilon']:g}"
        return (
            f"{cell['method']}, {cell['data']}, "
            f"{cell['task']}{epsilon}{failure[end:].replace(': FitError: ', ': ', 1)}"
        )
    except (json.JSONDecodeError, TypeError, KeyError):
        return failure


def _install(files: tuple[str, ...]) -> None:
    """Make the environments of methods in these files, and those of all peers."""
    from dpconvex_reproduction.bench.methods import find_methods
    from dpconvex_reproduction.bench.remote import RemoteMethod
    from dpconvex_reproduction.command import install_environments

    for method, place in find_methods(files).values():
        if place in files and isinstance(method, RemoteMethod):
            try:
                method.environment.install()
            except RuntimeError as error:
                raise InputError(str(error)) from error
    install_environments()


def _list(json_: bool, files: tuple[str, ...]) -> None:
    """Show data sets with their tasks, and methods with theirs."""
    from rich.table import Table

    from dpconvex_reproduction.bench.methods import find_methods
    from dpconvex_reproduction.bench.problems import DATA

    methods = {name: method for name, (method, _) in find_methods(files).items()}
    if json_:
        sets = {name: list(tasks) for name, (_, _, _, tasks) in DATA.items()}
        print_json(
            {
                "data": sets,
                "methods": {name: list(method.tasks) for name, method in methods.items()},
            }
        )
        return
    table = Table("", "name", "tasks", "neighbours", "settings", box=None)
    for name, (_, _, _, tasks) in DATA.items():
        table.add_row("data", name, ", ".join(tasks), "", "")
    for name, method in methods.items():
        words = ", ".join(method.relations) or "not private"
        table.add_row("method", name, ", ".join(method.tasks), words, str(len(method.settings)))
    output_console().print(table)
