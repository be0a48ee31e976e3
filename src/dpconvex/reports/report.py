"""Report on a private model: one self-contained HTML file for whoever has to answer for it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpconvex.core.bounds import RECORD
from dpconvex.core.certificate import Certificate
from dpconvex.core.guarantees import GaussianDP, Guarantee
from dpconvex.inputs.settings import Fitted
from dpconvex.privacy.ledger import Ledger
from dpconvex.reports import coefficients_and_forecasts as facts_of_model
from dpconvex.reports import wording
from dpconvex.reports.charts import (
    accuracy_chart,
    effect_chart,
    interval_chart,
    tradeoff_chart,
    tradeoff_chart_curve,
)
from dpconvex.reports.nist_registry import nist_answers
from dpconvex.reports.printable import printable_on_page
from dpconvex.reports.release_file import FIELDS, ReleaseFileFacts
from dpconvex.system.atomic_files import write_file_atomically
from dpconvex.version import __version__

if TYPE_CHECKING:
    from dpconvex.assessment.evaluation import PrivateScore

_MOST_BARS = 40
# Parameters of post-processing, after the noise was added.
_POSTPROCESSING = ("coef_bound", "release_radius", "threshold")


def render_report(
    model: Fitted,
    ledger: Ledger | None = None,
    release: ReleaseFileFacts | None = None,
    scores: Sequence[PrivateScore] = (),
) -> str:
    """Return the report of a fitted model as HTML: one page without scripts and without references
    to other files.

    Parameters
    ----------
    model : estimator
        A fitted dpconvex estimator, or one that :func:`dpconvex.load_model` returned. A certificate
        that does not verify raises ``CertificateError``: a report on a false claim is not written.
    ledger : Ledger, optional
        Whose state the report shows; that of the model by default.
    release : ReleaseFileFacts, optional
        Who publishes the model, why and until when; see
        :func:`dpconvex.reports.release_file.read_release_file`.
    scores : sequence of PrivateScore, optional
        Measured accuracy, paid for.

    Notes
    -----
    Privacy: everything in a report is public or released by the fit: it costs nothing. The state of
    the ledger is public too.
    """
    from jinja2 import Environment, PackageLoader
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model, "certificate_")
    certificate = model.certificate_
    certificate.verify()
    guarantee = certificate.guarantee
    sharper = facts_of_model.gaussian_guarantee(certificate)
    ledger = model.ledger if ledger is None else ledger
    release = ReleaseFileFacts() if release is None else release
    spread = facts_of_model.coefficient_uncertainty(model)
    ahead = facts_of_model.forecast_model(model)
    who = [
        (ask, getattr(release, field))
        for field, ask in FIELDS.items()
        if field not in ("unit", "target")
    ]
    attacks = [("by the claim", facts_of_model.attacker_limits(guarantee))]
    if sharper is not None:
        attacks.append(("by the mechanism itself", facts_of_model.attacker_limits(sharper)))
    released = model.released_
    deltas = (1e-3, 1e-6, 1e-9) if isinstance(guarantee, GaussianDP) else ()
    few = np.atleast_2d(model.coef_).shape[1] <= _MOST_BARS
    intervals = interval_chart(model, _MOST_BARS) if few else None
    environment = Environment(
        loader=PackageLoader("dpconvex.reports", "."),
        autoescape=True,
        trim_blocks=True,
        finalize=printable_on_page,
    )
    return environment.get_template("report.html").render(
        title=f"Privacy report: {release.name or type(model).__name__}",
        quote=wording.quotable_wording(model, release),
        who=who,
        missing=not all(answer for _, answer in who),
        learned=_learned_columns(model, release.target),
        unit=wording.unit_name_wording(certificate, release),
        joins=certificate.neighbors == "add_or_remove_one",
        limits=list(wording.limits_wording(certificate)),
        method=wording.method_wording(certificate),
        scores=[score for score in scores if math.isfinite(score.value)],
        nist=nist_answers(certificate, release, ledger is not None),
        does=(type(model).__doc__ or "").strip().split("\n")[0],
        version=__version__,
        date=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC"),
        certificate=certificate,
        certificate_json=certificate.to_json(),
        seeded=certificate.sampler.startswith("seeded"),
        warnings=certificate.warnings,
        promise=wording.promise_wording(guarantee),
        formula=wording.formula_wording(guarantee),
        kind=guarantee.kind,
        factor=None
        if isinstance(guarantee, GaussianDP)
        else wording.largest_factor(guarantee.epsilon_bound),
        failure=0.0 if isinstance(guarantee, GaussianDP) else guarantee.delta_bound,
        attacks=attacks,
        sharper=sharper,
        tradeoff_plot=_report_tradeoff(certificate, sharper, attacks[0][1].accuracy),
        groups=_report_group_promises(certificate),
        whom=wording.unit_wording(certificate.unit),
        thing="record" if certificate.unit == RECORD else "person",
        things=certificate.bounds.counted,
        epsilons=[(f"{delta:g}", f"{guarantee.epsilon(delta):.4g}") for delta in deltas],
        noise=[
            (
                wording.quantity_wording(certificate, name),
                wording.noise_wording(term, certificate.bounds.counted),
            )
            for name, term in certificate.noise.items()
        ],
        mechanism=wording.mechanism_wording(certificate),
        sampler=wording.sampler_wording(certificate),
        facts=_report_public_facts(certificate),
        settings=_report_settings(certificate),
        headings=facts_of_model.coefficient_problem_names(model),
        coefficients=_report_coefficient_table(model, spread),
        spread=spread,
        bounded=facts_of_model.coefficient_column_bounds(model) is not None,
        processed=any(certificate.parameters.get(name) is not None for name in _POSTPROCESSING),
        interval_plot=intervals,
        interval_note=model._interval_note() or "",
        effect_plot=None if intervals else effect_chart(model, _MOST_BARS),
        ahead=ahead,
        accuracy_plot=None if ahead is None else accuracy_chart(ahead),
        accuracy_rows=[] if ahead is None else _report_accuracy_rows(ahead),
        extra=[
            (str(name).replace("_", " "), _shorten_report_value(value))
            for name, value in sorted(released.items())
        ],
        remaining=None if ledger is None else ledger.remaining(),
        charges=[] if ledger is None else ledger.entries(),
    )


def write_report(
    model: Fitted,
    path: str | os.PathLike[str],
    ledger: Ledger | None = None,
    release: ReleaseFileFacts | None = None,
    scores: Sequence[PrivateScore] = (),
) -> Path:
    """Write the report of a fitted model to an HTML file, and return its path.

    Parameters are those of :func:`render_report`, and ``path``.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from dpconvex import DPQuantileRegressor
    >>> from dpconvex.reports import write_report
    >>> model = DPQuantileRegressor(feature_bounds=(0, 1), target_bounds=(0, 1))
    >>> model = model.fit(np.full((100, 1), 0.5), np.full(100, 0.5))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(write_report(model, f"{folder}/report.html").name)
    report.html
    """
    write_file_atomically(path, render_report(model, ledger, release, scores).encode())
    return Path(path)


def _report_group_promises(certificate: Certificate) -> list[tuple[int, str]]:
    """Return what several records of one person are promised together; nothing where people are
    the unit.
    """
    rows: list[tuple[int, str]] = []
    for size in () if "person" in certificate.unit else (1, 2, 5, 10):
        try:
            rows.append((size, wording.promise_wording(certificate.for_group(size))))
        except ValueError:  # delta would be 1
            rows.append((size, "nothing"))
    return rows


def _learned_columns(model: Fitted, target: str) -> str:
    names = facts_of_model.feature_names(model)
    listed = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return f"{f'“{target}”' if target else 'a target column'} from {len(names)} columns: {listed}"


def _report_tradeoff(certificate: Certificate, sharper: Guarantee | None, accuracy: float) -> str:
    words = (
        "Horizontal: how often the attacker raises a false alarm. Vertical: how often the "
        "attacker misses. Every attack lies on or above the solid curve; without any release it "
        f"lies on the dashed diagonal. At even odds the attacker is right at most {accuracy:.1%} "
        "of the time."
    )
    answer = "in the data" if certificate.neighbors == "add_or_remove_one" else "the second version"
    more = (
        []
        if sharper is None
        else [tradeoff_chart_curve("the mechanism itself: nor below this", sharper)]
    )
    return tradeoff_chart(words, certificate.guarantee, more, answer)


def _report_accuracy_rows(ahead: facts_of_model.AccuracyForecast) -> list[tuple[str, str]]:
    rows = [
        (f"{budget:g}" + (" (this model)" if budget == ahead.own else ""), ahead.form(risk))
        for budget, risk in ahead.points
    ]
    return [*rows, ("without privacy", ahead.form(ahead.without_privacy))]


def _report_coefficient_table(
    model: Fitted, spread: facts_of_model.CoefficientUncertainty | None
) -> list[dict[str, object]]:
    rows = facts_of_model.coefficient_rows(model)
    bounds = facts_of_model.coefficient_column_bounds(model)
    first = len(rows) - len(facts_of_model.feature_names(model))  # 1 after an intercept
    table: list[dict[str, object]] = []
    for number, row in enumerate(rows, -first):
        noise = None if spread is None else spread.intercept if number < 0 else spread.coef[number]
        limits = (
            ""
            if bounds is None or number < 0
            else f"{bounds[0][number]:g} to {bounds[1][number]:g}"
        )
        words = "" if noise is None else f"{noise:.3g}"
        table.append(
            {
                "name": row.name,
                "values": row.values,
                "ends": row.intervals,
                "noise": words,
                "bounds": limits,
            }
        )
    return table


def _report_public_facts(certificate: Certificate) -> list[tuple[str, str]]:
    bounds = certificate.bounds
    names = {
        "n_samples": bounds.counted,
        "n_features": "columns",
        "row_norm": "row norm, at most",
        "max_norm": "norm of a mapped row, at most",
        "alpha": "penalty alpha",
        "fit_intercept": "intercept",
    }
    facts = [
        (label, _plain_report_value(getattr(bounds, name)))
        for name, label in names.items()
        if hasattr(bounds, name)
    ]
    facts.append(("loss", repr(bounds.loss)))
    facts.append(
        ("solver's certified tolerance", _plain_report_value(certificate.solver_tolerance))
    )
    return facts


def _report_settings(certificate: Certificate) -> list[tuple[str, str]]:
    return [
        row
        for name, value in sorted(certificate.parameters.items())
        if name not in ("feature_bounds", "label_set") and value is not None
        for row in _flatten_report_settings(name.replace("_", " "), value)
    ]


def _flatten_report_settings(name: str, value: object) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for inner, part in value.items():
            yield from _flatten_report_settings(f"{name}: {str(inner).replace('_', ' ')}", part)
    else:
        yield name, "chosen from public facts" if value is None else _plain_report_value(value)


def _plain_report_value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)


def _shorten_report_value(value: object) -> str:
    """Return a released quantity in a few words: numbers as they are, large tables by their
    shape.
    """
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_shorten_report_value(part)}" for name, part in value.items())
    if isinstance(value, (list, tuple, np.ndarray)):
        if len(value) and isinstance(value[0], dict):
            return " | ".join(_shorten_report_value(part) for part in value)
        numbers = np.asarray(value)
        if numbers.size > 12 or numbers.dtype.kind not in "fiu":
            return " × ".join(str(length) for length in numbers.shape) + " values, in released_"
        return ", ".join(f"{number:.4g}" for number in numbers.ravel())
    return _plain_report_value(value)
