"""Charts of a report as inline SVG: no script, no request, a title and a description for every
reader.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from dpconvex.core.guarantees import GaussianDP, Guarantee
from dpconvex.inputs.settings import Fitted
from dpconvex.reports import coefficients_and_forecasts as facts_of_model
from dpconvex.reports.printable import printable_text
from dpconvex.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# In units of the picture, in which text has 14: on a phone of 390 pixels it has 11, in a report 20.
WIDTH = 440
HEIGHT = 320
LEFT = 64
RIGHT = 24
TOP = 14
BOTTOM = 54
COLORS = ("#1a5fb4", "#c64600", "#26a269", "#813d9c", "#5e5c64")
_STYLE = (
    "text { font: 14px sans-serif; fill: #1c1c1e } .label, .legend { fill: #5b5f66 } .grid { "
    "stroke: #e6e8ec } .axis { stroke: #8b9098 } .whisker { stroke: #1c1c1e }"
)
_BETWEEN_BOUNDS = "change of the model's value from the lower to the upper bound"
_numbers = count(1)


@dataclass(frozen=True)
class ChartCurve:
    """A named line through points: dashed as a reference, or with marks at its points."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dashed: bool = False
    marks: bool = False


@dataclass(frozen=True)
class ChartAxis:
    """One axis: its label, its range, and whether it is logarithmic."""

    label: str
    low: float
    high: float
    logarithmic: bool = False
    form: Callable[[float], str] = "{:g}".format

    def position(self, value: float) -> float:
        """Return the position of a value, 0 at the low end and 1 at the high end, cut a little
        beyond them.
        """
        if self.logarithmic:
            part = math.log(max(value, self.low / 10) / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return min(max(part, -0.02), 1.02)

    def ticks(self) -> list[float]:
        """Return round values on the chart's axis, at most about eight."""
        if self.logarithmic:
            span = math.log10(self.high / self.low)
            steps = (1, 2, 5) if span <= 2.5 else (1,)
            first = math.floor(math.log10(self.low))
            found = [
                step * 10.0**power
                for power in range(first, first + math.ceil(span) + 2)
                for step in steps
            ]
            found = [value for value in found if self.low * 0.999 <= value <= self.high * 1.001]
            return found[:: max(1, len(found) // 8)]
        rough = (self.high - self.low) / 7
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next((unit * k for k in (1, 2, 5, 10) if unit * k >= 0.999 * rough), rough)
        start = math.ceil(self.low / step - 1e-9)
        stop = math.floor(self.high / step + 1e-9)
        return [round(k * step, 12) for k in range(start, stop + 1)]


def _svg_chart(title: str, description: str, height: float, body: list[str]) -> str:
    number = next(_numbers)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
            f'aria-labelledby="plot-{number}-title plot-{number}-text">',
            f'<title id="plot-{number}-title">{escape(printable_text(title))}</title>',
            f'<desc id="plot-{number}-text">{escape(printable_text(description))}</desc>',
            *body,
            "</svg>",
        ]
    )


def standalone_svg(svg: str) -> str:
    """Return a picture as a file of its own, with the style that a report keeps in its head."""
    head, rest = svg.split("\n", 1)
    return (
        f"{head}\n"
        f"<style>{_STYLE}</style>\n"
        '<rect width="100%" height="100%" fill="white"/>\n'
        f"{rest}\n"
    )


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "middle") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
        f'class="{kind}">{escape(printable_text(words))}</text>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def line_chart(
    title: str, description: str, curves: Sequence[ChartCurve], x: ChartAxis, y: ChartAxis
) -> str:
    """Return an SVG with one line per curve, below its legend and the label of the upright axis."""
    inside_width = WIDTH - LEFT - RIGHT
    inside_height = HEIGHT - TOP - BOTTOM
    top = TOP + 20 * (len(curves) + 1) + 8
    right = LEFT + inside_width
    bottom = top + inside_height

    def across(value: float) -> float:
        return LEFT + inside_width * x.position(value)

    def up(value: float) -> float:
        return top + inside_height * (1 - y.position(value))

    body = []
    for value in x.ticks():
        body.append(_line(across(value), top, across(value), bottom, "grid"))
        body.append(_text(across(value), bottom + 18, x.form(value)))
    for value in y.ticks():
        body.append(_line(LEFT, up(value), right, up(value), "grid"))
        body.append(_text(LEFT - 8, up(value) + 4, y.form(value), anchor="end"))
    body += [_line(LEFT, bottom, right, bottom, "axis"), _line(LEFT, top, LEFT, bottom, "axis")]
    body.append(_text(LEFT + inside_width / 2, bottom + 42, x.label, "label"))
    body.append(_text(8, top - 16, f"↑ {y.label}", "label", "start"))
    for number, curve in enumerate(curves):
        color = COLORS[number % len(COLORS)]
        height = TOP + 20 * number
        stroke = f'stroke="{color}" stroke-width="2.4"' + (
            ' stroke-dasharray="6 5"' if curve.dashed else ""
        )
        points = [(across(a), up(b)) for a, b in zip(curve.x, curve.y, strict=True)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in points)
        body.append(f'<polyline points="{path}" fill="none" {stroke}/>')
        if curve.marks:
            body += [
                f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.6" fill="{color}"/>' for a, b in points
            ]
        body.append(_text(44, height + 5, curve.name, "legend", "start"))
        body.append(f'<line x1="8" y1="{height:.1f}" x2="36" y2="{height:.1f}" {stroke}/>')
    return _svg_chart(title, description, bottom + BOTTOM, body)


