"""Proportional odds: the estimate without noise, the order of levels, predictions, files,
refusals.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.special import expit

from dpconvex import DPLogisticRegression, DPOrdinalRegression, load_model, save_model
from dpconvex.core.queries import QuerySlopes
from dpconvex.evaluation import private_score
from dpconvex.fit.joint_margins import OutcomeLaw, expected_round
from dpconvex.losses import ProportionalOdds

CUTS = (-2.0, -0.5, 0.5, 3.0)
LEVELS = ["never", "rarely", "at times", "often", "always"]


def records(n=4000, d=3, seed=0):
    """Return rows and levels from 0 to 4."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)).clip(-4, 4)
    return X, np.digitize(X @ np.linspace(1, -0.7, d) + rng.logistic(size=n), CUTS)


def loss(X, y, coef, thresholds):
    ends = np.concatenate([[-np.inf], thresholds, [np.inf]])
    shares = expit(ends[y + 1] - X @ coef) - expit(ends[y] - X @ coef)
    return -np.log(np.maximum(shares, 1e-300)).mean()


def not_private(X, y):
    """Return coefficients and thresholds of statsmodels."""
    model = pytest.importorskip("statsmodels.miscmodels.ordinal_model").OrderedModel(
        y, X, distr="logit"
    )
    found = model.fit(method="bfgs", disp=False)
    return found.params[: X.shape[1]], model.transform_threshold_params(found.params)[1:-1]


def fitted(X, y, **settings):
    settings = {"classes": [0, 1, 2, 3, 4], "feature_bounds": (-4, 4), "random_state": 0} | settings
    return DPOrdinalRegression(**settings).fit(X, y)


def test_a_large_budget_gives_the_fit_of_statsmodels():
    X, y = records()
    coef, thresholds = not_private(X, y)
    model = fitted(X, y, epsilon=100.0)
    model.certificate_.verify()
    assert model.certify(len(X), 3) == model.certificate_
    assert np.abs(model.coef_ - coef).max() < 0.03
    assert np.abs(model.thresholds_ - thresholds).max() < 0.06
    assert loss(X, y, model.coef_, model.thresholds_) <= 1.001 * loss(X, y, coef, thresholds)


def test_a_small_budget_keeps_most_of_it():
    X, y = records(20_000)
    best = loss(X, y, *not_private(X, y))
    model = fitted(X, y, epsilon=1.0)
    assert loss(X, y, model.coef_, model.thresholds_) <= 1.005 * best


