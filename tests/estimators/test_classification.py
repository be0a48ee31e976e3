"""Private classifiers: labels, several classes, certificates, accuracy."""

import math
from unittest import mock

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dpconvex import DPLinearSVC, DPLogisticRegression
from dpconvex.core.certificate import CertificateError
from dpconvex.core.guarantees import PureDP, guarantee_per_problem
from dpconvex.privacy import ApproxDP, GaussianDP, gaussian_mu

CLASSIFIERS = [DPLogisticRegression, DPLinearSVC]
MECHANISMS = ["objective", "output", "gradient"]


@pytest.fixture(scope="module")
def two_classes():
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (6000, 4))
    y = np.where(X @ [3.0, -2.0, 1.0, 0.0] + 0.5 + rng.logistic(size=6000) > 0, "yes", "no")
    return X, y


@pytest.fixture(scope="module")
def three_classes():
    rng = np.random.default_rng(4)
    centres = np.array([[0.7, 0.0], [-0.5, 0.6], [-0.5, -0.6]])
    y = rng.integers(0, 3, 9000)
    return np.clip(centres[y] + 0.25 * rng.standard_normal((9000, 2)), -1.5, 1.5), y


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_accuracy_comes_close_to_non_private(classifier, mechanism, two_classes):
    X, y = two_classes
    plain = LogisticRegression().fit(X, y).score(X, y)
    model = classifier(epsilon=4.0, feature_bounds=(-1, 1), mechanism=mechanism, random_state=0)
    assert model.fit(X, y).score(X, y) > plain - 0.02
    model.certificate_.verify()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_several_classes_share_the_budget(classifier, mechanism, three_classes):
    X, y = three_classes
    model = classifier(epsilon=4.0, feature_bounds=(-1.5, 1.5), mechanism=mechanism, random_state=0)
    model.fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.coef_.shape == (3, 2)
    assert model.decision_function(X[:5]).shape == (5, 3)
    certificate = model.certificate_
    assert certificate.parameters["problems"] == (1 if mechanism == "gradient" else 3)
    assert certificate.to_json() == model.certify(*X.shape, n_classes=3).to_json()
    certificate.verify()
    if mechanism == "gradient":  # one fit of all classes
        return
    # Three problems need more noise than one.
    single = model.certify(*X.shape)
    name = {"objective": "objective", "output": "release"}[mechanism]
    if mechanism != "output" or certificate.bounds.alpha == single.bounds.alpha:
        # By sqrt(3), but for clips that are narrower where less is left of the records.
        assert certificate.noise[name]["std"] > 1.4 * single.noise[name]["std"]


@pytest.mark.parametrize(
    "mechanism", [pytest.param("sgd", marks=pytest.mark.slow), "phased-erm", "phased-sgd"]
)
def test_stochastic_mechanisms_learn_and_share_the_budget(mechanism, two_classes, three_classes):
    X, y = two_classes
    model = DPLogisticRegression(
        epsilon=8.0, feature_bounds=(-1, 1), mechanism=mechanism, random_state=0
    )
    assert model.fit(X, y).score(X, y) > 0.7
    model.certificate_.verify()
    X, y = three_classes
    model = DPLinearSVC(
        epsilon=8.0, feature_bounds=(-1.5, 1.5), mechanism=mechanism, random_state=0
    )
    model.fit(X, y).certificate_.verify()
    assert model.certificate_.parameters["problems"] == 3


def test_budget_of_one_problem_composes_back():
    """Basic composition for epsilon and delta, root of squares for mu: k parts never exceed the
    whole.
    """
    for problems in (1, 2, 7):
        part = guarantee_per_problem(ApproxDP(1.0, 1e-6), problems)
        assert problems * part.epsilon_bound <= 1.0 + 1e-12
        assert problems * part.delta_bound <= 1e-6 * (1 + 1e-12)
        assert problems * guarantee_per_problem(PureDP(2.0), problems).epsilon_bound <= 2.0 + 1e-12
        assert (
            math.sqrt(problems) * guarantee_per_problem(GaussianDP(0.5), problems).mu <= 0.5 + 1e-12
        )


@pytest.mark.parametrize("problems", [1, 4])
def test_gradient_phases_of_all_problems_spend_mu(problems):
    model = DPLogisticRegression(epsilon=1.0, delta=1e-6, mechanism="gradient")
    certificate = model.certify(10_000, 5, n_classes=2 if problems == 1 else problems)
    spent = 0.0
    for term in certificate.noise.values():
        moved = term.sensitivity + term.grid * math.sqrt(term.dimension)
        spent += certificate.problems * term.releases * (moved / term.scale) ** 2
    allowed = gaussian_mu(1.0, 1e-6)
    assert allowed * (1 - 2e-5) < math.sqrt(spent) <= allowed * (1 + 1e-12)


def test_probabilities_add_to_one(two_classes, three_classes):
    for X, y in (two_classes, three_classes):
        model = DPLogisticRegression(epsilon=5.0, random_state=1).fit(X, y)
        probabilities = model.predict_proba(X[:20])
        assert np.allclose(probabilities.sum(axis=1), 1.0)
        assert np.array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(X[:20]))


def test_label_set_is_stated(two_classes):
    X, y = two_classes
    read = DPLogisticRegression(random_state=0).fit(X, y)
    assert read.certificate_.parameters["label_set"] == "assumed public"
    given = DPLogisticRegression(classes=["no", "yes"], random_state=0).fit(X, y)
    assert given.certificate_.parameters["label_set"] == "given"
    lonely = DPLogisticRegression(classes=["no", "yes"], random_state=0).fit(
        X[y == "no"], y[y == "no"]
    )
    assert list(lonely.classes_) == ["no", "yes"]


