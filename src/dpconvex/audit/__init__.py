"""Audits: attacks that try to refute a privacy claim, and the bound on epsilon they prove."""

from dpconvex.audit.attacks import Claim, audit
from dpconvex.audit.confidence import (
    clopper_pearson_lower,
    clopper_pearson_upper,
    epsilon_from_probabilities,
    epsilon_lower_bound,
)
from dpconvex.audit.estimator import audit_estimator
from dpconvex.audit.neighbors import NeighborPair, neighbor_pairs, person_pairs
from dpconvex.audit.result import AuditResult, TradeoffCurve
from dpconvex.audit.scalar import GaussianRelease, LaplaceRelease, PerturbedObjective, likelihood_ratio

__all__ = [
    "AuditResult",
    "Claim",
    "GaussianRelease",
    "LaplaceRelease",
    "NeighborPair",
    "PerturbedObjective",
    "TradeoffCurve",
    "audit",
    "audit_estimator",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "epsilon_from_probabilities",
    "epsilon_lower_bound",
    "likelihood_ratio",
    "neighbor_pairs",
    "person_pairs",
]
