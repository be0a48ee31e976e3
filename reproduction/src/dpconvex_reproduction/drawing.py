"""Figures in one manner: ours has one colour that nobody else has, a variant its line style, spread is shaded.

Lines are drawn from thick to thin, ours first, with markers of their own, so that one that covers another does not hide
it. Where a row of panels shows the same lines, their names stand at the ends of the last panel's lines; otherwise there
is one legend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from dpconvex_reproduction.exhibit import Row, select, summarise

__all__ = [
    "MOST_LINES", "OTHERS", "OURS", "STYLES", "curves", "finish", "label_lines", "panels", "readable_axis",
    "save_figure",
]  # fmt: skip

OURS = "#1a5fb4"
#: Colours of everybody and everything else; none is a blue.
OTHERS = ("#c64600", "#26a269", "#813d9c", "#e5a50a", "#a51d2d", "#5e5c64", "#865e3c", "#d16ba5")
STYLES = {"paper": ":", "sound": "--", "dpconvex": "-", "not private": "-."}
MOST_LINES = 7  # in one panel; more become small multiples
_MARKERS = "osD^vPX*"
_LABEL_INCHES = 0.062  # of a letter of a label, and a margin
_LABEL_HEIGHT = 0.145


def panels(figure: Any, columns: int, rows: int = 1, height: float = 3.2, **options: Any) -> Any:
    """Size the figure and return an array of axes of shape (rows, columns)."""
    figure.set_size_inches(max(4.2 * columns, 5.5), height * rows)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for ax in axes.flat:
        ax.set_prop_cycle(color=OTHERS)  # our colour is given to ours by name, never by order
    return axes


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
        Keys that name a line. The colour follows the first, and is ours where ``variant`` is ``"dpconvex"``; the style
        follows the variant.
    band : {"error", "std"}
        Two standard errors, or one standard deviation.
    """
    names = list(dict.fromkeys(tuple(row.get(key) for key in series) for row in rows))
    kinds = [str(dict(zip(series, name, strict=True)).get("variant")) for name in names]
    others = {kind for kind in kinds if kind not in ("dpconvex", "not private")}
    colored = list(dict.fromkeys(name[0] for name, kind in zip(names, kinds, strict=True) if kind in others))
    for number, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        mine, reference = kind == "dpconvex", kind == "not private"
        wanted = dict(zip(series, name, strict=True))
        line = sorted(summarise(select(rows, **wanted), [x], y), key=lambda row: row[x])
        place = np.array([row[x] for row in line], dtype=float)
        mean = np.array([row[y] for row in line])
        half = np.array([(2 if band == "error" else 1) * row[band] for row in line])
        color = OURS if mine else "black" if reference else OTHERS[colored.index(name[0]) % len(OTHERS)]
        style = STYLES.get(kind, "-")
        label = ", ".join(dict.fromkeys(str(part) for part in name if part is not None))
        axes.plot(
            place,
            mean,
            style,
            color=color,
            marker="" if reference else _MARKERS[number % len(_MARKERS)],
            markersize=4,
            markerfacecolor=color if mine else "white",
            linewidth=1.0 if reference else 3.0 if mine else 2.2 - 1.2 * number / max(1, len(names) - 1),
            zorder=1.9 if mine else 2.0,  # the thickest line is the lowest
            label=label,
            # At its end a line has a short name: what all others in the panel have too is in the title.
            gid=str(name[0]) if mine or reference or len(others) == 1 else label,
        )
        if np.isfinite(half).any():
            # A band that would reach 0 fills a logarithmic panel: there the error is one of the logarithm.
            low = np.where((mean > 0) & (half >= mean), mean * np.exp(-half / np.maximum(mean, 1e-300)), mean - half)
            axes.fill_between(place, low, mean + half, color=color, alpha=0.15, linewidth=0)


def readable_axis(ax: Any, ticks: Sequence[float], label: str) -> None:
    """Give a logarithmic x axis ticks at these places, written as plain numbers."""
    ax.set_xscale("log")
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_xlabel(label)


