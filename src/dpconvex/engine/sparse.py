"""Sums over rows of which only the non-zeros are stored: nothing is centred, whitened or filled with zeros as a whole.

What most of a fit's time goes into (margins, gradients, lengths, moments, Hessians) is computed by non-zeros. Functions
that were written for blocks of mapped rows get such blocks, a megabyte at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from dpconvex.engine import passes
from dpconvex.engine.accurate_products import MomentSums, affine_map
from dpconvex.engine.mapped_blocks import Block
from dpconvex.engine.memory import MemoryRows
from dpconvex.engine.nonzero_arrays import NonZeros
from dpconvex.engine.rows import Partial, Places, RowFunction, RowMap, Sums
from dpconvex.engine.sparse_blocks import Margins, RowSum, SparseBlock
from dpconvex.engine.summation_order import accumulate
from dpconvex.engine.votes import Votes
from dpconvex.types import Array

__all__ = ["SparseRows", "refuse_votes", "rows_in_memory"]

_NOTHING = np.empty(0)
_ROUNDINGS = 5, 64  # of a quadratic form: per column, and besides
_PIECE = 16  # blocks at a time, where rows are needed with all their zeros
_RUNS = 16  # sums of vectors that are added
_PARTS, _WIDE = 8, 1000  # sums of matrices: how many are added, and of how many columns at most


def rows_in_memory(X: Any, *arguments: Any, **options: Any) -> MemoryRows:
    """Return `SparseRows` of non-zeros and `MemoryRows` of anything else."""
    kind = SparseRows if issparse(X) or isinstance(X, NonZeros) else MemoryRows
    return kind(X, *arguments, **options)


def refuse_votes() -> NoReturn:
    """Raise what is raised wherever rows of a person, or weights, meet non-zeros."""
    # Sums by non-zeros would count each row of a person in full, which no certificate of people allows.
    raise TypeError(
        "Sparse rows are records of their own: people with several rows, and weights of rows, need dense ones. "
        "Use X.toarray()."
    )


class SparseRows(MemoryRows):
    r"""Rows in memory by their non-zeros, with all passes of `MemoryRows`.

    A mapped row is ``x = f (base + d)`` with ``d`` where a value is stored, ``base`` what the map makes of zeros and f
    the factor that shortens it. Functions given to `sum` may have an attribute ``by_nonzeros``, which then is called
    with these rows, or ``takes_sparse``, if they work on a `SparseBlock`; others get blocks with all zeros.

    Parameters
    ----------
    X : sparse matrix or array of scipy, or NonZeros
        Of any format; entries that stand for one place are added up.
    y, row_map, target_shift, target_scale, threads, keep, weights
        As for `MemoryRows`.

    Notes
    -----
    Privacy: sums of multiples of rows err less than those of `MemoryRows`. What a record contributes,
    ``m f base_j + fl(m f c_j) scale_j``, is computed from the record alone, and what additions lose is kept, so that a
    sum errs by the roundings of its result and of at most 12 additions of parts, whatever the number of rows.
    Lengths are bounds from above of the exact ones.
    """

    _raw: NonZeros  # type: ignore[assignment]

    def __init__(self, X: Any, y: npt.ArrayLike, row_map: RowMap, *more: Any, **options: Any) -> None:
        super().__init__(X, y, row_map, *more, **options)
        if self.voted:
            refuse_votes()
        low, high, shift, scale = self.columns
        self.zero = np.clip(0.0, low, high)
        base = (self.zero - shift) * scale
        #: What the map makes of zeros; empty if that is zero in all columns.
        self.base = base if base.any() else _NOTHING

    def _divide(self, stretch: int, most_kept: int) -> None:
        super()._divide(stretch, most_kept)
        self._small = False  # zeros are not worth being kept

    def _as_raw(self, X: Any) -> Any:
        return NonZeros.of(X)

    @property
    def nonzeros(self) -> NonZeros:
        """Where the rows lie, at `places`."""
        return self._raw

    @cached_property
    def places(self) -> Places:
        """Where each row lies in `nonzeros`."""
        return self.where.places()

    def __getstate__(self) -> dict[str, object]:
        state = super().__getstate__()
        return {name: state[name] for name in state if name not in ("places", "_factors")}

    def _look(self) -> passes.Survey:
        from dpconvex.engine.nonzeros import survey_nonzeros

        row_map = self.row_map
        # Where the bounds alone keep rows short, norms need not be computed.
        measure = not row_map.max_norm * (1 + 1e-12) <= row_map.row_norm
        shorten = row_map.influence == "shorten"
        measure = measure and (shorten or not self.own_weights)
        factors = np.empty(self.n_rows if measure else 0)
        square = float(self.base @ self.base) * (1 + self.base.size * 2.3e-16)

        def run(span: tuple[int, int]) -> Partial:
            rows = self._span(span)
            inside = survey_nonzeros(
                *self._raw.parts, self.places[rows], *self._limits, self.columns[3],
                self.base, square, row_map.row_norm, measure, factors[rows],
            )  # fmt: skip
            return [int(not inside)]

        (clipped,) = super().sum_runs(run, _RUNS)
        plain = np.array([clipped == 0 and not self.base.size])
        found = factors if measure and bool((factors < 1.0).any()) else None
        return passes.Survey(plain, None if shorten else found, found if shorten else None)

    @property
    def _limits(self) -> tuple[Array, Array, Array]:
        """Bounds of the columns, and what they make of 0."""
        return self.columns[0], self.columns[1], self.zero

    def _span(self, span: tuple[int, int]) -> slice:
        """Return the rows of some blocks."""
        return slice(span[0] * self.block_rows, min(span[1] * self.block_rows, self.n_rows))

    @cached_property
    def _factors(self) -> Array:
        """By what rows are shortened, 0 for void ones; empty stands for ones."""
        factors = self.numbers.without_void(self.surveyed(weights=False).factors)
        return _NOTHING if factors is None else factors

    @property
    def weights(self) -> Array:
        """The weights of all rows."""
        given = self.numbers.weights
        return self._summed_weights if given is None else given

    @property
    def _summed_weights(self) -> Array:
        """The same with 0 for void rows."""
        given = self._given_weights()
        return np.ones(self.n_rows) if given is None else given

    def _given_weights(self) -> Array | None:
        """The same; None stands for ones."""
        own = self.numbers.weights
        survey = self.surveyed(weights=own is None)
        return self.numbers.without_void(survey.weights if own is None else own)

    def _fresh(self, first: int, last: int, buffer: Array | None = None) -> Iterator[Block]:
        from dpconvex.engine.nonzeros import fill_dense

        weights, lead = self._summed_weights, int(self.row_map.fit_intercept)
        for index in range(first, last):
            rows = self._span((index, index + 1))
            size = (rows.stop - rows.start) * self.dim
            place_for = np.empty(size) if buffer is None else buffer[:size]
            part = place_for.reshape(rows.stop - rows.start, self.dim)
            fill_dense(
                *self._raw.parts, self.places[rows], *self.columns, self.base,
                self._factors[rows], lead, part,
            )  # fmt: skip
            yield part, self.targets[rows], weights[rows]

    def sum_runs(self, run: Callable[[tuple[int, int]], Partial], most: int = _RUNS) -> Sums:
        """Add ``run((first, last))``, lists of sums over these blocks, at most so many, in worker threads."""
        # What runs ask of the rows is found out before: threads that wait for threads would wait for ever.
        self.surveyed(weights=not self.own_weights)
        _ = self.places, self._factors
        return super().sum_runs(run, most)

    def block(self, rows: slice) -> SparseBlock:
        """Return some rows by their non-zeros."""
        return SparseBlock(self, self.places[rows], self._factors[rows])

    def sum(self, function: RowFunction) -> Sums:
        """Add ``function(block, y, w)`` over all blocks of rows; see the class for what a block is."""
        by_nonzeros = getattr(function, "by_nonzeros", None)
        if by_nonzeros is not None:
            return tuple(by_nonzeros(self))
        if not getattr(function, "takes_sparse", False):
            return self.sum_runs(lambda span: accumulate(function(*part) for part in self._mapped(*span)))
        weights = self._summed_weights

        def parts(span: tuple[int, int]) -> Iterator[Sums]:
            for index in range(*span):
                rows = self._span((index, index + 1))
                yield function(self.block(rows), self.targets[rows], weights[rows])  # type: ignore[arg-type]

        return self.sum_runs(lambda span: accumulate(parts(span)))

    def combine(self, theta: Array, function: RowFunction) -> Sums:
        """Add ``m_i x~_i`` over all rows, where the multiples m depend on the margins, as `MemoryRows.combine` does."""
        from dpconvex.engine.nonzeros import sigmoid_of_nonzeros

        margins, sigmoid = Margins(self, theta), getattr(function, "sigmoid", None)
        weights = self._given_weights()
        ones = np.ones(self.block_rows)

        def run(span: tuple[int, int]) -> Partial:
            total, rows = RowSum(self), self._span(span)
            if sigmoid is not None:
                sigmoid_of_nonzeros(
                    *self._raw.parts, self.places[rows], *self._limits, margins.scaled,
                    self._plain, *margins.start, margins.constant, self.targets[rows],
                    _NOTHING if weights is None else weights[rows], self._factors[rows],
                    *sigmoid, total.totals, total.errors, total.sums,
                )  # fmt: skip
                return [total.value]
            extras = []
            for index in range(*span):
                rows = self._span((index, index + 1))
                y, z = self.targets[rows], margins(self.block(rows))
                w = ones[: y.size] if weights is None else weights[rows]
                multiples, *extra = function(y, z, w)
                total.add(self.block(rows), multiples)
                extras.append(extra)
            return [total.value, *accumulate(extras)]

        return self.sum_runs(run)

    @property
    def _plain(self) -> bool:
        return bool(self.surveyed(weights=False).plain[0])

    def reweighted(self, function: Callable[[Array, Array], Array]) -> Self:
        """Return the same rows with other weights: ``function(block, w)``, or ``function.by_nonzeros(rows)``."""
        by_nonzeros = getattr(function, "by_nonzeros", None)
        if by_nonzeros is None:
            return super().reweighted(function)
        return self.rescaled(lambda w: by_nonzeros(self))

    def rescaled(self, function: Callable[[Array], Array]) -> Self:
        """Return the same rows with weights ``function(weights)``; the rows themselves are not read."""
        return self._with_numbers(replace(self.numbers, weights=function(self.weights)))

    def predicted(self, theta: Array) -> Self:
        """Return the same rows with their margins ``x~_i . theta`` in place of weights."""
        margins, found = Margins(self, theta), np.empty(self.n_rows)

        def run(span: tuple[int, int]) -> Partial:
            rows = self._span(span)
            found[rows] = margins(self.block(rows))
            return []

        self.sum_runs(run)
        return self.rescaled(lambda w: found)

    def chosen(self, indices: npt.NDArray[np.integer[Any]]) -> Self:
        """Return these rows."""
        return self.take(indices)

    def part(self, rows: int) -> Self:
        """Return exactly `rows` rows, those of `MemoryRows.part`; they are read where they are."""
        other = super().part(rows)
        if other is not self and self.survey is not None:
            plain, *numbers = self.survey
            other.survey = passes.Survey(plain, *(n if n is None else n[other.places] for n in numbers))
            other._surveys = [other.survey]
        return other

    def _survey_of_part(self, starts: Places, size: int, rows: int) -> None:
        """Nothing: what is known of non-zeros is taken over row by row."""

    def each(self, call: Any) -> Iterator[tuple[Any, ...]]:
        """Yield ``call(rows)`` of `pieces`.

        Parameters
        ----------
        call : callable or sequence of callables
            For all of them, or one for each.
        """
        calls = itertools.repeat(call) if callable(call) else call
        for piece, one in zip(self.pieces(), calls, strict=False):
            yield tuple(one(piece))

    def pieces(self) -> Iterator[Self]:
        """Yield stretches of rows, whose mapped form is no larger than a few blocks."""
        size = _PIECE * self.block_rows
        for start in range(0, max(1, self.n_rows), size):
            yield self.take(np.arange(start, min(start + size, self.n_rows)))

    # What private geometry asks for.

    def octave_counts(self, bins: int, above: int) -> Array:
        """Return how many values of each column lie in each octave, as `dpconvex.engine.mapping.count_octaves` does."""
        from dpconvex.engine.mapping import count_octaves
        from dpconvex.engine.nonzero_pairs import count_nonzero_octaves

        self._require_weights()
        width = self.row_map.n_features

        def run(span: tuple[int, int]) -> Partial:
            rows, counts = self._span(span), np.zeros((width, bins))
            facts = self._factors[rows], above, counts
            count_nonzero_octaves(*self._raw.parts, self.places[rows], *self.columns, *facts)
            return [counts]

        (counts,) = self._sum_matrices(run)
        void = 0 if self.numbers.void is None else int(np.count_nonzero(self.numbers.void))
        base, zeros = self.base if self.base.size else np.zeros(width), np.zeros((width, bins))
        count_octaves(base[None, :], np.ones(1), 0, above, zeros)  # what is not stored
        many = self.n_rows - void - counts.sum(axis=1)
        return np.asarray(counts + zeros * np.reshape(many, (-1, 1)))

    def _require_weights(self) -> None:
        """Raise unless long rows count less, and stay as long as they are: geometry knows no factors but 0 and 1."""
        if self.row_map.influence == "shorten":
            raise ValueError(
                "Geometry by non-zeros needs rows that are weighted. Got a map that shortens them instead. "
                "Use RowMap.weighted()."
            )

    def with_votes(self, votes: Votes) -> Self:
        """Refuse: sparse rows are records of their own."""
        refuse_votes()

    def _sum_matrices(self, run: Callable[[tuple[int, int]], Partial]) -> Sums:
        """Add ``run((first, last))`` as `sum_runs` does, in few parts: what is added is large."""
        return self.sum_runs(run, _PARTS if self.dim <= _WIDE else 2)

    def lengths(self, matrix: Array) -> Array:
        """Return bounds from above of ``||M x~_i||``, with 1 for the constant if rows have none; inf for weights of 0.

        ``x^T S x + 2 c^T S x + c^T S c`` by non-zeros, with ``S = M^T M``. Its rounding error is at most
        ``(5 dim + 64) u (sum_j |x_j| ||M_j||)^2``, which is added.

        Parameters
        ----------
        matrix : array of shape (dim, dim) or (dim,)
            M, or its diagonal.
        """
        from dpconvex.engine.nonzero_pairs import diagonal_lengths, quadratic_lengths

        self._require_weights()
        rounding = (_ROUNDINGS[0] * self.dim + _ROUNDINGS[1]) * 2.0**-53
        lengths, scale = np.empty(self.n_rows), self.columns[3]
        if matrix.ndim == 1:
            lead = int(self.row_map.fit_intercept)
            squares = matrix[lead:] ** 2
            start = matrix[0] ** 2 if lead else 1.0
            if self.base.size:
                start += float(squares @ self.base**2)
        else:
            mapped, sizes = affine_map(matrix, int(self.row_map.fit_intercept), self.base)
            square = np.ascontiguousarray(mapped.T @ mapped)

        def run(span: tuple[int, int]) -> Partial:
            rows = self._span(span)
            first = (*self._raw.parts, self.places[rows], *self._limits, scale)
            if matrix.ndim == 1:
                diagonal_lengths(*first, squares, self.base, start, rounding, lengths[rows])
            else:
                quadratic_lengths(*first, square, sizes, rounding, lengths[rows])
            return []

        self.sum_runs(run)
        return np.where(self._summed_weights == 0, np.inf, lengths)

    def moment_sums(self, factors: Array) -> MomentSums:
        """Return ``sum_i a_i a_i^T`` of rows ``a = factor (1, d)``, where d is a row without its base."""
        from dpconvex.engine.nonzero_pairs import moments_of_nonzeros

        self._require_weights()
        size, scale, lead = (self.row_map.n_features + 1, self.columns[3], int(self.row_map.fit_intercept))

        def run(span: tuple[int, int]) -> Partial:
            rows = self._span(span)
            sums = MomentSums(np.zeros((size, size)), np.zeros((size, size)), self.base, lead)
            moments_of_nonzeros(
                *self._raw.parts, self.places[rows], *self._limits, scale, factors[rows],
                sums.high, sums.low,
            )  # fmt: skip
            return [sums]

        (total,) = self._sum_matrices(run)
        return total
