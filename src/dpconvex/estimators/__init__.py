"""Estimators in scikit-learn's style: thin layers over losses, mechanisms and certificates."""

from .auc import DPAUCClassifier
from .classification import DPLinearSVC, DPLogisticRegression
from .model_file import ModelFileError, load_model, save_model
from .newsvendor import DPNewsvendor
from .quantile import DPQuantileRegressor
from .robust import DPRobustClassifier
from .structured import DPMedian, DPPiecewiseLinear
from .tilted import DPTiltedClassifier, DPTiltedRegressor

__all__ = [
    "DPAUCClassifier",
    "DPLinearSVC",
    "DPLogisticRegression",
    "DPMedian",
    "DPNewsvendor",
    "DPPiecewiseLinear",
    "DPQuantileRegressor",
    "DPRobustClassifier",
    "DPTiltedClassifier",
    "DPTiltedRegressor",
    "ModelFileError",
    "load_model",
    "save_model",
]
