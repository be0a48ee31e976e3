r"""What epsilon the paper's printed noise gives, computed.

Two neighbouring relations are told apart. *Labels kept*: one row is replaced by one of the same
class, so the class counts are common and may be public; this is what the printed constants are made
for. *Labels may change*: one record is replaced, label included, which is what the paper's
definition says. The counts then differ between neighbours, and with them the noise and, in
Algorithm 2, the penalty. A bound for the counts of one data set is then no differential privacy,
which speaks of every data set of that size: :mod:`.noise_alone` has others on which the claims
fail.

Upper bounds. Let b be the noise that leads to the release w on S, b' on S', with spreads s and s'.
Then ``||b' - b|| <= shift(||b||)`` and, for Algorithm 2, Jacobian determinants differ by at most
``exp(J)``, so the log ratio of densities at w is at most ``ell(||b||)``, and
``delta(epsilon) <= E (1 - exp(epsilon - ell(||b||)))_+`` under the law of ``||b||``. Nothing is
assumed about how the shift depends on b, which is where the printed proof of its Theorem 2 has a
gap.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, gammaincc

from dpconvex.core.guarantees import GaussianDP
from dpconvex.privacy.objective_perturbation_calibration import trace_objective_delta
from dpconvex_reproduction.auc_erm.algorithms import printed_objective_noise, printed_output_scale
from dpconvex_reproduction.auc_erm.problems import DIAMETER, FACTS, LOSSES, Facts

__all__ = ["LogRatio", "epsilon_at", "hockey_stick", "printed_epsilon", "printed_noise"]

Array = NDArray[np.float64]
#: Bound of the log ratio of densities as a function of the noise's norm.
LogRatio = Callable[[Array], Array]

_POINTS = 4001
_HIGHEST = 50.0


_ROUNDING = 1 + 1e-9


@lru_cache(maxsize=16)
def _norms(dimension: int, gaussian: bool) -> tuple[Array, Array]:
    """Return a grid of norms of standard noise, from 0, and the probability between its points,
    then beyond its end.
    """
    end = math.sqrt(dimension) + 14 if gaussian else 3.0 * dimension + 120
    r = np.linspace(0, end, _POINTS)
    shape, x = (dimension / 2, r**2 / 2) if gaussian else (dimension, r)
    below = gammainc(shape, x)
    above = gammaincc(shape, x)
    # Differences of the smaller tail keep their digits.
    between = np.where(above[1:] < 0.5, above[:-1] - above[1:], below[1:] - below[:-1])
    return r, np.append(between, above[-1])


def hockey_stick(ell: LogRatio, dimension: int, gaussian: bool) -> Callable[[float], float]:
    """Return an upper bound of ``E (1 - exp(epsilon - ell(r)))_+`` as a function of epsilon.

    Here r is the norm of standard noise. A sum over a fine grid: the probability between two
    points, exactly, times the most that the integrand can be there, and all of the probability
    beyond the grid. ``ell`` must be a polynomial of degree at most 2, as all are here.
    """
    r, weight = _norms(dimension, gaussian)
    at = ell(r)
    # Between two points a parabola rises above both by at most an eighth of its second difference.
    rise = float(np.abs(np.diff(at, 2)).max()) / 8
    most = np.append(np.maximum(at[:-1], at[1:]) + rise, math.inf)

    def profile(epsilon: float) -> float:
        return _ROUNDING * float(weight @ -np.expm1(np.minimum(epsilon - most, 0.0)))

    return profile


def epsilon_at(delta: float, profile: Callable[[float], float]) -> float:
    """Return the smallest epsilon with ``profile(epsilon) <= delta``, infinite beyond 50."""
    low = 0.0
    high = _HIGHEST
    if profile(high) > delta:
        return math.inf
    if profile(low) <= delta:
        return 0.0
    for _ in range(36):
        middle = (low + high) / 2
        low, high = (low, middle) if profile(middle) <= delta else (middle, high)
    return high


def printed_noise(
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
    (spread, alpha) = here
    (other, beta) = there
    bounds = facts.bounds(LOSSES[loss], beta, counts, label_private)
    moved = bounds.gradient_sensitivity
    jacobian = 0.0
    d = bounds.dimension
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
    """Return an (epsilon, delta) that the printed noise provably gives where (epsilon, delta) is
    claimed.

    Where labels change it holds between the data set's counts and those beside them, in both
    directions, and for no other data: no differential privacy.

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
        Epsilon, not rounded and on the safe side, and its delta.
    """
    facts = FACTS[name]
    gaussian = delta > 0
    d = facts.features

    def noise(counts: tuple[int, int]) -> tuple[float, float]:
        return printed_noise(algorithm, loss, epsilon, delta, penalty, counts, facts)

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
        second = epsilon_at(
            delta,
            lambda x: trace_objective_delta(x, ratio / 2, bounds.curvature_ratio, "replace_one"),
        )
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
    """Move the minimiser first and change the spread second: epsilons add, deltas are split 98
    to 1.
    """
    d = facts.features
    (spread, penalty) = here
    (other, _) = there
    moved = facts.bounds(LOSSES[loss], penalty, counts).gradient_sensitivity / penalty

    def ell(r: Array) -> Array:
        return d * math.log(other / spread) + ((spread / other) ** 2 - 1) * r**2 / 2

    second = epsilon_at(delta / 100, hockey_stick(ell, d, True))
    first = GaussianDP(moved / min(spread, other)).epsilon(0.98 * delta * math.exp(-second))
    # delta_1 exp(second) + delta_2 and delta_1 + exp(first) delta_2 are both within delta for first
    # <= log 2.
    return float(first + second) if first <= math.log(2) else math.inf
