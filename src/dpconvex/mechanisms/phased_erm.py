"""Phased empirical risk: an anchored problem per phase, solved to certified accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpconvex.mechanisms.phased import Phased, disjoint_phases, effective_mu, phase_noise
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.bounds.phases import Phase, anchored_bounds, anchored_tolerance
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import (
    Calibration,
    CertificateError,
    Parameters,
    Proof,
    calibrates,
    proves,
)
from dpconvex.privacy.guarantees import Guarantee, PureDP


@calibrates("phased-erm")
def calibrate_phased_erm(
    bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters
) -> Calibration:
    """Derive the noise of every phase from the sensitivity of its certified minimiser."""
    radius = parameters[PhasedERM.name]["radius"]

    def moved(phase: Phase) -> tuple[float, float]:
        local = anchored_bounds(bounds, phase)
        tolerance = anchored_tolerance(local, radius)
        return local.minimiser_sensitivity(tolerance), tolerance

    return phase_noise(PhasedERM, bounds, guarantee, parameters, moved)


@proves("phased-erm")
def prove_phased_erm(certificate: Certificate) -> Proof:
    """Return what the phases give, each with the sensitivity of a minimiser of its stated tolerance."""
    bounds = certificate.bounds
    certificate.check_tolerance()

    def moved(phase: Phase, tolerance: float) -> float:
        if not 2.0**-53 * bounds.lipschitz <= tolerance <= certificate.solver_tolerance:
            raise CertificateError("A phase's tolerance cannot be certified.")
        return anchored_bounds(bounds, phase).minimiser_sensitivity(tolerance)

    proven = disjoint_phases(certificate, PhasedERM, moved)
    law = "l2-Laplace" if isinstance(proven, PureDP) else "Gaussian"
    relation = bounds.relation.replace("_", "-")
    theorem = f"{law} output perturbation of disjoint phases, {relation}, certified gradient norms"
    return Proof(proven, theorem)


@dataclass(frozen=True)
class PhasedERM(Phased):
    r"""Solve an anchored problem per phase to certified accuracy and release it with noise.

    Parameters
    ----------
    step_size : float, optional
        ``step`` in mapped units, ``min(4 / sqrt(n), 2 mu / (3 sqrt(d))) / L`` by default.
    phases : int, optional
        Number of phases; by default until a phase has 8 records left.
    decay : float, default=4
        ``step_i = step / decay^i``.
    radius : float, default=100
        Released points are projected on this ball.
    noise : {"exact", "published"}
        The noise that the sensitivity needs, or ``4 L step_i sqrt(ln(1/delta)) / epsilon`` as printed, refused where
        it is too small.

    Notes
    -----
    Privacy: Gaussian DP, (epsilon, delta)-DP and, with l2-Laplace noise, pure epsilon-DP under replace-one and
    add-or-remove-one, every record in one phase at most (:mod:`dpconvex.privacy.bounds.phases`). Public: number of
    rows, nominal under add-or-remove-one, bounds, loss and the parameters above. Convex losses of bounded slope; kinked
    ones are solved through their Moreau envelope, as in output perturbation.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy import GaussianDP, LinearBounds
    >>> bounds = LinearBounds(1024, 2, Logistic(), row_norm=1.0, max_norm=1.0)
    >>> certificate = PhasedERM(step_size=0.1).certify(bounds, GaussianDP(0.5))
    >>> len(certificate.noise), round(certificate.noise["phase 1"]["std"], 6)
    (7, 0.070711)
    """

    name: ClassVar[str] = "phased-erm"
    hides_number: ClassVar[bool] = True

    def _default_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        mu = effective_mu(guarantee, bounds.dimension, "PhasedERM")
        rate = min(4 / math.sqrt(bounds.n_samples), 2 * mu / (3 * math.sqrt(bounds.dimension)))
        return rate / bounds.lipschitz
