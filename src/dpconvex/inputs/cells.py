"""Cells of any table: what one holds is read by itself, whatever the type of its column.

A column arrives as text, numbers, times or Python objects, depending on who read the file, and sometimes on a single
value in it. A cell means the same in all of them: ``39`` and ``"39"`` are one number, ``1.0`` and ``"1"`` one category.
What a cell is, text, a number or a time, is therefore kept for every cell and not for the column.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpconvex.engine.votes import canonical_identifier, exact_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import polars as pl

__all__ = ["Cell", "Cells", "cell_of", "cells_of", "identifiers_of", "number_word", "with_point"]

# A number whose decimal sign is a comma; points, if there are any, set off thousands.
_COMMA_NUMBER = r"^[+-]?(\d{1,3}(\.\d{3})+|\d*)(,\d*)?([eE][+-]?\d+)?$"
_NO_TIME = np.datetime64("NaT", "s")


class Cell(NamedTuple):
    """What one cell holds: text, a number or a time; a missing one holds none of them."""

    text: str | None = None
    number: float | None = None
    time: np.datetime64 | None = None


@dataclass(frozen=True)
class Cells:
    """One column: text (null elsewhere), numbers (NaN elsewhere) and times (NaT elsewhere), one of them a row at most.

    None stands for a part that no row has. Numbers may be infinite. Booleans are the words ``true`` and ``false``.
    """

    text: pl.Series | None = None
    numbers: NDArray[np.float64] | None = None
    times: NDArray[np.datetime64] | None = None

    def __len__(self) -> int:
        return len(next(item for item in (self.text, self.numbers, self.times) if item is not None))

    def as_numbers(self, decimal: str = ".") -> NDArray[np.float64]:
        """Return finite numbers, and NaN for everything else; the decimal sign is that of text."""
        import polars as pl

        found = np.full(len(self), math.nan)
        if self.text is not None:
            text = with_point(self.text) if decimal == "," else self.text
            cast = text.cast(pl.Float64, strict=False)
            truth = pl.DataFrame({"text": text}).select(
                pl.when(pl.col("text").str.to_lowercase() == "true")
                .then(1.0)
                .when(pl.col("text").str.to_lowercase() == "false")
                .then(0.0)
            )
            found = cast.fill_null(truth.to_series()).fill_null(math.nan).to_numpy()
        if self.numbers is not None:
            found = np.where(np.isnan(self.numbers), found, self.numbers)
        return np.where(np.isfinite(found), found, math.nan)

    def distinct(self) -> tuple[list[Cell], NDArray[np.intp]]:
        """Return different cells, a missing one first, and which of them each row holds."""
        items, rows = [Cell()], np.zeros(len(self), dtype=np.intp)
        if self.text is not None:
            here = self.text.is_not_null().to_numpy()
            words, places = _unique_words(self.text.drop_nulls())
            rows[here] = places + len(items)
            items += [Cell(text=word) for word in words]
        if self.numbers is not None:
            here = ~np.isnan(self.numbers)
            numbers, places = np.unique(self.numbers[here], return_inverse=True)
            rows[here] = places.reshape(-1) + len(items)
            items += [Cell(number=number) for number in numbers.tolist()]
        if self.times is not None:
            here = ~np.isnat(self.times)
            times, places = np.unique(self.times[here], return_inverse=True)
            rows[here] = places.reshape(-1) + len(items)
            items += [Cell(time=time) for time in times]
        return items, rows


def _unique_words(text: pl.Series) -> tuple[list[str], NDArray[np.intp]]:
    import polars as pl

    words = text.unique(maintain_order=True).to_list()
    frame = pl.DataFrame({"text": pl.Series(words, dtype=pl.String), "place": range(len(words))})
    rows = text.to_frame("text").join(frame, on="text", how="left", maintain_order="left")
    return words, rows["place"].to_numpy().astype(np.intp)


def with_point(text: pl.Series) -> pl.Series:
    """Return numbers written with a decimal comma in the usual way, and null for a point that sets off no thousands."""
    plain = text.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    pointed = text.str.contains(".", literal=True) & ~text.str.contains(_COMMA_NUMBER)
    return plain.set(pointed.fill_null(False), None)


def cells_of(column: Any) -> Cells:
    """Return the cells of a column: a series of polars or pandas, a pyarrow array, an array or a list."""
    import polars as pl

    if type(column).__module__.split(".")[0] == "pyarrow":
        column = pl.Series(column.combine_chunks() if hasattr(column, "combine_chunks") else column)
    if isinstance(column, pl.Series):
        return _of_polars(column)
    kind = getattr(column, "dtype", None)
    if isinstance(kind, np.dtype) and kind.kind in "iuf":
        return Cells(numbers=np.asarray(column, dtype=np.float64))
    if isinstance(kind, np.dtype) and kind.kind == "M":
        return Cells(times=np.asarray(column).astype("datetime64[s]"))
    if isinstance(kind, np.dtype) and kind.kind == "c":  # one such number makes its column complex
        plain = np.asarray(column)
        return Cells(numbers=np.where(plain.imag == 0, plain.real, math.nan).astype(np.float64))
    if isinstance(kind, np.dtype) and kind.kind == "m":  # whose objects would be whole numbers
        return _of_objects([None] * len(column))
    # Extension types of pandas as well: their missing values are objects of their own.
    return _of_objects(column.tolist() if hasattr(column, "tolist") else list(column))


def _of_polars(column: pl.Series) -> Cells:
    import polars as pl

    kind = column.dtype
    if kind == pl.String:
        return Cells(text=column.str.strip_chars())
    if kind in (pl.Categorical, pl.Enum):
        return Cells(text=column.cast(pl.String).str.strip_chars())
    if kind == pl.Boolean:
        return Cells(text=column.cast(pl.String))
    if kind == pl.Object or kind == pl.Decimal:  # polars rounds decimals otherwise than Python
        return _of_objects(column.to_list())
    if kind.is_numeric():
        return Cells(numbers=column.cast(pl.Float64).fill_null(math.nan).to_numpy())
    if kind == pl.Date or kind == pl.Datetime:
        if kind == pl.Datetime:
            column = column.dt.replace_time_zone(None)  # as the clock on the wall showed it
        return Cells(times=column.to_numpy().astype("datetime64[s]"))
    return _of_objects([None] * len(column))


def _of_objects(values: Iterable[object]) -> Cells:
    """Return the cells of Python objects, each by its own type."""
    import polars as pl

    cells = [cell_of(value) for value in values]
    numbers = [math.nan if cell.number is None else cell.number for cell in cells]
    times = [_NO_TIME if cell.time is None else cell.time for cell in cells]
    words = [cell.text for cell in cells]
    return Cells(
        # Columns of numbers are many, and even empty ones of text take polars a while.
        pl.Series(words, dtype=pl.String).str.strip_chars() if any(w is not None for w in words) else None,
        np.array(numbers, dtype=np.float64),
        np.array(times, dtype="datetime64[s]"),
    )


def cell_of(value: object) -> Cell:
    """Return a Python object as a cell, a missing one if it is of no kind that a table holds."""
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


def identifiers_of(column: Any, missing: Sequence[str]) -> NDArray[Any]:
    """Return the identifiers of a column as they are, None for words that stand for nothing, or for their numbers.

    Not as cells, whose numbers are floats: whole numbers beyond 2^53 name different people.
    """
    values = exact_values(column)
    numbers = {word for word in map(canonical_identifier, missing) if isinstance(word, int)}
    if values.dtype.kind not in "OSU" and not numbers:
        return values
    cells = values.astype(object)
    nothing = [_word(cell) in missing or (bool(numbers) and canonical_identifier(cell) in numbers) for cell in cells]
    cells[nothing] = None
    return cells


def _word(value: object) -> str | None:
    text = value.decode(errors="replace") if isinstance(value, bytes) else value
    return str.__str__(text).strip() if isinstance(text, str) else None


def number_word(value: float) -> str | None:
    """Return how a number is written: whole ones without a decimal point."""
    if not math.isfinite(value):
        return None
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)
