"""Fits of sparse rows are those of the same rows with all their zeros, by every estimator and
mechanism.
"""

import json

import numpy as np
import pytest
from all_fits import TABLES, training_data
from scipy import sparse

from dpconvex import DPLogisticRegression, DPMedian, DPQuantileRegressor
from dpconvex.mechanisms import NoisySGD

FORMATS = [
    "csr_matrix",
    "csc_matrix",
    "coo_array",
    "csr_array",
    "lil_matrix",
    "dok_array",
    "bsr_array",
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
    low = np.full(7, 1.0)
    high = np.full(7, 3.0)
    low[0] = 0.0
    high[0] = 3.0
    low[1] = -4.0
    high[1] = -1.0
    assert_same(*both(TABLES[name], X, y, feature_bounds=(low, high)), X)


# Quantiles bound the lengths of dense rows by few products, and those of sparse rows are exact.
@pytest.mark.parametrize("name", ["DPLogisticRegression gradient"])
def test_larger_tables_by_the_default_mechanism(name):
    X, y = sparse_data(name, rows=3_000, columns=40)
    assert_same(*both(TABLES[name], X, y, mechanism="auto"), X)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_read(form):
    X, y = sparse_data("DPLogisticRegression gradient")
    make = TABLES["DPLogisticRegression gradient"]
    dense, by_nonzeros = both(make, X, y, given=getattr(sparse, form))
    assert_same(dense, by_nonzeros, X)
    np.testing.assert_allclose(
        by_nonzeros.predict_proba(getattr(sparse, form)(X)), dense.predict_proba(X), rtol=1e-9
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, bool])
def test_every_type_is_read(dtype):
    X, y = sparse_data("DPLogisticRegression gradient")
    X = (2 * X).astype(dtype)
    assert_same(*both(TABLES["DPLogisticRegression gradient"], X, y), X)


@pytest.mark.parametrize("name", ["DPLogisticRegression gradient", "DPQuantileRegressor objective"])
@pytest.mark.parametrize("bounds", [(-1, 1), (1, 3)])
def test_invalid_rows_are_the_fixed_record(name, bounds):
    X, y = sparse_data(name)
    X[3, 2] = np.nan
    X[50, 0] = np.inf
    X[51, 1] = -np.inf
    dense, by_nonzeros = both(TABLES[name], X, y, invalid_rows="ignore", feature_bounds=bounds)
    assert_same(dense, by_nonzeros, np.nan_to_num(X, posinf=0, neginf=0))
    with pytest.raises(ValueError, match="must be finite"):
        TABLES[name]().fit(sparse.csr_matrix(X), y)


def test_batches_of_stochastic_descent():
    X, y = sparse_data("DPLogisticRegression sgd")
    for sampling in ("fixed", "poisson"):
        choice = NoisySGD(steps=40, batch_size=5, sampling=sampling)
        assert_same(*both(TABLES["DPLogisticRegression sgd"], X, y, mechanism=choice), X)


def test_adding_or_removing_rows_and_no_rows_at_all():
    X, y = sparse_data("DPLogisticRegression gradient")
    own = {"neighbors": "add_or_remove_one", "nominal_samples": 100}
    assert_same(*both(TABLES["DPLogisticRegression gradient"], X, y, **own), X)
    empty = X[:0], y[:0]
    assert_same(*both(TABLES["DPLogisticRegression gradient"], *empty, **own), X)


def test_several_classes():
    X, _ = sparse_data("DPLogisticRegression gradient")
    y = np.arange(120) % 3
    assert_same(*both(TABLES["DPLogisticRegression gradient"], X, y, classes=[0, 1, 2]), X)


def test_more_columns_than_are_whitened():
    rng = np.random.default_rng(0)
    X = sparse.random(200, 2_001, 0.01, format="csr", rng=rng)
    y = (np.asarray(X[:, :50].sum(axis=1)).ravel() > 0.2).astype(int)
    for make in (DPLogisticRegression, DPQuantileRegressor):
        models = [
            make(epsilon=2.0, feature_bounds=(0, 1), mechanism="gradient", random_state=1)
            for _ in range(2)
        ]
        dense = models[0].fit(X.toarray(), y)
        by_nonzeros = models[1].fit(X, y)
        assert_same(dense, by_nonzeros, X.toarray())
        assert "moments" not in by_nonzeros.certificate_.noise
        by_nonzeros.certificate_.verify()


def test_what_needs_zeros_is_refused_by_name():
    X, y = sparse_data("DPLogisticRegression output")
    with pytest.raises(TypeError, match=r"A record is a matrix .* Use A.toarray\(\)"):
        DPMedian().fit(sparse.csr_matrix(X), y[:, None])
