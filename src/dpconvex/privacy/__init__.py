"""The privacy core: guarantees, profiles, calibration, certificates, noise. No data enters this package."""

from .calibration import (
    gaussian_mu,
    gaussian_scale,
    objective_perturbation_laplace_scale,
    objective_perturbation_scale,
)
from .guarantees import ApproxDP, GaussianDP, PureDP

__all__ = [
    "ApproxDP",
    "GaussianDP",
    "PureDP",
    "gaussian_mu",
    "gaussian_scale",
    "objective_perturbation_laplace_scale",
    "objective_perturbation_scale",
]
