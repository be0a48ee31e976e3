r"""Sums over all pairs in near-linear time: ``sum_j f(s_i - t_j)`` for every i.

Logistic losses: scores are collected on 14 Chebyshev nodes in each unit interval of scores, near
intervals interact through the nodes (a convolution with blocks that are computed once), and the
result is interpolated back. Beyond 45 the sigmoid is 1 or an exponential, which separates into two
factors, to 20 digits. Every number comes out with a small error relative to itself, however wide
the scores spread. Where few pairs are near each other they are added directly.

Piecewise quadratics (hinge, squared hinge, least squares): sorted scores and running sums, exact.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from dpconvex.losses.pair_losses import PairQuadraticPieces
from dpconvex.types import Array

Long = NDArray[np.longdouble]

NODES = 14
REACH = 45
#: Bound on the relative error of every logistic sum beyond the rounding of additions. The sigmoid
#: is analytic within pi of the real line, so interpolation on an interval of length 1 converges
#: like (2 pi + sqrt(4 pi^2 + 1))^-14 = 4e-16; sources and targets each contribute that times a
#: Lebesgue constant below 3 and the variation e of the kernel.
RELATIVE_ERROR = 1e-12
_FLUSH = 1024
_LARGEST_FLOOR = 2.0**50
_DENSE = 1 << 16
_ROWS = 1 << 12  # rows of an interval that are copied together
_CHUNK = 1 << 15  # targets of a piecewise quadratic that are worked on together


def pair_sum_additions(count: int) -> int:
    """Return how many roundings a term passes through on its way into a sum over ``count``
    scores.
    """
    return _FLUSH * 4 + count // _FLUSH + 512


@lru_cache(maxsize=1)
def _pair_sum_basis() -> tuple[Array, Array]:
    """Return the nodes in ``[0, 1]`` and the matrix that turns moments into node weights."""
    angles = np.pi * (np.arange(NODES) + 0.5) / NODES
    transform = 2 / NODES * np.cos(np.outer(np.arange(NODES), angles))
    transform[0] /= 2
    return (np.cos(angles) + 1) / 2, transform


@lru_cache(maxsize=4)
def _pair_cell_kernel(kind: str) -> Array:
    """Return the kernel between nodes of cells at distance ``-REACH .. REACH``."""
    nodes, _ = _pair_sum_basis()
    t = np.arange(-REACH, REACH + 1)[:, None, None] + nodes[None, :, None] - nodes[None, None, :]
    if kind == "value":
        # log1p keeps the relative accuracy of the far exponential.
        return np.maximum(t, 0) + np.log1p(np.exp(-np.abs(t)))
    return np.asarray(expit(t) if kind == "slope" else expit(t) * expit(-t))


class _PairCells:
    """Scores sorted into the occupied unit intervals."""

    def __init__(self, scores: Array) -> None:
        self.scores = scores
        self.each = np.floor(scores)
        low = self.each.min()
        high = self.each.max()
        if high - low < _DENSE:
            index = (self.each - low).astype(np.int64)
            counts = np.bincount(index)
            occupied = np.flatnonzero(counts)
            numbers = np.empty(counts.size, dtype=np.int64)
            numbers[occupied] = np.arange(occupied.size)
            self.index = numbers[index]
            self.counts = counts[occupied]
            self.floors = occupied + low
        else:
            self.floors, self.index, self.counts = np.unique(
                self.each, return_inverse=True, return_counts=True
            )

    def moments(self) -> Array:
        """Return the Chebyshev moments of every occupied cell."""
        from dpconvex.objectives.compiled_pair_sums import compiled_pair_moments

        flush = max(_FLUSH, self.floors.size * NODES)
        return np.asarray(compiled_pair_moments(self.scores, self.each, self.index, NODES, flush))

    def evaluate(self, coefficients: Array) -> Array:
        """Return the Chebyshev series of every score's cell at the score."""
        from dpconvex.objectives.compiled_pair_sums import compiled_pair_cells

        return np.asarray(compiled_pair_cells(self.scores, self.each, self.index, coefficients))


