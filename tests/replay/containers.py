"""Containers of every kind that hold the same records, of which one may be odd.

A maker returns a new container whenever it is called, because some can be read only once. A record
is a list of cells, or whatever somebody may have put in its place.
"""

from __future__ import annotations

import array
import datetime
import itertools
import math
import warnings
from collections import UserList, deque
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import dask
import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

Records = Sequence[Any]
Maker = Callable[[Records], Any]


class Raises:
    """An object that raises whatever is done with it, in words that quote it."""

    def _raise(self, *_: object) -> Any:
        raise RuntimeError("SECRET")

    __array__ = __bool__ = __eq__ = __float__ = __getitem__ = __hash__ = _raise
    __index__ = __iter__ = __len__ = __str__ = _raise


class NoFloat:
    """An object whose number is none."""

    def __float__(self) -> Any:
        return "SECRET"


class Warns:
    """A number that warns when it is read."""

    def __float__(self) -> float:
        warnings.warn("SECRET", UserWarning, stacklevel=2)
        return 0.25


class OddText(str):
    """Text that cannot be compared or looked up."""

    def _raise(self, *_: object) -> Any:
        raise RuntimeError("SECRET")

    __eq__ = __hash__ = __format__ = _raise


class Halves:
    """A row that has a length and items, but is of no kind that Python knows."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, place: int) -> float:
        if place > 1:
            raise IndexError
        return 0.5


def _breaks_off() -> Iterator[float]:
    yield 0.5
    raise RuntimeError("SECRET")


def _holds_itself() -> list[Any]:
    record: list[Any] = []
    record.extend([record, record])
    return record


#: What may stand in one cell, or in the place of a whole record.
ODD_CELLS: dict[str, Callable[[], Any]] = {
    "none": lambda: None,
    "nan": lambda: math.nan,
    "infinity": lambda: -math.inf,
    "text": lambda: "SECRET",
    "no text": lambda: "",
    "text of a number": lambda: "0.5",
    "bytes": lambda: b"1",
    "true": lambda: True,
    "huge whole number": lambda: 10**400,
    "whole number beyond floats": lambda: 2**53 + 1,
    "complex": lambda: 1j,
    "numpy complex": lambda: np.complex128(1),
    "decimal": lambda: Decimal("0.5"),
    "signalling decimal": lambda: Decimal("sNaN"),
    "fraction": lambda: Fraction(1, 3),
    "huge fraction": lambda: Fraction(10**400),
    "day": lambda: datetime.date(2020, 1, 1),
    "numpy time": lambda: np.datetime64("2020-01-01", "ns"),
    "no time": lambda: np.datetime64("NaT", "ns"),
    "duration": lambda: np.timedelta64(1, "ns"),
    "pandas no time": lambda: pd.NaT,
    "pandas missing": lambda: pd.NA,
    "half": lambda: np.float16(0.5),
    "long": lambda: np.longdouble("0.1"),
    "array without axes": lambda: np.array(0.5),
    "array of one": lambda: np.array([0.5]),
    "masked": lambda: np.ma.masked,
    "list of one": lambda: [0.5],
    "empty list": lambda: [],
    "dictionary": lambda: {"SECRET": 1.0},
    "set": lambda: {1.0},
    "object": object,
    "raises": Raises,
    "no float": NoFloat,
    "warns": Warns,
    "odd text": lambda: OddText("1"),
    "huge": lambda: 1e308,
    "tiny": lambda: 5e-324,
}
#: What may stand in the place of a record of two cells only.
ODD_RECORDS: dict[str, Callable[[], Any]] = {
    **ODD_CELLS,
    "longer": lambda: [0.5] * 9,
    "half missing": lambda: (0.5, None),
    "text of two": lambda: "12",
    "bytes of two": lambda: b"12",
    "two keys": lambda: {0.5: 1, 0.25: 2},
    "two of a set": lambda: {0.5, 0.25},
    "range": lambda: range(2),
    "endless": lambda: itertools.repeat(0.5),
    "iterator": lambda: iter([0.5, 0.25]),
    "breaks off": _breaks_off,
    "holds itself": _holds_itself,
    "nested": lambda: [[0.5], [0.25]],
    "matrix": lambda: np.array([[0.5, 0.25]]),
    "array": lambda: np.array([0.5, 0.25]),
    "narrow array": lambda: np.array([0.5, 0.25], dtype=np.float32),
    "array of text": lambda: np.array(["SECRET", "1"]),
    "array of objects": lambda: np.array([None, 1.0], dtype=object),
    "array of times": lambda: np.array(["2020-01-01"] * 2, dtype="M8[ns]"),
    "masked array": lambda: np.ma.array([0.5, 0.25], mask=[False, True]),
    "structured": lambda: np.zeros(1, dtype=[("a", float), ("b", float)])[0],
    "deque": lambda: deque([0.5, 0.25]),
    "series": lambda: pd.Series([0.5, 0.25], index=["b", "a"]),
    "polars series": lambda: pl.Series([0.5, None]),
    "typed": lambda: array.array("d", [0.5, 0.25]),
    "memory": lambda: memoryview(b"12"),
    "of a kind of its own": Halves,
}


def _objects(records: Records) -> np.ndarray:
    """Return an array of objects with one axis."""
    found = np.empty(len(records), dtype=object)
    for place, record in enumerate(records):
        found[place] = record
    return found


def _cells(rows: Records) -> np.ndarray:
    """Return an array of objects with two axes."""
    found = np.empty((len(rows), len(rows[0])), dtype=object)
    for place, row in enumerate(rows):
        for column, cell in enumerate(row):
            found[place, column] = cell
    return found


def _columns(rows: Records) -> dict[str, list[Any]]:
    return {f"c{place}": list(column) for place, column in enumerate(zip(*rows, strict=True))}


def _pandas_objects(rows: Records) -> pd.DataFrame:
    cells = _cells(rows)
    names = {f"c{place}": cells[:, place] for place in range(cells.shape[1])}
    return pd.DataFrame({name: pd.Series(each, dtype=object) for name, each in names.items()})


def _polars_objects(rows: Records) -> pl.DataFrame:
    columns = _columns(rows)
    return pl.DataFrame([pl.Series(name, each, dtype=pl.Object) for name, each in columns.items()])


def _dask_objects(rows: Records) -> Any:
    return dask.array.from_array(_cells(rows), chunks=(4, -1))


def _dask_frame(rows: Records) -> Any:
    with dask.config.set({"dataframe.convert-string": False}):
        return dask.dataframe.from_pandas(_pandas_objects(rows), npartitions=2)


class OwnList(UserList):
    """A list of somebody's own."""


