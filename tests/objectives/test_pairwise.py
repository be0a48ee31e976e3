"""Pairwise losses and objectives against brute force; bounds and calibration against their
formulas.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from dpconvex.losses import PairHinge, PairLogistic, PairSquared, PairSquaredHinge
from dpconvex.mechanisms import Moments, OutputPerturbation, PairwiseObjectivePerturbation
from dpconvex.objectives import PairwiseObjective
from dpconvex.privacy import (
    ApproxDP,
    Certificate,
    CertificateError,
    GaussianDP,
    PairwiseBounds,
    PureDP,
    gaussian_scale,
)
from dpconvex.privacy.objective_perturbation_calibration import (
    trace_objective_delta,
    trace_objective_laplace_scale,
    trace_objective_scale,
)
from dpconvex.solvers import LBFGS, Newton

LOSSES = [PairLogistic("2"), PairLogistic("e"), PairHinge(0.3), PairSquared(), PairSquaredHinge()]
rng = np.random.default_rng(1)
X = rng.normal(size=(60, 3)) / 2
Y = X[:, 0] + 0.5 * rng.normal(size=60) > 0.3


@pytest.mark.parametrize("loss", [*LOSSES, PairHinge(0)], ids=repr)
def test_losses_have_their_derivatives_and_constants(loss):
    t = np.linspace(-8, 8, 4001) + 1e-4
    step = 1e-6
    slope = (loss.value(t + step) - loss.value(t - step)) / (2 * step)
    np.testing.assert_allclose(loss.slope(t), slope, atol=2e-5)
    assert np.all(np.diff(loss.slope(t)) >= -1e-12)
    assert np.abs(loss.slope(t)).max() <= loss.lipschitz
    assert loss.curvature(t).max() <= loss.smoothness + 1e-12
    if loss.monotone:
        assert np.all(loss.slope(t) <= 0)
    if not isinstance(loss, PairHinge) or loss.width == 0:
        base = math.log(2) if loss == PairLogistic("e") else 1.0
        assert float(loss.value(0.0)) == pytest.approx(base)


def test_smoothed_hinge_is_the_moreau_envelope():
    t = np.linspace(-3, 3, 61)
    candidates = np.linspace(-5, 5, 20_001)
    hinge = np.maximum(0, 1 - candidates)
    width = 0.4
    envelope = [(hinge + (candidates - at) ** 2 / (2 * width)).min() for at in t]
    np.testing.assert_allclose(PairHinge(width).value(t), envelope, atol=1e-6)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("least", [1, 50])
def test_objective_equals_the_sum_over_pairs(loss, least):
    rng = np.random.default_rng(2)
    alpha = 0.3
    linear = rng.normal(size=3)
    objective = PairwiseObjective(X, Y, loss, alpha, least, 1, linear)
    w = rng.normal(size=3)
    pairs = (X[Y][:, None, :] - X[~Y][None, :, :]).reshape(-1, 3)
    divisor = max(Y.sum(), least) * (~Y).sum()
    t = pairs @ w
    value = loss.value(t).sum() / divisor + alpha / 2 * w @ w + linear @ w
    gradient = loss.slope(t) @ pairs / divisor + alpha * w + linear
    hessian = (pairs * loss.curvature(t)[:, None]).T @ pairs / divisor + alpha * np.eye(3)
    found = objective.value_and_gradient(w)
    assert objective.value(w) == found[0] == pytest.approx(value, rel=1e-12)
    np.testing.assert_allclose(found[1], gradient, atol=1e-13)
    np.testing.assert_allclose(objective.hessian(w), hessian, atol=1e-10)
    np.testing.assert_allclose(objective.gradient(w), gradient, atol=1e-13)
    assert np.linalg.norm(objective.gradient(w) - gradient) <= objective.rounding_allowance(w)
    assert objective.rounding_allowance(w) < 1e-9


def test_least_squares_has_its_closed_form_in_class_moments():
    alpha = 0.2
    objective = PairwiseObjective(X, Y, PairSquared(), alpha)
    point = Newton().solve(objective, np.zeros(3), 1e-10).point
    m = X[Y].mean(0) - X[~Y].mean(0)
    covariances = np.cov(X[Y].T, bias=True) + np.cov(X[~Y].T, bias=True)
    closed = np.linalg.solve(covariances + np.outer(m, m) + alpha / 2 * np.eye(3), m)
    np.testing.assert_allclose(point, closed, atol=1e-8)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_solvers_certify_to_the_public_tolerance(loss):
    bounds = PairwiseBounds(60, 3, loss, 3.0, alpha=1e-3, min_positive=10, min_negative=10)
    objective = PairwiseObjective(X, Y, loss, 1e-3, 10, 10, row_norm=3.0)
    points = [
        solver.solve(objective, np.zeros(3), bounds.solver_tolerance())
        for solver in (Newton(), LBFGS())
    ]
    distance = np.linalg.norm(points[0].point - points[1].point)
    assert distance <= 2 * bounds.solver_tolerance() / bounds.alpha


def test_one_class_leaves_only_the_penalty():
    objective = PairwiseObjective(X, np.zeros(60), PairLogistic(), 0.5)
    np.testing.assert_array_equal(objective.gradient(np.ones(3)), 0.5 * np.ones(3))
    assert Newton().solve(objective, np.ones(3), 1e-9).point == pytest.approx(np.zeros(3))


def test_bounds_follow_their_formulas():
    facts = PairwiseBounds(1000, 5, PairLogistic("e"), 1.0, None, 20, 300, alpha=0.1)
    assert facts.distance == 2.0
    expected = 2.0 * max(1 / 20 + 1 / 301, 1 / 300 + 1 / 21)
    assert facts.gradient_sensitivity == pytest.approx(expected)
    other = replace(facts, loss=PairSquared())  # slopes of both signs
    assert other.pair_factor == pytest.approx(
        max(2 / 20, 2 / 300, 1 / 20 + 2 / 301, 1 / 300 + 2 / 21)
    )
    assert facts.curvature_ratio == pytest.approx(0.25 * 4 * (1 / 20 + 1 / 300) / 0.1)
    assert facts.minimiser_sensitivity(1e-9) == pytest.approx(expected / 0.1 + 2e-8)
    public = replace(facts, label_private=False)
    assert public.gradient_sensitivity == pytest.approx(2.0 / 20)
    squares = replace(public, loss=PairSquared())
    slope = 2 * (1 + 2 * math.sqrt(2 / 0.1))
    assert squares.gradient_sensitivity == pytest.approx(2 * 2 * slope / 20)
    assert replace(facts, diameter=1.5).distance == 1.5
    assert replace(facts, diameter=9.0).distance == 2.0


def test_bad_facts_are_refused():
    with pytest.raises(ValueError, match="min_positive"):
        PairwiseBounds(10, 2, PairLogistic(), 1.0, min_positive=0)
    with pytest.raises(TypeError, match="label_private"):
        PairwiseBounds(10, 2, PairLogistic(), 1.0, label_private="no")
    with pytest.raises(ValueError, match="'base'"):
        PairLogistic("10")


def test_gaussian_calibration_is_safe_and_close_to_the_gaussian_mechanism():
    for epsilon, delta in ((0.1, 1e-9), (1.0, 1e-5), (3.0, 1e-3)):
        kappa = epsilon / (8 * math.log(1 / delta))
        std = trace_objective_scale(epsilon, delta, 1.0, kappa, "replace_one")
        assert trace_objective_delta(epsilon, 1.0 / std, kappa, "replace_one") <= delta
        plain = gaussian_scale(epsilon, delta, 2.0)
        assert plain < std < 1.2 * plain
        assert trace_objective_scale(epsilon, delta, 1.0, kappa / 10, "replace_one") < std
    with pytest.raises(ValueError, match="larger alpha"):
        trace_objective_scale(0.1, 1e-6, 0.5, 1.0, "replace_one")


def test_orders_keep_to_the_conditions_of_the_trace_form():
    """With kappa above 1 no order is left; just below 1 the bound must not be trusted beyond
    order 1 / kappa^2.
    """
    assert trace_objective_delta(10.0, 0.005, 1.0, "replace_one") == 1.0
    assert trace_objective_delta(10.0, 0.005, 0.9, "replace_one") > trace_objective_delta(
        10.0, 0.005, 0.09, "replace_one"
    )


def test_pure_calibration_follows_its_formula():
    assert trace_objective_laplace_scale(1.0, 0.5, 0.2, 3) == pytest.approx(
        0.5 / (1 - 3 * math.log1p(0.2 / 3))
    )
    with pytest.raises(ValueError, match="larger alpha"):
        trace_objective_laplace_scale(0.1, 1.0, 1.0, 3)


@pytest.mark.parametrize(
    ("mechanism", "guarantee"),
    [
        (Moments(), ApproxDP(1.0, 1e-6)),
        (OutputPerturbation(), PureDP(1.0)),
        (PairwiseObjectivePerturbation(), ApproxDP(1.0, 1e-6)),
        (PairwiseObjectivePerturbation(), PureDP(1.0)),
        (Moments(), GaussianDP(0.5)),
    ],
    ids=str,
)
def test_certificates_survive_a_round_trip_and_notice_edits(mechanism, guarantee):
    bounds = PairwiseBounds(1000, 4, PairLogistic(), 1.0, None, 50, 100, alpha=2.0)
    certificate = mechanism.certify(bounds, guarantee)
    read = Certificate.from_json(certificate.to_json())
    assert read.bounds == bounds
    read.verify()
    with pytest.raises(CertificateError):
        replace(read, bounds=replace(bounds, min_positive=100, row_norm=0.5)).verify()


def test_budget_of_moments_adds_up():
    bounds = PairwiseBounds(1000, 4, PairLogistic(), 1.0, None, 50, 100)
    terms = Moments().certify(bounds, GaussianDP(0.5)).noise.values()
    spent = sum(t["releases"] * (t["sensitivity"] / t["std"]) ** 2 for t in terms)
    assert math.sqrt(spent) == pytest.approx(0.5, rel=1e-5)
    assert math.sqrt(spent) <= 0.5


@pytest.mark.parametrize("mechanism", ["output", "objective", "moments"])
def test_public_labels_are_a_weaker_promise_and_say_so(mechanism, tmp_path):
    from dpconvex import DPAUCClassifier, DPLogisticRegression
    from dpconvex.privacy import Certificate, Ledger, LedgerError
    from dpconvex.reports.wording import guarantee_meaning_wording

    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (300, 2))
    y = (X.sum(axis=1) + 0.3 * rng.standard_normal(300) > 1).astype(int)
    ledger = Ledger(tmp_path / "budget.db", epsilon=10.0, delta=1e-3)
    settings = {"feature_bounds": (0, 1), "mechanism": mechanism, "ledger": ledger}
    settings |= {"loss": "squared"} if mechanism == "moments" else {}
    model = DPAUCClassifier(label_private=False, min_positive=50, min_negative=50, **settings)
    certificate = model.fit(X, y).certificate_
    assert certificate.neighbors == "replace_one_keeping_label"
    assert certificate.to_json() == model.certify(300, 2).to_json()
    Certificate.from_json(certificate.to_json()).verify()
    assert "same label" in guarantee_meaning_wording(certificate.guarantee, certificate.neighbors)
    with pytest.raises(LedgerError, match="do not add up"):
        DPLogisticRegression(feature_bounds=(0, 1), ledger=ledger).fit(X, y)
