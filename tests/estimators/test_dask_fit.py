"""Fits on Dask collections: the coefficients of the in-memory fit, whatever happens to workers."""

from types import SimpleNamespace

import numpy as np
import pytest
from partitions import assert_same_fit, in_partitions
from sklearn.base import clone, is_regressor

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
pd = pytest.importorskip("pandas")

from dpconvex import (  # noqa: E402
    DPLinearSVC,
    DPLogisticRegression,
    DPQuantileRegressor,
    DPRobustClassifier,
    DPRobustRegressor,
    DPTiltedClassifier,
    DPTiltedRegressor,
    DPTopRankClassifier,
)
from dpconvex.engine.dask.schedule import watch_schedule  # noqa: E402
from dpconvex.fit import constants  # noqa: E402
from dpconvex.inputs.training_data import map_training_rows, read_training  # noqa: E402
from dpconvex.mechanisms import NoisySGD  # noqa: E402
from dpconvex.privacy import Ledger  # noqa: E402

CHUNKS = (900, 0, 1, 1600, 499)
SETTINGS = {"epsilon": 2.0, "feature_bounds": (-4, 4), "random_state": 7}


def make_table(dtype=np.float64):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(sum(CHUNKS), 4)).astype(dtype)
    return X, X @ np.array([1.0, -2.0, 0.5, 0.0]) + rng.normal(size=len(X))


def in_chunks(array):
    return in_partitions(array, CHUNKS)


@pytest.mark.parametrize("mechanism", ["objective", "output", "gradient"])
@pytest.mark.parametrize("spill_limit", [None, 0, "70 kB"])  # all, none, some of the partitions
def test_same_coefficients_as_in_memory(mechanism, spill_limit):
    X, y = make_table(np.float32)
    model = DPQuantileRegressor(0.7, **SETTINGS, target_bounds=(-9, 9), mechanism=mechanism)
    expected = model.fit(X, y)
    again = clone(model)
    with dask.config.set({"dpconvex.spill-limit": spill_limit, "scheduler": "threads"}):
        assert_same_fit(again.fit(in_chunks(X), in_chunks(y)), expected)


@pytest.mark.parametrize("spill_limit", [None, 0])
@pytest.mark.parametrize("estimator", [DPQuantileRegressor, DPLogisticRegression])
def test_parts_of_the_rows_are_the_same_in_partitions(estimator, spill_limit, monkeypatch):
    """Geometry and early rounds on a public part of the rows."""
    monkeypatch.setattr(constants, "GEOMETRY_ROWS", (400, 500))
    monkeypatch.setattr(constants, "EARLY_ROWS", (600, 0.1))
    X, y = make_table()
    extra = {"target_bounds": (-9, 9)} if estimator is DPQuantileRegressor else {}
    y = y if extra else (y > 0).astype(int)
    model = estimator(**{**SETTINGS, "epsilon": 100.0}, **extra)
    expected = model.fit(X, y)
    stated = expected.certificate_.parameters["fit"]
    assert stated["geometry_rows"] < stated["early_rows"] < 1500
    again = clone(model)
    with dask.config.set({"dpconvex.spill-limit": spill_limit, "scheduler": "threads"}):
        assert_same_fit(again.fit(in_chunks(X), in_chunks(y)), expected)


def test_long_rows_are_bounded_in_partitions_too():
    X, y = make_table()
    X[::7] *= 50
    for settings in ({"row_norm": 1.0}, {"row_norm": 1.0, "feature_bounds": None}):
        given = {**SETTINGS, **settings, "target_bounds": (-9, 9)}
        expected = DPQuantileRegressor(**given).fit(X, y)
        assert_same_fit(DPQuantileRegressor(**given).fit(in_chunks(X), in_chunks(y)), expected)


@pytest.mark.parametrize("labels", [["no", "yes"], ["a", "b", "c"], [0, 1]])
@pytest.mark.parametrize("estimator", [DPLogisticRegression, DPLinearSVC])
def test_classifiers_read_the_label_set_from_all_partitions(estimator, labels):
    X, y = make_table()
    named = np.array(labels)[
        np.digitize(y, np.quantile(y, np.linspace(0, 1, len(labels) + 1)[1:-1]))
    ]
    expected = estimator(**SETTINGS).fit(X, named)
    fitted = estimator(**SETTINGS).fit(in_chunks(X), in_chunks(named))
    np.testing.assert_array_equal(fitted.classes_, expected.classes_)
    assert_same_fit(fitted, expected)
    with pytest.raises(ValueError, match="must all be in its 'classes'"):
        estimator(**SETTINGS, classes=[*labels[1:], labels[1] * 2]).fit(
            in_chunks(X), in_chunks(named)
        )


