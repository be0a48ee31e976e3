"""Noisy descent along margins, with a calibration at the end.

Gradients are clipped record by record, so slopes of records far on the wrong side saturate; a noisy histogram of
margins by label then puts slope and intercept right, with a penalty where one was asked for, or takes the columns out
of a hopeless fit. Where only the order of margins matters, that is left out, and its budget goes to the descent. Where
one of the labels could be absent, releases count labels instead, and the fit is a constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from dpconvex.engine.rows import Rows
from dpconvex.losses import PointwiseLoss
from dpconvex.mechanisms.gradient_margins import margin_calibration, penalised_calibration
from dpconvex.mechanisms.gradient_plan import MARGIN_BINS, RANGE_STEPS
from dpconvex.mechanisms.gradient_run import CERTAIN_NOISE, PrivateDescent
from dpconvex.mechanisms.gradient_steps import (
    MARGIN_HOPELESS,
    decaying_rates,
    margin_descent_progress,
)
from dpconvex.mechanisms.label_counts import positive_share
from dpconvex.mechanisms.quantile_search import Walk, private_quantile
from dpconvex.objectives.slopes import ClippedSlope
from dpconvex.smoothing import convolve

Array = NDArray[np.float64]

_FAR, _FAR_STDS = 0.8, 1.2816  # that share of a normal law lies within so many standard deviations
_HINGE_BANDWIDTH = 0.5
_MARGIN_CURVATURE = 0.1
_SLOWED = 10.0  # variance that noise would give margins without data: progress slows down
_CAUTION = (
    8.0  # how much more of it where records are few: probabilities that are too sure cost much
)
# And where there are few per coefficient, and how few: columns that tell nothing must cost next to nothing.
_DOUBT, _DOUBTED = 3.0, 40.0
_STEEPEST = 4.0  # factor by which calibration may stretch a margin


class MarginDescent(PrivateDescent):
    """A run for a loss of margins."""

    def _weights(self, clip: float) -> Callable[[Array], Array]:
        return lambda lengths: clip / lengths

    def _find(self, rows: Rows) -> Array:
        """Descend with clipped slopes from the released share of positives, then calibrate."""
        loss, lead, records = self.loss, self.frame.lead, self.plan.records
        if not math.isfinite(loss.smoothness):
            loss = convolve(loss, self.kernel, self.bandwidth or _HINGE_BANDWIDTH)
        share, counted = positive_share(
            self.rows, self.mass, self.terms, self.noise, self.bounds.void_rows
        )
        self.released["positive_share"] = share
        steps = self._steps("gradients").after(counted)
        number = steps.stds.size
        if not number:
            constant = np.zeros(self.frame.matrix.shape[0])
            if lead and not self.plan.ranking:
                constant[0] = float(logit(share)) / self.frame.constant
            self.released["kept_share"] = 0.0
            return constant
        progress = margin_descent_progress(number, records)
        wander = self._wander(steps, progress)
        progress /= math.sqrt(1 + wander / _SLOWED)
        start = np.zeros(self.frame.matrix.shape[0])
        if lead:
            start[0] = float(np.clip(logit(share), -5.0, 5.0)) / self.frame.constant
        rates = progress / number * decaying_rates(number)
        phi = self._descend(rows, start, steps, ClippedSlope(loss), rates)
        if self.plan.ranking:  # 0 is then the threshold for classes of equal weight
            phi[:lead] -= start[:lead]
            return phi
        way = phi - start
        way[:lead] = 0.0
        hope = 1 / (1 + (wander / MARGIN_HOPELESS) ** 2)
        # Rare labels bend the loss less, and noise goes further.
        bend = _MARGIN_CURVATURE * 4 * share * (1 - share)
        certain = CERTAIN_NOISE + _CAUTION * self.plan.few
        certain += _DOUBT / (1 + (records / _DOUBTED) ** 2)
        noise = self._noise_share(way, steps, rates, bend + self._penalty_bend())
        signal, hoped = (hope * max(0.0, 1 - c * noise) for c in (certain, CERTAIN_NOISE))
        return self._calibrated(phi, loss, share, signal, hoped, hope)

    def _calibrated(
        self,
        phi: Array,
        loss: PointwiseLoss,
        share: float,
        signal: float,
        hoped: float,
        hope: float,
    ) -> Array:
        """Put slope and intercept of the margin right, from a noisy histogram of margins by label.

        They are those of the likeliest probabilities or, where a penalty was asked for, of the penalised loss.
        """
        lead = self.frame.lead
        direction = phi.copy()
        direction[:lead] = 0.0
        theta = self.frame.to_rows(direction)
        margins = self.few_rows.predicted(theta)
        middle, spread = self._margin_range(margins, direction)
        edges = np.linspace(-3.2, 3.2, MARGIN_BINS + 1)
        inner = middle + spread * edges[1:-1]

        def part(y: Array, z: Array, v: Array) -> tuple[Array]:
            places = np.searchsorted(inner, z) + MARGIN_BINS * (y > 0)
            return (np.asarray(np.bincount(places, v, minlength=2 * MARGIN_BINS), np.float64),)

        # Of all rows: what a part of them says of the slope would be less sure than what all say of the direction.
        everyone = margins if self.few_rows is self.rows else self.rows.predicted(theta)
        (counts,) = everyone.sum_targets(part)
        std = self.terms["margins"]["std"]
        counts = self.noise.add_gaussian(np.asarray(counts), std).reshape(2, MARGIN_BINS)
        histogram = (counts / self.mass, std / self.mass, edges, share)
        slopes = (signal * spread, _STEEPEST * hope * spread, hoped * spread)
        if self.alpha:
            penalty = self._penalty(direction, middle, spread)
            offset = None if lead else middle / spread
            intercept, slope = penalised_calibration(*histogram, loss, offset, penalty, *slopes)
        else:
            intercept, slope = margin_calibration(*histogram, *slopes)
        factor = slope / spread
        self.released["calibration"] = np.array([intercept, factor])
        self.released["kept_share"] = signal
        calibrated = factor * direction
        if lead:
            calibrated[0] = intercept - factor * middle
        return calibrated

    def _penalty_bend(self) -> float | Array:
        """Return what a penalty adds to the curvature of each coordinate, in units of its second moment."""
        if not self.alpha:
            return 0.0
        matrix = self.frame.matrix
        squares = matrix**2 if matrix.ndim == 1 else np.square(matrix).sum(axis=1)
        return np.asarray(self.alpha * squares / self.frame.moments)

    def _penalty(self, direction: Array, middle: float, spread: float) -> Array:
        """Return the second derivative of the penalty in intercept and slope of a margin of unit spread."""
        constant = np.zeros_like(direction)
        constant[: self.frame.lead] = 1.0
        along = (direction - middle * constant) / spread
        theta = self.frame.to_rows(np.column_stack([constant, along]))
        return np.asarray(self.alpha * (theta.T @ theta))

    def _margin_range(self, margins: Rows, direction: Array) -> tuple[float, float]:
        """Return a private middle and spread of the margins."""
        counting = self._counting("margin range")
        guess = math.sqrt(float(self.frame.moments @ direction**2)) + 1e-9
        middle = private_quantile(
            margins,
            lambda y, z: z,
            Walk(0.5, 0.0, 2 * guess, 8 * guess, RANGE_STEPS, 0.75),
            counting,
        )

        def size(y: Array, z: Array) -> Array:
            return np.log2(np.abs(z - middle) + 1e-300)

        walk = Walk(_FAR, math.log2(_FAR_STDS * guess), 3.0, 6.0, RANGE_STEPS, 0.75)
        octave = private_quantile(margins, size, walk, counting)
        return middle, 2.0**octave / _FAR_STDS
