"""Command line: each file has the commands of its name; `task_options` and `output_and_errors`
are shared.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import typer

from dpconvex.cli import (
    audit,
    bounds_split,
    demo_reproduce,
    fit,
    ledger,
    plan_studio,
    predict_score,
    verify_report,
)
from dpconvex.cli.output_and_errors import (
    Interrupted,
    end_without_output,
    say_warning,
)

app = typer.Typer(
    name="dpconvex",
    help="Private linear models you may publish. A fit reads what is public from a schema, never "
    "from the data.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",  # flows paragraphs, and shows [target] as it is
    pretty_exceptions_enable=False,  # a traceback can show data
)
for _command in (
    fit.fit,
    fit.certify,
    predict_score.predict,
    verify_report.verify,
    verify_report.report,
):
    app.command()(_command)
app.add_typer(bounds_split.bounds, name="bounds")
app.command()(bounds_split.split)
app.add_typer(ledger.ledger, name="ledger")
for _command in (plan_studio.plan, demo_reproduce.demo, audit.audit):
    app.command()(_command)
app.command(context_settings=demo_reproduce.UNREAD)(demo_reproduce.reproduce)
for _command in (predict_score.score, plan_studio.studio):
    app.command()(_command)


def main(arguments: list[str] | None = None) -> Any:
    """Run the ``dpconvex`` command line with these arguments, by default those of the process,
    and exit.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a column's name is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    with warnings.catch_warnings():
        warnings.showwarning = say_warning
        try:
            app(args=arguments)
        except Interrupted as stopped:
            raise KeyboardInterrupt(*stopped.args) from None
        except OSError as error:  # of the help, which is not printed by a command
            raise SystemExit(end_without_output(error)) from None


__all__ = ["app", "main"]
