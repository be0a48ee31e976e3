"""Private geometry: whitening coordinates, and influence that stays bounded in them."""

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from handles import geometry_terms, handle

from dpconvex.core.private_rows import _private_moment_sums
from dpconvex.core.queries import pack_query_matrix, unpack_query_matrix
from dpconvex.core.row_coordinates import Coordinates, RowNormBound, RowNorms
from dpconvex.core.rows import RAW_CLIP_LIMIT
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.fit.constants import MAX_SCALING
from dpconvex.fit.fit_plan import FitConfig
from dpconvex.fit.geometry import _column_geometry_units, column_octaves, release_row_geometry


def frame_of(matrix, lead=1):
    return Coordinates(np.array(matrix), lead)


def found_in(rows, std, above=0, **more):
    """Return coordinates with noise of one size on everything."""
    lead = int(rows.row_map.fit_intercept)
    terms = geometry_terms(std, rows.dim - lead, lead, above)
    config = FitConfig(records_per_coefficient=100.0, max_octaves=above, **more)
    return release_row_geometry(handle(rows, terms), config, rows.n_rows)


def units_of(rows, std, above=0, seed=0):
    """Return units, centres and spreads of columns with noise of one size."""
    asked = handle(rows, geometry_terms(std, rows.dim - 1, above=above), seed)
    counts = asked.column_octaves("columns", above, column_octaves(above))
    return _column_geometry_units(counts, std, rows.n_rows, above)[:3]


def rows_of(X, intercept=True):
    row_map = RowMap.from_bounds(X.shape[1], (-1.0, 1.0), fit_intercept=intercept)
    return MemoryRows(X, np.zeros(len(X)), row_map, threads=1)


def skewed(n, rng):
    """Rows whose directions differ in spread by 100, away from the origin."""
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    return 0.3 + 0.3 * rng.uniform(-1, 1, size=(n, 3)) @ np.diag([1.0, 0.1, 0.01]) @ turn


def test_a_flag_that_noise_hides_may_have_values_at_its_bound():
    """50 of 5,000 rows have the flag; noise of 150 hides them, but not that the others are 0.

    Numbers far from their bounds do not shrink the unit of a flag: so far stretched, its rows would
    count for nothing.
    """
    rng = np.random.default_rng(0)
    for size in (0.2, 0.002):
        X = np.column_stack([rng.normal(0, size, (5000, 3)).clip(-1, 1), rng.random(5000) < 0.01])
        for seed in range(20):
            asked = handle(rows_of(X), geometry_terms(150.0, 4), seed)
            found = _column_geometry_units(
                asked.column_octaves("columns", 0, column_octaves(0)), 150.0, 5000, 0
            )
            units = found.units
            assert found.outermost.tolist() == [0, 0, 0, 1]
            assert np.all(np.isinf(found.most_variance[:3]))
            assert 0 < found.most_variance[3] < 1
            # Three standard deviations of a count may have the flag.
            assert units[3] > math.sqrt(3 * 150 / 5000)
            assert units[:3].max() < 10 * size


@pytest.mark.parametrize("intercept", [True, False])
def test_coordinates_whiten(intercept):
    """With little noise every direction has about the same spread, and the constant stays."""
    rng = np.random.default_rng(0)
    X = skewed(20_000, rng) - (0.0 if intercept else 0.3)
    rows = rows_of(X, intercept)
    found = found_in(rows, 2.0)
    placed = rows.mapped()[0] @ found.matrix.T
    if intercept:
        assert np.array_equal(placed[:, 0], np.ones(20_000))
        placed = placed[:, 1:]
        assert np.abs(placed.mean(axis=0)).max() < 0.3
    values = np.linalg.eigvalsh(placed.T @ placed / len(placed))
    assert values.min() > 0.25
    assert values.max() < 4.0
    lengths = np.sqrt(1 + np.square(placed).sum(axis=1))
    assert found.median_row_norm == pytest.approx(np.median(lengths), rel=0.25)
    assert found.moments == pytest.approx(np.ones(3 + intercept), abs=0.5)


