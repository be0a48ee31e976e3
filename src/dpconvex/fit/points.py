r"""Newton points and their posterior: where noisy gradients lead together, and how much of it is believed.

A noisy gradient g at a point ``p`` of a function of curvature H says that the minimiser is near ``p - g / H``, up to
noise of known size over H. The curvature is known up to a factor, coordinate by coordinate, and inferred at the same
time from all points: one that is too small for them makes points turn back, one that is too large makes them go on and
on. Beforehand the minimiser lies around an estimate that earlier rounds gave, as surely as these knew it, plus a
deviation from it, coordinate by coordinate from a mixture of normal laws, of which half is 0; what the shares of the
laws are is told by all coordinates together (empirical Bayes). So coordinates in which signal does not stand out of
noise stay where they were. Everything here is computed from released numbers.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp

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

__all__ = ["NewtonPoints", "posterior"]

Array = NDArray[np.float64]

EXPECTED = CURVATURE_FACTORS.index(1.0)  # the factor of a curvature that is as expected


class NewtonPoints:
    """Gradients at points, and the posterior law of the minimiser.

    Parameters
    ----------
    mean, variance : array of shape (dimension,)
        What is known of the minimiser before.
    curvature : array of shape (dimension,)
        Expected curvature of each coordinate.
    doubt : array of shape (dimension,)
        Standard deviation of its logarithm.
    between : array of shape (dimension,)
        Relative error of the curvature between coordinates.
    lead : int
        1 where the first coordinate is the intercept, which is not drawn to what was known before.
    scale : float
        Unit of deviations: of order 1 for margins, the scale of the target for residuals.
    lead_variance : float
        Variance of the deviation of the intercept.
    """

    def __init__(
        self,
        mean: Array,
        variance: Array,
        curvature: Array,
        doubt: Array,
        between: Array,
        lead: int,
        scale: float,
        lead_variance: float,
        mismatch: float = 0.0,
        shrink: bool = True,
        hopeless: float = 0.0,
    ) -> None:
        self.mismatch = mismatch
        self.mean, self.variance, self.curvature, self.lead = mean, variance, curvature, lead
        self.laws = law_variances(scale) if shrink else np.array([scale**2])
        self.prior = late_prior() if variance.any() else signal_prior(mean.size - lead, hopeless)
        self.lead_variance = lead_variance
        self.between = between
        factors = np.asarray(CURVATURE_FACTORS)[:, None]
        self.log_factors = -((np.log(factors) / np.maximum(doubt, 1e-3)) ** 2) / 2
        self.points: list[Array] = []
        self.steps: list[Array] = []
        self.noise: list[Array] = []
        self.bent: list[Array] = []
        self.error = np.zeros_like(mean)
        self.kept_share = 1.0
        self.raw, self.raw_variance = mean, np.full_like(mean, np.inf)
        self.earlier: tuple[Array, Array] | None = None
        self.anchor = np.zeros_like(mean)

    def remember(self, found: Array, variance: Array, drift: float, anchor: Array) -> None:
        """Add what earlier rounds found, before it was drawn to anything, of something near the minimiser.

        It is about ``drift`` away from it, in each coordinate, or as far as gradients say. The intercept is known where
        all else is `anchor`.
        """
        self.earlier, self.anchor = (found - self.mean, variance), anchor - self.mean
        self.expected_drift = drift

    def _drift(self, found: Array, variance: Array) -> float:
        """Return the variance between what earlier rounds and these ones are about: an expected one, and what is seen."""
        assert self.earlier is not None
        before, unsure = (each[self.lead :] for each in self.earlier)
        apart = (found[self.lead :] - before) ** 2 - variance[self.lead :] - unsure
        expected = self.expected_drift**2
        seen = (DRIFT_COUNT * expected + float(apart.sum())) / (DRIFT_COUNT + apart.size)
        return max(seen, expected / 4)

    def add(self, point: Array, gradient: Array, std: float, inverse: Array | None = None) -> None:
        """Add a gradient at a point, with its noise and, where it is not diagonal, the inverse of the curvature."""
        # Curvature errs between coordinates, too: in proportion to how far all others are from the minimiser.
        others = self.curvature * self.between * self.error
        between = self.between / self.curvature * np.maximum(others.sum() - others, 0.0) / 2
        self.points.append(point - self.mean)
        if inverse is None:
            inverse = np.diag(1 / self.curvature)
        step = -inverse @ gradient
        # No function is quadratic: far steps lead somewhere near only.
        bent = self.mismatch**2 * (step**2 + float(step @ step) / step.size) / 2
        self.steps.append(step)
        self.noise.append(std**2 * np.square(inverse).sum(axis=1) + between)
        self.bent.append(bent)

    def estimate(self) -> tuple[Array, Array]:
        """Return the posterior mean and variance of the minimiser."""
        points, steps, noise, bent = map(np.array, (self.points, self.steps, self.noise, self.bent))
        weights = 1 / (noise + bent)
        factors = np.asarray(CURVATURE_FACTORS)[:, None]
        total = weights.sum(axis=0)
        # For every factor of the curvature: where points lead together, the variance, how badly they agree.
        found = (weights * steps).sum(axis=0) / total / factors
        found = found + (weights * points).sum(axis=0) / total
        # What is not quadratic leads astray all coordinates together: it is no reason to doubt one of them.
        variance = (weights**2 * noise).sum(axis=0) / (factors * total) ** 2
        apart = steps + factors[:, None] * (points - found[:, None])
        logs = self.log_factors - (weights * apart**2).sum(axis=1) / 2 - np.log(factors)
        if self.earlier is not None:
            before, blurred = self.earlier
            blurred = blurred + self._drift(found[EXPECTED], variance[EXPECTED])
            both = variance + blurred
            logs = logs - ((found - before) ** 2 / both + np.log(both)) / 2
            found = (found * blurred + before * variance) / both
            variance = variance * blurred / both
        way, error, gone, unsure = (np.empty(self.mean.size) for _ in range(4))
        lead = self.lead
        # The intercept moves because the columns do: as far as they are seen to.
        for part, laws in ((slice(lead, None), self.laws), (slice(None, lead), np.zeros(1))):
            if part.start is None:
                share = self.curvature[lead:] / self.curvature[0]  # second moments of the columns
                moved = float(share @ (way - self.anchor)[lead:] ** 2)
                laws = np.array([self.lead_variance + LEAD_SHARE * moved])
            if self.mean[part].size:
                way[part], error[part], gone[part], unsure[part] = posterior(
                    found[:, part], variance[:, part], logs[:, part], laws, self.variance[part], self.prior
                )
        self.error, self.raw = error, self.mean + gone
        self.raw_variance = unsure
        length, whole = (float(np.linalg.norm(each[lead:])) for each in (way, gone))
        self.kept_share = min(1.0, length / max(whole, 1e-300))
        return np.asarray(self.mean + way), error


def law_variances(scale: float) -> Array:
    """Return the variances of the laws that a deviation may have, of which the first is 0."""
    return np.concatenate([[0.0], scale**2 * 4.0 ** np.asarray(LAW_OCTAVES)])


def signal_prior(columns: int, hopeless: float = 0.0) -> Array:
    """Return prior probabilities of the laws' scale: columns together explain some of the variance, or nothing."""
    octaves = np.asarray(LAW_OCTAVES) - math.log2(math.sqrt(SIGNAL / max(columns, 1)))
    slab = np.exp(-((octaves / PRIOR_SPREAD) ** 2) / 2)
    spike = SPIKE + (1 - SPIKE) * hopeless
    return np.concatenate([[spike], (1 - spike) * slab / slab.sum()])


