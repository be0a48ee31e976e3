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
from dataclasses import replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from dpconvex.core.guarantees import Guarantee
from dpconvex.fit.fit_plan import gaussian_budget
from dpconvex.losses import VectorLoss
from dpconvex.mechanisms.gradient_descent import AVERAGED
from dpconvex.mechanisms.objective_perturbation import (
    RELEASE_SHARE,
    calibrate_objective_perturbation,
)
from dpconvex.mechanisms.output_perturbation import calibrate_output_perturbation
from dpconvex.planning.excess_risk import (
    NO_CURVATURE,
    Prescription,
    mean_excess,
    require_usable_prescription,
    rounded_up,
)
from dpconvex.privacy.bounds.structured_bounds import StructuredBounds
from dpconvex.privacy.objective_perturbation_calibration import objective_perturbation_scale
from dpconvex.smoothing import GaussianKernel, Kernel, convolve_vector
from dpconvex.smoothing.mixture_and_marginal_kernels import marginal_kernel
from dpconvex.types import Array

_SCALES = np.geomspace(0.05, 0.5, 5)
_SQUARE = 0.5  # theta_j^2
_LONG = 1 / 8  # second moment of the one long direction
_LONG_COLUMNS = 10  # columns over which its squared coefficient sums to one
_BANDWIDTHS = np.geomspace(0.01, 10.0, 31)
_RATIOS = np.geomspace(0.1, 8.0, 10)  # curvature ratios, in units of `_usual_ratio`
_RATES = np.geomspace(1e-4, 1e2, 61)
_STABLE = 1.9  # rate times curvature; from 2 on steps move away from the optimum
_NARROW = 0.05  # bandwidth in units of the operator norm where the noise does not depend on it


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
    return [(max(_LONG, usual), max(_SQUARE, d / _LONG_COLUMNS), 1.0), (usual, _SQUARE, d - 1.0)]


