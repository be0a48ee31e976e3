"""Differentially private convex learning: linear models you may publish."""

from typing import TYPE_CHECKING

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
        ModelFileError,
        load_model,
        save_model,
    )
    from dpconvex.pipelines import check_pipeline
    from dpconvex.privacy import PrivacyWarning

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
    "PrivacyWarning",
    "__version__",
    "check_pipeline",
    "load_model",
    "save_model",
]
# Names that are no estimator's.
_ROOMS = {"PrivacyWarning": "dpconvex.privacy", "check_pipeline": "dpconvex.pipelines"}


def __getattr__(name: str) -> object:
    """Load the estimators, and scikit-learn with them, when one of their names is asked for."""
    if name.startswith("__"):
        raise AttributeError(f"module 'dpconvex' has no attribute {name!r}")
    from importlib import import_module

    estimators = import_module("dpconvex.estimators")
    if name in __all__:
        home = import_module(_ROOMS[name]) if name in _ROOMS else estimators
        globals()[name] = getattr(home, name)
    if name not in globals():  # among them the rooms that the estimators use
        raise AttributeError(f"module 'dpconvex' has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    """Return all names, those that are not loaded yet too."""
    return sorted({*globals(), *__all__})
