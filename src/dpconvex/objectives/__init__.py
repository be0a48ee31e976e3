"""Objectives: data and a loss as a function of theta, always a MEAN over rows."""

from typing import TYPE_CHECKING

from dpconvex.on_demand import on_demand

if TYPE_CHECKING:
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
else:
    _ADVERSARIAL = ("Adversarial", "AdversarialResidual", "CostlyAdversary")
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            **dict.fromkeys((f"{name}Objective" for name in _ADVERSARIAL), "adversarial"),
            **dict.fromkeys(("PairwiseObjective", "PartitionedPairwiseObjective"), "pairwise_objective"),
            **dict.fromkeys(("StructuredObjective", "StructuredRecords"), "structured_objective"),
            **dict.fromkeys(("TiltedObjective", "TopRankObjective", "WorstShareObjective"), "risk_measures"),
            "EmpiricalObjective": "empirical",
            "OwnObjective": "objective",
            "hull_of": "adversary_sets",
        },
    )

__all__ = [
    "AdversarialObjective", "AdversarialResidualObjective", "CostlyAdversaryObjective", "EmpiricalObjective",
    "OwnObjective", "PairwiseObjective", "PartitionedPairwiseObjective", "StructuredObjective", "StructuredRecords",
    "TiltedObjective", "TopRankObjective", "WorstShareObjective", "hull_of",
]  # fmt: skip
