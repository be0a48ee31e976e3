"""The privacy core, which no data enter: guarantees, profiles, calibration, certificates, noise,
ledger.
"""

from typing import TYPE_CHECKING

from dpconvex.system.lazy_imports import on_demand

if TYPE_CHECKING:
    from dpconvex.core.bounds import Bounds
    from dpconvex.core.calibration import gaussian_mu, gaussian_scale
    from dpconvex.core.certificate import Certificate, CertificateError, PrivacyWarning
    from dpconvex.core.guarantees import ApproxDP, GaussianDP, PureDP, compose_epsilon
    from dpconvex.core.linear_bounds import LinearBounds
    from dpconvex.core.noise_source import NoiseSource
    from dpconvex.privacy.bounds.ranking import PairwiseBounds, TopRankBounds
    from dpconvex.privacy.bounds.structured_bounds import DeclaredBounds, StructuredBounds
    from dpconvex.privacy.bounds.tilted_and_robust_bounds import (
        RobustBounds,
        TiltedBounds,
        WorstShareBounds,
    )
    from dpconvex.privacy.ledger import BudgetExceeded, Ledger
    from dpconvex.privacy.ledger_file import LedgerError
    from dpconvex.privacy.objective_perturbation_calibration import (
        objective_perturbation_laplace_scale,
        objective_perturbation_scale,
    )
else:
    __getattr__, __dir__ = on_demand(
        __name__,
        {
            "Bounds": ".core.bounds",
            "LinearBounds": ".core.linear_bounds",
            **dict.fromkeys(("PairwiseBounds", "TopRankBounds"), "bounds.ranking"),
            **dict.fromkeys(
                ("RobustBounds", "TiltedBounds", "WorstShareBounds"),
                "bounds.tilted_and_robust_bounds",
            ),
            **dict.fromkeys(("DeclaredBounds", "StructuredBounds"), "bounds.structured_bounds"),
            **dict.fromkeys(("gaussian_mu", "gaussian_scale"), ".core.calibration"),
            **dict.fromkeys(
                ("Certificate", "CertificateError", "PrivacyWarning"), ".core.certificate"
            ),
            **dict.fromkeys(
                ("ApproxDP", "GaussianDP", "PureDP", "compose_epsilon"), ".core.guarantees"
            ),
            **dict.fromkeys(("BudgetExceeded", "Ledger"), "ledger"),
            "LedgerError": "ledger_file",
            "NoiseSource": ".core.noise_source",
            "objective_perturbation_laplace_scale": "objective_perturbation_calibration",
            "objective_perturbation_scale": "objective_perturbation_calibration",
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
