"""The compiled loop of the stochastic subgradient method. Imported lazily: numba takes a while to load."""

from __future__ import annotations

import numba
import numpy as np

from dpconvex.engine.rows import Places
from dpconvex.smoothing.compiled_slopes import CompiledSlope, compiled_slope
from dpconvex.types import Array

__all__ = ["run_subgradient_steps"]


@numba.njit(cache=True)
def run_subgradient_steps(
    first: int, chosen: Places, rows: Array, targets: Array, weights: Array, loss: CompiledSlope, linear: Array,
    alpha: float, point: Array, average: Array,
) -> None:  # fmt: skip
    """Take one step per row of `chosen`, in place, the first of them being step ``first + 1``.

    As in :mod:`dpconvex.solvers.subgradient`: point and average move by the share ``2 / (t + 1)`` to the dual point of
    the batch, and to the point.
    """
    dim = point.size
    direction = np.empty(dim)
    for step in range(len(chosen)):
        share = 2.0 / (first + step + 2)
        direction[:] = 0.0
        for i in chosen[step]:
            margin = 0.0
            for j in range(dim):
                margin += rows[i, j] * point[j]
            slope = weights[i] * compiled_slope(loss, targets[i], margin)
            for j in range(dim):
                direction[j] += slope * rows[i, j]
        for j in range(dim):
            average[j] += share * (point[j] - average[j])
            whole = direction[j] / chosen.shape[1] + linear[j]
            point[j] -= share * (point[j] + whole / alpha)
