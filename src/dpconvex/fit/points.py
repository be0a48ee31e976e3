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

from dpconvex.fit.constants import CLEAR_GAIN, CURVATURE_FACTORS, EM_ROUNDS, LAW_OCTAVES, SPIKE

__all__ = ["NewtonPoints", "posterior"]

Array = NDArray[np.float64]


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
    ) -> None:
        self.mismatch = mismatch
        self.mean, self.variance, self.curvature, self.lead = mean, variance, curvature, lead
        self.laws = np.concatenate([[0.0], scale**2 * 4.0 ** np.asarray(LAW_OCTAVES)])
        self.lead_law = np.array([lead_variance])
        self.between = between
        factors = np.asarray(CURVATURE_FACTORS)[:, None]
        self.log_factors = -((np.log(factors) / np.maximum(doubt, 1e-3)) ** 2) / 2
        self.points: list[Array] = []
        self.steps: list[Array] = []
        self.noise: list[Array] = []
        self.bent: list[Array] = []
        self.error = np.zeros_like(mean)
        self.kept_share = 1.0

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
        way, error, gone = (np.empty(self.mean.size) for _ in range(3))
        lead = self.lead
        for part, laws in ((slice(None, lead), self.lead_law), (slice(lead, None), self.laws)):
            if self.mean[part].size:
                way[part], error[part], gone[part] = posterior(
                    found[:, part], variance[:, part], logs[:, part], laws, self.variance[part]
                )
        self.error = error
        length, whole = (float(np.linalg.norm(each[lead:])) for each in (way, gone))
        self.kept_share = min(1.0, length / max(whole, 1e-300))
        return np.asarray(self.mean + way), error


def posterior(
    found: Array, variance: Array, logs: Array, laws: Array, known: Array
) -> tuple[Array, Array, Array]:
    """Return posterior mean and variance of numbers that were found with noise, in one of several ways each.

    And the mean that they would have without a prior law.

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
        # Shares of the laws by expectation and maximisation; what noise alone would hardly fit as well is believed.
        prior = np.full(laws.size, (1 - SPIKE) / (laws.size - 1))
        prior[0] = SPIKE
        shares = prior / prior.sum()
        for _ in range(EM_ROUNDS):
            held = np.log(shares)[:, None] + each
            held = np.exp(held - logsumexp(held, axis=0))
            shares = held.sum(axis=1) + prior
            shares /= shares.sum()
        gain = float((logsumexp(np.log(shares)[:, None] + each, axis=0) - each[0]).sum())
        deviates = held * float(expit(gain - CLEAR_GAIN))
        deviates[0] += 1 - deviates.sum(axis=0)
        belief = np.log(np.maximum(deviates, 1e-300))
    held = belief[:, None] + likely - each[:, None]
    held = np.exp(held - logsumexp(held, axis=(0, 1)))
    kept = before / total
    mean = (held * kept * found).sum(axis=(0, 1))
    second = (held * (kept * variance + (kept * found) ** 2)).sum(axis=(0, 1))
    return mean, np.maximum(second - mean**2, 0.0), (held * found).sum(axis=(0, 1))
