"""Sums over rows of which only the non-zeros are stored: nothing is centred, whitened or filled
with zeros as a whole.

What most of a fit's time goes into (margins, gradients, lengths, moments, Hessians) is computed by
non-zeros. Functions that were written for blocks of mapped rows get such blocks, a megabyte at a
time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from dpconvex.core.memory_rows import (
    KeptBlocks,
    MemoryRows,
    floats_in_memory,
    writable_memory_view,
)
from dpconvex.core.row_weights import RowWeights
from dpconvex.core.rows import Partial, RowFunction, RowIndices, RowMap, Sums, WeightedRowFunction
from dpconvex.core.summation import pairwise_summation, spans
from dpconvex.core.threads import in_threads
from dpconvex.engine.sparse_moments import (
    MomentSums,
    affine_moment_map,
    exact_moment_products,
    exact_moment_sums,
)
from dpconvex.types import Array

_NOTHING = np.empty(0)
_ROUNDINGS = 5, 64  # of a quadratic form: per column, and besides
_PIECE = 16  # blocks at a time, where rows are needed with all their zeros
_RUNS = 16  # sums of vectors that are added
_MANY_ROWS = 4096  # at a time where nothing but multiples of rows is summed, which loses nothing
# sums of matrices: how many are added, and of how many columns at most
_PARTS = 8
_WIDE = 1000


@dataclass(frozen=True, eq=False)
class NonZeroRows:
    """Rows by their non-zeros, sorted by column, every column once."""

    indptr: RowIndices  # where each row begins among the values
    columns: npt.NDArray[np.uint32]
    values: npt.NDArray[Any]  # float32 or float64
    shape: tuple[int, int]
    ndim = 2

    @classmethod
    def of(cls, X: Any) -> NonZeroRows:
        """Return the non-zeros of a sparse matrix of scipy in any format; of canonical CSR
        nothing is copied.
        """
        if isinstance(X, NonZeroRows):
            return X
        from dpconvex.engine.sparse_kernels import is_canonical_sparse

        found = X if getattr(X, "format", None) == "csr" else X.tocsr()
        # Flags of a matrix may say what is not so, and kernels that followed a column beyond the
        # last one would read, and write, what is none of theirs.
        if not is_canonical_sparse(found.indptr, found.indices, found.data.size, found.shape[1]):
            found = found.copy()
            found.check_format(full_check=True)
            found.has_canonical_format = False
            found.sum_duplicates()
        values = floats_in_memory(found.data)
        indptr, columns, values = (
            writable_memory_view(np.ascontiguousarray(array, dtype=dtype))
            for array, dtype in (
                (found.indptr, np.int64),
                (found.indices, np.int32),
                (values, values.dtype),
            )
        )
        return cls(
            indptr, columns.view(np.uint32), values, (int(found.shape[0]), int(found.shape[1]))
        )

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.indptr.nbytes + self.columns.nbytes + self.values.nbytes

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the values."""
        return self.values.dtype

    @property
    def parts(self) -> tuple[RowIndices, npt.NDArray[np.uint32], npt.NDArray[Any]]:
        """The three arrays, as kernels take them."""
        return self.indptr, self.columns, self.values

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, indices: npt.NDArray[np.integer[Any]]) -> NonZeroRows:
        counts = np.diff(self.indptr)[indices]
        indptr = np.concatenate([[0], np.cumsum(counts)])
        chosen = np.repeat(self.indptr[:-1][indices] - indptr[:-1], counts) + np.arange(indptr[-1])
        return NonZeroRows(
            indptr, self.columns[chosen], self.values[chosen], (len(counts), self.shape[1])
        )

    def finite_rows(self) -> npt.NDArray[np.bool_]:
        """Return which rows hold finite numbers only."""
        wrong = np.flatnonzero(~np.isfinite(self.values))
        valid = np.ones(self.shape[0], dtype=np.bool_)
        valid[np.searchsorted(self.indptr, wrong, side="right") - 1] = False
        return valid

    def to_scipy(self) -> csr_array:
        """Return the same as an array of scipy."""
        return csr_array((self.values, self.columns.view(np.int32), self.indptr), shape=self.shape)


