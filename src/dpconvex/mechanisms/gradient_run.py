r"""Noisy descent in private coordinates: quantiles by way of the median, margins with a calibration at the end.

Quantiles: a private start and scale of the target; the median, whose slopes are symmetric and whose curvature is
largest; noisy counts of the residuals, which give their scale and move the intercept to the wanted level; then the
level itself. Each descent keeps of its way what noise alone would not have gone (a James-Stein factor), and next to
nothing where noise is expected to exceed what there is to gain: what is left is the private constant it started from.

Margins: gradients are clipped record by record, so slopes of records far on the wrong side saturate; a noisy histogram
of margins by label then puts slope and intercept right, or takes the columns out of a hopeless fit. Where only the
order of margins matters, that is left out, and its budget goes to the descent. Where one of the labels could be absent,
releases count labels instead, and the fit is a constant.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit, ndtri

from dpconvex.engine.rows import RowFunction, Rows
from dpconvex.losses import Loss, PointwiseLoss
from dpconvex.mechanisms.gradient_geometry import Coordinates, Look, private_coordinates
from dpconvex.mechanisms.gradient_margins import margin_calibration
from dpconvex.mechanisms.gradient_plan import (
    MARGIN_BINS,
    MIDDLE_HEIGHT,
    NORMAL_SCALE,
    RANGE_STEPS,
    RESIDUAL_STEPS,
    TARGET_BINS,
    TARGET_STEPS,
    Course,
    GradientPlan,
    level_of,
)
from dpconvex.mechanisms.label_counts import positive_share
from dpconvex.mechanisms.quantile_location import Belief, private_location
from dpconvex.mechanisms.quantile_search import Walk, private_quantile
from dpconvex.objectives.slopes import ClippedSlope, WeightedSlope
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.terms import NoiseTerm
from dpconvex.privacy.description import Facts
from dpconvex.privacy.noise import NoiseSource
from dpconvex.smoothing import Kernel, convolve

Array = NDArray[np.float64]

# Bandwidths in units of the scale: a fit that explains nearly all may leave far less than the first one.
_ROUGH_WIDTH, BANDWIDTH_SHARE = 0.4, 0.06
_FAR, _FAR_STDS = 0.8, 1.2816  # that share of a normal law lies within so many standard deviations
_ROUGH_RATE, _RATE = 1.6, 0.4  # in units of the inverse curvature
_HINGE_BANDWIDTH = 0.5
_PROGRESS, _FASTEST = (
    300.0,
    10.0,
)  # of a margin's descent: sum of its rates, and the largest mean rate
_LAST_RATE = 0.5  # of the first rate
_KEPT = 0.5  # iterates that are averaged
_MARGIN_CURVATURE = 0.1
# Variances that noise would give predictions without data, in units of the residual scale squared (of 1 for margins):
# where progress is slowed down, and where what was found is given up.
_SLOWED, _HOPELESS = 2.0, 16.0
_MARGIN_SLOWED, _MARGIN_HOPELESS = 10.0, 100.0
_CERTAIN_NOISE = 0.25  # of the expected noise, which ways are shortened for: most of it lies where it matters little
_MARGIN_CAUTION = (
    8.0  # how much more of it where records are few: probabilities that are too sure cost much
)
_STEEPEST = 4.0  # factor by which calibration may stretch a margin
_CONSTANT_PAYS = (
    40.0  # records from which on a ranking gains more by a free intercept than it costs
)
_LEAST_MASS = 0.01  # of the number of records: they count for at least so much, noise or not
_CLIP_OPEN = 2e4  # records from which on clips do not bind, and a margin needs no calibration


def decaying_rates(steps: int) -> Array:
    """Return factors of mean 1 that fall geometrically to half the first."""
    factors = _LAST_RATE ** np.linspace(0.0, 1.0, steps)
    return np.asarray(factors / factors.mean())


def averaged_steps(steps: int) -> int:
    """Return how many of the last iterates are averaged."""
    return max(1, round(_KEPT * steps))


def descent_noise_gain(rates: Array, curvature: Array, noise: Array) -> Array:
    """Return the variance of the mean of later iterates of ``x <- x - rate (curvature x + noise)``, by its std."""
    steps = rates.size
    count = averaged_steps(steps)
    total = np.zeros(curvature.size)
    for step in range(steps):
        moved, weight = np.full(curvature.size, rates[step]), np.zeros(curvature.size)
        for later in range(step, steps):
            if later > step:
                moved = moved * np.clip(1 - rates[later] * curvature, 0.0, 1.0)
            if later >= steps - count:
                weight += moved / count
        total += (weight * noise[step]) ** 2
    return total


def rows_of_steps(steps: int, bounds: LinearBounds, course: Course, phase: str) -> Array:
    """Return how many rows each step of a descent is on.

    Part of them in the rough descent of a quantile, which the other one corrects, and else in steps that are not
    averaged.
    """
    early = steps - averaged_steps(steps)
    if not math.isfinite(bounds.loss.smoothness) and bounds.loss.kind == "residual":
        early = steps if phase == "rough gradients" else 0
    rows = np.full(steps, float(bounds.n_samples))
    if course.stepped_on is not None:
        rows[:early] = course.stepped_on
    return rows


class PrivateDescent:
    """One run on data; :meth:`run` returns coefficients of mapped rows.

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
        self.mass = float(self.n)  # what all records count for
        self.counted = 0  # steps of a margin's descent that counted labels

    def run(self) -> Array:
        """Find coordinates, descend, and return to the rows' own."""
        bounds, plan = self.bounds, self.plan
        if "mass" in self.terms:
            self.mass = self.released["mass"] = self._count_votes()
        look = Look(
            self.n, plan.looked_at, bounds.fit_intercept, bounds.max_norm, plan.reach, plan.floor,
            plan.trust, bounds.most_cancellation(),
            lighter=plan.ranking / (1 + (plan.records / _CONSTANT_PAYS) ** 2),
            filled=self.mass / self.n,
        )  # fmt: skip
        self.frame, measured = private_coordinates(self.rows, look, self.terms, self.noise)
        self.released["coordinates"] = self.frame.matrix
        clip = self.plan.clip * self.frame.typical
        if self.loss.kind == "margin":
            weighted = measured.rescaled(lambda lengths: clip / lengths)
            del measured  # a number per row that is not needed any more
            phi = self._margins(weighted)
        else:
            weighted = measured.rescaled(lambda lengths: np.minimum(1.0, clip / lengths))
            del measured
            kinked = not math.isfinite(self.loss.smoothness)
            phi = self._quantile(weighted) if kinked else self._smooth(weighted)
        return self.frame.to_rows(phi)

    def _count_votes(self) -> float:
        """Return what all records count for: a noisy number, at least a hundredth of theirs."""

        def part(y: Array, w: Array, v: Array) -> tuple[Array]:
            return (np.array([v.sum()]),)

        (exact,) = self.rows.sum_targets(part)
        found = float(self.noise.add_gaussian(np.asarray(exact), self.terms["mass"]["std"])[0])
        return min(max(found, _LEAST_MASS * self.n), float(self.n))

    def _quantile(self, rows: Rows) -> Array:
        """Descend to the median, move the intercept to the level, descend at the level."""
        lead, level = self.frame.lead, level_of(self.loss)
        low, high = self.loss.slope_range
        start = np.zeros(self.frame.matrix.shape[0])
        middle, scale = self._target()
        start[:lead] = middle
        curvature = (high - low) * MIDDLE_HEIGHT / scale
        slope = WeightedSlope(self._smoothed(_ROUGH_WIDTH * scale), (low + high) / 2)
        found = self._gone(rows, start, "rough gradients", slope, _ROUGH_RATE, curvature, scale)
        # Where the start went most of the way at once, the intercept does not go back to the median.
        found[:lead] += self._gone_at_once * (start[:lead] - found[:lead])
        scale, shift = self._residuals(found, scale, level)
        self.released["residual_scale"] = scale
        start = found.copy()
        start[:lead] = np.clip(start[:lead] + shift, *self.bracket)
        # As steep as in the middle of a law, whatever the level: where some rows lie denser steps must not overshoot.
        curvature = (high - low) * MIDDLE_HEIGHT / scale
        slope = WeightedSlope(self._smoothed(BANDWIDTH_SHARE * scale))
        return self._gone(rows, start, "gradients", slope, _RATE, curvature, scale)

    def _smoothed(self, width: float) -> Loss:
        return convolve(self.loss, self.kernel, width if self.bandwidth is None else self.bandwidth)

    def _gone(
        self,
        rows: Rows,
        start: Array,
        phase: str,
        slope: RowFunction,
        speed: float,
        curvature: float,
        scale: float,
    ) -> Array:
        """Descend, and keep of the way what noise alone would not have gone."""
        steps = self.terms[phase]["releases"]
        rates = speed / curvature * decaying_rates(steps)
        wander = self._wander(phase, float(rates.sum())) / scale**2
        rates = rates / math.sqrt(1 + wander / _SLOWED)
        way = self._descend(rows, start, phase, slope, rates) - start
        certain = _CERTAIN_NOISE + self.plan.few
        factor = self._signal(
            way, phase, rates, 0.5 * curvature * min(1.0, self.plan.clip), certain
        )
        factor /= 1 + (wander / _HOPELESS) ** 2
        self.released["kept_share"] = max(factor, self.released.get("kept_share", 0.0))
        return start + factor * way

    def _wander(self, phase: str, progress: float) -> float:
        """Return the variance of predictions at the end if nothing but noise moved them."""
        steps = self._step_noise(phase)
        variance = float((progress * steps) @ (progress * steps)) / steps.size
        return float(self.frame.moments.sum()) * variance / (3 * steps.size)

    def _step_noise(self, phase: str) -> Array:
        """Return the noise of each step's mean gradient, per coordinate."""
        term = self.terms[phase]
        return self.frame.typical * term["std"] / (self._rows_of_steps(phase) * self.mass / self.n)

    def _rows_of_steps(self, phase: str) -> Array:
        steps = self.terms[phase]["releases"] - self.counted
        return rows_of_steps(steps, self.bounds, self.plan, phase)

    def _signal(
        self, way: Array, phase: str, rates: Array, curvature: float, certain: float
    ) -> float:
        """Return which share of the squared length of a way is not noise, if a given part of the expected noise is."""
        gains = descent_noise_gain(rates, curvature * self.frame.moments, self._step_noise(phase))
        expected = float(self.frame.moments @ gains)
        length = float(self.frame.moments @ way**2)
        return max(0.0, 1 - certain * expected / max(length, 1e-300))

    def _target(self) -> tuple[float, float]:
        """Return a private median and scale of the target; where records are few, the wanted quantile itself."""
        low, high = self._target_range()
        width, level = high - low, self._first_level
        belief = Belief(low, high, 2.0**-18 * width, width / 4)
        counting = (self.terms["targets"]["std"], self.mass, self.noise)
        middle, scale = private_location(
            self.rows.counter(_target_of), level, belief, TARGET_STEPS, *counting
        )
        return middle, min(NORMAL_SCALE * scale, width / 2)

    @property
    def _first_level(self) -> float:
        return 0.5 + self._gone_at_once * (level_of(self.loss) - 0.5)

    @property
    def _gone_at_once(self) -> float:
        """Share of the way from the median to the level that the start goes: all of it where records are few."""
        return 1 - (1 - self.plan.few) ** 4

    def _target_range(self) -> tuple[float, float]:
        """Return a bracket of the targets: octaves that surely hold some, or the public range."""
        sizes = np.concatenate([[0.0], 2.0 ** np.linspace(-16, 15, TARGET_BINS // 2)])
        edges = np.concatenate([-sizes[:0:-1], sizes])
        std = self.terms["octaves"]["std"]

        def part(y: Array, w: Array, v: Array) -> tuple[Array]:
            # The outermost bins take all that is beyond.
            places = np.searchsorted(edges[1:-1], y, side="right")
            return (np.asarray(np.bincount(places, v, minlength=edges.size - 1), np.float64),)

        (exact,) = self.rows.sum_targets(part)
        counts = self.noise.add_gaussian(np.asarray(exact), std)
        sure = np.flatnonzero(counts > 4 * std)
        if not sure.size or counts[sure].sum() < 0.5 * self.mass:
            self.bracket = (-1.0, 1.0)
        else:
            low, high = float(edges[sure[0]]), float(edges[sure[-1] + 1])
            self.bracket = (2 * low - high, 2 * high - low)  # rare targets lie beyond
        return self.bracket

    def _residuals(self, phi: Array, scale: float, level: float) -> tuple[float, float]:
        """Return a private scale of the residuals, and their quantile at the wanted level."""
        below = self.rows.predicted(self.frame.to_rows(phi)).counter(_residual_of)
        counting = (self.terms["residuals"]["std"], self.mass, self.noise)
        # As far as a normal law says, and thrice as far; where records are few the way has been gone already.
        guess = 3 * scale * float(ndtri(level) - ndtri(self._first_level))
        reach = 2 * scale * (1 - self._gone_at_once)
        belief = Belief(
            min(0.0, guess) - reach, max(0.0, guess) + reach, 2.0**-10 * scale, 2 * scale
        )
        shift, found = private_location(below, level, belief, RESIDUAL_STEPS, *counting)
        return NORMAL_SCALE * found, shift

    def _margins(self, rows: Rows) -> Array:
        """Descend with clipped slopes from the released share of positives, then calibrate."""
        loss, lead, records = self.loss, self.frame.lead, self.plan.records
        if not math.isfinite(loss.smoothness):
            loss = convolve(loss, self.kernel, self.bandwidth or _HINGE_BANDWIDTH)
        share, self.counted = positive_share(self.rows, self.mass, self.terms, self.noise)
        self.released["positive_share"] = share
        steps = self.terms["gradients"]["releases"] - self.counted
        if not steps:
            constant = np.zeros(self.frame.matrix.shape[0])
            if lead and not self.plan.ranking:
                constant[0] = float(logit(share)) / self.frame.constant
            self.released["kept_share"] = 0.0
            return constant
        progress = margin_descent_progress(steps, records)
        wander = self._wander("gradients", progress)
        progress /= math.sqrt(1 + wander / _MARGIN_SLOWED)
        start = np.zeros(self.frame.matrix.shape[0])
        if lead:
            start[0] = float(np.clip(logit(share), -5.0, 5.0)) / self.frame.constant
        rates = progress / steps * decaying_rates(steps)
        phi = self._descend(rows, start, "gradients", ClippedSlope(loss), rates)
        if self.plan.ranking:  # 0 is then the threshold for classes of equal weight
            phi[:lead] -= start[:lead]
            return phi
        way = phi - start
        way[:lead] = 0.0
        hope = 1 / (1 + (wander / _MARGIN_HOPELESS) ** 2)
        # Rare labels bend the loss less, and noise goes further.
        bend = _MARGIN_CURVATURE * 4 * share * (1 - share)
        certain = _CERTAIN_NOISE + _MARGIN_CAUTION * self.plan.few
        signal = hope * self._signal(way, "gradients", rates, bend, certain)
        calibrated = self._calibrated(phi, share, signal, hope)
        # Clips that do not bind leave nothing to be put right.
        blend = 1 / (1 + (records / _CLIP_OPEN) ** 2)
        return phi + blend * (calibrated - phi)

    def _calibrated(self, phi: Array, share: float, signal: float, hope: float) -> Array:
        """Put slope and intercept of the margin right, from a noisy histogram of margins by label."""
        lead = self.frame.lead
        direction = phi.copy()
        direction[:lead] = 0.0
        theta = self.frame.to_rows(direction)
        margins = self.rows.predicted(theta)
        middle, spread = self._margin_range(margins, direction)
        edges = np.linspace(-3.2, 3.2, MARGIN_BINS + 1)
        inner = middle + spread * edges[1:-1]

        def part(y: Array, z: Array, v: Array) -> tuple[Array]:
            places = np.searchsorted(inner, z) + MARGIN_BINS * (y > 0)
            return (np.asarray(np.bincount(places, v, minlength=2 * MARGIN_BINS), np.float64),)

        (counts,) = margins.sum_targets(part)
        std = self.terms["margins"]["std"]
        counts = self.noise.add_gaussian(np.asarray(counts), std).reshape(2, MARGIN_BINS)
        intercept, slope = margin_calibration(
            counts / self.mass,
            std / self.mass,
            edges,
            share,
            signal * spread,
            _STEEPEST * hope * spread,
        )
        factor = slope / spread
        self.released["calibration"] = np.array([intercept, factor])
        self.released["kept_share"] = signal
        calibrated = factor * direction
        if lead:
            calibrated[0] = intercept - factor * middle
        return calibrated

    def _margin_range(self, margins: Rows, direction: Array) -> tuple[float, float]:
        """Return a private middle and spread of the margins."""
        counting = (self.terms["margin range"]["std"], self.mass, self.noise)
        guess = math.sqrt(float(self.frame.moments @ direction**2)) + 1e-9
        middle = private_quantile(
            margins,
            lambda y, z: z,
            Walk(0.5, 0.0, 2 * guess, 8 * guess, RANGE_STEPS, 0.75),
            *counting,
        )

        def size(y: Array, z: Array) -> Array:
            return np.log2(np.abs(z - middle) + 1e-300)

        walk = Walk(_FAR, math.log2(_FAR_STDS * guess), 3.0, 6.0, RANGE_STEPS, 0.75)
        octave = private_quantile(margins, size, walk, *counting)
        return middle, 2.0**octave / _FAR_STDS

    def _smooth(self, rows: Rows) -> Array:
        """Descend with one rate: the loss has a scale of its own."""
        start = np.zeros(self.frame.matrix.shape[0])
        rate = 1 / (self.loss.smoothness + self.alpha)
        rates = np.full(self.terms["gradients"]["releases"], rate)
        return self._descend(rows, start, "gradients", WeightedSlope(self.loss), rates)

    def _descend(
        self, rows: Rows, start: Array, phase: str, slope: RowFunction, rates: Array
    ) -> Array:
        """Return the mean of the later iterates of noisy descent."""
        std, frame = self.terms[phase]["std"], self.frame
        first_kept = rates.size - averaged_steps(rates.size)
        sizes, filled = self._rows_of_steps(phase), self.mass / self.n
        early = rows if sizes[0] == self.n else rows.part(int(sizes[0]))
        phi, kept = start.copy(), np.zeros_like(start)
        for step, rate in enumerate(rates):
            exact = gradient_sum(early if sizes[step] < self.n else rows, frame, phi, slope)
            gradient = self.noise.add_gaussian(exact, std) * frame.typical / (sizes[step] * filled)
            phi = phi - rate * gradient
            if self.alpha:
                phi = frame.shrunk(phi, rate * self.alpha)
            if step >= first_kept:
                kept += phi
        return kept / (rates.size - first_kept)


def margin_descent_progress(steps: int, records: float) -> float:
    """Return the sum of the rates of a margin's descent: long steps while clips flatten the loss, stable ones later."""
    fastest = 4 + 6 / (1 + records / 4000)
    return min(_PROGRESS, fastest * steps)


def expected_wander(plan: GradientPlan, bounds: LinearBounds, mu: float) -> float:
    """Return how far noise alone is expected to lead the descent, in units of where it is given up; 0 if never.

    As in the run, with white coordinates and rows of their usual length ``sqrt(1 + n_features)``.
    """
    smooth_residual = bounds.loss.kind == "residual" and math.isfinite(bounds.loss.smoothness)
    if not plan.course.private or smooth_residual:
        return 0.0
    margin = bounds.loss.kind == "margin"
    name = "gradients" if margin else "rough gradients"
    phase = plan.phases[name]
    progress = margin_descent_progress(phase.releases, plan.course.records)
    if not margin:
        low, high = bounds.loss.slope_range
        progress = _ROUGH_RATE * phase.releases / ((high - low) * MIDDLE_HEIGHT)
    usual = 1 + bounds.n_features
    sizes = rows_of_steps(phase.releases, bounds, plan.course, name)
    noise = progress * phase.std(mu) * math.sqrt(float(np.mean(sizes**-2.0)))
    found = bounds.dimension * usual * noise**2 / (3 * phase.releases)
    return found / (_MARGIN_HOPELESS if margin else _HOPELESS)


def gradient_sum(rows: Rows, frame: Coordinates, phi: Array, slope: RowFunction) -> Array:
    """Return the sum of the records' gradients at ``phi``, in units of a typical row."""
    (total,) = rows.combine(frame.to_rows(phi), slope)
    return frame.of_sum(np.asarray(total)) / frame.typical


def _target_of(y: Array, w: Array) -> Array:
    return y


def _residual_of(y: Array, z: Array) -> Array:
    return y - z
