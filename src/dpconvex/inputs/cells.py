"""Cells of any table, and the declared words that they mean: each is read by itself, whatever the
type of its column.

A column arrives as text, numbers, times or Python objects, depending on who read the file, and
sometimes on a single value in it. A cell means the same in all of them: ``39`` and ``"39"`` are one
number, ``1.0`` and ``"1"`` one category. The kind of a cell, text, a number or a time, is therefore
kept for every cell and not for the column. A cell is matched with declared words by its text, or
else by the number, truth value or time that the text stands for. Numbers are compared as float64:
that is what readers make of whole numbers, even beyond ``2**53``, once a value in their column is
missing.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from dpconvex.core.person_identifiers import canonical_identifier, exact_identifiers
from dpconvex.system.lazy_imports import pl

# A number whose decimal sign is a comma; points, if there are any, set off thousands.
_COMMA_NUMBER = r"^[+-]?(\d{1,3}(\.\d{3})+|\d*)(,\d*)?([eE][+-]?\d+)?$"
# A number whose decimal sign is a point and whose thousands are set off by commas, and how a schema
# declares it.
_THOUSANDS_NUMBER = r"^[+-]?\d{1,3}(,\d{3})+(\.\d*)?$"
THOUSANDS = "1,234.5"
# One way only to part a run of digits: a pattern with two takes the square of a long cell's length.
_POINT = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?|[+-]?inf(inity)?", re.ASCII | re.I)
_COMMA = re.compile(r"([+-]?)(\d{1,3}(?:\.\d{3})+|\d*)(?:,(\d*))?((?:[eE][+-]?\d+)?)", re.ASCII)
_TRUTH = {"true": 1.0, "false": 0.0}
_NO_TIME = np.datetime64("NaT", "s")


class Cell(NamedTuple):
    """Content of one cell: text, a number or a time; a missing one holds none of them."""

    text: str | None = None
    number: float | None = None
    time: np.datetime64 | None = None


@dataclass(frozen=True)
class Cells:
    """One column: text (null elsewhere), numbers (NaN elsewhere) and times (NaT elsewhere), one of
    them a row at most.

    None stands for a kind that no row has. Numbers may be infinite. Booleans are the words ``true``
    and ``false``.
    """

    text: pl.Series | None = None
    numbers: NDArray[np.float64] | None = None
    times: NDArray[np.datetime64] | None = None

    def __len__(self) -> int:
        return len(next(item for item in (self.text, self.numbers, self.times) if item is not None))

    def as_numbers(self, decimal: str = ".") -> NDArray[np.float64]:
        """Return cells as finite numbers, and NaN for everything else; the decimal sign is that
        of text.
        """
        found = np.full(len(self), math.nan)
        if self.text is not None:
            text = replace_decimal_comma(self.text) if decimal == "," else self.text
            text = remove_thousands(text) if decimal == THOUSANDS else text
            numbers = text.cast(pl.Float64, strict=False)
            if numbers.null_count():  # truth values, for which few columns need be looked through
                truth = text.str.to_lowercase().replace_strict(
                    _TRUTH, default=None, return_dtype=pl.Float64
                )
                numbers = numbers.fill_null(truth).fill_null(math.nan)
            found = numbers.to_numpy()
        if self.numbers is not None:
            found = np.where(np.isnan(self.numbers), found, self.numbers)
        return np.where(np.isfinite(found), found, math.nan)

    def distinct(self) -> tuple[list[Cell], NDArray[np.intp]]:
        """Return different cells, a missing one first, and the index of the one that each row
        holds.
        """
        items = [Cell()]
        rows = np.zeros(len(self), dtype=np.intp)
        if self.text is not None:
            known = self.text.drop_nulls()
            words = known.unique(maintain_order=True).to_list()
            frame = pl.DataFrame(
                {"text": pl.Series(words, dtype=pl.String), "index": range(len(words))}
            )
            found = known.to_frame("text").join(frame, on="text", how="left", maintain_order="left")
            rows[self.text.is_not_null().to_numpy()] = found["index"].to_numpy().astype(
                np.intp
            ) + len(items)
            items += [Cell(text=word) for word in words]
        for name, values in (("number", self.numbers), ("time", self.times)):
            if values is not None:
                here = ~(np.isnan(values) if name == "number" else np.isnat(values))
                different, indices = np.unique(values[here], return_inverse=True)
                rows[here] = indices.reshape(-1) + len(items)
                items += [
                    Cell(**{name: each})
                    for each in (different.tolist() if name == "number" else different)
                ]
        return items, rows


def map_cells(cells: Cells, function: Callable[[Cell], Any], dtype: npt.DTypeLike) -> NDArray[Any]:
    """Return a function of every cell, which is called once for each different one."""
    items, rows = cells.distinct()
    return np.array([function(item) for item in items], dtype=dtype)[rows]


def replace_decimal_comma(text: pl.Series) -> pl.Series:
    """Return numbers written with a decimal comma in the usual way, and null for a point that
    sets off no thousands.
    """
    plain = text.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    pointed = text.str.contains(".", literal=True) & ~text.str.contains(_COMMA_NUMBER)
    return plain.set(pointed.fill_null(False), None)


def remove_thousands(text: pl.Series) -> pl.Series:
    """Return numbers without the commas that set off their thousands; other text is as it was."""
    set_off = text.str.contains(_THOUSANDS_NUMBER).fill_null(False)
    return text.str.replace_all(",", "", literal=True).zip_with(set_off, text)


def read_cells(column: Any) -> Cells:
    """Return the cells of a column: a series of polars or pandas, a pyarrow array, an array or a
    list.
    """
    if type(column).__module__.split(".")[0] == "pyarrow":
        column = pl.Series(column.combine_chunks() if hasattr(column, "combine_chunks") else column)
    if isinstance(column, pl.Series):
        return _cells_of_polars(column)
    if isinstance(column, np.ma.MaskedArray):
        cells = list(np.asarray(column.data))
        masked = np.ma.getmaskarray(column)
        return _cells_of_objects(
            [None if hidden else cell for cell, hidden in zip(cells, masked, strict=True)]
        )
    dtype = getattr(column, "dtype", None)
    kind = dtype.kind if isinstance(dtype, np.dtype) else "O"
    if kind in "iuf":
        return Cells(numbers=np.asarray(column, dtype=np.float64))
    if kind == "M":
        return Cells(times=np.asarray(column).astype("datetime64[s]"))
    if kind == "c":  # one such number makes its column complex
        plain = np.asarray(column)
        return Cells(numbers=np.where(plain.imag == 0, plain.real, math.nan).astype(np.float64))
    if kind == "m":  # whose objects would be whole numbers
        return _cells_of_objects([None] * len(column))
    # Extension types of pandas as well: their missing values are objects of their own.
    return _cells_of_objects(column.tolist() if hasattr(column, "tolist") else list(column))


def _cells_of_polars(column: pl.Series) -> Cells:
    kind = column.dtype
    if kind in (pl.String, pl.Categorical, pl.Enum, pl.Boolean):
        return Cells(text=column.cast(pl.String).str.strip_chars())
    if kind == pl.Object or kind == pl.Decimal:  # polars rounds decimals otherwise than Python
        return _cells_of_objects(column.to_list())
    if kind.is_numeric():
        return Cells(numbers=column.cast(pl.Float64).fill_null(math.nan).to_numpy())
    if kind == pl.Date or kind == pl.Datetime:
        if kind == pl.Datetime:
            column = column.dt.replace_time_zone(None)  # as the clock on the wall showed it
        return Cells(times=column.to_numpy().astype("datetime64[s]"))
    return _cells_of_objects([None] * len(column))


def _cells_of_objects(values: Iterable[object]) -> Cells:
    cells = [read_cell(value) for value in values]
    numbers = [math.nan if cell.number is None else cell.number for cell in cells]
    times = [_NO_TIME if cell.time is None else cell.time for cell in cells]
    words = [cell.text for cell in cells]
    # Columns of numbers are many, and even empty ones of text take polars a while.
    text = (
        pl.Series(words, dtype=pl.String).str.strip_chars()
        if any(w is not None for w in words)
        else None
    )
    return Cells(text, np.array(numbers, dtype=np.float64), np.array(times, dtype="datetime64[s]"))


def read_cell(value: object) -> Cell:
    """Return a Python object as a cell, a missing one if it is of no kind that a table holds."""
    try:
        return _cell_content(value)
    except Exception:  # whatever an object does when it is read: an error would tell of it
        return Cell()


def _cell_content(value: object) -> Cell:
    if isinstance(value, str):
        return Cell(text=value.encode("utf-8", "replace").decode("utf-8"))
    if isinstance(value, (bool, np.bool_)):
        return Cell(text="true" if value else "false")
    if isinstance(value, np.timedelta64):  # a whole number to numpy
        return Cell()
    if isinstance(value, (complex, np.complexfloating)):
        return Cell(number=float(value.real) if value.imag == 0 else None)
    if isinstance(value, (int, float, np.integer, np.floating, Decimal)):
        try:
            return Cell(number=float(value))
        except OverflowError:
            return Cell(number=math.inf if value > 0 else -math.inf)
        except ValueError:  # a signalling NaN
            return Cell()
    if type(value).__name__ == "NaTType":
        return Cell()
    if isinstance(value, datetime.datetime):
        value = value.replace(tzinfo=None)
        return Cell(time=np.datetime64(value.isoformat(timespec="seconds"), "s"))
    if isinstance(value, datetime.date):
        return Cell(time=np.datetime64(value.isoformat(), "s"))
    if isinstance(value, np.datetime64) and not np.isnat(value):
        return Cell(time=value.astype("datetime64[s]"))
    return Cell()


def read_identifier_cells(column: Any, missing: Iterable[str]) -> NDArray[Any]:
    """Return the identifiers of a column as they are, None for words that stand for nothing, or
    for their numbers.
    """
    # Not as cells, whose numbers are floats: whole numbers beyond 2^53 name different people.
    values = exact_identifiers(column)
    missing = frozenset(missing)
    numbers = {word for word in map(canonical_identifier, missing) if isinstance(word, int)}
    if values.dtype.kind not in "OSU" and not numbers:
        return values

    def is_missing(value: object) -> bool:
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        word = str.__str__(text).strip() if isinstance(text, str) else None
        return word in missing or (bool(numbers) and canonical_identifier(value) in numbers)

    cells = values.astype(object)
    cells[[is_missing(cell) for cell in cells]] = None
    return cells


class CellMeaning(NamedTuple):
    """Number, truth value and time that a cell stands for, apart from its text; None where it
    stands for none.
    """

    number: float | None
    truth: float | None
    time: np.datetime64 | None


def cell_meaning(cell: Cell, decimal: str = ".") -> CellMeaning:
    """Return the meaning of a cell; the decimal sign is that of text."""
    number = cell.number
    time = cell.time
    if cell.text is not None:
        number = _parse_number_cell(cell.text, decimal)
    word = cell.text
    if number is not None:  # as it is written: whole ones without a decimal point
        whole = math.isfinite(number) and number == int(number) and abs(number) < 2**53
        word = (str(int(number)) if whole else repr(number)) if math.isfinite(number) else None
    if word is not None:
        time = iso_time_of_cell(word)
    return CellMeaning(number, None if cell.text is None else _TRUTH.get(cell.text.lower()), time)


def _parse_number_cell(text: str, decimal: str) -> float | None:
    if decimal == THOUSANDS and re.fullmatch(_THOUSANDS_NUMBER, text, re.ASCII):
        text = text.replace(",", "")
    parts = _COMMA.fullmatch(text) if decimal == "," else None
    if parts is not None:
        sign, whole, rest, power = parts.groups()
        pointed = f"{sign}{whole.replace('.', '')}.{rest or ''}{power}"
        text = pointed if _POINT.fullmatch(pointed) else text
    return float(text) if _POINT.fullmatch(text) else None


def iso_time_of_cell(word: str) -> np.datetime64 | None:
    """Return the second that a text in ISO 8601 says, as the clock on the wall showed it, None
    for other text.
    """
    try:
        found = datetime.datetime.fromisoformat(word)
    except (ValueError, OverflowError):
        return None
    return np.datetime64(found.replace(tzinfo=None, microsecond=0), "s")


class CellWordMatcher:
    """Declared words, and the index of the one that a cell means.

    Where several mean the same, the first is taken; schemas refuse such words.
    """

    def __init__(self, words: Sequence[str], decimal: str = ".") -> None:
        self.decimal = decimal
        self._known: dict[tuple[str, object], int] = {}  # by kind and value
        for index, word in enumerate(words):
            meaning = cell_meaning(Cell(text=word), decimal)._asdict()
            for kind, value in (("text", word), *meaning.items()):
                if value is not None:
                    self._known.setdefault((kind, value), index)

    def find(self, cell: Cell) -> int | None:
        """Return the index of the word that a cell means, None if it means none."""
        if ("text", cell.text) in self._known:
            return self._known["text", cell.text]
        number, truth, time = cell_meaning(cell, self.decimal)
        # A reader may make numbers of truth values: 1 is true where no word is 1, and the other way
        # round.
        tries = (
            ("number", number),
            ("truth", truth),
            ("truth", number),
            ("number", truth),
            ("time", time),
        )
        return next((self._known[key] for key in tries if key in self._known), None)


def is_missing_cell(cell: Cell) -> bool:
    """Return whether a cell is missing: nothing, an infinite number, or the word ``nan``."""
    if cell.text is not None:
        number = _parse_number_cell(cell.text, ".")
        return cell.text.lower() == "nan" or (number is not None and not math.isfinite(number))
    return cell.time is None and (cell.number is None or not math.isfinite(cell.number))
