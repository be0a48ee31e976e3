"""Summary of a fitted model and its certificate: the same facts as plain text, on a terminal,
and as an HTML card.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from dpconvex.core.certificate import Certificate
from dpconvex.inputs.settings import Fitted, classifies
from dpconvex.reports import coefficients_and_forecasts as facts_of_model
from dpconvex.reports import wording
from dpconvex.reports.charts import interval_chart, standalone_svg
from dpconvex.reports.printable import printable_text

if TYPE_CHECKING:
    from rich.table import Table

# of a name, of one beside an interval, and of a line of facts or tests
WIDTH = 48
BESIDE = 31
LINE = 96
# of a table on a terminal
MOST_CLASSES = 8
MOST_COEFFICIENTS = 1000
LONGEST_LABEL = 24
_CARD_COEFFICIENTS = 6
_TEST_NAMES = "std err", "z", "P>|z|", "[0.025", "0.975]"
_CARD_FACTS = ("guarantee", "promised to", "mechanism", "public facts")


class Summary:
    """Text that shows itself when printed or evaluated."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def certificate_summary(certificate: Certificate) -> list[tuple[str, str]]:
    """Return a certificate as labels and words; a line without a label continues the one above."""
    labels = wording.label_wording(certificate)
    facts = [
        ("guarantee", wording.guarantee_wording(certificate.guarantee)),
        (
            "meaning",
            wording.guarantee_meaning_wording(
                certificate.guarantee, certificate.neighbors, certificate.unit
            ),
        ),
        ("promised to", wording.promised_to_wording(certificate)),
        ("neighbours", wording.neighbors_wording(certificate)),
        ("mechanism", wording.mechanism_wording(certificate)),
        ("because", certificate.theorem),
        ("public facts", wording.public_facts_wording(certificate)),
        *(
            ("" if number else "noise", line)
            for number, line in enumerate(wording.noise_wording_lines(certificate))
        ),
        ("sampler", wording.sampler_wording(certificate)),
    ]
    if labels is not None:
        facts.append(("label set", labels))
    if "invalid_rows" in certificate.parameters:
        facts.append(("invalid rows", str(certificate.parameters["invalid_rows"])))
    return [*facts, *(("warning", text) for text in certificate.warnings)]


def shown(name: object) -> str:
    """Return a name on one line; signs that cannot be seen, like line breaks, are escaped."""
    text = str(name)
    return text if text.isprintable() and text[:1] not in ("'", '"') else repr(text)


def summary_names(names: Iterable[object], width: int) -> list[str]:
    """Return names as they are shown, at most this wide; what is cut is numbered, so that no two
    look alike.
    """
    found = []
    for number, name in enumerate(names):
        text = shown(name)
        end = f"... [{number}]"
        found.append(text if len(text) <= width else text[: width - len(end)] + end)
    return found


def summary_text(model: Fitted) -> str:
    """Return the summary of a fitted model as plain text."""
    certificate = model.certificate_
    rows = facts_of_model.coefficient_rows(model)
    width = 78 if not rows[-1].tests else BESIDE + 65
    text = [type(model).__name__.center(width).rstrip(), "=" * width]
    for label, value in [*certificate_summary(certificate), *model._summary_facts()]:
        text += wrap(f"{label:<16} {value}", LINE, subsequent_indent=" " * 17)
    problems, columns = np.atleast_2d(model.coef_).shape
    wide = BESIDE if rows[-1].tests else WIDTH
    first = len(rows) - columns  # 1 after an intercept
    names = [row.name for row in rows[:first]] + summary_names(
        [row.name for row in rows[first:]], wide
    )
    headings = [facts_of_model.coefficient_heading(model).replace("value", "coefficient")]
    if problems > 1:
        headings = summary_names(
            [model._problem_name(problem) for problem in range(problems)], wide
        )
    for problem, heading in enumerate(headings):
        head = f"{heading:<{wide}} {'value':>20}"
        if rows[-1].tests:  # as statsmodels does
            head = f"{heading[:wide]:<{wide}}" + _test_columns("coef", _TEST_NAMES)
        text += ["-" * width, head, "-" * width]
        for name, row in zip(names, rows, strict=True):
            line = f" {row.values[problem]:>20}"
            if rows[-1].tests:
                line = _test_columns(row.values[problem], row.tests[problem] if row.tests else [])
            text.append(f"{name:<{wide}}{line}")
    if note := model._interval_note():
        text += ["=" * width, *wrap(note, LINE)]
    text += ["=" * width, "Everything above may be published: it is covered by the guarantee."]
    if certificate.sampler.startswith("seeded"):
        text[-1] = "random_state was fixed: whoever knows the seed can undo the noise. Not private."
    return "\n".join(text)


