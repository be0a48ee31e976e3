"""The newsvendor: costs, service level, pipelines with public features, and the choice of a
mechanism.
"""

import math
import pickle

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, SplineTransformer

from dpconvex import DPNewsvendor, DPQuantileRegressor
from dpconvex.datasets import make_newsvendor

PUBLIC = {"feature_bounds": (-4, 4), "target_bounds": (-20, 20)}


@pytest.fixture(scope="module")
def data():
    return make_newsvendor(2_000, rng=0, quantile=0.75)


def test_is_the_quantile_at_the_service_level(data):
    """Costs matter through their ratio alone, also for noise and certificate."""
    model = DPNewsvendor(30.0, 10.0, mu=0.5, random_state=0, **PUBLIC).fit(data.X, data.y)
    same = DPQuantileRegressor(0.75, mu=0.5, random_state=0, **PUBLIC).fit(data.X, data.y)
    assert model.service_level == 0.75
    assert np.array_equal(model.coef_, same.coef_)
    assert model.intercept_ == same.intercept_
    assert model.certificate_ == same.certificate_
    model.certificate_.verify()


def test_cost_and_score(data):
    model = DPNewsvendor(3.0, 1.0, mu=1.0, random_state=0, **PUBLIC).fit(data.X, data.y)
    gap = data.y - model.predict(data.X)
    costs = np.where(gap > 0, 3.0 * gap, -gap)
    assert model.cost(data.X, data.y) == pytest.approx(costs.mean(), rel=1e-12)
    assert model.score(data.X, data.y) == -model.cost(data.X, data.y)
    weights = np.arange(len(costs), dtype=float)
    assert model.cost(data.X, data.y, weights) == pytest.approx(np.average(costs, weights=weights))
    with pytest.raises(ValueError, match="inconsistent"):
        model.cost(data.X, data.y[:-1])


def test_orders_cost_little_more_than_the_best(data):
    model = DPNewsvendor(3.0, 1.0, mu=0.5, random_state=0, **PUBLIC).fit(data.X, data.y)
    regret = data.risk(np.r_[model.intercept_, model.coef_]) - data.risk(data.theta_star)
    assert regret < 0.02 * data.risk(data.theta_star)


@pytest.mark.parametrize("name", ["underage_cost", "overage_cost"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan, "1"])
def test_costs_are_checked(name, value, data):
    model = DPNewsvendor(**{name: value}, mu=1.0, **PUBLIC)
    with pytest.raises((TypeError, ValueError), match=f"'{name}' parameter of DPNewsvendor"):
        model.fit(data.X, data.y)
    assert not hasattr(model, "coef_")


def test_clone_pickle_and_summary(data):
    model = DPNewsvendor(3.0, 1.0, mu=0.5, random_state=0, **PUBLIC).fit(data.X, data.y)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(data.X), model.predict(data.X))
    assert clone(model).get_params()["underage_cost"] == 3.0
    text = repr(model.summary())
    assert "service level" in text
    assert "underage cost" in text


@pytest.mark.parametrize("kind", ["splines", "polynomials"])
def test_curved_demand_through_a_pipeline(kind):
    """Features with public knots or degree in front: the fit follows a curve that a line cannot."""
    rng = np.random.default_rng(5)
    x = rng.uniform(0, 10, size=(20_000, 1))
    y = 50 + 20 * np.sin(x[:, 0] / 1.6) + 5 * rng.normal(size=len(x))
    knots = np.linspace(0, 10, 6)[:, None]  # public: where the feature may lie, not where it does
    if kind == "splines":
        curve = SplineTransformer(knots=knots, degree=3, include_bias=False)
        bounds = (0.0, 1.0)
    else:
        curve = PolynomialFeatures(degree=5, include_bias=False)
        bounds = (0.0, 10.0 ** np.arange(1, 6))
    costs = {"underage_cost": 3.0, "overage_cost": 1.0, "epsilon": 1.0, "target_bounds": (0, 100)}
    curved = make_pipeline(curve, DPNewsvendor(feature_bounds=bounds, random_state=0, **costs))
    straight = DPNewsvendor(feature_bounds=(0, 10), random_state=0, **costs)
    z = float(ndtri(0.75))
    best = 4.0 * 5 * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    cost = -curved.fit(x, y).score(x, y)
    assert cost < (1.05 if kind == "splines" else 1.25) * best
    assert -straight.fit(x, y).score(x, y) > 1.5 * best
    curved[-1].certificate_.verify()


