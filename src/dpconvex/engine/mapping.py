"""Compiled kernel that maps raw rows into a cache-sized block.

Imported lazily by the engines, because importing numba takes half a second.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

__all__ = ["map_block"]


# Reassociation lets the squared norm be summed in vector lanes. Comparisons keep their meaning
# for NaN (no "nnan"): a missing value falls on the lower bound instead of spreading.
@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract"})
def map_block(
    raw: Any,
    start: int,
    low: Any,
    high: Any,
    shift: Any,
    scale: Any,
    clip: bool,
    lead: int,
    row_norm: float,
    shorten: bool,
    by_columns: bool,
    out: Any,
    weights: Any,
) -> None:
    """Map rows ``start, start + 1, ...`` of `raw` into `out` and their influence into `weights`.

    ``out[i, lead:] = (clip(raw[start + i], low, high) - shift) * scale``; with ``lead = 1`` the
    first column is the constant 1. ``weights[i] = min(1, row_norm / ||x_i||)`` with the norm
    rounded up, so that the bound holds in exact arithmetic as well.
    """
    rows = out.shape[0]
    columns = raw.shape[1]
    # The computed norm has relative error below (columns + 4) ulp; rounding it up keeps the
    # influence bound on the safe side.
    round_up = 1.0 + (columns + 4) * 2.3e-16
    if by_columns:
        for i in range(rows):
            weights[i] = 0.0
        for j in range(columns):
            for i in range(rows):
                value = np.float64(raw[start + i, j])
                if clip:
                    value = value if value > low[j] else low[j]
                    value = value if value < high[j] else high[j]
                value = (value - shift[j]) * scale[j]
                out[i, j + lead] = value
                weights[i] += value * value
    else:
        for i in range(rows):
            square = 0.0
            if clip:
                for j in range(columns):
                    value = np.float64(raw[start + i, j])
                    value = value if value > low[j] else low[j]
                    value = value if value < high[j] else high[j]
                    value = (value - shift[j]) * scale[j]
                    out[i, j + lead] = value
                    square += value * value
            else:
                for j in range(columns):
                    value = (np.float64(raw[start + i, j]) - shift[j]) * scale[j]
                    out[i, j + lead] = value
                    square += value * value
            weights[i] = square
    for i in range(rows):
        square = weights[i]
        if lead == 1:
            out[i, 0] = 1.0
        if square < 1e300:
            norm = math.sqrt(square)
        else:  # the square overflowed: divide by the largest entry first
            largest = 0.0
            for j in range(columns):
                largest = max(largest, abs(out[i, j + lead]))
            square = 0.0
            for j in range(columns):
                square += (out[i, j + lead] / largest) ** 2
            norm = largest * math.sqrt(square)
        norm *= round_up
        weights[i] = 1.0
        if norm > row_norm:
            factor = row_norm / norm
            if shorten:
                for j in range(columns):
                    out[i, j + lead] *= factor
            else:
                weights[i] = factor
