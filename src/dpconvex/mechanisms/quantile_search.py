"""Private quantiles of row statistics from noisy counts: by bisection, or by steps that noise cannot lead astray."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpconvex.core.release import PrivateRows, Statistic
from dpconvex.engine.rows import Array, RowFunction, Sums
from dpconvex.privacy.certificates.terms import NoiseTerm
from dpconvex.privacy.noise import NoiseSource

RowStatistic = Callable[[Array, Array, Array], Array]

SEARCH_STEPS = 6


class Summed(Protocol):
    """Rows, or an objective that holds them."""

    def sum(self, function: RowFunction) -> Sums:
        """Add ``function(block, y, w)`` over all blocks of rows."""


def private_median(
    rows: Summed,
    statistic: RowStatistic,
    low: float,
    high: float,
    counts: NoiseTerm,
    n_samples: float,
    noise: NoiseSource,
) -> float:
    """Return a point near the median of a positive statistic of the rows, on a logarithmic scale.

    Six times the bracket ``[low, high]`` is halved: with ``c`` its geometric middle, the number of rows whose
    statistic is below ``c``, plus noise, is compared with half the public number of rows. Of all counts that are taken
    only those six are used, each with noise of its own.

    Parameters
    ----------
    rows : engine
        Rows; ``rows.sum(function)`` adds over blocks.
    statistic : callable
        ``statistic(block, y, w)`` gives one positive number per row.
    low, high : float
        Bracket, fixed by public or released facts.
    counts : NoiseTerm
        Noise on each count; a count of votes changes by at most 1 between neighbours.
    n_samples : float
        Number of records, public or released.
    noise : NoiseSource
        Where noise comes from.
    """
    # Every point that six halvings can ask about, 1 to 63 in units of the last bracket: rows are read once for all.
    size = 2**SEARCH_STEPS
    logarithms = np.linspace(math.log2(low), math.log2(high), size + 1)
    points = 2.0 ** logarithms[1:-1]

    def below(block: Array, y: Array, w: Array) -> Sums:
        places = np.searchsorted(points, statistic(block, y, w), side="right")
        return (np.cumsum(np.bincount(places, minlength=size))[:-1],)

    (counted,) = rows.sum(below)
    bottom, top = 0, size
    for _ in range(SEARCH_STEPS):
        middle = (bottom + top) // 2
        if noise.add(np.array([float(counted[middle - 1])]), counts)[0] > n_samples / 2:
            top = middle
        else:
            bottom = middle
    return float(2.0 ** ((logarithms[bottom] + logarithms[top]) / 2))


@dataclass(frozen=True)
class Walk:
    """How a descent on one number goes, from public or released facts.

    Attributes
    ----------
    level : float
        Which quantile is sought.
    start, first_step : float
        Where to begin, and how far a share that is off by 1 moves the point at first.
    reach : float
        How far from the start the point may go.
    steps : int
        Number of counts.
    decay : float
        Factor between steps.
    """

    level: float
    start: float
    first_step: float
    reach: float
    steps: int
    decay: float


def private_quantile(
    rows: PrivateRows, name: str, statistic: Statistic, walk: Walk, n_samples: float
) -> float:
    """Return a point near a quantile of a statistic: the mean of the last steps of a descent on one number.

    ``point <- point + first_step * decay^k * (level - share below point)`` with noisy shares. Unlike a bisection it
    takes back what noise made it do, and where noise hides everything it stays near its start.

    Parameters
    ----------
    rows : PrivateRows
        What counts are asked of.
    name : str
        The certificate's term of the counts.
    statistic : Statistic
        What is counted.
    walk : Walk
        Which quantile, and by which steps.
    n_samples : float
        Number of records, public or released.
    """
    point, kept = walk.start, 0.0
    last = max(1, walk.steps // 4)
    for step in range(walk.steps):
        share = rows.count(name, statistic, point) / n_samples
        point += walk.first_step * walk.decay**step * (walk.level - share)
        point = min(max(point, walk.start - walk.reach), walk.start + walk.reach)
        kept += point * (step >= walk.steps - last)
    return kept / last
