"""A schema's [person] in Python: pipelines promise to people what the schema says, or refuse."""

import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, PolynomialFeatures, StandardScaler

from dpconvex import DPLinearRegression, DPQuantileRegressor, DPTopRankClassifier, check_pipeline
from dpconvex.evaluation import private_score, private_score_difference
from dpconvex.intervals import DPConformal
from dpconvex.models.model_file import load_model, save_model
from dpconvex.preprocessing import DPQuantileBounds, PublicTable
from dpconvex.privacy import Ledger
from dpconvex.selection import DPSelect

ROWS = {
    "features": {"price": [0, 10]},
    "categories": {"city": ["berlin", "paris"]},
    "target": {"demand": [0, 20]},
}
TABLES = {**ROWS, "person": {"column": "customer"}}
LARGE = 2**60


def visits(people=150, seed=0):
    rng = np.random.default_rng(seed)
    ids = np.repeat(LARGE + np.arange(people), rng.integers(1, 6, people))
    price = rng.uniform(0, 10, ids.size)
    frame = {
        "customer": ids,
        "price": price,
        "city": rng.choice(["berlin", "paris"], ids.size),
        "demand": 15 - price + rng.normal(0, 1, ids.size),
    }
    return pd.DataFrame(frame).sample(frac=1, random_state=seed).reset_index(drop=True)


def model(**more):
    table = PublicTable(ROWS)
    public = {"feature_bounds": table.feature_bounds, "target_bounds": table.target_bounds}
    return DPQuantileRegressor(0.5, **{**public, "epsilon": 5.0, "random_state": 0, **more})


def assert_of_people(fitted, expected):
    """Assert that a fit is the one that was given the same rows and identifiers by hand."""
    assert fitted.certificate_.unit == "one person"
    assert fitted.certificate_.to_json() == expected.certificate_.to_json()
    np.testing.assert_allclose(fitted.coef_, expected.coef_, atol=1e-9)


def test_a_difference_of_scores_is_promised_to_the_people_of_either_model():
    """It was made to one record where the second model's schema alone names people."""
    frame = visits()
    fits = [
        make_pipeline(PublicTable(schema), model()).fit(frame, frame["demand"])
        for schema in (ROWS, TABLES)
    ]
    found = [
        private_score_difference(*pair, frame, frame["demand"], epsilon=1.0, random_state=0)
        for pair in (fits, fits[::-1])
    ]
    assert [score.certificate.unit for score in found] == ["one person"] * 2
    assert [score.certificate.n_samples for score in found] == [150, 150]
    assert found[0].value == pytest.approx(-found[1].value, abs=np.ptp(found[0].interval))


def test_schemas_that_name_other_people_are_not_compared():
    """The promise was made to those of the first model: all rows of a shop moved the sum by the
    number of customers.
    """
    frame = visits().assign(shop=0)
    schemas = TABLES, {**ROWS, "person": {"column": "shop"}}
    fits = [
        make_pipeline(PublicTable(schema), model()).fit(frame, frame["demand"])
        for schema in schemas[:1] * 2
    ]
    fits[1].steps[0] = "publictable", PublicTable(schemas[1])
    with pytest.raises(ValueError, match="same column of people"):
        private_score_difference(*fits, frame, frame["demand"])
    table = PublicTable(TABLES)
    found = private_score_difference(
        *fits, frame, frame["demand"], groups=table.fit().groups(frame), random_state=0
    )
    assert found.certificate.n_samples == 150


def test_a_pipeline_keeps_the_promise_of_the_schema(tmp_path):
    """It was made to one record, whatever [person] said."""
    frame = visits()
    table = PublicTable(TABLES)
    expected = model().fit(table.transform(frame), frame["demand"], groups=frame["customer"])
    assert expected.certificate_.bounds.n_samples == 150
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_csv(tmp_path / "t.csv", index=False)
    polars = pl.from_pandas(frame)
    for held in (
        frame,
        polars,
        polars.lazy(),
        polars.to_arrow(),
        {name: frame[name].tolist() for name in frame},
        str(tmp_path / "t.parquet"),
        tmp_path / "t.csv",
    ):
        pipeline = make_pipeline(table, model()).fit(held, frame["demand"])
        assert_of_people(pipeline[-1], expected)
        assert np.isfinite(pipeline.predict(frame.drop(columns="customer"))).all()
        by_hand = model().fit(table.transform(held), frame["demand"], groups=table.groups(held))
        assert_of_people(by_hand, expected)
    assert check_pipeline(make_pipeline(table, model())) == []


