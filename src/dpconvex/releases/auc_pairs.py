r"""Records of two classes: sums from which a ranking is fitted, and the statistic of pairs released
for its AUC.

No sum here looks at a pair: pairs are ranked by moments of their classes. What a row adds depends
on that row, its label and earlier answers alone, and is shortened here to length 1.

The statistic of pairs is no sum over records. It is ``(V / (n - 1), b p, b q)`` with ``V`` the sum
over pairs of a positive and a negative row of +1/2 for the right order, 0 for a tie and -1/2 for
the wrong one, ``p`` and ``q`` the numbers of positive and of negative rows, and ``b = sqrt(3/8)``.
Under replace-one it moves by at most 1.

Lemma. Let the other rows hold p' positive and q' negative ones, at most n - 1 together. A record
that keeps its label moves V by at most ``max(p', q') <= n - 1`` and no number. One that changes its
label moves V from within ``q'/2`` of 0 to within ``p'/2`` of it or the other way round, by
``(n - 1) / 2`` at most, and both numbers by 1: ``sqrt(1/4 + 2 b^2) = 1``. One that becomes invalid
moves V by as much at most and one number by 1. All three are whole up to their last division or
product and rounded once.

People share a weight among their rows, V is weighted by both weights, and pairs of one person's
rows are left out. Given everybody else all of them are then linear in a person's weights: what a
person adds is a convex combination of what single rows of a whole weight add (or nothing, for
weights that are rounded down), and two such are no farther apart than their extreme points, of
which two are as above.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpconvex.core.block_products import transform_block
from dpconvex.core.certificate import Certificate
from dpconvex.core.noise_source import NoiseSource
from dpconvex.core.private_rows import PrivateAnswers, checked_finite_array, checked_positive
from dpconvex.core.queries import pack_query_matrix, unpack_query_matrix
from dpconvex.core.row_coordinates import row_norms, shorten_rows
from dpconvex.core.rows import Sums
from dpconvex.objectives.pairwise_objective import PairwiseObjective
from dpconvex.types import Array

#: Weight of the numbers of rows beside the sum over pairs.
CLASS_WEIGHT = math.sqrt(3 / 8)
#: Weight of a number of rows, or of comparable pairs, beside a sum over them: just below
#: ``sqrt(3)/2``.
ROW_WEIGHT = 443 / 512

_STEPS = 2**30  # of a person's weight, which its rows share


class PrivatePairs:
    """A handle on labelled rows without a constant, which a pairwise objective holds.

    Privacy: that of :class:`~dpconvex.core.private_rows.PrivateRows`; a record that changes its
    label replaces one row of one class by one of the other, so that every sum below moves by at
    most twice what a row adds.
    """

    def __init__(
        self, objective: PairwiseObjective, certificate: Certificate, noise: NoiseSource
    ) -> None:
        self.bounds = certificate.bounds
        self.terms = certificate.noise
        self._rows = objective
        self._answers = PrivateAnswers(certificate.noise, noise)
        self._lengths: tuple[bytes, Array] | None = None

    @property
    def _half(self) -> float:
        """Half of the records, by which counts are centred where some may be ignored; exact."""
        return sum(self._rows.counts) / 2 if self.bounds.ignored_rows else 0.0

    def count_all(self, name: str) -> float:
        """Return how many records are not ignored, plus noise."""
        term = self._answers.claim(name, ("count",))
        return float(self._answers.release(term, [sum(self._rows.counts)])[0])

    def count_positive(self, name: str) -> float:
        """Return how many records are positive, less half of them where some may be ignored,
        plus noise.
        """
        term = self._answers.claim(name, ("count",))
        return float(self._answers.release(term, [self._rows.counts[0] - self._half])[0])

    def count_shorter(self, name: str, centre: ArrayLike, matrix: ArrayLike, point: float) -> float:
        """Return how many records of AUC pairs have ``||matrix (x - centre)||`` below a point, plus
        noise.

        Less half of the records where some may be ignored.
        """
        term = self._answers.claim(name, ("count",))
        centre, matrix = self._frame(centre, matrix)
        key = centre.tobytes() + matrix.tobytes()
        if self._lengths is None or self._lengths[0] != key:

            def length(block: Array) -> Array:
                return row_norms(transform_block(block - centre, matrix))

            self._lengths = key, self._rows.each_row(length)
        below = float(np.count_nonzero(self._lengths[1] < float(point)))
        return float(self._answers.release(term, [below - self._half])[0])

    def row_sum(
        self,
        name: str,
        centre: ArrayLike,
        matrix: ArrayLike,
        radius: float,
        weights: tuple[float, float] = (1.0, 1.0),
    ) -> Array:
        """Return ``sum_i w_i u_i`` of AUC pairs' rows u in units of the radius, no longer than 1,
        plus noise.

        Weights are those of negative and of positive records, within [-1, 1].
        """
        term = self._answers.claim(name, ("vector",), self.bounds.n_features)
        centre, matrix = self._frame(centre, matrix)
        radius = checked_positive(radius) / term.record_bound
        negative, positive = np.clip(checked_finite_array(weights, 2), -1.0, 1.0)

        def part(block: Array, y: Array, w: Array) -> Sums:
            short = (
                shorten_rows(transform_block(block - centre, matrix), radius) * term.record_bound
            )
            return (np.where(y > 0, positive, negative) @ short,)

        (total,) = self._rows.sum(part)
        return self._answers.release(term, total)

    def second_moments(self, name: str, centre: ArrayLike, radius: float) -> Array:
        """Return ``sum_i u_i u_i^T`` over AUC pairs' rows u, centred and no longer than 1
        radius, plus noise.
        """
        size = self.bounds.n_features
        term = self._answers.claim(
            name, ("second moments",), size * (size + 1) // 2, record_bound=1
        )
        point = checked_finite_array(centre, size)
        radius = checked_positive(radius)

        def part(block: Array, y: Array, w: Array) -> Sums:
            short = shorten_rows(block - point, radius)
            return (short.T @ short,)

        (total,) = self._rows.sum(part)
        packed = self._answers.release(term, pack_query_matrix(np.asarray(total)))
        return unpack_query_matrix(packed, size)

    def _frame(self, centre: ArrayLike, matrix: ArrayLike) -> tuple[Array, Array]:
        size = self.bounds.n_features
        square = checked_finite_array(matrix)
        if square.shape != (size, size):
            raise ValueError("The question needs a square matrix of all columns.")
        return checked_finite_array(centre, size), np.ascontiguousarray(square.T)


def pair_sensitivity(n_samples: int) -> float:
    """Return how far, in Euclidean distance, a replaced record or person moves the statistic: 1,
    and rounding.
    """
    return 1.0 + n_samples * 2.0**-50


def twice_ordered_pairs(positive: Array, negative: Array) -> int:
    """Return twice the number of pairs in the right order, ties counted half."""
    ordered = np.sort(negative)
    below = int(np.searchsorted(ordered, positive, side="left").sum())
    return below + int(np.searchsorted(ordered, positive, side="right").sum())


def pair_statistic(ranked: Array, labels: Array) -> Array:
    """Return the AUC's statistic of pairs of rows, which are ranked by numbers that are never NaN:
    private.

    ``labels`` are 1 for positive and 0 for negative rows; rows with any other label are ignored.
    """
    positive = ranked[labels == 1]
    negative = ranked[labels == 0]
    twice = twice_ordered_pairs(positive, negative) - len(positive) * len(negative)
    counts = CLASS_WEIGHT * len(positive), CLASS_WEIGHT * len(negative)
    return np.array([twice / (2 * max(1, len(ranked) - 1)), *counts])


def concordance_statistic(ranked: Array, outcomes: Array) -> Array:
    r"""Return ``(V, a P) / (n - 1)`` of records of which one has its event in a period that the
    other survives.

    P is the number of such pairs and V the sum over them of +1/2 where the first is ranked higher,
    0 for a tie and -1/2 else; ``a`` is `ROW_WEIGHT`. Outcomes are those of
    :class:`~dpconvex.losses.DiscreteHazard`; any other number is none. A pair adds ``(v, a c)``
    with c = 0 or 1 and ``|v| <= c / 2``, and moves by 1 at most: from -1/2 to 1/2, or by
    ``sqrt(1/4 + a^2) < 1``. A replaced record is in n - 1 pairs, so that the whole moves by 1, and
    rounding. Private.
    """
    twice = pairs = 0
    for event in range(1, int(max(np.nan_to_num(outcomes).max(initial=0.0), 0.0)), 2):
        ended = ranked[outcomes == event]
        survived = ranked[outcomes > event]
        pairs += len(ended) * len(survived)
        twice += twice_ordered_pairs(ended, survived) - len(ended) * len(survived)
    others = max(1, len(ranked) - 1)
    return np.array([twice / (2 * others), ROW_WEIGHT * (pairs / others)])


def pair_statistic_of_people(
    ranked: Array, labels: Array, shares: Array, people: NDArray[np.int64], count: int
) -> Array:
    """Return the AUC's statistic of pairs for people, whose rows share a weight: in steps of a
    public grid.

    ``shares`` of a person's rows sum to at most 1; ``people`` say whose rows they are.
    """
    is_positive = labels == 1
    valid = (labels == 1) | (labels == 0)
    steps = np.where(valid, np.floor(shares * _STEPS), 0).astype(np.int64)
    every = _pair_order_sums(ranked, is_positive, steps, np.zeros(len(steps), dtype=np.int64))
    twice = every - _pair_order_sums(ranked, is_positive, steps, people)
    counts = (int(steps[label].sum()) / _STEPS for label in (is_positive, ~is_positive))
    return np.array(
        [twice / (2 * max(1, count - 1) * _STEPS**2), *(CLASS_WEIGHT * each for each in counts)]
    )


def _pair_order_sums(
    ranked: Array,
    is_positive: NDArray[np.bool_],
    shares: NDArray[np.int64],
    people: NDArray[np.int64],
) -> int:
    """Return the weights of pairs in the right order less those in the wrong one, of rows of the
    same person.
    """
    order = np.lexsort((ranked, people))
    ranked = ranked[order]
    is_positive = is_positive[order]
    shares = shares[order]
    people = people[order]
    before = np.concatenate([[0], np.cumsum(np.where(is_positive, 0, shares))])
    new_person = np.concatenate([[True], people[1:] != people[:-1]])
    new_tie = new_person | np.concatenate([[True], ranked[1:] != ranked[:-1]])
    ends = np.concatenate([np.flatnonzero(new_tie)[1:], [len(ranked)]])
    person_ends = np.concatenate([np.flatnonzero(new_person)[1:], [len(ranked)]])
    tie = np.cumsum(new_tie) - 1
    person = np.cumsum(new_person) - 1
    below = before[np.flatnonzero(new_tie)[tie]] - before[np.flatnonzero(new_person)[person]]
    weights = (below - (before[person_ends[person]] - before[ends[tie]]))[is_positive]
    # Python's whole numbers: products of two sums of steps exceed 64 bits.
    return sum(
        int(share) * int(weight) for share, weight in zip(shares[is_positive], weights, strict=True)
    )
