r"""The exponential mechanism: one draw from whole-number scores, in proportion to ``exp(epsilon score / spread)``.

Scores are whole multiples of ``1 / SCORE_GRID`` of what one record can change, so sums over rows are exact and no
rounding adds to their sensitivity: ``|floor(a) - floor(b)| <= k`` wherever ``|a - b| <= k`` and k is whole.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from dpconvex.privacy.guarantees import GaussianDP, Guarantee
from dpconvex.privacy.noise import NoiseSource
from dpconvex.privacy.noise import choose as choose_index

__all__ = ["SCORE_GRID", "choose", "covered_epsilon", "geometric"]

SCORE_GRID = 2**16  # steps that one record's influence on a score is divided into


def choose(
    scores: NDArray[np.int64],
    epsilon: float,
    noise: NoiseSource,
    spread: int = 2 * SCORE_GRID,
    counts: NDArray[np.int64] | None = None,
) -> int:
    """Return an index, drawn with probability proportional to ``counts exp(epsilon scores / spread)``.

    Parameters
    ----------
    scores : array of int
        Scores in steps of the grid: private.
    epsilon : float
        What the draw costs.
    noise : NoiseSource
        Where randomness comes from.
    spread : int
        By how many steps a changed record can move two scores apart: twice the sensitivity, or once where all scores
        move the same way, as sums of numbers that are not negative do when a record is added.
    counts : array of int, optional
        How many outcomes share each score; 1 by default, 0 for a score that no outcome has.

    Notes
    -----
    Privacy: a neighbour changes the ratio of two outcomes' weights by at most ``exp(epsilon)``, hence every
    probability by at most that factor.
    """
    return choose_index(noise.words, -np.asarray(scores), epsilon / spread, counts)


def geometric(noise: NoiseSource, mean: float) -> int:
    """Return the number of tries up to the first success, each of probability ``1 / mean`` exactly."""
    per, outcomes = mean.as_integer_ratio()
    tries = 1
    while noise.words.below(per) >= outcomes:
        tries += 1
    return tries


def covered_epsilon(guarantee: Guarantee) -> float:
    """Return the largest epsilon at which pure epsilon-DP implies a guarantee.

    Pure epsilon-DP is mu-GDP if ``exp(epsilon) / (1 + exp(epsilon)) <= Phi(mu / 2)``: both curves then pass the
    diagonal at one point, and the Gaussian one is convex. A part in 1e12 is left for rounding.
    """
    if isinstance(guarantee, GaussianDP):
        half = guarantee.mu / 2
        return float(log_ndtr(half) - log_ndtr(-half)) * (1 - 1e-12)
    return guarantee.epsilon_bound