class Sequence2:
    """A sequence that has a length and items only, which numpy reads as a list."""

    def __init__(self, records: Records) -> None:
        self.records = list(records)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, place: int) -> Any:
        return self.records[place]


class HasArray:
    """An object of another library that says which array it is."""

    def __init__(self, records: Records) -> None:
        self.found = _objects(records)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.found


#: Containers of whatever records there are.
OF_RECORDS: dict[str, Maker] = {
    "list": list,
    "tuple": tuple,
    "deque": deque,
    "generator": lambda records: (record for record in records),
    "values": lambda records: dict(enumerate(records)).values(),
    "own list": OwnList,
    "own sequence": Sequence2,
    "objects": _objects,
    "has an array": HasArray,
}
#: Tables of as many cells in every row.
OF_CELLS: dict[str, Maker] = {
    "cells": _cells,
    "pandas objects": _pandas_objects,
    "polars objects": _polars_objects,
    "dask cells": _dask_objects,
    "dask frame": _dask_frame,
}


def _masked(rows: Records) -> np.ma.MaskedArray:
    missing = np.array([[cell is None for cell in row] for row in rows])
    filled = np.array([[1e9 if cell is None else cell for cell in row] for row in rows])
    return np.ma.array(filled, mask=missing)


def _masked_objects(rows: Records) -> np.ma.MaskedArray:
    return _masked(rows).astype(object)


#: Tables whose columns have a type, in which a cell may be missing.
OF_NUMBERS: dict[str, Maker] = {
    "floats": lambda rows: np.array(rows, dtype=np.float64),
    "masked": _masked,
    "masked objects": _masked_objects,
    "pandas": lambda rows: pd.DataFrame(_columns(rows), dtype=np.float64),
    "pandas nullable": lambda rows: pd.DataFrame(_columns(rows), dtype="Float64"),
    "pandas of pyarrow": lambda rows: pd.DataFrame(_columns(rows), dtype="double[pyarrow]"),
    "pandas sparse": lambda rows: pd.DataFrame(_columns(rows), dtype=np.float64).astype("Sparse"),
    "polars": lambda rows: pl.DataFrame(_columns(rows)),
    "pyarrow": lambda rows: pa.table(_columns(rows)),
    "dask": lambda rows: dask.array.from_array(np.array(rows, dtype=np.float64), chunks=(4, -1)),
}
#: Columns of one value per record, whatever it is.
OF_VALUES: dict[str, Maker] = {
    **OF_RECORDS,
    "pandas objects": lambda values: pd.Series(_objects(values), dtype=object),
    "polars objects": lambda values: pl.Series(list(values), dtype=pl.Object),
}
#: Columns of numbers, one of which may be missing.
OF_MAYBE: dict[str, Maker] = {
    "masked": lambda values: _masked([[value] for value in values])[:, 0],
    "pandas nullable": lambda values: pd.Series(values, dtype="Float64"),
    "polars": lambda values: pl.Series(values, dtype=pl.Float64),
    "pyarrow": lambda values: pa.array(values, pa.float64()),
    "pyarrow chunks": lambda values: pa.chunked_array([values[:3], values[3:]], pa.float64()),
}
