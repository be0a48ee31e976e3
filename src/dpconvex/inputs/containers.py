"""Containers of records that are read where invalid rows are ignored, record by record.

Lemma: what becomes of record i, its values and whether it is valid, is a function of record i and
of public facts alone.

Public facts are the type of the container, the number of its records (a nominal one under
add-or-remove-one), and the shape that is declared: one number per target, a column of ``y`` for
each product that has costs, a column of ``X`` for each pair of ``feature_bounds`` or for each
column that a fitted model knows. Of arrays, tables and Dask collections the shape and the names
and types of columns are public as well, because whoever made them has decided on them.

The shape of a list is no public fact. ``numpy.asarray`` takes it from all records together: one
``None`` among lists of one number each makes objects of all of them, so that one record decides
whether all others are valid. Containers that declare no shape (lists, tuples, deques, generators
and other iterables) are therefore read one record at a time, into the declared shape. A record
that does not fit is ignored. Where no public fact declares the shape, such a container is refused
by its type, before any record is looked at.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from dpconvex.core.checks import data_error
from dpconvex.core.person_identifiers import exact_identifiers
from dpconvex.core.rows import is_partitioned
from dpconvex.engine.dask.partitions import partition_number, partition_numbers
from dpconvex.system.lazy_imports import nw
from dpconvex.types import Array

# Of these the parts are no cells of a record.
_NO_RECORDS = (str, bytes, bytearray, memoryview, Mapping, Set)
# Kinds of arrays whose cells are no numbers: durations, dates, structures.
NO_NUMBERS = "mMV"
# How objects say that they are an array or a table of a shape and types of their own.
_ARRAYS = ("__array__", "__array_interface__", "__array_struct__", "__dataframe__")


def is_plain_container(data: object) -> bool:
    """Return whether data are a container that declares no shape, by its type alone."""
    kind = type(data)
    if isinstance(data, (*_NO_RECORDS, np.generic)) or any(hasattr(kind, name) for name in _ARRAYS):
        return False
    if issparse(data) or is_partitioned(data) or _is_buffer(data):
        return False
    sequence = hasattr(kind, "__getitem__") and hasattr(kind, "__len__")
    return hasattr(kind, "__iter__") or sequence


def _is_buffer(data: Any) -> bool:
    """Return whether data lie in memory as numbers of one type, as those of ``array.array`` do."""
    try:
        memoryview(data)
    except (TypeError, ValueError, BufferError):
        return False
    return True


def declared_columns(feature_bounds: Any) -> int | None:
    """Return how many columns the parameter ``feature_bounds`` declares; None if it is None, or
    one pair for all columns.
    """
    if isinstance(feature_bounds, Mapping):
        return len(feature_bounds)
    if not isinstance(feature_bounds, (Sequence, np.ndarray)):
        return None
    try:
        shapes = [np.shape(side) for side in feature_bounds]
    except ValueError:  # no bounds: they are refused when the fit is planned
        return None
    return next((shape[0] for shape in shapes if len(shape) == 1), None)


def read_records(name: str, container: Any, owner: str) -> list[Any]:
    """Return the records of a plain container, each as it is."""
    try:
        return list(container)
    except Exception as error:
        problem = _unreadable(name, container, owner, error)
    raise problem


def readable_twice(name: str, data: Any, owner: str) -> Any:
    """Return data as they are, or as a list what is used up when it is read, a generator for
    instance.
    """
    return read_records(name, data, owner) if isinstance(data, Iterator) else data


def read_rows(records: Iterable[Any], width: int) -> Array:
    """Return a row of numbers for each record; NaN throughout where a record does not have as many
    cells as are declared.
    """
    records = list(records)
    rows = np.full((len(records), width), np.nan)
    for row, record in zip(rows, records, strict=True):
        cells = record_cells(record, width)
        if len(cells) == width:
            row[:] = list(map(partition_number, cells))
    return rows


def read_cells_of_one(records: NDArray[Any]) -> NDArray[Any]:
    """Return the one cell of every record of an array of objects, None of records that have none
    or several.
    """
    cells = np.empty(records.size, dtype=object)
    for place, record in enumerate(records.ravel()):
        found = record_cells(record, 1)
        cells[place] = found[0] if found else None
    return cells.reshape(records.shape)


def read_target_numbers(targets: NDArray[Any]) -> Array:
    """Return targets as numbers, NaN where a record is none. A list of one number is that
    number.
    """
    return partition_numbers(read_cells_of_one(targets) if targets.dtype.kind == "O" else targets)


def record_cells(record: Any, most: int) -> list[Any]:
    """Return the cells of a record, none of them if there are more than so many or if they cannot
    be read. What is no row is a row of one cell.
    """
    # The usual records first, of which nothing else need be asked.
    if type(record) is float:
        return [record]
    if type(record) in (list, tuple):
        return list(record) if len(record) <= most else []
    try:
        cells = _cells_of_record(record, most)
    except Exception:  # whatever a record does when it is read: an error would tell of it
        return []
    return cells if len(cells) <= most else []


def _cells_of_record(record: Any, most: int) -> list[Any]:
    if isinstance(record, (float, int, np.generic, *_NO_RECORDS)):
        return [record]
    if not isinstance(record, np.ndarray) and hasattr(type(record), "__array__"):
        record = np.asarray(record)  # a row of another library
    if isinstance(record, np.ma.MaskedArray):
        record = without_mask(record)
    if isinstance(record, np.ndarray):
        return list(record.ravel()) if record.ndim < 2 else []
    if not isinstance(record, Iterable):
        return [record]
    # One cell more than declared shows that a record is too long, however long it is.
    return list(itertools.islice(record, most + 1))


def objects_of(records: Sequence[Any]) -> NDArray[Any]:
    """Return records as an array of objects with one axis, each as it is."""
    found = np.empty(len(records), dtype=object)
    for place, record in enumerate(records):
        found[place] = record
    return found


def without_mask(values: np.ma.MaskedArray[Any, Any]) -> NDArray[Any]:
    """Return a masked array as a plain one, with NaN, or None among objects, for masked cells."""
    plain = np.asarray(values.data)
    if plain.dtype.kind in NO_NUMBERS:  # refused by its type
        return plain
    masked = np.ma.getmaskarray(values)
    if plain.dtype.kind not in "biuf":
        return np.where(masked, np.array(None), plain.astype(object))
    kind = plain.dtype if plain.dtype.kind == "f" else np.dtype(np.float64)
    return np.where(masked, np.array(np.nan, dtype=kind), plain.astype(kind))


def as_marked_table(X: Any, columns: int | None, owner: str) -> Any:
    """Return a table whose invalid rows are to be marked: dataframes, sparse tables and arrays as
    they are, and the records of everything else as an array of numbers.

    Parameters
    ----------
    X : object
        As the user gave it.
    columns : int or None
        The declared number of columns.
    owner : str
        Name for error messages.
    """
    if is_plain_container(X):
        if columns is None:
            remedy = "give feature_bounds for each column, (lows, highs)"
            raise undeclared_width("X", X, owner, "columns", remedy)
        return read_rows(read_records("X", X, owner), columns)
    if issparse(X):
        return X
    if not isinstance(X, np.ndarray) and nw.dependencies.is_into_dataframe(X):
        return X
    array = read_array("X", X, owner)
    if array.dtype.kind == "O" and array.ndim == 1 and columns is not None:
        return read_rows(array, columns)
    return array


def as_marked_column(name: str, values: Any, owner: str) -> Any:
    """Return one value per record as an array, of objects where a plain container or a masked array
    holds them; what is refused by its type as it is.
    """
    if is_plain_container(values):
        return objects_of(read_records(name, values, owner))
    if isinstance(values, (Mapping, Set)) or issparse(values):
        return values
    if isinstance(values, np.ma.MaskedArray) and values.dtype.kind in NO_NUMBERS:
        return np.asarray(values.data)
    return read_column(name, values, owner)


def read_column(name: str, values: Any, owner: str) -> NDArray[Any]:
    """Return one value per record as an array in which no value changes what another one is."""
    if is_plain_container(values) and not isinstance(values, Sequence):
        values = read_records(name, values, owner)
    try:
        return exact_identifiers(values)
    except Exception as error:
        problem = _unreadable(name, values, owner, error)
    raise problem


def read_array(name: str, data: Any, owner: str) -> NDArray[Any]:
    """Return what is no plain container as an array, with NaN or None for masked cells."""
    if isinstance(data, np.ma.MaskedArray):
        return without_mask(data)
    try:
        return np.asarray(data)
    except Exception as error:
        problem = _unreadable(name, data, owner, error)
    raise problem


def _unreadable(name: str, data: object, owner: str, error: Exception) -> Exception:
    """Return the error about a container that raises one when it is read, whose own words may quote
    a record. It is raised outside of the handler, so that it does not carry the original.
    """
    got = f"a {type(data).__name__} that raised {type(error).__name__}"
    return data_error(name, owner, "an array, or a container whose records can be read", got)


def undeclared_width(
    name: str, data: object, owner: str, what: str, declaration: str = ""
) -> Exception:
    """Return the error about a container whose records have a number of cells that nothing
    declares.
    """
    must = (
        "an array or a table with invalid_rows='ignore', because nothing declares its number of "
        f"{what}"
    )
    remedy = f"Pass an array of floats{', or ' + declaration if declaration else ''}."
    return data_error(name, owner, must, f"a {type(data).__name__}", remedy, kind=TypeError)
