"""What is wrong with a table that cannot be read, in words that quote no value of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

from dpconvex.inputs.labels import is_missing, missing_labels

__all__ = [
    "check_columns",
    "check_container",
    "check_kind",
    "check_table",
    "is_partitioned",
    "shape_of",
    "table_problem",
    "target_problem",
    "unreadable",
]

_ENCODE = "Encode text with public categories, for instance OneHotEncoder(categories=[...])."
_DAYS = "Turn dates into numbers, for instance days since a fixed date."
_TARGET = "A target is one number per row: use a classifier for labels."
_FILL = (
    "Use invalid_rows='ignore', which counts such a row nowhere, or fill features with public "
    "values, for instance SimpleImputer(strategy='constant', fill_value=0). Drop such rows only with "
    "neighbors='add_or_remove_one', where the number of rows is private."
)


def check_columns(X: object, owner: str, loose: bool = False) -> None:
    """Raise if a dataframe holds columns that are not numbers; names are public, values are not shown.

    With ``loose`` columns of Python objects pass: what they are taken for depends on values.
    """
    import narwhals as nw

    if nw.dependencies.is_polars_lazyframe(X):
        raise TypeError(
            f"The X given to {owner} must be a dense array or dataframe. Got a LazyFrame instead. Use X.collect()."
        )
    if isinstance(X, np.ndarray) or not nw.dependencies.is_into_dataframe(X):
        return
    try:
        schema = nw.from_native(X).schema
    except nw.exceptions.DuplicateError:
        raise ValueError(
            f"The columns of X given to {owner} must have different names. Got a name twice instead. Rename them."
        ) from None
    if loose and hasattr(X, "iloc"):
        objects = {name for name, kind in X.dtypes.items() if getattr(kind, "char", "") == "O"}
        schema = {name: dtype for name, dtype in schema.items() if name not in objects}
    allowed = (nw.Object, nw.Unknown)  # pandas columns of Python numbers; conversion decides
    wrong = [
        name for name, dtype in schema.items() if not (dtype.is_numeric() or dtype == nw.Boolean or dtype in allowed)
    ]
    if wrong:
        raise ValueError(
            f"The columns of X given to {owner} must be numbers. Got text or other types in {wrong} instead. {_ENCODE}"
        )


def check_kind(name: str, array: object, owner: str) -> None:
    """Raise if an array's dtype is text, dates or complex; conversion would quote a value or succeed silently."""
    dtype = getattr(array, "dtype", None)
    if not isinstance(dtype, np.dtype):
        return
    if dtype.kind == "c":
        raise ValueError(
            f"Complex data not supported: the {name} given to {owner} must be real numbers. Got dtype {dtype} instead."
        )
    if dtype.kind in "biufO":
        return
    # Not the dtype itself: that of text holds the length of the longest value.
    if dtype.kind in "mM":
        what, remedy = "dates or durations", _DAYS
    elif dtype.kind == "V":
        what, remedy = "a structured array", "Make an array of its fields, one column each."
    else:
        what, remedy = "text", _ENCODE if name == "X" else _TARGET
    raise ValueError(f"The {name} given to {owner} must be numbers. Got {what} instead. {remedy}")


def check_container(name: str, data: object, owner: str) -> None:
    """Raise for data whose values would be misread: a sparse target, a mask, or a dictionary of columns."""
    if name != "X" and issparse(data):
        raise TypeError(
            f"The {name} given to {owner} must be a dense array or dataframe. Sparse data was passed, but dense data "
            f"is required. Use {name}.toarray()."
        )
    if isinstance(data, np.ma.MaskedArray):
        raise TypeError(
            f"The {name} given to {owner} must be an array without a mask. Got a masked array instead, whose masked "
            f"values would be used. Use {name}.filled(value) with a public value."
        )
    if isinstance(data, (Mapping, set, frozenset)) and not issparse(data):
        raise TypeError(
            f"The {name} given to {owner} must be an array or dataframe of numbers. Got a {type(data).__name__} "
            "instead. Use pandas.DataFrame for a dictionary of columns."
        )


def check_table(X: object, owner: str, loose: bool = False) -> None:
    """Raise if a table cannot be read for its container, its columns or its type; values are not looked at."""
    check_container("X", X, owner)
    check_columns(X, owner, loose)
    check_kind("X", X, owner)


