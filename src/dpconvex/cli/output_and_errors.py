"""Output of commands: errors in one line, results on the screen, and files that are never lost once
they are paid for.

No error shows a data value, and every one after a charge says that the budget is spent. Exit codes:
0 done, 1 internal error, 2 wrong options, input or output, 3 refused by the privacy budget, 4 a
model file or certificate that does not verify, 130 interrupted, 141 output that nobody read.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import json
import os
import re
import secrets
import signal
import sys
import tempfile
import threading
import tomllib
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import typer

from dpconvex.inputs import InputError
from dpconvex.reports.printable import printable_text
from dpconvex.system.atomic_files import ReservedName, write_new_file
from dpconvex.system.charges import CHARGES, SPENT

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
UNREAD = 128 + 13  # as of a process that a closed pipe ends
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


class OutputError(Exception):
    """The standard output cannot be written: it is closed, full, or nobody reads it any more."""

    def __init__(self, reason: str, unread: bool = False) -> None:
        super().__init__(f"The standard output cannot be written: {reason}.")
        self.unread = unread


class CommandError(Exception):
    """A command failed; its line to print and its exit code are known."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def explain_error(error: BaseException) -> tuple[str, int]:
    """Return the line to print and the exit code for an error."""
    if isinstance(error, CommandError):
        return str(error), error.code
    if isinstance(error, (InputError, OutputError)):
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
    if isinstance(error, (ConvergenceError, ValueError, TypeError, LedgerError)):
        return str(error), INPUT
    if isinstance(error, (OverflowError, ZeroDivisionError)):
        return (
            "A number is too large or too small to compute with. Give budgets, bounds and "
            "settings nearer to 1.",
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
            if not _is_failure(error):
                raise
            if isinstance(error, OutputError) and error.unread:
                raise typer.Exit(UNREAD) from None  # as other tools end, without a word
            if os.environ.get(DEBUG):
                traceback.print_exception(error)
            message, code = explain_error(error)
            say(f"error: {one_line(error_in_options(message))}")
            raise typer.Exit(code) from None

    return run_reporting_errors


def _is_failure(error: BaseException) -> bool:
    """Whether a command failed with this; a panic of polars' compiled code is a BaseException of
    its own module.
    """
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def say(line: str) -> None:
    """Print a line on stderr; where that cannot be written, nobody can be told."""
    with contextlib.suppress(OSError, ValueError):
        typer.echo(line, err=True)


def error_in_options(message: str) -> str:
    """Return a message in the words of the command line: options instead of the parameters of
    Python.
    """

    def flag(name: str) -> str:
        return "--" + name.replace("_", "-")

    def value(text: str) -> str:
        return ",".join(part.strip(" '") for part in text.strip("[]").split(","))

    def option(found: re.Match[str]) -> str:
        name = found[1]
        if name not in OPTION_NAMES:
            return found[0]
        if found[2] in ("True", "False"):  # a switch, which takes no value
            return flag(name if found[2] == "True" else f"no_{name}")
        return f"{flag(name)} {value(found[2])}"

    message = _cut_message(message)
    message = _PARAMETER.sub(lambda found: f"The option {flag(found[1])}", message)
    message = message.replace("Without feature_bounds", "Without --feature-bounds")
    for pattern, words in _GUARANTEES.items():
        message = pattern.sub(words, message)
    return _SETTING.sub(
        option,
        message,
    )


def _cut_message(message: str, most: int = _LONGEST_MESSAGE) -> str:
    """Return a message cut to a length that people read."""
    return message if len(message) <= most else message[:most] + " ..."


def one_line(message: str) -> str:
    """Return printable text on one line, cut to a length that people read."""
    return "".join(sign if sign.isprintable() else " " for sign in _cut_message(message))


def say_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning as one line, without the line of code that raised it."""
    say(f"warning: {one_line(error_in_options(str(message)))}")


class _StandardOutput:
    """The standard output of the moment; its errors cannot be taken for those of files."""

    def write(self, text: str) -> int:
        with self._telling():
            written: int = self._stream().write(text)
        return written

    def flush(self) -> None:
        with self._telling():
            self._stream().flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream(), name)

    @staticmethod
    def _stream() -> Any:
        if sys.stdout is None:  # as Python makes of a closed one
            raise OutputError("it is closed")
        return sys.stdout

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError) as error:  # the latter of one that was closed meanwhile
            if isinstance(error, UnicodeError):
                raise
            raise _output_error(error) from None


_OUTPUT = _StandardOutput()


def _output_error(error: OSError | ValueError) -> OutputError:
    _forget_output()
    reason = getattr(error, "strerror", None) or "it is closed"
    return OutputError(reason, getattr(error, "errno", None) == errno.EPIPE)


def end_without_output(error: OSError) -> int:
    """Say that the standard output cannot be written, if somebody would read it, and return the
    exit code.
    """
    told = _output_error(error)
    if told.unread:
        return UNREAD
    say(f"error: {told}")
    return INPUT


def _forget_output() -> None:
    """Let what is left in the buffer of the standard output go nowhere: Python writes it once more
    when it ends, and would end with another exit code.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError, io.UnsupportedOperation):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def print_text(text: str, end: str = "\n") -> None:
    """Print a result as it is."""
    _OUTPUT.write(f"{text}{end}")
    _OUTPUT.flush()


