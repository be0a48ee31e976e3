"""Accuracy, log loss and pinball ratios of the defaults on real data, at the splits of the peers'
pages.

Half of the sets were looked at while the default was made, the others are blind; bars are for
epsilon 0.1 and 0.5 (and 1 for quantiles) at delta 1e-6, replace-one, with bounds alone.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from sklearn.linear_model import QuantileRegressor
from sklearn.metrics import log_loss, mean_pinball_loss

from benchmarks import Measurement
from dpconvex import DPLinearSVC, DPLogisticRegression, DPQuantileRegressor
from dpconvex_reproduction.peers.problems import DELTA, load

TUNING = ("a9a", "ijcnn1", "bike", "census_wages")
ACCURACY = {
    "a9a": {0.1: 0.836, 0.5: 0.849},
    "covtype": {0.1: 0.745, 0.5: 0.762},
    "ijcnn1": {0.1: 0.913, 0.5: 0.921},
    "bank_campaign": {0.1: 0.892, 0.5: 0.898},
}
PINBALL = {
    ("bike", 0.5): {0.1: 1.02, 0.5: 1.005, 1.0: 1.003},
    ("bike", 0.9): {0.1: 1.10, 0.5: 1.015, 1.0: 1.008},
    ("bike, indicators", 0.5): {0.1: 1.40, 0.5: 1.03, 1.0: 1.006},
    ("bike, indicators", 0.9): {0.1: 1.95, 0.5: 1.25, 1.0: 1.09},
    ("census_wages", 0.5): {0.1: None, 0.5: None, 1.0: None},
    ("census_wages", 0.9): {0.1: None, 0.5: None, 1.0: None},
}


@lru_cache
def exact_loss(name: str, level: float) -> float:
    """Return the test loss of the exact fit without privacy."""
    problem = load(name)
    exact = QuantileRegressor(quantile=level, alpha=0, solver="highs-ipm")
    exact.fit(problem.mapped(problem.X), problem.y)
    predicted = exact.predict(problem.mapped(problem.X_test))
    return float(mean_pinball_loss(problem.y_test, predicted, alpha=level))


def half(name: str) -> str:
    return "tuning" if name in TUNING else "blind"


def classifiers(names: tuple[str, ...], runs: int, svm: bool = True) -> Iterator[Measurement]:
    for name in names:
        problem = load(name)
        for epsilon, bar in ACCURACY[name].items():
            for estimator in (DPLogisticRegression, DPLinearSVC)[: 1 + svm]:
                scores = []
                losses = []
                for seed in range(runs):
                    model = estimator(
                        epsilon=epsilon,
                        delta=DELTA,
                        feature_bounds=problem.feature_bounds,
                        random_state=seed,
                    ).fit(problem.X, problem.y)
                    scores.append(model.score(problem.X_test, problem.y_test))
                    if estimator is DPLogisticRegression:
                        chances = model.predict_proba(problem.X_test)
                        losses.append(log_loss(problem.y_test, chances))
                error = np.std(scores) / np.sqrt(max(1, runs - 1))
                detail = f"{half(name)}; ± {error:.4f}"
                detail += f", log loss {np.mean(losses):.4f}" if losses else ""
                wanted = bar if estimator is DPLogisticRegression else None
                yield Measurement(
                    f"{estimator.__name__} {name}, eps={epsilon:g}",
                    float(np.mean(scores)),
                    wanted,
                    at_most=False,
                    detail=detail,
                )


def quantiles(names: tuple[str, ...], runs: int) -> Iterator[Measurement]:
    for (name, level), bars in PINBALL.items():
        if name not in names:
            continue
        problem = load(name)
        best = exact_loss(name, level)
        for epsilon, bar in bars.items():
            ratios = []
            for seed in range(runs):
                model = DPQuantileRegressor(
                    level,
                    epsilon=epsilon,
                    delta=DELTA,
                    random_state=seed,
                    feature_bounds=problem.feature_bounds,
                    target_bounds=problem.target_bounds,
                ).fit(problem.X, problem.y)
                predicted = model.predict(problem.X_test)
                loss = mean_pinball_loss(problem.y_test, predicted, alpha=level)
                ratios.append(loss / best)
            error = np.std(ratios) / np.sqrt(max(1, runs - 1))
            yield Measurement(
                f"pinball ratio {name} {level:g}, eps={epsilon:g}",
                float(np.mean(ratios)),
                bar,
                detail=f"{half(name)}; ± {error:.4f}",
            )


def run(runs: int = 20) -> Iterator[Measurement]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from classifiers(tuple(ACCURACY), runs)
        yield from quantiles(tuple(dict.fromkeys(name for name, _ in PINBALL)), runs)


def main() -> None:
    from benchmarks.__main__ import row

    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_defaults")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--names", nargs="+", default=list(TUNING))
    parser.add_argument("--svm", action="store_true")
    options = parser.parse_args()
    names = tuple(options.names)
    labels = tuple(name for name in names if name in ACCURACY)
    for found in classifiers(labels, options.runs, options.svm):
        print(row("real", found), flush=True)
    for found in quantiles(names, options.runs):
        print(row("real", found), flush=True)


if __name__ == "__main__":
    main()
