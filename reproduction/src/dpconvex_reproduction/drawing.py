"""Figures in one manner: ours has one colour that nobody else has, a variant its line style, spread
is shaded.

Lines are drawn from thick to thin, ours first, with markers that shrink from one to the next and
dashes that fill each other's gaps, so that one that covers another does not hide it. Where a row of
panels shows the same lines, their names stand with a sample of the line at the ends of the last
panel's lines; otherwise there is one legend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from dpconvex_reproduction.exhibit import Row, select, summarise
from dpconvex_reproduction.outputs import FIGURE_MARK, write_output

__all__ = [
    "ERRORS",
    "MARKERS",
    "MOST_LINES",
    "OTHERS",
    "OURS",
    "SPREAD",
    "STYLES",
    "WIDEST",
    "LineEnd",
    "curves",
    "finish",
    "label_lines",
    "label_room",
    "panels",
    "readable_axis",
    "save_figure",
    "styles_in_words",
]

OURS = "#1a5fb4"
#: Colours of everybody and everything else; none is a blue.
OTHERS = ("#c64600", "#26a269", "#813d9c", "#e5a50a", "#a51d2d", "#5e5c64", "#865e3c", "#d16ba5")
STYLES = {"paper": ":", "sound": "--", "dpconvex": "-", "not private": "-."}
_STYLES_IN_WORDS = {
    "paper": "dotted is `paper`",
    "sound": "dashed is `sound`",
    "dpconvex": "thick and blue is `dpconvex`",
    "not private": "thin and black is `not private`",
}
MOST_LINES = 7  # in one panel; more become small multiples
#: What shaded bands are, for a line below the panels.
ERRORS = "Bands: two standard errors of the mean."
SPREAD = "Bands: one standard deviation of a run."
MARKERS = "osD^vPX*"
_DASHES = {":": (1.0, 2.0), "--": (4.0, 3.0)}  # in widths of the line
_OUR_DASHES = ("-", (0, (5, 1)), (0, (2, 1)))  # of several models of ours in one panel
_REFERENCES = ("-.", ":", (0, (6, 2)))  # of several fits without privacy
WIDEST = 9.4  # inches: on a page of 800 pixels letters are not made smaller
_HEIGHTS = {1: 3.2, 2: 3.2, 3: 2.8}  # of a row, by its panels
_LETTERS = 8
_NARROW_TITLE = 9
_LABEL_INCHES = 0.066  # of a letter of a label
_LABEL_HEIGHT = 0.15
_SAMPLE = (5.0, 25.0)  # points right of a panel where a label's sample begins and ends
_TEXT: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 8,
}


@dataclass(frozen=True)
class LineEnd:
    """Where a line ends, and what stands there.

    Attributes
    ----------
    value : float
        In data units.
    name : str
        Written there.
    line : matplotlib Line2D
        Looks like it.
    """

    value: float
    name: str
    line: Any


def panels(
    figure: Any, columns: int, rows: int = 1, height: float | None = None, **options: Any
) -> Any:
    """Size the figure and return an array of axes of shape (rows, columns).

    Parameters
    ----------
    figure : matplotlib Figure
        Drawn on.
    columns, rows : int
        Panels.
    height : float, optional
        Inches of a row; by default fewer where panels are narrow.
    **options
        Passed on to ``Figure.subplots``.
    """
    height = _HEIGHTS.get(columns, 2.3) if height is None else height
    figure.set_size_inches(min(max(4.2 * columns, 5.5), WIDEST), height * rows)
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
        Drawn on; if its y axis is to be logarithmic, it is so already.
    rows : sequence of dict
        Runs, not means.
    x, y : str
        Keys.
    series : sequence of str
        Keys that name a line. The colour follows the first, and is ours where ``variant`` is
        ``"dpconvex"``; the style follows the variant, but several lines of ours, or without
        privacy, have one each.
    band : {"error", "std"}
        Two standard errors, or one standard deviation.
    """
    names = list(dict.fromkeys(tuple(row.get(key) for key in series) for row in rows))
    kinds = [str(dict(zip(series, name, strict=True)).get("variant")) for name in names]
    others = {kind for kind in kinds if kind not in ("dpconvex", "not private")}
    colored = list(
        dict.fromkeys(name[0] for name, kind in zip(names, kinds, strict=True) if kind in others)
    )
    for number, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        mine = kind == "dpconvex"
        reference = kind == "not private"
        wanted = dict(zip(series, name, strict=True))
        line = sorted(summarise(select(rows, **wanted), [x], y), key=lambda row: row[x])
        place = np.array([row[x] for row in line], dtype=float)
        mean = np.array([row[y] for row in line])
        half = np.array([(2 if band == "error" else 1) * row[band] for row in line])
        color = (
            OURS if mine else "black" if reference else OTHERS[colored.index(name[0]) % len(OTHERS)]
        )
        share = number / max(1, len(names) - 1)
        before = kinds[:number].count(kind)  # lines of the same kind
        label = ", ".join(dict.fromkeys(str(part) for part in name if part is not None))
        axes.plot(
            place,
            mean,
            linestyle=_style(kind, before, number),
            color=color,
            marker="" if reference else MARKERS[number % len(MARKERS)],
            markersize=5.0 if mine else 6.0 - 2.5 * share,
            markerfacecolor=(color if before == 0 else "white") if mine else "none",
            linewidth=1.0
            if reference
            else (3.2 if before == 0 else 2.0)
            if mine
            else 2.2 - 1.2 * share,
            zorder=1.9 if mine else 2.0,  # the thickest line is the lowest
            label=label,
            # At its end a line has a short name: what all others in the panel have too is in the
            # title.
            gid=str(name[0]) if mine or reference or len(others) == 1 else label,
        )
        if np.isfinite(half).any():
            low = mean - half
            if (
                axes.get_yscale() == "log"
            ):  # a band that reaches towards 0 would fill the panel: the logarithm's error
                low = np.where(mean > 0, mean * np.exp(-half / np.maximum(mean, 1e-300)), low)
            axes.fill_between(place, low, mean + half, color=color, alpha=0.15, linewidth=0)


