"""A table becomes ``X``: every cell by itself, by the rules of a schema, whatever it holds.

Nothing is learned and nothing can fail because of a value: a number is clipped, a word that was not declared is none
of the categories, and what cannot be read is missing, for which the column has a rule. The rule ``row`` gives NaN, the
mark of an invalid row.
"""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex.inputs.cells import Cell, Cells
from dpconvex.inputs.matching import Declared, is_no_number, iso_time, meaning
from dpconvex.inputs.schema import CALENDAR, Category, Column, Date, FileFormat, Flag, Number, Schema
from dpconvex.types import Array

__all__ = ["Encoded", "encode", "invalid_columns", "labels_of", "read_times", "to_array", "to_sparse"]

_BAD = math.nan


@dataclass(frozen=True)
class Encoded:
    """Rows of a block by their entries: ``X[i, places[i, k]] = values[i, k]``, zero elsewhere.

    An indicator has one entry a row, a hat function two: rows of many columns stay short.
    """

    places: NDArray[np.int32]
    values: Array
    width: int

    def times(self, other: Encoded) -> Encoded:
        """Return all products of columns of two blocks."""
        rows = len(self.values)
        places = self.places[:, :, None] * other.width + other.places[:, None, :]
        values = self.values[:, :, None] * other.values[:, None, :]
        return Encoded(places.reshape(rows, -1), values.reshape(rows, -1), self.width * other.width)


def _dense(*columns: Array) -> Encoded:
    values = np.column_stack(columns)
    places = np.broadcast_to(np.arange(values.shape[1], dtype=np.int32), values.shape)
    return Encoded(places, values, values.shape[1])


def _chosen(codes: NDArray[np.intp], width: int) -> Encoded:
    """Return indicators: column ``codes[i]`` is 1; -1 stands for none, -2 for an invalid row."""
    values = np.where(codes >= 0, 1.0, np.where(codes == -1, 0.0, _BAD))
    return Encoded(np.maximum(codes, 0).astype(np.int32)[:, None], values[:, None], width)


def encode(schema: Schema, cells: Mapping[str, Cells]) -> list[Encoded]:
    """Return the rows of every block of a schema.

    Parameters
    ----------
    schema : Schema
        Public.
    cells : mapping of str to Cells
        At least the columns of ``schema.inputs``.
    """
    found: dict[str, Encoded] = {}
    for column in schema.columns:
        blocks = _ENCODERS[type(column)](column, cells[column.name], schema.file)
        names = [block.name for block in column.blocks]
        found.update(zip(names, blocks, strict=True))
    products = [found[item.left].times(found[item.right]) for item in schema.interactions]
    return [*found.values(), *products]


def invalid_columns(schema: Schema, cells: Mapping[str, Cells]) -> list[str]:
    """Return the columns in which a missing value makes a row invalid; for a message, which names them."""
    return [
        column.name
        for column in schema.columns
        if column.missing.rule == "row"
        and any(
            np.isnan(block.values).any() for block in _ENCODERS[type(column)](column, cells[column.name], schema.file)
        )
    ]


def to_array(blocks: list[Encoded]) -> Array:
    """Return the rows of all blocks as one array."""
    rows = len(blocks[0].values)
    out = np.zeros((rows, sum(block.width for block in blocks)))
    start = 0
    for block in blocks:
        np.put_along_axis(out[:, start : start + block.width], block.places.astype(np.intp), block.values, axis=1)
        start += block.width
    return out


def to_sparse(blocks: list[Encoded]) -> Any:
    """Return the rows of all blocks as a CSR matrix."""
    from scipy.sparse import csr_array

    rows, entries = len(blocks[0].values), sum(block.values.shape[1] for block in blocks)
    starts = np.cumsum([0, *(block.width for block in blocks)])
    places = np.hstack([block.places + start for block, start in zip(blocks, starts[:-1], strict=True)])
    values = np.hstack([block.values for block in blocks])
    pointers = np.arange(rows + 1) * entries
    found = csr_array((values.ravel(), places.ravel(), pointers), shape=(rows, int(starts[-1])))
    found.eliminate_zeros()
    found.sort_indices()
    return found


