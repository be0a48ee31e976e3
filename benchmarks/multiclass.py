"""Several classes in one fit against one class against the rest, at the same budget; and what its
stages bring.

Stages are switched off or moved one at a time on a table that the fit was not made on: the log loss
over that of the fit as it is, both the mean over seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import numpy as np
from sklearn.metrics import log_loss

from benchmarks import Measurement
from benchmarks._ablation_variants import constant
from benchmarks.ablation import otherwise
from dpconvex import DPLinearSVC, DPLogisticRegression
from dpconvex.fit import constants
from dpconvex_reproduction.datasets import load_covtype, load_satimage

EPSILONS = (0.3, 1.0, 3.0)
STAGE_EPSILONS = (0.3, 1.0, 20.0)
SEEDS = 4
STAGES = {
    "no late rounds": {"LATE_SHARE": 0.0},
    "half as many late rounds": {"JOINT_ROUNDS": constants.JOINT_ROUNDS // 2},
    "flat directions believed": {"JOINT_MIN_EIGENVALUE": 0.02},
    "expected curvature believed": {
        "LOG_CURVATURE_STD": constants.LOG_CURVATURE_STD | {"several": 0.0}
    },
    "intercepts not centred": {"INTERCEPT_RECORDS": 0.0},
}
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, object]


def generated(n: int = 20_000, d: int = 10, k: int = 5, test: int = 30_000) -> Split:
    """Rows and labels of a softmax model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n + test, d)).clip(-4, 4)
    margins = X @ (rng.normal(size=(k, d)) * 2 / np.sqrt(d)).T
    y = (margins + rng.gumbel(size=margins.shape)).argmax(axis=1)
    return X[:n], y[:n], X[n:], y[n:], (-4, 4)


def flags(n: int = 10_000, test: int = 20_000) -> Split:
    """Flags of shares from 1 to 40 %, amounts with zeros and bounds 30 times as wide; a class of
    3 %.
    """
    rng = np.random.default_rng(0)
    X = np.hstack(
        [
            rng.random((n + test, 10)) < np.geomspace(0.01, 0.4, 10),
            np.exp(rng.normal(size=(n + test, 3))),
        ]
    )
    X[:, 10:] = np.where(rng.random((n + test, 3)) < 0.4, X[:, 10:].clip(0, 30), 0.0)
    slopes = rng.normal(size=(4, 13)) * np.repeat([1.0, 0.5], [10, 3])
    margins = X @ slopes.T + [0.0, -0.5, -1.0, -3.0]
    y = (margins + rng.gumbel(size=margins.shape)).argmax(axis=1)
    return X[:n], y[:n], X[n:], y[n:], (np.zeros(13), np.repeat([1.0, 1000.0], [10, 3]))


def tables() -> Iterator[tuple[str, Split]]:
    yield "generated", generated()
    data = load_satimage(binary=False)
    yield "satimage", (data.X, data.y, data.X_test, data.y_test, data.feature_bounds)
    data = load_covtype(binary=False)
    order = np.random.default_rng(1).permutation(len(data.y))
    some = order[:100_000]
    rest = order[-40_000:]
    yield "covtype", (data.X[some], data.y[some], data.X[rest], data.y[rest], data.feature_bounds)


def measured(kind: type, split: Split, epsilon: float) -> tuple[float, float]:
    """Return mean log loss and accuracy on the test rows."""
    X, y, X_test, y_test, bounds = split
    losses = []
    scores = []
    for seed in range(SEEDS):
        model = kind(epsilon=epsilon, feature_bounds=bounds, random_state=seed).fit(X, y)
        scores.append(model.score(X_test, y_test))
        if hasattr(model, "predict_proba"):
            losses.append(log_loss(y_test, model.predict_proba(X_test), labels=model.classes_))
    return float(np.mean(losses)) if losses else float("nan"), float(np.mean(scores))


def stages() -> Iterator[Measurement]:
    """Yield what each stage of the joint fit brings."""
    split = flags()
    for epsilon in STAGE_EPSILONS:
        plain = measured(DPLogisticRegression, split, epsilon)[0]
        for name, changes in STAGES.items():
            with otherwise(constant(**changes)):
                ratio = measured(DPLogisticRegression, split, epsilon)[0] / plain
            yield Measurement(f"flags, epsilon {epsilon:g}, {name}: log loss over as it is", ratio)


def run() -> Iterator[Measurement]:
    yield from stages()
    for name, split in tables():
        for kind in (DPLogisticRegression, DPLinearSVC):
            for epsilon in EPSILONS:
                joint = measured(kind, split, epsilon)
                with mock.patch.object(kind, "_joint_loss", return_value=None):
                    apart = measured(kind, split, epsilon)
                title = f"{kind.__name__} {name}, epsilon {epsilon:g}"
                yield Measurement(
                    f"{title}: accuracy",
                    joint[1],
                    apart[1],
                    at_most=False,
                    detail="bar: against the rest",
                )
                if kind is DPLogisticRegression:
                    yield Measurement(
                        f"{title}: log loss", joint[0], apart[0], detail="bar: against the rest"
                    )
