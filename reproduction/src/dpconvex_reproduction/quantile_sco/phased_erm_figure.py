"""Figure 10: Phased-ERM on large samples, and whether its noise is what keeps it back."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpconvex_reproduction.drawing import SPREAD, curves, finish, panels
from dpconvex_reproduction.exhibit import Check, Row, select
from dpconvex_reproduction.quantile_sco.comparison import AXES, Grid, tally_duels
from dpconvex_reproduction.quantile_sco.contenders import BUDGETS, DEFAULT, NOISELESS, NON_PRIVATE

__all__ = ["draw_phases", "judge_phases"]

_VALUE = "estimation_error"


def judge_phases(rows: list[Row]) -> list[Check]:
    """Hold what the paper says of Phased-ERM, and of the reason, against the runs."""
    grid = Grid(rows, _VALUE)
    printed = ("Phased-ERM", "paper")
    bare = (NOISELESS, "not private")
    ratio, words = grid.improvement(printed)
    statement = (
        "The error of Phased-ERM converges: from the smallest to the largest sample it "
        "halves or more"
    )
    checks = [Check(statement, ratio <= 0.5, f"error ratio {words}")]
    shares = [grid.duel(bare, printed, *place).ratio for place in grid.places()]
    checks.append(
        Check(
            "The conjecture that noise of the first phases is why it does badly: without any "
            "noise the error is less than half",
            max(shares) < 0.5,
            f"error without noise over error with it: median {float(np.median(shares)):.2g}, "
            f"{sum(share < 0.5 for share in shares)} of {len(shares)} cells below a half",
        )
    )
    for variant, label in (("sound", "with certified noise"), ("paper", "as printed")):
        duels = [
            grid.duel((DEFAULT, "dpconvex"), ("Phased-ERM", variant), *place)
            for place in grid.places()
        ]
        checks.append(
            Check(
                f"The default is no worse than Phased-ERM {label}",
                *tally_duels(duels),
                about="dpconvex",
            )
        )
    return checks


def draw_phases(rows: list[Row], figure: Any) -> None:
    """Draw a panel for each budget; bands are standard deviations."""
    axes = panels(figure, len(BUDGETS), sharey=True)
    shown = [row for row in rows if row["algorithm"] != NON_PRIVATE]
    for j, epsilon in enumerate(BUDGETS):
        ax = axes[0, j]
        ax.set(xscale="log", yscale="log", title=f"epsilon = {epsilon:g}", xlabel="records n")
        curves(ax, select(shown, epsilon=epsilon), "n", _VALUE, band="std")
    axes[0, 0].set_ylabel(AXES[_VALUE])
    finish(figure, axes, columns=3, note=SPREAD)
