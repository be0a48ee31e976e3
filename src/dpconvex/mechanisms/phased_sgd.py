"""Phased stochastic descent: one contractive pass per phase."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpconvex.mechanisms.phased import Phased, disjoint_phases, effective_mu, phase_noise
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.bounds.phases import Phase, pass_sensitivity
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


@calibrates("phased-sgd")
def calibrate_phased_sgd(
    bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters
) -> Calibration:
    """Derive the noise of every phase from the stability of one pass of gradient steps."""

    def moved(phase: Phase) -> tuple[float, float]:
        return pass_sensitivity(bounds, parameters[PhasedSGD.name], phase), 0.0

    return phase_noise(PhasedSGD, bounds, guarantee, parameters, moved)


@proves("phased-sgd")
def prove_phased_sgd(certificate: Certificate) -> Proof:
    """Return what the phases give, each with the sensitivity of one contractive pass."""
    bounds, settings = certificate.bounds, certificate.parameters["phased-sgd"]

    def moved(phase: Phase, tolerance: float) -> float:
        if tolerance:
            raise CertificateError("Nothing is solved in a pass: its tolerance must be 0.")
        return pass_sensitivity(bounds, settings, phase)

    proven = disjoint_phases(certificate, PhasedSGD, moved)
    law = "l2-Laplace" if isinstance(proven, PureDP) else "Gaussian"
    return Proof(proven, f"{law} noise on one contractive pass per disjoint phase, replace-one")


@dataclass(frozen=True)
class PhasedSGD(Phased):
    r"""Pass once over the records of each phase, average the iterates and release them with noise.

    Parameters
    ----------
    step_size : float, optional
        ``step`` in mapped units, by default ``min(4 / sqrt(n), mu / (3 sqrt(d))) / L``, at most what keeps steps
        contractive, ``2 decay / (smoothness + alpha)``.
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
    Privacy: Gaussian DP, (epsilon, delta)-DP and, with l2-Laplace noise, pure epsilon-DP under replace-one, every
    record in one step of one phase. Not under add-or-remove-one: an exact pass would move by at most ``2 L step_i``
    there, too (``L step_i`` by the step more, and as much because the average is over one iterate more), but
    the rounding errors of its steps add up, and no public number bounds how many there are. Public:
    number of rows, bounds, loss and the parameters above. Convex losses of bounded slope and curvature.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy import GaussianDP, LinearBounds
    >>> bounds = LinearBounds(1024, 2, Logistic(), row_norm=1.0, max_norm=1.0)
    >>> certificate = PhasedSGD(step_size=0.1).certify(bounds, GaussianDP(0.5))
    >>> round(certificate.noise["phase 1"]["std"], 6)
    0.141421
    """

    name: ClassVar[str] = "phased-sgd"

    def wanted_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        """Return the step to take where the loss can be smoothed to suit it."""
        if self.step_size is not None:
            return self.step_size
        mu = effective_mu(guarantee, bounds.dimension, "PhasedSGD")
        rate = min(4 / math.sqrt(bounds.n_samples), mu / (3 * math.sqrt(bounds.dimension)))
        return rate / bounds.lipschitz

    def _default_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        curvature = bounds.smoothness + bounds.alpha
        largest = 2 * self.decay / curvature if math.isfinite(curvature) else math.inf
        return min(self.wanted_step(bounds, guarantee), largest * (1 - 1e-12))
