r"""Accelerated methods: Nesterov's, optionally in a ball, Katyusha on a few records at a time, and
minimax.

A saddle point ``min_w G(w)``, ``G(w) = max_{v in V} H(w, v)``, for smooth H that is strongly convex
in w and strongly concave in v, takes an accelerated proximal point method outside and accelerated
ascent inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpconvex.core.block_products import block_gram, takes_sparse_blocks
from dpconvex.core.checks import check_positive, parameter_error
from dpconvex.core.memory_rows import MemoryRows
from dpconvex.core.pointwise_losses import Loss
from dpconvex.engine.sparse_rows import SparseRows
from dpconvex.losses.scaled_and_clamped import ClampedTargetLoss
from dpconvex.objectives import EmpiricalObjective
from dpconvex.objectives.adversarial import CostlyAdversaryObjective
from dpconvex.objectives.objective import Objective
from dpconvex.solvers.certified_descent import (
    CertifiedDescent,
    CertifiedSolver,
    ConvergenceError,
    DescentCertified,
    Solution,
)
from dpconvex.types import Array

__all__ = [
    "AcceleratedGradient",
    "Katyusha",
    "MinimaxProximalPoint",
    "SaddleProblem",
    "SolverRecords",
    "accelerated_curvature_bound",
    "load_solver_records",
    "saddle_problem",
]

EXACT_DIM = 2000  # up to here the largest eigenvalue of a second-moment matrix is computed


@dataclass(frozen=True)
class SolverRecords:
    """All records of an objective in memory, with weights ``n w_i / N``, so that F is a plain mean
    over n.

    ``F(theta) = (1/n) sum_i weights_i loss(y_i, rows_i . theta) + (alpha/2) ||theta||^2 + <b,
    theta>``.
    """

    rows: Array
    targets: Array
    weights: Array
    loss: Loss
    alpha: float
    linear: Array

    @property
    def count(self) -> int:
        """Number of records."""
        return len(self.targets)

    def slopes(self, theta: Array, chosen: slice | npt.NDArray[np.int64] = slice(None)) -> Array:
        """Weighted slopes ``weights_i loss'(y_i, rows_i . theta)`` of the chosen records."""
        margins = self.rows[chosen] @ theta
        slopes = self.loss.gradient(self.targets[chosen], margins)
        return np.asarray(self.weights[chosen] * slopes)


def load_solver_records(objective: EmpiricalObjective, solver: str) -> SolverRecords:
    """Return all records of an objective in memory, or raise if it cannot be seen record by
    record.
    """
    rows = objective.rows if isinstance(objective, EmpiricalObjective) else None
    if not isinstance(rows, MemoryRows) or isinstance(rows, SparseRows):
        raise TypeError(
            f"{solver} visits records one by one, but {type(objective).__name__} offers none in "
            "memory with all their zeros. Use Newton() or LBFGS()."
        )
    block, targets, weights = rows.mapped()
    block = np.ascontiguousarray(block)
    if isinstance(objective.loss, ClampedTargetLoss):
        targets = objective.loss.clamp(targets)
    weights = weights * (objective.n_rows / objective.divisor)
    return SolverRecords(block, targets, weights, objective.loss, objective.alpha, objective.linear)


