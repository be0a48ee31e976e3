"""Quasi-Newton pairs on top of an initial metric."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from dpconvex.types import Array

__all__ = ["Pairs"]


class Pairs:
    """The last few (step, change of gradient) pairs of a run.

    `direction` applies the inverse BFGS matrix they define, starting from the inverse of a given
    metric, to minus the gradient (two-loop recursion).
    """

    def __init__(self, limit: int) -> None:
        self._pairs: deque[tuple[Array, Array, float]] = deque(maxlen=limit)

    def __len__(self) -> int:
        return len(self._pairs)

    def clear(self) -> None:
        """Forget all pairs."""
        self._pairs.clear()

    def add(self, step: Array, change: Array) -> None:
        """Remember a pair if its curvature is positive beyond rounding."""
        curvature = float(step @ change)
        if curvature > 1e-14 * float(np.linalg.norm(step) * np.linalg.norm(change)):
            self._pairs.append((step, change, curvature))

    def scaling(self, diagonal: Array) -> float:
        """Return the factor that fits a diagonal metric D to the last pair (1 if none).

        ``<change, D^{-1} change> / <step, change>``.
        """
        if not self._pairs:
            return 1.0
        _, change, curvature = self._pairs[-1]
        return float(change @ (change / diagonal)) / curvature

    def direction(self, gradient: Array, solve: Callable[[Array], Array]) -> Array:
        """Return ``-B^{-1} gradient``; `solve` applies the inverse of the initial metric."""
        vector = -gradient
        coefficients = []
        for step, change, curvature in reversed(self._pairs):
            coefficient = float(step @ vector) / curvature
            vector = vector - coefficient * change
            coefficients.append(coefficient)
        vector = solve(vector)
        for (step, change, curvature), coefficient in zip(self._pairs, reversed(coefficients), strict=True):
            vector = vector + (coefficient - float(change @ vector) / curvature) * step
        return vector
