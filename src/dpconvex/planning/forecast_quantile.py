r"""Predicted risk of private quantile regression, from public facts, and the defaults that minimise it.

Data are replaced by a reference population in mapped units (targets in [-1, 1]): normal residuals of standard
deviation ``s``, an intercept and ``d`` features of second moment ``min(U, X)^2 / (16 d)``, coefficients of size 1.
The minimiser of the perturbed, penalised, smoothed objective then errs by a penalty bias, the noise, and the shift of
the smoothed quantile; its expected pinball loss is a closed form of a normal law. ``s`` is not public, so the defaults
minimise the mean logarithm of the relative excess risk over ``s`` from 1/50 to 1/5 of half the target's range.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from dpconvex.losses import Pinball
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.privacy.certificates.rules import calibrate
from dpconvex.privacy.guarantees import Guarantee
from dpconvex.smoothing import Kernel, convolve
from dpconvex.types import Array

# Bounds hold all targets, so wider residuals would leave next to nothing for the features to explain.
RESIDUAL_SCALES = np.geomspace(0.02, 0.2, 5)
_EXCESS_FLOOR = 0.01  # relative excess risk below which more accuracy is not worth a trade
_LARGEST_EPSILON = 30.0  # beyond it a larger curvature ratio only costs digits of the minimiser
_BANDWIDTHS = np.geomspace(1e-3, 3.0, 48)
_LEVEL_PULLS = np.linspace(0.2, 1.0, 9)  # from near the median to the wanted quantile
_LEVEL_DIGITS = 6
# Squared norm of a row at its bound over its mean: a column's standard deviation is a quarter of its bound.
SPREAD = 16
NO_CURVATURE = 1e9  # penalty over curvature at which the latter costs no epsilon worth naming
NO_PENALTY = 1e-12  # stands for none in predictions


def pinball_risk(quantile: float, mean: Array, variance: Array) -> Array:
    """Return the expected pinball loss of a normal residual."""
    std = np.sqrt(variance)
    t = mean / std
    density = np.exp(-t * t / 2) / math.sqrt(2 * math.pi)
    return mean * (quantile - ndtr(-t)) + std * density


@dataclass(frozen=True)
class ReferencePopulation:
    """The population that stands for the data, in mapped units.

    Attributes
    ----------
    quantile : float
        Level that is wanted.
    dimension : int
        Coefficients, intercept included; each has the square ``1 / dimension``.
    feature_moment : float
        Second moment of one mapped feature.
    residual_scales : float or array
        ``s``, the last axis of predictions.
    sampling : float or array
        Variance of the mean slope, ``quantile (1 - quantile) / n`` for n rows; 0 leaves the cost of sampling out.
    """

    quantile: float
    dimension: int
    feature_moment: float
    residual_scales: ArrayLike
    sampling: ArrayLike = 0.0


def predicted_excess(
    population: ReferencePopulation,
    kernel: Kernel,
    bandwidth: ArrayLike,
    alpha: ArrayLike,
    gradient_std: ArrayLike,
    level: ArrayLike | None = None,
    release_std: ArrayLike = 0.0,
) -> Array:
    r"""Return the predicted excess risk relative to the optimal risk of the reference population.

    A coordinate with second moment ``v`` has curvature ``H = v phi(z) / sqrt(s^2 + k2 h^2 + e)``, ``z`` the normal
    quantile of ``level``, ``k2`` the kernel's second moment and ``e`` the variance of the prediction error itself,
    found by iteration: ``e = sum_j v_j (alpha^2 theta_j^2 + gradient_std^2 + sampling v_j) / (H_j + alpha)^2``.
    Smoothing moves the fitted quantile to ``z sqrt(s^2 + k2 h^2)``, and lowers the variance of slopes by
    ``(2 / pi) arcsin(s^2 / (s^2 + k2 h^2))``, which is exact at the median of a normal kernel.

    Parameters
    ----------
    population : ReferencePopulation
        What stands for the data.
    kernel, bandwidth : Kernel, float or array
        Smoothing, in mapped units.
    alpha, gradient_std : float or array
        Penalty, and standard deviation of the noise per coordinate of the MEAN gradient.
    level : float or array, optional
        Level of the loss that is smoothed; that of the population by default.
    release_std : float or array, optional
        Standard deviation of noise added to each coefficient after solving: ``e`` grows by ``sum_j v_j release_std^2``.
    """
    quantile, dimension = population.quantile, population.dimension
    width, alpha, noise, s, level, release = np.broadcast_arrays(
        bandwidth, alpha, gradient_std, population.residual_scales,
        quantile if level is None else level, release_std,
    )  # fmt: skip
    wanted, fitted = float(ndtri(quantile)), ndtri(level)
    height = np.exp(-fitted * fitted / 2) / math.sqrt(2 * math.pi)
    smooth = s * s + kernel.second_moment * width**2
    moments = (1.0, population.feature_moment)
    counts = (1, dimension - 1)
    bias = alpha**2 / dimension
    error = np.zeros_like(smooth)
    slopes = np.asarray(population.sampling) * (2 / math.pi) * np.arcsin(s * s / smooth)
    for _ in range(12):
        density = height / np.sqrt(smooth + error)
        error = sum(
            count * v * (bias + noise**2 + slopes * v) / (v * density + alpha) ** 2
            for count, v in zip(counts, moments, strict=True)
        )
    # This noise comes after solving, so it does not flatten the objective at the minimiser.
    error = error + (moments[0] * counts[0] + moments[1] * counts[1]) * release**2
    best = s * math.exp(-wanted * wanted / 2) / math.sqrt(2 * math.pi)
    return pinball_risk(quantile, -fitted * np.sqrt(smooth), s * s + error) / best - 1


def mean_excess(excess: Array) -> Array:
    """Return the geometric mean of relative excess risks over the residual scales, the last axis."""
    return np.exp(np.log(_EXCESS_FLOOR + excess).mean(axis=-1)) - _EXCESS_FLOOR


def reference_moment(bounds: LinearBounds) -> float:
    """Return the second moment that the reference population gives one mapped feature."""
    return min(bounds.row_norm, bounds.max_norm) ** 2 / (SPREAD * bounds.n_features)


@dataclass(frozen=True)
class Prescription:
    """Public defaults and the relative excess risk they are predicted to have (geometric mean over scales).

    Attributes
    ----------
    alpha, bandwidth : float
        Penalty and bandwidth in mapped units.
    level : float
        Level of the pinball loss that is smoothed. Smoothing a loss of level r pushes the fitted quantile away from
        the median, so a level nearer 1/2 is right on average where the bandwidth must be wide; it tends to the wanted
        quantile as the bandwidth shrinks with n.
    predicted_excess : float
        Predicted excess risk over the optimal risk.
    """

    alpha: float
    bandwidth: float
    level: float
    predicted_excess: float


@lru_cache(maxsize=256)
def objective_prescription(
    quantile: float,
    kernel: Kernel,
    bounds: LinearBounds,
    guarantee: Guarantee,
    alpha: float | None = None,
    bandwidth: float | None = None,
) -> Prescription:
    """Return the penalty, bandwidth and level with the smallest predicted risk for objective perturbation.

    Parameters
    ----------
    quantile, kernel : float, Kernel
        The loss to be smoothed.
    bounds : LinearBounds
        Public facts; ``loss`` and ``alpha`` in it are ignored.
    guarantee : PureDP or ApproxDP
        Budget.
    alpha, bandwidth : float, optional
        Fixed by the user, in mapped units; a fixed bandwidth also fixes the level at ``quantile``.

    Returns
    -------
    Prescription
        Rounded to three digits, so that a certificate can be read.
    """
    n = bounds.n_samples
    plain = replace(bounds, loss=convolve(Pinball(quantile), kernel, 1.0), alpha=1.0)
    curvature = plain.smoothness  # at bandwidth 1; inversely proportional to it
    # With next to no curvature every offered guarantee has its noise: others are refused here, by the mechanism.
    calibrate("objective", replace(plain, alpha=NO_CURVATURE * curvature), guarantee, {})
    widths = _BANDWIDTHS if bandwidth is None else np.array([bandwidth])
    pulls = _LEVEL_PULLS if bandwidth is None else np.ones(1)
    levels = 0.5 + pulls * (quantile - 0.5)
    slopes = np.maximum(levels, 1 - levels) / max(quantile, 1 - quantile)
    if alpha is None:
        # A grid of curvature ratios: the noise depends on alpha and bandwidth through their product only.
        epsilon = guarantee.epsilon(getattr(guarantee, "delta_bound", 0.0))
        ratios = np.expm1(np.geomspace(1e-4, 0.9, 40) * 0.99 * min(epsilon, _LARGEST_EPSILON))
        stds = np.array([_noise_stds(plain, ratio, guarantee) for ratio in ratios])
        alphas = curvature / (n * np.outer(widths, ratios))
        noises = np.broadcast_to(stds[:, 0] / n, alphas.shape)
        releases = np.outer(widths, stds[:, 1])
    else:
        alphas = np.full((len(widths), 1), alpha)
        ratios = curvature / (n * alpha * widths)
        stds = np.array([_noise_stds(plain, ratio, guarantee) for ratio in ratios])
        noises = stds[:, :1] / n
        releases = widths[:, None] * stds[:, 1:]
    usable = np.isfinite(noises)
    if not usable.any():
        raise ValueError(
            "No bandwidth fits this alpha: the curvature of the smoothed loss costs more than epsilon. "
            "Use a larger alpha or bandwidth, or leave them to None."
        )
    grid, release = (np.where(usable, noise, 1.0)[..., None, None] * slopes[:, None] for noise in (noises, releases))
    population = ReferencePopulation(quantile, bounds.dimension, reference_moment(bounds), RESIDUAL_SCALES)
    excess = predicted_excess(
        population, kernel, widths[:, None, None, None], alphas[..., None, None], grid,
        levels[:, None], release,
    )  # fmt: skip
    score = mean_excess(excess)
    score = np.where(usable[..., None], score, np.inf)
    i, j, k = np.unravel_index(np.argmin(score), score.shape)
    return Prescription(
        alpha=rounded_up(float(alphas[i, j])) if alpha is None else alpha,
        bandwidth=rounded_up(float(widths[i])) if bandwidth is None else bandwidth,
        level=round(float(levels[k]), _LEVEL_DIGITS),
        predicted_excess=float(score[i, j, k]),
    )


def may_be_level(level: float, quantile: float) -> bool:
    """Whether :func:`objective_prescription` may smooth the loss of this level for a quantile."""
    ends = 0.5 + _LEVEL_PULLS[[0, -1]] * (quantile - 0.5)
    return bool(ends.min() <= level + 10.0**-_LEVEL_DIGITS and level - 10.0**-_LEVEL_DIGITS <= ends.max())


def rounded_up(value: float) -> float:
    """Round up to three significant digits: a larger penalty or bandwidth keeps the curvature ratio feasible."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{math.ceil(value / unit) * unit:.3g}")


def _noise_stds(plain: LinearBounds, ratio: float, guarantee: Guarantee) -> tuple[float, float]:
    """Return the noise per coordinate of the sum, and of the released coefficients, at one curvature ratio.

    The second is for a bandwidth of 1 and proportional to the bandwidth. Both are infinite where no noise suffices.
    """
    alpha = plain.smoothness / (plain.n_samples * ratio)
    try:
        noise = calibrate("objective", replace(plain, alpha=float(alpha)), guarantee, {}).noise
    except ValueError:
        return math.inf, math.inf
    return noise["objective"].spread, noise["release"].spread
