r"""Covariances and curvatures that were released with noise: denoised, and the covariance of a
private estimate.

An estimate that solves ``sum_i w_i psi_i u_i + noise = 0`` errs by
``H^-1 (sum_i w_i psi_i u_i + noise)`` to first order, with ``H`` the derivative of the sum. Its
covariance is ``H^-1 (S + std^2 I) H^-1`` with ``S = sum_i w_i^2 psi_i^2 u_i u_i^T``, whatever the
number of records and the law of the errors. The noise's size is public. Both matrices are sums of
products of vectors of norm at most 1, and are released as such; as far as they cannot be paid for,
S is shrunk to a multiple of H, and H to the second moments that coordinates were made of.

Records with weights ``v_i`` that share a person: by Jensen's inequality, with ``sum_i v_i <= 1``
over its rows, ``(sum_i v_i s_i)(sum_i v_i s_i)^T <= sum_i v_i s_i s_i^T``, so that the sum over
rows that is released bounds the sum over people that clustered standard errors need.
"""

import math

import numpy as np

from dpconvex.fit import constants, linear_algebra
from dpconvex.types import Array


def james_stein(noise: float, square: float) -> float:
    """Return the positive-part James-Stein factor ``max(0, 1 - noise / square)``."""
    return max(0.0, 1 - noise / max(square, 1e-300))


def denoise_covariance(
    spread: Array, std: float, usual: tuple[float, float] | None = None
) -> tuple[Array, tuple[float, Array, float]]:
    """Return covariances shrunk to 0 and variances to their mean as far as noise explains them; and
    the noise left.

    That is the variance of variances around their mean, a matrix for covariances, and the variance
    of the mean. Between directions a and b, twice the variance of a covariance is the geometric
    mean of ``a^T M a`` and ``b^T M b``, with M this matrix.
    """
    # usual is the prior mean and standard deviation of the mean variance. Noise has the variance
    # std^2 on the diagonal and half of it beside it. Covariances are shrunk eigenvalue by
    # eigenvalue: one factor that many columns share stands out of noise that would drown their sum
    # of squares.
    size = len(spread)
    variances = np.diagonal(spread)
    apart = variances - variances.mean()
    factor = james_stein((size - 1) * std**2, float(apart @ apart))
    values, vectors = linear_algebra.symmetric_eigenvalues(spread - np.diag(variances))
    # Noise drives eigenvalues apart: v_i by std^2 / 2 sum_j 1 / (v_i - v_j). Twice as much is taken
    # back, which is right in squared error, as eigenvectors are not those of the matrix below (Bun,
    # Allez, Bouchaud and Potters 2016); in two dimensions it is what James and Stein shrink by.
    gaps = values[:, None] - values
    found = values - std**2 * (gaps / (gaps**2 + std**2 / 2 + 1e-300)).sum(axis=1)
    # Shrunk values keep their sign and their order, and never grow.
    found = np.where(found * values > 0, found, 0.0)
    found = np.where(np.abs(found) < np.abs(values), found, values)
    # Eigenvalues within the range of noise are shrunk at least as much as all of them as a whole.
    whole = james_stein(size * (size - 1) * std**2 / 2, float(values @ values))
    within = np.abs(values) <= constants.EIGENVALUE_NOISE_EDGE * std * math.sqrt(2 * size)
    found = np.sort(
        np.where(within & (np.abs(found) > whole * np.abs(values)), whole * values, found)
    )
    if found.any():
        found = np.asarray(found + constants.NOISE_REMAINDER * (values - found))
    passed = np.square(found / np.where(values == 0, 1.0, values))
    mean = float(variances.mean())
    mean_noise = std**2 / size
    if usual is not None:
        known = usual[1] ** 2 / (usual[1] ** 2 + mean_noise)
        mean = known * mean + (1 - known) * usual[0]
        mean_noise = known * mean_noise
    left = (std**2 * factor, (vectors * (std**2 * np.minimum(passed, 1.0))) @ vectors.T, mean_noise)
    return np.asarray((vectors * found) @ vectors.T + np.diag(mean + factor * apart)), left


