"""``dpconvex studio``: a local page to choose a budget, check a schema, read a ledger and verify models."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from dpconvex.cli.errors import reports_errors
from dpconvex.cli.fit import open_ledger
from dpconvex.cli.screen import console
from dpconvex.inputs.errors import InputError


def register_commands(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(studio)


@reports_errors
def studio(
    ledger: Annotated[Path | None, typer.Option(help="Ledger whose timeline is shown.")] = None,
    dataset: Annotated[str, typer.Option(help="Which budget of the ledger.")] = "default",
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1; a free one by default.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Open a local page to plan a fit: sliders for rows, columns and budget, forecasts, the attacker's odds.

    It reads no training rows, and nothing leaves this machine. Stop it with Ctrl-C.
    """
    if not 0 <= port <= 65535:
        raise InputError(f"The option --port must be from 0 to 65535. Got {port} instead.")
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise InputError("The studio needs a small server: install it with `pip install 'dpconvex[studio]'`.") from None
    from dpconvex.reports.studio import serve

    account = None if ledger is None else open_ledger(ledger, dataset)

    with tempfile.TemporaryDirectory(prefix="dpconvex-studio-") as folder:

        def opened(address: str) -> None:
            console().print(f"The studio is at {address}", markup=False, soft_wrap=True)
            console().print("The address works once. Stop with Ctrl-C.")
            if browser:
                import webbrowser

                webbrowser.open(page_that_leads_to(address, Path(folder)).as_uri())

        serve(account, port, opened)


def page_that_leads_to(address: str, folder: Path) -> Path:
    """Write a page for nobody else to read that leads to an address.

    What a browser is told to open stands on its command line, which everybody on the machine can read.
    """
    page = folder / "open.html"
    handle = os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        file.write(
            f'<!DOCTYPE html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={address}">'
            f'<title>dpconvex studio</title><a href="{address}">dpconvex studio</a>'
        )
    return page
