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

import numpy as np
from numpy.typing import NDArray

from dpconvex.fit.constants import CURVATURE_FACTORS, EM_ROUNDS, LAW_OCTAVES, SPIKE

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
    ) -> None:
        self.mean, self.variance, self.curvature, self.lead = mean, variance, curvature, lead
        self.laws = np.concatenate([[0.0], scale**2 * 4.0 ** np.asarray(LAW_OCTAVES)])
        self.lead_law = np.array([lead_variance])
        self.between = between
        factors = np.asarray(CURVATURE_FACTORS)[:, None]
        self.log_factors = -((np.log(factors) / np.maximum(doubt, 1e-3)) ** 2) / 2
        self.points: list[Array] = []
        self.steps: list[Array] = []
        self.noise: list[Array] = []
        self.error = np.zeros_like(mean)
        self.kept_share = 1.0

    def add(self, point: Array, gradient: Array, std: Array | float) -> None:
        """Add a gradient at a point, with the standard deviation of its coordinates."""
        # Curvature errs between coordinates, too: in proportion to how far all others are from the minimiser.
        others = self.curvature * self.between * self.error
        between = self.between / self.curvature * np.maximum(others.sum() - others, 0.0) / 2
        self.points.append(point - self.mean)
        self.steps.append(-gradient / self.curvature)
        self.noise.append((std / self.curvature) ** 2 + between)

    def estimate(self) -> tuple[Array, Array]:
        """Return the posterior mean and variance of the minimiser."""
        points, steps, noise = map(np.array, (self.points, self.steps, self.noise))
        weights = 1 / noise
        factors = np.asarray(CURVATURE_FACTORS)[:, None]
        total = weights.sum(axis=0)
        # For every factor of the curvature: where points lead together, the variance, how badly they agree.
        found = (weights * steps).sum(axis=0) / total / factors
        found = found + (weights * points).sum(axis=0) / total
        variance = 1 / (factors**2 * total)
        apart = steps + factors[:, None] * (points - found[:, None])
        logs = self.log_factors - (weights * apart**2).sum(axis=1) / 2 + np.log(variance * total) / 2
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
    likely = np.exp(likely - likely.max(axis=(0, 1)))
    each = likely.sum(axis=1)
    prior = np.full(laws.size, (1 - SPIKE) / max(1, laws.size - 1))
    prior[0] = SPIKE
    shares = prior / prior.sum()
    for _ in range(EM_ROUNDS):
        held = shares[:, None] * each
        shares = (held / held.sum(axis=0)).sum(axis=1) + prior
        shares /= shares.sum()
    weights = shares[:, None, None] * likely
    weights /= weights.sum(axis=(0, 1))
    kept = before / total
    mean = (weights * kept * found).sum(axis=(0, 1))
    second = (weights * (kept * variance + (kept * found) ** 2)).sum(axis=(0, 1))
    return mean, np.maximum(second - mean**2, 0.0), (weights * found).sum(axis=(0, 1))
