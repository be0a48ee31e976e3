"""Phased minimisers: an anchored problem per phase, solved to certified accuracy and perturbed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpconvex.core.certificate import Certificate
from dpconvex.core.guarantees import Guarantee
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.mechanisms.phased import Phased, phased_effective_mu
from dpconvex.privacy.bounds import phases as phase_bounds
from dpconvex.privacy.bounds.phases import Phase, PhaseSettings


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

    Notes
    -----
    Privacy: Gaussian DP, (epsilon, delta)-DP and, with l2-Laplace noise, pure epsilon-DP under
    replace-one and add-or-remove-one, every record in one phase at most
    (:mod:`dpconvex.privacy.bounds.phases`). Public: number of rows, nominal under
    add-or-remove-one, bounds, loss and the parameters above. Convex losses of bounded slope; kinked
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
    method: ClassVar[str] = (
        "The data were divided into parts. Each part improved the coefficients of the one before "
        "it, and random noise was added after each."
    )

    @classmethod
    def _phase_sensitivity(
        cls,
        bounds: LinearBounds,
        settings: PhaseSettings,
        phase: Phase,
        tolerance: float | None = None,
    ) -> tuple[float, float]:
        local = phase_bounds.anchored_phase_bounds(bounds, phase)
        if tolerance is None:
            tolerance = phase_bounds.anchored_phase_tolerance(local, settings.radius)
        return local.minimiser_sensitivity(tolerance), tolerance

    @classmethod
    def _theorem(cls, certificate: Certificate) -> str:
        certificate.check_tolerance()
        relation = certificate.bounds.relation.replace("_", "-")
        return f"output perturbation of disjoint phases, {relation}, certified gradient norms"

    def _default_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        mu = phased_effective_mu(guarantee, bounds.dimension, "PhasedERM")
        return (
            min(4 / math.sqrt(bounds.n_samples), 2 * mu / (3 * math.sqrt(bounds.dimension)))
            / bounds.lipschitz
        )
