"""The privacy core: guarantees, profiles, calibration, certificates, noise, ledger.

No data enters this package.
"""

from typing import TYPE_CHECKING

from dpconvex.on_demand import on_demand

if TYPE_CHECKING:
    from dpconvex.privacy.bounds import Bounds
    from dpconvex.privacy.bounds.linear import LinearBounds
    from dpconvex.privacy.bounds.ranking import PairwiseBounds, TopRankBounds
    from dpconvex.privacy.bounds.robust import RobustBounds, TiltedBounds, WorstShareBounds
    from dpconvex.privacy.bounds.structured import DeclaredBounds, StructuredBounds
    from dpconvex.privacy.calibration import gaussian_mu, gaussian_scale
    from dpconvex.privacy.certificate import Certificate, CertificateError, PrivacyWarning
    from dpconvex.privacy.guarantees import ApproxDP, GaussianDP, PureDP, compose_epsilon
    from dpconvex.privacy.ledger import BudgetExceeded, Ledger
    from dpconvex.privacy.ledger_file import LedgerError
    from dpconvex.privacy.noise import NoiseSource
    from dpconvex.privacy.objective_perturbation import (
        objective_perturbation_laplace_scale,
        objective_perturbation_scale,
    )
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "ApproxDP": "guarantees",
            "Bounds": "bounds",
            "BudgetExceeded": "ledger",
            "Certificate": "certificate",
            "CertificateError": "certificate",
            "DeclaredBounds": "bounds.structured",
            "GaussianDP": "guarantees",
            "Ledger": "ledger",
            "LedgerError": "ledger_file",
            "LinearBounds": "bounds.linear",
            "NoiseSource": "noise",
            "PairwiseBounds": "bounds.ranking",
            "PrivacyWarning": "certificate",
            "PureDP": "guarantees",
            "RobustBounds": "bounds.robust",
            "StructuredBounds": "bounds.structured",
            "TiltedBounds": "bounds.robust",
            "TopRankBounds": "bounds.ranking",
            "WorstShareBounds": "bounds.robust",
            "compose_epsilon": "guarantees",
            "gaussian_mu": "calibration",
            "gaussian_scale": "calibration",
            "objective_perturbation_laplace_scale": "objective_perturbation",
            "objective_perturbation_scale": "objective_perturbation",
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
