"""Comparisons of runs on the same data: best step in hindsight, paired differences, how many
cells agree.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from dpconvex_reproduction.exhibit import Row, select, summarise
from dpconvex_reproduction.standing import tally, where

__all__ = ["all_not_worse", "paired", "settle_steps"]


def settle_steps(rows: Sequence[Row], by: Sequence[str], value: str) -> list[Row]:
    """Keep, of runs with several constant steps, those of the step with the least mean in each
    cell.

    Chosen in hindsight, which favours the algorithm that has the steps.
    """
    stepped = [row for row in rows if row.get("step") is not None]
    best: dict[tuple[Any, ...], tuple[float, float]] = {}
    for line in summarise(stepped, [*by, "step"], value):
        key = tuple(line[name] for name in by)
        if math.isfinite(line[value]):
            best[key] = min(best.get(key, (math.inf, math.inf)), (line[value], line["step"]))
    return [
        row
        for row in rows
        if row.get("step") is None or best[tuple(row[name] for name in by)][1] == row["step"]
    ]


def paired(
    rows: Sequence[Row],
    left: dict[str, Any],
    right: dict[str, Any],
    by: Sequence[str],
    value: str,
    unit: str = "seed",
) -> list[Row]:
    """Compare two kinds of runs cell by cell, on the units that both have.

    Parameters
    ----------
    rows : sequence of dict
        Runs.
    left, right : dict
        What identifies the two kinds.
    by : sequence of str
        Keys of a cell.
    value, unit : str
        What is compared, and what pairs the runs.

    Returns
    -------
    list of dict
        Per cell: its keys, both means, their ratio, the mean difference left minus right, its
        standard error, its ``standing``, and ``not_worse``: it is better or level.
    """
    kinds: list[dict[tuple[Any, ...], dict[Any, float]]] = []
    for wanted in (left, right):
        groups: dict[tuple[Any, ...], dict[Any, float]] = {}
        for row in select(rows, **wanted):
            key = tuple(row.get(name) for name in by)
            groups.setdefault(key, {})[row[unit]] = row[value]
        kinds.append(groups)
    lines = []
    for key, first in kinds[0].items():
        second = kinds[1].get(key, {})
        pairs = [(first[k], second[k]) for k in first if k in second]
        if len(pairs) < 2:
            continue
        mean, other = (statistics.fmean(side) for side in zip(*pairs, strict=True))
        differences = [a - b for a, b in pairs]
        error = statistics.stdev(differences) / math.sqrt(len(pairs))
        standing = where(mean, other, error)
        lines.append(
            {
                **dict(zip(by, key, strict=True)),
                "left": mean,
                "right": other,
                "ratio": mean / other,
                "difference": mean - other,
                "error": error,
                "standing": standing,
                "not_worse": standing in ("better", "level"),
            }
        )
    return lines


def all_not_worse(lines: Sequence[Row]) -> tuple[bool, str]:
    """Return whether left is better or level in every cell, and the evidence: counts and range
    of the ratio.
    """
    return tally([line["standing"] for line in lines], [line["ratio"] for line in lines])
