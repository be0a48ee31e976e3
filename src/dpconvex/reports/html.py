"""The report of a private model: one self-contained HTML file for whoever has to answer for it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import numpy as np

from dpconvex.inputs.estimator_protocols import Fitted
from dpconvex.inputs.release_file import ReleaseFacts
from dpconvex.privacy.bounds.base import RECORD
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.guarantees import GaussianDP, Guarantee
from dpconvex.privacy.ledger.ledger import Ledger
from dpconvex.reports.certificate_words import describe_mechanism, describe_sampler
from dpconvex.reports.charts import Axis, Curve, effect_chart, line_chart
from dpconvex.reports.coefficient_plot import interval_plot
from dpconvex.reports.content import (
    Outlook,
    Uncertainty,
    attacker,
    coefficient_intervals,
    column_bounds,
    feature_names,
    formula,
    noise_rows,
    outlook,
    problem_names,
    promise,
    uncertainty,
)
from dpconvex.reports.nist import answers
from dpconvex.reports.officer import limits, method, quotable, sharper, unit_of, who_and_why
from dpconvex.reports.printable import on_page
from dpconvex.reports.terminal import unit_in_words
from dpconvex.version import __version__
from dpconvex.whole_files import write_whole

_MOST_BARS = 40
# Parameters of what happens to coefficients after the noise was added.
_AFTERWARDS = ("coef_bound", "release_radius", "threshold")


class Score(Protocol):
    """A released score; see :class:`dpconvex.evaluation.PrivateScore`."""

    metric: str
    value: float
    interval: tuple[float, float]
    level: float


def render_report(
    model: Fitted, ledger: Ledger | None = None, release: ReleaseFacts | None = None, scores: Sequence[Score] = ()
) -> str:
    """Return the report of a fitted model as HTML.

    Parameters
    ----------
    model : estimator
        A fitted dpconvex estimator, or one that :func:`dpconvex.load_model` returned.
    ledger : Ledger, optional
        Whose state the report shows; that of the model by default.
    release : ReleaseFacts, optional
        Who publishes the model, why and until when; see :func:`dpconvex.inputs.release_file.read_release`.
    scores : sequence of PrivateScore, optional
        Measured accuracy, paid for.

    Returns
    -------
    str
        One page without scripts and without references to other files.

    Raises
    ------
    CertificateError
        If the model's certificate does not verify: a report on a false claim is not written.

    Notes
    -----
    Privacy: everything in a report is public or released by the fit: it costs nothing. The state of the ledger is
    public too.
    """
    from jinja2 import Environment, PackageLoader
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model, "certificate_")
    certificate = model.certificate_
    certificate.verify()
    guarantee = certificate.guarantee
    ledger = getattr(model, "ledger", None) if ledger is None else ledger
    spread = uncertainty(model)
    release = ReleaseFacts() if release is None else release
    truly = sharper(certificate)
    attacks = [("by the claim", attacker(guarantee))]
    if truly is not None:
        attacks.append(("by the mechanism itself", attacker(truly)))
    ahead = outlook(model)
    few = np.atleast_2d(model.coef_).shape[1] <= _MOST_BARS
    intervals = interval_plot(model, _MOST_BARS) if few else None
    label_set = certificate.parameters.get("label_set")
    who = list(who_and_why(release))
    environment = Environment(
        loader=PackageLoader("dpconvex.reports", "."), autoescape=True, trim_blocks=True, finalize=on_page
    )
    return environment.get_template("report.html").render(
        title=f"Privacy report: {release.name or type(model).__name__}",
        quote=quotable(model, release),
        who=who,
        missing=not all(answer for _, answer in who),
        learned=_learned(model, release.target),
        unit=unit_of(certificate, release),
        joins=certificate.neighbors == "add_or_remove_one",
        limits=list(limits(certificate, label_set)),
        method=method(certificate),
        scores=[score for score in scores if math.isfinite(score.value)],
        nist=answers(certificate, release, ledger is not None),
        estimator=type(model).__name__,
        does=_first_sentence(type(model)),
        version=__version__,
        date=datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC"),
        certificate=certificate,
        certificate_json=certificate.to_json(),
        seeded=certificate.sampler.startswith("seeded"),
        warnings=certificate.warnings,
        promise=promise(guarantee),
        formula=formula(guarantee),
        kind=guarantee.kind,
        factor=_factor(guarantee),
        failure=float(getattr(guarantee, "delta_bound", 0.0)),
        attacks=attacks,
        sharper=truly,
        tradeoff_plot=_tradeoff_plot(certificate, truly, attacks[0][1].accuracy),
        groups=_groups(certificate),
        whom=unit_in_words(certificate.unit),
        thing="record" if certificate.unit == RECORD else "person",
        things=certificate.bounds.counted,
        epsilons=_equivalents(guarantee),
        noise=noise_rows(certificate),
        mechanism=describe_mechanism(certificate.mechanism),
        sampler=describe_sampler(certificate),
        facts=_facts(certificate),
        settings=_settings(certificate),
        headings=problem_names(model),
        coefficients=_coefficient_rows(model, spread),
        spread=spread,
        bounded=column_bounds(model) is not None,
        processed=any(certificate.parameters.get(name) is not None for name in _AFTERWARDS),
        interval_plot=intervals,
        effect_plot=None if intervals else _effect_plot(model, spread),
        ahead=ahead,
        accuracy_plot=None if ahead is None else _accuracy_plot(ahead),
        accuracy_rows=[] if ahead is None else _accuracy_rows(ahead),
        extra=_released(model),
        remaining=None if ledger is None else ledger.remaining(),
        charges=[] if ledger is None else ledger.entries(),
    )


def write_report(
    model: Fitted,
    path: str | os.PathLike[str],
    ledger: Ledger | None = None,
    release: ReleaseFacts | None = None,
    scores: Sequence[Score] = (),
) -> Path:
    """Write the report of a fitted model: what was released, what it reveals at most, and why.

    Parameters
    ----------
    model : estimator
        A fitted dpconvex estimator.
    path : path
        Where the HTML file goes.
    ledger : Ledger, optional
        Whose state the report shows; that of the model by default.
    release, scores
        As in :func:`render_report`.

    Returns
    -------
    Path
        The file, which refers to no other.

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
    write_whole(path, render_report(model, ledger, release, scores).encode())
    return Path(path)


