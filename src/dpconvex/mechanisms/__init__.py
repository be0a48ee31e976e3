"""Mechanisms: noise before, during or after solving."""

import sys
from typing import TYPE_CHECKING, cast

from dpconvex.core.checks import parameter_error
from dpconvex.system.lazy_imports import on_demand

if TYPE_CHECKING:
    from dpconvex.mechanisms.auc import Moments, PairwiseObjectivePerturbation
    from dpconvex.mechanisms.dp_sgd import NoisySGD
    from dpconvex.mechanisms.exponential import ExponentialMechanism
    from dpconvex.mechanisms.gradient_descent import NoisyGradientDescent, StructuredGradientDescent
    from dpconvex.mechanisms.mechanism import Mechanism
    from dpconvex.mechanisms.objective_perturbation import ObjectivePerturbation
    from dpconvex.mechanisms.output_perturbation import OutputPerturbation
    from dpconvex.mechanisms.phased import PhasedERM, PhasedSGD
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            **dict.fromkeys(("Moments", "PairwiseObjectivePerturbation"), "auc"),
            **dict.fromkeys(
                ("NoisyGradientDescent", "StructuredGradientDescent"), "gradient_descent"
            ),
            **dict.fromkeys(("PhasedERM", "PhasedSGD"), "phased"),
            "ExponentialMechanism": "exponential",
            "Mechanism": "mechanism",
            "NoisySGD": "dp_sgd",
            "ObjectivePerturbation": "objective_perturbation",
            "OutputPerturbation": "output_perturbation",
        },
    )

__all__ = [
    "ExponentialMechanism",
    "Mechanism",
    "Moments",
    "NoisyGradientDescent",
    "NoisySGD",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PairwiseObjectivePerturbation",
    "PhasedERM",
    "PhasedSGD",
    "StructuredGradientDescent",
    "resolve_mechanism",
]

NAMES = {
    "objective": "ObjectivePerturbation",
    "output": "OutputPerturbation",
    "gradient": "NoisyGradientDescent",
    "sgd": "NoisySGD",
    "phased-erm": "PhasedERM",
    "phased-sgd": "PhasedSGD",
}


def resolve_mechanism(mechanism: object, owner: str) -> "Mechanism":
    """Return the mechanism that ``mechanism`` (an instance or a name) stands for."""
    if isinstance(mechanism, str) and mechanism in NAMES:
        return cast("Mechanism", getattr(sys.modules[__name__], NAMES[mechanism])())
    offers = hasattr(mechanism, "certify") and hasattr(mechanism, "release")
    if offers and not isinstance(mechanism, type):
        return cast("Mechanism", mechanism)
    raise parameter_error(
        "mechanism", owner, f"one of {['auto', *NAMES]} or a mechanism object", repr(mechanism)
    )
