r"""Predicted risk of noisy descents where records are few: between what noise does and a private constant.

Noise alone explains the excess risk of a descent from some thousand records after noise, ``n mu``, on. Below, searches,
clips and coordinates cost more, and in the end the fit keeps to a private constant, whose excess it cannot exceed by
much. How that happens was read off simulations in the reference populations (n of 500 to 30,000, 2 to 15 columns,
epsilon of 0.1 to 2, levels 0.5 and 0.9): the numbers below were fitted to them, and are within a factor of 4 of the
means of six runs, nine times in ten within a factor of 2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpconvex.defaults.forecast_logistic import CONSTANT_EXCESS

__all__ = ["constant_excess", "kept_below", "logistic_descent_excess", "quantile_descent_excess"]

Array = NDArray[np.float64]

_HALF_LOST = 40.0  # n mu at which a quantile of one coefficient loses half of what columns bring
_GROWTH, _STEEPNESS = 0.42, 4.0  # of that number with the coefficients, and of the loss with n mu
_SLOW, _FAST = 60.0, 400.0  # n mu over which margins lose what clips and calibration leave


def quantile_descent_excess(
    noise_excess: ArrayLike, size: float, dimension: int, feature_moment: float, scales: ArrayLike
) -> Array:
    """Return the relative excess risk of a descent along a quantile.

    Parameters
    ----------
    noise_excess : float or array
        What noise and sampling alone would cost, per residual scale.
    size : float
        Records after noise, ``n mu``.
    dimension : int
        Coefficients, intercept included.
    feature_moment : float
        Second moment of one mapped feature of the reference population.
    scales : float or array
        Its residual scales.
    """
    constant = constant_excess(dimension, feature_moment, scales)
    half = _HALF_LOST * dimension**_GROWTH
    return kept_below(noise_excess, constant, 1 / (1 + (size / half) ** _STEEPNESS))


def constant_excess(dimension: int, feature_moment: float, scales: ArrayLike) -> Array:
    """Return the relative excess risk of the best constant prediction of a quantile."""
    explained = feature_moment * (dimension - 1) / dimension
    return np.asarray(np.sqrt(1 + explained / np.square(scales)) - 1)


def logistic_descent_excess(
    noise_excess: float, size: float, constant: float = CONSTANT_EXCESS
) -> float:
    """Return the excess logistic loss of a descent along margins, given what noise and sampling alone would cost."""
    lost = 1 / (1 + size / _SLOW + (size / _FAST) ** 2)
    return float(kept_below(noise_excess, constant, lost))


def kept_below(noise_excess: ArrayLike, constant: ArrayLike, lost: float) -> Array:
    """Return noise and the lost share of the constant's excess together, bent so as to stay below the latter."""
    total = np.asarray(noise_excess) + lost * np.asarray(constant)
    return np.asarray(constant / np.hypot(1.0, constant / np.maximum(total, 1e-300)))