def test_pipeline_features_do_not_read_the_data():
    """Transformers with public settings give one record the same features whatever the others
    are.
    """
    knots = np.linspace(0, 10, 6)[:, None]
    curve = SplineTransformer(knots=knots, include_bias=False)
    one = np.array([[3.0]])
    first = curve.fit(np.array([[0.1], [0.2], [3.0]])).transform(one)
    assert np.array_equal(first, curve.fit(np.array([[9.0], [8.0], [7.0]])).transform(one))


def choice(n, d, **budget):
    model = DPQuantileRegressor(0.7, feature_bounds=(-1, 1), target_bounds=(-1, 1), **budget)
    return model.certify(n, d).mechanism


def test_auto_depends_on_public_facts_only():
    """Same shape and settings, utterly different data: same mechanism, same certificate."""
    rng = np.random.default_rng(6)
    X = rng.uniform(-1, 1, size=(400, 3))
    y = rng.uniform(-1, 1, size=400)
    for budget in ({"epsilon": 0.1}, {"epsilon": 3.0}, {"epsilon": 1.0, "delta": 0.0}, {"mu": 0.5}):
        model = DPQuantileRegressor(
            0.7, feature_bounds=(-1, 1), target_bounds=(-1, 1), random_state=0, **budget
        )
        promised = model.certify(400, 3)
        for data in ((X, y), (np.zeros_like(X), np.full(400, 1e9)), (1e6 * X, np.sign(y))):
            assert model.fit(*data).certificate_ == promised


def test_auto_changes_with_the_budget_and_the_size():
    assert choice(2_000, 5, epsilon=1.0) == "gradient"
    assert choice(100, 20, epsilon=0.1) == "gradient"
    assert choice(2_000, 5, epsilon=1.0, delta=0.0) in ("objective", "output")
    assert choice(2_000, 5, mu=0.5) == "gradient"


def excess(mechanism, n, d, epsilon, spread, repeats):
    """Mean relative excess risk over a population with normal residuals, from a large fixed
    sample of rows.
    """
    quantile = 0.7
    total = 0.0
    z = float(ndtri(quantile))
    best = spread * math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    rows = np.random.default_rng(7).uniform(-1, 1, size=(2_000, d))
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, size=(n, d))
        slopes = 0.5 * rng.normal(size=d) / math.sqrt(d)
        y = X @ slopes + spread * rng.normal(size=n)
        model = DPQuantileRegressor(
            quantile,
            epsilon=epsilon,
            feature_bounds=(-1, 1),
            target_bounds=(-1, 1),
            mechanism=mechanism,
            random_state=seed,
        ).fit(X, y)
        mean = rows @ (slopes - model.coef_) - model.intercept_
        t = mean / spread
        risk = mean * (quantile - ndtr(-t)) + spread * np.exp(-t * t / 2) / math.sqrt(2 * math.pi)
        total += float(risk.mean()) / best - 1
    return total / repeats


@pytest.mark.parametrize(
    ("n", "d", "epsilon"),
    [
        pytest.param(60, 5, 1.0, marks=pytest.mark.slow),
        pytest.param(200, 5, 0.5, marks=pytest.mark.slow),
        pytest.param(1_000, 20, 0.1, marks=pytest.mark.slow),
        (200, 5, 2.0),
        (2_000, 5, 1.0),
        pytest.param(5_000, 20, 1.0, marks=pytest.mark.slow),
    ],
)
def test_auto_is_about_the_best_of_its_alternatives(n, d, epsilon):
    """In the mean over residual spreads of 1/50 to 1/5 of half the target's range, as the
    prediction has it.
    """

    def overall(mechanism):
        spreads = (0.02, 0.06, 0.2)
        logs = [math.log(0.01 + excess(mechanism, n, d, epsilon, s, 10)) for s in spreads]
        return math.exp(sum(logs) / len(logs))

    best = min(overall(mechanism) for mechanism in ("gradient", "objective", "output"))
    # Between some 50 and 100 records after noise objective perturbation is ahead.
    assert overall("auto") <= 2.5 * best


@pytest.mark.parametrize("cost", [1e-300, 1e300, 1e-10])
def test_costs_out_of_range_are_refused(cost):
    for name in ("underage_cost", "overage_cost"):
        with pytest.raises(ValueError, match=f"'{name}'"):
            DPNewsvendor(**{name: cost}).certify(100, 2)
    assert DPNewsvendor(np.int64(3), np.float32(1)).service_level == 0.75