def _first_sentence(kind: type) -> str:
    return (kind.__doc__ or "").strip().split("\n")[0]


def _factor(guarantee: Guarantee) -> str | None:
    epsilon = getattr(guarantee, "epsilon_bound", None)
    if epsilon is None:
        return None
    return f"{math.exp(epsilon):.3g}" if epsilon < 30 else f"exp({epsilon:g})"


def _equivalents(guarantee: Guarantee) -> list[tuple[str, str]]:
    """Return (delta, epsilon) pairs that follow from a Gaussian guarantee."""
    if guarantee.kind != "gaussian":
        return []
    return [(f"{delta:g}", f"{guarantee.epsilon(delta):.4g}") for delta in (1e-3, 1e-6, 1e-9)]


def _groups(certificate: Certificate) -> list[tuple[int, str]]:
    """Return what several records of one person are promised together."""
    rows: list[tuple[int, str]] = []
    if "person" in certificate.unit:  # all rows of a person are covered
        return rows
    for size in (1, 2, 5, 10):
        try:
            rows.append((size, promise(certificate.for_group(size))))
        except ValueError:  # delta would be 1
            rows.append((size, "nothing"))
    return rows


def _learned(model: Fitted, target: str) -> str:
    """Return what was learned from what, in the columns' names."""
    names = feature_names(model)
    listed = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    of = f"“{target}”" if target else "a target column"
    return f"{of} from {len(names)} columns: {listed}"


def _tradeoff_plot(certificate: Certificate, truly: Guarantee | None, accuracy: float) -> str:
    guarantee = certificate.guarantee
    joins = certificate.neighbors == "add_or_remove_one"
    claim = "in the data" if joins else "the second version"
    # Denser at both ends, where the curves bend.
    x = np.sin(np.linspace(0, math.pi / 2, 121)) ** 2
    if not isinstance(guarantee, GaussianDP):  # the corner of the two straight lines
        corner = 1 / (1 + math.exp(min(guarantee.epsilon_bound, 500)))
        x = np.sort(np.append(x, corner * (1 - guarantee.delta(math.inf))))
    claimed = np.asarray(guarantee.tradeoff(x))
    curves = [
        Curve("the claim: no attack lies below", x.tolist(), claimed.tolist()),
        Curve("guessing without any release", [0.0, 1.0], [1.0, 0.0], dashed=True),
    ]
    if truly is not None:
        sharp = np.asarray(truly.tradeoff(x))
        curves.append(Curve("the mechanism itself: nor below this", x.tolist(), sharp.tolist()))
    return line_chart(
        "What an attacker can achieve",
        "Horizontal: how often the attacker raises a false alarm. Vertical: how often the attacker misses. Every "
        f"attack lies on or above the solid curve; without any release it lies on the dashed diagonal. At even odds "
        f"the attacker is right at most {accuracy:.1%} of the time.",
        curves,
        Axis(f"false alarms: says “{claim}” wrongly", 0, 1, form="{:.0%}".format),
        Axis(f"misses: does not say “{claim}” where it is so", 0, 1, form="{:.0%}".format),
    )


def _accuracy_plot(ahead: Outlook) -> str:
    x, y = [point[0] for point in ahead.points], [max(point[1], 1e-6) for point in ahead.points]
    low, high = min(*y, max(ahead.without_privacy, 1e-6)) / 1.5, max(y) * 1.5
    return line_chart(
        f"Accuracy against {ahead.budget}",
        f"Predicted {ahead.quantity}, for {ahead.budget} from {x[0]:g} to {x[-1]:g}: it falls from {y[0]:.2g} to "
        f"{y[-1]:.2g} as the budget grows. Without privacy it is {ahead.without_privacy:.2g}.",
        [
            Curve("private", x, y, marks=True),
            Curve("this model's budget", [ahead.own, ahead.own], [low, high], dashed=True),
            Curve("without privacy", [x[0], x[-1]], [ahead.without_privacy] * 2, dashed=True),
        ],
        Axis(ahead.budget, x[0], x[-1], logarithmic=True),
        Axis("predicted excess loss", low, high, logarithmic=True, form=_risk(ahead)),
    )


