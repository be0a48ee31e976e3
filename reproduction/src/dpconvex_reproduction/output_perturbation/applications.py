"""Tilted ERM and adversarial training: summaries, figures and checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from dpconvex_reproduction.drawing import ERRORS, finish, panels
from dpconvex_reproduction.exhibit import Check, Row, select, summarise
from dpconvex_reproduction.output_perturbation import adversarial_study, tilted_study
from dpconvex_reproduction.output_perturbation.risk_study import DELTA
from dpconvex_reproduction.output_perturbation.tables import bound_curves
from dpconvex_reproduction.output_perturbation.verdicts import (
    against,
    below_bound,
    keeps_budget,
    on_axis,
    rates,
    within_steps,
)

__all__ = [
    "draw_adversarial",
    "draw_tilted",
    "judge_adversarial",
    "judge_tilted",
    "table_adversarial",
    "table_tilted",
]

_DELTAS = (0.0, DELTA)
_TILTED_KEYS = ("tilt", "n", "epsilon", "d", "delta")
_ADVERSARIAL_KEYS = ("radius", "n", "epsilon", "d", "delta")


def _summary(rows: Sequence[Row], keys: Sequence[str], extra: Sequence[str]) -> list[Row]:
    by = (*keys, "reference", "algorithm", "variant")
    lines = []
    for line in summarise(rows, by, "excess"):
        first = select(rows, **{key: line[key] for key in by})[0]
        lines.append(
            {
                **{key: line[key] for key in by},
                "excess": line["excess"],
                "error": line["error"],
                "repeats": line["repeats"],
                **{key: first[key] for key in extra},
                "share of bound": line["excess"] / first["bound"],
            }
        )
    return lines


def table_tilted(rows: list[Row]) -> list[Row]:
    """Return means over seeds, with the bound as printed and as proven."""
    return _summary(rows, _TILTED_KEYS, ("bound", "proven", "weight"))


def judge_tilted(rows: list[Row]) -> list[Check]:
    """Return the checks of Theorems 5.1 and 5.2 and of our own."""
    checks = []
    paper = select(rows, variant="paper")
    for theorem in ("Theorem 5.1", "Theorem 5.2"):
        theirs = select(paper, reference=theorem)
        checks.append(below_bound(theirs, theorem, _TILTED_KEYS))
        if theorem == "Theorem 5.2":
            name = "Theorem 5.2 with C^2 in place of C"
            mended = below_bound(theirs, name, _TILTED_KEYS, bound="proven")
            checks.append(replace(mended, about="dpconvex"))
    smooth = select(paper, reference="Theorem 5.2")
    axes: tuple[str, ...] = ("n", "epsilon", "d")
    checks += _rate_checks(smooth, "Theorem 5.2", tilted_study.BASE, axes)
    checks += _sensitivity_checks(smooth)
    checks.append(keeps_budget(smooth, "Algorithm 1 with Lemma 5.2", _TILTED_KEYS))
    own = select(rows, reference="Theorem 5.2")
    checks.append(against(own, "all cells", _TILTED_KEYS, "sound", "paper"))
    for name in ("given the ball", "own wall"):
        algorithm = f"DPTiltedClassifier, {name}"
        checks.append(against(own, algorithm, _TILTED_KEYS, "dpconvex", "sound", algorithm))
    steep = [row for row in own if row["tilt"] >= 1]
    if steep:
        algorithm = "DPTiltedClassifier, own wall"
        name = f"{algorithm}, tilt of at least 1"
        checks.append(against(steep, name, _TILTED_KEYS, "dpconvex", "sound", algorithm))
    return checks


def _rate_checks(
    rows: Sequence[Row], name: str, base: Any, axes: Sequence[str], unjudged: Sequence[str] = ()
) -> list[Check]:
    found = (
        rates(select(rows, delta=delta), f"{name}, delta = {delta:g}", base, axes, unjudged)
        for delta in _DELTAS
    )
    return [check for check in found if check is not None]


def _sensitivity_checks(rows: Sequence[Row]) -> list[Check]:
    """The sensitivity grows with the tilt, and becomes that of the mean as the tilt vanishes
    (after Lemma 5.2).
    """
    line = on_axis(select(rows, delta=0.0), tilted_study.BASE, "tilt")
    tilts = sorted({row["tilt"] for row in line})
    sizes = [float(np.mean([row["excess"] for row in select(line, tilt=t)])) for t in tilts]
    grows = all(a < b for a, b in pairwise(sizes))
    smallest = select(line, tilt=tilts[0])[0]
    n = smallest["n"]
    mean = smallest["weight"] / smallest["n"]
    return [
        Check(
            "The price of privacy grows with the tilt (section 5.1.1)",
            grows and len(sizes) > 1,
            "excess " + ", ".join(f"{x:.2g} at {t:g}" for t, x in zip(tilts, sizes, strict=True)),
        ),
        Check(
            "As the tilt vanishes, one record weighs as in a mean (section 5.1.1)",
            mean <= 1.1 / n,
            f"C = {smallest['weight']:.3f} at tilt {tilts[0]:g}",
        ),
    ]


def draw_tilted(rows: list[Row], figure: Any) -> None:
    """Draw the excess along tilt, n, epsilon and d, one row per delta."""
    shown = [
        row
        for row in select(rows, reference="Theorem 5.2")
        if row["algorithm"] != "DPTiltedClassifier, given the ball"
    ]
    _draw(shown, figure, tilted_study.BASE, tilted_study.GRIDS, "excess tilted risk")


def _draw(rows: Sequence[Row], figure: Any, base: Any, grids: Any, label: str) -> None:
    axes = panels(figure, len(grids), len(_DELTAS))
    for line, delta in enumerate(_DELTAS):
        for column, axis in enumerate(grids):
            ax = axes[line, column]
            bound_curves(ax, on_axis(select(rows, delta=delta), base, axis), axis)
            ax.set_title(f"delta = {delta:g}", fontsize=9)
            if column == 0:
                ax.set_ylabel(label)
    finish(figure, axes, columns=5, note=ERRORS)


def table_adversarial(rows: list[Row]) -> list[Row]:
    """Return means over seeds with the bound, then the steps of the minimax solver."""
    runs = [row for row in rows if "excess" in row]
    lines = _summary(runs, (*_ADVERSARIAL_KEYS, "risk"), ("bound",))
    steps = [row for row in rows if "steps" in row]
    for line in summarise(steps, ("algorithm", "variant", "n", "d", "mu"), "steps"):
        printed = select(steps, mu=line["mu"])[0]["printed_steps"]
        kept = {
            key: line[key] for key in ("n", "d", "algorithm", "variant", "repeats", "mu", "steps")
        }
        lines.append({**kept, "printed order of steps": printed})
    return lines


def judge_adversarial(rows: list[Row]) -> list[Check]:
    """Return the checks of Theorem 5.3 and Corollary 5.2 and of our own."""
    checks = []
    runs = [row for row in rows if "excess" in row]
    for reference in ("Theorem 5.3", "Corollary 5.2"):
        theirs = select(runs, reference=reference, variant="paper")
        checks.append(below_bound(theirs, reference, _ADVERSARIAL_KEYS))
        if reference == "Theorem 5.3":  # the other bound is a sum, whose terms have different rates
            checks += _rate_checks(
                theirs, reference, adversarial_study.BASE, ("n", "epsilon"), ("d",)
            )
    for delta in _DELTAS:
        theirs = select(runs, reference="Theorem 5.3", variant="paper", delta=delta)
        checks.append(keeps_budget(theirs, f"Algorithm 8, delta = {delta:g}", _ADVERSARIAL_KEYS))
    steps = [row for row in rows if "steps" in row]
    if steps:
        name = "Corollary 5.1, strongly concave adversary"
        checks.append(within_steps(steps, name, "mu", explicit=False))
    empirical = select(runs, reference="Theorem 5.3")
    private = [row for row in empirical if row["algorithm"] != "trained without adversary"]
    checks.append(against(private, "all cells", _ADVERSARIAL_KEYS, "sound", "paper"))
    checks.append(against(private, "all cells", _ADVERSARIAL_KEYS, "dpconvex", "sound"))
    plain = [row for row in empirical if row["algorithm"] != "minimiser"]
    name = "private training against the adversary, non-private training without one"
    checks.append(against(plain, name, _ADVERSARIAL_KEYS, "dpconvex", "not private"))
    return checks


def draw_adversarial(rows: list[Row], figure: Any) -> None:
    """Draw the excess adversarial risk along radius, n, epsilon and d, one row per delta."""
    shown = [
        {**row, "variant": "no adversary in training"} if "without" in row["algorithm"] else row
        for row in rows
        if row.get("risk") == "empirical"
    ]
    grids = adversarial_study.GRIDS
    _draw(shown, figure, adversarial_study.BASE, grids, "excess adversarial risk")
