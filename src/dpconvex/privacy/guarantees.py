r"""Privacy guarantees as values: what a release promises, convertible into the other languages of
privacy.

A guarantee knows its whole profile ``delta(epsilon)`` and its trade-off curve: the smallest
type-II error of any test that tells two neighbouring data sets apart with a given type-I error.
Conversions are exact: a guarantee in one language is turned into the strongest statement of the
other that it implies.

The constructor arguments are stored as ``epsilon_bound`` and ``delta_bound``, because ``epsilon``
and ``delta`` are the conversions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from .profiles import gaussian_delta


def check_number(
    name: str,
    owner: str,
    value: object,
    allowed: str,
    low: float,
    high: float,
    low_open: bool = False,
) -> float:
    """Return ``value`` as a float if it lies in ``[low, high)`` (``(low, high)`` with
    ``low_open``), or raise.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(
            f"The '{name}' parameter of {owner} must be {allowed}. Got {value!r} instead."
        )
    number = float(value)
    if not (low <= number < high) or (low_open and number == low):
        raise ValueError(
            f"The '{name}' parameter of {owner} must be {allowed}. Got {value!r} instead."
        )
    return number


class _Guarantee:
    """What the three guarantees share: a readable form and a dictionary for JSON."""

    kind: ClassVar[str]

    def to_dict(self) -> dict[str, Any]:
        """Return the guarantee as plain data: its kind and its constructor arguments."""
        arguments = {
            field.name.removesuffix("_bound"): getattr(self, field.name)
            for field in fields(self)  # type: ignore[arg-type]
        }
        return {"kind": self.kind, **arguments}

    def __repr__(self) -> str:
        arguments = {name: value for name, value in self.to_dict().items() if name != "kind"}
        inside = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        return f"{type(self).__name__}({inside})"


@dataclass(frozen=True, init=False, repr=False)
class ApproxDP(_Guarantee):
    """Approximate differential privacy: ``P(S) <= exp(epsilon) Q(S) + delta`` for every event S.

    Parameters
    ----------
    epsilon : float
        Privacy loss, at least 0.
    delta : float
        Failure mass, in [0, 1).

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
        epsilon = check_number(
            "epsilon", type(self).__name__, epsilon, "a finite number of at least 0", 0, math.inf
        )
        delta = check_number("delta", type(self).__name__, delta, "a number in [0, 1)", 0, 1)
        object.__setattr__(self, "epsilon_bound", epsilon)
        object.__setattr__(self, "delta_bound", delta)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta at which (epsilon, delta)-DP follows from this guarantee."""
        if epsilon >= self.epsilon_bound:
            return self.delta_bound
        # Below the bound the extreme pair is randomised response on top of a delta-mass of full
        # disclosure.
        own = self.epsilon_bound
        gap = -math.expm1(epsilon - own) / (1 + math.exp(-own))
        return self.delta_bound + (1 - self.delta_bound) * gap

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 at which (epsilon, delta)-DP follows from this guarantee."""
        if delta < self.delta_bound:
            return math.inf
        gap = (delta - self.delta_bound) / (1 - self.delta_bound)
        remaining = 1 - gap * (1 + math.exp(-self.epsilon_bound))
        return max(0.0, self.epsilon_bound + math.log(remaining)) if remaining > 0 else 0.0

    def tradeoff(self, type_one: ArrayLike) -> NDArray[np.float64] | float:
        """Return the smallest type-II error of any attack with this type-I error.

        ``max(0, 1 - delta - exp(epsilon) x, exp(-epsilon) (1 - delta - x))``.
        """
        x = np.asarray(type_one, dtype=np.float64)
        steep = 1 - self.delta_bound - np.exp(self.epsilon_bound) * x
        flat = np.exp(-self.epsilon_bound) * (1 - self.delta_bound - x)
        curve = np.maximum(0.0, np.maximum(steep, flat))
        return curve if curve.ndim else float(curve)


@dataclass(frozen=True, init=False, repr=False)
class PureDP(_Guarantee):
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
        epsilon = check_number(
            "epsilon", "PureDP", epsilon, "a finite number of at least 0", 0, math.inf
        )
        object.__setattr__(self, "epsilon_bound", epsilon)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta at which (epsilon, delta)-DP follows from this guarantee."""
        return ApproxDP(self.epsilon_bound, 0.0).delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 at which (epsilon, delta)-DP follows from this guarantee."""
        return ApproxDP(self.epsilon_bound, 0.0).epsilon(delta)

    def tradeoff(self, type_one: ArrayLike) -> NDArray[np.float64] | float:
        """Return the smallest type-II error of any attack with this type-I error."""
        return ApproxDP(self.epsilon_bound, 0.0).tradeoff(type_one)


@dataclass(frozen=True, init=False, repr=False)
class GaussianDP(_Guarantee):
    """Gaussian differential privacy: no easier to attack than telling N(0, 1) from N(mu, 1).

    Parameters
    ----------
    mu : float
        Distance of the two normal laws, at least 0. Releases compose as ``mu = sqrt(mu_1^2 + mu_2^2 + ...)``.

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
        mu = check_number("mu", "GaussianDP", mu, "a finite number of at least 0", 0, math.inf)
        object.__setattr__(self, "mu", mu)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta at which (epsilon, delta)-DP follows from this guarantee."""
        return gaussian_delta(epsilon, self.mu)

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon >= 0 at which (epsilon, delta)-DP follows, rounded to the safe side."""
        if not delta > 0:
            return 0.0 if self.mu == 0 else math.inf
        if self.delta(0.0) <= delta:
            return 0.0
        low, high = 0.0, 1.0
        while self.delta(high) > delta:
            low, high = high, 2 * high
        for _ in range(200):
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (middle, high) if self.delta(middle) > delta else (low, middle)
        return high

    def tradeoff(self, type_one: ArrayLike) -> NDArray[np.float64] | float:
        """Return the smallest type-II error of any attack with this type-I error.

        ``Phi(Phi^-1(1 - x) - mu)``.
        """
        x = np.asarray(type_one, dtype=np.float64)
        curve = np.asarray(ndtr(-ndtri(x) - self.mu))
        return curve if curve.ndim else float(curve)


Guarantee: TypeAlias = PureDP | ApproxDP | GaussianDP


def per_problem(guarantee: Guarantee, problems: int) -> Guarantee:
    """Return what each of several releases on the same data may spend: basic composition, or ``mu / sqrt(k)``."""
    if problems == 1:
        return guarantee
    if isinstance(guarantee, GaussianDP):
        return GaussianDP(guarantee.mu / math.sqrt(problems))
    if isinstance(guarantee, ApproxDP):
        return ApproxDP(guarantee.epsilon_bound / problems, guarantee.delta_bound / problems)
    return PureDP(guarantee.epsilon_bound / problems)


_KINDS: dict[str, type[Guarantee]] = {cls.kind: cls for cls in (PureDP, ApproxDP, GaussianDP)}


def guarantee_from_dict(data: dict[str, Any]) -> Guarantee:
    """Rebuild a guarantee from :meth:`to_dict`."""
    arguments = dict(data)
    kind = arguments.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(
            f"A guarantee's kind must be one of {sorted(_KINDS)}. Got {kind!r} instead."
        )
    return _KINDS[kind](**arguments)
