"""Estimators in scikit-learn's style: thin layers over losses, mechanisms and certificates."""

from typing import TYPE_CHECKING

from dpconvex.on_demand import on_demand

if TYPE_CHECKING:
    from dpconvex.estimators.auc import DPAUCClassifier
    from dpconvex.estimators.classification import DPLinearSVC, DPLogisticRegression
    from dpconvex.estimators.linear import DPLinearRegression
    from dpconvex.estimators.ordinal import DPOrdinalRegression
    from dpconvex.estimators.quantile_and_newsvendor import DPNewsvendor, DPQuantileRegressor
    from dpconvex.estimators.rates import DPGammaRegressor, DPPoissonRegressor, DPTweedieRegressor
    from dpconvex.estimators.structured import DPBowl, DPL1Link, DPMedian, DPPiecewiseLinear
    from dpconvex.estimators.survival import DPDiscreteHazard
    from dpconvex.estimators.tilted_and_robust import (
        DPRobustClassifier,
        DPRobustRegressor,
        DPTiltedClassifier,
        DPTiltedRegressor,
    )
    from dpconvex.estimators.top_rank import DPTopRankClassifier
    from dpconvex.models.model_file import ModelFileError, load_model, save_model
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "DPAUCClassifier": "auc", "DPBowl": "structured", "DPDiscreteHazard": "survival",
            "DPGammaRegressor": "rates", "DPL1Link": "structured",
            "DPLinearRegression": "linear", "DPLinearSVC": "classification", "DPLogisticRegression": "classification",
            "DPMedian": "structured", "DPNewsvendor": "quantile_and_newsvendor", "DPOrdinalRegression": "ordinal",
            "DPPiecewiseLinear": "structured",
            "DPPoissonRegressor": "rates", "DPTweedieRegressor": "rates",
            "DPQuantileRegressor": "quantile_and_newsvendor", "DPRobustClassifier": "tilted_and_robust",
            "DPRobustRegressor": "tilted_and_robust", "DPTiltedClassifier": "tilted_and_robust",
            "DPTiltedRegressor": "tilted_and_robust", "DPTopRankClassifier": "top_rank",
            "ModelFileError": ".models.model_file", "load_model": ".models.model_file",
            "save_model": ".models.model_file",
        },
    )  # fmt: skip

__all__ = [
    "DPAUCClassifier", "DPBowl", "DPDiscreteHazard", "DPGammaRegressor", "DPL1Link", "DPLinearRegression",
    "DPLinearSVC", "DPLogisticRegression", "DPMedian", "DPNewsvendor", "DPOrdinalRegression", "DPPiecewiseLinear",
    "DPPoissonRegressor", "DPQuantileRegressor", "DPRobustClassifier", "DPRobustRegressor", "DPTiltedClassifier",
    "DPTiltedRegressor", "DPTopRankClassifier", "DPTweedieRegressor", "ModelFileError", "load_model", "save_model",
]  # fmt: skip