def test_dataframes_from_parquet_and_csv_with_mixed_types(tmp_path):
    X, y = make_table()
    frame = pd.DataFrame(X, columns=list("abcd")).assign(y=y)
    frame["b"] = frame["b"].round().astype("int64")
    frame["c"] = frame["c"].astype("float32")
    frame["d"] = frame["d"] > 0
    expected = DPQuantileRegressor(**SETTINGS).fit(frame[list("abcd")], frame["y"])
    for number, part in enumerate((frame[:1000], frame[1000:1001], frame[1001:])):
        part.to_parquet(tmp_path / f"{number}.parquet")
        part.to_csv(tmp_path / f"{number}.csv", index=False)
    for table in (
        dd.read_parquet(tmp_path / "*.parquet"),
        dd.read_csv(str(tmp_path / "*.csv"), blocksize="30 kB"),
        dd.from_pandas(frame, npartitions=3),
    ):
        fitted = DPQuantileRegressor(**SETTINGS).fit(table[list("abcd")], table["y"])
        assert list(fitted.feature_names_in_) == list("abcd")
        np.testing.assert_allclose(fitted.coef_, expected.coef_, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda X, y: (X.map_blocks(_with_nan), y), "X given to .* finite"),
        (lambda X, y: (X, y.map_blocks(_with_infinity)), "y given to .* finite"),
        (lambda X, y: (X, y[:-1]), "inconsistent numbers of samples"),
        (lambda X, y: (X.astype("U8"), y), "must be numbers"),
        (lambda X, y: (X.map_blocks(_as_text, dtype=object), y), "must be numbers"),
        (lambda X, y: (X[:0], y[:0]), "0 sample"),
        (lambda X, y: (X, y.compute()), "both be Dask collections"),
        (lambda X, y: (X, X), "numbers of dimensions"),
    ],
)
def test_bad_partitions_are_refused_before_the_budget_is_charged(spoil, message, tmp_path):
    X, y = make_table()
    ledger = Ledger(tmp_path / "ledger.db", epsilon=5.0)
    model = DPQuantileRegressor(**SETTINGS, ledger=ledger)
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        model.fit(*spoil(in_chunks(X), in_chunks(y)))
    assert ledger.entries() == []
    assert "17.25" not in str(caught.value)


def _with_nan(block):
    block = block.copy()
    block[-1:] = np.nan
    block[:1] = 17.25
    return block


def _with_infinity(block):
    return np.where(np.arange(block.size) == 0, np.inf, 17.25)


def _as_text(block):
    return np.full(block.shape, "17.25 euros", dtype=object)


@pytest.mark.parametrize(
    "model",
    [
        DPTiltedClassifier(**SETTINGS),
        DPTiltedRegressor(**SETTINGS),
        DPRobustClassifier(**SETTINGS),
        DPRobustRegressor(**SETTINGS),
        DPTiltedRegressor(share=0.2, **SETTINGS),
        DPTopRankClassifier(**SETTINGS),
    ],
    ids=lambda model: type(model).__name__,
)
def test_other_objectives_are_sums_over_partitions_too(model):
    X, y = make_table()
    target = y / 9 if is_regressor(model) else (y > 0).astype(int)
    expected = clone(model).fit(X, target)
    assert_same_fit(model.fit(in_chunks(X), in_chunks(target)), expected)


def test_record_by_record_mechanisms_are_refused():
    X, y = make_table()
    table, _ = read_training(DPQuantileRegressor(), in_chunks(X), in_chunks(y), y_numeric=True)
    plan = SimpleNamespace(mechanism=NoisySGD(), certificate=SimpleNamespace(mechanism="sgd"))
    with pytest.raises(ValueError, match="one by one"):
        map_training_rows(table, table, plan, "DPQuantileRegressor")


def elsewhere(graph, keys, **_):
    """A scheduler that is none of Dask's own, as a cluster's."""
    return dask.get(graph, keys)


@pytest.mark.parametrize("scheduler", [None, "synchronous", elsewhere])
def test_progress_is_told_for_the_first_pass_only(scheduler):
    """Reports of every pass counted the steps of a solver, which depend on the data."""
    X, y = make_table()
    model = DPQuantileRegressor(**SETTINGS, mechanism="objective")
    seen = []
    for target in (y, np.sign(y) * 1e6):
        told = []
        with (
            dask.config.set(scheduler=scheduler),
            watch_schedule(lambda done, total, told=told: told.append((done, total))),
        ):
            model.fit(in_chunks(X), in_chunks(target))
        seen.append(told)
    assert seen[0] == seen[1]
    assert seen[0][-1][0] == seen[0][-1][1]
    assert [done for done, _ in seen[0]] == sorted({done for done, _ in seen[0]})


def test_numbers_beside_text_are_no_labels():
    X = np.random.default_rng(0).uniform(0, 1, (40, 2))
    y = np.array(["a", 1] * 20, dtype=object)
    with pytest.raises(ValueError, match="must hold labels"):
        DPLogisticRegression(feature_bounds=(0, 1)).fit(
            da.from_array(X, chunks=(20, 2)), da.from_array(y, chunks=20)
        )