def late_prior() -> Array:
    """Return the same of deviations from what earlier rounds found: of any size, most likely none."""
    size = len(LAW_OCTAVES)
    return np.concatenate([[LATE_SPIKE], np.full(size, (1 - LATE_SPIKE) / size)])


def posterior(
    found: Array,
    variance: Array,
    logs: Array,
    laws: Array,
    known: Array,
    prior: Array,
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
        Variances that the deviations may have.
    known : array of shape (size,)
        Variance of what was known before, to which that of the law is added.
    """
    before = laws[:, None, None] + known
    total = before + variance
    likely = logs - (np.log(total) + found**2 / total) / 2
    each = logsumexp(likely, axis=1)
    belief = np.zeros_like(each)
    if laws.size > 1:
        # One scale for all coordinates, with heavy tails around it: neighbouring laws, some octaves apart.
        apart, weights = (np.asarray(each_) for each_ in zip(*TAIL_WEIGHTS, strict=True))
        slabs = np.arange(1, laws.size)
        members = np.clip(slabs[:, None] + apart.astype(int), 1, laws.size - 1)
        mixed = np.log(weights)[None, :, None] + each[members]
        scales = logsumexp(mixed, axis=1)
        evidence = np.log(np.maximum(prior, 1e-300)) + np.concatenate([[each[0].sum()], scales.sum(axis=1)])
        scale_weights = np.exp(evidence - logsumexp(evidence))
        deviates = np.zeros_like(each)
        deviates[0] = scale_weights[0]
        shares = scale_weights[1:, None, None] * np.exp(mixed - scales[:, None])
        for number in range(len(weights)):
            np.add.at(deviates, members[:, number], shares[:, number])
        belief = np.log(np.maximum(deviates, 1e-300))
    held = belief[:, None] + likely - each[:, None]
    held = np.exp(held - logsumexp(held, axis=(0, 1)))
    kept = before / total
    mean = (held * kept * found).sum(axis=(0, 1))
    second = (held * (kept * variance + (kept * found) ** 2)).sum(axis=(0, 1))
    plain = (held * found).sum(axis=(0, 1))
    apart = (held * (variance + found**2)).sum(axis=(0, 1)) - plain**2
    return mean, np.maximum(second - mean**2, 0.0), plain, np.maximum(apart, 0.0)
