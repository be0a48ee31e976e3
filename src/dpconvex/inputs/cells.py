"""Cells of any table: what one holds is read by itself, whatever the type of its column.

A column arrives as text, numbers, times or Python objects, depending on who read the file, and sometimes on a single
value in it. A cell means the same in all of them: ``39`` and ``"39"`` are one number, ``1.0`` and ``"1"`` one category.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Cells", "cells_of", "with_point"]

# A number whose decimal sign is a comma; points, if there are any, set off thousands.
_COMMA_NUMBER = r"^[+-]?(\d{1,3}(\.\d{3})+|\d*)(,\d*)?([eE][+-]?\d+)?$"


@dataclass(frozen=True)
class Cells:
    """One column: exactly one of text (null where missing), numbers (NaN) or times (NaT)."""

    text: pl.Series | None = None
    numbers: NDArray[np.float64] | None = None
    times: NDArray[np.datetime64] | None = None

    def __len__(self) -> int:
        return len(next(item for item in (self.text, self.numbers, self.times) if item is not None))

    def as_numbers(self, decimal: str = ".") -> NDArray[np.float64]:
        """Return finite numbers, and NaN for everything else."""
        import polars as pl

        if self.numbers is not None:
            found = self.numbers
        elif self.text is not None:
            text = with_point(self.text) if decimal == "," else self.text
            cast = text.cast(pl.Float64, strict=False)
            truth = pl.DataFrame({"text": text}).select(
                pl.when(pl.col("text").str.to_lowercase() == "true")
                .then(1.0)
                .when(pl.col("text").str.to_lowercase() == "false")
                .then(0.0)
            )
            found = cast.fill_null(truth.to_series()).fill_null(math.nan).to_numpy()
        else:
            return np.full(len(self), math.nan)
        return np.where(np.isfinite(found), found, math.nan)

    def distinct(self) -> tuple[list[Any], NDArray[np.intp]]:
        """Return the different cells, None for a missing one, and which of them each row holds."""
        if self.text is not None:
            words = self.text.unique(maintain_order=True)
            places = {word: place for place, word in enumerate(words.to_list())}
            rows = self.text.to_frame("text").join(
                _frame(list(places)), on="text", how="left", nulls_equal=True, maintain_order="left"
            )
            return list(places), rows["place"].to_numpy().astype(np.intp)
        plain = self.numbers if self.numbers is not None else self.times
        assert plain is not None
        values, inverse = np.unique(plain, return_inverse=True)
        items = [None if value != value or _is_nat(value) else value.item() for value in values]
        return items, inverse.reshape(-1)


def with_point(text: pl.Series) -> pl.Series:
    """Return numbers written with a decimal comma in the usual way, and null for a point that sets off no thousands."""
    plain = text.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)
    pointed = text.str.contains(".", literal=True) & ~text.str.contains(_COMMA_NUMBER)
    return plain.set(pointed.fill_null(False), None)


def _frame(words: list[str | None]) -> pl.DataFrame:
    import polars as pl

    return pl.DataFrame({"text": pl.Series(words, dtype=pl.String), "place": range(len(words))})


def _is_nat(value: object) -> bool:
    return isinstance(value, np.datetime64) and bool(np.isnat(value))


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
        return Cells(times=_seconds(np.asarray(column)))
    if isinstance(kind, np.dtype) and kind.kind == "b":
        return Cells(text=pl.Series(["true" if item else "false" for item in np.asarray(column)]))
    # Extension types of pandas as well: their missing values are objects of their own.
    values = column.tolist() if hasattr(column, "tolist") else list(column)
    return Cells(
        text=pl.Series([_word(value) for value in values], dtype=pl.String).str.strip_chars()
    )


def _of_polars(column: pl.Series) -> Cells:
    import polars as pl

    kind = column.dtype
    if kind == pl.String:
        return Cells(text=column.str.strip_chars())
    if kind in (pl.Categorical, pl.Enum):
        return Cells(text=column.cast(pl.String).str.strip_chars())
    if kind == pl.Boolean:
        return Cells(text=column.cast(pl.String))
    if kind.is_numeric():
        return Cells(numbers=column.cast(pl.Float64).fill_null(math.nan).to_numpy())
    if kind == pl.Date or kind == pl.Datetime:
        if kind == pl.Datetime:
            column = column.dt.replace_time_zone(None)  # as the clock on the wall showed it
        return Cells(times=column.cast(pl.Datetime("us")).to_numpy().astype("datetime64[s]"))
    if kind == pl.Object:
        values = [_word(value) for value in column.to_list()]
        return Cells(text=pl.Series(values, dtype=pl.String).str.strip_chars())
    return Cells(text=pl.Series([None] * len(column), dtype=pl.String))


def _seconds(times: NDArray[np.datetime64]) -> NDArray[np.datetime64]:
    return times.astype("datetime64[s]")


def _word(value: object) -> str | None:
    """Return a Python object as text, None if it is missing or of no kind that a table holds."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, (int, np.integer)):
        return str(int(value)) if abs(int(value)) < 10**300 else None
    if isinstance(value, (float, np.floating, Decimal)):
        return number_word(float(value))
    if type(value).__name__ == "NaTType":
        return None
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None, microsecond=0).isoformat()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, np.datetime64) and not np.isnat(value):
        return str(value.astype("datetime64[s]"))
    return None


def number_word(value: float) -> str | None:
    """Return how a number is written as a category: whole ones without a decimal point."""
    if not math.isfinite(value):
        return None
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(value)
