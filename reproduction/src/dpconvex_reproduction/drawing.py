"""Figures in one manner: an algorithm keeps its colour, a variant its line style, spread is shaded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpconvex_reproduction.exhibit import Row, select, summarise

__all__ = ["COLORS", "STYLES", "curves", "finish", "panels"]

COLORS = (
    "#1a5fb4", "#c64600", "#26a269", "#813d9c", "#e5a50a", "#a51d2d", "#5e5c64", "#0aa3a3", "#865e3c",
)  # fmt: skip
STYLES = {"paper": ":", "sound": "--", "dpconvex": "-", "not private": "-."}


def panels(figure: Any, columns: int, rows: int = 1, height: float = 3.2, **options: Any) -> Any:
    """Size the figure and return an array of axes of shape (rows, columns)."""
    figure.set_size_inches(max(4.2 * columns, 5.5), height * rows)
    return figure.subplots(rows, columns, squeeze=False, **options)


def curves(
    axes: Any,
    rows: Sequence[Row],
    x: str,
    y: str,
    *,
    series: Sequence[str] = ("algorithm", "variant"),
    band: str = "error",
) -> None:
    """Draw the mean of ``y`` against ``x`` for every series, with its spread shaded.

    Parameters
    ----------
    axes : matplotlib Axes
        Drawn on.
    rows : sequence of dict
        Runs, not means.
    x, y : str
        Keys.
    series : sequence of str
        Keys that name a line; the colour follows the first, the style ``variant`` if it is among them.
    band : {"error", "std"}
        Two standard errors, or one standard deviation.
    """
    names = list(dict.fromkeys(tuple(row.get(key) for key in series) for row in rows))
    colored = list(dict.fromkeys(name[0] for name in names))
    for name in names:
        wanted = dict(zip(series, name, strict=True))
        line = sorted(summarise(select(rows, **wanted), [x], y), key=lambda row: row[x])
        place = np.array([row[x] for row in line], dtype=float)
        mean = np.array([row[y] for row in line])
        half = np.array([(2 if band == "error" else 1) * row[band] for row in line])
        color = COLORS[colored.index(name[0]) % len(COLORS)]
        style = STYLES.get(str(wanted.get("variant")), "-")
        label = ", ".join(dict.fromkeys(str(part) for part in name if part is not None))
        axes.plot(place, mean, style, color=color, marker=".", label=label)
        if np.isfinite(half).any():
            axes.fill_between(place, mean - half, mean + half, color=color, alpha=0.15, linewidth=0)


def finish(figure: Any, axes: Any, columns: int = 4) -> None:
    """Put one legend under all panels and tidy the layout."""
    handles: dict[str, Any] = {}
    for ax in np.ravel(axes):
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    lines = -(-len(handles) // columns)
    height = figure.get_size_inches()[1] + 0.22 * lines
    figure.set_size_inches(figure.get_size_inches()[0], height)
    figure.tight_layout(rect=(0, 0.22 * lines / height, 1, 1))
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=columns, fontsize=8, frameon=False)
