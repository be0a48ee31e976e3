"""Reading tables: numpy, scipy, pandas, polars and Dask in; what cannot be read is refused without quoting data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn import config_context
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from dpconvex.engine.dask.partitions import Clean, loosen
from dpconvex.engine.nonzero_arrays import NonZeros
from dpconvex.engine.rows import Rows
from dpconvex.engine.sparse import rows_in_memory
from dpconvex.engine.threads import surely_finite
from dpconvex.engine.votes import Votes, exact_values
from dpconvex.inputs.frames import column_names
from dpconvex.inputs.public_table import encode_frame
from dpconvex.inputs.schema import Schema
from dpconvex.inputs.table_problems import (
    check_columns,
    check_container,
    check_kind,
    check_table,
    is_partitioned,
    table_problem,
    target_problem,
    unreadable,
)
from dpconvex.mechanisms.plan import Plan

if TYPE_CHECKING:
    from dpconvex.engine.dask.table import DaskTable

__all__ = [
    "as_numbers",
    "in_order_of_bounds",
    "is_encoded",
    "is_partitioned",
    "map_rows",
    "read_features",
    "read_partitions",
    "read_training",
    "takes_columns_in_order",
]

_FLOATS = [np.float64, np.float32]


def _floats_of(X: Any) -> Any:
    """Return the types of floats that X may keep: scikit-learn reads those of arrays and pandas, no other frame's."""
    if isinstance(X, np.ndarray) or hasattr(X, "iloc") or not hasattr(X, "columns"):
        return _FLOATS
    import narwhals as nw

    frame = nw.from_native(X, eager_only=True, pass_through=True)
    single = isinstance(frame, nw.DataFrame) and set(frame.schema.values()) == {nw.Float32}
    return np.float32 if single else _FLOATS


def _canonical(X: Any) -> Any:
    """Return a sparse matrix as CSR with every entry once: entries that stand for one place may add up to infinity."""
    return NonZeros.of(X).to_scipy() if issparse(X) else X


@contextmanager
def _validating() -> Iterator[None]:
    """Let scikit-learn check that values are finite, whatever the user's own setting, and quietly.

    The check for infinities adds all values up; sums that overflow are looked at one by one.
    """
    with config_context(assume_finite=False), np.errstate(over="ignore", invalid="ignore"):
        yield


