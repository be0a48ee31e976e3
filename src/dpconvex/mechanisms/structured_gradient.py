r"""Noisy gradient descent for records that are matrices: noise enters during solving, under Gaussian DP.

    theta <- (theta - rate * (sum of gradients + std * normal) / n) / (1 + rate * alpha)

The mean of the second half of the iterates is returned: its error is that of one Gaussian release of the gradient at
the optimum, whatever the number of steps. Kinked losses need no smoothing here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpconvex.checks import check_count, check_number
from dpconvex.core.matrix_records import PrivateMatrices
from dpconvex.core.queries import Query, prove_sums
from dpconvex.engine.threads import single_threaded_blas
from dpconvex.fit.config import total_mu
from dpconvex.mechanisms.mechanism import PrivateMechanism
from dpconvex.objectives.structured import StructuredObjective
from dpconvex.privacy.bounds.structured import StructuredBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.rules import Calibration, Parameters, Proof, calibrates, proves
from dpconvex.privacy.description import Facts
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.privacy.noise import NoiseSource

__all__ = ["StructuredGradientDescent"]


STEPS = 100
AVERAGED = 0.5


def _checked(settings: Parameters) -> tuple[int, float]:
    steps, step_size = settings["steps"], settings["step_size"]
    owner, allowed = "StructuredGradientDescent", "a finite number above 0"
    return check_count("steps", owner, steps), check_number(
        "step_size", owner, step_size, allowed, 0, math.inf, low_open=True
    )


@calibrates("structured-gradient")
def calibrate_structured_gradient(
    bounds: StructuredBounds, guarantee: Guarantee, parameters: Parameters
) -> Calibration:
    r"""Derive the noise of every step: ``std = sqrt(steps) D / mu``, D the sensitivity of a sum of gradients.

    ``D = 2 L`` under replace-one and ``L`` under add-or-remove-one; ``steps`` releases of a Gaussian mechanism of
    ``mu / sqrt(steps)`` each compose to ``mu``.
    """
    if not isinstance(bounds, StructuredBounds):
        raise TypeError(
            "StructuredGradientDescent needs StructuredBounds. "
            f"Got {type(bounds).__name__} instead. Use NoisyGradientDescent for linear models."
        )
    mu = total_mu(guarantee, "StructuredGradientDescent")
    steps, _ = _checked(parameters["descent"])
    query = Query("vector", bounds.whole_lipschitz, bounds.dimension)
    return Calibration({"gradients": query.term(bounds, mu, steps)})


@proves("structured-gradient")
def prove_structured_gradient(certificate: Certificate) -> Proof:
    """Compose the stated sums of gradients."""
    certificate.check_bounds(StructuredBounds)
    return prove_sums(certificate)


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
    Privacy: mu-Gaussian DP, or (epsilon, delta)-DP through it, under replace-one or add-or-remove-one. Steps and rate
    are public.

    Examples
    --------
    >>> from dpconvex import DPMedian
    >>> certificate = DPMedian(mechanism="gradient").certify(1000, 3)
    >>> certificate.mechanism, certificate.guarantee
    ('structured-gradient', ApproxDP(epsilon=1.0, delta=1e-06))
    """

    steps: int = STEPS
    step_size: float | None = None
    name: ClassVar[str] = "structured-gradient"

    def settings(self, bounds: StructuredBounds) -> Facts:
        """Return the public parameters of a run, all chosen."""
        default = 0.2 / (bounds.longest * bounds.whole_lipschitz)
        chosen = {"steps": self.steps, "step_size": default if self.step_size is None else self.step_size}
        steps, step_size = _checked(chosen)
        return {"steps": steps, "step_size": step_size}

    def _chosen(self, bounds: StructuredBounds, guarantee: Guarantee, parameters: Facts) -> Facts:
        parameters.setdefault("descent", self.settings(bounds))
        return parameters

    def _run(
        self, objective: StructuredObjective, certificate: Certificate, noise: NoiseSource, record: Facts
    ) -> NDArray[np.float64]:
        """Return the mean of the later iterates."""
        steps, rate = _checked(certificate.parameters["descent"])
        rows, bounds = PrivateMatrices(objective, certificate, noise), certificate.bounds
        theta = np.zeros(bounds.dimension)
        kept, first_kept = np.zeros_like(theta), steps - max(1, round(AVERAGED * steps))
        with single_threaded_blas():  # the products are small: threads would wait for each other
            for step in range(steps):
                total = rows.gradient_sum("gradients", theta)
                # An implicit step on the penalty: stable whatever alpha and the rate.
                theta = (theta - rate * total / bounds.n_samples) / (1 + rate * bounds.alpha)
                if step >= first_kept:
                    kept += theta
        return kept / (steps - first_kept)
