"""A fitted model as a compact card: what a notebook shows of it."""

from __future__ import annotations

from html import escape

import numpy as np

from dpconvex.inputs.estimator_protocols import Fitted
from dpconvex.words.content import attacker, feature_names, promise
from dpconvex.words.officer import sharper

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
        ("mechanism", f"{certificate.mechanism}, {certificate.bounds.n_samples:,} rows"),
    ]
    if certificate.sampler.startswith("seeded"):
        lines.insert(0, ("not private", "random_state was fixed, which is for tests"))
    coef = np.atleast_2d(model.coef_)
    if len(coef) == 1:
        order = np.argsort(-np.abs(coef[0]))[:_MOST]
        names = feature_names(model)
        shown = [f"{names[place]} {coef[0, place]:.3g}" for place in order]
        more = coef.shape[1] - len(order)
        lines.append(
            ("largest coefficients", ", ".join(shown) + (f", {more} more" if more else ""))
        )
    rows = "".join(
        f'<tr><th style="text-align:left;padding:2px 12px 2px 0">{escape(label)}</th>'
        f'<td style="text-align:left">{escape(words)}</td></tr>'
        for label, words in lines
    )
    return (
        '<div style="border:1px solid #8b9098;border-radius:8px;padding:10px 14px;display:inline-block">'
        f"<strong>{escape(type(model).__name__)}</strong><table>{rows}</table></div>"
    )
