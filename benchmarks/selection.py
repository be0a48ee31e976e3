"""Private selection: excess loss of the chosen model against an even split of the same total
budget.

Both choose the penalty of output perturbation among sixteen, within epsilon 1 and delta 1e-6 in
total. The even split fits each candidate with a sixteenth of both on the same training rows and
chooses as well as DPSelect does, for free.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks import Measurement
from dpconvex import DPQuantileRegressor
from dpconvex.datasets import make_newsvendor
from dpconvex.selection import DPSelect

QUANTILE = 0.75
ROWS = 8_000
SEEDS = 6
ALPHAS = np.geomspace(1e-3, 3.0, 16).tolist()


def _model(**settings: float) -> DPQuantileRegressor:
    return DPQuantileRegressor(
        QUANTILE, feature_bounds=(-4, 4), target_bounds=(-20, 20), mechanism="output", **settings
    )


def run() -> Iterator[Measurement]:
    selected = []
    even = []
    for seed in range(SEEDS):
        sample = make_newsvendor(ROWS, rng=seed, quantile=QUANTILE)
        best = sample.risk(sample.theta_star)

        def excess(model: object, sample: object = sample, best: float = best) -> float:
            theta = np.r_[model.intercept_, model.coef_]  # type: ignore[attr-defined]
            return sample.risk(theta) / best - 1  # type: ignore[attr-defined]

        selected.append(excess(DPSelect(_model(), {"alpha": ALPHAS}).fit(sample.X, sample.y)))
        held = ROWS // 4
        fits = [
            _model(epsilon=1 / len(ALPHAS), delta=1e-6 / len(ALPHAS), alpha=alpha).fit(
                sample.X[held:], sample.y[held:]
            )
            for alpha in ALPHAS
        ]
        scores = [fit.score(sample.X[:held], sample.y[:held]) for fit in fits]
        even.append(excess(fits[int(np.argmax(scores))]))
    ratio = float(np.mean(selected) / np.mean(even))
    detail = f"{np.mean(selected):.1%} and {np.mean(even):.1%}, {SEEDS} seeds"
    yield Measurement("selection: excess loss, DPSelect / even split", ratio, 0.8, detail=detail)
