"""Phased methods: exact noise per phase, runs."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from dpconvex import DPQuantileRegressor
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Hinge, Huber, Logistic, Pinball, Squared
from dpconvex.mechanisms import PhasedERM, PhasedSGD, resolve_mechanism
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import (
    ApproxDP,
    Certificate,
    CertificateError,
    GaussianDP,
    LinearBounds,
    PureDP,
    gaussian_scale,
)
from dpconvex.privacy.bounds.phases import PhaseSettings, phases_of
from dpconvex.smoothing import LogisticKernel, convolve

SMOOTH = convolve(Pinball(0.7), LogisticKernel(), 0.5)
BOTH = [PhasedERM, PhasedSGD]


def facts(n=1024, loss=SMOOTH, alpha=0.0, neighbors="replace_one"):
    return LinearBounds(n, 2, loss, 1.0, 1.0, alpha=alpha, neighbors=neighbors)


def test_every_phase_spends_the_whole_budget():
    """ERM: ``L step_i / mu``; SGD: ``2 L step_i / mu``; records halve, steps shrink by four."""
    for method, factor in ((PhasedERM, 1.0), (PhasedSGD, 2.0)):
        certificate = method(step_size=0.1, phases=5).certify(facts(), ApproxDP(1.0, 1e-5))
        certificate.verify()
        for i, term in enumerate(certificate.noise.values(), start=1):
            step = 0.1 / 4**i
            exact = factor * facts().lipschitz * step * gaussian_scale(1.0, 1e-5)
            assert term["std"] == pytest.approx(exact, rel=1e-3)
            assert term["std"] >= exact
        phases = phases_of(1024, PhaseSettings.read(certificate.parameters[method.name]))
        assert [phase.records for phase in phases] == [1024 // 2**i for i in range(1, 6)]
        assert [phase.step for phase in phases] == pytest.approx([0.1 / 4**i for i in range(1, 6)])


def test_tolerance_is_part_of_the_sensitivity():
    """``L step_i + t step_i n_i``."""
    certificate = PhasedERM(step_size=0.1, phases=3).certify(facts(), GaussianDP(1.0))
    phases = phases_of(1024, PhaseSettings.read(certificate.parameters["phased-erm"]))
    for term, phase in zip(certificate.noise.values(), phases, strict=True):
        step = phase.step
        expected = facts().lipschitz * step + term["tolerance"] * step * phase.records
        assert term["sensitivity"] == pytest.approx(expected, rel=1e-12)
        assert term["tolerance"] > 0


def test_a_penalty_makes_phases_more_stable():
    plain = PhasedERM(step_size=0.1, phases=1).certify(facts(), GaussianDP(1.0))
    ridge = PhasedERM(step_size=0.1, phases=1).certify(facts(alpha=1.0), GaussianDP(1.0))
    strength = 1.0 + 2 / (0.025 * 512)
    expected = 2 * facts().lipschitz / (512 * strength)
    assert ridge.noise["phase 1"]["sensitivity"] == pytest.approx(expected, rel=1e-6)
    assert ridge.noise["phase 1"]["std"] < plain.noise["phase 1"]["std"]


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize("guarantee", [PureDP(1.0), ApproxDP(1.0, 0.0)])
def test_pure_epsilon_with_laplace_noise(method, guarantee):
    certificate = method().certify(facts(), guarantee)
    certificate.verify()
    for term in certificate.noise.values():
        assert term.distribution == "l2-laplace"
        assert term.scale == pytest.approx(term.sensitivity / 1.0, rel=1e-4)
    # Half the noise in a phase, or another law in one, is caught.
    for edit in ({"scale": certificate.noise["phase 2"].scale / 2}, {"distribution": "gaussian"}):
        tree = json.loads(certificate.to_json())
        tree["noise"]["phase 2"].update(edit)
        with pytest.raises(CertificateError):
            Certificate.from_json(json.dumps(tree)).verify()


@pytest.mark.parametrize("method", BOTH)
def test_refusals(method):
    name = method.__name__
    budget = ApproxDP(1.0, 1e-5)
    if method is PhasedSGD:
        with pytest.raises(ValueError, match="needs neighbors='replace_one'"):
            method().certify(facts(neighbors="add_or_remove_one"), budget)
    with pytest.raises(ValueError, match="lipschitz=inf"):
        method(step_size=0.1).certify(facts(loss=Squared()), budget)
    bad = {"step_size": -1.0, "decay": 0.5, "radius": 0.0}
    for field, value in [("phases", 11), ("phases", 0), *bad.items()]:
        with pytest.raises(ValueError, match=f"The '{field}' parameter of {name} must be"):
            method(**{field: value}).certify(facts(), budget)
    with pytest.raises(ValueError, match="at least 2 rows"):
        method().certify(facts(1), budget)


def test_sgd_needs_contractive_steps():
    with pytest.raises(ValueError, match="PhasedSGD needs a smooth loss, but Pinball"):
        PhasedSGD().certify(facts(loss=Pinball(0.7)), GaussianDP(1.0))
    limit = 8 / facts().smoothness
    PhasedSGD(step_size=0.999 * limit).certify(facts(), GaussianDP(1.0))
    with pytest.raises(ValueError, match="take two points further apart"):
        PhasedSGD(step_size=1.001 * limit).certify(facts(), GaussianDP(1.0))


def test_tampering_is_noticed():
    certificate = PhasedSGD(step_size=0.1).certify(facts(), ApproxDP(1.0, 1e-6))
    again = Certificate.from_json(certificate.to_json())
    again.verify()
    for field, value, problem in (
        ("step_size", 0.11, "states a sensitivity"),
        ("decay", 3.0, "states a sensitivity"),
        ("phases", 2, "must have the terms"),
        ("assignment", "by target", "random permutation"),
        ("step_size", 0.09, "edited"),
    ):
        settings = {**again.parameters["phased-sgd"], field: value}
        with pytest.raises(ValueError, match=problem):
            replace(again, parameters={"phased-sgd": settings}).verify()


def data(n=1000, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    y = scale * (0.5 + X @ [0.5, -0.3] + 0.1 * rng.normal(size=n))
    return X, y


@pytest.mark.parametrize("method", BOTH)
@pytest.mark.parametrize(
    "loss", [convolve(Pinball(0.5), LogisticKernel(), 0.05), Huber(0.2)], ids=repr
)
def test_finds_the_coefficients_with_little_noise(method, loss):
    X, y = data()
    rows = MemoryRows(X, y, RowMap.from_bounds(2, (-1.0, 1.0)), threads=1)
    bounds = LinearBounds(1000, 2, loss, math.sqrt(2), math.sqrt(2))
    mechanism = method(step_size=min(1.0, 3.9 / bounds.smoothness), decay=2.0, phases=4)
    certificate = mechanism.certify(bounds, GaussianDP(50.0), seeded=True)
    theta = mechanism.release(EmpiricalObjective(rows, loss, 0.0), certificate, 0)
    np.testing.assert_allclose(theta, [0.5, 0.5, -0.3], atol=0.15)


@pytest.mark.parametrize("loss", [Pinball(0.5), Hinge(), Logistic(), SMOOTH], ids=repr)
@pytest.mark.parametrize("scale", [1.0, 1e6, 1e100])
def test_erm_converges_whatever_the_data(loss, scale):
    """Kinks, targets beyond all measure, and anchors from 1e-2 to 1e10 alike."""
    X, y = data(4096, scale=scale)
    if loss.kind == "margin":
        y = np.where(y > 0, 1.0, -1.0)
    rows = MemoryRows(X, y, RowMap.from_bounds(2, (-1.0, 1.0)), threads=1)
    bounds = LinearBounds(4096, 2, loss, math.sqrt(2), math.sqrt(2))
    mechanism = PhasedERM(phases=12)
    certificate = mechanism.certify(bounds, GaussianDP(0.01), seeded=True)
    theta = mechanism.release(EmpiricalObjective(rows, loss, 0.0), certificate, 0)
    assert np.linalg.norm(theta) <= 100 * (1 + 1e-12)


def test_own_loss_takes_the_same_steps():
    class Own(Huber):
        pass

    X, y = data(64)
    rows = MemoryRows(X, y, RowMap.from_bounds(2, (-1.0, 1.0)), threads=1)
    found = []
    for loss in (Own(0.3), Huber(0.3)):
        bounds = LinearBounds(64, 2, loss, math.sqrt(2), math.sqrt(2))
        certificate = PhasedSGD(step_size=0.5).certify(bounds, GaussianDP(1.0), seeded=True)
        found.append(PhasedSGD().release(EmpiricalObjective(rows, loss, 0.0), certificate, 0))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


@pytest.mark.parametrize("mechanism", ["phased-erm", "phased-sgd"])
@pytest.mark.parametrize("bandwidth", [None, 0.5])
def test_estimator(mechanism, bandwidth):
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, size=(4000, 2))
    y = 1 + X @ [1.0, -2.0] + 0.3 * rng.normal(size=4000)
    model = DPQuantileRegressor(
        0.5,
        mu=5.0,
        feature_bounds=(-1, 1),
        target_bounds=(-3, 3),
        mechanism=mechanism,
        bandwidth=bandwidth,
        random_state=0,
    )
    model.fit(X, y)
    assert model.certificate_.to_json() == model.certify(4000, 2).to_json()
    model.certificate_.verify()
    assert model.certificate_.mechanism == mechanism
    assert model.score(X, y) > 0.5
    assert resolve_mechanism(mechanism, "test").name == mechanism


def test_exact_sampler_is_used_without_a_seed():
    X, y = data(32)
    rows = MemoryRows(X, y, RowMap.from_bounds(2, (-1.0, 1.0)), threads=1)
    bounds = LinearBounds(32, 2, SMOOTH, math.sqrt(2), math.sqrt(2))
    mechanism = PhasedSGD(step_size=0.1, phases=1)
    certificate = mechanism.certify(bounds, GaussianDP(1.0))
    assert certificate.sampler == "exact"
    theta = mechanism.release(EmpiricalObjective(rows, SMOOTH, 0.0), certificate)
    grid = certificate.noise["phase 1"].grid
    assert (theta / grid == np.round(theta / grid)).all()
