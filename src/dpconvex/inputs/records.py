"""Records of a fit: what a row of the data is a row of, as its certificate states it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

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
_TOLD = "_record_source"  # attribute of a model while it is given what was read from elsewhere


class RecordSource(NamedTuple):
    """What records were read from, and the public number of them, where the schema declares it."""

    source: str = ARRAY
    expected: int | None = None


@contextmanager
def records_from(model: Any, source: str, expected: int | None = None) -> Iterator[None]:
    """Let a model's fits and scores know what their records were read from, where their
    containers do not say it.
    """
    told = vars(model).get(_TOLD)
    before = stated_source(model)
    wider = widest_source(source, before.source)
    number = before.expected if expected is None else expected
    setattr(model, _TOLD, RecordSource(wider, number))
    try:
        yield
    finally:
        vars(model).pop(_TOLD, None)
        if told is not None:
            setattr(model, _TOLD, told)


def stated_source(model: Any) -> RecordSource:
    """Return what a model was told of the records that it will be given."""
    return getattr(model, _TOLD, RecordSource())


def source_of_records(model: Any, *given: Any) -> str:
    """Return what the records of data are rows of: arrays, tables whose columns have types, or
    files.

    Rows, targets, weights and identifiers are asked, and the model: types of one column are assumed
    public like those of all. The container decides, and never a value.
    """
    found = [_source_of_container(data) for data in given if data is not None]
    return widest_source(stated_source(model).source, *found)


def widest_source(*sources: str) -> str:
    """Return the source about which most is assumed."""
    return max(sources, key=SOURCES.index)


def _source_of_container(data: Any) -> str:
    if isinstance(data, RowsOfPeople):
        return widest_source(_source_of_container(data.rows), _source_of_container(data.groups))
    if isinstance(data, (str, os.PathLike)):
        return FILE
    chunks = is_partitioned(data) and hasattr(data, "rechunk")  # an array of Dask
    if isinstance(data, (np.ndarray, np.generic)) or issparse(data) or chunks:
        return ARRAY
    typed = any(hasattr(type(data), name) for name in ("dtype", "dtypes", "schema", "type"))
    return TABLE if typed else ARRAY


def check_source(source: object, owner: str) -> str:
    """Return what the records of a fit will be rows of, for its certificate, or raise."""
    if not isinstance(source, str) or source not in SOURCES:
        raise parameter_error("records", owner, f"one of {list(SOURCES)}", repr(source))
    return source


def refuse_expected_records(expected: int | None, neighbors: object) -> None:
    """Raise where a number of records is declared that the neighbouring relation hides."""
    if expected is not None and neighbors == "add_or_remove_one":
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
