"""Rates: fits of counts and costs meet those without privacy where records are many, and say
what they cannot do.
"""

import math
import warnings

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import poisson
from sklearn.linear_model import TweedieRegressor
from sklearn.metrics import mean_tweedie_deviance

from dpconvex import (
    DPGammaRegressor,
    DPPoissonRegressor,
    DPTweedieRegressor,
    PrivacyWarning,
    load_model,
    save_model,
)
from dpconvex.audit import audit_estimator, neighbor_pairs
from dpconvex.core import normal_and_laplace

BETA = np.array([0.8, -0.5, 0.3])


def table(power, rows, seed=0):
    """Return rows and responses of at least 0 whose logarithm of the mean is linear, and a
    public bound.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (rows, 3))
    mean = np.exp(1 + X @ BETA)
    if power == 1:
        return X, rng.poisson(mean).astype(float), (0, 60)
    if power == 2:
        return X, rng.gamma(2, mean / 2), (0.01, 60)
    return X, np.array([rng.gamma(2, 0.5, count).sum() for count in rng.poisson(mean)]), (0, 60)


def model_of(power, **more):
    if power == 1.5:
        return DPTweedieRegressor(power, feature_bounds=(-1, 1), **more)
    return (DPPoissonRegressor if power == 1 else DPGammaRegressor)(feature_bounds=(-1, 1), **more)


def excess(model, power, X, y, train):
    """Return the deviance of rows that no fit has seen over that of the fit without privacy,
    less 1.
    """
    plain = TweedieRegressor(power=power, link="log", alpha=0, max_iter=1000).fit(
        X[train], y[train]
    )
    rest = slice(train.stop, None)
    of = [
        mean_tweedie_deviance(y[rest], found.predict(X[rest]), power=power)
        for found in (model, plain)
    ]
    return of[0] / of[1] - 1


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
@pytest.mark.parametrize("bounded", [True, False])
def test_as_good_as_without_privacy(power, bounded):
    """Deviance within 1 % at epsilon 1 and 20,000 rows, and 0.1 % at epsilon 100; coefficients,
    too.
    """
    X, y, bounds = table(power, 30_000)
    train = slice(0, 20_000)
    for epsilon, worst in ((1.0, 0.01), (100.0, 0.001)):
        more = {"target_bounds": bounds} if bounded else {}
        model = model_of(power, epsilon=epsilon, random_state=0, **more).fit(X[train], y[train])
        model.certificate_.verify()
        assert excess(model, power, X, y, train) < worst
        assert np.abs(model.coef_ - BETA).max() < (0.15 if epsilon == 1 else 0.05)


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_few_records_fall_back_to_a_constant(power):
    """Nothing worse than twice a constant's deviance where noise hides everything."""
    X, y, bounds = table(power, 400)
    y = np.maximum(y, 0.05)
    constant = mean_tweedie_deviance(y, np.full(400, y.mean()), power=power)
    found = []
    for seed in range(5):
        model = model_of(power, epsilon=0.5, target_bounds=bounds, random_state=seed)
        with pytest.warns(match="Privacy will cost"):
            model.fit(X, y)
        found.append(mean_tweedie_deviance(y, model.predict(X), power=power) / constant)
    assert np.median(found) < 2


def test_responses_beyond_the_bounds_count_as_the_bounds():
    X, y, _ = table(1.0, 2000)
    wild = y.copy()
    wild[:3] = [1e300, 21.0, 1e9]
    tame = np.clip(wild, 0, 20)
    fits = [
        DPPoissonRegressor(feature_bounds=(-1, 1), target_bounds=(0, 20), random_state=0).fit(X, t)
        for t in (wild, tame)
    ]
    np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)


