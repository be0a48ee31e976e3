"""Decompositions of released matrices that always come to an end.

They are those of numpy. Only where numpy gives up, because noise made a matrix singular or made it
overflow, something near takes its place: all of it is post-processing of released numbers.
"""

from __future__ import annotations

import numpy as np

from dpconvex.types import Array

_LARGEST = 1e150  # of an entry: its square is a number


def solve(matrix: Array, right: Array) -> Array:
    """Return the solution of a linear system, or the shortest one of least squares."""
    try:
        return np.asarray(np.linalg.solve(matrix, right))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(tame(matrix), tame(right))[0])


def inverse(matrix: Array) -> Array:
    """Return the inverse of a matrix, or its pseudo-inverse."""
    try:
        return np.asarray(np.linalg.inv(matrix))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.pinv(tame(matrix)))


def symmetric_eigenvalues(matrix: Array) -> tuple[Array, Array]:
    """Return eigenvalues and eigenvectors of a symmetric matrix, or of the nearest tame one."""
    try:
        values, vectors = np.linalg.eigh(matrix)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(tame(matrix))
    return np.asarray(values), np.asarray(vectors)


def tame(numbers: Array) -> Array:
    """Return the same numbers within 1e150 of 0, and 0 where there is none."""
    return np.asarray(np.clip(np.nan_to_num(numbers, nan=0.0), -_LARGEST, _LARGEST))
