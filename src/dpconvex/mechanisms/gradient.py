r"""Noisy gradient descent: noise enters during solving, under Gaussian DP.

Every step releases a sum of gradients plus Gaussian noise. What makes it accurate is free, being post-processing or a
smaller sensitivity: the later iterates are averaged, so the error is that of one Gaussian release at the optimum; a
record's influence is bounded instead of its row; the constant part of the gradient is released once; coordinates are
whitened and steps sized by a private residual scale where the data are large enough to pay for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpconvex.core.queries import prove_sums
from dpconvex.core.release import PrivateRows
from dpconvex.engine.rows import FARTHEST, RAW_FARTHEST, RowMap
from dpconvex.fit.config import FitConfig, plan_fit
from dpconvex.fit.levels import SeveralQuantiles
from dpconvex.fit.private_fit import PrivateFit
from dpconvex.losses import Squared
from dpconvex.mechanisms.gradient_settings import total_mu
from dpconvex.mechanisms.mechanism import PrivateMechanism
from dpconvex.fit.plain_descent import PLAIN, descend_plainly, plain_settings
from dpconvex.objectives.empirical import SeveralTargets
from dpconvex.objectives.objective import OverRows
from dpconvex.privacy.bounds.base import Bounds
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.concerns import finds_units
from dpconvex.privacy.certificates.rules import (
    Calibration,
    Parameters,
    Proof,
    calibrates,
    proves,
)
from dpconvex.privacy.description import Facts, describe, rebuild
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.privacy.noise import NoiseSource
from dpconvex.smoothing import Kernel, LogisticKernel

Array = NDArray[np.float64]
Schedule = Callable[[int], float]

@calibrates("gradient")
def calibrate_gradient(
    bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters
) -> Calibration:
    """Derive the noise of every phase; together, and over all problems, they spend exactly ``mu``."""
    if not math.isfinite(bounds.lipschitz) and type(bounds.loss) is not Squared:
        raise ValueError(
            f"NoisyGradientDescent needs a loss of bounded slope, but {type(bounds.loss).__name__} has "
            "lipschitz=inf. Use Huber(width) in its place."
        )
    mu = total_mu(guarantee, "NoisyGradientDescent")
    mu /= math.sqrt(parameters.get("problems", 1))
    plan = plan_fit(bounds, mu, parameters["gradient"])
    return Calibration(plan.terms(bounds, mu), stated={"fit": plan.config.stated()})


@proves("gradient")
def prove_gradient(certificate: Certificate) -> Proof:
    """Compose the stated sums."""
    certificate.check_bounds(LinearBounds, several=True)
    return prove_sums(certificate)


@dataclass(frozen=True)
class NoisyGradientDescent(PrivateMechanism):
    r"""Descend along noisy sums of gradients and average the later iterates.

    Parameters
    ----------
    steps : int, optional
        Steps of the final descent; by default 20 to 40, by public facts.
    geometry : {"private", "given"}
        Whether to pay for whitening coordinates, or to trust the influence bound alone.
    step_size, truncation, start, covariance : optional
        Public choices, in mapped units with the intercept first: the rate of every step, the bound B on the norm of a
        record's row where it is white, the first iterate, and the known second-moment matrix of the rows. Any of them,
        or ``average=False``, asks for the plain algorithm of :mod:`~dpconvex.mechanisms.plain_descent` (10 steps by
        default) and leaves all that is paid for privately aside.
    average : bool, default=True
        Whether the later iterates are averaged; False returns the last one.

    Notes
    -----
    Privacy: mu-Gaussian DP, or (epsilon, delta)-DP through it, under replace-one or add-or-remove-one. Step sizes,
    bandwidths and numbers of steps are public or follow from what was released and paid for.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy import ApproxDP, LinearBounds
    >>> bounds = LinearBounds(1000, 3, Logistic(), row_norm=1.0, max_norm=1.0, alpha=0.0)
    >>> certificate = NoisyGradientDescent().certify(bounds, ApproxDP(1.0, 1e-6))
    >>> certificate.mechanism, certificate.guarantee
    ('gradient', ApproxDP(epsilon=1.0, delta=1e-06))
    """

    steps: int | None = None
    geometry: str = "private"
    step_size: float | None = None
    truncation: float | None = None
    start: ArrayLike | None = None
    covariance: ArrayLike | None = None
    average: bool = True
    name: ClassVar[str] = "gradient"

    def settings(
        self,
        bandwidth: float | None = None,
        kernel: Kernel | None = None,
        levels: Sequence[float] = (),
        targets: int = 1,
    ) -> Facts:
        """Return the mechanism's public parameters.

        Parameters
        ----------
        bandwidth : float, optional
            In mapped units, None to find one.
        kernel : Kernel, optional
            Of the smoothing; logistic by default.
        levels : sequence of float
            Of several quantiles, in one run; none for that of the loss.
        targets : int
            1, or one target for each of the levels.
        """
        whole = isinstance(self.steps, (int, np.integer)) and not isinstance(self.steps, bool)
        if self.steps is not None and not (whole and self.steps >= 1):
            raise ValueError(
                "The 'steps' parameter of NoisyGradientDescent must be None or a positive integer. "
                f"Got {self.steps!r} instead."
            )
        if self.geometry not in ("private", "given"):
            raise ValueError(
                "The 'geometry' parameter of NoisyGradientDescent must be 'private' or 'given'. "
                f"Got {self.geometry!r} instead."
            )
        if levels and (self.geometry != "private" or self.plain):
            raise ValueError(
                "NoisyGradientDescent finds several quantiles in released coordinates only. Got a plain descent or "
                "geometry='given' instead. Use NoisyGradientDescent() or fit one quantile at a time."
            )
        several = {"levels": list(levels), "targets": targets} if levels else {}
        return {
            "steps": None if self.steps is None else int(self.steps),
            "geometry": self.geometry,
            "bandwidth": bandwidth,
            "kernel": describe(kernel or LogisticKernel()),
            **several,
        }

    def _chosen(self, bounds: Bounds, guarantee: Guarantee, parameters: Facts) -> Facts:
        parameters.setdefault("gradient", self.settings())
        return parameters

    def mapped(self, row_map: RowMap) -> RowMap:
        """Return how rows are bounded: weighted, also without feature bounds."""
        return row_map.weighted(self.farthest)

    @property
    def farthest(self) -> float:
        """Where columns without bounds are clipped."""
        return FARTHEST if self.plain or self.geometry == "given" else RAW_FARTHEST

    @property
    def plain(self) -> bool:
        """Whether one of the plain algorithm's choices was made."""
        given = (self.step_size, self.truncation, self.start, self.covariance)
        return self.average is not True or any(choice is not None for choice in given)

    def certify(
        self,
        bounds: Bounds,
        guarantee: Guarantee,
        parameters: Parameters | None = None,
        seeded: bool = False,
    ) -> Certificate:
        """Derive the certificate from public facts."""
        if not self.plain:
            return super().certify(bounds, guarantee, parameters, seeded)
        chosen = self._chosen(bounds, guarantee, dict(parameters or {}))
        chosen["gradient"] = {**chosen["gradient"], "geometry": "given"}
        chosen["plain"] = plain_settings(
            cast(LinearBounds, bounds),
            self.step_size,
            self.start,
            self.covariance,
            self.average,
            self.truncation,
        )
        return Certificate.issue(PLAIN, bounds, guarantee, chosen, seeded)

    def _run(
        self,
        objective: OverRows,
        certificate: Certificate,
        noise: NoiseSource,
        record: Facts,
    ) -> Array:
        """Return private coefficients; what was released on the way goes into ``record``."""
        several = self._raw_facts(certificate)
        targets = cast(SeveralTargets, objective).targets if several else [objective.rows]
        rows = PrivateRows(targets, certificate, noise)
        if certificate.mechanism == PLAIN:
            return descend_plainly(rows, certificate)
        config, settings = FitConfig(**certificate.parameters["fit"]), certificate.parameters["gradient"]
        smoothing = rebuild(settings["kernel"]), settings["bandwidth"]
        if config.levels:
            return SeveralQuantiles(rows, config, *smoothing, record).run().T
        return PrivateFit(rows, config, *smoothing, record).run()

    def _raw_facts(self, certificate: Certificate) -> Facts:
        targets = certificate.parameters["gradient"].get("targets", 1)
        return {"targets": targets} if targets > 1 else {}


def stated_farthest(certificate: Certificate) -> float:
    """Return where a certified fit clipped columns without bounds: not far up if it did not look there."""
    return RAW_FARTHEST if finds_units(certificate) else FARTHEST


