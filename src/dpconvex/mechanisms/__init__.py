"""Mechanisms: noise before, during or after solving."""

from typing import TYPE_CHECKING

from dpconvex.on_demand import on_demand

if TYPE_CHECKING:
    from dpconvex.mechanisms.exponential import ExponentialMechanism
    from dpconvex.mechanisms.gradient import NoisyGradientDescent
    from dpconvex.mechanisms.mechanism import Mechanism
    from dpconvex.mechanisms.moments import Moments
    from dpconvex.mechanisms.names import resolve_mechanism
    from dpconvex.mechanisms.objective import ObjectivePerturbation
    from dpconvex.mechanisms.output import OutputPerturbation
    from dpconvex.mechanisms.pairwise import PairwiseObjectivePerturbation
    from dpconvex.mechanisms.phased import PhasedERM, PhasedSGD
    from dpconvex.mechanisms.stochastic import NoisySGD
    from dpconvex.mechanisms.structured_gradient import StructuredGradientDescent
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "ExponentialMechanism": "exponential",
            "Mechanism": "mechanism",
            "Moments": "moments",
            "NoisyGradientDescent": "gradient",
            "NoisySGD": "stochastic",
            "ObjectivePerturbation": "objective",
            "OutputPerturbation": "output",
            "PairwiseObjectivePerturbation": "pairwise",
            "PhasedERM": "phased",
            "PhasedSGD": "phased",
            "StructuredGradientDescent": "structured_gradient",
            "resolve_mechanism": "names",
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

# By a mechanism's name in certificates, the module that knows its rules (see privacy.certificates.rules): it is loaded
# when a certificate asks. Names of earlier versions stay, so that their certificates can be verified.
RULES = {
    "auc-objective": "pairwise",
    "exponential": "exponential",
    "gradient": "gradient",
    "moments": "moments",
    "objective": "objective",
    "output": "output",
    "phased-erm": "phased",
    "phased-sgd": "phased",
    "plain-gradient": "gradient",
    "sgd": "stochastic",
    "structured-gradient": "structured_gradient",
}
