r"""Saddle points: accelerated proximal point outside, accelerated ascent inside.

``min_w G(w)``, ``G(w) = max_{v in V} H(w, v)``, for smooth H that is strongly convex in w and strongly concave in v.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpconvex.objectives.adversarial import SaddleProblem
from dpconvex.solvers.certified_descent import ConvergenceError, Solution
from dpconvex.types import Array

__all__ = ["MinimaxProximalPoint", "SaddleProblem"]


@dataclass(frozen=True)
class MinimaxProximalPoint:
    r"""Minimise ``G(w) = max_v H(w, v)`` with a certified gradient norm of G (Lin, Jin and Jordan 2020).

    Outside, an accelerated proximal point method on G with proximal weight equal to the smoothness: about
    ``sqrt(smoothness / strong_convexity)`` steps per digit. A proximal step is a saddle point that is well conditioned
    in w; it is found by Nesterov's accelerated ascent in v on ``min_w H(w, v) + smoothness ||w - center||^2 / 2``,
    whose minimum over w takes a few gradient steps. The certificate holds at the point w returned: with v within e of
    the maximiser, ``||gradient of G(w)|| <= ||gradient_w H(w, v)|| + smoothness e``.

    Parameters
    ----------
    max_iterations : int, default=10_000
        Limit on the proximal steps.
    """

    max_iterations: int = 10_000

    def solve(self, objective: SaddleProblem, start: npt.ArrayLike, tolerance: float) -> Solution:
        """Minimise G until its certified gradient norm is at most `tolerance`; see :meth:`Solver.solve`.

        ``start`` is where w begins; v begins at the projection of 0. The solution's ``iterations`` counts gradients.
        """
        point = np.array(start, dtype=np.float64)
        if point.shape != (objective.dim,):
            raise ValueError(
                f"The 'start' parameter of MinimaxProximalPoint.solve must have shape ({objective.dim},). "
                f"Got shape {point.shape} instead."
            )
        run = _Run(objective)
        weight = objective.smoothness
        root = math.sqrt(weight / objective.strong_convexity)
        momentum = (root - 1) / (root + 1) if root > 1 else 0.0
        adversary = objective.project(np.zeros(objective.adversary_dim))
        previous = ahead = point
        accuracy = math.inf
        for _ in range(self.max_iterations):
            accuracy = min(accuracy, 0.1 * (run.gradient_norm(ahead, adversary) + 1e-300))
            point, adversary = run.proximal_step(ahead, adversary, weight, max(accuracy, 0.02 * tolerance))
            # The maximiser at the point itself is what the certificate needs.
            adversary = run.maximise(point, adversary, 0.02 * tolerance)
            norm = run.certified_norm(point, adversary)
            if norm <= tolerance:
                return Solution(point, norm, run.gradients)
            accuracy = 0.05 * norm / root
            uphill = float((ahead - point) @ (point - previous)) > 0
            factor = 0.0 if uphill else momentum
            ahead, previous = point + factor * (point - previous), point
        raise ConvergenceError(
            f"MinimaxProximalPoint took {self.max_iterations} steps without a certificate. Use a larger tolerance, "
            "strong_convexity or strong_concavity."
        )


class _Run:
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
        """Accelerated ascent in v at fixed w until the gradient error in w is below `accuracy`."""
        problem = self.problem

        def slope(at: Array) -> Array:
            self.gradients += 1
            return problem.gradient_v(w, at)

        return self._ascend(slope, v, problem.smoothness, self._ascent_target(accuracy))

    def _ascent_target(self, accuracy: float) -> float:
        problem = self.problem
        return max(accuracy * problem.strong_concavity / (2 * problem.smoothness), 4 * problem.rounding)

    def proximal_step(self, center: Array, v: Array, weight: float, accuracy: float) -> tuple[Array, Array]:
        """Return the saddle point of ``H + (weight/2) ||w - center||^2`` up to `accuracy`."""
        problem = self.problem
        w = center

        def slope(at: Array) -> Array:
            nonlocal w
            w = self._descend(w, at, center, weight, 0.1 * target)
            self.gradients += 1
            return problem.gradient_v(w, at)

        # min over w adds curvature smoothness^2 / (strong convexity + weight) in v.
        curvature = problem.smoothness + problem.smoothness**2 / (weight + problem.strong_convexity)
        target = self._ascent_target(accuracy)
        v = self._ascend(slope, v, curvature, target)
        return self._descend(w, v, center, weight, 0.1 * accuracy), v

    def _descend(self, w: Array, v: Array, center: Array, weight: float, accuracy: float) -> Array:
        """Gradient steps on the well-conditioned ``H(., v) + (weight/2) ||. - center||^2``."""
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
            ahead, previous = new + momentum * (new - previous), new
        return previous

    def _ascend(self, slope: Callable[[Array], Array], v: Array, curvature: float, target: float) -> Array:
        root = math.sqrt(curvature / self.problem.strong_concavity)
        momentum = (root - 1) / (root + 1)
        previous = ahead = v
        for _ in range(100_000):
            new = self.problem.project(ahead + slope(ahead) / curvature)
            if curvature * float(np.linalg.norm(new - ahead)) <= target:
                return new
            ahead, previous = new + momentum * (new - previous), new
        return previous
