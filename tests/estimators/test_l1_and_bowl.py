"""Estimators of an l1 norm with a link and of bowls: what they minimise, what they state, what
they refuse.
"""

import json

import numpy as np
import pytest
from scipy.optimize import minimize

from dpconvex import DPBowl, DPL1Link, DPMedian, DPPiecewiseLinear, load_model, save_model
from dpconvex.core.certificate import Certificate
from dpconvex.losses import Huber
from dpconvex.privacy import CertificateError

THETA = np.array([0.5, -0.5, 1.0])


def matrices(n=300, m=2, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, m, 3)) / 3
    return A, A @ THETA + 0.1 * rng.normal(size=(n, m))


def rows(n=4000, seed=1):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) / 3
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-4 * X @ THETA)), 1.0, -1.0)


def test_a_shared_penalty_is_that_of_a_sparse_glm():
    X, y = rows()
    strength = 0.05
    alpha = 0.02
    width = 1e-4
    model = DPL1Link(
        matrix=strength,
        alpha=alpha,
        bandwidth=width,
        link_norm=2.0,
        epsilon=1e4,
        delta=1e-3,
        mechanism="objective",
        random_state=0,
    ).fit(X, y)

    def risk(theta):
        losses = np.logaddexp(0, -y * (X @ theta)).mean()
        return losses + strength * np.abs(theta).sum() + alpha / 2 * theta @ theta

    best = minimize(
        risk, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12}
    )
    assert risk(model.coef_) <= best.fun + 2e-4
    assert model.score(X, y) == pytest.approx(-np.logaddexp(0, -y * model.predict(X)).mean())


