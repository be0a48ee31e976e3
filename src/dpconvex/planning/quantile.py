"""Which mechanism fits a quantile, and with which public parameters: smallest predicted risk wins."""

from __future__ import annotations

import math
from dataclasses import replace

from dpconvex.losses import Pinball, PointwiseLoss
from dpconvex.mechanisms import (
    NoisyGradientDescent,
    NoisySGD,
    ObjectivePerturbation,
    OutputPerturbation,
    PhasedERM,
    PhasedSGD,
    resolve_mechanism,
)
from dpconvex.planning.forecast_quantile import objective_prescription
from dpconvex.planning.forecast_quantile_descent import predicted_gradient_excess
from dpconvex.planning.forecast_quantile_output import output_prescription
from dpconvex.planning.request import Choice, Chooser, Request, choose_mechanism
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.guarantees import PureDP
from dpconvex.smoothing import Kernel, convolve

__all__ = ["choose_quantile_mechanism", "contractive_bandwidth"]


def choose_quantile_mechanism(mechanism: object, request: Request[LinearBounds], owner: str) -> Choice:
    """Return what suits a mechanism; ``request.bounds`` has the plain pinball loss, ``request.kernel`` is given."""
    if not request.levels:
        return choose_mechanism(mechanism, request, _CHOOSERS, owner)
    if isinstance(request.guarantee, PureDP):
        raise ValueError(
            f"Several quantiles in one fit of {owner} need an (epsilon, delta) or mu budget. Got pure epsilon instead. "
            "Give a delta above 0, or fit one quantile at a time."
        )
    if isinstance(mechanism, str) and mechanism == "auto":
        mechanism = NoisyGradientDescent()
    found = resolve_mechanism(mechanism, owner)
    if found.name != "gradient":
        raise ValueError(
            f"The 'mechanism' parameter of {owner} must be 'auto' or 'gradient' for several quantiles in one fit. "
            f"Got {mechanism!r} instead. Fit one quantile at a time, each with its part of the budget."
        )
    return choose_mechanism(found, request, _CHOOSERS, owner)


def _wanted(request: Request[LinearBounds]) -> tuple[Pinball, Kernel]:
    loss, kernel = request.bounds.loss, request.kernel
    assert isinstance(loss, Pinball)
    assert kernel is not None
    return loss, kernel


def _objective(mechanism: ObjectivePerturbation, request: Request[LinearBounds]) -> Choice:
    loss, kernel = _wanted(request)
    alpha, bandwidth, level = request.alpha, request.bandwidth, loss.quantile
    predicted = math.inf  # nobody asks for the risk of what is fully specified
    if alpha is None or bandwidth is None:
        chosen = objective_prescription(level, kernel, request.bounds, request.guarantee, alpha, bandwidth)
        alpha, bandwidth, level = chosen.alpha, chosen.bandwidth, chosen.level
        predicted = chosen.predicted_excess
    smooth = convolve(Pinball(level), kernel, bandwidth)
    bounds = replace(request.bounds, loss=smooth, alpha=alpha)
    return Choice(mechanism, bounds, predicted, bandwidth=bandwidth)


def _output(mechanism: OutputPerturbation, request: Request[LinearBounds]) -> Choice:
    plain, kernel = _wanted(request)
    chosen = output_prescription(plain.quantile, request.bounds, request.guarantee, request.alpha)
    loss: PointwiseLoss = plain
    if request.bandwidth is not None:
        loss = convolve(plain, kernel, request.bandwidth)
    bounds = replace(request.bounds, loss=loss, alpha=chosen.alpha)
    return Choice(mechanism, bounds, chosen.predicted_excess, bandwidth=request.bandwidth)


def _gradient(mechanism: NoisyGradientDescent, request: Request[LinearBounds]) -> Choice:
    loss, kernel = _wanted(request)
    settings = mechanism.settings(request.bandwidth, kernel, request.levels, request.targets)
    if request.raw_target and not mechanism.plain:
        settings["raw_target"] = True
    predicted = predicted_gradient_excess(loss.quantile, kernel, request.bounds, request.guarantee, settings)
    bounds = replace(request.bounds, alpha=request.alpha or 0.0)
    if request.row_map is not None:
        bounds = replace(bounds, max_norm=mechanism.mapped(request.row_map).max_norm)
    return Choice(mechanism, bounds, predicted, {"gradient": settings}, request.bandwidth)


def _stochastic(mechanism: NoisySGD, request: Request[LinearBounds]) -> Choice:
    """Smooth as in Theorem 3.4 of the quantile paper: as little as steps of this size allow."""
    loss, kernel = _wanted(request)
    bounds = replace(request.bounds, alpha=request.alpha or 0.0)
    if bounds.neighbors == "add_or_remove_one" and mechanism == NoisySGD():
        # The rate of batches of a fixed size would tell the private number of rows.
        mechanism = NoisySGD(sampling="poisson")
    settings = mechanism.settings(bounds, request.guarantee)
    bandwidth = request.bandwidth or contractive_bandwidth(kernel, bounds.curvature_factor, settings["step_size"])
    bounds = replace(bounds, loss=convolve(loss, kernel, bandwidth))
    return Choice(mechanism, bounds, math.inf, {mechanism.name: settings}, bandwidth)


def _phased(mechanism: PhasedERM | PhasedSGD, request: Request[LinearBounds]) -> Choice:
    """Smooth as little as keeps one pass contractive; certified solutions need no smoothing."""
    loss, kernel = _wanted(request)
    bounds = replace(request.bounds, alpha=request.alpha or 0.0)
    bandwidth = request.bandwidth
    if bandwidth is None and isinstance(mechanism, PhasedSGD):
        step = mechanism.wanted_step(bounds, request.guarantee) / mechanism.decay
        # A hair wider, so that rounding cannot make the step too long.
        factor = (1 + 1e-9) * bounds.curvature_factor
        bandwidth = contractive_bandwidth(kernel, factor, step, bounds.alpha)
    if bandwidth is not None:
        bounds = replace(bounds, loss=convolve(loss, kernel, bandwidth))
    settings = mechanism.settings(bounds, request.guarantee)
    return Choice(mechanism, bounds, math.inf, {mechanism.name: settings}, bandwidth)


_CHOOSERS: dict[str, Chooser] = {
    "objective": _objective,
    "output": _output,
    "gradient": _gradient,
    "sgd": _stochastic,
    "phased-erm": _phased,
    "phased-sgd": _phased,
}


def contractive_bandwidth(
    kernel: Kernel, curvature_factor: float, step_size: float, alpha: float = 0.0, jump: float = 1.0
) -> float:
    """Return the smallest bandwidth at which a gradient step of this size takes no two points further apart.

    ``jump peak curvature_factor / (2 / step_size - alpha)``: the smoothed loss then has curvature
    ``2 / step_size - alpha`` in theta. ``jump`` is the jump of the slope at the kink, 1 for the pinball loss.
    """
    room = 2 / step_size - alpha
    if not room > 0:
        raise ValueError(
            "contractive_bandwidth needs step_size * alpha below 2. "
            f"Got step_size={step_size!r} and alpha={alpha!r} instead. Use a smaller step."
        )
    return jump * kernel.peak * curvature_factor / room
