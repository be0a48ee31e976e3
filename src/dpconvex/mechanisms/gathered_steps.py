r"""What several noisy steps towards a minimum say together, and how much of it is believed.

A step from a point ``p`` towards the minimum of a quadratic function says that the minimum is at ``p + step``, up to
noise of known size and to what is not known of the curvature that the step was divided by: an error in proportion to
how far the minimum is. No step is thrown away: each counts by the inverse of both variances. The more is known, the
less the curvature matters, so later steps count more where noise is small, and all count alike where it is not.

Coordinates in which signal does not stand out of that variance are drawn to the start, by the law of all coordinates: a
mixture of normal laws whose shares the steps themselves tell (empirical Bayes). Everything here is computed from
released numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpconvex.mechanisms.gradient_geometry import Coordinates

__all__ = ["GatheredSteps"]

Array = NDArray[np.float64]

_OCTAVES = 12  # of standard deviations that coordinates may have, below the largest
_UNSURE = 1.0  # coordinates that all of them are likely for before anything is seen
_TURNS = 30  # of the iteration that finds the shares of a mixture
_MISTAKEN = 0.2  # relative error of a curvature that noise has no part in: rows are not normal


class GatheredSteps:
    """Steps from points in white coordinates, and where they lead.

    Parameters
    ----------
    start : array of shape (dimension,)
        Where coordinates are drawn to.
    frame : Coordinates
        The coordinates.
    height : array of shape (dimension,)
        Curvature that steps were divided by.
    scale : float
        Standard deviation of the target: no coordinate is likely to be further from the start.
    """

    def __init__(self, start: Array, frame: Coordinates, height: Array, scale: float) -> None:
        self.start, self.lead, self.scale = start, frame.lead, scale
        doubts = np.zeros((2, start.size)) if frame.doubts is None else frame.doubts
        self.along, self.between = np.minimum(doubts / height, 1.0)
        self.height = height
        self.precision = np.zeros(start.size)
        self.weighted = np.zeros(start.size)
        self.error = np.full(start.size, scale**2 / max(1, start.size - self.lead))

    def add(self, point: Array, step: Array, noise: Array) -> None:
        """Add a step from a point; noise is the standard deviation of each of its coordinates."""
        # Curvature errs along a coordinate, and between it and all others.
        along = (self.along**2 + _MISTAKEN**2) * self.error
        others = self.height * self.between * self.error
        between = self.between / self.height * (others.sum() - others) / 2
        variance = noise**2 + along + between
        self.precision += 1 / variance
        self.weighted += (point + step - self.start) / variance

    def likely(self) -> Array:
        """Return where the minimum is expected."""
        found, variance = self.weighted / self.precision, 1 / self.precision
        way, error = found.copy(), variance.copy()
        lead = self.lead
        # The constant is no noise to be shrunk to, but where nothing is known of it.
        way[:lead] *= self.scale**2 / (self.scale**2 + variance[:lead])
        way[lead:], error[lead:] = shrunk(found[lead:], variance[lead:], self.scale)
        self.error, self.way, self.found = error, way, found
        return np.asarray(self.start + way)

    def kept_share(self) -> float:
        """Return how long the way is, as a share of what it was before it was shrunk."""
        gone = float(np.linalg.norm(self.found[self.lead :]))
        return float(np.linalg.norm(self.way[self.lead :])) / max(gone, 1e-300)


def shrunk(found: Array, variance: Array, largest: float) -> tuple[Array, Array]:
    """Return the posterior mean and variance of numbers that were found with noise.

    Parameters
    ----------
    found, variance : array of shape (size,)
        What was found, and the variance of its noise.
    largest : float
        Largest standard deviation that the numbers may have.
    """
    laws = np.concatenate([[0.0], largest**2 * 4.0 ** -np.arange(_OCTAVES)])
    total = laws[:, None] + variance
    logs = -(np.log(total) + found**2 / total) / 2
    likely = np.exp(logs - logs.max(axis=0))
    prior = np.full(laws.size, _UNSURE / laws.size)
    shares = prior / prior.sum()
    for _ in range(_TURNS):
        each = shares[:, None] * likely
        each /= each.sum(axis=0)
        shares = each.sum(axis=1) + prior
        shares /= shares.sum()
    each = shares[:, None] * likely
    each /= each.sum(axis=0)
    kept = laws[:, None] / total
    mean = (each * kept).sum(axis=0) * found
    second = (each * (kept * variance + (kept * found) ** 2)).sum(axis=0)
    return mean, np.maximum(second - mean**2, 0.0)
