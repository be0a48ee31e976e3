r"""Noisy descent in private coordinates: quantiles by way of the median, margins with a calibration at the end.

Quantiles: a private start and scale of the target; the median, whose slopes are symmetric and whose curvature is
largest; one private histogram of the residuals, which gives their scale and moves the intercept to the wanted level;
then the level itself. What noise alone could have moved is taken back (:func:`kept_share`).

Margins: gradients are clipped, slopes of records far on the wrong side saturate; two private numbers put slope and
intercept of the margin right afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from dpconvex.objectives.slopes import ClippedSlope, WeightedSlope
from dpconvex.smoothing import convolve

from .geometry import Coordinates, private_coordinates
from .gradient_plan import MARGIN_BINS, TARGET_BINS, level_of, normal_height
from .sketch import Sketch

Array = NDArray[np.float64]

_QUARTILES_TO_STD = 1.349  # of a normal law
P = {
    "h": 0.2, "c1": 0.8, "c2": 0.5, "k1": 0.5, "k2": 0.6, "js": 1.0, "m_progress": 300.0, "m_kept": 0.5, "m_hinge": 300.0,
    "m_prior": 2.0,
}


def noise_gain(steps: int, contraction: Array, kept: int) -> Array:
    """Return the variance of the mean of the last iterates of ``x <- (1 - a) x + noise`` of variance 1 per step."""
    weights = np.zeros((steps, contraction.size))
    for step in range(steps):
        for later in range(max(step, steps - kept), steps):
            weights[step] += (1 - contraction) ** (later - step) / kept
    return np.asarray((weights**2).sum(axis=0))


class PrivateDescent:
    """One run on data; ``run`` returns coefficients of mapped rows."""

    def __init__(self, descent: Any) -> None:
        self.d = descent
        self.noise, self.terms, self.n = descent.noise, descent.terms, descent.n
        self.loss, self.plan, self.released = descent.loss, descent.plan, descent.released

    def run(self) -> Array:
        bounds = self.d.bounds
        stds = {name: self.terms[name]["std"] for name in ("scales", "lengths", "moments")}
        self.frame, measured = private_coordinates(
            self.d.rows, self.n, bounds.fit_intercept, bounds.max_norm, self.plan.rounds, stds,
            self.noise,
        )  # fmt: skip
        self.released["coordinates"] = self.frame.matrix
        clip = self.plan.clip * self.frame.typical

        def caps(lengths: Array) -> Array:
            return clip / lengths

        self.capped = measured.rescaled(caps)
        self.weighted = measured.rescaled(lambda lengths: np.minimum(1.0, clip / lengths))
        if self.loss.kind == "margin":
            phi = self._margins()
        elif math.isfinite(self.loss.smoothness):
            phi = self._smooth()
        else:
            phi = self._quantile()
        return self.frame.to_rows(phi)

    # -- quantiles ------------------------------------------------------------------------------------------------

    def _quantile(self) -> Array:
        lead, level = self.frame.lead, level_of(self.loss)
        span = self.d.range
        start, scale = self._target()
        phi = np.zeros(self.frame.matrix.shape[0])
        phi[:lead] = start
        steps = self.terms["rough gradients"]["releases"]
        curvature = span * normal_height(0.5) / scale
        found = self._descend(
            phi, "rough gradients", self.weighted,
            self._slope(P["h"] * scale, self.d.middle), P["c1"] / curvature, P["k1"],
        )  # fmt: skip
        found = self._shrunk(found, phi, "rough gradients", P["c1"], P["c1"] / curvature, P["k1"])
        scale, shift = self._residuals(found, scale, level)
        phi = found.copy()
        phi[:lead] += shift
        self.released["residual_scale"] = scale
        curvature = span * normal_height(level) / scale
        steps = self.terms["gradients"]["releases"]
        final = self._descend(
            phi, "gradients", self.weighted, self._slope(P["h"] * scale, 0.0),
            P["c2"] / curvature, P["k2"],
        )  # fmt: skip
        return self._shrunk(final, phi, "gradients", P["c2"], P["c2"] / curvature, P["k2"])

    def _slope(self, width: float, offset: float) -> WeightedSlope:
        return WeightedSlope(convolve(self.loss, self.d.kernel, width), offset)

    def _target(self) -> tuple[float, float]:
        """Return a private median and scale of the target: octaves of its size first, then equal bins."""
        half = TARGET_BINS // 2
        sizes = np.concatenate([[0.0], 2.0 ** np.linspace(-16, 12, half)])
        edges = np.concatenate([-sizes[:0:-1], sizes])
        std = self.terms["targets"]["std"]

        def target(y: Array, w: Array) -> Array:
            return y

        total = self.d.rows.sum_targets
        first = Sketch.release(total, target, edges, self.n, std, self.noise)
        low, high = first.quantile(0.02), first.quantile(0.98)
        room = 0.25 * (high - low) + 1e-9
        edges = np.linspace(low - room, high + room, TARGET_BINS + 1)
        second = Sketch.release(total, target, edges, self.n, std, self.noise)
        spread = second.quantile(0.75) - second.quantile(0.25)
        return second.quantile(0.5), max(spread / _QUARTILES_TO_STD, (high - low) / (8 * TARGET_BINS), 1e-9)

    def _residuals(self, phi: Array, scale: float, level: float) -> tuple[float, float]:
        """Return a private scale of the residuals, and their quantile at the wanted level."""
        theta = self.frame.to_rows(phi)
        edges = 8 * scale * np.sinh(np.linspace(-6, 6, TARGET_BINS + 1)) / math.sinh(6)

        def residual(block: Array, y: Array, w: Array) -> Array:
            return y - block @ theta

        std = self.terms["residuals"]["std"]
        found = Sketch.release(self.d.rows.sum, residual, edges, self.n, std, self.noise)
        spread = (found.quantile(0.75) - found.quantile(0.25)) / _QUARTILES_TO_STD
        return min(scale, max(spread, 0.01 * scale)), found.quantile(level)

    # -- margins --------------------------------------------------------------------------------------------------

    def _margins(self) -> Array:
        width = self.d.settings["bandwidth"]
        loss = self.loss
        if not math.isfinite(loss.smoothness):
            loss = convolve(loss, self.d.kernel, width or 0.5)
        steps = self.terms["gradients"]["releases"]
        phi = np.zeros(self.frame.matrix.shape[0])
        phi = self._descend(
            phi, "gradients", self.capped, ClippedSlope(loss), P["m_progress"] / steps, P["m_kept"]
        )
        return self._calibrated(phi)

    def _calibrated(self, phi: Array) -> Array:
        """Put slope and intercept of the margin right, from a noisy histogram of margins by label."""
        lead = self.frame.lead
        (positive,) = self.d.rows.sum_targets(lambda y, w: (np.array([np.count_nonzero(y > 0)], dtype=float),))
        std = self.terms["labels"]["std"]
        share = float(self.noise.add_gaussian(np.asarray(positive), std)[0]) / self.n
        unsure = max(std / self.n, 0.5 / self.n)
        share = float(np.clip(share, unsure, 1 - unsure)) if unsure < 0.5 else 0.5
        direction = phi.copy()
        direction[:lead] = 0.0
        spread = math.sqrt(float(self.frame.moments @ direction**2)) + 1e-12
        direction = direction / spread
        theta = self.frame.to_rows(direction)
        edges = np.linspace(-4, 4, MARGIN_BINS + 1)
        inner = edges[1:-1]

        def part(block: Array, y: Array, w: Array) -> tuple[Array]:
            places = np.searchsorted(inner, block @ theta) + MARGIN_BINS * (y > 0)
            return (np.bincount(places, minlength=2 * MARGIN_BINS).astype(float),)

        (counts,) = self.d.rows.sum(part)
        std = self.terms["margins"]["std"]
        counts = self.noise.add_gaussian(np.asarray(counts), std).reshape(2, MARGIN_BINS)
        middles = (edges[1:] + edges[:-1]) / 2
        intercept, slope = calibration(counts, middles, share, self.n, std)
        self.released["calibration"] = [float(intercept), float(slope)]
        self.released["positive_share"] = share
        phi = slope * direction
        phi[:lead] += intercept
        return phi

    def _smooth(self) -> Array:
        """Descend with one rate: the loss has a scale of its own."""
        phi = np.zeros(self.frame.matrix.shape[0])
        rate = 1 / (self.loss.smoothness + self.d.alpha)
        return self._descend(phi, "gradients", self.weighted, WeightedSlope(self.loss), rate, 0.6)

    # -- shared ---------------------------------------------------------------------------------------------------

    def _shrunk(
        self, found: Array, start: Array, phase: str, contraction: float, rate: float, kept: float
    ) -> Array:
        """Take back what noise alone could have moved: a James-Stein factor on the way from the start."""
        lead, moments = self.frame.lead, self.frame.moments
        term = self.terms[phase]
        steps = term["releases"]
        count = max(1, round(kept * steps))
        mean_weight = min(1.0, self.plan.clip)
        gains = noise_gain(steps, np.minimum(contraction * moments * mean_weight, 1.0), count)
        step_noise = rate * self.frame.typical * term["std"] / self.n
        expected = float((moments * gains)[lead:].sum()) * step_noise**2
        way = (found - start)[lead:]
        length = float(moments[lead:] @ way**2)
        factor = max(0.0, 1 - P["js"] * expected / max(length, 1e-300))
        result = found.copy()
        result[lead:] = start[lead:] + factor * way
        self.released.setdefault("kept", {})[phase] = factor
        return result

    def _descend(
        self, start: Array, phase: str, rows: Any, slope: Any, rate: float, averaged: float
    ) -> Array:
        """Return the mean of the last iterates of noisy descent."""
        term, frame, alpha = self.terms[phase], self.frame, self.d.alpha
        steps, std = term["releases"], term["std"]
        first_kept = steps - max(1, round(averaged * steps))
        phi, kept = start.copy(), np.zeros_like(start)
        penalty = np.eye(phi.size) + rate * alpha * (frame.matrix @ frame.matrix.T)
        for step in range(steps):
            (total,) = rows.combine(frame.to_rows(phi), slope)
            exact = frame.matrix @ np.asarray(total) / frame.typical
            gradient = self.noise.add_gaussian(exact, std) * frame.typical / self.n
            phi = phi - rate * gradient
            if alpha:  # an implicit step on the penalty: stable whatever alpha and the rate
                phi = np.linalg.solve(penalty, phi)
            if step >= first_kept:
                kept += phi
        return kept / (steps - first_kept)


def calibration(
    counts: Array, middles: Array, share: float, n_samples: int, std: float
) -> tuple[float, float]:
    """Return intercept and slope of ``logit P(y = 1)`` on a margin of unit spread, from noisy counts by label.

    The slope solves the likelihood equation of the binned margins, the intercept is the one with which the mean
    probability is the released share of positives. Noise pulls the slope to 0: with a prior of spread
    ``m_prior``, it is multiplied by ``prior^2 / (prior^2 + noise^2)``.
    """
    sizes = np.maximum(counts.sum(axis=0), 0.0)
    sizes = sizes / max(sizes.sum(), 1.0)
    base = float(logit(share))

    def intercept_for(slope: float) -> float:
        low, high = base - 60.0, base + 60.0
        for _ in range(60):
            middle = (low + high) / 2
            if float(sizes @ expit(middle + slope * middles)) > share:
                high = middle
            else:
                low = middle
        return (low + high) / 2

    # sum over positives of z minus its expectation: linear in the counts, so noise does not bias it.
    low, high = 0.0, 30.0
    moment = float(counts[1] @ middles) / n_samples
    total = counts.sum(axis=0) / n_samples

    def gap(slope: float) -> float:
        chances = expit(intercept_for(slope) + slope * middles)
        return moment - float(total @ (chances * middles))

    if gap(0.0) <= 0:
        return base, 0.0
    for _ in range(40):
        middle = (low + high) / 2
        if gap(middle) > 0:
            low = middle
        else:
            high = middle
    slope = (low + high) / 2
    chances = expit(intercept_for(slope) + slope * middles)
    information = max(float(sizes @ (chances * (1 - chances) * middles**2)), 1e-6)
    noise = std / n_samples * math.sqrt(float(((1 - chances) ** 2 + chances**2) @ middles**2))
    noise /= information
    slope *= P["m_prior"] ** 2 / (P["m_prior"] ** 2 + noise**2)
    return intercept_for(slope), slope
