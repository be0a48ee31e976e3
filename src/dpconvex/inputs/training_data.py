"""Features and targets in memory or in Dask: read, checked, and mapped for the engine, without
quoting data in errors.

Tables may be of numpy, scipy, pandas, polars and Dask. Input that scikit-learn refused is examined
again, because its own messages may quote a value of the data.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn import config_context
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from dpconvex.core.checks import data_error
from dpconvex.core.memory_rows import MemoryRows
from dpconvex.core.row_weights import RowWeights
from dpconvex.core.rows import Rows, is_partitioned
from dpconvex.core.threads import finite_by_threads
from dpconvex.engine.dask.partitions import (
    CELLWISE,
    PartitionTargets,
    cellwise_column_types,
    partition_objects_to_numbers,
)
from dpconvex.engine.sparse_rows import NonZeroRows, SparseRows
from dpconvex.inputs.containers import (
    as_marked_column,
    as_marked_table,
    declared_columns,
)
from dpconvex.inputs.labels import is_missing_label, missing_labels
from dpconvex.inputs.public_table import fitted_schema, public_column_names, public_table_frame
from dpconvex.inputs.records import facts_told
from dpconvex.inputs.schema import Schema
from dpconvex.mechanisms.request_and_decision import FitDecision
from dpconvex.system.lazy_imports import nw

if TYPE_CHECKING:
    from dpconvex.engine.dask.rows_and_table import DaskTable

_ENCODE = "Encode text with public categories, for instance OneHotEncoder(categories=[...])."
_DAYS = "Turn dates into numbers, for instance days since a fixed date."
_TARGET = "A target is one number per row: use a classifier for labels."
_FILL = (
    "Use invalid_rows='ignore', which counts such a row nowhere, or fill features with public "
    "values, for instance SimpleImputer(strategy='constant', fill_value=0). Drop such rows only "
    "with neighbors='add_or_remove_one', where the number of rows is private."
)


def _training_float_types(X: Any) -> Any:
    """Return the types of floats that X may keep: scikit-learn reads those of arrays and pandas,
    no other frame's.
    """
    floats = [np.float64, np.float32]
    if isinstance(X, np.ndarray) or hasattr(X, "iloc") or not hasattr(X, "columns"):
        return floats
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    single = isinstance(frame, nw.DataFrame) and set(frame.schema.values()) == {nw.Float32}
    return np.float32 if single else floats


def read_training(
    estimator: object,
    X: Any,
    y: Any,
    clean: PartitionTargets | None = None,
    least: int = 1,
    y_numeric: bool = False,
    columns: int | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return X (float32 or float64, uncopied where possible) and y after all checks of the data.

    With ``clean`` no value is wrong: y is float64, NaN where a row is invalid, and every record is
    read by itself (:mod:`dpconvex.inputs.containers`). ``least`` rows must be there. ``columns`` is
    the public number of columns, by default what ``feature_bounds`` declare.
    """
    owner = type(estimator).__name__
    bounds = getattr(estimator, "feature_bounds", None)
    if isinstance(bounds, Mapping):
        X = order_data_by_bounds(estimator, X)
    # What plain arrays of numbers are need not be asked.
    plain, plain_target = (
        type(each) is np.ndarray and each.dtype.kind in "biuf" for each in (X, y)
    )
    if not (plain and plain_target) and (is_partitioned(X) or is_partitioned(y)):
        return _read_training_partitions(estimator, X, y, clean, least, y_numeric)
    if clean is not None:
        columns = declared_columns(bounds) if columns is None else columns
        return _read_marked_training(estimator, X, y, clean, least, y_numeric, columns)
    if not plain:
        nothing = least == 0 and getattr(X, "shape", ())[:1] == (0,)  # empty columns look like text
        _check_training_table(X, owner, loose=nothing)
    if not plain_target:
        _check_data_container("y", y, owner)
        if y_numeric:
            _check_data_dtype("y", y, owner, loose=clean is not None)
    try:
        # The check for infinities adds all values up; where the sum overflows, each value is
        # examined.
        with config_context(assume_finite=False), np.errstate(over="ignore", invalid="ignore"):
            X = (
                NonZeroRows.of(X).to_scipy() if issparse(X) else X
            )  # entries of one position may add up to infinity
            kinds = [np.float64, np.float32] if plain else _training_float_types(X)
            X, y = validate_data(
                estimator,
                X,
                y,
                dtype=kinds,
                ensure_min_samples=least,
                ensure_all_finite=not finite_by_threads(X),
                accept_sparse="csr",
                y_numeric=y_numeric,
            )
    except (ValueError, OverflowError, TypeError):
        problem = _find_data_problem(estimator, X, least) or _find_training_target_problem(
            owner, X, y, y_numeric
        )
    else:
        if y_numeric and not plain_target:
            _check_data_dtype("y", y, owner)  # a list or series may become an array of text
        return X, np.asarray(y, dtype=np.float64) if y_numeric else y
    # Raised here and not in the handler, so that it does not carry the original as its context.
    raise problem or _unknown_problem(owner)


