"""Fits of sparse rows are those of the same rows with all their zeros, by every estimator and mechanism."""

import json

import numpy as np
import pytest
from all_fits import TABLES, training_data
from scipy import sparse

FORMATS = [
    "csr_matrix",
    "csc_matrix",
    "coo_array",
    "csr_array",
    "lil_matrix",
    "dok_array",
    "bsr_array",
    "dia_array",
]


def sparse_data(name, rows=120, columns=7, seed=3):
    """Return rows of which two thirds are 0, and a target that follows them."""
    X, _ = training_data(name, rows, columns, seed)
    rng = np.random.default_rng(seed)
    X = X * (rng.random(X.shape) < 0.35)
    signal = X.sum(axis=1) + rng.normal(0, 0.3, rows)
    return X, (signal > 0).astype(np.int64) if name not in REGRESSION_NAMES else signal


REGRESSION_NAMES = {name for name in TABLES if "Regressor" in name or "Newsvendor" in name}


def both(make, X, y, given=sparse.csr_matrix, **settings):
    """Return a dense and a sparse fit with the same seed."""
    models = [make().set_params(random_state=5, **settings) for _ in range(2)]
    return models[0].fit(X, y), models[1].fit(given(X), y)


def assert_same(dense, by_nonzeros, X):
    assert json.loads(dense.certificate_.to_json()) == json.loads(
        by_nonzeros.certificate_.to_json()
    )
    scale = max(1.0, float(np.abs(dense.coef_).max()))
    np.testing.assert_allclose(by_nonzeros.coef_, dense.coef_, rtol=1e-9, atol=1e-9 * scale)
    np.testing.assert_allclose(
        by_nonzeros.intercept_, dense.intercept_, rtol=1e-9, atol=1e-9 * scale
    )
    np.testing.assert_allclose(
        by_nonzeros.predict(sparse.csr_array(X)), dense.predict(X), rtol=1e-8, atol=1e-8
    )


@pytest.mark.parametrize("name", TABLES)
def test_every_fit_is_the_dense_one(name):
    X, y = sparse_data(name)
    assert_same(*both(TABLES[name], X, y), X)


@pytest.mark.parametrize("name", TABLES)
def test_columns_whose_bounds_exclude_zero_are_shifted(name):
    X, y = sparse_data(name)
    X = np.where(X == 0, 0.0, X + 2.0)  # zeros are clipped to the bound
    low, high = np.full(7, 1.0), np.full(7, 3.0)
    low[0], high[0], low[1], high[1] = 0.0, 3.0, -4.0, -1.0
    assert_same(*both(TABLES[name], X, y, feature_bounds=(low, high)), X)
