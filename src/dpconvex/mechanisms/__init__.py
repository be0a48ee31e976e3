"""Mechanisms: noise before, during or after solving."""

from .gradient import NoisyGradientDescent
from .mechanism import Mechanism, resolve_mechanism
from .objective import ObjectivePerturbation
from .output import OutputPerturbation
from .phased import PhasedERM, PhasedSGD
from .stochastic import NoisySGD

__all__ = [
    "Mechanism",
    "NoisyGradientDescent",
    "NoisySGD",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "PhasedERM",
    "PhasedSGD",
    "resolve_mechanism",
]
