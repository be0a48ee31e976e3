"""Products and sums of a block of mapped rows, dense or by its non-zeros.

What `block_margins`, `block_row_squares` and `transform_block` give for a row depends on that row
alone, to its last digit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from dpconvex.types import Array

Function = TypeVar("Function", bound=Callable[..., Any])


def takes_sparse_blocks(function: Function) -> Function:
    """Mark a function of blocks that multiplies them with vectors, and else asks this module alone.

    Such a function is given the non-zeros of sparse rows
    (`dpconvex.engine.sparse_rows.SparseBlock`); others are given blocks of those rows with all
    their zeros.
    """
    function.takes_sparse = True  # type: ignore[attr-defined]
    return function


def block_by_nonzeros(function: Function, how: Callable[[Any], Any]) -> Function:
    """Say how sparse rows as a whole give what a function of blocks sums to: ``how(rows)``."""
    function.by_nonzeros = how  # type: ignore[attr-defined]
    return function


def block_margins(block: Array, theta: Array) -> Array:
    """Return ``block @ theta``, row by row; theta may have several columns."""
    from dpconvex.core.dense_kernels import dense_vector_products

    if theta.ndim == 2:
        return transform_block(block, theta)
    margins = np.empty(len(block))
    dense_vector_products(_contiguous(block), _contiguous(theta), margins)
    return margins


def block_row_squares(block: Array) -> Array:
    """Return the squared length of every row."""
    from dpconvex.core.dense_kernels import dense_squared_norms

    squares = np.empty(len(block))
    dense_squared_norms(_contiguous(block), 0, squares)
    return squares


def transform_block(block: Array, columns: Array, out: Array | None = None) -> Array:
    """Return ``block @ columns``, row by row."""
    from dpconvex.core.dense_kernels import dense_matrix_products

    transformed = np.empty((len(block), columns.shape[1])) if out is None else out
    dense_matrix_products(_contiguous(block), _contiguous(columns), transformed)
    return transformed


def limit_slopes(slopes: Array, largest: float, weights: Array, clip: bool) -> Array:
    """Return slopes times weights, limited to `largest` before, or with `clip` slopes limited to
    weights times it.
    """
    from dpconvex.core.dense_kernels import limited_products

    limited = np.empty(len(slopes))
    limited_products(_contiguous(slopes), largest, _contiguous(weights), clip, limited)
    return limited


def _contiguous(array: Array) -> Array:
    """Return an array of the one type that kernels are compiled for; copied only if it is of
    another.
    """
    return np.ascontiguousarray(array, dtype=np.float64)


def block_gram(block: Any, multiples: Array) -> Array:
    """Return ``sum_i m_i x_i x_i^T`` of multiples that are not negative."""
    if not isinstance(block, np.ndarray):
        return np.asarray(block.gram(multiples))
    half = block * np.sqrt(multiples)[:, None]
    return np.asarray(half.T @ half)


def moved_block_gram(block: Array, multiples: Array, steps: Array, direction: Array) -> Array:
    """Return ``sum_i m_i v_i v_i^T`` of moved rows ``v_i = x_i + steps_i direction``."""
    pushed = np.outer(np.asarray((multiples * steps) @ block), direction)
    rest = float(multiples @ steps**2) * np.outer(direction, direction)
    return block_gram(block, multiples) + (pushed + pushed.T) + rest