def logistic_pair_sums(targets: Array, sources: Array, kind: str = "slope") -> Array:
    r"""Return ``sum_j f(targets_i - sources_j)`` for every i.

    ``f`` is ``1 / (1 + exp(-t))`` for the kind "slope", ``log(1 + exp(t))`` for "value". Each sum
    has a relative error of at most 1e-12 plus the rounding of its additions.
    """
    targets = np.ascontiguousarray(targets, dtype=np.float64)
    sources = np.ascontiguousarray(sources, dtype=np.float64)
    if targets.size == 0 or sources.size == 0:
        return np.zeros(targets.size)
    largest = max(float(np.abs(targets).max()), float(np.abs(sources).max()))
    if largest < _LARGEST_FLOOR:
        near = _PairCells(targets)
        far = _PairCells(sources)
        if _pair_cells_pay(near, far):
            return near.evaluate(
                pair_cell_coefficients(near.floors, far.floors, far.moments(), kind)
            )
    return _sum_pairs_directly(targets, np.sort(sources), kind)


def _pair_cells_pay(near: _PairCells, far: _PairCells) -> bool:
    """Whether working on nodes costs less than adding the pairs that are near each other."""
    low = np.searchsorted(far.floors, near.floors - REACH)
    high = np.searchsorted(far.floors, near.floors + REACH, side="right")
    running = np.concatenate([[0], np.cumsum(far.counts)])
    pairs = float(near.counts @ (running[high] - running[low]).astype(np.float64))
    on_nodes = float((high - low).sum()) * NODES**2 + 30.0 * (near.index.size + far.index.size)
    return bool(on_nodes < 10 * pairs)


def pair_cell_coefficients(targets: Array, sources: Array, moments: Array, kind: str) -> Array:
    """Return ``sum_j f(s - t_j)`` as Chebyshev coefficients in each target interval.

    Targets and sources are left ends of unit intervals, increasing. The moments ``sum_j T_k(x_j)``
    of the scores in each source interval hold everything: counts, sums, and exponential sums, whose
    own expansion on an interval of length 1 ends after 14 terms.
    """
    from dpconvex.objectives.compiled_pair_sums import (
        compiled_exponential_pairs,
        compiled_near_pairs,
    )

    nodes, transform = _pair_sum_basis()
    values = compiled_near_pairs(moments @ transform, sources, targets, _pair_cell_kernel(kind))
    coefficients = np.ascontiguousarray(values @ transform.T)
    # Sources far above: exp(s - t), a product of two exponentials of local coordinates.
    masses = moments @ (transform @ np.exp(-nodes))
    suffix = np.r_[compiled_exponential_pairs(sources, masses), 0.0]
    beyond = np.searchsorted(sources, targets + REACH, side="right")
    at = np.r_[sources, np.inf][beyond]
    coefficients += np.outer(np.exp(targets - at) * suffix[beyond], transform @ np.exp(nodes))
    # Sources far below: 1, or s - t.
    below = np.searchsorted(sources, targets - REACH)
    counts = np.concatenate([[0], np.cumsum(moments[:, 0])])[below]
    if kind == "slope":
        coefficients[:, 0] += counts
        return coefficients
    sums = moments[:, 0] * (sources + 0.5) + moments[:, 1] / 2
    running = np.concatenate([[0], np.cumsum(sums, dtype=np.longdouble)])[below]
    coefficients[:, 0] += np.asarray(counts * (targets + 0.5) - running, dtype=np.float64)
    coefficients[:, 1] += counts / 2
    return coefficients


def _sum_pairs_directly(targets: Array, ordered: Array, kind: str) -> Array:
    from dpconvex.objectives.compiled_pair_sums import (
        compiled_direct_pairs,
        compiled_exponential_pairs,
    )

    low = np.searchsorted(ordered, targets - REACH)
    high = np.searchsorted(ordered, targets + REACH, side="right")
    out = compiled_direct_pairs(targets, ordered, low, high, kind == "value")
    suffix = np.r_[compiled_exponential_pairs(ordered, np.ones(ordered.size)), 0.0]
    at = np.r_[ordered, np.inf][high]
    with np.errstate(under="ignore"):
        out += np.exp(targets - at) * suffix[high]
    if kind == "slope":
        return np.asarray(out + low)
    running = np.concatenate([[0], np.cumsum(ordered, dtype=np.longdouble)])
    return np.asarray(out + (low * targets.astype(np.longdouble) - running[low]), dtype=np.float64)