def _style(kind: str, before: int, number: int) -> Any:
    """Return a line style; equal dashes of the lines of a panel begin at different places."""
    if kind == "dpconvex":
        return _OUR_DASHES[before % len(_OUR_DASHES)]
    if kind == "not private":
        return _REFERENCES[before % len(_REFERENCES)]
    style = STYLES.get(kind, "-")
    if style not in _DASHES:
        return style
    dashes = _DASHES[style]
    return (round(sum(dashes) * (0.382 * number % 1.0), 2), dashes)


def _spelled(values: Sequence[float]) -> list[str]:
    """Return numbers of an axis as people write them, thousands as k and millions as M where there
    are large ones.

    Examples
    --------
    >>> _spelled([0.25, 1, 4]), _spelled([1000, 10000]), _spelled([100, 1000, 30000, 1e6])
    (['0.25', '1', '4'], ['1,000', '10,000'], ['100', '1k', '30k', '1M'])
    """
    if max(values, default=0.0) < 1e5:
        return [f"{value:,.10g}" for value in values]
    return [
        f"{value / 1e6:g}M"
        if value >= 1e6
        else f"{value / 1e3:g}k"
        if value >= 1e3
        else f"{value:g}"
        for value in values
    ]


def readable_axis(ax: Any, ticks: Sequence[float], label: str) -> None:
    """Give a logarithmic x axis ticks at these places, written as plain numbers."""
    ax.set_xscale("log")
    ax.set_xticks(ticks, _spelled(ticks))
    ax.minorticks_off()
    ax.set_xlabel(label)


