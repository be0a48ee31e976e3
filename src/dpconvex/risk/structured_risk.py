r"""Forecasts for structured losses, whose records are matrices, and the parameters that minimise
them.

Data are replaced by a reference population in units of the operator norm U: coefficients with
``theta_j^2 = 1/2``; normal residuals of standard deviation ``s``; matrices with independent entries
of second moment ``U^2 / (sqrt(d) + sqrt(m))^2``, so that their norm is about U, except in one
direction, that of their mean, where the moment is ``U^2 / 8`` and the coefficient, a sum over
columns, has the square ``d / 10``. For coefficients in error by ``Delta`` every residual is normal
with variance ``s^2 + e``, ``e = sum_j v_j Delta_j^2``, and the risk of a homogeneous loss is
``c sqrt(s^2 + e)`` with ``c = E g(normal)``: curvature ``c v_j / s`` in direction j. ``s`` is not
public: the parameters minimise a mean logarithm over ``s`` from U/20 to U/2.
"""

import math
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from dpconvex.losses import VectorLoss
from dpconvex.privacy.bounds.structured_bounds import StructuredBounds
from dpconvex.risk.excess_risk import mean_excess
from dpconvex.smoothing import GaussianKernel, Kernel, convolve_vector
from dpconvex.smoothing.mixture_and_marginal_kernels import marginal_kernel
from dpconvex.types import Array

_SCALES = np.geomspace(0.05, 0.5, 5)
SQUARE_COEFFICIENT = 0.5  # theta_j^2
_LONG = 1 / 8  # second moment of the one long direction
_LONG_COLUMNS = 10  # columns over which its squared coefficient sums to one
_RATES = np.geomspace(1e-4, 1e2, 61)
_STABLE = 1.9  # rate times curvature; from 2 on steps move away from the optimum


@lru_cache(maxsize=64)
def _structured_loss_height(loss: VectorLoss) -> float:
    """Return ``c = E g(v) - g(0)`` for a standard normal v: the slope of the risk in the
    residuals' scale.
    """
    origin = np.zeros((1, loss.outputs))
    try:
        value = convolve_vector(loss, GaussianKernel(), 1.0).value(origin)
    except ValueError:  # no exact convolution is offered: a fixed sample, spread out evenly
        from scipy.stats import qmc

        spread = qmc.Sobol(loss.outputs, scramble=True, rng=np.random.default_rng(0)).random_base2(
            13
        )
        value = loss.value(ndtri(spread)).mean(keepdims=True)
    return float((value - loss.value(origin))[0])


def _direction_moments(bounds: StructuredBounds) -> list[tuple[float, float, float]]:
    """Return moment in units of U^2, squared coefficient and number of the two kinds of
    directions.
    """
    d = bounds.n_features
    m = bounds.loss.outputs
    usual = 1 / (math.sqrt(d) + math.sqrt(m)) ** 2
    return [
        (max(_LONG, usual), max(SQUARE_COEFFICIENT, d / _LONG_COLUMNS), 1.0),
        (usual, SQUARE_COEFFICIENT, d - 1.0),
    ]


def structured_minimiser_excess(
    bounds: StructuredBounds,
    kernel: Kernel,
    widths: Array,
    penalties: Array,
    noise: Array | float,
    release: Array | float,
) -> Array:
    """Return the predicted excess of a minimiser; all but the last axis is that of candidates,
    in units of U.
    """
    # ``e = sum_j v_j ((alpha^2 theta_j^2 + noise^2) / (c v_j / S + alpha)^2 + release^2)`` with
    # ``S^2 = s^2 + k h^2 + e`` and ``k`` the kernel's second moment.
    height = _structured_loss_height(bounds.loss)
    base = _SCALES**2 + marginal_kernel(kernel).second_moment * widths**2
    error = np.zeros(np.broadcast_shapes(base.shape, penalties.shape))
    for _ in range(12):
        stiffness = height / np.sqrt(base + error)
        error = np.zeros_like(error)
        for v, square, count in _direction_moments(bounds):
            moved = (penalties**2 * square + noise**2) / (v * stiffness + penalties) ** 2
            error = error + count * v * (moved + release**2)
    return mean_excess(np.sqrt(1 + error / _SCALES**2) - 1)


def structured_descent_risks(
    bounds: StructuredBounds, noise: float, steps: int, averaged: int
) -> tuple[Array, Array]:
    """Return rates of noisy gradient descent and the relative excess risk predicted for each.

    ``noise`` is that of the mean gradient in every step, and rates are in units of U.
    """
    # Around the optimum a step multiplies the error in direction j by a_j = 1 - rate c v_j / S and
    # adds rate * noise; bias and variance of the mean of the later iterates are sums of powers of
    # a_j.
    directions = _direction_moments(bounds)
    height = _structured_loss_height(bounds.loss)
    first = steps - averaged
    rates = _RATES[:, None]
    start = sum(count * v * square for v, square, count in directions)
    error = np.full((len(_RATES), len(_SCALES)), start / 4)
    for _ in range(8):
        stiffness = height / np.sqrt(_SCALES**2 + error)
        total = np.zeros_like(error)
        for v, square, count in directions:
            bias, variance = _structured_iterate_moments(
                1 - np.minimum(rates * v * stiffness, _STABLE), steps, first
            )
            stable = (
                rates * v * height / _SCALES <= _STABLE
            )  # at the optimum, where curvature is largest
            part = bias**2 * square + variance * (rates * noise) ** 2
            total = total + count * v * np.where(stable, part, 4 * square)
        error = total
    return _RATES, mean_excess(np.sqrt(1 + error / _SCALES**2) - 1)


def _structured_iterate_moments(factor: Array, steps: int, first: int) -> tuple[Array, Array]:
    """Return bias and noise variance of the mean of iterates first+1..steps of
    ``x <- factor x + noise``, x_0 = 1.
    """
    count = steps - first
    powers = factor[..., None] ** np.arange(steps + 1)
    bias = powers[..., first + 1 :].mean(axis=-1)
    sums = np.cumsum(powers, axis=-1)  # sums[k] = 1 + ... + factor^k
    drawn = np.arange(steps)  # noise of step s reaches iterate t as factor^(t - 1 - s)
    last = steps - 1 - drawn
    skipped = np.maximum(
        first - drawn, 0
    )  # powers below this one fall on iterates that are not averaged
    weight = sums[..., last] - np.where(skipped > 0, sums[..., np.maximum(skipped - 1, 0)], 0.0)
    return bias, np.square(weight / count).sum(axis=-1)
