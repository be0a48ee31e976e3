"""Solver x problem matrix: the certificate holds at the returned point, whatever the data."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import expit

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Absolute, Hinge, Huber, Logistic, Pinball, Squared
from dpconvex.objectives import EmpiricalObjective
from dpconvex.smoothing import (
    EpanechnikovKernel,
    GaussianKernel,
    LogisticKernel,
    UniformKernel,
    convolve,
)
from dpconvex.solvers import LBFGS, ConvergenceError, Newton, Solution, newton_or_lbfgs

SOLVERS = [Newton(), LBFGS()]


def reachable_tolerance(objective, radius):
    """Gradient norm that float64 can certify for minimisers in a ball: roundings of the sum, and
    of the minimiser.
    """
    roundings = (objective.rows.additions + 40) * objective.gradient_bound
    roundings += 8 * objective.smoothness * radius + 4 * np.linalg.norm(objective.linear)
    return 2.0**-53 * roundings


def plain(rng):
    X = rng.normal(size=(300, 6))
    return X, X[:, 0] + rng.normal(size=300)


def duplicate_columns(rng):
    X, y = plain(rng)
    return np.column_stack([X, X, X[:, :1] + X[:, 1:2]]), y


def constant_columns(rng):
    X, y = plain(rng)
    X[:, 1] = 2.0
    X[:, 2] = 0.0
    return X, y


def fewer_rows_than_columns(rng):
    return rng.normal(size=(5, 30)), rng.normal(size=5)


def equal_targets(rng):
    return plain(rng)[0], np.full(300, 0.7)


def zero_rows(rng):
    X, y = plain(rng)
    return 0 * X, y


def huge_rows(rng):
    X, y = plain(rng)
    return 1e6 * X, y


def one_row(rng):
    X, y = plain(rng)
    return X[:1], y[:1]


def integers(rng):
    X, y = plain(rng)
    return np.round(X), np.round(y)


def heavy_tails(rng):
    X, _ = plain(rng)
    return X * np.exp(3 * rng.normal(size=(300, 1))), rng.standard_cauchy(300)


def two_clusters(rng):
    X, y = plain(rng)
    return X, np.where(y > 0, 1e3, -1e3) + rng.integers(0, 2, 300)


DATA = [
    plain,
    duplicate_columns,
    constant_columns,
    fewer_rows_than_columns,
    equal_targets,
    zero_rows,
    huge_rows,
    one_row,
    integers,
    heavy_tails,
    two_clusters,
]


def losses(bandwidth):
    return [
        convolve(Pinball(0.9), LogisticKernel(), bandwidth),
        convolve(Pinball(0.05), UniformKernel(), bandwidth),
        convolve(Absolute(), EpanechnikovKernel(), bandwidth),
        convolve(Absolute(), GaussianKernel(), bandwidth),
        convolve(Hinge(), UniformKernel(), bandwidth),
        Huber(bandwidth),
        Logistic(),
    ]


def build(data, loss, bounds, alpha, linear_size=0.0, seed=0):
    rng = np.random.default_rng(seed)
    X, y = data(rng)
    if loss.kind == "margin":
        y = np.where(y > 0, 1.0, -1.0)
    row_map = RowMap.from_bounds(X.shape[1], bounds, None if bounds else 2.0)
    linear = linear_size * rng.normal(size=row_map.dim)
    return EmpiricalObjective(MemoryRows(X, y, row_map), loss, alpha, linear=linear)


def independent_norm(objective, theta, exact=False):
    """Gradient norm by another road: extended or rational margins, correctly rounded sums."""
    loss, x, y, w = objective.loss, *objective.rows.mapped()

    def wide(array):
        if exact:
            return np.vectorize(Fraction, otypes=[object])(array)
        return array.astype(np.longdouble)

    z = wide(x) @ wide(theta)
    if loss.kind == "residual":
        slopes = loss.gradient((wide(y) - z).astype(np.float64), np.zeros(len(y)))
    else:
        slopes = loss.gradient(y, z.astype(np.float64))
    sums = np.array([math.fsum(w * slopes * column) for column in x.T])
    return float(
        np.linalg.norm(sums / objective.divisor + objective.alpha * theta + objective.linear)
    )


@pytest.mark.parametrize("solver", SOLVERS, ids=["newton", "lbfgs"])
@pytest.mark.parametrize("data", DATA, ids=lambda f: f.__name__)
@pytest.mark.parametrize("bandwidth", [1.0, 1e-2, 1e-4])
def test_certified_on_every_input(solver, data, bandwidth):
    """1e-10 of the gradient bound, ridge down to 1e-7, rows weighted or shortened."""
    for loss in losses(bandwidth):
        for bounds, alpha in [(None, 1e-7), ((-3.0, 3.0), 1e-7), ((-1e3, 1e3), 1e-2)]:
            objective = build(data, loss, bounds, alpha)
            tolerance = 1e-10 * objective.gradient_bound
            solution = solver.solve(objective, np.zeros(objective.dim), tolerance)
            assert solution.gradient_norm <= tolerance
            # The independent sum has rounding errors of its own, far below the tolerance.
            independent = independent_norm(objective, solution.point)
            assert independent <= solution.gradient_norm + 1e-14 * objective.gradient_bound


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(400))
def test_certified_on_random_problems(seed):
    """Shapes, scales, ties, sparsity, bandwidths and ridges at random, over many orders."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([1, 2, 3, 10, 50, 300]))
    d = int(rng.choice([1, 2, 5, 15, 40]))
    X = rng.normal(size=(n, d)) * 10 ** rng.uniform(-3, 3, size=rng.choice([1, d]))
    if rng.random() < 0.3:
        X = np.round(X)
    X *= rng.random(size=X.shape) < rng.choice([0.1, 1.0])
    y = 10 ** rng.uniform(-6, 1) * rng.standard_t(rng.choice([1, 2, 30]), size=n)
    loss = losses(10 ** rng.uniform(-6, 1))[rng.integers(7)]
    bounds = [None, (-1, 1), (-100, 100), (0, 1), (1, 5)][rng.integers(5)]
    linear = rng.choice([0, 1e-3, 1.0, 100.0])
    objective = build(lambda _: (X, y), loss, bounds, 10 ** rng.uniform(-7, 0), linear, seed)
    bound = objective.gradient_bound + float(np.linalg.norm(objective.linear))
    reachable = reachable_tolerance(objective, bound / objective.alpha)
    for solver in SOLVERS:
        tolerance = max(1e-10 * bound, reachable)
        solution = solver.solve(objective, np.zeros(objective.dim), tolerance)
        independent = independent_norm(objective, solution.point, exact=True)
        assert independent <= solution.gradient_norm + 1e-14 * bound