def _plain_ticks(axes: Sequence[Any]) -> None:
    """Write numbers of logarithmic axes as people do, if on none they are tiny or huge; 2 and 5
    on short ones.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    for which in "xy":
        found = []
        for ax in axes:
            axis, limits = (ax.xaxis, ax.get_xlim()) if which == "x" else (ax.yaxis, ax.get_ylim())
            if (
                axis.get_scale() == "log"
                and isinstance(axis.get_major_locator(), LogLocator)
                and ax.get_visible()
            ):
                found.append((axis, *limits))
        plain = all(low >= 1e-4 and high <= 1e6 for _, low, high in found)
        for axis, low, high in found:
            short = np.log10(high / low) < 2 and plain
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if short else (1,), numticks=8))
            axis.set_minor_formatter(NullFormatter())
            if plain:
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
            if short:
                axis.set_minor_locator(NullLocator())


def _thin_labels(ax: Any) -> None:
    """Take away numbers of the x axis that would touch the one before."""
    from matplotlib.ticker import FixedLocator

    if (
        not isinstance(ax.xaxis.get_major_locator(), FixedLocator)
        or not ax.xaxis.get_tick_params()["labelbottom"]
    ):
        return
    end = -np.inf
    words = []
    for label in ax.get_xticklabels():
        box = label.get_window_extent()
        words.append(label.get_text() if box.x0 > end + 3 else "")
        end = box.x1 if words[-1] else end
    ax.set_xticks(ax.get_xticks(), words)


def label_lines(ax: Any, ends: Sequence[LineEnd]) -> None:
    """Write names right of a panel, each with a sample of its line, pushed apart where they would
    cover each other.

    Parameters
    ----------
    ax : matplotlib Axes
        With final limits and size.
    ends : sequence of LineEnd
        Those beyond the limits have an arrow after the name.
    """
    from matplotlib.lines import Line2D

    box = ax.get_window_extent()
    gap = _LABEL_HEIGHT * ax.figure.dpi / box.height
    point = ax.figure.dpi / 72 / box.width  # in shares of the panel's width
    to_axes = ax.transData + ax.transAxes.inverted()
    right = ax.get_xlim()[1]
    heights = [float(to_axes.transform((right, end.value))[1]) for end in ends]
    order = sorted(range(len(ends)), key=heights.__getitem__)
    places: list[float] = []
    for k in order:
        place = float(np.clip(heights[k], 0.0, 1.0))
        places.append(place if not places else max(place, places[-1] + gap))
    overshoot = max(0.0, places[-1] - 1.0) if places else 0.0
    for k in range(len(places) - 1, -1, -1):  # what was pushed over the top comes down again
        limit = 1.0 if k == len(places) - 1 else places[k + 1] - gap
        places[k] = min(places[k], limit) if overshoot else places[k]
    begin, stop = (1.0 + points * point for points in _SAMPLE)
    for place, k in zip(places, order, strict=True):
        end = ends[k]
        height = heights[k]
        color = end.line.get_color()
        if 0.0 <= height <= 1.0:  # a thin line leads from the end to the sample
            ax.figure.add_artist(
                Line2D(
                    [1.0, begin],
                    [height, place],
                    color=color,
                    linewidth=0.5,
                    alpha=0.6,
                    transform=ax.transAxes,
                )
            )
        sample = Line2D([begin, (begin + stop) / 2, stop], [place] * 3)
        sample.update_from(end.line)
        sample.set(transform=ax.transAxes, clip_on=False, markevery=[1], label="")
        ax.figure.add_artist(sample)
        ax.annotate(
            end.name + (" ↑" if height > 1.0 else " ↓" if height < 0.0 else ""),
            (1.0, place),
            (_SAMPLE[1] + 3, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            color=color,
            fontsize=_LETTERS,
            va="center_baseline",
            annotation_clip=False,
        )


def label_room(names: Sequence[str]) -> float:
    """Return the inches that names with their samples take."""
    return _LABEL_INCHES * max(map(len, names), default=0) + _SAMPLE[1] / 72 + 0.12


def _ends(ax: Any) -> list[LineEnd]:
    """Return the ends of the labelled lines of a panel."""
    found = []
    for line in ax.get_lines():
        values = np.asarray(line.get_ydata(), dtype=float)
        finite = values[np.isfinite(values)]
        if len(finite) and not line.get_label().startswith("_"):
            found.append(LineEnd(float(finite[-1]), line.get_gid() or line.get_label(), line))
    return found


def _labels(ax: Any) -> set[str]:
    """Return what a legend of the panel would name, boxes and patches too."""
    return set(ax.get_legend_handles_labels()[1])


def _names(ax: Any) -> set[str]:
    """Return the names of the lines of a panel that end in it."""
    found = {line.get_label() for line in ax.get_lines() if np.size(line.get_xdata())}
    return {name for name in found if not name.startswith("_")}


def finish(figure: Any, axes: Any, columns: int = 4, note: str = "") -> None:
    """Name the lines, at their ends where each row's last panel has them all, in one legend
    otherwise; tidy up.

    Parameters
    ----------
    figure : matplotlib Figure
        Drawn on.
    axes : array of matplotlib Axes
        Its panels.
    columns : int
        Of a legend.
    note : str
        Written below the panels: what bands are.
    """
    grid = np.atleast_2d(axes)
    _plain_ticks(list(grid.flat))
    handles: dict[str, Any] = {}
    for ax in grid.flat:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    shown = [[ax for ax in row if ax.get_visible()] for row in grid]
    last = [row[-1] for row in shown if row]
    complete = all(
        _names(row[-1]) == {name for ax in row for name in _labels(ax)} for row in shown if row
    )
    # A level without privacy is a reference, and no line more.
    direct = bool(handles) and complete and max(len(_names(ax)) for ax in last) <= MOST_LINES + 1
    room = label_room([end.name for ax in last for end in _ends(ax)]) if direct else 0.0
    lines = 0 if direct else -(-len(handles) // columns)
    foot = 0.22 * lines + (0.2 if note else 0.0)
    width, height = figure.get_size_inches()
    width = min(width + room, max(width, WIDEST))
    height = height + foot
    figure.set_size_inches(width, height)
    for ax in grid.flat if grid.shape[1] > 2 else ():
        ax.title.set_fontsize(min(ax.title.get_fontsize(), _NARROW_TITLE))
    figure.tight_layout(rect=(0, foot / height, (width - room) / width, 1), w_pad=0.6)
    if note:
        figure.text(0.008, 0.04 / height, note, fontsize=_LETTERS, color="0.3", va="bottom")
    for ax in grid.flat:
        _thin_labels(ax)
    if direct:
        for ax in last:
            label_lines(ax, _ends(ax))
    elif handles:
        place = {"loc": "lower center", "bbox_to_anchor": (0.5, (foot - 0.22 * lines) / height)}
        figure.legend(handles.values(), handles.keys(), ncols=columns, frameon=False, **place)


def styles_in_words(figure: Any) -> str:
    """Return what the styles of the lines that :func:`curves` has drawn mean; empty of a figure
    with one variant.

    Parameters
    ----------
    figure : matplotlib Figure
        With its panels.
    """
    labels = {
        str(line.get_label()).rpartition(", ")[2] for ax in figure.axes for line in ax.get_lines()
    }
    drawn = [words for variant, words in _STYLES_IN_WORDS.items() if variant in labels]
    return f"Lines: {', '.join(drawn)}." if len(drawn) > 1 and labels & {"paper", "sound"} else ""


def save_figure(path: Path, draw: Callable[..., None], *content: Any) -> str:
    """Let ``draw(figure, *content)`` draw a figure and write it as a small file; equal numbers give
    equal files.

    Returns
    -------
    str
        What the styles of its lines mean, for the page; empty of a figure with one variant.
    """
    import matplotlib as mpl
    from cycler import cycler
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    # The first colours of matplotlib's own cycle are a blue and an orange: nobody else has a blue
    # here.
    with mpl.rc_context({**_TEXT, "axes.prop_cycle": cycler(color=OTHERS)}):
        figure = Figure(layout=None)
        FigureCanvasAgg(figure)
        draw(figure, *content)
        drawn = BytesIO()
        figure.savefig(drawn, dpi=90)
    # A palette makes files a third of the size; no version and no date: equal numbers give equal
    # files.
    mark = PngInfo()
    mark.add_text("Software", FIGURE_MARK)
    small = BytesIO()
    Image.open(drawn).convert("RGB").quantize(128).save(small, "png", optimize=True, pnginfo=mark)
    write_output(path, small.getvalue())
    return styles_in_words(figure)
