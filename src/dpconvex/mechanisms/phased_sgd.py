"""Phased passes: one pass of gradient steps per phase, whose mean iterate is perturbed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from dpconvex.core.certificate import Certificate, CertificateError
from dpconvex.core.guarantees import Guarantee
from dpconvex.core.linear_bounds import LinearBounds
from dpconvex.mechanisms.phased import Phased, phased_effective_mu
from dpconvex.mechanisms.request_and_decision import FitRequest
from dpconvex.privacy.bounds import phases as phase_bounds
from dpconvex.privacy.bounds.phases import Phase, PhaseSettings
from dpconvex.risk.contractive_steps import contractive_bandwidth


@dataclass(frozen=True)
class PhasedSGD(Phased):
    r"""Pass once over the records of each phase, average the iterates and release them with noise.

    Parameters
    ----------
    step_size : float, optional
        ``step`` in mapped units, by default ``min(4 / sqrt(n), mu / (3 sqrt(d))) / L``, at most
        what keeps steps contractive, ``2 decay / (smoothness + alpha)``.
    phases, decay, radius : optional
        As for :class:`PhasedERM`.

    Notes
    -----
    Privacy: Gaussian DP, (epsilon, delta)-DP and, with l2-Laplace noise, pure epsilon-DP under
    replace-one, every record in one step of one phase. Not under add-or-remove-one: an exact pass
    would move by at most ``2 L step_i`` there, too (``L step_i`` by the step more, and as much
    because the average is over one iterate more), but the rounding errors of its steps add up, and
    no public number bounds how many there are. Public: number of rows, bounds, loss and the
    parameters above. Convex losses of bounded slope and curvature.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy import GaussianDP, LinearBounds
    >>> bounds = LinearBounds(1024, 2, Logistic(), row_norm=1.0, max_norm=1.0)
    >>> round(PhasedSGD(step_size=0.1).certify(bounds, GaussianDP(0.5)).noise["phase 1"]["std"], 6)
    0.141421
    """

    name: ClassVar[str] = "phased-sgd"
    one_pass: ClassVar[bool] = True
    method: ClassVar[str] = (
        "The data were divided into parts. Each part was read once, record by record, to improve "
        "the coefficients of the part before it, and random noise was added after each."
    )

    @classmethod
    def _phase_sensitivity(
        cls,
        bounds: LinearBounds,
        settings: PhaseSettings,
        phase: Phase,
        tolerance: float | None = None,
    ) -> tuple[float, float]:
        if tolerance:
            raise CertificateError("Nothing is solved in a pass: its tolerance must be 0.")
        return phase_bounds.phase_pass_sensitivity(bounds, settings, phase), 0.0

    @classmethod
    def _theorem(cls, certificate: Certificate) -> str:
        return "noise on one contractive pass per disjoint phase, replace-one"

    def wanted_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        """Return the step to take where the loss can be smoothed to suit it."""
        if self.step_size is not None:
            return self.step_size
        mu = phased_effective_mu(guarantee, bounds.dimension, "PhasedSGD")
        return (
            min(4 / math.sqrt(bounds.n_samples), mu / (3 * math.sqrt(bounds.dimension)))
            / bounds.lipschitz
        )

    def _default_step(self, bounds: LinearBounds, guarantee: Guarantee) -> float:
        curvature = bounds.smoothness + bounds.alpha
        largest = 2 * self.decay / curvature if math.isfinite(curvature) else math.inf
        return min(self.wanted_step(bounds, guarantee), largest * (1 - 1e-12))

    def _smoothing(self, request: FitRequest, bounds: LinearBounds) -> float | None:
        """Return as little smoothing as keeps steps contractive, where the user gives none."""
        if request.bandwidth is not None:
            return request.bandwidth
        kernel = request.kernel
        assert kernel is not None
        step = self.wanted_step(bounds, request.guarantee) / self.decay
        # A hair wider, so that rounding cannot make the step too long.
        factor = (1 + 1e-9) * bounds.curvature_factor
        return contractive_bandwidth(kernel, factor, step, bounds.alpha)
