"""Records of a fit: what a row of the data is a row of, as its certificate states it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from dpconvex.checks import parameter_error
from dpconvex.engine.rows import is_partitioned
from dpconvex.inputs import InputError
from dpconvex.inputs.people_and_weights import RowsOfPeople

#: Of arrays and lists there is nothing to say: their cells are what the user made of them.
ARRAY = "array"
TABLE = "table"
FILE = "file"
SOURCES = (ARRAY, TABLE, FILE)


@dataclass(frozen=True, repr=False)
class RowsOfSource:
    """Rows for a fit or a score with what they were read from, where their container does not say
    it.

    Attributes
    ----------
    rows : array or dataframe
        What would be given without it.
    source : str
        One of `SOURCES`.
    expected : int, optional
        The public number of records, where the schema declares it.
    """

    rows: Any
    source: str
    expected: int | None = None


def source_of_records(*given: Any) -> str:
    """Return what the records of data are rows of: arrays, tables whose columns have types, or
    files.

    Rows, targets, weights and identifiers are asked: types of one column are assumed public like
    those of all. The container decides, and never a value.
    """
    found = [_source_of_container(data) for data in given if data is not None]
    return max(found, key=SOURCES.index, default=ARRAY)


def _source_of_container(data: Any) -> str:
    if isinstance(data, RowsOfSource):
        return data.source
    if isinstance(data, RowsOfPeople):
        return source_of_records(data.rows, data.groups)
    if isinstance(data, (str, os.PathLike)):
        return FILE
    chunks = is_partitioned(data) and hasattr(data, "rechunk")  # an array of Dask
    if isinstance(data, (np.ndarray, np.generic)) or issparse(data) or chunks:
        return ARRAY
    typed = any(hasattr(type(data), name) for name in ("dtype", "dtypes", "schema", "type"))
    return TABLE if typed else ARRAY


def with_source(rows: Any, *others: Any) -> Any:
    """Return rows that say what all of the data are rows of, where the rows alone do not."""
    return rows_from(source_of_records(rows, *others), rows)


def rows_from(source: str, rows: Any) -> Any:
    """Return rows that say what they are rows of, as they are where they say it themselves."""
    if source == source_of_records(rows):
        return rows
    plain, expected = rows_of_source(rows)
    return RowsOfSource(plain, source, expected)


def rows_of_source(data: Any) -> tuple[Any, int | None]:
    """Return rows without their source, and how many records there must be, if that is declared."""
    if isinstance(data, RowsOfSource):
        return data.rows, data.expected
    return data, None


def check_source(source: object, owner: str) -> str:
    """Return what the records of a fit will be rows of, for its certificate, or raise."""
    if not isinstance(source, str) or source not in SOURCES:
        raise parameter_error("records", owner, f"one of {list(SOURCES)}", repr(source))
    return source


def refuse_expected_records(neighbors: object) -> None:
    """Raise where a number of records is declared that the neighbouring relation hides."""
    if neighbors == "add_or_remove_one":
        raise InputError(
            "The schema's [file] must not declare rows with neighbors='add_or_remove_one': the "
            "number of records is private then, and whether a file has so many would tell of it. "
            "Take rows out of the schema."
        )


def require_expected_records(found: int, expected: int | None) -> None:
    """Raise unless there are as many records as are declared to be; before anything is charged."""
    if expected is not None and found != expected:
        raise InputError(
            f"The file must have {expected:,} records, the public number that rows in the schema's "
            "[file], or --rows, declares. Got another number instead. In a CSV file each line is "
            "a record, and a line break within a field makes more of them: `dpconvex bounds "
            "check` counts them, for your eyes only."
        )
