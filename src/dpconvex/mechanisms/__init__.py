"""Mechanisms: noise before, during or after solving."""

from dpconvex.mechanisms.exponential import ExponentialMechanism
from dpconvex.mechanisms.gradient import NoisyGradientDescent
from dpconvex.mechanisms.least_squares import LeastSquares
from dpconvex.mechanisms.mechanism import Mechanism
from dpconvex.mechanisms.moments import Moments
from dpconvex.mechanisms.names import resolve_mechanism
from dpconvex.mechanisms.newton import NewtonSteps
from dpconvex.mechanisms.objective import ObjectivePerturbation
from dpconvex.mechanisms.output import OutputPerturbation
from dpconvex.mechanisms.pairwise import PairwiseObjectivePerturbation
from dpconvex.mechanisms.pairwise_gradient import prove_pairwise_gradient  # noqa: F401 (old certificates)
from dpconvex.mechanisms.phased_erm import PhasedERM
from dpconvex.mechanisms.phased_sgd import PhasedSGD
from dpconvex.mechanisms.stochastic import NoisySGD
from dpconvex.mechanisms.structured_gradient import StructuredGradientDescent

__all__ = [
    "ExponentialMechanism",
    "LeastSquares",
    "Mechanism",
    "Moments",
    "NewtonSteps",
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
