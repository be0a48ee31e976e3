"""Private quantiles of row statistics from noisy counts: by bisection, or by steps that noise cannot lead astray."""

from __future__ import annotations

from dataclasses import dataclass

from dpconvex.core.release import PrivateRows, Statistic


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


def noisy_share(
    rows: PrivateRows,
    name: str,
    statistic: Statistic,
    point: float,
    level: float,
    n_samples: float,
) -> float:
    """Return the noisy share of records whose statistic is below a point.

    A plain count is divided by a number of records that is known. Where rows may be ignored that number is not, and the
    count is centred at the level that is sought: an error of the released number does not move where the share is that
    level.
    """
    centre = level if rows.bounds.void_rows else 0.0
    return centre + rows.count(name, statistic, point, centre) / n_samples


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
        share = noisy_share(rows, name, statistic, point, walk.level, n_samples)
        point += walk.first_step * walk.decay**step * (walk.level - share)
        point = min(max(point, walk.start - walk.reach), walk.start + walk.reach)
        kept += point * (step >= walk.steps - last)
    return kept / last
