"""What the studio shows: pieces of HTML from public facts alone. Whatever a visitor sends is checked and escaped."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from dpconvex.inputs.errors import InputError
from dpconvex.inputs.schema_parsing import parse_schema
from dpconvex.inputs.settings import resolve_guarantee
from dpconvex.inputs.toml_text import parse_toml
from dpconvex.models.file import ModelFileError, json_object, parse_model
from dpconvex.planning import plan
from dpconvex.planning.planner import RiskPlan
from dpconvex.privacy.certificates.rules import CertificateError
from dpconvex.privacy.guarantees import GaussianDP, Guarantee, for_group
from dpconvex.privacy.ledger.ledger import Ledger
from dpconvex.reports.charts import Axis, Curve, line_chart
from dpconvex.reports.content import EPSILONS, attacker, promise
from dpconvex.reports.html import render_report
from dpconvex.reports.printable import on_page

__all__ = ["Wish", "forecast", "ledger_timeline", "page", "schema", "verified"]

_FACTOR = 4.0  # forecasts lie within this of simulations from their population
_TEMPLATES = Environment(loader=PackageLoader("dpconvex.reports.studio", "."), autoescape=True, finalize=on_page)
TASKS = {"quantile": "quantile", "newsvendor": "newsvendor", "logistic": "logistic regression"}


@dataclass(frozen=True)
class Wish:
    """What the sliders say, checked."""

    task: str
    rows: int
    columns: int
    guarantee: Guarantee
    level: float
    per_person: int
    wanted: float

    @classmethod
    def parse(cls, sent: Mapping[str, Any]) -> Wish:
        """Return the wish that a page sent, or raise ``InputError`` in words for people."""
        task = sent.get("task")
        if not isinstance(task, str) or task not in TASKS:
            raise InputError(f"The task must be one of {list(TASKS)}.")
        numbers = {
            name: _number(sent.get(name), label, low, high)
            for name, label, low, high in (
                ("rows", "number of rows", 10, 1e9),
                ("columns", "number of columns", 1, 5000),
                ("budget", "budget", 1e-3, 100),
                ("delta", "delta", 0, 0.1),
                ("level", "quantile", 0.001, 0.999),
                ("per_person", "number of rows per person", 1, 1000),
                ("wanted", "wanted loss", 1e-6, 1e3),
            )
        }
        kind = sent.get("kind")
        if kind == "mu":
            guarantee = resolve_guarantee(None, None, numbers["budget"], "the studio")
        else:
            guarantee = resolve_guarantee(numbers["budget"], numbers["delta"], None, "the studio")
        return cls(
            task, int(numbers["rows"]), int(numbers["columns"]), guarantee, numbers["level"],
            int(numbers["per_person"]), numbers["wanted"],
        )  # fmt: skip

    def plan(self, rows: int | None = None, guarantee: Guarantee | None = None) -> RiskPlan:
        """Return the forecast, for other rows or another budget where given."""
        task = "logistic" if self.task == "logistic" else "quantile"
        return plan(task, rows or self.rows, self.columns, guarantee or self.guarantee, quantile=self.level)


def _number(value: object, label: str, low: float, high: float) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not low <= number <= high:
        raise InputError(f"The {label} must be a number from {low:g} to {high:g}.")
    return number


def page() -> str:
    """Return the page that everything else is put into; it is the same for everybody."""
    return _TEMPLATES.get_template("studio.html").render(tasks=TASKS)


def forecast(sent: Mapping[str, Any]) -> str:
    """Return what is to be expected of a fit, and of others near it."""
    wish = Wish.parse(sent)
    found = wish.plan()
    name, own = _budget(wish.guarantee)
    best = found.best.excess_risk
    relative = wish.task != "logistic"
    form: Callable[[float], str] = (
        (lambda risk: f"{100 * risk:.2g} %") if relative else (lambda risk: f"{risk:.2g} nats")
    )
    other = [
        (f"half the {name}: {own / 2:.3g}", wish.plan(guarantee=_with(wish.guarantee, own / 2))),
        (f"twice the {name}: {2 * own:.3g}", wish.plan(guarantee=_with(wish.guarantee, 2 * own))),
        (f"twice the rows: {2 * wish.rows:,}", wish.plan(rows=2 * wish.rows)),
        (f"ten times the rows: {10 * wish.rows:,}", wish.plan(rows=10 * wish.rows)),
    ]
    return _TEMPLATES.get_template("forecast.html").render(
        promise=promise(wish.guarantee),
        quantity=found.quantity,
        best=form(best),
        low=form(best / _FACTOR),
        high=form(best * _FACTOR),
        without=form(found.without_privacy.excess_risk),
        mechanism=found.best.mechanism,
        attack=attacker(wish.guarantee),
        truly=_truly(wish.guarantee, found.best.mechanism),
        per_person=wish.per_person,
        person=_person(wish),
        other=[(words, form(each.best.excess_risk)) for words, each in other],
        wanted=form(wish.wanted),
        needed=_needed(wish, name),
        budget_name=name,
        accuracy_plot=Markup(_accuracy_plot(found, name, own, form)),
        attack_plot=Markup(_attack_plot(wish.guarantee)),
    )


def _budget(guarantee: Guarantee) -> tuple[str, float]:
    if isinstance(guarantee, GaussianDP):
        return "mu", guarantee.mu
    return "epsilon", guarantee.epsilon_bound


def _with(guarantee: Guarantee, budget: float) -> Guarantee:
    if isinstance(guarantee, GaussianDP):
        return GaussianDP(budget)
    return resolve_guarantee(budget, guarantee.delta(math.inf), None, "the studio")


def _truly(guarantee: Guarantee, mechanism: str) -> float | None:
    """Return an attacker's share of right answers by the Gaussian guarantee that a descent truly has."""
    if mechanism != "gradient" or isinstance(guarantee, GaussianDP):
        return None
    return attacker(guarantee.as_gaussian()).accuracy


