"""Data and a loss become a function of theta, always a MEAN over rows."""

from dpconvex.objectives.empirical import EmpiricalObjective

__all__ = ["EmpiricalObjective"]
