"""Estimators in scikit-learn's style: thin layers over losses, mechanisms and certificates."""

import sys
from functools import partial
from typing import TYPE_CHECKING

from dpconvex.models.saved_kinds import ESTIMATORS
from dpconvex.system.lazy_imports import on_demand

if TYPE_CHECKING:
    from dpconvex.estimators.classification import (
        DPLinearSVC,
        DPLogisticRegression,
        DPOrdinalRegression,
    )
    from dpconvex.estimators.linear import DPLinearRegression
    from dpconvex.estimators.quantile_and_newsvendor import DPNewsvendor, DPQuantileRegressor
    from dpconvex.estimators.ranking import DPAUCClassifier, DPTopRankClassifier
    from dpconvex.estimators.structured import DPBowl, DPL1Link, DPMedian, DPPiecewiseLinear
    from dpconvex.estimators.survival import DPDiscreteHazard
    from dpconvex.estimators.tilted_and_robust import (
        DPRobustClassifier,
        DPRobustRegressor,
        DPTiltedClassifier,
        DPTiltedRegressor,
    )
    from dpconvex.estimators.tweedie import DPGammaRegressor, DPPoissonRegressor, DPTweedieRegressor
    from dpconvex.models.model_file import ModelFileError, load_model, save_model
else:
    _TILTED_AND_ROBUST = (
        "RobustClassifier",
        "RobustRegressor",
        "TiltedClassifier",
        "TiltedRegressor",
    )
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            **dict.fromkeys(
                ("DPLinearSVC", "DPLogisticRegression", "DPOrdinalRegression"), "classification"
            ),
            **dict.fromkeys(("DPNewsvendor", "DPQuantileRegressor"), "quantile_and_newsvendor"),
            **dict.fromkeys(("DPAUCClassifier", "DPTopRankClassifier"), "ranking"),
            **dict.fromkeys(("DPBowl", "DPL1Link", "DPMedian", "DPPiecewiseLinear"), "structured"),
            **dict.fromkeys((f"DP{name}" for name in _TILTED_AND_ROBUST), "tilted_and_robust"),
            **dict.fromkeys(
                ("DPGammaRegressor", "DPPoissonRegressor", "DPTweedieRegressor"), "tweedie"
            ),
            **dict.fromkeys(("ModelFileError", "load_model", "save_model"), ".models.model_file"),
            "DPDiscreteHazard": "survival",
            "DPLinearRegression": "linear",
        },
    )

__all__ = [
    "DPAUCClassifier",
    "DPBowl",
    "DPDiscreteHazard",
    "DPGammaRegressor",
    "DPL1Link",
    "DPLinearRegression",
    "DPLinearSVC",
    "DPLogisticRegression",
    "DPMedian",
    "DPNewsvendor",
    "DPOrdinalRegression",
    "DPPiecewiseLinear",
    "DPPoissonRegressor",
    "DPQuantileRegressor",
    "DPRobustClassifier",
    "DPRobustRegressor",
    "DPTiltedClassifier",
    "DPTiltedRegressor",
    "DPTopRankClassifier",
    "DPTweedieRegressor",
    "ModelFileError",
    "load_model",
    "save_model",
]


def _register_saved_estimators() -> None:
    """Let model files name the estimators; a class is loaded when a file names it."""
    package = sys.modules[__name__]
    for name in __all__:
        if name.startswith("DP"):
            ESTIMATORS.add(name, partial(getattr, package, name))


_register_saved_estimators()
