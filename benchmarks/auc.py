"""AUC maximisation: time of the sums over all pairs, and AUC against the paper's algorithms with sound constants.

Data: ijcnn1, satimage (raw bytes, labels 1-3 against the rest) and http, without tuning. Public lower bounds on class
counts are rounded down from what is known of the data: 4,000 and 40,000; 2,000 and 1,500; 2,000 and 500,000. The
paper's penalty is the best of its grid at epsilon 0.1, found without privacy; it is given the same lower bounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks import Measurement, best_time, one_time
from dpconvex import DPAUCClassifier
from dpconvex.datasets import load_http, load_ijcnn1, load_satimage
from dpconvex.engine import MemoryRows
from dpconvex.experiments.auc_erm import PENALTIES, sound
from dpconvex.losses import PairLogistic
from dpconvex.objectives import PairwiseObjective
from dpconvex.objectives.pair_sums import logistic_sums

Array = NDArray[np.float64]

EPSILONS = (0.025, 0.05, 0.1, 0.2, 0.5)
COUNTS = {"ijcnn1": (4_000, 40_000), "satimage": (2_000, 1_500), "http": (2_000, 500_000)}
BARS = {("ijcnn1", 0.2): 0.87, ("satimage", 0.5): 0.94, ("http", 0.1): 0.99}
REPEATS = {"ijcnn1": 10, "satimage": 20, "http": 3}
OUT = Path("out") / "auc.json"


class Problem:
    """A data set with its test part, and the facts that all methods share."""

    def __init__(self, data: Any) -> None:
        self.name = data.name
        self.X, self.y = data.X, data.y == data.y.max()
        self.test_X, self.test_y = self.X, self.y
        if data.X_test is not None:
            self.test_X, self.test_y = data.X_test, data.y_test == data.y.max()
        positive, negative = COUNTS[self.name]
        self.settings = {
            "feature_bounds": data.feature_bounds,
            "min_positive": positive,
            "min_negative": negative,
        }
        plan = self.model(mechanism="output")._plan(*self.X.shape, 2)
        self.bounds = replace(plan.certificate.bounds, loss=PairLogistic("2"))
        rows = MemoryRows(self.X, np.where(self.y, 1.0, -1.0), plan.row_map)
        self.scale = np.array(plan.row_map.scale)
        self.objective = PairwiseObjective(rows, None, self.bounds.loss, 1.0)

    def model(self, **settings: Any) -> DPAUCClassifier:
        """Return an estimator with the shared facts."""
        return DPAUCClassifier(**{**self.settings, **settings})

    def auc(self, coefficients: Array) -> float:
        """Return the AUC on the test part of coefficients in the user's units."""
        return float(roc_auc_score(self.test_y, self.test_X @ np.ravel(coefficients)))

    def ours(self, epsilon: float, delta: float, **settings: Any) -> float:
        """Return our mean AUC."""
        return float(
            np.mean(
                [
                    self.auc(
                        self.model(epsilon=epsilon, delta=delta, random_state=seed, **settings)
                        .fit(self.X, self.y)
                        .coef_
                    )
                    for seed in range(REPEATS[self.name])
                ]
            )
        )

    def theirs(self, algorithm: int, epsilon: float, delta: float, penalty: float) -> float:
        """Return the paper's mean AUC with sound constants."""
        bounds = replace(self.bounds, alpha=penalty)
        return float(
            np.mean(
                [
                    self.auc(
                        self.scale
                        * sound(algorithm, self.objective, bounds, epsilon, delta, 100 + seed)
                    )
                    for seed in range(REPEATS[self.name])
                ]
            )
        )


def direct_sums(targets: Array, sources: Array) -> Array:
    """Return the slopes' sums by vectorised numpy, one target at a time."""
    return np.array([(1 / (1 + np.exp(sources - target))).sum() for target in targets])


def speed(problem: Problem) -> Iterator[Measurement]:
    """Yield times on the 1.25 billion pairs of http."""
    objective = problem.objective
    w = np.array([0.3, -0.5, 0.8])
    s, t = objective.positives @ w, objective.negatives @ w
    fast = best_time(lambda: (logistic_sums(-s, -t), logistic_sums(t, s)))
    part = slice(None, None, 20)
    slow = one_time(lambda: direct_sums(-s[part], -t)) * s.size / s[part].size
    yield Measurement(
        "pair sums on http, direct / ours",
        slow / fast,
        80,
        at_most=False,
        detail=f"{slow:.2f} s / {fast:.3f} s; direct: sums of the positives only",
    )
    both = best_time(lambda: objective.value_and_gradient(w))
    yield Measurement("objective and gradient on http, seconds", both, 0.3)


def run(quick: bool = False) -> Iterator[Measurement]:
    """Yield speeds, then one AUC per data set, epsilon and delta against the paper's."""
    problems = [Problem(load()) for load in (load_http, load_satimage, load_ijcnn1)]
    yield from speed(problems[0])
    records = []
    for problem in problems:
        n = len(problem.y)
        for delta in (0.0, 1 / n**2):
            tuned = {
                algorithm: max(
                    PENALTIES, key=lambda a, k=algorithm, d=delta: problem.theirs(k, 0.1, d, a)
                )
                for algorithm in (1, 2)
            }
            for epsilon in EPSILONS[2:] if quick else EPSILONS:
                theirs = max(problem.theirs(k, epsilon, delta, tuned[k]) for k in (1, 2))
                settings = {"loss": "hinge"} if delta == 0 else {}
                ours = problem.ours(epsilon, delta, **settings)
                bar = BARS.get((problem.name, epsilon)) if delta > 0 else None
                name = (
                    f"AUC, {problem.name}, eps={epsilon:g}, delta={'0' if delta == 0 else '1/n^2'}"
                )
                records.append(
                    {
                        "data": problem.name,
                        "epsilon": epsilon,
                        "delta": delta,
                        "auc": ours,
                        "paper_with_sound_constants": theirs,
                        "penalties": tuned,
                    }
                )
                yield Measurement(
                    name,
                    ours,
                    max(theirs, bar or 0.0),
                    at_most=False,
                    detail=f"the paper's best {theirs:.4f}" + (f", bar {bar}" if bar else ""),
                )
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(records, indent=2) + "\n")