def _test_columns(value: str, tests: Sequence[str]) -> str:
    """Return a coefficient with standard error, z value, p-value and interval, in columns."""
    return f" {value:>11}" + "".join(
        f"{each:>{wide}}" for each, wide in zip(tests, (11, 9, 9, 12, 12), strict=False)
    )


def certificate_summary_table(certificate: Certificate) -> Table:
    """Return the certificate as a table for a terminal."""
    from rich.markup import escape as escape_markup
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for label, text in certificate_summary(certificate):
        table.add_row(label, escape_markup(text))
    return table


def coefficient_summary_table(model: Fitted) -> Table:
    """Return intercept and coefficients for a terminal: of at most MOST_CLASSES classes, the
    first of many.
    """
    from rich.markup import escape as escape_markup
    from rich.table import Table

    problems, columns = np.atleast_2d(model.coef_).shape
    left = {
        "classes" if classifies(model) else "columns": problems - MOST_CLASSES,
        "coefficients": columns - MOST_COEFFICIENTS,
    }
    notes = [f"and {count:,} more {name}" for name, count in left.items() if count > 0]
    table = Table(caption=", ".join(notes) + ": the model file has them" if notes else None)
    table.add_column("coefficient")
    headings = facts_of_model.coefficient_problem_names(model)
    if problems > 1:
        headings = summary_names(headings[:MOST_CLASSES], LONGEST_LABEL)
    for heading in headings:
        table.add_column(escape_markup(heading), justify="right")
    rows = facts_of_model.coefficient_rows(model, MOST_COEFFICIENTS)
    intervals = problems == 1 and bool(rows[-1].intervals)
    if intervals:
        table.add_column("95 % interval", justify="right")
    for row in rows:
        ends = row.intervals if intervals else []
        table.add_row(escape_markup(shown(row.name)), *row.values[:MOST_CLASSES], *ends)
    return table


def summary_coefficients(model: Fitted) -> dict[str, list[float] | float]:
    """Return intercept and coefficients as plain data, with 95 % intervals where they were paid
    for.
    """
    intervals = facts_of_model.coefficient_intervals(model)
    found = {
        "coef": np.asarray(model.coef_).tolist(),
        "intercept": np.asarray(model.intercept_).tolist(),
    }
    if intervals is not None:
        found["interval"] = intervals.reshape(*np.shape(model.coef_), 2).tolist()
    return found


def model_summary_card(model: Fitted) -> str:
    """Return a fitted model as a piece of HTML for notebooks: guarantee, attacker's odds,
    largest coefficients.
    """
    certificate = model.certificate_
    odds = facts_of_model.attacker_limits(
        facts_of_model.gaussian_guarantee(certificate) or certificate.guarantee
    ).accuracy
    facts = [fact for fact in certificate_summary(certificate) if fact[0] in _CARD_FACTS]
    facts.append(("an attacker at even odds", f"right at most {100 * odds:.1f} % of the time"))
    if certificate.sampler.startswith("seeded"):
        facts.insert(0, ("not private", "random_state was fixed, which is for tests"))
    coef = np.atleast_2d(model.coef_)
    if len(coef) == 1:
        names = facts_of_model.feature_names(model)
        intervals = facts_of_model.coefficient_intervals(model)
        largest = np.argsort(-np.abs(coef[0]))[:_CARD_COEFFICIENTS].tolist()
        words = [
            f"{names[column]} {coef[0, column]:.3g}"
            + ("" if intervals is None else " [{:.3g}, {:.3g}]".format(*intervals[0, column]))
            for column in largest
        ]
        words += [f"{coef.shape[1] - len(largest)} more"] if coef.shape[1] > len(largest) else []
        facts.append(("largest coefficients", ", ".join(words)))
        if intervals is not None:
            facts.append(("in brackets", "95 % intervals of sampling and privacy noise"))
    plot = interval_chart(model, _CARD_COEFFICIENTS)
    picture = ""
    if plot is not None:  # an image of its own: styles of a notebook and of an SVG in it would mix
        data = b64encode(standalone_svg(plot).encode()).decode()
        picture = (
            f'<img alt="Coefficients with 95 % intervals" style="width:480px;max-width:100%" '
            f'src="data:image/svg+xml;base64,{data}">'
        )
    rows = "".join(
        f'<tr><th style="text-align:left;padding:2px 12px 2px 0">{escape(label)}</th>'
        f'<td style="text-align:left">{escape(printable_text(words))}</td></tr>'
        for label, words in facts
    )
    return (
        '<div style="border:1px solid #8b9098;border-radius:8px;padding:10px 14px;'
        'display:inline-block">'
        f"<strong>{escape(type(model).__name__)}</strong><table>{rows}</table>{picture}</div>"
    )
