"""Certified minimisers: what they report holds at the point they return."""

from dpconvex.solvers.black_box import BlackBox, certify_point
from dpconvex.solvers.gap import Envelope, certified_gap
from dpconvex.solvers.lbfgs import LBFGS, default_solver
from dpconvex.solvers.newton import Newton
from dpconvex.solvers.solution import ConvergenceError, Solution, Solver

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
    "default_solver",
]
