"""Tilted and robust estimators: what they promise users, beyond scikit-learn's own checks."""

import numpy as np
import pytest
from sklearn.base import clone

from dpconvex import (
    DPLogisticRegression,
    DPRobustClassifier,
    DPRobustRegressor,
    DPTiltedClassifier,
    DPTiltedRegressor,
    DPTopRankClassifier,
    load_model,
    save_model,
)
from dpconvex.losses import Hinge, Huber, Logistic

LOOSE = {"mu": 1e4}  # hardly any noise
MODELS = [
    DPTiltedClassifier(0.5, mu=1.0, feature_bounds=(-1, 1)),
    DPTiltedRegressor(0.5, mu=1.0, feature_bounds=(-1, 1), target_bounds=(-2, 2)),
    DPTiltedRegressor(0.5, Huber(0.5), mu=1.0, feature_bounds=(-1, 1)),
    DPTiltedClassifier(share=0.1, mu=1.0, feature_bounds=(-1, 1)),
    DPTiltedRegressor(share="max", epsilon=1.0, delta=0.0, feature_bounds=(-1, 1)),
    DPRobustClassifier(0.1, mu=1.0, feature_bounds=(-1, 1)),
    DPRobustClassifier(0.1, "linf", "hinge", epsilon=1.0, delta=0.0, feature_bounds=(-1, 1)),
    DPRobustRegressor(0.1, "box", shape=[0.1, 1.0, 0.5], mu=1.0, feature_bounds=(-1, 1)),
    DPRobustRegressor(0.1, "linf", "squared", epsilon=1.0, delta=0.0, feature_bounds=(-1, 1)),
    DPRobustClassifier(cost=50.0, mu=1.0, feature_bounds=(-1, 1)),
    DPTopRankClassifier(20, mu=1.0, feature_bounds=(-1, 1)),
    DPTopRankClassifier(20, "hinge", min_positive=50, epsilon=1.0, delta=0.0),
]


def table(n=4000, seed=0):
    """Two groups: in the rare one the label follows another column than in the common one."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    rare = rng.random(n) < 0.1
    X[:, 2] = np.where(rare, 1.0, -1.0)
    signal = np.where(rare, X[:, 1], X[:, 0])
    return X, (signal + 0.1 * rng.normal(size=n) > 0).astype(int), rare


def attack(model, X, y, radius, norm):
    """Move every row as an adversary who knows the model would, and return the accuracy."""
    coef = model.coef_[0]
    direction = np.sign(coef) if norm == "linf" else coef / np.linalg.norm(coef)
    moved = X - radius * np.where(y == model.classes_[1], 1.0, -1.0)[:, None] * direction
    return np.mean(model.predict(moved) == y)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_fit_certificate_file_and_summary_agree(model, tmp_path):
    X, y, _ = table(500)
    model = clone(model).fit(X, y)
    assert model.certificate_.to_json() == clone(model).certify(500, 3).to_json()
    model.certificate_.verify()
    save_model(model, tmp_path / "model.json")
    again = load_model(tmp_path / "model.json")
    assert (again.predict(X) == model.predict(X)).all()
    assert again.certificate_.to_json() == model.certificate_.to_json()
    assert "may be published" in repr(model.summary())


def test_more_tilt_serves_the_worst_off():
    """Without noise worth mentioning, the largest mean loss of a group falls with the tilt."""
    X, y, rare = table()

    def worst(tilt):
        model = DPTiltedClassifier(
            tilt, alpha=1e-3, feature_bounds=(-1, 1), random_state=0, mu=1e12
        ).fit(X, y)
        losses = Logistic().value(2.0 * y - 1, model.decision_function(X))
        return max(losses[rare].mean(), losses[~rare].mean())

    assert worst(5.0) < 0.95 * worst(1.0) < 0.95 * worst(0.0)


def test_a_smaller_share_serves_the_worst_off():
    """Without noise worth mentioning, the mean of the worst losses is least for the share that
    it is taken over.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2000, 2))
    y = np.clip(0.3 * X[:, 0] - 0.6 + 0.3 * rng.exponential(size=2000), -1, 1)

    def losses(share):
        model = DPTiltedRegressor(
            loss=Huber(2.0),
            share=share,
            alpha=1e-4,
            feature_bounds=(-1, 1),
            random_state=0,
            mu=1e12,
        ).fit(X, y)
        return np.sort(Huber(2.0).value(y, model.predict(X)))[::-1]

    fits = {size: losses(size / 2000) for size in (2000, 200, 1)}
    for size, fit in fits.items():
        others = [other[:size].mean() for key, other in fits.items() if key != size]
        assert fit[:size].mean() < 0.95 * min(others)


