"""Encoding of cells as numeric columns of ``X``, by the rules of a schema.

Every cell is encoded by itself. Nothing is learned and nothing can fail because of a value: a
number is clipped, a word that was not declared is none of the categories, and an unreadable cell is
missing, for which the column has a rule. The rule ``row`` gives NaN, the mark of an invalid row.
"""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex.inputs import schema as schemas
from dpconvex.inputs.bounded_transforms import transform_numbers
from dpconvex.inputs.cells import (
    Cell,
    Cells,
    CellWordMatcher,
    cell_meaning,
    is_missing_cell,
    iso_time_of_cell,
    map_cells,
)
from dpconvex.inputs.csv_reader import CSVFormat
from dpconvex.types import Array


@dataclass(frozen=True)
class EncodedBlock:
    """Entries of a block's rows: ``X[i, columns[i, k]] = values[i, k]``, zero elsewhere.

    An indicator has one entry a row, a hat function two: rows of many columns stay short.
    """

    columns: NDArray[np.int32]
    values: Array
    width: int

    def times(self, other: EncodedBlock) -> EncodedBlock:
        """Return all products of columns of two blocks."""
        rows = len(self.values)
        columns = self.columns[:, :, None] * other.width + other.columns[:, None, :]
        values = self.values[:, :, None] * other.values[:, None, :]
        return EncodedBlock(
            columns.reshape(rows, -1), values.reshape(rows, -1), self.width * other.width
        )

    def without(self, index: int) -> EncodedBlock:
        """Return the block without a column, the reference: its entries become zeros of other
        columns.
        """
        lost = self.columns == index
        width = self.width - 1
        kept = self.columns - (self.columns > index)
        # A row's other entry, if there is one, must not be written twice.
        spare = (kept[:, ::-1] + 1) % width if kept.shape[1] == 2 else np.zeros_like(kept)
        columns = np.where(lost, spare, kept).astype(np.int32)
        return EncodedBlock(columns, np.where(lost, 0 * self.values, self.values), width)


def _dense_block(*columns: Array) -> EncodedBlock:
    values = np.column_stack(columns)
    indices = np.broadcast_to(np.arange(values.shape[1], dtype=np.int32), values.shape)
    return EncodedBlock(indices, values, values.shape[1])


def _indicator_block(codes: NDArray[np.intp], width: int) -> EncodedBlock:
    """Return indicators: column ``codes[i]`` is 1; -1 stands for none, -2 for an invalid row."""
    values = np.where(codes >= 0, 1.0, np.where(codes == -1, 0.0, math.nan))
    return EncodedBlock(np.maximum(codes, 0).astype(np.int32)[:, None], values[:, None], width)


def encode_columns(schema: schemas.Schema, cells: Mapping[str, Cells]) -> list[EncodedBlock]:
    """Return the rows of every block of a schema, from cells of at least the columns
    ``schema.inputs``.
    """
    found: dict[str, EncodedBlock] = {}
    for column in schema.columns:
        encoded = _encode_column(column, cells[schemas.source_column(column)], schema.file)
        for block, rows in zip(column.blocks, encoded, strict=True):
            found[block.name] = (
                rows if block.reference is None else rows.without(block.reference[0])
            )
    return [
        *found.values(),
        *(found[item.left].times(found[item.right]) for item in schema.interactions),
    ]


def _encode_column(column: schemas.Column, cells: Cells, file: CSVFormat) -> list[EncodedBlock]:
    if isinstance(column, schemas.SchemaNumber):
        return [_encode_numbers(column, cells, file)]
    if isinstance(column, schemas.SchemaCategory):
        return [_encode_categories(column, cells, file)]
    if isinstance(column, schemas.SchemaFlag):
        return [_encode_flags(column, cells, file)]
    return _encode_dates(column, cells, file)


def invalid_encoded_columns(
    schema: schemas.Schema, cells: Mapping[str, Cells]
) -> list[schemas.Column]:
    """Return the columns in which a missing value makes a row invalid; for a message, which
    names them.
    """
    strict = [column for column in schema.columns if column.missing.rule == "row"]
    encoded = {
        column: _encode_column(column, cells[schemas.source_column(column)], schema.file)
        for column in strict
    }
    return [
        column
        for column, blocks in encoded.items()
        if any(np.isnan(block.values).any() for block in blocks)
    ]


