"""Accelerated methods of the output-perturbation paper: the certificate holds at the point
returned.
"""

import numpy as np
import pytest
from scipy import sparse

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.engine.sparse_rows import SparseRows
from dpconvex.losses import Hinge, Huber, Logistic, Pinball
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.objectives import CostlyAdversaryObjective, EmpiricalObjective, TiltedObjective
from dpconvex.privacy import GaussianDP, RobustBounds
from dpconvex.smoothing import LogisticKernel, convolve, moreau
from dpconvex.solvers import ConvergenceError, Newton
from dpconvex_reproduction.output_perturbation.accelerated import (
    AcceleratedGradient,
    Katyusha,
    MinimaxProximalPoint,
    SaddleProblem,
    accelerated_curvature_bound,
    saddle_problem,
)

pytestmark = pytest.mark.slow


def objective_of(loss, n=300, alpha=0.05, divisor=None, linear=None):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    y = X @ [1.0, 0.0, -1.0] + 0.2 * rng.standard_normal(n)
    if loss.kind == "margin":
        y = np.where(y > 0, 1.0, -1.0)
    return EmpiricalObjective(
        MemoryRows(X, y, RowMap.from_bounds(3, (-1.0, 1.0), 1.2)), loss, alpha, divisor, linear
    )


PROBLEMS = {
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


@pytest.mark.parametrize(
    "solver", [AcceleratedGradient(), AcceleratedGradient(restart=False), Katyusha()], ids=repr
)
@pytest.mark.parametrize("problem", PROBLEMS)
def test_gradients_are_certified(solver, problem):
    objective = PROBLEMS[problem]()
    tolerance = 1e-10 * objective.gradient_bound
    solution = solver.solve(objective, np.zeros(objective.dim), tolerance)
    assert solution.gradient_norm <= tolerance
    assert np.linalg.norm(objective.refined_gradient(solution.point)[0]) <= solution.gradient_norm
    reference = Newton().solve(objective, np.ones(objective.dim), tolerance).point
    assert np.linalg.norm(solution.point - reference) <= 2 * tolerance / objective.alpha


def test_projected_gradient_solves_the_constrained_problem():
    objective = objective_of(Logistic(), alpha=0.01)
    free = Newton().solve(objective, np.zeros(objective.dim), 1e-9).point
    radius = 0.5 * float(np.linalg.norm(free))
    tolerance = 1e-9
    solution = AcceleratedGradient(radius=radius).solve(
        objective, 5 * np.ones(objective.dim), tolerance
    )
    point = solution.point
    assert np.linalg.norm(point) <= radius
    assert solution.gradient_norm <= tolerance
    # The variational inequality: no feasible direction descends by more than the tolerance.
    gradient = objective.gradient(point)
    rng = np.random.default_rng(0)
    others = rng.standard_normal((2000, objective.dim))
    others *= radius / np.linalg.norm(others, axis=1)[:, None]
    directions = others - point
    slopes = directions @ gradient / np.linalg.norm(directions, axis=1)
    assert slopes.min() >= -1e-7
    loose = AcceleratedGradient(radius=10 * radius).solve(objective, np.zeros(4), tolerance)
    np.testing.assert_allclose(loose.point, free, atol=1e-6)


def saddle(strong_convexity, strong_concavity, seed=0):
    rng = np.random.default_rng(seed)
    A, B = (rng.standard_normal((k, k)) for k in (4, 5))
    A = A @ A.T / 8 + strong_convexity * np.eye(4)
    B = B @ B.T / 8 + strong_concavity * np.eye(5)
    C = rng.standard_normal((4, 5))
    a = rng.standard_normal(4)
    c = rng.standard_normal(5)
    smoothness = float(np.linalg.norm(np.block([[A, C], [C.T, -B]]), 2))
    problem = SaddleProblem(
        4,
        5,
        lambda w, v: A @ w + C @ v + a,
        lambda w, v: C.T @ w - B @ v + c,
        strong_convexity,
        strong_concavity,
        smoothness,
    )
    return problem, A + C @ np.linalg.solve(B, C.T), a + C @ np.linalg.solve(B, c)


@pytest.mark.parametrize(("convexity", "concavity"), [(1.0, 1.0), (0.05, 1.0), (1.0, 0.05)])
def test_minimax_on_quadratics(convexity, concavity):
    problem, hessian, linear = saddle(convexity, concavity)
    solution = MinimaxProximalPoint().solve(problem, np.ones(4), 1e-8)
    true_norm = np.linalg.norm(hessian @ solution.point + linear)
    assert true_norm <= solution.gradient_norm <= 1e-8


def test_minimax_against_an_adversary_in_a_ball():
    """Robust logistic regression, where the inner maximum over the ball is known in closed form."""
    rng = np.random.default_rng(3)
    n = 40
    d = 3
    alpha = 0.1
    radius = 0.3
    concavity = 0.5
    X = rng.uniform(-1, 1, (n, d))
    y = rng.choice([-1.0, 1.0], n)

    def parts(w, v):
        shifted = X + v.reshape(n, d)
        margin = y * (shifted @ w)
        return shifted, -y / (1 + np.exp(margin)) / n

    def gradient_w(w, v):
        shifted, slope = parts(w, v)
        return slope @ shifted + alpha * w

    def gradient_v(w, v):
        _, slope = parts(w, v)
        return (slope[:, None] * w).ravel() - concavity * v

    def project(v):
        blocks = v.reshape(n, d)
        lengths = np.maximum(np.linalg.norm(blocks, axis=1), 1e-300)
        return (blocks * np.minimum(1, radius / lengths)[:, None]).ravel()

    # Convex in v through the loss, at most |w|^2 / (4 n): the quadratic makes it concave.
    problem = SaddleProblem(d, n * d, gradient_w, gradient_v, alpha, concavity - 0.1, 2.0, project)
    solution = MinimaxProximalPoint().solve(problem, np.zeros(d), 1e-7)

    def maximum(w):
        v = np.zeros(n * d)
        for _ in range(400):
            v = project(v + gradient_v(w, v) / 0.6)
        shifted = X + v.reshape(n, d)
        losses = np.log1p(np.exp(-y * (shifted @ w)))
        return losses.mean() + alpha / 2 * w @ w - concavity / 2 * v @ v

    step = 1e-5
    numeric = [
        (maximum(solution.point + step * e) - maximum(solution.point - step * e)) / (2 * step)
        for e in np.eye(d)
    ]
    assert np.linalg.norm(numeric) <= 1e-6
    assert maximum(solution.point) < maximum(np.zeros(d))


def test_unreachable_tolerances_raise():
    objective = objective_of(Logistic())
    start = np.zeros(objective.dim)
    with pytest.raises(ConvergenceError, match="200 steps"):
        AcceleratedGradient(max_iterations=200, restart=False).solve(
            objective_of(Logistic(), alpha=1e-6), start, 1e-12
        )
    with pytest.raises(ConvergenceError, match="2 epochs"):
        Katyusha(max_epochs=2).solve(objective, start, 1e-10)


def test_refusals():
    kinked = objective_of(Pinball(0.5))
    start = np.zeros(4)
    with pytest.raises(ValueError, match="'radius' parameter"):
        AcceleratedGradient(radius=0.0).solve(objective_of(Logistic()), start, 1e-3)
    for solver in (AcceleratedGradient(), Katyusha()):
        with pytest.raises(ValueError, match="needs a smooth loss"):
            solver.solve(kinked, start, 1e-3)
    with pytest.raises(ValueError, match="'strong_concavity' parameter"):
        SaddleProblem(1, 1, lambda w, v: w, lambda w, v: v, 1.0, 0.0, 1.0)
    rows = SparseRows(sparse.csr_matrix(np.eye(4)), np.ones(4), RowMap.from_bounds(4, (-1, 1)))
    with pytest.raises(TypeError, match=r"Katyusha visits records .* Use Newton\(\)"):
        Katyusha().solve(EmpiricalObjective(rows, Logistic(), alpha=0.1), np.zeros(5), 1e-3)


def data(n=200):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, 3))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, 1.0, -1.0)
    return MemoryRows(X, y, RowMap.from_bounds(3, (-1.0, 1.0), 1.0))


