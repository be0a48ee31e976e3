"""Certified minimisers: the gradient norm they report holds at the point they return."""

from dpconvex.solvers.lbfgs import LBFGS, default_solver
from dpconvex.solvers.newton import Newton
from dpconvex.solvers.solution import ConvergenceError, Solution, Solver

__all__ = ["LBFGS", "ConvergenceError", "Newton", "Solution", "Solver", "default_solver"]
