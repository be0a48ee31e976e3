"""Which mechanism fits a quantile, and with which public parameters: smallest predicted risk wins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from dpconvex.defaults import (
    contractive_bandwidth,
    objective_prescription,
    output_prescription,
    predicted_gradient_excess,
)
from dpconvex.defaults.candidates import auto_candidates, feasible, named_mechanism
from dpconvex.losses import Pinball
from dpconvex.mechanisms import NoisyGradientDescent
from dpconvex.mechanisms.mechanism import Mechanism
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.smoothing import Kernel, convolve


@dataclass(frozen=True)
class QuantileRequest:
    """What the user wants, in mapped units.

    Attributes
    ----------
    quantile, kernel, guarantee : float, Kernel, Guarantee
        Loss, smoothing, budget.
    bounds : LinearBounds
        Public facts with the plain pinball loss and no penalty.
    alpha, bandwidth : float or None
        Fixed by the user, or left to us.
    own_influence : bool
        Whether the user set the influence bound, and with it the scale of the rows.
    weighted_norm : float or None
        Largest norm of a row where rows are weighted instead of shortened, without feature bounds.
    """

    quantile: float
    kernel: Kernel
    guarantee: Guarantee
    bounds: LinearBounds
    alpha: float | None
    bandwidth: float | None
    own_influence: bool
    weighted_norm: float | None = None


@dataclass(frozen=True)
class Choice:
    """A mechanism, the facts it certifies, and the risk predicted for it."""

    mechanism: Mechanism
    bounds: LinearBounds
    bandwidth: float | None
    predicted_excess: float
    parameters: dict[str, Any] = field(default_factory=dict)


def _objective(mechanism: Any, request: QuantileRequest) -> Choice:
    alpha, bandwidth, level = request.alpha, request.bandwidth, request.quantile
    predicted = float("nan")
    if alpha is None or bandwidth is None:
        chosen = objective_prescription(
            request.quantile,
            request.kernel,
            request.bounds,
            request.guarantee,
            alpha,
            bandwidth,
        )
        alpha, bandwidth, level = chosen.alpha, chosen.bandwidth, chosen.level
        predicted = chosen.predicted_excess
    loss = convolve(Pinball(level), request.kernel, bandwidth)
    return Choice(mechanism, replace(request.bounds, loss=loss, alpha=alpha), bandwidth, predicted)


def _output(mechanism: Any, request: QuantileRequest) -> Choice:
    chosen = output_prescription(request.quantile, request.bounds, request.guarantee, request.alpha)
    loss: Any = Pinball(request.quantile)
    if request.bandwidth is not None:
        loss = convolve(loss, request.kernel, request.bandwidth)
    bounds = replace(request.bounds, loss=loss, alpha=chosen.alpha)
    return Choice(mechanism, bounds, request.bandwidth, chosen.predicted_excess)


def _gradient(mechanism: Any, request: QuantileRequest) -> Choice:
    # Who states both the rows' influence and the residuals' scale need not pay for either.
    informed = request.own_influence and request.bandwidth is not None
    if informed and mechanism == NoisyGradientDescent():
        mechanism = NoisyGradientDescent(geometry="given")
    settings = mechanism.settings(request.bandwidth, request.kernel)
    predicted = predicted_gradient_excess(
        request.quantile, request.kernel, request.bounds, request.guarantee, settings
    )
    longest = request.weighted_norm or request.bounds.max_norm
    bounds = replace(request.bounds, alpha=request.alpha or 0.0, max_norm=longest)
    return Choice(mechanism, bounds, request.bandwidth, predicted, {"gradient": settings})


def _stochastic(mechanism: Any, request: QuantileRequest) -> Choice:
    """Smooth as in Theorem 3.4 of the quantile paper: as little as steps of this size allow."""
    bounds = replace(request.bounds, alpha=request.alpha or 0.0)
    settings = mechanism.settings(bounds, request.guarantee)
    bandwidth = request.bandwidth or contractive_bandwidth(
        request.kernel, bounds.curvature_factor, settings["step_size"]
    )
    bounds = replace(bounds, loss=convolve(Pinball(request.quantile), request.kernel, bandwidth))
    return Choice(mechanism, bounds, bandwidth, float("nan"), {mechanism.name: settings})


def _phased(mechanism: Any, request: QuantileRequest) -> Choice:
    """Smooth as little as keeps one pass contractive; certified solutions need no smoothing."""
    bounds = replace(request.bounds, alpha=request.alpha or 0.0)
    bandwidth = request.bandwidth
    if bandwidth is None and mechanism.name == "phased-sgd":
        step = mechanism.wanted_step(bounds, request.guarantee) / mechanism.decay
        # A hair wider, so that rounding cannot make the step too long.
        factor = (1 + 1e-9) * bounds.curvature_factor
        bandwidth = contractive_bandwidth(request.kernel, factor, step, bounds.alpha)
    if bandwidth is not None:
        loss = convolve(Pinball(request.quantile), request.kernel, bandwidth)
        bounds = replace(bounds, loss=loss)
    settings = mechanism.settings(bounds, request.guarantee)
    return Choice(mechanism, bounds, bandwidth, float("nan"), {mechanism.name: settings})


_PLANNERS: dict[str, Callable[[Any, QuantileRequest], Choice]] = {
    "objective": _objective,
    "output": _output,
    "gradient": _gradient,
    "sgd": _stochastic,
    "phased-erm": _phased,
    "phased-sgd": _phased,
}


def choose_quantile_mechanism(mechanism: Any, request: QuantileRequest, owner: str) -> Choice:
    """Return the mechanism that was named, or for ``"auto"`` the one with the smallest predicted risk."""
    if not (isinstance(mechanism, str) and mechanism == "auto"):
        found = named_mechanism(mechanism, _PLANNERS, owner)
        return _PLANNERS[found.name](found, request)
    choices = feasible(
        auto_candidates(request.guarantee), lambda found: _PLANNERS[found.name](found, request)
    )
    # A fully specified objective perturbation has no prediction; it then stands behind the others.
    return min(
        choices,
        key=lambda choice: (
            choice.predicted_excess != choice.predicted_excess,
            choice.predicted_excess,
        ),
    )
