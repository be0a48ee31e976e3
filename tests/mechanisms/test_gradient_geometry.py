"""Private geometry: whitening coordinates, and influence that stays bounded in them."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from handles import geometry_terms, handle

from dpconvex.core.coordinates import Coordinates, RowLengths
from dpconvex.core.length_cover import LengthCover
from dpconvex.core.queries import pack_symmetric, unpack_symmetric
from dpconvex.core.release import _moment_sums
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.engine.rows import RAW_FARTHEST
from dpconvex.mechanisms.column_ranges import column_units
from dpconvex.mechanisms.gradient_geometry import (
    STRETCH_LIMIT,
    Look,
    given_coordinates,
    private_coordinates,
)

DIGITS = 1e5  # how much digits of a sum may cancel


def frame_of(matrix, lead=1):
    return Coordinates(np.array(matrix), lead)


def found_in(rows, look, std):
    """Return coordinates with noise of one size on everything."""
    lead = int(rows.row_map.fit_intercept)
    terms = geometry_terms(std, rows.dim - lead, lead)
    return private_coordinates(handle(rows, terms), look)


def units_of(rows, std, above=0, places=False):
    """Return units of columns with noise of one size."""
    terms = geometry_terms(std, rows.dim - 1, above=above, places=places)
    return column_units(handle(rows, terms), rows.n_rows, above)


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
    look = Look(20_000, None, intercept, math.sqrt(3), 1.1, 0.5, 1.0, DIGITS)
    found = found_in(rows, look, 2.0)
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
    look = Look(50, None, True, math.sqrt(3), 1.1, 0.5, 0.5, DIGITS)
    found = found_in(rows_of(rng.uniform(-1, 1, size=(50, 3))), look, 200.0)
    assert np.all(np.isfinite(found.matrix))
    assert np.linalg.cond(found.matrix[1:, 1:]) < 10


def test_a_flag_that_is_rare_keeps_its_scale_and_a_narrow_column_is_stretched():
    """Scales come from the octave that holds values, not from the spread: zeros do not count."""
    rng = np.random.default_rng(3)
    n = 20_000
    X = np.column_stack([rng.random(n) < 0.01, 1e-4 * rng.standard_normal(n)])
    rows = rows_of(X)
    look = Look(n, None, True, math.sqrt(2), 8.0, 0.5, 1.0, DIGITS)
    found = found_in(rows, look, 3.0)
    placed = rows.mapped()[0] @ found.matrix.T
    values = np.linalg.eigvalsh(np.cov(placed[:, 1:].T))
    assert values.min() > 0.3
    assert (
        values.max() < 100
    )  # long rows are shortened before moments are taken, so flags weigh a little less


def test_columns_that_noise_hides_one_by_one_share_a_unit():
    """Noise of 250 hides octaves of 400 values in one column, and not in twenty."""
    rng = np.random.default_rng(0)
    X = rng.choice([-1, 1], (1000, 20)) * 2.0 ** -rng.uniform(6, 8.5, (1000, 20))
    units = units_of(rows_of(X), 250.0)
    assert 2.0**-7 <= units.sizes.min() <= units.sizes.max() <= 2.0**-5
    drowned = units_of(rows_of(X[:, 1:2]), 250.0)
    assert drowned.sizes.tolist() == [1.0]


def test_columns_in_a_corner_of_their_bounds_are_centred_and_few_far_numbers_not_stretched():
    """Blood pressures and a flag that is mostly set; noise of 60 hides single places, and not stretches of them."""
    rng = np.random.default_rng(0)
    X = np.column_stack([
        rng.normal(0.4, 0.04, 2000), rng.random(2000) < 0.9, rng.normal(0, 0.1, 2000),
        rng.random(2000) < 0.1, rng.normal(-0.8, 0.01, 2000),
    ]).astype(float)  # fmt: skip
    for std, far in ((1.0, 0.35), (60.0, 0.8)):
        units = units_of(rows_of(X), std, places=True)
        np.testing.assert_allclose(units.centres, [0.4, 0.98, 0, 0, -0.8], atol=0.06)
        assert units.sizes[0] < far
        assert units.sizes[4] < far
        assert min(units.sizes[1], units.sizes[3]) > 0.3


def test_raw_columns_find_their_units_and_years_their_middle():
    rng = np.random.default_rng(0)
    X = np.column_stack([
        rng.integers(1990, 2024, 2000), np.exp(rng.normal(10.5, 0.8, 2000)), rng.random(2000) < 0.05,
        1e-7 * rng.random(2000), np.zeros(2000),
    ]).astype(float)  # fmt: skip
    rows = MemoryRows(X, np.zeros(2000), RowMap.from_bounds(5, None).weighted(RAW_FARTHEST))
    units = units_of(rows, 1.0, 40, places=True)
    assert abs(units.centres[0] - 2007) < units.sizes[0] <= 128
    assert 2.0**17 <= units.sizes[1] <= 2.0**19
    assert 1 <= units.sizes[2] <= 2
    assert 2.0**-24 <= units.sizes[3] <= 2.0**-22
    assert not units.centres[1:].any()


def test_no_direction_is_stretched_beyond_the_digits_of_a_sum():
    """A column that is constant but for 1e-9 is not blown up, whatever the noise."""
    rng = np.random.default_rng(4)
    X = 0.5 + 1e-9 * rng.standard_normal((5_000, 2))
    look = Look(5_000, None, True, math.sqrt(2), 1.1, 0.5, 1.0, DIGITS)
    found = found_in(rows_of(X), look, 1e-6)
    longest = np.linalg.norm(found.matrix[1:, 1:], 2) * math.sqrt(2)
    assert longest <= STRETCH_LIMIT * (1 + 1e-9)


@pytest.mark.parametrize("lead", [0, 1])
@pytest.mark.parametrize("stretch", [1.0, 1e3, 1e5])
def test_lengths_are_not_below_exact_ones(stretch, lead):
    """``sqrt(1 + ||u||^2)`` of the numbers that were measured, in exact arithmetic."""
    rng = np.random.default_rng(2)
    matrix = np.eye(3 + lead)
    matrix[lead:, lead:] = rng.normal(size=(3, 3)) * stretch
    block = rng.uniform(-1, 1, size=(200, 3 + lead))
    block[:, :lead] = 1.0
    for length, u in zip(
        frame_of(matrix, lead).lengths(block), (block @ matrix.T)[:, lead:], strict=True
    ):
        square = 1 + sum(Fraction(float(v)) ** 2 for v in u)
        assert Fraction(float(length)) ** 2 >= square


def test_given_coordinates_have_the_stated_influence():
    coordinates = given_coordinates(4, True, 0.5)
    longest = np.r_[1.0, 0.5, 0.0, 0.0, 0.0]
    assert np.array_equal(coordinates.matrix @ longest, [1.0, 2.0, 0.0, 0.0, 0.0])
    phi = np.arange(5.0)
    assert longest @ coordinates.to_rows(phi) == (coordinates.matrix @ longest) @ phi


def test_moment_sums_are_of_shortened_rows():
    X = np.array([[0.3, 0.4], [0.06, -0.08]])
    sums = _moment_sums(rows_of(X), frame_of(np.eye(3)), 0.2)
    rows = np.column_stack([np.ones(2), X])
    short = rows / np.linalg.norm(rows, axis=1)[:, None]
    assert np.allclose(sums, short.T @ short, rtol=1e-12)


def test_packed_matrices_keep_their_norm():
    matrix = np.array([[1.0, 2, 3], [2, -1, 0.5], [3, 0.5, 4]])
    assert np.linalg.norm(pack_symmetric(matrix)) == pytest.approx(
        np.linalg.norm(matrix), rel=1e-14
    )
    assert np.allclose(unpack_symmetric(pack_symmetric(matrix), 3), matrix, rtol=1e-15)


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
    coordinates = frame_of(np.diag([1.0, 5.0, 2.0, 9.0]))
    theta = rng.normal(size=4)

    def total():
        rows = rows_of(X).reweighted(RowLengths(coordinates))
        rows = rows.rescaled(lambda lengths: np.minimum(1, 1.2 / lengths))
        return rows.combine(theta, lambda y, z, w: (w * np.tanh(z),))[0]

    kept = total()
    monkeypatch.setattr("dpconvex.engine.memory.CACHE_BYTES", 0)
    monkeypatch.setattr("dpconvex.engine.summation_order.BLOCK_BYTES", 8 * 4 * 500)
    assert not rows_of(X)._small
    assert np.allclose(total(), kept, rtol=1e-12)
    block = rows_of(X).mapped()[0]
    w = np.minimum(1, 1.2 / np.linalg.norm(block @ coordinates.matrix.T, axis=1))
    assert w.min() < 0.5
    assert np.allclose((w * np.tanh(block @ theta)) @ block, kept, rtol=1e-12)


@pytest.mark.parametrize("size", [3, 9, 18, 50])
@pytest.mark.parametrize("kind", ["centred", "full", "cover"])
def test_a_rows_place_and_length_have_the_same_bits_whoever_stands_beside_it(kind, size):
    """Counts of lengths below an edge move by one row, even where many alike stand on it.

    Libraries for matrices compute the last one of an odd number of rows in another way. Centred raw columns are placed
    by numbers that noise hardly ever changes, and the first edge is public: rows can be put on it.
    """
    rng = np.random.default_rng(size)
    matrix = np.diag(1 + rng.random(size))
    matrix[1:, 0] = -10 * rng.random(size - 1)
    if kind != "centred":
        matrix[1:, 1:] += 0.3 * rng.normal(size=(size - 1, size - 1))
    frame = frame_of(matrix)
    if kind == "cover":
        outside = rng.normal(size=(size // 2, size - 1))
        cover = LengthCover(
            1.0, rng.random(size - 1), rng.random(size - 1), outside, rng.random(size // 2)
        )
        frame = replace(frame, excess=1.0)
        vars(frame)["cover"] = cover
    block = np.c_[np.ones(80), rng.uniform(0, 10, size=(80, size - 1))]
    placed, lengths = frame.place(block).copy(), frame.lengths(block)
    for first in range(9):
        for last in (*range(first + 1, first + 20), 79, 80):
            fewer = block[first:last].copy()
            np.testing.assert_array_equal(frame.place(fewer), placed[first:last])
            np.testing.assert_array_equal(frame.lengths(fewer), lengths[first:last])