@pytest.mark.parametrize("mechanism", ["objective", "output"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_perturbed_minimisers(mechanism, delta):
    """Objective and output perturbation, pure epsilon too; one record far beyond all bounds
    changes nothing much.
    """
    X, y, _ = table(1.0, 4000)
    y[0] = 1e300
    model = DPPoissonRegressor(
        epsilon=50.0,
        delta=delta,
        mechanism=mechanism,
        feature_bounds=(-1, 1),
        target_bounds=(0, 20),
        random_state=0,
    ).fit(X, y)
    model.certificate_.verify()
    assert model.certificate_.guarantee.delta(math.inf) == delta
    assert np.corrcoef(model.coef_, BETA)[0, 1] > 0.9
    assert DPPoissonRegressor(epsilon=1.0, delta=0.0, target_bounds=(0, 20)).certify(
        5000, 3
    ).mechanism in (
        "objective",
        "output",
    )


def test_predictions_stay_within_the_rate_bounds():
    X, y, bounds = table(1.0, 1000)
    model = DPPoissonRegressor(
        feature_bounds=(-1, 1), target_bounds=bounds, rate_bounds=(0.5, 30), random_state=0
    )
    found = model.fit(X, y).predict(np.array([[1e6, 0, 0], [-1e6, 0, 0], [1e308, 1e308, 0]]))
    assert found.min() >= 0.5 - 1e-12
    assert found.max() <= 30 + 1e-12
    assert model.certificate_.parameters["rate_bounds"] == [0.5, 30.0]
    loss = model.certificate_.bounds.loss
    assert math.exp(loss.low) / model.certificate_.bounds.loss.most * 60 == pytest.approx(0.5)


def test_orders_of_a_newsvendor_with_poisson_demand():
    X, y, bounds = table(1.0, 5000)
    model = DPPoissonRegressor(feature_bounds=(-1, 1), target_bounds=bounds, random_state=0).fit(
        X, y
    )
    orders = model.predict_quantile(X, 0.75)
    np.testing.assert_array_equal(orders, poisson.ppf(0.75, model.predict(X)))
    assert 0.7 < np.mean(y <= orders) < 0.9
    with pytest.raises(ValueError, match="quantile"):
        model.predict_quantile(X, 1.5)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            DPTweedieRegressor(power=2.5),
            "'power' parameter of DPTweedieRegressor must be a number from 1 to 2",
        ),
        (DPPoissonRegressor(target_bounds=(-1, 5)), "of at least 0"),
        (DPPoissonRegressor(target_bounds=(0, 5), rate_bounds=(0, 5)), "'rate_bounds' parameter"),
        (
            DPPoissonRegressor(mechanism="sgd", target_bounds=(0, 5)),
            "offers the mechanism 'gradient'",
        ),
        (DPPoissonRegressor(delta=0.0), "Give target_bounds"),
        (DPTweedieRegressor(power=1.3, delta=0.0, target_bounds=(0, 5)), "power of 1, 1.5 or 2"),
        (
            DPGammaRegressor(inference=True, target_bounds=(1, 5), epsilon=0.1),
            "Intervals are not available",
        ),
    ],
)
def test_what_cannot_be_offered_is_refused_before_data(model, message):
    with pytest.raises(ValueError, match=message):
        model.certify(1000, 3)


@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_model_files_and_sparse_rows(power, tmp_path):
    X, y, bounds = table(power, 3000)
    model = model_of(power, target_bounds=bounds, random_state=0).fit(X, y)
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.score(X, np.maximum(y, 1e-3)) == model.score(X, np.maximum(y, 1e-3))
    sparse = model_of(power, target_bounds=bounds, random_state=0).fit(csr_array(X), y)
    np.testing.assert_allclose(sparse.coef_, model.coef_, atol=0.05)
    assert model.certify(3000, 3) == model.certificate_


def test_weights_are_exposures():
    """Rates per unit of exposure, weighted by it: the fit of counts whose mean is exposure times
    rate.
    """
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (20_000, 3))
    exposure = rng.uniform(0.2, 1, 20_000)
    counts = rng.poisson(exposure * np.exp(1 + X @ BETA))
    model = DPPoissonRegressor(
        epsilon=20.0, feature_bounds=(-1, 1), target_bounds=(0, 60), random_state=0
    )
    model.fit(X, counts / exposure, sample_weight=exposure)
    assert np.abs(model.coef_ - BETA).max() < 0.05
    assert model.intercept_ == pytest.approx(1, abs=0.05)


def audited(model, relation, runs=150):
    """Return the audit of fits on two neighbours, one with the largest response at the end of a
    row of its own.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (16, 1))
    y = rng.poisson(1.0, 16).astype(float)
    pairs = {pair.name: pair for pair in neighbor_pairs(X, y, np.ones(1), (0.0, 1e3), relation)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        return audit_estimator(model, pairs.get("target") or next(iter(pairs.values())), runs)


@pytest.mark.parametrize(
    "relation", [pytest.param("replace_one", marks=pytest.mark.slow), "add_or_remove_one"]
)
def test_audits_pass_and_catch_a_fit_without_noise(relation, monkeypatch):
    """False-alarm rate 1e-6; without noise 150 runs are certain to tell the neighbours apart."""
    more = {"nominal_samples": 16} if relation == "add_or_remove_one" else {}
    facts = {"feature_bounds": (-1, 1), "target_bounds": (0, 20), "neighbors": relation, **more}
    model = DPPoissonRegressor(epsilon=1.0, delta=1e-2, **facts)
    assert audited(model, relation).passed
    monkeypatch.setattr(
        normal_and_laplace, "rounded_normals", lambda words, ratio, size: np.zeros(size, int)
    )
    assert not audited(model, relation).passed


@pytest.mark.slow
@pytest.mark.parametrize("power", [1.0, 1.5, 2.0])
def test_intervals_cover(power):
    """60 fits of three coefficients: a true coverage of 0.95 gives fewer than 84 % with
    probability 1e-6.
    """
    hits = []
    for seed in range(60):
        X, y, bounds = table(power, 8000, seed)
        model = model_of(
            power, epsilon=4.0, target_bounds=bounds, inference=True, random_state=seed
        ).fit(X, y)
        ends = model.confidence_interval()
        hits.append((ends[:, 0] <= BETA) & (ends[:, 1] >= BETA))
    assert np.mean(hits) > 0.84
    assert np.median(ends[:, 1] - ends[:, 0]) < 0.5
