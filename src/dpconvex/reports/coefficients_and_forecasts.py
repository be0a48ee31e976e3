"""Facts of a model that summaries and reports show, released or public: attacker, coefficients,
noise, forecasts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from dpconvex.core.certificate import Certificate
from dpconvex.core.guarantees import GaussianDP, Guarantee
from dpconvex.core.linear_bounds import LinearBounds, LinearRecord
from dpconvex.engine import RowMap
from dpconvex.inputs.settings import Classifier, Fitted, classifies, fitted_names
from dpconvex.losses import DiscreteHazard, Logistic, ProportionalOdds, Tweedie
from dpconvex.mechanisms.mechanism import certified_kind
from dpconvex.planning import Forecasts, plan
from dpconvex.planning.planner import MARGINS, MECHANISMS
from dpconvex.types import Array

LEVEL = 0.95  # confidence of intervals that are shown
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_FALSE_ALARMS = (0.01, 0.05, 0.1)
_TESTS = {
    "std_err": "{:.4g}",
    "z": "{:.3f}",
    "p_value": "{:.3f}",
    "low": "{:.4g}",
    "high": "{:.4g}",
}
_LONGEST_LABEL = 24  # letters of a label in a heading


@dataclass(frozen=True)
class Attacker:
    """Limits of the strongest attack."""

    accuracy: float  # largest share of right answers at even odds: (1 + delta(0)) / 2
    rates: list[tuple[float, float]]  # false alarm rates, and the largest detection rate at each


def attacker_limits(guarantee: Guarantee) -> Attacker:
    """Return the limits of an attacker who knows everything but one record."""
    rates = [(rate, 1 - float(guarantee.tradeoff(rate))) for rate in _FALSE_ALARMS]
    return Attacker((1 + guarantee.delta(0.0)) / 2, rates)


def gaussian_guarantee(certificate: Certificate) -> GaussianDP | None:
    """Return the Gaussian guarantee of the mechanism where it says more than the stated one."""
    mu = None if isinstance(certificate.guarantee, GaussianDP) else certificate.gaussian_mu()
    return None if mu is None else GaussianDP(mu)


@dataclass(frozen=True)
class CoefficientUncertainty:
    """Standard deviation of the noise in each coefficient, or an upper bound of its root mean
    square; user's units.
    """

    intercept: float | None
    coef: Array
    exact: bool  # standard deviations rather than bounds


def coefficient_uncertainty(model: Fitted) -> CoefficientUncertainty | None:
    r"""Return the effect of the certificate's noise on the coefficients, or None where it depends
    on the data.

    Output perturbation adds noise of known law to the mapped coefficients, and the map to the
    user's units is linear: exact. Objective perturbation moves the minimiser by at most
    ``||b|| / (n alpha)``, so the root mean square of each coefficient's move is at most
    ``std sqrt(d) / (n alpha)``. Noise inside a descent passes through curvature that is not
    released.
    """
    certificate: Certificate = model.certificate_
    bounds = certificate.bounds
    parameters = certificate.parameters
    if model.takes_matrices or "feature_bounds" not in parameters:
        return None
    has_intercept = bool(
        (bounds if isinstance(bounds, LinearRecord) else cast(Any, model)).fit_intercept
    )
    width = np.atleast_2d(model.coef_).shape[1]
    row_map = RowMap.from_bounds(
        width, parameters["feature_bounds"], bounds.row_norm, has_intercept
    )
    noise = certified_kind(certificate).coefficient_noise(certificate)
    if noise is None:
        return None
    spread, exact = noise
    target = certificate.parameters.get("target_bounds")
    logarithms = "rate_bounds" in certificate.parameters  # whose unit is no target's
    target_scale = 1.0 if target is None or logarithms else 2 / (target[1] - target[0])
    scale = np.asarray(row_map.scale)
    shift = np.asarray(row_map.shift)
    coef = spread * np.abs(scale) / target_scale
    intercept = None
    if row_map.fit_intercept:
        intercept = spread * math.sqrt(1 + float(np.sum((scale * shift) ** 2))) / target_scale
    return CoefficientUncertainty(intercept, coef, exact)


def coefficient_intervals(model: Fitted, level: float = LEVEL) -> Array | None:
    """Return low and high ends for each vector of coefficients, shape (problems, columns, 2);
    None without them.
    """
    if not model.inference:
        return None
    try:
        ends = np.asarray(model.confidence_interval(level))
    except ValueError:  # a stranger's file without what intervals need
        return None
    return ends.reshape(-1, ends.shape[-2], 2)


def feature_names(model: Fitted) -> list[str]:
    """Return the names of the columns, or x0, x1, ..."""
    names = fitted_names(model)
    if names is not None:
        return [str(name) for name in names]
    letter = "theta" if model.takes_matrices else "x"
    return [f"{letter}{number}" for number in range(np.atleast_2d(model.coef_).shape[1])]


def coefficient_column_bounds(model: Fitted) -> tuple[Array, Array] | None:
    """Return the public bounds of the columns."""
    pair = model.certificate_.parameters.get("feature_bounds")
    if pair is None:
        return None
    width = np.atleast_2d(model.coef_).shape[1]
    low, high = (np.broadcast_to(np.asarray(bound, dtype=float), width) for bound in pair)
    return low, high


def coefficient_heading(model: Fitted) -> str:
    """Return the heading of a single vector of coefficients: of two labels they speak for the
    second.
    """
    labels = model.classes_ if classifies(model) else ()
    if model._ordered_classes:
        return "log odds of a higher level"
    if len(labels) != 2:
        return "value"
    against, label = (
        text if len(text) <= _LONGEST_LABEL else f"{text[:_LONGEST_LABEL]}... [{number}]"
        for number, text in enumerate(map(str, labels))
    )
    # Scores of tilted, robust and ranking fits are no log odds.
    bounds = model.certificate_.bounds
    odds = type(bounds) is LinearBounds and hasattr(model, "predict_proba")
    heading = f"{'log odds of' if odds else 'value, for'} {label} against {against}"
    return heading if heading.isprintable() else repr(heading)


def coefficient_problem_names(model: Fitted) -> list[str]:
    """Return one heading per vector of coefficients."""
    rows = len(np.atleast_2d(model.coef_))
    if rows == 1:
        return [coefficient_heading(model)]
    if not classifies(model):
        return [model._problem_name(number) for number in range(rows)]
    classes = [str(label) for label in model.classes_]
    return classes if len(classes) == rows else [f"value {number}" for number in range(rows)]


@dataclass(frozen=True)
class CoefficientRow:
    """One line of a table of coefficients: a name, and by problem its value and, where paid for,
    what intervals tell.

    ``tests`` are standard error, z value, p-value and both ends of the interval, as statsmodels
    prints them.
    """

    name: str
    values: list[str]
    intervals: list[str]
    tests: list[list[str]]


def coefficient_rows(model: Fitted, most: int | None = None) -> list[CoefficientRow]:
    """Return the intercept and the first coefficients in the user's units."""
    coef = np.atleast_2d(model.coef_)[:, :most]
    names = feature_names(model)[:most]
    values = list(zip(names, coef.T, strict=True))
    if not model.takes_matrices:
        intercepts = np.atleast_2d(np.asarray(model.intercept_))
        above = ["(intercept)"]
        if intercepts.size > len(coef):  # of levels that share coefficients
            intercepts = intercepts.T
            above = [f"(above {label})" for label in cast(Classifier, model).classes_[:-1]]
        values = [*zip(above, intercepts, strict=True), *values]
    tests: list[list[list[str]]] = [[] for _ in values]
    if coefficient_intervals(model) is not None:
        table: dict[str, list[Any]] = model._coefficient_columns(LEVEL)
        terms = len(table["term"]) // len(coef)
        first = len(feature_names(model)) + 1 - terms  # 1 without an intercept
        numbers = list(zip(*(table[each] for each in _TESTS), strict=True))
        for place in range(first, len(values)):
            own = numbers[place - first :: terms]
            tests[place] = [
                [form.format(each) for form, each in zip(_TESTS.values(), row, strict=True)]
                for row in own
            ]
    return [
        CoefficientRow(
            name, [f"{value:.6g}" for value in each], [" to ".join(row[-2:]) for row in own], own
        )
        for (name, each), own in zip(values, tests, strict=True)
    ]