def stack_sparse_rows(parts: Sequence[Any]) -> Any:
    """Return arrays of rows one below the other; non-zeros, if any of them are."""
    if not any(isinstance(part, NonZeroRows) for part in parts):
        return np.concatenate(parts)
    parts = [
        part if isinstance(part, NonZeroRows) else NonZeroRows.of(csr_array(part)) for part in parts
    ]
    counts = np.concatenate([np.diff(part.indptr) for part in parts])
    columns, values = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("columns", "values")
    )
    return NonZeroRows(
        np.concatenate([[0], np.cumsum(counts)]), columns, values, (len(counts), parts[0].shape[1])
    )


def rows_in_memory(X: Any, *arguments: Any, **options: Any) -> MemoryRows:
    """Return `SparseRows` of non-zeros and `MemoryRows` of anything else."""
    kind = SparseRows if issparse(X) or isinstance(X, NonZeroRows) else MemoryRows
    return kind(X, *arguments, **options)


def refuse_sparse_row_weights() -> NoReturn:
    """Raise what is raised wherever rows of a person, or weights, meet non-zeros."""
    # Sums by non-zeros would count each row of a person in full, which no certificate of people
    # allows.
    raise TypeError(
        "Sparse rows are records of their own: people with several rows, and weights of rows, "
        "need dense ones. Use X.toarray()."
    )


