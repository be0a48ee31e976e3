"""Compiled loops of stochastic gradient methods, and the samplers of their batches.

Slopes are those of :mod:`dpconvex.smoothing.compiled_slopes`: one loop serves every loss.
"""

from __future__ import annotations

import numba
import numpy as np

from dpconvex.core.rows import RowIndices
from dpconvex.smoothing.compiled_slopes import CompiledSlope, compiled_slope
from dpconvex.types import Array

_FAST = {"reassoc", "contract"}


def draw_sgd_batches(
    generator: np.random.Generator,
    sampling: str,
    n_rows: int,
    batch_size: int,
    rate: float,
    steps: int,
) -> tuple[RowIndices, RowIndices]:
    """Draw the sizes of the next batches, and the random swaps that choose their members.

    A batch of size k is the first k entries of a permutation after swapping entry ``j`` with a
    uniform one of ``j, ..., n_rows - 1`` for j = 0, ..., k-1: a uniformly random set of k records
    whatever the permutation was. Sizes are `batch_size` for "fixed" and Binomial(n_rows, rate) for
    "poisson", which includes every record independently.
    """
    if sampling == "fixed":
        sizes = np.full(steps, batch_size, dtype=np.int64)
    elif sampling == "poisson":
        sizes = generator.binomial(n_rows, rate, size=steps).astype(np.int64)
    else:
        raise ValueError(
            f"A sampling scheme must be 'fixed' or 'poisson'. Got {sampling!r} instead."
        )
    ends = np.cumsum(sizes)
    position = np.arange(ends[-1]) - np.repeat(ends - sizes, sizes)
    return sizes, generator.integers(position, n_rows)


@numba.njit(cache=True)
def sgd_batch_members(permutation: RowIndices, sizes: RowIndices, swaps: RowIndices) -> RowIndices:
    """Return the members of all batches, one after the other; the permutation is swapped in
    place.
    """
    found = np.empty_like(swaps)
    start = 0
    for t in range(sizes.size):
        for j in range(sizes[t]):
            k = swaps[start + j]
            permutation[j], permutation[k] = permutation[k], permutation[j]
            found[start + j] = permutation[j]
        start += sizes[t]
    return found


@numba.njit(cache=True, fastmath=_FAST)
def run_single_sgd_loop(
    generator: np.random.Generator,
    chosen: RowIndices,
    rows: Array,
    targets: Array,
    weights: Array,
    loss: CompiledSlope,
    theta: Array,
    total: Array,
    rate: float,
    alpha: float,
    std: float,
) -> None:
    """Take one step of SGD per chosen record, in place; the iterates are added to `total`.

    Noise is drawn inside the loop: the processor draws ahead while a step waits for its slope.
    """
    dim = theta.size
    shrink = 1.0 - rate * alpha
    spread = -rate * std
    noise = np.empty(dim)
    for t in range(chosen.size):
        i = chosen[t]
        margin = 0.0
        for j in range(dim):
            margin += rows[i, j] * theta[j]
        multiple = -rate * weights[i] * compiled_slope(loss, targets[i], margin)
        for j in range(dim):
            noise[j] = spread * generator.standard_normal()
        for j in range(dim):
            value = shrink * theta[j] + (multiple * rows[i, j] + noise[j])
            theta[j] = value
            total[j] += value


@numba.njit(cache=True, fastmath=_FAST)
def run_batch_sgd_loop(
    generator: np.random.Generator,
    sizes: RowIndices,
    chosen: RowIndices,
    rows: Array,
    targets: Array,
    weights: Array,
    loss: CompiledSlope,
    theta: Array,
    total: Array,
    rate: float,
    alpha: float,
    std: float,
    divisor: float,
) -> None:
    """Run SGD: a step per batch of chosen records, in place; gradients are summed, noise added,
    the sum divided.
    """
    dim = theta.size
    gradient = np.empty(dim)
    start = 0
    for t in range(sizes.size):
        for j in range(dim):
            gradient[j] = std * generator.standard_normal()
        for k in range(start, start + sizes[t]):
            i = chosen[k]
            margin = 0.0
            for j in range(dim):
                margin += rows[i, j] * theta[j]
            multiple = weights[i] * compiled_slope(loss, targets[i], margin)
            for j in range(dim):
                gradient[j] += multiple * rows[i, j]
        start += sizes[t]
        for j in range(dim):
            value = theta[j] - rate * (gradient[j] / divisor + alpha * theta[j])
            theta[j] = value
            total[j] += value


@numba.njit(cache=True)
def run_one_pass_loop(
    order: RowIndices,
    rows: Array,
    targets: Array,
    weights: Array,
    loss: CompiledSlope,
    theta: Array,
    total: Array,
    rate: float,
    alpha: float,
) -> None:
    """Run a loop of one noiseless step per record of `order`, in place; the iterates are added
    to `total`.
    """
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
