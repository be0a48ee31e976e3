"""Private AUC maximisation: its algorithms as printed, Figures 1 to 3 and Table 2."""

from dpconvex_reproduction.auc_erm.algorithms import (
    PENALTIES,
    algorithm_1,
    algorithm_2,
    printed_objective_noise,
    printed_output_scale,
    sound,
)

__all__ = [
    "PENALTIES",
    "algorithm_1",
    "algorithm_2",
    "printed_objective_noise",
    "printed_output_scale",
    "sound",
]
