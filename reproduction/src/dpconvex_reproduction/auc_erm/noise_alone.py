r"""A refutation of the printed guarantees where labels may change: on rows of zeros the release is
noise alone.

There every pair's loss is constant, so Algorithm 1 releases ``b`` and Algorithm 2 ``-b / penalty``,
whatever the labels. What tells two neighbours apart is the spread of the noise, which is made of
the class counts: with ``k`` positives against ``k + 1`` it differs, by a factor of almost 2 at
``k = 1``. The noise's direction is uniform, and ``||b|| / scale`` (l2-Laplace) is Gamma(d),
``||b||^2 / (2 std^2)`` (Gaussian) is Gamma(d/2): the hockey-stick divergence of two such laws is a
difference of Gamma probabilities, exactly.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

from scipy.special import gammainc, gammaincc

from dpconvex_reproduction.auc_erm.problems import FACTS
from dpconvex_reproduction.auc_erm.true_privacy import printed_noise

__all__ = ["Refutation", "divergence", "refutation"]

_SAME = 1e-9  # ratios of spreads closer to 1 are rounding


class Refutation(NamedTuple):
    """What two neighbours on rows of zeros need at the claimed epsilon.

    Attributes
    ----------
    delta : float
        No smaller delta holds.
    positive : int
        Positives of one neighbour; the other has one more.
    """

    delta: float
    positive: int


def divergence(epsilon: float, shape: float, wide: float, narrow: float) -> float:
    r"""Return ``max`` of the two ``sup_A P(A) - e^epsilon Q(A)`` for Gamma laws of one shape and
    two scales.

    With ``rho = wide / narrow > 1`` and ``Q(a, x)`` the upper tail of Gamma(a), the wide law
    exceeds ``e^epsilon`` times the narrow one beyond
    ``x = (epsilon + shape log rho) / (1/narrow - 1/wide)``, which gives
    ``Q(shape, x/wide) - e^epsilon Q(shape, x/narrow)``; the other direction is the same near 0.

    Examples
    --------
    >>> round(divergence(0.0, 1.0, 2.0, 1.0), 10)  # exponential laws: 1/2 - 1/4
    0.25
    """
    if wide < narrow:
        wide, narrow = narrow, wide
    if wide <= narrow * (1 + _SAME):
        return 0.0
    rate = 1 / narrow - 1 / wide
    turn = shape * math.log(wide / narrow)
    far = (turn + epsilon) / rate
    near = max(0.0, turn - epsilon) / rate
    outside = gammaincc(shape, far / wide) - math.exp(epsilon) * gammaincc(shape, far / narrow)
    inside = gammainc(shape, near / narrow) - math.exp(epsilon) * gammainc(shape, near / wide)
    return float(max(outside, inside, 0.0))


def _spread(
    algorithm: int, name: str, loss: str, epsilon: float, delta: float, penalty: float, k: int
) -> tuple[float, bool]:
    """Return the spread of what is released with k positives, and whether the penalty is raised."""
    facts = FACTS[name]
    counts = k, facts.rows - k
    spread, used = printed_noise(algorithm, loss, epsilon, delta, penalty, counts, facts)
    return (spread / used if algorithm == 2 else spread), used > penalty


@lru_cache(maxsize=4096)
def refutation(
    algorithm: int, name: str, loss: str, epsilon: float, delta: float, penalty: float
) -> Refutation | None:
    """Return neighbours of a data set's size that break the printed claim, or None if rows of zeros
    break nothing.

    Algorithm 1 is tried with one and two positives. A penalty that Algorithm 2 raises grows with
    the noise, and then rows of zeros give nothing away: it is tried around the fewest positives for
    which the penalty stays.

    Parameters
    ----------
    algorithm : {1, 2}
        Output or objective perturbation.
    name : str
        Data set, for its size and dimension alone.
    loss : str
        ``"logistic"`` or ``"least squares"``.
    epsilon, delta : float
        What is claimed.
    penalty : float
        The tuned penalty, taken as public.
    """
    facts = FACTS[name]

    def spread(k: int) -> tuple[float, bool]:
        return _spread(algorithm, name, loss, epsilon, delta, penalty, k)

    # The correction shrinks as k (n - k) grows: bisect for the first k whose penalty stays.
    low = 0
    high = facts.rows // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if spread(middle)[1] else (low, middle)
    shape = facts.features / 2 if delta > 0 else float(facts.features)
    power = 2 if delta > 0 else 1
    found = [
        Refutation(divergence(epsilon, shape, spread(k)[0] ** power, spread(k + 1)[0] ** power), k)
        for k in range(max(1, high - 1), high + 3)
    ]
    best = max(found)
    return best if best.delta > delta else None
