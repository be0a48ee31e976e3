"""Where results, progress and JSON are shown."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import typer

from dpconvex.reports.printable import visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
    from rich.segment import Segment

NARROWEST = 100


def console() -> Console:
    """Return the console for results; wide enough for a table when nobody watches.

    Whatever is printed may come from a file of a stranger: signs that command a terminal are spelled out.
    """
    from rich.console import Console

    screen = Console(highlight=False)
    screen = screen if screen.is_terminal else Console(highlight=False, width=NARROWEST)
    screen.push_render_hook(cast("RenderHook", _VisibleOnly()))
    return screen


class _VisibleOnly:
    """What rich asks about everything that it is about to print."""

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Visible(part) for part in renderables]


@dataclass(frozen=True)
class _Visible:
    """Something to print, without signs that command a terminal."""

    content: ConsoleRenderable

    def __rich_console__(self, screen: Console, options: ConsoleOptions) -> Iterator[Segment]:
        from rich.segment import Segment

        for text, style, control in screen.render(self.content, options):
            # Commands to the terminal that are rich's own stand apart.
            yield Segment(text if control else visible(text, "\n"), style, control)


@contextlib.contextmanager
def progress(message: str) -> Iterator[Callable[[str], None]]:
    """Show that something is under way, on stderr and only to people; public facts only.

    Gives a function that changes the message.
    """
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status(escape(visible(message))) as status:
        yield lambda changed: status.update(escape(visible(changed)))


def print_json(content: object) -> None:
    """Print a machine-readable result."""
    typer.echo(json.dumps(content, indent=2, sort_keys=True, allow_nan=False))
