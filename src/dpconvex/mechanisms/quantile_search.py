"""Private quantiles of row statistics from noisy counts: by bisection, or by steps that noise cannot lead astray."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpconvex.core.release import PrivateRows, Statistic
from dpconvex.engine.rows import Array

SEARCH_STEPS = 6


def private_median(
    counter: Callable[[Array], Callable[[int], float]], low: float, high: float, n_samples: float
) -> float:
    """Return a point near the median of a positive statistic of the rows, on a logarithmic scale.

    Six times the bracket ``[low, high]`` is halved: with ``c`` its geometric middle, the number of rows whose
    statistic is below ``c``, plus noise, is compared with half the public number of rows.

    Parameters
    ----------
    counter : callable
        ``counter(points)`` returns the function of i that counts, noisily, the rows below the i-th of ascending points.
    low, high : float
        Bracket, fixed by public or released facts.
    n_samples : float
        Number of records, public or released.
    """
    # Every point that six halvings can ask about, 1 to 63 in units of the last bracket: rows are read once for all.
    size = 2**SEARCH_STEPS
    logarithms = np.linspace(math.log2(low), math.log2(high), size + 1)
    below = counter(2.0 ** logarithms[1:-1])
    bottom, top = 0, size
    for _ in range(SEARCH_STEPS):
        middle = (bottom + top) // 2
        if below(middle - 1) > n_samples / 2:
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