@pytest.mark.parametrize("solver", SOLVERS, ids=["newton", "lbfgs"])
def test_targets_far_beyond_the_bandwidth_reach_what_float64_can(solver):
    """Targets 10 orders of magnitude above the bandwidth: the public tolerance suffices."""
    for loss in losses(1e-4)[:4]:
        objective = build(lambda rng: (plain(rng)[0], 1e6 * plain(rng)[1]), loss, None, 1e-7)
        radius = objective.gradient_bound / objective.alpha
        tolerance = reachable_tolerance(objective, radius)
        solution = solver.solve(objective, np.zeros(objective.dim), tolerance)
        assert solution.gradient_norm <= tolerance


@pytest.mark.parametrize("solver", SOLVERS, ids=["newton", "lbfgs"])
@pytest.mark.parametrize("linear_size", [1e-3, 1.0, 1e3])
def test_linear_term_of_any_size(solver, linear_size):
    """The noise of objective perturbation may dwarf the data."""
    for loss in losses(0.01):
        objective = build(plain, loss, (-3.0, 3.0), 1e-3, linear_size)
        tolerance = 1e-10 * (objective.gradient_bound + linear_size)
        solution = solver.solve(objective, np.zeros(objective.dim), tolerance)
        assert independent_norm(objective, solution.point) <= tolerance


@pytest.mark.parametrize("solver", SOLVERS, ids=["newton", "lbfgs"])
def test_far_start_and_least_squares(solver):
    objective = build(plain, Squared(), (-3.0, 3.0), 0.1)
    x, y, w = objective.rows.mapped()
    solution = solver.solve(objective, np.full(7, 1e6), 1e-10)
    # Squared() is u^2 or u^2 / 2: its curvature says which.
    curvature = float(Squared().curvature(np.zeros(1), np.zeros(1))[0])
    matrix = curvature * (x.T * w) @ x / len(y) + 0.1 * np.eye(7)
    expected = np.linalg.solve(matrix, curvature * (x.T * w) @ y / len(y))
    np.testing.assert_allclose(solution.point, expected, rtol=1e-8)


@pytest.mark.parametrize("solver", SOLVERS, ids=["newton", "lbfgs"])
def test_start_at_the_solution_returns_at_once(solver):
    objective = build(plain, Logistic(), None, 1e-2)
    first = solver.solve(objective, np.zeros(7), 1e-10)
    again = solver.solve(objective, first.point, 1e-10)
    assert again == Solution(again.point, first.gradient_norm, 0)
    np.testing.assert_array_equal(first.point, again.point)


def test_solvers_agree_and_repeat_bitwise():
    objective = build(plain, losses(0.1)[0], (-3.0, 3.0), 1e-3)
    points = [solver.solve(objective, np.zeros(7), 1e-11).point for solver in SOLVERS]
    np.testing.assert_allclose(points[0], points[1], atol=2e-8)  # 2 tolerance / alpha
    np.testing.assert_array_equal(points[0], Newton().solve(objective, np.zeros(7), 1e-11).point)