def read_training(
    estimator: object, X: Any, y: Any, clean: Clean | None = None, least: int = 1, **options: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return X (float32 or float64, uncopied where possible) and y after all checks of the data.

    With ``clean`` no value is wrong: y is float64, NaN where a row is invalid. ``least`` rows must be there.
    """
    owner = type(estimator).__name__
    X = in_order_of_bounds(estimator, X)
    if is_partitioned(X) or is_partitioned(y):
        return read_partitions(estimator, X, y, clean, least, **options)
    nothing = least == 0 and getattr(X, "shape", (1,))[0] == 0  # empty columns look like text
    check_table(X, owner, loose=clean is not None or nothing)
    check_container("y", y, owner)
    numeric = options.get("y_numeric", False)
    if numeric:
        check_kind("y", y, owner)
    try:
        with _validating():
            X = _canonical(X)
            if clean is not None:
                return _read_marked(estimator, X, y, clean, least, numeric)
            X, y = validate_data(
                estimator,
                X,
                y,
                dtype=_floats_of(X),
                ensure_min_samples=least,
                ensure_all_finite=not surely_finite(X),
                accept_sparse="csr",
                **options,
            )
    except (ValueError, OverflowError, TypeError):
        problem = table_problem(estimator, X, least) or target_problem(owner, X, y, numeric)
    else:
        if numeric:
            check_kind("y", y, owner)  # a list or series may become an array of text
        return X, y
    # Raised here and not in the handler, so that it does not carry the original as its context.
    raise problem or unreadable(owner)


def _read_marked(
    estimator: object, X: object, y: object, clean: Clean, least: int, numeric: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return X as it is and the target with NaN for invalid rows; shapes and types are checked, values are not."""
    owner = type(estimator).__name__
    if y is None:
        raise ValueError(f"This {owner} estimator requires y to be passed, but the target y is None.")
    # Objects stay objects: next to text, numpy would make text of numbers.
    table = loosen(np.asarray(X, dtype=object) if isinstance(X, (list, tuple)) else X)
    rows = validate_data(
        estimator, table, dtype=_floats_of(table), ensure_min_samples=least, ensure_all_finite=False,
        accept_sparse="csr",
    )  # fmt: skip
    target = np.asarray(y, dtype=object) if isinstance(y, (list, tuple)) else exact_values(y)
    column = column_or_1d(target)
    check_consistent_length(rows, column)
    if numeric:
        check_kind("y", column, owner)
    return rows, clean(rows, column)


def read_partitions(
    estimator: object, X: Any, y: Any, clean: Clean | None = None, least: int = 1, **options: bool
) -> tuple[Any, Any]:
    """Return a table that was checked partition by partition, as its own target too (see `map_rows`)."""
    from dpconvex.engine.dask.table import DaskTable

    owner = type(estimator).__name__
    columns = getattr(X, "columns", None)
    if columns is not None:
        check_columns(X._meta, owner, loose=clean is not None)
    check_kind("X", X, owner)
    numeric = options.get("y_numeric", False)
    if numeric:
        check_kind("y", y, owner)
    table = DaskTable(X, y, owner, numeric, clean, least)
    # A row of zeros under the same names: scikit-learn notes names and number of columns.
    example: Any = np.zeros((1, table.shape[1]))
    if columns is not None:
        import pandas as pd

        example = pd.DataFrame(example, columns=list(columns))
    validate_data(estimator, example)
    return table, table


def as_numbers(y: Any) -> Any:
    """Return a target as float64; a table read by `read_partitions` converts its own."""
    return np.asarray(y, dtype=np.float64) if isinstance(y, np.ndarray) else y


def is_encoded(X: Any, schema: Schema) -> bool:
    """Whether X is what the schema's columns become already; numbers and flags may be read twice."""
    names = None if isinstance(X, (str, os.PathLike)) else column_names(X)
    if names is None:
        return not isinstance(X, (str, os.PathLike))
    return names == schema.names and names != schema.inputs


def takes_columns_in_order(model: Any) -> Any:
    """Return a model that is given arrays that were read already, with columns in the order of its bounds."""
    model._columns_in_order = True
    return model


def in_order_of_bounds(estimator: object, X: Any) -> Any:
    """Return a dataframe with its columns in the order of ``feature_bounds`` where that is a dictionary, or raise."""
    bounds, owner = getattr(estimator, "feature_bounds", None), type(estimator).__name__
    if not isinstance(bounds, Mapping):
        return X
    wanted = list(bounds)
    names = column_names(X)
    if names is None and getattr(estimator, "_columns_in_order", False):
        return X
    if names is None:
        raise TypeError(
            f"The X given to {owner} must be a table with named columns, because its 'feature_bounds' parameter is a "
            f"dictionary. Got {type(X).__name__} instead. Pass a dataframe, or feature_bounds=(lows, highs)."
        )
    known = set(names)
    for missing, what in (
        ([name for name in wanted if name not in known], "X has no such column"),
        ([name for name in names if name not in bounds], "X has this column without bounds"),
    ):
        if missing:
            raise ValueError(
                f"The 'feature_bounds' parameter of {owner} must name the columns of X, each once. Check "
                f"{missing[0]!r}: {what}. Select the columns, or give the bounds of all of them."
            )
    return X if names == wanted or isinstance(X, Mapping) else X[wanted]


# Mechanisms that visit records one by one, in an order of their own.
_RECORD_BY_RECORD = ("sgd", "phased-erm", "phased-sgd", "plain-gradient", "exponential")


def map_rows(X: object, target: object, plan: Plan, owner: str, votes: Votes | None = None) -> Rows:
    """Return the engine that sums over the rows of X: in memory, or over Dask's partitions.

    Parameters
    ----------
    X : array, sparse matrix or DaskTable
        What `read_training` returned.
    target : array, DaskTable or callable
        One target per row, or for Dask the table itself or a function of each partition's target.
    plan : Plan
        How rows and targets are mapped, and by which mechanism they will be used.
    owner : str
        Who asks, for error messages.
    votes : Votes, optional
        What each row counts for; every row is a whole record by default.
    """
    here = isinstance(X, np.ndarray) or issparse(X)
    if not here and plan.certificate.mechanism in _RECORD_BY_RECORD:
        raise ValueError(
            f"The mechanism {plan.certificate.mechanism!r} of {owner} visits records one by one and needs them in "
            "memory. Use 'objective', 'output' or 'gradient' with Dask collections, or pass X.compute()."
        )
    row_map, shift, scale = plan.row_map, plan.target_shift, plan.target_scale
    assert row_map is not None, "records that are matrices are not mapped here"
    if here:
        rows = rows_in_memory(X, cast(npt.ArrayLike, target), row_map, shift, scale)
        if votes is None:
            return rows
        if isinstance(X, NonZeros):
            raise ValueError(
                f"The X given to {owner} must be dense with groups, weights or class_weight. Got a sparse table "
                "instead. Use X.toarray()."
            )
        return rows.with_votes(votes)
    function = target if callable(target) else None
    return cast("DaskTable", X).rows(row_map, function, shift, scale, votes)


def read_features(estimator: object, X: object, reset: bool = False) -> np.ndarray:
    """Return X checked against the columns seen in fit, or with ``reset`` noted as those to come.

    A model that carries a schema reads tables as they come.
    """
    owner = type(estimator).__name__
    schema = getattr(estimator, "schema_", None)
    if isinstance(schema, Schema) and not reset and not is_encoded(X, schema):
        X = encode_frame(schema, X, owner)
    X = in_order_of_bounds(estimator, X)
    check_table(X, owner)
    try:
        with _validating():
            return validate_data(estimator, _canonical(X), reset=reset, dtype=_floats_of(X), accept_sparse="csr")
    except (ValueError, OverflowError, TypeError):
        problem = table_problem(estimator, X, 1, reset)
    raise problem or unreadable(owner)