class SparseRows(MemoryRows):
    r"""Rows in memory by their non-zeros, with all passes of `MemoryRows`.

    A mapped row is ``x = f (base + d)`` with ``d`` where a value is stored, ``base`` what the map
    makes of zeros and f the factor that shortens it. A function given to `sum_weighted` may have
    ``by_nonzeros``, which is then called with these rows; given to `sum`, ``takes_sparse``, if it
    works on a `SparseBlock`. Others get blocks with all zeros. X may be of any sparse format;
    entries of one row and column are added up.

    Privacy: sums of multiples of rows err less than those of `MemoryRows`. What a record
    contributes, ``m f base_j + fl(m f c_j) scale_j``, is computed from the record alone, and what
    additions lose is kept, so that a sum errs by the roundings of its result and of at most 12
    additions of parts, whatever the number of rows. Lengths are bounds from above of the exact
    ones.
    """

    _raw: NonZeroRows  # type: ignore[assignment]

    def __init__(
        self, X: Any, y: npt.ArrayLike, row_map: RowMap, *more: Any, **options: Any
    ) -> None:
        super().__init__(X, y, row_map, *more, **options)
        if self.has_row_weights:
            refuse_sparse_row_weights()
        low, high, shift, scale = self.bounds_and_scales
        zero = np.clip(0.0, low, high)
        base = (zero - shift) * scale
        #: What the map makes of zeros; empty if that is zero in all columns.
        self.base = base if base.any() else _NOTHING
        self.offsets = self._sparse_offsets(zero)
        shorten = row_map.influence == "shorten"
        # Where the bounds alone keep rows short, norms need not be computed.
        short = row_map.max_norm * (1 + 1e-12) <= row_map.row_norm
        factors = None if short or (self.own_weights and not shorten) else self._norm_factors()
        #: By what rows are shortened, and their influence weights by the row map; None stands for
        #: ones.
        self._shortening: Array | None = factors if shorten else None
        self._map_weights: Array | None = None if shorten else factors

    def _as_raw(self, X: Any, cache: bool) -> Any:
        return NonZeroRows.of(X)

    def _sparse_offsets(self, zero: Array) -> tuple[RowIndices, npt.NDArray[np.uint32], Array]:
        """Return the sparse rows with ``clip(value) - clip(0)`` in place of values, always
        float64.
        """
        # Another type would be another compiled kernel: it must not follow from whether some record
        # is clipped.
        from dpconvex.engine.sparse_kernels import sparse_offset_kernel

        indptr, columns, values = self._raw.parts
        limits = (*self.bounds_and_scales[:2], zero)
        offsets = np.empty(values.size)

        def fill(span: tuple[int, int]) -> None:
            part = slice(*span)
            sparse_offset_kernel(columns[part], values[part], *limits, offsets[part])

        list(in_threads(fill, spans(values.size, _RUNS), self.threads))
        same = values.dtype == np.float64 and np.array_equal(offsets, values)
        return (
            indptr,
            columns,
            values if same else offsets,
        )  # one copy in memory where that is enough

    def _norm_factors(self) -> Array:
        """Return ``min(1, row_norm / ||x_i||)`` of all sparse rows."""
        from dpconvex.engine.sparse_kernels import sparse_shortening_kernel

        scale = self.bounds_and_scales[3]
        norm = self.row_map.row_norm
        square = float(self.base @ self.base) * (1 + self.base.size * 2.3e-16)

        def shorten(rows: slice, factors: Array) -> None:
            sparse_shortening_kernel(
                *self.offsets, self._indices_of(rows), scale, self.base, square, norm, factors
            )

        return self._by_row(shorten)

    def _by_row(self, fill: Callable[[slice, Array], None]) -> Array:
        """Return a number for each row, which ``fill(rows, numbers)`` writes in worker threads."""
        found = np.empty(self.n_rows)

        def run(span: tuple[int, int]) -> Partial:
            rows = self._span(span)
            fill(rows, found[rows])
            return []

        self.sum_runs(run)
        return found

    def _divide(self, most_cached: int, partly: bool = False) -> None:
        super()._divide(0)
        # zeros are not worth being cached
        self.small = False
        self._kept = KeptBlocks(0, 0)

    @property
    def weights(self) -> Array:
        """The influence weights of all rows."""
        return self._weights_of(slice(None)) if self._given_weights is None else self._given_weights

    def _weights_of(self, rows: slice) -> Array:
        """Return the influence weights of some rows, 0 for ignored ones."""
        return self._without_ignored(
            self._given_weights if self.own_weights else self._map_weights, rows
        )

    def _factors_of(self, rows: slice) -> Array:
        """Return by what rows are shortened, 0 for ignored ones; empty stands for ones."""
        if self._shortening is None and self.ignored is None:
            return _NOTHING
        return self._without_ignored(self._shortening, rows)

    def _map_rows(self, rows: slice, buffer: Array | None = None) -> tuple[Array, Array]:
        from dpconvex.engine.sparse_kernels import fill_sparse_kernel

        count = rows.stop - rows.start
        lead = int(self.row_map.fit_intercept)
        buffer = np.empty(count * self.dim) if buffer is None else buffer
        block = buffer[: count * self.dim].reshape(count, self.dim)
        columns = (*self.bounds_and_scales, self.base)
        fill_sparse_kernel(
            *self._raw.parts, self._indices_of(rows), *columns, self._factors_of(rows), lead, block
        )
        return block, self._without_ignored(self._map_weights, rows)

    def sum_runs(self, run: Callable[[tuple[int, int]], Partial], most: int = _RUNS) -> Sums:
        """Add ``run((first, last))``, lists of sums over these blocks, at most so many, in
        worker threads.
        """
        return super().sum_runs(run, most)

    def _sum_matrices(self, run: Callable[[tuple[int, int]], Partial]) -> Sums:
        """Add ``run((first, last))`` as `sum_runs` does, in few parts: what is added is large."""
        return self.sum_runs(run, _PARTS if self.dim <= _WIDE else 2)

    def _block(self, rows: slice) -> SparseBlock:
        return SparseBlock(self, self._indices_of(rows), self._factors_of(rows))

    def sum(self, function: RowFunction) -> Sums:
        """Add ``function(block, y, w)`` over all blocks of sparse rows; see the class for what a
        block is.
        """
        if not getattr(function, "takes_sparse", False):
            return super().sum(function)

        def parts(span: tuple[int, int]) -> Iterator[Sums]:
            for index in range(*span):
                rows = self._span((index, index + 1))
                block: Any = self._block(rows)
                yield function(block, self.targets[rows], self._weights_of(rows))

        return self.sum_runs(lambda span: pairwise_summation(parts(span)))

    def sum_weighted(self, function: WeightedRowFunction) -> Sums:
        """Add ``function(block, y, w, v)`` over all blocks of sparse rows, or take
        ``function.by_nonzeros(rows)``.
        """
        by_nonzeros = getattr(function, "by_nonzeros", None)
        return super().sum_weighted(function) if by_nonzeros is None else tuple(by_nonzeros(self))

    def combine(self, theta: Array, function: RowFunction) -> Sums:
        """Add ``m_i x~_i`` over all sparse rows, the multiples m of the margins, as
        `MemoryRows.combine` does.
        """
        margins = [SparseRowMargins(self, column) for column in np.atleast_2d(theta.T)]

        def combine_sparse_span(span: tuple[int, int]) -> Partial:
            totals: list[SparseRowSum] = []
            size = self.block_rows
            extras: list[Partial] = []
            rows = self._span((span[0], span[0] + 1))
            stop = self._span(span).stop
            while rows.start < stop or not extras:  # no rows are one empty block
                block = self._block(rows)
                found = np.stack([each(block) for each in margins], axis=-1)
                found = found[:, 0] if theta.ndim == 1 else found
                multiples, *extra = function(self.targets[rows], found, self._weights_of(rows))
                columns = np.atleast_2d(multiples.T)
                totals = totals or [SparseRowSum(self) for _ in columns]
                for total, column in zip(totals, columns, strict=True):
                    total.add(block, column)
                extras.append(extra)
                size = size if extra else max(size, _MANY_ROWS)
                rows = slice(rows.stop, min(rows.stop + size, stop))
            values = np.array([total.value for total in totals])
            return [values[0] if multiples.ndim == 1 else values, *pairwise_summation(extras)]

        return self.sum_runs(combine_sparse_span)

    def reweighted(self, function: Callable[[Array, Array], Array]) -> Self:
        """Return the same rows with other weights: ``function(block, w)``, or
        ``function.by_nonzeros(rows)``.
        """
        by_nonzeros = getattr(function, "by_nonzeros", None)
        return (
            super().reweighted(function)
            if by_nonzeros is None
            else self.with_weights(by_nonzeros(self))
        )

    def predicted(self, theta: Array) -> Self:
        """Return the same sparse rows with their margins ``x~_i . theta`` in place of weights."""
        margins = SparseRowMargins(self, theta)

        def predict(rows: slice, found: Array) -> None:
            found[:] = margins(self._block(rows))

        return self.with_weights(self._by_row(predict))

    def chosen(self, indices: npt.NDArray[np.integer[Any]]) -> Self:
        """Return these rows."""
        return self.take(indices)

    def _memory_rows_in_place(self, indices: RowIndices) -> Self:
        other = super()._memory_rows_in_place(indices)
        numbers = (self._shortening, self._map_weights)
        other._shortening, other._map_weights = (n if n is None else n[indices] for n in numbers)
        return other

    def with_row_weights(self, row_weights: RowWeights) -> Self:
        """Refuse: sparse rows are records of their own."""
        refuse_sparse_row_weights()

    def each(self, call: Any) -> Iterator[tuple[Any, ...]]:
        """Yield ``call(rows)`` of `pieces`, or of each its own call from a sequence of them."""
        calls = itertools.repeat(call) if callable(call) else call
        for piece, one in zip(self.pieces(), calls, strict=False):
            yield tuple(one(piece))

    def pieces(self) -> Iterator[Self]:
        """Yield parts of rows one after the other, whose mapped form is no larger than a few
        blocks.
        """
        size = _PIECE * self.block_rows
        for start in range(0, max(1, self.n_rows), size):
            yield self.take(np.arange(start, min(start + size, self.n_rows)))

    # For private geometry.

    def _require_weights(self) -> None:
        """Raise unless long rows count less, and stay as long as they are: geometry knows no
        factors but 0 and 1.
        """
        if self.row_map.influence == "shorten":
            raise ValueError(
                "Geometry by non-zeros needs rows that are weighted. Got a map that shortens "
                "them instead. Use RowMap.weighted()."
            )

    def octave_counts(self, bins: int, max_octave: int) -> Array:
        """Return how many values of each sparse column lie in each octave, as
        `dense_kernels.count_dense_octaves`.
        """
        from dpconvex.core.dense_kernels import count_dense_octaves
        from dpconvex.engine.sparse_kernels import sparse_octave_kernel

        self._require_weights()
        width = self.row_map.n_features

        def run(span: tuple[int, int]) -> Partial:
            rows = self._span(span)
            counts = np.zeros((width, bins))
            indices = self._indices_of(rows)
            factors = self._factors_of(rows)
            sparse_octave_kernel(
                *self._raw.parts, indices, *self.bounds_and_scales, factors, max_octave, counts
            )
            return [counts]

        (counts,) = self._sum_matrices(run)
        ignored = 0 if self.ignored is None else int(np.count_nonzero(self.ignored))
        base = self.base if self.base.size else np.zeros(width)
        zeros = np.zeros((width, bins))
        count_dense_octaves(base[None, :], np.ones(1), 0, max_octave, zeros)  # what is not stored
        return np.asarray(
            counts + zeros * np.reshape(self.n_rows - ignored - counts.sum(axis=1), (-1, 1))
        )

    def lengths(self, matrix: Array) -> Array:
        """Bound ``||M x~_i||`` from above, with 1 for the constant if rows have none; inf for
        weight 0.
        """
        # x^T S x + 2 c^T S x + c^T S c by non-zeros, with S = M^T M, M a matrix or its diagonal.
        # Its rounding error is at most (5 dim + 64) u (sum_j |x_j| ||M_j||)^2, which is added.
        from dpconvex.engine.sparse_kernels import sparse_diagonal_lengths, sparse_quadratic_lengths

        self._require_weights()
        rounding = (_ROUNDINGS[0] * self.dim + _ROUNDINGS[1]) * 2.0**-53
        scale = self.bounds_and_scales[3]
        lead = int(self.row_map.fit_intercept)
        kernel: Any
        facts: tuple[Any, ...]
        if matrix.ndim == 1:
            diagonal = np.ascontiguousarray(matrix[lead:])
            start = matrix[0] ** 2 if lead else 1.0
            if self.base.size:
                start += float(np.sum((diagonal * self.base) ** 2))
            kernel = sparse_diagonal_lengths
            facts = (diagonal, self.base, start)
        else:
            mapped, norms = affine_moment_map(matrix, lead, self.base)
            kernel = sparse_quadratic_lengths
            facts = (np.ascontiguousarray(mapped.T @ mapped), norms)

        def measure(rows: slice, lengths: Array) -> None:
            kernel(*self.offsets, self._indices_of(rows), scale, *facts, rounding, lengths)

        return np.where(self._weights_of(slice(None)) == 0, np.inf, self._by_row(measure))

    def moment_sums(self, factors: Array) -> MomentSums:
        """Return ``sum_i a_i a_i^T`` of sparse rows ``a = factor (1, d)``, where d is a row
        without its base.
        """
        from dpconvex.engine.sparse_kernels import sparse_moment_kernel

        self._require_weights()
        size = self.row_map.n_features + 1
        scale = self.bounds_and_scales[3]
        lead = int(self.row_map.fit_intercept)

        def run(span: tuple[int, int]) -> Partial:
            rows = self._span(span)
            sums = MomentSums(np.zeros((size, size)), np.zeros((size, size)), self.base, lead)
            sparse_moment_kernel(
                *self.offsets, self._indices_of(rows), scale, factors[rows], sums.high, sums.low
            )
            return [sums]

        total: MomentSums = self._sum_matrices(run)[0]
        return total