def test_noise_does_not_pass_for_signal():
    """With noise far above the data, coordinates stay finite and no direction is blown up
    against another.
    """
    X = np.random.default_rng(1).uniform(-1, 1, size=(50, 3))
    for std in (200.0, 1e6, 1e12):
        found = found_in(rows_of(X), std)
        assert np.all(np.isfinite(found.matrix))
        assert np.linalg.cond(found.matrix[1:, 1:]) < 10
        assert np.isfinite(found.moments).all()
        assert 1 <= found.median_row_norm < 1e4


def test_a_flag_that_is_rare_keeps_its_scale_and_a_narrow_column_is_stretched():
    rng = np.random.default_rng(3)
    n = 20_000
    X = np.column_stack([rng.random(n) < 0.01, 1e-4 * rng.standard_normal(n)])
    rows = rows_of(X)
    found = found_in(rows, 3.0, radius_multiple=8.0)
    placed = rows.mapped()[0] @ found.matrix.T
    values = np.linalg.eigvalsh(np.cov(placed[:, 1:].T))
    # Long rows are shortened before moments are taken, so flags weigh a little less.
    assert values.min() > 0.3
    assert values.max() < 100


def test_columns_that_noise_hides_one_by_one_share_a_unit():
    """Noise of 250 hides octaves of 400 values in one column, and not in twenty."""
    rng = np.random.default_rng(0)
    X = rng.choice([-1, 1], (1000, 20)) * 2.0 ** -rng.uniform(6, 8.5, (1000, 20))
    sizes, _, _ = units_of(rows_of(X), 250.0)
    assert sizes.min() >= 2.0**-9
    assert np.count_nonzero(sizes <= 2.0**-5) >= 18
    drowned, _, spreads = units_of(rows_of(X[:, 1:2]), 250.0)
    assert drowned.tolist() == [1.0]
    assert spreads[0] < 1  # not all that may be hidden is there


def test_columns_alike_share_a_unit():
    """Of 50 columns alike none is stretched twice as far as others, as noise would have it."""
    X = np.random.default_rng(0).normal(0, 0.2, (3500, 50)).clip(-1, 1)
    for seed in range(10):
        sizes = units_of(rows_of(X), 60.0, seed=seed)[0]
        assert np.mean(np.abs(np.log2(sizes / np.median(sizes))) < 1) > 0.9


def test_columns_far_off_centre_are_centred_and_flags_keep_their_size():
    """Blood pressures in a corner of their bounds, a flag that is mostly set, and one that is
    rare.
    """
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [
            rng.normal(0.4, 0.04, 2000),
            rng.random(2000) < 0.9,
            rng.normal(0, 0.1, 2000),
            rng.random(2000) < 0.1,
            rng.normal(-0.8, 0.01, 2000),
        ]
    ).astype(float)
    sizes, centres, spreads = units_of(rows_of(X), 1.0)
    # An octave is told, and not where in it: the moments do the rest.
    np.testing.assert_allclose(centres, [0.4, 0.9, 0, 0.1, -0.8], atol=0.25)
    assert max(sizes[0], sizes[4]) < 0.35
    assert min(sizes[1], sizes[3]) > 0.2
    assert (spreads <= 1).all()
    rows = rows_of(X)
    for std, most in ((1.0, 0.5), (30.0, 0.8)):
        found = found_in(rows, std)
        placed = (rows.mapped()[0] @ found.matrix.T)[:, 1:]
        assert np.abs(placed.mean(axis=0)).max() < most


def test_signs_tell_centres_of_columns_apart():
    """Values on one side of 0 have a centre, the same on both sides have none, and as wide a
    unit.
    """
    rng = np.random.default_rng(0)
    sizes = rng.uniform(0.25, 1.0, (4000, 1))
    X = np.hstack([sizes, -sizes, sizes * rng.choice([-1, 1], (4000, 1))])
    units, centres, _ = units_of(rows_of(X), 1.0)
    np.testing.assert_allclose(centres, [0.625, -0.625, 0.0], atol=0.1)
    assert units[2] > 1.5 * max(units[:2])
    assert units[0] == pytest.approx(units[1], rel=0.1)


