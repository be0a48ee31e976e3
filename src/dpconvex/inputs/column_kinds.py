"""What the columns of a file seem to hold, for a template that people fill in: never a value, and never for a fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from dpconvex.inputs.cells import with_point
from dpconvex.inputs.delimited import counted
from dpconvex.inputs.opening import open_table, without_values
from dpconvex.inputs.schema import MISSING_WORDS, FileFormat, Flag

if TYPE_CHECKING:
    import polars as pl

__all__ = ["KINDS", "Seen", "read_kinds"]

KINDS = ("number", "code", "identifier", "flag", "date", "text", "name")
MOST = 0.9  # of its cells decide what a column seems to hold: a remark among numbers makes no categories of them
MOST_CODES = 25  # different whole numbers of a column that may be codes rather than amounts
DIFFERENT = 0.995  # of the whole numbers of a column: identifiers rather than amounts, which meet now and then
ZEROS = 0.01  # of the cells of a column that begin with a zero, like 01067: words of digits rather than numbers
DAYS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d")
# "" is ISO 8601
DATE_FORMATS = ("", *DAYS, *(f"{day} {time}" for day in DAYS for time in ("%H:%M", "%H:%M:%S")))


@dataclass(frozen=True)
class Seen:
    """What a column seems to hold: one of ``KINDS``, its decimal sign, and the format of its dates."""

    kind: str
    decimal: str = "."
    format: str = ""


def read_kinds(path: Path, file: FileFormat) -> tuple[dict[str, Seen], list[str]]:
    """Return the names of the columns, what each seems to hold, and how many lines cannot be read."""
    opened = open_table(path, file)
    table, problems = opened.read_rows(opened.names)
    with without_values(path):
        kinds = {name: _seen(table[name]) for name in opened.names}
    return kinds, [] if opened.layout is None else counted(problems, opened.layout)


def _seen(column: pl.Series) -> Seen:
    import polars as pl

    if column.dtype == pl.Boolean:
        return Seen("flag")
    if column.dtype in (pl.Date, pl.Datetime):
        return Seen("date")
    numeric = column.dtype.is_numeric()
    if not numeric and column.dtype != pl.String:
        return Seen("text")
    known = column.drop_nulls()
    if not numeric:
        known = known.str.strip_chars()
        known = known.filter(~known.is_in(list(MISSING_WORDS)))
        usual = Flag("")
        words = set(known.str.to_lowercase().unique().to_list())
        if 1 < len(words) <= 4 and words <= {*usual.true, *usual.false}:
            return Seen("flag")
    zeros = 0 if numeric else int(known.str.contains(r"^0[0-9]+$").sum())
    spelled = zeros > ZEROS * len(known)
    numbers = known.cast(pl.Float64, strict=False).drop_nulls()
    if len(numbers) >= MOST * len(known) and not spelled:
        different = numbers.unique()
        if set(different.to_list()) == {0.0, 1.0} and len(numbers) == len(known):
            return Seen("flag")
        whole = bool((different == different.round()).all())
        if whole and len(different) <= MOST_CODES < len(known):
            return Seen("code")
        if whole and len(different) >= max(DIFFERENT * len(known), MOST_CODES):
            return Seen("identifier")
        return Seen("number")
    if not spelled and with_point(known).cast(pl.Float64, strict=False).count() >= MOST * len(known):
        return Seen("number", decimal=",")
    words = known.unique().to_list()
    for form in DATE_FORMATS:
        others = (word for word in words if not _is_date(word, form))
        allowed = math.floor((1 - MOST) * len(words))
        if next(islice(others, allowed, None), None) is None:
            return Seen("date", format=form)
    return Seen("name" if len(words) > max(MOST_CODES, len(known) / 4) else "text")


def _is_date(word: str, form: str) -> bool:
    import datetime

    try:
        if form:
            datetime.datetime.strptime(word, form)
        else:
            datetime.datetime.fromisoformat(word)
    except ValueError:
        return False
    return True
