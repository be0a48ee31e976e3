"""Several classes in one fit against one class against the rest, at the same budget."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import numpy as np
from sklearn.metrics import log_loss

from benchmarks import Measurement
from dpconvex import DPLinearSVC, DPLogisticRegression
from dpconvex_reproduction.datasets import load_covtype, load_satimage

EPSILONS = (0.3, 1.0, 3.0)
SEEDS = 4
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, object]


def generated(n: int = 20_000, d: int = 10, k: int = 5, test: int = 30_000) -> Split:
    """Rows and labels of a softmax model."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n + test, d)).clip(-4, 4)
    margins = X @ (rng.normal(size=(k, d)) * 2 / np.sqrt(d)).T
    y = (margins + rng.gumbel(size=margins.shape)).argmax(axis=1)
    return X[:n], y[:n], X[n:], y[n:], (-4, 4)


def tables() -> Iterator[tuple[str, Split]]:
    yield "generated", generated()
    data = load_satimage(binary=False)
    yield "satimage", (data.X, data.y, data.X_test, data.y_test, data.feature_bounds)
    data = load_covtype(binary=False)
    order = np.random.default_rng(1).permutation(len(data.y))
    some, rest = order[:100_000], order[-40_000:]
    yield "covtype", (data.X[some], data.y[some], data.X[rest], data.y[rest], data.feature_bounds)


def measured(kind: type, split: Split, epsilon: float) -> tuple[float, float]:
    """Return mean log loss and accuracy on the test rows."""
    X, y, X_test, y_test, bounds = split
    losses, scores = [], []
    for seed in range(SEEDS):
        model = kind(epsilon=epsilon, feature_bounds=bounds, random_state=seed).fit(X, y)
        scores.append(model.score(X_test, y_test))
        if hasattr(model, "predict_proba"):
            losses.append(log_loss(y_test, model.predict_proba(X_test), labels=model.classes_))
    return float(np.mean(losses)) if losses else float("nan"), float(np.mean(scores))


def run() -> Iterator[Measurement]:
    for name, split in tables():
        for kind in (DPLogisticRegression, DPLinearSVC):
            for epsilon in EPSILONS:
                joint = measured(kind, split, epsilon)
                with mock.patch.object(kind, "_joint_loss", return_value=None):
                    apart = measured(kind, split, epsilon)
                title = f"{kind.__name__} {name}, epsilon {epsilon:g}"
                yield Measurement(
                    f"{title}: accuracy", joint[1], apart[1], at_most=False, detail="bar: against the rest"
                )
                if kind is DPLogisticRegression:
                    yield Measurement(f"{title}: log loss", joint[0], apart[0], detail="bar: against the rest")
