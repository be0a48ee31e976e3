"""Nesterov's accelerated gradient method, optionally constrained to a ball."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from dpconvex.engine.blocks import takes_sparse, weighted_gram
from dpconvex.objectives import EmpiricalObjective
from dpconvex.objectives.objective import Objective
from dpconvex.solvers.descent import Certified, Certifying, Descent
from dpconvex.solvers.solution import ConvergenceError, Solution
from dpconvex.types import Array

__all__ = ["AcceleratedGradient", "curvature_bound"]


EXACT_DIM = 2000  # up to here the largest eigenvalue of a second-moment matrix is computed


@dataclass(frozen=True)
class AcceleratedGradient(Certifying[Objective]):
    r"""Nesterov's accelerated (projected) gradient method for smooth, strongly convex objectives.

    With condition number ``k = smoothness / strong_convexity``:
    ``y_t = project(w_{t-1} - gradient(w_{t-1}) / smoothness)``,
    ``w_t = y_t + (sqrt(k) - 1) / (sqrt(k) + 1) (y_t - y_{t-1})``. An error shrinks by
    ``1 - 1/sqrt(k)`` per step. The momentum is dropped when it points uphill, which only helps.

    Parameters
    ----------
    radius : float, optional
        Minimise over ``||theta|| <= radius``. The certificate is then the distance of 0 to the
        gradient plus the normal cone of the ball through the returned point.
    restart : bool, default=True
        Whether momentum that points uphill is dropped; False is the textbook method.
    max_iterations : int, default=200_000
        Limit on the steps.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex.engine.memory import MemoryRows
    >>> from dpconvex.engine.rows import RowMap
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.objectives import EmpiricalObjective
    >>> rows = MemoryRows(np.eye(4), np.array([1.0, -1.0, 1.0, 1.0]), RowMap(4, 1.0))
    >>> objective = EmpiricalObjective(rows, Logistic(), alpha=0.1)
    >>> solution = AcceleratedGradient().solve(objective, np.zeros(objective.dim), 1e-8)
    >>> bool(solution.gradient_norm <= 1e-8)
    True
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
        self._run(descent, self._project(point), curvature_bound(objective))
        raise ConvergenceError(
            f"AcceleratedGradient took {self.max_iterations} steps without a certificate. Use Newton(), "
            "a larger alpha or a larger tolerance."
        )

    def _run(self, descent: Descent, point: Array, smoothness: float) -> None:
        root = math.sqrt(smoothness / descent.objective.strong_convexity)
        momentum = (root - 1) / (root + 1)
        previous = ahead = point
        for _ in range(self.max_iterations):
            descent.iterations += 1
            if self.radius is None:
                gradient = descent.evaluate(ahead).gradient
            else:
                gradient = descent.objective.gradient(ahead)
            new = self._project(ahead - gradient / smoothness)
            if self.radius is not None:
                mapped = smoothness * float(np.linalg.norm(ahead - new))
                if mapped <= 4 * descent.tolerance:
                    self._certify_constrained(descent, new)
            uphill = float((ahead - new) @ (new - previous)) > 0
            factor = 0.0 if self.restart and uphill else momentum
            ahead, previous = new + factor * (new - previous), new

    def _project(self, point: Array) -> Array:
        if self.radius is None:
            return point
        norm = float(np.linalg.norm(point))
        # A hair inside: rounding must not put a projected point outside the public ball.
        return point if norm <= self.radius else point * (self.radius * (1 - 2.0**-50) / norm)

    def _certify_constrained(self, descent: Descent, point: Array) -> None:
        objective = descent.objective
        assert self.radius is not None, "only called for the constrained problem"
        gradient = objective.gradient(point)
        size = float(np.linalg.norm(point))
        if size >= self.radius * (1 - 2.0**-48):
            # On the sphere the normal cone is the ray through the point.
            push = max(0.0, -float(gradient @ point)) / size**2
            gradient = gradient + push * point
        norm = float(np.linalg.norm(gradient)) + objective.rounding_allowance(point)
        if norm <= descent.tolerance:
            raise Certified(Solution(point, norm, descent.iterations))


def curvature_bound(objective: Objective) -> float:
    """Return an upper bound of the curvature of F that is tight for the data.

    ``loss.smoothness`` times the largest eigenvalue of ``(1/N) sum_i w_i x~_i x~_i^T``, plus
    alpha, for a mean of losses; the objective's own public bound otherwise, where a tilt or an adversary
    adds curvature. A private number.
    """
    public = float(getattr(objective, "smoothness"))  # noqa: B009
    if not isinstance(objective, EmpiricalObjective):
        return public
    if objective.dim > EXACT_DIM or not math.isfinite(public):
        return public
    part = takes_sparse(lambda block, y, w: (weighted_gram(block, w),))
    (moment,) = objective.rows.sum(part)
    largest = float(np.linalg.eigvalsh(moment / objective.divisor)[-1])
    bound = objective.loss.smoothness * largest * (1 + 1e-9) + objective.alpha
    return min(public, bound)
