"""Mechanisms: noise before, during or after solving."""

from .gradient import NoisyGradientDescent
from .mechanism import Mechanism, resolve_mechanism
from .moments import Moments
from .objective import ObjectivePerturbation
from .output import OutputPerturbation
from .pairwise import PairwiseObjectivePerturbation
from .pairwise_gradient import PairwiseGradientDescent
from .phased import PhasedERM, PhasedSGD
from .stochastic import NoisySGD
from .structured_gradient import StructuredGradientDescent

__all__ = [
    "Mechanism",
    "Moments",
    "NoisyGradientDescent",
    "NoisySGD",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PairwiseGradientDescent",
    "PairwiseObjectivePerturbation",
    "PhasedERM",
    "PhasedSGD",
    "StructuredGradientDescent",
    "resolve_mechanism",
]
