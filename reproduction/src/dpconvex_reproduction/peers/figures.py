"""Figures of the comparison: a panel per data set, epsilon along, the fit without privacy as a
level line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dpconvex_reproduction.drawing import (
    ERRORS,
    OTHERS,
    OURS,
    curves,
    finish,
    panels,
    readable_axis,
)
from dpconvex_reproduction.exhibit import Row, select
from dpconvex_reproduction.peers.timing import table as time_table

__all__ = ["draw_curves", "draw_times"]

_SECONDS = (0.001, 0.01, 0.1, 1, 10, 100, 1000)
_TASKS = {"logistic": "logistic regression", "svm": "linear SVM", "quantile": "quantile regression"}


def draw_curves(rows: Sequence[Row], figure: Any, keys: Sequence[str], value: str) -> None:
    """Draw a value against epsilon, a panel per setting.

    Parameters
    ----------
    rows : sequence of dict
        Runs.
    figure : matplotlib Figure
        Drawn on.
    keys : sequence of str
        What names a panel.
    value : str
        ``accuracy``, or ``ratio`` on a logarithmic axis.
    """
    settings = list(dict.fromkeys(tuple(row[key] for key in keys) for row in rows))
    columns = 2 if len(settings) < 5 else 3
    axes = panels(figure, columns, -(-len(settings) // columns), height=2.9)
    for ax in axes.flat[len(settings) :]:
        ax.set_visible(False)
    for number, (ax, setting) in enumerate(zip(axes.flat, settings, strict=False)):
        here = select(rows, **dict(zip(keys, setting, strict=True)))
        private = [row for row in here if row["epsilon"] is not None]
        if value == "ratio":
            ax.set_yscale("log")
        curves(ax, private, "epsilon", value)
        low, high = ax.get_ylim()
        for style, name in zip(("-", ":", "-."), _level_lines(here), strict=False):
            (level,) = [row[value] for row in select(here, algorithm=name, epsilon=None)]
            ax.axhline(level, color="black", linestyle=style, linewidth=0.9, label=name)
        names = [str(part) for part in setting]
        ax.set_title(names[0] if len(names) == 1 else f"{names[0]}, quantile {names[1]}")
        readable_axis(ax, sorted({row["epsilon"] for row in private}), "epsilon")
        if number % columns == 0:
            ax.set_ylabel("test accuracy" if value == "accuracy" else "pinball loss / not private")
        if value == "accuracy":
            top = max(row[value] for row in here)
            ax.set_ylim(max(low, top - 0.2), top + 0.01)
        else:
            ax.set_ylim(0.95, max(1.3, min(high, 4.0)))
            shown = [tick for tick in (1, 1.1, 1.3, 1.6, 2, 3, 4) if tick <= ax.get_ylim()[1]]
            ax.set_yticks(shown, [f"{tick:g}" for tick in shown])
            ax.minorticks_off()
    finish(figure, axes, columns=columns, note=ERRORS)


def _level_lines(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["algorithm"] for row in rows if row["epsilon"] is None))


def draw_times(rows: Sequence[Row], figure: Any) -> None:
    """Draw median seconds as points, a panel per task and data set."""
    lines = time_table(list(rows))
    settings = list(dict.fromkeys((line["task"], line["data"]) for line in lines))
    axes = panels(figure, 2, -(-len(settings) // 2), height=2.1)
    for ax in axes.flat[len(settings) :]:
        ax.set_visible(False)
    every = [line["median seconds"] for line in lines]
    limits = (min(every) / 2, max(every) * 4)  # room for the number beside the last point
    color = {"dpconvex": OURS, "peer": OTHERS[0], "not private": OTHERS[5]}
    for ax, (task, data) in zip(axes.flat, settings, strict=False):
        here = select(lines, task=task, data=data)[::-1]
        seconds = [line["median seconds"] for line in here]
        names = [line["algorithm"] for line in here]
        # A logarithmic axis has no zero at which a bar could begin.
        ax.scatter(
            seconds, range(len(here)), color=[color[line["variant"]] for line in here], zorder=2
        )
        ax.hlines(range(len(here)), 1e-6, 1e6, color="0.9", linewidth=0.8, zorder=1)
        ax.set_yticks(range(len(here)), names)
        ax.set(xlim=limits, ylim=(-0.6, len(here) - 0.4))
        readable_axis(
            ax, [tick for tick in _SECONDS if limits[0] <= tick <= limits[1]], "seconds per fit"
        )
        for place, value in enumerate(seconds):
            ax.annotate(
                f"{value:.2g}",
                (value, place),
                (6, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        for text, line in zip(ax.get_yticklabels(), here, strict=True):
            text.set_color(color[line["variant"]])
        ax.set_title(
            f"{_TASKS.get(task, task)},\n{data} ({here[0]['rows']:,} x {here[0]['columns']})",
            fontsize=9,
        )
    figure.tight_layout()
