"""The compiled loop of noisy stochastic gradient descent on residual vectors. Imported lazily: numba loads slowly."""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

__all__ = ["run_single_sgd_steps"]


@numba.njit(nogil=True, cache=True)
def run_single_sgd_steps(
    generator: Any, A: Any, Y: Any, slopes: Any, offsets: Any,
    steps: int, rate: float, std: float, radius: float,
) -> Any:  # fmt: skip
    """Return the mean iterate of projected noisy steps of one record each; no pieces mean the l1 norm."""
    n, m, d = A.shape
    theta, total = np.zeros(d), np.zeros(d)
    u, slope = np.zeros(m), np.zeros(m)
    for _ in range(steps):
        i = min(n - 1, int(n * generator.random()))
        for j in range(m):
            u[j] = Y[i, j]
            for k in range(d):
                u[j] -= A[i, j, k] * theta[k]
        if len(slopes) == 0:
            for j in range(m):
                slope[j] = np.sign(u[j])
        else:
            best = -np.inf
            for p in range(len(slopes)):
                value = offsets[p]
                for j in range(m):
                    value += slopes[p, j] * u[j]
                if value > best:
                    best = value
                    slope[:] = slopes[p]
        square = 0.0
        for k in range(d):
            gradient = std * generator.standard_normal()
            for j in range(m):
                gradient -= A[i, j, k] * slope[j]
            theta[k] -= rate * gradient
            square += theta[k] * theta[k]
        if square > radius * radius:
            theta *= radius / math.sqrt(square)
        total += theta
    return total / steps
