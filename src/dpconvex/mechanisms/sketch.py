"""Noisy histograms: every record in one bin, all bins released in one pass, quantiles read off afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpconvex.privacy.noise import NoiseSource

__all__ = ["Sketch", "bin_counts"]

Array = NDArray[np.float64]

# Mass of the public guess in units of the noise on a sum of all bins: it counts where nothing can be seen.
_PRIOR_MASS = 1.0


def bin_counts(values: Array, edges: Array) -> Array:
    """Return how many values lie in each bin; the outermost bins take all that is beyond."""
    places = np.searchsorted(edges[1:-1], values, side="right")
    return np.bincount(places, minlength=edges.size - 1).astype(np.float64)


@dataclass(frozen=True)
class Sketch:
    """A noisy histogram, from which quantiles are read.

    Attributes
    ----------
    edges : array of shape (bins + 1,)
        Public, or released before.
    counts : array of shape (bins,)
        With noise.
    n_samples : int
        Public number of records.
    std : float
        Noise per bin.
    """

    edges: Array
    counts: Array
    n_samples: int
    std: float

    @classmethod
    def release(
        cls,
        total: Callable[[Callable[..., tuple[Any, ...]]], tuple[Any, ...]],
        statistic: Callable[..., Array],
        edges: Array,
        n_samples: int,
        std: float,
        noise: NoiseSource,
    ) -> Sketch:
        """Count the values of a statistic of the records and add noise.

        Parameters
        ----------
        total : callable
            ``rows.sum`` or ``rows.sum_targets``: adds a function of blocks over all records.
        statistic : callable
            One number per record of a block.
        edges : array
            Edges of the bins.
        n_samples : int
            Public number of records.
        std : float
            Noise per bin.
        noise : NoiseSource
            Where noise comes from.
        """

        def part(*block: Any) -> tuple[Array]:
            return (bin_counts(statistic(*block), edges),)

        (counts,) = total(part)
        return cls(edges, noise.add_gaussian(np.asarray(counts), std), n_samples, std)

    def quantile(self, level: float) -> float:
        """Return where the share ``level`` of the records is reached.

        The number of records below an edge is estimated by the bins on its left and by those on its right, weighted
        by their noise; a uniform guess over the bins, of the mass that noise could feign, joins the counts.
        """
        bins = self.counts.size
        guess = _PRIOR_MASS * self.std * np.sqrt(bins)
        counts = self.counts + guess / bins
        size = self.n_samples + guess
        left = np.concatenate([[0.0], np.cumsum(counts)])
        right = size - np.concatenate([np.cumsum(counts[::-1])[::-1], [0.0]])
        place = np.arange(bins + 1) / bins
        below = (1 - place) * left + place * right
        rising = np.maximum.accumulate(below)
        falling = np.minimum.accumulate(below[::-1])[::-1]
        below = np.clip((rising + falling) / 2, 0.0, size)
        wanted = level * size
        first = int(np.searchsorted(below, wanted, side="left"))
        if first == 0:
            return float(self.edges[0])
        if first > bins:
            return float(self.edges[-1])
        low, high = below[first - 1], below[first]
        share = (wanted - low) / (high - low) if high > low else 0.5
        return float(self.edges[first - 1] + share * (self.edges[first] - self.edges[first - 1]))
