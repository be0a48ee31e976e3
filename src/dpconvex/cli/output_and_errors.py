"""Output of commands: errors in one line, results on the screen, and files that are never lost once
they are paid for.

No error shows a data value. Exit codes: 0 done, 1 internal error, 2 wrong options or input, 3
refused by the privacy budget, 4 a model file or certificate that does not verify, 130 interrupted.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import typer

from dpconvex.inputs import InputError
from dpconvex.reports.printable import printable_text

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
    from rich.segment import Segment
    from rich.table import Table

    from dpconvex.inputs.schema import Schema
    from dpconvex.inputs.settings import Fitted

INTERNAL = 1
INPUT = 2
BUDGET = 3
VERIFICATION = 4
DEBUG = "DPCONVEX_DEBUG"
NARROWEST = 100
_LARGEST_MODEL = 64 * 2**20
_LONGEST_MESSAGE = 1000  # signs that people read
_GUARANTEES = {
    re.compile(r"\bApproxDP\(epsilon=([^,)]+), delta=([^)]+)\)"): r"epsilon \1 and delta \2",
    re.compile(r"\bPureDP\(epsilon=([^)]+)\)"): r"a pure epsilon of \1",
    re.compile(r"\bGaussianDP\(mu=([^)]+)\)"): r"mu \1",
}
_PARAMETER = re.compile(r"[Tt]he '(\w+)' parameter of \w+(?:\.\w+)?")
# classes=[0, 1], neighbors='add_or_remove_one', delta=0, but not what stands inside ApproxDP(...)
_SETTING = re.compile(r"\b[A-Z]\w*\([^)]*\)|\b([a-z]+(?:_[a-z]+)*)=('[^']*'|\[[^\]]*\]|[\w.]*\w)")
# Parameters that are options too; `options` adds those of models.
OPTION_NAMES = {"n_samples", "n_features", "n_classes"}


class Interrupted(BaseException):
    """The user stopped a command; its own class, because click makes another line and exit code of
    the usual one.

    Its words, if any, say what is left of the work of a command that reads no ledger.
    """


def explain_error(error: BaseException) -> tuple[str, int]:
    """Return the line to print and the exit code for an error."""
    if isinstance(error, InputError):
        return str(error), INPUT
    # Only now: what raises these has loaded them, and a wrong option should be refused at once.
    from dpconvex.core.certificate import CertificateError
    from dpconvex.models.model_file import ModelFileError
    from dpconvex.privacy.ledger import BudgetExceeded
    from dpconvex.privacy.ledger_file import LedgerError
    from dpconvex.solvers.certified_descent import ConvergenceError

    if isinstance(error, BudgetExceeded):
        return str(error), BUDGET
    if isinstance(error, (ModelFileError, CertificateError)):
        return str(error), VERIFICATION
    if isinstance(error, tomllib.TOMLDecodeError):
        return "The schema is not valid TOML.", INPUT
    if isinstance(error, UnicodeError):
        return "The file must be text in UTF-8.", INPUT
    if isinstance(error, OSError):
        reason = error.strerror or type(error).__name__
        return f"{error.filename}: {reason}." if error.filename else f"{reason}.", INPUT
    if isinstance(error, ConvergenceError):
        return f"{error} A ledger was charged if one was given.", INPUT
    if isinstance(error, (ValueError, TypeError, LedgerError)):
        return str(error), INPUT
    if isinstance(error, (OverflowError, ZeroDivisionError)):
        return (
            "A number is too large or too small to compute with. Give budgets, bounds and "
            "settings nearer to 1; a ledger was charged if the fit had begun.",
            INPUT,
        )
    if isinstance(error, MemoryError):
        return "There is not enough memory.", INPUT
    return (
        f"internal error ({type(error).__name__}), please report it. Set {DEBUG}=1 for a "
        "traceback, which may show data.",
        INTERNAL,
    )


def reports_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Make a command end with one line on stderr and an exit code instead of a traceback."""

    @functools.wraps(command)
    def run_reporting_errors(*args: Any, **options: Any) -> Any:
        try:
            return command(*args, **options)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt as stopped:
            raise Interrupted(*stopped.args) from None
        except BaseException as error:
            # A panic of polars' compiled code is a BaseException of its own module.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            if os.environ.get(DEBUG):
                traceback.print_exception(error)
            message, code = explain_error(error)
            typer.echo(f"error: {one_line(error_in_options(message))}", err=True)
            raise typer.Exit(code) from None

    return run_reporting_errors


def error_in_options(message: str) -> str:
    """Return a message in the words of the command line: options instead of the parameters of
    Python.
    """

    def flag(name: str) -> str:
        return "--" + name.replace("_", "-")

    def value(text: str) -> str:
        return ",".join(part.strip(" '") for part in text.strip("[]").split(","))

    message = _cut_message(message)
    message = _PARAMETER.sub(lambda found: f"The option {flag(found[1])}", message)
    message = message.replace("Without feature_bounds", "Without --feature-bounds")
    for pattern, words in _GUARANTEES.items():
        message = pattern.sub(words, message)
    return _SETTING.sub(
        lambda found: (
            f"{flag(found[1])} {value(found[2])}" if found[1] in OPTION_NAMES else found[0]
        ),
        message,
    )


