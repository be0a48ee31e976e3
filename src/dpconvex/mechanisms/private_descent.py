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
from scipy.special import expit, logit, ndtr, ndtri

from dpconvex.objectives.slopes import ClippedSlope, WeightedSlope
from dpconvex.smoothing import convolve

from .geometry import Coordinates, private_coordinates
from .gradient_plan import (
    CENTRE_STEPS,
    MARGIN_BINS,
    RANGE_STEPS,
    SCALE_STEPS,
    SHIFT_STEPS,
    TARGET_BINS,
    level_of,
    normal_height,
)
from .search import private_quantile
from .sketch import Sketch

Array = NDArray[np.float64]

P = {
    "h": 0.1, "c1": 0.8, "c2": 0.5, "k1": 0.5, "k2": 0.6, "js": 1.0, "m_progress": 300.0, "m_kept": 0.5, "m_hinge": 300.0,
    "m_prior": 0.2, "m_prior_least": 0.15, "m_claim": 1.0, "m_hopeless": 100.0, "m_wander": 10.0, "m_decay": 0.5, "decay": 0.5, "m_steepen": 4.0, "m_steepest": 3.0, "m_curvature": 0.1, "hopeless": 2.0,
}


def decaying(steps: int, last: float) -> Array:
    """Return factors of mean 1 that fall geometrically, the last one ``last`` times the first."""
    factors = last ** np.linspace(0.0, 1.0, steps)
    return np.asarray(factors / factors.mean())


def noise_gain(rates: Array, curvature: Array, kept: float) -> Array:
    """Return the variance of the mean of the last iterates of ``x <- x - rate (curvature x + noise)``, noise of variance 1."""
    steps = rates.size
    count = max(1, round(kept * steps))
    total = np.zeros(curvature.size)
    for step in range(steps):
        moved, weight = np.full(curvature.size, rates[step]), np.zeros(curvature.size)
        for later in range(step, steps):
            if later > step:
                moved = moved * np.clip(1 - rates[later] * curvature, 0.0, 1.0)
            if later >= steps - count:
                weight += moved / count
        total += weight**2
    return total


def _target_of(y: Array, w: Array) -> Array:
    return y


