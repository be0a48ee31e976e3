r"""What several noisy steps towards a minimum say together, and how much of it is believed.

A step from a point ``p`` towards the minimum of a quadratic function is ``H (minimum - p)`` plus noise of known size.
The curvature H was measured with noise too, and where noise was large, little is known of it. So both are inferred at
once, coordinate by coordinate, from all steps: a curvature that is too small for them makes steps turn back, one that
is too large makes them go on and on. No step is thrown away.

Coordinates in which signal does not stand out of noise are drawn to the start, by the law of all coordinates: a mixture
of normal laws whose shares the steps themselves tell (empirical Bayes). Everything here is computed from released
numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpconvex.mechanisms.gradient_geometry import Frame

__all__ = ["GatheredSteps"]

Array = NDArray[np.float64]

# Octaves of standard deviations that coordinates may have, in units of the target's: above it where rows hardly vary.
_OCTAVES = np.arange(-11, 4)
_UNSURE = 0.5  # coordinates that are 0 before anything is seen, and that are not
_TURNS = 30  # of the iteration that finds the shares of a mixture
_MISTAKEN = 0.2  # relative error of a curvature that noise has no part in: rows are not normal
_CURVATURES = 2.0 ** np.arange(-8, 1.6, 0.5)  # in units of what steps were divided by


class GatheredSteps:
    """Steps from points in white coordinates, and where they lead.

    Parameters
    ----------
    start : array of shape (dimension,)
        Where coordinates are drawn to.
    frame : Frame
        The coordinates.
    height : array of shape (dimension,)
        Curvature that steps were divided by.
    scale : float
        Standard deviation of the target.
    constant : float
        Standard deviation of what is missing in the start's constant.
    """

    def __init__(
        self, start: Array, frame: Frame, height: Array, scale: float, constant: float
    ) -> None:
        self.start, self.lead, self.scale, self.constant = start, frame.lead, scale, constant
        doubts = np.zeros((2, start.size)) if frame.doubts is None else frame.doubts
        along, self.between = np.minimum(doubts / np.hypot(frame.moments, doubts[0]), 1.0)
        self.height = height
        # Steps are divided by the root mean square of what the curvature may be.
        expected = np.sqrt(1 - along**2)
        spread = np.hypot(along, _MISTAKEN * expected)
        likely = -(((_CURVATURES[:, None] - expected) / spread) ** 2) / 2
        self.curvatures = likely + np.log(_CURVATURES)[:, None]  # equal factors apart
        self.points: list[Array] = []
        self.steps: list[Array] = []
        self.variances: list[Array] = []
        self.error = np.full(start.size, scale**2 / float(height.sum()))
        self.kept = self.gone = 0.0

    def add(self, point: Array, step: Array, noise: Array) -> None:
        """Add a step from a point; noise is the standard deviation of each of its coordinates."""
        # Curvature errs between coordinates, too: in proportion to how far all others are from where they lead.
        others = self.height * self.between * self.error
        between = self.between / self.height * (others.sum() - others) / 2
        self.points.append(point - self.start)
        self.steps.append(step)
        self.variances.append(noise**2 + between)

    def likely(self) -> Array:
        """Return where the minimum is expected."""
        points, steps, variances = map(np.array, (self.points, self.steps, self.variances))
        weights = 1 / variances
        # For every curvature: where steps lead together, its variance, and how badly they agree.
        curved = _CURVATURES[:, None]
        total = weights.sum(axis=0)
        found = (weights * steps).sum(axis=0) / total / curved + (weights * points).sum(
            axis=0
        ) / total
        variance = 1 / (curved**2 * total)
        apart = steps + curved[:, None] * (points - found[:, None])
        logs = self.curvatures - (weights * apart**2).sum(axis=1) / 2 + np.log(variance) / 2
        lead, size = self.lead, self.start.size
        way, error, gone = np.empty(size), np.empty(size), np.empty(size)
        laws = np.concatenate([[0.0], self.scale**2 * 4.0**_OCTAVES])
        for part, each in (
            (slice(None, lead), np.array([self.constant**2])),
            (slice(lead, None), laws),
        ):
            way[part], error[part], gone[part] = shrunk(
                found[:, part], variance[:, part], logs[:, part], each
            )
        self.error = error
        self.kept, self.gone = (float(np.linalg.norm(each[lead:])) for each in (way, gone))
        return np.asarray(self.start + way)

    def kept_share(self) -> float:
        """Return how long the way is, as a share of what it was before it was shrunk."""
        return min(1.0, self.kept / max(self.gone, 1e-300))


def shrunk(found: Array, variance: Array, logs: Array, laws: Array) -> tuple[Array, Array, Array]:
    """Return the posterior mean and variance of numbers that were found with noise, in one of several ways each.

    And the mean that they would have without being shrunk.

    Parameters
    ----------
    found, variance : array of shape (ways, size)
        What was found, and the variance of its noise.
    logs : array of shape (ways, size)
        Logarithm of how likely a way is, up to a constant, whatever the number is.
    laws : array of shape (laws,)
        Variances that the numbers may have.
    """
    total = laws[:, None, None] + variance
    likely = logs - (np.log(total) + found**2 / total) / 2
    likely = np.exp(likely - likely.max(axis=(0, 1)))
    each = likely.sum(axis=1)
    prior = np.full(laws.size, _UNSURE / max(1, laws.size - 1))
    prior[0] = _UNSURE
    shares = prior / prior.sum()
    for _ in range(_TURNS):
        held = shares[:, None] * each
        shares = (held / held.sum(axis=0)).sum(axis=1) + prior
        shares /= shares.sum()
    weights = shares[:, None, None] * likely
    weights /= weights.sum(axis=(0, 1))
    kept = laws[:, None, None] / total
    mean = (weights * kept * found).sum(axis=(0, 1))
    second = (weights * (kept * variance + (kept * found) ** 2)).sum(axis=(0, 1))
    return mean, np.maximum(second - mean**2, 0.0), (weights * found).sum(axis=(0, 1))
