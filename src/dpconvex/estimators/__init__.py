"""Estimators in scikit-learn's style: thin layers over losses, mechanisms and certificates."""

from .quantile import DPQuantileRegressor

__all__ = ["DPQuantileRegressor"]
