"""A bound that stands for lengths is never below them, and no further above them than it says."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpconvex.core.row_coordinates import row_norm_bound


def coordinates(kind, size, rng):
    """Return an affine map with a constant: near the identity, correlated, far from the origin,
    nearly singular.
    """
    inner = np.eye(size) + 0.02 * rng.normal(size=(size, size))
    centre = rng.normal(size=size)
    if kind == "correlated":
        factor = rng.normal(size=(size, 1))
        inner = np.linalg.inv(np.linalg.cholesky(np.eye(size) + 5 * factor @ factor.T))
    if kind == "far":
        centre = 1e3 * centre
    if kind == "singular":
        inner[-1] = inner[0] * (1 + 1e-9)
    if kind == "unequal":
        inner = inner * np.geomspace(1e-3, 1e3, size)
    matrix = np.eye(size + 1)
    matrix[1:, 1:] = inner
    matrix[1:, 0] = -inner @ centre
    if kind == "low":
        matrix[0, 0] = 0.5
    return matrix


def exact_square(matrix, row):
    """The squared length of a row in rational arithmetic: no rounding at all."""
    numbers = [[Fraction(float(entry)) for entry in line] for line in matrix]
    values = [Fraction(float(entry)) for entry in row]
    return sum(sum(a * b for a, b in zip(line, values, strict=True)) ** 2 for line in numbers)


@pytest.mark.parametrize("kind", ["plain", "correlated", "far", "unequal", "low"])
@pytest.mark.parametrize("size", [2, 7])
def test_lengths_are_never_exceeded_by_the_exact_ones(kind, size):
    rng = np.random.default_rng(size)
    for _ in range(20):
        matrix = coordinates(kind, size, rng)
        bound = row_norm_bound(matrix, 1, 0.5)
        if bound is None:
            continue
        near = np.linalg.solve(matrix[1:, 1:], rng.normal(size=(size, 20))).T + bound.centre
        for x in (*rng.uniform(-1, 1, size=(20, size)), *near, np.zeros(size), bound.centre):
            block = np.r_[1.0, x][None]
            (found,) = bound.norms(block, 1)
            assert Fraction(float(found)) ** 2 >= exact_square(matrix, block[0])


@pytest.mark.parametrize("kind", ["plain", "correlated", "unequal"])
@pytest.mark.parametrize("norm_slack", [0.02, 0.1, 0.5])
def test_white_rows_are_taken_for_little_longer(kind, norm_slack):
    """Root mean squares of 40,000 rows: their error is far below the allowance of 2 %."""
    rng = np.random.default_rng(3)
    matrix = coordinates(kind, 20, rng)
    bound = row_norm_bound(matrix, 1, norm_slack)
    assert bound is not None or norm_slack < 0.5
    if bound is None:
        return
    rows = np.linalg.solve(matrix[1:, 1:], rng.normal(size=(20, 40_000))).T + bound.centre
    found = bound.norms(np.hstack([np.ones((len(rows), 1)), rows]), 1)
    assert 0.98 < math.sqrt(float(np.mean(found**2)) / 21) < (1 + norm_slack) * 1.02


def test_no_bound_where_it_would_not_pay_or_keep_its_digits():
    rng = np.random.default_rng(0)
    assert row_norm_bound(coordinates("singular", 6, rng), 1, 0.1) is None
    many = np.diag(np.geomspace(0.1, 10, 12)) @ np.linalg.qr(rng.normal(size=(12, 12)))[0]
    matrix = np.eye(13)
    matrix[1:, 1:] = many
    assert row_norm_bound(matrix, 1, 0.01) is None
    far = coordinates("plain", 6, rng)
    far[1:, 0] = 1e9
    assert row_norm_bound(far, 1, 0.5) is None
