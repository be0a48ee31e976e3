"""The pairwise objective: a mean of losses over all pairs of a positive and a negative record, plus a ridge."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import cast

import numpy as np
import numpy.typing as npt

from dpconvex.engine.memory import MemoryRows
from dpconvex.engine.rows import RowFunction, RowMap, Sums
from dpconvex.engine.summation_order import accumulate, block_rows
from dpconvex.losses.pairwise import PairLogistic, PairLoss
from dpconvex.objectives.objective import UNIT, WithLinear
from dpconvex.objectives.pair_sums import RELATIVE_ERROR, logistic_cross, logistic_sums, pair_sum_additions, piece_sums
from dpconvex.types import Array

__all__ = ["PairwiseObjective", "combine_pairs"]

RowChange = Callable[[Array], Array]

_BLOCK = 4096  # rows whose products are added before they join the total


class PairwiseObjective(WithLinear):
    r"""Pairwise empirical risk with a ridge and a linear term.

    ``F(w) = (1 / (max(n+, m+) max(n-, m-))) sum_{i in +, j in -} loss(w . (x_i - x_j)) + (alpha/2) ||w||^2 + <b, w>``
    with public lower bounds ``m+, m-`` on the class counts and ``b = linear``. A constant column would cancel in every
    difference, so there is no intercept.

    Parameters
    ----------
    rows : array of shape (n, d), or an engine with ``mapped()``
        Bounded rows without constant column.
    positive : array of bool, shape (n,)
        Which rows are positive; read from the engine's targets if None, where void rows belong to no class.
    loss : pairwise loss
        Of the score difference.
    alpha : float
        Ridge.
    min_positive, min_negative : int
        Public lower bounds of the normaliser.
    linear : array of shape (d,), optional
        The vector b.
    row_norm : float, optional
        Public bound of the rows' norms, for the bound on rounding errors; taken from the rows if None.

    Notes
    -----
    Privacy: the divisor is at least ``m+ m-`` whatever the data, so no assumption can be violated.

    Examples
    --------
    >>> import numpy as np
    >>> from dpconvex.losses import PairLogistic
    >>> rows, positive = np.array([[0.9, 0.1], [0.2, 0.4], [0.5, 0.5]]), np.array([True, False, False])
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
        self._set_linear(linear)
        which = np.asarray(positive, dtype=bool)
        there = np.ones(len(X), dtype=bool) if weights is None else weights > 0
        self.positives = np.ascontiguousarray(X[which & there])
        self.negatives = np.ascontiguousarray(X[~which & there])
        self.loss = loss
        self.n_rows = X.shape[0]
        self.least = (min_positive, min_negative)
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
        ahead, behind = (max(pair) for pair in zip(self.counts, self.least, strict=True))
        return float(ahead) * float(behind)

    @property
    def public_facts(self) -> dict[str, object]:
        """What the certificate of a release must say about this objective, too."""
        facts = {
            "objective": "mean over pairs",
            "loss": self.loss,
            "alpha": self.alpha,
            "linear_term": bool(self.linear.any()),
            "n_features": self.dim,
            "min_positive": self.least[0],
            "min_negative": self.least[1],
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

    def with_rows(self, function: RowChange, row_norm: float, alpha: float | None = None) -> PairwiseObjective:
        """Return the same objective of other rows, ``function(rows)``, no longer than ``row_norm``.

        Parameters
        ----------
        function : callable
            Takes a block of rows and returns as many, each of which depends on one row.
        row_norm : float
            Bound of their norms.
        alpha : float, optional
            Another ridge.
        """
        other = copy.copy(self)
        other._change_rows(function)
        other.row_norm = row_norm
        other.alpha = self.alpha if alpha is None else float(alpha)
        return other

    def _change_rows(self, function: RowChange) -> None:
        self.positives = np.ascontiguousarray(function(self.positives))
        self.negatives = np.ascontiguousarray(function(self.negatives))

    def with_loss(self, loss: PairLoss) -> PairwiseObjective:
        """Return the same objective with another loss."""
        other = copy.copy(self)
        other.loss = loss
        return other

    def sum(self, function: RowFunction) -> Sums:
        """Add ``function(block, y, w)`` over blocks of both classes' rows, labels +1 and -1 and weights of 1."""
        step = block_rows(self.dim)

        def parts() -> Iterator[Sums]:
            for rows, label in ((self.positives, 1.0), (self.negatives, -1.0)):
                for start in range(0, max(1, len(rows)), step):
                    block = rows[start : start + step]
                    yield function(block, np.full(len(block), label), np.ones(len(block)))

        return tuple(accumulate(parts()))

    def each_row(self, function: RowChange) -> Array:
        """Return ``function(block)``, one number per row, of all rows of both classes: private."""
        step = block_rows(self.dim)
        return np.concatenate(
            [
                function(rows[start : start + step])
                for rows in (self.positives, self.negatives)
                for start in range(0, max(1, len(rows)), step)
            ]
        )

    def subsample(self, rows: int) -> PairwiseObjective:
        """Return the objective of about `rows` records, half of them from each class where it has so many.

        It is scaled like the whole: a mean over pairs, times ``n+ n- / divisor``.
        """
        ahead, behind = (MemoryRows.spread(count, size) for count, size in self._shares(rows))
        return self._of_sample(self.positives[ahead], self.negatives[behind])

    def _shares(self, rows: int) -> list[tuple[int, int]]:
        """Return how many records each class has, and how many of them are sampled."""
        half = rows // 2
        fewer = min(*self.counts, half)
        ahead, behind = self.counts
        sizes = (fewer, rows - fewer) if ahead <= behind else (rows - fewer, fewer)
        return [(ahead, min(ahead, sizes[0])), (behind, min(behind, sizes[1]))]

    def _of_sample(self, positives: Array, negatives: Array) -> PairwiseObjective:
        nothing, facts = np.empty((0, self.dim)), (self.loss, self.alpha, *self.least, self.linear)
        sample = PairwiseObjective(nothing, nothing[:, 0] > 0, *facts, row_norm=self.row_norm)
        sample.positives, sample.negatives = positives, negatives
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
        pieces = self.loss.pieces
        if pieces is None:
            scale = self._scale
            return -scale * logistic_sums(-s, -t), -scale * logistic_sums(t, s)
        return piece_sums(s, t, pieces), piece_sums(t, s, pieces, mirrored=True)

    def _total(self, s: Array, t: Array) -> float:
        if s.size == 0 or t.size == 0:
            return 0.0
        pieces = self.loss.pieces
        if pieces is None:
            return float(self._scale * logistic_sums(-s, -t, "value").sum())
        return float(piece_sums(s, t, pieces, "value").sum())

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
        w = np.asarray(w, dtype=np.float64)
        value, gradient = self._data_both(w)
        return self._value(value / self.divisor, w), self._gradient(gradient / self.divisor, w)

    def _data_value(self, w: Array) -> float:
        """Return the sum of the losses of all pairs."""
        return self._total(*self._scores(w))

    def _data_gradient(self, w: Array) -> Array:
        """Return the gradient of the sum of the losses of all pairs."""
        return self._gradient_at(*self._scores(w))

    def _data_both(self, w: Array) -> tuple[float, Array]:
        s, t = self._scores(w)
        return self._total(s, t), self._gradient_at(s, t)

    def _gradient_at(self, s: Array, t: Array) -> Array:
        if s.size == 0 or t.size == 0:
            return np.zeros(self.dim)
        ahead, behind = self._slopes(s, t)
        return combine_pairs(self.positives, ahead) - combine_pairs(self.negatives, behind)

    def hessian(self, w: npt.ArrayLike) -> Array:
        """Hessian of F; its accuracy decides about speed only."""
        w = np.asarray(w, dtype=np.float64)
        s, t = self._scores(w)
        hessian = np.zeros((self.dim, self.dim))
        if s.size and t.size:
            ahead, behind, cross = self._curvatures(s, t)
            hessian = weighted_squares(self.positives, ahead) - cross - cross.T
            hessian += weighted_squares(self.negatives, behind)
            values, vectors = np.linalg.eigh((hessian + hessian.T) / (2 * self.divisor))
            hessian = (vectors * np.maximum(values, 0.0)) @ vectors.T
        return self._hessian(hessian)

    def _curvatures(self, s: Array, t: Array) -> tuple[Array, Array, Array]:
        """Return row and column sums of ``loss''(s_i - t_j)``, and ``sum_ij loss'' x_i x_j^T``."""
        pieces = self.loss.pieces
        if pieces is None:
            parts = logistic_cross(s, self.positives, t, self.negatives)
            ahead, behind, cross = (self._scale * part for part in parts)
            return ahead, behind, cross
        # Row sums, column sums and products from the same windows: a pair on a knot counts in all or in none.
        order = np.argsort(s)
        ordered, rows = s[order], self.positives[order]
        running = np.concatenate([np.zeros((1, self.dim)), np.cumsum(rows, axis=0)])
        edges, behind = np.zeros(s.size + 1), np.zeros(t.size)
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
                    window = running[above] - running[below]
                    cross += 2 * c2 * window.T @ self.negatives[start:stop]
                below = above
        ahead = np.empty(s.size)
        ahead[order] = np.cumsum(edges)[:-1]
        return ahead, behind, cross

    def rounding_allowance(self, w: npt.ArrayLike) -> float:
        """Bound the norm of the error of `gradient` at w: scores, pair sums and additions.

        Scores are off by at most ``u (d + 4) U ||w||`` each, so slopes by ``2 loss.smoothness`` times that; pair sums
        have a relative error of 1e-12 plus one rounding per addition, and so have the sums over rows. Running sums of
        scores, from which those of piecewise quadratics are taken, round in extended precision, where a machine has it.
        """
        w = np.asarray(w, dtype=np.float64)
        size = float(np.linalg.norm(w))
        reach = 2 * self.row_norm
        slope = float(self.loss.lipschitz)
        if not np.isfinite(slope):
            slope = 2 + 2 * reach * size
        shift = 2 * UNIT * (self.dim + 4) * self.row_norm * size
        steps = self._additions
        if self.loss.pieces is not None:
            shift += 4 * float(np.finfo(np.longdouble).eps) * steps * self.row_norm * size
        pairs = slope * (RELATIVE_ERROR + UNIT * steps) + float(self.loss.smoothness) * shift
        own = UNIT * (3 * self.alpha * size + 2 * float(np.linalg.norm(self.linear)))
        return float(1.01 * (reach * pairs + own))

    @property
    def _additions(self) -> int:
        """Bound on the number of roundings a pair's term passes through."""
        return pair_sum_additions(self.n_rows) + _BLOCK + self.n_rows // _BLOCK + 64


def weighted_squares(rows: Array, weights: Array) -> Array:
    """Return ``sum_i w_i x_i x_i^T``, block by block so that no second array of rows is made."""
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, weights.size, _BLOCK):
        block = rows[start : start + _BLOCK]
        total += (block * weights[start : start + _BLOCK, None]).T @ block
    return total


def combine_pairs(rows: Array, multiples: Array) -> Array:
    """Return ``multiples @ rows``, added in blocks so that rounding errors stay small."""
    parts = [
        multiples[start : start + _BLOCK] @ rows[start : start + _BLOCK] for start in range(0, multiples.size, _BLOCK)
    ]
    return np.asarray(np.sum(parts, axis=0))
