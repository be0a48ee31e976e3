"""Signed octaves of columns: exact at every power of 2, the same by rows and by stored values."""

import math

import numpy as np
import pytest
from scipy import sparse

from dpconvex.core.dense_kernels import count_dense_octaves
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.engine.sparse_rows import SparseRows

TINY = 5e-324
HUGE = 1.7976931348623157e308


def octave_of(value, above, octaves):
    """The definition: bins away from the middle, on the side of the sign."""
    size = abs(value)
    if size == 0 or size < 2.0 ** (above - octaves):
        return octaves
    away = min(math.frexp(size)[1] - above + octaves, octaves)
    return octaves + (away if value > 0 else -away)


def counted(values, above, octaves, row_weights=None):
    block = np.array(values, dtype=np.float64)[:, None]
    counts = np.zeros((1, 2 * octaves + 1))
    count_dense_octaves(
        block, np.ones(len(block)) if row_weights is None else row_weights, 0, above, counts
    )
    return counts[0]


@pytest.mark.parametrize(("above", "octaves"), [(0, 16), (40, 80), (3, 5), (0, 1)])
def test_every_number_is_in_its_own_octave(above, octaves):
    powers = 2.0 ** np.arange(-60.0, 60.0)
    sizes = np.concatenate(
        [
            powers,
            np.nextafter(powers, 0),
            np.nextafter(powers, np.inf),
            [0.0, TINY, 1e-310, 1e300, HUGE],
        ]
    )
    for value in np.concatenate([sizes, -sizes]):
        found = counted([value], above, octaves)
        assert found.sum() == 1
        assert found[octave_of(value, above, octaves)] == 1, value


def test_both_zeros_and_subnormal_numbers_are_in_the_middle():
    found = counted([0.0, -0.0, TINY, -TINY, 1e-310, -1e-310], 0, 16)
    assert found[16] == found.sum() == 6


def test_huge_numbers_are_in_the_last_bins():
    found = counted([HUGE, 1e300, 1.0, 0.5, -HUGE, -1e300, -1.0, -0.5], 0, 16)
    assert found[-1] == found[0] == 4


def test_row_weights_are_added():
    found = counted([0.75, 0.75, -0.75], 0, 16, np.array([0.5, 0.25, 0.0]))
    assert found[-1] == 0.75
    assert found.sum() == 0.75


def test_mirrored_columns_have_mirrored_counts():
    values = np.random.default_rng(0).normal(size=500) * 10.0 ** np.random.default_rng(1).uniform(
        -8, 2, 500
    )
    np.testing.assert_array_equal(counted(values, 0, 16), counted(-values, 0, 16)[::-1])


@pytest.mark.parametrize("bounds", [(-1.0, 1.0), (0.5, 3.0), (-4.0, -1.0), (0.0, 8.0), None])
@pytest.mark.parametrize("ignored", [False, True])
def test_stored_values_are_counted_like_rows(bounds, ignored):
    """Zeros that are not stored, stored zeros of both signs, odd sizes, and rows that are
    ignored.
    """
    rng = np.random.default_rng(0)
    odd = np.array(
        [0.0, -0.0, TINY, -TINY, 1e-310, 1e-5, -1e-5, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 1e30, -1e30]
    )
    X = rng.choice(odd, (300, 6))
    y = rng.choice([-1.0, 1.0], 300)
    if ignored:
        y[rng.random(300) < 0.2] = np.nan
    row_map = RowMap.from_bounds(6, bounds).weighted(2.0**40)
    stored = sparse.csr_matrix(X)
    rows, columns = np.nonzero(
        (X == 0) & (rng.random(X.shape) < 0.5)
    )  # some zeros are stored as such
    explicit = sparse.coo_matrix((X[rows, columns], (rows, columns)), X.shape)
    data = np.concatenate([stored.tocoo().data, explicit.data])
    where = np.concatenate([stored.tocoo().coords, explicit.coords], axis=1)
    stored = sparse.csr_matrix((data, where), X.shape)
    assert stored.nnz > np.count_nonzero(X)
    for above, octaves in ((0, 16), (40, 80)):
        dense = MemoryRows(X, y, row_map, threads=1)
        block, _, weights = dense.mapped()
        counts = np.zeros((6, 2 * octaves + 1))
        votes = (weights > 0).astype(np.float64)
        count_dense_octaves(np.ascontiguousarray(block), votes, 1, above, counts)
        found = SparseRows(stored, y, row_map, threads=1).octave_counts(2 * octaves + 1, above)
        np.testing.assert_array_equal(found, counts)
        assert (counts.sum(axis=1) == np.count_nonzero(~np.isnan(y))).all()
