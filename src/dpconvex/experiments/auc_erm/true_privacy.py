r"""What epsilon the paper's printed noise gives, computed.

Two neighbouring relations are told apart. *Labels kept*: one row is replaced by one of the same class, so the class
counts are common and may be public; this is what the printed constants are made for. *Labels may change*: one record is
replaced, label included, which is what the paper's definition says. The counts then differ between neighbours, and with
them the noise and, in Algorithm 2, the penalty; with noise of exponential tails no finite epsilon is then left without
a delta.

Upper bounds. Let b be the noise that leads to the release w on S, b' on S', with spreads s and s'. Then
``||b' - b|| <= shift(||b||)`` and, for Algorithm 2, Jacobian determinants differ by at most ``exp(J)``, so the log
ratio of densities at w is at most ``ell(||b||)``, and ``delta(epsilon) <= E (1 - exp(epsilon - ell(||b||)))_+`` under
the law of ``||b||``. Nothing is assumed about how the shift depends on b, which is where the printed proof of its
Theorem 2 has a gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from dpconvex.privacy.guarantees import GaussianDP
from dpconvex.privacy.pairwise_bounds import pairwise_delta

from .algorithms import printed_objective_noise, printed_output_scale
from .problems import DIAMETER, FACTS, LOSSES, Facts

__all__ = ["LogRatio", "epsilon_at", "hockey_stick", "printed_epsilon", "scale_alone"]

Array = NDArray[np.float64]
#: Bound of the log ratio of densities as a function of the noise's norm.
LogRatio = Callable[[Array], Array]

_POINTS = 4001
_HIGHEST = 50.0


@lru_cache(maxsize=16)
def _norms(dimension: int, gaussian: bool) -> tuple[Array, Array]:
    """Return norms of standard noise on a grid and logarithms of their probabilities."""
    end = math.sqrt(dimension) + 14 if gaussian else 3.0 * dimension + 120
    r = np.linspace(0, end, _POINTS)[1:]
    log_r = np.log(r)
    if gaussian:
        half = dimension / 2
        density = (dimension - 1) * log_r - r**2 / 2 - (half - 1) * math.log(2) - gammaln(half)
    else:
        density = (dimension - 1) * log_r - r - gammaln(dimension)
    return r, density + math.log(r[1] - r[0])


def hockey_stick(ell: LogRatio, dimension: int, gaussian: bool) -> Callable[[float], float]:
    """Return the function ``E (1 - exp(epsilon - ell(r)))_+`` of epsilon, r the norm of standard noise.

    A sum over a fine grid, to about four digits.
    """
    r, log_weight = _norms(dimension, gaussian)
    values, weight = ell(r), np.exp(log_weight)

    def profile(epsilon: float) -> float:
        return float(weight @ -np.expm1(np.minimum(epsilon - values, 0.0)))

    return profile


def epsilon_at(delta: float, profile: Callable[[float], float]) -> float:
    """Return the smallest epsilon with ``profile(epsilon) <= delta``, infinite beyond 50."""
    low, high = 0.0, _HIGHEST
    if profile(high) > delta:
        return math.inf
    if profile(low) <= delta:
        return 0.0
    for _ in range(36):
        middle = (low + high) / 2
        low, high = (low, middle) if profile(middle) <= delta else (middle, high)
    return high


def _noise(
    algorithm: int,
    loss: str,
    epsilon: float,
    delta: float,
    penalty: float,
    counts: tuple[int, int],
    facts: Facts,
) -> tuple[float, float]:
    """Return the printed spread of the noise and the penalty used with it."""
    if algorithm == 2:
        return printed_objective_noise(epsilon, delta, LOSSES[loss], DIAMETER, penalty, *counts)
    slope = facts.bounds(LOSSES[loss], penalty).slope
    return printed_output_scale(epsilon, slope, DIAMETER, penalty, *counts, delta), penalty


def _log_ratio(
    algorithm: int,
    loss: str,
    delta: float,
    facts: Facts,
    counts: tuple[int, int],
    label_private: bool,
    here: tuple[float, float],
    there: tuple[float, float],
) -> LogRatio:
    """Return ``ell`` for noise and penalty ``here`` on S and ``there`` on S'."""
    (spread, alpha), (other, beta) = here, there
    bounds = facts.bounds(LOSSES[loss], beta, counts, label_private)
    moved, jacobian, d = bounds.gradient_sensitivity, 0.0, bounds.dimension
    if algorithm == 1:
        moved /= alpha
    else:
        jacobian = d * math.log1p(bounds.curvature_ratio / d) + d * max(0.0, math.log(alpha / beta))
    growth = abs(alpha - beta) / alpha

    def ell(r: Array) -> Array:
        norm = spread * r
        shift = moved + growth * (bounds.lipschitz + norm)
        start = d * math.log(other / spread) + jacobian
        if delta > 0:
            return start + ((norm + shift) / other) ** 2 / 2 - r**2 / 2
        return start + (norm + shift) / other - r

    return ell


