r"""Two neighbouring data sets that tell apart what an algorithm does with one record.

Forty common records pull the coefficients up; the last record has a very long row and a demand far
above or far below. Its gradient is truncated to norm B like any other, which is the worst case of
the constant-step algorithm: a test of the last iterate attains ``G_mu`` exactly. But the cost on
which the line search looks is not truncated: there the one record outweighs all others, and steps
are long or very short as it wishes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpconvex import DPNewsvendor
from dpconvex.audit.attacks import clopper_pearson_lower, clopper_pearson_upper
from dpconvex_reproduction.exhibit import Cell, Row, Study
from dpconvex_reproduction.newsvendor_gdp.algorithm import (
    STEPS,
    TRUNCATION,
    calibrated_std,
    noise_std,
    truncated_rows,
)
from dpconvex_reproduction.newsvendor_gdp.line_search import line_search_descent
from dpconvex_reproduction.newsvendor_gdp.published import BUDGETS

__all__ = ["STUDY", "neighbors", "refuted_mu", "smallest_mu"]

Array = NDArray[np.float64]

COMMON = 40
LEVEL = 0.5
STEP = 2.0
REFUTING_RUNS = 500
_RUNS = {"paper": 2000, "sound": 20_000, "dpconvex": 300}
_ERROR = 5e-7  # of each of the two confidence bounds


def neighbors() -> tuple[Array, Array, Array]:
    """Return features, and the demands of the two data sets; they differ in the last one."""
    X = np.tile([1.0, 1.0, 1.0, 0.0], (COMMON + 1, 1))
    X[-1] = [1e6, 0.0, 0.0, 0.0]
    demand = np.full(COMMON + 1, 1e6)
    above = demand.copy()
    below = demand.copy()
    above[-1] = 1e12
    below[-1] = -1e12
    return X, above, below


def _constant_step(rows: Array, demand: Array, std: float, runs: int, rng: Any) -> Array:
    """Run the constant-step algorithm many times; a demand out of reach has the same slope at
    every iterate.
    """
    slopes = np.where(demand > 0, -LEVEL, 1 - LEVEL)
    gradient = slopes @ truncated_rows(rows, TRUNCATION)
    noise = rng.standard_normal((runs, STEPS, rows.shape[1])).sum(axis=1) * std
    return np.asarray(-STEP / len(demand) * (STEPS * gradient + noise))


def _outputs(variant: str, mu: float, runs: int, seed: int) -> tuple[Array, Array]:
    """Return the coefficient of the first feature over many runs, on each of the two data sets."""
    X, above, below = neighbors()
    rows = np.column_stack([np.ones(len(X)), X])
    rng = np.random.default_rng([seed, 3])
    outputs = []
    for side, demand in enumerate((above, below)):
        if variant == "paper":
            stds = np.full(runs, noise_std(LEVEL, mu))
            betas = line_search_descent(rows, demand, LEVEL, stds, rng, shared_noise=False)
            outputs.append(betas[:, 1])
        elif variant == "sound":
            std = calibrated_std(LEVEL, mu)
            outputs.append(_constant_step(rows, demand, std, runs, rng)[:, 1])
        else:
            model = DPNewsvendor(
                LEVEL, 1 - LEVEL, mu=mu, feature_bounds=(-4.0, 4.0), target_bounds=(-20.0, 20.0)
            )
            first = [
                model.set_params(random_state=[seed, side, run]).fit(X, demand).coef_[0]
                for run in range(runs)
            ]
            outputs.append(np.array(first))
    return outputs[0], outputs[1]


def smallest_mu(hits: int, false_hits: int, runs: int) -> float:
    """Return the least mu that allows these counts, wrong with probability at most 1e-6; 0 when any
    does.

    Examples
    --------
    >>> round(smallest_mu(1000, 0, 1000), 2)
    4.37
    """
    power = clopper_pearson_lower(hits, runs, _ERROR)
    size = clopper_pearson_upper(false_hits, runs, _ERROR)
    return max(0.0, float(ndtri(power) - ndtri(size)))


def attack(variant: str, mu: float, runs: int, seed: int) -> Row:
    """Test which data set was used, with a threshold chosen on the first half of the runs."""
    above, below = _outputs(variant, mu, 2 * runs, seed)
    threshold = (np.median(above[:runs]) + np.median(below[:runs])) / 2
    hits = int((above[runs:] > threshold).sum())
    false_hits = int((below[runs:] > threshold).sum())
    return {
        "algorithm": "DPNewsvendor" if variant == "dpconvex" else "Algorithm 1",
        "variant": variant,
        "mu": mu,
        "type_one": false_hits / runs,
        "type_two": 1 - hits / runs,
        "mu_at_least": smallest_mu(hits, false_hits, runs),
        "runs": runs,
    }


@cache
def refuted_mu(mu: float) -> float:
    """Return the mu that the line search has at least, where the paper claims ``mu``."""
    return float(attack("paper", mu, REFUTING_RUNS, 0)["mu_at_least"])


def cells(quick: bool) -> list[Cell]:
    """List variants and budgets; a full run has more repeats of the slow one."""
    return [
        {"variant": variant, "mu": mu, "runs": runs, "seed": seed}
        for variant, runs in _RUNS.items()
        for mu in BUDGETS
        for seed in range(1 if quick or variant != "dpconvex" else 5)
    ]


def measure(cell: Cell) -> list[Row]:
    """Attack one variant at one budget."""
    return [attack(cell["variant"], cell["mu"], cell["runs"], cell["seed"])]


STUDY = Study("newsvendor-gdp/attack", cells, measure)
