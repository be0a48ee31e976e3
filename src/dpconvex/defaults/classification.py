"""Which mechanism fits a linear classifier, and with which public parameters: smallest predicted risk wins."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from dpconvex.defaults import penalty_for, predicted_gradient_risk
from dpconvex.defaults.candidates import auto_candidates, feasible, named_mechanism
from dpconvex.mechanisms.mechanism import Mechanism
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.guarantees import Guarantee, per_problem


@dataclass(frozen=True)
class ClassifierRequest:
    """What the user wants.

    Attributes
    ----------
    smooth_loss, plain_loss : Loss
        The loss that needs a smooth objective, and the one whose gradients are descended along.
    guarantee : Guarantee
        Budget of all problems together.
    bounds : LinearBounds
        Public facts, without penalty.
    alpha : float or None
        Fixed by the user, or left to us.
    bandwidth, kernel : float or None, Kernel or None
        Smoothing of a kinked loss.
    problems : int
        1 for two classes, else one per class.
    weighted_norm : float or None
        Largest norm of a row where rows are weighted instead of shortened, without feature bounds.
    """

    smooth_loss: Any
    plain_loss: Any
    guarantee: Guarantee
    bounds: LinearBounds
    alpha: float | None
    bandwidth: float | None
    kernel: Any
    problems: int
    weighted_norm: float | None = None


@dataclass(frozen=True)
class ClassifierChoice:
    """A mechanism, the facts it certifies, and the risk predicted for it."""

    mechanism: Mechanism
    bounds: LinearBounds
    predicted_risk: float
    parameters: dict[str, Any] = field(default_factory=dict)


def _penalised(mechanism: Any, request: ClassifierRequest) -> ClassifierChoice:
    parameters = {"problems": request.problems}
    bounds = replace(request.bounds, loss=request.smooth_loss)
    alpha, risk = penalty_for(mechanism.name, bounds, request.guarantee, parameters, request.alpha)
    return ClassifierChoice(mechanism, replace(bounds, alpha=alpha), risk, parameters)


def _gradient(mechanism: Any, request: ClassifierRequest) -> ClassifierChoice:
    settings = mechanism.settings(request.bandwidth, request.kernel)
    longest = request.weighted_norm or request.bounds.max_norm
    bounds = replace(
        request.bounds, loss=request.plain_loss, alpha=request.alpha or 0.0, max_norm=longest
    )
    risk = predicted_gradient_risk(bounds, request.guarantee, settings, request.problems)
    parameters = {"problems": request.problems, "gradient": settings}
    return ClassifierChoice(mechanism, bounds, risk, parameters)


def _stochastic(mechanism: Any, request: ClassifierRequest) -> ClassifierChoice:
    bounds = replace(request.bounds, loss=request.smooth_loss, alpha=request.alpha or 0.0)
    settings = mechanism.settings(bounds, per_problem(request.guarantee, request.problems))
    parameters = {"problems": request.problems, mechanism.name: settings}
    return ClassifierChoice(mechanism, bounds, math.inf, parameters)


_PLANNERS = {
    "objective": _penalised,
    "output": _penalised,
    "gradient": _gradient,
    "sgd": _stochastic,
    "phased-erm": _stochastic,
    "phased-sgd": _stochastic,
}


def choose_classifier_mechanism(
    mechanism: Any, request: ClassifierRequest, owner: str
) -> ClassifierChoice:
    """Return the mechanism that was named, or for ``"auto"`` the one with the smallest predicted risk."""
    if not (isinstance(mechanism, str) and mechanism == "auto"):
        found = named_mechanism(mechanism, _PLANNERS, owner)
        return _PLANNERS[found.name](found, request)
    choices = feasible(
        auto_candidates(request.guarantee), lambda found: _PLANNERS[found.name](found, request)
    )
    return min(choices, key=lambda choice: choice.predicted_risk)
