r"""Predicted risk of quantile regression by output perturbation, and the penalty that minimises it.

The reference population is that of :mod:`dpconvex.planning.forecast_quantile`. Here the loss is not smoothed and the
noise is on the coefficients: noise of standard deviation t per coordinate adds ``sum_j v_j t^2`` to the variance of
the prediction error, ``v_j`` being the second moment of coordinate j.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from dpconvex.losses import Pinball
from dpconvex.planning.forecast_quantile import (
    RESIDUAL_SCALES,
    Prescription,
    ReferencePopulation,
    mean_excess,
    predicted_excess,
    reference_moment,
    rounded_up,
)
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.rules import calibrate
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.smoothing import LogisticKernel
from dpconvex.types import Array

__all__ = ["noise_std", "output_prescription", "predicted_output_excess"]


_ALPHAS = np.geomspace(1e-7, 10.0, 161)
_ANY_KERNEL = LogisticKernel()  # at a bandwidth of 0 they are all the same


def predicted_output_excess(
    quantile: float,
    alpha: ArrayLike,
    coefficient_std: ArrayLike,
    dimension: int,
    feature_moment: float,
    residual_scale: ArrayLike,
    sampling: float = 0.0,
) -> Array:
    r"""Return the predicted excess risk relative to the optimal risk of the reference population.

    That of :func:`dpconvex.planning.forecast_quantile.predicted_excess` without smoothing or noise on gradients.

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
    population = ReferencePopulation(quantile, dimension, feature_moment, residual_scale, sampling)
    return predicted_excess(population, _ANY_KERNEL, 0.0, alpha, 0.0, release_std=coefficient_std)


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
    stds = np.array([noise_std(replace(bounds, loss=loss, alpha=float(a)), guarantee) for a in alphas])
    excess = predicted_output_excess(
        quantile, alphas[:, None], stds[:, None], bounds.dimension, reference_moment(bounds),
        RESIDUAL_SCALES,
    )  # fmt: skip
    score = mean_excess(excess)
    best = int(np.argmin(score))
    return Prescription(
        alpha=rounded_up(float(alphas[best])) if alpha is None else alpha,
        bandwidth=0.0,
        level=quantile,
        predicted_excess=float(score[best]),
    )


def noise_std(bounds: LinearBounds, guarantee: Guarantee) -> float:
    """Return the noise per released coefficient."""
    return calibrate("output", bounds, guarantee, {}).noise["release"].spread