@pytest.mark.parametrize("condition", [1.0, 1e4])
def test_subsample_start_needs_few_passes(condition, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40_000, 10)) * np.geomspace(1, condition**-0.5, 10)
    X = X @ np.linalg.qr(rng.normal(size=(10, 10)))[0]
    y = X @ rng.normal(size=10) + rng.normal(size=40_000)
    objective = EmpiricalObjective(
        MemoryRows(X, y, RowMap.from_bounds(10, (-4, 4))), losses(0.2)[0], 1e-4
    )
    tolerance = 1e-10 * objective.gradient_bound
    seen = []
    for name in ("sum", "combine"):
        own = getattr(MemoryRows, name)
        monkeypatch.setattr(
            MemoryRows,
            name,
            lambda rows, *args, own=own: seen.append(rows.n_rows) or own(rows, *args),
        )
    solution = Newton(sample_rows=5000).solve(objective, np.zeros(11), tolerance)
    assert 40_000 < sum(seen) <= 20 * 40_000  # one pass may be counted as both
    monkeypatch.undo()
    assert independent_norm(objective, solution.point) <= tolerance


@pytest.mark.parametrize("seed", range(3))
def test_subsample_that_misleads_is_only_a_start(seed):
    """Rows that matter are too rare for the subsample to see."""
    rng = np.random.default_rng(seed)
    X = np.zeros((4000, 3))
    y = np.zeros(4000)
    rare = rng.choice(4000, 4, replace=False)
    X[rare] = rng.normal(size=(4, 3))
    y[rare] = 100.0
    objective = EmpiricalObjective(MemoryRows(X, y, RowMap(3, 2.0)), losses(0.01)[0], 1e-6)
    tolerance = 1e-10 * objective.gradient_bound
    solution = Newton(sample_rows=100).solve(objective, np.zeros(4), tolerance)
    assert independent_norm(objective, solution.point) <= tolerance


def test_many_coefficients():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 600)) * (rng.random(size=(800, 600)) < 0.05)
    y = X[:, :5].sum(axis=1) + rng.normal(size=800)
    objective = EmpiricalObjective(
        MemoryRows(X, y, RowMap.from_bounds(600, (-3, 3))), losses(0.2)[0], 1e-3
    )
    solver = newton_or_lbfgs(objective.dim)
    assert solver == LBFGS()
    tolerance = 1e-10 * objective.gradient_bound
    solution = solver.solve(objective, np.zeros(601), tolerance)
    assert independent_norm(objective, solution.point) <= tolerance


class Minimal:
    """A pointwise loss as a user would write it, with nothing but the protocol."""

    kind = "residual"
    lipschitz = 0.5
    smoothness = 25.0

    def value(self, y, z):
        return 0.01 * np.logaddexp(0, (y - z) / 0.01) - 0.5 * (y - z)

    def gradient(self, y, z):
        return 0.5 - expit((y - z) / 0.01)

    def curvature(self, y, z):
        p = expit((y - z) / 0.01)
        return 100 * p * (1 - p)


@pytest.mark.parametrize("solver", SOLVERS, ids=["newton", "lbfgs"])
def test_users_own_loss(solver):
    objective = build(plain, Minimal(), (-3.0, 3.0), 1e-4)
    assert solver.solve(objective, np.zeros(7), 1e-10).gradient_norm <= 1e-10


@pytest.mark.parametrize("solver", SOLVERS, ids=["newton", "lbfgs"])
def test_refuses_what_cannot_be_solved(solver):
    objective = build(plain, Logistic(), None, 1e-2)
    with pytest.raises(ValueError, match="'start'"):
        solver.solve(objective, np.zeros(3), 1e-8)
    with pytest.raises(ValueError, match="'tolerance'"):
        solver.solve(objective, np.zeros(7), 0.0)
    with pytest.raises(ValueError, match="alpha > 0"):
        solver.solve(build(plain, Logistic(), None, 0.0), np.zeros(7), 1e-8)
    with pytest.raises(ValueError, match="smooth loss"):
        solver.solve(build(plain, Pinball(0.5), None, 0.1), np.zeros(7), 1e-8)
    with pytest.raises(TypeError, match="value_and_gradient"):
        solver.solve(object(), np.zeros(7), 1e-8)


@pytest.mark.parametrize(
    "solver",
    [Newton(max_iterations=50), LBFGS(max_iterations=20, newton=False)],
    ids=["newton", "lbfgs"],
)
def test_impossible_tolerance_is_an_error_without_data_values(solver):
    objective = build(plain, losses(0.1)[0], None, 1e-3)
    with pytest.raises(ConvergenceError, match="at most 1e-19 was found"):
        solver.solve(objective, np.zeros(7), 1e-19)


def test_default_solver_by_size():
    assert newton_or_lbfgs(500) == Newton()
    assert newton_or_lbfgs(501) == LBFGS()
