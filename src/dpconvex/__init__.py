"""Differentially private convex learning: linear models you may publish."""

from dpconvex.estimators import (
    DPAUCClassifier,
    DPLinearSVC,
    DPLogisticRegression,
    DPMedian,
    DPNewsvendor,
    DPPiecewiseLinear,
    DPQuantileRegressor,
    DPRobustClassifier,
    DPTiltedClassifier,
    DPTiltedRegressor,
    ModelFileError,
    load_model,
    save_model,
)

__version__ = "0.1.0"

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
    "__version__",
    "load_model",
    "save_model",
]
