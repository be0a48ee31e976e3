"""Where results, progress and JSON are shown."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

NARROWEST = 100


def console() -> Console:
    """Return the console for results; wide enough for a table when nobody watches."""
    from rich.console import Console

    screen = Console(highlight=False)
    return screen if screen.is_terminal else Console(highlight=False, width=NARROWEST)


@contextlib.contextmanager
def progress(message: str) -> Iterator[Callable[[str], None]]:
    """Show that something is under way, on stderr and only to people; public facts only.

    Gives a function that changes the message.
    """
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(message)) as status:
        yield lambda changed: status.update(escape(changed))


def print_json(content: object) -> None:
    """Print a machine-readable result."""
    typer.echo(json.dumps(content, indent=2, sort_keys=True, allow_nan=False))
