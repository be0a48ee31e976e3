"""The privacy core: guarantees, profiles, calibration, certificates, noise, ledger.

No data enters this package.
"""

from .bounds import Bounds, LinearBounds
from .calibration import (
    gaussian_mu,
    gaussian_scale,
    objective_perturbation_laplace_scale,
    objective_perturbation_scale,
)
from .certificate import Certificate, CertificateError
from .guarantees import ApproxDP, GaussianDP, PureDP
from .noise import NoiseSource

__all__ = [
    "ApproxDP",
    "Bounds",
    "Certificate",
    "CertificateError",
    "GaussianDP",
    "LinearBounds",
    "NoiseSource",
    "PureDP",
    "gaussian_mu",
    "gaussian_scale",
    "objective_perturbation_laplace_scale",
    "objective_perturbation_scale",
]