def _structured_mean_excess(
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


def _usual_ratio(guarantee: Guarantee) -> float:
    """Return the curvature ratio from which on the noise of objective perturbation grows
    visibly.
    """
    delta = guarantee.delta(math.inf)
    epsilon = guarantee.epsilon(delta)
    return epsilon / (8 * math.log(1 / delta)) if delta > 0 else 0.1 * epsilon


def _smooth_bounds(
    bounds: StructuredBounds, kernel: Kernel, width: float, guarantee: Guarantee
) -> StructuredBounds:
    """Return the facts of the smoothed loss, or raise where objective perturbation does not
    offer a guarantee.
    """
    smooth = replace(bounds, loss=convolve_vector(bounds.loss, kernel, width), alpha=1.0)
    # Next to no curvature has noise for all others.
    calibrate_objective_perturbation(
        replace(smooth, alpha=NO_CURVATURE * smooth.smoothness), guarantee, {}
    )
    return smooth


def _structured_objective_noise(
    smooth: StructuredBounds, ratio: float, guarantee: Guarantee
) -> float:
    """Return the noise per coordinate of the sum at one curvature ratio, infinite where none
    suffices.
    """
    share = 1 - RELEASE_SHARE
    delta = guarantee.delta(math.inf)
    epsilon = share * guarantee.epsilon(delta)
    try:
        if delta > 0:
            std = objective_perturbation_scale(
                epsilon, share * delta, 1.0, ratio, smooth.rank, smooth.neighbors
            )
        else:
            records = 2 if smooth.neighbors == "replace_one" else 1
            left = epsilon - math.log1p(ratio)
            std = records * math.sqrt(smooth.dimension + 1) / left if left > 0 else math.inf
    except ValueError:
        return math.inf
    return std * smooth.lipschitz


@lru_cache(maxsize=256)
def structured_objective_prescription(
    kernel: Kernel,
    bounds: StructuredBounds,
    guarantee: Guarantee,
    alpha: float | None = None,
    bandwidth: float | None = None,
) -> Prescription:
    """Return penalty and bandwidth with the smallest predicted risk for objective perturbation.

    ``bounds`` has the kinked loss; ``alpha`` and ``bandwidth`` are fixed by the user or None.
    """
    if bounds.loss.link is not None:
        return _structured_link_prescription(kernel, bounds, guarantee, alpha, bandwidth)
    unit = bounds.operator_norm
    smooth = _smooth_bounds(bounds, kernel, unit, guarantee)
    widths = _BANDWIDTHS * unit if bandwidth is None else np.array([bandwidth])
    curvatures = smooth.smoothness * unit / widths
    if alpha is None:
        ratios = np.broadcast_to(_RATIOS * _usual_ratio(guarantee), (len(widths), len(_RATIOS)))
        alphas = curvatures[:, None] / (bounds.n_samples * ratios)
    else:
        alphas = np.full((len(widths), 1), alpha)
        ratios = (curvatures / (bounds.n_samples * alpha))[:, None]
    known = {
        float(ratio): _structured_objective_noise(smooth, float(ratio), guarantee)
        for ratio in np.unique(ratios)
    }
    noises = np.vectorize(lambda ratio: known[float(ratio)])(ratios) / bounds.n_samples
    usable = np.isfinite(noises)
    require_usable_prescription(bool(usable.any()), "bandwidth fits this alpha")
    # In units of U the loss has curvature c v / S and gradients of size U: alpha and noise follow.
    noise = np.where(usable, noises, 1.0)[..., None] / unit
    score = _structured_mean_excess(
        bounds, kernel, widths[:, None, None] / unit, alphas[..., None] / unit, noise, 0.0
    )
    score = np.where(usable, score, np.inf)
    i, j = np.unravel_index(int(np.argmin(score)), score.shape)
    return Prescription(
        alpha=rounded_up(float(alphas[i, j])) if alpha is None else alpha,
        excess_risk=float(score[i, j]),
        bandwidth=rounded_up(float(widths[i])) if bandwidth is None else bandwidth,
    )


def _structured_link_prescription(
    kernel: Kernel,
    bounds: StructuredBounds,
    guarantee: Guarantee,
    alpha: float | None,
    bandwidth: float | None,
) -> Prescription:
    """Return penalty and bandwidth of objective perturbation for a loss with a link."""
    # The reference population has rows of the link with second moment v = link_norm^2 / d along
    # every direction and a typical curvature of half the largest, so that a coefficient of square
    # 1/2 errs by (alpha^2 / 2 + noise^2) / (v c + alpha)^2 per direction.
    link = bounds.loss.link
    assert link is not None
    width = rounded_up(_NARROW * bounds.operator_norm) if bandwidth is None else bandwidth
    smooth = _smooth_bounds(bounds, kernel, width, guarantee)
    v = bounds.link_norm**2 / bounds.n_features
    curvature = v * float(link.smoothness) / 2
    base = smooth.smoothness / bounds.n_samples
    tried = (
        [alpha]
        if alpha is not None
        else list(base / (_usual_ratio(guarantee) * np.geomspace(0.01, 8, 24)))
    )
    found = []
    for candidate in map(float, tried):
        noise = _structured_objective_noise(smooth, base / candidate, guarantee) / bounds.n_samples
        if math.isfinite(noise):
            error = (
                v
                * bounds.n_features
                * (candidate**2 * _SQUARE + noise**2)
                / (curvature + candidate) ** 2
            )
            found.append(Prescription(candidate, error, width))
    require_usable_prescription(bool(found), "penalty of those tried fits")
    best = min(found, key=lambda each: each.excess_risk)
    return best if alpha is not None else replace(best, alpha=rounded_up(best.alpha))


@lru_cache(maxsize=256)
def structured_output_prescription(
    kernel: Kernel,
    bounds: StructuredBounds,
    guarantee: Guarantee,
    alpha: float | None = None,
    bandwidth: float | None = None,
) -> Prescription:
    """Return penalty and bandwidth of output perturbation; noise does not depend on the
    bandwidth, which is small.
    """
    unit = bounds.operator_norm
    width = rounded_up(_NARROW * unit) if bandwidth is None else bandwidth
    smooth = replace(bounds, loss=convolve_vector(bounds.loss, kernel, width), alpha=1.0)
    tried = np.geomspace(1e-4, 10.0, 41) * smooth.lipschitz if alpha is None else np.array([alpha])
    stds = []
    for candidate in tried:
        term = calibrate_output_perturbation(
            replace(smooth, alpha=float(candidate)), guarantee, {}
        ).noise["release"]
        stds.append(
            term.scale
            * (1.0 if term.distribution == "gaussian" else math.sqrt(bounds.dimension + 1))
        )
    noise = 0.0, np.array(stds)[:, None]
    scores = _structured_mean_excess(
        bounds, kernel, np.array(width / unit), tried[:, None] / unit, *noise
    )
    best = int(np.argmin(scores))
    return Prescription(
        rounded_up(float(tried[best])) if alpha is None else alpha, float(scores[best]), width
    )


@lru_cache(maxsize=256)
def structured_step_size(
    bounds: StructuredBounds, guarantee: Guarantee, steps: int
) -> tuple[float, float]:
    """Return the rate of noisy gradient descent with the smallest predicted risk, and that
    relative excess risk.
    """
    # Around the optimum a step multiplies the error in direction j by a_j = 1 - rate c v_j / S and
    # adds rate * noise; bias and variance of the mean of the later iterates are sums of powers of
    # a_j.
    unit = bounds.operator_norm
    mu = gaussian_budget(guarantee, "StructuredGradientDescent")
    noise = math.sqrt(steps) * bounds.gradient_sum_sensitivity() / (mu * bounds.n_samples * unit)
    directions = _direction_moments(bounds)
    height = _structured_loss_height(bounds.loss)
    first = steps - max(1, round(AVERAGED * steps))
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
    score = mean_excess(np.sqrt(1 + error / _SCALES**2) - 1)
    best = int(np.argmin(score))
    # The rate of theta in the user's units: gradients are U times as long, coefficients the same.
    return rounded_up(float(_RATES[best]) / unit), float(score[best])


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
