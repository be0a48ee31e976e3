"""The picture of a plan: predicted accuracy against the budget, for several numbers of rows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from dpconvex.planning.rates import quantile_risk_floor
from dpconvex.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from dpconvex.planning.planner import RiskPlan

__all__ = ["draw_plan"]


def risk_floor(outlook: RiskPlan, budgets: Array, curves: dict[str, Array]) -> Array | None:
    """Return the lower bound's rate for quantiles; its constant is unknown, so it is placed below all curves."""
    if outlook.task != "quantile":
        return None
    size = outlook.n_features + 1
    rate = np.array([quantile_risk_floor(outlook.n_samples, size, float(b)) for b in budgets])
    ratios = np.concatenate([risks / rate for risks in curves.values()])
    return rate * float(np.min(ratios[np.isfinite(ratios)], initial=1.0))


def draw_plan(outlook: RiskPlan, axes: Axes) -> None:
    """Draw predicted excess risk against the budget for several numbers of rows, the user's own marked.

    Parameters
    ----------
    outlook : RiskPlan
        The predictions.
    axes : Axes
        Where to draw; needs matplotlib.
    """
    from matplotlib.lines import Line2D

    own = float(getattr(outlook.guarantee, "mu", None) or outlook.guarantee.epsilon_bound)  # type: ignore[union-attr]
    budgets = np.geomspace(own / 20, own * 20, 21)
    colours = {"objective": "#c8553d", "output": "#588157"}
    colours["gradient"] = "#1b6ca8"
    curves = outlook.curve(budgets)
    for name, risks in curves.items():
        shown = np.isfinite(risks)
        axes.plot(budgets[shown], risks[shown], color=colours[name], linewidth=2, label=name)
    floor = risk_floor(outlook, budgets, curves)
    if floor is not None:
        axes.plot(
            budgets, floor, color="0.55", linewidth=1, linestyle=(0, (1, 2)),
            label="worst-case rate that none beats, placed below",
        )  # fmt: skip
    best = outlook.best
    for factor, style in ((0.1, ":"), (10, "--")):
        count = max(10, round(outlook.n_samples * factor))
        other = replace(outlook, n_samples=count).curve(budgets)[best.mechanism]
        shown = np.isfinite(other)
        axes.plot(
            budgets[shown], other[shown], color=colours[best.mechanism], linewidth=1.2, linestyle=style,
            label=f"{best.mechanism}, {count:,} rows",
        )  # fmt: skip
    axes.axhline(outlook.without_privacy.excess_risk, color="0.4", linewidth=1)
    axes.annotate(
        "without privacy", (budgets[-1], outlook.without_privacy.excess_risk), color="0.3",
        ha="right", va="bottom", xytext=(0, 2), textcoords="offset points",
    )  # fmt: skip
    if math.isfinite(best.excess_risk):
        axes.plot(own, best.excess_risk, "o", color="black", markersize=8, zorder=5)
        axes.annotate(
            f"you: {outlook.n_samples:,} rows", (own, best.excess_risk), xytext=(8, -14),
            textcoords="offset points", fontweight="bold",
        )  # fmt: skip
    handles, labels = axes.get_legend_handles_labels()
    if outlook.wanted is not None:
        axes.axhline(outlook.wanted, color="black", linewidth=0.8, linestyle=(0, (6, 4)))
        handles.append(Line2D([], [], color="black", linewidth=0.8, linestyle=(0, (6, 4))))
        labels.append(f"wanted: {outlook.wanted:g}")
    axes.set(xscale="log", yscale="log", ylabel="predicted excess risk")
    axes.set_xlabel("mu" if hasattr(outlook.guarantee, "mu") else "epsilon")
    axes.set_title(f"{outlook.task}, {outlook.n_features} columns, {outlook.n_samples:,} rows")
    lowest, highest = axes.get_ylim()
    axes.set_ylim(lowest, min(highest, 30.0))  # beyond it a constant prediction does better
    axes.grid(alpha=0.25)
    axes.legend(handles, labels, fontsize=8, loc="upper right")
