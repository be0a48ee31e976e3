"""Estimators in scikit-learn's style: thin layers over losses, mechanisms and certificates."""

from .classification import DPLinearSVC, DPLogisticRegression
from .model_file import ModelFileError, load_model, save_model
from .newsvendor import DPNewsvendor
from .quantile import DPQuantileRegressor

__all__ = [
    "DPLinearSVC",
    "DPLogisticRegression",
    "DPNewsvendor",
    "DPQuantileRegressor",
    "ModelFileError",
    "load_model",
    "save_model",
]
