"""Accelerated gradient methods: Nesterov's, optionally in a ball, and Katyusha on a few records at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpconvex.engine.block_products import takes_sparse, weighted_gram
from dpconvex.objectives import EmpiricalObjective
from dpconvex.objectives.objective import Objective
from dpconvex.solvers.certified_descent import Certified, CertifiedSolver, ConvergenceError, Descent, Solution
from dpconvex.solvers.subgradient import load_records
from dpconvex.types import Array

EXACT_DIM = 2000  # up to here the largest eigenvalue of a second-moment matrix is computed


@dataclass(frozen=True)
class AcceleratedGradient(CertifiedSolver[Objective]):
    r"""Nesterov's accelerated (projected) gradient method for smooth, strongly convex objectives.

    With condition number ``k = smoothness / strong_convexity``:
    ``y_t = project(w_{t-1} - gradient(w_{t-1}) / smoothness)``,
    ``w_t = y_t + (sqrt(k) - 1) / (sqrt(k) + 1) (y_t - y_{t-1})``. An error shrinks by ``1 - 1/sqrt(k)`` per step.

    Parameters
    ----------
    radius : float, optional
        Minimise over ``||theta|| <= radius``. The certificate is then the distance of 0 to the gradient plus the normal
        cone of the ball through the returned point.
    restart : bool, default=True
        Whether momentum that points uphill is dropped; False is the textbook method.
    max_iterations : int, default=200_000
        Limit on the steps.
    """

    radius: float | None = None
    restart: bool = True
    max_iterations: int = 200_000

    needs: ClassVar[tuple[str, ...]] = ("gradient", "rounding_allowance", "smoothness")

    def _search(self, objective: Objective, descent: Descent, point: Array) -> Solution:
        if self.radius is not None and not self.radius > 0:
            raise ValueError(
                f"The 'radius' parameter of AcceleratedGradient must be positive. Got {self.radius!r} instead."
            )
        smoothness = curvature_bound(objective)
        root = math.sqrt(smoothness / objective.strong_convexity)
        momentum = (root - 1) / (root + 1)
        previous = ahead = self._project(point)
        for _ in range(self.max_iterations):
            descent.iterations += 1
            gradient = descent.evaluate(ahead).gradient if self.radius is None else objective.gradient(ahead)
            new = self._project(ahead - gradient / smoothness)
            if self.radius is not None and smoothness * float(np.linalg.norm(ahead - new)) <= 4 * descent.tolerance:
                self._certify_constrained(descent, new, self.radius)
            uphill = float((ahead - new) @ (new - previous)) > 0
            factor = 0.0 if self.restart and uphill else momentum
            ahead, previous = new + factor * (new - previous), new
        raise ConvergenceError(
            f"AcceleratedGradient took {self.max_iterations} steps without a certificate. Use Newton(), "
            "a larger alpha or a larger tolerance."
        )

    def _project(self, point: Array) -> Array:
        if self.radius is None:
            return point
        norm = float(np.linalg.norm(point))
        # A hair inside: rounding must not put a projected point outside the public ball.
        return point if norm <= self.radius else point * (self.radius * (1 - 2.0**-50) / norm)

    @staticmethod
    def _certify_constrained(descent: Descent, point: Array, radius: float) -> None:
        """Raise `Certified` if 0 is near the gradient plus the normal cone of the ball at the point."""
        gradient = descent.objective.gradient(point)
        size = float(np.linalg.norm(point))
        if size >= radius * (1 - 2.0**-48):
            # On the sphere the normal cone is the ray through the point.
            push = max(0.0, -float(gradient @ point)) / size**2
            gradient = gradient + push * point
        norm = float(np.linalg.norm(gradient)) + descent.objective.rounding_allowance(point)
        if norm <= descent.tolerance:
            raise Certified(Solution(point, norm, descent.iterations))


@dataclass(frozen=True)
class Katyusha(CertifiedSolver[EmpiricalObjective]):
    r"""Accelerated stochastic gradients with variance reduction (Allen-Zhu 2017), in mini-batches.

    An epoch takes the full gradient at a snapshot and then ``m = 2 n / batch_size`` steps with gradients corrected by
    it, pulled half-way towards the snapshot. With per-record smoothness ``beta`` and
    ``tau = min(sqrt(m alpha / (3 beta)), 1/2)`` a gap is reached in about ``(n + sqrt(n beta / alpha)) log(1/gap)``
    visits of a record. The penalty and the linear term are handled by their exact proximal step. Needs an
    :class:`EmpiricalObjective` with a smooth loss, ``alpha > 0`` and rows in memory.

    Parameters
    ----------
    batch_size : int, default=32
        DenseRecords per step. The analysis is that of one record; more only lessen the variance.
    max_epochs : int, default=2000
        Limit on the passes over snapshots.
    seed : int, default=0
        Which records are visited. Not a privacy matter: the point returned is certified.
    """

    batch_size: int = 32
    max_epochs: int = 2000
    seed: int = 0

    def _search(self, objective: EmpiricalObjective, descent: Descent, point: Array) -> Solution:
        records = load_records(objective, "Katyusha")
        alpha, count = records.alpha, records.count
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
            total, weight, mass = np.zeros_like(point), 1.0, 0.0
            visited = rng.integers(0, count, (steps, batch))
            for chosen in visited:
                here = pull * fast + 0.5 * snapshot + (0.5 - pull) * slow
                change = records.slopes(here, chosen) - anchors[chosen]
                direction = gradient + change @ records.rows[chosen] / batch
                fast = (fast - step * direction) / growth
                slow = (3 * beta * here - direction) / (3 * beta + alpha)
                total, mass, weight = total + weight * slow, mass + weight, weight * growth
            snapshot = total / mass
        raise ConvergenceError(
            f"Katyusha took {self.max_epochs} epochs without a certificate. Use Newton(), a larger alpha or a "
            "larger tolerance."
        )


def curvature_bound(objective: Objective) -> float:
    """Return an upper bound of the curvature of F: a private number, for a mean of losses tight for the data.

    It is ``loss.smoothness`` times the largest eigenvalue of ``(1/N) sum_i w_i x~_i x~_i^T``, plus alpha; the public
    bound where a tilt or an adversary adds curvature.
    """
    public = float(getattr(objective, "smoothness"))  # noqa: B009
    if not isinstance(objective, EmpiricalObjective) or objective.dim > EXACT_DIM or not math.isfinite(public):
        return public
    part = takes_sparse(lambda block, y, w: (weighted_gram(block, w),))
    (moment,) = objective.rows.sum(part)
    largest = float(np.linalg.eigvalsh(moment / objective.divisor)[-1])
    bound = objective.loss.smoothness * largest * (1 + 1e-9) + objective.alpha
    return min(public, bound)
