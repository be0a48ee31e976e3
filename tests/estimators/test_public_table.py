"""Tables as they come, in Python: PublicTable, bounds by name, models that carry their schema,
guard rails.
"""

from __future__ import annotations

import json
import math
import pickle
import warnings
from html import unescape

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pytest
from joblib import parallel_config
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import StackingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import Normalizer, OneHotEncoder, StandardScaler

from dpconvex import (
    DPAUCClassifier,
    DPLinearSVC,
    DPLogisticRegression,
    DPNewsvendor,
    DPQuantileRegressor,
    DPRobustClassifier,
    DPRobustRegressor,
    DPTiltedClassifier,
    DPTiltedRegressor,
    DPTopRankClassifier,
    PrivacyWarning,
    check_pipeline,
    load_model,
    save_model,
)
from dpconvex.models.model_file import ModelFileError
from dpconvex.preprocessing import DPQuantileBounds, PublicTable
from dpconvex.privacy import Ledger, charging
from dpconvex.reports.report import render_report
from dpconvex.selection import DPSelect

TABLES = {
    "features": {"age": {"bounds": [17, 90], "missing": "indicator"}},
    "categories": {"job": ["clerk", "driver"]},
    "dates": {"since": {"parts": ["weekday"], "missing": "indicator"}},
    "target": {"rich": {"classes": ["no", "yes"]}},
}
NAMES = [
    "age",
    "age is missing",
    "job=clerk",
    "job=driver",
    *(f"since.weekday={day}" for day in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")),
    "since is missing",
]


def people(rows=60, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(10, 100, rows).astype(float)
    age[::7] = np.nan
    return pd.DataFrame(
        {
            "job": rng.choice(["clerk", "driver", "pilot", None], rows),
            "age": age,
            "since": [f"2024-01-{day:02d}" for day in rng.integers(1, 29, rows)],
            "other": "unused",
            "rich": rng.choice(["no", "yes"], rows),
        },
        index=np.arange(rows) * 3,
    )


def test_every_container_gives_the_same_rows(tmp_path):
    frame = people()
    table = PublicTable(TABLES)
    expected = table.transform(frame)
    assert isinstance(expected, pd.DataFrame)
    assert list(expected.columns) == list(table.get_feature_names_out()) == NAMES
    assert expected.index.equals(frame.index)
    frame.to_csv(tmp_path / "t.csv.gz", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    polars = pl.from_pandas(frame)
    for other in (
        polars,
        polars.lazy(),
        polars.to_arrow(),
        dict(frame.items()),
        {name: frame[name].tolist() for name in frame},
        tmp_path / "t.csv.gz",
        str(tmp_path / "t.parquet"),
    ):
        np.testing.assert_array_equal(np.asarray(table.transform(other)), expected.to_numpy())
        assert table.target(other).tolist() == frame["rich"].tolist()
    parts = table.transform(dd.from_pandas(frame, npartitions=3)).compute()
    np.testing.assert_array_equal(parts.to_numpy(), expected.to_numpy())


def test_it_is_a_transformer_that_learns_nothing():
    frame = people()
    table = PublicTable(TABLES)
    first = table.fit(frame).transform(frame)
    for other in (clone(table), pickle.loads(pickle.dumps(table)), PublicTable(TABLES).fit(None)):
        pd.testing.assert_frame_equal(other.transform(frame), first)
    assert table.privacy_ == "public"
    assert PublicTable("none.toml").get_params() == {
        "schema": "none.toml",
        "formula": None,
        "sparse": False,
    }
    with pytest.raises(ValueError, match="is not a file"):
        PublicTable("none.toml").fit()
    named = clone(table).set_output(transform="pandas").fit_transform(pl.from_pandas(frame))
    assert list(named.columns) == NAMES
    np.testing.assert_array_equal(named.to_numpy(), first.to_numpy())


def test_sparse_rows_on_request():
    frame = people()
    assert issparse(PublicTable(TABLES, sparse=True).transform(frame))
    with pytest.raises(ValueError, match="True or False"):
        PublicTable(TABLES, sparse="yes").transform(frame)


def test_missing_columns_are_named_and_values_are_not():
    frame = people()
    frame["age"] = "SECRET"
    with pytest.raises(ValueError, match="no column 'job'"):
        PublicTable(TABLES).transform(frame[["age", "since"]])
    with pytest.raises(TypeError, match="named columns"):
        PublicTable(TABLES).transform(np.zeros((3, 3)))
    assert PublicTable(TABLES).transform(frame)["age is missing"].all()
    double = pd.concat([frame, frame[["job"]]], axis=1)
    with pytest.raises(ValueError, match="be there once"):
        PublicTable(TABLES).transform(double)


def test_a_pipeline_fits_is_saved_and_reads_tables_when_loaded(tmp_path):
    frame = people(300)
    table = PublicTable(TABLES)
    model = DPLogisticRegression(
        feature_bounds=table.feature_bounds, row_norm=table.row_norm, classes=table.classes
    )
    pipeline = make_pipeline(table, model).fit(frame, frame["rich"])
    assert list(pipeline[-1].feature_names_in_) == NAMES
    assert "job=clerk" in repr(pipeline[-1].summary())
    save_model(pipeline, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    expected = pipeline.predict_proba(frame)
    frame.to_csv(tmp_path / "t.csv", index=False)
    for data in (frame, pl.from_pandas(frame), tmp_path / "t.csv", table.transform(frame)):
        np.testing.assert_array_equal(loaded.predict_proba(data), expected)
    save_model(loaded, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "model.json").read_text()
    # A fit on other columns forgets the schema.
    loaded.set_params(feature_bounds=(0, 1), row_norm=None).fit(
        frame[["age"]].fillna(20), frame["rich"]
    )
    assert not hasattr(loaded, "schema_")
    with pytest.raises(ModelFileError, match="do not lead to"):
        save_model(model, tmp_path / "x.json", schema=PublicTable({"features": {"age": [0, 1]}}))


@pytest.mark.parametrize(
    "kind",
    [
        DPQuantileRegressor,
        DPNewsvendor,
        DPTiltedRegressor,
        DPRobustRegressor,
        DPLinearSVC,
        DPLogisticRegression,
        DPAUCClassifier,
        DPTiltedClassifier,
        DPTopRankClassifier,
        DPRobustClassifier,
    ],
)
def test_bounds_by_name_on_every_estimator(kind, tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.uniform(0, 1, (80, 3)), columns=["class", "b", "a"])
    y = (frame["a"] > 0.5).astype(int)
    named = {"a": (0, 1), "b": (-1, 2), "class": [0, 4]}
    ordered = ([0, -1, 0], [1, 2, 4])
    settings = {"random_state": 0}
    by_name = kind(feature_bounds=named, **settings).fit(frame, y)
    plain = kind(feature_bounds=ordered, **settings).fit(frame[["a", "b", "class"]], y)
    np.testing.assert_array_equal(by_name.coef_, plain.coef_)
    assert by_name.certificate_.to_json() == plain.certificate_.to_json()
    assert (
        by_name.certificate_.to_json()
        == kind(feature_bounds=named, **settings).certify(80, 3).to_json()
    )
    np.testing.assert_array_equal(
        by_name.predict(pl.from_pandas(frame)), plain.predict(frame[["a", "b", "class"]])
    )
    save_model(by_name, tmp_path / "m.json")
    loaded = load_model(tmp_path / "m.json")
    np.testing.assert_array_equal(loaded.predict(frame), by_name.predict(frame))
    content = json.loads((tmp_path / "m.json").read_text())
    content["parameters"]["feature_bounds"] = dict(
        reversed(content["parameters"]["feature_bounds"].items())
    )
    (tmp_path / "m.json").write_text(json.dumps(content))
    with pytest.raises(ModelFileError):
        load_model(tmp_path / "m.json")


@pytest.mark.parametrize(
    ("bounds", "data", "part"),
    [
        ({"a": (0, 1)}, "frame", "Check 'b': X has this column without bounds"),
        ({"a": (0, 1), "b": (0, 1), "c": (0, 1)}, "frame", "Check 'c': X has no such column"),
        ({"a": (0, 1), "b": (0, 1)}, "array", "table with named columns"),
        ({"a": (0, 1), "b": 3}, "frame", "a dictionary of column"),
        ({"a": (0, 1), "b": (2, 1)}, "frame", "low >= high"),
        (([0, 0, 0], [1, 1, 1]), "frame", "Got 3 lows and 3 highs for 2 columns"),
    ],
)
def test_bounds_that_do_not_fit_say_so(bounds, data, part):
    frame = pd.DataFrame({"a": [0.0, 1.0], "b": [1.0, 0.0]})
    with pytest.raises((TypeError, ValueError), match=part):
        DPQuantileRegressor(feature_bounds=bounds).fit(
            frame if data == "frame" else frame.to_numpy(), [0.0, 1.0]
        )


def test_bounds_by_name_on_dask():
    frame = pd.DataFrame({"b": np.linspace(0, 1, 40), "a": np.linspace(1, 0, 40)})
    bounds = {"a": (0, 1), "b": (0, 2)}
    model = DPQuantileRegressor(feature_bounds=bounds, random_state=0)
    parts = dd.from_pandas(frame, npartitions=2)
    first = clone(model).fit(parts, parts["a"]).coef_
    np.testing.assert_allclose(first, clone(model).fit(frame, frame["a"]).coef_, rtol=1e-9)


def test_warnings_come_from_the_certificate_and_are_listed():
    X = np.zeros((20, 1))
    y = np.zeros(20)
    careless = DPQuantileRegressor(delta=0.06, mechanism="output")
    with pytest.warns(PrivacyWarning) as caught:
        careless.fit(X, y)
    texts = [str(item.message) for item in caught]
    certificate = careless.certificate_
    assert list(certificate.warnings) == [text for text in texts if "columns can bring" not in text]
    assert len(certificate.warnings) == 2
    assert (
        certificate.to_json()
        == DPQuantileRegressor(delta=0.06, mechanism="output").certify(20, 1).to_json()
    )
    page, summary = (
        " ".join(unescape(text).split())
        for text in (render_report(careless), repr(careless.summary()))
    )
    for text in certificate.warnings:
        assert text in summary
        assert text in page
    for settings in ({"delta": 0.05}, {"delta": 0}, {"mu": 1.0}):
        certificate = DPQuantileRegressor(feature_bounds=(0, 1), **settings).certify(20, 1)
        assert certificate.warnings == ()
    assert DPQuantileRegressor(feature_bounds=(0, 1)).certify(2_000_000, 1).warnings


def leaks(pipeline):
    return [problem.split(" ")[0] for problem in check_pipeline(pipeline)]


def test_steps_that_are_fitted_on_the_data_are_named():
    model = DPLogisticRegression(feature_bounds=(-1, 1))
    declared = OneHotEncoder(categories=[["a", "b"]], handle_unknown="ignore")
    constant = SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True)
    public = make_pipeline(
        ColumnTransformer(
            [("code", declared, ["a"]), ("fill", constant, ["b"]), ("rest", "drop", ["c"])]
        ),
        Normalizer(),
        DPQuantileBounds((0, 1)),
        model,
    )
    assert check_pipeline(public) == []
    assert check_pipeline(make_pipeline(PublicTable(TABLES), model)) == []
    columns = ColumnTransformer(
        [
            ("scale", StandardScaler(), ["a"]),
            ("code", OneHotEncoder(), ["b"]),
            ("fill", SimpleImputer(), ["c"]),
        ]
    )
    union = FeatureUnion([("pca", PCA()), ("same", "passthrough")])
    assert leaks(make_pipeline(columns, union, model)) == [
        "columntransformer.scale:",
        "columntransformer.code:",
        "columntransformer.fill:",
        "featureunion.pca:",
    ]
    assert "not private" in check_pipeline(make_pipeline(Normalizer(), LogisticRegression()))[0]


def test_columns_that_are_passed_through_are_no_problem():
    """A transformer, union or pipeline without any step that is fitted."""
    model = DPLogisticRegression(feature_bounds=(-1, 1))
    passed = ColumnTransformer([("same", "passthrough", ["a"]), ("none", "drop", ["b"])])
    assert check_pipeline(passed) == []
    assert check_pipeline(make_pipeline(passed, model)) == []
    assert check_pipeline(FeatureUnion([("same", "passthrough")])) == []
    assert check_pipeline(Pipeline([("same", "passthrough"), ("none", None)])) == []
    search = GridSearchCV(make_pipeline(passed, model), {})
    assert [problem.split(" ")[0] for problem in check_pipeline(search)] == ["GridSearchCV"]


def test_what_becomes_of_other_columns_is_looked_at():
    """The remainder of a column transformer, and the last estimator of a stack."""
    model = DPLogisticRegression(feature_bounds=(-1, 1))
    columns = [("same", "passthrough", ["a"])]
    assert leaks(ColumnTransformer(columns, remainder=StandardScaler())) == ["remainder:"]
    assert check_pipeline(ColumnTransformer(columns, remainder="passthrough")) == []
    stack = StackingClassifier([("own", model)], final_estimator=model)
    assert check_pipeline(stack) == []
    assert leaks(stack.set_params(final_estimator=LogisticRegression())) == ["final_estimator:"]
    assert leaks(stack.set_params(final_estimator=None)) == ["StackingClassifier"]


@pytest.mark.parametrize("wrong", [None, "model", 3, [], DPLogisticRegression])
def test_only_estimators_are_checked(wrong):
    with pytest.raises(TypeError, match="'pipeline' parameter of check_pipeline"):
        check_pipeline(wrong)


def uncharged_search_warnings(monkeypatch, run):
    """Return categories of the warnings; filters belong to all threads, so calls are recorded in
    their place.
    """
    told = []

    def warn(message, category=None, **_):
        told.append((str(message), category))

    monkeypatch.setattr(charging, "_SEARCHES_TOLD", [])
    with monkeypatch.context() as patched:
        patched.setattr(warnings, "warn", warn)
        run()
    return [category for text, category in told if "no ledger counts" in text]


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_searches_without_a_ledger_warn_once_and_others_never(monkeypatch, tmp_path, n_jobs):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    y = rng.integers(0, 2, 300)
    model = DPLogisticRegression(feature_bounds=(-1, 1), classes=[0, 1])
    grid = {"alpha": [0.1, 1.0]}
    ledger = Ledger(tmp_path / "l.db", epsilon=50.0, delta=1e-3)
    paid = clone(model).set_params(ledger=ledger)
    with parallel_config(backend="threading"):
        for run in (
            lambda: cross_val_score(model, X, y, cv=3, n_jobs=n_jobs),
            lambda: GridSearchCV(make_pipeline(Normalizer(), model), {}, cv=2, n_jobs=n_jobs).fit(
                X, y
            ),
        ):
            found = uncharged_search_warnings(monkeypatch, run)
            assert found == [PrivacyWarning]
        for run in (
            lambda: cross_val_score(paid, X, y, cv=3, n_jobs=n_jobs),
            lambda: GridSearchCV(paid, grid, cv=2, n_jobs=n_jobs).fit(X, y),
            lambda: [clone(model).fit(X, y) for _ in range(3)],
            lambda: cross_val_score(
                DPSelect(model, grid, mu=0.5, ledger=ledger), X, y, cv=2, n_jobs=n_jobs
            ),
        ):
            assert uncharged_search_warnings(monkeypatch, run) == []
    unpaid = DPSelect(model, grid, mu=0.5)
    assert (
        len(uncharged_search_warnings(monkeypatch, lambda: cross_val_score(unpaid, X, y, cv=2)))
        == 1
    )


def test_searches_without_a_ledger_are_named(tmp_path):
    model = DPLogisticRegression(feature_bounds=(-1, 1))
    grid = {"alpha": [0.1, 1.0]}
    assert leaks(GridSearchCV(model, grid)) == ["GridSearchCV"]
    nested = make_pipeline(StandardScaler(), model)
    assert leaks(GridSearchCV(nested, {})) == ["GridSearchCV", "estimator.standardscaler:"]
    assert leaks(DPSelect(model, grid)) == []
    assert leaks(DPSelect(nested, {})) == ["estimator.standardscaler:"]
    ledger = Ledger(tmp_path / "l.db", epsilon=5.0, delta=1e-5)
    assert leaks(GridSearchCV(model.set_params(ledger=ledger), grid)) == []


def test_short_rows_need_less_noise():
    table = PublicTable({"categories": {"c": [str(item) for item in range(100)]}})
    assert table.row_norm == 1.0
    settings = {"feature_bounds": table.feature_bounds, "mechanism": "output", "alpha": 0.1}
    long = DPLogisticRegression(**settings).certify(1000, 100).noise["release"].scale
    short = DPLogisticRegression(row_norm=table.row_norm, **settings).certify(1000, 100)
    assert short.noise["release"].scale < long / 3
    assert math.isclose(short.bounds.row_norm, 1.0)
