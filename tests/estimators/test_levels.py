"""Several quantile levels, and several products, under one budget: shapes, files, refusals, and
what they share.
"""

import json
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.metrics import mean_pinball_loss

from dpconvex import DPNewsvendor, DPQuantileRegressor, load_model, save_model
from dpconvex.evaluation import private_score
from dpconvex.fit.several_quantiles import smooth_quantile_levels
from dpconvex.intervals import DPConformal
from dpconvex.mechanisms import NoisyGradientDescent
from dpconvex.models.model_file import ModelFileError
from dpconvex.planning import plan
from dpconvex.privacy import ApproxDP, Ledger
from dpconvex.selection import DPSelect

LEVELS = (0.1, 0.5, 0.9)
PUBLIC = {"feature_bounds": (-1, 1), "target_bounds": (-2, 2), "random_state": 0}


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 3))
    noise = rng.normal(0, 0.2, (4000, 2)) * (1 + 0.5 * X[:, :1])
    return X, np.column_stack([X @ [0.1, 0.2, -0.3], X @ [0.3, 0.0, 0.1]]) + noise


@pytest.fixture(scope="module")
def curves(table):
    return DPQuantileRegressor(LEVELS, epsilon=2.0, **PUBLIC).fit(table[0], table[1][:, 0])


@pytest.fixture(scope="module")
def orders(table):
    return DPNewsvendor((1.0, 4.0), (1.0, 1.0), epsilon=2.0, **PUBLIC).fit(*table)


def test_levels_have_a_row_each(table, curves):
    X, y = table
    assert curves.coef_.shape == (3, 3)
    assert curves.intercept_.shape == (3,)
    assert curves.predict(X).shape == (len(X), 3)
    assert (np.diff(curves.intercept_) > 0).all()
    # The scale grows with the first column, and so do slopes with the level.
    assert (np.diff(curves.coef_[:, 0]) > 0).all()
    below = (y[:, :1] <= curves.predict(X)).mean(axis=0)
    assert below == pytest.approx(LEVELS, abs=0.05)
    assert curves.score(X, y[:, 0]) > 0.1
    for fitted in (curves, clone(curves).fit(X, y[:, 0])):
        fitted.certificate_.verify()
        assert fitted.certify(4000, 3) == curves.certificate_


def test_products_have_a_row_each(table, orders):
    X, y = table
    assert orders.coef_.shape == (2, 3)
    assert orders.predict(X).shape == y.shape
    assert orders.service_level == (0.5, 0.8)
    assert (y <= orders.predict(X)).mean(axis=0) == pytest.approx((0.5, 0.8), abs=0.05)
    orders.certificate_.verify()
    assert orders.certify(4000, 3) == orders.certify(4000, 3, 2) == orders.certificate_
    gap = y - orders.predict(X)
    costs = np.where(gap > 0, (1.0, 4.0) * gap, -gap)
    assert orders.cost(X, y) == pytest.approx(costs.sum(axis=1).mean(), rel=1e-12)
    with pytest.raises(ValueError, match="shape"):
        orders.cost(X, y[:, 0])
    alike = DPNewsvendor(3.0, 1.0, epsilon=2.0, **PUBLIC).fit(X, y)
    assert alike.service_level == 0.75
    assert alike.certify(4000, 3, 2) == alike.certificate_
    assert alike.coef_.shape == (2, 3)


def test_one_level_in_a_sequence_is_that_level(table):
    X = table[0]
    y = table[1][:, 0]
    alone = DPQuantileRegressor(0.9, epsilon=1.0, **PUBLIC).fit(X, y)
    listed = DPQuantileRegressor([0.9], epsilon=1.0, **PUBLIC).fit(X, y)
    assert np.array_equal(listed.coef_, [alone.coef_])
    assert np.array_equal(listed.predict(X)[:, 0], alone.predict(X))
    assert listed.certificate_.noise == alone.certificate_.noise


