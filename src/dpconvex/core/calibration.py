r"""Calibration of Gaussian noise: its exact profile, and the smallest scale that keeps a budget, on
the safe side.

Every search ends at a scale where the bound was evaluated and holds, with a relative reserve for
the rounding of the profile itself. Inputs are public facts only.
"""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from dpconvex.core.checks import check_number, parameter_error

# The gate's grid is this many bits finer than the noise: far below the sensitivity, often a
# hundredth of the noise.
GRID_BITS = 40
# Scales whose grid and values are ordinary floating-point numbers.
_SMALLEST_SCALE = 2.0**-960
_LARGEST_SCALE = 2.0**960
NEIGHBORS = ("replace_one", "add_or_remove_one")
# Profiles are computed to a relative error of 1e-9 or better; aiming for this share of delta less
# covers it.
RESERVED = 2e-9

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(10)


def check_neighbors(neighbors: str, owner: str) -> str:
    """Return ``neighbors`` if it names a neighbouring relation, or raise."""
    if neighbors not in NEIGHBORS:
        raise parameter_error("neighbors", owner, f"one of {list(NEIGHBORS)}", repr(neighbors))
    return neighbors


def smallest_safe_scale(holds: Callable[[float], bool], start: float = 1.0) -> float:
    """Calibrate by bisection: return a positive ``x`` with ``holds(x)``, the smallest one for a
    monotone ``holds``.

    ``holds`` may jump; it should be false near 0 and true for large values. The value returned has
    been evaluated.
    """
    high = start
    for _ in range(2000):
        if holds(high):
            break
        high *= 2
    else:
        raise ValueError("No finite noise scale satisfies the bound.")
    low = high / 2
    for _ in range(2000):
        if low < 1e-300:
            return high
        if not holds(low):
            break
        low, high = low / 2, low
    while True:
        middle = math.sqrt(low * high)
        if not low < middle < high or high / low < 1 + 1e-13:
            return high
        low, high = (low, middle) if holds(middle) else (middle, high)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return delta of Gaussian noise with ``mu = sensitivity / std``, by which noise is calibrated,
    for any epsilon.

    ``delta = Phi(mu/2 - epsilon/mu) - exp(epsilon) Phi(-mu/2 - epsilon/mu)``. With
    ``p = epsilon/mu - mu/2`` and ``q = p + mu`` both terms share the factor ``phi(p)``, so the
    difference is taken between two Mills ratios, which keeps its relative accuracy where both tails
    are tiny: for close ones as the integral of ``1 - x m(x)`` of the ratio
    ``m(x) = Phi(-x) / phi(x)``.
    """
    if mu < 0 or math.isnan(mu) or math.isnan(epsilon):
        raise ValueError(
            f"The 'mu' parameter of gaussian_delta must be at least 0. Got {mu!r} instead."
        )
    if mu == 0:
        return -math.expm1(epsilon) if epsilon < 0 else 0.0
    if math.isinf(mu):
        return 1.0
    p = epsilon / mu - mu / 2
    q = epsilon / mu + mu / 2
    if p > 38:  # exp(-p^2 / 2) underflows: far below any delta worth naming
        return float(np.exp(log_ndtr(-p)))
    if p >= -5:
        near = p + mu / 2 * (1 + _NODES) if mu <= 0.1 else np.array([p, p + mu])
        ratios = math.sqrt(math.pi / 2) * erfcx(near / math.sqrt(2))
        apart = (
            mu / 2 * (_NODE_WEIGHTS @ (1 - near * ratios)) if mu <= 0.1 else ratios[0] - ratios[1]
        )
        return math.exp(-p * p / 2) / math.sqrt(2 * math.pi) * float(apart)
    return max(0.0, float(ndtr(-p)) - math.exp(epsilon + float(log_ndtr(-q))))


def delta_target(owner: str, epsilon: float, delta: float) -> float:
    """Check a budget and return the delta that a profile must reach."""
    check_number("epsilon", owner, epsilon, "a finite number above 0", 0, math.inf, low_open=True)
    return check_number("delta", owner, delta, "a number in (0, 1)", 0, 1, low_open=True) * (
        1 - RESERVED
    )


@lru_cache(maxsize=1024)
def gaussian_scale(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Calibrate Gaussian noise: the smallest standard deviation that gives (epsilon, delta)-DP, on
    the safe side.

    ``std = sensitivity / mu`` with ``gaussian_delta(epsilon, mu) = delta`` (the analytic Gaussian
    mechanism).

    Parameters
    ----------
    epsilon, delta : float
        Budget; epsilon above 0, delta in (0, 1).
    sensitivity : float
        l2 sensitivity of the released vector.

    Examples
    --------
    >>> round(gaussian_scale(1.0, 1e-5), 6)
    3.730632
    """
    check_number(
        "sensitivity", "gaussian_scale", sensitivity, "a finite number of at least 0", 0, math.inf
    )
    target = delta_target("gaussian_scale", epsilon, delta)
    return sensitivity * smallest_safe_scale(lambda std: gaussian_delta(epsilon, 1 / std) <= target)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Calibrate mu: the largest for which mu-Gaussian DP implies (epsilon, delta)-DP, on the safe
    side.

    Examples
    --------
    >>> round(gaussian_mu(1.0, 1e-6), 4)
    0.2367
    """
    return 1 / gaussian_scale(epsilon, delta, 1.0)


def grid_of(scale: float) -> float:
    """Return the grid that numbers with noise of this scale are rounded to: a power of two,
    ``2^-GRID_BITS scale``.
    """
    if not _SMALLEST_SCALE <= scale <= _LARGEST_SCALE:
        raise ValueError(
            f"Noise must have a positive, finite scale, between 1e-289 and 1e289. Got {scale!r} "
            "instead."
        )
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - GRID_BITS)


def calibrated_release_scale(budget: float, sensitivity: float, dimension: int) -> float:
    """Return the noise scale of a release that is rounded to its grid first: Gaussian for mu,
    l2-Laplace for epsilon.

    ``sensitivity / (budget - sqrt(dimension) 2^-bits)``: rounding to a grid at most
    ``2^-bits scale`` wide moves two neighbouring vectors apart by at most
    ``sqrt(dimension) 2^-bits scale`` more.
    """
    left = budget - math.sqrt(dimension) * 2.0**-GRID_BITS
    if not left > 0:
        raise ValueError(
            f"A release is rounded to 2^-{GRID_BITS} of its noise, which costs more than a budget "
            f"of {budget!r} in {dimension} dimensions. Give a larger budget."
        )
    # A few roundings to nearest on the way here.
    return sensitivity / left * (1 + 1e-15)
