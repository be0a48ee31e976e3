"""Compiled loops of the logistic pair sums: moments per cell, interaction of near cells,
evaluation.

A cell is a unit interval ``[k, k + 1)`` of scores. A score in it has the local coordinate
``x = 2 (s - k) - 1``, which floating-point arithmetic computes without error.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from dpconvex.core.rows import RowIndices
from dpconvex.types import Array

_compile = numba.njit(cache=True, nogil=True)


@_compile
def compiled_pair_moments(
    scores: Array, floors: Array, cells: RowIndices, nodes: int, flush: int
) -> Array:
    """Return ``sum_j T_k(x_j)`` per cell for k below ``nodes``.

    Partial sums are added to the totals every ``flush`` scores, so that no term passes through more
    than ``flush + scores.size / flush`` roundings.
    """
    total = np.zeros((cells.max() + 1, nodes))
    part = np.zeros_like(total)
    for j in range(scores.size):
        x = 2.0 * (scores[j] - floors[j]) - 1.0
        row = part[cells[j]]
        before = 1.0
        now = x
        row[0] += 1.0
        for k in range(1, nodes):
            row[k] += now
            before, now = now, 2.0 * x * now - before
        if (j + 1) % flush == 0:
            total += part
            part[:] = 0.0
    return total + part


@_compile
def compiled_near_pairs(
    weights: Array, source_floors: Array, target_floors: Array, blocks: Array
) -> Array:
    """Return sums at the targets' nodes over all source cells within reach,
    ``blocks[target - source + reach]``.
    """
    reach = blocks.shape[0] // 2
    nodes = blocks.shape[1]
    values = np.zeros((target_floors.size, nodes))
    first = 0
    for c in range(target_floors.size):
        while first < source_floors.size and source_floors[first] < target_floors[c] - reach:
            first += 1
        s = first
        while s < source_floors.size and source_floors[s] <= target_floors[c] + reach:
            block = blocks[int(target_floors[c] - source_floors[s]) + reach]
            for q in range(nodes):
                total = 0.0
                for r in range(nodes):
                    total += block[q, r] * weights[s, r]
                values[c, q] += total
            s += 1
    return values


@_compile
def compiled_pair_cells(
    scores: Array, floors: Array, cells: RowIndices, coefficients: Array
) -> Array:
    """Return ``sum_k coefficients[cell, k] T_k(x)`` for every score, by Clenshaw's recurrence."""
    out = np.empty(scores.size)
    nodes = coefficients.shape[1]
    for i in range(scores.size):
        x = 2.0 * (scores[i] - floors[i]) - 1.0
        row = coefficients[cells[i]]
        ahead = 0.0
        now = 0.0
        for k in range(nodes - 1, 0, -1):
            ahead, now = now, 2.0 * x * now - ahead + row[k]
        out[i] = x * now - ahead + row[0]
    return out


@_compile
def compiled_exponential_pairs(positions: Array, masses: Array) -> Array:
    """Return ``Q_k = sum_{j >= k} masses_j exp(positions_k - positions_j)`` for increasing
    positions.
    """
    suffix = masses.copy()
    for k in range(positions.size - 2, -1, -1):
        suffix[k] += math.exp(positions[k] - positions[k + 1]) * suffix[k + 1]
    return suffix


@_compile
def compiled_direct_pairs(
    targets: Array, sources: Array, low: RowIndices, high: RowIndices, with_value: bool
) -> Array:
    """Return sums over ``sources[low_i : high_i]`` of the sigmoid or the softplus of
    ``target - source``.

    A thousand terms are added up before they enter the total, so that no term passes through many
    roundings.
    """
    out = np.empty(targets.size)
    for i in range(targets.size):
        total = 0.0
        finished = 0.0
        for j in range(low[i], high[i]):
            if j & 1023 == 0:
                finished += total
                total = 0.0
            t = targets[i] - sources[j]
            small = math.exp(-abs(t))
            if with_value:
                total += max(t, 0.0) + math.log1p(small)
            elif t >= 0:
                total += 1.0 / (1.0 + small)
            else:
                total += small / (1.0 + small)
        out[i] = finished + total
    return out
