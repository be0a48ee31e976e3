"""Model files whose certificate verifies, but is about another loss or other facts than the
parameters say.
"""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from dpconvex import (
    DPLinearSVC,
    DPMedian,
    DPPiecewiseLinear,
    DPQuantileRegressor,
    DPRobustClassifier,
    DPTiltedClassifier,
    DPTiltedRegressor,
    ModelFileError,
    load_model,
    save_model,
)
from dpconvex.core.certificate import Certificate
from dpconvex.losses import Logistic, Pinball, Scaled
from dpconvex.privacy import CertificateError, LinearBounds, PureDP
from dpconvex.smoothing import LogisticKernel, convolve

X = np.random.default_rng(0).random((400, 2))
LABELS = (X[:, 0] > 0.5).astype(int)
A = np.random.default_rng(1).normal(size=(100, 2, 3))
Y = np.zeros((100, 2))
CROSS = np.concatenate([np.eye(2), -np.eye(2)])


@pytest.fixture
def swapped(tmp_path):
    """Return a function that loads a model's file after its certificate and other parts were
    exchanged.
    """

    def load(model, certificate, omit=None, **parameters):
        certificate.verify()
        path = tmp_path / "model.json"
        save_model(model, path)
        load_model(path)
        content = json.loads(path.read_text())
        content["certificate"] = json.loads(certificate.to_json())
        content["parameters"].update(parameters)
        if omit is not None:
            content["parameters"].pop(omit)
            content["omitted"] = [omit]
        path.write_text(json.dumps(content))
        return load_model(path)

    return load


def issued(certificate, parameters=None, **facts):
    """Return an honest certificate about other facts."""
    return Certificate.issue(
        certificate.mechanism,
        replace(certificate.bounds, **facts),
        certificate.guarantee,
        {**certificate.parameters, **(parameters or {})},
    )


@pytest.mark.parametrize("mechanism", ["objective", "gradient"])
def test_a_structured_loss_is_that_of_the_parameters(swapped, mechanism):
    gentle = DPPiecewiseLinear(CROSS, mechanism=mechanism).fit(A, Y)
    with pytest.raises(ModelFileError, match=r"check .*loss"):
        swapped(gentle, gentle.certificate_, slopes=(1000 * CROSS).tolist())
    faint = DPPiecewiseLinear(1e-6 * CROSS, mechanism=mechanism).certify(100, 3, 2)
    median = DPMedian(mechanism=mechanism).fit(A, Y)
    with pytest.raises(ModelFileError, match=r"check .*loss"):
        swapped(median, faint)


def test_the_smoothing_of_a_structured_loss_is_that_of_the_parameters(swapped):
    model = DPMedian(mechanism="objective", bandwidth=0.5).fit(A, Y)
    other = DPMedian(mechanism="objective", bandwidth=2.0).certify(100, 3, 2)
    with pytest.raises(ModelFileError, match=r"check .*bandwidth"):
        swapped(model, other)
    other = DPMedian(mechanism="objective", bandwidth=0.5, kernel="laplacian").certify(100, 3, 2)
    with pytest.raises(ModelFileError, match=r"check .*loss"):
        swapped(model, other)


def test_a_loss_cannot_be_omitted(swapped):
    model = DPTiltedClassifier(feature_bounds=(0, 1), classes=[0, 1]).fit(X, LABELS)
    faint = issued(model.certificate_, loss=Scaled(Logistic(), 1e-6))
    with pytest.raises(ModelFileError, match="'omitted' must be names"):
        swapped(model, faint, omit="loss")


def test_a_kernel_is_omitted_only_where_none_was_used(swapped):
    settings = {"feature_bounds": (0, 1), "target_bounds": (0, 1)}
    for mechanism in ("objective", "gradient"):
        model = DPQuantileRegressor(0.8, mechanism=mechanism, **settings).fit(X, X[:, 0])
        with pytest.raises(ModelFileError, match=r"check .*kernel"):
            swapped(model, model.certificate_, omit="kernel")
    model = DPQuantileRegressor(0.8, mechanism="output", **settings).fit(X, X[:, 0])
    swapped(model, model.certificate_, omit="kernel")


@pytest.mark.parametrize(
    ("kind", "target"), [(DPTiltedClassifier, LABELS), (DPTiltedRegressor, X[:, 0])]
)
def test_a_wall_is_one_that_the_plan_may_choose(swapped, kind, target):
    model = kind(tilt=2.0, feature_bounds=(0, 1)).fit(X, target)
    forged = issued(model.certificate_, coef_bound=1e-3)
    assert forged.noise["release"].scale < 0.9 * model.certificate_.noise["release"].scale
    with pytest.raises(ModelFileError, match=r"check .*wall"):
        swapped(model, forged)
    model = kind(tilt=2.0, feature_bounds=(0, 1), coef_bound=4.0).fit(X, target)
    with pytest.raises(ModelFileError, match=r"check .*wall"):
        swapped(model, issued(model.certificate_, coef_bound=0.5))


