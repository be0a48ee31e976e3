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
from dpconvex.version import __version__

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
