"""Private geometry: whitening coordinates, and influence that stays bounded in them."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.mechanisms.geometry import (
    Coordinates,
    _moment_sums,
    _symmetric_noise,
    given_coordinates,
    private_coordinates,
)
from dpconvex.privacy import NoiseSource


def rows_of(X, intercept=True):
    row_map = RowMap.from_bounds(X.shape[1], (-1.0, 1.0), fit_intercept=intercept)
    return MemoryRows(X, np.zeros(len(X)), row_map, threads=1)


def skewed(n, rng):
    """Rows whose directions differ in spread by 100, away from the origin."""
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    return 0.3 + 0.3 * rng.uniform(-1, 1, size=(n, 3)) @ np.diag([1.0, 0.1, 0.01]) @ turn


@pytest.mark.parametrize("intercept", [True, False])
def test_coordinates_whiten(intercept):
    """Two rounds with little noise: every direction has about the same spread, and the constant stays."""
    rng = np.random.default_rng(0)
    X = skewed(20_000, rng) - (0.0 if intercept else 0.3)
    rows = rows_of(X, intercept)
    found = private_coordinates(
        rows, 20_000, intercept, math.sqrt(3), 2, 1.2, 1.0, 3.0, NoiseSource(0)
    )
    placed = rows.mapped()[0] @ found.matrix.T
    if intercept:
        assert np.array_equal(placed[:, 0], np.ones(20_000))
        placed = placed[:, 1:]
        assert np.abs(placed.mean(axis=0)).max() < 0.3
    values = np.linalg.eigvalsh(placed.T @ placed / len(placed))
    assert values.min() > 0.25
    assert values.max() < 4.0


def test_noise_does_not_pass_for_signal():
    """With noise far above the data, coordinates stay finite and no direction is blown up against another."""
    rng = np.random.default_rng(1)
    found = private_coordinates(
        rows_of(rng.uniform(-1, 1, size=(50, 3))), 50, True, math.sqrt(3), 2, 1.0, 100.0, 100.0,
        NoiseSource(0),
    )  # fmt: skip
    assert np.all(np.isfinite(found.matrix))
    assert np.linalg.cond(found.matrix[1:, 1:]) < 10


@pytest.mark.parametrize("stretch", [1.0, 1e3, 1e6])
def test_influence_is_bounded_in_exact_arithmetic(stretch):
    """``w ||u|| <= influence`` for the numbers that were measured, without rounding."""
    rng = np.random.default_rng(2)
    matrix = np.eye(4)
    matrix[1:, 1:] = rng.normal(size=(3, 3)) * stretch
    coordinates = Coordinates(matrix, 1.5, 1)
    block = np.column_stack([np.ones(200), rng.uniform(-1, 1, size=(200, 3))])
    weights = coordinates.weights(block, np.ones(200))
    for w, u in zip(weights, (block @ matrix.T)[:, 1:], strict=True):
        square = Fraction(float(w)) ** 2 * sum(Fraction(float(v)) ** 2 for v in u)
        assert square <= Fraction(1.5) ** 2


def test_given_coordinates_have_the_stated_influence():
    coordinates = given_coordinates(4, True, 0.5)
    assert coordinates.influence == 2.0
    longest = np.r_[1.0, 0.5, 0.0, 0.0, 0.0]
    assert np.array_equal(coordinates.matrix @ longest, [1.0, 2.0, 0.0, 0.0, 0.0])
    phi = np.arange(5.0)
    assert longest @ coordinates.to_rows(phi) == (coordinates.matrix @ longest) @ phi


def test_moment_sums_are_of_shortened_rows():
    X = np.array([[0.3, 0.4], [0.06, -0.08]])
    sums = _moment_sums(rows_of(X), Coordinates(np.eye(3), math.inf, 1), 0.2)
    short = np.array([[1, 0.6, 0.8], [1, 0.3, -0.4]])
    assert np.allclose(sums, short.T @ short, rtol=1e-12)


def test_matrix_noise_is_isotropic():
    """Variance std^2 on the diagonal and half of it beside: 4,000 draws, 6.5 standard errors (1e-9 false alarms)."""
    noise = NoiseSource(0)
    draws = np.array([_symmetric_noise(3, 2.0, noise) for _ in range(4_000)])
    assert np.array_equal(draws, draws.transpose(0, 2, 1))
    expected = 4.0 * (np.eye(3) + 1) / 2
    error = expected * math.sqrt(2 / 4_000)
    assert np.all(np.abs((draws**2).mean(axis=0) - expected) < 6.5 * error)


def test_new_weights_replace_old_ones():
    """Also where rows were mapped and kept before: stale weights would leave influence unbounded."""
    rows = rows_of(np.full((10, 2), 0.5))
    assert rows.sum(lambda block, y, w: (w.sum(),))[0] == 10
    other = rows.reweighted(lambda block, w: np.full(len(w), 0.25))
    assert other.sum(lambda block, y, w: (w.sum(),))[0] == 2.5
    assert other.combine(np.zeros(3), lambda y, z, w: (w,))[0][0] == 2.5
    assert rows.sum(lambda block, y, w: (w.sum(),))[0] == 10


def test_new_weights_reach_every_way_of_summing(monkeypatch):
    """Rows mapped on the fly and rows kept in memory give the same weighted sums."""
    rng = np.random.default_rng(8)
    X = rng.uniform(-1, 1, size=(3_000, 3))
    coordinates = Coordinates(np.diag([1.0, 5.0, 2.0, 9.0]), 1.2, 1)
    theta = rng.normal(size=4)

    def total():
        rows = rows_of(X).reweighted(coordinates.weights)
        return rows.combine(theta, lambda y, z, w: (w * np.tanh(z),))[0]

    kept = total()
    monkeypatch.setattr("dpconvex.engine.memory.CACHE_BYTES", 0)
    monkeypatch.setattr("dpconvex.engine.memory.BLOCK_BYTES", 8 * 4 * 500)
    assert not rows_of(X)._small
    assert np.allclose(total(), kept, rtol=1e-12)
    block = rows_of(X).mapped()[0]
    w = np.minimum(1, 1.2 / np.linalg.norm((block @ coordinates.matrix.T)[:, 1:], axis=1))
    assert w.min() < 0.5
    assert np.allclose((w * np.tanh(block @ theta)) @ block, kept, rtol=1e-12)
