"""Convolution and objective perturbation of structured losses: the rivals, Figures 1 to 8 and
Table 3.
"""

from dpconvex_reproduction.convolution_objective_perturbation.rivals import (
    moreau_gradient,
    moreau_sgd,
    noisy_sgd,
)

__all__ = ["moreau_gradient", "moreau_sgd", "noisy_sgd"]
