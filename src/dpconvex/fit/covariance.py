r"""Released curvatures: cleared of noise for steps, and between two inverses the covariance of a private estimate.

An estimate that solves ``sum_i w_i psi_i u_i + noise = 0`` errs by ``H^-1 (sum_i w_i psi_i u_i + noise)`` to first
order, with ``H`` the derivative of the sum. Its covariance is ``H^-1 (S + std^2 I) H^-1`` with
``S = sum_i w_i^2 psi_i^2 u_i u_i^T``; it does not matter how many records there are, nor what errors are like. Both
matrices are sums of products of vectors of length at most 1, and are released as such.
"""

from __future__ import annotations

import math

import numpy as np

from dpconvex.privacy.bounds.linear import LinearBounds
from dpconvex.types import Array

__all__ = ["check_whole_rows", "denoised_curvature", "sandwich", "wide_inverse"]


# Least eigenvalue of a curvature, over the mean: for steps, and for covariances; what noise may have made of one.
_LEAST, _FLAT, _DOUBTED = 0.01, 0.01, 2.0
_TRACE = 1e-4  # of what an eigenvalue lacks of the least one, that is left


def check_whole_rows(bounds: LinearBounds) -> None:
    """Raise where rows are no records of their own: sums of products carry no votes."""
    if bounds.people or bounds.weighted_rows or bounds.rows_per_person > 1:
        raise ValueError("Intervals need rows that are records of their own. Got groups, rows_per_person or weights.")


def denoised_curvature(matrix: Array, std: float, expected: Array) -> tuple[Array, float]:
    """Return a released curvature drawn to the expected one as far as noise explains the difference.

    Noise has the variance ``std^2`` on the diagonal and half of it beside it, together ``std^2 k (k + 1) / 2``. Also
    return the noise that is left of the entries.
    """
    size = len(matrix)
    apart = matrix - expected
    noise = std**2 * size * (size + 1) / 2
    kept = max(0.0, 1 - noise / max(float(np.square(apart).sum()), 1e-300))
    values, vectors = np.linalg.eigh(expected + kept * (apart + apart.T) / 2)
    least = max(_LEAST * float(np.trace(expected)) / size, kept * std * math.sqrt(size))
    raised = np.maximum(values, least)
    raised += _TRACE * (np.maximum(values, -least) - raised)  # eigenvectors are not arbitrary
    return np.asarray((vectors * raised) @ vectors.T), std * kept


def wide_inverse(matrix: Array, std: float, shape: Array) -> Array:
    """Return the inverse of a released curvature for the covariance of an estimate.

    The matrix is drawn to a multiple of ``diag(shape)`` as far as noise explains the difference; eigenvalues v are
    lowered to ``v / (1 + (2 e / v)^2)``, with ``e`` the noise that is left in v, but not below a hundredth of the
    multiple: what is not known to be curved has a wide interval.
    """
    size = len(matrix)
    height = max(float(np.trace(matrix)) / float(shape.sum()), std / math.sqrt(size))
    apart = matrix - height * np.diag(shape)
    noise = std**2 * size * (size + 1) / 2
    kept = max(0.0, 1 - noise / max(float(np.square(apart).sum()), 1e-300))
    values, vectors = np.linalg.eigh(height * np.diag(shape) + kept * apart)
    doubted = _DOUBTED * std * math.sqrt(kept + 1 / size)
    lowered = values / (1 + np.square(doubted / np.maximum(values, 1e-9 * doubted)))
    return np.asarray((vectors / np.maximum(lowered, _FLAT * height)) @ vectors.T)


def sandwich(inverse: Array, scores: Array, std: float) -> Array:
    """Return ``H^-1 (S + std^2 I) H^-1``; noise leaves S no direction of a negative variance."""
    values, vectors = np.linalg.eigh(scores)
    middle = (vectors * (np.maximum(values, 0.0) + std**2)) @ vectors.T
    return np.asarray(inverse @ middle @ inverse)
