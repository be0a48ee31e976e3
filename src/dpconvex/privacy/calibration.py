r"""Calibration: the smallest noise that a profile certifies, always rounded to the safe side.

Every search ends at a scale where the bound was evaluated and holds, with a relative reserve for the rounding of the
profile itself. Inputs are public facts only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from dpconvex.checks import check_count, check_number
from dpconvex.privacy.profiles import (
    gaussian_delta,
    glm_add_remove_delta,
    glm_replace_delta,
    structured_delta,
    trace_delta,
)

# The gate's grid is this many bits finer than the noise: far below the sensitivity, often a hundredth of the noise.
GRID_BITS = 40
# Scales whose grid and values are ordinary floating-point numbers.
_SMALLEST_SCALE, _LARGEST_SCALE = 2.0**-960, 2.0**960
NEIGHBORS = ("replace_one", "add_or_remove_one")
# Profiles are computed to a relative error of 1e-9 or better; aiming for this share of delta less covers it.
RESERVED = 2e-9
# Noise of this many sensitivities: what it does not certify, no noise does.
_LARGEST_STD = 1e12


def check_neighbors(neighbors: str, owner: str) -> str:
    """Return ``neighbors`` if it names a neighbouring relation, or raise."""
    if neighbors not in NEIGHBORS:
        raise ValueError(
            f"The 'neighbors' parameter of {owner} must be one of {list(NEIGHBORS)}. Got {neighbors!r} instead."
        )
    return neighbors


def smallest_safe(holds: Callable[[float], bool], start: float = 1.0) -> float:
    """Return a positive ``x`` with ``holds(x)`` true and, for a monotone ``holds``, the smallest one.

    ``holds`` may jump; it should be false near 0 and true for large values. The value returned has been evaluated.
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


def _delta_target(owner: str, epsilon: float, delta: float) -> float:
    """Check a budget and return the delta that a profile must reach."""
    check_number("epsilon", owner, epsilon, "a finite number above 0", 0, math.inf, low_open=True)
    return check_number("delta", owner, delta, "a number in (0, 1)", 0, 1, low_open=True) * (1 - RESERVED)


