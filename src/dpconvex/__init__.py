"""Differentially private convex learning: linear models you may publish."""

from typing import TYPE_CHECKING

from dpconvex.lazy_imports import on_demand
from dpconvex.version import __version__

if TYPE_CHECKING:
    from dpconvex.estimators import (
        DPAUCClassifier,
        DPBowl,
        DPDiscreteHazard,
        DPGammaRegressor,
        DPL1Link,
        DPLinearRegression,
        DPLinearSVC,
        DPLogisticRegression,
        DPMedian,
        DPNewsvendor,
        DPOrdinalRegression,
        DPPiecewiseLinear,
        DPPoissonRegressor,
        DPQuantileRegressor,
        DPRobustClassifier,
        DPRobustRegressor,
        DPTiltedClassifier,
        DPTiltedRegressor,
        DPTopRankClassifier,
        DPTweedieRegressor,
        ModelFileError,
        load_model,
        save_model,
    )
    from dpconvex.pipelines import check_pipeline
    from dpconvex.privacy import PrivacyWarning
else:
    _MODELS = (
        "DPAUCClassifier", "DPBowl", "DPDiscreteHazard", "DPGammaRegressor", "DPL1Link", "DPLinearRegression",
        "DPLinearSVC", "DPLogisticRegression", "DPMedian", "DPNewsvendor", "DPOrdinalRegression", "DPPiecewiseLinear",
        "DPPoissonRegressor", "DPQuantileRegressor", "DPRobustClassifier", "DPRobustRegressor", "DPTiltedClassifier",
        "DPTiltedRegressor", "DPTopRankClassifier", "DPTweedieRegressor", "ModelFileError", "load_model", "save_model",
    )  # fmt: skip
    # Rooms, so that `import dpconvex` is enough for dpconvex.privacy.Ledger.
    _ROOMS = (
        "engine", "estimators", "inputs", "losses", "mechanisms", "models", "objectives", "planning", "privacy",
        "reports", "smoothing",
    )  # fmt: skip
    _HOMES = {name: name for name in _ROOMS} | dict.fromkeys(_MODELS, "estimators")
    __getattr__, __dir__ = on_demand(__name__, _HOMES | {"PrivacyWarning": "privacy", "check_pipeline": "pipelines"})

__all__ = [
    "DPAUCClassifier", "DPBowl", "DPDiscreteHazard", "DPGammaRegressor", "DPL1Link", "DPLinearRegression",
    "DPLinearSVC", "DPLogisticRegression", "DPMedian", "DPNewsvendor", "DPOrdinalRegression", "DPPiecewiseLinear",
    "DPPoissonRegressor", "DPQuantileRegressor", "DPRobustClassifier", "DPRobustRegressor", "DPTiltedClassifier",
    "DPTiltedRegressor", "DPTopRankClassifier", "DPTweedieRegressor", "ModelFileError", "PrivacyWarning", "__version__",
    "check_pipeline", "load_model", "save_model",
]  # fmt: skip