def tradeoff_chart_curve(name: str, claim: Guarantee) -> ChartCurve:
    """Return the trade-off curve of a guarantee, denser at both ends, where it bends."""
    x = np.sin(np.linspace(0, math.pi / 2, 121)) ** 2
    if not isinstance(claim, GaussianDP):  # the corner of the two straight lines
        corner = 1 / (1 + math.exp(min(claim.epsilon_bound, 500)))
        x = np.sort(np.append(x, corner * (1 - claim.delta(math.inf))))
    return ChartCurve(name, x.tolist(), np.asarray(claim.tradeoff(x)).tolist())


def tradeoff_chart(
    description: str, claim: Guarantee, more: Sequence[ChartCurve] = (), answer: str = ""
) -> str:
    """Return the smallest errors that a claim allows an attacker who answers, beside guessing
    and more curves.
    """
    guessing = ChartCurve("guessing without any release", [0.0, 1.0], [1.0, 0.0], dashed=True)
    alarms = "false alarms"
    misses = "misses"
    if answer:
        alarms = f"false alarms: says “{answer}” wrongly"
        misses = f"misses: does not say “{answer}” where it is so"
    return line_chart(
        "What an attacker can achieve",
        description,
        [tradeoff_chart_curve("the claim: no attack lies below", claim), guessing, *more],
        ChartAxis(alarms, 0, 1, form="{:.0%}".format),
        ChartAxis(misses, 0, 1, form="{:.0%}".format),
    )


def accuracy_chart(ahead: facts_of_model.AccuracyForecast) -> str:
    """Return the predicted excess loss against the budget."""
    form = ahead.form
    x = [budget for budget, _ in ahead.points]
    y = [max(risk, 1e-6) for _, risk in ahead.points]
    alone = max(ahead.without_privacy, 1e-6)
    low = min(*y, alone) / 1.5
    high = max(y) * 1.5
    return line_chart(
        f"Accuracy against {ahead.budget}",
        f"Predicted {ahead.quantity}, for {ahead.budget} from {x[0]:g} to {x[-1]:g}: it falls "
        f"from {form(y[0])} to {form(y[-1])} as the budget grows. Without privacy it is "
        f"{form(alone)}.",
        [
            ChartCurve("private", x, y, marks=True),
            ChartCurve("this budget", [ahead.own, ahead.own], [low, high], dashed=True),
            ChartCurve("without privacy", [x[0], x[-1]], [alone, alone], dashed=True),
        ],
        ChartAxis(ahead.budget, x[0], x[-1], logarithmic=True),
        ChartAxis("predicted excess loss", low, high, logarithmic=True, form=form),
    )


def _row_chart(
    title: str,
    description: str,
    names: Sequence[str],
    values: Array,
    ends: Array | None,
    label: str,
    bars: bool,
) -> str:
    """Return an SVG with one row per name: a bar or a dot for its value, and a whisker where
    there are ends.
    """
    drawn = values if ends is None else ends
    low = min(0.0, float(drawn.min()))
    high = max(0.0, float(drawn.max()))
    high = 1.0 if high == low else high
    pad = 0.04 * (high - low)
    axis = ChartAxis(label, low - pad if low < 0 else 0.0, high + pad if high > 0 else 0.0)
    left = 180
    row = 26
    top = 8
    bottom = top + row * len(names)
    inside = WIDTH - left - RIGHT

    def across(value: float) -> float:
        return left + inside * axis.position(value)

    body = []
    for value in axis.ticks():
        body.append(_line(across(value), top, across(value), bottom, "grid"))
        body.append(_text(across(value), bottom + 18, f"{value:g}"))
    for number, (name, value) in enumerate(zip(names, values.tolist(), strict=True)):
        middle = top + row * (number + 0.5)
        body.append(
            _text(left - 10, middle + 4, name if len(name) <= 24 else name[:23] + "…", anchor="end")
        )
        if bars:
            start, end = sorted((across(0.0), across(value)))
            body.append(
                f'<rect x="{start:.1f}" y="{middle - 8:.1f}" width="{max(end - start, 1):.1f}" '
                f'height="16" fill="{COLORS[0]}" fill-opacity="0.75"/>'
            )
        if ends is not None:
            a, b = (across(end) for end in ends[number].tolist())
            body.append(_line(a, middle, b, middle, "whisker"))
            body += [_line(end, middle - 5, end, middle + 5, "whisker") for end in (a, b)]
        if not bars:
            body.append(
                f'<circle cx="{across(value):.1f}" cy="{middle:.1f}" r="4.2" fill="{COLORS[0]}"/>'
            )
    body.append(_line(across(0.0), top, across(0.0), bottom, "axis"))
    body.append(_text(left + inside / 2, bottom + 42, label, "label"))
    return _svg_chart(title, description, bottom + 54, body)


