"""Covariances that were released with noise, cleared of it as far as it explains them: post-processing."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpconvex.types import Array

__all__ = ["CovarianceNoise", "denoised_covariance"]


_EDGE = 1.1  # eigenvalues of noise, in units of their limit in large matrices
_TRACE = 1e-4  # of what noise explains, that is left


@dataclass(frozen=True)
class CovarianceNoise:
    """Noise that is left in a covariance: variances of a variance beside their mean, and of the mean.

    Between directions a and b, twice the variance of a covariance is the geometric mean of ``a^T between a`` and
    ``b^T between b``.
    """

    apart: float
    between: Array
    mean: float

    def along(self, directions: Array) -> Array:
        """Return the variance of the variance along each direction, a column each."""
        alone = np.sum(directions**4, axis=0)  # how far a direction is a column
        between = np.maximum(np.sum(directions * (self.between @ directions), axis=0), 0.0)
        return np.asarray(self.apart * alone + between * (1 - alone) + self.mean)


def denoised_covariance(
    spread: Array, std: float, usual: tuple[float, float] | None = None
) -> tuple[Array, CovarianceNoise]:
    """Return covariances drawn to 0, and variances to their mean, as far as noise explains them; and what is left.

    The mean may be known beforehand: ``usual`` is its expectation and standard deviation. Noise has the variance
    ``std^2`` on the diagonal and half of it beside it. Covariances are judged direction by direction: one factor that
    many columns share stands out of noise that their sum of squares would drown in.
    """
    size, variances = len(spread), np.diagonal(spread)
    apart = variances - variances.mean()
    noise = (size - 1) * std**2
    kept = max(0.0, 1 - noise / max(float(apart @ apart), 1e-300))
    values, vectors = np.linalg.eigh(spread - np.diag(variances))
    found = _denoised(values, std)
    passed = np.square(found / np.where(values == 0, 1.0, values))
    mean, unsure = float(variances.mean()), std**2 / size
    if usual is not None:
        known = usual[1] ** 2 / (usual[1] ** 2 + unsure)
        mean, unsure = known * mean + (1 - known) * usual[0], known * unsure
    left = CovarianceNoise(std**2 * kept, (vectors * (std**2 * np.minimum(passed, 1.0))) @ vectors.T, unsure)
    return np.asarray((vectors * found) @ vectors.T + np.diag(mean + kept * apart)), left


def _denoised(values: Array, std: float) -> Array:
    r"""Return eigenvalues of a symmetric matrix without the noise of variance ``std^2 / 2`` in its entries.

    Noise drives eigenvalues apart: ``v_i`` by ``std^2 / 2 sum_j 1 / (v_i - v_j)``. Twice as much is taken back, which
    is right in squared error, as eigenvectors are not those of the matrix below (Bun, Allez, Bouchaud and Potters
    2016); in two dimensions it is what James and Stein shrink by.
    """
    gaps = values[:, None] - values
    pushed = gaps / (gaps**2 + std**2 / 2 + 1e-300)
    found = values - std**2 * pushed.sum(axis=1)
    # Never beyond 0, nor away from it, and in order.
    found = np.where(found * values > 0, found, 0.0)
    found = np.where(np.abs(found) < np.abs(values), found, values)
    # Where noise alone reaches, not more than is left of all values together: columns are not mixed by noise.
    size = len(values)
    sure = max(0.0, 1 - size * (size - 1) * std**2 / 2 / max(float(values @ values), 1e-300))
    within = np.abs(values) <= _EDGE * std * math.sqrt(2 * size)
    found = np.sort(np.where(within & (np.abs(found) > sure * np.abs(values)), sure * values, found))
    # A trace of the values keeps eigenvectors from being arbitrary.
    return np.asarray(found + _TRACE * (values - found)) if found.any() else found
