r"""Guarantees: pure, approximate and Gaussian differential privacy as values, their conversions and
composition.

A guarantee knows its whole profile ``delta(epsilon)`` and its trade-off curve. Conversions are
exact: a guarantee of one kind is turned into the strongest statement of another kind that it
implies. The constructor arguments are stored as ``epsilon_bound`` and ``delta_bound``, because
``epsilon`` and ``delta`` are the conversions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, log_ndtr, ndtr, ndtri

from dpconvex.core.calibration import gaussian_delta, gaussian_scale
from dpconvex.core.checks import check_count, check_number
from dpconvex.core.description import Facts

# Below this epsilon or mu, pure and Gaussian DP are compared by their tangent at 0.
_SMALL = 1e-4
# Below this delta the Fourier transforms inside dp-accounting are no longer accurate enough.
_SMALLEST_DELTA = 1e-10
_MOST_GRID_POINTS = 500_000
_FINITE = "a finite number of at least 0"


class _Guarantee:
    """A readable form, a dictionary for JSON, and the conversion to Gaussian DP."""

    kind: ClassVar[str]

    def to_dict(self) -> Facts:
        """Return the guarantee as plain data: its kind and its constructor arguments."""
        names = [field.name for field in fields(self)]  # type: ignore[arg-type]
        return {
            "kind": self.kind,
            **{name.removesuffix("_bound"): getattr(self, name) for name in names},
        }

    def as_gaussian(self) -> GaussianDP:
        """Return the weakest Gaussian DP that implies this guarantee, or raise: none does
        without a delta above 0.
        """
        if isinstance(self, GaussianDP) and self.mu > 0:
            return self
        if isinstance(self, ApproxDP) and self.delta_bound > 0 and self.epsilon_bound > 0:
            return GaussianDP(1 / gaussian_scale(self.epsilon_bound, self.delta_bound, 1.0))
        raise ValueError(
            f"Gaussian noise offers GaussianDP and ApproxDP with delta above 0. Got {self!r} "
            "instead."
        )

    def __repr__(self) -> str:
        arguments = (
            f"{name}={value!r}" for name, value in self.to_dict().items() if name != "kind"
        )
        return f"{type(self).__name__}({', '.join(arguments)})"


class _EpsilonDeltaGuarantee(_Guarantee):
    """Conversions of an (epsilon, delta) guarantee."""

    epsilon_bound: float
    delta_bound: float = 0.0

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta at which (epsilon, delta)-DP follows from the guarantee."""
        own = self.epsilon_bound
        if epsilon >= own:
            return self.delta_bound
        # Below the bound the extreme pair is randomised response on top of a delta-mass of full
        # disclosure.
        gap = -math.expm1(epsilon - own) / (1 + math.exp(-own))
        return self.delta_bound + (1 - self.delta_bound) * gap

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 at which (epsilon, delta)-DP follows from this
        guarantee.
        """
        if delta < self.delta_bound:
            return math.inf
        gap = (delta - self.delta_bound) / (1 - self.delta_bound)
        remaining = 1 - gap * (1 + math.exp(-self.epsilon_bound))
        return max(0.0, self.epsilon_bound + math.log(remaining)) if remaining > 0 else 0.0

    def tradeoff(self, type_one: ArrayLike) -> NDArray[np.float64] | float:
        """Return the least type-II error, ``max(0, 1 - delta - exp(epsilon) x, exp(-epsilon) (1
        - delta - x))``.
        """
        x = np.asarray(type_one, dtype=np.float64)
        steep = 1 - self.delta_bound - np.exp(self.epsilon_bound) * x
        flat = np.exp(-self.epsilon_bound) * (1 - self.delta_bound - x)
        curve = np.maximum(0.0, np.maximum(steep, flat))
        return curve if curve.ndim else float(curve)


@dataclass(frozen=True, init=False, repr=False)
class ApproxDP(_EpsilonDeltaGuarantee):
    """Approximate differential privacy: ``P(S) <= exp(epsilon) Q(S) + delta`` for every event S.

    Parameters
    ----------
    epsilon, delta : float
        Privacy loss, at least 0, and failure mass, in [0, 1).

    Examples
    --------
    >>> ApproxDP(1.0, 1e-6).delta(2.0)
    1e-06
    >>> ApproxDP(1.0, 1e-6).epsilon(1e-7)
    inf
    """

    epsilon_bound: float
    delta_bound: float
    kind: ClassVar[str] = "approx"

    def __init__(self, epsilon: float, delta: float) -> None:
        object.__setattr__(
            self,
            "epsilon_bound",
            check_number("epsilon", "ApproxDP", epsilon, _FINITE, 0, math.inf),
        )
        object.__setattr__(
            self,
            "delta_bound",
            check_number("delta", "ApproxDP", delta, "a number in [0, 1)", 0, 1),
        )


@dataclass(frozen=True, init=False, repr=False)
class PureDP(_EpsilonDeltaGuarantee):
    """Pure differential privacy: no event's probability changes by more than a factor
    ``exp(epsilon)``.

    Parameters
    ----------
    epsilon : float
        Privacy loss, at least 0.

    Examples
    --------
    >>> PureDP(1.0).epsilon(0.0)
    1.0
    >>> round(PureDP(1.0).delta(0.5), 6)
    0.287649
    """

    epsilon_bound: float
    kind: ClassVar[str] = "pure"

    def __init__(self, epsilon: float) -> None:
        object.__setattr__(
            self, "epsilon_bound", check_number("epsilon", "PureDP", epsilon, _FINITE, 0, math.inf)
        )


@dataclass(frozen=True, init=False, repr=False)
class GaussianDP(_Guarantee):
    """Gaussian differential privacy: no easier to attack than telling N(0, 1) from N(mu, 1).

    Parameters
    ----------
    mu : float
        Distance of the two normal distributions, at least 0. Releases compose as
        ``mu = sqrt(mu_1^2 + mu_2^2 + ...)``.

    Examples
    --------
    >>> round(GaussianDP(1.0).delta(1.0), 6)
    0.126937
    >>> round(GaussianDP(1.0).epsilon(1e-6), 4)
    4.8866
    """

    mu: float
    kind: ClassVar[str] = "gaussian"

    def __init__(self, mu: float) -> None:
        object.__setattr__(self, "mu", check_number("mu", "GaussianDP", mu, _FINITE, 0, math.inf))

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta at which (epsilon, delta)-DP follows from this guarantee."""
        return gaussian_delta(epsilon, self.mu)

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 at which (epsilon, delta)-DP follows from the
        guarantee, safely rounded.
        """
        if not delta > 0:
            return 0.0 if self.mu == 0 else math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        low = 0.0
        high = 1.0
        while self.delta(high) > delta:
            low = high
            high = 2 * high
        for _ in range(200):
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high

    def tradeoff(self, type_one: ArrayLike) -> NDArray[np.float64] | float:
        """Return the smallest type-II error of any attack with this type-I error:
        ``Phi(Phi^-1(1 - x) - mu)``.
        """
        curve = np.asarray(ndtr(-ndtri(np.asarray(type_one, dtype=np.float64)) - self.mu))
        return curve if curve.ndim else float(curve)


Guarantee: TypeAlias = PureDP | ApproxDP | GaussianDP
_KINDS: dict[str, type[Guarantee]] = {cls.kind: cls for cls in (PureDP, ApproxDP, GaussianDP)}


def guarantee_from_dict(data: Facts) -> Guarantee:
    """Rebuild a guarantee from :meth:`to_dict`."""
    arguments = dict(data)
    kind = arguments.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(
            f"A guarantee's kind must be one of {sorted(_KINDS)}. Got {kind!r} instead."
        )
    return _KINDS[kind](**arguments)


def pure_guarantee_mu(epsilon: float) -> float:
    """Return the smallest mu for which epsilon-DP implies mu-GDP:
    ``2 Phi^-1(exp(epsilon) / (1 + exp(epsilon)))``.
    """
    # The trade-off curves meet at the corner of randomised response.
    if epsilon < _SMALL:  # the tangent is above
        return math.sqrt(math.pi / 2) * epsilon
    return -2 * float(ndtri(expit(-epsilon)))


def guaranteed_pure_epsilon(guarantee: Guarantee) -> float:
    """Return the largest epsilon at which pure epsilon-DP implies a guarantee.

    Pure epsilon-DP is mu-GDP if ``exp(epsilon) / (1 + exp(epsilon)) <= Phi(mu / 2)``: both curves
    then pass the diagonal at one point, and the Gaussian one is convex. A part in 1e12 is left for
    rounding.
    """
    if not isinstance(guarantee, GaussianDP):
        return guarantee.epsilon_bound
    half = guarantee.mu / 2
    if guarantee.mu < _SMALL:  # the tangent is below
        return math.sqrt(8 / math.pi) * half * (1 - 1e-12)
    return float(log_ndtr(half) - log_ndtr(-half)) * (1 - 1e-12)


def guarantee_per_problem(guarantee: Guarantee, problems: int) -> Guarantee:
    """Return the guarantee that each of several releases may spend: basic composition, or
    ``mu / sqrt(k)``.
    """
    if problems == 1:
        return guarantee
    if isinstance(guarantee, GaussianDP):
        return GaussianDP(guarantee.mu / math.sqrt(problems))
    if isinstance(guarantee, ApproxDP):
        return ApproxDP(guarantee.epsilon_bound / problems, guarantee.delta_bound / problems)
    return PureDP(guarantee.epsilon_bound / problems)


def compose_guarantee(proven: Guarantee, problems: int) -> Guarantee:
    """Return the guarantee of several runs on the same data together: ``mu sqrt(k)``, or
    ``k epsilon``.
    """
    if isinstance(proven, GaussianDP):
        return GaussianDP(proven.mu * math.sqrt(problems))
    if isinstance(proven, PureDP):
        return PureDP(problems * proven.epsilon_bound)
    delta = min(problems * proven.delta_bound, 1 - 2.0**-53)
    return ApproxDP(problems * proven.epsilon_bound, delta)


def group_guarantee(claim: Guarantee, proven: Guarantee, size: int) -> Guarantee:
    r"""Return the guarantee to ``size`` records together, by that to one and what the noise proves
    for one.

    Pure: ``k epsilon``. Gaussian: ``k mu``. (epsilon, delta):
    ``(k epsilon, delta (e^{k epsilon} - 1) / (e^epsilon - 1))``, or the profile of ``k mu`` at
    ``k epsilon`` where the mechanism is known to be mu-Gaussian, if that is less.
    """
    check_count("size", "for_group", size)
    if isinstance(claim, GaussianDP):
        return GaussianDP(size * claim.mu)
    epsilon = claim.epsilon_bound
    if isinstance(claim, PureDP):
        return PureDP(size * epsilon)
    try:
        growth = math.expm1(size * epsilon) / math.expm1(epsilon) if epsilon > 0 else float(size)
    except OverflowError:
        growth = math.inf
    delta = min(1.0, claim.delta_bound * growth)
    if isinstance(proven, GaussianDP):
        delta = min(delta, GaussianDP(size * proven.mu).delta(size * epsilon))
    if delta >= 1:
        raise ValueError(
            f"Nothing is promised to {size} records together: delta would be 1. Ask for fewer "
            "records."
        )
    return ApproxDP(size * epsilon, delta)


def compose_epsilon(
    guarantees: Iterable[Guarantee], delta: float, *, method: str = "best"
) -> float:
    r"""Return an upper bound on epsilon, at ``delta``, of the composed guarantees of releases on
    the same data.

    With ``E = sum epsilon_i``, ``D = sum delta_i`` and ``mu^2 = sum mu_i^2``, the smaller of two
    bounds. *Sums*: ``E + epsilon_G(mu, delta - D)``, where ``epsilon_G`` is the exact profile of
    mu-GDP. *Privacy loss distribution*: an (epsilon, delta) release is no more revealing than
    randomised response that discloses everything with probability delta, so the composition of the
    randomised responses and of one mu-GDP release, read at ``delta - D``, bounds the total too;
    dp-accounting computes it, rounded to the pessimistic side.

    Parameters
    ----------
    guarantees : iterable of PureDP, ApproxDP or GaussianDP
        The releases, in any order: the result depends on the collection only.
    delta : float
        Where the total is read; it is ``inf`` if the deltas of the releases alone exceed this one.
    method : {"best", "sums"}
        The smaller of both bounds, or the sums alone.

    Notes
    -----
    Privacy: both bounds hold for guarantees that were fixed beforehand, or are all equal: a grid
    search, cross-validation, a plan. The sums also hold for guarantees chosen in view of earlier
    releases, when they are all pure or approximate, or all Gaussian and the budget, not the total,
    is what is claimed. The ledger rests on :mod:`dpconvex.privacy.privacy_filter` instead, which
    holds for charges of any kinds, chosen in view of anything.

    Examples
    --------
    >>> compose_epsilon([PureDP(0.25), ApproxDP(0.5, 1e-6)], 1e-6)
    0.75
    >>> compose_epsilon([GaussianDP(0.3), GaussianDP(0.4)], 1e-6) == GaussianDP(0.5).epsilon(1e-6)
    True
    """
    if method not in ("best", "sums"):
        raise ValueError(
            f"The 'method' parameter of compose_epsilon must be 'best' or 'sums'. Got {method!r} "
            "instead."
        )
    guarantees = list(guarantees)
    for guarantee in guarantees:
        if not isinstance(guarantee, (PureDP, ApproxDP, GaussianDP)):
            kind = type(guarantee).__name__
            raise TypeError(
                f"A guarantee must be PureDP, ApproxDP or GaussianDP. Got {kind} instead."
            )
    others = [each for each in guarantees if not isinstance(each, GaussianDP)]
    left = delta - math.fsum(each.delta_bound for each in others)
    if abs(left) <= 1e-12 * delta:  # rounding
        left = 0.0
    if left < 0:
        return math.inf
    mu = math.sqrt(math.fsum(each.mu**2 for each in guarantees if isinstance(each, GaussianDP)))
    epsilons = [each.epsilon_bound for each in others if each.epsilon_bound > 0]
    sums = math.fsum(epsilons) + (GaussianDP(mu).epsilon(left) if mu > 0 else 0.0)
    if method == "sums" or len(epsilons) + (mu > 0) < 2 or left < _SMALLEST_DELTA:
        return sums
    return min(sums, _composed_guarantee_epsilon(epsilons, mu, left))


def _composed_guarantee_epsilon(epsilons: list[float], mu: float, delta: float) -> float:
    """Compose randomised responses and one mu-GDP release on a common grid of privacy losses."""
    # Imported here: dp-accounting takes more than a second.
    from dp_accounting.pld import common, privacy_loss_distribution

    # Every epsilon is rounded up to the grid, hence a grid finer than the smallest one; the cap
    # keeps the arrays short when a few releases are large.
    span = math.fsum(epsilons) + mu * mu + 20 * mu
    grid = max(min(1e-4, min(epsilons, default=mu) / 64), span / _MOST_GRID_POINTS)
    total = privacy_loss_distribution.identity(value_discretization_interval=grid)
    for epsilon, count in sorted(Counter(epsilons).items()):
        single = privacy_loss_distribution.from_privacy_parameters(
            common.DifferentialPrivacyParameters(epsilon, 0.0), value_discretization_interval=grid
        )
        total = total.compose(single.self_compose(count))
    if mu > 0:
        gaussian = privacy_loss_distribution.from_gaussian_mechanism(
            1 / mu, value_discretization_interval=grid
        )
        total = total.compose(gaussian)
    # A thousandth of delta covers the rounding errors of the transforms.
    return float(total.get_epsilon_for_delta(0.999 * delta))
