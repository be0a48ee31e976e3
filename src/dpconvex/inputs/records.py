"""Records of a fit: whether they are rows of a table, as its certificate states it, and how many
there must be.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse

from dpconvex.core.checks import parameter_error
from dpconvex.core.rows import is_partitioned
from dpconvex.inputs import InputError
from dpconvex.inputs.people_and_weights import RowsOfPeople

_TOLD = "_told_of_records"  # attribute of a model while it is given what others have read


class RecordFacts(NamedTuple):
    """Public facts about the records that a model is given, where their containers do not say
    them.
    """

    of_table: bool = False  # whether they were rows of a table, or lines of a file
    expected: int | None = None  # the public number of them, where a schema declares it
    encoded: bool = False  # whether the model's schema has made numbers of them already


@contextmanager
def told_of_records(
    model: Any, of_table: bool = False, expected: int | None = None, encoded: bool = False
) -> Iterator[None]:
    """Let the fits, predictions and scores of a model know public facts about the records that
    it is given.
    """
    before = vars(model).get(_TOLD)
    known = facts_told(model)
    number = known.expected if expected is None else expected
    told = RecordFacts(known.of_table or of_table, number, known.encoded or encoded)
    setattr(model, _TOLD, told)
    try:
        yield
    finally:
        vars(model).pop(_TOLD, None)
        if before is not None:
            setattr(model, _TOLD, before)


def facts_told(model: Any) -> RecordFacts:
    """Return what a model was told of the records that it is given."""
    return getattr(model, _TOLD, RecordFacts())


def are_of_table(model: Any, *given: Any) -> bool:
    """Return whether records are rows of a table whose columns have types, or lines of a file.

    Rows, targets, weights and identifiers are asked, and what the model was told: the type of one
    column is assumed public like those of all. The container decides, and never a value.
    """
    return facts_told(model).of_table or any(map(_has_typed_columns, given))


def _has_typed_columns(data: Any) -> bool:
    if isinstance(data, RowsOfPeople):
        return _has_typed_columns(data.rows) or _has_typed_columns(data.groups)
    if isinstance(data, (str, os.PathLike)):
        return True
    chunks = is_partitioned(data) and hasattr(data, "rechunk")  # an array of Dask
    if isinstance(data, (np.ndarray, np.generic)) or issparse(data) or chunks:
        return False
    return any(hasattr(type(data), name) for name in ("dtype", "dtypes", "schema", "type"))


def check_table_setting(table: object, owner: str) -> bool:
    """Return whether a fit will be given a table, for its certificate, or raise."""
    if not isinstance(table, (bool, np.bool_)):
        raise parameter_error("table", owner, "True or False", repr(table))
    return bool(table)


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
