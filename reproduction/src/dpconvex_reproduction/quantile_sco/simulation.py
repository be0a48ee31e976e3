"""The simulations behind Figures 4 to 12 and Table 2.

A sample depends on its size, its model and its seed alone: every algorithm, variant and budget sees
the same one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np

from dpconvex.datasets import Synthetic
from dpconvex_reproduction.datasets.simulated import make_quantile_regression
from dpconvex_reproduction.exhibit import Cell, Row, Study
from dpconvex_reproduction.quantile_sco.contenders import (
    BUDGETS,
    DEFAULT,
    NOISELESS,
    NON_PRIVATE,
    ORDINARY,
    PART_TWO,
    PRIVATE,
    QUANTILE,
    contestants,
    estimate,
)

__all__ = ["COMPARISONS", "ERRORS", "LARGE_SAMPLES", "TIMES", "compare", "measure_times"]

ERRORS = ("exogenous", "endogenous")
REPEATS = 50  # as in the paper
_SIZES = (100, 200, 500, 1000, 2000, 5000)
_TIMED_SIZES = (100, 1000, 5000)  # Table 2
# Repeats of a quick run, by number of coefficients and rows: n^2 steps are what takes time.
_QUICK = {
    3: {100: 20, 200: 20, 500: 20, 1000: 10, 2000: 10, 5000: 4},
    51: {100: 20, 200: 20, 500: 10, 1000: 10, 2000: 4, 5000: 2},
}
_LARGE_SIZES = (500, 1000, 2000, 5000, 10000, 20000, 50000)


def _seeds_at_a_time(n: int, d: int) -> int:
    """Return how many seeds make a cell of a few seconds."""
    return 10 if n <= 500 else 5 if n * d <= 3000 else 2 if n * d <= 15000 else 1


def _comparison_cells(d: int, error: str, quick: bool) -> list[Cell]:
    cells = []
    for n in _SIZES:
        repeats = _QUICK[d].get(n, 0) if quick else REPEATS
        size = _seeds_at_a_time(n, d)
        cells += [
            {"d": d, "error": error, "n": n, "epsilon": epsilon, "seeds": [first, first + size]}
            for epsilon in BUDGETS
            for first in range(0, repeats, size)
        ]
    return cells


def _sample(cell: Cell, seed: int) -> Synthetic:
    rng = np.random.default_rng([cell["d"], cell["n"], ERRORS.index(cell["error"]), seed])
    return make_quantile_regression(cell["n"], cell["d"], cell["error"], rng=rng, quantile=QUANTILE)


def _rows(cell: Cell, pairs: Sequence[tuple[str, str]]) -> list[Row]:
    rows = []
    for seed in range(*cell["seeds"]):
        data = _sample(cell, seed)
        best = data.theta_star
        for algorithm, variant in pairs:
            theta = estimate(algorithm, variant, data, cell["epsilon"], seed)()
            rows.append(
                {
                    "d": cell["d"],
                    "error": cell["error"],
                    "epsilon": cell["epsilon"],
                    "n": cell["n"],
                    "seed": seed,
                    "algorithm": algorithm,
                    "variant": variant,
                    "excess_risk": data.relative_excess_risk(theta),
                    "estimation_error": float(np.linalg.norm(theta - best) / np.linalg.norm(best)),
                }
            )
    return rows


def compare(cell: Cell) -> list[Row]:
    """Run all algorithms on the samples of a cell; relative excess risks and relative estimation
    errors.
    """
    return _rows(cell, contestants((*PRIVATE, PART_TWO)))


def _large_cells(quick: bool) -> list[Cell]:
    size = 5
    return [
        {"d": 51, "error": "exogenous", "n": n, "epsilon": epsilon, "seeds": [first, first + size]}
        for n in _LARGE_SIZES
        for epsilon in BUDGETS
        for first in range(0, 10 if quick else REPEATS, size)
    ]


def follow_phases(cell: Cell) -> list[Row]:
    """Run Phased-ERM, with and without its noise, on the samples of a cell that may be large."""
    pairs = [
        (NON_PRIVATE, "not private"),
        (ORDINARY, "not private"),
        ("Phased-ERM", "paper"),
        ("Phased-ERM", "sound"),
        (NOISELESS, "not private"),
        (DEFAULT, "dpconvex"),
    ]
    return _rows(cell, pairs)


def _time_cells(quick: bool) -> list[Cell]:
    return [
        {"d": d, "error": "exogenous", "n": n, "epsilon": 1.0, "repeat": repeat}
        for d in (3, 51)
        for n in _TIMED_SIZES
        for repeat in range(2 if quick else 10)
    ]


def measure_times(cell: Cell) -> list[Row]:
    """Time every algorithm on one sample, in processor seconds.

    Not counted: loading compiled code, and calibration, which needs no data; of our estimator
    everything counts.
    """
    warm = _sample({**cell, "n": 50}, 0)
    data = _sample(cell, cell["repeat"])
    rows = []
    for algorithm, variant in contestants():
        estimate(algorithm, variant, warm, cell["epsilon"], 0)()
        solve = estimate(algorithm, variant, data, cell["epsilon"], cell["repeat"])
        started = time.process_time()
        solve()
        seconds = time.process_time() - started
        facts = {key: cell[key] for key in ("d", "n", "epsilon", "repeat")}
        rows.append({**facts, "algorithm": algorithm, "variant": variant, "seconds": seconds})
    return rows


COMPARISONS = {
    (d, error): Study(
        f"quantile-sco/comparison-{d}-{error}", partial(_comparison_cells, d, error), compare
    )
    for d in (3, 51)
    for error in ERRORS
}
"""Studies by number of coefficients and error term: Figures 4 to 9, 11 and 12."""

LARGE_SAMPLES = Study("quantile-sco/phased-erm", _large_cells, follow_phases)
"""Phased-ERM on samples up to 50,000: Figure 10."""

TIMES = Study("quantile-sco/times", _time_cells, measure_times, timed=True)
"""Solving times: Table 2."""
