"""The tilted objective: derivatives, limits, stability; and the facts that its bounds state."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest

from dpconvex.core import summation as addition
from dpconvex.core.certificate import CertificateError
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Hinge, Huber, Logistic, Pinball
from dpconvex.mechanisms import NoisyGradientDescent, ObjectivePerturbation, OutputPerturbation
from dpconvex.objectives import EmpiricalObjective, TiltedObjective
from dpconvex.privacy import ApproxDP, Certificate, GaussianDP, LinearBounds, PureDP, TiltedBounds
from dpconvex.smoothing import LogisticKernel, convolve
from dpconvex.solvers import Newton

LOSSES = [Logistic(), Huber(0.2), convolve(Hinge(), LogisticKernel(), 0.5)]


def data(n=200, d=3, seed=0, row_norm=1.0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)
    return MemoryRows(X, y, RowMap.from_bounds(d, (-1.0, 1.0), row_norm))


def bounds(rows, loss, alpha, tilt, **more):
    row_map = rows.row_map
    return TiltedBounds(
        rows.n_rows,
        row_map.n_features,
        loss,
        row_map.row_norm,
        row_map.max_norm,
        alpha=alpha,
        tilt=tilt,
        **more,
    )


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("tilt", [0.0, 1e-9, 1.0, 30.0])
@pytest.mark.parametrize("wall", [None, 0.7])
def test_derivatives(loss, tilt, wall):
    objective = TiltedObjective(data(), loss, 0.1, tilt, wall, 0.0 if wall is None else 5.0)
    theta = np.array([0.3, 0.9, -0.4, 0.1])
    step = 1e-5
    gradient = objective.gradient(theta)
    hessian = objective.hessian(theta)
    for j, axis in enumerate(np.eye(4)):
        ends = theta + step * axis, theta - step * axis
        slope = (objective.value(ends[0]) - objective.value(ends[1])) / (2 * step)
        bend = (objective.gradient(ends[0]) - objective.gradient(ends[1])) / (2 * step)
        assert gradient[j] == pytest.approx(slope, abs=1e-8)
        assert hessian[j] == pytest.approx(bend, abs=1e-3 if isinstance(loss, Huber) else 1e-6)


@pytest.mark.parametrize("tilt", [0.0, 1e-12, 1e-6])
def test_near_zero_it_is_the_mean_of_losses(tilt):
    rows = data()
    theta = np.array([0.3, 0.9, -0.4, 0.1])
    tilted = TiltedObjective(rows, Logistic(), 0.1, tilt)
    plain = EmpiricalObjective(rows, Logistic(), 0.1)
    assert tilted.value(theta) == pytest.approx(plain.value(theta), rel=1e-6)
    assert tilted.gradient(theta) == pytest.approx(plain.gradient(theta), rel=1e-5, abs=1e-6)
    assert tilted.hessian(theta) == pytest.approx(plain.hessian(theta), rel=1e-5, abs=1e-6)
    points = [Newton().solve(f, np.zeros(4), 1e-9).point for f in (tilted, plain)]
    assert points[0] == pytest.approx(points[1], abs=1e-5)


def test_far_out_it_is_the_largest_loss_and_nothing_overflows():
    rows = data()
    theta = np.array([3.0, 90.0, -40.0, 10.0])
    block, y, w = rows.mapped()
    largest = (w * Logistic().value(y, block @ theta)).max()
    objective = TiltedObjective(rows, Logistic(), 0.0, 1e6)
    assert objective.value(theta) == pytest.approx(largest, rel=1e-6)
    assert np.isfinite(objective.gradient(theta)).all()


def test_blocks_add_up_whatever_their_exponents(monkeypatch):
    """Sums over several blocks, each relative to its own largest exponent, agree with one block."""
    theta = np.array([3.0, 9.0, -4.0, 1.0])
    whole = TiltedObjective(data(3000), Logistic(), 0.1, 20.0)
    value = whole.value(theta)
    gradient = whole.gradient(theta)
    hessian = whole.hessian(theta)
    monkeypatch.setattr(addition, "BLOCK_BYTES", 4096)
    parts = TiltedObjective(data(3000), Logistic(), 0.1, 20.0)
    assert parts.rows.block_rows < 200
    assert parts.value(theta) == pytest.approx(value, rel=1e-13)
    assert parts.gradient(theta) == pytest.approx(gradient, rel=1e-11, abs=1e-13)
    # Against exact arithmetic both are off by 2e-12 to 4e-12: one record has most of the weight of
    # 3000.
    assert parts.hessian(theta) == pytest.approx(hessian, rel=1e-11, abs=1e-11)


def test_targets_are_clipped():
    X = np.ones((2, 1))
    row_map = RowMap.from_bounds(1, (-1.0, 1.0))
    values = [
        TiltedObjective(MemoryRows(X, y, row_map), Huber(0.2), 0.1, 5.0).value([0.1, 0.2])
        for y in ([7.0, -1.0], [1.0, -1e9])
    ]
    assert values[0] == values[1]


@pytest.mark.parametrize("tilt", [0.1, 2.0, 40.0])
@pytest.mark.parametrize("row_norm", [0.8, 2.0])
@pytest.mark.parametrize("wall", [None, 0.5])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
def test_declared_facts_hold_on_the_ball(tilt, row_norm, wall, loss):
    """Loss range, weight of a record, smoothness and length of minimisers, at random and at
    extreme points.
    """
    rows = data(50, 2, row_norm=row_norm)
    facts = bounds(rows, loss, 0.05, tilt, coef_bound=wall)
    objective = TiltedObjective(rows, loss, 0.05, tilt, wall, facts.wall)
    block, y, w = rows.mapped()
    rng = np.random.default_rng(1)
    solution = Newton().solve(objective, np.zeros(3), 1e-9).point
    assert np.linalg.norm(solution) <= facts.radius * (1 + 1e-9)
    for _ in range(20):
        theta = rng.normal(size=3)
        theta *= facts.radius / np.linalg.norm(theta)
        losses = w * loss.value(np.clip(y, -1, 1), block @ theta)
        assert np.ptp(losses) <= facts.loss_range * (1 + 1e-12)
        factors = np.exp(tilt * (losses - losses.max()))
        assert factors.max() / factors.sum() <= facts.largest_weight * (1 + 1e-9)
        assert np.linalg.eigvalsh(objective.hessian(theta)).max() <= facts.smoothness + 0.05 + 1e-9


def test_the_rounding_allowance_covers_what_rounding_does():
    """Against the same sums in extended precision."""
    rows = data(500)
    theta = np.array([2.0, 7.0, -3.0, 1.0])
    objective = TiltedObjective(rows, Logistic(), 0.1, 50.0)
    block, y, w = (part.astype(np.longdouble) for part in rows.mapped())
    t = theta.astype(np.longdouble)
    z = y * (block @ t)
    losses = w * np.log1p(np.exp(-np.abs(z))) + w * np.maximum(-z, 0)
    p = np.exp(50 * (losses - losses.max()))
    p /= p.sum()
    exact = (p * w * -y / (1 + np.exp(z))) @ block + np.longdouble(0.1) * t
    error = float(np.linalg.norm(objective.gradient(theta) - exact))
    assert error <= objective.rounding_allowance(theta)


def test_sensitivity_tends_to_that_of_the_mean():
    rows = data()
    facts = bounds(rows, Logistic(), 0.1, 0.0)
    mean = LinearBounds(
        **{field.name: getattr(facts, field.name) for field in fields(LinearBounds)}
    )
    assert facts.minimiser_sensitivity(1e-9) == pytest.approx(mean.minimiser_sensitivity(1e-9))
    assert replace(facts, tilt=1e-9).minimiser_sensitivity() == pytest.approx(
        facts.minimiser_sensitivity()
    )


def test_sensitivity_stops_falling_with_samples():
    few = TiltedBounds(1000, 3, Logistic(), 1.0, 1.0, alpha=0.1, tilt=20.0)
    many = replace(few, n_samples=100_000)
    assert not few.falls_with_samples
    assert not many.falls_with_samples
    assert many.minimiser_sensitivity() == pytest.approx(few.minimiser_sensitivity(), rel=1e-6)
    mild = replace(few, tilt=0.1)
    assert mild.falls_with_samples
    ratio = mild.minimiser_sensitivity() / replace(mild, n_samples=100_000).minimiser_sensitivity()
    assert ratio == pytest.approx(100, rel=0.01)
    exactly = replace(few, tilt=few.largest_useful_tilt)
    assert math.exp(exactly.tilt * exactly.loss_range) == pytest.approx(1000)


def test_certificates_survive_the_trip_to_json():
    facts = TiltedBounds(1000, 3, Logistic(), 1.0, 1.0, alpha=0.1, tilt=2.0, coef_bound=1.0)
    for guarantee in (GaussianDP(0.5), ApproxDP(1.0, 1e-6), PureDP(1.0)):
        certificate = OutputPerturbation().certify(facts, guarantee)
        again = Certificate.from_json(certificate.to_json())
        again.verify()
        assert again.bounds == facts
    forged = certificate.to_json().replace('"tilt": 2.0', '"tilt": 0.5')
    assert forged != certificate.to_json()
    with pytest.raises(CertificateError):
        Certificate.from_json(forged).verify()


@pytest.mark.parametrize("mechanism", [ObjectivePerturbation(), NoisyGradientDescent()])
def test_mechanisms_that_add_up_records_are_refused(mechanism):
    facts = TiltedBounds(1000, 3, Logistic(), 1.0, 1.0, alpha=0.1)
    parameters = {}
    if mechanism.name == "gradient":
        parameters = {"gradient": mechanism.settings(None, LogisticKernel())}
    with pytest.raises((ValueError, AttributeError)):
        mechanism.certify(facts, ApproxDP(1.0, 1e-6), parameters)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"neighbors": "add_or_remove_one"}, "replace_one"),
        ({"tilt": -1.0}, "tilt"),
        ({"tilt": math.inf}, "tilt"),
        ({"coef_bound": 0.0}, "coef_bound"),
        ({"row_norm": 0.0}, "row_norm"),
    ],
)
def test_what_has_no_bound_is_refused(change, message):
    facts = {"n_samples": 10, "n_features": 1, "loss": Logistic(), "row_norm": 1.0, "max_norm": 1.0}
    with pytest.raises((ValueError, TypeError), match=message):
        TiltedBounds(**{**facts, **change})


def test_a_kinked_loss_is_refused():
    with pytest.raises(ValueError, match="smooth"):
        OutputPerturbation().certify(
            TiltedBounds(10, 1, Pinball(0.5), 1.0, 1.0, alpha=1.0), GaussianDP(1.0)
        )
