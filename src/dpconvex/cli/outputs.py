"""Outputs of commands: checked before anything is read or charged, and never lost once they are paid for."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from glob import glob
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from dpconvex.cli.errors import explain
from dpconvex.inputs.errors import InputError

if TYPE_CHECKING:
    from dpconvex.inputs.estimator_protocols import Fitted
    from dpconvex.inputs.schema import Schema

__all__ = ["check_model_output", "check_output", "ledger_files", "print_unsaved"]

_LARGEST_MODEL = 64 * 2**20


def check_output(path: Path, what: str, inputs: Mapping[str, Path | None] | None = None) -> None:
    """Raise if a file could not be written, is one that is needed, or cannot be made again: a model or a ledger."""
    _check_place(path, what, inputs or {})
    found = _paid_content(path)
    if found is not None:
        raise InputError(f"The {what} cannot be written to {str(path)!r}: {found} is there. Choose another name.")


def check_model_output(path: Path, inputs: Mapping[str, Path | None], overwrite: bool) -> None:
    """Raise if a model could not be written; an earlier one was paid for, and is replaced on request only."""
    _check_place(path, "model", inputs)
    if not path.exists():
        return
    found = _paid_content(path)
    if found != "a model":
        found = found or "a file that is no model"
        raise InputError(f"The model cannot be written to {str(path)!r}: {found} is there. Choose another name.")
    if not overwrite:
        raise InputError(
            f"There is a model at {str(path)!r} already, which a budget may have paid for. Choose another name, or "
            "replace it with --overwrite."
        )


def ledger_files(path: Path | None) -> dict[str, Path | None]:
    """Return the files of a ledger: SQLite removes whatever has the name of its journal."""
    journal = None if path is None else path.with_name(f"{path.name}-journal")
    return {"ledger": path, "ledger's journal": journal}


def _check_place(path: Path, what: str, inputs: Mapping[str, Path | None]) -> None:
    folder = path.parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InputError(f"The {what} cannot be written to {str(path)!r}.")
    for name, other in inputs.items():
        if other is None:
            continue
        # A pattern of files stands for all of them.
        files = [other] if other.exists() else [other, *map(Path, glob(str(other), recursive=True))]
        if any(_same_file(path, file) for file in files):
            raise InputError(
                f"The {what} cannot be written to {str(path)!r}: the {name} is there. Choose another name."
            )
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise InputError(
            f"The {what} cannot be written to {str(path)!r}: a link or a device is there. Choose another name."
        )


def _same_file(first: Path, second: Path) -> bool:
    if first.resolve() == second.resolve():
        return True
    return first.exists() and second.exists() and first.samefile(second)


def _paid_content(path: Path) -> str | None:
    """Return what a file holds that only a budget can bring back, in words; None if there is nothing like that."""
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


def print_unsaved(model: Fitted, schema: Schema, path: Path, error: Exception) -> NoReturn:
    """Print a model that could not be written, since it is paid for, and end with an error that says so."""
    from dpconvex.models.file import model_text

    typer.echo(model_text(model, schema=schema))
    raise InputError(
        f"The model could not be written to {str(path)!r}. {explain(error)[0]} The budget is spent. The model stands "
        "on the standard output instead, as its file would: keep it."
    ) from error