def _column_effect_chart_rows(
    model: Fitted, ends: Array | None
) -> tuple[Array, Array | None, str] | None:
    """Return effects of columns between their bounds, with interval ends and unit; None where
    one is infinite.
    """
    coef = np.atleast_2d(model.coef_)[0]
    bounds = facts_of_model.coefficient_column_bounds(model)
    label = "coefficient"
    width = np.ones(len(coef))
    if bounds is not None:  # columns of different units can be compared
        label = _BETWEEN_BOUNDS
        width = bounds[1] - bounds[0]
    with np.errstate(over="ignore"):  # a stranger's file; infinite effects are not drawn
        values = coef * width
        ends = None if ends is None else ends * width[:, None]
    return (values, ends, label) if np.isfinite(values if ends is None else ends).all() else None


def effect_chart(model: Fitted, most: int) -> str | None:
    """Return an SVG of bars: the effect of each column between its bounds, with the noise where
    it is known.
    """
    coef = np.atleast_2d(model.coef_)
    spread = facts_of_model.coefficient_uncertainty(model)
    if (
        facts_of_model.coefficient_column_bounds(model) is None
        or len(coef) > 1
        or coef.shape[1] > most
    ):
        return None
    exact = spread is not None and spread.exact
    noise = (
        coef[0][:, None] + np.array([-2.0, 2.0]) * spread.coef[:, None]
        if spread is not None and exact
        else None
    )
    found = _column_effect_chart_rows(model, noise)
    if found is None:
        return None
    names = facts_of_model.feature_names(model)
    (values, ends, label) = found
    words = (
        "How far the model's value moves when a column goes from its lower to its upper public "
        f"bound. The largest effect is that of {names[int(np.argmax(np.abs(values)))]}."
    )
    return _row_chart("Effect of each column", words, names, values, ends, label, bars=True)


def _interval_chart_effects(model: Fitted, level: float) -> tuple[Array, Array, str] | None:
    intervals = facts_of_model.coefficient_intervals(model, level)
    found = (
        None
        if intervals is None or len(intervals) > 1
        else _column_effect_chart_rows(model, intervals[0])
    )
    if found is None or found[1] is None:
        return None
    return found[0], found[1], found[2]


def interval_chart(model: Fitted, most: int) -> str | None:
    """Return an SVG of effects with intervals, the `most` largest in the order of columns; None
    without intervals.
    """
    found = _interval_chart_effects(model, facts_of_model.LEVEL)
    if found is None:
        return None
    names = facts_of_model.feature_names(model)
    (values, ends, label) = found
    largest = np.sort(np.argsort(-np.abs(values))[:most])
    shown = [names[column] for column in largest]
    apart = [
        name for name, (low, high) in zip(shown, ends[largest], strict=True) if low > 0 or high < 0
    ]
    words = f"Intervals without 0: {', '.join(apart)}." if apart else "Every interval holds 0."
    level = f"{facts_of_model.LEVEL:.0%}"
    words = (
        f"A dot for each column on the line of its {level} interval, of sampling and privacy "
        f"noise. {words}"
    )
    return _row_chart(
        "Coefficients with intervals",
        words,
        shown,
        values[largest],
        ends[largest],
        label,
        bars=False,
    )


def plot_coefficients(
    model: Fitted, level: float = facts_of_model.LEVEL, ax: Axes | None = None
) -> Axes:
    """Draw a chart of the coefficients of a fit with ``inference=True`` and their intervals; return
    the axes.

    Parameters
    ----------
    model : fitted estimator
        With one vector of coefficients. Each is drawn as the effect of its column between its
        public bounds, or as it is where there are none.
    level : float, default=0.95
        Of the intervals.
    ax : matplotlib axes, optional
        Where to draw; needs matplotlib.

    Notes
    -----
    Privacy: intervals are computed from what the fit released, and may be published with it.
    """
    found = _interval_chart_effects(model, level)
    if found is None:
        raise ValueError(
            "plot_coefficients needs a fit with inference=True and one vector of coefficients. "
            "Got another one."
        )
    names = facts_of_model.feature_names(model)
    (values, ends, label) = found
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6.4, 1.2 + 0.3 * len(names)))[1]
    rows = np.arange(len(names))
    bars = np.maximum(np.array([values - ends[:, 0], ends[:, 1] - values]), 0.0)
    ax.axvline(0.0, color="0.7", linewidth=1)
    ax.errorbar(values, rows, xerr=bars, fmt="o", capsize=3)
    ax.set(yticks=rows, yticklabels=names, xlabel=label)
    ax.invert_yaxis()
    return ax
