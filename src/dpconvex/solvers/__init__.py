"""Certified minimisers: what they report holds at the point they return.

>>> import numpy as np
>>> from dpconvex.core.memory_rows import MemoryRows
>>> from dpconvex.core.rows import RowMap
>>> from dpconvex.losses import Hinge, Logistic
>>> from dpconvex.objectives import EmpiricalObjective
>>> rows = MemoryRows(np.eye(4), np.array([1.0, -1.0, 1.0, 1.0]), RowMap(4, 1.0))
>>> smooth = EmpiricalObjective(rows, Logistic(), alpha=0.1)
>>> solvers = Newton(), LBFGS(), BlackBox("L-BFGS-B")
>>> [bool(each.solve(smooth, np.zeros(smooth.dim), 1e-8).gradient_norm <= 1e-8) for each in solvers]
[True, True, True]
>>> kinked = EmpiricalObjective(rows, Hinge(), alpha=0.1)
>>> bool(Envelope().solve(kinked, np.zeros(kinked.dim), 0.1).gradient_norm <= 0.1)
True
"""

from dpconvex.solvers.black_box import BlackBox, certify_point
from dpconvex.solvers.certified_descent import ConvergenceError, Solution, Solver
from dpconvex.solvers.duality_gap import Envelope, certified_gap
from dpconvex.solvers.newton_lbfgs import LBFGS, Newton, newton_or_lbfgs

__all__ = [
    "LBFGS",
    "BlackBox",
    "ConvergenceError",
    "Envelope",
    "Newton",
    "Solution",
    "Solver",
    "certified_gap",
    "certify_point",
    "newton_or_lbfgs",
]
