"""Types of the columns of a table, and which of them a schema refuses.

Whoever reads text into a table with types guesses the type of a column from all of its cells: one
that is no number makes text of the others. Where the schema says how text is read, numbers and text
would then differ: with a decimal comma ``1.234`` is the number 1.234 to the reader and 1234 in
text. Such a column must be text, and is refused by its type, whatever its cells hold. So are times
with a zone, since readers turn what the clock of a text showed to another zone, and types in which
a schema reads nothing. Where the schema has no such rule, a number or a time is the same in both.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import numpy as np

from dpconvex.inputs import InputError
from dpconvex.inputs.column_encoding import date_format_digits
from dpconvex.inputs.schema import Column, Schema, SchemaDate, source_column
from dpconvex.system.lazy_imports import nw, pl


class ColumnType(enum.Enum):
    """What the type of a column says about its cells."""

    TEXT = "text"
    NUMBERS = "numbers"
    TRUTHS = "truth values"
    TIMES = "dates or times"
    ZONED = "times with a time zone"
    CELLS = "cells of any kind"  # objects, lists and columns without a value: nothing is guessed
    OTHER = "another type"  # which no schema reads: times of day, durations, lists, bytes


_NUMPY = {
    **dict.fromkeys("iufc", ColumnType.NUMBERS),
    **dict.fromkeys("UST", ColumnType.TEXT),
    "b": ColumnType.TRUTHS,
    "M": ColumnType.TIMES,
    "O": ColumnType.CELLS,
}
_REMEDY = (
    "Read the table again with all columns as text (dtype=str in pandas, infer_schema=False in "
    "polars), or give the CSV file itself; if it was never text, take the rule out of the schema."
)


def column_type(column: Any) -> ColumnType:
    """Return the type of a column of a table, a dictionary or a Dask collection; its cells are not
    read.
    """
    column = getattr(column, "_meta", column)  # of Dask
    if isinstance(column, (list, tuple)):
        return ColumnType.CELLS
    dtype: Any = getattr(column, "dtype", None)
    if isinstance(dtype, np.dtype):
        return _NUMPY.get(dtype.kind, ColumnType.OTHER)
    categories: Any = getattr(dtype, "categories", None)
    if hasattr(categories, "to_series") and hasattr(dtype, "ordered"):  # of pandas
        return column_type(categories.to_series())
    if hasattr(dtype, "subtype") and isinstance(dtype.subtype, np.dtype):  # sparse ones of pandas
        return _NUMPY.get(dtype.subtype.kind, ColumnType.OTHER)
    if hasattr(dtype, "pyarrow_dtype") or type(column).__module__.split(".")[0] == "pyarrow":
        kind = getattr(dtype, "pyarrow_dtype", getattr(column, "type", None))
        column = pl.Series(_without_cells(kind))
    try:
        kind = nw.from_native(column[:0], series_only=True).dtype
    except TypeError:
        return ColumnType.CELLS
    if kind in (nw.String, nw.Categorical, nw.Enum):
        return ColumnType.TEXT
    if kind.is_numeric():
        return ColumnType.NUMBERS
    if kind == nw.Boolean:
        return ColumnType.TRUTHS
    if isinstance(kind, nw.Datetime) and kind.time_zone is not None:
        return ColumnType.ZONED
    if kind in (nw.Date, nw.Datetime):
        return ColumnType.TIMES
    return ColumnType.CELLS if kind in (nw.Object, nw.Unknown) else ColumnType.OTHER


def _without_cells(kind: Any) -> Any:
    """Return a column of a type of pyarrow that has no cell."""
    import pyarrow

    return pyarrow.nulls(0, type=kind)


def check_column_types(schema: Schema, columns: Mapping[str, Any]) -> None:
    """Raise if one of the given columns has a type in which nobody can see how its text was read.

    Names are those of the table; columns that the schema does not read are not looked at.
    """
    read = {source_column(column): column for column in schema.columns}
    target = schema.target
    others = [] if target is None else [target.name, *([target.event] if target.event else [])]
    for name in (*read, *others):
        if name not in columns:
            continue
        kind = column_type(columns[name])
        if kind is ColumnType.ZONED:
            raise InputError(
                f"The column {name!r} must be text or times without a zone. Got times with a zone "
                "instead, which a reader may have made of another clock than the text showed. "
                "Keep the clock and drop the zone: dt.tz_localize(None) in pandas, "
                "dt.replace_time_zone(None) in polars."
            )
        if kind is ColumnType.OTHER:
            raise InputError(
                f"The column {name!r} must be text, numbers, truth values, dates or times. Got "
                "another type instead, in which the schema reads nothing: write it as text."
            )
        rule = _text_rule(schema, read.get(name), kind)
        if rule:
            raise InputError(
                f"The column {name!r} must be text, because the schema says by {rule} how its text "
                f"is read. Got a column of {kind.value} instead, whose type a reader may have "
                f"guessed from all of its cells. {_REMEDY}"
            )


def _text_rule(schema: Schema, column: Column | None, kind: ColumnType) -> str:
    """Return the rule of the schema that is about text and cannot be followed in a column of this
    type; empty where there is none.
    """
    decimal = schema.file.decimal
    if kind is ColumnType.NUMBERS and decimal != ".":
        return f'decimal = "{decimal}" in [file]'
    if isinstance(column, SchemaDate) and column.format:
        # Whole numbers lose nothing but zeros in front, which are put back where a date is made of
        # digits alone.
        digits = kind is ColumnType.NUMBERS and date_format_digits(column.format)
        if kind in (ColumnType.NUMBERS, ColumnType.TIMES) and not digits:
            return f'format = "{column.format}"'
    return ""
