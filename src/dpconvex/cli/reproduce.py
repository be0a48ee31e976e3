"""``dpconvex reproduce``: hands over to the distribution that runs the papers' tables and figures again."""

from __future__ import annotations

import importlib
import importlib.util

import typer

from dpconvex.cli.errors import reports_errors
from dpconvex.inputs.errors import InputError

# Found by name when the command is called, never imported: the library stands without it.
REPRODUCTION_PACKAGE = "dpconvex_reproduction"
# Every word is the other distribution's, `--help` too.
UNREAD = {
    "ignore_unknown_options": True,
    "allow_extra_args": True,
    "allow_interspersed_args": False,
    "help_option_names": [],
}


def register_commands(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command(context_settings=UNREAD)(reproduce)


@reports_errors
def reproduce(context: typer.Context) -> None:
    """Run the papers' tables and figures again; needs the distribution dpconvex-reproduction."""
    if importlib.util.find_spec(REPRODUCTION_PACKAGE) is None:
        raise InputError(
            "The papers' tables and figures are a distribution of their own, which is not installed. Install it with "
            "`pip install dpconvex-reproduction`, or from a clone of dpconvex with `pip install . ./reproduction`."
        )
    importlib.import_module(f"{REPRODUCTION_PACKAGE}.command").main(context.args)
