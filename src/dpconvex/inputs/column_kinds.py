"""What the columns of a file seem to hold, for a template that people fill in: never a value, and never for a fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dpconvex.inputs.opening import open_table, without_values
from dpconvex.inputs.schema import MISSING_WORDS, FileFormat, Flag

if TYPE_CHECKING:
    import polars as pl

__all__ = ["KINDS", "read_kinds"]

KINDS = ("number", "code", "flag", "date", "text")
MOST_CODES = 25  # different whole numbers of a column that may be codes rather than amounts


def read_kinds(path: Path, file: FileFormat) -> dict[str, str]:
    """Return the names of the columns and which of ``KINDS`` each seems to be, and nothing else."""
    opened = open_table(path, file)
    table = opened.read(path, opened.names)
    with without_values(path):
        return {name: _kind(table[name]) for name in opened.names}


def _kind(column: pl.Series) -> str:
    import polars as pl

    if column.dtype == pl.Boolean:
        return "flag"
    if column.dtype in (pl.Date, pl.Datetime):
        return "date"
    numeric = column.dtype.is_numeric()
    if not numeric and column.dtype != pl.String:
        return "text"
    known = column.drop_nulls()
    if not numeric:
        known = known.str.strip_chars()
        known = known.filter(~known.is_in(list(MISSING_WORDS)))
        usual = Flag("")
        words = set(known.str.to_lowercase().unique().to_list())
        if 1 < len(words) <= 4 and words <= {*usual.true, *usual.false}:
            return "flag"
    numbers = known.cast(pl.Float64, strict=False)
    if numbers.null_count() == 0:
        different = numbers.unique()
        if set(different.to_list()) == {0.0, 1.0}:
            return "flag"
        whole = bool((different == different.round()).all())
        return (
            "code"
            if whole and len(different) <= MOST_CODES and len(known) > MOST_CODES
            else "number"
        )
    if len(known) and _are_dates(known):
        return "date"
    return "text"


def _are_dates(words: pl.Series) -> bool:
    import datetime

    for word in words.unique().to_list():
        try:
            datetime.datetime.fromisoformat(word)
        except ValueError:
            return False
    return True
