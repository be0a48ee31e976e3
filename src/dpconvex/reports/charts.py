"""Pictures of a report as inline SVG: no script, no request, a title and a description for every reader."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import count

from dpconvex.reports.printable import visible

WIDTH, HEIGHT = 640, 380
LEFT, RIGHT, TOP, BOTTOM = 74, 18, 16, 54
COLORS = ("#1a5fb4", "#c64600", "#26a269", "#813d9c", "#5e5c64")
_numbers = count(1)


@dataclass(frozen=True)
class Curve:
    """A named line through points.

    Attributes
    ----------
    name : str
        Shown in the legend.
    x, y : sequence of float
        Points, in order.
    dashed : bool
        Whether it is drawn as a reference.
    marks : bool
        Whether each point is marked.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False
    marks: bool = False


@dataclass(frozen=True)
class Axis:
    """One axis: its label, its range, and whether it is logarithmic."""

    label: str
    low: float
    high: float
    logarithmic: bool = False
    form: Callable[[float], str] = "{:g}".format

    def place(self, value: float) -> float:
        """Return where a value lies, 0 at the low end and 1 at the high end, kept a little beyond."""
        if self.logarithmic:
            smallest = self.low / 10
            part = math.log(max(value, smallest) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return min(max(part, -0.02), 1.02)

    def ticks(self) -> list[float]:
        """Return round values on the axis, at most about eight."""
        if self.logarithmic:
            span = math.log10(self.high / self.low)
            steps = (1, 2, 5) if span <= 2.5 else (1,)
            first = math.floor(math.log10(self.low))
            found = [step * 10.0**power for power in range(first, first + math.ceil(span) + 2) for step in steps]
            found = [value for value in found if self.low * 0.999 <= value <= self.high * 1.001]
            return found[:: max(1, len(found) // 8)]
        rough = (self.high - self.low) / 7
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next((unit * k for k in (1, 2, 5, 10) if unit * k >= 0.999 * rough), rough)
        start = math.ceil(self.low / step - 1e-9)
        stop = math.floor(self.high / step + 1e-9)
        return [round(k * step, 12) for k in range(start, stop + 1)]


def _svg(title: str, description: str, height: float, body: list[str]) -> str:
    number = next(_numbers)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
            f'aria-labelledby="plot-{number}-title plot-{number}-text">',
            f'<title id="plot-{number}-title">{escape(visible(title))}</title>',
            f'<desc id="plot-{number}-text">{escape(visible(description))}</desc>',
            *body,
            "</svg>",
        ]
    )


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(visible(words))}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def line_chart(
    title: str, description: str, curves: Sequence[Curve], x: Axis, y: Axis, legend: str = "upper right"
) -> str:
    """Return an SVG with one line per curve.

    Parameters
    ----------
    title, description : str
        What the picture shows, and what it says, for those who cannot see it.
    curves : sequence of Curve
        The lines.
    x, y : Axis
        Ranges and labels.
    legend : {"upper right", "lower right"}
        Where the names of the curves stand.
    """
    inside_width, inside_height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def across(value: float) -> float:
        return LEFT + inside_width * x.place(value)

    def up(value: float) -> float:
        return TOP + inside_height * (1 - y.place(value))

    body = []
    for value in x.ticks():
        body.append(_line(across(value), TOP, across(value), TOP + inside_height, "grid"))
        body.append(_text(across(value), TOP + inside_height + 18, x.form(value)))
    for value in y.ticks():
        body.append(_line(LEFT, up(value), LEFT + inside_width, up(value), "grid"))
        body.append(_text(LEFT - 8, up(value) + 4, y.form(value), anchor="end"))
    body.append(_line(LEFT, TOP + inside_height, LEFT + inside_width, TOP + inside_height, "axis"))
    body.append(_line(LEFT, TOP, LEFT, TOP + inside_height, "axis"))
    body.append(_text(LEFT + inside_width / 2, HEIGHT - 10, x.label, "label"))
    middle = TOP + inside_height / 2
    body.append(
        f'<text transform="translate(16 {middle:.1f}) rotate(-90)" text-anchor="middle" class="label">'
        f"{escape(visible(y.label))}</text>"
    )
    top = TOP + 18 if legend == "upper right" else TOP + inside_height - 20 * len(curves) + 6
    for number, curve in enumerate(curves):
        color = COLORS[number % len(COLORS)]
        dash = ' stroke-dasharray="6 5"' if curve.dashed else ""
        points = " ".join(f"{across(a):.1f},{up(b):.1f}" for a, b in zip(curve.x, curve.y, strict=True))
        body.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="2.4"{dash}/>')
        if curve.marks:
            body += [
                f'<circle cx="{across(a):.1f}" cy="{up(b):.1f}" r="3.6" fill="{color}"/>'
                for a, b in zip(curve.x, curve.y, strict=True)
            ]
        height = top + 20 * number
        right = LEFT + inside_width - 8
        body.append(_text(right - 34, height + 4, curve.name, "legend", "end"))
        body.append(
            f'<line x1="{right - 28}" y1="{height:.1f}" x2="{right}" y2="{height:.1f}" stroke="{color}" '
            f'stroke-width="2.4"{dash}/>'
        )
    return _svg(title, description, HEIGHT, body)


