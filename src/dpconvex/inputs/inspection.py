"""Inspection of a file for its holder: guessed kinds of columns, and counts of cells that a schema
cannot read.

Nothing here is private: counts have no noise, no budget covers them, and no fit uses them. No value
is shown.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpconvex.core.person_identifiers import NOBODY, person_tags
from dpconvex.inputs.cells import (
    THOUSANDS,
    Cell,
    Cells,
    CellWordMatcher,
    map_cells,
    read_cells,
    remove_thousands,
    replace_decimal_comma,
)
from dpconvex.inputs.column_encoding import encode_columns, encode_times, encoded_array, flag_word
from dpconvex.inputs.column_types import check_column_types
from dpconvex.inputs.csv_reader import (
    MISSING_WORDS,
    UNREADABLE,
    CSVFormat,
    CSVLineProblem,
    count_csv_problems,
)
from dpconvex.inputs.schema import (
    Column,
    Schema,
    SchemaDate,
    SchemaFlag,
    SchemaNumber,
    source_column,
)
from dpconvex.inputs.table_files import hide_file_values, open_table_file, read_people_file
from dpconvex.system.lazy_imports import pl

# of its cells decide the kind of a column: a remark among numbers makes no categories of them
MOST = 0.9
MOST_CODES = 25  # different whole numbers of a column that may be codes rather than amounts
# of the whole numbers of a column: identifiers rather than amounts, which meet now and then
DIFFERENT = 0.995
# of the cells of a column that begin with a zero, like 01067: words of digits rather than numbers
ZEROS = 0.01
DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d")
# "" is ISO 8601
DATE_FORMATS = ("", *DAYS, *(f"{day} {time}" for day in DAYS for time in ("%H:%M", "%H:%M:%S")))

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class InspectedKind:
    """Guessed kind of a column, its decimal sign, and the format of its dates."""

    kind: str  # number, code, identifier, flag, date, text or name
    decimal: str = "."
    format: str = ""


def inspect_column_kinds(
    path: Path, file: CSVFormat
) -> tuple[dict[str, InspectedKind], int, list[str]]:
    """Return the guessed kind of each column and the number of records, for a template that
    people fill in, and counts of unreadable lines.
    """
    opened = open_table_file(path, file)
    opened.check_filled()
    table, problems = opened.read_rows(opened.names)
    with hide_file_values(path):
        kinds = {name: _inspect_column_kind(table[name]) for name in opened.names}
    lines = [] if opened.layout is None else count_csv_problems(problems, opened.layout)
    return kinds, int((problems != CSVLineProblem.BLANK).sum()), lines


def _inspect_column_kind(column: pl.Series) -> InspectedKind:
    if column.dtype == pl.Boolean:
        return InspectedKind("flag")
    if column.dtype in (pl.Date, pl.Datetime):
        return InspectedKind("date")
    numeric = column.dtype.is_numeric()
    if not numeric and column.dtype != pl.String:
        return InspectedKind("text")
    known = column.drop_nulls()
    if not numeric:
        known = known.str.strip_chars()
        known = known.filter(~known.is_in(list(MISSING_WORDS)))
        usual = SchemaFlag("")
        words = set(known.str.to_lowercase().unique().to_list())
        if 1 < len(words) <= 4 and words <= {*usual.true, *usual.false}:
            return InspectedKind("flag")
    zeros = 0 if numeric else int(known.str.contains(r"^0[0-9]+$").sum())
    digits = zeros > ZEROS * len(known)
    numbers = known.cast(pl.Float64, strict=False).drop_nulls()
    if len(numbers) >= MOST * len(known) and not digits:
        different = numbers.unique()
        if set(different.to_list()) == {0.0, 1.0} and len(numbers) == len(known):
            return InspectedKind("flag")
        whole = bool((different == different.round()).all())
        if whole and len(different) <= MOST_CODES < len(known):
            return InspectedKind("code")
        if whole and len(different) >= max(DIFFERENT * len(known), MOST_CODES):
            return InspectedKind("identifier")
        return InspectedKind("number")
    if not digits and remove_thousands(known).cast(pl.Float64, strict=False).count() >= MOST * len(
        known
    ):
        return InspectedKind("number", decimal=THOUSANDS)
    if not digits and replace_decimal_comma(known).cast(
        pl.Float64, strict=False
    ).count() >= MOST * len(known):
        return InspectedKind("number", decimal=",")
    words = known.unique().to_list()
    allowed = math.floor((1 - MOST) * len(words))
    for form in DATE_FORMATS:
        others = (word for word in words if not _inspect_dates(word, form))
        if next(islice(others, allowed, None), None) is None:
            return InspectedKind("date", format=form)
    return InspectedKind("name" if len(words) > max(MOST_CODES, len(known) / 4) else "text")


def _inspect_dates(word: str, form: str) -> bool:
    try:
        datetime.datetime.strptime(word, form) if form else datetime.datetime.fromisoformat(word)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class ColumnInspection:
    """Counts of a column's cells that a schema cannot read; private."""

    name: str
    kind: str
    empty: int = 0  # or words for a missing value
    unread: int = 0  # of another kind; of categories, words that the schema does not list
    outside: int = 0  # numbers beyond the bounds, which are clipped
    absent: int = 0  # categories or classes of the schema that no cell has
    hint: str = ""  # the slip that explains unreadable cells, where there is one


@dataclass(frozen=True)
class FileInspection:
    """Counts of a file by a schema: its columns, its rows, invalid rows, and unreadable lines
    with reasons; private.
    """

    columns: tuple[ColumnInspection, ...]
    rows: int
    invalid: int
    lines: tuple[str, ...] = ()


