"""Which mechanism fits a model whose records are matrices: smallest predicted risk wins."""

from __future__ import annotations

import math
from dataclasses import replace

from dpconvex.mechanisms.objective import ObjectivePerturbation
from dpconvex.mechanisms.output import OutputPerturbation
from dpconvex.mechanisms.stochastic import NoisySGD
from dpconvex.mechanisms.structured_gradient import StructuredGradientDescent
from dpconvex.planning.forecast_matrices import (
    matrix_link_settings,
    matrix_objective_settings,
    matrix_output_settings,
    matrix_step_size,
)
from dpconvex.planning.request import Choice, Request
from dpconvex.privacy.bounds.structured import StructuredBounds
from dpconvex.privacy.description import Facts
from dpconvex.privacy.guarantees import GaussianDP, PureDP
from dpconvex.smoothing import convolve_vector

__all__ = ["choose_matrix_mechanism"]

_MECHANISMS = ("auto", "objective", "gradient", "output", "sgd")
_SGD_STEPS = 2000  # each reads a fiftieth of the records: forty passes
_SGD_PARTS = 50


def choose_matrix_mechanism(mechanism: object, request: Request[StructuredBounds], owner: str) -> Choice:
    """Return what suits a mechanism, or for ``"auto"`` the smaller predicted risk of those with this guarantee."""
    named = {
        "objective": ObjectivePerturbation(),
        "gradient": StructuredGradientDescent(),
        "output": OutputPerturbation(),
        "sgd": NoisySGD(
            batch_size=max(1, request.bounds.n_samples // _SGD_PARTS),
            steps=_SGD_STEPS,
            # The rate of batches of a fixed size would tell the private number of records.
            sampling="fixed" if request.bounds.neighbors == "replace_one" else "poisson",
        ),
    }
    if isinstance(mechanism, str):
        mechanism = named.get(mechanism, mechanism)
    if isinstance(mechanism, ObjectivePerturbation):
        return _objective(mechanism, request)
    if isinstance(mechanism, OutputPerturbation):
        return _output(mechanism, request)
    if isinstance(mechanism, (StructuredGradientDescent, NoisySGD)):
        return _gradient(mechanism, request)
    if not (isinstance(mechanism, str) and mechanism == "auto"):
        raise ValueError(
            f"The 'mechanism' parameter of {owner} must be one of {list(_MECHANISMS)}, ObjectivePerturbation, "
            f"OutputPerturbation, NoisySGD or StructuredGradientDescent. Got {mechanism!r} instead."
        )
    choices: list[Choice] = []
    if not isinstance(request.guarantee, PureDP):
        choices.append(_gradient(StructuredGradientDescent(), request))
    # What cannot be smoothed is left to descent; pure epsilon beyond rank 1 to output perturbation.
    pure = isinstance(request.guarantee, PureDP)
    if not isinstance(request.guarantee, GaussianDP) and not (pure and request.bounds.rank > 1):
        try:
            choices.append(_objective(ObjectivePerturbation(), request))
        except ValueError:
            if not choices:
                raise
    if not choices:
        choices.append(_output(OutputPerturbation(), request))
    return min(choices, key=lambda choice: choice.predicted_risk)


def _objective(mechanism: ObjectivePerturbation, request: Request[StructuredBounds]) -> Choice:
    alpha, bandwidth, kernel, predicted = request.alpha, request.bandwidth, request.kernel, math.inf
    assert kernel is not None
    if request.bounds.loss.link is not None:
        alpha, bandwidth, predicted = matrix_link_settings(kernel, request.bounds, request.guarantee, alpha, bandwidth)
    elif alpha is None or bandwidth is None:
        alpha, bandwidth, predicted = matrix_objective_settings(
            kernel, request.bounds, request.guarantee, alpha, bandwidth
        )
    loss = convolve_vector(request.bounds.loss, kernel, bandwidth)
    bounds = replace(request.bounds, loss=loss, alpha=alpha)
    return Choice(mechanism, bounds, predicted, {"bandwidth": bandwidth})


def _output(mechanism: OutputPerturbation, request: Request[StructuredBounds]) -> Choice:
    kernel = request.kernel
    assert kernel is not None
    alpha, bandwidth, predicted = matrix_output_settings(
        kernel, request.bounds, request.guarantee, request.alpha, request.bandwidth
    )
    loss = convolve_vector(request.bounds.loss, kernel, bandwidth)
    bounds = replace(request.bounds, loss=loss, alpha=alpha)
    return Choice(mechanism, bounds, predicted, {"bandwidth": bandwidth})


def _gradient(mechanism: StructuredGradientDescent | NoisySGD, request: Request[StructuredBounds]) -> Choice:
    predicted = math.inf
    if isinstance(mechanism, StructuredGradientDescent):
        rate, predicted = matrix_step_size(request.bounds, request.guarantee, mechanism.steps)
        if mechanism.step_size is None:
            mechanism = replace(mechanism, step_size=rate)
    bounds = replace(request.bounds, alpha=request.alpha or 0.0)
    parameters: Facts = {}
    if request.bandwidth is not None:
        assert request.kernel is not None
        loss = convolve_vector(request.bounds.loss, request.kernel, request.bandwidth)
        bounds = replace(bounds, loss=loss)
        parameters["bandwidth"] = request.bandwidth
    return Choice(mechanism, bounds, predicted, parameters)
