"""Mechanisms: noise before, during or after solving."""

from .gradient import NoisyGradientDescent
from .mechanism import Mechanism, resolve_mechanism
from .objective import ObjectivePerturbation
from .output import OutputPerturbation

__all__ = [
    "Mechanism",
    "NoisyGradientDescent",
    "ObjectivePerturbation",
    "OutputPerturbation",
    "resolve_mechanism",
]
