"""``dpconvex ledger``: create a privacy budget, see what is left of it, and check its file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpconvex.cli.errors import reports_errors
from dpconvex.cli.fit import JsonOption, open_ledger
from dpconvex.cli.options import number_option
from dpconvex.cli.screen import console, print_json
from dpconvex.inputs.errors import InputError

if TYPE_CHECKING:
    from dpconvex.privacy.ledger.ledger import Ledger

PathArgument = Annotated[Path, typer.Argument(help="The ledger's SQLite file.")]
DatasetOption = Annotated[str, typer.Option(help="Which budget of the file.")]


def register_commands(app: typer.Typer) -> None:
    """Add the commands of this file."""
    group = typer.Typer(help="Privacy budgets of data sets.", no_args_is_help=True)
    group.command("init")(init)
    group.command("show")(show)
    group.command("check")(check)
    group.command("head")(head)
    app.add_typer(group, name="ledger")


@reports_errors
def init(
    path: PathArgument,
    epsilon: Annotated[float | None, number_option("The whole budget.")] = None,
    delta: Annotated[float | None, number_option("The whole delta; 1e-6 by default, 0 for pure budgets.")] = None,
    mu: Annotated[float | None, number_option("The whole budget in Gaussian DP.")] = None,
    composition: Annotated[
        str | None, typer.Option(help="`sums` adds the epsilon and delta that each release states.")
    ] = None,
    dataset: DatasetOption = "default",
    json_: JsonOption = False,
) -> None:
    """Create the privacy budget of a data set: --epsilon and --delta, or --mu."""
    if epsilon is None and mu is None:
        raise InputError("A budget needs --epsilon (and --delta), or --mu.")
    from dpconvex.privacy.ledger.ledger import Ledger

    _report(Ledger(path, dataset, epsilon, delta, mu, composition=composition), json_)


@reports_errors
def show(path: PathArgument, dataset: DatasetOption = "default", json_: JsonOption = False) -> None:
    """List what a budget was spent on, and what is left."""
    _report(open_ledger(path, dataset), json_)


@reports_errors
def check(
    path: PathArgument,
    head: Annotated[str | None, typer.Option(help="What `ledger head` printed earlier and you kept elsewhere.")] = None,
    dataset: DatasetOption = "default",
    json_: JsonOption = False,
) -> None:
    """Check every record and total of the file.

    A charge checks the newest ones only. With --head, removed charges and older copies are found too.
    """
    newest = open_ledger(path, dataset).check(head)
    if json_:
        print_json({"intact": True, "head": newest})
    else:
        typer.echo(f"Intact: {newest}")


@reports_errors
def head(path: PathArgument, dataset: DatasetOption = "default") -> None:
    """Print the number and hash of the newest record, to publish or to keep elsewhere."""
    typer.echo(open_ledger(path, dataset).head())


def _report(ledger: Ledger, json_: bool) -> None:
    entries, remaining = ledger.entries(), ledger.remaining()
    if json_:
        charges = [{**vars(entry), "guarantee": entry.guarantee.to_dict()} for entry in entries]
        print_json({"dataset": ledger.dataset, "remaining": asdict(remaining), "entries": charges})
        return
    from rich.markup import escape
    from rich.table import Table

    from dpconvex.reports.terminal import guarantee_in_words

    table = Table(title=escape(f"Budget of '{ledger.dataset}'"))
    for head in ("charge", "time", "guarantee", "mechanism", "description"):
        table.add_column(head)
    for entry in entries:
        table.add_row(
            str(entry.number),
            entry.time[:19],
            guarantee_in_words(entry.guarantee),
            escape(entry.mechanism),
            escape(entry.description),
        )
    screen = console()
    if entries:
        screen.print(table)
    screen.print(f"Budget of '{ledger.dataset}': {remaining}.", markup=False)