def encoded_array(blocks: list[EncodedBlock]) -> Array:
    """Return the rows of all blocks as one array."""
    out = np.zeros((len(blocks[0].values), sum(block.width for block in blocks)))
    start = 0
    for block in blocks:
        np.put_along_axis(
            out[:, start : start + block.width], block.columns.astype(np.intp), block.values, axis=1
        )
        start += block.width
    return out


def encoded_sparse_matrix(blocks: list[EncodedBlock]) -> Any:
    """Return the rows of all blocks as a CSR matrix."""
    from scipy.sparse import csr_array

    rows = len(blocks[0].values)
    entries = sum(block.values.shape[1] for block in blocks)
    starts = np.cumsum([0, *(block.width for block in blocks)])
    columns = np.hstack(
        [block.columns + start for block, start in zip(blocks, starts[:-1], strict=True)]
    )
    values = np.hstack([block.values for block in blocks])
    pointers = np.arange(rows + 1) * entries
    found = csr_array((values.ravel(), columns.ravel(), pointers), shape=(rows, int(starts[-1])))
    found.eliminate_zeros()
    found.sort_indices()
    return found


def _encode_numbers(column: schemas.SchemaNumber, cells: Cells, file: CSVFormat) -> EncodedBlock:
    numbers = cells.as_numbers(file.decimal)
    missing = np.isnan(numbers)
    rule = column.missing.rule
    if rule == "value":
        numbers = np.where(missing, float(column.missing.value), numbers)  # type: ignore[arg-type]
        missing = np.zeros_like(missing)
    numbers = np.clip(numbers, column.low, column.high)
    if column.transform != "clip":
        whole = np.where(missing, column.low, numbers)
        found = transform_numbers(column.transform, whole, column.low, column.high).values
        numbers = np.where(missing, math.nan, found)
    if not column.knots:
        if rule != "indicator":
            return _dense_block(numbers)
        return _dense_block(
            np.where(missing, column.missing_value, numbers), missing.astype(np.float64)
        )
    knots = np.array(column.transformed_knots)
    known = np.where(missing, knots[0], numbers)
    left = np.clip(np.searchsorted(knots, known, side="right") - 1, 0, len(knots) - 2)
    share = np.clip((known - knots[left]) / (knots[left + 1] - knots[left]), 0.0, 1.0)
    values = np.column_stack([1 - share, share])
    columns = np.column_stack([left, left + 1]).astype(np.int32)
    width = len(knots)
    if rule == "indicator":
        values[missing] = (1.0, 0.0)
        columns[missing] = (width, 0)
        width += 1
    elif rule == "row":
        values[missing] = math.nan
    return EncodedBlock(columns, values, width)


def _encode_categories(
    column: schemas.SchemaCategory, cells: Cells, file: CSVFormat
) -> EncodedBlock:
    declared = CellWordMatcher([*column.values, *(word for word, _ in column.also)], file.decimal)
    places = {value: place for place, value in enumerate(column.values)}
    meant: list[int] = [*places.values(), *(places[value] for _, value in column.also)]
    missing_words = CellWordMatcher(file.missing, file.decimal)
    other = len(column.values) if column.other else -1
    constant = str(column.missing.value)
    missing = {
        "row": -2,
        "other": other,
        "indicator": len(column.labels) - 1,
        "value": places.get(constant, -1),
    }[column.missing.rule]

    def code(cell: Cell) -> int:
        index = declared.find(cell)
        if index is not None:
            return meant[index]
        return missing if is_missing_cell(cell) or missing_words.find(cell) is not None else other

    return _indicator_block(map_cells(cells, code, np.intp), len(column.labels))


def flag_word(matcher: CellWordMatcher, cell: Cell) -> int | None:
    """Return the index of the word of a flag that a cell means, in any capitals; None if it
    means none.
    """
    return matcher.find(cell._replace(text=None if cell.text is None else cell.text.lower()))


def _encode_flags(column: schemas.SchemaFlag, cells: Cells, file: CSVFormat) -> EncodedBlock:
    declared = CellWordMatcher((*column.true, *column.false), file.decimal)

    def code(cell: Cell) -> int:
        index = flag_word(declared, cell)
        return -1 if index is None else int(index < len(column.true))

    codes = map_cells(cells, code, np.intp)
    missing = codes < 0
    rule = column.missing.rule
    constant = math.nan if rule == "row" else float(column.missing.value is True)
    values = np.where(missing, constant, codes.astype(np.float64))
    return (
        _dense_block(values, missing.astype(np.float64))
        if rule == "indicator"
        else _dense_block(values)
    )


