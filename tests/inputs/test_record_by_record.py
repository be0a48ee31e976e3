"""What a record of a plain container becomes, which containers declare a shape, and what errors
say.
"""

import array
import datetime
from collections import deque
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from dpconvex import (
    DPDiscreteHazard,
    DPLogisticRegression,
    DPMedian,
    DPNewsvendor,
    DPQuantileRegressor,
)
from dpconvex.evaluation import private_score
from dpconvex.inputs.containers import (
    declared_columns,
    is_plain_container,
    objects_of,
    read_cells_of_one,
    read_rows,
    read_target_numbers,
)
from dpconvex.intervals import DPConformal
from dpconvex.preprocessing import PublicTable

NAN = float("nan")
COLUMNS = {"feature_bounds": ([-1, -1], [1, 1]), "target_bounds": (-2, 2)}
X = np.random.default_rng(0).uniform(-1, 1, (6, 2))
Y = X.sum(axis=1)


@pytest.mark.parametrize(
    ("record", "row"),
    [
        ([1, 2.5], [1.0, 2.5]),
        ((True, Decimal("0.5")), [1.0, 0.5]),
        (deque([1, 2]), [1.0, 2.0]),
        (map(float, ["1", "2"]), [1.0, 2.0]),
        (np.array([1, 2], dtype=np.int8), [1.0, 2.0]),
        (np.ma.array([1.0, 2.0], mask=[True, False]), [NAN, 2.0]),
        (array.array("d", [1.0, 2.0]), [1.0, 2.0]),
        (pd.Series([1, 2], index=["b", "a"]), [1.0, 2.0]),
        ([1, None], [1.0, NAN]),
        (["x", datetime.date(2020, 1, 1)], [NAN, NAN]),
        ([np.timedelta64(1, "ns"), np.datetime64(1, "ns")], [NAN, NAN]),
        ([[1.0], np.array([1.0])], [NAN, NAN]),
        ([np.array(1.0), np.ma.masked], [1.0, NAN]),
        ([10**400, 1j], [NAN, NAN]),
        *((odd, [NAN, NAN]) for odd in (1.0, None, [1.0], [1, 2, 3], "12", b"12", {1: 2, 3: 4})),
        *((odd, [NAN, NAN]) for odd in ({1.0, 2.0}, np.ones((1, 2)), memoryview(b"12"))),
    ],
)
def test_a_row_has_as_many_cells_as_are_declared(record, row):
    found = read_rows([record, [3.0, 4.0]], 2)
    assert found.dtype == np.float64
    assert np.array_equal(found, [row, [3.0, 4.0]], equal_nan=True)


@pytest.mark.parametrize(
    ("record", "number"),
    [
        *((one, 1.5) for one in (1.5, [1.5], (1.5,), np.array([1.5]), np.array(1.5), "1.5")),
        *((one, 1.5) for one in (pd.Series([1.5]), np.float32(1.5), deque([1.5]))),
        *((odd, NAN) for odd in ([1.5, 2.0], [], [[1.5]], {1.5}, {1.5: 0}, None, np.ma.masked)),
    ],
)
def test_a_list_of_one_number_is_that_number(record, number):
    assert np.array_equal(read_target_numbers(objects_of([record])), [number], equal_nan=True)


def test_a_list_of_one_label_is_that_label():
    labels = objects_of([0, [1], ("0",), [0, 1], [[1]], None, [None]])
    assert read_cells_of_one(labels)[:3].tolist() == [0, 1, "0"]
    model = DPLogisticRegression(
        classes=[0, 1], feature_bounds=COLUMNS["feature_bounds"], invalid_rows="ignore"
    )
    rows = np.zeros((7, 2)).tolist()
    (found,) = model._read(rows, labels.tolist())[1]
    assert np.array_equal(found, [-1, 1, -1, NAN, NAN, NAN, NAN], equal_nan=True)


