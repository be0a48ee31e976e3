"""Accuracy at the top: positive records against the negative ones that score highest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from dpconvex.engine.block_products import block_gram, takes_sparse_blocks
from dpconvex.engine.memory_rows import MemoryRows
from dpconvex.engine.rows import RowMap, Sums
from dpconvex.losses.pointwise import Loss
from dpconvex.objectives.objective import LOSS_ULPS, UNIT, RidgeObjective
from dpconvex.objectives.risk_measures import find_risk_threshold
from dpconvex.types import Array

if TYPE_CHECKING:
    from dpconvex.engine.dask.rows_and_table import DaskRows


class TopRankObjective(RidgeObjective):
    r"""Mean loss of positive records below the mean of the K largest negative scores, with a ridge.

    ``F(theta) = (1/N+) sum_{positive i} c(x_i . theta - T(theta)) + (alpha/2) ||theta||^2`` with
    ``N+ = max(n+, min_positive)`` and ``T(theta) = min_t [t + (1/K) sum_{negative j} s(x_j . theta - t) + 2 s(-t)]``,
    ``s(u) = width log(1 + exp(u / width))``: the smoothed mean of the ``K = top`` largest scores of negative records
    and of 2K public ones at 0. A list is then read from its top, and positive records should come first.

    Parameters
    ----------
    X : array of shape (n, d), MemoryRows or another engine
        Rows; longer ones than ``row_norm`` are shortened, and ones with invalid values are rows of zeros. An engine
        holds mapped rows without constant column, and targets 0 of ignored rows, which count in n and nowhere else.
    y : array of shape (n,), or None for an engine
        Labels; above 0 is positive.
    loss : Loss
        Smooth margin loss that never increases.
    row_norm, alpha, top, min_positive, width
        As in :class:`~dpconvex.privacy.bounds.ranking.TopRankBounds`.

    Notes
    -----
    Privacy: pass it to :class:`~dpconvex.mechanisms.OutputPerturbation` with bounds of the same constants.

    Examples
    --------
    >>> from dpconvex.losses import Logistic
    >>> from dpconvex.mechanisms import OutputPerturbation
    >>> from dpconvex.privacy import GaussianDP, TopRankBounds
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 5000)
    >>> X = rng.uniform(-0.5, 0.5, (5000, 2)) + np.outer(y, [0.3, 0.0])
    >>> public = {"loss": Logistic(), "row_norm": 1.0, "top": 500, "min_positive": 1000, "alpha": 0.05}
    >>> certificate = OutputPerturbation().certify(TopRankBounds(5000, 2, **public), GaussianDP(1.0))
    >>> score = OutputPerturbation().release(TopRankObjective(X, y, **public), certificate)
    >>> score.shape
    (2,)
    """

    def __init__(
        self, X: npt.ArrayLike | DaskRows | MemoryRows, y: npt.ArrayLike | None, loss: Loss, row_norm: float, top: int,
        min_positive: int, alpha: float, width: float = 0.05,
    ) -> None:  # fmt: skip
        if y is None:
            rows = cast("DaskRows | MemoryRows", X)
        else:
            raw = np.array(X, dtype=np.float64)
            raw[~np.isfinite(raw).all(axis=1)] = 0.0  # a fixed row: an error would depend on the data
            # A little shorter than the bound, so that rounding does not exceed it.
            shortened = RowMap(raw.shape[1], (1 - 1e-14) * float(row_norm), fit_intercept=False)
            rows = MemoryRows(raw, np.where(np.asarray(y) > 0, 1.0, -1.0), shortened)
        super().__init__(rows.dim, alpha)
        self.rows, self.n_rows, self.loss = rows, rows.n_rows, loss
        self.row_norm, self.width = float(row_norm), float(width)
        self.top, self.min_positive = int(top), int(min_positive)
        self._labels = np.concatenate([y for (y,) in rows.each(_signs)])
        self._count = max(int((self._labels > 0).sum()), self.min_positive)
        self.gradient_bound = float(loss.lipschitz) * 2 * self.row_norm  # slope D
        # c'' D^2 + slope B^2 / width + alpha
        bend = float(loss.lipschitz) * self.row_norm**2 / self.width
        self.smoothness = float(loss.smoothness) * (2 * self.row_norm) ** 2 + bend + self.alpha

    @property
    def public_facts(self) -> dict[str, object]:
        """Facts about this objective that the certificate of a release must state."""
        own = {"row_norm": self.row_norm, "top": self.top, "min_positive": self.min_positive, "width": self.width}
        objective = "losses below the top negative scores"
        return {"objective": objective, "loss": self.loss, "alpha": self.alpha, "n_features": self.dim, **own}

    def value_and_gradient(self, theta: npt.ArrayLike) -> tuple[float, Array]:
        """Return the top-rank objective and its gradient: a pass for the scores, and one that sums."""
        theta = np.asarray(theta, dtype=np.float64)
        found = self._top_level(theta)
        value = float(np.sum(self.loss.value(1.0, found.margins))) / self._count
        share = -found.pull / self.top

        def multiples(y: Array, z: Array, w: Array) -> tuple[Array]:
            above = share * expit((z - found.threshold) / self.width)
            slopes = self.loss.gradient(1.0, z - found.level)
            return (np.where(y > 0, slopes, np.where(y < 0, above, 0.0)),)

        (gradient,) = self.rows.combine(theta, multiples)
        return self._value(value, theta), self._gradient(gradient / self._count, theta)

    def hessian(self, theta: npt.ArrayLike) -> Array:
        """Hessian of the top-rank objective."""
        theta = np.asarray(theta, dtype=np.float64)
        found, width = self._top_level(theta), self.width
        share = -found.pull / self.top  # not negative

        @takes_sparse_blocks
        def part(block: Array, y: Array, w: Array) -> Sums:
            z = block @ theta
            weights = np.where(y < 0, expit((z - found.threshold) / width), 0.0)
            bends = weights * (1 - weights) / width
            curved = np.maximum(self.loss.curvature(1.0, z - found.level), 0.0) * (y > 0)
            gram = block_gram(block, curved + share * bends)
            return gram, curved @ block, float(curved.sum()), weights @ block, bends @ block

        second, first, total, slope, pull = self.rows.sum(part)
        slope = slope / self.top
        turned = np.outer(first, slope)
        second = second - turned - turned.T + total * np.outer(slope, slope)
        if found.bend > 0:  # scores far apart may turn nowhere in floating point
            second -= share * np.outer(pull, pull / found.bend)
        return self._hessian(second / self._count)

    def rounding_allowance(self, theta: npt.ArrayLike) -> float:
        """Bound the norm of the floating-point error of the top-rank `gradient` at theta.

        Scores err by ``(d + 4) B ||theta||`` roundings, the level by as much and by the search for t; weights of the
        level turn with scores over the width; sums of n terms err by their logarithm (NumPy adds in pairs) or, in
        products with BLAS, by n roundings.
        """
        size = float(np.linalg.norm(theta))
        scores = (self.dim + 10) * (self.row_norm * size + self.width)
        slopes = 2 * float(self.loss.smoothness) * 2 * self.row_norm * (scores + 4)
        weights = (2 * scores / self.width + self.n_rows + 2 * self.top + 32) * self.gradient_bound
        sums = (LOSS_ULPS + self.n_rows + self.dim) * self.gradient_bound
        return float(1.01 * UNIT * (slopes + weights + sums + 3 * self.alpha * size))

    def _top_level(self, theta: Array) -> _TopRankLevel:
        """Return the top's level T with its derivatives, and the margins of positive records."""
        scores = np.concatenate([z for (z,) in self.rows.each(lambda rows: (rows.predicted(theta).weights,))])
        negative = scores[self._labels < 0]
        t, width, extra = self._top_threshold(negative), self.width, 2 * self.top
        u = (negative - t) / width
        above = float(np.logaddexp(0.0, u).sum()) + extra * float(np.logaddexp(0.0, -t / width))
        level = t + width * above / self.top
        weights, at_zero = expit(u), float(expit(-t / width))
        bend = float((weights * (1 - weights)).sum()) + extra * at_zero * (1 - at_zero)
        margins = scores[self._labels > 0] - level
        pull = float(np.sum(self.loss.gradient(1.0, margins)))
        return _TopRankLevel(level, t, bend / width, margins, pull)

    def _top_threshold(self, scores: Array) -> float:
        """Return the threshold t of the top, the root of ``sum_j s'(score_j - t) + 2K s'(-t) = K``.

        t is at least 0, where the public records alone weigh K, and at most where all weights are K over their number.
        """
        total, extra = float(self.top), 2.0 * self.top

        def excess(t: float) -> tuple[float, float]:
            weights, at_zero = expit((scores - t) / self.width), float(expit(-t / self.width))
            fall = (float(np.sum(weights * (1 - weights))) + extra * at_zero * (1 - at_zero)) / self.width
            return float(weights.sum()) + extra * at_zero - total, fall

        high = max(0.0, float(scores.max(initial=0.0))) + self.width * math.log(2 + scores.size / total)
        return find_risk_threshold(excess, high, self.width, lambda t: 4 * UNIT * total)


class _TopRankLevel(NamedTuple):
    """The smoothed mean of the largest scores at one theta."""

    level: float  # T
    threshold: float  # the t that attains it
    bend: float  # sum_j s'' at t, public records included
    margins: Array  # scores of positive records less T
    pull: float  # sum_i c' of positive records; never positive


def _signs(rows: MemoryRows) -> tuple[npt.NDArray[np.int8]]:
    """Return the classes of rows: 1, -1, or 0 for ignored ones."""
    return (np.sign(rows.targets).astype(np.int8),)
