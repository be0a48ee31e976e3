r"""How far residuals may reach in a mean: octaves of residuals tell what a limit hides, which noise is weighed with.

A scale tells where most residuals are. Costs, of which most are 0 or small, have a mean that lies in the few that are
not: limited to a few scales they would be left out of it. Tails that are alike on both sides hide nothing of a mean,
and open no limit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dpconvex.core.release import PrivateRows, Statistic

__all__ = ["TAIL_BINS", "TAIL_OCTAVES", "Tails", "residual_tails"]

Array = NDArray[np.float64]

TAIL_OCTAVES = 24  # above the scale, on either side of 0
TAIL_BINS = 2 * TAIL_OCTAVES + 1

_CERTAIN = 6.0  # in units of the noise: one octave is wrongly seen in five million fits, and a limit far too wide
_MIDDLE = 1.4  # mean of an octave's numbers, in units of its lower end
_UNSEEN = 2  # octaves beyond the last that is seen, which are taken to hold less and less
_FALLING = 0.35  # of an octave's records: what the next one holds at most, where it is not seen


@dataclass(frozen=True)
class Tails:
    """Released shares of large residuals.

    Attributes
    ----------
    above, below : array of shape (TAIL_OCTAVES,)
        Share of all records in ``scale [2^k, 2^(k+1))``, and in its mirror image; 0 where noise hides it.
    scale : float
        Unit of the octaves.
    std : float
        Noise of a share.
    """

    above: Array
    below: Array
    scale: float
    std: float

    def hidden(self, limit: float) -> float:
        """Return the square of what a mean of residuals loses that are cut at ``-limit`` and ``limit``.

        Less what noise of the shares adds to it, so that tails which are alike hide nothing.
        """
        size = _MIDDLE * self.scale * 2.0 ** np.arange(TAIL_OCTAVES)
        cut = np.maximum(size - limit, 0.0)
        lost = float((self.above - self.below) @ cut)
        seen = (self.above > 0) * 1.0 + (self.below > 0)
        return max(0.0, lost**2 - self.std**2 * float(seen @ cut**2))

    def best(self, least: float, noise: float) -> float:
        """Return the limit, ``least`` times a power of 2, for which hidden parts and noise are least together.

        Parameters
        ----------
        least : float
            The smallest limit.
        noise : float
            Standard deviation of what is released, per unit of the limit.
        """
        limits = least * 2.0 ** (np.arange(2 * TAIL_OCTAVES) / 2)
        hidden = np.array([self.hidden(limit) for limit in limits])
        # Both sides may happen to cancel at one limit and not at the next.
        hidden = np.maximum.accumulate(hidden[::-1])[::-1]
        return float(limits[int(np.argmin(hidden + (noise * limits) ** 2))])


def residual_tails(rows: PrivateRows, name: str, theta: Array, scale: float, mass: float) -> Tails:
    """Release in which octaves above their scale residuals lie.

    Parameters
    ----------
    rows : PrivateRows
        What the histogram is asked of.
    name : str
        The certificate's term of :data:`TAIL_BINS` counts.
    theta : array
        Released coefficients, whose residuals are meant.
    scale : float
        Public or released unit.
    mass : float
        What all records count for, public or released.
    """
    sizes = scale * 2.0 ** np.arange(TAIL_OCTAVES)
    edges = np.concatenate([-sizes[::-1], sizes])
    counts = rows.histogram(name, Statistic("residual", theta), edges) / mass
    std = rows.terms[name].scale / mass
    above, below = counts[TAIL_OCTAVES + 1 :], counts[:TAIL_OCTAVES][::-1]
    least = _CERTAIN * std
    return Tails(_continued(above, least), _continued(below, least), scale, std)


def _continued(shares: Array, least: float) -> Array:
    """Return shares that surely are not 0, and less and less beyond the last of them."""
    seen = np.where(shares > least, shares, 0.0)
    if not seen.any():
        return seen
    last = int(np.flatnonzero(seen)[-1])
    before = seen[last - 1] if last else 0.0
    falling = min(_FALLING, float(seen[last] / before)) if before > 0 else _FALLING
    beyond = np.arange(last + 1, min(last + 1 + _UNSEEN, TAIL_OCTAVES))
    seen[beyond] = seen[last] * falling ** (beyond - last)
    return seen
