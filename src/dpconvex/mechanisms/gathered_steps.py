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
_UNSURE = 0.5  # coordinates that are 0 before anything is seen, and that are not
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
    constant : float
        Standard deviation of what is missing in the start's constant.
    """

    def __init__(
        self, start: Array, frame: Coordinates, height: Array, scale: float, constant: float
    ) -> None:
        self.start, self.lead, self.scale, self.constant = start, frame.lead, scale, constant
        doubts = np.zeros((2, start.size)) if frame.doubts is None else frame.doubts
        self.along, self.between = np.minimum(doubts / height, 1.0)
        self.height = height
        nothing = np.zeros(start.size)
        # Sums of weights, and with these weights of what was found, of its noise and of its other errors.
        self.weights, self.found, self.noise, self.missed = nothing, nothing, nothing, nothing
        self.error = np.full(start.size, scale**2 / float(height.sum()))

    def _missed(self, error: Array) -> Array:
        """Return the variance of a step for what is not known of the curvature, where coordinates err by so much."""
        # Curvature errs along a coordinate, and between it and all others.
        others = self.height * self.between * error
        between = self.between / self.height * (others.sum() - others) / 2
        return np.asarray((self.along**2 + _MISTAKEN**2) * error + between)

    def add(self, point: Array, step: Array, noise: Array) -> None:
        """Add a step from a point; noise is the standard deviation of each of its coordinates."""
        missed = self._missed(self.error)
        weight = 1 / (noise**2 + missed)
        self.weights = self.weights + weight
        self.found = self.found + weight * (point + step - self.start)
        self.noise = self.noise + (weight * noise) ** 2
        self.missed = self.missed + weight**2 * missed

    def likely(self) -> Array:
        """Return where the minimum is expected."""
        found, noise = self.found / self.weights, self.noise / self.weights**2
        missed = self.missed / self.weights**2
        way, error = found.copy(), noise + missed
        lead = self.lead
        kept = self.constant**2 / (self.constant**2 + error[:lead])
        way[:lead], error[:lead] = kept * way[:lead], kept * error[:lead]
        ratio = self._missed(np.ones(found.size))
        way[lead:], error[lead:] = shrunk(
            found[lead:], noise[lead:], missed[lead:], ratio[lead:], self.scale
        )
        self.error, self.way, self.gone = error, way, found
        return np.asarray(self.start + way)

    def kept_share(self) -> float:
        """Return how long the way is, as a share of what it was before it was shrunk."""
        gone = float(np.linalg.norm(self.gone[self.lead :]))
        return float(np.linalg.norm(self.way[self.lead :])) / max(gone, 1e-300)


def shrunk(
    found: Array, noise: Array, missed: Array, ratio: Array, largest: float
) -> tuple[Array, Array]:
    """Return the posterior mean and variance of numbers that were found with noise.

    Parameters
    ----------
    found : array of shape (size,)
        What was found.
    noise, missed : array of shape (size,)
        Variance of its noise, and of errors in proportion to the numbers themselves.
    ratio : array of shape (size,)
        What the latter variance is at most, in units of that of the numbers: numbers that are 0 have no such error.
    largest : float
        Largest standard deviation that the numbers may have.
    """
    laws = np.concatenate([[0.0], largest**2 * 4.0 ** -np.arange(_OCTAVES)])[:, None]
    errors = noise + np.minimum(missed, ratio * laws)
    total = laws + errors
    logs = -(np.log(total) + found**2 / total) / 2
    likely = np.exp(logs - logs.max(axis=0))
    prior = np.full(laws.size, _UNSURE / _OCTAVES)
    prior[0] = _UNSURE
    shares = prior / prior.sum()
    for _ in range(_TURNS):
        each = shares[:, None] * likely
        shares = (each / each.sum(axis=0)).sum(axis=1) + prior
        shares /= shares.sum()
    each = shares[:, None] * likely
    each /= each.sum(axis=0)
    kept = laws / total
    mean = (each * kept).sum(axis=0) * found
    second = (each * (kept * errors + (kept * found) ** 2)).sum(axis=0)
    return mean, np.maximum(second - mean**2, 0.0)
