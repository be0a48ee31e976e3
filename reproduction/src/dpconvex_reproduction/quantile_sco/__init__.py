"""Private quantile regression by convolution smoothing: its algorithms as printed, Figures 1 to
12 and Table 2.
"""

from dpconvex_reproduction.quantile_sco.objective_perturbation import (
    algorithm_2,
    perturbed_minimiser,
)
from dpconvex_reproduction.quantile_sco.presets import Problem
from dpconvex_reproduction.quantile_sco.rivals import (
    RIVALS,
    dp_sgd,
    empirical_sgd,
    moreau_sgd,
    phased_erm,
    phased_sgd,
)

__all__ = [
    "RIVALS",
    "Problem",
    "algorithm_2",
    "dp_sgd",
    "empirical_sgd",
    "moreau_sgd",
    "perturbed_minimiser",
    "phased_erm",
    "phased_sgd",
]
