"""The pairwise objective: a mean of losses over all pairs of a positive and a negative record,
plus a ridge.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, cast

import numpy as np
import numpy.typing as npt

from dpconvex.core.memory_rows import MemoryRows
from dpconvex.core.rows import RowFunction, RowIndices, RowMap, Sums
from dpconvex.core.summation import block_rows, pairwise_summation, spread_indices
from dpconvex.losses.pair_losses import PairLogistic, PairLoss
from dpconvex.objectives import pair_sums
from dpconvex.objectives.objective import UNIT, LinearTermObjective
from dpconvex.objectives.pair_sums import RELATIVE_ERROR, logistic_pair_sums, quadratic_pair_sums
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.engine.dask.rows_and_table import DaskRows

RowChange = Callable[[Array], Array]

_BLOCK = 4096  # rows whose products are added before they join the total
_SAMPLE = 1 << 15  # records whose Hessian stands for that of all


class PairwiseObjective(LinearTermObjective):
    r"""Pairwise empirical risk with a ridge and a linear term.

    ``F(w) = (1 / (max(n+, m+) max(n-, m-))) sum_{i in +, j in -} loss(w . (x_i - x_j)) + (alpha/2)
    ||w||^2 + <b, w>`` with public lower bounds ``m+, m-`` on the class counts and ``b = linear``. A
    constant column would cancel in every difference, so there is no intercept.

    Parameters
    ----------
    rows : array of shape (n, d), or MemoryRows
        Bounded rows without constant column.
    positive : array of bool, shape (n,)
        Positive rows; read from the engine's targets if None, where ignored rows belong to no
        class.
    loss : pairwise loss
        Of the score difference.
    alpha : float
        Ridge.
    min_positive, min_negative : int
        Public lower bounds of the normaliser.
    linear : array of shape (d,), optional
        The vector b.
    row_norm : float, optional
        Public bound of the rows' norms, for the bound on rounding errors; taken from the rows if
        None.

    Notes
    -----
    Privacy: the divisor is at least ``m+ m-`` whatever the data, so no assumption can be violated.

    Examples
    --------
    >>> from dpconvex.losses import PairLogistic
    >>> rows, positive = (
    ...     np.array([[0.9, 0.1], [0.2, 0.4], [0.5, 0.5]]),
    ...     np.array([True, False, False]),
    ... )
    >>> objective = PairwiseObjective(rows, positive, PairLogistic(), alpha=0.1)
    >>> round(float(objective.value(np.zeros(2))), 4)
    1.0
    """

    def __init__(
        self,
        rows: npt.ArrayLike | MemoryRows,
        positive: npt.ArrayLike | None,
        loss: PairLoss,
        alpha: float,
        min_positive: int = 1,
        min_negative: int = 1,
        linear: npt.ArrayLike | None = None,
        row_norm: float | None = None,
    ) -> None:
        self.row_map: RowMap | None = None
        weights = None
        if isinstance(rows, MemoryRows):
            self.row_map = rows.row_map
            rows, targets, weights = rows.mapped()
            positive = targets > 0 if positive is None else positive
        X = np.asarray(rows, dtype=np.float64)
        super().__init__(X.shape[1], alpha)
        self.linear = np.zeros(self.dim) if linear is None else self._checked_linear_term(linear)
        which = np.asarray(positive, dtype=bool)
        there = np.ones(len(X), dtype=bool) if weights is None else weights > 0
        self.positives = np.ascontiguousarray(X[which & there])
        self.negatives = np.ascontiguousarray(X[~which & there])
        self.loss = loss
        self.n_rows = len(X)
        self.min_counts = (min_positive, min_negative)
        self.declared_norm = row_norm
        if row_norm is None:
            row_norm = float(np.sqrt(np.einsum("ij,ij->i", X, X).max(initial=0.0)))
        self.row_norm = row_norm
        self._divisor: float | None = None

    @property
    def counts(self) -> tuple[int, int]:
        """Numbers of positive and negative records: private."""
        return len(self.positives), len(self.negatives)

    @property
    def divisor(self) -> float:
        """``max(n+, m+) max(n-, m-)``, or another one that was set."""
        if self._divisor is not None:
            return self._divisor
        ahead, behind = (max(pair) for pair in zip(self.counts, self.min_counts, strict=True))
        return float(ahead) * float(behind)

    @property
    def public_facts(self) -> dict[str, object]:
        """Facts about the pairwise objective that the certificate of a release must state."""
        ahead, behind = self.min_counts
        facts = {
            "objective": "mean over pairs",
            "loss": self.loss,
            "alpha": self.alpha,
            "n_features": self.dim,
            "linear_term": bool(self.linear.any()),
            "min_positive": ahead,
            "min_negative": behind,
            "row_norm": self.declared_norm,
        }
        if self.row_map is not None:  # the map knows more than what was said
            longest = float(self.row_map.public_facts["max_norm"])
            facts |= {"row_norm": longest, "diameter": min(self.row_map.diameter, 2 * longest)}
        return facts

    @property
    def smoothness(self) -> float:
        """Bound of the Hessian's largest eigenvalue: ``curvature (2 row_norm)^2 + alpha``."""
        return float(self.loss.smoothness) * (2 * self.row_norm) ** 2 + self.alpha

    @property
    def gradient_bound(self) -> float:
        """Bound of the norm of the data term's gradient."""
        return float(self.loss.lipschitz) * 2 * self.row_norm

    def with_rows(
        self, function: RowChange, row_norm: float, alpha: float | None = None
    ) -> PairwiseObjective:
        """Return the pairwise objective of other rows, ``function(block)``, no longer than
        ``row_norm``.

        Every row that the function returns must depend on one row alone.
        """
        other = copy.copy(self)
        other._change_rows(function)
        other.row_norm = row_norm
        other.alpha = self.alpha if alpha is None else float(alpha)
        return other

    def _change_rows(self, function: RowChange) -> None:
        self.positives = np.ascontiguousarray(function(self.positives))
        self.negatives = np.ascontiguousarray(function(self.negatives))

    def sum(self, function: RowFunction) -> Sums:
        """Add ``function(block, y, w)`` over blocks of both classes' rows, labels +1 and -1 and
        weights of 1.
        """
        return tuple(
            pairwise_summation(
                function(block, y, np.ones(len(block))) for block, y in self._blocks()
            )
        )

    def each_row(self, function: RowChange) -> Array:
        """Return ``function(block)``, one number per row, of all rows of both classes: private."""
        return np.concatenate([function(block) for block, _ in self._blocks()])

    def _blocks(self) -> Iterator[tuple[Array, Array]]:
        """Yield blocks of both classes' rows with labels +1 and -1."""
        step = block_rows(self.dim)
        for rows, label in ((self.positives, 1.0), (self.negatives, -1.0)):
            for start in range(0, max(1, len(rows)), step):
                block = rows[start : start + step]
                yield block, np.full(len(block), label)

    def subsample(self, rows: int) -> PairwiseObjective:
        """Return the objective of about `rows` records, half of each class where it has so many,
        scaled like F.
        """
        ahead, behind = (spread_indices(count, size) for count, size in self._shares(rows))
        return self._pairwise_sample(self.positives[ahead], self.negatives[behind])

    def _shares(self, rows: int) -> list[tuple[int, int]]:
        """Return how many records each class has, and how many of them are sampled."""
        fewer = min(*self.counts, rows // 2)
        ahead, behind = self.counts
        sizes = (fewer, rows - fewer) if ahead <= behind else (rows - fewer, fewer)
        return [(ahead, min(ahead, sizes[0])), (behind, min(behind, sizes[1]))]

    def _pairwise_sample(self, positives: Array, negatives: Array) -> PairwiseObjective:
        nothing = np.empty((0, self.dim))
        facts = (self.loss, self.alpha, *self.min_counts, self.linear)
        sample = PairwiseObjective(nothing, nothing[:, 0] > 0, *facts, row_norm=self.row_norm)
        sample.positives = positives
        sample.negatives = negatives
        sample.n_rows = len(positives) + len(negatives)
        ahead, behind = self.counts
        pairs = float(len(positives)) * len(negatives)
        sample._divisor = self.divisor * pairs / (float(ahead) * behind) if pairs else 1.0
        return sample

    @property
    def _scale(self) -> float:
        return cast(PairLogistic, self.loss).scale  # the loss that has no pieces

    def _scores(self, w: Array) -> tuple[Array, Array]:
        return self.positives @ w, self.negatives @ w

    def _slopes(self, s: Array, t: Array) -> tuple[Array, Array]:
        """Return ``sum_j loss'(s_i - t_j)`` and ``sum_i loss'(s_i - t_j)``."""
        pieces = self.loss.piecewise_quadratic
        if pieces is None:
            return -self._scale * logistic_pair_sums(-s, -t), -self._scale * logistic_pair_sums(
                t, s
            )
        return quadratic_pair_sums(s, t, pieces), quadratic_pair_sums(t, s, pieces, mirrored=True)

    def value(self, w: npt.ArrayLike) -> float:
        """F(w)."""
        w = np.asarray(w, dtype=np.float64)
        return self._value(self._data_value(w) / self.divisor, w)

    def gradient(self, w: npt.ArrayLike) -> Array:
        """Gradient of F."""
        w = np.asarray(w, dtype=np.float64)
        return self._gradient(self._data_gradient(w) / self.divisor, w)

    def value_and_gradient(self, w: npt.ArrayLike) -> tuple[float, Array]:
        """F and its gradient."""
        return self.value(w), self.gradient(w)

    def _data_value(self, w: Array) -> float:
        (s, t) = self._scores(w)
        pieces = self.loss.piecewise_quadratic
        if s.size == 0 or t.size == 0:
            return 0.0
        if pieces is None:
            return float(self._scale * logistic_pair_sums(-s, -t, "value").sum())
        return float(quadratic_pair_sums(s, t, pieces, "value").sum())

    def _data_gradient(self, w: Array) -> Array:
        s, t = self._scores(w)
        if s.size == 0 or t.size == 0:
            return np.zeros(self.dim)
        ahead, behind = self._slopes(s, t)
        return combine_pairwise_rows(self.positives, ahead) - combine_pairwise_rows(
            self.negatives, behind
        )

    def hessian(self, w: npt.ArrayLike) -> Array:
        """Hessian of the pairwise objective; its accuracy decides about speed only."""
        w = np.asarray(w, dtype=np.float64)
        s, t = self._scores(w)
        hessian = np.zeros((self.dim, self.dim))
        if s.size and t.size:
            ahead, behind, cross = self._pairwise_curvatures(s, t)
            hessian = pairwise_weighted_squares(self.positives, ahead) - cross - cross.T
            hessian += pairwise_weighted_squares(self.negatives, behind)
            values, vectors = np.linalg.eigh((hessian + hessian.T) / (2 * self.divisor))
            hessian = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return self._hessian(hessian)

    def _pairwise_curvatures(self, s: Array, t: Array) -> tuple[Array, Array, Array]:
        """Return row and column sums of the pairwise ``loss''(s_i - t_j)``, and
        ``sum_ij loss'' x_i x_j^T``.
        """
        pieces = self.loss.piecewise_quadratic
        if pieces is None:
            parts = pair_sums.logistic_pair_cross(s, self.positives, t, self.negatives)
            ahead, behind, cross = (self._scale * part for part in parts)
            return ahead, behind, cross
        # Row sums, column sums and products from the same windows: a pair on a knot counts in all
        # or in none.
        order = np.argsort(s)
        ordered = s[order]
        rows = self.positives[order]
        running = np.concatenate([np.zeros((1, self.dim)), np.cumsum(rows, axis=0)])
        edges = np.zeros(s.size + 1)
        behind = np.zeros(t.size)
        cross = np.zeros((self.dim, self.dim))
        for start in range(0, t.size, _BLOCK):
            stop = min(start + _BLOCK, t.size)
            below = np.zeros(stop - start, dtype=np.int64)
            for k, (_, _, c2) in enumerate(pieces.coefficients):
                above = np.full(stop - start, s.size)
                if k < len(pieces.knots):
                    above = np.searchsorted(ordered, t[start:stop] + pieces.knots[k], side="right")
                if c2:
                    np.add.at(edges, below, 2 * c2)
                    np.add.at(edges, above, -2 * c2)
                    behind[start:stop] += 2 * c2 * (above - below)
                    cross += (
                        2 * c2 * (running[above] - running[below]).T @ self.negatives[start:stop]
                    )
                below = above
        ahead = np.empty(s.size)
        ahead[order] = np.cumsum(edges)[:-1]
        return ahead, behind, cross

    def rounding_allowance(self, w: npt.ArrayLike) -> float:
        """Bound the norm of the error of the pairwise `gradient` at w: scores, pair sums and
        additions.

        Scores are off by at most ``u (d + 4) U ||w||`` each, so slopes by ``2 loss.smoothness``
        times that; pair sums have a relative error of 1e-12 plus one rounding per addition, and so
        have the sums over rows. Running sums of scores, from which those of piecewise quadratics
        are taken, round in extended precision, where a machine has it.
        """
        size = float(np.linalg.norm(w))
        reach = 2 * self.row_norm
        slope = float(self.loss.lipschitz)
        if not np.isfinite(slope):
            slope = 2 + 2 * reach * size
        shift = 2 * UNIT * (self.dim + 4) * self.row_norm * size
        steps = self._additions
        if self.loss.piecewise_quadratic is not None:
            shift += 4 * float(np.finfo(np.longdouble).eps) * steps * self.row_norm * size
        pairs = slope * (RELATIVE_ERROR + UNIT * steps) + float(self.loss.smoothness) * shift
        own = UNIT * (3 * self.alpha * size + 2 * float(np.linalg.norm(self.linear)))
        return float(1.01 * (reach * pairs + own))

    @property
    def _additions(self) -> int:
        """Bound on the number of roundings a pair's term passes through."""
        return pair_sums.pair_sum_additions(self.n_rows) + _BLOCK + self.n_rows // _BLOCK + 64


def pairwise_weighted_squares(rows: Array, weights: Array) -> Array:
    """Return ``sum_i w_i x_i x_i^T``, block by block so that no second array of rows is made."""
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, weights.size, _BLOCK):
        block = rows[start : start + _BLOCK]
        total += (block * weights[start : start + _BLOCK, None]).T @ block
    return total