def logistic_pair_cross(
    positives: Array, positive_rows: Array, negatives: Array, negative_rows: Array
) -> tuple[Array, Array, Array]:
    """Return sums of ``k = sigmoid'(s_i - t_j)`` per positive and per negative, and
    ``sum_ij k x_i x_j^T``.
    """
    from dpconvex.objectives.compiled_pair_sums import compiled_near_pairs

    limit = _LARGEST_FLOOR / 4
    first, second = (
        _PairCells(np.clip(scores, -limit, limit)) for scores in (positives, negatives)
    )
    _, transform = _pair_sum_basis()
    blocks = _pair_cell_kernel("curvature")

    def at_targets(near: _PairCells, far: _PairCells) -> Array:
        values = compiled_near_pairs(far.moments() @ transform, far.floors, near.floors, blocks)
        return np.maximum(near.evaluate(np.ascontiguousarray(values @ transform.T)), 0.0)

    ahead = _pair_row_moments(first, positive_rows)
    behind = _pair_row_moments(second, negative_rows)
    cross = np.zeros((positive_rows.shape[1], negative_rows.shape[1]))
    for column in range(negative_rows.shape[1]):
        weights = behind[:, :, column] @ transform
        values = compiled_near_pairs(
            np.ascontiguousarray(weights), second.floors, first.floors, blocks
        )
        cross[:, column] = np.einsum("ckd,ck->d", ahead, values @ transform.T)
    return at_targets(first, second), at_targets(second, first), cross


def _pair_row_moments(cells: _PairCells, rows: Array) -> Array:
    """Return ``sum_j T_k(x_j) row_j`` per occupied cell, of shape (cells, NODES, columns)."""
    order = np.argsort(cells.index, kind="stable")
    ends = np.cumsum(cells.counts)
    out = np.zeros((cells.floors.size, NODES, rows.shape[1]))
    for cell, (start, stop) in enumerate(zip(np.r_[0, ends[:-1]], ends, strict=True)):
        for first in range(start, stop, _ROWS):
            which = order[first : min(first + _ROWS, stop)]
            x = 2 * (cells.scores[which] - cells.each[which]) - 1
            polynomials = np.polynomial.chebyshev.chebvander(x, NODES - 1)
            out[cell] += polynomials.T @ rows[which]
    return out


def quadratic_pair_sums(
    targets: Array,
    sources: Array,
    pieces: PairQuadraticPieces,
    kind: str = "slope",
    mirrored: bool = False,
) -> Array:
    """Return ``sum_j f(targets_i - sources_j)`` for a piecewise quadratic, by sorting, in extended
    precision.

    f is the quadratic ("value") or its derivative ("slope"); mirrored, it takes
    ``sources_j - targets_i`` instead.
    """
    if sources.size == 0 or targets.size == 0:
        return np.zeros(targets.size)
    sign = -1.0 if mirrored else 1.0
    ordered = np.sort(sign * sources)
    centre = float(np.median(ordered))
    shifted = (ordered - centre).astype(np.longdouble)
    first = _centred_pair_sums(shifted)
    shifted *= shifted
    second = _centred_pair_sums(shifted)
    del shifted

    out = np.empty(targets.size)
    for start in range(0, targets.size, _CHUNK):
        part = sign * targets[start : start + _CHUNK]
        x = part.astype(np.longdouble) - centre
        total = np.zeros(part.size, dtype=np.longdouble)
        # Piece k holds differences in (knot_{k-1}, knot_k]: sources from target - knot_k up to
        # target - knot_{k-1}.
        above = np.full(part.size, ordered.size)
        for k, (c0, c1, c2) in enumerate(pieces.coefficients):
            below = np.zeros(part.size, dtype=np.int64)
            if k < len(pieces.knots):
                below = np.searchsorted(ordered, part - pieces.knots[k])
            if c0 or c1 or c2:
                count = above - below
                one = first[above] - first[below]
                two = second[above] - second[below]
                if kind == "slope":
                    total += c1 * count + 2 * c2 * (x * count - one)
                else:
                    total += c0 * count + c1 * (x * count - one)
                    total += c2 * (x * (x * count - 2 * one) + two)
            above = below
        out[start : start + _CHUNK] = total
    return out


def _centred_pair_sums(terms: Long) -> Long:
    """Return running sums that start in the middle: far outliers spoil no difference that they
    are not part of.
    """
    middle = terms.size // 2
    out = np.empty(terms.size + 1, dtype=np.longdouble)
    out[middle] = 0.0
    _blocked_pair_sums(terms[middle:], out[middle + 1 :])
    _blocked_pair_sums(terms[:middle][::-1], out[:middle][::-1])
    np.negative(out[:middle], out=out[:middle])
    return out


def _blocked_pair_sums(terms: Long, out: Long) -> None:
    """Fill in running sums in which no term passes through more than ``1024 + count / 1024``
    roundings.
    """
    before = np.longdouble(0.0)
    for start in range(0, terms.size, _FLUSH):
        part = out[start : start + _FLUSH]
        np.cumsum(terms[start : start + _FLUSH], out=part)
        part += before
        before = part[-1]