def test_records_with_matrices_of_their_own():
    A, Y = matrices()
    rng = np.random.default_rng(2)
    z = rng.normal(size=(300, 1, 3)) / 3
    stacked = np.concatenate([A, z], axis=1)
    targets = np.column_stack([Y, z[:, 0] @ THETA])
    model = DPL1Link(
        "huber",
        alpha=0.05,
        bandwidth=0.01,
        operator_norm=3.0,
        link_norm=3.0,
        epsilon=1e4,
        delta=1e-3,
        mechanism="objective",
        random_state=0,
    ).fit(stacked, targets)
    huber = Huber(1.0)

    def risk(theta):
        norm = np.abs(Y - A @ theta).sum(axis=1)
        return np.mean(norm + huber.value(targets[:, -1], z[:, 0] @ theta)) + 0.025 * theta @ theta

    best = minimize(risk, THETA, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    assert risk(model.coef_) <= best.fun + 1e-3
    assert model.predict(stacked).shape == (300, 3)


@pytest.mark.parametrize("kernel", ["gaussian", "exponential"])
def test_a_bowl_uses_the_level_of_every_record(kernel):
    A, Y = matrices()
    level = np.abs(np.random.default_rng(3).normal(size=300)) * 0.3
    model = DPBowl(
        operator_norm=3.0,
        alpha=0.05,
        bandwidth=0.01,
        kernel=kernel,
        epsilon=1e4,
        delta=1e-3,
        mechanism="objective",
        random_state=0,
    ).fit(A, Y, level)

    def risk(theta):
        bowl = np.maximum(np.abs(Y - A @ theta).sum(axis=1) - level, 0)
        return bowl.mean() + 0.025 * theta @ theta

    best = minimize(risk, THETA, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    assert risk(model.coef_) <= best.fun + 2e-3
    assert model.score(A, Y, level) == pytest.approx(
        0.025 * model.coef_ @ model.coef_ - risk(model.coef_)
    )


MODELS = {
    "bowl": (DPBowl, {}, matrices, 2),
    "median": (DPMedian, {"kernel": "exponential"}, matrices, 2),
    "pieces": (DPPiecewiseLinear, {"slopes": [[1.0, 0.2], [-0.7, 0.4], [0.1, -1.0]]}, matrices, 2),
    "sparse": (DPL1Link, {"matrix": 0.01}, rows, 1),
}


@pytest.mark.parametrize("mechanism", ["auto", "objective", "gradient", "output", "sgd"])
@pytest.mark.parametrize("name", MODELS)
def test_certificates_come_before_the_data_and_models_are_saved(name, mechanism, tmp_path):
    kind, settings, data, outputs = MODELS[name]
    X, y = data(200)
    model = kind(mechanism=mechanism, random_state=0, **settings).fit(X, y)
    before = kind(mechanism=mechanism, random_state=0, **settings).certify(200, 3, outputs)
    assert before.to_json() == model.certificate_.to_json()
    before.verify()
    save_model(model, tmp_path / "model.json")
    loaded = load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(loaded.coef_, model.coef_)
    # Half the noise is caught.
    tree = json.loads(before.to_json())
    for term in tree["noise"].values():
        for scale in ("std", "scale"):
            if scale in term:
                term[scale] /= 2
    with pytest.raises(CertificateError):
        Certificate.from_json(json.dumps(tree)).verify()


def test_pure_epsilon_beyond_rank_one_goes_through_the_output():
    model = DPMedian(epsilon=1.0, delta=0.0).certify(1000, 3, 2)
    assert model.mechanism == "output"
    model.verify()


def test_refusals():
    with pytest.raises(ValueError, match="replace_one"):
        DPL1Link(matrix=0.1, neighbors="add_or_remove_one", nominal_samples=100).certify(100, 3)
    with pytest.raises(ValueError, match="at least two rows"):
        DPL1Link().certify(100, 3, 1)
    with pytest.raises(ValueError, match="'matrix'"):
        DPL1Link(matrix=np.ones((2, 4))).certify(100, 3)
    with pytest.raises(ValueError, match="'link'"):
        DPL1Link("probit", matrix=0.1).certify(100, 3)
    with pytest.raises(ValueError, match="level"):
        DPBowl().fit(*matrices(50), level=np.ones(49))


@pytest.mark.parametrize("name", ["median", "pieces", "bowl", "link", "shared"])
def test_moreau_envelopes_of_matrix_records(name, tmp_path):
    """From below, with the curvature of the convolution; the certificate comes before the data
    and a file holds it.
    """
    A, Y = matrices(m=2)
    X, y = rows(300)
    common = {
        "epsilon": 50.0,
        "delta": 1e-3,
        "mechanism": "objective",
        "random_state": 0,
        "alpha": 0.05,
    }
    # What the kinked loss is above its envelope: sizes of slopes squared over twice the curvature.
    makers = {
        "median": (DPMedian, (), (A, Y)),
        "pieces": (DPPiecewiseLinear, ([[1.0, 0.2], [-0.7, 0.4], [0.1, -1.0]],), (A, Y)),
        "bowl": (DPBowl, (), (A, Y)),
        "link": (DPL1Link, ("huber",), (A, Y)),
        "shared": (DPL1Link, (), (X, y)),
    }
    estimator, given, data = makers[name]
    own = (
        {"matrix": 0.05, "link_norm": 2.0}
        if name == "shared"
        else {"link_norm": 2.0}
        if name == "link"
        else {}
    )
    above, below = (
        estimator(*given, smoothing=smoothing, **own, **common).fit(*data)
        for smoothing in ("convolution", "moreau")
    )
    convolved = above.certificate_.bounds.loss
    envelope = below.certificate_.bounds.loss
    assert envelope.smoothness == pytest.approx(convolved.smoothness)
    assert "Moreau" in type(envelope).__name__
    below.certificate_.verify()
    assert np.linalg.norm(below.coef_ - above.coef_) < 0.5 * (1 + np.linalg.norm(above.coef_))
    path = tmp_path / "model.json"
    save_model(below, path)
    assert np.array_equal(load_model(path).coef_, below.coef_)
    changed = json.loads(path.read_text())
    changed["parameters"]["smoothing"] = "convolution"
    path.write_text(json.dumps(changed))
    with pytest.raises(ValueError, match="loss"):
        load_model(path)


def test_an_envelope_needs_something_to_smooth():
    with pytest.raises(ValueError, match="bandwidth"):
        DPMedian(smoothing="moreau", mechanism="gradient").certify(1000, 5, n_outputs=3)
    with pytest.raises(ValueError, match="'convolution' or 'moreau'"):
        DPMedian(smoothing="spline").certify(1000, 5, n_outputs=3)
