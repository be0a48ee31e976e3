"""Noisy descent in private coordinates: what every loss has in common, and all that a smooth loss of residuals needs.

Quantiles (:mod:`~dpconvex.mechanisms.quantile_descent`) and margins (:mod:`~dpconvex.mechanisms.margin_descent`)
release more on the way, and say how they descend.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dpconvex.core.queries import largest_cancellation
from dpconvex.core.release import PrivateRows
from dpconvex.core.slopes import Slope
from dpconvex.losses import PointwiseLoss
from dpconvex.mechanisms.gradient_course import Course
from dpconvex.mechanisms.gradient_geometry import Look, private_coordinates
from dpconvex.mechanisms.gradient_steps import Steps, descent_steps
from dpconvex.mechanisms.label_counts import count_votes
from dpconvex.privacy.description import Facts
from dpconvex.smoothing import Kernel

Array = NDArray[np.float64]

CERTAIN_NOISE = 0.25  # of the expected noise, which ways are shortened for: most of it lies where it matters little
_CONSTANT_PAYS = (
    40.0  # records from which on a ranking gains more by a free intercept than it costs
)


class PrivateDescent:
    """One run on data, for a smooth loss of residuals; :meth:`run` returns coefficients of mapped rows.

    Parameters
    ----------
    rows : PrivateRows
        What noisy sums are asked of.
    plan : Course
        What follows from public facts.
    kernel, bandwidth : Kernel, float or None
        Smoothing; the bandwidth is in mapped units, None to follow from the residuals.
    released : dict
        Receives what was released on the way.
    """

    def __init__(
        self,
        rows: PrivateRows,
        plan: Course,
        kernel: Kernel,
        bandwidth: float | None,
        released: Facts,
    ) -> None:
        bounds = rows.bounds
        self.rows, self.bounds, self.plan, self.terms = rows, bounds, plan, rows.terms
        self.kernel, self.bandwidth, self.released = kernel, bandwidth, released
        self.loss = cast(PointwiseLoss, bounds.loss)
        self.alpha, self.n = bounds.alpha, bounds.n_samples
        # Searches are on the rows whose geometry is looked at: which ones follows from their public number.
        self.few_n = self.n if plan.looked_at is None else plan.looked_at
        self.few_rows = rows if plan.looked_at is None else rows.part(plan.looked_at)
        self.mass = float(self.n)  # what all records count for

    def run(self) -> Array:
        """Find coordinates, descend, and return to the rows' own."""
        bounds, plan = self.bounds, self.plan
        if "mass" in self.terms:
            self.mass = count_votes(self.rows, "mass", self.n)
            self.released["mass"] = self.mass
        look = Look(
            self.n, plan.looked_at, bounds.fit_intercept, bounds.max_norm, plan.reach, plan.floor,
            plan.trust, largest_cancellation(bounds),
            lighter=plan.ranking / (1 + (plan.records / _CONSTANT_PAYS) ** 2),
            filled=self.mass / self.n, above=plan.above,
        )  # fmt: skip
        self.frame = private_coordinates(self.rows, look)
        self.released["coordinates"] = self.frame.matrix
        return self.frame.to_rows(self._find())

    def _find(self) -> Array:
        """Descend with one rate: a smooth loss of residuals has a scale of its own."""
        start = np.zeros(self.frame.matrix.shape[0])
        rate = 1 / (self.loss.smoothness + self.alpha)
        steps = self._steps("gradients")
        rates = np.full(steps.stds.size, rate)
        return self._descend(start, steps, Slope(self.loss), rates)

    @property
    def few_mass(self) -> float:
        """What the rows that are looked at count for."""
        return self.few_n * self.mass / self.n

    def _steps(self, phase: str) -> Steps:
        steps = descent_steps(phase, self.bounds, self.plan, self.terms)
        return replace(steps, filled=self.mass / self.n)

    def _wander(self, steps: Steps, progress: float) -> float:
        """Return the variance of predictions at the end if nothing but noise moved them."""
        return float(self.frame.moments.sum()) * steps.wander(progress, self.frame.typical)

    def _noise_share(
        self, way: Array, steps: Steps, rates: Array, curvature: float | Array
    ) -> float:
        """Return the squared length that noise is expected to give a way, over the length that it has."""
        length = float(self.frame.moments @ way**2)
        return self._expected_noise(steps, rates, curvature) / max(length, 1e-300)

    def _expected_noise(self, steps: Steps, rates: Array, curvature: float | Array) -> float:
        """Return the variance that noise gives predictions at the end of a descent."""
        frame = self.frame
        gains = steps.noise_gain(rates, curvature * frame.moments, frame.typical)
        return float(frame.moments @ gains)

    def _descend(
        self,
        start: Array,
        steps: Steps,
        slope: Slope,
        rates: Array,
        pull: Array | None = None,
    ) -> Array:
        """Return the mean of the later iterates of noisy descent, ``pull`` a released part of every mean gradient."""
        frame, first_kept = self.frame, rates.size - steps.kept
        sizes = {int(size) for size in steps.rows}
        parts = {size: self.rows if size == self.n else self.rows.part(size) for size in sizes}
        phi, kept = start.copy(), np.zeros_like(start)
        for step, rate in enumerate(rates):
            gradient = parts[int(steps.rows[step])].slope_sum(
                steps.names[step], frame.to_rows(phi), slope, frame, frame.typical
            )
            gradient = gradient / (steps.filled * steps.rows[step])
            if pull is not None:
                gradient = gradient + pull
            phi = phi - rate * gradient
            if self.alpha:
                phi = frame.shrunk(phi, rate * self.alpha)
            if step >= first_kept:
                kept += phi
        return kept / steps.kept
