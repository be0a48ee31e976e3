"""Data and a loss become a function of theta, always a MEAN over rows."""

from dpconvex.objectives.adversarial import AdversarialObjective
from dpconvex.objectives.adversarial_residuals import AdversarialResidualObjective
from dpconvex.objectives.adversary_sets import check_support, hull_of
from dpconvex.objectives.costly_adversary import CostlyAdversaryObjective
from dpconvex.objectives.empirical import EmpiricalObjective
from dpconvex.objectives.own import OwnObjective
from dpconvex.objectives.pair_partitions import PartitionedPairwiseObjective
from dpconvex.objectives.pairwise import PairwiseObjective
from dpconvex.objectives.structured import StructuredObjective, StructuredRecords
from dpconvex.objectives.tilted import TiltedObjective
from dpconvex.objectives.top_rank import TopRankObjective
from dpconvex.objectives.worst_share import WorstShareObjective

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
    "check_support",
    "hull_of",
]
