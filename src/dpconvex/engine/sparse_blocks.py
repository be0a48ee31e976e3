"""Blocks of sparse rows: products with vectors, by non-zeros."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpconvex.engine import passes
from dpconvex.engine.accurate_products import exact_products, exact_sums
from dpconvex.engine.rows import Places
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.engine.sparse import SparseRows

__all__ = ["Margins", "RowSum", "SparseBlock"]


class SparseBlock:
    """Some mapped rows: what ``block @ theta``, ``multiples @ block`` and `dpconvex.engine.blocks` need of a block."""

    __array_ufunc__ = None  # numpy leaves products with arrays to this class

    def __init__(self, rows: SparseRows, places: Places, factors: Array) -> None:
        self.rows, self.places, self.factors = rows, places, factors
        self.shape = (places.size, rows.dim)

    def __len__(self) -> int:
        return self.shape[0]

    def __matmul__(self, theta: Array) -> Array:
        return Margins(self.rows, theta)(self)

    def __rmatmul__(self, multiples: Array) -> Array:
        total = RowSum(self.rows)
        total.add(self, multiples)
        return total.value

    def gram(self, multiples: Array) -> Array:
        """Return ``sum_i multiples_i x~_i x~_i^T``."""
        from dpconvex.engine.nonzero_pairs import gram_nonzeros

        rows = self.rows
        base, lead, width = rows.base, int(rows.row_map.fit_intercept), rows.row_map.n_features
        total = np.zeros((width + 2, width + 2))
        gram_nonzeros(
            *rows.nonzeros.parts, self.places, *rows._limits, rows.columns[3], self.factors,
            np.ascontiguousarray(multiples, dtype=np.float64), total,
        )  # fmt: skip
        total += np.tril(total, -1).T
        found = np.empty((rows.dim, rows.dim))
        found[lead:, lead:] = total[2:, 2:]
        if lead:
            found[0, 0], found[0, 1:] = total[0, 0], total[0, 2:]
        if base.size:
            found[lead:, lead:] += np.outer(base, total[1, 2:]) + np.outer(total[1, 2:], base)
            found[lead:, lead:] += total[1, 1] * np.outer(base, base)
            if lead:
                found[0, 1:] += total[0, 1] * base
        if lead:
            found[1:, 0] = found[0, 1:]
        return found


class Margins:
    """Margins at one point."""

    def __init__(self, rows: SparseRows, theta: Array) -> None:
        self.rows = rows
        self.constant, slopes = passes.split_intercept(rows, np.asarray(theta, dtype=np.float64))
        self.scaled = slopes * rows.columns[3]
        self.start = (False, 0.0, 0.0)
        if rows.base.size:
            products, errors = exact_products(rows.base, slopes)
            terms = np.concatenate([products, errors]).tolist()
            total = math.fsum(terms)
            self.start = (True, total, math.fsum([*terms, -total]))

    def __call__(self, block: SparseBlock) -> Array:
        """Return the margins of a block."""
        from dpconvex.engine.nonzeros import margins_of_nonzeros, shifted_margins

        rows, found = self.rows, np.empty(len(block))
        first = (*rows.nonzeros.parts, block.places, *rows._limits, self.scaled)
        if self.start[0]:
            shifted_margins(*first, *self.start[1:], found)
        else:
            margins_of_nonzeros(*first, rows._plain, found)
        if block.factors.size:
            found *= block.factors
        found += self.constant
        return found


class RowSum:
    """``sum_i m_i x~_i`` while it is added up, as unevaluated sums of two numbers each."""

    def __init__(self, rows: SparseRows) -> None:
        self.rows = rows
        width = rows.row_map.n_features
        self.totals, self.errors, self.sums = np.zeros(width), np.zeros(width), np.zeros(4)

    def add(self, block: SparseBlock, multiples: Array) -> None:
        """Add multiples of a block's rows."""
        from dpconvex.engine.nonzeros import add_numbers, combine_nonzeros

        rows = self.rows
        multiples = np.ascontiguousarray(multiples, dtype=np.float64)
        add_numbers(multiples, self.sums, 0)
        if block.factors.size:
            multiples = multiples * block.factors
        add_numbers(multiples, self.sums, 2)
        combine_nonzeros(
            *rows.nonzeros.parts, block.places, *rows._limits, rows._plain, multiples,
            self.totals, self.errors,
        )  # fmt: skip

    @property
    def value(self) -> Array:
        """The sum: what base and stored values give is added before it is rounded, since it may cancel."""
        rows = self.rows
        scale, base, lead = rows.columns[3], rows.base, int(rows.row_map.fit_intercept)
        out = np.empty(rows.dim)
        if lead:
            out[0] = self.sums[0] + self.sums[1]
        if not base.size:
            out[lead:] = (self.totals + self.errors) * scale
            return out
        own, own_lost = exact_products(self.totals, scale)
        common, common_lost = exact_products(np.full(base.size, self.sums[2]), base)
        added, lost = exact_sums(own, common)
        lost += own_lost + common_lost + (self.errors * scale + self.sums[3] * base)
        out[lead:] = added + lost
        return out
