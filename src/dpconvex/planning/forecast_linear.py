r"""Predicted risk of private least squares: the squared error beyond the best linear model's, as a share of it.

In white coordinates a coefficient of the private fit has the error of all fine gradients together, in residual scales;
without privacy it has ``1 / sqrt(n)``. Where records are few, the fit keeps to a private constant
(:mod:`dpconvex.planning.forecast_descent`). Output perturbation has a closed form: a ridge penalty's bias, and the
released noise; a factor of it was read off 107 settings of the reference population.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpconvex.fit.config import gradient_noise, plan_fit, total_mu
from dpconvex.losses import Huber, Squared
from dpconvex.planning.forecast_descent import SQUARES, records_left
from dpconvex.planning.linear_preset import linear_preset
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.rules import calibrate
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.types import Array

__all__ = ["linear_excess"]


HUBER_WIDTH = 0.25  # of output perturbation, in half ranges of the target
_LESS_CURVED = 1.6  # a Huber loss has less curvature than the square that the closed form is for


def linear_excess(mechanism: str, bounds: LinearBounds, guarantee: Guarantee, moment: float, scales: Array) -> Array:
    """Return the relative excess risk at each of some residual scales.

    Parameters
    ----------
    mechanism : {"gradient", "output", "none", "constant"}
        How noise is added; "none" is least squares without privacy, "constant" the best constant prediction.
    bounds : LinearBounds
        Public facts; its loss is not used.
    guarantee : PureDP, ApproxDP or GaussianDP
        Budget.
    moment : float
        Second moment of a mapped column of the reference population.
    scales : array
        Standard deviations of residuals, in half ranges of the target.
    """
    n, size = bounds.n_samples, bounds.dimension
    sampling = np.full(len(scales), size / n)
    constant = moment * bounds.n_features / size / scales**2
    if mechanism in ("none", "constant"):
        return sampling if mechanism == "none" else constant
    if mechanism == "output":
        return sampling + _LESS_CURVED * _output(bounds, guarantee, moment) / scales**2
    mu, squared = total_mu(guarantee, "NoisyGradientDescent"), replace(bounds, loss=Squared())
    plan = plan_fit(squared, mu, {})
    noise = size * gradient_noise(plan, squared, mu) ** 2
    return SQUARES.excess(noise + sampling, constant, records_left(plan, squared), size)


def _output(bounds: LinearBounds, guarantee: Guarantee, moment: float) -> float:
    """Return what a penalty and noise on coefficients of equal squares, 1 in sum, add to the squared error."""
    bounds = replace(bounds, loss=Huber(HUBER_WIDTH))
    bounds = replace(bounds, alpha=linear_preset(bounds, guarantee, radius=1.0).alpha)
    std = calibrate("output", bounds, guarantee, {}).noise["release"].spread
    moments = np.array([1.0, *[moment] * bounds.n_features])
    kept = bounds.alpha / (moments + bounds.alpha)
    return float(moments @ kept**2 / bounds.dimension + std**2 * moments.sum())
