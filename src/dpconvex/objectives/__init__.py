"""Data and a loss become a function of theta, always a MEAN over rows."""

from typing import TYPE_CHECKING

from dpconvex.on_demand import on_demand

if TYPE_CHECKING:
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
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "AdversarialObjective": "adversarial",
            "AdversarialResidualObjective": "adversarial_residuals",
            "CostlyAdversaryObjective": "costly_adversary",
            "EmpiricalObjective": "empirical",
            "OwnObjective": "own",
            "PairwiseObjective": "pairwise",
            "PartitionedPairwiseObjective": "pair_partitions",
            "StructuredObjective": "structured",
            "StructuredRecords": "structured",
            "TiltedObjective": "tilted",
            "TopRankObjective": "top_rank",
            "WorstShareObjective": "worst_share",
            "check_support": "adversary_sets",
            "hull_of": "adversary_sets",
        },
    )

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