@dataclass(frozen=True)
class AcceleratedGradient(CertifiedSolver[Objective]):
    r"""Nesterov's accelerated (projected) gradient method for smooth, strongly convex objectives.

    With condition number ``k = smoothness / strong_convexity``:
    ``y_t = project(w_{t-1} - gradient(w_{t-1}) / smoothness)``,
    ``w_t = y_t + (sqrt(k) - 1) / (sqrt(k) + 1) (y_t - y_{t-1})``. An error shrinks by
    ``1 - 1/sqrt(k)`` per step.

    Parameters
    ----------
    radius : float, optional
        Minimise over ``||theta|| <= radius``. The certificate is then the distance of 0 to the
        gradient plus the normal cone of the ball through the returned point.
    restart : bool, default=True
        Whether momentum that points uphill is dropped; False is the textbook method.
    max_iterations : int, default=200_000
        Limit on the steps.
    """

    radius: float | None = None
    restart: bool = True
    max_iterations: int = 200_000

    needs: ClassVar[tuple[str, ...]] = ("gradient", "rounding_allowance", "smoothness")

    def _search(self, objective: Objective, descent: CertifiedDescent, point: Array) -> Solution:
        """Search by accelerated gradient steps (Nesterov), projected on the ball if there is
        one.
        """
        if self.radius is not None and not self.radius > 0:
            raise parameter_error("radius", "AcceleratedGradient", "positive", repr(self.radius))
        smoothness = accelerated_curvature_bound(objective)
        root = math.sqrt(smoothness / objective.strong_convexity)
        momentum = (root - 1) / (root + 1)
        previous = ahead = self._project(point)
        for _ in range(self.max_iterations):
            descent.iterations += 1
            gradient = (
                descent.evaluate(ahead).gradient
                if self.radius is None
                else objective.gradient(ahead)
            )
            new = self._project(ahead - gradient / smoothness)
            if (
                self.radius is not None
                and smoothness * float(np.linalg.norm(ahead - new)) <= 4 * descent.tolerance
            ):
                self._certify_accelerated(descent, new, self.radius)
            uphill = float((ahead - new) @ (new - previous)) > 0
            factor = 0.0 if self.restart and uphill else momentum
            ahead = new + factor * (new - previous)
            previous = new
        raise ConvergenceError(
            f"AcceleratedGradient took {self.max_iterations} steps without a certificate. Use "
            "Newton(), a larger alpha or a larger tolerance."
        )

    def _project(self, point: Array) -> Array:
        if self.radius is None:
            return point
        norm = float(np.linalg.norm(point))
        # A hair inside: rounding must not put a projected point outside the public ball.
        return point if norm <= self.radius else point * (self.radius * (1 - 2.0**-50) / norm)

    @staticmethod
    def _certify_accelerated(descent: CertifiedDescent, point: Array, radius: float) -> None:
        """Raise `DescentCertified` if 0 is near an accelerated point's gradient plus the ball's
        normal cone.
        """
        gradient = descent.objective.gradient(point)
        size = float(np.linalg.norm(point))
        if size >= radius * (1 - 2.0**-48):
            # On the sphere the normal cone is the ray through the point.
            push = max(0.0, -float(gradient @ point)) / size**2
            gradient = gradient + push * point
        norm = float(np.linalg.norm(gradient)) + descent.objective.rounding_allowance(point)
        if norm <= descent.tolerance:
            raise DescentCertified(Solution(point, norm, descent.iterations))


