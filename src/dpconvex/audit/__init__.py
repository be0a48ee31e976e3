"""Audits: attacks that try to refute a privacy claim, and the bound on epsilon they prove."""

from dpconvex.audit.attacks import (
    AuditResult,
    Claim,
    TradeoffCurve,
    audit,
    clopper_pearson_lower,
    clopper_pearson_upper,
    epsilon_from_probabilities,
    epsilon_lower_bound,
)
from dpconvex.audit.estimators_on_neighbors import NeighborPair, audit_estimator, neighbor_pairs

__all__ = [
    "AuditResult",
    "Claim",
    "NeighborPair",
    "TradeoffCurve",
    "audit",
    "audit_estimator",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "epsilon_from_probabilities",
    "epsilon_lower_bound",
    "neighbor_pairs",
]
