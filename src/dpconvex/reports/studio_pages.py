"""Pages of the studio: pieces of HTML from public facts alone. Whatever a visitor sends is checked and escaped."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from dpconvex.inputs import InputError
from dpconvex.inputs.schema import parse_schema, parse_schema_toml
from dpconvex.inputs.settings import resolve_budget_setting
from dpconvex.models.model_file import ModelFileError, model_json_object, parse_model
from dpconvex.planning import Forecasts, plan
from dpconvex.privacy.certificate import CertificateError
from dpconvex.privacy.guarantees import GaussianDP, Guarantee, group_guarantee
from dpconvex.privacy.ledger import Ledger
from dpconvex.reports.charts import accuracy_chart, tradeoff_chart
from dpconvex.reports.coefficients_and_forecasts import attacker_limits, forecast_accuracy
from dpconvex.reports.printable import printable_on_page
from dpconvex.reports.report import render_report
from dpconvex.reports.wording import promise_wording

_FACTOR = 4.0  # forecasts lie within this of simulations from their population
_LOWEST_BUDGET, _HIGHEST_BUDGET = 0.01, 50.0
_TEMPLATES = Environment(
    loader=PackageLoader("dpconvex.reports", "studio"), autoescape=True, finalize=printable_on_page
)
TASKS = {"quantile": "quantile", "newsvendor": "newsvendor", "logistic": "logistic regression"}
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
        """Return the request that a page sent, or raise ``InputError`` in words for people."""
        task = sent.get("task")
        if not isinstance(task, str) or task not in TASKS:
            raise InputError(f"The task must be one of {list(TASKS)}.")
        numbers = {name: _studio_number(sent.get(name), *limits) for name, limits in _RANGES.items()}
        if sent.get("kind") == "mu":
            guarantee = resolve_budget_setting(None, None, numbers["budget"], "the studio")
        else:
            guarantee = resolve_budget_setting(numbers["budget"], numbers["delta"], None, "the studio")
        rows, columns, per_person = (int(numbers[name]) for name in ("rows", "columns", "per_person"))
        return cls(task, rows, columns, guarantee, numbers["level"], per_person, numbers["wanted"])

    def plan(self, rows: int | None = None, budget: float | None = None) -> Forecasts:
        """Return the forecasts, for other rows or another budget where given."""
        guarantee = self.guarantee
        if budget is not None and isinstance(guarantee, GaussianDP):
            guarantee = GaussianDP(budget)
        elif budget is not None:
            guarantee = resolve_budget_setting(budget, guarantee.delta(math.inf), None, "the studio")
        task = "logistic" if self.task == "logistic" else "quantile"
        return plan(task, rows or self.rows, self.columns, guarantee, quantile=self.level)


def _studio_number(value: object, label: str, low: float, high: float) -> float:
    """Return a number within its range, or raise."""
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
    found = wish.plan()
    ahead, best = forecast_accuracy(found), found.best.excess_risk
    name, own, unit = ahead.budget, ahead.own, "" if ahead.relative else " nats"
    other = [
        (f"half the {name}: {own / 2:.3g}", wish.plan(budget=own / 2)),
        (f"twice the {name}: {2 * own:.3g}", wish.plan(budget=2 * own)),
        (f"twice the rows: {2 * wish.rows:,}", wish.plan(rows=2 * wish.rows)),
        (f"ten times the rows: {10 * wish.rows:,}", wish.plan(rows=10 * wish.rows)),
    ]
    words = "Every attack lies on or above the solid curve; guessing lies on the dashed diagonal."
    return _TEMPLATES.get_template("forecast.html").render(
        promise=promise_wording(wish.guarantee),
        quantity=found.quantity,
        best=ahead.form(best) + unit,
        low=ahead.form(best / _FACTOR) + unit,
        high=ahead.form(best * _FACTOR) + unit,
        without=ahead.form(ahead.without_privacy) + unit,
        mechanism=found.best.mechanism,
        attack=attacker_limits(wish.guarantee),
        mechanism_accuracy=_studio_mechanism_accuracy(wish.guarantee, found.best.mechanism),
        per_person=wish.per_person,
        person=_studio_person_promise(wish),
        other=[(words, ahead.form(each.best.excess_risk) + unit) for words, each in other],
        wanted=ahead.form(wish.wanted) + unit,
        needed=_studio_needed_budget(wish, name),
        budget_name=name,
        accuracy_plot=Markup(accuracy_chart(ahead)),
        attack_plot=Markup(tradeoff_chart(words, wish.guarantee)),
    )


def _studio_mechanism_accuracy(guarantee: Guarantee, mechanism: str) -> float | None:
    """Return an attacker's share of right answers by the Gaussian guarantee of a descent, which says more."""
    if mechanism != "gradient" or isinstance(guarantee, GaussianDP):
        return None
    return attacker_limits(guarantee.as_gaussian()).accuracy


def _studio_person_promise(wish: StudioFitRequest) -> str:
    """Return what a person with several rows is promised."""
    try:
        return promise_wording(group_guarantee(wish.guarantee, wish.guarantee, wish.per_person))
    except ValueError:  # delta would be 1
        return "nothing"


def _studio_needed_budget(wish: StudioFitRequest, name: str) -> str:
    """Return the smallest budget at which the wanted loss is forecast, in words."""
    low, high, article = _LOWEST_BUDGET, _HIGHEST_BUDGET, "an" if name == "epsilon" else "a"
    if wish.plan(budget=high).best.excess_risk > wish.wanted:
        return f"no {name} up to {high:g}: more rows or fewer columns are needed"
    if wish.plan(budget=low).best.excess_risk <= wish.wanted:
        return f"{article} {name} of {low:g} or less"
    for _ in range(12):
        middle = math.sqrt(low * high)
        enough = wish.plan(budget=middle).best.excess_risk <= wish.wanted
        low, high = (low, middle) if enough else (middle, high)
    return f"{article} {name} of about {high:.2g}"


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
    return template.render(problem=None, columns=len(found.names), names=found.inputs, target=target)


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
        intervals = hasattr(model, "predict_interval")
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
