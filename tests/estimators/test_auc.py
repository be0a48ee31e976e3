"""DPAUCClassifier: every loss and mechanism, refusals, thresholds, and what stays private."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from dpconvex import DPAUCClassifier, load_model, save_model
from dpconvex.losses import PairHinge, PairLogistic
from dpconvex.mechanisms import Moments, NoisyGradientDescent, ObjectivePerturbation

LOSSES = ("logistic", "natural-logistic", "hinge", "squared", "squared-hinge")
COMMON = {
    "feature_bounds": (-4, 4),
    "min_positive": 800,
    "min_negative": 1500,
    "random_state": 0,
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 4))
    return X, np.where(X[:, 0] - X[:, 1] + rng.normal(size=3000) > 0.5, "yes", "no")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("mechanism", ["auto", "moments", "objective", "output", "gradient"])
@pytest.mark.parametrize("budget", [{"delta": 1e-6}, {"delta": 0}, {"mu": 1.0}], ids=str)
def test_every_combination_learns_or_says_why_not(data, loss, mechanism, budget):
    X, y = data
    pure, gaussian = budget.get("delta") == 0, "mu" in budget
    steep = loss.startswith("squared")
    refused = (
        (mechanism in ("moments", "gradient") and pure)
        or (mechanism == "objective" and (gaussian or steep))
        or (mechanism == "gradient" and steep)
    )
    epsilon = {} if gaussian else {"epsilon": 5.0}
    model = DPAUCClassifier(loss, mechanism=mechanism, **epsilon, **budget, **COMMON)
    if refused:
        with pytest.raises(ValueError, match=r"Use|use|Give"):
            model.fit(X, y)
        return
    model.fit(X, y)
    model.certificate_.verify()
    assert model.certify(*X.shape).to_json() == model.certificate_.to_json()
    assert model.score(X, y) > 0.8
    assert model.score(X, y) == roc_auc_score(y == "yes", model.decision_function(X))


def test_auto_follows_public_facts():
    def chosen(**settings):
        return DPAUCClassifier(**settings).certify(100_000, 5).mechanism

    assert chosen() == "moments"
    assert chosen(delta=0) == "auc-objective"
    assert chosen(delta=0, loss="squared") == "output"
    assert chosen(min_positive=40_000, min_negative=40_000) == "auc-gradient"
    assert chosen(min_positive=40_000, min_negative=40_000, loss="squared") == "moments"


def test_predictions_split_between_the_released_class_means(data):
    X, y = data
    model = DPAUCClassifier(mu=5.0, feature_bounds=(-4, 4), random_state=0).fit(X, y)
    means = X[y == "yes"].mean(0), X[y == "no"].mean(0)
    assert model.released_["midpoint"] == pytest.approx((means[0] + means[1]) / 2, abs=0.25)
    assert model.released_["prevalence"] == pytest.approx((y == "yes").mean(), abs=0.02)
    assert (model.predict(X) == y).mean() > 0.7
    assert set(model.predict(X)) == {"no", "yes"}


def test_moments_need_no_lower_bounds(data):
    X, y = data
    models = [
        DPAUCClassifier(epsilon=1.0, feature_bounds=(-4, 4), random_state=3, min_positive=least)
        for least in (1, 1000)
    ]
    first, second = (model.fit(X, y) for model in models)
    np.testing.assert_array_equal(first.coef_, second.coef_)


def test_refusals(data):
    X, y = data
    with pytest.raises(ValueError, match="'neighbors'"):
        DPAUCClassifier(neighbors="add_or_remove_one", nominal_samples=100).fit(X, y)
    with pytest.raises(ValueError, match="binary"):
        DPAUCClassifier().fit(X, np.arange(len(X)) % 3)
    with pytest.raises(ValueError, match="'loss'"):
        DPAUCClassifier("absolute").fit(X, y)
    with pytest.raises(ValueError, match="'loss'"):
        DPAUCClassifier(PairHinge(0)).fit(X, y)
    with pytest.raises(ValueError, match="'min_positive'"):
        DPAUCClassifier(min_positive=0).fit(X, y)
    with pytest.raises(ValueError, match="'min_negative'"):
        DPAUCClassifier(min_negative=10_000).fit(X, y)
    with pytest.raises(TypeError, match="'label_private'"):
        DPAUCClassifier(label_private=None).fit(X, y)
    with pytest.raises(ValueError, match="'mechanism'"):
        DPAUCClassifier(mechanism="sgd").fit(X, y)


def test_mechanism_objects_and_loss_objects(data):
    X, y = data
    for mechanism, name in (
        (ObjectivePerturbation(), "auc-objective"),
        (NoisyGradientDescent(steps=3), "auc-gradient"),
        (Moments(), "moments"),
    ):
        model = DPAUCClassifier(PairLogistic("e"), mechanism=mechanism, **COMMON).fit(X, y)
        assert model.certificate_.mechanism == name
    assert clone(model).get_params()["mechanism"] == Moments()


def test_noise_depends_on_public_facts_only(data):
    """A data set with fewer positives than claimed gets the same certificate, and the fit goes through."""
    X, y = data
    rare = y.copy()
    rare[5:] = "no"
    rare[:5] = "yes"
    certificates = [
        DPAUCClassifier(mechanism="objective", **COMMON).fit(X, labels).certificate_.to_json()
        for labels in (y, rare)
    ]
    assert certificates[0] == certificates[1]


def test_public_labels_need_less_noise():
    def std(label_private):
        model = DPAUCClassifier(mechanism="output", **{**COMMON, "label_private": label_private})
        model.set_params(alpha=1.0)
        return model.certify(3000, 4).noise["release"]["std"]

    assert std(False) < 0.55 * std(True)


def test_saved_models_predict_the_same(data, tmp_path):
    X, y = data
    model = DPAUCClassifier(**{**COMMON, "random_state": None}).fit(X, y)
    save_model(model, tmp_path / "model.json")
    read = load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(read.decision_function(X), model.decision_function(X))
    assert "class counts" in repr(model.summary())