def is_smaller_sparse(blocks: list[Encoded]) -> bool:
    """Whether entries with their places take less memory than all columns: from the schema alone."""
    entries = sum(block.values.shape[1] for block in blocks)
    return 12 * entries < 8 * sum(block.width for block in blocks)


def _mapped(cells: Cells, function: Callable[[Cell], int]) -> NDArray[np.intp]:
    """Return a function of every cell."""
    items, rows = cells.distinct()
    return np.array([function(item) for item in items], dtype=np.intp)[rows]


def _number(column: Number, cells: Cells, file: FileFormat) -> list[Encoded]:
    numbers = cells.as_numbers(file.decimal)
    missing = np.isnan(numbers)
    rule = column.missing.rule
    if rule == "value":
        numbers = np.where(missing, float(column.missing.value), numbers)  # type: ignore[arg-type]
        missing = np.zeros_like(missing)
    numbers = np.clip(numbers, column.low, column.high)
    transforms: dict[str, Callable[[Array], Array]] = {"log1p": np.log1p, "log": np.log, "sqrt": np.sqrt}
    if column.transform in transforms:
        # Clipped again: numpy may round otherwise than the bounds were.
        numbers = np.clip(transforms[column.transform](numbers), *column.ends)
    if not column.knots:
        if rule != "indicator":
            return [_dense(numbers)]
        return [_dense(np.where(missing, column.filler, numbers), missing.astype(np.float64))]
    points = np.array(column.points)
    known = np.where(missing, points[0], numbers)
    left = np.clip(np.searchsorted(points, known, side="right") - 1, 0, len(points) - 2)
    share = np.clip((known - points[left]) / (points[left + 1] - points[left]), 0.0, 1.0)
    values = np.column_stack([1 - share, share])
    places = np.column_stack([left, left + 1]).astype(np.int32)
    width = len(points)
    if rule == "indicator":
        values[missing] = (1.0, 0.0)
        places[missing] = (width, 0)
        width += 1
    elif rule == "row":
        values[missing] = _BAD
    return [Encoded(places, values, width)]


def _category(column: Category, cells: Cells, file: FileFormat) -> list[Encoded]:
    known = Declared(column.values, file.decimal)
    spelled = Declared(file.missing, file.decimal)
    other = len(column.values) if column.other else -1
    rule = column.missing.rule
    filled = str(column.missing.value)
    missing = {
        "row": -2,
        "other": other,
        "indicator": len(column.labels) - 1,
        "value": column.values.index(filled) if filled in column.values else -1,
    }[rule]

    def code(cell: Cell) -> int:
        place = known.find(cell)
        if place is not None:
            return place
        return missing if is_no_number(cell) or spelled.find(cell) is not None else other

    return [_chosen(_mapped(cells, code), len(column.labels))]


def _flag(column: Flag, cells: Cells, file: FileFormat) -> list[Encoded]:
    known = Declared((*column.true, *column.false), file.decimal)

    def code(cell: Cell) -> int:
        lower = None if cell.text is None else cell.text.lower()
        place = known.find(cell._replace(text=lower))
        return -1 if place is None else int(place < len(column.true))

    codes = _mapped(cells, code)
    missing, rule = codes < 0, column.missing.rule
    values = np.where(missing, _BAD, codes.astype(np.float64))
    if rule == "row":
        return [_dense(values)]
    values[missing] = float(column.missing.value is True)
    if rule == "value":
        return [_dense(values)]
    return [_dense(values, missing.astype(np.float64))]