def combine_pairwise_rows(rows: Array, multiples: Array) -> Array:
    """Return ``multiples @ rows``, added in blocks so that rounding errors stay small."""
    parts = [
        multiples[start : start + _BLOCK] @ rows[start : start + _BLOCK]
        for start in range(0, multiples.size, _BLOCK)
    ]
    return np.asarray(np.sum(parts, axis=0))


class PartitionedPairwiseObjective(PairwiseObjective):
    """`PairwiseObjective` of rows that are not copied, with the same sums up to rounding.

    Rows are mapped block by block in every pass. The first pass of an evaluation collects the
    scores of each class, one number per row; the second combines the rows with the slopes at their
    scores. The Hessian is that of a sample, so Newton's method may need many steps, or fail.

    Parameters
    ----------
    rows : DaskRows or MemoryRows
        Bounded rows without constant column; targets above 0 are positive, below 0 negative, of
        ignored rows 0.
    loss, alpha, min_positive, min_negative, linear, row_norm
        As for `PairwiseObjective`.

    Notes
    -----
    Privacy: that of `PairwiseObjective`. Counts of classes and scores are private and stay inside.
    """

    def __init__(
        self,
        rows: DaskRows | MemoryRows,
        loss: PairLoss,
        alpha: float,
        min_positive: int = 1,
        min_negative: int = 1,
        linear: npt.ArrayLike | None = None,
        *,
        row_norm: float,
    ) -> None:
        nothing = np.empty((0, rows.dim))
        super().__init__(
            nothing, nothing[:, 0] > 0, loss, alpha, min_positive, min_negative, linear, row_norm
        )
        del self.positives, self.negatives
        self.rows = rows
        self.row_map = rows.row_map
        self.n_rows = rows.n_rows
        self._changes: tuple[RowChange, ...] = ()
        self._last: tuple[Array, tuple[Array, Array]] | None = None  # scores

    @cached_property
    def _class_counts(self) -> list[tuple[int, int]]:
        return [tuple(part) for part in self.rows.each(_count_classes)]

    @property
    def counts(self) -> tuple[int, int]:
        """Numbers of positive and negative records: private."""
        ahead, behind = np.sum(self._class_counts, axis=0)
        return int(ahead), int(behind)

    def sum(self, function: RowFunction) -> Sums:
        """Add ``function(block, y, w)`` over blocks of the pairs' rows, labels +1 and -1 and
        weights of 1.
        """
        changed = self._changed

        def part(block: Array, y: Array, w: Array) -> Sums:
            there = y != 0  # ignored rows belong to no class
            if not there.all():
                block = block[there]
                y = y[there]
                w = w[there]
            return tuple(function(changed(block), y, w))

        return tuple(self.rows.sum(part))

    def each_row(self, function: RowChange) -> Array:
        """Return ``function(block)``, one number per row, of all rows of both classes: private."""
        return np.concatenate([side for part in self._pairwise_numbers(function) for side in part])

    def _pairwise_numbers(self, function: RowChange) -> Iterator[Sums]:
        """Yield one number for every row of the pairwise objective's two classes, partition
        after partition.
        """
        changed = self._changed

        def by_class(rows: MemoryRows) -> tuple[Array, Array]:
            numbers = rows.reweighted(lambda block, w: function(changed(block))).weights
            return numbers[rows.targets > 0], numbers[rows.targets < 0]

        return self.rows.each(by_class)

    @property
    def _changed(self) -> RowChange:
        return partial(_change_pairwise_rows, self._changes)

    def _change_rows(self, function: RowChange) -> None:
        self._changes = (*self._changes, function)
        self._last = None

    def subsample(self, rows: int) -> PairwiseObjective:
        """Return the pairwise objective of records in memory that `PairwiseObjective.subsample`
        would take.
        """
        chosen = [spread_indices(count, size) for count, size in self._shares(rows)]
        ends = np.cumsum([(0, 0), *self._class_counts], axis=0)
        calls = []
        for start, stop in itertools.pairwise(ends):
            local = []
            for side in range(2):
                first, last = np.searchsorted(chosen[side], (start[side], stop[side]))
                local.append(chosen[side][first:last] - start[side])
            calls.append(partial(_take_pairwise_classes, self._changed, *local))
        parts = list(self.rows.each(calls))
        return self._pairwise_sample(
            *(np.concatenate([part[side] for part in parts]) for side in (0, 1))
        )

    @cached_property
    def _samples(self) -> dict[tuple[RowChange, ...], PairwiseObjective]:
        return {}

    def hessian(self, w: npt.ArrayLike) -> Array:
        """Hessian of F, of a sample if there are many rows, which may miss a direction."""
        if self._changes not in self._samples:
            self._samples[self._changes] = self.subsample(_SAMPLE)
        return self._samples[self._changes].hessian(w)

    def _data_gradient(self, w: Array) -> Array:
        s, t = self._scores(w)
        if s.size == 0 or t.size == 0:
            return np.zeros(self.dim)
        cuts = np.cumsum(self._class_counts, axis=0)[:-1]
        slopes = [
            np.split(multiples, cuts[:, side]) for side, multiples in enumerate(self._slopes(s, t))
        ]
        calls = [
            partial(_weigh_pairwise_classes, self._changed, *both)
            for both in zip(*slopes, strict=True)
        ]
        return np.asarray(pairwise_summation(self.rows.each(calls))[0])

    def _scores(self, w: Array) -> tuple[Array, Array]:
        """Return the scores of both classes, partition after partition; remembered for the last
        w.
        """
        if self._last is None or not np.array_equal(self._last[0], w):
            parts = list(self._pairwise_numbers(lambda block: np.asarray(block @ w)))
            ahead, behind = (np.concatenate([part[side] for part in parts]) for side in (0, 1))
            self._last = (w.copy(), (ahead, behind))
        return self._last[1]

    @property
    def _additions(self) -> int:
        return super()._additions + int(self.rows.additions) + len(self._class_counts)