@dataclass(frozen=True)
class AccuracyForecast:
    """Predicted accuracy against the budget, without data."""

    budget: str  # "epsilon" or "mu"
    own: float  # the model's budget
    points: list[tuple[float, float]]  # budgets, and the predicted excess risk at each
    without_privacy: float  # excess risk of sampling alone
    quantity: str  # name of the excess risk
    relative: bool  # whether it is a share of the best risk

    def form(self, risk: float) -> str:
        """Return an excess risk as people write it."""
        return f"{100 * risk:.3g} %" if self.relative else f"{risk:.3g}"


def forecast_accuracy(found: Forecasts, budgets: Sequence[float] = EPSILONS) -> AccuracyForecast:
    """Return the forecasts of a plan at several budgets, its own among them."""
    guarantee = found.guarantee
    gaussian = isinstance(guarantee, GaussianDP)
    own = guarantee.mu if isinstance(guarantee, GaussianDP) else guarantee.epsilon_bound
    budgets = sorted({*budgets} - {own})
    lowest = np.min(list(found.curve(budgets).values()), axis=0).tolist()
    points = sorted([*zip(budgets, lowest, strict=True), (own, found.best.excess_risk)])
    points = [(budget, risk) for budget, risk in points if math.isfinite(risk)]
    relative = found.task not in MARGINS
    alone = found.without_privacy.excess_risk
    return AccuracyForecast(
        "mu" if gaussian else "epsilon", own, points, alone, found.quantity, relative
    )


def forecast_model(model: Fitted) -> AccuracyForecast | None:
    """Return the planner's forecasts for the model's public facts; None for tasks without
    forecasts.
    """
    certificate = model.certificate_
    bounds = certificate.bounds
    parameters = certificate.parameters
    more = {}
    if "quantile" in parameters:
        level = parameters["quantile"]
        if isinstance(level, list) and hasattr(model, "underage_cost"):
            return None  # several products
        task = "quantile"
        more["quantile"] = level
    elif (type(bounds), type(bounds.loss), parameters.get("n_classes")) == (
        LinearBounds,
        Logistic,
        2,
    ):
        task = "logistic"
    elif type(bounds.loss) is Tweedie:
        task = {1.0: "poisson", 2.0: "gamma"}.get(bounds.loss.power, "tweedie")
    elif type(bounds.loss) in (DiscreteHazard, ProportionalOdds):
        task = "hazard" if type(bounds.loss) is DiscreteHazard else "ordinal"
    else:
        return None
    mechanisms = [certificate.mechanism] if certificate.mechanism in MECHANISMS[task] else None
    found = plan(
        task,
        bounds.n_samples,
        bounds.n_features,
        certificate.guarantee,
        neighbors=certificate.neighbors,
        bounded=parameters["feature_bounds"] is not None,
        row_norm=bounds.row_norm,
        people=bounds.people,
        mechanisms=mechanisms,
        **more,
    )
    ahead = forecast_accuracy(found)
    return ahead if len(ahead.points) > 1 else None
