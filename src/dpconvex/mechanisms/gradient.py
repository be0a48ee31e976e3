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
from dpconvex.core.slopes import Slope
from dpconvex.engine.rows import FARTHEST, RAW_FARTHEST, RowMap
from dpconvex.losses import PointwiseLoss
from dpconvex.mechanisms.gradient_course import Course
from dpconvex.mechanisms.gradient_geometry import Frame, given_coordinates
from dpconvex.mechanisms.gradient_plan import plan_gradient
from dpconvex.mechanisms.gradient_run import PrivateDescent
from dpconvex.mechanisms.gradient_settings import check_levels, check_smoothing, total_mu
from dpconvex.mechanisms.margin_descent import MarginDescent
from dpconvex.mechanisms.mechanism import PrivateMechanism
from dpconvex.mechanisms.plain_descent import PLAIN, descend_plainly, plain_settings
from dpconvex.mechanisms.quantile_descent import QuantileDescent
from dpconvex.mechanisms.several_quantiles import SeveralQuantiles
from dpconvex.objectives.empirical import SeveralTargets
from dpconvex.objectives.objective import OverRows
from dpconvex.privacy.bounds.base import Bounds
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.certificates.concerns import finds_units
from dpconvex.privacy.certificates.rules import (
    Calibration,
    CertificateError,
    Parameters,
    Proof,
    calibrates,
    proves,
)
from dpconvex.privacy.description import Facts, describe, rebuild
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.privacy.noise import NoiseSource
from dpconvex.smoothing import Kernel, LogisticKernel, convolve

Array = NDArray[np.float64]
Schedule = Callable[[int], float]

_FIRST = 0.4  # first bandwidth of the annealed fit
NARROW = 0.05  # final bandwidth where no scale is known
# Mapped targets lie in [-1, 1], and so does the root mean square of a good prediction: the norm of its coefficients in
# white coordinates.
_RADIUS = 1.0


@calibrates("gradient")
def calibrate_gradient(
    bounds: LinearBounds, guarantee: Guarantee, parameters: Parameters
) -> Calibration:
    """Derive the noise of every phase; together, and over all problems, they spend exactly ``mu``."""
    if not math.isfinite(bounds.lipschitz):
        raise ValueError(
            f"NoisyGradientDescent needs a loss of bounded slope, but {type(bounds.loss).__name__} has "
            "lipschitz=inf. Use Huber(width) in its place."
        )
    mu = total_mu(guarantee, "NoisyGradientDescent")
    mu /= math.sqrt(parameters.get("problems", 1))
    plan = plan_gradient(bounds, mu, parameters["gradient"])
    return Calibration(
        {name: phase.term(mu) for name, phase in plan.phases.items()},
        stated={"course": plan.course.stated()},
    )


@proves("gradient")
def prove_gradient(certificate: Certificate) -> Proof:
    """Compose the stated sums."""
    certificate.check_bounds(LinearBounds, several=True)
    settings, course = (
        certificate.parameters["gradient"],
        Course(**certificate.parameters["course"]),
    )
    check_smoothing(settings)
    check_levels(settings, course, certificate.bounds, certificate.parameters.get("quantile"))
    parts = [rows for rows in (course.looked_at, course.stepped_on) if rows is not None]
    bounds = certificate.bounds
    if parts and (bounds.neighbors != "replace_one" or max(parts) > bounds.n_samples):
        raise CertificateError(
            "Which rows are a part of them is public only where their number is."
        )
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
        descent = _Descent(rows, certificate)
        theta = descent.run()
        record.update(descent.released)
        return theta

    def _raw_facts(self, certificate: Certificate) -> Facts:
        targets = certificate.parameters["gradient"].get("targets", 1)
        return {"targets": targets} if targets > 1 else {}


def stated_farthest(certificate: Certificate) -> float:
    """Return where a certified fit clipped columns without bounds: not far up if it did not look there."""
    return RAW_FARTHEST if finds_units(certificate) else FARTHEST