def is_partitioned(data: object) -> bool:
    """Return whether data is a Dask collection, without importing Dask."""
    return type(data).__module__.split(".")[0] == "dask"


# What scikit-learn refused is looked at again: its own messages may quote a value of the data.


def table_problem(estimator: object, X: object, least: int, reset: bool = True) -> Exception | None:
    """Return what is wrong with a table, or None if nothing is found."""
    owner = type(estimator).__name__
    if hasattr(X, "columns"):
        try:
            validate_data(estimator, X, reset=reset, skip_check_array=True)
        except ValueError as error:  # about names and numbers of columns, which are public
            return ValueError(str(error))
    shape = shape_of(X)
    if shape is None:
        return None
    if len(shape) < 2:
        return ValueError(
            f"The X given to {owner} must have shape (n_samples, n_features). Got an array that is not 2D instead. "
            "Reshape your data with X.reshape(-1, 1) if it has a single feature."
        )
    if len(shape) > 2:
        return ValueError(f"Found array with dim {len(shape)}, while {owner} expected dim 2.")
    for count, few, what in zip(shape, (least, 1), ("sample", "feature"), strict=True):
        if count < few:
            return ValueError(
                f"Found array with {count} {what}(s) (shape={shape}) while a minimum of {few} is required by {owner}."
            )
    expected = getattr(estimator, "n_features_in_", shape[1])
    if not reset and shape[1] != expected:
        return ValueError(f"X has {shape[1]} features, but {owner} is expecting {expected} features as input.")
    return _fault("X", X, owner)


def target_problem(owner: str, X: object, y: object, numeric: bool) -> Exception | None:
    """Return what is wrong with a target, or None if nothing is found."""
    if y is None:
        return ValueError(f"This {owner} estimator requires y to be passed, but the target y is None.")
    shape, rows = shape_of(y), shape_of(X)
    if shape is None or rows is None:
        return None
    if len(shape) != 1 and (len(shape) != 2 or shape[1] != 1):
        return ValueError(f"y should be a 1d array, got an array of shape {shape} instead.")
    labels = np.asarray(y)
    if numeric or labels.dtype.kind in "fc":
        fault = _fault("y", y, owner)
        if fault is not None:
            return fault
    elif labels.dtype.kind == "O" and any(is_missing(label) for label in labels.flat):
        return ValueError(missing_labels(owner))
    if shape[0] != rows[0]:
        counts = [rows[0], shape[0]]
        return ValueError(f"Found input variables with inconsistent numbers of samples: {counts}")
    return None


def shape_of(data: Any) -> tuple[int, ...] | None:
    """Return the shape of data, or None if it has none."""
    if issparse(data) or is_partitioned(data):
        return tuple(data.shape)
    try:
        return np.asarray(data).shape
    except (TypeError, ValueError):
        return None


def _fault(name: str, data: Any, owner: str) -> Exception | None:
    """Return why data are not finite numbers, or None if they are."""
    numbers = f"The {name} given to {owner} must be numbers"
    remedy = f"{_ENCODE if name == 'X' else _TARGET} {_DAYS}"
    plain = np.asarray(data.data if issparse(data) else data)
    if plain.dtype.kind == "c":
        return ValueError(f"Complex data not supported: the X and y given to {owner} must be real numbers.")
    infinite = ValueError(f"The {name} given to {owner} must be finite numbers. Got NaN or infinity instead. {_FILL}")
    try:
        with np.errstate(all="ignore"):
            return None if np.isfinite(plain.astype(np.float64)).all() else infinite
    except OverflowError:
        return ValueError(f"{numbers} that float64 can hold. Got a larger one instead. Change the units.")
    except ValueError:
        return ValueError(f"{numbers}. Got text or other values instead. {remedy}")
    except TypeError:
        if any(is_missing(value) for value in plain.flat):
            return infinite
        return TypeError(
            f"{numbers}: each argument must be a string or a real number. Got other objects instead. {remedy}"
        )


def unreadable(owner: str) -> Exception:
    """Return what to say where nothing else is found."""
    return ValueError(
        f"The X and y given to {owner} must be a table and a column of numbers with as many rows. Got something else "
        "instead. Pass a two-dimensional array or dataframe, and a one-dimensional target."
    )
