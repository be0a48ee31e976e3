"""Estimators in scikit-learn's style: thin layers over losses, mechanisms and certificates."""

from typing import TYPE_CHECKING

from dpconvex.on_demand import on_demand

if TYPE_CHECKING:
    from dpconvex.estimators.auc import DPAUCClassifier
    from dpconvex.estimators.classification import DPLinearSVC, DPLogisticRegression
    from dpconvex.estimators.l1_and_bowl import DPBowl, DPL1Link
    from dpconvex.estimators.linear_regression import DPLinearRegression
    from dpconvex.estimators.median_and_piecewise import DPMedian, DPPiecewiseLinear
    from dpconvex.estimators.newsvendor import DPNewsvendor
    from dpconvex.estimators.quantile import DPQuantileRegressor
    from dpconvex.estimators.robust import DPRobustClassifier, DPRobustRegressor
    from dpconvex.estimators.tilted import DPTiltedClassifier, DPTiltedRegressor
    from dpconvex.estimators.top_rank import DPTopRankClassifier
    from dpconvex.models.file import ModelFileError, load_model, save_model
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "DPAUCClassifier": "auc",
            "DPBowl": "l1_and_bowl",
            "DPL1Link": "l1_and_bowl",
            "DPLinearRegression": "linear_regression",
            "DPLinearSVC": "classification",
            "DPLogisticRegression": "classification",
            "DPMedian": "median_and_piecewise",
            "DPNewsvendor": "newsvendor",
            "DPPiecewiseLinear": "median_and_piecewise",
            "DPQuantileRegressor": "quantile",
            "DPRobustClassifier": "robust",
            "DPRobustRegressor": "robust",
            "DPTiltedClassifier": "tilted",
            "DPTiltedRegressor": "tilted",
            "DPTopRankClassifier": "top_rank",
            "ModelFileError": ".models.file",
            "load_model": ".models.file",
            "save_model": ".models.file",
        },
    )

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
    "DPTopRankClassifier",
    "ModelFileError",
    "load_model",
    "save_model",
]
