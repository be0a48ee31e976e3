"""Figure 3: trade-off functions of Gaussian DP, with what an attack attains on the algorithms
beside them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from dpconvex.privacy import GaussianDP
from dpconvex_reproduction.drawing import OTHERS, OURS, finish, panels
from dpconvex_reproduction.exhibit import Cell, Check, Row, Study, select
from dpconvex_reproduction.newsvendor_gdp.attack import STUDY as ATTACK
from dpconvex_reproduction.newsvendor_gdp.published import BUDGETS

__all__ = ["STUDIES", "draw", "judge", "table"]

LEVELS = (0.3, 0.5, 0.9, 3.0, 6.0)
_GRID = np.linspace(0.0, 1.0, 401)
_GAUSSIAN = "Gaussian DP"
_MARKERS = {"paper": "x", "sound": "o", "dpconvex": "^"}


def cells(quick: bool) -> list[Cell]:
    """List the paper's mu."""
    return [{"mu": mu} for mu in LEVELS]


def measure(cell: Cell) -> list[Row]:
    """Return ``G_mu(alpha) = Phi(Phi^-1(1 - alpha) - mu)`` by the formula and by the product."""
    formula = ndtr(ndtri(1 - _GRID) - cell["mu"])
    product = np.asarray(GaussianDP(cell["mu"]).tradeoff(_GRID))
    return [
        {
            "algorithm": _GAUSSIAN,
            "variant": variant,
            "mu": cell["mu"],
            "type_one": float(alpha),
            "type_two": float(beta),
        }
        for variant, values in (("paper", formula), ("dpconvex", product))
        for alpha, beta in zip(_GRID, values, strict=True)
    ]


STUDIES = (Study("newsvendor-gdp/trade-offs", cells, measure), ATTACK)


def _curve(rows: list[Row], mu: float, variant: str = "paper") -> Any:
    chosen = select(rows, algorithm=_GAUSSIAN, mu=mu, variant=variant)
    return np.array([[row["type_one"], row["type_two"]] for row in chosen])


def _attacks(rows: list[Row]) -> list[Row]:
    return [row for row in rows if "mu_at_least" in row]


def table(rows: list[Row]) -> list[Row]:
    """Return the attacks, then the curves at every tenth."""
    curves = [
        row
        for row in rows
        if "mu_at_least" not in row
        and abs(10 * row["type_one"] - round(10 * row["type_one"])) < 1e-9
    ]
    return [*_attacks(rows), *curves]


def judge(rows: list[Row]) -> list[Check]:
    """Hold the figure's shape and the rule of thumb of section 4.1 against the numbers."""
    curves = {mu: _curve(rows, mu) for mu in LEVELS}
    shaped = [
        bool(
            np.diff(c[:, 1]).max() <= 1e-12
            and np.diff(c[:, 1], 2).min() >= -1e-12
            and (c[:, 1] <= 1 - c[:, 0] + 1e-12).all()
        )
        for c in curves.values()
    ]
    nested = all((curves[a][1:-1, 1] >= curves[b][1:-1, 1]).all() for a, b in pairwise(LEVELS))
    errors = {mu: float(c.sum(axis=1).min()) for mu, c in curves.items()}
    off = max(float(np.abs(curves[mu] - _curve(rows, mu, "dpconvex")).max()) for mu in LEVELS)
    checks = [
        Check(
            "Every trade-off function is convex, falls, and lies below 1 - alpha; a larger mu "
            "lies lower",
            all(shaped) and nested,
            f"{sum(shaped)} of {len(shaped)} curves",
        ),
        Check(
            "mu up to 0.5 is reasonable privacy, mu above 6 almost none: best test's two errors "
            "add up to 0.8 and 0.01",
            errors[0.5] >= 0.8 and errors[6.0] <= 0.01,
            ", ".join(f"mu = {mu:g}: {error:.3g}" for mu, error in errors.items()),
        ),
    ]
    checks.append(
        Check(
            "GaussianDP.tradeoff is this function",
            off < 1e-9,
            f"largest difference {off:.1e}",
            "dpconvex",
        )
    )
    return checks


def draw(rows: list[Row], figure: Any) -> None:
    """Draw the curves as in the paper, and the attacks' errors against the three budgets of the
    experiments.
    """
    axes = panels(figure, 2, height=4.2)
    for ax, levels in zip(axes[0], (LEVELS, BUDGETS), strict=True):
        for mu in levels:
            curve = _curve(rows, mu)
            color = OTHERS[LEVELS.index(mu)]
            ax.plot(curve[:, 0], curve[:, 1], color=color, label=f"mu = {mu:g}")
        ax.plot([0, 1], [1, 0], color="0.8", linewidth=0.8)
        ax.set(xlabel="type I error", ylabel="type II error", aspect="equal")
    for row in _attacks(rows):
        axes[0, 1].plot(
            row["type_one"],
            row["type_two"],
            _MARKERS[row["variant"]],
            color=OTHERS[LEVELS.index(row["mu"])],
            clip_on=False,
            markersize=7,
            markerfacecolor=OURS if row["variant"] == "dpconvex" else "none",
        )
    for variant, marker in _MARKERS.items():
        label = f"attack on {'DPNewsvendor' if variant == 'dpconvex' else 'Algorithm 1'}, {variant}"
        face = OURS if variant == "dpconvex" else "none"
        axes[0, 1].plot([], [], marker, color="black", markerfacecolor=face, label=label)
    axes[0, 0].set_title("Gaussian DP")
    axes[0, 1].set_title("claimed, and attained by an attack")
    finish(figure, axes)
