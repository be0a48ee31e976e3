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
from dataclasses import dataclass, replace
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
    averaged_steps,
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
_SURE_RATE, _BELIEVED = 0.7, 1000.0  # where many records tell the curvature, and how many half do
_BEND, _SURE_BEND = 0.5, 0.9  # of the curvature: what pulls noise back where rows are unlike
_HINGE_BANDWIDTH = 0.5
_PROGRESS, _FASTEST = (
    300.0,
    10.0,
)  # of a margin's descent: sum of its rates, and the largest mean rate
_LAST_RATE = 0.5  # of the first rate
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
_CLIP_OPEN = 6e4  # records from which on clips do not bind, and a margin needs no calibration


def decaying_rates(steps: int) -> Array:
    """Return factors of mean 1 that fall geometrically to half the first."""
    factors = _LAST_RATE ** np.linspace(0.0, 1.0, steps)
    return np.asarray(factors / factors.mean())


@dataclass(frozen=True)
class Steps:
    """What is public about the steps of one descent.

    Attributes
    ----------
    stds : array of shape (steps,)
        Noise on each sum of gradients, in units of a typical row.
    rows : array of shape (steps,)
        How many rows each sum is over.
    kept : int
        How many of the last iterates are averaged.
    filled : float
        What a row counts for on average.
    """

    stds: Array
    rows: Array
    kept: int
    filled: float = 1.0

    def after(self, counted: int) -> Steps:
        """Return the steps that are left when the first ones counted something else."""
        stds = self.stds[counted:]
        return replace(
            self, stds=stds, rows=self.rows[counted:], kept=min(self.kept, max(1, stds.size))
        )

    def noise_gain(self, rates: Array, curvature: Array, unit: float) -> Array:
        """Return the variance of the mean of kept iterates of ``x <- x - rate (curvature x + noise)``.

        Noise has the standard deviation ``unit * stds / (filled * rows)``.
        """
        steps, total = rates.size, np.zeros(curvature.size)
        for step in range(steps):
            moved, weight = np.full(curvature.size, rates[step]), np.zeros(curvature.size)
            for later in range(step, steps):
                if later > step:
                    moved = moved * np.clip(1 - rates[later] * curvature, 0.0, 1.0)
                if later >= steps - self.kept:
                    weight += moved / self.kept
            std = unit * self.stds[step] / (self.filled * self.rows[step])
            total += (weight * std) ** 2
        return total

    def wander(self, progress: float, unit: float) -> float:
        """Return the variance of a coordinate at the end if noise moved it alone, by rates that add up to progress."""
        noise = progress * unit * self.stds / (self.filled * self.rows)
        return float(noise @ noise) / (3 * noise.size**2)


