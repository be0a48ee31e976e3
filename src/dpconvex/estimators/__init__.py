"""Estimators in scikit-learn's style: thin layers over losses, mechanisms and certificates."""

from dpconvex.estimators.auc import DPAUCClassifier
from dpconvex.estimators.classification import DPLinearSVC, DPLogisticRegression
from dpconvex.estimators.l1_and_bowl import DPBowl, DPL1Link
from dpconvex.estimators.linear_regression import DPLinearRegression
from dpconvex.estimators.median_and_piecewise import DPMedian, DPPiecewiseLinear
from dpconvex.estimators.newsvendor import DPNewsvendor
from dpconvex.estimators.quantile import DPQuantileRegressor
from dpconvex.estimators.robust import DPRobustClassifier, DPRobustRegressor
from dpconvex.estimators.tilted import DPTiltedClassifier, DPTiltedRegressor
from dpconvex.models.file import ModelFileError, load_model, save_model
from dpconvex.models.parsing import register

__all__ = [
    "DPAUCClassifier",
    "DPBowl",
    "DPL1Link",
    "DPLinearRegression",
    "DPLinearSVC",
    "DPLogisticRegression",
    "DPMedian",
    "DPNewsvendor",
    "DPPiecewiseLinear",
    "DPQuantileRegressor",
    "DPRobustClassifier",
    "DPRobustRegressor",
    "DPTiltedClassifier",
    "DPTiltedRegressor",
    "ModelFileError",
    "load_model",
    "save_model",
]

register(
    DPAUCClassifier,
    DPBowl,
    DPL1Link,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPMedian,
    DPNewsvendor,
    DPPiecewiseLinear,
    DPQuantileRegressor,
    DPRobustClassifier,
    DPRobustRegressor,
    DPTiltedClassifier,
    DPTiltedRegressor,
)
