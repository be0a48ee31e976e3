"""``dpconvex ledger``: create a privacy budget, see what is left of it, and check its file."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpconvex.cli.output_and_errors import (
    output_console,
    output_table,
    print_json,
    print_text,
    reports_errors,
)
from dpconvex.cli.task_options import DatasetOption, JsonOption, number_option, text_option
from dpconvex.inputs import InputError

if TYPE_CHECKING:
    from dpconvex.privacy.ledger import Ledger

PathArgument = Annotated[Path, typer.Argument(help="The ledger's SQLite file.")]

ledger = typer.Typer(help="Privacy budgets of data sets.", no_args_is_help=True)


def open_ledger(path: Path, dataset: str) -> Ledger:
    """Return an existing budget."""
    if not os.path.lexists(path):
        raise InputError(
            f"There is no ledger at {str(path)!r}. Create it with `dpconvex ledger init {path} "
            "--epsilon 1`."
        )
    from dpconvex.privacy.ledger import Ledger

    return Ledger(path, dataset)


def remaining_budget(account: Ledger) -> str:
    """Return a sentence about what is left after a charge, which stands however that goes."""
    from dpconvex.privacy.ledger_file import LedgerError

    try:
        return f"Ledger: {account.remaining()}."
    except LedgerError:
        return (
            "Ledger: the charge is on record, and what is left cannot be read now. See `dpconvex "
            "ledger show`."
        )


@ledger.command()
@reports_errors
def init(
    path: PathArgument,
    epsilon: Annotated[float | None, number_option("The whole budget.")] = None,
    delta: Annotated[
        float | None, number_option("The whole delta; 1e-6 by default, 0 for pure budgets.")
    ] = None,
    mu: Annotated[float | None, number_option("The whole budget in Gaussian DP.")] = None,
    composition: Annotated[
        str | None, text_option("`sums` adds the stated epsilons and deltas.")
    ] = None,
    dataset: DatasetOption = "default",
    json_: JsonOption = False,
) -> None:
    """Create a ledger, the privacy budget of a data set: --epsilon and --delta, or --mu."""
    if epsilon is None and mu is None:
        raise InputError("A budget needs --epsilon (and --delta), or --mu.")
    from dpconvex.privacy.ledger import Ledger

    _print_ledger_charges(Ledger(path, dataset, epsilon, delta, mu, composition=composition), json_)


@ledger.command()
@reports_errors
def show(path: PathArgument, dataset: DatasetOption = "default", json_: JsonOption = False) -> None:
    """List what a budget was spent on, and what is left."""
    _print_ledger_charges(open_ledger(path, dataset), json_)


@ledger.command()
@reports_errors
def check(
    path: PathArgument,
    head: Annotated[
        str | None, typer.Option(help="What `ledger head` printed earlier and you kept elsewhere.")
    ] = None,
    dataset: DatasetOption = "default",
    json_: JsonOption = False,
) -> None:
    """Check every record and total of the ledger.

    A charge checks the newest ones only. With --head, removed charges and older copies are found
    too.
    """
    newest = open_ledger(path, dataset).check(head)
    if json_:
        print_json({"intact": True, "head": newest})
    else:
        print_text(f"Intact: {newest}")


@ledger.command()
@reports_errors
def head(path: PathArgument, dataset: DatasetOption = "default", json_: JsonOption = False) -> None:
    """Print the number and hash of the newest record, to publish or to keep elsewhere."""
    newest = open_ledger(path, dataset).head()
    if json_:
        print_json({"head": newest})
    else:
        print_text(newest)


def _print_ledger_charges(account: Ledger, json_: bool) -> None:
    entries = account.entries()
    remaining = account.remaining()
    if json_:
        charges = [{**vars(entry), "guarantee": entry.guarantee.to_dict()} for entry in entries]
        print_json({"dataset": account.dataset, "remaining": asdict(remaining), "entries": charges})
        return
    from dpconvex.reports.wording import guarantee_wording

    rows = [
        (
            str(entry.number),
            entry.time[:19],
            guarantee_wording(entry.guarantee),
            entry.mechanism,
            entry.description,
        )
        for entry in entries
    ]
    screen = output_console()
    heads = ("charge", "time", "guarantee", "mechanism", "description")
    if entries:
        screen.print(output_table(heads, rows, f"Budget of '{account.dataset}'", left=5))
    screen.print(f"Budget of '{account.dataset}': {remaining}.", markup=False)
