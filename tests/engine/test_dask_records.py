"""Partitions of Dask collections: a record counts once, with its own weight, whatever was asked
of them before.
"""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

from dpconvex import DPLogisticRegression, DPQuantileRegressor
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.engine.dask.rows_and_table import DaskTable
from dpconvex.losses import Logistic
from dpconvex.objectives.empirical import EmpiricalSlope


def test_influence_weights_survive_a_pass_with_others(monkeypatch):
    """Weights of their own say nothing of those that the row map gives."""
    monkeypatch.setattr("dpconvex.core.summation.BLOCK_BYTES", 1)  # several blocks per partition
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (400, 3))
    y = rng.choice([-1.0, 1.0], 400)
    row_map = RowMap.from_bounds(3, (-1.0, 1.0), 0.1)
    theta = np.full(4, 0.1)
    slope = EmpiricalSlope(Logistic())
    (expected,) = MemoryRows(X, y, row_map).combine(theta, slope)
    table = DaskTable(da.from_array(X, chunks=(200, 3)), da.from_array(y, chunks=200), "test")
    rows = table.rows(row_map)
    rows.reweighted(lambda block, w: np.full(w.size, 0.01)).combine(theta, slope)
    (found,) = rows.combine(theta, slope)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def frames(X, y):
    return tuple(dd.from_pandas(part, npartitions=1, sort=False) for part in (X, y))


def test_a_target_is_not_joined_to_several_rows():
    """In memory numbers of rows that differ are refused; a join by index would use one target
    300 times.
    """
    X = pd.DataFrame(np.random.default_rng(0).uniform(0, 1, (300, 2)), index=np.zeros(300, int))
    model = DPQuantileRegressor(0.5, feature_bounds=(0, 1), target_bounds=(0, 1))
    for data in ((X, pd.Series([0.7])), frames(X, pd.Series([0.7]))):
        with pytest.raises(ValueError, match="inconsistent numbers of samples"):
            model.fit(*data)


def test_rows_that_share_an_index_are_records_of_their_own():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.uniform(0, 1, (300, 2)), index=np.zeros(300, int))
    y = rng.random(300)
    model = DPQuantileRegressor(0.5, feature_bounds=(0, 1), target_bounds=(0, 1), random_state=0)
    here = model.fit(X, y).coef_
    np.testing.assert_allclose(model.fit(*frames(X, pd.Series(y, index=X.index))).coef_, here)


class Odd:
    """Looks different whenever it is made."""


def test_an_invalid_object_is_known_again():
    """How it prints must not end a fit that ignores invalid rows: that would tell that it is
    there.
    """

    def labels():
        y = np.array([0, 1] * 100, dtype=object)
        y[3] = Odd()
        return y

    X = da.from_array(np.random.default_rng(0).uniform(0, 1, (200, 2)), chunks=(200, 2))
    y = da.from_delayed(dask.delayed(labels)(), (200,), object)
    public = {"feature_bounds": (0, 1), "classes": [0, 1], "invalid_rows": "ignore"}
    with dask.config.set({"dpconvex.spill-limit": 0}):  # every pass reads the source
        assert DPLogisticRegression(mu=1.0, **public).fit(X, y).coef_.shape == (1, 2)
