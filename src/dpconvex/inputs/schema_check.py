"""Whether a schema reads a file: counts without noise, for the eyes of whoever holds the rows, and never for a fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpconvex.engine.votes import NOBODY, person_tags
from dpconvex.inputs.cells import Cell, Cells, cells_of
from dpconvex.inputs.delimited import counted
from dpconvex.inputs.encoding import encode, labels_of, read_times, to_array
from dpconvex.inputs.files import read_identifiers
from dpconvex.inputs.matching import Declared
from dpconvex.inputs.opening import open_table, without_values
from dpconvex.inputs.schema import Column, Date, FileFormat, Flag, Number, Schema

__all__ = ["ColumnCheck", "SchemaCheck", "check_schema"]

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class ColumnCheck:
    """How many cells of a column a schema reads; private.

    Attributes
    ----------
    name, kind : str
        The column, and what the schema says it holds.
    empty : int
        Cells that hold nothing, or a word for it.
    unread : int
        Cells that hold something else than the schema says; of categories, words that it does not list.
    outside : int
        Numbers beyond the bounds, which are clipped.
    absent : int
        Categories or classes of the schema that no cell has.
    hint : str
        The slip that explains cells which cannot be read, where there is one.
    """

    name: str
    kind: str
    empty: int = 0
    unread: int = 0
    outside: int = 0
    absent: int = 0
    hint: str = ""


@dataclass(frozen=True)
class SchemaCheck:
    """What a schema makes of a file: its columns, its rows, and how many of these count for nothing; private.

    ``lines`` says how many lines of a CSV file cannot be read, and why.
    """

    columns: tuple[ColumnCheck, ...]
    rows: int
    invalid: int
    lines: tuple[str, ...] = ()


def check_schema(path: Path, schema: Schema, person: str | None = None) -> SchemaCheck:
    """Count what a schema cannot read in a file, and the rows that would be invalid.

    Parameters
    ----------
    path : Path
        CSV or Parquet file.
    schema : Schema
        Its columns must be in the file: their names are public.
    person : str, optional
        Column that says whose rows they are.

    Notes
    -----
    Privacy: none. Every number depends on every row, and no budget covers it.
    """
    target = schema.target
    learned = None if target is None else target.name
    others = [name for name in (learned, person) if name is not None]
    opened = open_table(path, schema.file)
    table, problems = opened.read_rows(list(dict.fromkeys([*schema.inputs, *others])))
    with without_values(None):
        cells = {name: cells_of(table[name]) for name in table.columns}
    found = [_column(column, cells[column.name], schema.file) for column in schema.columns]
    invalid = np.zeros(table.height, dtype=bool)
    if table.height and schema.columns:
        invalid |= np.isnan(to_array(encode(schema, cells))).any(axis=1)
    if target is not None:
        check, lost = _target(schema, cells[target.name])
        found.append(check)
        invalid |= lost
    if person is not None:
        empty = person_tags(read_identifiers(table[person], schema.file)) == NOBODY
        found.append(ColumnCheck(person, "person", int(empty.sum())))
        invalid |= empty
    lines = () if opened.layout is None else tuple(counted(problems, opened.layout))
    return SchemaCheck(tuple(found), table.height, int(invalid.sum()), lines)


def _empty(cells: Cells, file: FileFormat) -> Mask:
    """Return which cells hold nothing, or a word that stands for nothing."""
    spelled = set(file.missing)
    return _where(cells, lambda cell: cell == Cell() or cell.text == "" or cell.text in spelled)


def _where(cells: Cells, holds: Callable[[Cell], bool]) -> Mask:
    items, rows = cells.distinct()
    return np.array([holds(item) for item in items], dtype=bool)[rows]


def _column(column: Column, cells: Cells, file: FileFormat) -> ColumnCheck:
    empty = _empty(cells, file)
    if isinstance(column, Number):
        return _number(column.name, "number", (column.low, column.high), cells, file)
    if isinstance(column, Date):
        lost, kind, absent, hint = np.isnat(read_times(column, cells, file.decimal)), "date", 0, ""
        if (lost & ~empty).any() and not column.format:
            hint = 'give the format of its dates, like format = "%d.%m.%Y"'
    elif isinstance(column, Flag):
        known = Declared((*column.true, *column.false), file.decimal)
        lost, kind, absent, hint = _unknown(known, cells, lower=True), "flag", 0, ""
    else:
        lost, kind = _unknown(Declared(column.values, file.decimal), cells), "category"
        absent, hint = _absent(column.values, cells, file), _case_hint(column.values, cells, file)
    return ColumnCheck(column.name, kind, int((lost & empty).sum()), int((lost & ~empty).sum()), 0, absent, hint)


def _number(name: str, kind: str, bounds: tuple[float, float] | None, cells: Cells, file: FileFormat) -> ColumnCheck:
    empty, numbers = _empty(cells, file), cells.as_numbers(file.decimal)
    unread = np.isnan(numbers) & ~empty
    low, high = bounds or (-np.inf, np.inf)
    outside = int(((numbers < low) | (numbers > high)).sum())
    hint, sign = "", "," if file.decimal == "." else "."
    if unread.any() and not np.isnan(cells.as_numbers(sign)[unread]).all():
        hint = f'some are numbers with decimal = "{sign}" in [file]'
    return ColumnCheck(name, kind, int(empty.sum()), int(unread.sum()), outside, 0, hint)


def _target(schema: Schema, cells: Cells) -> tuple[ColumnCheck, Mask]:
    """Return the counts of the target, and which rows have none that can be learned."""
    assert schema.target is not None
    name, classes, file = schema.target.name, schema.target.classes, schema.file
    if classes is None:
        lost = np.isnan(cells.as_numbers(file.decimal))
        return _number(name, "target", schema.target.bounds, cells, file), lost
    empty = _empty(cells, file)
    lost = np.array([label is None for label in labels_of(cells, classes, file.decimal)])
    check = ColumnCheck(
        name, "target", int((lost & empty).sum()), int((lost & ~empty).sum()), 0,
        _absent(classes, cells, file), _case_hint(classes, cells, file),
    )  # fmt: skip
    return check, lost


def _unknown(known: Declared, cells: Cells, lower: bool = False) -> Mask:
    def holds(cell: Cell) -> bool:
        if lower and cell.text is not None:
            cell = cell._replace(text=cell.text.lower())
        return known.find(cell) is None

    return _where(cells, holds)


def _absent(words: Sequence[str], cells: Cells, file: FileFormat) -> int:
    """Return how many declared words no cell means."""
    known = Declared(words, file.decimal)
    return len(words) - len({known.find(item) for item in cells.distinct()[0]} - {None})


def _case_hint(words: Sequence[str], cells: Cells, file: FileFormat) -> str:
    """Return a hint where words would be read if capitals were those of the file."""
    known = Declared(words, file.decimal)
    lowered = {word.lower() for word in words}
    for cell in cells.distinct()[0]:
        if cell.text is not None and known.find(cell) is None and cell.text.lower() in lowered:
            return "some differ in capital letters only"
    return ""