def _person(wish: Wish) -> str:
    try:
        return promise(for_group(wish.guarantee, wish.guarantee, wish.per_person))
    except ValueError:  # delta would be 1
        return "nothing"


def _needed(wish: Wish, name: str) -> str:
    """Return the smallest budget at which the wanted loss is forecast, in words."""
    low, high = 0.01, 50.0

    def risk(budget: float) -> float:
        return wish.plan(guarantee=_with(wish.guarantee, budget)).best.excess_risk

    if risk(high) > wish.wanted:
        return f"no {name} up to {high:g}: more rows or fewer columns are needed"
    if risk(low) <= wish.wanted:
        return f"{_article(name)} of {low:g} or less"
    for _ in range(12):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if risk(middle) <= wish.wanted else (middle, high)
    return f"{_article(name)} of about {high:.2g}"


def _article(name: str) -> str:
    return f"an {name}" if name == "epsilon" else f"a {name}"


def _accuracy_plot(found: RiskPlan, name: str, own: float, form: Callable[[float], str]) -> str:
    budgets = sorted({*EPSILONS, own})
    curves = found.curve(budgets)
    best = [min(float(risks[place]) for risks in curves.values()) for place in range(len(budgets))]
    kept = [(b, max(r, 1e-6)) for b, r in zip(budgets, best, strict=True) if math.isfinite(r)]
    x, y = [b for b, _ in kept], [r for _, r in kept]
    alone = max(found.without_privacy.excess_risk, 1e-6)
    low, high = min(*y, alone) / 2, max(y) * 2
    return line_chart(
        f"Forecast loss against {name}",
        f"The forecast loss falls from {form(y[0])} to {form(y[-1])} as {name} grows from {x[0]:g} to {x[-1]:g}.",
        [
            Curve("private", x, y, marks=True),
            Curve("your budget", [own, own], [low, high], dashed=True),
            Curve("without privacy", [x[0], x[-1]], [alone, alone], dashed=True),
        ],
        Axis(name, x[0], x[-1], logarithmic=True),
        Axis("forecast excess loss", low, high, logarithmic=True, form=form),
    )


def _attack_plot(guarantee: Guarantee) -> str:
    x = [place / 100 for place in range(101)]
    y = [float(guarantee.tradeoff(rate)) for rate in x]
    return line_chart(
        "What an attacker can achieve",
        "Every attack lies on or above the solid curve; guessing lies on the dashed diagonal.",
        [Curve("no attack lies below", x, y), Curve("guessing", [0.0, 1.0], [1.0, 0.0], dashed=True)],
        Axis("false alarms", 0, 1, form="{:.0%}".format),
        Axis("misses", 0, 1, form="{:.0%}".format),
    )


def schema(text: str) -> str:
    """Return what a schema says, or what is wrong with it."""
    try:
        try:
            data = parse_toml(text)
        except InputError:
            raise
        except ValueError:
            raise InputError("This is not valid TOML yet.") from None
        found = parse_schema(data)
    except InputError as error:
        return _TEMPLATES.get_template("schema.html").render(problem=str(error))
    return _TEMPLATES.get_template("schema.html").render(
        problem=None,
        columns=len(found.names),
        names=found.inputs,
        target=None if found.target is None else found.target.name,
    )


def ledger_timeline(ledger: Ledger) -> str:
    """Return the charges of a ledger, oldest first, and what is left."""
    return _TEMPLATES.get_template("ledger.html").render(
        entries=ledger.entries(), remaining=str(ledger.remaining()), dataset=ledger.dataset
    )


def verified(content: bytes) -> dict[str, str]:
    """Return the verdict on a model file as HTML, and its report where it verifies.

    The file is only parsed: model files hold no code.
    """
    verdict = _TEMPLATES.get_template("verdict.html")
    try:
        model = parse_model(json_object(content)).estimator
        intervals = hasattr(model, "predict_interval")
        report = "" if intervals else render_report(model)
    except (ModelFileError, CertificateError, ValueError, TypeError) as error:
        return {"verdict": verdict.render(problem=str(error)), "report": ""}
    words = promise(model.certificate_.guarantee)
    return {"verdict": verdict.render(promise=words, intervals=intervals), "report": report}


def as_object(body: bytes) -> Mapping[str, Any]:
    """Return the JSON object that a page sent, or raise ``InputError``."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise InputError("The page sent something that is no JSON.") from None
    if not isinstance(found, dict):
        raise InputError("The page sent something that is no object.")
    return found