def _risk(ahead: Outlook) -> Callable[[float], str]:
    """Return how an excess risk is written."""
    return (lambda value: f"{100 * value:.3g} %") if ahead.relative else "{:.3g}".format


def _accuracy_rows(ahead: Outlook) -> list[tuple[str, str]]:
    form = _risk(ahead)
    rows = [
        (f"{budget:g}" + (" (this model)" if budget == ahead.own else ""), form(risk)) for budget, risk in ahead.points
    ]
    return [*rows, ("without privacy", form(ahead.without_privacy))]


def _effect_plot(model: Fitted, spread: Uncertainty | None) -> str | None:
    """Return bars of what each column does to the prediction between its two bounds."""
    bounds, coef = column_bounds(model), np.atleast_2d(model.coef_)
    if bounds is None or len(coef) > 1 or coef.shape[1] > _MOST_BARS:
        return None
    width = bounds[1] - bounds[0]
    with np.errstate(over="ignore"):  # a stranger's file; infinite effects are not drawn
        values = coef[0] * width
    exact = spread is not None and spread.exact
    spreads = (spread.coef * width).tolist() if spread is not None and exact else None
    names = feature_names(model)
    if not np.isfinite(values).all():
        return None
    strongest = names[int(np.argmax(np.abs(values)))]
    return effect_chart(
        "Effect of each column",
        "How far the model's value moves when a column goes from its lower to its upper public bound. The largest "
        f"effect is that of {strongest}.",
        names,
        values.tolist(),
        spreads,
        "change of the model's value from the lower to the upper bound",
    )


def _coefficient_rows(model: Fitted, spread: Uncertainty | None) -> list[dict[str, object]]:
    coef = np.atleast_2d(model.coef_)
    bounds = column_bounds(model)
    intervals = coefficient_intervals(model)
    rows: list[dict[str, object]] = []
    if hasattr(model, "intercept_"):
        values = [f"{value:.6g}" for value in np.atleast_1d(model.intercept_)]
        known = spread is not None and spread.intercept is not None
        noise = f"{spread.intercept:.3g}" if spread is not None and known else ""
        rows.append({"name": "(intercept)", "values": values, "noise": noise, "bounds": ""})
    for number, name in enumerate(feature_names(model)):
        rows.append(
            {
                "name": name,
                "values": [f"{value:.6g}" for value in coef[:, number]],
                "noise": None if spread is None else f"{spread.coef[number]:.3g}",
                "ends": []
                if intervals is None
                else ["{:.4g} to {:.4g}".format(*ends) for ends in intervals[:, number]],
                "bounds": "" if bounds is None else f"{bounds[0][number]:g} to {bounds[1][number]:g}",
            }
        )
    return rows


def _facts(certificate: Certificate) -> list[tuple[str, str]]:
    words = {
        "n_samples": certificate.bounds.counted,
        "n_features": "columns",
        "row_norm": "bound on a row's influence",
        "max_norm": "longest mapped row",
        "alpha": "penalty alpha",
        "fit_intercept": "intercept",
    }
    found = [
        (label, getattr(certificate.bounds, name)) for name, label in words.items() if hasattr(certificate.bounds, name)
    ]
    facts = [(label, _plain(value)) for label, value in found]
    facts.append(("loss", repr(getattr(certificate.bounds, "loss", ""))))
    facts.append(("solver's certified tolerance", _plain(certificate.solver_tolerance)))
    return facts


def _settings(certificate: Certificate) -> list[tuple[str, str]]:
    skipped = {"feature_bounds", "label_set"}
    return [
        row
        for name, value in sorted(certificate.parameters.items())
        if name not in skipped and value is not None
        for row in _flat(name.replace("_", " "), value)
    ]


def _flat(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield a setting, or those inside it, one line each."""
    if isinstance(value, dict):
        for inner, part in value.items():
            yield from _flat(f"{name}: {str(inner).replace('_', ' ')}", part)
    else:
        yield name, "chosen from public facts" if value is None else _plain(value)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value)


def _released(model: Fitted) -> list[tuple[str, str]]:
    released = getattr(model, "released_", None) or {}
    return [(str(name).replace("_", " "), _shortened(value)) for name, value in sorted(released.items())]


def _shortened(value: object) -> str:
    """Return a released quantity in a few words: numbers as they are, large tables by their shape."""
    if isinstance(value, dict):
        return "; ".join(f"{name}: {_shortened(part)}" for name, part in value.items())
    if isinstance(value, (list, tuple, np.ndarray)):
        if len(value) and isinstance(value[0], dict):
            return " | ".join(_shortened(part) for part in value)
        numbers = np.asarray(value)
        if numbers.size > 12 or numbers.dtype.kind not in "fiu":
            return " × ".join(str(length) for length in numbers.shape) + " values, in released_"
        return ", ".join(f"{number:.4g}" for number in numbers.ravel())
    return _plain(value)