@pytest.mark.parametrize(
    ("bounds", "columns"),
    [
        (None, None),
        ((-1, 1), None),
        ([0.0, 1.0], None),
        (([0, 0], [1, 1]), 2),
        ((0, [1, 1, 1]), 3),
        (np.array([[0], [1]]), 1),
        ({"a": (0, 1), "b": (0, 1)}, 2),
        ("ab", None),
        (([0, [1]], 2), None),
    ],
)
def test_what_feature_bounds_declare(bounds, columns):
    assert declared_columns(bounds) == columns


def test_containers_that_declare_no_shape():
    plain = [[], (), deque(), iter([]), {}.values(), range(3)]
    assert all(map(is_plain_container, plain))
    others = [
        np.zeros(2),
        np.float64(1),
        1.0,
        None,
        "ab",
        b"ab",
        {},
        set(),
        {}.keys(),
        memoryview(b"a"),
    ]
    others += [array.array("d"), pd.DataFrame(), pd.Series(dtype=float), pd.Index([]), pl.Series()]
    others += [pl.DataFrame(), pl.LazyFrame(), pa.table({}), pa.array([]), sparse.csr_array((1, 1))]
    assert not any(map(is_plain_container, others))


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_no_record_and_one_record(rows):
    """Whether the only record is there, or valid, changes no certificate and raises nothing."""
    model = DPQuantileRegressor(
        neighbors="add_or_remove_one", nominal_samples=9, invalid_rows="ignore", **COLUMNS
    )
    wanted = model.certify(9, 2)
    for held in ([[0.5, 0.5]], [[0.5]], [None], ["x"]):
        for target in ([0.5], [[0.5]], [None], [[1, 2]]):
            for make in (list, tuple, deque, iter):
                model.fit(make(held * rows), make(target * rows))
                assert model.certificate_ == wanted


def test_records_of_lists_are_fitted_like_arrays():
    settings = {"invalid_rows": "ignore", "random_state": 0, **COLUMNS}
    wanted = DPQuantileRegressor(**settings).fit(X, Y)
    generated = ((row for row in X.tolist()), ([value] for value in Y))
    found = DPQuantileRegressor(**settings).fit(*generated)
    assert np.array_equal(found.coef_, wanted.coef_)
    assert found.certificate_ == wanted.certificate_
    demands = np.abs(X)
    settings |= {"underage_cost": [1.0, 3.0]}
    wanted = DPNewsvendor(**settings).fit(X, demands)
    rows = [*demands.tolist()]
    assert np.array_equal(DPNewsvendor(**settings).fit(iter(X), iter(rows)).coef_, wanted.coef_)
    median = DPMedian(invalid_rows="ignore", random_state=0)
    matrices = np.random.default_rng(0).uniform(-1, 1, (6, 2, 3))
    wanted = median.fit(matrices, X).coef_
    assert np.array_equal(median.fit(matrices, X.tolist()).coef_, wanted)


def test_one_odd_product_leaves_the_number_of_products():
    """With one odd record among lists, a newsvendor of two products became one of one."""
    model = DPNewsvendor([1.0, 3.0], invalid_rows="ignore", random_state=0, **COLUMNS)
    whole = model.fit(X, np.abs(X).tolist()).certificate_
    for odd in (None, 1.0, [1.0], [1.0, 2.0, 3.0], "x"):
        assert model.fit(X, [odd, *np.abs(X).tolist()[1:]]).certificate_ == whole
        assert model.coef_.shape == (2, 2)


