"""Certified minimisers: what they report holds at the point they return."""

from dpconvex.solvers.accelerated import AcceleratedGradient
from dpconvex.solvers.black_box import BlackBox, certify_point
from dpconvex.solvers.gap import Envelope, certified_gap
from dpconvex.solvers.katyusha import Katyusha
from dpconvex.solvers.lbfgs import LBFGS, default_solver
from dpconvex.solvers.minimax import MinimaxProximalPoint, SaddleProblem
from dpconvex.solvers.newton import Newton
from dpconvex.solvers.solution import ConvergenceError, Solution, Solver
from dpconvex.solvers.subgradient import StochasticSubgradient, Subgradient

__all__ = [
    "LBFGS",
    "AcceleratedGradient",
    "BlackBox",
    "ConvergenceError",
    "Envelope",
    "Katyusha",
    "MinimaxProximalPoint",
    "Newton",
    "SaddleProblem",
    "Solution",
    "Solver",
    "StochasticSubgradient",
    "Subgradient",
    "certified_gap",
    "certify_point",
    "default_solver",
]
