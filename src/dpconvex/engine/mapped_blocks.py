"""Blocks of mapped rows, made of raw rows by a compiled kernel."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.engine.memory import MemoryRows

__all__ = ["Block", "map_blocks"]

#: Mapped rows, their targets and their weights.
Block = tuple[Array, Array, Array]


def map_blocks(rows: MemoryRows, first: int, last: int, buffer: Array | None = None) -> Iterator[Block]:
    """Yield blocks of mapped rows, one after the other in this buffer, or each in an array of its own."""
    from dpconvex.engine.mapping import map_stretches

    row_map, numbers = rows.row_map, rows.numbers
    starts, _, per_block = rows.layout()
    lead, shorten = int(row_map.fit_intercept), row_map.influence == "shorten"
    row_norm = row_map.row_norm if shorten or numbers.weights is None else math.inf
    for index in range(first, last):
        start = index * rows.block_rows
        block = slice(start, min(start + rows.block_rows, rows.n_rows))
        count, size = block.stop - start, (block.stop - start) * rows.dim
        place_for = np.empty(size + count) if buffer is None else buffer
        part, influence = place_for[:size].reshape(count, rows.dim), place_for[size : size + count]
        map_stretches(
            rows.source, starts[index * per_block : (index + 1) * per_block],
            rows.block_rows // per_block, *rows.columns, lead, row_norm, shorten, rows.by_columns,
            part, influence,
        )  # fmt: skip
        if numbers.void is not None:
            void = numbers.void[block]
            part[void, lead:] = 0.0
            influence = np.where(void, 0.0, influence)
        if numbers.weights is not None:
            influence = numbers.influence(block)
        yield part, numbers.targets[block], influence
