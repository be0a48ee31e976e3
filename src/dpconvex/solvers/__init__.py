"""Certified minimisers: the gradient norm they report holds at the point they return."""

from dpconvex.solvers.newton import Newton
from dpconvex.solvers.solution import ConvergenceError, Solution, Solver

__all__ = ["ConvergenceError", "Newton", "Solution", "Solver"]
