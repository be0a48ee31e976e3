"""One pass of gradient steps over records, without noise: what a phase of :class:`PhasedSGD` releases the mean of."""

from __future__ import annotations

import numba
import numpy as np

from dpconvex.engine.memory import MemoryRows
from dpconvex.engine.rows import Places
from dpconvex.engine.summation_order import block_rows
from dpconvex.losses.interface import Loss
from dpconvex.smoothing.compiled_slopes import CompiledSlope, compile_slope, compiled_slope
from dpconvex.types import Array

__all__ = ["mean_of_pass", "run_one_sgd_pass"]


def mean_of_pass(
    rows: MemoryRows,
    loss: Loss,
    chosen: Places,
    start: Array,
    step: float,
    alpha: float,
    generator: np.random.Generator,
) -> Array:
    """Return the mean of the iterates of one step per chosen record, in their order: private.

    Of a person's rows a random one takes its step, whatever they hold.
    """
    theta, total = start.copy(), np.zeros_like(start)
    compiled = compile_slope(loss)
    few = block_rows(start.size)  # at a time: mapped rows may have far more numbers than given ones
    for first in range(0, chosen.size, few):
        records = rows.one_row_each(chosen[first : first + few], generator).mapped()
        if compiled is not None:
            order = np.arange(len(records[1]))
            run_one_sgd_pass(order, *records, compiled, theta, total, step, alpha)
            continue
        for row, target, weight in zip(*records, strict=True):
            # A loss of the user's own: the same steps, not compiled.
            slope = float(loss.gradient(target, row @ theta))
            theta = theta - step * (weight * slope * row + alpha * theta)
            total += theta
    return total / chosen.size


@numba.njit(cache=True)
def run_one_sgd_pass(
    order: Places, rows: Array, targets: Array, weights: Array, loss: CompiledSlope, theta: Array, total: Array,
    rate: float, alpha: float,
) -> None:  # fmt: skip
    """Take one noiseless step per record of `order`, in place; the iterates are added to `total`."""
    dim = theta.size
    for t in range(order.size):
        i = order[t]
        margin = 0.0
        for j in range(dim):
            margin += rows[i, j] * theta[j]
        multiple = weights[i] * compiled_slope(loss, targets[i], margin)
        for j in range(dim):
            theta[j] -= rate * (multiple * rows[i, j] + alpha * theta[j])
            total[j] += theta[j]
