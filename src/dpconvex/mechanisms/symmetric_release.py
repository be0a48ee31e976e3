"""Release a symmetric matrix of sums: every entry passes the gate once, isotropic in Frobenius norm."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpconvex.privacy.certificates.terms import NoiseTerm
from dpconvex.privacy.noise import NoiseSource

Array = NDArray[np.float64]


def symmetric_entries(size: int) -> int:
    """Return how many numbers a symmetric matrix of this size has."""
    return size * (size + 1) // 2


def pack_symmetric(matrix: Array) -> Array:
    """Return the entries on and above the diagonal, those above times ``sqrt(2)``: a vector of the same norm."""
    rows, columns = np.triu_indices(matrix.shape[0])
    return matrix[rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2))


def unpack_symmetric(vector: Array, size: int) -> Array:
    """Undo :func:`packed`."""
    rows, columns = np.triu_indices(size)
    matrix = np.empty((size, size))
    matrix[rows, columns] = vector / np.where(rows == columns, 1.0, math.sqrt(2))
    matrix[columns, rows] = matrix[rows, columns]
    return matrix


def release_symmetric(sums: Array, term: NoiseTerm, noise: NoiseSource) -> Array:
    """Return a symmetric matrix plus the noise that a term of a certificate states.

    Packed it is released as one vector, whose l2 norm is the matrix's Frobenius norm: noise of std ``s`` on the
    diagonal and ``s / sqrt(2)`` beside it.

    Parameters
    ----------
    sums : array of shape (size, size)
        Symmetric.
    term : NoiseTerm
        Its noise, for ``size (size + 1) / 2`` numbers.
    noise : NoiseSource
        Where noise comes from.
    """
    return unpack_symmetric(noise.add(pack_symmetric(sums), term), sums.shape[0])
