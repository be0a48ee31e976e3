r"""Predicted risk of quantile regression by noisy gradient descent.

The reference population is that of :mod:`dpconvex.planning.forecast_quantile`. All rounds together err like one
Gaussian release of the gradient at the optimum: noise over the curvature, with no penalty to pay. Private geometry
makes every second moment 1. Where records are few, the fit keeps to a private constant
(:mod:`dpconvex.planning.forecast_descent`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dpconvex.fit.config import gradient_noise, level_of, plan_fit, total_mu
from dpconvex.fit.constants import FINE_WIDTH
from dpconvex.planning.forecast_descent import QUANTILES, constant_excess, records_left
from dpconvex.planning.forecast_quantile import (
    NO_PENALTY,
    RESIDUAL_SCALES,
    SPREAD,
    ReferencePopulation,
    mean_excess,
    predicted_excess,
)
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.rules import Parameters
from dpconvex.privacy.description import rebuild
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.smoothing import Kernel


def predicted_gradient_excess(
    quantile: float, kernel: Kernel, bounds: LinearBounds, guarantee: Guarantee, settings: Parameters
) -> float:
    """Return the predicted relative excess risk, as a geometric mean over residual scales.

    Parameters
    ----------
    quantile, kernel : float, Kernel
        The loss and its smoothing.
    bounds : LinearBounds
        Public facts.
    guarantee : ApproxDP or GaussianDP
        Budget.
    settings : mapping
        :meth:`NoisyGradientDescent.settings`.
    """
    mu = total_mu(guarantee, "NoisyGradientDescent")
    return float(mean_excess(_excess(quantile, kernel, bounds, mu, settings)))


def lost_to_a_constant(bounds: LinearBounds, mu: float, settings: Parameters) -> float:
    """Return the predicted excess risk over that of a constant, for a middling residual scale.

    Parameters
    ----------
    bounds, mu, settings : LinearBounds, float, mapping
        Public facts, budget, and :meth:`NoisyGradientDescent.settings`.
    """
    kernel = rebuild(settings["kernel"])
    excess = _excess(level_of(bounds.loss), kernel, bounds, mu, settings)
    constant = constant_excess(bounds.dimension, 1 / SPREAD, RESIDUAL_SCALES)
    if not constant.all():  # a single coefficient: a constant is as good
        return 0.0
    return float(np.median(excess / constant))


def _excess(
    quantile: float, kernel: Kernel, bounds: LinearBounds, mu: float, settings: Parameters
) -> NDArray[np.float64]:
    """Return the predicted relative excess risk for each residual scale."""
    bandwidth = settings["bandwidth"]
    if bandwidth is None:
        bandwidth = FINE_WIDTH * RESIDUAL_SCALES
    population = ReferencePopulation(quantile, bounds.dimension, 1.0, RESIDUAL_SCALES)
    plan = plan_fit(bounds, mu, settings)
    noise = gradient_noise(plan, bounds, mu)
    excess = predicted_excess(population, kernel, bandwidth, NO_PENALTY, noise)
    constant = constant_excess(bounds.dimension, 1 / SPREAD, RESIDUAL_SCALES)
    return QUANTILES.excess(excess, constant, records_left(plan, bounds), bounds.dimension)
