"""Estimators in scikit-learn's style: thin layers over losses, mechanisms and certificates."""

from .model_file import ModelFileError, load_model, save_model
from .quantile import DPQuantileRegressor

__all__ = ["DPQuantileRegressor", "ModelFileError", "load_model", "save_model"]
