r"""Noisy gradient descent on records that are matrices, with kinked losses as they are:

    theta <- (theta - rate * (sum of gradients + std * normal) / n) / (1 + rate * alpha)

from 0; the mean of the later half of the iterates is returned.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dpconvex.core.certificate import Certificate, CertificateCalibration, CertificateProof
from dpconvex.core.checks import check_count, check_number
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import ApproxDP, GaussianDP, Guarantee
from dpconvex.core.mechanism_rules import Carries, Parameters
from dpconvex.core.noise_source import NoiseSource
from dpconvex.core.queries import Query, prove_queries
from dpconvex.core.threads import single_threaded_blas
from dpconvex.fit.fit_plan import gaussian_budget
from dpconvex.mechanisms.mechanism import (
    AVERAGED,
    PrivateMechanism,
    average_mechanism_iterates,
    longest_descent_margin,
)
from dpconvex.mechanisms.private_fit import EVERY_STEP, STEP_BY_STEP
from dpconvex.mechanisms.request_and_decision import FitDecision, FitRequest
from dpconvex.objectives.structured_objective import StructuredObjective
from dpconvex.privacy.bounds.structured_bounds import StructuredBounds
from dpconvex.releases.private_matrices import PrivateMatrices
from dpconvex.risk.excess_risk import rounded_up
from dpconvex.risk.structured_risk import structured_descent_risks
from dpconvex.types import Array

_OWNER = "StructuredGradientDescent"


@dataclass(frozen=True)
class StructuredDescentSettings:
    """Number and size of the steps; the certificate states the same as plain data."""

    steps: int
    step_size: float

    @classmethod
    def checked(cls, steps: object, step_size: object) -> StructuredDescentSettings:
        """Return settings that a run can have, or raise."""
        allowed = "a finite number above 0"
        rate = check_number("step_size", _OWNER, step_size, allowed, 0, math.inf, low_open=True)
        return cls(check_count("steps", _OWNER, steps), rate)

    def stated(self) -> Facts:
        """Return the settings as a certificate states them."""
        return {"steps": self.steps, "step_size": self.step_size}


@dataclass(frozen=True)
class StructuredGradientDescent(PrivateMechanism):
    r"""Descend along noisy sums of gradients of residual vectors and average the later iterates.

    Parameters
    ----------
    steps : int, default=100
        Number of steps.
    step_size : float, optional
        Rate; by default ``0.2 / (longest row * lipschitz)``, for coefficients of order 1.

    Notes
    -----
    Privacy: mu-Gaussian DP, or (epsilon, delta)-DP through it, under replace-one or
    add-or-remove-one. Steps and rate are public.
    """

    steps: int = 100
    step_size: float | None = None
    name: ClassVar[str] = "structured-gradient"
    word: ClassVar[str] = "gradient"
    carries: ClassVar[Carries] = Carries(bounds=(StructuredBounds,), ignored_rows=True)
    fits: ClassVar[frozenset[str]] = frozenset({"matrices"})
    guarantees: ClassVar[tuple[type[Guarantee], ...]] = (ApproxDP, GaussianDP)
    noise_enters: ClassVar[str] = EVERY_STEP
    method: ClassVar[str] = STEP_BY_STEP
    quantities: ClassVar[dict[str, str]] = {"gradients": "gradients of the middle rounds"}

    @classmethod
    def calibrate(
        cls, bounds: StructuredBounds, guarantee: Guarantee, parameters: Parameters
    ) -> CertificateCalibration:
        r"""Derive the noise of every step: ``std = sqrt(steps) D / mu``, D the sensitivity of a sum
        of gradients.

        ``D = 2 L`` under replace-one and ``L`` under add-or-remove-one; ``steps`` releases of a
        Gaussian mechanism of ``mu / sqrt(steps)`` each compose to ``mu``.
        """
        if not isinstance(bounds, StructuredBounds):
            raise TypeError(
                "StructuredGradientDescent needs StructuredBounds. "
                f"Got {type(bounds).__name__} instead. Use NoisyGradientDescent for linear models."
            )
        mu = gaussian_budget(guarantee, _OWNER)
        steps = StructuredDescentSettings.checked(**parameters["descent"]).steps
        query = Query("vector", bounds.whole_lipschitz, bounds.dimension)
        return CertificateCalibration({"gradients": query.calibrated_noise(bounds, mu, steps)})

    @classmethod
    def prove(cls, certificate: Certificate) -> CertificateProof:
        """Compose the stated sums of gradients."""
        return prove_queries(certificate)

    def prepare(self, request: FitRequest) -> FitDecision:
        """Decide the descent: the rate of smallest predicted risk, and smoothing only if asked."""
        rate, predicted = structured_step_size(request.bounds, request.guarantee, self.steps)
        chosen = self if self.step_size is not None else replace(self, step_size=rate)
        loss = request.smoothed(request.bounds.loss, request.bandwidth)
        bounds = replace(request.bounds, loss=loss, alpha=request.alpha or 0.0)
        return chosen.decide(
            request,
            bounds,
            bandwidth=request.bandwidth,
            predicted_risk=predicted,
            settings=chosen.settings(bounds),
        )

    def settings(self, bounds: StructuredBounds) -> StructuredDescentSettings:
        """Return the public parameters of a run, all chosen."""
        rate = self.step_size
        if rate is None:
            rate = 0.2 / (bounds.longest * bounds.whole_lipschitz)
        return StructuredDescentSettings.checked(self.steps, rate)

    def _chosen(self, bounds: StructuredBounds, guarantee: Guarantee, parameters: Facts) -> Facts:
        if "descent" not in parameters:
            parameters["descent"] = self.settings(bounds).stated()
        return parameters

    def stated_settings(self, certificate: Certificate) -> StructuredDescentSettings:
        """Return the settings that a certificate states, as the object that a run takes."""
        return StructuredDescentSettings.checked(**certificate.parameters["descent"])

    @classmethod
    def matrix_target_limit(cls, certificate: Certificate, settings: object) -> float:
        """Return the public bound to which targets of matrices are clamped."""
        assert isinstance(settings, StructuredDescentSettings)
        n = certificate.bounds.n_samples
        return longest_descent_margin(certificate, settings.steps, settings.step_size, n)

    def _run(
        self,
        objective: StructuredObjective,
        certificate: Certificate,
        noise: NoiseSource,
        record: Facts,
        settings: StructuredDescentSettings,
    ) -> Array:
        """Return the mean of the descent's later iterates: its noise is that of one release,
        whatever the steps.
        """
        rows = PrivateMatrices(objective, certificate, noise)
        bounds = certificate.bounds
        steps = settings.steps
        rate = settings.step_size

        def take_step(theta: Array) -> Array:
            total = rows.gradient_sum("gradients", theta)
            # An implicit step on the penalty: stable whatever alpha and the rate.
            return np.asarray((theta - rate * total / bounds.n_samples) / (1 + rate * bounds.alpha))

        with single_threaded_blas():  # the products are small: threads would wait for each other
            return average_mechanism_iterates(
                take_step, np.zeros(bounds.dimension), steps, max(1, round(AVERAGED * steps))
            )


@lru_cache(maxsize=256)
def structured_step_size(
    bounds: StructuredBounds, guarantee: Guarantee, steps: int
) -> tuple[float, float]:
    """Return the rate of noisy gradient descent with the smallest predicted risk, and that
    relative excess risk.
    """
    mu = gaussian_budget(guarantee, _OWNER)
    unit = bounds.operator_norm
    noise = math.sqrt(steps) * bounds.gradient_sum_sensitivity() / (mu * bounds.n_samples * unit)
    averaged = max(1, round(AVERAGED * steps))
    rates, score = structured_descent_risks(bounds, noise, steps, averaged)
    best = int(np.argmin(score))
    # The rate of theta in the user's units: gradients are U times as long, coefficients the same.
    return rounded_up(float(rates[best]) / unit), float(score[best])
