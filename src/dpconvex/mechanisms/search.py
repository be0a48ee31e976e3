"""A private quantile of row statistics, by bisection on noisy counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dpconvex.privacy.noise import NoiseSource
from dpconvex.privacy.terms import NoiseTerm

Statistic = Callable[[Any, Any, Any], Any]

SEARCH_STEPS = 6


def private_median(
    rows: Any,
    statistic: Statistic,
    low: float,
    high: float,
    counts: NoiseTerm,
    n_samples: int,
    noise: NoiseSource,
) -> float:
    """Return a point near the median of a positive statistic of the rows, on a logarithmic scale.

    Six times the bracket ``[low, high]`` is halved: with ``c`` its geometric middle, the number of rows whose
    statistic is below ``c``, plus noise, is compared with half the public number of rows.

    Parameters
    ----------
    rows : engine
        Rows; ``rows.sum(function)`` adds over blocks.
    statistic : callable
        ``statistic(block, y, w)`` gives one positive number per row.
    low, high : float
        Bracket, fixed by public or released facts.
    counts : NoiseTerm
        Noise on each count; a count changes by at most 1 between neighbours.
    n_samples : int
        Public number of rows.
    noise : NoiseSource
        Where noise comes from.
    """
    bottom, top = math.log2(low), math.log2(high)
    for _ in range(SEARCH_STEPS):
        middle = (bottom + top) / 2
        threshold = 2.0**middle

        def below(block: Any, y: Any, w: Any, threshold: float = threshold) -> tuple[Any, ...]:
            return (np.count_nonzero(statistic(block, y, w) < threshold),)

        (count,) = rows.sum(below)
        if noise.add(np.array([float(count)]), counts)[0] > n_samples / 2:
            top = middle
        else:
            bottom = middle
    return 2.0 ** ((bottom + top) / 2)
