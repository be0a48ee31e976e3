r"""Predicted risk of quantile regression by output perturbation, and the penalty that minimises it.

The reference population is that of :mod:`dpconvex.defaults.quantile_risk`. Here the loss is not smoothed and the noise
is on the coefficients: noise of standard deviation t per coordinate adds ``sum_j v_j t^2`` to the variance of the
prediction error, ``v_j`` being the second moment of coordinate j.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dpconvex.defaults.output_presets import OutputPreset
from dpconvex.defaults.quantile_risk import (
    RESIDUAL_SCALES,
    Prescription,
    _pinball_risk,
    _rounded_up,
    mean_excess,
    reference_moment,
)
from dpconvex.losses import Pinball
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.rules import calibrate
from dpconvex.privacy.guarantees import Guarantee

__all__ = ["linear_preset", "output_prescription", "predicted_output_excess"]

Array = NDArray[np.float64]

_ALPHAS = np.geomspace(1e-7, 10.0, 161)


def predicted_output_excess(
    quantile: float,
    alpha: Any,
    coefficient_std: Any,
    dimension: int,
    feature_moment: float,
    residual_scale: Any,
    sampling: float = 0.0,
) -> Array:
    r"""Return the predicted excess risk relative to the optimal risk of the reference population.

    A coordinate with second moment ``v`` has curvature ``H = v phi(z) / sqrt(s^2 + e)``, ``z`` the normal quantile of
    `quantile` and ``e = sum_j v_j (alpha^2 theta_j^2 + sampling v_j) / (H_j + alpha)^2`` the squared bias of the
    penalty and the cost of sampling, found by iteration; the noise then adds ``sum_j v_j coefficient_std^2``.

    Parameters
    ----------
    quantile : float
        Quantile level.
    alpha, coefficient_std : float
        Penalty, and standard deviation of the noise per released coefficient.
    dimension : int
        Coefficients, intercept included.
    feature_moment : float
        Second moment of one mapped feature.
    residual_scale : float
        ``s``.
    sampling : float, optional
        Variance of the mean slope, ``quantile (1 - quantile) / n`` for n rows; 0 leaves it out.
    """
    alpha, std, s = np.broadcast_arrays(alpha, coefficient_std, residual_scale)
    z = float(ndtri(quantile))
    height = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    moments, counts = (1.0, feature_moment), (1, dimension - 1)
    bias = np.zeros(alpha.shape)
    for _ in range(12):
        density = height / np.sqrt(s * s + bias)
        bias = sum(
            count * v * (alpha**2 / dimension + sampling * v) / (v * density + alpha) ** 2
            for count, v in zip(counts, moments, strict=True)
        )
    noise = sum(count * v for count, v in zip(counts, moments, strict=True)) * std**2
    error = s * s + bias + noise
    return _pinball_risk(quantile, -z * s, error) / (s * height) - 1


def output_prescription(
    quantile: float, bounds: LinearBounds, guarantee: Guarantee, alpha: float | None = None
) -> Prescription:
    """Return the penalty with the smallest predicted risk for output perturbation.

    Parameters
    ----------
    quantile : float
        Quantile level.
    bounds : LinearBounds
        Public facts; ``loss`` and ``alpha`` in it are ignored.
    guarantee : PureDP, ApproxDP or GaussianDP
        Budget.
    alpha : float, optional
        Fixed by the user, in mapped units.

    Returns
    -------
    Prescription
        ``bandwidth`` is 0 and ``level`` the quantile itself: the pinball loss is used as it is.

    Examples
    --------
    >>> from dpconvex.privacy import GaussianDP
    >>> bounds = LinearBounds(10_000, 3, Pinball(0.5), row_norm=1.0, max_norm=1.0, alpha=0.0)
    >>> output_prescription(0.5, bounds, GaussianDP(0.5)).bandwidth
    0.0
    """
    loss = Pinball(quantile)
    alphas = _ALPHAS if alpha is None else np.array([float(alpha)])
    stds = np.array(
        [_noise_std(replace(bounds, loss=loss, alpha=float(a)), guarantee) for a in alphas]
    )
    excess = predicted_output_excess(
        quantile, alphas[:, None], stds[:, None], bounds.dimension, reference_moment(bounds),
        RESIDUAL_SCALES,
    )  # fmt: skip
    score = mean_excess(excess)
    best = int(np.argmin(score))
    return Prescription(
        alpha=_rounded_up(float(alphas[best])) if alpha is None else alpha,
        bandwidth=0.0,
        level=quantile,
        predicted_excess=float(score[best]),
    )


def linear_preset(bounds: LinearBounds, guarantee: Guarantee, radius: float) -> OutputPreset:
    r"""Return the penalty that minimises a bound on the excess risk of a generalised linear model, dimension free.

    A record sees the noise through its own row only, so noise of standard deviation t per coordinate adds at most
    ``beta t^2 / 2`` (smooth losses: beta bounds the trace of a record's Hessian) and at most ``L t sqrt(2/pi)`` to the
    expected loss; the penalty adds ``alpha radius^2 / 2`` against the best coefficients in the ball. The paper's bounds
    have a factor d or sqrt(d) in the place of these.

    Parameters
    ----------
    bounds : LinearBounds
        Public facts; ``alpha`` in it is ignored.
    guarantee : PureDP, ApproxDP or GaussianDP
        Budget.
    radius : float
        Public norm of the coefficients to compete with.

    Returns
    -------
    OutputPreset
        ``accuracy`` is the gap that the default tolerance implies.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.privacy import ApproxDP
    >>> bounds = LinearBounds(100_000, 20, Logistic(), row_norm=1.0, max_norm=1.0)
    >>> linear_preset(bounds, ApproxDP(1.0, 1e-6), radius=2.0).alpha
    0.00155
    """
    alphas = np.geomspace(1e-8, 10.0, 400)
    stds = np.array([_noise_std(replace(bounds, alpha=float(a)), guarantee) for a in alphas])
    noise = bounds.lipschitz * stds * math.sqrt(2 / math.pi)
    if math.isfinite(bounds.smoothness):
        noise = np.minimum(noise, bounds.smoothness * stds**2 / 2)
    risks = alphas * radius**2 / 2 + noise
    best = int(np.argmin(risks))
    alpha, trivial = _rounded_up(float(alphas[best])), bounds.lipschitz * radius
    tolerance = calibrate("output", replace(bounds, alpha=alpha), guarantee, {}).solver_tolerance
    return OutputPreset(
        theorem="trace bound for generalised linear models",
        alpha=alpha,
        accuracy=tolerance**2 / (2 * alpha),
        excess_risk=float(risks[best]),
        nontrivial=bool(risks[best] < trivial),
    )


def _noise_std(bounds: LinearBounds, guarantee: Guarantee) -> float:
    """Return the noise per released coefficient."""
    return calibrate("output", bounds, guarantee, {}).noise["release"].spread
