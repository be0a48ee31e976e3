"""Which mechanism fits a linear classifier, and with which public parameters: smallest predicted risk wins."""

from __future__ import annotations

import math
from dataclasses import replace

from dpconvex.mechanisms import (
    NoisyGradientDescent,
    NoisySGD,
    ObjectivePerturbation,
    OutputPerturbation,
    PhasedERM,
    PhasedSGD,
)
from dpconvex.planning.forecast_classification import penalty_for, predicted_gradient_risk
from dpconvex.planning.request import Choice, Chooser, Request, choose_mechanism
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.guarantees import per_problem

__all__ = ["choose_classifier_mechanism"]


def choose_classifier_mechanism(mechanism: object, request: Request[LinearBounds], owner: str) -> Choice:
    """Return what suits a mechanism; gradients of the loss of ``request.bounds`` are descended along."""
    return choose_mechanism(mechanism, request, _CHOOSERS, owner)


def _smooth(request: Request[LinearBounds]) -> LinearBounds:
    loss = request.bounds.loss if request.smooth_loss is None else request.smooth_loss
    return replace(request.bounds, loss=loss)


def _penalised(mechanism: ObjectivePerturbation | OutputPerturbation, request: Request[LinearBounds]) -> Choice:
    parameters = {"problems": request.problems}
    bounds = _smooth(request)
    alpha, risk = penalty_for(mechanism.name, bounds, request.guarantee, parameters, request.alpha)
    return Choice(mechanism, replace(bounds, alpha=alpha), risk, parameters)


def _gradient(mechanism: NoisyGradientDescent, request: Request[LinearBounds]) -> Choice:
    settings = mechanism.settings(request.bandwidth, request.kernel)
    bounds = replace(request.bounds, alpha=request.alpha or 0.0)
    if request.row_map is not None:
        bounds = replace(bounds, max_norm=mechanism.mapped(request.row_map).max_norm)
    risk = predicted_gradient_risk(bounds, request.guarantee, settings, request.problems)
    return Choice(mechanism, bounds, risk, {"problems": request.problems, "gradient": settings})


def _stochastic(mechanism: NoisySGD | PhasedERM | PhasedSGD, request: Request[LinearBounds]) -> Choice:
    bounds = replace(_smooth(request), alpha=request.alpha or 0.0)
    settings = mechanism.settings(bounds, per_problem(request.guarantee, request.problems))
    parameters = {"problems": request.problems, mechanism.name: settings}
    return Choice(mechanism, bounds, math.inf, parameters)


_CHOOSERS: dict[str, Chooser] = {
    "objective": _penalised,
    "output": _penalised,
    "gradient": _gradient,
    "sgd": _stochastic,
    "phased-erm": _stochastic,
    "phased-sgd": _stochastic,
}
