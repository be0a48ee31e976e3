"""``dpconvex bounds`` (``init`` and ``check``) and ``dpconvex split``: schemas of tables, and
their parts.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Hashable
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpconvex.cli import output_and_errors as output
from dpconvex.cli import task_options
from dpconvex.cli.task_options import text_option
from dpconvex.inputs import InputError
from dpconvex.inputs.csv_reader import CSVFormat
from dpconvex.inputs.schema_file import read_schema
from dpconvex.inputs.table_files import (
    check_file_holds_types,
    check_table_file,
    open_table_file,
    table_file_format,
    write_table_file,
)

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

    from dpconvex.inputs.inspection import FileInspection, InspectedKind

_HEAD = """\
# Schema for private fits: what is public about the table. Write what you know before you see the
# data: limits of the instrument, of the form, of the law. Bounds and categories taken from the data
# are not private.
# Remove the '#' of the columns to use and write numbers for low and high, and words for "a" and
# "b"; a column that is not named is not used. A row with a missing number, flag or date is invalid
# (see --invalid-rows), unless its column has a rule: {bounds = [low, high], missing = {value = 0}}
# puts a public value in its place, missing = "indicator" gives the model a column more that says
# so.
# [encoding] with drop = "first" compares all categories of a column with the first.
# To sort the columns, every value of the file was read: a single record can move a column to
# another table, and no budget covers that. No value is shown. Do not publish this template.
# Filled in, `dpconvex bounds check` counts what it cannot read, before a fit is paid for.
"""

_TABLES = {
    "features": ("number", "[low, high]"),
    "flags": ("flag", "{}"),
    "categories": ("text", '{values = ["a", "b"], other = true}'),
    "dates": ("date", '{parts = ["weekday", "month"]}'),
}
_NAMES = (
    "# Nearly as many words or whole numbers as rows, identifiers or remarks: for [person], or "
    "not\n"
    "# used. Amounts belong to [features]."
)
_CODES = (
    "# Few different whole numbers: categories if they are codes, [features] if they are amounts."
)

_ROWS = (
    "# So many lines are below the header, or rows in the table. Is it that of your records?\n"
    "# If that is public (not with add_or_remove_one), a file with another number can be refused,\n"
    "# such as one in which a line break within text makes several records of one."
)

DataArgument = Annotated[Path, typer.Argument(help="CSV (also .gz or .zip) or Parquet file.")]

bounds = typer.Typer(help="Work with schemas: bounds, categories, dates.", no_args_is_help=True)


@bounds.command()
@output.reports_errors
def init(
    data: DataArgument,
    target: Annotated[str | None, typer.Option(help="Column to learn.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the template; stdout by default.")
    ] = None,
    delimiter: task_options.DelimiterOption = None,
    encoding: task_options.EncodingOption = None,
    json_: task_options.JsonOption = False,
) -> None:
    """Write a template of a schema of bounds: names of the columns and what they seem to hold,
    never values.

    What a column seems to hold depends on every value of it, and is not covered by any budget.
    """
    if out is not None and os.path.lexists(out):
        raise InputError(f"{str(out)!r} exists already: what is in it would be lost.")
    file = task_options.file_format_options(delimiter, encoding)
    from dpconvex.inputs.inspection import inspect_column_kinds

    with output.reserved_outputs({"template": out}, {"data": data}) as reserved:
        with output.output_progress(f"Reading names and kinds of columns of {data.name}"):
            kinds, rows, lines = inspect_column_kinds(data, file)
        for line in lines:
            output.say(f"note, for your eyes only: {line}")
        if target is not None and target not in kinds:
            raise InputError(f"The data file has no column {target!r}.")
        text = bounds_template(kinds, target, replace(file, rows=rows))
        if out is not None:
            reserved["template"].write(text.encode())
    if json_:
        output.print_json(
            {"columns": [{"name": name, "type": seen.kind} for name, seen in kinds.items()]}
        )
    elif out is None:
        output.print_text(text, end="")
    else:
        output.print_text(f"Written to {out}")


@bounds.command()
@output.reports_errors
def check(
    data: DataArgument,
    schema: Annotated[Path, typer.Option(*task_options.SCHEMA, help=task_options.SCHEMA_HELP)],
    target: Annotated[
        str | None, typer.Option(help="Column to learn; by default that of [target].")
    ] = None,
    person: Annotated[str | None, typer.Option(help="Column that names people.")] = None,
    delimiter: task_options.DelimiterOption = None,
    encoding: task_options.EncodingOption = None,
    json_: task_options.JsonOption = False,
) -> None:
    """Count the cells that a schema of bounds cannot read, before a fit is paid for. Not private:
    for your eyes only.

    The counts have no noise and no budget covers them, so keep them to yourself. Mend slips with
    them (a decimal comma, a format, the spelling of a word); bounds and categories that are chosen
    by them are taken from the data.
    """
    known = task_options.with_file_options(read_schema(schema), delimiter, encoding)
    known = known if target is None else known.for_target(target)
    from dpconvex.inputs.inspection import inspect_file

    with output.output_progress(f"Reading {data.name}"):
        found = inspect_file(data, known, person or known.person)
    if json_:
        output.print_json({"private": True, **asdict(found)})
    else:
        _print_bounds_check(found)


def _print_bounds_check(found: FileInspection) -> None:
    screen = output.output_console()
    screen.print(
        "For your eyes only: counts without noise, which no budget covers.", style="bold yellow"
    )
    rows = []
    for column in found.columns:
        counts = (column.empty, column.unread, column.outside, column.absent)
        rows.append(
            (column.name, column.kind, *(f"{count:,}" if count else "" for count in counts))
        )
    heads = ("column", "holds", "empty", "not as the schema says", "clipped", "listed, never seen")
    screen.print(output.output_table(heads, rows, left=2))
    for column in found.columns:
        if column.hint:
            screen.print(f"{column.name}: {column.hint}", markup=False)
    for line in found.lines:
        screen.print(line, markup=False)
    verdict = f"All of {found.rows:,} rows are valid."
    if found.invalid:
        verdict = (
            f"{found.invalid:,} of {found.rows:,} rows are invalid: a fit is refused, or with "
            "--invalid-rows ignore they count for nothing."
        )
    if found.rows and found.invalid == found.rows:
        verdict = (
            "No row is valid: with --invalid-rows ignore a fit would be charged and learn nothing."
        )
    screen.print(verdict, style="bold red" if verdict.startswith("No") else None, markup=False)


def bounds_template(seen: dict[str, InspectedKind], target: str | None, file: CSVFormat) -> str:
    """Return a schema whose columns are commented out, for people to fill in.

    The file's number of rows is proposed as a comment too, since it may be private.
    """
    parts = [_HEAD]
    kinds = {name: column.kind for name, column in seen.items()}
    said = {"delimiter": file.delimiter, "encoding": file.encoding}
    for decimal in sorted({column.decimal for column in seen.values()} - {"."}, reverse=True):
        said["decimal"] = (
            decimal  # a comma, if columns differ: the other reading is a thousand times as large
        )
    lines = [f"{name} = {json.dumps(value)}" for name, value in said.items() if value is not None]
    rows = [] if file.rows is None else [_ROWS, f"# rows = {file.rows}"]
    head = ["[file]"] if lines else ["# [file]"] if rows else []
    parts += [*head, *lines, *rows, *([""] if head else [])]
    for table, (kind, example) in _TABLES.items():
        lines = [
            f"# {_toml_key(name)} = "
            + (f'{{format = "{column.format}", {example[1:]}' if column.format else example)
            for name, column in seen.items()
            if column.kind == kind and name != target
        ]
        names = [
            name
            for name, found in kinds.items()
            if found in ("name", "identifier") and name != target
        ]
        if table == "categories" and names:
            lines += [_NAMES, *(f"# {_toml_key(name)}" for name in names)]
        codes = [name for name, found in kinds.items() if found == "code" and name != target]
        if table == "categories" and codes:
            values = '{values = ["1", "2"], other = true}'
            lines += [_CODES, *(f"# {_toml_key(name)} = {values}" for name in codes)]
        parts += [f"[{table}]", *lines, ""]
    parts += [
        "# Several rows per person? The promise is then made to a person with all of them.",
        "# [person]",
    ]
    parts += ['# column = "name of the column that says whose row it is"', "", "[target]"]
    if target is None:
        parts += ["# column = [low, high]", '# or column = {classes = ["no", "yes"]}']
    elif kinds[target] in ("number", "identifier"):
        parts.append(f"# {_toml_key(target)} = [low, high]")
    elif kinds[target] == "date":
        parts.append(f"# {_toml_key(target)}: dates cannot be learned; make a number of them.")
    else:
        parts.append(f'# {_toml_key(target)} = {{classes = ["no", "yes"]}}')
        parts.append('# with the words of the file, in quotes: ["0", "1"] where it holds 0 and 1')
        if kinds[target] == "code":
            parts.append(f"# or, if it is an amount, {_toml_key(target)} = [low, high]")
    return "\n".join(parts) + "\n"


def _toml_key(name: str) -> str:
    """Return a TOML key; names are printable, so JSON's escapes are TOML's."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


