"""What functions of a block of mapped rows may ask of it, whether it holds all zeros or none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from dpconvex.types import Array

__all__ = ["by_nonzeros", "moved_gram", "placed_rows", "row_margins", "row_squares", "takes_sparse", "weighted_gram"]

Function = TypeVar("Function", bound=Callable[..., Any])


class _Summed(Protocol):
    def gram(self, multiples: Array) -> Array: ...


def takes_sparse(function: Function) -> Function:
    """Mark a function of blocks that multiplies them with vectors, and else asks this module alone.

    Such a function is given the non-zeros of sparse rows (`dpconvex.engine.sparse_blocks.SparseBlock`); others are
    given blocks of those rows with all their zeros.
    """
    function.takes_sparse = True  # type: ignore[attr-defined]
    return function


def by_nonzeros(how: Callable[[Any], Any]) -> Callable[[Function], Function]:
    """Say how sparse rows as a whole give what a function of blocks sums to: ``how(rows)``."""

    def mark(function: Function) -> Function:
        function.by_nonzeros = how  # type: ignore[attr-defined]
        return function

    return mark


def row_margins(block: Array, theta: Array) -> Array:
    """Return ``block @ theta``; what a row gives depends on that row alone, to its last digit."""
    from dpconvex.engine.mapping import row_products

    margins = np.empty(len(block))
    row_products(_contiguous(block), _contiguous(theta), margins)
    return margins


def row_squares(block: Array) -> Array:
    """Return the squared length of every row; it depends on that row alone, to its last digit."""
    from dpconvex.engine import mapping

    squares = np.empty(len(block))
    mapping.row_squares(_contiguous(block), 0, squares)
    return squares


def placed_rows(block: Array, columns: Array, out: Array | None = None) -> Array:
    """Return ``block @ columns``; what a row gives depends on that row alone, to its last digit."""
    from dpconvex.engine.mapping import place_rows

    placed = np.empty((len(block), columns.shape[1])) if out is None else out
    place_rows(_contiguous(block), _contiguous(columns), placed)
    return placed


def _contiguous(array: Array) -> Array:
    """Return an array of the one type that kernels are compiled for; copied only if it is of another."""
    return np.ascontiguousarray(array, dtype=np.float64)


def weighted_gram(block: Array | _Summed, multiples: Array) -> Array:
    """Return ``sum_i m_i x_i x_i^T`` of multiples that are not negative."""
    if not isinstance(block, np.ndarray):
        return block.gram(multiples)
    half = block * np.sqrt(multiples)[:, None]
    return np.asarray(half.T @ half)


def moved_gram(block: Array, multiples: Array, steps: Array, direction: Array) -> Array:
    """Return ``sum_i m_i v_i v_i^T`` of moved rows ``v_i = x_i + steps_i direction``."""
    pushed = np.outer(np.asarray((multiples * steps) @ block), direction)
    rest = float(multiples @ steps**2) * np.outer(direction, direction)
    return weighted_gram(block, multiples) + (pushed + pushed.T) + rest
