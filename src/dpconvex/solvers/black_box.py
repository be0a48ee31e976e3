"""Certificates for the answers of any minimiser: checked at the point returned, polished where
it stopped short.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import numpy.typing as npt

from dpconvex.core.checks import parameter_error
from dpconvex.objectives import EmpiricalObjective, PartitionedPairwiseObjective
from dpconvex.objectives.objective import LinearTermObjective, Objective
from dpconvex.solvers import certified_descent as descent
from dpconvex.solvers.duality_gap import Envelope, certified_gap
from dpconvex.solvers.newton_lbfgs import LBFGS, Newton, newton_or_lbfgs
from dpconvex.types import Array

#: A solver of the user's choice: an object with ``solve``, a function, or the name of a method of
#: scipy.
Method = descent.Solver[Any] | Callable[[Any, Array, float], npt.ArrayLike] | str


def certify_point(
    objective: Objective, point: npt.ArrayLike, tolerance: float
) -> descent.Solution | None:
    """Return a certificate for a black box's point of any origin, or None if it is not good enough.

    Smooth objectives: the gradient norm at the point plus its rounding allowance is at most
    `tolerance`. Kinked ones: the best of a few dual points certifies a gap of at most
    ``tolerance^2 / (2 strong_convexity)``.
    """
    theta = np.array(point, dtype=np.float64)
    if theta.shape != (objective.dim,) or not np.isfinite(theta).all():
        return None
    with np.errstate(all="ignore"):  # far away, values overflow: such a point is refused below
        if not _kinked(objective):
            try:
                descent.CertifiedDescent(objective, tolerance).evaluate(theta)
            except descent.DescentCertified as found:
                return found.solution
            return None
        alpha = objective.strong_convexity
        wanted = tolerance**2 / (2 * alpha)
        for smoothness in objective.loss.lipschitz**2 / wanted * np.array([1.0, 0.1, 0.01]):
            gap = certified_gap(objective, theta, float(smoothness))
            if gap <= wanted:
                return descent.Solution(theta, math.sqrt(2 * alpha * gap), 0, gap)
        return None


def _kinked(objective: Objective) -> TypeGuard[EmpiricalObjective]:
    loss = getattr(objective, "loss", None)
    return loss is not None and not math.isfinite(loss.smoothness)


@dataclass(frozen=True)
class BlackBox:
    """Run any minimiser, certify its answer and polish it where it stopped short.

    Parameters
    ----------
    method : Solver, str or callable, optional
        An object with ``solve(objective, start, tolerance)``, a callable of these arguments that
        returns a point, or the name of a method of ``scipy.optimize.minimize`` that takes
        gradients, such as ``"L-BFGS-B"``. None: nothing is run before polishing.
    """

    method: Method | None = None

    def solve(
        self, objective: Objective, start: npt.ArrayLike, tolerance: float
    ) -> descent.Solution:
        """Return a minimiser that is certified whatever the method claims; see
        :meth:`Solver.solve`.
        """
        point = descent.check_descent_start(objective, start, tolerance, "BlackBox")
        if self.method is not None:
            answer = self.run(objective, point, tolerance)
            solution = certify_point(objective, answer, tolerance)
            if solution is not None:
                return solution
            point = _limit_black_box_answer(objective, answer, point)
        return polish_black_box(objective, point, tolerance)

    def run(self, objective: Objective, start: Array, tolerance: float) -> Array:
        """Return the black box's own answer, uncertified."""
        if isinstance(self.method, str):
            return _scipy_black_box(self.method, objective, start, tolerance)
        if isinstance(self.method, descent.Solver):
            return np.asarray(self.method.solve(objective, start, tolerance).point)
        if callable(self.method):
            return np.asarray(self.method(objective, start, tolerance), dtype=np.float64)
        allowed = "a solver, a callable or the name of a scipy method"
        raise parameter_error(
            "method", "BlackBox", allowed, type(self.method).__name__, kind=TypeError
        )


def polish_black_box(objective: Objective, point: Array, tolerance: float) -> descent.Solution:
    """Minimise from `point` with a solver that certifies: Newton or L-BFGS, or `Envelope` for
    kinked losses.
    """
    if _kinked(objective):
        return Envelope().solve(objective, point, tolerance)
    if not isinstance(objective, PartitionedPairwiseObjective):
        return newton_or_lbfgs(objective.dim).solve(objective, point, tolerance)
    # A Hessian of a sample that misses a direction makes steps useless; gradients alone get there
    # from any point.
    try:
        return Newton(max_iterations=50).solve(objective, point, tolerance)
    except descent.ConvergenceError:
        return LBFGS(newton=False).solve(objective, point, tolerance)


def _scipy_black_box(method: str, objective: Objective, start: Array, tolerance: float) -> Array:
    from scipy.optimize import minimize

    options: dict[str, float] = {"maxiter": 10_000}
    if method.upper() == "L-BFGS-B":
        options |= {"gtol": tolerance / math.sqrt(start.size), "ftol": 0.0, "maxcor": 20}
    stop = None if "gtol" in options else tolerance
    result = minimize(
        objective.value_and_gradient, start, jac=True, method=method, tol=stop, options=options
    )
    return np.asarray(result.x, dtype=np.float64)


def _limit_black_box_answer(objective: Objective, answer: Array, start: Array) -> Array:
    """Return the answer shortened to where the minimiser can lie, or the start if it is no point
    at all.
    """
    answer = np.asarray(answer, dtype=np.float64)
    if answer.shape != start.shape or not np.isfinite(answer).all():
        return start
    bound = getattr(objective, "gradient_bound", math.inf)
    linear = (
        float(np.linalg.norm(objective.linear))
        if isinstance(objective, LinearTermObjective)
        else 0.0
    )
    radius = (bound + linear) / objective.strong_convexity
    with np.errstate(over="ignore"):
        norm = float(np.linalg.norm(answer))
    return answer * min(1.0, radius / max(norm, 1e-300))