def test_quantiles_never_cross():
    """Few records and many levels: lines of coefficients cross, predictions do not, far out
    neither.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 4))
    levels = np.linspace(0.05, 0.95, 19)
    model = DPQuantileRegressor(levels, mu=2.0, **PUBLIC).fit(X, rng.normal(size=300))
    lines = 100 * X @ model.coef_.T + model.intercept_
    assert (np.diff(lines, axis=1) < 0).any()
    assert (np.diff(model.predict(100 * X), axis=1) >= 0).all()


def test_the_curve_of_levels_keeps_what_is_surely_there():
    levels = np.linspace(0.1, 0.9, 9)
    line = np.outer(np.linspace(-1, 1, 9) ** 3, [1.0, 2.0, 0.0, 1.0])
    rng = np.random.default_rng(0)
    found = line + 1e-3 * rng.normal(size=line.shape)
    moments = np.ones(4)
    # Noise that is known to be small leaves the curve as it is; noise of its size leaves a line.
    kept = smooth_quantile_levels(found, levels, np.full(9, 4e-6), moments)
    assert np.abs(kept - line).max() < 5e-3
    lost = smooth_quantile_levels(found, levels, np.full(9, 1e3), moments)
    assert np.linalg.matrix_rank(lost, tol=1e-6) <= 2
    assert np.isfinite(smooth_quantile_levels(found, (0.5,) * 9, np.full(9, 1e308), moments)).all()


@pytest.mark.parametrize("name", ["curves", "orders"])
def test_files_hold_every_row(tmp_path, request, table, name):
    model = request.getfixturevalue(name)
    X = table[0]
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    assert loaded.certificate_ == model.certificate_
    for same in (loaded, pickle.loads(pickle.dumps(model))):
        assert np.array_equal(same.predict(X), model.predict(X))
    names = ("quantile 0.1", "quantile 0.9") if name == "curves" else ("product 0", "product 1")
    assert all(name in repr(model.summary()) for name in names)
    text = (tmp_path / "model.json").read_text()
    spoiled = tmp_path / "spoiled.json"
    old, new = ("0.1,", "0.2,") if name == "curves" else ("4.0", "3.0")
    spoiled.write_text(text.replace(old, new, 1))
    with pytest.raises(ModelFileError):
        load_model(spoiled)


def test_products_have_the_names_of_their_columns(tmp_path, table):
    X = table[0]
    demands = np.random.default_rng(0).uniform(0, 9, (len(table[0]), 2))
    model = DPNewsvendor(feature_bounds=(-1, 1), target_bounds=(0, 9))
    model.fit(X, pd.DataFrame(demands, columns=["bread", "milk"]))
    save_model(model, tmp_path / "model.json")
    for named in (model, load_model(tmp_path / "model.json")):
        assert named.product_names_ == ["bread", "milk"]
        assert "\nmilk " in repr(named.summary())
        assert "product 1" not in repr(named.summary())
    content = json.loads((tmp_path / "model.json").read_text())
    for names in (["bread"], ["bread", "bread"], ["bread", 3], "ab"):
        (tmp_path / "spoiled.json").write_text(json.dumps({**content, "product_names": names}))
        with pytest.raises(ModelFileError, match="product_names"):
            load_model(tmp_path / "spoiled.json")
    for unnamed in (demands, pd.DataFrame(demands, columns=["a", "a"])):
        assert "product 1" in repr(model.fit(X, unnamed).summary())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"quantile": (0.9, 0.1)}, "increasing order"),
        ({"quantile": (0.5, 0.5)}, "increasing order"),
        ({"quantile": ()}, "increasing order"),
        ({"quantile": (0.5, 1.0)}, "'quantile' parameter"),
        ({"quantile": LEVELS, "mechanism": "objective"}, "'auto' or 'gradient'"),
        ({"quantile": LEVELS, "mechanism": NoisyGradientDescent(average=False)}, "released coord"),
        ({"quantile": LEVELS, "mechanism": NoisyGradientDescent(step_size=0.1)}, "released coord"),
        ({"quantile": LEVELS, "epsilon": 1.0, "delta": 0.0}, "pure epsilon"),
        ({"quantile": LEVELS, "smoothing": "moreau"}, "'smoothing' parameter"),
    ],
)
def test_what_is_refused_costs_nothing(tmp_path, table, settings, words):
    account = Ledger(tmp_path / "ledger.db", epsilon=10.0, delta=1e-5)
    model = DPQuantileRegressor(**settings, ledger=account, **PUBLIC)
    with pytest.raises(ValueError, match=words):
        model.fit(table[0], table[1][:, 0])
    assert not account.entries()


def test_products_must_match_costs(table):
    X, y = table
    model = DPNewsvendor((1.0, 2.0, 3.0), epsilon=1.0, **PUBLIC)
    with pytest.raises(ValueError, match="one for each column"):
        model.fit(X, y)
    with pytest.raises(ValueError, match="a column for each product"):
        model.fit(X, y[:, 0])
    with pytest.raises(ValueError, match="y should be a 1d array"):
        DPQuantileRegressor(LEVELS, epsilon=1.0, **PUBLIC).fit(X, y)


def test_invalid_rows_are_invalid_for_every_product(table):
    X = table[0]
    y = table[1].copy()
    y[:7, 1] = np.nan
    spoiled = y.copy()
    spoiled[:7, 0] = 1e3
    fits = [
        DPNewsvendor(3.0, 1.0, epsilon=1.0, invalid_rows="ignore", **PUBLIC).fit(X, demand)
        for demand in (y, spoiled)
    ]
    assert np.array_equal(fits[0].coef_, fits[1].coef_)


def test_sparse_rows_weights_and_people(table, curves, orders):
    X, y = table
    flat = sp.csr_matrix(X)
    for model, target in ((curves, y[:, 0]), (orders, y)):
        assert clone(model).fit(flat, target).coef_ == pytest.approx(model.coef_, abs=1e-9)
        people = clone(model).fit(X, target, np.full(len(X), 0.5), np.arange(len(X)) // 2)
        people.certificate_.verify()
        assert people.certificate_.unit == "one person"
        assert people.coef_.shape == model.coef_.shape


def test_dask_gives_the_same_levels_and_refuses_products(table, curves, orders):
    da = pytest.importorskip("dask.array")
    X, y = table
    rows = da.from_array(X, chunks=(1000, 3))
    found = clone(curves).fit(rows, da.from_array(y[:, 0], chunks=1000))
    assert found.coef_ == pytest.approx(curves.coef_, abs=1e-6)
    with pytest.raises(TypeError, match="in memory for several products"):
        clone(orders).fit(rows, da.from_array(y, chunks=(1000, 2)))


def test_intervals_between_levels(table):
    X = table[0]
    y = table[1][:, 0]
    model = DPConformal(DPQuantileRegressor((0.1, 0.9), **PUBLIC), epsilon=4.0, random_state=0)
    low, high = model.fit(X, y).predict_interval(X).T
    assert np.mean((low <= y) & (y <= high)) > 0.85
    with pytest.raises(ValueError, match="one target"):
        DPConformal(DPNewsvendor((1.0, 2.0), **PUBLIC), epsilon=4.0).fit(X, y)


def test_scores_and_selection_are_for_one_prediction(table, curves):
    X = table[0]
    y = table[1][:, 0]
    with pytest.raises(ValueError, match=r"one prediction per row.*like quantile=0\.1"):
        private_score(curves, X, y, epsilon=1.0)
    with pytest.raises(ValueError, match=r"one of the model's levels, \[0\.1, 0\.5, 0\.9\]"):
        private_score(curves, X, y, epsilon=1.0, quantile=0.2)
    one = DPQuantileRegressor(0.5, **PUBLIC).fit(X, y)
    with pytest.raises(ValueError, match="must be None: it has one"):
        private_score(one, X, y, epsilon=1.0, quantile=0.5)
    grid = {"alpha": [0.1, 1.0]}
    public = {**PUBLIC, "random_state": None}
    chosen = DPSelect(DPQuantileRegressor(LEVELS, **public), grid, epsilon=1.0)
    with pytest.raises(ValueError, match="one number per row"):
        chosen.fit(X, y)


def test_one_of_several_levels_is_scored(table, curves):
    X = table[0]
    y = table[1][:, 0]
    for place, level in enumerate(LEVELS):
        exact = mean_pinball_loss(y, curves.predict(X)[:, place], alpha=level)
        found = private_score(curves, X, y, epsilon=8.0, quantile=level, random_state=0)
        assert found.value == pytest.approx(
            exact, abs=2e-3
        )  # noise of 2e-4; the wrong level is off by 0.04 or more
        share = private_score(curves, X, y, "coverage", 8.0, quantile=level, random_state=0)
        assert share.value == pytest.approx(np.mean(y <= curves.predict(X)[:, place]), abs=5e-3)


def test_plans_of_several_levels():
    budget = ApproxDP(1.0, 1e-6)
    several = plan("quantile", 20_000, 5, budget, quantile=LEVELS)
    assert [forecast.mechanism for forecast in several.forecasts] == ["gradient"]
    alone = [plan("quantile", 20_000, 5, budget, quantile=level).best for level in LEVELS]
    mean = np.mean([forecast.excess_risk for forecast in alone])
    assert mean / 2 < several.best.excess_risk < 2 * mean