@dataclass(frozen=True)
class Katyusha(CertifiedSolver[EmpiricalObjective]):
    r"""Accelerated stochastic gradients with variance reduction (Allen-Zhu 2017), in mini-batches.

    An epoch takes the full gradient at a snapshot and then ``m = 2 n / batch_size`` steps with
    gradients corrected by it, pulled half-way towards the snapshot. With per-record smoothness
    ``beta`` and ``tau = min(sqrt(m alpha / (3 beta)), 1/2)`` a gap is reached in about
    ``(n + sqrt(n beta / alpha)) log(1/gap)`` visits of a record. The penalty and the linear term
    are handled by their exact proximal step. Needs an :class:`EmpiricalObjective` with a smooth
    loss, ``alpha > 0`` and rows in memory.

    Parameters
    ----------
    batch_size : int, default=32
        Records per step. The analysis is that of one record; more only lessen the variance.
    max_epochs : int, default=2000
        Limit on the passes over snapshots.
    seed : int, default=0
        Which records are visited. Not a privacy matter: the point returned is certified.
    """

    batch_size: int = 32
    max_epochs: int = 2000
    seed: int = 0

    def _search(
        self, objective: EmpiricalObjective, descent: CertifiedDescent, point: Array
    ) -> Solution:
        records = load_solver_records(objective, "Katyusha")
        alpha = records.alpha
        count = records.count
        batch = min(self.batch_size, count)
        steps = max(1, 2 * count // batch)
        squares = records.weights * np.einsum("ij,ij->i", records.rows, records.rows)
        beta = max(records.loss.smoothness * float(squares.max()), 1e-12)
        pull = min(math.sqrt(steps * alpha / (3 * beta)), 0.5)
        step = 1 / (3 * pull * beta)
        growth = 1 + step * alpha
        rng = np.random.default_rng(self.seed)
        snapshot = fast = slow = point
        for _ in range(self.max_epochs):
            descent.iterations += 1
            gradient = descent.evaluate(snapshot).gradient - alpha * snapshot
            anchors = records.slopes(snapshot)
            total = np.zeros_like(point)
            weight = 1.0
            mass = 0.0
            visited = rng.integers(0, count, (steps, batch))
            for chosen in visited:
                here = pull * fast + 0.5 * snapshot + (0.5 - pull) * slow
                change = records.slopes(here, chosen) - anchors[chosen]
                direction = gradient + change @ records.rows[chosen] / batch
                fast = (fast - step * direction) / growth
                slow = (3 * beta * here - direction) / (3 * beta + alpha)
                total = total + weight * slow
                mass = mass + weight
                weight = weight * growth
            snapshot = total / mass
        raise ConvergenceError(
            f"Katyusha took {self.max_epochs} epochs without a certificate. Use Newton(), a "
            "larger alpha or a larger tolerance."
        )


def accelerated_curvature_bound(objective: Any) -> float:
    """Return an upper bound of the curvature of F: a private number, for a mean of losses tight for
    the data.

    It is ``loss.smoothness`` times the largest eigenvalue of ``(1/N) sum_i w_i x~_i x~_i^T``, plus
    alpha; the public bound where a tilt or an adversary adds curvature.
    """
    public = float(objective.smoothness)
    if (
        not isinstance(objective, EmpiricalObjective)
        or objective.dim > EXACT_DIM
        or not math.isfinite(public)
    ):
        return public
    part = takes_sparse_blocks(lambda block, y, w: (block_gram(block, w),))
    (moment,) = objective.rows.sum(part)
    largest = float(np.linalg.eigvalsh(moment / objective.divisor)[-1])
    bound = objective.loss.smoothness * largest * (1 + 1e-9) + objective.alpha
    return min(public, bound)


@dataclass(frozen=True, eq=False)
class SaddleProblem:
    """A smooth function H(w, v), strongly convex in w and strongly concave in v.

    Parameters
    ----------
    dim, adversary_dim : int
        Sizes of w and of v (flattened).
    gradient_w, gradient_v : callable
        Gradients of H as functions of (w, v), each with a floating-point error of at most
        ``rounding``.
    strong_convexity, strong_concavity, smoothness : float
        Lower bounds of the curvature in w and of minus that in v; Lipschitz constant of the whole
        gradient.
    project : callable, optional
        Euclidean projection of v on the convex set V; the identity by default.
    """

    dim: int
    adversary_dim: int
    gradient_w: Callable[[Array, Array], Array]
    gradient_v: Callable[[Array, Array], Array]
    strong_convexity: float
    strong_concavity: float
    smoothness: float
    project: Callable[[Array], Array] = np.asarray
    rounding: float = 1e-13

    def __post_init__(self) -> None:
        for name in ("strong_convexity", "strong_concavity", "smoothness"):
            check_positive(
                name, "SaddleProblem", getattr(self, name), "Add a small quadratic in w or in v."
            )

    def ascent_residual(self, w: Array, v: Array) -> float:
        """Bound ``||v - argmax_V H(w, .)|| strong_concavity / 2``: smoothness times the length
        of an ascent step.
        """
        step = self.project(v + self.gradient_v(w, v) / self.smoothness) - v
        return self.smoothness * float(np.linalg.norm(step)) + self.rounding


def saddle_problem(objective: CostlyAdversaryObjective) -> SaddleProblem:
    r"""Return the saddle problem ``min_theta max_v`` of an adversary who pays, for
    `MinimaxProximalPoint`.

    The adversary's variables are ``q_i = v_i sqrt(w_i / N)``, one block per row, so that both
    blocks of the Hessian have the same scale. Rows are kept in memory.
    """
    assert isinstance(objective.rows, MemoryRows), "the adversary moves rows in memory"
    block, y, w = objective.rows.mapped()
    scale = np.sqrt(np.where(w > 0, w, 1.0) / objective.divisor)[:, None]
    lead = int(objective.rows.row_map.fit_intercept)
    count = len(y)
    width = objective.dim - lead
    loss = objective.loss
    cost = objective.cost
    alpha = objective.alpha

    def slopes(theta: Array, q: Array) -> tuple[Array, Array]:
        moves = q.reshape(count, width) / scale
        margins = y * (block @ theta + moves @ theta[lead:])
        return w / objective.divisor * loss.gradient(1.0, margins) * y, moves

    def gradient_w(theta: Array, q: Array) -> Array:
        multiples, moves = slopes(theta, q)
        gradient = multiples @ block + alpha * theta
        gradient[lead:] += multiples @ moves
        return np.asarray(gradient)

    def gradient_v(theta: Array, q: Array) -> Array:
        multiples, _ = slopes(theta, q)
        return np.asarray((multiples[:, None] / scale * theta[lead:]).ravel() - cost * q)

    longest = objective.rows.row_map.weighted_square**0.5 + objective.reach
    cross = loss.smoothness * longest * objective.radius + loss.lipschitz
    concavity = cost - loss.smoothness * objective.radius**2
    smoothness = loss.smoothness * longest**2 + alpha + cross + cost
    sizes = objective.dim, count * width
    return SaddleProblem(*sizes, gradient_w, gradient_v, alpha, concavity, smoothness)


@dataclass(frozen=True)
class MinimaxProximalPoint:
    r"""Minimise ``G(w) = max_v H(w, v)`` with a certified gradient norm of G (Lin, Jin and Jordan
    2020).

    Outside, an accelerated proximal point method on G with proximal weight equal to the smoothness:
    about ``sqrt(smoothness / strong_convexity)`` steps per digit. A proximal step is a saddle point
    that is well conditioned in w; it is found by Nesterov's accelerated ascent in v on
    ``min_w H(w, v) + smoothness ||w - center||^2 / 2``, whose minimum over w takes a few gradient
    steps. The certificate holds at the point w returned: with v within e of the maximiser,
    ``||gradient of G(w)|| <= ||gradient_w H(w, v)|| + smoothness e``.

    Parameters
    ----------
    max_iterations : int, default=10_000
        Limit on the proximal steps.
    """

    max_iterations: int = 10_000

    def solve(self, objective: SaddleProblem, start: npt.ArrayLike, tolerance: float) -> Solution:
        """Minimise G until its certified gradient norm is at most `tolerance`; see
        :meth:`Solver.solve`.

        ``start`` is where w begins; v begins at the projection of 0. The solution's ``iterations``
        counts gradients.
        """
        point = np.array(start, dtype=np.float64)
        if point.shape != (objective.dim,):
            raise ValueError(
                "The 'start' parameter of MinimaxProximalPoint.solve must have shape "
                f"({objective.dim},). Got shape {point.shape} instead."
            )
        run = _MinimaxRun(objective)
        weight = objective.smoothness
        root = math.sqrt(weight / objective.strong_convexity)
        momentum = (root - 1) / (root + 1) if root > 1 else 0.0
        adversary = objective.project(np.zeros(objective.adversary_dim))
        previous = ahead = point
        accuracy = math.inf
        for _ in range(self.max_iterations):
            accuracy = min(accuracy, 0.1 * (run.gradient_norm(ahead, adversary) + 1e-300))
            point, adversary = run.proximal_step(
                ahead, adversary, weight, max(accuracy, 0.02 * tolerance)
            )
            # The maximiser at the point itself is what the certificate needs.
            adversary = run.maximise(point, adversary, 0.02 * tolerance)
            norm = run.certified_norm(point, adversary)
            if norm <= tolerance:
                return Solution(point, norm, run.gradients)
            accuracy = 0.05 * norm / root
            uphill = float((ahead - point) @ (point - previous)) > 0
            factor = 0.0 if uphill else momentum
            ahead = point + factor * (point - previous)
            previous = point
        raise ConvergenceError(
            f"MinimaxProximalPoint took {self.max_iterations} steps without a certificate. Use a "
            "larger tolerance, strong_convexity or strong_concavity."
        )


class _MinimaxRun:
    """Inner loops of one solve, counting gradients."""

    def __init__(self, problem: SaddleProblem) -> None:
        self.problem = problem
        self.gradients = 0

    def gradient_norm(self, w: Array, v: Array) -> float:
        self.gradients += 1
        return float(np.linalg.norm(self.problem.gradient_w(w, v)))

    def certified_norm(self, w: Array, v: Array) -> float:
        """Bound the norm of the gradient of G at w."""
        problem = self.problem
        distance = 2 * problem.ascent_residual(w, v) / problem.strong_concavity
        self.gradients += 1
        return self.gradient_norm(w, v) + problem.rounding + problem.smoothness * distance

    def maximise(self, w: Array, v: Array, accuracy: float) -> Array:
        """Ascend by accelerated steps in v at fixed w until the gradient error in w is below
        `accuracy`.
        """
        problem = self.problem

        def slope(at: Array) -> Array:
            self.gradients += 1
            return problem.gradient_v(w, at)

        return self._ascend_minimax(slope, v, problem.smoothness, self._ascent_target(accuracy))

    def _ascent_target(self, accuracy: float) -> float:
        problem = self.problem
        return max(
            accuracy * problem.strong_concavity / (2 * problem.smoothness), 4 * problem.rounding
        )

    def proximal_step(
        self, center: Array, v: Array, weight: float, accuracy: float
    ) -> tuple[Array, Array]:
        """Return the accelerated method's saddle point of ``H + (weight/2) ||w - center||^2`` up
        to `accuracy`.
        """
        problem = self.problem
        w = center

        def slope(at: Array) -> Array:
            nonlocal w
            w = self._descend_minimax(w, at, center, weight, 0.1 * target)
            self.gradients += 1
            return problem.gradient_v(w, at)

        # min over w adds curvature smoothness^2 / (strong convexity + weight) in v.
        curvature = problem.smoothness + problem.smoothness**2 / (weight + problem.strong_convexity)
        target = self._ascent_target(accuracy)
        v = self._ascend_minimax(slope, v, curvature, target)
        return self._descend_minimax(w, v, center, weight, 0.1 * accuracy), v

    def _descend_minimax(
        self, w: Array, v: Array, center: Array, weight: float, accuracy: float
    ) -> Array:
        """Take gradient steps on the well-conditioned ``H(., v) + (weight/2) ||. - center||^2``."""
        problem = self.problem
        curvature = problem.smoothness + weight
        root = math.sqrt(curvature / (problem.strong_convexity + weight))
        momentum = (root - 1) / (root + 1)
        previous = ahead = w
        for _ in range(1000):
            self.gradients += 1
            gradient = problem.gradient_w(ahead, v) + weight * (ahead - center)
            if float(np.linalg.norm(gradient)) <= max(accuracy, 4 * problem.rounding):
                return ahead
            new = ahead - gradient / curvature
            ahead = new + momentum * (new - previous)
            previous = new
        return previous

    def _ascend_minimax(
        self, slope: Callable[[Array], Array], v: Array, curvature: float, target: float
    ) -> Array:
        root = math.sqrt(curvature / self.problem.strong_concavity)
        momentum = (root - 1) / (root + 1)
        previous = ahead = v
        for _ in range(100_000):
            new = self.problem.project(ahead + slope(ahead) / curvature)
            if curvature * float(np.linalg.norm(new - ahead)) <= target:
                return new
            ahead = new + momentum * (new - previous)
            previous = new
        return previous
