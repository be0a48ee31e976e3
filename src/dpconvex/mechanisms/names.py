"""Mechanisms by the names that users write."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from dpconvex.mechanisms.gradient import NoisyGradientDescent
from dpconvex.mechanisms.mechanism import Mechanism
from dpconvex.mechanisms.objective import ObjectivePerturbation
from dpconvex.mechanisms.output import OutputPerturbation

__all__ = ["resolve_mechanism"]


def resolve_mechanism(mechanism: object, owner: str) -> Mechanism:
    """Return the mechanism that ``mechanism`` (an instance or a name) stands for.

    Examples
    --------
    >>> resolve_mechanism("output", "a model")
    OutputPerturbation(solver=None, gap=None, radius=None)
    """
    # Nobody's default: loaded when somebody names a mechanism.
    from dpconvex.mechanisms.phased import PhasedERM, PhasedSGD
    from dpconvex.mechanisms.stochastic import NoisySGD

    names: dict[str, Callable[[], Mechanism]] = {
        "objective": ObjectivePerturbation,
        "output": OutputPerturbation,
        "gradient": NoisyGradientDescent,
        "sgd": NoisySGD,
        "phased-erm": PhasedERM,
        "phased-sgd": PhasedSGD,
    }
    if isinstance(mechanism, str) and mechanism in names:
        return names[mechanism]()
    offers = hasattr(mechanism, "certify") and hasattr(mechanism, "release")
    if offers and not isinstance(mechanism, type):
        return cast(Mechanism, mechanism)
    raise ValueError(
        f"The 'mechanism' parameter of {owner} must be one of {['auto', *names]} or a mechanism object. "
        f"Got {mechanism!r} instead."
    )
