"""Mechanisms: noise before, during or after solving; one file each, which owns all facts about it.

:class:`PrivateMechanism` says what a mechanism is; CONTRIBUTING has a recipe for one of your own.
``request_and_decision`` has the two carriers of a fit.
"""

from typing import TYPE_CHECKING

from dpconvex.system.lazy_imports import on_demand

if TYPE_CHECKING:
    from dpconvex.core.mechanism_rules import Carries
    from dpconvex.mechanisms.auc_moments import Moments
    from dpconvex.mechanisms.dp_sgd import NoisySGD
    from dpconvex.mechanisms.exponential import ExponentialMechanism
    from dpconvex.mechanisms.gradient_descent import NoisyGradientDescent
    from dpconvex.mechanisms.mechanism import Mechanism, PrivateMechanism, resolve_mechanism
    from dpconvex.mechanisms.objective_perturbation import ObjectivePerturbation
    from dpconvex.mechanisms.output_perturbation import OutputPerturbation
    from dpconvex.mechanisms.pairwise_objective_perturbation import PairwiseObjectivePerturbation
    from dpconvex.mechanisms.phased_erm import PhasedERM
    from dpconvex.mechanisms.phased_sgd import PhasedSGD
    from dpconvex.mechanisms.plain_descent import PlainDescent
    from dpconvex.mechanisms.private_fit import PrivateFitMechanism
    from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
    from dpconvex.mechanisms.structured_descent import StructuredGradientDescent
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            **dict.fromkeys(("Mechanism", "PrivateMechanism", "resolve_mechanism"), "mechanism"),
            **dict.fromkeys(("FitDecision", "FitRequest"), "request_and_decision"),
            "Carries": ".core.mechanism_rules",
            "ExponentialMechanism": "exponential",
            "Moments": "auc_moments",
            "NoisyGradientDescent": "gradient_descent",
            "NoisySGD": "dp_sgd",
            "ObjectivePerturbation": "objective_perturbation",
            "OutputPerturbation": "output_perturbation",
            "PairwiseObjectivePerturbation": "pairwise_objective_perturbation",
            "PhasedERM": "phased_erm",
            "PhasedSGD": "phased_sgd",
            "PlainDescent": "plain_descent",
            "PrivateFitMechanism": "private_fit",
            "StructuredGradientDescent": "structured_descent",
        },
    )

__all__ = [
    "Carries",
    "ExponentialMechanism",
    "FitDecision",
    "FitRequest",
    "Mechanism",
    "Moments",
    "NoisyGradientDescent",
    "NoisySGD",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PairwiseObjectivePerturbation",
    "PhasedERM",
    "PhasedSGD",
    "PlainDescent",
    "PrivateFitMechanism",
    "PrivateMechanism",
    "StructuredGradientDescent",
    "resolve_mechanism",
]
