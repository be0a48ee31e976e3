"""Runs behind Figures 4 to 9 and Table 1: linear demand with three laws of the error, sample sizes
100 to 500.

The regret is the exact difference of expected costs, where the paper uses a million fresh records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from dpconvex import DPNewsvendor
from dpconvex.datasets import NEWSVENDOR_ERRORS, Synthetic, make_newsvendor
from dpconvex_reproduction.exhibit import Cell, Row, Study
from dpconvex_reproduction.newsvendor_gdp.algorithm import (
    algorithm_1,
    calibrated_std,
    noise_std,
    paper_bandwidth,
)
from dpconvex_reproduction.newsvendor_gdp.line_search import line_search_descent
from dpconvex_reproduction.newsvendor_gdp.published import BUDGETS
from dpconvex_reproduction.newsvendor_gdp.reference import smoothed_fit

__all__ = ["LEVELS", "SIZES", "STUDIES", "certified_model", "measure", "pilot_step"]

Array = NDArray[np.float64]

SIZES = (100, 200, 300, 400, 500)
LEVELS = (0.25, 0.5, 0.75)
COEFFICIENTS = 5
BOXED = 400  # the sample size of Figures 7 to 9 and Table 1
REPEATS = 300
QUICK = 60
QUICK_BOXED = 100
BLOCK = 20
#: Constant steps among which the sound version's is chosen, on samples of the same law that are not
#: measured.
CONSTANT_STEPS = (1.0, 1.4, 2.0, 2.8, 3.4, 4.0, 4.8)
PILOTS = 30
FIRST_PILOT = 10_000
#: Public bounds that DPNewsvendor is told: features within 4 standard deviations, demand within 20.
FEATURES = (-4.0, 4.0)
DEMAND = (-20.0, 20.0)
#: With what Algorithm 1 knows: rows are cut at length 2, that is at 2 / 4 after scaling by the
#: bounds.
CUT = 0.5

PRINTED = "Algorithm 1"
OURS = "DPNewsvendor"
INFORMED = "DPNewsvendor, told B and bandwidth"
PLAIN = "smoothed fit"


def certified_model(quantile: float, mu: float, n: int | None = None) -> DPNewsvendor:
    """Return the estimator: untuned, or with the truncation and bandwidth of Algorithm 1 at
    sample size n.
    """
    model = DPNewsvendor(
        quantile, 1 - quantile, mu=mu, feature_bounds=FEATURES, target_bounds=DEMAND
    )
    if n is not None:
        width = paper_bandwidth(quantile, n, COEFFICIENTS)
        model.set_params(row_norm=CUT, bandwidth=width)
    return model


@cache
def pilot_step(law: str, n: int, quantile: float, mu: float) -> float:
    """Return the constant step of least mean regret on pilot samples: a public number for every
    other sample.
    """
    total = np.zeros(len(CONSTANT_STEPS))
    for seed in range(FIRST_PILOT, FIRST_PILOT + PILOTS):
        data = make_newsvendor(n, COEFFICIENTS, law, seed, quantile=quantile)
        betas = _constant_steps(data, quantile, mu, CONSTANT_STEPS, seed)
        total += [data.risk(beta) for beta in betas]
    return CONSTANT_STEPS[int(total.argmin())]


def _constant_steps(
    data: Synthetic, quantile: float, mu: float, steps: Sequence[float], seed: int
) -> Array:
    rng = np.random.default_rng([seed, 1])
    std = calibrated_std(quantile, mu)
    return algorithm_1(data.X, data.y, quantile, mu, steps, rng, std=std)


def _fits(
    data: Synthetic, law: str, quantile: float, seed: int
) -> Iterator[tuple[str, str, float | None, float | None, Array]]:
    """Yield algorithm, variant, budget, constant step and coefficients, all on the same data."""
    X = data.X
    y = data.y
    yield PLAIN, "not private", None, None, smoothed_fit(X, y, quantile)
    rows = np.column_stack([np.ones(len(y)), X])
    stds = [noise_std(quantile, mu) for mu in BUDGETS]
    searched = line_search_descent(rows, y, quantile, stds, np.random.default_rng([seed, 1]))
    for mu, beta in zip(BUDGETS, searched, strict=True):
        yield PRINTED, "paper", mu, None, beta
    for mu in BUDGETS:
        step = pilot_step(law, len(y), quantile, mu)
        yield PRINTED, "sound", mu, step, _constant_steps(data, quantile, mu, [step], seed)[0]
        for name, n in ((OURS, None), (INFORMED, len(y))):
            model = certified_model(quantile, mu, n).set_params(random_state=seed).fit(X, y)
            yield name, "dpconvex", mu, None, np.r_[model.intercept_, model.coef_]


def measure(cell: Cell) -> list[Row]:
    """Return regret and estimation error of every fit for a block of seeds, at all levels and
    budgets.
    """
    table = []
    for seed in range(cell["first"], cell["first"] + cell["repeats"]):
        for level in LEVELS:
            data = make_newsvendor(cell["n"], COEFFICIENTS, cell["law"], seed, quantile=level)
            best = data.risk(data.theta_star)
            for algorithm, variant, mu, step, beta in _fits(data, cell["law"], level, seed):
                row: Row = {
                    "law": cell["law"],
                    "n": cell["n"],
                    "quantile": level,
                    "mu": mu,
                    "seed": seed,
                    "algorithm": algorithm,
                    "variant": variant,
                    "regret": data.risk(beta) - best,
                    "distance": float(np.linalg.norm(beta - data.theta_star)),
                }
                table.append(row if step is None else {**row, "step": step})
    return table


def _study(law: str, boxed: bool) -> Study:
    sizes = [n for n in SIZES if (n == BOXED) == boxed]

    def cells(quick: bool) -> list[Cell]:
        repeats = (QUICK_BOXED if boxed else QUICK) if quick else REPEATS
        return [
            {"law": law, "n": n, "first": first, "repeats": BLOCK}
            for first in range(0, repeats, BLOCK)
            for n in sizes
        ]

    kind = f"{BOXED}" if boxed else "sizes"
    return Study(f"newsvendor-gdp/{law}-{kind}", cells, measure)


#: By law of the error: the other sample sizes, and the one of the box plots.
STUDIES: dict[str, tuple[Study, Study]] = {
    law: (_study(law, False), _study(law, True)) for law in NEWSVENDOR_ERRORS
}
