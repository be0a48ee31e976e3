r"""Private choices: the exponential mechanism on integer scores.

Probabilities are proportional to ``weight * exp(-rate * score)`` with integers for weights and
scores: sums of floating-point logarithms and Gumbel noise would betray scores in their low bits.
Each probability is an integer of 384 bits, right to 2^-140 of itself; candidates below exp(-120) of
the likeliest are left out. Together that moves the law by less than 1e-40, which
`FAILURE_PROBABILITY` covers.
"""

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.core.noise_source import Words

_BITS = 384
_NEGLIGIBLE = 120.0


def exponential_mechanism(
    words: Words, scores: ArrayLike, rate: float, weights: ArrayLike | None = None
) -> int:
    """Sample index i with probability proportional to ``weights_i exp(-rate scores_i)``.

    Scores are integers below 2^53 in size, lower ones better; the rate is ``epsilon / 2`` for
    scores that move by at most 1 between neighbours. Weights are integers of at least 0, not all 0,
    and ones by default.
    """
    scores = np.asarray(scores)
    weights = np.ones(scores.shape, np.int64) if weights is None else np.asarray(weights)
    possible = np.flatnonzero(weights > 0)
    # Floating point decides only what may be left out.
    rough = np.log(weights[possible].astype(np.float64)) - rate * scores[possible]
    kept = possible[rough >= rough.max() - _NEGLIGIBLE]
    kept = kept[np.argsort(scores[kept], kind="stable")]
    total = 0
    masses = []
    factor = 1 << _BITS
    at = int(scores[kept[0]])
    steps = {0: 1 << _BITS}
    for score, weight in zip(scores[kept].tolist(), weights[kept].tolist(), strict=True):
        gap = score - at
        if gap not in steps:
            steps[gap] = _exact_exponential(rate, gap)
        factor = factor * steps[gap] >> _BITS
        at = score
        masses.append(weight * factor)
        total += masses[-1]
    drawn = words.below(total)
    for index, mass in zip(kept.tolist(), masses, strict=True):
        drawn -= mass
        if drawn < 0:
            return int(index)
    raise AssertionError("unreachable: the draw is below the sum of the masses")


@lru_cache(maxsize=1024)
def _exact_exponential(rate: float, gap: int) -> int:
    """Return ``2^384 exp(-rate gap)``, rounded, by decimal arithmetic of 130 digits."""
    exponent = Fraction(rate) * gap
    with localcontext() as context:
        context.prec = 130
        value = (-Decimal(exponent.numerator) / Decimal(exponent.denominator)).exp()
        return int((value * 2**_BITS).to_integral_value())
