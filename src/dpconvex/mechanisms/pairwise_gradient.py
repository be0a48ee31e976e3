r"""Noisy gradient descent on a pairwise objective, warm-started from released moments.

The first part of the budget goes to the moments mechanism, which gives white coordinates and a start; the rest to
steps, each of which releases the gradient of the mean over pairs with Gaussian noise of sensitivity ``Gamma``. Rows
are in the unit ball in these coordinates, so ``D = 2``. Later iterates are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpconvex.mechanisms.gradient import total_mu
from dpconvex.mechanisms.mechanism import check_objective
from dpconvex.mechanisms.moments import PHASES, moment_noise, private_frame, stated_moments
from dpconvex.objectives.pair_sums import RELATIVE_ERROR, additions
from dpconvex.privacy.bounds.pairwise import PairwiseBounds
from dpconvex.privacy.calibration import released_scale
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import (
    Calibration,
    CertificateError,
    Proof,
    calibrates,
    proves,
)
from dpconvex.privacy.certificates.terms import NoiseTerm, gaussian_total
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.privacy.noise import NoiseSource

__all__ = ["PairwiseGradientDescent"]

_MOMENT_SHARE = 0.6
_STEPS = 10
_AVERAGED = 0.6


@calibrates("auc-gradient")
def calibrate_pairwise_gradient(
    bounds: PairwiseBounds, guarantee: Guarantee, parameters: Mapping[str, Any]
) -> Calibration:
    """Derive the noise of the moments and of every step; together they spend ``mu``."""
    slope = float(bounds.loss.lipschitz)
    smooth = math.isfinite(float(bounds.loss.smoothness))
    if not (math.isfinite(slope) and smooth):
        raise ValueError(
            f"Gradient descent on pairs needs a smooth loss of bounded slope, and {type(bounds.loss).__name__} is "
            "not one. Use the moments mechanism, or the logistic or hinge loss."
        )
    total = total_mu(guarantee, "Noisy gradient descent on pairs")
    steps, moved = parameters["gradient"]["steps"], _sensitivity(bounds)
    each = total * math.sqrt((1 - _MOMENT_SHARE) / steps)
    std = released_scale(each, moved, bounds.n_features)
    gradients = NoiseTerm("gaussian", std, moved, bounds.n_features, "mean", steps)
    moments = moment_noise(bounds, total, _MOMENT_SHARE)
    return Calibration({**moments, "gradients": gradients})


def _sensitivity(bounds: PairwiseBounds) -> float:
    """Return how far a computed gradient of rows in the unit ball can move: ``2 L Gamma / (L D)`` and rounding.

    Pair sums are computed up to a stated error, on either side.
    """
    slope = float(bounds.loss.lipschitz)
    rounding = 4 * slope * (RELATIVE_ERROR + 2.0**-52 * additions(bounds.n_samples))
    return 2 * slope * bounds.pair_factor + rounding


@proves("auc-gradient")
def prove_pairwise_gradient(certificate: Certificate) -> Proof:
    """Compose the stated moments and gradients."""
    bounds = certificate.bounds
    certificate.check_bounds(PairwiseBounds)
    certificate.check_terms(*PHASES, "gradients")
    steps = certificate.parameters["gradient"]["steps"]
    if type(steps) is not int:
        raise CertificateError("The certificate's number of steps must be an integer.")
    moments = stated_moments(certificate)
    term = certificate.term("gradients", _sensitivity(bounds), bounds.n_features, "mean", steps)
    theorem = "Gaussian DP composition of released moments and gradients, replace-one"
    return Proof(gaussian_total([*moments, term]), theorem)


@dataclass(frozen=True)
class PairwiseGradientDescent:
    """Descend along noisy gradients of a mean over pairs, from a start that was released.

    Parameters
    ----------
    steps : int, optional
        Number of gradients; 10 by default.

    Notes
    -----
    Privacy: mu-Gaussian DP, or (epsilon, delta)-DP through it, under replace-one with labels that may change. Public:
    the number of rows, dimensions, bounds, the loss, and lower bounds on the class counts. Step sizes are public.
    """

    steps: int | None = None
    name: ClassVar[str] = "auc-gradient"

    def certify(
        self,
        bounds: PairwiseBounds,
        guarantee: Guarantee,
        parameters: Mapping[str, Any] | None = None,
        seeded: bool = False,
    ) -> Certificate:
        """Derive the certificate from public facts."""
        steps = _STEPS if self.steps is None else self.steps
        if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 1:
            raise ValueError(
                "The 'steps' parameter of PairwiseGradientDescent must be None or a positive integer. "
                f"Got {steps!r} instead."
            )
        chosen = {**(parameters or {}), "gradient": {"steps": int(steps)}}
        return Certificate.issue(self.name, bounds, guarantee, chosen, seeded)

    def release(
        self,
        objective: Any,
        certificate: Certificate,
        rng: Any = None,
        record: dict[str, Any] | None = None,
    ) -> NDArray[np.float64]:
        """Return private coefficients; the midpoint of the classes and the prevalence go into ``record``."""
        check_objective(objective, certificate)
        noise, bounds = NoiseSource.of(rng), certificate.bounds
        mu = total_mu(certificate.guarantee, "Noisy gradient descent on pairs")
        terms = certificate.noise
        frame = private_frame(objective, bounds, terms, mu * math.sqrt(_MOMENT_SHARE), noise)
        white = objective.with_rows(frame.rows, 1.0, alpha=0.0)
        ridge = bounds.alpha / frame.radius**2 * frame.matrix @ frame.matrix
        # Scores of rows in units of the radius; twice the covariance of unit rows bounds the curvature.
        spread = 4 * float(bounds.loss.smoothness) / max(1.0, bounds.n_features / 2)
        rate = 1 / (spread + float(np.linalg.norm(ridge, 2)))
        phi = frame.radius * frame.solution(bounds.alpha)
        term = terms["gradients"]
        first_kept = term.releases - max(1, round(_AVERAGED * term.releases))
        kept = np.zeros_like(phi)
        for step in range(term.releases):
            gradient = noise.add(white.gradient(phi), term)
            phi = phi - rate * (gradient + ridge @ phi)
            if step >= first_kept:
                kept += phi
        if record is not None:
            record["midpoint"] = frame.midpoint()
            record["prevalence"] = frame.prevalence
        return frame.to_rows(kept / (term.releases - first_kept) / frame.radius)
