"""Differentially private convex learning: linear models you may publish."""

from .estimators import DPQuantileRegressor

__version__ = "0.1.0"

__all__ = ["DPQuantileRegressor", "__version__"]