def _encode_dates(column: schemas.SchemaDate, cells: Cells, file: CSVFormat) -> list[EncodedBlock]:
    times = encode_times(column, cells, file.decimal)
    missing = np.isnat(times)
    rule = column.missing.rule
    value = column.missing.value if rule == "value" else datetime.date(1970, 1, 1)
    times = np.where(missing, np.datetime64(str(value), "s"), times)
    found = [_encode_calendar(column, part, times) for part in column.parts]
    if rule in ("row", "indicator"):
        gap = math.nan if rule == "row" else 0.0
        found = [
            replace(block, values=np.where(missing[:, None], gap, block.values)) for block in found
        ]
    return [*found, _dense_block(missing.astype(np.float64))] if rule == "indicator" else found


def _encode_calendar(
    column: schemas.SchemaDate, part: str, times: NDArray[np.datetime64]
) -> EncodedBlock:
    """Encode one part of a column of dates: days passed, or a position in a cycle."""
    days = times.astype("datetime64[D]")
    seconds = (times - days).astype(np.int64)
    name = part.removesuffix("-cycle")
    if name == "days":
        passed = (days - np.datetime64(column.since)).astype(np.float64) + seconds / 86400
        return _dense_block(np.clip(passed, 0.0, column.days))
    if name == "weekday":
        # 1970 began on a Thursday
        phase = (days.astype(np.int64) + 3) % 7
        period = 7.0
    elif name == "month":
        phase = times.astype("datetime64[M]").astype(np.int64) % 12
        period = 12.0
    elif name == "hour":
        phase = seconds // 3600
        period = 24.0
    else:
        phase = (days - times.astype("datetime64[Y]")).astype(np.int64)
        period = 366.0
    if part in schemas.CALENDAR:
        return _indicator_block(phase.astype(np.intp), len(schemas.CALENDAR[part]))
    angle = 2 * math.pi * phase / period
    return _dense_block(np.sin(angle), np.cos(angle))


def encode_times(column: schemas.SchemaDate, cells: Cells, decimal: str) -> NDArray[np.datetime64]:
    """Return the times that cells stand for, NaT where they stand for none."""
    if cells.text is None and cells.numbers is None and cells.times is not None:
        return cells.times
    return map_cells(
        cells, functools.partial(_encode_time, column.format, decimal), "datetime64[s]"
    )


def _encode_time(pattern: str, decimal: str, cell: Cell) -> np.datetime64:
    """Return the time that a column's cell means; the format is that of text and of whole
    numbers.
    """
    if cell.time is not None:
        return cell.time
    words = [cell.text]
    number = cell_meaning(cell, decimal).number
    if number is not None and number.is_integer() and 0 <= number < 2**53:
        # A reader of numbers drops the zeros in front: dates of digits alone are numbers, in
        # columns of text too.
        digits = date_format_digits(pattern)
        whole = str(int(number)).zfill(digits)
        words = [whole] if digits else [cell.text, whole]
    found = (_encode_time_text(pattern, word) for word in words if word is not None)
    return next((time for time in found if time is not None), np.datetime64("NaT", "s"))


def _encode_time_text(pattern: str, word: str) -> np.datetime64 | None:
    if not pattern:
        return iso_time_of_cell(word)
    try:
        found = datetime.datetime.strptime(word, pattern)
    except (ValueError, OverflowError):
        return None
    return np.datetime64(found.replace(tzinfo=None, microsecond=0), "s")


@functools.cache
def date_format_digits(pattern: str) -> int:
    """Return how many digits a date of this format has, 0 if it does not consist of digits
    alone.
    """
    widths = {"Y": 4, "y": 2, "m": 2, "d": 2, "H": 2, "M": 2, "S": 2, "j": 3}
    parts = pattern[1:].split("%")
    plain = pattern.startswith("%") and all(part in widths for part in parts)
    return sum(widths[part] for part in parts) if plain else 0


def encode_labels(
    cells: Cells, classes: tuple[str, ...], decimal: str = "."
) -> NDArray[np.object_]:
    """Return the declared label that every cell of a column means, None where it means none."""
    declared = CellWordMatcher(classes, decimal)

    def label(cell: Cell) -> str | None:
        index = declared.find(cell)
        return None if index is None else classes[index]

    return map_cells(cells, label, object)