# Functions that engines may send to other machines: they hold what they need and not the objective.


def _change_pairwise_rows(changes: tuple[RowChange, ...], block: Array) -> Array:
    for change in changes:
        block = change(block)
    return block


def _count_classes(rows: MemoryRows) -> tuple[int, int]:
    return int(np.count_nonzero(rows.targets > 0)), int(np.count_nonzero(rows.targets < 0))


def _take_pairwise_classes(
    changed: RowChange, positive: RowIndices, negative: RowIndices, rows: MemoryRows
) -> tuple[Array, Array]:
    ahead, behind = (
        changed(rows.take(np.flatnonzero(which)[chosen]).mapped()[0])
        if chosen.size
        else np.empty((0, rows.dim))
        for which, chosen in ((rows.targets > 0, positive), (rows.targets < 0, negative))
    )
    return ahead, behind


def _weigh_pairwise_classes(
    changed: RowChange, ahead: Array, behind: Array, rows: MemoryRows
) -> tuple[Array]:
    multiples = np.zeros(rows.n_rows)
    multiples[rows.targets > 0] = ahead
    multiples[rows.targets < 0] = -behind
    (total,) = rows.with_weights(multiples).sum(
        lambda block, y, w: (combine_pairwise_rows(changed(block), w),)
    )
    return (total,)
