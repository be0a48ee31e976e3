"""Pages of the studio: pieces of HTML from public facts alone. Whatever a visitor sends is
checked and escaped.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from dpconvex.core.certificate import CertificateError
from dpconvex.core.guarantees import GaussianDP, Guarantee, PureDP, group_guarantee
from dpconvex.inputs import InputError
from dpconvex.inputs.schema_file import parse_schema, parse_schema_toml
from dpconvex.inputs.settings import FittedIntervals, resolve_budget_setting
from dpconvex.models.model_file import ModelFileError, model_json_object, parse_model
from dpconvex.planning import Forecasts, plan
from dpconvex.planning.planner import MECHANISMS, default_mechanisms
from dpconvex.privacy.ledger import Ledger
from dpconvex.reports.charts import accuracy_chart, tradeoff_chart
from dpconvex.reports.coefficients_and_forecasts import (
    AccuracyForecast,
    attacker_limits,
    forecast_accuracy,
)
from dpconvex.reports.printable import printable_on_page
from dpconvex.reports.report import render_report
from dpconvex.reports.wording import promise_wording

_FACTOR = 4.0  # forecasts lie within this of simulations from their population
_TEMPLATES = Environment(
    loader=PackageLoader("dpconvex.reports", "studio"), autoescape=True, finalize=printable_on_page
)
_BUDGETS = (
    1 / 16,
    1 / 8,
    1 / 4,
    1 / 2,
    1.0,
    2.0,
    4.0,
    8.0,
    16.0,
)  # of a chart, as multiples of the chosen one
_FEW_BUDGETS = (1 / 8, 1 / 2, 1.0, 2.0, 8.0)  # where a forecast takes a tenth of a second


@dataclass(frozen=True)
class StudioTask:
    """Words of a task, and the planner's task that forecasts it; none for tasks without
    forecasts.
    """

    words: str
    planned: str | None = None
    level: str = ""  # words of its quantile level, where it has one
    quantity: str = ""  # where the planner's word is not the task's own


TASKS = {
    "linear": StudioTask("linear regression", "linear"),
    "poisson": StudioTask("counts (Poisson)", "poisson"),
    "gamma": StudioTask("costs and times (Gamma)", "gamma"),
    "tweedie": StudioTask("costs with zeros (Tweedie)", "tweedie"),
    "quantile": StudioTask("quantile regression", "quantile", "Quantile"),
    "newsvendor": StudioTask(
        "newsvendor",
        "quantile",
        "Underage cost / both costs",
        "extra cost, as a share of the best linear model's",
    ),
    "logistic": StudioTask("logistic regression", "logistic"),
    "hazard": StudioTask("survival in periods (hazards)", "hazard"),
    "ordinal": StudioTask("ordered levels (proportional odds)", "ordinal"),
    "svm": StudioTask("linear support vectors"),
    "auc": StudioTask("ranking by AUC"),
    "top-rank": StudioTask("ranking at the top"),
    "tilted": StudioTask("tilted classifier"),
    "tilted-regression": StudioTask("tilted regression"),
    "robust": StudioTask("robust classifier"),
    "robust-regression": StudioTask("robust regression"),
}
# By field of the page: its words, and the smallest and largest number.
_RANGES = {
    "rows": ("number of rows", 10, 1e9),
    "columns": ("number of columns", 1, 5000),
    "budget": ("budget", 1e-3, 100),
    "delta": ("delta", 0, 0.1),
    "level": ("quantile", 0.001, 0.999),
    "per_person": ("number of rows per person", 1, 1000),
    "wanted": ("wanted loss", 1e-6, 1e3),
}


@dataclass(frozen=True)
class StudioFitRequest:
    """A fit as the sliders describe it, checked."""

    task: str
    rows: int
    columns: int
    guarantee: Guarantee
    level: float
    per_person: int
    wanted: float

    @classmethod
    def parse(cls, sent: Mapping[str, Any]) -> StudioFitRequest:
        """Return the request that a page of the studio sent, or raise ``InputError`` in words
        for people.
        """
        task = sent.get("task")
        if not isinstance(task, str) or task not in TASKS:
            raise InputError(f"The task must be one of {list(TASKS)}.")
        numbers = {
            name: _studio_number(sent.get(name), *limits) for name, limits in _RANGES.items()
        }
        if sent.get("kind") == "mu":
            guarantee = resolve_budget_setting(None, None, numbers["budget"], "the studio")
        else:
            guarantee = resolve_budget_setting(
                numbers["budget"], numbers["delta"], None, "the studio"
            )
        rows, columns, per_person = (
            int(numbers[name]) for name in ("rows", "columns", "per_person")
        )
        return cls(task, rows, columns, guarantee, numbers["level"], per_person, numbers["wanted"])

    @property
    def planned(self) -> bool:
        """Whether a default fit of the task has forecasts, and offers the guarantee."""
        task = TASKS[self.task].planned
        return task in MECHANISMS and bool(default_mechanisms(task, self.guarantee))

    def plan(self, rows: int | None = None) -> Forecasts:
        """Return the forecasts of a default fit, for other rows where given."""
        task = TASKS[self.task]
        assert task.planned is not None
        level = self.level if task.level else 0.5
        return _studio_plan(task.planned, rows or self.rows, self.columns, self.guarantee, level)


@lru_cache(maxsize=2000)
def _studio_plan(
    task: str, rows: int, columns: int, guarantee: Guarantee, level: float
) -> Forecasts:
    """Return the forecasts of what a default fit runs: the private fit, or for pure epsilon the
    best of the others.
    """
    mechanisms = default_mechanisms(task, guarantee)
    return plan(task, rows, columns, guarantee, quantile=level, mechanisms=mechanisms)


def _studio_number(value: object, label: str, low: float, high: float) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not low <= number <= high:
        raise InputError(f"The {label} must be a number from {low:g} to {high:g}.")
    return number


def studio_page() -> str:
    """Return the page that everything else is put into; it is the same for everybody."""
    return _TEMPLATES.get_template("studio.html").render(tasks=TASKS)


def studio_forecast(sent: Mapping[str, Any]) -> str:
    """Return the forecast of a fit, and of others near it."""
    wish = StudioFitRequest.parse(sent)
    words = "Every attack lies on or above the solid curve; guessing lies on the dashed diagonal."
    gaussian = wish.planned and not isinstance(wish.guarantee, PureDP)
    return _TEMPLATES.get_template("forecast.html").render(
        promise=promise_wording(wish.guarantee),
        task=TASKS[wish.task].words,
        attack=attacker_limits(wish.guarantee),
        mechanism_accuracy=_studio_mechanism_accuracy(wish.guarantee) if gaussian else None,
        per_person=wish.per_person,
        person=_studio_person_promise(wish),
        attack_plot=Markup(tradeoff_chart(words, wish.guarantee)),
        forecast=_studio_accuracy(wish) if wish.planned else None,
    )


@lru_cache(maxsize=200)
def _studio_accuracy(wish: StudioFitRequest) -> dict[str, Any]:
    """Return what is forecast, in words: losses at several budgets, and at more rows. Each is
    calibrated once.
    """
    found = wish.plan()
    own = (
        found.guarantee.mu
        if isinstance(found.guarantee, GaussianDP)
        else found.guarantee.epsilon_bound
    )
    factors = _FEW_BUDGETS if isinstance(found.guarantee, PureDP) else _BUDGETS
    ahead = forecast_accuracy(found, [own * factor for factor in factors])
    best = found.best.excess_risk
    if TASKS[wish.task].quantity:
        ahead = replace(ahead, quantity=TASKS[wish.task].quantity)
    name = ahead.budget
    unit = "" if ahead.relative else " nats"
    risks = dict(ahead.points)
    other = [
        (f"half the {name}: {own / 2:.3g}", risks.get(own / 2)),
        (f"twice the {name}: {2 * own:.3g}", risks.get(2 * own)),
        (f"twice the rows: {2 * wish.rows:,}", wish.plan(2 * wish.rows).best.excess_risk),
        (f"ten times the rows: {10 * wish.rows:,}", wish.plan(10 * wish.rows).best.excess_risk),
    ]
    return {
        "quantity": ahead.quantity,
        "best": ahead.form(best) + unit,
        "low": ahead.form(best / _FACTOR) + unit,
        "high": ahead.form(best * _FACTOR) + unit,
        "without": ahead.form(ahead.without_privacy) + unit,
        "mechanism": found.best.mechanism,
        "other": [(words, ahead.form(risk) + unit) for words, risk in other if risk is not None],
        "wanted": ahead.form(wish.wanted) + unit,
        "needed": _studio_needed_budget(ahead, wish.wanted),
        "plot": Markup(accuracy_chart(ahead)),
    }


def _studio_mechanism_accuracy(guarantee: Guarantee) -> float | None:
    """Return an attacker's share of right answers by the Gaussian guarantee of a descent, where
    that says more than the stated one.
    """
    if isinstance(guarantee, GaussianDP):
        return None
    return attacker_limits(guarantee.as_gaussian()).accuracy


def _studio_person_promise(wish: StudioFitRequest) -> str:
    try:
        return promise_wording(group_guarantee(wish.guarantee, wish.guarantee, wish.per_person))
    except ValueError:  # delta would be 1
        return "nothing"


def _studio_needed_budget(ahead: AccuracyForecast, wanted: float) -> str:
    """Return the smallest budget at which the wanted loss is forecast, in words, between those
    of the chart.
    """
    name = ahead.budget
    article = "an" if ahead.budget == "epsilon" else "a"
    enough = [number for number, (_, risk) in enumerate(ahead.points) if risk <= wanted]
    if not enough:
        return f"no {name} up to {ahead.points[-1][0]:.2g}: more rows or fewer columns are needed"
    high, reached = ahead.points[enough[0]]
    if enough[0] == 0:
        return f"{article} {name} of {high:.2g} or less"
    low, missed = ahead.points[enough[0] - 1]  # straight lines between logarithms
    share = math.log(missed / wanted) / math.log(missed / max(reached, 1e-12))
    return f"{article} {name} of about {low * (high / low) ** share:.2g}"


def check_studio_schema(text: str) -> str:
    """Return what a schema says, or what is wrong with it."""
    template = _TEMPLATES.get_template("schema.html")
    try:
        found = parse_schema(parse_schema_toml(text))
    except InputError as error:
        return template.render(problem=str(error))
    except ValueError:
        return template.render(problem="This is not valid TOML yet.")
    target = None if found.target is None else found.target.name
    return template.render(
        problem=None, columns=len(found.names), names=found.inputs, target=target
    )


def studio_ledger_timeline(ledger: Ledger) -> str:
    """Return the charges of a ledger, oldest first, and what is left."""
    return _TEMPLATES.get_template("ledger.html").render(
        entries=ledger.entries(), remaining=str(ledger.remaining()), dataset=ledger.dataset
    )


def verify_studio_model(content: bytes) -> dict[str, str]:
    """Return the verdict on a model file as HTML, and its report where it verifies.

    The file is only parsed: model files hold no code.
    """
    verdict = _TEMPLATES.get_template("verdict.html")
    try:
        model = parse_model(model_json_object(content)).estimator
        intervals = isinstance(model, FittedIntervals)
        report = "" if intervals else render_report(model)
    except (ModelFileError, CertificateError, ValueError, TypeError) as error:
        return {"verdict": verdict.render(problem=str(error)), "report": ""}
    words = promise_wording(model.certificate_.guarantee)
    return {"verdict": verdict.render(promise=words, intervals=intervals), "report": report}


def parse_studio_json(body: bytes) -> Mapping[str, Any]:
    """Return the JSON object that a page sent, or raise ``InputError``."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError("The page sent something that is no JSON.") from None
    if not isinstance(found, dict):
        raise InputError("The page sent something that is no object.")
    return found
