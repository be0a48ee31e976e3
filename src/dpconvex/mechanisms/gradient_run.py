"""Noisy descent in private coordinates: what every loss has in common, and all that a smooth loss of residuals needs.

Quantiles (:mod:`~dpconvex.mechanisms.quantile_descent`) and margins (:mod:`~dpconvex.mechanisms.margin_descent`)
release more on the way, and say how they descend.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dpconvex.engine.rows import RowFunction, Rows
from dpconvex.losses import PointwiseLoss
from dpconvex.mechanisms.gradient_course import Course
from dpconvex.mechanisms.gradient_geometry import Coordinates, Look, private_coordinates
from dpconvex.mechanisms.gradient_steps import Steps, descent_steps
from dpconvex.mechanisms.label_counts import count_votes
from dpconvex.mechanisms.quantile_search import Counting
from dpconvex.objectives.slopes import WeightedSlope
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.terms import NoiseTerm
from dpconvex.privacy.description import Facts
from dpconvex.privacy.noise import NoiseSource
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
    rows : engine
        Mapped rows.
    bounds, plan : LinearBounds, Course
        Public facts, and what follows from them.
    terms : mapping
        Noise of the certificate, by phase.
    kernel, bandwidth : Kernel, float or None
        Smoothing; the bandwidth is in mapped units, None to follow from the residuals.
    noise : NoiseSource
        Where noise comes from.
    released : dict
        Receives what was released on the way.
    """

    def __init__(
        self,
        rows: Rows,
        bounds: LinearBounds,
        plan: Course,
        terms: Mapping[str, NoiseTerm],
        kernel: Kernel,
        bandwidth: float | None,
        noise: NoiseSource,
        released: Facts,
    ) -> None:
        self.rows, self.bounds, self.plan, self.terms = rows, bounds, plan, terms
        self.kernel, self.bandwidth, self.noise, self.released = kernel, bandwidth, noise, released
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
            self.mass = count_votes(self.rows, self.n, self.terms["mass"], self.noise)
            self.released["mass"] = self.mass
        look = Look(
            self.n, plan.looked_at, bounds.fit_intercept, bounds.max_norm, plan.reach, plan.floor,
            plan.trust, bounds.most_cancellation(),
            lighter=plan.ranking / (1 + (plan.records / _CONSTANT_PAYS) ** 2),
            filled=self.mass / self.n, above=plan.above, ignored=bounds.void_rows,
        )  # fmt: skip
        self.frame, measured = private_coordinates(self.rows, look, self.terms, self.noise)
        self.released["coordinates"] = self.frame.matrix
        clip = self.plan.clip * self.frame.typical
        weighted = measured.rescaled(self._weights(clip))
        del measured  # a number per row that is not needed any more
        return self.frame.to_rows(self._find(weighted))

    def _weights(self, clip: float) -> Callable[[Array], Array]:
        """Return what rows of given lengths are multiplied by."""
        return lambda lengths: np.minimum(1.0, clip / lengths)

    def _find(self, rows: Rows) -> Array:
        """Descend with one rate: a smooth loss of residuals has a scale of its own."""
        start = np.zeros(self.frame.matrix.shape[0])
        rate = 1 / (self.loss.smoothness + self.alpha)
        steps = self._steps("gradients")
        rates = np.full(steps.stds.size, rate)
        return self._descend(rows, start, steps, WeightedSlope(self.loss), rates)

    @property
    def few_mass(self) -> float:
        """What the rows that are looked at count for."""
        return self.few_n * self.mass / self.n

    def _counting(self, phase: str) -> Counting:
        """Return how counts among the rows that are looked at become shares."""
        std = self.terms[phase].scale
        return Counting(std, self.few_mass, self.noise, self.bounds.void_rows)

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
        rows: Rows,
        start: Array,
        steps: Steps,
        slope: RowFunction,
        rates: Array,
        pull: Array | None = None,
    ) -> Array:
        """Return the mean of the later iterates of noisy descent, ``pull`` a released part of every mean gradient."""
        frame, first_kept = self.frame, rates.size - steps.kept
        sizes = {int(size) for size in steps.rows}
        parts = {size: rows if size == self.n else rows.part(size) for size in sizes}
        phi, kept = start.copy(), np.zeros_like(start)
        for step, rate in enumerate(rates):
            exact = gradient_sum(parts[int(steps.rows[step])], frame, phi, slope)
            gradient = self.noise.add_gaussian(exact, steps.stds[step])
            gradient = gradient * frame.typical / (steps.filled * steps.rows[step])
            if pull is not None:
                gradient = gradient + pull
            phi = phi - rate * gradient
            if self.alpha:
                phi = frame.shrunk(phi, rate * self.alpha)
            if step >= first_kept:
                kept += phi
        return kept / steps.kept


def gradient_sum(rows: Rows, frame: Coordinates, phi: Array, slope: RowFunction) -> Array:
    """Return the sum of the records' gradients at ``phi``, in units of a typical row."""
    (total,) = rows.combine(frame.to_rows(phi), slope)
    return frame.of_sum(np.asarray(total)) / frame.typical