def _plain_ticks(ax: Any) -> None:
    """Write numbers of logarithmic axes as people do, where they are neither tiny nor huge; 2 and 5 on short ones."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    for axis, limits in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
        if axis.get_scale() != "log" or not isinstance(axis.get_major_locator(), LogLocator):
            continue
        low, high = limits
        if low <= 0 or low < 1e-4 or high > 1e6:
            continue
        decades = np.log10(high / low)
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2 else (1,)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_formatter(NullFormatter())
        if decades < 2:
            axis.set_minor_locator(NullLocator())


def label_lines(ax: Any, ends: Sequence[tuple[float, str, str]]) -> None:
    """Write names at the right end of lines, pushed apart where they would cover each other.

    Parameters
    ----------
    ax : matplotlib Axes
        With final limits.
    ends : sequence of (value, name, color)
        Where each line ends, in data units.
    """
    height = ax.get_window_extent().height / ax.figure.dpi
    gap = _LABEL_HEIGHT / height
    to_axes = ax.transData + ax.transAxes.inverted()
    right = ax.get_xlim()[1]
    wanted = sorted(
        (float(np.clip(to_axes.transform((right, value))[1], 0.0, 1.0)), name, color) for value, name, color in ends
    )
    places: list[float] = []
    for place, _, _ in wanted:
        places.append(place if not places else max(place, places[-1] + gap))
    overshoot = max(0.0, places[-1] - 1.0) if places else 0.0
    for k in range(len(places) - 1, -1, -1):  # what was pushed over the top comes down again
        limit = 1.0 if k == len(places) - 1 else places[k + 1] - gap
        places[k] = min(places[k], limit) if overshoot else places[k]
    for place, (_, name, color) in zip(places, wanted, strict=True):
        ax.annotate(
            name,
            (1.0, place),
            (4, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            color=color,
            fontsize=7,
            va="center",
            annotation_clip=False,
        )


def _ends(ax: Any) -> list[tuple[float, str, str]]:
    """Return value, name and colour at the right end of every labelled line that is seen there."""
    found = []
    low, high = sorted(ax.get_ylim())
    for line in ax.get_lines():
        label, values = line.get_label(), np.asarray(line.get_ydata(), dtype=float)
        finite = values[np.isfinite(values)]
        if label.startswith("_") or not len(finite):
            continue
        found.append((float(np.clip(finite[-1], low, high)), line.get_gid() or label, line.get_color()))
    return found


def _labels(ax: Any) -> set[str]:
    """Return what a legend of the panel would name, boxes and patches too."""
    return set(ax.get_legend_handles_labels()[1])


def _names(ax: Any) -> set[str]:
    """Return the names of the lines of a panel that end in it."""
    found = {line.get_label() for line in ax.get_lines() if np.size(line.get_xdata())}
    return {name for name in found if not name.startswith("_")}


def finish(figure: Any, axes: Any, columns: int = 4) -> None:
    """Name the lines, at their ends where each row's last panel has them all, in one legend otherwise; tidy up."""
    grid = np.atleast_2d(axes)
    for ax in grid.flat:
        _plain_ticks(ax)
    handles: dict[str, Any] = {}
    for ax in grid.flat:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    shown = [[ax for ax in row if ax.get_visible()] for row in grid]
    last = [row[-1] for row in shown if row]
    complete = all(_names(row[-1]) == {name for ax in row for name in _labels(ax)} for row in shown if row)
    # A level without privacy is a reference, and no line more.
    if handles and complete and max(len(_names(ax)) for ax in last) <= MOST_LINES + 1:
        room = _LABEL_INCHES * max(len(name) for ax in last for _, name, _ in _ends(ax)) + 0.15
        width, height = figure.get_size_inches()
        figure.set_size_inches(width + room, height)
        figure.tight_layout(rect=(0, 0, width / (width + room), 1))
        for ax in last:
            label_lines(ax, _ends(ax))
        return
    count = -(-len(handles) // columns)
    height = figure.get_size_inches()[1] + 0.22 * count
    figure.set_size_inches(figure.get_size_inches()[0], height)
    figure.tight_layout(rect=(0, 0.22 * count / height, 1, 1))
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=columns, fontsize=8, frameon=False)


def save_figure(path: Path, draw: Callable[..., None], *content: Any) -> None:
    """Let ``draw(figure, *content)`` draw a figure and write it as a small file; equal numbers give equal files."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    figure = Figure(layout=None)
    FigureCanvasAgg(figure)
    draw(figure, *content)
    drawn = BytesIO()
    figure.savefig(drawn, dpi=90)
    # A palette makes files a third of the size; no version and no date: equal numbers give equal files.
    Image.open(drawn).convert("RGB").quantize(128).save(path, optimize=True)
