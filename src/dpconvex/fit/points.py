r"""Newton points and their posterior: where noisy gradients lead together, and how much of it is believed.

A noisy gradient g at a point ``p`` of a function of curvature H says that the minimiser is near ``p - g / H``, up to
noise of known size over H. The curvature is known up to a factor, coordinate by coordinate, and inferred at the same
time from all points: one that is too small for them makes points turn back, one that is too large makes them go on and
on. Beforehand, coefficients are 0, or follow a law with heavy tails and one scale for all of them, which the points
tell. So coefficients stay where they were as far as noise explains what was found. Everything here is computed from
released numbers.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import logsumexp

from dpconvex.fit.constants import (
    CURVATURE_FACTORS,
    DRIFT_COUNT,
    LATE_SPIKE,
    LAW_OCTAVES,
    LEAD_SHARE,
    PRIOR_SPREAD,
    SIGNAL,
    SPIKE,
    TAIL_WEIGHTS,
)
from dpconvex.fit.estimate import Estimate
from dpconvex.types import Array

__all__ = ["NewtonPoints", "deviation_prior", "law_variances", "posterior", "signal_prior"]


EXPECTED = CURVATURE_FACTORS.index(1.0)  # the factor of a curvature that is as expected
_FACTORS = np.array(CURVATURE_FACTORS)[:, None]


class NewtonPoints:
    """Gradients at points, and the posterior law of the minimiser.

    Parameters
    ----------
    start : array of shape (dimension,)
        Where the minimiser is expected: a constant.
    curvature : array of shape (dimension,)
        Expected curvature of each coordinate.
    doubt : array of shape (dimension,)
        Standard deviation of its logarithm.
    lead : int
        1 where the first coordinate is the intercept.
    lead_variance : float
        Variance of the intercept around its start.
    mismatch : float
        Error of a step, relative to its length, because the function is not quadratic.
    laws : array of shape (laws,)
        Variances that coefficients may have.
    prior : array of shape (laws,)
        Probabilities of the laws' scales.
    """

    def __init__(
        self,
        start: Array,
        curvature: Array,
        doubt: Array,
        lead: int,
        lead_variance: float,
        mismatch: float,
        laws: Array,
        prior: Array,
    ) -> None:
        self.start, self.curvature = start, curvature
        self.lead, self.lead_variance, self.mismatch = lead, lead_variance, mismatch
        self.laws, self.prior = laws, prior
        self.log_factors = -((np.log(_FACTORS) / np.maximum(doubt, 1e-3)) ** 2) / 2
        self.points: list[Array] = []
        self.steps: list[Array] = []
        self.noise: list[Array] = []
        self.bent: list[Array] = []
        self.earlier: tuple[Array, Array] | None = None
        self.expected_drift, self.anchor = 0.0, np.zeros_like(start)

    def remember(self, found: Array, noise: Array, drift: float, anchor: Array) -> None:
        """Add what earlier rounds found, of something near the minimiser.

        It is about ``drift`` away from it in each coordinate, or as far as gradients say. The intercept is known where
        all else is `anchor`.
        """
        self.earlier, self.anchor = (found - self.start, noise), anchor - self.start
        self.expected_drift = drift

    def add(self, point: Array, gradient: Array, std: float, inverse: Array | None = None) -> None:
        """Add a gradient at a point, with its noise and, where it is not diagonal, the inverse of the curvature."""
        if inverse is None:
            step, spread = -gradient / self.curvature, 1 / self.curvature**2
        else:
            step, spread = -inverse @ gradient, np.square(inverse).sum(axis=1)
        self.points.append(point - self.start)
        self.steps.append(step)
        self.noise.append(std**2 * spread)
        self.bent.append(self.mismatch**2 * (step**2 + float(step @ step) / step.size) / 2)

    def estimate(self) -> Estimate:
        """Return the posterior of the minimiser."""
        points, steps, noise, bent = map(np.array, (self.points, self.steps, self.noise, self.bent))
        weights = 1 / (noise + bent)
        total = weights.sum(axis=0)
        # For every factor of the curvature: where points lead together, its variance, how badly they agree.
        found = (weights * (steps / _FACTORS[:, None] + points)).sum(axis=1) / total
        # What is not quadratic leads all coordinates astray together: it is no reason to doubt one of them.
        variance = (weights**2 * noise).sum(axis=0) / (_FACTORS * total) ** 2
        apart = steps + _FACTORS[:, None] * (points - found[:, None])
        logs = self.log_factors - (weights * apart**2).sum(axis=1) / 2 - np.log(_FACTORS)
        if self.earlier is not None:
            before, unsure = self.earlier
            unsure = unsure + self._drift(found[EXPECTED], variance[EXPECTED])
            both = variance + unsure
            logs = logs - ((found - before) ** 2 / both + np.log(both)) / 2
            # Nothing may be known of one of them: shares do not overflow, products would.
            found = found * (unsure / both) + before * (variance / both)
            variance = variance * (unsure / both)
        lead, size = self.lead, self.start.size
        columns = posterior(found[:, lead:], variance[:, lead:], logs[:, lead:], self.laws, self.prior)
        mean, error, plain, unsure = (np.concatenate([np.zeros(lead), each]) for each in columns)
        if lead:  # the intercept moves because the columns do: as far as they are seen to
            moments = self.curvature / self.curvature[0]
            moved = float(moments[1:] @ (mean - self.anchor)[1:] ** 2)
            law = np.array([self.lead_variance + LEAD_SHARE * moved])
            first = posterior(found[:, :1], variance[:, :1], logs[:, :1], law, np.ones(1))
            mean[0], error[0], plain[0], unsure[0] = (float(each[0]) for each in first)
        lengths = [float(np.linalg.norm(each[lead:size])) for each in (mean, plain)]
        kept = min(1.0, lengths[0] / max(lengths[1], 1e-300))
        return Estimate(self.start + mean, error, self.start + plain, unsure, kept)

    def _drift(self, found: Array, variance: Array) -> float:
        """Return the variance between what earlier rounds and these ones are about: expected, and seen."""
        assert self.earlier is not None
        before, unsure = (each[self.lead :] for each in self.earlier)
        apart = (found[self.lead :] - before) ** 2 - variance[self.lead :] - unsure
        expected = self.expected_drift**2
        seen = (DRIFT_COUNT * expected + float(apart.sum())) / (DRIFT_COUNT + apart.size)
        return max(seen, expected / 4)


def law_variances(scale: float) -> Array:
    """Return the variances of the laws that a coefficient may have, of which the first is 0."""
    return np.concatenate([[0.0], scale**2 * 4.0 ** np.array(LAW_OCTAVES, dtype=np.float64)])


def signal_prior(columns: int, hopeless: float = 0.0) -> Array:
    """Return prior probabilities of the laws' scale: columns together explain some of the variance, or nothing."""
    octaves = np.array(LAW_OCTAVES) - math.log2(math.sqrt(SIGNAL / max(columns, 1)))
    slab = np.exp(-((octaves / PRIOR_SPREAD) ** 2) / 2)
    spike = SPIKE + (1 - SPIKE) * hopeless
    return np.concatenate([[spike], (1 - spike) * slab / slab.sum()])


