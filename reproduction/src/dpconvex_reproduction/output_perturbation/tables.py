"""Tables 1 to 6: the summary, the figure and the checks of one table, from its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dpconvex_reproduction.drawing import ERRORS, curves, finish, panels, readable_axis
from dpconvex_reproduction.exhibit import Check, Row, select, summarise
from dpconvex_reproduction.output_perturbation.members import FAMILIES
from dpconvex_reproduction.output_perturbation.verdicts import (
    against,
    below_bound,
    keeps_budget,
    on_axis,
    rates,
    within_steps,
)

__all__ = ["BoundTable", "bound_curves"]

KEYS = ("n", "epsilon", "d")
VARIANTS = ("paper", "sound", "dpconvex", "not private")
# What a minimiser misses of its own minimum is no excess, and would stretch the axis.
_NUMERICAL_ZERO = {True: 1e-7, False: 0.0}
_SPELLED = {"n": "records n", "d": "coefficients d", "radius": "adversary's radius"}


def bound_curves(axes: Any, rows: Sequence[Row], axis: str) -> None:
    """Draw the paper's bound and the excess of every variant along an axis, on log scales."""
    shown = [
        row for row in rows if row["excess"] > _NUMERICAL_ZERO[row["variant"] == "not private"]
    ]
    bounds = [
        {**row, "variant": "bound", "excess": row["bound"]} for row in select(rows, variant="paper")
    ]
    axes.set_yscale("log")
    curves(axes, [*bounds, *shown], axis, "excess", series=("variant",))
    readable_axis(axes, sorted({row[axis] for row in rows}), _SPELLED.get(axis, axis))
    # A band that reaches below zero must not stretch a logarithmic axis.
    drawn = [row["excess"] for row in [*bounds, *shown]]
    if drawn:
        axes.set_ylim(0.4 * min(drawn), 2.5 * max(drawn))


@dataclass(frozen=True)
class BoundTable:
    """What differs between the six tables.

    Attributes
    ----------
    risk : str
        ``empirical`` or ``population``.
    base : mapping
        Where the axes of the grid meet.
    axes : tuple of str
        Axes along which the bound may change.
    steps_along : str
        Axis of the count of steps.
    """

    risk: str
    base: Mapping[str, Any]
    axes: tuple[str, ...]
    steps_along: str

    def _runs(self, rows: Sequence[Row]) -> list[Row]:
        return [row for row in rows if row.get("risk") == self.risk]

    def table(self, rows: list[Row]) -> list[Row]:
        """Return means over seeds with the bound beside them, then the steps of the solvers."""
        lines: list[Row] = []
        by = ("family", "algorithm", "variant", "reference", *KEYS)
        runs = self._runs(rows)
        for line in summarise(runs, by, "excess"):
            cell = {key: line[key] for key in (*KEYS, "family", "variant")}
            first = select(runs, **cell)[0]
            lines.append(
                {
                    **{key: line[key] for key in by},
                    "excess": line["excess"],
                    "error": line["error"],
                    "repeats": line["repeats"],
                    "bound": first["bound"],
                    "share of bound": line["excess"] / first["bound"],
                }
            )
        lines.sort(
            key=lambda line: (
                FAMILIES.index(line["family"]),
                *(line[key] for key in KEYS),
                VARIANTS.index(line["variant"]),
            )
        )
        steps = [row for row in rows if "steps" in row]
        for line in summarise(steps, ("family", "algorithm", "variant", *KEYS), "steps"):
            cell = {key: line[key] for key in (*KEYS, "family", "variant")}
            printed = select(steps, **cell)[0]["printed_steps"]
            kept = {key: line[key] for key in ("family", "algorithm", "variant", *KEYS, "repeats")}
            lines.append({**kept, "steps": line["steps"], "printed steps": printed})
        return lines

    def judge(self, rows: list[Row]) -> list[Check]:
        """Return the checks of every class."""
        checks: list[Check] = []
        runs = self._runs(rows)
        steps = [row for row in rows if "steps" in row]
        for family in FAMILIES:
            mine = select(runs, family=family)
            theirs = select(mine, variant="paper")
            if not theirs:
                continue
            name = f"{family} ({theirs[0]['reference']})"
            checks.append(below_bound(theirs, name, KEYS))
            rate = rates(theirs, name, self.base, self.axes)
            if rate is not None:
                checks.append(rate)
            counted = select(steps, family=family)
            if counted:
                explicit = counted[0]["algorithm"] != "Katyusha"  # the only order among them
                checks.append(within_steps(counted, family, self.steps_along, explicit))
        for algorithm in ("Algorithm 1", "Algorithm 6"):
            theirs = select(runs, algorithm=algorithm, variant="paper")
            if theirs:
                checks.append(keeps_budget(theirs, algorithm, ("family", *KEYS)))
        for family in FAMILIES:
            mine = select(runs, family=family)
            if mine:
                checks.append(against(mine, family, KEYS, "sound", "paper"))
                checks.append(against(mine, family, KEYS, "dpconvex", "sound"))
        return checks

    def draw(self, rows: list[Row], figure: Any) -> None:
        """Draw one column per class and one row per axis."""
        axes = panels(figure, len(FAMILIES), len(self.axes))
        runs = self._runs(rows)
        for column, family in enumerate(FAMILIES):
            for line, axis in enumerate(self.axes):
                ax = axes[line, column]
                bound_curves(ax, on_axis(select(runs, family=family), self.base, axis), axis)
                if line == 0:
                    ax.set_title(family)
                if column == 0:
                    ax.set_ylabel(f"excess {self.risk} risk")
        finish(figure, axes, columns=5, note=ERRORS)
