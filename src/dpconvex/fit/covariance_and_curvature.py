r"""Covariances and curvatures that were released with noise: denoised, and the covariance of a private estimate.

An estimate that solves ``sum_i w_i psi_i u_i + noise = 0`` errs by ``H^-1 (sum_i w_i psi_i u_i + noise)`` to first
order, with ``H`` the derivative of the sum. Its covariance is ``H^-1 (S + std^2 I) H^-1`` with
``S = sum_i w_i^2 psi_i^2 u_i u_i^T``, whatever the number of records and the law of the errors. Both matrices are sums
of products of vectors of norm at most 1, and are released as such. All else is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpconvex.fit import constants
from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.types import Array


@dataclass(frozen=True)
class CovarianceNoise:
    """Variance of the noise that is left in a covariance: of variances around their mean, and of the mean.

    Between directions a and b, twice the variance of a covariance is the geometric mean of ``a^T between a`` and
    ``b^T between b``.
    """

    apart: float
    between: Array
    mean: float

    def along(self, directions: Array) -> Array:
        """Return the variance of the variance along each direction, a column each."""
        alone = np.sum(directions**4, axis=0)  # 1 for a direction that is one column
        between = np.maximum(np.sum(directions * (self.between @ directions), axis=0), 0.0)
        return np.asarray(self.apart * alone + between * (1 - alone) + self.mean)


def james_stein(noise: float, square: float) -> float:
    """Return the positive-part James-Stein factor ``max(0, 1 - noise / square)``."""
    return max(0.0, 1 - noise / max(square, 1e-300))


def denoise_covariance(
    spread: Array, std: float, usual: tuple[float, float] | None = None
) -> tuple[Array, CovarianceNoise]:
    """Return covariances shrunk to 0, and variances to their mean, as far as noise explains them; and the noise left.

    ``usual`` is the prior mean and standard deviation of the mean variance. Noise has the variance ``std^2`` on the
    diagonal and half of it beside it. Covariances are shrunk eigenvalue by eigenvalue: one factor that many columns
    share stands out of noise that would drown their sum of squares.
    """
    size, variances = len(spread), np.diagonal(spread)
    apart = variances - variances.mean()
    factor = james_stein((size - 1) * std**2, float(apart @ apart))
    values, vectors = np.linalg.eigh(spread - np.diag(variances))
    found = _denoise_covariance_spectrum(values, std)
    passed = np.square(found / np.where(values == 0, 1.0, values))
    mean, mean_noise = float(variances.mean()), std**2 / size
    if usual is not None:
        known = usual[1] ** 2 / (usual[1] ** 2 + mean_noise)
        mean, mean_noise = known * mean + (1 - known) * usual[0], known * mean_noise
    left = CovarianceNoise(std**2 * factor, (vectors * (std**2 * np.minimum(passed, 1.0))) @ vectors.T, mean_noise)
    return np.asarray((vectors * found) @ vectors.T + np.diag(mean + factor * apart)), left


def _denoise_covariance_spectrum(values: Array, std: float) -> Array:
    r"""Return eigenvalues of a symmetric matrix without the noise of variance ``std^2 / 2`` in its entries.

    Noise drives eigenvalues apart: ``v_i`` by ``std^2 / 2 sum_j 1 / (v_i - v_j)``. Twice as much is taken back, which
    is right in squared error, as eigenvectors are not those of the matrix below (Bun, Allez, Bouchaud and Potters
    2016); in two dimensions it is what James and Stein shrink by.
    """
    gaps = values[:, None] - values
    pushed = gaps / (gaps**2 + std**2 / 2 + 1e-300)
    found = values - std**2 * pushed.sum(axis=1)
    # Shrunk values keep their sign and their order, and never grow.
    found = np.where(found * values > 0, found, 0.0)
    found = np.where(np.abs(found) < np.abs(values), found, values)
    # Eigenvalues within the range of noise are shrunk at least as much as all of them as a whole.
    size = len(values)
    factor = james_stein(size * (size - 1) * std**2 / 2, float(values @ values))
    within = np.abs(values) <= constants.EIGENVALUE_NOISE_EDGE * std * math.sqrt(2 * size)
    found = np.sort(np.where(within & (np.abs(found) > factor * np.abs(values)), factor * values, found))
    return np.asarray(found + constants.NOISE_REMAINDER * (values - found)) if found.any() else found


def check_whole_rows(bounds: LinearBounds) -> None:
    """Raise unless every row is a record of its own: sums of products carry no weights."""
    if bounds.people or bounds.weighted_rows or bounds.rows_per_person > 1:
        raise ValueError("Intervals need rows that are records of their own. Got groups, rows_per_person or weights.")


def denoise_curvature(matrix: Array, std: float, expected: Array) -> tuple[Array, float]:
    """Return a released curvature shrunk to the expected one as far as noise explains the gap; and the noise left.

    Noise has the variance ``std^2`` on the diagonal and half of it beside it, in sum ``std^2 k (k + 1) / 2``.
    """
    size = len(matrix)
    apart = matrix - expected
    factor = james_stein(std**2 * size * (size + 1) / 2, float(np.square(apart).sum()))
    values, vectors = np.linalg.eigh(expected + factor * (apart + apart.T) / 2)
    least = max(constants.MIN_CURVATURE_EIGENVALUE * float(np.trace(expected)) / size, factor * std * math.sqrt(size))
    raised = np.maximum(values, least)
    raised += constants.NOISE_REMAINDER * (np.maximum(values, -least) - raised)
    return np.asarray((vectors * raised) @ vectors.T), std * factor


def conservative_inverse_curvature(matrix: Array, std: float, shape: Array) -> Array:
    """Return the inverse of a released curvature for the covariance of an estimate.

    The matrix is shrunk to a multiple of ``diag(shape)`` as far as noise explains the difference. Eigenvalues v are
    lowered to ``v / (1 + (2 e / v)^2)``, with ``e`` the noise that is left in v, but not below a hundredth of the
    multiple: directions of uncertain curvature get wide intervals.
    """
    size = len(matrix)
    height = max(float(np.trace(matrix)) / float(shape.sum()), std / math.sqrt(size))
    apart = matrix - height * np.diag(shape)
    factor = james_stein(std**2 * size * (size + 1) / 2, float(np.square(apart).sum()))
    values, vectors = np.linalg.eigh(height * np.diag(shape) + factor * apart)
    noise_left = constants.EIGENVALUE_STDS * std * math.sqrt(factor + 1 / size)
    lowered = values / (1 + np.square(noise_left / np.maximum(values, 1e-9 * noise_left)))
    return np.asarray((vectors / np.maximum(lowered, constants.MIN_CURVATURE_EIGENVALUE * height)) @ vectors.T)


def sandwich_covariance(inverse: Array, scores: Array, std: float) -> Array:
    """Return ``H^-1 (S + std^2 I) H^-1``; noise leaves S no direction of a negative variance."""
    values, vectors = np.linalg.eigh(scores)
    middle = (vectors * (np.maximum(values, 0.0) + std**2)) @ vectors.T
    return np.asarray(inverse @ middle @ inverse)