def hashed(certificate):
    object.__setattr__(certificate, "digest", certificate._hash())
    return certificate


def test_ignored_rows_are_among_the_facts():
    settings = {"feature_bounds": (0, 1), "classes": [0, 1], "alpha": 0.5, "coef_bound": 1.0}
    model = DPTiltedClassifier(tilt=2.0, invalid_rows="ignore", **settings)
    honest = model.certify(400, 2)
    with pytest.raises(CertificateError, match="invalid_rows"):
        issued(honest, ignored_rows=False)
    # As a stranger would write it: facts and noise of a fit that refuses invalid rows.
    strict = DPTiltedClassifier(tilt=2.0, **settings).certify(400, 2)
    assert strict.noise["release"].scale < 0.99 * honest.noise["release"].scale
    for said in (honest.parameters["invalid_rows"], "Ignore: all of them", 1):
        forged = replace(strict, parameters={**strict.parameters, "invalid_rows": said})
        with pytest.raises(CertificateError, match="invalid_rows"):
            hashed(forged).verify()
    facts = LinearBounds(100, 2, Logistic(), 1.0, 1.0, alpha=0.1, ignored_rows=True)
    Certificate.issue("output", facts, PureDP(1.0)).verify()  # nothing is said about rows


def test_the_width_of_the_adversary_is_not_free(swapped):
    model = DPRobustClassifier(0.5, feature_bounds=(0, 1), classes=[0, 1]).fit(X, LABELS)
    with pytest.raises(ModelFileError, match=r"check .*width"):
        swapped(model, issued(model.certificate_, width=10.0))


def quantile(level, **settings):
    settings = {"feature_bounds": (0, 1), "target_bounds": (0, 1), **settings}
    return DPQuantileRegressor(level, **settings)


def test_a_smoothed_level_is_near_the_quantile(swapped):
    model = quantile(0.99, mechanism="objective").fit(X, X[:, 0])
    other = quantile(0.5, mechanism="objective").certify(400, 2)
    with pytest.raises(ModelFileError, match=r"check .*loss"):
        swapped(model, issued(other, {"quantile": 0.99}))
    own = model.certificate_.bounds.loss
    for level, allowed in ((0.55, False), (0.6, True), (0.99, True), (0.995, False)):
        certificate = issued(model.certificate_, loss=replace(own, loss=Pinball(level)))
        if allowed:
            swapped(model, certificate)
            continue
        with pytest.raises(ModelFileError, match=r"check .*loss"):
            swapped(model, certificate)


@pytest.mark.parametrize("mechanism", ["output", "phased-sgd", "sgd"])
def test_only_objective_perturbation_moves_the_level(swapped, mechanism):
    model = quantile(0.9, mechanism=mechanism, bandwidth=0.5).fit(X, X[:, 0])
    other = issued(
        quantile(0.8, mechanism=mechanism, bandwidth=0.5).certify(400, 2), {"quantile": 0.9}
    )
    with pytest.raises(ModelFileError, match=r"check .*loss"):
        swapped(model, other)


def test_the_stated_bandwidth_is_that_of_the_loss(swapped):
    model = quantile(0.9, mechanism="objective").fit(X, X[:, 0])
    loss = model.certificate_.bounds.loss
    wider = issued(model.certificate_, loss=replace(loss, bandwidth=4 * loss.bandwidth))
    with pytest.raises(ModelFileError, match=r"check .*smoothing"):
        swapped(model, wider)
    svc = DPLinearSVC(mechanism="output", feature_bounds=(0, 1), bandwidth=0.5, alpha=0.5)
    svc.fit(X, LABELS)
    hinge = svc.certificate_.bounds.loss.loss
    other = issued(svc.certificate_, loss=convolve(hinge, LogisticKernel(), 3.0))
    with pytest.raises(ModelFileError, match=r"check .*loss"):
        swapped(svc, other)


@pytest.mark.parametrize(
    "covariance",
    [
        *("x", None, [["x"] * 3] * 3, np.eye(2).tolist(), np.diag([-1.0, 1, 1]).tolist()),
        [[1.0, 0.5, 0], [0, 1, 0], [0, 0, 1]],
    ],
    ids=["text", "none", "texts", "shape", "negative", "skew"],
)
def test_intervals_are_those_of_a_matrix(tmp_path, covariance):
    model = quantile(0.5, inference=True, mu=5.0).fit(X, X[:, 0])
    path = tmp_path / "model.json"
    save_model(model, path)
    assert np.array_equal(load_model(path).confidence_interval(), model.confidence_interval())
    content = json.loads(path.read_text())
    content["released"]["covariance"] = covariance
    path.write_text(json.dumps(content))
    with pytest.raises(ModelFileError, match="covariance"):
        load_model(path)