def test_the_top_of_a_list_is_what_it_is_said_to_be():
    """Hard negative records that most pairs say nothing about: without noise worth mentioning
    the top is pure.
    """
    rng = np.random.default_rng(0)
    y = (np.arange(3000) < 600).astype(int)
    X = np.where(y[:, None] == 1, [0.5, 0.3], [-0.5, 0.0]) + 0.1 * rng.normal(size=(3000, 2))
    X[600:700] = [0.7, -0.3] + 0.1 * rng.normal(size=(100, 2))
    shared = {"mu": 1e6, "alpha": 0.01, "feature_bounds": (-1, 1), "random_state": 0}
    few, all_of_them = (DPTopRankClassifier(top, **shared).fit(X, y) for top in (60, 2400))
    assert few.score(X, y) > 0.99 > all_of_them.score(X, y)
    best = np.argsort(-few.decision_function(X))[:500]
    assert y[best].mean() > 0.95


def test_a_long_top_ends_with_a_solution():
    """Tolerances know that sums round more, the longer they are; the budget would be spent on an
    error.
    """
    X, y, _ = table(200)
    model = DPTopRankClassifier(10**7, mu=1.0, feature_bounds=(-1, 1)).fit(X, y)
    model.certificate_.verify()


def test_no_tilt_is_private_logistic_regression():
    X, y, _ = table(1000)
    shared = {"alpha": 0.05, "feature_bounds": (-1, 1), "mu": 0.7, "mechanism": "output"}
    tilted = DPTiltedClassifier(0.0, **shared)
    plain = DPLogisticRegression(**shared)
    stds = [m.certify(1000, 3).noise["release"]["std"] for m in (tilted, plain)]
    assert stds[0] == pytest.approx(stds[1], rel=1e-6)
    loose = [m.set_params(mu=1e9).fit(X, y).coef_ for m in (tilted, plain)]
    assert loose[0] == pytest.approx(loose[1], abs=1e-5)


def test_the_summary_says_where_the_tilt_is_too_large():
    X, y, _ = table(300)
    mild, steep = (
        DPTiltedClassifier(tilt, alpha=0.1, mu=1.0, feature_bounds=(-1, 1)).fit(X, y).summary()
        for tilt in (0.1, 100.0)
    )
    assert "no longer falls with n" in repr(steep)
    assert "no longer falls with n" not in repr(mild)


def test_targets_beyond_their_bounds_are_clipped():
    X = np.tile([[1.0], [-1.0]], (100, 1))
    y = X[:, 0].copy()
    fits = []
    for far in (1.0, 1e6):
        y[0] = far
        model = DPTiltedRegressor(
            2.0, feature_bounds=(-1, 1), target_bounds=(-1, 1), random_state=0, **LOOSE
        )
        fits.append(model.fit(X, y).coef_)
    assert (fits[0] == fits[1]).all()


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_robust_models_withstand_an_attack_that_breaks_plain_ones(norm):
    """A column that tells the classes apart by a hair's breadth, and one that does so roughly
    but widely.
    """
    rng = np.random.default_rng(1)
    n = 4000
    radius = 0.2
    y = rng.integers(0, 2, n)
    sign = 2.0 * y - 1
    narrow = 0.05 * sign + 0.02 * rng.normal(size=n)
    wide = 0.5 * sign + 0.4 * rng.normal(size=n)
    X = np.clip(np.column_stack([narrow, wide]), -1, 1)
    shared = {"feature_bounds": (-1, 1), "alpha": 1e-4, "random_state": 0, "epsilon": 300.0}
    robust = DPRobustClassifier(radius, norm, **shared).fit(X, y)
    plain = DPLogisticRegression(mechanism="output", **shared).fit(X, y)
    under_attack = [attack(model, X, y, radius, norm) for model in (robust, plain)]
    assert under_attack[0] > under_attack[1] + 0.3


def test_robust_regression_withstands_moved_rows():
    """A narrow column that tells the target exactly against a wide one that tells it roughly."""
    rng = np.random.default_rng(1)
    wide = rng.uniform(-0.8, 0.8, 4000)
    y = np.clip(wide + 0.1 * rng.normal(size=4000), -1, 1)
    X = np.column_stack([0.05 * y, wide])
    shared = {"feature_bounds": (-1, 1), "alpha": 1e-4, "random_state": 0, "epsilon": 1e4}
    fits = [DPRobustRegressor(r, "l2", "squared", **shared).fit(X, y) for r in (0.1, 0.0)]

    def attacked(model):
        unit = model.coef_ / np.linalg.norm(model.coef_)
        return max(np.mean((y - model.predict(X + s * 0.1 * unit)) ** 2) for s in (1, -1))

    assert attacked(fits[0]) < 0.5 * attacked(fits[1])
    assert np.mean((y - fits[1].predict(X)) ** 2) < np.mean((y - fits[0].predict(X)) ** 2)


