"""The columns that a schema names, out of whatever holds a table: a frame, a dictionary of arrays, a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dpconvex.inputs.cells import Cells, cells_of
from dpconvex.inputs.errors import InputError
from dpconvex.inputs.opening import open_table, without_values
from dpconvex.inputs.schema import Schema

__all__ = ["column_names", "open_columns", "read_cells", "read_column"]


def open_columns(table: Any, wanted: list[str], schema: Schema, owner: str) -> Any:
    """Return a table that has the wanted columns, read once if it is a file or a plan; else raise.

    Parameters
    ----------
    table : dataframe, mapping of str to array, or path
        A pandas, polars, pyarrow or Dask table, a dictionary of columns, or a CSV or Parquet file.
    wanted : list of str
        Names of columns; the first that is not there is named in the error.
    schema : Schema
        How CSV files are written.
    owner : str
        Who asks, for error messages.
    """
    if isinstance(table, (str, os.PathLike)):
        path = Path(table)
        # Every line is a row and none is refused: what a row holds is the schema's matter.
        return open_table(path, schema.file).read(wanted, every_line=True)
    names = column_names(table)
    if names is None:
        raise TypeError(
            f"The table given to {owner} must have named columns: a pandas, polars or pyarrow table, a dictionary of "
            f"arrays, or the path of a CSV or Parquet file. Got {type(table).__name__} instead."
        )
    known = set(names)
    absent = [name for name in wanted if name not in known]
    if absent:
        more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
        raise InputError(f"The table given to {owner} has no column {absent[0]!r}{more}.")
    if hasattr(table, "collect") and hasattr(table, "collect_schema"):  # a LazyFrame of polars
        with without_values(None):
            return table.select(wanted).collect()
    return table


def read_column(table: Any, name: str, owner: str) -> Any:
    """Return a column of an open table, which must be there once."""
    column = table[name]
    if getattr(column, "ndim", 1) != 1:
        raise InputError(f"The column {name!r} given to {owner} must be there once, one value a row.")
    return column


def read_cells(table: Any, wanted: list[str], schema: Schema, owner: str) -> dict[str, Cells]:
    """Return the wanted columns of a table as cells, by name; parameters are those of `open_columns`."""
    table, cells = open_columns(table, wanted, schema, owner), {}
    for name in wanted:
        column = read_column(table, name, owner)
        with without_values(None):
            cells[name] = cells_of(column)
    if len({len(column) for column in cells.values()}) > 1:
        raise InputError(f"The columns given to {owner} must be of one length.")
    return cells


def column_names(table: Any) -> list[object] | None:
    """Return the names of a table's columns, or None if it has none."""
    if isinstance(table, Mapping):
        return list(table)
    if isinstance(table, np.ndarray):
        return None
    if hasattr(table, "collect_schema"):
        return list(table.collect_schema().names())
    names = getattr(table, "column_names", None)  # of pyarrow
    if names is None:
        names = getattr(table, "columns", None)
    return None if names is None else list(names)
