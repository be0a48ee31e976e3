"""Differentially private convex learning: linear models you may publish."""

from typing import TYPE_CHECKING

from dpconvex.on_demand import on_demand
from dpconvex.version import __version__

if TYPE_CHECKING:
    from dpconvex.estimators import (
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
        DPTopRankClassifier,
        ModelFileError,
        load_model,
        save_model,
    )
    from dpconvex.pipelines import check_pipeline
    from dpconvex.privacy import PrivacyWarning
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "DPAUCClassifier": "estimators",
            "DPBowl": "estimators",
            "DPL1Link": "estimators",
            "DPLinearRegression": "estimators",
            "DPLinearSVC": "estimators",
            "DPLogisticRegression": "estimators",
            "DPMedian": "estimators",
            "DPNewsvendor": "estimators",
            "DPPiecewiseLinear": "estimators",
            "DPQuantileRegressor": "estimators",
            "DPRobustClassifier": "estimators",
            "DPRobustRegressor": "estimators",
            "DPTiltedClassifier": "estimators",
            "DPTiltedRegressor": "estimators",
            "DPTopRankClassifier": "estimators",
            "ModelFileError": "estimators",
            "PrivacyWarning": "privacy",
            "check_pipeline": "pipelines",
            "load_model": "estimators",
            "save_model": "estimators",
            # Rooms, so that `import dpconvex` is enough for dpconvex.privacy.Ledger.
            "planning": "planning",
            "engine": "engine",
            "estimators": "estimators",
            "inputs": "inputs",
            "losses": "losses",
            "mechanisms": "mechanisms",
            "models": "models",
            "objectives": "objectives",
            "privacy": "privacy",
            "smoothing": "smoothing",
            "reports": "reports",
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
    "PrivacyWarning",
    "__version__",
    "check_pipeline",
    "load_model",
    "save_model",
]
