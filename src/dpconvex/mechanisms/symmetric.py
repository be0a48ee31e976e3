"""Release a symmetric matrix of sums: every entry passes the gate once, isotropic in Frobenius norm."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpconvex.privacy.noise import NoiseSource
from dpconvex.privacy.terms import NoiseTerm

Array = NDArray[np.float64]


def entries(size: int) -> int:
    """Return how many numbers a symmetric matrix of this size has."""
    return size * (size + 1) // 2


def release_symmetric(sums: Array, term: NoiseTerm, noise: NoiseSource) -> Array:
    """Return a symmetric matrix plus the noise that a term of a certificate states.

    The diagonal and ``sqrt(2)`` times the entries above it are released as one vector, whose l2 norm is the matrix's
    Frobenius norm: noise of std ``s`` on the diagonal and ``s / sqrt(2)`` beside it.

    Parameters
    ----------
    sums : array of shape (size, size)
        Symmetric.
    term : NoiseTerm
        Its noise, for ``size (size + 1) / 2`` numbers.
    noise : NoiseSource
        Where noise comes from.
    """
    size = sums.shape[0]
    rows, columns = np.triu_indices(size)
    weights = np.where(rows == columns, 1.0, math.sqrt(2))
    released = noise.add(weights * sums[rows, columns], term) / weights
    matrix = np.empty((size, size))
    matrix[rows, columns] = released
    matrix[columns, rows] = released
    return matrix