def _read_marked_training(
    estimator: object,
    X: Any,
    y: Any,
    clean: PartitionTargets,
    least: int,
    numeric: bool,
    columns: int | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and the target with NaN for invalid rows, each read by itself; shapes and
    types are checked, values are not.
    """
    owner = type(estimator).__name__
    if y is None:
        raise _missing_target(owner)
    X = as_marked_table(X, columns, owner)
    _check_training_table(X, owner, loose=True)
    if numeric:
        _check_data_dtype("y", y, owner, loose=True)
    y = as_marked_column("y", y, owner)
    _check_data_container("y", y, owner)
    X = NonZeroRows.of(X).to_scipy() if issparse(X) else partition_objects_to_numbers(X)
    try:
        with config_context(assume_finite=False), np.errstate(over="ignore", invalid="ignore"):
            rows = validate_data(
                estimator,
                X,
                dtype=_training_float_types(X),
                ensure_min_samples=least,
                ensure_all_finite=False,
                accept_sparse="csr",
            )
            complex_numbers = getattr(getattr(y, "dtype", None), "kind", "O") == "c"
            column = column_or_1d(y.astype(object) if complex_numbers else y)
            check_consistent_length(rows, column)
            if numeric:
                _check_data_dtype("y", column, owner, loose=True)
            return rows, clean(rows, column)
    except (ValueError, OverflowError, TypeError):
        problem = _find_shape_problem(estimator, X, least) or _find_target_shape_problem(X, y)
    # Raised here and not in the handler, so that it does not carry the original as its context.
    raise problem or _unknown_problem(owner)


def _read_training_partitions(
    estimator: object, X: Any, y: Any, clean: PartitionTargets | None, least: int, numeric: bool
) -> tuple[Any, Any]:
    """Return a table that was checked partition by partition, as its own target too (see
    `map_training_rows`).
    """
    from dpconvex.engine.dask.rows_and_table import DaskTable

    owner = type(estimator).__name__
    columns = getattr(X, "columns", None)
    if columns is not None:
        _check_training_table(X._meta, owner, loose=clean is not None)
    _check_data_dtype("X", X, owner, loose=clean is not None)
    if numeric:
        _check_data_dtype("y", y, owner, loose=clean is not None)
    table = DaskTable(X, y, owner, numeric, clean, least)
    # A row of zeros under the same names: scikit-learn notes names and number of columns.
    example: Any = np.zeros((1, table.shape[1]))
    if columns is not None:
        import pandas as pd

        example = pd.DataFrame(example, columns=list(columns))
    validate_data(estimator, example)
    return table, table


def read_features(estimator: object, X: object, reset: bool = False) -> np.ndarray:
    """Return the data X, read by the model's schema if it has one, with the columns of the
    training or new ones.
    """
    owner = type(estimator).__name__
    schema = fitted_schema(estimator)
    if schema is not None and not reset and not is_encoded_data(estimator, X, schema):
        X = public_table_frame(schema, X, owner)
    X = order_data_by_bounds(estimator, X)
    _check_training_table(X, owner)
    try:
        with config_context(assume_finite=False), np.errstate(over="ignore", invalid="ignore"):
            X = NonZeroRows.of(X).to_scipy() if issparse(X) else X  # as in a fit
            kinds = _training_float_types(X)
            return cast(
                "np.ndarray",
                validate_data(estimator, X, reset=reset, dtype=kinds, accept_sparse="csr"),
            )
    except (ValueError, OverflowError, TypeError):
        problem = _find_data_problem(estimator, X, 1, reset)
    raise problem or _unknown_problem(owner)


def is_encoded_data(model: object, X: Any, schema: Schema) -> bool:
    """Whether X has the schema's encoded columns already; where they have the names of the
    table's columns, numbers and flags are read twice unless the model was told.
    """
    if facts_told(model).encoded:
        return True
    if isinstance(X, (str, os.PathLike)):
        return False
    names = public_column_names(X)
    return names is None or (names == schema.names and names != schema.inputs)


def takes_columns_in_order(model: Any) -> Any:
    """Return a model that is given arrays that were read already, with columns in the order of
    its bounds.
    """
    model._columns_in_order = True
    return model


def order_data_by_bounds(estimator: object, X: Any) -> Any:
    """Return a dataframe with its columns in the order of ``feature_bounds`` where that is a
    dictionary, or raise.
    """
    bounds = getattr(estimator, "feature_bounds", None)
    owner = type(estimator).__name__
    if not isinstance(bounds, Mapping):
        return X
    wanted = list(bounds)
    names = public_column_names(X)
    if names is None and getattr(estimator, "_columns_in_order", False):
        return X
    if names is None:
        allowed = (
            "a table with named columns, because its 'feature_bounds' parameter is a dictionary"
        )
        remedy = "Pass a dataframe, or feature_bounds=(lows, highs)."
        raise data_error("X", owner, allowed, type(X).__name__, remedy, kind=TypeError)
    known = set(names)
    problems = [(name, "X has no such column") for name in wanted if name not in known]
    problems += [(name, "X has this column without bounds") for name in names if name not in bounds]
    if problems:
        name, what = problems[0]
        raise ValueError(
            f"The 'feature_bounds' parameter of {owner} must name the columns of X, each once. "
            f"Check {name!r}: {what}. Select the columns, or give the bounds of all of them."
        )
    return X if names == wanted or isinstance(X, Mapping) else X[wanted]


def map_training_rows(
    X: object,
    target: object,
    plan: FitDecision,
    owner: str,
    row_weights: RowWeights | None = None,
) -> Rows:
    """Return rows that an engine maps and sums, of X as `read_training` gave it; Dask's target
    may be a function.
    """
    here = isinstance(X, np.ndarray) or issparse(X)
    if not here and not plan.mechanism.takes_partitions:
        raise ValueError(
            f"The mechanism {plan.certificate.mechanism!r} of {owner} needs records in memory: it "
            "visits them one by one, or does not state that sums over partitions are enough. Use "
            "'objective', 'output' or 'gradient' with Dask collections, or pass X.compute()."
        )
    row_map = plan.row_map
    shift = plan.target_shift
    scale = plan.target_scale
    assert row_map is not None, "records that are matrices are not mapped here"
    if here:
        kind = SparseRows if issparse(X) or isinstance(X, NonZeroRows) else MemoryRows
        rows = kind(cast(npt.ArrayLike, X), cast(npt.ArrayLike, target), row_map, shift, scale)
        if row_weights is None:
            return rows
        if isinstance(X, NonZeroRows):
            must = "dense with groups, weights or class_weight"
            raise data_error("X", owner, must, "a sparse table", "Use X.toarray().")
        return rows.with_row_weights(row_weights)
    function = target if callable(target) else None
    return cast("DaskTable", X).rows(row_map, function, shift, scale, row_weights)


def shape_of_data(data: Any) -> tuple[int, ...] | None:
    """Return the shape of data, or None if it has none."""
    if issparse(data) or is_partitioned(data):
        return tuple(data.shape)
    try:
        return np.asarray(data).shape
    except (TypeError, ValueError):
        return None


def _check_training_table(X: object, owner: str, loose: bool = False) -> None:
    """Raise if a table cannot be read for its container, its columns or its type, whatever its
    values.
    """
    # Columns of a dataframe must be numbers; with ``loose`` those that are read cell by cell pass.
    _check_data_container("X", X, owner)
    if isinstance(X, np.ndarray) or not nw.dependencies.is_into_dataframe(X):
        if not isinstance(X, np.ndarray) and nw.dependencies.is_polars_lazyframe(X):
            allowed = "a dense array or dataframe"
            remedy = "Use X.collect()."
            raise data_error("X", owner, allowed, "a LazyFrame", remedy, kind=TypeError)
        return _check_data_dtype("X", X, owner, loose)
    try:
        schema = nw.from_native(X).schema
    except nw.exceptions.DuplicateError:
        raise ValueError(
            f"The columns of X given to {owner} must have different names. Got a name twice "
            "instead. Rename them."
        ) from None
    # Columns of Python numbers, for which conversion decides.
    allowed_types = (nw.Object, nw.Unknown, *(cellwise_column_types() if loose else ()))
    known = {
        name
        for name, kind in schema.items()
        if kind.is_numeric() or kind in (nw.Boolean, *allowed_types)
    }
    wrong = [name for name in schema if name not in known]
    if wrong:
        raise data_error(
            "columns of X", owner, "numbers", f"text or other types in {wrong}", _ENCODE
        )
    return _check_data_dtype("X", X, owner, loose)


def _check_data_container(name: str, data: object, owner: str) -> None:
    """Raise for data whose values would be misread: a sparse target, a mask, or a dictionary of
    columns.
    """
    if name != "X" and issparse(data):
        raise TypeError(
            f"The {name} given to {owner} must be a dense array or dataframe. Sparse data was "
            f"passed, but dense data is required. Use {name}.toarray()."
        )
    if isinstance(data, np.ma.MaskedArray):
        raise TypeError(
            f"The {name} given to {owner} must be an array without a mask. Got a masked array "
            f"instead, whose masked values would be used. Use {name}.filled(value) with a public "
            "value."
        )
    if isinstance(data, (Mapping, set, frozenset)) and not issparse(data):
        allowed = "an array or dataframe of numbers"
        remedy = "Use pandas.DataFrame for a dictionary of columns."
        raise data_error(name, owner, allowed, f"a {type(data).__name__}", remedy, kind=TypeError)


def _check_data_dtype(name: str, array: object, owner: str, loose: bool = False) -> None:
    """Raise if an array's dtype is text, dates or complex; conversion would quote a value or
    succeed silently. With ``loose`` text and complex numbers pass, which are read cell by cell.
    """
    dtype = getattr(array, "dtype", None)
    if not isinstance(dtype, np.dtype) or dtype.kind in "biufO" + (CELLWISE if loose else ""):
        return
    if dtype.kind == "c":
        raise ValueError(
            f"Complex data not supported: the {name} given to {owner} must be real numbers. Got "
            f"dtype {dtype} instead."
        )
    # Not the dtype itself: that of text holds the length of the longest value.
    dates = ("dates or durations", _DAYS)
    text = ("text", _ENCODE if name == "X" else _TARGET)
    fields = ("a structured array", "Make an array of its fields, one column each.")
    raise data_error(
        name, owner, "numbers", *{"m": dates, "M": dates, "V": fields}.get(dtype.kind, text)
    )


def _find_data_problem(
    estimator: object, X: object, least: int, reset: bool = True
) -> Exception | None:
    """Return what is wrong with a table, its columns and shape first."""
    problem = _find_shape_problem(estimator, X, least, reset)
    if problem is not None or shape_of_data(X) is None:
        return problem
    return _find_data_value_problem("X", X, type(estimator).__name__)


def _find_shape_problem(
    estimator: object, X: object, least: int, reset: bool = True
) -> Exception | None:
    """Return what is wrong with the columns or the shape of a table, whatever its values are."""
    owner = type(estimator).__name__
    if hasattr(X, "columns"):
        try:
            validate_data(estimator, X, reset=reset, skip_check_array=True)
        except ValueError as error:  # about names and numbers of columns, which are public
            return ValueError(str(error))
    shape = shape_of_data(X)
    if shape is None:
        return None
    if len(shape) < 2:
        return ValueError(
            f"The X given to {owner} must have shape (n_samples, n_features). Got an array that "
            "is not 2D instead. Reshape your data with X.reshape(-1, 1) if it has a single "
            "feature."
        )
    if len(shape) > 2:
        return ValueError(f"Found array with dim {len(shape)}, while {owner} expected dim 2.")
    for count, fewest, what in zip(shape, (least, 1), ("sample", "feature"), strict=True):
        if count < fewest:
            return ValueError(
                f"Found array with {count} {what}(s) (shape={shape}) while a minimum of {fewest} "
                f"is required by {owner}."
            )
    expected = getattr(estimator, "n_features_in_", shape[1])
    if not reset and shape[1] != expected:
        return ValueError(
            f"X has {shape[1]} features, but {owner} is expecting {expected} features as input."
        )
    return None


def _find_training_target_problem(
    owner: str, X: object, y: object, numeric: bool
) -> Exception | None:
    """Return what is wrong with a target, its shape first and the number of its rows last."""
    if y is None:
        return _missing_target(owner)
    shape = shape_of_data(y)
    if shape is None or shape_of_data(X) is None:
        return None
    if len(shape) != 1 and (len(shape) != 2 or shape[1] != 1):
        return _find_target_shape_problem(X, y)
    labels = np.asarray(y)
    if numeric or labels.dtype.kind in "fc":
        problem = _find_data_value_problem("y", y, owner)
        if problem is not None:
            return problem
    elif labels.dtype.kind == "O" and any(is_missing_label(label) for label in labels.flat):
        return ValueError(missing_labels(owner))
    return _find_target_shape_problem(X, y)


def _find_target_shape_problem(X: object, y: object) -> Exception | None:
    """Return what is wrong with the shape of a target, whatever its values are."""
    shape = shape_of_data(y)
    rows = shape_of_data(X)
    if shape is None or rows is None:
        return None
    if len(shape) != 1 and (len(shape) != 2 or shape[1] != 1):
        return ValueError(f"y should be a 1d array, got an array of shape {shape} instead.")
    if shape[0] != rows[0]:
        return ValueError(
            f"Found input variables with inconsistent numbers of samples: {[rows[0], shape[0]]}"
        )
    return None


def _missing_target(owner: str) -> Exception:
    return ValueError(f"This {owner} estimator requires y to be passed, but the target y is None.")


def _find_data_value_problem(name: str, data: Any, owner: str) -> Exception | None:
    remedy = f"{_ENCODE if name == 'X' else _TARGET} {_DAYS}"
    plain = np.asarray(data.data if issparse(data) else data)
    if plain.dtype.kind == "c":
        return ValueError(
            f"Complex data not supported: the X and y given to {owner} must be real numbers."
        )
    infinite = data_error(name, owner, "finite numbers", "NaN or infinity", _FILL)
    try:
        with np.errstate(all="ignore"):
            return None if np.isfinite(plain.astype(np.float64)).all() else infinite
    except OverflowError:
        return data_error(
            name, owner, "numbers that float64 can hold", "a larger one", "Change the units."
        )
    except ValueError:
        return data_error(name, owner, "numbers", "text or other values", remedy)
    except TypeError:
        if any(is_missing_label(value) for value in plain.flat):
            return infinite
        must = "numbers: each argument must be a string or a real number"
        return TypeError(str(data_error(name, owner, must, "other objects", remedy)))


def _unknown_problem(owner: str) -> Exception:
    remedy = "Pass a two-dimensional array or dataframe, and a one-dimensional target."
    must = "a table and a column of numbers with as many rows"
    return data_error("X and y", owner, must, "something else", remedy)


def refuse_partitioned_data(owner: str, X: object, y: object) -> None:
    """Raise for Dask collections, which cannot be split here."""
    if is_partitioned(X) or is_partitioned(y):
        raise TypeError(
            f"{owner} needs rows in memory, because it splits them. Got a Dask collection "
            "instead. Use X.compute() and y.compute()."
        )