@output.reports_errors
def split(
    data: DataArgument,
    train: Annotated[Path, typer.Option(help="Where to write the training rows.")],
    test: Annotated[Path, typer.Option(help="Where to write the test rows.")],
    seed: Annotated[int, typer.Option(help="Public seed: it may be published.")],
    share: Annotated[float, typer.Option(help="Share of test rows.")] = 0.25,
    by: Annotated[
        str | None, text_option("Column that decides, such as a person: its rows stay together.")
    ] = None,
    delimiter: task_options.DelimiterOption = None,
    encoding: task_options.EncodingOption = None,
    json_: task_options.JsonOption = False,
) -> None:
    """Split a table into training rows and test rows, whatever the rows hold.

    Indices of rows decide, by a public seed: a record that is replaced stays on its side, and both
    sides have the same number of rows. With --by the value of a column decides, each by itself, so
    that a record that joins or leaves moves no other; how many rows each side has then depends on
    these values.
    """
    if not 0 < share < 1:
        raise InputError(f"The option --share must be between 0 and 1. Got {share!r} instead.")
    for path in (data, train, test):
        table_file_format(path)
    check_table_file(data)
    file = task_options.file_format_options(delimiter, encoding)
    outputs = {"training rows": train, "test rows": test}
    with (
        output.reserved_outputs(outputs, {"data": data}) as reserved,
        output.output_progress(f"Splitting {data.name}"),
    ):
        opened = open_table_file(data, file)
        if by is not None and by not in opened.names:
            raise InputError(f"The data file has no column {by!r}.")
        opened.check_filled()
        table = opened.read(opened.names, least=2)
        for path in (train, test):  # before either is written
            check_file_holds_types(table, path)
        if by is not None and table.schema[by].is_nested():
            raise InputError(f"The column {by!r} must hold words, numbers or dates.")
        chosen = (
            split_by_index(table.height, seed, share)
            if by is None
            else split_by_value(table[by], seed, share)
        )
        # The options that read the whole table read its parts.
        written = (
            file if opened.layout is None else replace(file, delimiter=opened.layout.delimiter)
        )
        parts = {"training rows": table.filter(~chosen), "test rows": table.filter(chosen)}
        for what, part in parts.items():
            write_table_file(part, outputs[what], written, write=reserved[what].write)
    test_rows = int(chosen.sum())
    train_rows = table.height - test_rows
    if json_:
        counts = {"train_rows": train_rows, "test_rows": test_rows}
        output.print_json({"train": str(train), "test": str(test), "seed": seed, **counts})
    else:
        words = f"Written to {train}: {train_rows:,} rows; to {test}: {test_rows:,} rows"
        output.output_console().print(words, markup=False)


