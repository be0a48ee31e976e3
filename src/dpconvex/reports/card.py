"""A fitted model as a compact card: what a notebook shows of it."""

from __future__ import annotations

from base64 import b64encode
from html import escape

import numpy as np

from dpconvex.inputs.estimator_protocols import Fitted
from dpconvex.reports.charts import standalone
from dpconvex.reports.coefficient_plot import interval_plot
from dpconvex.reports.content import attacker, coefficient_intervals, feature_names, promise
from dpconvex.reports.officer import sharper
from dpconvex.reports.printable import visible

__all__ = ["model_card"]

_MOST = 6  # columns that are shown


def model_card(model: Fitted) -> str:
    """Return a fitted model as a piece of HTML: promise, attacker's odds, the largest coefficients."""
    certificate = model.certificate_
    truly = sharper(certificate)
    odds = attacker(truly or certificate.guarantee).accuracy
    lines = [
        ("promise", f"{promise(certificate.guarantee)}, {certificate.unit}"),
        ("an attacker at even odds", f"right at most {100 * odds:.1f} % of the time"),
        ("mechanism", f"{certificate.mechanism}, {certificate.bounds.n_samples:,} {certificate.bounds.counted}"),
    ]
    if certificate.sampler.startswith("seeded"):
        lines.insert(0, ("not private", "random_state was fixed, which is for tests"))
    coef = np.atleast_2d(model.coef_)
    if len(coef) == 1:
        order = np.argsort(-np.abs(coef[0]))[:_MOST]
        names = feature_names(model)
        intervals = coefficient_intervals(model)
        shown = [
            f"{names[place]} {coef[0, place]:.3g}"
            + ("" if intervals is None else " [{:.3g}, {:.3g}]".format(*intervals[0, place]))
            for place in order
        ]
        more = coef.shape[1] - len(order)
        lines.append(("largest coefficients", ", ".join(shown) + (f", {more} more" if more else "")))
        if intervals is not None:
            lines.append(("in brackets", "95 % intervals of sampling and privacy noise"))
    plot = interval_plot(model, _MOST)
    picture = ""
    if plot is not None:  # a picture of its own: styles of a notebook and of an SVG in it would mix
        data = b64encode(standalone(plot).encode()).decode()
        picture = (
            f'<img alt="Coefficients with 95 % intervals" style="width:480px;max-width:100%" '
            f'src="data:image/svg+xml;base64,{data}">'
        )
    rows = "".join(
        f'<tr><th style="text-align:left;padding:2px 12px 2px 0">{escape(label)}</th>'
        f'<td style="text-align:left">{escape(visible(words))}</td></tr>'
        for label, words in lines
    )
    return (
        '<div style="border:1px solid #8b9098;border-radius:8px;padding:10px 14px;display:inline-block">'
        f"<strong>{escape(type(model).__name__)}</strong><table>{rows}</table>{picture}</div>"
    )