def test_what_is_masked_is_missing():
    model = DPQuantileRegressor(invalid_rows="ignore", random_state=0, **COLUMNS)
    spoiled = X.copy()
    spoiled[2, 1] = np.nan
    wanted = model.fit(spoiled, Y).coef_
    masked = np.ma.array(np.where(np.isnan(spoiled), 1e300, X), mask=np.isnan(spoiled))
    assert np.array_equal(model.fit(masked, Y).coef_, wanted)
    words = np.ma.array(X.astype(str), mask=np.isnan(spoiled))
    assert np.array_equal(model.fit(words, Y).coef_, wanted)
    hidden = np.ma.array(np.where(np.arange(6) == 2, 1e300, Y), mask=np.arange(6) == 2)
    assert np.array_equal(model.fit(X, hidden).coef_, wanted)
    labels = DPLogisticRegression(
        classes=["a", "b"], feature_bounds=(-1, 1), invalid_rows="ignore", random_state=0
    )
    words = np.ma.array(["a", "b", "a", "b", "b", "a"], mask=np.arange(6) == 2)
    found = labels.fit(X, words).coef_
    assert np.array_equal(found, labels.fit(X, ["a", "b", None, "b", "b", "a"]).coef_)
    times = DPDiscreteHazard([0.5, 1.0], invalid_rows="ignore", feature_bounds=(-1, 1))
    pairs = np.ma.array(np.abs(X), mask=np.isnan(spoiled))
    (outcomes,) = times._read(X, pairs)[1]
    assert np.isnan(outcomes).tolist() == [False, False, True, False, False, False]
    table = PublicTable({"features": {"age": [0, 99]}})
    ages = np.ma.array([20, 99, 30], mask=[False, True, False])
    assert np.array_equal(table.transform({"age": ages})["age"], [20, NAN, 30], equal_nan=True)


def test_masks_and_undeclared_lists_stay_as_they_are_where_invalid_rows_are_refused():
    model = DPQuantileRegressor(random_state=0, target_bounds=(-2, 2), feature_bounds=(-1, 1))
    wanted = model.fit(X, Y).coef_
    assert np.array_equal(model.fit(X.tolist(), Y.tolist()).coef_, wanted)
    for masked in ((np.ma.array(X), Y), (X, np.ma.array(Y))):
        with pytest.raises(TypeError, match="without a mask"):
            model.fit(*masked)
    demands = DPNewsvendor(random_state=0, **COLUMNS)
    assert demands.fit(X, np.abs(X).tolist()).coef_.shape == (2, 2)


@pytest.mark.parametrize("kind", ["M8[s]", "m8[s]", [("a", float)]])
def test_arrays_of_what_is_no_number_are_refused_by_their_type(kind):
    """All records would be ignored without a word, for a budget."""
    dates = np.zeros(6, dtype=kind)
    model = DPQuantileRegressor(invalid_rows="ignore", **COLUMNS)
    labels = DPLogisticRegression(
        classes=[0, 1], feature_bounds=COLUMNS["feature_bounds"], invalid_rows="ignore"
    )
    for held in (dates, np.ma.array(dates)):
        for fit in (
            lambda values: model.fit(X, values),
            lambda values: model.fit(X, Y, sample_weight=values),
            lambda values: labels.fit(X, values),
        ):
            with pytest.raises((ValueError, TypeError), match="given to"):
                fit(held)


def said(fit, *given):
    with pytest.raises((ValueError, TypeError)) as caught:
        fit(*given)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    return type(caught.value), str(caught.value)


@pytest.mark.parametrize("make", [np.asarray, list, pd.DataFrame, pl.DataFrame])
def test_no_message_depends_on_whether_a_value_is_there(make):
    """A target of another length was named as such, or NaN was if a value was missing."""
    spoiled = X.copy()
    spoiled[2, 1] = np.nan
    model = DPQuantileRegressor(invalid_rows="ignore", **COLUMNS)
    fitted = DPQuantileRegressor(**COLUMNS).fit(X, Y)
    around = DPConformal(model, 0.5, mu=40.0)
    for fit in (model.fit, around.fit, lambda *given: private_score(fitted, *given)):
        short = {said(fit, make(rows), Y[:-1]) for rows in (X, spoiled)}
        assert len(short) == 1
        assert "[6, 5]" in short.pop()[1]
        wide = {said(fit, make(rows), np.ones((6, 3))) for rows in (X, spoiled)}
        assert len(wide) == 1


def test_lists_of_lists_are_scored_by_the_columns_of_the_model():
    fitted = DPQuantileRegressor(feature_bounds=(-1, 1), target_bounds=(-2, 2)).fit(X, Y)
    given = {"epsilon": 1.0, "random_state": 0}
    wanted = private_score(fitted, X, Y, **given)
    assert private_score(fitted, X.tolist(), [[v] for v in Y], **given).value == wanted.value
