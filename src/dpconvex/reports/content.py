"""What a report says: a model's certificate, coefficients and uncertainty, from released facts alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpconvex.engine import RowMap
from dpconvex.inputs.estimator_protocols import Fitted
from dpconvex.losses import Logistic
from dpconvex.planning import plan
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.certificate import Certificate
from dpconvex.privacy.guarantees import ApproxDP, GaussianDP, Guarantee
from dpconvex.reports.certificate_words import describe_noise, describe_release
from dpconvex.types import Array

LEVEL = 0.95  # of intervals that are shown
EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_TYPE_ONE = (0.01, 0.05, 0.1)


def promise(guarantee: Guarantee) -> str:
    """Return the guarantee as people write it."""
    if isinstance(guarantee, GaussianDP):
        return f"Gaussian differential privacy with mu = {guarantee.mu:.6g}"
    if isinstance(guarantee, ApproxDP) and guarantee.delta_bound > 0:
        return (
            f"differential privacy with epsilon = {guarantee.epsilon_bound:.6g} and delta = {guarantee.delta_bound:.6g}"
        )
    return f"pure differential privacy with epsilon = {guarantee.epsilon_bound:.6g}"


def formula(guarantee: Guarantee) -> str:
    """Return the inequality that the guarantee states, in plain characters."""
    if isinstance(guarantee, GaussianDP):
        return f"type II error ≥ Φ( Φ⁻¹(1 − type I error) − {guarantee.mu:.6g} )"
    term = f"exp({guarantee.epsilon_bound:.6g}) · P[ M(D′) ∈ S ]"
    if isinstance(guarantee, ApproxDP) and guarantee.delta_bound > 0:
        term += f" + {guarantee.delta_bound:.6g}"
    return f"P[ M(D) ∈ S ] ≤ {term}"


@dataclass(frozen=True)
class Attacker:
    """What the strongest attacker can achieve.

    Attributes
    ----------
    accuracy : float
        Largest share of right answers when both data sets are equally likely: ``(1 + delta(0)) / 2``.
    rates : list of (float, float)
        False alarm rates, and the largest detection rate at each.
    """

    accuracy: float
    rates: list[tuple[float, float]]


def attacker(guarantee: Guarantee) -> Attacker:
    """Return the best an attacker can do who knows everything but one record."""
    rates = [(rate, 1 - float(guarantee.tradeoff(rate))) for rate in _TYPE_ONE]
    return Attacker((1 + guarantee.delta(0.0)) / 2, rates)


@dataclass(frozen=True)
class Uncertainty:
    """How far noise moves the coefficients, in the user's units.

    Attributes
    ----------
    intercept, coef : float or None, array
        Standard deviation for each coefficient, or an upper bound of its root mean square. None for an intercept that
        is no coefficient of the problem.
    exact : bool
        Whether these are standard deviations rather than bounds.
    """

    intercept: float | None
    coef: Array
    exact: bool


def uncertainty(model: Fitted) -> Uncertainty | None:
    r"""Return what the noise of the certificate does to the coefficients, or None where the data decide.

    Output perturbation adds noise of known law to the mapped coefficients, and the map to the user's units is linear:
    exact. Objective perturbation moves the minimiser by at most ``||b|| / (n alpha)``, so the root mean square of each
    coefficient's move is at most ``std sqrt(d) / (n alpha)``. Noise inside a descent passes through curvature that is
    not released.
    """
    certificate = model.certificate_
    row_map = _row_map(model)
    if row_map is None:
        return None
    bounds, noise = certificate.bounds, certificate.noise
    if certificate.mechanism == "output":
        spread, exact = noise["release"].spread, True
    elif certificate.mechanism == "objective" and bounds.alpha > 0:
        whole = noise["objective"].spread * math.sqrt(bounds.dimension)
        moved = whole / (bounds.n_samples * bounds.alpha)
        spread, exact = math.hypot(moved, noise["release"].spread), False
    else:
        return None
    target = certificate.parameters.get("target_bounds")
    target_scale = 1.0 if target is None else 2 / (target[1] - target[0])
    scale, shift = np.asarray(row_map.scale), np.asarray(row_map.shift)
    coef = spread * np.abs(scale) / target_scale
    intercept = None
    if row_map.fit_intercept:
        intercept = spread * math.sqrt(1 + float(np.sum((scale * shift) ** 2))) / target_scale
    return Uncertainty(intercept, coef, exact)


def coefficient_intervals(model: Fitted, level: float = LEVEL) -> Array | None:
    """Return low and high ends for each vector of coefficients, shape (problems, columns, 2); None without them."""
    found = getattr(model, "confidence_interval", None)
    if found is None or not getattr(model, "inference", False):
        return None
    try:
        ends = np.asarray(found(level))
    except ValueError:  # a stranger's file without what intervals need
        return None
    return ends.reshape(-1, ends.shape[-2], 2)


def _row_map(model: Fitted) -> RowMap | None:
    certificate: Certificate = model.certificate_
    bounds, parameters = certificate.bounds, certificate.parameters
    if not hasattr(bounds, "row_norm") or "feature_bounds" not in parameters:
        return None
    intercept = bool(getattr(bounds, "fit_intercept", getattr(model, "fit_intercept", False)))
    width = np.atleast_2d(model.coef_).shape[1]
    return RowMap.from_bounds(width, parameters["feature_bounds"], bounds.row_norm, intercept)


def feature_names(model: Fitted) -> list[str]:
    """Return the names of the columns, or x0, x1, ..."""
    names = [str(name) for name in getattr(model, "feature_names_in_", [])]
    return names or [f"x{number}" for number in range(np.atleast_2d(model.coef_).shape[1])]


def column_bounds(model: Fitted) -> tuple[Array, Array] | None:
    """Return the public bounds of the columns."""
    pair = model.certificate_.parameters.get("feature_bounds")
    if pair is None:
        return None
    width = np.atleast_2d(model.coef_).shape[1]
    low, high = (np.broadcast_to(np.asarray(bound, dtype=float), width) for bound in pair)
    return low, high


_LABEL = 24  # letters of a label that headings show


def value_heading(model: Fitted) -> str:
    """Return the heading of a single vector of coefficients: of two labels they speak for the second."""
    labels: Sequence[object] = getattr(model, "classes_", ())
    if len(labels) != 2:
        return "value"
    against, label = (
        text if len(text) <= _LABEL else f"{text[:_LABEL]}... [{number}]"
        for number, text in enumerate(map(str, labels))
    )
    # Scores of tilted, robust and ranking fits are no log odds.
    bounds = model.certificate_.bounds
    odds = type(bounds) is LinearBounds and hasattr(model, "predict_proba")
    heading = f"{'log odds of' if odds else 'value, for'} {label} against {against}"
    return heading if heading.isprintable() else repr(heading)


def problem_names(model: Fitted) -> list[str]:
    """Return one heading per vector of coefficients."""
    rows = len(np.atleast_2d(model.coef_))
    if rows == 1:
        return [value_heading(model)]
    if not hasattr(model, "classes_"):
        return [model._problem_name(number) for number in range(rows)]
    classes = [str(label) for label in model.classes_]
    return classes if len(classes) == rows else [f"value {number}" for number in range(rows)]


def noise_rows(certificate: Certificate) -> list[dict[str, str]]:
    """Return the noise terms as rows of a table."""
    return [
        {"what": describe_release(name), "noise": describe_noise(term, certificate.bounds.counted)}
        for name, term in certificate.noise.items()
    ]


@dataclass(frozen=True)
class Outlook:
    """Accuracy against the budget, predicted without data.

    Attributes
    ----------
    budget : str
        ``"epsilon"`` or ``"mu"``.
    own : float
        The model's budget.
    points : list of (float, float)
        Budgets, and the predicted excess risk of the best mechanism at each.
    without_privacy : float
        What sampling alone costs.
    quantity : str
        What the excess risk is.
    relative : bool
        Whether it is a share of the best risk.
    """

    budget: str
    own: float
    points: list[tuple[float, float]]
    without_privacy: float
    quantity: str
    relative: bool


def outlook(model: Fitted) -> Outlook | None:
    """Return the planner's predictions for the model's public facts, or None where it has none.

    The planner speaks about quantiles, the newsvendor and logistic regression with two classes; see
    :func:`dpconvex.planning.plan`.
    """
    certificate = model.certificate_
    bounds, guarantee, parameters = (certificate.bounds, certificate.guarantee, certificate.parameters)
    if "quantile" in parameters:
        level = parameters["quantile"]
        if isinstance(level, list) and hasattr(model, "underage_cost"):
            return None  # of products
        task, more = "quantile", {"quantile": level}
    elif (type(bounds), type(bounds.loss), parameters.get("n_classes")) == (LinearBounds, Logistic, 2):
        task, more = "logistic", {}
    else:
        return None
    found = plan(
        task,
        bounds.n_samples,
        bounds.n_features,
        guarantee,
        neighbors=certificate.neighbors,
        bounded=parameters["feature_bounds"] is not None,
        row_norm=bounds.row_norm,
        people=bounds.people,
        **more,
    )
    gaussian = isinstance(guarantee, GaussianDP)
    own = guarantee.mu if isinstance(guarantee, GaussianDP) else guarantee.epsilon_bound
    budgets = sorted({*EPSILONS, own})
    curves = np.array(list(found.curve(budgets).values()))
    lowest = np.min(np.where(np.isfinite(curves), curves, np.inf), axis=0)
    points = [(b, float(r)) for b, r in zip(budgets, lowest, strict=True) if math.isfinite(r)]
    if len(points) < 2:
        return None
    alone = found.without_privacy.excess_risk
    name = "mu" if gaussian else "epsilon"
    return Outlook(name, own, points, alone, found.quantity, task == "quantile")
