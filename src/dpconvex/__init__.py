"""Differentially private convex learning: linear models you may publish."""

# ruff: noqa: F401, F403, F405 - names of estimators are listed in their room, too

from typing import TYPE_CHECKING

from dpconvex.core.stated_names import LOADERS
from dpconvex.models.saved_kinds import ESTIMATORS, INTERVALS
from dpconvex.system.lazy_imports import on_demand
from dpconvex.version import __version__

if TYPE_CHECKING:
    from dpconvex.estimators import *
    from dpconvex.inputs.pipelines import check_pipeline
    from dpconvex.privacy import PrivacyWarning

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
    "PrivacyWarning",
    "__version__",
    "check_pipeline",
    "load_model",
    "save_model",
]


def _load_stated_names() -> None:
    """Import every room that defines what a certificate can name."""
    from dpconvex import losses, smoothing
    from dpconvex.mechanisms import (
        auc_moments,
        dp_sgd,
        exponential,
        objective_perturbation,
        output_perturbation,
        pairwise_objective_perturbation,
        phased_erm,
        phased_sgd,
        plain_descent,
        private_fit,
        structured_descent,
    )
    from dpconvex.privacy.bounds import ranking, structured_bounds, tilted_and_robust_bounds


def _load_estimators() -> None:
    """Import the room of estimators, which model files can name."""
    from dpconvex import estimators


def _load_intervals() -> None:
    """Import the intervals that model files can hold."""
    from dpconvex.assessment import conformal_intervals


LOADERS.append(_load_stated_names)
ESTIMATORS.loaders.append(_load_estimators)
INTERVALS.loaders.append(_load_intervals)

if not TYPE_CHECKING:
    # Rooms, so that `import dpconvex` is enough for dpconvex.privacy.Ledger.
    _ROOMS = (
        "engine",
        "estimators",
        "inputs",
        "losses",
        "mechanisms",
        "models",
        "objectives",
        "planning",
        "privacy",
        "reports",
        "smoothing",
    )
    _HOMES = dict.fromkeys(__all__, "estimators") | {
        "PrivacyWarning": "privacy",
        "check_pipeline": "inputs.pipelines",
    }
    __getattr__, __dir__ = on_demand(__name__, _HOMES | {name: name for name in _ROOMS})
