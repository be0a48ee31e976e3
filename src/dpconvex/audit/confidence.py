"""From counts of an event under two neighbouring data sets to a lower bound on epsilon.

Everything here is finite-sample and distribution free: exact binomial (Clopper-Pearson) limits,
no normal approximation, so a bound above the claim is a proof with the stated confidence.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv

from dpconvex.types import Array

# One side of one interval; two sides make the whole statement wrong with probability 1e-6.
DEFAULT_CONFIDENCE = 1.0 - 1e-6


def _counts(name: str, successes: ArrayLike, trials: int) -> NDArray[np.float64]:
    count = np.asarray(successes, dtype=np.float64)
    if trials < 1:
        raise ValueError(f"The 'trials' parameter of {name} must be at least 1. Got {trials} instead.")
    if np.any(~((count >= 0) & (count <= trials))):
        raise ValueError(
            f"The 'successes' parameter of {name} must be between 0 and trials={trials}. "
            "Got a count outside this range instead."
        )
    return count


def _check_error(name: str, error: float) -> None:
    if not 0.0 < error < 0.5:
        raise ValueError(f"The 'error' parameter of {name} must be in (0, 0.5). Got {error!r} instead.")


def clopper_pearson_lower(successes: ArrayLike, trials: int, error: float) -> Array:
    """Lower confidence limit of a binomial probability, exceeded with probability at most error.

    ``p_lo`` solves ``P(Binomial(trials, p_lo) >= successes) = error``, and is 0 for no success.

    Parameters
    ----------
    successes : int or array of int
        Number of times the event was seen.
    trials : int
        Number of independent runs.
    error : float
        Probability that the limit lies above the true probability, at most.

    Returns
    -------
    float or array
        The lower limit.

    Examples
    --------
    >>> round(float(clopper_pearson_lower(10, 10, 0.05)), 6)
    0.741134
    """
    _check_error("clopper_pearson_lower", error)
    count = _counts("clopper_pearson_lower", successes, trials)
    # The guard keeps the beta parameters positive; its value is replaced by the exact limit 0.
    limit = betaincinv(np.maximum(count, 0.5), trials - count + 1.0, error)
    return np.where(count > 0, limit, 0.0)[()]


def clopper_pearson_upper(successes: ArrayLike, trials: int, error: float) -> Array:
    """Upper confidence limit of a binomial probability, below it with probability at most error.

    ``p_hi`` solves ``P(Binomial(trials, p_hi) <= successes) = error``, and is 1 for no failure.
    Parameters are those of :func:`clopper_pearson_lower`.

    Examples
    --------
    >>> round(float(clopper_pearson_upper(0, 10, 0.05)), 6)
    0.258866
    """
    _check_error("clopper_pearson_upper", error)
    count = _counts("clopper_pearson_upper", successes, trials)
    # 1 - lower(failures) would lose all digits of a tiny limit: invert directly.
    limit = betaincinv(count + 1.0, np.maximum(trials - count, 0.5), 1.0 - error)
    return np.where(count < trials, limit, 1.0)[()]


def epsilon_from_probabilities(likely: ArrayLike, rare: ArrayLike, delta: ArrayLike) -> Array:
    """Smallest epsilon that allows an event of these two probabilities at this delta.

    ``epsilon = max(0, log((likely - delta) / rare))``: (epsilon, delta) privacy demands
    ``likely <= exp(epsilon) rare + delta``.

    Parameters
    ----------
    likely, rare : float or array
        (A lower bound on) the probability of the event on one data set, and (an upper bound on)
        its probability on the neighbour.
    delta : float or array
        The delta at which epsilon is asked for.

    Examples
    --------
    >>> round(float(epsilon_from_probabilities(0.5, 0.25, 0.0)), 6)
    0.693147
    """
    surplus = np.asarray(likely, dtype=np.float64) - np.asarray(delta, dtype=np.float64)
    rare = np.asarray(rare, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        bound = np.log(np.maximum(surplus, 0.0)) - np.log(rare)
    return np.where(surplus > 0, np.maximum(bound, 0.0), 0.0)[()]


def epsilon_lower_bound(
    likely_hits: ArrayLike,
    likely_runs: int,
    rare_hits: ArrayLike,
    rare_runs: int,
    delta: float,
    confidence: float = DEFAULT_CONFIDENCE,
) -> Array:
    """Lower confidence bound on epsilon from the counts of one event fixed beforehand.

    ``epsilon_lb = log((p_lo - delta) / q_hi)``, floored at 0, with Clopper-Pearson limits at
    ``(1 - confidence) / 2`` each side.

    Parameters
    ----------
    likely_hits, likely_runs : int
        Times the event was seen, and runs, on the data set where it is likelier.
    rare_hits, rare_runs : int
        The same on the neighbouring data set.
    delta : float
        The claimed delta.
    confidence : float, default=1 - 1e-6
        Probability that the bound is right. The event must not depend on these runs.

    Returns
    -------
    float
        A number that exceeds the true epsilon with probability at most ``1 - confidence``.

    Examples
    --------
    >>> round(float(epsilon_lower_bound(600, 1000, 100, 1000, 1e-5)), 4)
    1.2257
    """
    error = 0.5 * (1.0 - confidence)
    low = clopper_pearson_lower(likely_hits, likely_runs, error)
    high = clopper_pearson_upper(rare_hits, rare_runs, error)
    return epsilon_from_probabilities(low, high, delta)
