"""A last resort of certified solvers: the same search around a fixed point, with twice the digits."""

from __future__ import annotations

import numpy as np

from dpconvex.objectives.centred import CentredObjective
from dpconvex.objectives.objective import UNIT, Objective, can_refine
from dpconvex.solvers.descent import Descent
from dpconvex.solvers.solution import ConvergenceError, Solution, Solver

__all__ = ["solve_around_best"]


def solve_around_best(solver: Solver[Objective], descent: Descent) -> Solution:
    """Go on from the best point of a search that ended without a certificate.

    The minimiser is sought as ``centre + v`` with a centre that stays: gradients are then exact
    to a few roundings of each row's slope, whatever the number of rows. What is returned is the
    sum rounded to float64, and the rounding joins the certificate.

    Parameters
    ----------
    solver : Solver
        Newton or L-BFGS.
    descent : Descent
        The search that failed.

    Raises
    ------
    ConvergenceError
        If the objective has no such gradients, or if they do not suffice either.
    """
    objective, best = descent.objective, descent.best
    if best is None or not can_refine(objective):
        raise descent.failure()
    alpha, tolerance = objective.strong_convexity, descent.tolerance
    around = CentredObjective(objective, best.point)
    try:
        found = solver.solve(around, np.zeros(objective.dim), 0.75 * tolerance)
    except ConvergenceError:
        raise descent.failure() from None
    point = best.point + found.point
    bound = found.gradient_norm + 1.01 * UNIT * alpha * float(np.linalg.norm(point))
    if not bound <= tolerance:
        raise descent.failure()
    return Solution(point, bound, descent.iterations + found.iterations)
