"""Which mechanism fits a model whose records are matrices: smallest predicted risk wins."""

from __future__ import annotations

import math
from dataclasses import replace

from dpconvex.defaults.forecast_matrices import matrix_objective_settings, matrix_step_size
from dpconvex.defaults.request import Choice, Request
from dpconvex.mechanisms.objective import ObjectivePerturbation
from dpconvex.mechanisms.structured_gradient import StructuredGradientDescent
from dpconvex.privacy.bounds.structured import StructuredBounds
from dpconvex.privacy.description import Facts
from dpconvex.privacy.guarantees import GaussianDP, PureDP
from dpconvex.smoothing import convolve_vector

__all__ = ["choose_matrix_mechanism"]

_MECHANISMS = ("auto", "objective", "gradient")


def choose_matrix_mechanism(
    mechanism: object, request: Request[StructuredBounds], owner: str
) -> Choice:
    """Return what suits a mechanism, or for ``"auto"`` the smaller predicted risk of those with this guarantee."""
    named = {"objective": ObjectivePerturbation(), "gradient": StructuredGradientDescent()}
    if isinstance(mechanism, str):
        mechanism = named.get(mechanism, mechanism)
    if isinstance(mechanism, ObjectivePerturbation):
        return _objective(mechanism, request)
    if isinstance(mechanism, StructuredGradientDescent):
        return _gradient(mechanism, request)
    if not (isinstance(mechanism, str) and mechanism == "auto"):
        raise ValueError(
            f"The 'mechanism' parameter of {owner} must be one of {list(_MECHANISMS)}, ObjectivePerturbation or "
            f"StructuredGradientDescent. Got {mechanism!r} instead."
        )
    choices: list[Choice] = []
    if not isinstance(request.guarantee, PureDP):
        choices.append(_gradient(StructuredGradientDescent(), request))
    if not isinstance(request.guarantee, GaussianDP):
        choices.append(_objective(ObjectivePerturbation(), request))
    return min(choices, key=lambda choice: choice.predicted_risk)


def _objective(mechanism: ObjectivePerturbation, request: Request[StructuredBounds]) -> Choice:
    alpha, bandwidth, kernel, predicted = request.alpha, request.bandwidth, request.kernel, math.inf
    assert kernel is not None
    if alpha is None or bandwidth is None:
        alpha, bandwidth, predicted = matrix_objective_settings(
            kernel, request.bounds, request.guarantee, alpha, bandwidth
        )
    loss = convolve_vector(request.bounds.loss, kernel, bandwidth)
    bounds = replace(request.bounds, loss=loss, alpha=alpha)
    return Choice(mechanism, bounds, predicted, {"bandwidth": bandwidth})


def _gradient(mechanism: StructuredGradientDescent, request: Request[StructuredBounds]) -> Choice:
    step_size, predicted = matrix_step_size(request.bounds, request.guarantee, mechanism.steps)
    if mechanism.step_size is None:
        mechanism = replace(mechanism, step_size=step_size)
    bounds = replace(request.bounds, alpha=request.alpha or 0.0)
    parameters: Facts = {}
    if request.bandwidth is not None:
        assert request.kernel is not None
        loss = convolve_vector(request.bounds.loss, request.kernel, request.bandwidth)
        bounds = replace(bounds, loss=loss)
        parameters["bandwidth"] = request.bandwidth
    return Choice(mechanism, bounds, predicted, parameters)