def test_levels_keep_the_order_that_they_are_given_in(tmp_path):
    X, y = records(3000)
    words = np.array(LEVELS)[y]
    plain = fitted(X, y, epsilon=3.0)
    named = fitted(X, words, epsilon=3.0, classes=LEVELS)
    assert named.classes_.tolist() == LEVELS
    assert np.array_equal(named.coef_, plain.coef_)
    back = fitted(X, words, epsilon=100.0, classes=LEVELS[::-1])
    assert np.allclose(-back.coef_, fitted(X, y, epsilon=100.0).coef_, atol=0.05)
    ignoring = fitted(
        X, [*words[:-1], "SECRET"], epsilon=3.0, classes=LEVELS, invalid_rows="ignore"
    )
    assert np.abs(ignoring.coef_ - named.coef_).max() < 0.3
    with pytest.raises(ValueError, match="levels in their order"):
        fitted(X, words, classes=None)
    assert fitted(X, 2 * y, classes=None).classes_.tolist() == [0, 2, 4, 6, 8]
    save_model(named, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    assert loaded.classes_.tolist() == LEVELS
    assert np.array_equal(loaded.predict_proba(X), named.predict_proba(X))
    content = (tmp_path / "model.json").read_text()
    for old, new in (('"never",', '"naver",'), (str(float(named.intercept_[0])), "-99.0")):
        (tmp_path / "other.json").write_text(content.replace(old, new, 1))
        with pytest.raises(ValueError, match=r"classes|intercept"):
            load_model(tmp_path / "other.json")


def test_predictions():
    X, y = records(3000)
    model = fitted(X, y, epsilon=3.0)
    assert (np.diff(model.thresholds_) >= 0).all()
    shares = model.predict_proba(X)
    assert (shares >= 0).all()
    assert np.allclose(shares.sum(axis=1), 1)
    assert np.abs(shares.mean(axis=0) - np.bincount(y) / len(y)).max() < 0.05
    assert np.array_equal(model.predict(X), shares.argmax(axis=1))
    above = np.log((1 - shares[:, :2].sum(axis=1)) / shares[:, :2].sum(axis=1))
    assert np.allclose(above, X @ model.coef_ - model.thresholds_[1])
    assert "log odds of a higher level" in str(model.summary())
    assert "(above 3)" in str(model.summary())
    found = private_score(model, X, y, "log_loss", epsilon=5.0, random_state=0)
    assert found.value == pytest.approx(loss(X, y, model.coef_, model.thresholds_), abs=0.02)


def test_noise_alone_leaves_thresholds_in_order():
    X, y = records(60)
    for seed in range(5):
        model = fitted(X, y, epsilon=0.05, random_state=seed)
        assert (np.diff(model.thresholds_) >= 0).all()
        assert (model.predict_proba(X) >= 0).all()


def test_thresholds_that_noise_reverses_end_no_fit():
    """Levels without a probability had slopes beyond all squares: 17 of 120 small fits failed,
    their budget spent.
    """
    loss = ProportionalOdds(2)
    shares = np.array([0.45, 0.09, 0.46])
    frame = SimpleNamespace(constant=1.0, median_row_norm=1.6)
    rounds = SimpleNamespace(penalty=None)
    fit = SimpleNamespace(
        law=OutcomeLaw(loss, shares),
        frame=frame,
        rounds=rounds,
        lead=1,
        leads=2,
        margins=2,
        separate=False,
        moments=np.ones(2),
        contrasts=np.eye(2),
        columns=np.ones((1, 2)),
    )
    reversed_thresholds = np.array([[1.2, 5.2, -4.3], [-1.2, 5.2, -4.3]])
    for weighting in ("clip", "square"):
        model = expected_round(fit, reversed_thresholds, QuerySlopes(loss, weighting), 1.8)
        assert 0 < np.linalg.eigvalsh(model.small)[0] <= np.linalg.eigvalsh(model.small)[-1] < 10


def test_two_levels_are_logistic_regression():
    X, y = records(4000)
    two = fitted(X, y > 1, epsilon=100.0, classes=[False, True])
    other = DPLogisticRegression(
        epsilon=100.0, feature_bounds=(-4, 4), classes=[False, True], random_state=0
    )
    other.fit(X, y > 1)
    assert np.abs(two.coef_ - other.coef_[0]).max() < 0.05
    assert np.array_equal(two.predict(X), two.decision_function(X) > 0)
    weighted = fitted(X, y > 1, epsilon=100.0, classes=[False, True], class_weight={True: 0.2})
    assert weighted.intercept_[0] < two.intercept_[0] - 1


def test_sparse_dask_and_people_give_the_same_kind_of_fit():
    array = pytest.importorskip("dask.array")
    X, y = records(600)
    X[np.abs(X) < 0.5] = 0.0
    dense = fitted(X, y, epsilon=5.0).coef_
    assert np.allclose(fitted(csr_array(X), y, epsilon=5.0).coef_, dense, atol=1e-6)
    parts = array.from_array(X, chunks=(200, 3)), array.from_array(y, chunks=200)
    assert np.allclose(fitted(*parts, epsilon=5.0).coef_, dense, atol=1e-6)
    settings = {
        "epsilon": 50.0,
        "feature_bounds": (-4, 4),
        "classes": [0, 1, 2, 3, 4],
        "random_state": 0,
    }
    people = DPOrdinalRegression(**settings).fit(
        np.repeat(X, 2, axis=0), np.repeat(y, 2), groups=np.arange(1200) // 2
    )
    assert people.certificate_.bounds.people
    assert np.allclose(people.coef_, dense, atol=0.5)


def test_what_is_not_offered_is_refused():
    X, y = records(50)
    for settings in ({"mechanism": "objective"}, {"fit_intercept": False}):
        with pytest.raises(ValueError, match="gradient"):
            fitted(X, y, **settings)
    with pytest.raises(ValueError, match="Gaussian"):
        fitted(X, y, delta=0.0)
    with pytest.raises(ValueError, match="a label twice"):
        fitted(X, y, classes=[0, 1, 1])