def test_saddle_point_is_the_minimiser_of_the_closed_form():
    """The paper's general case: min over coefficients, max over one perturbation per record."""
    objective = CostlyAdversaryObjective(data(40), Logistic(), 0.2, 6.0)
    reduced = Newton().solve(objective, np.zeros(4), 1e-9).point
    saddle = MinimaxProximalPoint().solve(saddle_problem(objective), np.zeros(4), 1e-7).point
    assert np.linalg.norm(reduced - saddle) <= (1e-7 + 1e-9) / 0.2
    free = Newton().solve(EmpiricalObjective(data(40), Logistic(), 0.2), np.zeros(4), 1e-9).point
    assert np.linalg.norm(reduced - free) > 0.01  # the adversary matters


def test_output_perturbation_runs_on_the_saddle_solver():
    rows = data(40)
    facts = RobustBounds(40, 3, Logistic(), 1.0, rows.row_map.max_norm, alpha=0.2, cost=6.0)

    def saddle(objective, start, tolerance):
        return MinimaxProximalPoint().solve(saddle_problem(objective), start, 1e-6).point

    objective = CostlyAdversaryObjective(rows, Logistic(), 0.2, 6.0)
    certificate = OutputPerturbation().certify(facts, GaussianDP(1.0))
    points = [
        mechanism.minimise(objective, certificate)
        for mechanism in (OutputPerturbation(saddle), OutputPerturbation())
    ]
    assert np.linalg.norm(points[0] - points[1]) <= 2 * certificate.solver_tolerance / 0.2


def test_step_lengths_know_the_tilt():
    """The curvature that a tilt adds is in the bound that accelerated steps are taken with."""
    objective = TiltedObjective(data(), Logistic(), 0.1, 30.0)
    largest = max(
        float(np.linalg.eigvalsh(objective.hessian(theta))[-1])
        for theta in np.random.default_rng(0).normal(size=(50, 4))
    )
    assert largest <= accelerated_curvature_bound(objective)
    assert largest > 2 * accelerated_curvature_bound(EmpiricalObjective(data(), Logistic(), 0.1))