def test_raw_columns_find_their_units():
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [
            rng.integers(1990, 2024, 2000),
            np.exp(rng.normal(10.5, 0.8, 2000)),
            rng.random(2000) < 0.05,
            1e-7 * rng.random(2000),
            np.zeros(2000),
        ]
    ).astype(float)
    rows = MemoryRows(X, np.zeros(2000), RowMap.from_bounds(5, None).weighted(RAW_CLIP_LIMIT))
    sizes, centres, _ = units_of(rows, 1.0, 40)
    assert abs(centres[0] - 2007) < 2 * sizes[0] <= 2048
    assert 2.0**13 <= sizes[1] <= 2.0**19
    assert 0.1 <= sizes[2] <= 2
    assert 2.0**-27 <= sizes[3] <= 2.0**-22
    found = found_in(rows, 1.0, 40)
    placed = (rows.mapped()[0] @ found.matrix.T)[:, 1:]
    spread = placed.std(axis=0)
    assert np.isfinite(placed).all()
    assert np.linalg.matrix_rank(np.cov(placed.T), tol=1e-3) >= 4
    assert spread.max() < 30


def test_a_long_column_does_not_share_the_unit_of_flags():
    """A column of which no octave holds enough to be seen: it was measured in units of the
    flags, a hundredth of it.
    """
    rng = np.random.default_rng(0)
    flags = (rng.random((6000, 7)) < 0.1).astype(float)
    pay = np.where(rng.random(6000) < 0.7, 0.0, rng.lognormal(6, 1.2, 6000))
    X = np.column_stack([pay, flags])
    rows = MemoryRows(X, np.zeros(6000), RowMap.from_bounds(8, None).weighted(2.0**40))
    found = np.array([units_of(rows, 80.0, 40, seed)[0] for seed in range(20)])
    assert np.median(found[:, 0]) > 100
    assert 0.1 < np.median(found[:, 1:]) < 2.1  # flags are 1, and in the octave from 1 to 2


def test_units_shrink_as_noise_falls():
    """What noise may hide lies as far out as is seen: less noise hides less."""
    X = np.random.default_rng(0).normal(0, 0.01, (5000, 4))
    sizes = [np.median(units_of(rows_of(X), std)[0]) for std in (300.0, 30.0, 3.0, 0.3)]
    assert sizes[-1] < sizes[0]
    assert sizes[-1] == pytest.approx(0.01, rel=0.5)


def test_no_direction_is_stretched_beyond_the_digits_of_a_sum():
    """A column that is constant but for 1e-9 is not blown up, whatever the noise."""
    rng = np.random.default_rng(4)
    X = 0.5 + 1e-9 * rng.standard_normal((5_000, 2))
    for std in (1e-6, 1.0):
        found = found_in(rows_of(X), std)
        longest = np.linalg.norm(found.matrix[1:, 1:], 2) * math.sqrt(2)
        assert longest <= MAX_SCALING * (1 + 1e-9)


def test_too_many_columns_for_a_matrix_are_stretched_one_by_one():
    rng = np.random.default_rng(0)
    rows = rows_of(rng.uniform(-1, 1, (3000, 4)) * [1.0, 0.1, 0.01, 0.0])
    terms = geometry_terms(1.0, 4)
    del terms["moments"]
    found = release_row_geometry(
        handle(rows, terms), FitConfig(records_per_coefficient=100.0), 3000
    )
    assert found.matrix.shape == (5,)
    spread = (rows.mapped()[0] * found.matrix)[:, 1:].std(axis=0)
    assert spread[:3].max() < 3 * spread[:3].min()
    assert found.median_row_norm == pytest.approx(math.sqrt(2), rel=0.3)