class SparseBlock:
    """Some mapped rows: what ``block @ theta``, ``multiples @ block`` and `block_products` need
    of a block.
    """

    __array_ufunc__ = None  # numpy leaves products with arrays to this class

    def __init__(self, rows: SparseRows, indices: RowIndices, factors: Array) -> None:
        self.rows = rows
        self.indices = indices
        self.factors = factors
        self.shape = (indices.size, rows.dim)

    def __len__(self) -> int:
        return self.shape[0]

    def __matmul__(self, theta: Array) -> Array:
        return SparseRowMargins(self.rows, theta)(self)

    def __rmatmul__(self, multiples: Array) -> Array:
        total = SparseRowSum(self.rows)
        total.add(self, multiples)
        return total.value

    def gram(self, multiples: Array) -> Array:
        """Return ``sum_i multiples_i x~_i x~_i^T`` of a block of sparse rows."""
        from dpconvex.engine.sparse_kernels import sparse_gram_kernel

        rows = self.rows
        base = rows.base
        lead = int(rows.row_map.fit_intercept)
        width = rows.row_map.n_features
        total = np.zeros((width + 2, width + 2))
        multiples = np.ascontiguousarray(multiples, dtype=np.float64)
        sparse_gram_kernel(
            *rows.offsets, self.indices, rows.bounds_and_scales[3], self.factors, multiples, total
        )
        total += np.tril(total, -1).T
        found = np.empty((rows.dim, rows.dim))
        found[lead:, lead:] = total[2:, 2:]
        if lead:
            found[0, 0] = total[0, 0]
            found[0, 1:] = total[0, 2:]
        if base.size:
            found[lead:, lead:] += np.outer(base, total[1, 2:]) + np.outer(total[1, 2:], base)
            found[lead:, lead:] += total[1, 1] * np.outer(base, base)
            if lead:
                found[0, 1:] += total[0, 1] * base
        if lead:
            found[1:, 0] = found[0, 1:]
        return found


