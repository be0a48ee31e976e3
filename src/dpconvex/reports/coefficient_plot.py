"""A plot of coefficients with their intervals: as SVG in reports and cards, and with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpconvex.inputs.estimator_protocols import Fitted
from dpconvex.reports.charts import interval_chart
from dpconvex.reports.content import LEVEL, coefficient_intervals, column_bounds, feature_names
from dpconvex.types import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["interval_plot", "plot_coefficients"]


_BETWEEN_BOUNDS = "change of the model's value from the lower to the upper bound"


def _effects(model: Fitted, level: float) -> tuple[list[str], Array, Array, str] | None:
    """Return names, values and ends of what is drawn, and what it measures; None where nothing can be."""
    ends, coef = coefficient_intervals(model, level), np.atleast_2d(model.coef_)
    if ends is None or len(coef) > 1:
        return None
    bounds = column_bounds(model)
    label, width = "coefficient", np.ones(coef.shape[1])
    if bounds is not None:  # columns of different units can be compared
        label, width = _BETWEEN_BOUNDS, bounds[1] - bounds[0]
    with np.errstate(over="ignore"):  # a stranger's file; infinite effects are not drawn
        values, ends = coef[0] * width, ends[0] * width[:, None]
    return (feature_names(model), values, ends, label) if np.isfinite(ends).all() else None


def interval_plot(model: Fitted, most: int, level: float = LEVEL) -> str | None:
    """Return an SVG of effects with intervals, the `most` largest in the order of columns; None without intervals."""
    found = _effects(model, level)
    if found is None:
        return None
    names, values, ends, label = found
    kept = np.sort(np.argsort(-np.abs(values))[:most])
    apart = [names[place] for place in kept if ends[place][0] > 0 or ends[place][1] < 0]
    words = f"Intervals without 0: {', '.join(apart)}." if apart else "Every interval holds 0."
    return interval_chart(
        "Coefficients with intervals",
        f"A dot for each column on the line of its {level:.0%} interval, of sampling and privacy noise. {words}",
        [names[place] for place in kept],
        values[kept].tolist(),
        [(float(low), float(high)) for low, high in ends[kept]],
        label,
    )


def plot_coefficients(model: Fitted, level: float = LEVEL, ax: Axes | None = None) -> Axes:
    """Draw the coefficients of a fit with ``inference=True`` and their intervals, and return the axes.

    Parameters
    ----------
    model : fitted estimator
        With one vector of coefficients. Each is drawn as what its column does between its public bounds, or as it is
        where there are none.
    level : float, default=0.95
        Of the intervals.
    ax : matplotlib axes, optional
        Where to draw; needs matplotlib.

    Notes
    -----
    Privacy: intervals are computed from what the fit released, and may be published with it.
    """
    found = _effects(model, level)
    if found is None:
        raise ValueError(
            "plot_coefficients needs a fit with inference=True and one vector of coefficients. Got another one."
        )
    names, values, ends, label = found
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.subplots(figsize=(6.4, 1.2 + 0.3 * len(names)))[1]
    places = np.arange(len(names))
    bars = np.maximum(np.array([values - ends[:, 0], ends[:, 1] - values]), 0.0)
    ax.axvline(0.0, color="0.7", linewidth=1)
    ax.errorbar(values, places, xerr=bars, fmt="o", capsize=3)
    ax.set(yticks=places, yticklabels=names, xlabel=label)
    ax.invert_yaxis()
    return ax
