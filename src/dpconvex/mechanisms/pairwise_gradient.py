r"""What certificates of noisy gradient descent along pairs prove: no fit makes them any more, old ones still verify.

Part of the budget went to the moments, which gave white coordinates and a start; the rest to steps, each of which
released the gradient of the mean over pairs, of rows in the unit ball in these coordinates.
"""

from __future__ import annotations

from dpconvex.mechanisms.moments import PHASES, stated_moments
from dpconvex.objectives.pair_sums import RELATIVE_ERROR, pair_sum_additions
from dpconvex.privacy.bounds.pairwise import PairwiseBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import CertificateError, Proof, proves
from dpconvex.privacy.certificates.terms import gaussian_total


@proves("auc-gradient")
def prove_pairwise_gradient(certificate: Certificate) -> Proof:
    """Compose the stated moments and gradients."""
    bounds = certificate.bounds
    certificate.check_bounds(PairwiseBounds)
    certificate.check_terms(*PHASES, "gradients")
    steps = certificate.parameters["gradient"]["steps"]
    if type(steps) is not int:
        raise CertificateError("The certificate's number of steps must be an integer.")
    moved = sensitivity_of_pairs(bounds)
    term = certificate.term("gradients", moved, bounds.n_features, "mean", steps)
    theorem = "Gaussian DP composition of released moments and gradients, replace-one"
    return Proof(gaussian_total([*stated_moments(certificate), term]), theorem)


def sensitivity_of_pairs(bounds: PairwiseBounds) -> float:
    """Return how far a computed gradient of rows in the unit ball can move: ``2 L Gamma / (L D)`` and rounding.

    Pair sums are computed up to a stated error, on either side.
    """
    slope = float(bounds.loss.lipschitz)
    rounding = 4 * slope * (RELATIVE_ERROR + 2.0**-52 * pair_sum_additions(bounds.n_samples))
    return 2 * slope * bounds.pair_factor + rounding
