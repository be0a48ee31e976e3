"""Every solver on every problem: the certificate holds at the point returned."""

import math

import numpy as np
import pytest

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Absolute, Hinge, Huber, KinkedLoss, Logistic, Pinball, SoftThreshold
from dpconvex.objectives import EmpiricalObjective
from dpconvex.smoothing import LogisticKernel, convolve, moreau
from dpconvex.solvers import (
    LBFGS,
    BlackBox,
    ConvergenceError,
    Envelope,
    Newton,
    certified_gap,
    certify_point,
)


def objective_of(loss, n=300, d=3, alpha=0.05, seed=0, divisor=None, linear=None, ties=False):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d))
    y = X @ np.linspace(1, -1, d) + 0.2 * rng.standard_normal(n)
    if ties:
        X = np.round(X)
        y = np.round(y)
    if loss.kind == "margin":
        y = np.where(y > 0, 1.0, -1.0)
    rows = MemoryRows(X, y, RowMap.from_bounds(d, (-1.0, 1.0), row_norm=1.2))
    return EmpiricalObjective(rows, loss, alpha, divisor, linear)


SMOOTH_PROBLEMS = {
    "logistic": lambda: objective_of(Logistic()),
    "huber": lambda: objective_of(Huber(0.1)),
    "convolved pinball": lambda: objective_of(convolve(Pinball(0.8), LogisticKernel(), 0.05)),
    "moreau hinge": lambda: objective_of(moreau(Hinge(), 10.0)),
    "nominal divisor and tilt": lambda: objective_of(
        Logistic(), divisor=200.0, linear=[0.1, -0.2, 0.0, 0.3]
    ),
    "one row": lambda: objective_of(Logistic(), n=1),
    "weak penalty": lambda: objective_of(Logistic(), alpha=1e-3),
}


def stays_put(objective, start, tolerance):
    """A solver that does nothing: all the work is left to polishing."""
    return start


def gives_up(objective, start, tolerance):
    raise ConvergenceError("No point was found.")


SMOOTH_SOLVERS = [Newton(), LBFGS(), BlackBox("L-BFGS-B"), BlackBox("BFGS"), BlackBox(stays_put)]


def exact_norm(objective, point):
    """Gradient norm at the point, from margins with twice the digits."""
    return float(np.linalg.norm(objective.refined_gradient(point)[0]))


@pytest.mark.parametrize("solver", SMOOTH_SOLVERS, ids=lambda solver: repr(solver).split(" at ")[0])
@pytest.mark.parametrize("problem", SMOOTH_PROBLEMS)
def test_smooth_matrix(solver, problem):
    objective = SMOOTH_PROBLEMS[problem]()
    tolerance = 1e-10 * objective.gradient_bound
    solution = solver.solve(objective, np.zeros(objective.dim), tolerance)
    assert solution.gradient_norm <= tolerance
    assert exact_norm(objective, solution.point) <= solution.gradient_norm
    reference = Newton().solve(objective, np.ones(objective.dim), tolerance).point
    distance = np.linalg.norm(solution.point - reference)
    assert distance <= 2 * tolerance / objective.alpha


KINKED_PROBLEMS = {
    "pinball": lambda: objective_of(Pinball(0.8)),
    "hinge": lambda: objective_of(Hinge()),
    "hinge, ties": lambda: objective_of(Hinge(), ties=True),
    "absolute, ties": lambda: objective_of(Absolute(), ties=True),
    "soft threshold": lambda: objective_of(SoftThreshold(0.1)),
    "several kinks": lambda: objective_of(KinkedLoss((-0.5, 0.0, 0.7), (-2.0, -0.5, 0.5, 1.0))),
    "nominal divisor and tilt": lambda: objective_of(
        Pinball(0.3), divisor=200.0, linear=[0.1, -0.2, 0.0, 0.3]
    ),
}


@pytest.mark.parametrize(
    ("solver", "gap"),
    [(Envelope(), 1e-7), (BlackBox("L-BFGS-B"), 1e-6), (BlackBox(gives_up), 1e-5)],
    ids=lambda value: repr(value).split(" at ")[0],  # an address differs between processes
)
@pytest.mark.parametrize("problem", KINKED_PROBLEMS)
def test_kinked_matrix(solver, gap, problem):
    objective = KINKED_PROBLEMS[problem]()
    tolerance = math.sqrt(2 * objective.alpha * gap)
    if isinstance(solver, BlackBox) and solver.method != "L-BFGS-B":
        # Its error is the user's to see when called directly.
        with pytest.raises(ConvergenceError):
            solver.solve(objective, np.zeros(objective.dim), tolerance)
        return
    solution = solver.solve(objective, np.zeros(objective.dim), tolerance)
    assert 0 <= solution.gap <= gap
    assert solution.gradient_norm == pytest.approx(math.sqrt(2 * objective.alpha * solution.gap))
    best = Envelope().solve(
        objective, np.zeros(objective.dim), math.sqrt(2 * objective.alpha * 1e-9)
    )
    excess = objective.value(solution.point) - objective.value(best.point)
    assert -best.gap - 1e-14 <= excess <= solution.gap + 1e-14


@pytest.mark.parametrize("problem", KINKED_PROBLEMS)
@pytest.mark.parametrize("smoothness", [0.5, 10.0, 1e4])
def test_certified_gap_is_an_upper_bound_anywhere(problem, smoothness):
    objective = KINKED_PROBLEMS[problem]()
    best = Envelope().solve(
        objective, np.zeros(objective.dim), math.sqrt(2 * objective.alpha * 1e-9)
    )
    rng = np.random.default_rng(1)
    for scale in (0.0, 1e-3, 0.1, 3.0):
        point = best.point + scale * rng.standard_normal(objective.dim)
        excess = objective.value(point) - objective.value(best.point)
        assert certified_gap(objective, point, smoothness) >= excess - 1e-14


def test_capability_errors_name_what_is_missing():
    kinked = objective_of(Pinball(0.5))
    start = np.zeros(4)
    with pytest.raises(ValueError, match="needs a smooth loss"):
        Newton().solve(kinked, start, 1e-3)
    with pytest.raises(TypeError, match="piecewise-linear"):
        Envelope().solve(objective_of(Logistic()), start, 1e-3)
    with pytest.raises(TypeError, match="'method' parameter of BlackBox"):
        BlackBox(3).solve(kinked, start, 1e-3)
    with pytest.raises(ValueError, match="alpha > 0"):
        Envelope().solve(objective_of(Pinball(0.5), alpha=0.0), start, 1e-3)


def test_certify_point_refuses_what_is_not_a_minimiser():
    objective = objective_of(Logistic())
    best = Newton().solve(objective, np.zeros(4), 1e-9).point
    assert certify_point(objective, best, 1e-9) is not None
    assert certify_point(objective, best + 1e-6, 1e-9) is None
    assert certify_point(objective, np.full(4, np.nan), 1e-9) is None
    assert certify_point(objective, np.zeros(3), 1e-9) is None
    kinked = objective_of(Pinball(0.5))
    point = Envelope().solve(kinked, np.zeros(4), 1e-3).point
    assert certify_point(kinked, point, 1e-3) is not None
    assert certify_point(kinked, point + 0.1, 1e-3) is None


@pytest.mark.parametrize(
    "answer", [np.full(4, np.inf), np.full(4, 1e200), np.zeros(2), np.full(4, np.nan)]
)
def test_black_box_recovers_from_nonsense(answer):
    objective = objective_of(Logistic())
    solver = BlackBox(lambda objective, start, tolerance: answer)
    assert solver.solve(objective, np.zeros(4), 1e-9).gradient_norm <= 1e-9
