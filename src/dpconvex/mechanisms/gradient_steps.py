"""The steps of a noisy descent: how many, how noisy, and how far noise alone would lead. Public facts only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dpconvex.mechanisms.gradient_course import Course
from dpconvex.mechanisms.gradient_plan import MIDDLE_HEIGHT, GradientPlan, averaged_steps
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.terms import NoiseTerm

Array = NDArray[np.float64]

ROUGH_RATE = 1.6  # of the rough descent to the median, in units of the inverse curvature
# Variances that noise would give predictions without data, in units of the residual scale squared (of 1 for margins):
# where what was found is given up.
HOPELESS, MARGIN_HOPELESS = 16.0, 100.0
_PROGRESS = 300.0  # of a margin's descent: sum of its rates
_LAST_RATE = 0.5  # of the first rate


def decaying_rates(steps: int) -> Array:
    """Return factors of mean 1 that fall geometrically to half the first."""
    factors = _LAST_RATE ** np.linspace(0.0, 1.0, steps)
    return np.asarray(factors / factors.mean())


@dataclass(frozen=True)
class Steps:
    """What is public about the steps of one descent.

    Attributes
    ----------
    names : tuple of str
        The certificate's term of each sum of gradients.
    stds : array of shape (steps,)
        Noise on each of them, in units of a typical row.
    rows : array of shape (steps,)
        How many rows each sum is over.
    kept : int
        How many of the last iterates are averaged.
    filled : float
        What a row counts for on average.
    """

    names: tuple[str, ...]
    stds: Array
    rows: Array
    kept: int
    filled: float = 1.0

    def after(self, counted: int) -> Steps:
        """Return the steps that are left when the first ones counted something else."""
        stds = self.stds[counted:]
        kept = min(self.kept, max(1, stds.size))
        return replace(
            self, names=self.names[counted:], stds=stds, rows=self.rows[counted:], kept=kept
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
        stds, rows = np.full(number, last.scale), np.full(number, part)
        return Steps((phase,) * number, stds, rows, averaged_steps(number))
    number = last.releases // course.fits
    if not course.early:
        stds, rows = np.full(number, last.scale), np.full(number, every)
        return Steps((phase,) * number, stds, rows, averaged_steps(number))
    first = terms["early gradients"]
    counts = (course.early, number)
    names = ("early gradients",) * course.early + (phase,) * number
    stds = np.repeat([first.scale, last.scale], counts)
    return Steps(names, stds, np.repeat([part, every], counts), counts[1])


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
        progress = ROUGH_RATE * steps.stds.size / ((high - low) * MIDDLE_HEIGHT)
    usual = 1 + bounds.n_features
    found = bounds.dimension * steps.wander(progress, math.sqrt(usual))
    return found / (MARGIN_HOPELESS if margin else HOPELESS)
