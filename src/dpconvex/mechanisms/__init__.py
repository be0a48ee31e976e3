"""Mechanisms: noise before, during or after solving."""

from .mechanism import Mechanism, resolve_mechanism
from .objective import ObjectivePerturbation

__all__ = ["Mechanism", "ObjectivePerturbation", "resolve_mechanism"]
