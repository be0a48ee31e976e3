"""Private quantiles of row statistics from noisy counts: by bisection, or by steps that noise cannot lead astray."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dpconvex.engine.rows import Array, RowFunction, Rows, Sums
from dpconvex.privacy.certificates.terms import NoiseTerm
from dpconvex.privacy.noise import NoiseSource

Statistic = Callable[[Array, Array, Array], Array]

SEARCH_STEPS = 6


class Summed(Protocol):
    """Rows, or an objective that holds them."""

    def sum(self, function: RowFunction) -> Sums:
        """Add ``function(block, y, w)`` over all blocks of rows."""


@dataclass(frozen=True)
class Counting:
    r"""How noisy counts become shares of the records.

    A plain count is divided by a number of records that is known. Where rows may be ignored that number is not, and
    the *centred* count ``sum_i v_i (1[value_i < point] - level)`` is asked for, which is 0 at the quantile however many
    votes there are: its share is ``level + (centred count + noise) / mass``, and an error of the mass does not move
    where it is the level.

    Attributes
    ----------
    std : float
        Noise on each count.
    mass : float
        What all records count for, public or released.
    noise : NoiseSource
        Where noise comes from.
    centred : bool
        Whether counts are centred.

    Notes
    -----
    Privacy: a record adds ``-level``, 0 or ``1 - level`` times its vote to a centred count, so that it moves by at most
    1 under replace-one and by ``max(level, 1 - level)`` under add-or-remove-one.
    """

    std: float
    mass: float
    noise: NoiseSource
    centred: bool = False

    def shares(
        self, rows: Rows, values: Callable[[Array, Array], Array], level: float
    ) -> Callable[[float], float]:
        """Return a function of a point: the noisy share of the records whose ``values(y, w)`` are below it."""
        centre = level if self.centred else 0.0
        below = rows.counter(values, centre)

        def share(point: float) -> float:
            noisy = self.noise.add_gaussian(np.array([float(below(point))]), self.std)
            return centre + float(noisy[0]) / self.mass

        return share


def private_median(
    rows: Summed,
    statistic: Statistic,
    low: float,
    high: float,
    counts: NoiseTerm,
    n_samples: float | None,
    noise: NoiseSource,
) -> float:
    """Return a point near the median of a positive statistic of the rows, on a logarithmic scale.

    Six times the bracket ``[low, high]`` is halved: with ``c`` its geometric middle, the number of rows whose
    statistic is below ``c``, plus noise, is compared with half the public number of rows; where that is not known, half
    of all rows is taken off before noise is added (:class:`Counting`). Of all counts that are taken only those six are
    used, each with noise of its own.

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
    n_samples : float or None
        Public number of records; None where rows may be ignored.
    noise : NoiseSource
        Where noise comes from.
    """
    # Every point that six halvings can ask about, 1 to 63 in units of the last bracket: rows are read once for all.
    size = 2**SEARCH_STEPS
    logarithms = np.linspace(math.log2(low), math.log2(high), size + 1)
    points = 2.0 ** logarithms[1:-1]

    def below(block: Array, y: Array, w: Array) -> Sums:
        places = np.searchsorted(points, statistic(block, y, w), side="right")
        return (np.cumsum(np.bincount(places, minlength=size)),)

    (found,) = rows.sum(below)
    # The last count is that of all rows, and halves are exact.
    counted = found - (found[-1] / 2 if n_samples is None else 0)
    middle_count = 0.0 if n_samples is None else n_samples / 2
    bottom, top = 0, size
    for _ in range(SEARCH_STEPS):
        middle = (bottom + top) // 2
        if noise.add(np.array([float(counted[middle - 1])]), counts)[0] > middle_count:
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
    rows: Rows,
    values: Callable[[Array, Array], Array],
    walk: Walk,
    counting: Counting,
) -> float:
    """Return a point near a quantile of a statistic: the mean of the last steps of a descent on one number.

    ``point <- point + first_step * decay^k * (level - share below point)`` with noisy shares. Unlike a bisection it
    takes back what noise made it do, and where noise hides everything it stays near its start.

    Parameters
    ----------
    rows : engine
        Rows; ``rows.counter(values)`` counts records below a point.
    values : callable
        The statistic ``values(y, w)``, one number per record.
    walk : Walk
        Which quantile, and by which steps.
    counting : Counting
        Noise of the counts, and what they are shares of.
    """
    point, kept = walk.start, 0.0
    last = max(1, walk.steps // 4)
    share = counting.shares(rows, values, walk.level)
    for step in range(walk.steps):
        point += walk.first_step * walk.decay**step * (walk.level - share(point))
        point = min(max(point, walk.start - walk.reach), walk.start + walk.reach)
        kept += point * (step >= walk.steps - last)
    return kept / last
