"""One place that turns what goes wrong into one line and an exit code, without a data value.

Exit codes: 0 done, 1 internal error, 2 wrong options or input, 3 refused by the privacy budget,
4 a model file or certificate that does not verify, 130 interrupted.
"""

from __future__ import annotations

import functools
import os
import re
import tomllib
import traceback
from collections.abc import Callable
from typing import Any

import typer

from dpconvex.inputs.errors import InputError

INTERNAL, INPUT, BUDGET, VERIFICATION = 1, 2, 3, 4
DEBUG = "DPCONVEX_DEBUG"


class Interrupted(BaseException):
    """The user stopped a command; its own class, because click makes another line and exit code of the usual one."""


def explain(error: BaseException) -> tuple[str, int]:
    """Return the line to print and the exit code for an error."""
    if isinstance(error, InputError):
        return str(error), INPUT
    # Only now: what raises these has loaded them, and a wrong option should be refused at once.
    from dpconvex.models.parsing import ModelFileError
    from dpconvex.privacy.certificates.rules import CertificateError
    from dpconvex.privacy.ledger.chain import LedgerError
    from dpconvex.privacy.ledger.ledger import BudgetExceeded
    from dpconvex.solvers.solution import ConvergenceError

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
            "A number is too large or too small to compute with. Give budgets, bounds and settings nearer to 1; a "
            "ledger was charged if the fit had begun.",
            INPUT,
        )
    if isinstance(error, MemoryError):
        return "There is not enough memory.", INPUT
    return (
        f"internal error ({type(error).__name__}), please report it. Set {DEBUG}=1 for a traceback, "
        "which may show data.",
        INTERNAL,
    )


def reports_errors(command: Callable[..., Any]) -> Callable[..., Any]:
    """Make a command end with one line on stderr and an exit code instead of a traceback."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> Any:
        try:
            return command(*args, **options)
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except KeyboardInterrupt:
            raise Interrupted from None
        except (Exception, RecursionError) as error:
            exit_with_error(error)
        except BaseException as error:
            # A panic of polars' compiled code is a BaseException of its own module.
            if type(error).__name__ != "PanicException":
                raise
            exit_with_error(error)

    return run


def exit_with_error(error: BaseException) -> None:
    """Print one line and exit."""
    if os.environ.get(DEBUG):
        traceback.print_exception(error)
    message, code = explain(error)
    typer.echo(f"error: {one_line(in_options(message))}", err=True)
    raise typer.Exit(code) from None


def in_options(message: str) -> str:
    """Return a message in the words of the command line: options instead of the parameters of Python."""

    def flag(name: str) -> str:
        return "--" + name.replace("_", "-")

    message = re.sub(
        r"[Tt]he '(\w+)' parameter of \w+(?:\.\w+)?", lambda found: f"The option {flag(found[1])}", message
    )
    message = re.sub(r"\bWithout feature_bounds\b", "Without --feature-bounds", message)
    for kind, words in _GUARANTEES.items():
        message = re.sub(kind, words, message)
    # classes=[0, 1], neighbors='add_or_remove_one', delta=0, but not what stands inside ApproxDP(...)
    return re.sub(
        r"\b[A-Z]\w*\([^)]*\)|\b([a-z]+(?:_[a-z]+)*)=('[^']*'|\[[^\]]*\]|[\w.]*\w)",
        lambda found: f"{flag(found[1])} {_plain(found[2])}" if found[1] in OPTION_NAMES else found[0],
        message,
    )


_GUARANTEES = {
    r"\bApproxDP\(epsilon=([^,)]+), delta=([^)]+)\)": r"epsilon \1 and delta \2",
    r"\bPureDP\(epsilon=([^)]+)\)": r"a pure epsilon of \1",
    r"\bGaussianDP\(mu=([^)]+)\)": r"mu \1",
}
# Filled with all options by the file that has them.
OPTION_NAMES = {"n_samples", "n_features", "n_classes"}


def _plain(value: str) -> str:
    return ",".join(part.strip(" '") for part in value.strip("[]").split(","))


def one_line(message: str) -> str:
    """Return printable text on one line, cut to a length that people read."""
    plain = "".join(sign if sign.isprintable() else " " for sign in message)
    return plain if len(plain) <= 1000 else plain[:1000] + " ..."


def say_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without the line of code that raised it."""
    typer.echo(f"warning: {one_line(in_options(str(message)))}", err=True)