class PrivateDescent:
    """One run on data; ``run`` returns coefficients of mapped rows."""

    def __init__(self, descent: Any) -> None:
        self.d = descent
        self.noise, self.terms, self.n = descent.noise, descent.terms, descent.n
        self.loss, self.plan, self.released = descent.loss, descent.plan, descent.released

    def run(self) -> Array:
        bounds = self.d.bounds
        stds = {name: self.terms[name]["std"] for name in ("scales", "lengths", "moments", "finer moments")}
        self.frame, measured = private_coordinates(
            self.d.rows, self.n, bounds.fit_intercept, bounds.max_norm, self.plan.floor,
            self.plan.trust, stds, self.noise,
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
            self._slope(P["h"] * scale, self.d.middle), P["c1"] / curvature * decaying(steps, P["decay"]), P["k1"],
        )  # fmt: skip
        found = self._shrunk(found, phi, "rough gradients", P["c1"] / curvature * decaying(steps, P["decay"]), curvature, P["k1"], scale)
        scale, shift = self._residuals(found, scale, level)
        phi = found.copy()
        phi[:lead] += shift
        self.released["residual_scale"] = scale
        curvature = span * normal_height(level) / scale
        steps = self.terms["gradients"]["releases"]
        final = self._descend(
            phi, "gradients", self.weighted, self._slope(P["h"] * scale, 0.0),
            P["c2"] / curvature * decaying(steps, P["decay"]), P["k2"],
        )  # fmt: skip
        return self._shrunk(final, phi, "gradients", P["c2"] / curvature * decaying(steps, P["decay"]), curvature, P["k2"], scale)

    def _slope(self, width: float, offset: float) -> WeightedSlope:
        return WeightedSlope(convolve(self.loss, self.d.kernel, width), offset)

    def _target(self) -> tuple[float, float]:
        """Return a private median and scale of the target."""
        rows, std = self.d.rows, self.terms["targets"]["std"]
        low, high = self._target_range()
        centre, width = (low + high) / 2, (high - low) / 2
        median = private_quantile(
            rows.sum_targets, _target_of, 0.5, centre, 1.2 * width, CENTRE_STEPS, 0.82, std, self.n,
            self.noise,
        )  # fmt: skip
        scale = private_quantile(
            rows.sum_targets, lambda y, w: np.log2(np.abs(y - median) + 1e-300), 0.5,
            math.log2(width / 4), 5.0, SCALE_STEPS, 0.8, std, self.n, self.noise,
        )  # fmt: skip
        return median, 1.48 * 2.0 ** min(scale, math.log2(width))

    def _target_range(self) -> tuple[float, float]:
        """Return a bracket of the targets: octaves that surely hold some, or the public range."""
        half = TARGET_BINS // 2
        sizes = np.concatenate([[0.0], 2.0 ** np.linspace(-16, 15, half)])
        edges = np.concatenate([-sizes[:0:-1], sizes])
        std = self.terms["octaves"]["std"]
        found = Sketch.release(
            self.d.rows.sum_targets, _target_of, edges, self.n, std, self.noise
        )
        sure = np.flatnonzero(found.counts > 4 * std)
        if not sure.size or found.counts[sure].sum() < 0.5 * self.n:
            return -1.0, 1.0
        return float(edges[sure[0]]), float(edges[sure[-1] + 1])

    def _residuals(self, phi: Array, scale: float, level: float) -> tuple[float, float]:
        """Return a private scale of the residuals, and their quantile at the wanted level."""
        theta = self.frame.to_rows(phi)
        predicted = self.d.rows.reweighted(lambda block, w: block @ theta)
        std = self.terms["residuals"]["std"]
        size = private_quantile(
            predicted.sum_targets, lambda y, z: np.log2(np.abs(y - z) + 1e-300), 0.5,
            math.log2(scale / 2), 4.0, SCALE_STEPS, 0.8, std, self.n, self.noise,
        )  # fmt: skip
        found = min(1.48 * 2.0**size, 1.5 * scale)
        shift = private_quantile(
            predicted.sum_targets, lambda y, z: y - z, level, found * float(ndtri(level)),
            2.5 * found, SHIFT_STEPS, 0.85, std, self.n, self.noise,
        )  # fmt: skip
        return found, shift

    # -- margins --------------------------------------------------------------------------------------------------

    def _margins(self) -> Array:
        width = self.d.settings["bandwidth"]
        loss = self.loss
        if not math.isfinite(loss.smoothness):
            loss = convolve(loss, self.d.kernel, width or 0.5)
        steps = self.terms["gradients"]["releases"]
        self.wander = self._random_walk(P["m_progress"])
        progress = P["m_progress"] / math.sqrt(1 + self.wander / P["m_wander"])
        rates = progress / steps * decaying(steps, P["m_decay"])
        phi = np.zeros(self.frame.matrix.shape[0])
        phi = self._descend(phi, "gradients", self.capped, ClippedSlope(loss), rates, P["m_kept"])
        self.rates = rates
        return self._calibrated(phi)

    def _random_walk(self, progress: float) -> float:
        """Return the variance of the margin if nothing but noise moved it: what the descent must be worth."""
        term = self.terms["gradients"]
        noise = progress * self.frame.typical * term["std"] / self.n
        return float(self.frame.moments.sum()) * noise**2 / (3 * term["releases"])

    def _calibrated(self, phi: Array) -> Array:
        """Put slope and intercept of the margin right, from a noisy histogram of margins by label."""
        lead = self.frame.lead
        (positive,) = self.d.rows.sum_targets(_count_positive)
        std = self.terms["labels"]["std"]
        share = float(self.noise.add_gaussian(np.asarray(positive), std)[0]) / self.n
        unsure = max(0.5 * std / self.n, 0.5 / self.n)
        share = float(np.clip(share, unsure, 1 - unsure)) if unsure < 0.5 else 0.5
        direction = phi.copy()
        direction[:lead] = 0.0
        theta = self.frame.to_rows(direction)
        margins = self.d.rows.reweighted(lambda block, w: block @ theta)
        middle, spread = self._margin_range(margins, direction)
        edges = np.linspace(-3.2, 3.2, MARGIN_BINS + 1)
        inner = middle + spread * edges[1:-1]

        def part(y: Array, z: Array) -> tuple[Array]:
            places = np.searchsorted(inner, z) + MARGIN_BINS * (y > 0)
            return (np.bincount(places, minlength=2 * MARGIN_BINS).astype(float),)

        (counts,) = margins.sum_targets(part)
        std = self.terms["margins"]["std"]
        counts = self.noise.add_gaussian(np.asarray(counts), std).reshape(2, MARGIN_BINS)
        own = spread * self._signal_share(phi, "gradients")
        intercept, slope = calibration(counts, edges, share, self.n, std, own)
        self.released["calibration"] = [float(intercept), float(slope)]
        self.released["own_slope"] = [spread, own]
        self.released["positive_share"] = share
        most = P["m_steepen"] / (1 + (self.wander / P["m_hopeless"]) ** 2)
        factor = min(slope / spread, most)
        phi = factor * direction
        if lead:
            phi[0] = intercept - factor * middle
        return phi

    def _margin_range(self, margins: Any, direction: Array) -> tuple[float, float]:
        """Return a private middle and spread of the margins."""
        std = self.terms["margin range"]["std"]
        guess = math.sqrt(float(self.frame.moments @ direction**2)) + 1e-9
        middle = private_quantile(
            margins.sum_targets, lambda y, z: z, 0.5, 0.0, 2 * guess, RANGE_STEPS, 0.75, std, self.n,
            self.noise,
        )  # fmt: skip
        size = private_quantile(
            margins.sum_targets, lambda y, z: np.log2(np.abs(z - middle) + 1e-300), 0.5,
            math.log2(guess / 1.5), 3.0, RANGE_STEPS, 0.75, std, self.n, self.noise,
        )  # fmt: skip
        return middle, 1.48 * 2.0**size

    def _signal_share(self, phi: Array, phase: str) -> float:
        """Return which share of the squared spread of the margin is not noise, as far as is known."""
        lead, moments, term = self.frame.lead, self.frame.moments, self.terms[phase]
        gains = noise_gain(self.rates, P["m_curvature"] * moments, P["m_kept"])
        noise = self.frame.typical * term["std"] / self.n
        expected = float((moments * gains)[lead:].sum()) * noise**2
        length = float(moments[lead:] @ phi[lead:] ** 2)
        self.released["noise_share"] = [expected / max(length, 1e-300), self.wander]
        return max(0.0, 1 - expected / max(length, 1e-300)) / (1 + (self.wander / P["m_hopeless"]) ** 2)

    def _smooth(self) -> Array:
        """Descend with one rate: the loss has a scale of its own."""
        phi = np.zeros(self.frame.matrix.shape[0])
        rates = np.full(self.terms["gradients"]["releases"], 1 / (self.loss.smoothness + self.d.alpha))
        return self._descend(phi, "gradients", self.weighted, WeightedSlope(self.loss), rates, 0.6)

    # -- shared ---------------------------------------------------------------------------------------------------

    def _shrunk(
        self, found: Array, start: Array, phase: str, rates: Array, curvature: float, kept: float, scale: float
    ) -> Array:
        """Take back what noise alone could have moved: a James-Stein factor on the way from the start."""
        lead, moments = self.frame.lead, self.frame.moments
        term = self.terms[phase]
        gains = noise_gain(rates, curvature * min(1.0, self.plan.clip) * moments, kept)
        expected = float((moments * gains).sum()) * (self.frame.typical * term["std"] / self.n) ** 2
        way = found - start
        length = float(moments @ way**2)
        factor = max(0.0, 1 - P["js"] * expected / max(length, 1e-300))
        hopeless = expected / scale**2
        factor /= 1 + P["hopeless"] * hopeless
        self.released.setdefault("kept", {})[phase] = factor
        return start + factor * way

    def _descend(
        self, start: Array, phase: str, rows: Any, slope: Any, rates: Array, averaged: float
    ) -> Array:
        """Return the mean of the last iterates of noisy descent."""
        term, frame, alpha = self.terms[phase], self.frame, self.d.alpha
        steps, std = term["releases"], term["std"]
        first_kept = steps - max(1, round(averaged * steps))
        phi, kept = start.copy(), np.zeros_like(start)
        square = alpha * (frame.matrix @ frame.matrix.T)
        for step, rate in enumerate(rates):
            (total,) = rows.combine(frame.to_rows(phi), slope)
            exact = frame.matrix @ np.asarray(total) / frame.typical
            gradient = self.noise.add_gaussian(exact, std) * frame.typical / self.n
            phi = phi - rate * gradient
            if alpha:  # an implicit step on the penalty: stable whatever alpha and the rate
                phi = np.linalg.solve(np.eye(phi.size) + rate * square, phi)
            if step >= first_kept:
                kept += phi
        return kept / (steps - first_kept)


