"""Checks that the exhibits share: below the bound, at the stated rate, within the printed steps,
against our own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dpconvex_reproduction.exhibit import Check, Row, select, summarise
from dpconvex_reproduction.standing import tally, where

__all__ = ["against", "below_bound", "keeps_budget", "on_axis", "rates", "within_steps"]

TOLERANCE = 0.1  # of a slope, on top of two standard errors
MEANINGFUL = 2.0  # a bound that changes by less along an axis states no rate there


def _mean(rows: Sequence[Row], value: str = "excess") -> float:
    return float(np.mean([row[value] for row in rows]))


def _cells(rows: Sequence[Row], keys: Sequence[str]) -> list[list[Row]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return list(groups.values())


def below_bound(rows: Sequence[Row], name: str, keys: Sequence[str], bound: str = "bound") -> Check:
    """Check that the mean excess, plus the gap at which the solver may stop, is below the bound in
    every cell.

    Parameters
    ----------
    rows : sequence of dict
        Runs of one algorithm as printed.
    name : str
        What the statement begins with.
    keys : sequence of str
        What makes a cell.
    bound : str
        Key of the bound.
    """
    cells = [cell for cell in _cells(rows, keys) if cell[0]["condition"]]
    shares = [(_mean(cell) + cell[0]["accuracy"]) / cell[0][bound] for cell in cells]
    kept = sum(share <= 1 for share in shares)
    telling = sum(cell[0][bound] < cell[0]["trivial"] for cell in cells)
    where = ""
    if kept < len(cells):
        worst = cells[int(np.argmax(shares))][0]
        where = ", worst at " + ", ".join(f"{key} = {worst[key]:,}" for key in keys)
    return Check(
        f"{name}: excess risk below the bound in every cell",
        kept == len(cells) and bool(cells),
        f"{kept} of {len(cells)} cells, at most {max(shares):.2g} of the bound{where}; "
        f"the bound is below L R in {telling}",
    )


def keeps_budget(rows: Sequence[Row], name: str, keys: Sequence[str]) -> Check:
    """Check that the printed noise provably gives the claimed budget where every run of the solver
    meets its accuracy.

    Parameters
    ----------
    rows : sequence of dict
        Runs as printed, with ``true_epsilon``, an upper bound, at the claimed delta.
    name : str
        What the statement begins with.
    keys : sequence of str
        What makes a cell.
    """
    cells = [cell[0] for cell in _cells(rows, keys)]
    shares = [cell["true_epsilon"] / cell["epsilon"] for cell in cells]
    kept = sum(share <= 1 + 1e-9 for share in shares)
    return Check(
        f"{name}: the printed noise provably gives the claimed budget where every run meets the "
        "accuracy",
        kept == len(cells) and bool(cells),
        f"proven in {kept} of {len(cells)} cells, epsilon at most {min(shares):.2f} to "
        f"{max(shares):.2f} of the claimed one",
    )


def on_axis(rows: Sequence[Row], base: Mapping[str, Any], axis: str) -> list[Row]:
    """Return the rows that differ from the base along one axis at most."""
    others = {key: value for key, value in base.items() if key != axis}
    return select(rows, **others)


def _slopes(rows: Sequence[Row], axis: str) -> tuple[float, float] | None:
    """Slope of log excess against log bound, seed by seed: mean and standard error; None without
    a rate.
    """
    bounds = [row["bound"] for row in rows]
    if not bounds or max(bounds) < MEANINGFUL * min(bounds):
        return None
    slopes = []
    for seed in dict.fromkeys(row["seed"] for row in rows):
        line = [row for row in select(rows, seed=seed) if row["excess"] > 0]
        if len(line) < 2:
            continue
        x, y = (np.log([row[key] for row in line]) for key in ("bound", "excess"))
        slopes.append(float(np.polyfit(x, y, 1)[0]))
    if not slopes:
        return None
    error = float(np.std(slopes, ddof=1) / math.sqrt(len(slopes))) if len(slopes) > 1 else 0.0
    return float(np.mean(slopes)), error


def rates(
    rows: Sequence[Row],
    name: str,
    base: Mapping[str, Any],
    axes: Sequence[str],
    unjudged: Sequence[str] = (),
) -> Check | None:
    """Check that the excess follows its bound: with n and epsilon it falls no slower, with d it
    grows no faster.

    A slope of 1 means the very rate of the bound. Along ``unjudged`` axes, where more changes than
    the axis says, the slope is stated and not judged.
    """
    holds = True
    words = []
    for axis in (*axes, *unjudged):
        found = _slopes(on_axis(rows, base, axis), axis)
        if found is None:
            words.append(f"{axis}: the bound hardly changes")
            continue
        slope, error = found
        slack = TOLERANCE + 2 * error
        if axis in axes:
            holds &= slope <= 1 + slack if axis == "d" else slope >= 1 - slack
        mark = "" if axis in axes else " (not judged)"
        words.append(f"{axis}: {slope:.2f} ± {error:.2f}{mark}")
    if all("hardly" in word for word in words):
        return None
    falling = " and ".join(axis for axis in axes if axis != "d")
    growing = ", grows with d no faster" if "d" in axes else ""
    return Check(
        f"{name}: falls with {falling} no slower than the bound{growing}",
        holds,
        "slope of log excess against log bound, " + ", ".join(words),
    )


def within_steps(rows: Sequence[Row], name: str, along: str, explicit: bool) -> Check:
    """Check the solver's steps: at most the printed number where it has no hidden constant, else
    growing no faster.

    Parameters
    ----------
    rows : sequence of dict
        With ``steps`` and ``printed_steps``.
    name : str
        What the statement begins with.
    along : str
        Key of the axis.
    explicit : bool
        Whether the printed number is without hidden constant.
    """
    lines = _cells(rows, [along])
    mine = [_mean(line, "steps") for line in lines]
    theirs = [_mean(line, "printed_steps") for line in lines]
    ratios = [a / b for a, b in zip(mine, theirs, strict=True)]
    unit = rows[0]["unit"]
    solver = rows[0]["algorithm"]
    slope = (
        float(np.polyfit(np.log(theirs), np.log(mine), 1)[0])
        if np.isfinite(mine).all()
        else math.inf
    )
    where = (
        f"{min(ratios):.3g} to {max(ratios):.3g} of the printed number, growing with its power "
        f"{slope:.2f}"
    )
    if explicit:
        return Check(
            f"{name}: {solver} reaches the accuracy within the printed {unit}",
            max(ratios) <= 1,
            where,
        )
    return Check(
        f"{name}: {unit} of {solver} grow no faster than the printed order",
        slope <= 1 + TOLERANCE,
        where,
    )


def against(
    rows: Sequence[Row],
    name: str,
    keys: Sequence[str],
    ours: str,
    theirs: str,
    algorithm: str | None = None,
) -> Check:
    """Check that one variant is better than another, or level with it, in every cell."""
    shared = [*keys, "seed"]
    other = {
        tuple(row[key] for key in shared): row["excess"] for row in select(rows, variant=theirs)
    }
    mine = select(rows, variant=ours)
    if algorithm is not None:
        mine = select(mine, algorithm=algorithm)
    differences = [
        {**row, "difference": row["excess"] - other[tuple(row[key] for key in shared)]}
        for row in mine
        if tuple(row[key] for key in shared) in other
    ]
    standings = []
    ratios = []
    lines = summarise(differences, keys, "difference")
    for line in lines:
        cell = {key: line[key] for key in keys}
        reference = _mean(select(rows, variant=theirs, **cell))
        error = 0.0 if math.isnan(line["error"]) else line["error"]
        standings.append(where(reference + line["difference"], reference, error))
        ratios.append((reference + line["difference"]) / reference if reference > 0 else math.nan)
    return Check(
        f"{name}: {ours} is at least as accurate as {theirs} in every cell",
        *tally(standings, ratios),
        about="dpconvex",
    )
