"""What people read of a fitted model: public facts, noise and coefficients, one line each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, repeat
from textwrap import wrap

import numpy as np

from dpconvex.inputs.estimator_protocols import Fitted
from dpconvex.privacy.bounds.base import RECORD
from dpconvex.reports.certificate_words import describe_mechanism, describe_neighbors, describe_sampler, noise_lines
from dpconvex.reports.content import coefficient_intervals, value_heading

__all__ = ["Summary", "cut", "first_label", "shown", "shown_names", "summary_text"]

WIDTH, BESIDE, LINE = 48, 31, 96  # of a name, of one beside an interval, and of a line of facts


def shown(name: object) -> str:
    """Return a name on one line; signs that cannot be seen, like line breaks, are escaped."""
    text = str(name)
    return text if text.isprintable() and text[:1] not in ("'", '"') else repr(text)


def cut(text: str, width: int, number: int) -> str:
    """Return text of at most this width; what is cut is numbered, so that no two look alike."""
    if len(text) <= width:
        return text
    end = f"... [{number}]"
    return text[: width - len(end)] + end


def shown_names(names: Iterable[object], width: int) -> list[str]:
    """Return the names of columns as they are shown, at most this wide and all different."""
    return [cut(shown(name), width, number) for number, name in enumerate(names)]


class Summary:
    """Text that shows itself when printed or evaluated."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def first_label(first: str) -> Iterator[str]:
    """Yield a label for the first line of several, and none for the others."""
    return chain([first], repeat(""))


def summary_text(model: Fitted) -> str:
    """Return the summary of a fitted model."""
    certificate = model.certificate_
    matrices = getattr(model, "takes_matrices", False)
    unnamed = [f"{'theta' if matrices else 'x'}{i}" for i in range(model.n_features_in_)]
    guarantee = certificate.guarantee
    lines: list[tuple[str, str]] = [
        ("guarantee", repr(guarantee)),
        ("promised to", certificate.unit),
        ("neighbours", describe_neighbors(certificate.neighbors).replace(RECORD, certificate.unit)),
        ("mechanism", describe_mechanism(certificate.mechanism)),
        ("because", certificate.theorem),
        ("people (public)" if certificate.bounds.people else "records (public)", f"{certificate.bounds.n_samples:,}"),
        ("penalty alpha", f"{certificate.bounds.alpha:.4g}"),
        *model._summary_facts(),
        *zip(first_label("noise"), noise_lines(certificate), strict=False),
        ("sampler", describe_sampler(certificate)),
        *(("warning", text) for text in certificate.warnings),
    ]
    width = 78
    text = [type(model).__name__.center(width).rstrip(), "=" * width]
    for label, value in lines:
        text += wrap(f"{label:<16} {value}", LINE, subsequent_indent=" " * 17)
    intercepts, intervals = np.atleast_1d(model.intercept_), coefficient_intervals(model)
    wide = WIDTH if intervals is None else BESIDE
    names = shown_names(getattr(model, "feature_names_in_", unnamed), wide)
    for problem, coefficients in enumerate(np.atleast_2d(model.coef_)):
        heading = value_heading(model).replace("value", "coefficient")
        if len(intercepts) > 1:
            heading = cut(shown(model._problem_name(problem)), wide, problem)
        rows = [(heading, f"{'value':>20}")]
        if not matrices:
            rows.append(("(intercept)", f"{float(intercepts[problem]):>20.6g}"))
        pairs = zip(names, coefficients, strict=True)
        rows += [(name, f"{value:>20.6g}") for name, value in pairs]
        table = [f"{name:<{wide}} {value}" for name, value in rows]
        if intervals is not None:
            table[0] += f"{'95 % interval':>26}"
            ends = [f"{low:.4g} to {high:.4g}" for low, high in intervals[problem]]
            first = len(table) - len(ends)
            table[first:] = [f"{a}{b:>26}" for a, b in zip(table[first:], ends, strict=True)]
        text += ["-" * width, table[0], "-" * width, *table[1:]]
    text += ["=" * width, "Everything above may be published: it is covered by the guarantee."]
    if certificate.sampler.startswith("seeded"):
        text[-1] = "random_state was fixed: whoever knows the seed can undo the noise. Not private."
    return "\n".join(text)