def deviation_prior() -> Array:
    """Return the same of deviations from what earlier rounds found: of any size, most likely none."""
    size = len(LAW_OCTAVES)
    return np.concatenate([[LATE_SPIKE], np.full(size, (1 - LATE_SPIKE) / size)])


def posterior(
    found: Array, variance: Array, logs: Array, laws: Array, prior: Array, known: Array | float = 0.0
) -> tuple[Array, Array, Array, Array]:
    """Return posterior mean and variance of numbers that were found with noise, in one of several ways each.

    And both without the prior law.

    Parameters
    ----------
    found, variance : array of shape (ways, size)
        What was found, and the variance of its noise.
    logs : array of shape (ways, size)
        Logarithm of how likely a way is, up to a constant, whatever the number is.
    laws : array of shape (laws,)
        Variances that the numbers may have.
    prior : array of shape (laws,)
        Probabilities of the laws as the scale of all numbers; each number may be some octaves off.
    known : array of shape (size,) or float
        Variance that is added to that of every law.
    """
    before = laws[:, None, None] + known
    total = before + variance
    likely = logs - (np.log(total) + found**2 / total) / 2
    each = logsumexp(likely, axis=1)
    belief = np.zeros_like(each)
    if laws.size > 1:
        octaves, weights = (np.array(part) for part in zip(*TAIL_WEIGHTS, strict=True))
        members = np.clip(np.arange(1, laws.size)[:, None] + octaves, 1, laws.size - 1)
        mixed = np.log(weights)[None, :, None] + each[members]
        scales = logsumexp(mixed, axis=1)
        evidence = np.concatenate([[each[0].sum()], scales.sum(axis=1)])
        evidence = evidence + np.log(np.maximum(prior, 1e-300))
        chances = np.exp(evidence - logsumexp(evidence))
        shares = np.zeros_like(each)
        shares[0] = chances[0]
        parts = chances[1:, None, None] * np.exp(mixed - scales[:, None])
        for number in range(len(weights)):
            np.add.at(shares, members[:, number], parts[:, number])
        belief = np.log(np.maximum(shares, 1e-300))
    held = belief[:, None] + likely - each[:, None]
    held = np.exp(held - logsumexp(held, axis=(0, 1)))
    kept = before / total
    mean = (held * kept * found).sum(axis=(0, 1))
    second = (held * (kept * variance + (kept * found) ** 2)).sum(axis=(0, 1))
    plain = (held * found).sum(axis=(0, 1))
    spread = (held * (variance + found**2)).sum(axis=(0, 1)) - plain**2
    return mean, np.maximum(second - mean**2, 0.0), plain, np.maximum(spread, 0.0)
