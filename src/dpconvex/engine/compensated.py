"""Sums of rows that lose no digits, however many rows there are."""

from __future__ import annotations

import numpy as np

from dpconvex.types import Array

__all__ = ["CompensatedSum"]


class CompensatedSum:
    """``sum_i m_i x_i`` over blocks of rows, as an unevaluated sum of two vectors.

    Engines add what blocks return with ``+=``; here that keeps what an addition rounds away. A term
    passes through the rounding of its product and of the final result; all others together count
    less than one as long as no term passes through more than 2^25 additions.

    Parameters
    ----------
    multiples : array of shape (rows,)
        The m.
    block : array of shape (rows, dim)
        The x.
    """

    def __init__(self, multiples: Array, block: Array) -> None:
        from dpconvex.engine.mapping import combine_with_error

        self.total, self.error = np.zeros(block.shape[1]), np.zeros(block.shape[1])
        combine_with_error(np.ascontiguousarray(multiples, dtype=np.float64), block, self.total, self.error)

    def __iadd__(self, other: CompensatedSum) -> CompensatedSum:
        added = self.total + other.total
        back = added - self.total
        lost = (self.total - (added - back)) + (other.total - back)
        self.error = self.error + (lost + other.error)
        self.total = added
        return self

    @property
    def value(self) -> Array:
        """The sum, rounded once."""
        return np.asarray(self.total + self.error)
