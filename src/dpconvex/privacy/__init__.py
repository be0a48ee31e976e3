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
from .composition import compose_epsilon
from .guarantees import ApproxDP, GaussianDP, PureDP
from .ledger import BudgetExceeded, Ledger, LedgerError
from .noise import NoiseSource
from .pairwise_bounds import PairwiseBounds
from .robust_bounds import RobustBounds
from .structured_bounds import StructuredBounds
from .tilted_bounds import TiltedBounds

__all__ = [
    "ApproxDP",
    "Bounds",
    "BudgetExceeded",
    "Certificate",
    "CertificateError",
    "GaussianDP",
    "Ledger",
    "LedgerError",
    "LinearBounds",
    "NoiseSource",
    "PairwiseBounds",
    "PureDP",
    "RobustBounds",
    "StructuredBounds",
    "TiltedBounds",
    "compose_epsilon",
    "gaussian_mu",
    "gaussian_scale",
    "objective_perturbation_laplace_scale",
    "objective_perturbation_scale",
]
