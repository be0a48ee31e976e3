"""Certified minimisers with far more rows than the divisor says: rounding must not decide
whether a fit succeeds.
"""

import math

import mpmath
import numpy as np
import pytest

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.engine.compensated_kernels import CompensatedBlockSum
from dpconvex.losses import Huber, L1Norm, Logistic, Pinball
from dpconvex.objectives import AdversarialObjective, EmpiricalObjective
from dpconvex.objectives.structured_objective import StructuredObjective, StructuredRecords
from dpconvex.privacy import LinearBounds
from dpconvex.smoothing import (
    GaussianKernel,
    LogisticKernel,
    UniformKernel,
    convolve,
    convolve_vector,
)
from dpconvex.solvers import LBFGS, ConvergenceError, Envelope, Newton

UNIT = 2.0**-53
LOSSES = {
    "huber": Huber(0.5),
    "logistic kernel": convolve(Pinball(0.3), LogisticKernel(), 0.1),
    "nearly kinked": convolve(Pinball(0.3), UniformKernel(), 1e-3),
}


def crowded(loss, multiple, rows=3000, far=1e6, alpha=1e-3):
    """Half of the rows pull the coefficients far out, the others have all their curvature there."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    X /= np.linalg.norm(X, axis=1)[:, None]
    half = rows // 2
    X[:half] = [0.03, 0.0]
    y = np.full(rows, far)
    width = loss.lipschitz / loss.smoothness if math.isfinite(loss.smoothness) else 0.1
    y[half:] = X[half:] @ [10 * far, 0.0] + 0.3 * width * rng.normal(size=rows - half)
    engine = MemoryRows(X, y, RowMap(2, 1.0, fit_intercept=False), threads=1)
    return EmpiricalObjective(engine, loss, alpha, divisor=rows / multiple)


def test_sums_keep_their_digits():
    rng = np.random.default_rng(1)
    block = rng.normal(size=(4000, 3)) * 10.0 ** rng.integers(-8, 8, size=(4000, 3))
    multiples = rng.normal(size=4000)
    half = CompensatedBlockSum(multiples[:1500], block[:1500])
    half += CompensatedBlockSum(multiples[1500:], block[1500:])
    products = multiples[:, None] * block
    for j, value in enumerate(half.value):
        assert abs(value - math.fsum(products[:, j])) <= 2 * UNIT * abs(value) + 1e-24
    # The sum of numbers that cancel is right to its own digits, which a plain sum is not.
    tiny = np.tile([[1e16], [1.0], [-1e16]], (500, 1))
    assert CompensatedBlockSum(np.ones(1500), tiny).value[0] == 500.0


@pytest.mark.parametrize("name", LOSSES)
def test_refined_gradients_err_by_less_than_they_say(name):
    objective = crowded(LOSSES[name], 1e5, rows=60)
    theta = np.array([1e7 / 3, -math.pi])
    offset = np.array([3e-9, -2e-17])
    gradient, allowance = objective.refined_gradient(theta, offset)
    block, y, w = objective.rows.mapped()
    with mpmath.workdps(60):
        point = [mpmath.mpf(a) + mpmath.mpf(b) for a, b in zip(theta, offset, strict=True)]
        exact = [objective.alpha * p for p in point]
        for x, target, weight in zip(block, y, w, strict=True):
            margin = sum(mpmath.mpf(a) * p for a, p in zip(x, point, strict=True))
            slope = exact_slope(objective.loss, mpmath.mpf(target) - margin)
            for j in range(2):
                exact[j] -= weight * slope * mpmath.mpf(x[j]) / objective.divisor
        error = float(mpmath.sqrt(sum((g - e) ** 2 for g, e in zip(gradient, exact, strict=True))))
    assert error <= allowance
    share = objective.n_rows / objective.divisor
    assert allowance <= 60 * UNIT * (share * objective.loss.lipschitz + objective.alpha * 1e7)


def exact_slope(loss, u):
    """Derivative of the loss in its residual, in multiple precision."""
    if isinstance(loss, Huber):
        return max(-loss.width, min(loss.width, u))
    t = u / loss.bandwidth
    step = 1 / (1 + mpmath.exp(-t)) if isinstance(loss.kernel, LogisticKernel) else (t + 1) / 2
    return loss.loss.quantile - 1 + max(mpmath.mpf(0), min(mpmath.mpf(1), step))


@pytest.mark.parametrize("solver", [Newton(), LBFGS()], ids=["newton", "lbfgs"])
@pytest.mark.parametrize("multiple", [1e3, 1e5, 1e6])
@pytest.mark.parametrize("name", LOSSES)
def test_rounding_of_coefficients_does_not_keep_a_solver_from_certifying(name, multiple, solver):
    objective = crowded(LOSSES[name], multiple)
    tolerance = 1e-14 * multiple + 1e-9
    found = solver.solve(objective, np.zeros(2), tolerance)
    assert found.gradient_norm <= tolerance
    # Judged from elsewhere: another search, around another centre, ends within both certificates.
    other = LBFGS(newton=False) if isinstance(solver, Newton) else Newton(sample_rows=100)
    again = other.solve(objective, 0.5 * found.point, tolerance)
    assert np.linalg.norm(again.point - found.point) <= 2 * tolerance / objective.alpha


def test_without_more_digits_they_would_not_certify(monkeypatch):
    def give_up(descent, solver):
        raise descent.failure()

    monkeypatch.setattr(
        "dpconvex.solvers.certified_descent.CertifiedDescent.solve_around_best", give_up
    )
    with pytest.raises(ConvergenceError):
        Newton().solve(crowded(LOSSES["huber"], 1e5), np.zeros(2), 2e-9)


@pytest.mark.parametrize("multiple", [1.0, 1e4])
def test_kinked_losses_too(multiple):
    objective = crowded(Pinball(0.3), multiple)
    tolerance = 1e-6 * multiple
    found = Envelope().solve(objective, np.zeros(2), tolerance)
    assert found.gradient_norm <= tolerance
    finer = Envelope().solve(objective, found.point, tolerance / 30)
    assert np.linalg.norm(finer.point - found.point) <= 1.1 * tolerance / objective.alpha


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_robust_objectives_too(norm):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(2000, 3))
    y = np.where(rng.random(2000) < 0.5, 1.0, -1.0)
    engine = MemoryRows(X, y, RowMap(3, 1.0), threads=1)
    objective = AdversarialObjective(engine, Logistic(), 1e-3, 0.1, norm, divisor=0.02)
    tolerance = 1e-9
    theta = np.array([3e3, 1e3, -7e2, 0.3])
    offset = np.array([1e-14, 3e-13, 0.0, -1e-17])
    refined, error = objective.refined_gradient(theta, offset)
    assert np.linalg.norm(refined - objective.gradient(theta)) <= error + (
        objective.rounding_allowance(theta)
        + np.linalg.norm(objective.hessian(theta), 2) * 2 * np.linalg.norm(offset)
    )
    assert error < 0.005 * objective.rounding_allowance(theta)
    for solver in (Newton(), LBFGS()):
        assert solver.solve(objective, np.zeros(4), tolerance).gradient_norm <= tolerance


def test_records_that_are_matrices_too():
    rng = np.random.default_rng(3)
    A = rng.normal(size=(300, 2, 3))
    Y = A @ np.array([2e3, -1e3, 5e2]) + 0.1 * rng.normal(size=(300, 2))
    loss = convolve_vector(L1Norm(2), GaussianKernel(2), 0.05)
    objective = StructuredObjective(StructuredRecords(A, Y, 5.0), loss, 1e-3, divisor=0.1)
    point = Newton().solve(objective, np.zeros(3), 1e-6).point
    refined, error = objective.refined_gradient(point)
    assert np.linalg.norm(refined - objective.gradient(point)) <= (
        error + objective.rounding_allowance(point)
    )
    coarse = objective.rounding_allowance(point)
    assert error < 0.02 * coarse
    tolerance = 0.05 * coarse
    found = Newton().solve(objective, np.zeros(3), tolerance)
    assert found.gradient_norm <= tolerance


@pytest.mark.parametrize("nominal", [1, 400, 100_000])
def test_the_public_tolerance_covers_ten_billion_rows(nominal):
    # What refined gradients leave per row, 30 roundings of its slope, against the tolerance.
    for loss in LOSSES.values():
        bounds = LinearBounds(nominal, 2, loss, 1.0, 1.0, alpha=0.01, neighbors="add_or_remove_one")
        share = 1e10 / nominal
        assert 30 * UNIT * share * bounds.lipschitz <= bounds.solver_tolerance()
