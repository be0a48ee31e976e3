"""The compiled loop of noisy stochastic gradient descent on residual vectors. Imported lazily:
numba loads slowly.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

__all__ = ["run_single_sgd_steps"]


@numba.njit(nogil=True, cache=True)
def run_single_sgd_steps(
    generator: Any,
    A: Any,
    Y: Any,
    slopes: Any,
    offsets: Any,
    steps: int,
    rates: Any,
    stds: Any,
    radius: float,
) -> Any:
    """Return the mean iterate of projected noisy steps of one record each; no pieces mean the l1
    norm.

    One row for every pair of a rate and a noise: they share the records and the normal draws, which
    take most of the time.
    """
    n, m, d = A.shape
    thetas = np.zeros((len(rates), d))
    totals = np.zeros((len(rates), d))
    u = np.zeros(m)
    slope = np.zeros(m)
    normal = np.zeros(d)
    for _ in range(steps):
        i = min(n - 1, int(n * generator.random()))
        for k in range(d):
            normal[k] = generator.standard_normal()
        for r in range(len(rates)):
            for j in range(m):
                product = 0.0
                for k in range(d):
                    product += A[i, j, k] * thetas[r, k]
                u[j] = Y[i, j] - product
            if len(slopes) == 0:
                for j in range(m):
                    slope[j] = np.sign(u[j])
            else:
                best = -np.inf
                active = 0
                for p in range(len(slopes)):
                    value = offsets[p]
                    for j in range(m):
                        value += slopes[p, j] * u[j]
                    if value > best:
                        best = value
                        active = p
                for j in range(m):
                    slope[j] = slopes[active, j]
            square = 0.0
            for k in range(d):
                gradient = stds[r] * normal[k]
                for j in range(m):
                    gradient -= A[i, j, k] * slope[j]
                thetas[r, k] -= rates[r] * gradient
                square += thetas[r, k] * thetas[r, k]
            shrink = radius / math.sqrt(square) if square > radius * radius else 1.0
            for k in range(d):
                thetas[r, k] *= shrink
                totals[r, k] += thetas[r, k]
    return totals / steps
