"""The privacy core: guarantees, profiles, calibration, certificates, noise, ledger.

No data enters this package.
"""

from typing import TYPE_CHECKING

from dpconvex.on_demand import on_demand

if TYPE_CHECKING:
    from dpconvex.privacy.bounds.base import Bounds
    from dpconvex.privacy.bounds.declared import DeclaredBounds
    from dpconvex.privacy.bounds.linear import LinearBounds
    from dpconvex.privacy.bounds.pairwise import PairwiseBounds
    from dpconvex.privacy.bounds.robust import RobustBounds
    from dpconvex.privacy.bounds.structured import StructuredBounds
    from dpconvex.privacy.bounds.tilted import TiltedBounds
    from dpconvex.privacy.bounds.top_rank import TopRankBounds
    from dpconvex.privacy.bounds.worst_share import WorstShareBounds
    from dpconvex.privacy.calibration import (
        gaussian_mu,
        gaussian_scale,
        objective_perturbation_laplace_scale,
        objective_perturbation_scale,
    )
    from dpconvex.privacy.certificates.certificate import Certificate
    from dpconvex.privacy.certificates.concerns import PrivacyWarning
    from dpconvex.privacy.certificates.rules import CertificateError
    from dpconvex.privacy.composition import compose_epsilon
    from dpconvex.privacy.guarantees import ApproxDP, GaussianDP, PureDP
    from dpconvex.privacy.ledger.ledger import BudgetExceeded, Ledger, LedgerError
    from dpconvex.privacy.noise import NoiseSource
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "ApproxDP": "guarantees",
            "Bounds": "bounds.base",
            "BudgetExceeded": "ledger.ledger",
            "Certificate": "certificates.certificate",
            "CertificateError": "certificates.rules",
            "DeclaredBounds": "bounds.declared",
            "GaussianDP": "guarantees",
            "Ledger": "ledger.ledger",
            "LedgerError": "ledger.ledger",
            "LinearBounds": "bounds.linear",
            "NoiseSource": "noise",
            "PairwiseBounds": "bounds.pairwise",
            "PrivacyWarning": "certificates.concerns",
            "PureDP": "guarantees",
            "RobustBounds": "bounds.robust",
            "StructuredBounds": "bounds.structured",
            "TiltedBounds": "bounds.tilted",
            "TopRankBounds": "bounds.top_rank",
            "WorstShareBounds": "bounds.worst_share",
            "compose_epsilon": "composition",
            "gaussian_mu": "calibration",
            "gaussian_scale": "calibration",
            "objective_perturbation_laplace_scale": "calibration",
            "objective_perturbation_scale": "calibration",
        },
    )

__all__ = [
    "ApproxDP",
    "Bounds",
    "BudgetExceeded",
    "Certificate",
    "CertificateError",
    "DeclaredBounds",
    "GaussianDP",
    "Ledger",
    "LedgerError",
    "LinearBounds",
    "NoiseSource",
    "PairwiseBounds",
    "PrivacyWarning",
    "PureDP",
    "RobustBounds",
    "StructuredBounds",
    "TiltedBounds",
    "TopRankBounds",
    "WorstShareBounds",
    "compose_epsilon",
    "gaussian_mu",
    "gaussian_scale",
    "objective_perturbation_laplace_scale",
    "objective_perturbation_scale",
]