def test_geometry_of_a_part_is_that_of_all():
    """A public part of the rows: the same coordinates up to chance, and lengths may be taken for
    longer.
    """
    X = skewed(20_000, np.random.default_rng(0))
    whole = found_in(rows_of(X), 0.5)
    part = found_in(rows_of(X), 0.5, geometry_rows=4000)
    assert whole.norm_slack == 0 < part.norm_slack
    rows = rows_of(X).mapped()[0]
    for found in (whole, part):
        values = np.linalg.eigvalsh(np.cov((rows @ found.matrix.T)[:, 1:].T))
        assert 0.25 < values.min() < values.max() < 4


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
        frame_of(matrix, lead).norms(block), (block @ matrix.T)[:, lead:], strict=True
    ):
        square = 1 + sum(Fraction(float(v)) ** 2 for v in u)
        assert Fraction(float(length)) ** 2 >= square


def test_moment_sums_are_of_shortened_rows():
    X = np.array([[0.3, 0.4], [0.06, -0.08]])
    sums = _private_moment_sums(rows_of(X), frame_of(np.eye(3)), 0.2)
    rows = np.column_stack([np.ones(2), X])
    short = rows / np.linalg.norm(rows, axis=1)[:, None]
    assert np.allclose(sums, short.T @ short, rtol=1e-12)


def test_packed_matrices_keep_their_norm():
    matrix = np.array([[1.0, 2, 3], [2, -1, 0.5], [3, 0.5, 4]])
    assert np.linalg.norm(pack_query_matrix(matrix)) == pytest.approx(
        np.linalg.norm(matrix), rel=1e-14
    )
    assert np.allclose(unpack_query_matrix(pack_query_matrix(matrix), 3), matrix, rtol=1e-15)


def test_new_weights_replace_old_ones():
    """Also where rows were mapped and kept before: stale weights would leave influence
    unbounded.
    """
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
        rows = rows_of(X).reweighted(RowNorms(coordinates))
        rows = rows.rescaled(lambda lengths: np.minimum(1, 1.2 / lengths))
        return rows.combine(theta, lambda y, z, w: (w * np.tanh(z),))[0]

    kept = total()
    monkeypatch.setattr("dpconvex.core.memory_rows.CACHE_BYTES", 0)
    monkeypatch.setattr("dpconvex.core.summation.BLOCK_BYTES", 8 * 4 * 500)
    assert not rows_of(X).small
    assert np.allclose(total(), kept, rtol=1e-12)
    block = rows_of(X).mapped()[0]
    w = np.minimum(1, 1.2 / np.linalg.norm(block @ coordinates.matrix.T, axis=1))
    assert w.min() < 0.5
    assert np.allclose((w * np.tanh(block @ theta)) @ block, kept, rtol=1e-12)


@pytest.mark.parametrize("size", [3, 9, 18, 50])
@pytest.mark.parametrize("kind", ["centred", "full", "upper bound"])
def test_a_rows_place_and_length_have_the_same_bits_whoever_stands_beside_it(kind, size):
    """Counts of lengths below an edge move by one row, even where many alike stand on it.

    Libraries for matrices compute the last one of an odd number of rows in another way. Centred raw
    columns are placed by numbers that noise hardly ever changes, and the first edge is public: rows
    can be put on it.
    """
    rng = np.random.default_rng(size)
    matrix = np.diag(1 + rng.random(size))
    matrix[1:, 0] = -10 * rng.random(size - 1)
    if kind != "centred":
        matrix[1:, 1:] += 0.3 * rng.normal(size=(size - 1, size - 1))
    frame = frame_of(matrix)
    if kind == "upper bound":
        outside = rng.normal(size=(size // 2, size - 1))
        bound = RowNormBound(
            1.0, rng.random(size - 1), rng.random(size - 1), outside, rng.random(size // 2)
        )
        frame = replace(frame, norm_slack=1.0)
        vars(frame)["norm_upper_bound"] = bound
    block = np.c_[np.ones(80), rng.uniform(0, 10, size=(80, size - 1))]
    placed = frame.transform(block).copy()
    lengths = frame.norms(block)
    for first in range(9):
        for last in (*range(first + 1, first + 20), 79, 80):
            fewer = block[first:last].copy()
            np.testing.assert_array_equal(frame.transform(fewer), placed[first:last])
            np.testing.assert_array_equal(frame.norms(fewer), lengths[first:last])