class SparseRowMargins:
    """Margins ``x~_i . theta`` at one point."""

    def __init__(self, rows: SparseRows, theta: Array) -> None:
        self.rows = rows
        lead = int(rows.row_map.fit_intercept)
        theta = np.asarray(theta, dtype=np.float64)
        self.constant = float(theta[0]) if lead else 0.0
        self.scaled = theta[lead:] * rows.bounds_and_scales[3]
        products, errors = exact_moment_products(
            rows.base, theta[lead:] if rows.base.size else _NOTHING
        )
        terms = np.concatenate([products, errors]).tolist()
        self.start = math.fsum(terms)
        self.rest = math.fsum([*terms, -self.start])

    def __call__(self, block: SparseBlock) -> Array:
        """Return the margins of a block."""
        from dpconvex.engine.sparse_kernels import sparse_margin_kernel

        found = np.empty(len(block))
        sparse_margin_kernel(
            *self.rows.offsets, block.indices, self.scaled, self.start, self.rest, found
        )
        if block.factors.size:
            found *= block.factors
        found += self.constant
        return found


class SparseRowSum:
    """``sum_i m_i x~_i`` while it is added up, as unevaluated sums of two numbers each."""

    def __init__(self, rows: SparseRows) -> None:
        self.rows = rows
        width = rows.row_map.n_features
        self.totals = np.zeros(width)
        self.errors = np.zeros(width)
        # of m, and of m f
        self.constant = np.zeros((2, 1))
        self.multiple = np.zeros((2, 1))

    def add(self, block: SparseBlock, multiples: Array) -> None:
        """Add multiples of a block's sparse rows."""
        from dpconvex.engine.compensated_kernels import combine_dense_with_error
        from dpconvex.engine.sparse_kernels import sparse_combine_kernel

        ones = np.ones((len(block), 1))
        multiples = np.ascontiguousarray(multiples, dtype=np.float64)
        combine_dense_with_error(multiples, ones, *self.constant)
        if block.factors.size:
            multiples = multiples * block.factors
        combine_dense_with_error(multiples, ones, *self.multiple)
        sparse_combine_kernel(
            *self.rows.offsets, block.indices, multiples, self.totals, self.errors
        )

    @property
    def value(self) -> Array:
        """The sum over sparse rows: base and stored values are added before they are rounded,
        since they may cancel.
        """
        rows = self.rows
        scale = rows.bounds_and_scales[3]
        base = rows.base
        lead = int(rows.row_map.fit_intercept)
        out = np.empty(rows.dim)
        if lead:
            out[0] = self.constant.sum()
        if not base.size:
            out[lead:] = (self.totals + self.errors) * scale
            return out
        own, own_lost = exact_moment_products(self.totals, scale)
        common, common_lost = exact_moment_products(np.full(base.size, self.multiple[0, 0]), base)
        added, lost = exact_moment_sums(own, common)
        lost += own_lost + common_lost + (self.errors * scale + self.multiple[1, 0] * base)
        out[lead:] = added + lost
        return out