def _date(column: Date, cells: Cells, file: FileFormat) -> list[Encoded]:
    times = read_times(column, cells, file.decimal)
    missing, rule = np.isnat(times), column.missing.rule
    value = column.missing.value if rule == "value" else datetime.date(1970, 1, 1)
    times = np.where(missing, np.datetime64(str(value), "s"), times)
    found = []
    for part in column.parts:
        block = _part(column, part, times)
        values = block.values
        if rule == "row":
            values = np.where(missing[:, None], _BAD, values)
        elif rule == "indicator":
            values = np.where(missing[:, None], 0.0, values)
        found.append(Encoded(block.places, values, block.width))
    if rule == "indicator":
        found.append(_dense(missing.astype(np.float64)))
    return found


def _part(column: Date, part: str, times: NDArray[np.datetime64]) -> Encoded:
    days = times.astype("datetime64[D]")
    seconds = (times - days).astype(np.int64)
    name = part.removesuffix("-cycle")
    if name == "days":
        passed = (days - np.datetime64(column.since)).astype(np.float64) + seconds / 86400
        return _dense(np.clip(passed, 0.0, column.length))
    months = times.astype("datetime64[M]")
    if name == "weekday":
        place, length = (days.astype(np.int64) + 3) % 7, 7.0  # 1970 began on a Thursday
    elif name == "month":
        place, length = months.astype(np.int64) % 12, 12.0
    elif name == "hour":
        place, length = seconds // 3600, 24.0
    else:
        place, length = (days - times.astype("datetime64[Y]")).astype(np.int64), 366.0
    if part in CALENDAR:
        return _chosen(place.astype(np.intp), len(CALENDAR[part]))
    angle = 2 * math.pi * place / length
    return _dense(np.sin(angle), np.cos(angle))


def read_times(column: Date, cells: Cells, decimal: str) -> NDArray[np.datetime64]:
    """Return the times that cells stand for, NaT where they stand for none."""
    if cells.text is None and cells.numbers is None and cells.times is not None:
        return cells.times
    items, rows = cells.distinct()
    read = functools.partial(_read_time, column.format, decimal)
    return np.array([read(item) for item in items], dtype="datetime64[s]")[rows]


def _read_time(pattern: str, decimal: str, cell: Cell) -> np.datetime64:
    """Return the time of a cell; a time is one whatever the format, which is that of text and of whole numbers."""
    if cell.time is not None:
        return cell.time
    words, number = [cell.text], meaning(cell, decimal).number
    if number is not None and number.is_integer() and 0 <= number < 2**53:
        # A reader of numbers drops the zeros in front: dates of digits alone are numbers, in columns of text too.
        digits = _digits(pattern)
        whole = str(int(number)).zfill(digits)
        words = [whole] if digits else [cell.text, whole]
    found = (_parsed(pattern, word) for word in words if word is not None)
    return next((time for time in found if time is not None), np.datetime64("NaT", "s"))


def _parsed(pattern: str, word: str) -> np.datetime64 | None:
    if not pattern:
        return iso_time(word)
    try:
        found = datetime.datetime.strptime(word, pattern)
    except (ValueError, OverflowError):
        return None
    return np.datetime64(found.replace(tzinfo=None, microsecond=0), "s")


@functools.cache
def _digits(pattern: str) -> int:
    """Return how many digits a date of this format has, 0 if it does not consist of digits alone."""
    widths = {"Y": 4, "y": 2, "m": 2, "d": 2, "H": 2, "M": 2, "S": 2, "j": 3}
    parts = pattern[1:].split("%")
    plain = pattern.startswith("%") and all(part in widths for part in parts)
    return sum(widths[part] for part in parts) if plain else 0


_ENCODERS: dict[type[Column], Callable[[Any, Cells, FileFormat], list[Encoded]]] = {
    Number: _number,
    Category: _category,
    Flag: _flag,
    Date: _date,
}


def labels_of(cells: Cells, classes: tuple[str, ...], decimal: str = ".") -> NDArray[np.object_]:
    """Return the declared label that every cell means, None where it means none."""
    known = Declared(classes, decimal)
    places = _mapped(cells, lambda cell: _or_last(known.find(cell)))
    return np.array([*classes, None], dtype=object)[places]


def _or_last(place: int | None) -> int:
    return -1 if place is None else place
