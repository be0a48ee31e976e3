r"""What several releases cost together: the best of two upper bounds on the total epsilon.

Write :math:`E = \sum \epsilon_i` over the pure and approximate guarantees, :math:`D = \sum
\delta_i` over the approximate ones and :math:`\mu^2 = \sum \mu_i^2` over the Gaussian ones.

*Sums*: ``E + epsilon_G(mu, delta - D)``, where ``epsilon_G`` is the exact profile of mu-GDP.
*Privacy loss distribution*: an (epsilon, delta) release is no more revealing than randomised
response that discloses everything with probability delta, so the composition of the randomised
responses and of one mu-GDP release, read at ``delta - D``, bounds the total too. It is computed
with dp-accounting, rounded to the pessimistic side.

Privacy
-------
Both hold for guarantees that were fixed beforehand, or are all equal: a grid search, cross-validation, a plan. The sums
also hold for guarantees chosen one after another in view of earlier releases, when they are all pure or approximate, or
all Gaussian and the budget, not the total, is what is claimed. The ledger does not rest on this module but on
:mod:`dpconvex.privacy.ledger.account`, which holds for charges of any kinds, chosen in view of anything.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from dpconvex.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, PureDP

# Below this the Fourier transforms inside the accountant are no longer accurate enough.
_SMALLEST_DELTA = 1e-10
# Distinct epsilons that are composed one by one; more are rounded up to this many.
_MOST_GROUPS = 24
_MOST_GRID_POINTS = 500_000


def compose_epsilon(guarantees: Iterable[Guarantee], delta: float, *, method: str = "best") -> float:
    """Return an upper bound on the total epsilon, at ``delta``, of releases on the same data.

    Parameters
    ----------
    guarantees : iterable of PureDP, ApproxDP or GaussianDP
        The releases, in any order: the result depends on the collection only.
    delta : float
        Where the total is read.
    method : {"best", "sums"}
        The smaller of both bounds, or the sums alone.

    Returns
    -------
    float
        ``inf`` if the deltas alone exceed ``delta``.

    Examples
    --------
    >>> compose_epsilon([PureDP(0.25), ApproxDP(0.5, 1e-6)], 1e-6)
    0.75
    >>> compose_epsilon([GaussianDP(0.3), GaussianDP(0.4)], 1e-6) == GaussianDP(0.5).epsilon(1e-6)
    True
    """
    if method not in ("best", "sums"):
        raise ValueError(f"The 'method' parameter of compose_epsilon must be 'best' or 'sums'. Got {method!r} instead.")
    epsilons, deltas, mus = _parts(guarantees)
    rest = _difference(delta, math.fsum(deltas))
    if rest < 0:
        return math.inf
    mu = math.sqrt(math.fsum(sorted(value * value for value in mus)))
    sums = math.fsum(epsilons) + (GaussianDP(mu).epsilon(rest) if mu > 0 else 0.0)
    mixed = len(epsilons) + (mu > 0)
    if method == "sums" or mixed < 2 or rest < _SMALLEST_DELTA:
        return sums
    return min(sums, _distribution_epsilon(_grouped(epsilons), mu, rest))


def _parts(guarantees: Iterable[Guarantee]) -> tuple[list[float], list[float], list[float]]:
    """Split a collection into its positive epsilons, deltas and mus, each sorted."""
    epsilons: list[float] = []
    deltas: list[float] = []
    mus: list[float] = []
    for guarantee in guarantees:
        if isinstance(guarantee, GaussianDP):
            mus.append(guarantee.mu)
            continue
        if not isinstance(guarantee, (PureDP, ApproxDP)):
            raise TypeError(
                f"A guarantee must be PureDP, ApproxDP or GaussianDP. Got {type(guarantee).__name__} instead."
            )
        epsilons.append(guarantee.epsilon_bound)
        if isinstance(guarantee, ApproxDP):
            deltas.append(guarantee.delta_bound)
    return sorted(e for e in epsilons if e > 0), sorted(deltas), sorted(m for m in mus if m > 0)


def _difference(delta: float, used: float) -> float:
    """Return ``delta - used``, where a difference of rounding size counts as zero."""
    rest = delta - used
    return 0.0 if abs(rest) <= 1e-12 * delta else rest


def _grouped(epsilons: list[float]) -> tuple[tuple[float, int], ...]:
    """Count equal epsilons; too many distinct ones are first rounded up to a geometric grid."""
    counts = Counter(epsilons)
    if len(counts) > _MOST_GROUPS:
        smallest, largest = min(counts), max(counts)
        ratio = (largest / smallest) ** (1 / (_MOST_GROUPS - 1))
        grid = [min(largest, smallest * ratio**k) for k in range(_MOST_GROUPS - 1)] + [largest]
        rounded: Counter[float] = Counter()
        for epsilon, count in counts.items():
            rounded[min(point for point in grid if point >= epsilon)] += count
        counts = rounded
    return tuple(sorted(counts.items()))


@lru_cache(maxsize=256)
def _distribution_epsilon(groups: tuple[tuple[float, int], ...], mu: float, delta: float) -> float:
    """Compose randomised responses and one mu-GDP release on a common grid of privacy losses."""
    # Imported here: dp-accounting takes more than a second.
    from dp_accounting.pld import common, privacy_loss_distribution

    span = math.fsum(epsilon * count for epsilon, count in groups) + mu * mu + 20 * mu
    smallest = min((epsilon for epsilon, _ in groups), default=mu)
    # Every epsilon is rounded up to the grid, hence a grid finer than the smallest one; the cap
    # keeps the arrays short when a few releases are large.
    interval = max(min(1e-4, smallest / 64), span / _MOST_GRID_POINTS)
    total: Any = None
    for epsilon, count in groups:
        single = privacy_loss_distribution.from_privacy_parameters(
            common.DifferentialPrivacyParameters(epsilon, 0.0), value_discretization_interval=interval
        )
        repeated = single.self_compose(count) if count > 1 else single
        total = repeated if total is None else total.compose(repeated)
    if mu > 0:
        gaussian = privacy_loss_distribution.from_gaussian_mechanism(
            1 / mu, sensitivity=1, value_discretization_interval=interval
        )
        total = gaussian if total is None else total.compose(gaussian)
    # A thousandth of delta covers the rounding errors of the transforms.
    return float(total.get_epsilon_for_delta(0.999 * delta))