def _count_positive(y: Array, w: Array) -> tuple[Array]:
    return (np.array([np.count_nonzero(y > 0)], dtype=float),)


def calibration(
    counts: Array, edges: Array, share: float, n_samples: int, std: float, own: float
) -> tuple[float, float]:
    """Return intercept and slope of ``logit P(y = 1)`` on a margin of unit spread, from noisy counts by label.

    The slope solves the likelihood equation of the binned margins, the intercept is the one with which the mean
    probability is the released share of positives. Noise pulls the slope to what the descent itself claims.
    """
    middles = (edges[1:] + edges[:-1]) / 2
    normal = np.diff(ndtr(np.r_[-np.inf, edges[1:-1], np.inf]))
    total = counts.sum(axis=0) / n_samples
    feigned = std / n_samples * math.sqrt(2 * middles.size)
    sizes = np.maximum(total, 0.0) + feigned * normal
    sizes = sizes / sizes.sum()
    base = float(logit(share))

    def intercept_for(slope: float) -> float:
        low, high = base - 60.0, base + 60.0
        for _ in range(50):
            middle = (low + high) / 2
            if float(sizes @ expit(middle + slope * middles)) > share:
                high = middle
            else:
                low = middle
        return (low + high) / 2

    # The sum over positives of the margin minus its expectation is linear in the counts: noise does not bias it.
    moment = float(counts[1] @ middles) / n_samples

    def gap(slope: float) -> float:
        chances = expit(intercept_for(slope) + slope * middles)
        return moment - float(total @ (chances * middles))

    claimed = min(P["m_claim"] * own, P["m_steepest"])
    prior = P["m_prior"] * claimed + P["m_prior_least"]
    slope = claimed
    for _ in range(30):  # damped Newton steps on the posterior
        chances = expit(intercept_for(slope) + slope * middles)
        weight = chances * (1 - chances)
        mean = float(sizes @ (weight * middles)) / max(float(sizes @ weight), 1e-12)
        information = max(float(sizes @ (weight * (middles - mean) ** 2)), 1e-9)
        noise = std / n_samples * math.sqrt(
            float((((1 - chances) ** 2 + chances**2) * (middles - mean) ** 2).sum())
        )
        precision = information**2 / noise**2
        move = (gap(slope) / information * precision + (claimed - slope) / prior**2) / (
            precision + 1 / prior**2
        )
        slope = max(0.0, slope + float(np.clip(move, -0.5, 0.5)))
        if abs(move) < 1e-6:
            break
    return intercept_for(slope), slope
