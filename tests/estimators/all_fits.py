"""Every estimator with every mechanism it offers, small enough to be fitted hundreds of times."""

from __future__ import annotations

import numpy as np

from dpconvex import (
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
)
from dpconvex.mechanisms import NoisyGradientDescent, NoisySGD, StructuredGradientDescent

SUMS = {
    "objective": {"mechanism": "objective"},
    "output": {"mechanism": "output"},
    "gradient": {"mechanism": "gradient"},
    "plain gradient": {"mechanism": NoisyGradientDescent(steps=5, average=False)},
}
RECORDS = {
    "sgd": {"mechanism": NoisySGD(steps=50)},
    "phased-erm": {"mechanism": "phased-erm"},
    "phased-sgd": {"mechanism": "phased-sgd"},
}
LABELS = [0, 1]


# Nine rows, a public number, leave enough for intervals at a large budget only.
INTERVALS = {"intervals": {"inference": True, "epsilon": None, "mu": 40.0}}


def _regression(kind, choices, target_bounds=(-2, 2), **more):
    return {
        f"{kind.__name__} {name}": lambda choice=choice: kind(
            feature_bounds=(-1, 1),
            target_bounds=target_bounds,
            **{"epsilon": 1.0, **choice},
            **more,
        )
        for name, choice in choices.items()
    }


def _classification(kind, choices, **more):
    return {
        f"{kind.__name__} {name}": lambda choice=choice: kind(
            feature_bounds=(-1, 1), classes=LABELS, **{"epsilon": 1.0, **choice}, **more
        )
        for name, choice in choices.items()
    }


def _matrices(kind):
    return {
        f"{kind.__name__} objective": lambda: kind(epsilon=1.0, mechanism="objective"),
        f"{kind.__name__} gradient": lambda: kind(
            epsilon=1.0, mechanism=StructuredGradientDescent(steps=5)
        ),
    }


REGRESSIONS = {
    **_regression(DPQuantileRegressor, {**SUMS, **RECORDS, **INTERVALS}, quantile=0.7),
    **_regression(DPQuantileRegressor, {"levels": {"quantile": (0.2, 0.5, 0.9)}}),
    **_regression(DPNewsvendor, {"output": SUMS["output"]}, underage_cost=3.0),
    **_regression(DPTiltedRegressor, {"output": {}, "share": {"share": 0.2}}),
    **_regression(DPRobustRegressor, {"l2": {}, "linf": {"norm": "linf", "loss": "absolute"}}),
    **_regression(DPLinearRegression, {"sums": {}, "output": SUMS["output"], **INTERVALS}),
    "DPDiscreteHazard gradient": lambda: DPDiscreteHazard(
        (0.5, 1.0), epsilon=1.0, feature_bounds=(-1, 1)
    ),
    **_regression(DPPoissonRegressor, {**SUMS, **INTERVALS}, (0, 2)),
    **_regression(DPGammaRegressor, {"sums": {}, "output": SUMS["output"]}, (0.1, 2)),
    **_regression(
        DPTweedieRegressor,
        {"sums": {}, "objective": {"mechanism": "objective", "alpha": 300.0}},
        (0, 2),
    ),
}
CLASSIFICATIONS = {
    **_classification(DPLogisticRegression, {**SUMS, **RECORDS, **INTERVALS}),
    **_classification(DPLinearSVC, {**SUMS, **RECORDS}),
    **_classification(DPOrdinalRegression, {"gradient": {}}),
    **_classification(DPTiltedClassifier, {"output": {}, "share": {"share": 0.2}}),
    **_classification(
        DPTopRankClassifier, {"output": {"top": 5}, "pure": {"delta": 0, "loss": "hinge"}}
    ),
    **_classification(
        DPRobustClassifier,
        {
            "l2": {},
            "linf": {"norm": "linf"},
            "l1": {"norm": "l1"},
            "cost": {"cost": 300.0, "alpha": 0.05},
        },
    ),
}
AUCS = _classification(
    DPAUCClassifier,
    {
        "moments": {"mechanism": "moments"},
        "objective": {"mechanism": "objective", "min_positive": 5, "min_negative": 5},
        "pure": {"mechanism": "objective", "delta": 0, "alpha": 50.0},
        "output": {"mechanism": "output", "loss": "hinge"},
        "squared": {"mechanism": "output", "loss": "squared"},
        "gradient": {"mechanism": "gradient"},
        "plain gradient": SUMS["plain gradient"],
    },
)
MATRICES = {
    name: fit
    for kind in (DPMedian, DPPiecewiseLinear, DPBowl, DPL1Link)
    for name, fit in _matrices(kind).items()
}
TABLES = {**REGRESSIONS, **CLASSIFICATIONS, **AUCS}
ALL = {**TABLES, **MATRICES}


def training_data(name, rows=24, columns=2, seed=0):
    """Return features and target that the estimator of this name takes."""
    rng = np.random.default_rng(seed)
    if name in MATRICES:
        return rng.uniform(-1, 1, (rows, 2, columns)), rng.uniform(-1, 1, (rows, 2))
    X = rng.uniform(-1, 1, (rows, columns))
    noise = rng.normal(0, 0.3, rows)
    if name in REGRESSIONS:
        return X, X.sum(axis=1) + noise
    return X, (X.sum(axis=1) + noise > 0).astype(np.int64)