@lru_cache(maxsize=4096)
def printed_epsilon(
    algorithm: int,
    name: str,
    loss: str,
    epsilon: float,
    delta: float,
    penalty: float,
    labels_change: bool,
) -> tuple[float, float]:
    """Return an (epsilon, delta) that the printed noise provably gives where (epsilon, delta) is claimed.

    Parameters
    ----------
    algorithm : {1, 2}
        Output or objective perturbation.
    name : str
        Data set, for its counts and dimension.
    loss : str
        ``"logistic"`` or ``"least squares"``.
    epsilon, delta : float
        What is claimed; where delta is 0 and labels change, the answer's delta is ``1 / n^2``.
    penalty : float
        The tuned penalty, taken as public.
    labels_change : bool
        Whether the replaced record may change its label; else the counts are public.

    Returns
    -------
    tuple of float
        Epsilon, rounded by nothing, and its delta.
    """
    facts = FACTS[name]
    gaussian, d = delta > 0, facts.features

    def noise(counts: tuple[int, int]) -> tuple[float, float]:
        return _noise(algorithm, loss, epsilon, delta, penalty, counts, facts)

    counts = facts.positive, facts.negative
    if not labels_change:
        same = noise(counts)
        if not gaussian:  # with equal spreads the log ratio does not depend on the noise
            ell = _log_ratio(algorithm, loss, delta, facts, counts, False, same, same)
            return float(ell(np.zeros(1))[0]), 0.0
        bounds = facts.bounds(LOSSES[loss], same[1], counts, False)
        if algorithm == 1:
            mu = bounds.gradient_sensitivity / (same[1] * same[0])
            return float(GaussianDP(mu).epsilon(delta)), delta
        ell = _log_ratio(algorithm, loss, delta, facts, counts, False, same, same)
        ratio = bounds.gradient_sensitivity / same[0]

        first = epsilon_at(delta, hockey_stick(ell, d, True))
        second = epsilon_at(delta, lambda x: pairwise_delta(x, ratio, bounds.curvature_ratio))
        return min(first, second), delta
    target = delta if gaussian else facts.delta
    worst = 0.0
    for step in (1, -1):
        beside = counts[0] + step, counts[1] - step
        least = min(counts[0], beside[0]), min(counts[1], beside[1])
        for here, there in ((counts, beside), (beside, counts)):
            pair = noise(here), noise(there)
            if gaussian and algorithm == 1:
                found = _gaussian_output(target, loss, facts, least, *pair)
            else:
                ell = _log_ratio(algorithm, loss, delta, facts, least, True, *pair)
                found = epsilon_at(target, hockey_stick(ell, d, gaussian))
            worst = max(worst, found)
    return worst, target


def _gaussian_output(
    delta: float,
    loss: str,
    facts: Facts,
    counts: tuple[int, int],
    here: tuple[float, float],
    there: tuple[float, float],
) -> float:
    """Move the minimiser first and change the spread second: epsilons add, deltas are split 98 to 1."""
    d, (spread, penalty), (other, _) = facts.features, here, there
    moved = facts.bounds(LOSSES[loss], penalty, counts).gradient_sensitivity / penalty

    def ell(r: Array) -> Array:
        return d * math.log(other / spread) + ((spread / other) ** 2 - 1) * r**2 / 2

    second = epsilon_at(delta / 100, hockey_stick(ell, d, True))
    first = GaussianDP(moved / min(spread, other)).epsilon(0.98 * delta * math.exp(-second))
    # delta_1 exp(second) + delta_2 and delta_1 + exp(first) delta_2 are both within delta for first <= log 2.
    return float(first + second) if first <= math.log(2) else math.inf


def scale_alone(name: str, epsilon: float, algorithm: int = 1) -> float:
    """Return log10 of the delta that an algorithm with pure epsilon and a penalty of 1 cannot do without.

    On rows that are all zero the release is noise alone, ``b`` or ``-b / penalty``, whatever the labels, and only its
    scale, which is made of the counts, tells two neighbours apart: the hockey-stick divergence of two l2-Laplace laws,
    exactly. (A penalty that Algorithm 2 has to raise grows with the scale, and then these rows give nothing away.)
    """
    facts = FACTS[name]
    d, counts = facts.features, (facts.positive, facts.negative)
    # One record fewer in the smaller class: the noise is larger.
    step = -1 if counts[0] < counts[1] else 1
    beside = counts[0] + step, counts[1] - step
    found = [_noise(algorithm, "logistic", epsilon, 0.0, 1.0, c, facts) for c in (beside, counts)]
    here, there = (spread / (penalty if algorithm == 2 else 1.0) for spread, penalty in found)
    rate = here / there - 1  # ell(r) = d log(there / here) + rate r
    edge = (epsilon + d * math.log(here / there)) / rate
    # Beyond the edge; r = edge + u: log density plus the log of what is lost.
    u = np.linspace(0, 60, 60_001)[1:]
    log_terms = (d - 1) * np.log(edge + u) - edge - u - gammaln(d) + np.log(-np.expm1(-rate * u))
    top = float(log_terms.max())
    return (top + math.log(float(np.exp(log_terms - top).sum()) * (u[1] - u[0]))) / math.log(10)
