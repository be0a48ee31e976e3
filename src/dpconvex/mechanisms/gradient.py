r"""Noisy gradient descent: noise enters during solving, under Gaussian DP.

Every round releases a sum of gradients plus Gaussian noise. What makes it accurate is free, being post-processing or a
smaller sensitivity, and is the private fit of :mod:`dpconvex.fit`: rounds share what they find, a record's influence is
bounded instead of its row, coordinates are whitened and steps sized by private scales, and where records are many the
curvature is released as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.checks import check_number
from dpconvex.core.queries import prove_sums
from dpconvex.core.release import PrivateRows
from dpconvex.engine.rows import CLIP_LIMIT, RAW_FARTHEST, RowMap
from dpconvex.fit.config import FitConfig, plan_fit, total_mu
from dpconvex.fit.levels import SeveralQuantiles
from dpconvex.fit.plain_descent import PLAIN, check_plain, descend_plainly, plain_calibration, plain_settings
from dpconvex.fit.private_fit import PrivateFit
from dpconvex.losses import Pinball, Squared
from dpconvex.mechanisms.mechanism import PrivateMechanism
from dpconvex.objectives.empirical import SeveralTargets
from dpconvex.objectives.objective import OverRows
from dpconvex.privacy.bounds.base import Bounds
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.concerns import finds_units
from dpconvex.privacy.certificates.rules import Calibration, CertificateError, Parameters, Proof, calibrates, proves
from dpconvex.privacy.description import Facts, describe, rebuild
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.privacy.noise import NoiseSource
from dpconvex.smoothing import Kernel, LogisticKernel
from dpconvex.types import Array

__all__ = ["NoisyGradientDescent", "stated_farthest"]


@calibrates("gradient")
def calibrate_gradient(bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters) -> Calibration:
    """Derive the noise of every phase; together, and over all problems, they spend exactly ``mu``."""
    if not math.isfinite(bounds.lipschitz) and type(bounds.loss) is not Squared:
        raise ValueError(
            f"NoisyGradientDescent needs a loss of bounded slope, but {type(bounds.loss).__name__} has "
            "lipschitz=inf. Use Huber(width) in its place."
        )
    mu = total_mu(guarantee, "NoisyGradientDescent") / math.sqrt(parameters.get("problems", 1))
    inference = {"inference": True} if parameters.get("inference", False) else {}
    plan = plan_fit(bounds, mu, {**parameters["gradient"], **inference})
    return Calibration(plan.terms(bounds, mu), stated={"fit": plan.config.stated()})


@proves("gradient")
def prove_gradient(certificate: Certificate) -> Proof:
    """Compose the stated sums."""
    certificate.check_bounds(LinearBounds, several=True)
    bounds, parameters = certificate.bounds, certificate.parameters
    settings, config = parameters["gradient"], FitConfig(**parameters["fit"])
    check_smoothing(settings)
    stated = settings.get("levels", []), settings.get("targets", 1)
    named = parameters.get("quantile", list(config.levels))
    if stated != (list(config.levels), config.targets) or (config.levels and named != stated[0]):
        raise CertificateError("The certificate's fit is not that of its settings: see levels.")
    if config.levels and type(bounds.loss) is not Pinball:
        raise CertificateError("Several levels are those of the pinball loss.")
    parts = [rows for rows in (config.geometry_rows, config.early_rows) if rows is not None]
    if parts and (bounds.neighbors != "replace_one" or max(parts) > bounds.n_samples):
        raise CertificateError("Which rows are a part of them is public only where their number is.")
    return prove_sums(certificate)


def check_smoothing(settings: Parameters) -> None:
    """Refuse settings that no run could have had: slopes keep their range only if a density averages them."""
    if not {"steps", "bandwidth", "kernel"} <= set(settings) <= _SETTINGS:
        raise CertificateError("The certificate's settings are not those of a noisy descent.")
    kernel, width = rebuild(settings["kernel"]), settings["bandwidth"]
    if not isinstance(kernel, Kernel) or kernel.dim != 1 or describe(kernel) != settings["kernel"]:
        raise CertificateError("The certificate's kernel is not a density of one variable.")
    if width is not None:
        allowed = "None or a finite number above 0"
        check_number("bandwidth", "The certificate", width, allowed, 0, math.inf, low_open=True)


_SETTINGS = {"steps", "bandwidth", "kernel", "ranking", "raw_target", "levels", "targets"}


@dataclass(frozen=True)
class NoisyGradientDescent(PrivateMechanism):
    r"""The private fit: rounds of noisy gradients, each asked for where all before them expect the minimiser.

    Parameters
    ----------
    steps : int, optional
        Fine rounds of gradients; by default 4 to 16, by the loss.
    step_size, truncation, start, covariance : optional
        Public choices, in mapped units with the intercept first: the rate of every step, the bound B on the norm of a
        record's row where it is white, the first iterate, and the known second-moment matrix of the rows. Any of them,
        or ``average=False``, asks for the plain algorithm of :mod:`~dpconvex.fit.plain_descent` (10 steps by default)
        and leaves all that is paid for privately aside.
    average : bool, default=True
        Whether the plain algorithm averages the later iterates; False returns the last one.

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
        if levels and self.plain:
            raise ValueError(
                "NoisyGradientDescent finds several quantiles in released coordinates only. Got a plain descent "
                "instead. Use NoisyGradientDescent() or fit one quantile at a time."
            )
        several = {"levels": list(levels), "targets": targets} if levels else {}
        return {
            "steps": None if self.steps is None else int(self.steps),
            "bandwidth": bandwidth,
            "kernel": describe(kernel or LogisticKernel()),
            **several,
        }

    def _chosen(self, bounds: Bounds, guarantee: Guarantee, parameters: Facts) -> Facts:
        parameters.setdefault("gradient", self.settings())
        return parameters

    def mapped(self, row_map: RowMap) -> RowMap:
        """Return how rows are bounded: weighted, also without feature bounds."""
        return row_map.weighted(self.clip_limit)

    @property
    def clip_limit(self) -> float:
        """Where columns without bounds are clipped."""
        return CLIP_LIMIT if self.plain else RAW_FARTHEST

    @property
    def plain(self) -> bool:
        """Whether one of the plain algorithm's choices was made."""
        given = (self.step_size, self.truncation, self.start, self.covariance)
        return self.average is not True or any(choice is not None for choice in given)

    def certify(
        self, bounds: Bounds, guarantee: Guarantee, parameters: Parameters | None = None, seeded: bool = False
    ) -> Certificate:
        """Derive the certificate from public facts."""
        if not self.plain:
            return super().certify(bounds, guarantee, parameters, seeded)
        chosen = self._chosen(bounds, guarantee, dict(parameters or {}))
        chosen["plain"] = plain_settings(
            cast(LinearBounds, bounds), self.step_size, self.start, self.covariance, self.average, self.truncation
        )
        return Certificate.issue(PLAIN, bounds, guarantee, chosen, seeded)

    def _run(self, objective: OverRows, certificate: Certificate, noise: NoiseSource, record: Facts) -> Array:
        """Return private coefficients; what was released on the way goes into ``record``."""
        several = self._raw_facts(certificate)
        targets = cast(SeveralTargets, objective).targets if several else [objective.rows]
        rows = PrivateRows(targets, certificate, noise)
        if certificate.mechanism == PLAIN:
            return descend_plainly(rows, certificate)
        config = FitConfig(**certificate.parameters["fit"])
        settings = certificate.parameters["gradient"]
        smoothing = rebuild(settings["kernel"]), settings["bandwidth"]
        if config.levels:
            return SeveralQuantiles(rows, config, *smoothing, record).run().T
        return PrivateFit(rows, config, *smoothing, record).run()

    def _raw_facts(self, certificate: Certificate) -> Facts:
        targets = certificate.parameters["gradient"].get("targets", 1)
        return {"targets": targets} if targets > 1 else {}


def stated_farthest(certificate: Certificate) -> float:
    """Return where a certified fit clipped columns without bounds: not far up if it did not look there."""
    return RAW_FARTHEST if finds_units(certificate) else CLIP_LIMIT


@calibrates(PLAIN)
def calibrate_plain(bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters) -> Calibration:
    """Derive the noise of every step of the plain algorithm."""
    return plain_calibration(bounds, guarantee, parameters)


@proves(PLAIN)
def prove_plain(certificate: Certificate) -> Proof:
    """Compose the stated sums of gradients."""
    certificate.check_bounds(LinearBounds, several=True)
    check_smoothing(certificate.parameters["gradient"])
    check_plain(certificate)
    return prove_sums(certificate)
