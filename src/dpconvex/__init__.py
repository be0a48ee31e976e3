"""Differentially private convex learning: linear models you may publish."""

__version__ = "0.1.0"
