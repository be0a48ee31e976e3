"""AUC under add-or-remove-one, with a penalty that must grow, and as candidates of a selection."""

import json

import numpy as np
import pytest

from dpconvex import DPAUCClassifier, load_model, save_model
from dpconvex.privacy import Certificate, CertificateError
from dpconvex.selection import AUCScore, DPSelect


def problem(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, (X @ [1.5, -1.0, 0.0] + rng.logistic(size=n) > 0).astype(int)


@pytest.mark.parametrize("mechanism", ["auto", "gradient", "objective", "output"])
def test_a_private_number_of_records(mechanism, tmp_path):
    X, y = problem()
    model = DPAUCClassifier(
        epsilon=4.0,
        neighbors="add_or_remove_one",
        nominal_samples=500,
        mechanism=mechanism,
        min_positive=150,
        min_negative=150,
        feature_bounds=(-3, 3),
        random_state=0,
        classes=(0, 1),
    )
    certificate = model.certify(500, 3)
    assert certificate.neighbors == "add_or_remove_one"
    certificate.verify()
    model.fit(X, y)
    assert model.certificate_.to_json() == certificate.to_json()
    save_model(model, tmp_path / "model.json")
    assert load_model(tmp_path / "model.json").certificate_ == certificate
    if mechanism in ("auto", "gradient"):
        assert model.score(X, y) > 0.8
    model.fit(X[:1], y[:1])  # a class may be missing: the relation hides that, too
    tree = json.loads(certificate.to_json())
    for term in tree["noise"].values():
        term["scale"] /= 2
    with pytest.raises(CertificateError):
        Certificate.from_json(json.dumps(tree)).verify()


def test_less_noise_than_for_a_replaced_record():
    settings = {
        "epsilon": 1.0,
        "mechanism": "output",
        "alpha": 0.1,
        "min_positive": 100,
        "min_negative": 100,
    }
    replaced = DPAUCClassifier(**settings).certify(1000, 3)
    added = DPAUCClassifier(
        neighbors="add_or_remove_one", nominal_samples=1000, **settings
    ).certify(1000, 3)
    ratio = added.noise["release"].sensitivity / replaced.noise["release"].sensitivity
    assert ratio == pytest.approx((1 / 100) / (1 / 100 + 1 / 101), rel=1e-3)


def test_what_is_not_offered_is_refused():
    relation = {"neighbors": "add_or_remove_one", "nominal_samples": 100}
    with pytest.raises(ValueError, match="moments"):
        DPAUCClassifier(mechanism="moments", **relation).certify(100, 3)
    with pytest.raises(ValueError, match="label_private"):
        DPAUCClassifier(mechanism="objective", label_private=False, **relation).certify(100, 3)


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_a_penalty_that_is_too_small_is_raised_and_stated(delta, tmp_path):
    X, y = problem()
    model = DPAUCClassifier(
        epsilon=1.0,
        delta=delta,
        mechanism="objective",
        alpha=1e-4,
        min_positive=200,
        min_negative=200,
        feature_bounds=(-3, 3),
        random_state=0,
    )
    certificate = model.certify(600, 3)
    added = certificate.parameters["added_penalty"]
    assert added > 0
    assert certificate.bounds.alpha == pytest.approx(1e-4 + added)
    certificate.verify()
    save_model(model.fit(X, y), tmp_path / "model.json")
    load_model(tmp_path / "model.json")
    large = model.set_params(alpha=5.0).certify(600, 3)
    assert "added_penalty" not in large.parameters
    assert large.bounds.alpha == 5.0


def test_objective_perturbation_is_selected_by_basic_composition():
    X, y = problem(1500)
    search = DPSelect(
        DPAUCClassifier(
            mechanism="objective", min_positive=300, min_negative=300, feature_bounds=(-3, 3)
        ),
        {"alpha": [1.0, 5.0]},
        epsilon=4.0,
        delta=1e-5,
        scoring=AUCScore(50, 50),
        random_state=0,
    )
    certificate = search.certify(1500, 3)
    certificate.verify()
    assert certificate.strategy == "exponential"
    assert (certificate.per_fit.epsilon_bound, certificate.per_fit.delta_bound) == (2.0, 5e-6)
    search.fit(X, y)
    assert search.certificate_ == certificate
    with pytest.raises(ValueError, match="GaussianDP"):
        search.set_params(strategy="repeat").certify(1500, 3)