def inspect_file(path: Path, schema: Schema, person: str | None = None) -> FileInspection:
    """Count the cells of a file that a schema cannot read, and the rows that would be invalid.

    Privacy: none. Every number depends on every row, and no budget covers it.
    """
    target = schema.target
    file = schema.file
    event = None if target is None else target.event
    others = [
        name
        for name in (None if target is None else target.name, event, person)
        if name is not None
    ]
    opened = open_table_file(path, file)
    table, problems = opened.read_rows(list(dict.fromkeys([*schema.inputs, *others])))
    check_column_types(schema, {name: table[name] for name in table.columns})
    with hide_file_values(None):
        cells = {name: read_cells(table[name]) for name in table.columns}
    found = [
        _inspect_column(column, cells[source_column(column)], file) for column in schema.columns
    ]
    invalid = np.zeros(table.height, dtype=bool)
    if table.height and schema.columns:
        invalid |= np.isnan(encoded_array(encode_columns(schema, cells))).any(axis=1)
    if target is not None and target.classes is None:
        found.append(
            _inspect_numbers(target.name, "target", target.bounds, cells[target.name], file)
        )
        invalid |= np.isnan(cells[target.name].as_numbers(file.decimal))
    elif target is not None and target.classes is not None:
        counts, lost = _inspect_words(
            target.name, "target", target.classes, cells[target.name], file
        )
        found.append(counts)
        invalid |= lost
    if event is not None:
        found.append(_inspect_numbers(event, "event", None, cells[event], file))
        invalid |= np.isnan(cells[event].as_numbers(file.decimal))
    if person is not None:
        empty = person_tags(read_people_file(table[person], file)) == NOBODY
        found.append(ColumnInspection(person, "person", int(empty.sum())))
        invalid |= empty
    invalid |= np.isin(problems, UNREADABLE)
    lines = [] if opened.layout is None else count_csv_problems(problems, opened.layout)
    if file.rows is not None:
        lines += _count_inspected_rows(problems, file.rows, opened.layout is not None)
    return FileInspection(tuple(found), table.height, int(invalid.sum()), tuple(lines))


def _count_inspected_rows(problems: NDArray[np.uint8], expected: int, lines: bool) -> list[str]:
    """Return in words that a file has another number of records than its schema declares."""
    found = len(problems)
    if found == expected:
        return []
    if not lines:
        return [f"The file has {found:,} rows, not the {expected:,} that [file] declares."]
    blank = int((problems == CSVLineProblem.BLANK).sum())
    blanks = f", {blank:,} of them blank" if blank else ""
    return [
        f"The file has {found:,} lines below its header{blanks}, not the {expected:,} that rows in "
        "[file] declares. A line break within a field makes several lines of a record, and blank "
        "lines count with --invalid-rows ignore."
    ]


def _is_empty(cells: Cells, file: CSVFormat) -> Mask:
    words = {"", *file.missing}
    return map_cells(cells, lambda cell: cell == Cell() or cell.text in words, bool)


def _inspect_column(column: Column, cells: Cells, file: CSVFormat) -> ColumnInspection:
    if isinstance(column, SchemaNumber):
        return _inspect_numbers(column.name, "number", (column.low, column.high), cells, file)
    empty = _is_empty(cells, file)
    hint = ""
    if isinstance(column, SchemaDate):
        lost = np.isnat(encode_times(column, cells, file.decimal))
        kind = "date"
        if (lost & ~empty).any() and not column.format:
            hint = 'give the format of its dates, like format = "%d.%m.%Y"'
    elif isinstance(column, SchemaFlag):
        declared = CellWordMatcher((*column.true, *column.false), file.decimal)
        lost = map_cells(cells, lambda cell: flag_word(declared, cell) is None, bool)
        kind = "flag"
    else:
        also = [word for word, _ in column.also]
        return _inspect_words(column.name, "category", column.values, cells, file, also)[0]
    return ColumnInspection(
        column.name, kind, int((lost & empty).sum()), int((lost & ~empty).sum()), hint=hint
    )


def _inspect_numbers(
    name: str, kind: str, bounds: tuple[float, float] | None, cells: Cells, file: CSVFormat
) -> ColumnInspection:
    empty = _is_empty(cells, file)
    numbers = cells.as_numbers(file.decimal)
    unread = np.isnan(numbers) & ~empty
    low, high = bounds or (-np.inf, np.inf)
    outside = int(((numbers < low) | (numbers > high)).sum())
    hint = ""
    for sign in (THOUSANDS, ",", "."):
        if not hint and unread.any() and not np.isnan(cells.as_numbers(sign)[unread]).all():
            hint = f'some are numbers with decimal = "{sign}" in [file]'
    return ColumnInspection(name, kind, int(empty.sum()), int(unread.sum()), outside, 0, hint)


def _inspect_words(
    name: str,
    kind: str,
    words: Sequence[str],
    cells: Cells,
    file: CSVFormat,
    also: Sequence[str] = (),
) -> tuple[ColumnInspection, Mask]:
    """Return the counts of a column of declared words, and which cells mean none of them."""
    empty = _is_empty(cells, file)
    declared = CellWordMatcher([*words, *also], file.decimal)
    items, rows = cells.distinct()
    found = [declared.find(item) for item in items]
    lost = np.array([index is None for index in found])[rows]
    lowered = {word.lower() for word in words}
    alike = any(
        index is None and item.text is not None and item.text.lower() in lowered
        for item, index in zip(items, found, strict=True)
    )
    hint = "some differ in capital letters only" if alike else ""
    absent = len(words) - len(
        {index for index in found if index is not None and index < len(words)}
    )
    return ColumnInspection(
        name, kind, int((lost & empty).sum()), int((lost & ~empty).sum()), 0, absent, hint
    ), lost
