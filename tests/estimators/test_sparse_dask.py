"""Dask arrays of sparse blocks: the coefficients of the fit in memory, wherever the blocks are
kept.
"""

import itertools

import numpy as np
import pytest
from scipy import sparse

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

from dpconvex import DPAUCClassifier, DPLinearSVC, DPLogisticRegression, DPQuantileRegressor  # noqa: E402
from dpconvex.engine import SourceChangedError  # noqa: E402
from dpconvex.engine.dask.partitions import fingerprint, read_partition_pair  # noqa: E402

EDGES = [0, 300, 300, 301, 900, 1000]
COLUMNS = 8


def table():
    rng = np.random.default_rng(0)
    X = sparse.random(1000, COLUMNS, 0.3, format="csr", rng=rng)
    X.data = rng.normal(size=X.nnz)
    X.data[X.indptr[500] : X.indptr[510]] = 0.0  # stored zeros, then none
    X.eliminate_zeros()
    return X, X @ np.linspace(-1, 1, COLUMNS) + rng.normal(0, 0.3, 1000)


def in_blocks(X, kind=sparse.csr_matrix):
    """Return a Dask array of sparse blocks, one of them empty and one of a single row."""
    blocks = [
        da.from_delayed(
            dask.delayed(kind)(X[a:b]), shape=(b - a, COLUMNS), dtype=X.dtype, meta=kind(X[:0])
        )
        for a, b in itertools.pairwise(EDGES)
    ]
    return da.concatenate(blocks)


def target_in_blocks(y):
    return da.from_array(y, chunks=(tuple(np.diff(EDGES)),))


FITS = {
    "quantile": (DPQuantileRegressor, {"target_bounds": (-3, 3)}),
    "logistic": (DPLogisticRegression, {}),
    "objective": (DPLinearSVC, {"mechanism": "objective"}),
    "pairs": (DPAUCClassifier, {"mechanism": "output"}),
    "shifted": (DPLogisticRegression, {"feature_bounds": (0.5, 3)}),
}


@pytest.mark.parametrize("name", FITS)
@pytest.mark.parametrize("spill_limit", [None, 0, "70 kB"])  # all, none, some of the partitions
def test_blocks_fit_like_the_whole(name, spill_limit):
    kind, settings = FITS[name]
    settings = {"epsilon": 2.0, "feature_bounds": (-4, 4), "random_state": 7, **settings}
    X, y = table()
    y = y if name == "quantile" else (y > 0).astype(int)
    with dask.config.set({"dpconvex.spill-limit": spill_limit}):
        fitted = kind(**settings).fit(in_blocks(X), target_in_blocks(y))
    expected = kind(**settings).fit(X.toarray(), y)
    scale = np.abs(expected.coef_).max()
    np.testing.assert_allclose(fitted.coef_, expected.coef_, rtol=0, atol=1e-8 * scale)
    assert fitted.certificate_.to_json() == expected.certificate_.to_json()


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix, sparse.coo_array])
def test_blocks_of_every_format(kind):
    X, y = table()
    settings = {"epsilon": 2.0, "feature_bounds": (-4, 4), "target_bounds": (-3, 3)}
    models = [DPQuantileRegressor(**settings, random_state=1) for _ in range(2)]
    models[0].fit(in_blocks(X.tocsr(), lambda part: kind(part)), target_in_blocks(y))
    models[1].fit(X, y)
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, rtol=1e-8, atol=1e-8)


def test_invalid_values_in_blocks():
    X, y = table()
    X.data[17] = np.nan
    settings = {"epsilon": 2.0, "feature_bounds": (-4, 4), "random_state": 1}
    with pytest.raises(ValueError, match="must be finite"):
        DPQuantileRegressor(**settings).fit(in_blocks(X), target_in_blocks(y))
    fits = [
        DPQuantileRegressor(**settings, invalid_rows="ignore").fit(*data)
        for data in ((in_blocks(X), target_in_blocks(y)), (X.toarray(), y))
    ]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-8, atol=1e-8)


def test_blocks_that_change_are_noticed():
    X, y = table()
    other = X.copy()
    other.data[0] += 1e-9
    marks = {
        fingerprint(*read_partition_pair((part, y), None))
        for part in (X, other, X.astype(np.float32))
    }
    assert len(marks) == 3
    calls = []

    def read(part):
        calls.append(None)
        return sparse.csr_matrix(part + len(calls) * 1e-9 * sparse.eye_array(*part.shape))

    settings = {"epsilon": 2.0, "feature_bounds": (-4, 4), "target_bounds": (-3, 3)}
    with (
        dask.config.set({"dpconvex.spill-limit": 0}),
        pytest.raises(SourceChangedError, match="changed during the fit"),
    ):
        DPQuantileRegressor(**settings).fit(in_blocks(X, read), target_in_blocks(y))