def test_partitions_caches_and_nested_pipelines_carry_people(tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    frame = visits()
    rows = PublicTable(ROWS).transform(frame)
    expected = model().fit(rows, frame["demand"], groups=frame["customer"])
    with pytest.raises(TypeError, match="need dense ones"):
        make_pipeline(PublicTable(TABLES, sparse=True), model()).fit(frame, frame["demand"])
    parts = dd.from_pandas(frame, npartitions=3)
    pieces = make_pipeline(PublicTable(TABLES), model()).fit(parts, parts["demand"])
    assert pieces[-1].certificate_.to_json() == expected.certificate_.to_json()
    np.testing.assert_allclose(pieces[-1].coef_, expected.coef_, atol=1e-6)
    with sklearn.config_context(transform_output="pandas"):
        named = make_pipeline(PublicTable(TABLES), model()).fit(frame, frame["demand"])
    assert_of_people(named[-1], expected)
    kept = make_pipeline(PublicTable(TABLES), model(), memory=str(tmp_path))
    nested = make_pipeline(make_pipeline(PublicTable(TABLES)), "passthrough", model())
    turned = make_pipeline(PublicTable(TABLES), TransformedTargetRegressor(model()))
    for pipeline in (kept, nested):
        assert_of_people(pipeline.fit(frame, frame["demand"])[-1], expected)
    assert_of_people(turned.fit(frame, frame["demand"])[-1].regressor_, expected)
    assert check_pipeline(turned) == check_pipeline(nested) == []


@pytest.mark.parametrize(
    "step",
    [
        StandardScaler(),
        PolynomialFeatures(),
        FunctionTransformer(np.abs),
        FunctionTransformer(lambda frame: frame.assign(more=1)),
        DPQuantileBounds((0, 10)),
    ],
    ids=lambda step: type(step).__name__,
)
def test_a_step_that_would_lose_people_is_refused(step):
    frame = visits(20)
    pipeline = make_pipeline(PublicTable(TABLES), step, model())
    with pytest.raises(TypeError, match=r"\[person\].*groups=table.groups"):
        pipeline.fit(frame, frame["demand"])
    assert any("whose rows they are" in problem for problem in check_pipeline(pipeline))
    without = make_pipeline(PublicTable(ROWS), step, model())
    assert not any("whose rows they are" in problem for problem in check_pipeline(without))


def test_unions_of_columns_are_refused():
    frame = visits(20)
    table = PublicTable(TABLES)
    columns = ["customer", "price", "city"]
    for union in (
        FeatureUnion([("a", table)]),
        FeatureUnion([("a", table), ("b", table)]),
        ColumnTransformer([("a", table, columns)]),
    ):
        pipeline = make_pipeline(union, model())
        with pytest.raises(TypeError, match=r"\[person\]"):
            pipeline.fit(frame, frame["demand"])
        assert any("whose rows they are" in problem for problem in check_pipeline(pipeline))


def test_a_table_without_the_column_and_estimators_without_people_are_refused():
    frame = visits(20)
    with pytest.raises(ValueError, match="no column 'customer'"):
        make_pipeline(PublicTable(TABLES), model()).fit(
            frame.drop(columns="customer"), frame["demand"]
        )
    with pytest.raises(ValueError, match="top of a list is not proven"):
        make_pipeline(PublicTable(TABLES), DPTopRankClassifier()).fit(frame, frame["demand"] > 10)
    with pytest.raises(ValueError, match=r"names no person.*\[person\]"):
        PublicTable(ROWS).groups(frame)
    # What is given is what holds, as with --person on the command line.
    shops = np.arange(len(frame)) // 7
    given = make_pipeline(PublicTable(TABLES), model()).fit(
        frame, frame["demand"], dpquantileregressor__groups=shops
    )
    assert given[-1].certificate_.bounds.n_samples == shops.max() + 1


def test_rows_of_people_show_nobody():
    frame = visits(20)
    rows = PublicTable(TABLES).fit_transform(frame)
    assert str(LARGE)[:12] not in repr(rows) + str(rows)
    again = pickle.loads(pickle.dumps(rows))
    assert_of_people(model().fit(again, frame["demand"]), model().fit(rows, frame["demand"]))
    for use in (len, list, np.asarray, lambda rows: rows.shape, lambda rows: rows[0]):
        with pytest.raises(TypeError, match=r"\[person\]"):
            use(rows)
    assert isinstance(PublicTable(ROWS).fit_transform(frame), pd.DataFrame)


def test_selection_intervals_and_searches_take_people_from_the_table(tmp_path):
    frame = visits(600)
    chosen = make_pipeline(
        PublicTable(TABLES), DPSelect(model(epsilon=None, random_state=None), {"row_norm": [1.0]})
    ).fit(frame, frame["demand"])[-1]
    assert chosen.certificate_.unit == "one person"
    assert chosen.certificate_.training_rows + chosen.certificate_.validation_rows == 600
    intervals = make_pipeline(PublicTable(TABLES), DPConformal(model(random_state=None), 0.8)).fit(
        frame, frame["demand"]
    )[-1]
    assert intervals.certificate_.unit == "one person"
    ledger = Ledger(tmp_path / "l.db", epsilon=100, delta=1e-3)
    search = GridSearchCV(
        make_pipeline(PublicTable(TABLES), model(ledger=ledger, random_state=None)),
        {"dpquantileregressor__row_norm": [1.0]},
        cv=2,
    ).fit(frame, frame["demand"])
    assert search.best_estimator_[-1].certificate_.unit == "one person"
    assert {entry.unit for entry in ledger.entries()} == {"one person"}


def test_scores_of_tables_are_those_of_their_people(tmp_path):
    frame = visits(200)
    pipeline = make_pipeline(PublicTable(TABLES), model()).fit(frame, frame["demand"])
    save_model(pipeline[-1], tmp_path / "m.json", schema=PublicTable(TABLES).fit().schema_)
    loaded = load_model(tmp_path / "m.json")
    for scored in (pipeline, loaded):
        found = private_score(scored, frame, frame["demand"], epsilon=1.0)
        assert (found.certificate.unit, found.certificate.n_samples) == ("one person", 200)
        given = private_score(scored, frame, frame["demand"], epsilon=1.0, groups=frame["city"])
        assert given.certificate.n_samples == 2
        with pytest.raises(ValueError, match="no column 'customer'"):
            private_score(scored, frame.drop(columns="customer"), frame["demand"], epsilon=1.0)
    rows = make_pipeline(PublicTable(ROWS), model()).fit(frame, frame["demand"])
    assert private_score(rows, frame, frame["demand"], epsilon=1.0).certificate.unit == "one record"
    linear = DPLinearRegression(feature_bounds=(0, 10), target_bounds=(0, 20))
    assert (
        linear.fit(PublicTable(TABLES).fit_transform(frame), frame["demand"]).certificate_.unit
        == "one person"
    )