def denoise_curvature(matrix: Array, std: float, expected: Array) -> tuple[Array, float]:
    """Return a released curvature shrunk to the expected one as far as noise explains the gap;
    and the noise left.
    """
    # Noise has the variance std^2 on the diagonal and half of it beside it, in sum std^2 k (k + 1)
    # / 2.
    size = len(matrix)
    apart = matrix - expected
    factor = james_stein(std**2 * size * (size + 1) / 2, float(np.square(apart).sum()))
    values, vectors = linear_algebra.symmetric_eigenvalues(
        expected + factor * (apart + apart.T) / 2
    )
    least = max(
        constants.MIN_CURVATURE_EIGENVALUE * float(np.trace(expected)) / size,
        factor * std * math.sqrt(size),
    )
    raised = np.maximum(values, least)
    raised += constants.NOISE_REMAINDER * (np.maximum(values, -least) - raised)
    return np.asarray((vectors * raised) @ vectors.T), std * factor


def combine_curvatures(
    released: Array, std: float, expected: Array, doubt: Array
) -> tuple[Array, Array]:
    """Return the posterior mean of a curvature, and the posterior variance of its entries.

    ``expected`` is, up to a factor, the prior mean of its diagonal, with standard deviations
    ``doubt``. Beside the diagonal the prior mean is 0. What was released has noise of the variance
    ``std^2``, half of it beside the diagonal.
    """
    size = len(released)
    twice = np.eye(size) + 1  # variances on the diagonal are twice those beside it
    height = max(float(np.trace(released)), std * math.sqrt(size)) / float(expected.sum())
    weights = expected / (
        (height * doubt) ** 2 + std**2
    )  # the factor, by diagonals that are known best
    height = max(float(weights @ np.diag(released)) / float(weights @ expected), height / 4)
    prior = height**2 * np.outer(doubt, doubt) * twice / 2
    noise = std**2 * twice / 2
    kept = prior / (prior + noise)
    mean = height * np.diag(expected)
    unknown = np.square((1 - np.diag(kept)) * expected) / float(
        weights @ expected
    )  # variance of the factor
    return np.asarray(mean + kept * (released - mean)), np.asarray(kept * noise + np.diag(unknown))


def curvature_variances(variance: Array, directions: Array) -> Array:
    """Return the variance of the curvature along directions, a column each, by that of the
    matrix's entries.
    """
    squares = directions**2
    return np.asarray(
        2 * np.sum(squares * (variance @ squares), axis=0) - np.diag(variance) @ squares**2
    )


def raise_curvature(
    curvature: Array, variance: Array, stds: float = constants.EIGENVALUE_STDS
) -> tuple[Array, ...]:
    """Return eigenvalues of a curvature raised to so many standard deviations, their variances,
    and eigenvectors.
    """
    # The least eigenvalue is a hundredth of the mean.
    values, vectors = linear_algebra.symmetric_eigenvalues(curvature)
    variances = curvature_variances(variance, vectors)
    least = constants.MIN_CURVATURE_EIGENVALUE * max(float(values.mean()), 1e-300)
    return np.maximum(values, np.maximum(stds * np.sqrt(variances), least)), variances, vectors


def conservative_inverse_curvature(curvature: Array, variance: Array) -> Array:
    """Return the inverse for a covariance: an eigenvalue v of variance e^2 is lowered to
    ``v / (1 + (e / v)^2)``.
    """
    values, variances, vectors = raise_curvature(
        curvature, variance, constants.INVERSE_EIGENVALUE_STDS
    )
    return np.asarray((vectors * ((1 + variances / values**2) / values)) @ vectors.T)


def denoise_scores(
    scores: Array, std: float, curvature: Array, height: float | None = None
) -> Array:
    """Return released moments of scores, shrunk to a multiple of the curvature as far as noise
    explains the gap.
    """
    # They are proportional where all records err alike; height is the expected factor. Noise leaves
    # no direction of a negative variance.
    size = len(scores)
    trace = float(np.trace(curvature))
    usual = None if height is None else (0.0, constants.SCORE_PRIOR_STD * height * trace / size)
    if height is None:
        height = max(float(np.trace(scores)), std * math.sqrt(size)) / trace
    apart, _ = denoise_covariance(scores - height * curvature, std, usual)
    values, vectors = linear_algebra.symmetric_eigenvalues(height * curvature + apart)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)
