"""Differentially private convex learning: linear models you may publish."""

from typing import TYPE_CHECKING

from dpconvex.version import __version__

if TYPE_CHECKING:
    from dpconvex.estimators import (
        DPAUCClassifier,
        DPLinearRegression,
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

__all__ = [
    "DPAUCClassifier",
    "DPLinearRegression",
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


def __getattr__(name: str) -> object:
    """Load the estimators, and scikit-learn with them, when one of their names is asked for."""
    if name.startswith("__"):
        raise AttributeError(f"module 'dpconvex' has no attribute {name!r}")
    import dpconvex.estimators as estimators

    if name in __all__:
        globals()[name] = getattr(estimators, name)
    if name not in globals():  # among them the rooms that the estimators use
        raise AttributeError(f"module 'dpconvex' has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    """Return all names, those that are not loaded yet too."""
    return sorted({*globals(), *__all__})
