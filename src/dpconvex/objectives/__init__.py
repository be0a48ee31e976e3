"""Objectives: data and a loss as a function of theta, always a MEAN over rows."""

from dpconvex.objectives.adversarial import (
    AdversarialObjective,
    AdversarialResidualObjective,
    CostlyAdversaryObjective,
)
from dpconvex.objectives.adversary_sets import hull_of
from dpconvex.objectives.empirical import EmpiricalObjective
from dpconvex.objectives.objective import OwnObjective
from dpconvex.objectives.pairwise_objective import PairwiseObjective, PartitionedPairwiseObjective
from dpconvex.objectives.risk_measures import TiltedObjective, TopRankObjective, WorstShareObjective
from dpconvex.objectives.structured_objective import StructuredObjective, StructuredRecords

__all__ = [
    "AdversarialObjective",
    "AdversarialResidualObjective",
    "CostlyAdversaryObjective",
    "EmpiricalObjective",
    "OwnObjective",
    "PairwiseObjective",
    "PartitionedPairwiseObjective",
    "StructuredObjective",
    "StructuredRecords",
    "TiltedObjective",
    "TopRankObjective",
    "WorstShareObjective",
    "hull_of",
]