def _cut_message(message: str) -> str:
    """Return a message cut to a length that people read."""
    return message if len(message) <= _LONGEST_MESSAGE else message[:_LONGEST_MESSAGE] + " ..."


def one_line(message: str) -> str:
    """Return printable text on one line, cut to a length that people read."""
    return "".join(sign if sign.isprintable() else " " for sign in _cut_message(message))


def say_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without the line of code that raised it."""
    typer.echo(f"warning: {one_line(error_in_options(str(message)))}", err=True)


def output_console() -> Console:
    """Return the console for results, wide enough for a table when nobody watches."""
    # Text may come from a stranger's file: signs that command a terminal are spelled out.
    from rich.console import Console

    screen = Console(highlight=False)
    screen = screen if screen.is_terminal else Console(highlight=False, width=NARROWEST)
    screen.push_render_hook(cast("RenderHook", _VisibleOutputHook()))
    return screen


class _VisibleOutputHook:
    """Hook of rich that wraps whatever is printed."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_VisibleOutput(part) for part in renderables]


@dataclass(frozen=True)
class _VisibleOutput:
    """Something to print, without signs that command a terminal."""

    content: ConsoleRenderable

    def __rich_console__(self, screen: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        for text, style, control in screen.render(self.content, options):
            # Rich's own commands to the terminal are marked as such.
            yield Segment(text if control else printable_text(text, "\n"), style, control)


def output_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None, left: int = 1
) -> Table:
    """Return a table for a terminal whose first columns are text, the others numbers."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=None if title is None else escape(title))
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number < left else "right")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


@contextlib.contextmanager
def output_progress(message: str) -> Iterator[Callable[[str], None]]:
    """Show a message while something runs, on stderr and only to people, and yield a function
    that changes it.
    """
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(printable_text(message))) as status:
        yield lambda changed: status.update(escape(printable_text(changed)))


def print_json(content: object) -> None:
    """Print a machine-readable result."""
    typer.echo(json.dumps(content, indent=2, sort_keys=True, allow_nan=False))


def check_output(path: Path, what: str, inputs: Mapping[str, Path | None] | None = None) -> None:
    """Raise if a file could not be written, is one that is needed, or cannot be made again: a
    model or a ledger.
    """
    _check_output_path(path, what, inputs or {})
    found = _paid_output(path)
    if found is not None:
        raise InputError(
            f"The {what} cannot be written to {str(path)!r}: {found} is there. Choose another name."
        )


def check_model_output(path: Path, inputs: Mapping[str, Path | None], overwrite: bool) -> None:
    """Raise if a model could not be written; an earlier one was paid for, and is replaced on
    request only.
    """
    _check_output_path(path, "model", inputs)
    if not path.exists():
        return
    found = _paid_output(path)
    if found != "a model":
        found = found or "a file that is no model"
        raise InputError(
            f"The model cannot be written to {str(path)!r}: {found} is there. Choose another name."
        )
    if not overwrite:
        raise InputError(
            f"There is a model at {str(path)!r} already, which a budget may have paid for. Choose "
            "another name, or replace it with --overwrite."
        )


def ledger_files(path: Path | None) -> dict[str, Path | None]:
    """Return the files of a ledger: SQLite removes whatever has the name of its journal."""
    journal = None if path is None else path.with_name(f"{path.name}-journal")
    return {"ledger": path, "ledger's journal": journal}


def _check_output_path(path: Path, what: str, inputs: Mapping[str, Path | None]) -> None:
    """Raise if a path cannot be written, is one of the inputs, or is a link or a device."""
    folder = path.parent
    problem = f"The {what} cannot be written to {str(path)!r}"
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"{problem}.")
    for name, other in inputs.items():
        if other is None:
            continue
        # A pattern of files stands for all of them.
        files = [other] if other.exists() else [other, *map(Path, glob(str(other), recursive=True))]
        there = [file for file in files if path.exists() and file.exists()]
        if path.resolve() in (file.resolve() for file in files) or any(map(path.samefile, there)):
            raise InputError(f"{problem}: the {name} is there. Choose another name.")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise InputError(f"{problem}: a link or a device is there. Choose another name.")


def _paid_output(path: Path) -> str | None:
    """Return in words what a file holds that only a budget can bring back; None if there is
    nothing like that.
    """
    if not path.is_file():
        return None
    with path.open("rb") as file:
        content = file.read(_LARGEST_MODEL + 1)
    if content.startswith(b"SQLite format 3\0"):
        return "a ledger, or another database,"
    if len(content) > _LARGEST_MODEL or not content.lstrip().startswith(b"{"):
        return None
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        return None
    known = str(found.get("format")).startswith(("dpconvex-model-", "dpconvex-intervals-"))
    return "a model" if known else None


def print_unsaved_output(model: Fitted, schema: Schema, path: Path, error: Exception) -> NoReturn:
    """Print a model that could not be written, since it is paid for, and end with an error that
    says so.
    """
    from dpconvex.models.model_file import model_text

    typer.echo(model_text(model, schema=schema))
    raise InputError(
        f"The model could not be written to {str(path)!r}. {explain_error(error)[0]} The budget "
        "is spent. The model stands on the standard output instead, as its file would: keep it."
    ) from error
