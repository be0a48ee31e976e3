"""What people read on a terminal: certificates in words, tables of coefficients."""

from __future__ import annotations

import math

import numpy as np
from rich.markup import escape
from rich.table import Table

from dpconvex.inputs.estimator_protocols import Fitted
from dpconvex.privacy.bounds.base import RECORD, Bounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, PureDP
from dpconvex.reports.certificate_words import (
    describe_labels,
    describe_mechanism,
    describe_neighbors,
    describe_sampler,
    noise_lines,
)
from dpconvex.reports.content import coefficient_intervals, value_heading
from dpconvex.reports.summary import first_label, shown, shown_names

MOST_CLASSES, MOST_COEFFICIENTS, LONGEST_LABEL = 8, 1000, 24  # of a table that people read
_CHANGES = {
    "replace_one": "is replaced",
    "add_or_remove_one": "joins or leaves",
    "replace_one_keeping_label": "is replaced by one with the same label",
}


def guarantee_in_words(guarantee: Guarantee) -> str:
    """Return the promise as people write it."""
    if isinstance(guarantee, PureDP):
        return f"epsilon = {guarantee.epsilon_bound:g} (pure differential privacy)"
    if isinstance(guarantee, ApproxDP):
        return f"epsilon = {guarantee.epsilon_bound:g}, delta = {guarantee.delta_bound:g}"
    return f"mu = {guarantee.mu:g} (Gaussian differential privacy)"


def unit_in_words(unit: str) -> str:
    """Return whom a promise is made to, as it stands in a sentence."""
    if unit == RECORD:
        return unit
    return unit.replace(", at most", " with at most") if "rows" in unit else f"{unit} with all its rows"


def meaning(guarantee: Guarantee, neighbors: str, unit: str = RECORD) -> str:
    """Return what the promise means for one person, as a sentence."""
    change, unit = _CHANGES[neighbors], unit_in_words(unit)
    if isinstance(guarantee, GaussianDP):
        return (
            f"Telling whether {unit} {change} is at least as hard as telling N(0, 1) from "
            f"N({guarantee.mu:g}, 1) from one draw."
        )
    epsilon = guarantee.epsilon_bound
    factor = f"{math.exp(epsilon):.4g}" if epsilon < 30 else f"exp({epsilon:g})"
    text = f"When {unit} {change}, the probability of any outcome changes by a factor of at most {factor}"
    if isinstance(guarantee, ApproxDP) and guarantee.delta_bound > 0:
        text += f", plus at most {guarantee.delta_bound:g}"
    return text + "."


def certificate_table(certificate: Certificate) -> Table:
    """Return the certificate as a table of words."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    bounds, guarantee = certificate.bounds, certificate.guarantee
    rows: list[tuple[str, str]] = [
        ("guarantee", guarantee_in_words(guarantee)),
        ("meaning", meaning(guarantee, certificate.neighbors, certificate.unit)),
        ("promised to", certificate.unit),
        ("neighbours", describe_neighbors(certificate.neighbors).replace(RECORD, certificate.unit)),
        ("mechanism", describe_mechanism(certificate.mechanism)),
        ("because", certificate.theorem),
        ("public facts", _facts(bounds)),
    ]
    rows += zip(first_label("noise"), noise_lines(certificate), strict=False)
    rows.append(("sampler", describe_sampler(certificate)))
    labels = describe_labels(certificate)
    if labels is not None:
        rows.append(("label set", labels))
    if "invalid_rows" in certificate.parameters:
        rows.append(("invalid rows", certificate.parameters["invalid_rows"]))
    rows += [("warning", text) for text in certificate.warnings]
    for label, text in rows:
        table.add_row(label, escape(str(text)))
    return table


def _facts(bounds: Bounds) -> str:
    facts = f"{bounds.n_samples:,} {bounds.counted}"
    if hasattr(bounds, "n_features"):
        facts += f", {bounds.n_features} features"
    if hasattr(bounds, "row_norm"):
        facts += f", a row counts up to a length of {bounds.row_norm:.4g}"
    return facts + f", penalty alpha {bounds.alpha:.4g}"


def coefficient_table(model: Fitted) -> Table:
    """Return intercept and coefficients in the user's units, of at most MOST_CLASSES classes, the first of many."""
    coef = np.atleast_2d(model.coef_)
    intercept = np.atleast_1d(model.intercept_)
    names = getattr(model, "feature_names_in_", [f"x{i}" for i in range(coef.shape[1])])
    more = len(coef) - MOST_CLASSES
    what = "classes" if hasattr(model, "classes_") else "columns"
    left = {what: more, "coefficients": coef.shape[1] - MOST_COEFFICIENTS}
    notes = [f"and {count:,} more {name}" for name, count in left.items() if count > 0]
    coef, intercept = coef[:MOST_CLASSES, :MOST_COEFFICIENTS], intercept[:MOST_CLASSES]
    table = Table(caption=", ".join(notes) + ": the model file has them" if notes else None)
    table.add_column("coefficient")
    heads = [value_heading(model)]
    if len(coef) > 1:
        names_of = getattr(model, "classes_", None)
        if names_of is None:  # levels, or products
            names_of = [model._problem_name(number) for number in range(len(coef))]
        heads = shown_names(names_of[:MOST_CLASSES], LONGEST_LABEL)
    for head in heads:
        table.add_column(escape(head), justify="right")
    intervals = coefficient_intervals(model) if len(coef) == 1 else None
    if intervals is not None:
        table.add_column("95 % interval", justify="right")
    table.add_row("(intercept)", *(f"{value:.6g}" for value in intercept))
    for number, (name, values) in enumerate(zip(names[: len(coef.T)], coef.T, strict=True)):
        ends = []
        if intervals is not None:
            ends = ["{:.4g} to {:.4g}".format(*intervals[0, number])]
        table.add_row(escape(shown(name)), *(f"{value:.6g}" for value in values), *ends)
    return table


def coefficients(model: Fitted) -> dict[str, list[float] | float]:
    """Return intercept and coefficients as plain data, with 95 % intervals where they were paid for."""
    intervals = coefficient_intervals(model)
    found = {"coef": np.asarray(model.coef_).tolist(), "intercept": np.asarray(model.intercept_).tolist()}
    if intervals is not None:
        found["interval"] = intervals.reshape(*np.shape(model.coef_), 2).tolist()
    return found
