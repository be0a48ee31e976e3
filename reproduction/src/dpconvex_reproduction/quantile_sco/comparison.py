"""How Figures 4 to 12 are summed up, judged and drawn: errors against sample size, a panel for
each budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpconvex_reproduction.drawing import SPREAD, curves, finish, panels, readable_axis
from dpconvex_reproduction.exhibit import Check, Row, select, summarise
from dpconvex_reproduction.quantile_sco.contenders import (
    BUDGETS,
    DEFAULT,
    NON_PRIVATE,
    ORDINARY,
    PART_TWO,
    PRIVATE,
)
from dpconvex_reproduction.standing import tally, where

__all__ = ["AXES", "Grid", "draw_comparison", "judge_comparison", "wide_table"]

#: Measures and the labels of their axes.
AXES = {"excess_risk": "relative excess risk", "estimation_error": "relative estimation error"}
_PROPOSED = ("OP", "DP-SGD")
_EXISTING = ("Moreau", "Phased-ERM", "Phased-SGD")
# Algorithm 1 asks for epsilon of at most 1.
_STATED_BUDGET = 1.0
_AS_GOOD = 1.1  # "as good as": at most a tenth worse

Name = tuple[str, str]


def wide_table(rows: list[Row], value: str) -> list[Row]:
    """Return a line for each budget, algorithm and variant: mean and standard error at every
    sample size.
    """
    keys = ["epsilon", "algorithm", "variant"]
    sizes = sorted({row["n"] for row in rows})
    lines: dict[tuple[Any, ...], Row] = {}
    for row in summarise(rows, [*keys, "n"], value):
        line = lines.setdefault(tuple(row[key] for key in keys), {key: row[key] for key in keys})
        line[f"n={row['n']}"] = row[value]
        line[f"± {row['n']}"] = row["error"]
        line.setdefault("repeats", {})[row["n"]] = row["repeats"]
    table = sorted(lines.values(), key=lambda line: line["epsilon"])
    for line in table:
        counts = line.pop("repeats")
        line["repeats"] = "/".join(str(counts.get(n, 0)) for n in sizes)
    return table


@dataclass(frozen=True)
class Duel:
    """Two algorithms on the same samples.

    Attributes
    ----------
    ratio : float
        Mean of the first over mean of the second.
    standing : str
        Where the first stands: better, level, undecided or worse.
    """

    ratio: float
    standing: str

    @property
    def not_worse(self) -> bool:
        """Whether the first is better or level."""
        return self.standing in ("better", "level")


def tally_duels(duels: Sequence[Duel]) -> tuple[bool, str]:
    """Return whether every duel is better or level, and the counts."""
    return tally([duel.standing for duel in duels], [duel.ratio for duel in duels])


class Grid:
    """One measure of all runs, by algorithm, variant, budget and sample size."""

    def __init__(self, rows: Iterable[Row], value: str) -> None:
        self.values: dict[tuple[str, str, float, int], dict[int, float]] = {}
        for row in rows:
            key = (row["algorithm"], row["variant"], row["epsilon"], row["n"])
            self.values.setdefault(key, {})[row["seed"]] = row[value]
        self.budgets = sorted({key[2] for key in self.values})

    def mean(self, name: Name, epsilon: float, n: int) -> float:
        """Return the mean over the seeds."""
        return float(np.mean(list(self.values[(*name, epsilon, n)].values())))

    def places(self, budgets: Sequence[float] | None = None) -> list[tuple[float, int]]:
        """Return all (epsilon, n) that were run."""
        run = sorted({key[2:] for key in self.values})
        return run if budgets is None else [place for place in run if place[0] in budgets]

    def improvement(self, name: Name) -> tuple[float, str]:
        """Return mean at the largest over mean at the smallest sample: the worst budget's, and
        all in words.
        """
        ratios = []
        words = []
        for epsilon in self.budgets:
            sizes = [n for _, n in self.places([epsilon])]
            ratio = self.mean(name, epsilon, sizes[-1]) / self.mean(name, epsilon, sizes[0])
            ratios.append(ratio)
            words.append(
                f"{ratio:.2g} at epsilon {epsilon:g} (n = {sizes[-1]} over n = {sizes[0]})"
            )
        return max(ratios), ", ".join(words)

    def duel(self, first: Name, second: Name, epsilon: float, n: int) -> Duel:
        """Compare two algorithms at one place, seed by seed."""
        one = self.values[(*first, epsilon, n)]
        other = self.values[(*second, epsilon, n)]
        seeds = sorted(one.keys() & other.keys())
        a = np.array([one[s] for s in seeds])
        b = np.array([other[s] for s in seeds])
        error = float(np.std(a - b, ddof=1)) / math.sqrt(len(seeds)) if len(seeds) > 1 else 0.0
        return Duel(float(a.mean() / b.mean()), where(float(a.mean()), float(b.mean()), error))


def _median_ratio(duels: Sequence[Duel]) -> str:
    return f"median ratio {float(np.median([duel.ratio for duel in duels])):.2g}"


def _tally(grid: Grid, variant: str, budgets: Sequence[float]) -> tuple[bool, str]:
    """Return whether both proposed algorithms lose nowhere, and the counts."""
    parts = []
    holds = True
    for ours in _PROPOSED:
        for theirs in _EXISTING:
            places = grid.places(budgets)
            duels = [grid.duel((ours, variant), (theirs, variant), *place) for place in places]
            good, words = tally_duels(duels)
            holds = holds and good
            parts.append(f"{ours} against {theirs}: {words}")
    return holds, "; ".join(parts)


def _proposed_against_existing(grid: Grid) -> list[Check]:
    checks = []
    stated = [epsilon for epsilon in grid.budgets if epsilon <= _STATED_BUDGET]
    beyond = [epsilon for epsilon in grid.budgets if epsilon > _STATED_BUDGET]
    for ours in _PROPOSED:
        for theirs in _EXISTING:
            places = grid.places(stated)
            duels = [grid.duel((ours, "paper"), (theirs, "paper"), *place) for place in places]
            lost = [
                f"epsilon {e:g} n {n}"
                for (e, n), duel in zip(places, duels, strict=True)
                if not duel.not_worse
            ]
            _, evidence = tally_duels(duels)
            evidence += f"; neither better nor level at {', '.join(lost)}" if lost else ""
            statement = f"{ours} outperforms {theirs}, epsilon at most 1, as printed"
            checks.append(Check(statement, not lost, evidence))
    budget = ", ".join(f"{epsilon:g}" for epsilon in beyond)
    checks.append(
        Check(
            f"Both outperform all three at epsilon {budget} too, beyond what Algorithm 1 asks for",
            *_tally(grid, "paper", beyond),
        )
    )
    checks.append(
        Check(
            "Both outperform all three at the same true privacy: certified noise for all, "
            "epsilon at most 1",
            *_tally(grid, "sound", stated),
        )
    )
    return checks


def _as_good_as_empirical(grid: Grid) -> list[Check]:
    checks = []
    for ours in _PROPOSED:
        duels = [grid.duel((ours, "paper"), ("EmpSGD", "paper"), *place) for place in grid.places()]
        good = sum(duel.not_worse or duel.ratio <= _AS_GOOD for duel in duels)
        evidence = f"{good} of {len(duels)} cells, {_median_ratio(duels)}"
        statement = f"{ours} is as good as EmpSGD (within a tenth or two standard errors)"
        checks.append(Check(statement, good == len(duels), evidence))
    return checks


def _falling(grid: Grid, name: Name, label: str) -> Check:
    ratio, words = grid.improvement(name)
    return Check(f"{label} improves as the sample grows", ratio < 1, f"error ratio {words}")


def _worst(grid: Grid) -> Check:
    """Whether Phased-ERM is so far behind that it leaves the axes."""
    others = [name for name in PRIVATE if name != "Phased-ERM"]
    worst = 0
    ratios = []
    for place in grid.places():
        duels = [grid.duel((name, "paper"), ("Phased-ERM", "paper"), *place) for name in others]
        worst += all(duel.not_worse for duel in duels)
        ratios.append(1 / max(duel.ratio for duel in duels))
    return Check(
        "Phased-ERM is the worst of the private algorithms, beyond the range of the axes",
        worst == len(ratios),
        f"worst in {worst} of {len(ratios)} cells; over the worst of the others: "
        f"median ratio {float(np.median(ratios)):.2g}",
    )


def _default_against(grid: Grid, variant: str, words: str) -> Check:
    ours = (DEFAULT, "dpconvex")
    lost: list[str] = []
    best: list[float] = []
    count = 0
    undecided = 0
    for place in grid.places():
        duels = {name: grid.duel(ours, (name, variant), *place) for name in PRIVATE}
        count += len(duels)
        lost += [
            f"{name} at epsilon {place[0]:g} n {place[1]} (ratio {duel.ratio:.2f})"
            for name, duel in duels.items()
            if duel.standing == "worse"
        ]
        undecided += sum(duel.standing == "undecided" for duel in duels.values())
        best.append(max(duel.ratio for duel in duels.values()))
    evidence = (
        f"{count - len(lost) - undecided} of {count} comparisons better or level, {undecided} "
        f"undecided, {len(lost)} worse; error over that of the best of the six: median "
        f"{float(np.median(best)):.2g}"
    )
    shown = ", ".join(lost[:8]) + (f" and {len(lost) - 8} more" if len(lost) > 8 else "")
    evidence += f"; worse than {shown}" if lost else ""
    statement = f"The default is no worse than each of the six algorithms {words}"
    return Check(statement, not lost and not undecided, evidence, about="dpconvex")


def judge_comparison(rows: list[Row], value: str, phased_leaves_axes: bool = False) -> list[Check]:
    """Hold the paper's statements on these figures, and ours, against the runs.

    Parameters
    ----------
    rows : list of dict
        Runs of one study.
    value : str
        ``"excess_risk"`` or ``"estimation_error"``.
    phased_leaves_axes : bool
        Whether the paper says so of Phased-ERM.
    """
    grid = Grid(rows, value)
    checks = [*_proposed_against_existing(grid), *_as_good_as_empirical(grid)]
    checks += [_falling(grid, (name, "paper"), name) for name in _PROPOSED]
    if phased_leaves_axes:
        checks.append(_worst(grid))
    checks.append(_default_against(grid, "sound", "with certified noise"))
    checks.append(_default_against(grid, "paper", "as printed"))
    return checks


def _order(rows: Iterable[Row]) -> list[Row]:
    place = {name: i for i, name in enumerate((ORDINARY, *PRIVATE, DEFAULT))}
    return sorted(rows, key=lambda row: place.get(row["algorithm"], len(place)))


def draw_comparison(rows: list[Row], figure: Any, value: str) -> None:
    """Draw a panel for each budget, as printed above and with certified noise below; bands are
    standard deviations.

    Without privacy the ordinary fit is drawn: the paper prints no penalty of its own, which would
    be the worse line.
    """
    axes = panels(figure, len(BUDGETS), 2, sharex=True, sharey=True)
    for i, (variant, words) in enumerate((("paper", "as printed"), ("sound", "certified noise"))):
        shown = _order(
            row
            for row in rows
            if row["algorithm"] not in (NON_PRIVATE, PART_TWO)
            and row["variant"] in (variant, "not private", "dpconvex")
        )
        for j, epsilon in enumerate(BUDGETS):
            ax = axes[i, j]
            ax.set_yscale("log")
            curves(ax, select(shown, epsilon=epsilon), "n", value, band="std")
            sizes = sorted({row["n"] for row in shown})
            readable_axis(ax, sizes[::2], "records n" if i == 1 else "")
            ax.set_xticks(sizes[1::2], [""] * len(sizes[1::2]), minor=True)
            ax.set_title(f"{words}, epsilon = {epsilon:g}")
            if j == 0:
                ax.set_ylabel(AXES[value])
    finish(figure, axes, note=SPREAD)