def test_the_attack_is_what_the_radius_promises():
    """Accuracy under attack is the share of margins above ``radius ||coef||_dual``: no other
    move does worse.
    """
    X, y, _ = table(500)
    model = DPRobustClassifier(0.2, "linf", feature_bounds=(-1, 1), **LOOSE).fit(X, y)
    margins = model.decision_function(X) * (2 * y - 1)
    promised = np.mean(margins > 0.2 * np.abs(model.coef_).sum())
    assert attack(model, X, y, 0.2, "linf") == pytest.approx(promised, abs=2e-3)
    rng = np.random.default_rng(0)
    for _ in range(50):
        moved = X + 0.2 * np.sign(rng.normal(size=X.shape))
        assert np.mean(model.predict(moved) == y) >= promised


def test_small_coefficients_are_zero_against_linf_only():
    X, y, _ = table(500)
    X = np.hstack([X, np.random.default_rng(3).uniform(-1, 1, (500, 30))])
    fits = {
        norm: DPRobustClassifier(0.1, norm, mu=0.5, feature_bounds=(-1, 1), random_state=0).fit(
            X, y
        )
        for norm in ("l2", "linf")
    }
    assert (fits["l2"].coef_ != 0).all()
    zero = fits["linf"].coef_ == 0
    assert zero.mean() > 0.8
    std = fits["linf"].certificate_.noise["release"]["std"]
    assert np.abs(fits["linf"].coef_[~zero]).min() >= 2 * std


def test_several_classes_share_the_budget():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 2))
    y = rng.integers(0, 3, 300)
    for model in (
        DPTiltedClassifier(0.5, feature_bounds=(-1, 1)),
        DPRobustClassifier(feature_bounds=(-1, 1)),
    ):
        fitted = model.fit(X, y)
        assert fitted.coef_.shape == (3, 2)
        assert fitted.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(300))
        assert fitted.certificate_.parameters["problems"] == 3
        two, three = (
            model.set_params(alpha=0.1).certify(300, 2, k).noise["release"]["std"] for k in (2, 3)
        )
        assert three == pytest.approx(np.sqrt(3) * two, rel=0.01)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (DPTiltedClassifier(neighbors="add_or_remove_one", nominal_samples=100), "replace_one"),
        (DPTiltedRegressor(neighbors="add_or_remove_one", nominal_samples=100), "replace_one"),
        (DPTiltedClassifier(-1.0), "tilt"),
        (DPTiltedClassifier(share=0.001), "share"),
        (DPTiltedClassifier(share=1.5), "share"),
        (DPTiltedClassifier(mechanism="objective"), "output"),
        (DPRobustClassifier(mechanism="gradient"), "output"),
        (DPRobustClassifier(norm="l3"), "norm"),
        (DPRobustRegressor(mechanism="objective"), "output"),
        (DPRobustRegressor(loss="logistic"), "huber"),
        (DPRobustClassifier(radius=-1.0), "radius"),
        (DPRobustClassifier(loss=Hinge()), "smooth"),
        (DPTiltedClassifier(loss="huber"), "logistic"),
        (DPTiltedRegressor(loss="logistic"), "huber"),
        (DPRobustClassifier(cost=1.0, alpha=0.01), "at least"),
        (DPRobustClassifier(cost=100.0, norm="linf"), "l2"),
        (DPTopRankClassifier(mechanism="objective"), "output"),
        (DPTopRankClassifier(loss=Hinge()), "smooth"),
        (DPTopRankClassifier(0), "top"),
        (DPTopRankClassifier(min_positive=0), "min_positive"),
        (DPTopRankClassifier(classes=[0, 1, 2]), "binary"),
        (
            DPTopRankClassifier(neighbors="add_or_remove_one", nominal_samples=100),
            "DPTopRankClassifier must be 'replace_one'",
        ),
    ],
)
def test_what_has_no_proof_is_refused_before_data_are_used(model, message):
    with pytest.raises(ValueError, match=message):
        model.certify(100, 2)


def test_unnamed_losses_are_taken_as_objects():
    X, y, _ = table(200)
    model = DPTiltedRegressor(1.0, Huber(0.1), mu=1.0, feature_bounds=(-1, 1)).fit(X, y)
    assert model.certificate_.bounds.loss == Huber(0.1)


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (DPTiltedClassifier(np.int64(1)), DPTiltedClassifier(1.0)),
        (DPRobustClassifier(np.float32(0.125)), DPRobustClassifier(0.125)),
        (DPRobustClassifier(cost=np.int64(100)), DPRobustClassifier(cost=100.0)),
    ],
)
def test_numbers_of_numpy_are_numbers(given, plain):
    for model in (given, plain):
        model.set_params(feature_bounds=(-1, 1))
    assert given.certify(500, 2).to_json() == plain.certify(500, 2).to_json()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        (DPTiltedClassifier(1e300), "tilt"),
        (DPTiltedRegressor(-1.0), "tilt"),
        (DPRobustClassifier(1e300), "radius"),
        (DPRobustClassifier(cost=1e300), "cost"),
    ],
)
def test_numbers_out_of_range_are_refused(model, name):
    owner = type(model).__name__
    with pytest.raises(ValueError, match=f"The '{name}' parameter of {owner} must be"):
        model.certify(500, 2)