def test_labels_outside_the_set_are_refused_without_naming_them(two_classes):
    X, y = two_classes
    model = DPLogisticRegression(classes=["no", "other"])
    with pytest.raises(ValueError, match="'classes' parameter") as caught:
        model.fit(X, y)
    assert "yes" not in str(caught.value)


def test_summary_names_classes_and_split(three_classes):
    X, y = three_classes
    text = str(DPLinearSVC(epsilon=5.0, mechanism="output", random_state=0).fit(X, y).summary())
    assert "class 2 against the rest" in text
    assert "over 3 one-against-rest fits" in text
    joint = str(DPLinearSVC(epsilon=5.0, random_state=0).fit(X, y).summary())
    assert "class 2" in joint
    assert "rest" not in joint


def four_classes(n=6000, seed=0):
    """Return rows and text labels of a softmax model, of which one is rare."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)).clip(-4, 4)
    margins = X @ rng.normal(size=(4, 4)) * 1.2 + [1.0, 0.5, 0.0, -1.5]
    return X, np.array(list("abcd"))[(margins + rng.gumbel(size=(n, 4))).argmax(axis=1)]


def test_several_classes_in_one_fit_are_the_softmax_fit_without_noise():
    X, y = four_classes()
    plain = LogisticRegression(C=1e6, max_iter=1000).fit(X, y)
    model = DPLogisticRegression(epsilon=100.0, feature_bounds=(-4, 4), random_state=0).fit(X, y)
    best, found = (log_loss(y, each.predict_proba(X)) for each in (plain, model))
    assert found <= 1.005 * best
    assert np.abs(model.coef_ - model.coef_.mean(axis=0) - plain.coef_).max() < 0.1
    small = DPLogisticRegression(epsilon=1.0, feature_bounds=(-4, 4), random_state=0).fit(X, y)
    assert log_loss(y, small.predict_proba(X)) <= 1.03 * best


def test_one_fit_of_all_classes_beats_one_against_the_rest():
    """At the same budget, where one-against-rest shares it over four fits: mean log loss of some
    seeds.
    """
    X, y = four_classes(3000)
    losses = {}
    for name, loss in (
        ("joint", DPLogisticRegression._joint_loss),
        ("split", lambda self, n_classes: None),
    ):
        with mock.patch.object(DPLogisticRegression, "_joint_loss", loss):
            fits = [
                DPLogisticRegression(epsilon=0.5, feature_bounds=(-4, 4), random_state=seed).fit(
                    X, y
                )
                for seed in range(3)
            ]
        losses[name] = np.mean([log_loss(y, model.predict_proba(X)) for model in fits])
    assert losses["joint"] < 0.97 * losses["split"]


@pytest.mark.parametrize("classifier", CLASSIFIERS)
def test_class_weights_people_and_invalid_rows_of_several_classes(classifier):
    X, y = four_classes(2000)
    public = {
        "feature_bounds": (-4, 4),
        "classes": list("abcd"),
        "epsilon": 20.0,
        "random_state": 0,
    }
    plain = classifier(**public).fit(X, y)
    heavy = classifier(**public, class_weight={"d": 10.0}).fit(X, y)
    assert (heavy.predict(X) == "d").sum() > 1.5 * (plain.predict(X) == "d").sum()
    people = classifier(**public).fit(X, y, groups=np.arange(2000) // 2)
    assert people.certificate_.bounds.people
    assert people.score(X, y) > 0.9 * plain.score(X, y)
    y = y.astype(object)
    y[:100] = None
    ignored = classifier(**public, invalid_rows="ignore").fit(X, y)
    assert ignored.score(X[100:], y[100:].astype(str)) > 0.9 * plain.score(
        X[100:], y[100:].astype(str)
    )


@pytest.mark.parametrize("classifier", CLASSIFIERS)
@pytest.mark.parametrize("mechanism", ["auto", *MECHANISMS])
def test_certificate_before_data_equals_the_one_after(classifier, mechanism, two_classes):
    X, y = two_classes
    model = classifier(epsilon=1.0, feature_bounds=(-1, 1), mechanism=mechanism)
    before = model.certify(*X.shape).to_json()
    assert model.fit(X, y).certificate_.to_json() == before


@pytest.mark.parametrize(
    ("settings", "guarantee"),
    [({"mu": 0.5}, GaussianDP(0.5)), ({"epsilon": 2.0, "delta": 0}, PureDP(2.0))],
)
def test_other_budgets(settings, guarantee, two_classes):
    X, y = two_classes
    model = DPLogisticRegression(feature_bounds=(-1, 1), **settings).fit(X, y)
    assert model.certificate_.guarantee == guarantee
    model.certificate_.verify()


def test_unknown_number_of_classes_is_refused():
    with pytest.raises(ValueError, match="n_classes"):
        DPLogisticRegression().certify(100, 3, n_classes=1)


class Undecided(DPLogisticRegression):
    """Reads one class against the rest and plans all of them jointly."""

    def _descends_jointly(self, n_classes):
        self.asked = getattr(self, "asked", 0) + 1
        return self.asked > 1


def test_as_many_fits_are_run_as_the_certificate_counts():
    """Three fits under a certificate of one would cost three times what it says."""
    X = np.random.default_rng(0).uniform(-1, 1, (60, 2))
    y = np.arange(60) % 3
    with pytest.raises(CertificateError, match="1 problems"):
        Undecided(epsilon=1.0, feature_bounds=(-1, 1), classes=[0, 1, 2], random_state=0).fit(X, y)
