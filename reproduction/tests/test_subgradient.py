"""The subgradient methods of Algorithms 2 and 3: gaps are certified at the point returned, at
the stated rate.
"""

import math

import numpy as np
import pytest

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Absolute, Hinge, KinkedLoss, Logistic, Pinball, SoftThreshold
from dpconvex.objectives import EmpiricalObjective
from dpconvex.solvers import ConvergenceError, Envelope
from dpconvex_reproduction.output_perturbation.subgradient import StochasticSubgradient, Subgradient

pytestmark = pytest.mark.slow


def objective_of(loss, alpha=0.05, divisor=None, linear=None, ties=False):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 3))
    y = X @ [1.0, 0.0, -1.0] + 0.2 * rng.standard_normal(300)
    if ties:
        X = np.round(X)
        y = np.round(y)
    if loss.kind == "margin":
        y = np.where(y > 0, 1.0, -1.0)
    rows = MemoryRows(X, y, RowMap.from_bounds(3, (-1.0, 1.0), row_norm=1.2))
    return EmpiricalObjective(rows, loss, alpha, divisor, linear)


PROBLEMS = {
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


@pytest.mark.parametrize("solver", [Subgradient(), StochasticSubgradient()], ids=repr)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_gaps_are_certified(solver, problem):
    objective = PROBLEMS[problem]()
    gap = 2e-3
    tolerance = math.sqrt(2 * objective.alpha * gap)
    solution = solver.solve(objective, np.zeros(objective.dim), tolerance)
    assert 0 <= solution.gap <= gap
    assert solution.gradient_norm == pytest.approx(math.sqrt(2 * objective.alpha * solution.gap))
    best = Envelope().solve(
        objective, np.zeros(objective.dim), math.sqrt(2 * objective.alpha * 1e-9)
    )
    excess = objective.value(solution.point) - objective.value(best.point)
    assert -best.gap - 1e-14 <= excess <= solution.gap + 1e-14


def test_the_stated_rate_is_met():
    """After t steps the certified gap is at most 8 L^2 / (alpha (t + 1))."""
    for build in PROBLEMS.values():
        objective = build()
        for power in (4, 6, 8):
            stated = 8 * (objective.gradient_bound + np.linalg.norm(objective.linear)) ** 2
            stated /= objective.alpha * (2**power + 1)
            tolerance = math.sqrt(2 * objective.alpha * stated)
            found = Subgradient(max_iterations=2**power).solve(
                objective, np.zeros(objective.dim), tolerance
            )
            assert found.gap <= stated


@pytest.mark.parametrize("solver", [Subgradient(20), StochasticSubgradient(max_iterations=20)])
def test_refusals(solver):
    with pytest.raises(ConvergenceError, match="limit of steps"):
        solver.solve(objective_of(Pinball(0.5)), np.zeros(4), 1e-4)
    with pytest.raises(ValueError, match="alpha > 0"):
        solver.solve(objective_of(Pinball(0.5), alpha=0.0), np.zeros(4), 1e-3)


@pytest.mark.parametrize("loss", [Pinball(0.7), Logistic()])
def test_compiled_steps_are_the_plain_ones(loss, monkeypatch):
    """A loss of the user's own takes steps that are not compiled: the same ones."""
    objective = objective_of(loss, alpha=0.3)
    points = []
    for known in (True, False):
        if not known:
            monkeypatch.setattr(
                "dpconvex_reproduction.output_perturbation.subgradient.compile_slope",
                lambda loss: None,
            )
        points.append(StochasticSubgradient().solve(objective, np.zeros(4), 0.05).point)
    assert points[0] == pytest.approx(points[1], abs=1e-9)
