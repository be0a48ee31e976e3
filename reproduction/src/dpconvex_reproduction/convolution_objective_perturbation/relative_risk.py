"""Relative risk of C-OP, its rivals and our defaults on the same samples: the runs behind Figures
5, 7 and 8.

Every record is scaled to operator norm 1 as a whole, which weights it and leaves the coefficients'
meaning as it is; the minimiser that is not private sees the records as drawn. Algorithms of the
paper are told R, the norm of the best coefficients; ours is not.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dpconvex import DPMedian, DPPiecewiseLinear
from dpconvex.losses.vector_losses import L1Norm, PiecewiseLinear
from dpconvex.objectives.structured_objective import StructuredRecords
from dpconvex_reproduction.convolution_objective_perturbation.convolution_objective import (
    not_private,
    printed_convolution_objective,
    sound_convolution_objective,
)
from dpconvex_reproduction.convolution_objective_perturbation.rivals import moreau_sgd, noisy_sgds
from dpconvex_reproduction.datasets.simulated import make_piecewise_linear, make_structured_median
from dpconvex_reproduction.exhibit import Cell, Row, Study

__all__ = [
    "DELTA",
    "DIMENSIONS",
    "EPSILONS",
    "FIXED",
    "LARGEST",
    "PIECES",
    "RANDOM",
    "SIZES",
    "measure",
    "study",
]

# The paper prints its grid with Table 3; delta is not printed.
EPSILONS = (0.2, 0.5, 1.0, 5.0)
DIMENSIONS = (5, 10, 20, 30)
SIZES = (100, 500, 1000, 2000)
DELTA = 1e-5
REPEATS = 50  # caption of Figure 5
QUICK_REPEATS = 8

LARGEST = PiecewiseLinear(np.concatenate([np.eye(3), -np.eye(3)]))  # type: ignore[arg-type]
RANDOM = "random A"
FIXED = "fixed A"
PIECES = "piecewise linear"
_PROBLEMS: dict[str, Any] = {
    RANDOM: (make_structured_median, False, L1Norm(3), DPMedian),
    FIXED: (make_structured_median, True, L1Norm(3), DPMedian),
    PIECES: (make_piecewise_linear, False, LARGEST, DPPiecewiseLinear),
}


def _together(n: int) -> int:
    """Return how many repeats make a cell: the n^2 steps of noisy SGD decide."""
    return 25 if n <= 100 else 8 if n <= 500 else 4 if n <= 1000 else 1


def _cells(problem: str, quick: bool) -> list[Cell]:
    found: list[Cell] = []
    for n in SIZES:
        repeats = REPEATS
        if quick:
            if n == max(SIZES):
                continue
            repeats = (
                QUICK_REPEATS if n > min(SIZES) else REPEATS
            )  # small samples cost next to nothing
        step = _together(n)
        for d in DIMENSIONS:
            found += [
                {
                    "problem": problem,
                    "d": d,
                    "n": n,
                    "first": first,
                    "last": min(first + step, REPEATS),
                }
                for first in range(0, repeats, step)
            ]
    return found


def _random_cells(quick: bool) -> list[Cell]:
    return _cells(RANDOM, quick)


def _fixed_cells(quick: bool) -> list[Cell]:
    return _cells(FIXED, quick)


def _piece_cells(quick: bool) -> list[Cell]:
    return _cells(PIECES, quick)


def measure(cell: Cell) -> list[Row]:
    """Run every algorithm at every epsilon on the samples of one cell.

    Parameters
    ----------
    cell : dict
        ``problem``, ``d``, ``n``, seeds from ``first`` up to ``last``; ``epsilons`` if not all.

    Returns
    -------
    list of dict
        ``risk`` is ``F(theta) / F(theta*) - 1`` in per cent.
    """
    problem = cell["problem"]
    d = cell["d"]
    n = cell["n"]
    make, fixed, loss, estimator = _PROBLEMS[problem]
    rows: list[Row] = []
    for seed in range(cell["first"], cell["last"]):
        places = [list(_PROBLEMS).index(problem), d, n, seed]
        data = make(n, d, rng=np.random.default_rng(places), fixed=fixed)
        least = data.risk(data.theta_star)
        records = StructuredRecords(data.X, data.y, 1.0)
        radius = float(np.linalg.norm(data.theta_star))
        reference = not_private(data.X, data.y, loss)
        for epsilon in cell.get("epsilons", EPSILONS):

            def generator(kind: int, places: Any = places, epsilon: float = epsilon) -> Any:
                return np.random.default_rng([*places, round(10 * epsilon), kind])

            told = {"epsilon": epsilon, "delta": DELTA, "radius": radius}
            model = estimator(epsilon=epsilon, delta=DELTA, random_state=generator(0))
            printed, accounted = noisy_sgds(
                records, loss, ("published", "sound"), **told, rng=generator(2)
            )
            released = {
                ("C-OP", "paper"): printed_convolution_objective(
                    records, loss, **told, rng=generator(1)
                ),
                ("C-OP", "sound"): sound_convolution_objective(
                    records, loss, **told, rng=generator(1)
                ),
                ("noisy SGD", "paper"): printed,
                ("noisy SGD", "sound"): accounted,
                ("Moreau SGD", "paper"): moreau_sgd(
                    records, loss, **told, rng=generator(3), noise="published"
                ),
                ("Moreau SGD", "sound"): moreau_sgd(records, loss, **told, rng=generator(3)),
                (estimator.__name__, "dpconvex"): model.fit(data.X, data.y).coef_,
                ("minimiser", "not private"): reference,
            }
            rows += [
                {
                    "problem": problem,
                    "d": d,
                    "epsilon": epsilon,
                    "n": n,
                    "algorithm": algorithm,
                    "variant": variant,
                    "seed": seed,
                    "risk": 100 * (data.risk(theta) / least - 1),
                }
                for (algorithm, variant), theta in released.items()
            ]
    return rows


_STUDIES = {
    RANDOM: Study("convolution-objective-perturbation/random-matrices", _random_cells, measure),
    FIXED: Study("convolution-objective-perturbation/fixed-matrix", _fixed_cells, measure),
    PIECES: Study("convolution-objective-perturbation/piecewise-linear", _piece_cells, measure),
}


def study(problem: str) -> Study:
    """Return the study of one problem."""
    return _STUDIES[problem]