class _Descent:
    """One run on data: coordinates, rough fit and scale where planned, then the averaged descent."""

    def __init__(self, rows: PrivateRows, certificate: Certificate) -> None:
        self.rows, self.bounds = rows, rows.bounds
        self.loss, self.alpha = cast(PointwiseLoss, self.bounds.loss), self.bounds.alpha
        self.n = self.bounds.n_samples
        self.settings = certificate.parameters["gradient"]
        self.kernel = rebuild(self.settings["kernel"])
        self.plan = Course(**certificate.parameters["course"])
        low, high = self.loss.slope_range
        self.middle, self.range = (low + high) / 2, high - low
        self.margin = self.loss.kind == "margin"
        self.released: Facts = {}

    def run(self) -> Array:
        if self.plan.private:
            facts = (self.plan, self.kernel, self.settings["bandwidth"], self.released)
            if self.plan.levels:
                return SeveralQuantiles(self.rows, *facts).run().T
            smooth = PrivateDescent if math.isfinite(self.loss.smoothness) else QuantileDescent
            descent = MarginDescent if self.margin else smooth
            return descent(self.rows, *facts).run()
        bounds = self.bounds
        influence = min(bounds.row_norm, bounds.max_norm)
        coordinates = given_coordinates(bounds.n_features, bounds.fit_intercept, influence)
        if self.margin or math.isfinite(self.loss.smoothness):
            phi = self._smooth_descent(coordinates)
        else:
            phi = self._annealed_descent(coordinates)
        return coordinates.to_rows(phi)

    def _annealed_descent(self, coordinates: Frame) -> Array:
        """Narrow the bandwidth and move from the median to the wanted level at the same time."""
        given = self.settings["bandwidth"]
        narrow = NARROW if given is None else given
        wide = max(_FIRST, narrow)
        steps = self.rows.terms["gradients"].releases
        last_rate = (4 if given is None else 8) * narrow / self.range

        def way(step: int) -> float:
            return min(1.0, step / (0.4 * steps))

        def width(step: int) -> float:
            return wide * (narrow / wide) ** way(step)

        def rate(step: int) -> float:
            first = max(last_rate, wide / self.range)
            return first * (last_rate / first) ** way(step)

        return self._descend(
            coordinates,
            width=width,
            rate=rate,
            averaged=0.5,
            # A wide kernel pushes a quantile away from the median, so the level follows the bandwidth.
            pull=lambda step: narrow / width(step),
            radius=_RADIUS if given is None else math.inf,
        )

    def _smooth_descent(self, coordinates: Frame) -> Array:
        """Descend with one rate: the loss has a scale of its own."""
        width = self.settings["bandwidth"] or 0.5
        kinked = not math.isfinite(self.loss.smoothness)
        curvature = (
            convolve(self.loss, self.kernel, width).smoothness if kinked else self.loss.smoothness
        )
        rates = np.full(self.bounds.dimension, 1 / (curvature + self.alpha))
        return self._descend(
            coordinates,
            width=lambda step: width if kinked else 0.0,
            rate=lambda step: rates,
            averaged=0.6,
        )

    def _constant_part(self, coordinates: Frame) -> Array:
        """Release ``middle * sum w x`` (times y for margin losses) once, as its part of the mean gradient."""
        size = self.bounds.dimension
        if "constant part" not in self.rows.terms:
            return np.zeros(size)
        rows = Slope(None, by_label=self.margin)
        total = self.rows.slope_sum("constant part", np.zeros(size), rows, coordinates)
        slope = self.middle if self.margin else -self.middle
        return np.asarray(slope * total / self.n)

    def _descend(
        self,
        coordinates: Frame,
        width: Schedule,
        rate: Callable[[int], float | Array],
        averaged: float,
        pull: Schedule = lambda step: 1.0,
        radius: float = math.inf,
    ) -> Array:
        """Return the mean of the last iterates of noisy descent on the moving part plus the released constant."""
        constant, steps = self._constant_part(coordinates), self.rows.terms["gradients"].releases
        first_kept = steps - max(1, round(averaged * steps))
        phi, kept = np.zeros(self.bounds.dimension), np.zeros(self.bounds.dimension)
        for step in range(steps):
            gradient = self._moving_sum(coordinates, phi, width(step)) / self.n
            phi = phi - rate(step) * (gradient + pull(step) * constant)
            if self.alpha:
                phi = coordinates.shrunk(phi, rate(step) * self.alpha)
            phi = phi * min(1.0, radius / max(float(np.linalg.norm(phi)), 1e-300))
            if step >= first_kept:
                kept += phi
        return kept / (steps - first_kept)

    def _moving_sum(self, coordinates: Frame, phi: Array, width: float) -> Array:
        """Return the sum of the gradients' moving part, slopes within half the range of 0."""
        loss = convolve(self.loss, self.kernel, width) if width > 0 else self.loss
        theta = coordinates.to_rows(phi)
        return self.rows.slope_sum("gradients", theta, Slope(loss, self.middle), coordinates)
