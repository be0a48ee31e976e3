"""The command line: one file per group of commands."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import typer

from dpconvex.cli import audit, bounds, budget, demo, fit, models, plan, reproduce, score, split, studio
from dpconvex.cli.errors import Interrupted, say_warning

app = typer.Typer(
    name="dpconvex",
    help="Private linear models you may publish. A fit reads what is public from a schema, never from the data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",  # flows paragraphs, and shows [target] as it is
    pretty_exceptions_enable=False,  # a traceback can show data
)
fit.register_commands(app)
models.register_commands(app)
bounds.register_commands(app)
split.register_commands(app)
budget.register_commands(app)
plan.register_commands(app)
demo.register_commands(app)
audit.register_commands(app)
reproduce.register_commands(app)
score.register_commands(app)
studio.register_commands(app)


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line and exit.

    Parameters
    ----------
    arguments : list of str, optional
        Taken from the process by default.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a name of a column is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.showwarning = say_warning
        try:
            app(args=arguments)
        except Interrupted:
            raise KeyboardInterrupt from None


__all__ = ["app", "main"]
