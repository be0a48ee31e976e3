"""``dpconvex bounds init`` and ``dpconvex bounds check``."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpconvex.cli.errors import reports_errors
from dpconvex.cli.fit import (
    SCHEMA,
    SCHEMA_HELP,
    DelimiterOption,
    EncodingOption,
    JsonOption,
    LineBreaksOption,
    with_file_options,
)
from dpconvex.cli.screen import console, print_json, progress
from dpconvex.inputs.errors import InputError
from dpconvex.inputs.schema import FileFormat
from dpconvex.inputs.schema_parsing import check_delimiter, check_encoding, read_schema
from dpconvex.whole_files import write_whole

if TYPE_CHECKING:
    from dpconvex.inputs.column_kinds import Seen
    from dpconvex.inputs.schema_check import SchemaCheck

_HEAD = """\
# Schema for private fits: what is public about the table. Write what you know before you see the
# data: limits of the instrument, of the form, of the law. Bounds and categories taken from the data
# are not private.
# Remove the '#' of the columns to use and write numbers for low and high, and words for "a" and "b";
# a column that is not named is not used. missing = "indicator" gives a column more, missing =
# {value = ...} puts a public value in its place, missing = "row" makes the row invalid (see
# --invalid-rows).
# To sort the columns, every value of the file was looked at: a single record can move a column to
# another table, and no budget covers that. No value is shown. Do not publish this template.
# Filled in, `dpconvex bounds check` counts what it cannot read, before a fit is paid for.
"""

_TABLES = {
    "features": ("number", '{bounds = [low, high], missing = "indicator"}'),
    "flags": ("flag", '{missing = "indicator"}'),
    "categories": ("text", '{values = ["a", "b"], other = true}'),
    "dates": ("date", '{parts = ["weekday", "month"], missing = "indicator"}'),
}
_NAMES = (
    "# Nearly as many words or whole numbers as rows, identifiers or remarks: for [person], or not\n"
    "# used. Amounts belong to [features]."
)
_CODES = "# Few different whole numbers: categories if they are codes, [features] if they are amounts."


def register_commands(app: typer.Typer) -> None:
    """Add the commands of this file."""
    group = typer.Typer(help="Work with schemas: bounds, categories, dates.", no_args_is_help=True)
    group.command("init")(init)
    group.command("check")(check)
    app.add_typer(group, name="bounds")


@reports_errors
def init(
    data: Annotated[Path, typer.Argument(help="CSV (also .gz or .zip) or Parquet file.")],
    target: Annotated[str | None, typer.Option(help="Column to learn.")] = None,
    out: Annotated[Path | None, typer.Option(help="Where to write the template; stdout by default.")] = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    line_breaks: LineBreaksOption = False,
    json_: JsonOption = False,
) -> None:
    """Write a template of a schema: names of the columns and what they seem to hold, never values.

    What a column seems to hold depends on every value of it, and is not covered by any budget.
    """
    if out is not None and out.exists():
        raise InputError(f"{str(out)!r} exists already: what is in it would be lost.")
    file = FileFormat(
        None if delimiter is None else check_delimiter(delimiter),
        None if encoding is None else check_encoding(encoding),
        line_breaks=line_breaks,
    )
    from dpconvex.inputs.column_kinds import read_kinds

    with progress(f"Reading names and kinds of columns of {data.name}"):
        kinds, lines = read_kinds(data, file)
    for line in lines:
        typer.echo(f"note, for your eyes only: {line}", err=True)
    if target is not None and target not in kinds:
        raise InputError(f"The data file has no column {target!r}.")
    text = template(kinds, target, file)
    if out is not None:
        write_whole(out, text.encode())
    if json_:
        print_json({"columns": [{"name": name, "type": seen.kind} for name, seen in kinds.items()]})
    elif out is None:
        typer.echo(text, nl=False)
    else:
        typer.echo(f"Written to {out}")


@reports_errors
def check(
    data: Annotated[Path, typer.Argument(help="CSV (also .gz or .zip) or Parquet file.")],
    schema: Annotated[Path, typer.Option(*SCHEMA, help=SCHEMA_HELP)],
    target: Annotated[str | None, typer.Option(help="Column to learn; by default that of [target].")] = None,
    person: Annotated[str | None, typer.Option(help="Column that names people.")] = None,
    delimiter: DelimiterOption = None,
    encoding: EncodingOption = None,
    json_: JsonOption = False,
) -> None:
    """Count the cells that a schema cannot read, before a fit is paid for. Not private: for your eyes only.

    The counts have no noise and no budget covers them, so keep them to yourself. Mend slips with them (a decimal comma,
    a format, the spelling of a word); bounds and categories that are chosen by them are taken from the data.
    """
    known = with_file_options(read_schema(schema), delimiter, encoding)
    known = known if target is None else known.for_target(target)
    from dpconvex.inputs.schema_check import check_schema

    with progress(f"Reading {data.name}"):
        found = check_schema(data, known, person or known.person)
    if json_:
        plain = [asdict(column) for column in found.columns]
        print_json(
            {"private": True, "rows": found.rows, "invalid": found.invalid, "lines": found.lines, "columns": plain}
        )  # fmt: skip
        return
    _show(found)


def _show(found: SchemaCheck) -> None:
    from rich.markup import escape
    from rich.table import Table

    screen = console()
    screen.print("For your eyes only: counts without noise, which no budget covers.", style="bold yellow")
    heads = ("empty", "not as the schema says", "clipped", "listed, never seen")
    table = Table()
    for head in ("column", "holds"):
        table.add_column(head)
    for head in heads:
        table.add_column(head, justify="right")
    for column in found.columns:
        counts = (column.empty, column.unread, column.outside, column.absent)
        table.add_row(escape(column.name), column.kind, *(f"{count:,}" if count else "" for count in counts))
    screen.print(table)
    for column in found.columns:
        if column.hint:
            screen.print(f"{column.name}: {column.hint}", markup=False)
    for line in found.lines:
        screen.print(line, markup=False)
    if found.rows and found.invalid == found.rows:
        screen.print(
            "No row is valid: with --invalid-rows ignore a fit would be charged and learn nothing.", style="bold red"
        )
        return
    screen.print(
        f"{found.invalid:,} of {found.rows:,} rows are invalid: a fit is refused, or with --invalid-rows ignore "
        "they count for nothing."
        if found.invalid
        else f"All of {found.rows:,} rows are valid.",
        markup=False,
    )


def template(seen: dict[str, Seen], target: str | None, file: FileFormat) -> str:
    """Return a schema whose columns are commented out, for people to fill in."""
    parts = [_HEAD]
    kinds = {name: column.kind for name, column in seen.items()}
    said = {"delimiter": file.delimiter, "encoding": file.encoding}
    if any(column.decimal == "," for column in seen.values()):
        said["decimal"] = ","
    lines = [f"{name} = {json.dumps(value)}" for name, value in said.items() if value is not None]
    lines += ["line_breaks = true"] if file.line_breaks else []
    parts += ["[file]", *lines, ""] if lines else []
    for table, (kind, example) in _TABLES.items():
        lines = [
            f"# {_key(name)} = {_with_format(example, column.format)}"
            for name, column in seen.items()
            if column.kind == kind and name != target
        ]
        names = [name for name, found in kinds.items() if found in ("name", "identifier") and name != target]
        if table == "categories" and names:
            lines += [_NAMES, *(f"# {_key(name)}" for name in names)]
        codes = [name for name, found in kinds.items() if found == "code" and name != target]
        if table == "categories" and codes:
            values = '{values = ["1", "2"], other = true}'
            lines += [_CODES, *(f"# {_key(name)} = {values}" for name in codes)]
        parts += [f"[{table}]", *lines, ""]
    parts += ["# Several rows per person? The promise is then made to a person with all of them.", "# [person]"]
    parts += ['# column = "name of the column that says whose row it is"', "", "[target]"]
    if target is None:
        parts += ["# column = [low, high]", '# or column = {classes = ["no", "yes"]}']
    elif kinds[target] in ("number", "identifier"):
        parts.append(f"# {_key(target)} = [low, high]")
    elif kinds[target] == "date":
        parts.append(f"# {_key(target)}: dates cannot be learned; make a number of them.")
    else:
        parts.append(f'# {_key(target)} = {{classes = ["no", "yes"]}}')
        parts.append('# with the words of the file, in quotes: ["0", "1"] where it holds 0 and 1')
        if kinds[target] == "code":
            parts.append(f"# or, if it is an amount, {_key(target)} = [low, high]")
    return "\n".join(parts) + "\n"


def _with_format(example: str, form: str) -> str:
    """Return the example with the format of a column's dates, where it is not the usual one."""
    return example if not form else f'{{format = "{form}", {example[1:]}'


def _key(name: str) -> str:
    """Return a TOML key; names are printable, so JSON's escapes are TOML's."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)