@lru_cache(maxsize=1024)
def gaussian_scale(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return the smallest standard deviation of Gaussian noise that gives (epsilon, delta)-DP.

    ``std = sensitivity / mu`` with ``gaussian_delta(epsilon, mu) = delta`` (the analytic Gaussian mechanism).

    Parameters
    ----------
    epsilon, delta : float
        Budget; epsilon above 0, delta in (0, 1).
    sensitivity : float
        l2 sensitivity of the released vector.

    Returns
    -------
    float
        The standard deviation, on the safe side.

    Examples
    --------
    >>> round(gaussian_scale(1.0, 1e-5), 6)
    3.730632
    """
    check_number("sensitivity", "gaussian_scale", sensitivity, "a finite number of at least 0", 0, math.inf)
    target = _delta_target("gaussian_scale", epsilon, delta)
    return sensitivity * smallest_safe(lambda std: gaussian_delta(epsilon, 1 / std) <= target)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which mu-Gaussian DP implies (epsilon, delta)-DP, on the safe side.

    Examples
    --------
    >>> round(gaussian_mu(1.0, 1e-6), 4)
    0.2367
    """
    return 1 / gaussian_scale(epsilon, delta, 1.0)


def grid_of(scale: float) -> float:
    """Return the grid that numbers with noise of this scale are rounded to: a power of two, ``2^-GRID_BITS scale``.

    Examples
    --------
    >>> grid_of(3.0) == 2.0 ** (1 - GRID_BITS)
    True
    """
    if not _SMALLEST_SCALE <= scale <= _LARGEST_SCALE:
        raise ValueError(f"Noise must have a positive, finite scale, between 1e-289 and 1e289. Got {scale!r} instead.")
    return math.ldexp(1.0, math.frexp(scale)[1] - 1 - GRID_BITS)


def released_scale(budget: float, sensitivity: float, dimension: int) -> float:
    """Return the noise scale of a release that is rounded to its grid first: Gaussian for mu, l2-Laplace for epsilon.

    ``sensitivity / (budget - sqrt(dimension) 2^-bits)``: rounding to a grid at most ``2^-bits scale`` wide moves two
    neighbouring vectors apart by at most ``sqrt(dimension) 2^-bits scale`` more.
    """
    left = budget - math.sqrt(dimension) * 2.0**-GRID_BITS
    if not left > 0:
        raise ValueError(
            f"A release is rounded to 2^-{GRID_BITS} of its noise, which costs more than a budget of {budget!r} in "
            f"{dimension} dimensions. Give a larger budget."
        )
    # A few roundings to nearest on the way here.
    return sensitivity / left * (1 + 1e-15)


def _check_objective(owner: str, lipschitz: float, curvature_ratio: float, rank: int, neighbors: str) -> None:
    check_neighbors(neighbors, owner)
    check_number("lipschitz", owner, lipschitz, "a finite number of at least 0", 0, math.inf)
    allowed = "a finite number of at least 0 (a smooth loss and alpha > 0)"
    check_number("curvature_ratio", owner, curvature_ratio, allowed, 0, math.inf)
    check_count("rank", owner, rank)


def _refuse_curvature(epsilon: float, curvature_ratio: float) -> ValueError:
    return ValueError(
        f"Objective perturbation needs a smaller curvature ratio at epsilon={epsilon!r}. Got {curvature_ratio!r}. "
        "Use a larger alpha, a larger bandwidth or a larger epsilon; for pairs also min_positive and min_negative."
    )


def _smallest_std(holds: Callable[[float], bool], epsilon: float, curvature_ratio: float) -> float:
    """Return the smallest std of ``b`` per unit of Lipschitz constant, or raise if even the largest does not hold."""
    if not holds(_LARGEST_STD):
        raise _refuse_curvature(epsilon, curvature_ratio)
    return smallest_safe(holds)


def objective_perturbation_delta(
    epsilon: float, ratio: float, curvature_ratio: float, rank: int, neighbors: str
) -> float:
    """Return delta of Gaussian objective perturbation with ``ratio = lipschitz / std``, by the sharpest theorem."""
    if rank > 1:
        return structured_delta(epsilon, ratio, curvature_ratio, rank, neighbors)
    profile = glm_add_remove_delta if neighbors == "add_or_remove_one" else glm_replace_delta
    return profile(epsilon, ratio, curvature_ratio)


def objective_perturbation_epsilon(scale: float, lipschitz: float, curvature_ratio: float, neighbors: str) -> float:
    """Return epsilon of GLM objective perturbation with l2-Laplace ``b``: ``records L / scale + log(1 + kappa)``."""
    records = 2 if neighbors == "replace_one" else 1
    return records * lipschitz / scale + math.log1p(curvature_ratio)


@lru_cache(maxsize=1024)
def objective_perturbation_scale(
    epsilon: float,
    delta: float,
    lipschitz: float,
    curvature_ratio: float,
    rank: int = 1,
    neighbors: str = "replace_one",
) -> float:
    """Return the smallest certified standard deviation of ``b`` in ``J(theta) + <b, theta>``, J a SUM over records.

    Parameters
    ----------
    epsilon, delta : float
        Budget; epsilon above 0, delta in (0, 1).
    lipschitz : float
        Bound on the norm of one record's gradient in theta.
    curvature_ratio : float
        ``kappa = beta / Lambda``: the largest Hessian eigenvalue of one record over the strong convexity of J.
    rank : int
        1 for a generalised linear model (each record's gradient is a multiple of one fixed vector); otherwise the
        dimension of a fixed subspace that holds every gradient of the record.
    neighbors : {"replace_one", "add_or_remove_one"}
        Neighbouring relation.

    Returns
    -------
    float
        The standard deviation, on the safe side.

    Examples
    --------
    >>> round(objective_perturbation_scale(1.0, 1e-5, 1.0, 0.05), 6)
    8.132858
    """
    owner = "objective_perturbation_scale"
    target = _delta_target(owner, epsilon, delta)
    _check_objective(owner, lipschitz, curvature_ratio, rank, neighbors)
    facts = (curvature_ratio, rank, neighbors)
    return lipschitz * _smallest_std(
        lambda std: objective_perturbation_delta(epsilon, 1 / std, *facts) <= target, epsilon, curvature_ratio
    )


def objective_perturbation_laplace_scale(
    epsilon: float, lipschitz: float, curvature_ratio: float, neighbors: str = "replace_one"
) -> float:
    """Return the scale ``gamma`` of l2-Laplace noise ``b`` that makes GLM objective perturbation epsilon-DP.

    ``gamma = L / (epsilon - log(1 + kappa))`` under add-or-remove-one, ``2 L / (...)`` under replace-one; ``b`` has
    density proportional to ``exp(-||b|| / gamma)``.

    Examples
    --------
    >>> round(objective_perturbation_laplace_scale(1.0, lipschitz=1.0, curvature_ratio=0.05), 4)
    2.1026
    """
    owner = "objective_perturbation_laplace_scale"
    check_number("epsilon", owner, epsilon, "a finite number above 0", 0, math.inf, low_open=True)
    _check_objective(owner, lipschitz, curvature_ratio, 1, neighbors)
    sensitivity = (2 if neighbors == "replace_one" else 1) * lipschitz
    return trace_laplace_scale(epsilon, sensitivity, curvature_ratio, 1)


@lru_cache(maxsize=1024)
def trace_perturbation_scale(
    epsilon: float, delta: float, lipschitz: float, curvature_ratio: float, neighbors: str
) -> float:
    """Return the smallest certified std of ``b`` where ``curvature_ratio`` bounds a record's trace over ``Lambda``.

    Of records that are several rows: see :func:`dpconvex.privacy.profiles.trace_delta`.

    Examples
    --------
    >>> round(trace_perturbation_scale(1.0, 1e-6, 1.0, 0.05, "replace_one"), 1)
    10.3
    """
    owner = "trace_perturbation_scale"
    target = _delta_target(owner, epsilon, delta)
    _check_objective(owner, lipschitz, curvature_ratio, 1, neighbors)
    return lipschitz * _smallest_std(
        lambda std: trace_delta(epsilon, 1 / std, curvature_ratio, neighbors) <= target, epsilon, curvature_ratio
    )


def trace_laplace_scale(epsilon: float, sensitivity: float, curvature_ratio: float, rank: int) -> float:
    """Return the scale of l2-Laplace ``b`` for epsilon-DP, ``sensitivity / (epsilon - k log(1 + kappa / k))``.

    ``sensitivity`` is that of the gradient; kappa bounds the trace of a record's Hessian over the strong convexity and
    ``k = rank`` its rank, so that the determinant of ``I + E`` is at most ``(1 + kappa / k)^k``.
    """
    reduced = epsilon - rank * math.log1p(curvature_ratio / rank)
    if reduced <= 0:
        raise _refuse_curvature(epsilon, curvature_ratio)
    return sensitivity / reduced