def _named_rows(
    names: Sequence[str], low: float, high: float, label: str
) -> tuple[list[str], Callable[[float], float], list[float], float]:
    """Return a frame with one row per name: its body, where values and rows lie, and its height."""
    if high == low:
        high = 1.0
    pad = 0.04 * (high - low)
    axis = Axis(label, low - pad if low < 0 else 0.0, high + pad if high > 0 else 0.0)
    left, row, top = 190, 26, 8
    bottom = top + row * len(names)
    inside = WIDTH - left - RIGHT

    def across(value: float) -> float:
        return left + inside * axis.place(value)

    body = []
    for value in axis.ticks():
        body.append(_line(across(value), top, across(value), bottom, "grid"))
        body.append(_text(across(value), bottom + 18, f"{value:g}"))
    middles = [top + row * (number + 0.5) for number in range(len(names))]
    for name, middle in zip(names, middles, strict=True):
        shown = name if len(name) <= 26 else name[:25] + "…"
        body.append(_text(left - 10, middle + 4, shown, anchor="end"))
    body.append(_line(across(0.0), top, across(0.0), bottom, "axis"))
    body.append(_text(left + inside / 2, bottom + 42, label, "label"))
    return body, across, middles, bottom + 54


def _whisker(a: float, b: float, middle: float) -> list[str]:
    ends = [_line(end, middle - 5, end, middle + 5, "whisker") for end in (a, b)]
    return [_line(a, middle, b, middle, "whisker"), *ends]


def effect_chart(
    title: str,
    description: str,
    names: Sequence[str],
    values: Sequence[float],
    spreads: Sequence[float] | None,
    label: str,
) -> str:
    """Return an SVG with one bar per name, and a whisker of twice the spread on each side.

    Parameters
    ----------
    title, description : str
        What the picture shows, and what it says.
    names, values : sequence
        One bar each.
    spreads : sequence of float, optional
        Standard deviations; no whiskers without them.
    label : str
        What the bars measure.
    """
    room = [0.0] * len(values) if spreads is None else [2 * spread for spread in spreads]
    low = min(0.0, *(value - extra for value, extra in zip(values, room, strict=True)))
    high = max(0.0, *(value + extra for value, extra in zip(values, room, strict=True)))
    body, across, middles, height = _named_rows(names, low, high, label)
    for middle, value, extra in zip(middles, values, room, strict=True):
        start, end = sorted((across(0.0), across(value)))
        body.append(
            f'<rect x="{start:.1f}" y="{middle - 8:.1f}" width="{max(end - start, 1):.1f}" height="16" '
            f'fill="{COLORS[0]}" fill-opacity="0.75"/>'
        )
        if spreads is not None:
            body += _whisker(across(value - extra), across(value + extra), middle)
    return _svg(title, description, height, body)


def interval_chart(
    title: str,
    description: str,
    names: Sequence[str],
    values: Sequence[float],
    ends: Sequence[tuple[float, float]],
    label: str,
) -> str:
    """Return an SVG with one dot per name on the line of its interval; other parameters as in `effect_chart`.

    Parameters
    ----------
    title, description, names, values, label
        As in :func:`effect_chart`.
    ends : sequence of (float, float)
        Low and high ends of the intervals.
    """
    low, high = min(0.0, *(low for low, _ in ends)), max(0.0, *(high for _, high in ends))
    body, across, middles, height = _named_rows(names, low, high, label)
    for middle, value, (low, high) in zip(middles, values, ends, strict=True):
        body += _whisker(across(low), across(high), middle)
        body.append(f'<circle cx="{across(value):.1f}" cy="{middle:.1f}" r="4.2" fill="{COLORS[0]}"/>')
    return _svg(title, description, height, body)


_STYLE = (
    "text { font: 12px sans-serif; fill: #1c1c1e } .label, .legend { fill: #5b5f66 } .grid { stroke: #e6e8ec } "
    ".axis { stroke: #8b9098 } .whisker { stroke: #1c1c1e }"
)


def standalone(svg: str) -> str:
    """Return a picture as a file of its own: with the style that a report keeps in its head."""
    head, rest = svg.split("\n", 1)
    return f'{head}\n<style>{_STYLE}</style>\n<rect width="100%" height="100%" fill="white"/>\n{rest}\n'
