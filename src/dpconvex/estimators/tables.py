"""Reading tables: numpy, pandas and polars in; text columns and sparse matrices refused without quoting data."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import validate_data

_FLOATS = [np.float64, np.float32]


def _check_columns(X: Any, owner: str) -> None:
    """Raise if a dataframe holds columns that are not numbers; names are public, values are not shown."""
    import narwhals as nw

    if isinstance(X, np.ndarray) or not nw.dependencies.is_into_dataframe(X):
        return
    schema = nw.from_native(X).schema
    allowed = (nw.Object, nw.Unknown)  # pandas columns of Python numbers; conversion decides
    wrong = [
        name
        for name, dtype in schema.items()
        if not (dtype.is_numeric() or dtype == nw.Boolean or dtype in allowed)
    ]
    if wrong:
        raise ValueError(
            f"The columns of X given to {owner} must be numbers. Got text or other types in {wrong} instead. "
            "Encode them with public categories, for instance OneHotEncoder(categories=[...])."
        )


def _refuse_sparse(X: Any, owner: str) -> None:
    if issparse(X):
        raise TypeError(
            f"The X given to {owner} must be a dense array or dataframe. Sparse data was passed, but dense data is "
            "required. Use X.toarray()."
        )


def read_training(estimator: Any, X: Any, y: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return X (float32 or float64, uncopied where possible) and y after all checks of the data."""
    owner = type(estimator).__name__
    _refuse_sparse(X, owner)
    _check_columns(X, owner)
    try:
        return validate_data(estimator, X, y, dtype=_FLOATS, ensure_min_samples=1, **options)
    except ValueError as error:
        raise _without_values(error, owner) from None


def read_features(estimator: Any, X: Any) -> np.ndarray:
    """Return X checked against the columns seen in fit."""
    owner = type(estimator).__name__
    _refuse_sparse(X, owner)
    _check_columns(X, owner)
    try:
        return validate_data(estimator, X, reset=False, dtype=_FLOATS)
    except ValueError as error:
        raise _without_values(error, owner) from None


def _without_values(error: ValueError, owner: str) -> ValueError:
    """Return an error that names the problem but quotes no value of the data."""
    if "convert" in str(error):
        return ValueError(
            f"The X and y given to {owner} must be numbers. Got text or other values instead. "
            "Encode text with public categories, for instance OneHotEncoder(categories=[...])."
        )
    return error
