"""Sums in floating point stay within their bound of exact rational sums."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpconvex.core.queries import Query, largest_query_cancellation
from dpconvex.core.row_coordinates import coordinate_cancellation
from dpconvex.core.summation import (
    block_rows,
    most_summation_additions,
    most_summed_rows,
    pairwise_summation,
    sum_depth,
    summation_additions,
    summation_rounding_error,
)
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Logistic
from dpconvex.privacy import LinearBounds


def norm_of_error(computed, exact):
    errors = [Fraction(float(value)) - sum_ for value, sum_ in zip(computed, exact, strict=True)]
    return math.sqrt(sum(float(error) ** 2 for error in errors))


def adversarial_rows(kind, n, d):
    rng = np.random.default_rng(3)
    if kind == "alike":  # every addition rounds in the same direction
        return np.full((n, d), 1 / math.sqrt(d) * (1 - 2.0**-9))
    if kind == "growing":
        return np.sort(rng.uniform(0, 1 / math.sqrt(d), (n, d)), axis=0)
    if kind == "cancelling":
        half = rng.uniform(-1, 1, (n // 2, d)) / math.sqrt(d)
        return np.concatenate([half, -half[::-1]])
    return rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-12, 0, (n, 1)) / (4 * math.sqrt(d))


@pytest.mark.parametrize("kind", ["alike", "growing", "cancelling", "wide"])
@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("order", ["C", "F"])
def test_combined_rows_stay_within_the_bound(kind, cache, order, monkeypatch):
    # Small blocks: many of them, and the tree above them is what adds.
    monkeypatch.setattr("dpconvex.core.summation.BLOCK_BYTES", 1 << 10)
    n = 40_000
    d = 3
    # Numbers of 24 bits, whose products are exact.
    X = np.asarray(adversarial_rows(kind, n, d).astype(np.float32).astype(float), order=order)
    rows = MemoryRows(X, np.zeros(n), RowMap(d, 1.0, fit_intercept=False), threads=1, cache=cache)
    multiples = np.random.default_rng(0).uniform(0.5, 1.0, n).astype(np.float32).astype(float)

    def function(y, z, w):
        start = function.at
        function.at += len(y)
        return (multiples[start : function.at],)

    function.at = 0
    (total,) = rows.combine(np.zeros(d), function)
    placed, _, weights = rows.mapped()
    assert (weights == 1).all()
    exact = [Fraction(math.fsum(column)) for column in (multiples[:, None] * placed).T.tolist()]
    error = norm_of_error(total, exact)
    assert error <= summation_rounding_error(n, d, float(np.linalg.norm(placed, axis=1).max()))


def test_the_bound_is_tight_enough_to_notice_a_sum_one_by_one():
    """One million equal terms in a chain err by more than the bound allows for the tree."""
    n = 2_000_000
    term = 0.1
    chain = float(np.cumsum(np.full(n, term))[-1])
    error = abs(float(Fraction(chain) - n * Fraction(term)))
    assert error > summation_rounding_error(n, 10_000, term)
    rows = MemoryRows(np.full((n, 1), term), np.zeros(n), RowMap(1, 1.0, fit_intercept=False))
    (total,) = rows.sum(lambda block, y, w: (block.sum(axis=0),))
    assert abs(float(Fraction(float(total[0])) - n * Fraction(term))) <= summation_rounding_error(
        n, 1, term
    )


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 100])
def test_parts_are_added_in_order_and_no_deeper_than_the_tree(count):
    class Part:
        def __init__(self, names, height=0):
            self.names = names
            self.height = height

        def __add__(self, other):
            return Part(self.names + other.names, max(self.height, other.height) + 1)

    (total,) = pairwise_summation((Part([i]),) for i in range(count))
    assert total.names == list(range(count))
    assert total.height == sum_depth(count) == math.ceil(math.log2(count))


def test_nothing_adds_up_to_nothing():
    assert pairwise_summation([]) == []


@pytest.mark.parametrize("dim", [1, 7, 100, 5000])
@pytest.mark.parametrize("n", [1, 63, 64, 10_000, 131_073, 10**7, 10**9])
def test_bound_covers_every_layout(n, dim):
    most = most_summation_additions(n, dim)
    assert summation_additions(n, dim) <= most
    for partitions in (1, 2, 17, 1000, n):
        if partitions <= n:
            groups = -(-partitions // 16)
            longest = n - partitions + 1
            assert summation_additions(longest, dim) + 4 + sum_depth(groups) <= most


@pytest.mark.parametrize("d", [2, 8])
def test_mapped_sums_err_no_more_than_their_share(d):
    """Rows that cancel in every coordinate of a map, weighted to length 1 in it: errors stay
    within what is paid.
    """
    n = 3_000
    rng = np.random.default_rng(d)
    bounds = LinearBounds(n, d, Logistic(), 1.0, 1.0, fit_intercept=False)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    wide = np.diag(np.geomspace(1, 9, d))
    spread = 1.0
    while True:
        matrix = np.geomspace(1, spread, d)[:, None] * turn @ wide
        if (
            spread > 1e12
            or coordinate_cancellation(matrix) > largest_query_cancellation(bounds) / 20
        ):
            break
        spread *= 10
    u = rng.normal(size=(n, d))
    x = np.linalg.solve(matrix, (u / np.linalg.norm(u, axis=1)[:, None]).T).T
    (total,) = pairwise_summation(
        (part.sum(axis=0),) for part in np.array_split(x, -(-n // block_rows(d)))
    )
    exact = [sum(map(Fraction, column)) for column in x.T.tolist()]
    mapped = [
        sum((Fraction(a) * b for a, b in zip(row, exact, strict=True)), Fraction(0))
        for row in matrix.tolist()
    ]
    share = Query("vector", 1.0, d).sensitivity(bounds) / bounds.changed_records - 1
    paid = 2 * share * coordinate_cancellation(matrix) / largest_query_cancellation(bounds)
    assert 2 * norm_of_error(matrix @ total, mapped) <= paid


def test_private_numbers_of_rows_have_a_cap():
    assert most_summed_rows(500, "replace_one") == 500
    assert most_summed_rows(500, "add_or_remove_one") == 2_000_000
    assert most_summed_rows(10**7, "add_or_remove_one") == 10**8
