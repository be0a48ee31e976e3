"""``dpconvex bounds init``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated

import typer

from dpconvex.cli.errors import reports_errors
from dpconvex.cli.fit import JsonOption
from dpconvex.cli.screen import print_json, progress
from dpconvex.inputs.errors import InputError
from dpconvex.inputs.files import read_types

_HEAD = """\
# Public bounds for private fits. Write what you know before you see the data: limits of the
# instrument, of the form, of the law. Bounds taken from the data are not private.
# Remove the '#' of the columns to use and fill in numbers or categories.
# A column of a CSV file is listed as numbers if every value of it is one: a single record can
# change that, and no budget covers it. Do not publish this template.
"""


def register_commands(app: typer.Typer) -> None:
    """Add the commands of this file."""
    group = typer.Typer(help="Work with bounds files.", no_args_is_help=True)
    group.command("init")(init)
    app.add_typer(group, name="bounds")


@reports_errors
def init(
    data: Annotated[Path, typer.Argument(help="CSV or Parquet file.")],
    target: Annotated[str | None, typer.Option(help="Column to learn.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the template; stdout by default.")
    ] = None,
    json_: JsonOption = False,
) -> None:
    """Write a template of a bounds file: names and types of the columns, never values.

    The type of a column of a CSV file depends on every value of it, and is not covered by any budget.
    """
    if out is not None and out.exists():
        raise InputError(f"{str(out)!r} exists already: bounds in it would be lost.")
    with progress(f"Reading names and types of {data.name}"):
        types = read_types(data)
    if target is not None and target not in types:
        raise InputError(f"The data file has no column {target!r}.")
    text = _template(types, target)
    if out is not None:
        out.write_text(text, encoding="utf-8")
    if json_:
        print_json({"columns": [{"name": name, "type": kind} for name, kind in types.items()]})
    elif out is None:
        typer.echo(text, nl=False)
    else:
        typer.echo(f"Written to {out}")


def _template(types: dict[str, str], target: str | None) -> str:
    def lines(kind: str, example: str) -> list[str]:
        return [
            f"# {_key(name)} = {example}"
            for name, found in types.items()
            if found == kind and name != target
        ]

    parts = [_HEAD, "[features]", *lines("number", "[low, high]"), "", "[target]"]
    if target is None:
        parts.append("# column = [low, high]")
    elif types[target] == "number":
        parts.append(f"# {_key(target)} = [low, high]")
    parts += ["", "[categories]", *lines("text", '["a", "b"]')]
    return "\n".join(parts) + "\n"


def _key(name: str) -> str:
    """Return a TOML key; names are printable, so JSON's escapes are TOML's."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