def split_by_index(rows: int, seed: int, share: float) -> np.ndarray:
    """Return a mask of the test rows: a fixed number of indices, drawn with the seed."""
    import numpy as np

    entropy = int.from_bytes(hashlib.sha256(f"split {seed}".encode()).digest()[:16])
    chosen = np.zeros(rows, dtype=bool)
    count = min(rows - 1, max(1, round(share * rows)))
    chosen[np.random.default_rng(entropy).permutation(rows)[:count]] = True
    return chosen


def split_by_value(column: pl.Series, seed: int, share: float) -> np.ndarray:
    """Return a mask of the test rows: each value decides by its own hash with the seed."""
    import numpy as np

    from dpconvex.core.person_identifiers import (
        canonical_identifier,
        exact_identifiers,
        is_hashed_evenly,
    )

    def is_test(value: Hashable) -> bool:
        name = canonical_identifier(value)  # the same however a person is written
        word = f"split {seed} {value if name is None else name}"
        digest = hashlib.sha256(word.encode(errors="surrogatepass")).digest()
        return int.from_bytes(digest[:8]) < share * 2**64

    known = lru_cache(None, typed=True)(is_test)
    values = exact_identifiers(column).tolist()
    chosen = (known(value) if is_hashed_evenly(value) else is_test(value) for value in values)
    return np.fromiter(chosen, dtype=bool, count=len(values))