def output_console() -> Console:
    """Return the console for results, wide enough for a table when nobody watches."""
    # Text may come from a stranger's file: signs that command a terminal are spelled out.
    from rich.console import Console

    stream = cast("IO[str]", _OUTPUT)
    screen = Console(highlight=False, file=stream)
    if not screen.is_terminal:
        screen = Console(highlight=False, file=stream, width=NARROWEST)
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


class _Bystander:
    """The standard error of the moment, for progress: no work fails because nobody can watch it."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)


@contextlib.contextmanager
def output_progress(message: str) -> Iterator[Callable[[str], None]]:
    """Show a message while something runs, on stderr and only to people, and yield a function
    that changes it.
    """
    from rich.console import Console
    from rich.markup import escape

    stream = cast("IO[str]", _Bystander())
    with Console(stderr=True, file=stream).status(escape(printable_text(message))) as status:
        yield lambda changed: status.update(escape(printable_text(changed)))


def print_json(content: object) -> None:
    """Print a machine-readable result."""
    print_text(json_text(content))


def json_text(content: object) -> str:
    """Return a machine-readable result."""
    return json.dumps(content, indent=2, sort_keys=True, allow_nan=False)


@contextlib.contextmanager
def reserved_outputs(
    outputs: Mapping[str, Path | None],
    inputs: Mapping[str, Path | None],
    overwrite: bool = False,
) -> Iterator[dict[str, ReservedName]]:
    """Reserve the names of files for the block that makes them, or raise.

    A file that could not be written, that is needed, or that only a budget brings back (a model or
    a ledger) is refused; an earlier ``"model"`` is replaced on request. No other command of
    dpconvex can take a reserved name meanwhile.

    Yields
    ------
    dict of str to ReservedName
        What the outputs are written with, by their names in messages.
    """
    asked = {what: path for what, path in outputs.items() if path is not None}
    known = dict(inputs)
    for what, path in asked.items():
        _check_output_path(path, what, known)
        known[what] = path
    with contextlib.ExitStack() as names:
        reserved = {}
        for what, path in asked.items():
            reserved[what] = names.enter_context(ReservedName(path))
            if what == "model":
                _check_earlier_model(path, overwrite)
            else:
                _check_earlier_output(path, what)
        yield reserved


def _check_earlier_output(path: Path, what: str) -> None:
    """Raise if a file cannot be made again: a model or a ledger."""
    found = _paid_output(path)
    if found is not None:
        raise InputError(
            f"The {what} cannot be written to {str(path)!r}: {found} is there. Choose another name."
        )


def _check_earlier_model(path: Path, overwrite: bool) -> None:
    """Raise if there is something at a model's name; an earlier model was paid for, and is replaced
    on request only.
    """
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
    if path.name.startswith(".") and path.name.endswith(".reserved"):
        raise InputError(f"{problem}: such names are those of reservations. Choose another name.")
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


class PaidWork:
    """What a command has paid for, and where that is kept."""

    def __init__(self) -> None:
        self.before = CHARGES.granted
        self.begun = CHARGES.begun
        self.kept = ""  # a sentence that says where the result is, once there is one
        self.done = False  # whether the result is where it was asked for
        self.warned = False

    @property
    def charged(self) -> bool:
        """Whether the budget is spent."""
        return CHARGES.granted > self.before

    def words(self) -> str:
        """Return in a sentence or two what is charged and kept."""
        if self.charged:
            return f"{self.kept} {SPENT}".strip()
        if CHARGES.begun > self.begun:
            return "The budget may be spent: see `dpconvex ledger show`."
        return "Nothing was charged."


@contextlib.contextmanager
def paying() -> Iterator[PaidWork]:
    """Charge a budget in the block, and say in whatever ends it after the charge that it is spent.

    Where the result is done and nobody reads what is printed about it, nothing has failed. The
    first Ctrl-C after the charge is answered only: what is paid for would be lost.
    """
    if sys.stdout is None:
        raise InputError(
            "The standard output is closed, so that no result could be printed. Nothing was "
            "charged. Send it to a file, or to /dev/null."
        )
    work = PaidWork()
    try:
        with _signals_after_charge(work):
            yield work
    except KeyboardInterrupt:
        words = work.words()
        raise KeyboardInterrupt(words[:1].lower() + words[1:]) from None
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except BaseException as error:
        if not work.charged or not _is_failure(error):
            raise
        if isinstance(error, OutputError) and error.unread and work.done:
            say(f"note: nobody reads the standard output. {work.words()}")
            return
        message, code = explain_error(error)
        message = _cut_message(message.replace(SPENT, "").strip(), _LONGEST_MESSAGE // 2)
        raise CommandError(f"{message} {work.words()}", code) from error


@contextlib.contextmanager
def _signals_after_charge(work: PaidWork) -> Iterator[None]:
    """Let the first Ctrl-C after a charge be answered only, and requests to end say what is spent;
    signals that somebody else handles stay theirs.
    """

    def ask_again(*_: object) -> None:
        if not work.charged or work.warned:
            raise KeyboardInterrupt
        work.warned = True
        with contextlib.suppress(OSError):
            os.write(
                2,
                b"The budget is spent, so this goes on. Press Ctrl-C again to stop, and to lose "
                b"what is not written yet.\n",
            )

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    handlers: dict[int, tuple[Any, Any]] = {signal.SIGINT: (signal.default_int_handler, ask_again)}
    for name in ("SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            handlers[getattr(signal, name)] = (signal.SIG_DFL, stop)
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for number, (usual, handler) in handlers.items():
            if signal.getsignal(number) == usual:
                before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def save_paid_model(
    model: Fitted, schema: Schema, reserved: ReservedName, work: PaidWork, folders: list[Path]
) -> None:
    """Write a model to its reserved name; where that fails keep it elsewhere, and raise."""
    from dpconvex.models.model_file import model_file_content

    try:
        reserved.write(model_file_content(model, schema=schema))
        work.kept = f"The model is written to {reserved.target!r}."
        work.done = True
    except BaseException as error:  # whatever it is: the model is paid for
        name = Path(reserved.target).stem
        work.kept = keep_elsewhere(_model_anyhow(model, schema), "model", name, folders)
        if not _is_failure(error):
            raise
        named = isinstance(error, OSError) and error.filename == reserved.target
        why = f"{getattr(error, 'strerror', '')}." if named else explain_error(error)[0]
        raise InputError(f"The model could not be written to {reserved.target!r}. {why}") from error


def _model_anyhow(model: Any, schema: Schema) -> str:
    """Return a model as its file would be, or where that cannot be, the numbers that matter."""
    from dpconvex.models.model_file import model_text

    try:
        return model_text(model, schema=schema)
    except Exception:
        numbers = {name: getattr(model, name).tolist() for name in ("coef_", "intercept_")}
        return json.dumps({**numbers, "certificate": json.loads(model.certificate_.to_json())})


def keep_elsewhere(content: str, what: str, name: str, folders: Iterable[Path]) -> str:
    """Keep what is paid for in the first of these folders that takes it, or in that of temporary
    files, else print it; return a sentence that says where it is.
    """
    for folder in (*folders, Path(tempfile.gettempdir())):
        path = folder / f"{name}.unsaved-{secrets.token_hex(4)}.json"
        with contextlib.suppress(OSError):
            write_new_file(path, f"{content}\n".encode())
            return f"The {what} is kept in {str(path)!r} instead."
    try:
        print_text(content)
        return f"The {what} stands on the standard output instead: keep it."
    except OutputError:
        say(content)
        return f"The {what} stands above instead: keep it."
