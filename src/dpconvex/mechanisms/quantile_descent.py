"""Noisy descent to a quantile, by way of the median.

A private start and scale of the target; the median, whose slopes are symmetric and whose curvature is largest; noisy
counts of the residuals, which give their scale and move the intercept to the wanted level; then the level itself. Each
descent keeps of its way what noise alone would not have gone (a James-Stein factor), and next to nothing where noise is
expected to exceed what there is to gain: what is left is the private constant it started from.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpconvex.engine.rows import RowFunction, Rows
from dpconvex.losses import Loss
from dpconvex.mechanisms.gradient_plan import (
    MIDDLE_HEIGHT,
    NORMAL_SCALE,
    RESIDUAL_STEPS,
    TARGET_STEPS,
    level_of,
)
from dpconvex.mechanisms.gradient_run import CERTAIN_NOISE, PrivateDescent
from dpconvex.mechanisms.gradient_steps import HOPELESS, ROUGH_RATE, decaying_rates
from dpconvex.mechanisms.quantile_location import (
    Belief,
    private_location,
    residual_of,
    target_bracket,
    target_of,
)
from dpconvex.objectives.slopes import WeightedSlope
from dpconvex.smoothing import convolve

Array = NDArray[np.float64]

# Bandwidths in units of the scale: a fit that explains nearly all may leave far less than the first one.
_ROUGH_WIDTH, BANDWIDTH_SHARE = 0.4, 0.06
_RATE = 0.4  # in units of the inverse curvature
_SURE_RATE, _BELIEVED = 0.7, 1000.0  # where many records tell the curvature, and how many half do
_BEND, _SURE_BEND = 0.5, 0.9  # of the curvature: what pulls noise back where rows are unlike
_UNCLEAR = 0.35  # share of noise in a way to a level of which half is kept
# Variance that noise would give predictions without data, in units of the residual scale squared: progress slows down.
_SLOWED = 2.0


class QuantileDescent(PrivateDescent):
    """A run for a kinked loss of residuals."""

    hopeless = 0.0  # how far noise alone would have led, in units of where a fit is given up

    def _find(self, rows: Rows) -> Array:
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
        bend, rate = _BEND * curvature, ROUGH_RATE / curvature
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
        certain = CERTAIN_NOISE + (few**2 if constant is None else few)
        self.hopeless = max(self.hopeless, wander / HOPELESS)
        noise = self._noise_share(phi - origin, steps, rates, bend * min(1.0, self.plan.clip))
        factor = max(0.0, 1 - certain * noise)
        if constant is not None:  # columns that tell nothing are gone along by noise alone
            factor = min(factor, 1 / (1 + (noise / _UNCLEAR) ** 2))
        factor /= 1 + self.hopeless**2
        self.released["kept_share"] = max(factor, self.released.get("kept_share", 0.0))
        return np.asarray(origin + factor * (phi - origin))

    def _target(self) -> tuple[float, float]:
        """Return a private median and scale of the target; where records are few, the wanted quantile itself."""
        low, high = self._target_range()
        width, level = high - low, self._first_level
        belief = Belief(low, high, 2.0**-18 * width, width / 4)
        middle, scale = private_location(
            self.few_rows, target_of, level, belief, TARGET_STEPS, self._counting("targets")
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
        """Return a bracket of the targets: octaves that surely hold some and as much again, or the public range."""
        std = self.terms["octaves"].scale
        found = target_bracket(
            self.few_rows, std, self.few_mass, self.noise, not self.plan.raw_target
        )
        self.bracket = (-1.0, 1.0)
        if found is not None:
            low, high = found
            self.bracket = (2 * low - high, 2 * high - low)  # rare targets lie beyond
        return self.bracket

    def _residuals(self, phi: Array, scale: float, level: float) -> tuple[float, float]:
        """Return a private scale of the residuals, and their quantile at the wanted level."""
        predicted = self.few_rows.predicted(self.frame.to_rows(phi))
        # As far as a normal law says, and thrice as far; where records are few the way has been gone already.
        guess = 3 * scale * float(ndtri(level) - ndtri(self._first_level))
        gone = 0.0 if self._shares_start else self._gone_at_once
        reach = 2 * scale * (1 - gone)
        # Far further where most targets are the same, such as 0, and the scale of the others is not that of the median.
        far = (self.bracket[1] - self.bracket[0]) * (1 - gone)
        belief = Belief(
            min(0.0, guess) - reach,
            max(0.0, guess) + reach,
            2.0**-10 * scale,
            2 * scale,
            below=far * (level < 0.5),
            above=far * (level > 0.5),
        )
        shift, found = private_location(
            predicted, residual_of, level, belief, RESIDUAL_STEPS, self._counting("residuals")
        )
        return NORMAL_SCALE * found, shift
