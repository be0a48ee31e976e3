"""Everyone who takes part in the comparison, by the names of the paper's legend, and what they
are told.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex.datasets import Synthetic
from dpconvex_reproduction.quantile_sco.objective_perturbation import (
    algorithm_2,
    perturbed_minimiser,
)
from dpconvex_reproduction.quantile_sco.presets import Problem, QuantilePreset
from dpconvex_reproduction.quantile_sco.rivals import RIVALS, phased_erm
from dpconvex_reproduction.quantile_sco.sound import run_sound, sound_plan

__all__ = [
    "BUDGETS",
    "DEFAULT",
    "DELTA",
    "NOISELESS",
    "NON_PRIVATE",
    "ORDINARY",
    "PART_TWO",
    "PRIVATE",
    "QUANTILE",
    "RADIUS",
    "contestants",
    "default_model",
    "estimate",
    "told",
]

Array = NDArray[np.float64]

# Section 5 and the caption of Figure 4.
QUANTILE = 0.7
DELTA = 1e-2
RADIUS = 10.0
#: The captions say that epsilon is "set accordingly"; these are ours.
BUDGETS = (0.5, 1.0, 5.0)

NON_PRIVATE = "Non-Private"
DEFAULT = "DPQuantileRegressor"
#: The paper's model without privacy is penalised; this one is not.
ORDINARY = "quantile regression"
PRIVATE = ("OP", *RIVALS)
PART_TWO = "OP, part 2"
NOISELESS = "Phased-ERM without noise"

# Public bounds of our estimator: each column within B_x, and a round range of the target, which
# sets a scale and clips nothing.
_FEATURE_BOUNDS = (-RADIUS, RADIUS)
_TARGET_BOUNDS = (-60.0, 80.0)
# Against a standard deviation of 3 of the error, the bias is below a thousandth of it.
_SMALL_BANDWIDTH = 0.05
_NO_PENALTY = (
    1e-6  # so small that coefficients agree with those of a linear program, but never undetermined
)


def told(theta_star: Array, epsilon: float) -> Problem:
    """Return what the algorithms are told: ``B_x = 10`` and ``B_theta = 2 ||theta*||``."""
    return Problem(QUANTILE, epsilon, DELTA, RADIUS, 2 * float(np.linalg.norm(theta_star)))


def contestants(algorithms: tuple[str, ...] = PRIVATE) -> list[tuple[str, str]]:
    """Return (algorithm, variant) of everyone, in the order of the legend."""
    pairs = [(name, variant) for name in algorithms for variant in ("paper", "sound")]
    return [(NON_PRIVATE, "not private"), (ORDINARY, "not private"), *pairs, (DEFAULT, "dpconvex")]


def estimate(
    algorithm: str, variant: str, data: Synthetic, epsilon: float, seed: int
) -> Callable[[], Array]:
    """Return a function that computes the coefficients; everything public is prepared before.

    Parameters
    ----------
    algorithm, variant : str
        One of :func:`contestants`.
    data : Synthetic
        The sample.
    epsilon : float
        Budget; delta is 1e-2, neighbours replace one record.
    seed : int
        Of the noise and of what an algorithm draws.
    """
    problem = told(data.theta_star, epsilon)
    n = len(data.y)
    d = data.X.shape[1] + 1
    if variant == "sound":
        plan = sound_plan(algorithm, n, d, problem)
        return lambda: run_sound(plan, data.X, data.y, seed)
    if algorithm in (NON_PRIVATE, ORDINARY):
        return lambda: _without_privacy(data, problem, penalised=algorithm == NON_PRIVATE)
    if algorithm == DEFAULT:
        return lambda: _default(data, epsilon, seed)
    if algorithm in ("OP", PART_TWO):
        part = 2 if algorithm == PART_TWO else 1
        return lambda: algorithm_2(data.X, data.y, problem, part, seed)
    rows = np.column_stack([np.ones(n), data.X])
    rng = np.random.default_rng(seed)
    if algorithm == NOISELESS:
        return lambda: phased_erm(rows, data.y, problem, rng, noise_share=0.0)
    return lambda: RIVALS[algorithm](rows, data.y, problem, rng)


def _without_privacy(data: Synthetic, problem: Problem, penalised: bool) -> Array:
    """Minimise the smoothed loss, where asked with the penalty of Theorem 3.6 without the terms
    that privacy adds.
    """
    n = len(data.y)
    d = data.X.shape[1] + 1
    alpha = (
        2 * problem.lipschitz * math.sqrt(2 / n) / problem.coef_norm if penalised else _NO_PENALTY
    )
    preset = QuantilePreset(alpha=alpha, bandwidth=_SMALL_BANDWIDTH, std=0.0)
    return perturbed_minimiser(data.X, data.y, QUANTILE, preset, np.zeros(d))


def default_model(epsilon: float, seed: int | None) -> Any:
    """Return our estimator as it comes, told the public bounds."""
    from dpconvex import DPQuantileRegressor

    return DPQuantileRegressor(
        QUANTILE,
        epsilon=epsilon,
        delta=DELTA,
        feature_bounds=_FEATURE_BOUNDS,
        target_bounds=_TARGET_BOUNDS,
        random_state=seed,
    )


def _default(data: Synthetic, epsilon: float, seed: int) -> Array:
    model = default_model(epsilon, seed).fit(data.X, data.y)
    return np.asarray(np.r_[model.intercept_, model.coef_])
