"""What a mechanism teaches certificates: how noise follows from public facts, and what stated noise proves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from dpconvex.privacy.bounds.base import Bounds
from dpconvex.privacy.certificates.terms import NoiseTerm
from dpconvex.privacy.description import Facts
from dpconvex.privacy.guarantees import ApproxDP, Guarantee
from dpconvex.privacy.noise import EXACT, TAIL_PROBABILITY

if TYPE_CHECKING:
    from dpconvex.privacy.certificates.certificate import Certificate

__all__ = [
    "Calibration",
    "CertificateError",
    "Parameters",
    "Promise",
    "Proof",
    "calibrate",
    "calibrates",
    "check_tails",
    "prover_of",
    "proves",
]

# A mechanism's public parameters by name: plain data.
Parameters = Mapping[str, Any]
Rule = TypeVar("Rule")

MOST_EPSILON = 150.0
# Calibrations aim this share of delta lower (see `_RESERVE` in privacy.calibration).
RESERVED = 2e-9
_EARLIER_TAIL = 1e-42  # of certificates of revision 2


class CertificateError(ValueError):
    """A certificate is malformed, withdrawn, or its guarantee does not follow from what it states."""


class Promise:
    """What every certificate offers: its guarantee, read at other budgets."""

    guarantee: Guarantee

    def epsilon(self, delta: float) -> float:
        """Return the smallest epsilon at which (epsilon, delta)-DP follows."""
        return self.guarantee.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return the smallest delta at which (epsilon, delta)-DP follows."""
        return self.guarantee.delta(epsilon)


@dataclass(frozen=True)
class Calibration:
    """What a mechanism derives from public facts.

    Attributes
    ----------
    noise : dict of str to NoiseTerm
        One entry per kind of release.
    solver_tolerance : float
        Largest norm of the gradient of F at the point the solver returns; 0 where nothing is solved.
    stated : dict
        Public choices that the certificate's parameters state besides those that were given.
    """

    noise: dict[str, NoiseTerm]
    solver_tolerance: float = 0.0
    stated: Facts = field(default_factory=dict)


@dataclass(frozen=True)
class Proof:
    """What the releases that a certificate states give together.

    Attributes
    ----------
    guarantee : PureDP, ApproxDP or GaussianDP
        What follows from the stated facts and noise.
    theorem : str
        Why.
    sampler : str
        How noise must be drawn for it to hold.
    """

    guarantee: Guarantee
    theorem: str
    sampler: str = EXACT


# The room whose `RULES` say which module registers a mechanism's. By name, like a plug-in: this room is below it and
# knows nothing of it.
_TEACHERS = "dpconvex.mechanisms"
Calibrator = Callable[[Any, Guarantee, Parameters], Calibration]
Prover = Callable[["Certificate"], Proof]
_CALIBRATORS: dict[str, Calibrator] = {}
_PROVERS: dict[str, Prover] = {}


def calibrates(mechanism: str) -> Callable[[Calibrator], Calibrator]:
    """Register the function that derives noise from public facts for the mechanism of this name."""

    def register(function: Calibrator) -> Calibrator:
        _CALIBRATORS[mechanism] = function
        return function

    return register


def proves(mechanism: str) -> Callable[[Prover], Prover]:
    """Register the function that says what the stated releases of a mechanism give together.

    It computes the sensitivity of every release again from the certificate's facts and parameters, checks them by
    :meth:`Certificate.term`, and returns the guarantee that the stated noise proves.
    """

    def register(function: Prover) -> Prover:
        _PROVERS[mechanism] = function
        return function

    return register


def calibrate(mechanism: str, bounds: Bounds, guarantee: Guarantee, parameters: Parameters) -> Calibration:
    """Derive the noise of ``mechanism`` from public facts."""
    return _registered(_CALIBRATORS, mechanism)(bounds, guarantee, parameters)


def check_tails(guarantee: Guarantee, numbers: int, revision: int | None = None) -> None:
    """Raise unless the reserve of calibrations covers the tails that are never drawn of so many Gaussian numbers.

    Beyond an epsilon of 150, where ratios of probabilities have no meaning any more, nothing covers them: what is drawn
    then is as close to a law with the guarantee as the certificate's failure probability says.
    """
    if not isinstance(guarantee, ApproxDP) or guarantee.epsilon_bound > MOST_EPSILON:
        return
    if guarantee.delta_bound > 0:
        tail = _EARLIER_TAIL if revision == 2 else TAIL_PROBABILITY
        missing = (1 + math.exp(guarantee.epsilon_bound)) * numbers * tail
        if missing > RESERVED * guarantee.delta_bound:
            raise CertificateError(
                f"A delta of {guarantee.delta_bound:g} at an epsilon of {guarantee.epsilon_bound:g} is smaller than "
                "what exact noise can promise. Use a larger delta, or ask for pure epsilon or Gaussian DP."
            )


def prover_of(mechanism: str) -> Prover:
    """Return the function that :func:`proves` registered."""
    return _registered(_PROVERS, mechanism)


def _registered(registry: dict[str, Rule], mechanism: object) -> Rule:
    homes = import_module(_TEACHERS).RULES
    if isinstance(mechanism, str) and mechanism in homes:
        import_module(f"{_TEACHERS}.{homes[mechanism]}")
    if not isinstance(mechanism, str) or mechanism not in registry:
        known = sorted({*homes, *registry})
        raise CertificateError(f"A certificate's mechanism must be one of {known}. Got {mechanism!r} instead.")
    return registry[mechanism]
