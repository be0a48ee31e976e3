"""Mechanisms: noise before, during or after solving."""

import sys
from typing import TYPE_CHECKING, cast

from dpconvex.on_demand import on_demand

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
            "ExponentialMechanism": "exponential",
            "Mechanism": "mechanism",
            "Moments": "auc",
            "NoisyGradientDescent": "gradient_descent",
            "NoisySGD": "dp_sgd",
            "ObjectivePerturbation": "objective_perturbation",
            "OutputPerturbation": "output_perturbation",
            "PairwiseObjectivePerturbation": "auc",
            "PhasedERM": "phased",
            "PhasedSGD": "phased",
            "StructuredGradientDescent": "gradient_descent",
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

# The module that knows the rules of a mechanism, by its name in certificates: loaded when a certificate asks.
RULES = {
    "auc-objective": "auc",
    "exponential": "exponential",
    "gradient": "gradient_descent",
    "moments": "auc",
    "objective": "objective_perturbation",
    "output": "output_perturbation",
    "phased-erm": "phased",
    "phased-sgd": "phased",
    "plain-gradient": "gradient_descent",
    "sgd": "dp_sgd",
    "structured-gradient": "gradient_descent",
}

NAMES = {
    "objective": "ObjectivePerturbation",
    "output": "OutputPerturbation",
    "gradient": "NoisyGradientDescent",
    "sgd": "NoisySGD",
    "phased-erm": "PhasedERM",
    "phased-sgd": "PhasedSGD",
}


def resolve_mechanism(mechanism: object, owner: str) -> "Mechanism":
    """Return the mechanism that ``mechanism`` (an instance or a name) stands for.

    Examples
    --------
    >>> resolve_mechanism("output", "a model")
    OutputPerturbation(solver=None, gap=None, radius=None)
    """
    if isinstance(mechanism, str) and mechanism in NAMES:
        return cast("Mechanism", getattr(sys.modules[__name__], NAMES[mechanism])())
    offers = hasattr(mechanism, "certify") and hasattr(mechanism, "release")
    if offers and not isinstance(mechanism, type):
        return cast("Mechanism", mechanism)
    raise ValueError(
        f"The 'mechanism' parameter of {owner} must be one of {['auto', *NAMES]} or a mechanism object. "
        f"Got {mechanism!r} instead."
    )
