"""Where one method stands against another, cell by cell, in one manner for all pages.

Means of the same runs are compared, smaller being better. With the standard error of their
difference a cell is

- better or worse: the means are further apart than two standard errors;
- level: they are within two standard errors and the first is at most 5 % above the second, or they
  are within 1 %;
- undecided: they are within two standard errors, but the first is more than 5 % above: more repeats
  would be needed.

A statement "not worse in every cell" holds if every cell is better or level.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

__all__ = ["LEGEND", "tally", "where"]

_SAME = 0.01
_NEAR = 0.05
_ORDER = ("better", "level", "undecided", "worse")
LEGEND = (
    "Better and worse: means further apart than two standard errors of their difference. Level: "
    "nearer, and at most 5 % above, or within 1 % in any case. Undecided: within two standard "
    "errors, but more than 5 % above. Not worse means better or level."
)


def where(mean: float, other: float, error: float) -> str:
    """Return where a mean stands against another one; smaller is better.

    Examples
    --------
    >>> [where(1.0, 2.0, 0.1), where(1.03, 1.0, 0.1), where(1.42, 1.0, 0.3), where(1.42, 1.0, 0.1)]
    ['better', 'level', 'undecided', 'worse']
    """
    apart = mean - other
    share = abs(apart) / abs(other) if other else (0.0 if not apart else math.inf)
    if share <= _SAME:
        return "level"
    if not abs(apart) <= 2 * error:
        return "better" if apart < 0 else "worse"
    return "level" if apart <= 0 or share <= _NEAR else "undecided"


def tally(standings: Sequence[str], ratios: Sequence[float]) -> tuple[bool, str]:
    """Return whether every cell is better or level, and the counts with the range of the ratio of
    means.

    Examples
    --------
    >>> tally(["better", "level", "undecided"], [0.5, 1.01, 1.42])
    (False, '1 better, 1 level, 1 undecided of 3 cells; ratio of means 0.50 to 1.42, median 1.01')
    """
    if not standings:
        return False, "no cells"
    counts = [f"{standings.count(word)} {word}" for word in _ORDER if word in standings]
    spread = (
        f"ratio of means {min(ratios):.2f} to {max(ratios):.2f}, median "
        f"{statistics.median(ratios):.2f}"
    )
    holds = all(word in ("better", "level") for word in standings)
    return holds, f"{', '.join(counts)} of {len(standings)} cells; {spread}"