def descent_steps(
    phase: str, bounds: LinearBounds, course: Course, terms: Mapping[str, NoiseTerm]
) -> Steps:
    """Return the steps of a descent.

    Those on a part of the rows are all of the rough descent of a quantile, which the other one corrects, and the early
    ones of the final one.
    """
    last, every = terms[phase], float(bounds.n_samples)
    part = every if course.stepped_on is None else float(course.stepped_on)
    if phase == "rough gradients":
        number = last.releases // course.targets
        return Steps(np.full(number, last.scale), np.full(number, part), averaged_steps(number))
    number = last.releases // course.fits
    if not course.early:
        return Steps(np.full(number, last.scale), np.full(number, every), averaged_steps(number))
    first = terms["early gradients"]
    counts = (course.early, number)
    return Steps(
        np.repeat([first.scale, last.scale], counts), np.repeat([part, every], counts), counts[1]
    )


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
        self.hopeless = (
            0.0  # how far noise alone would have led, in units of where a fit is given up
        )
        # Searches are on the rows whose geometry is looked at: which ones follows from their public number.
        self.few_n = self.n if plan.looked_at is None else plan.looked_at
        self.few_rows = rows if plan.looked_at is None else rows.part(plan.looked_at)
        self.mass = float(self.n)  # what all records count for

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

    @property
    def few_mass(self) -> float:
        """What the rows that are looked at count for."""
        return self.few_n * self.mass / self.n

    def _count_votes(self) -> float:
        """Return what all records count for: a noisy number, at least a hundredth of theirs."""

        def part(y: Array, w: Array, v: Array) -> tuple[Array]:
            return (np.array([v.sum()]),)

        (exact,) = self.rows.sum_targets(part)
        found = float(self.noise.add_gaussian(np.asarray(exact), self.terms["mass"]["std"])[0])
        return min(max(found, _LEAST_MASS * self.n), float(self.n))

    def _quantile(self, rows: Rows) -> Array:
        """Descend to the median, move the intercept to the level, descend at the level."""
        return self._at_level(rows, *self._median(rows))

    def _median(self, rows: Rows) -> tuple[Array, Array, float]:
        """Return where the intercept starts, roughly the median's coefficients, and the scale of the target."""
        lead = self.frame.lead
        low, high = self.loss.slope_range
        start = np.zeros(self.frame.matrix.shape[0])
        middle, scale = self._target()
        start[:lead] = middle
        curvature = (high - low) * MIDDLE_HEIGHT / scale
        slope = WeightedSlope(self._smoothed(_ROUGH_WIDTH * scale), (low + high) / 2)
        bend, rate = _BEND * curvature, _ROUGH_RATE / curvature
        found = self._gone(rows, start, "rough gradients", slope, rate, bend, scale)
        # Where the start went most of the way at once, the intercept does not go back to the median.
        found[:lead] += self._gone_at_once * (start[:lead] - found[:lead])
        return start[:lead], found, scale

    def _at_level(
        self, rows: Rows, constant: Array, found: Array, scale: float, pull: Array | None = None
    ) -> Array:
        """Move the intercept of the median to the level, and descend there.

        With ``pull``, the released constant part of the mean gradient, slopes are centred.
        """
        lead, level = self.frame.lead, level_of(self.loss)
        low, high = self.loss.slope_range
        scale, shift = self._residuals(found, scale, level)
        self.released["residual_scale"] = scale
        start = found.copy()
        start[:lead] = np.clip(start[:lead] + shift, *self.bracket)
        # As steep as in the middle of a law, whatever the level: where some rows lie denser steps must not overshoot.
        # With many records the density that was found is believed.
        believed = self.plan.records / (self.plan.records + _BELIEVED)
        middle, found_density = MIDDLE_HEIGHT / scale, level * (1 - level) * NORMAL_SCALE / scale
        bend = (high - low) * (
            _BEND * middle + believed * (_SURE_BEND * found_density - _BEND * middle)
        )
        steepest = middle / _RATE + believed * (found_density / _SURE_RATE - middle / _RATE)
        offset = 0.0 if pull is None else (low + high) / 2
        slope = WeightedSlope(self._smoothed(BANDWIDTH_SHARE * scale), offset)
        rate = 1 / (steepest * (high - low))
        if self._shares_start:
            constant = start[:lead]
        return self._gone(rows, start, "gradients", slope, rate, bend, scale, constant, pull)

    def _smoothed(self, width: float) -> Loss:
        return convolve(self.loss, self.kernel, width if self.bandwidth is None else self.bandwidth)

    def _gone(
        self,
        rows: Rows,
        start: Array,
        phase: str,
        slope: RowFunction,
        rate: float,
        bend: float,
        scale: float,
        constant: Array | None = None,
        pull: Array | None = None,
    ) -> Array:
        """Descend, and keep of the way what noise alone would not have gone: from a constant on, if one is given."""
        steps, lead = self._steps(phase), self.frame.lead
        rates = rate * decaying_rates(steps.stds.size)
        wander = self._wander(steps, float(rates.sum())) / scale**2
        rates = rates / math.sqrt(1 + wander / _SLOWED)
        phi, origin = self._descend(rows, start, steps, slope, rates, pull), start
        if constant is not None:
            origin = np.zeros_like(start)
            origin[:lead] = phi[:lead] + self._gone_at_once * (constant - phi[:lead])
        # What is left of the rough descent's noise is not in that of the final one: it counts while records are few.
        few = self.plan.few
        certain = _CERTAIN_NOISE + (few**2 if constant is None else few)
        self.hopeless = max(self.hopeless, wander / _HOPELESS)
        factor = self._signal(phi - origin, steps, rates, bend * min(1.0, self.plan.clip), certain)
        factor /= 1 + self.hopeless**2
        self.released["kept_share"] = max(factor, self.released.get("kept_share", 0.0))
        return np.asarray(origin + factor * (phi - origin))

    def _steps(self, phase: str) -> Steps:
        steps = descent_steps(phase, self.bounds, self.plan, self.terms)
        return replace(steps, filled=self.mass / self.n)

    def _wander(self, steps: Steps, progress: float) -> float:
        """Return the variance of predictions at the end if nothing but noise moved them."""
        return float(self.frame.moments.sum()) * steps.wander(progress, self.frame.typical)

    def _signal(
        self, way: Array, steps: Steps, rates: Array, curvature: float, certain: float
    ) -> float:
        """Return which share of the squared length of a way is not noise, if a given part of the expected noise is."""
        expected = self._expected_noise(steps, rates, curvature)
        length = float(self.frame.moments @ way**2)
        return max(0.0, 1 - certain * expected / max(length, 1e-300))

    def _expected_noise(self, steps: Steps, rates: Array, curvature: float) -> float:
        """Return the variance that noise gives predictions at the end of a descent."""
        frame = self.frame
        gains = steps.noise_gain(rates, curvature * frame.moments, frame.typical)
        return float(frame.moments @ gains)

    def _target(self) -> tuple[float, float]:
        """Return a private median and scale of the target; where records are few, the wanted quantile itself."""
        low, high = self._target_range()
        width, level = high - low, self._first_level
        belief = Belief(low, high, 2.0**-18 * width, width / 4)
        counting = (self.terms["targets"]["std"], self.few_mass, self.noise)
        middle, scale = private_location(
            self.few_rows.counter(_target_of), level, belief, TARGET_STEPS, *counting
        )
        return middle, min(NORMAL_SCALE * scale, width / 2)

    @property
    def _shares_start(self) -> bool:
        """Whether several levels of one target start at its median."""
        return self.plan.fits > self.plan.targets

    @property
    def _first_level(self) -> float:
        if self._shares_start:
            return 0.5
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

        (exact,) = self.few_rows.sum_targets(part)
        counts = self.noise.add_gaussian(np.asarray(exact), std)
        sure = np.flatnonzero(counts > 4 * std)
        if not sure.size or counts[sure].sum() < 0.5 * self.few_mass:
            self.bracket = (-1.0, 1.0)
        else:
            low, high = float(edges[sure[0]]), float(edges[sure[-1] + 1])
            self.bracket = (2 * low - high, 2 * high - low)  # rare targets lie beyond
        return self.bracket

    def _residuals(self, phi: Array, scale: float, level: float) -> tuple[float, float]:
        """Return a private scale of the residuals, and their quantile at the wanted level."""
        below = self.few_rows.predicted(self.frame.to_rows(phi)).counter(_residual_of)
        counting = (self.terms["residuals"]["std"], self.few_mass, self.noise)
        # As far as a normal law says, and thrice as far; where records are few the way has been gone already.
        guess = 3 * scale * float(ndtri(level) - ndtri(self._first_level))
        reach = 2 * scale * (1 if self._shares_start else 1 - self._gone_at_once)
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
        share, counted = positive_share(self.rows, self.mass, self.terms, self.noise)
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
        progress /= math.sqrt(1 + wander / _MARGIN_SLOWED)
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
        hope = 1 / (1 + (wander / _MARGIN_HOPELESS) ** 2)
        # Rare labels bend the loss less, and noise goes further.
        bend = _MARGIN_CURVATURE * 4 * share * (1 - share)
        certain = _CERTAIN_NOISE + _MARGIN_CAUTION * self.plan.few
        signal = hope * self._signal(way, steps, rates, bend, certain)
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
        margins = self.few_rows.predicted(theta)
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
            counts / self.few_mass,
            std / self.few_mass,
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
        counting = (self.terms["margin range"]["std"], self.few_mass, self.noise)
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
        steps = self._steps("gradients")
        rates = np.full(steps.stds.size, rate)
        return self._descend(rows, start, steps, WeightedSlope(self.loss), rates)

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
    terms = {name: phase.term(mu) for name, phase in plan.phases.items()}
    name = "gradients" if margin else "rough gradients"
    steps = descent_steps(name, bounds, plan.course, terms)
    progress = margin_descent_progress(steps.stds.size, plan.course.records)
    if not margin:
        low, high = bounds.loss.slope_range
        progress = _ROUGH_RATE * steps.stds.size / ((high - low) * MIDDLE_HEIGHT)
    usual = 1 + bounds.n_features
    found = bounds.dimension * steps.wander(progress, math.sqrt(usual))
    return found / (_MARGIN_HOPELESS if margin else _HOPELESS)


def gradient_sum(rows: Rows, frame: Coordinates, phi: Array, slope: RowFunction) -> Array:
    """Return the sum of the records' gradients at ``phi``, in units of a typical row."""
    (total,) = rows.combine(frame.to_rows(phi), slope)
    return frame.of_sum(np.asarray(total)) / frame.typical


def _target_of(y: Array, w: Array) -> Array:
    return y


def _residual_of(y: Array, z: Array) -> Array:
    return y - z
