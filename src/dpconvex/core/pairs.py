r"""The statistic of pairs that is released for an area under the ROC curve: no sum over records.

``(V / (n - 1), b p, b q)`` with ``V`` the sum over pairs of a positive and a negative row of +1/2 for the right order,
0 for a tie and -1/2 for the wrong one, ``p`` and ``q`` the numbers of positive and of negative rows, and
``b = sqrt(3/8)``. Under replace-one it moves by at most 1.

Lemma. Let the other rows hold p' positive and q' negative ones, at most n - 1 together. A record that keeps its label
moves V by at most ``max(p', q') <= n - 1`` and no number. One that changes its label moves V from within ``q'/2`` of 0
to within ``p'/2`` of it or the other way round, by ``(n - 1) / 2`` at most, and both numbers by 1:
``sqrt(1/4 + 2 b^2) = 1``. One that becomes invalid moves V by as much at most and one number by 1. All three are whole
up to their last division or product and rounded once.

People share a vote among their rows, V is weighted by both votes, and pairs of one person's rows are left out. Given
everybody else all of them are then linear in a person's votes: what a person adds is a convex combination of what
single rows of a whole vote add (or nothing, for votes that are rounded down), and two such are no farther apart than
their extreme points, of which two are as above.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dpconvex.types import Array

__all__ = ["pair_sensitivity", "pair_statistic", "pair_statistic_of_people", "twice_in_order"]


#: Weight of the numbers of rows beside the sum over pairs.
CLASS_WEIGHT = math.sqrt(3 / 8)

_VOTES = 2**30  # steps of a person's vote, which its rows share


def pair_sensitivity(n_samples: int) -> float:
    """Return how far, in Euclidean distance, a replaced record or person moves the statistic: 1, and rounding."""
    return 1.0 + n_samples * 2.0**-50


def twice_in_order(positive: Array, negative: Array) -> int:
    """Return twice the number of pairs in the right order, ties counted half."""
    ordered = np.sort(negative)
    below = int(np.searchsorted(ordered, positive, side="left").sum())
    return below + int(np.searchsorted(ordered, positive, side="right").sum())


def pair_statistic(ranked: Array, labels: Array) -> Array:
    """Return the statistic of rows, which are ranked by numbers that are never NaN: private.

    ``labels`` are 1 for positive and 0 for negative rows; rows with any other label are ignored.
    """
    positive, negative = ranked[labels == 1], ranked[labels == 0]
    twice = twice_in_order(positive, negative) - len(positive) * len(negative)
    counts = CLASS_WEIGHT * len(positive), CLASS_WEIGHT * len(negative)
    return np.array([twice / (2 * max(1, len(ranked) - 1)), *counts])


def pair_statistic_of_people(
    ranked: Array, labels: Array, shares: Array, places: NDArray[np.int64], count: int
) -> Array:
    """Return the same of a public number of people, whose rows share a vote: in whole steps of a public grid.

    ``shares`` of a person's rows sum to at most 1; ``places`` say whose rows they are.
    """
    is_positive, valid = labels == 1, (labels == 1) | (labels == 0)
    steps = np.where(valid, np.floor(shares * _VOTES), 0).astype(np.int64)
    every = _order_sums(ranked, is_positive, steps, np.zeros(len(steps), dtype=np.int64))
    twice = every - _order_sums(ranked, is_positive, steps, places)
    votes = (int(steps[label].sum()) / _VOTES for label in (is_positive, ~is_positive))
    whole = 2 * max(1, count - 1) * _VOTES**2
    return np.array([twice / whole, *(CLASS_WEIGHT * each for each in votes)])


def _order_sums(
    ranked: Array, is_positive: NDArray[np.bool_], shares: NDArray[np.int64], places: NDArray[np.int64]
) -> int:
    """Return the votes of pairs in the right order less those in the wrong one, of rows of the same place."""
    order = np.lexsort((ranked, places))
    ranked, is_positive = ranked[order], is_positive[order]
    shares, places = shares[order], places[order]
    before = np.concatenate([[0], np.cumsum(np.where(is_positive, 0, shares))])
    new_place = np.concatenate([[True], places[1:] != places[:-1]])
    new_tie = new_place | np.concatenate([[True], ranked[1:] != ranked[:-1]])
    ends = np.concatenate([np.flatnonzero(new_tie)[1:], [len(ranked)]])
    place_ends = np.concatenate([np.flatnonzero(new_place)[1:], [len(ranked)]])
    tie, place = np.cumsum(new_tie) - 1, np.cumsum(new_place) - 1
    below = before[np.flatnonzero(new_tie)[tie]] - before[np.flatnonzero(new_place)[place]]
    above = before[place_ends[place]] - before[ends[tie]]
    weights = (below - above)[is_positive]
    # Python's whole numbers: products of two sums of votes exceed 64 bits.
    return sum(int(share) * int(weight) for share, weight in zip(shares[is_positive], weights, strict=True))
