"""Rows by their non-zeros: the sums of the same rows with all zeros, and bounds that hold in
exact arithmetic.
"""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse

from dpconvex.core.block_products import block_gram, moved_block_gram, takes_sparse_blocks
from dpconvex.core.queries import QuerySlope
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.engine.sparse_rows import NonZeroRows, SparseRows, stack_sparse_rows
from dpconvex.losses import Logistic, Pinball
from dpconvex.objectives.empirical import EmpiricalSlope
from dpconvex.smoothing import LogisticKernel, convolve

COLUMNS = 23
CONTAINS_ZERO = (np.full(COLUMNS, -1.0), np.full(COLUMNS, 2.0))
# Three columns above zero, two below it, and one of width 0.
EXCLUDES_ZERO = (
    np.r_[np.full(COLUMNS - 6, -1.0), 0.5, 1.0, 2.0, -9.0, -3.0, 4.0],
    np.r_[np.full(COLUMNS - 6, 2.0), 3.0, 1.5, 9.0, -5.0, -1e-3, 4.0],
)
WIDE = (np.full(COLUMNS, -50.0), np.full(COLUMNS, 50.0))
BOUNDS = {"none": None, "contain 0": CONTAINS_ZERO, "exclude 0": EXCLUDES_ZERO, "wide": WIDE}


def table(rows=900, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = sparse.random(rows, COLUMNS, 0.2, format="csr", rng=rng, dtype=np.float64)
    X.data = rng.normal(0, 2, X.nnz).astype(dtype)
    X.data[::11] = 0.0  # stored zeros
    return X.astype(dtype), np.where(rng.random(rows) < 0.5, 1.0, -1.0)


def engines(bounds, intercept=True, influence="weight", void=False, dtype=np.float64):
    """Return the same rows with all zeros and with none."""
    X, y = table(dtype=dtype)
    fields = RowMap.from_bounds(COLUMNS, BOUNDS[bounds], 1.7, intercept).to_dict()
    row_map = RowMap.from_dict({**fields, "influence": influence})
    dense = X.toarray()
    if void:
        y[::7] = np.nan
        X.data[3] = np.nan
        X.data[90] = np.inf
        dense = X.toarray()
        y[~np.isfinite(dense).all(axis=1)] = np.nan
    return MemoryRows(dense, y, row_map), SparseRows(X, y, row_map)


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("influence", ["weight", "shorten"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("void", [False, True])
def test_every_pass_is_that_of_dense_rows(monkeypatch, bounds, influence, intercept, void):
    monkeypatch.setattr("dpconvex.core.summation.BLOCK_BYTES", 8 * COLUMNS * 100)
    rng = np.random.default_rng(1)
    whole = engines(bounds, intercept, influence, void)
    assert whole[1]._blocks > 5
    theta = rng.normal(size=whole[0].dim)
    hinge = convolve(Pinball(0.8), LogisticKernel(), 0.3)

    @takes_sparse_blocks
    def products(block, y, w):
        step = rng_steps[: len(block)]
        return block_gram(block, w), (w * y) @ block, moved_block_gram(block, w, step, theta)

    rng_steps = rng.normal(size=1000)
    functions = [
        EmpiricalSlope(Logistic()),
        EmpiricalSlope(hinge),
        lambda y, z, w: (w * np.tanh(z), w @ z, z.sum()),
    ]
    chosen = np.array([5, 899, 5, 14, 0, 441])
    for ours, theirs in (
        (whole[1], whole[0]),
        (whole[1].part(333), whole[0].part(333)),
        (whole[1].take(chosen), whole[0].take(chosen)),
    ):
        for own, expected in zip(ours.mapped(), theirs.mapped(), strict=True):
            np.testing.assert_allclose(own, expected, rtol=1e-13, atol=1e-14)
        np.testing.assert_allclose(ours.weights, theirs.weights, rtol=1e-13)
        for function in functions:
            sums = zip(ours.combine(theta, function), theirs.combine(theta, function), strict=True)
            for own, expected in sums:
                np.testing.assert_allclose(own, expected, rtol=1e-12, atol=1e-11)
        margins = theirs.predicted(theta).weights
        np.testing.assert_allclose(ours.predicted(theta).weights, margins, rtol=1e-12, atol=1e-12)
        for own, expected in zip(ours.sum(products), theirs.sum(products), strict=True):
            np.testing.assert_allclose(own, expected, rtol=1e-11, atol=1e-10)
        doubled = [rows.rescaled(lambda w: 2 * w) for rows in (ours, theirs)]
        own, expected = (rows.combine(theta, EmpiricalSlope(Logistic()))[0] for rows in doubled)
        np.testing.assert_allclose(own, expected, rtol=1e-12, atol=1e-11)
    limited = [rows.rescaled(lambda w: 0.2 * w) for rows in whole]
    own, expected = (
        rows.combine(theta, QuerySlope(Logistic(), weighting="clip"))[0] for rows in limited
    )
    np.testing.assert_allclose(own, expected, rtol=1e-12, atol=1e-11)
    pieces = [piece.n_rows for piece in whole[1].pieces()]
    assert sum(pieces) == 900


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("indices", [np.int32, np.int64])
def test_types_of_values_and_of_columns(dtype, indices):
    X, y = table(dtype=dtype)
    X.indices, X.indptr = X.indices.astype(indices), X.indptr.astype(indices)
    row_map = RowMap.from_bounds(COLUMNS, CONTAINS_ZERO)
    own = SparseRows(X, y, row_map).mapped()
    expected = MemoryRows(X.toarray(), y, row_map).mapped()
    np.testing.assert_array_equal(own[0], expected[0])
    assert SparseRows(X, y, row_map).raw.dtype == dtype


def test_entries_of_one_place_are_added_before_they_are_clipped():
    shuffled = sparse.csr_matrix(
        (np.array([1.5, 4.0, -1.0, 0.25]), np.array([2, 0, 2, 1]), np.array([0, 3, 4])),
        shape=(2, 3),
    )
    row_map = RowMap(3, 10.0, low=(-1.0,) * 3, high=(1.0,) * 3)
    for lie in (False, True):
        shuffled.has_canonical_format = lie  # whatever is said of it
        rows = SparseRows(shuffled, np.zeros(2), row_map)
        np.testing.assert_array_equal(rows.mapped()[0], [[1, 1, 0, 0.5], [1, 0, 0.25, 0]])
    assert shuffled.nnz == 4  # the user's own matrix is left as it was


def test_columns_that_are_not_there_are_refused():
    wrong = sparse.csr_matrix(np.eye(3))
    wrong.indices[1] = 7
    with pytest.raises(ValueError, match="indices"):
        NonZeroRows.of(wrong)


def test_read_only_memory_is_read_and_nothing_is_copied():
    X, _ = table()
    for part in (X.data, X.indices):
        part.flags.writeable = False
    found = NonZeroRows.of(X)
    assert np.shares_memory(found.values, X.data)
    assert np.shares_memory(found.columns, X.indices)


def test_rows_are_chosen_and_stacked():
    X, _ = table(50)
    nonzeros = NonZeroRows.of(X)
    chosen = np.array([3, 3, 49, 0])
    np.testing.assert_array_equal(nonzeros[chosen].to_scipy().toarray(), X.toarray()[chosen])
    both = stack_sparse_rows([nonzeros[chosen], X.toarray()[:2], nonzeros])
    expected = np.vstack([X.toarray()[chosen], X.toarray()[:2], X.toarray()])
    np.testing.assert_array_equal(both.to_scipy().toarray(), expected)


def test_no_rows_and_no_values():
    row_map = RowMap.from_bounds(COLUMNS, EXCLUDES_ZERO)
    empty = SparseRows(sparse.csr_matrix((0, COLUMNS)), np.empty(0), row_map)
    theta = np.ones(COLUMNS + 1)
    assert not empty.combine(theta, EmpiricalSlope(Logistic()))[0].any()
    zeros = SparseRows(sparse.csr_matrix((5, COLUMNS)), np.ones(5), row_map)
    dense = MemoryRows(np.zeros((5, COLUMNS)), np.ones(5), row_map)
    own, expected = (rows.combine(theta, EmpiricalSlope(Logistic()))[0] for rows in (zeros, dense))
    np.testing.assert_allclose(own, expected, rtol=1e-13)


def test_the_same_bits_whatever_the_number_of_threads(monkeypatch):
    monkeypatch.setattr("dpconvex.core.summation.BLOCK_BYTES", 8 * COLUMNS * 20)
    X, y = table()
    row_map = RowMap.from_bounds(COLUMNS, EXCLUDES_ZERO, 1.0)
    theta = np.linspace(-1, 1, COLUMNS + 1)
    found = {
        SparseRows(X, y, row_map, threads=threads)
        .combine(theta, EmpiricalSlope(Logistic()))[0]
        .tobytes()
        for threads in (1, 2, 5)
    }
    assert len(found) == 1


def test_rows_travel():
    _, rows = engines("exclude 0", void=True)
    rows.combine(np.ones(rows.dim), EmpiricalSlope(Logistic()))
    other = pickle.loads(pickle.dumps(rows))
    for own, expected in zip(other.mapped(), rows.mapped(), strict=True):
        np.testing.assert_array_equal(own, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bounds", ["contain 0", "exclude 0", "wide"])
def test_numbers_of_a_row_have_the_same_bits_whoever_is_clipped(bounds, dtype):
    """One record beyond the bounds must not send all others through another compiled kernel."""
    X, y = table(dtype=dtype)
    X.data[:] = np.clip(X.data, -1, 1)
    theta = np.linspace(-1, 1, COLUMNS + 1)
    matrix = np.linalg.qr(np.random.default_rng(3).normal(size=(24, 24)))[0]
    found = []
    for value in (0.5, 100.0):
        X.data[0] = value  # of the first row
        rows = SparseRows(X, y, RowMap.from_bounds(COLUMNS, BOUNDS[bounds], 1.2))
        numbers = (
            rows.weights,
            rows.predicted(theta).weights,
            rows.lengths(matrix),
            rows.lengths(theta**2),
        )
        found.append(np.column_stack([*numbers, rows.mapped()[0]])[1:])
    np.testing.assert_array_equal(*found)


# Exact arithmetic.


def exact_rows(rows, X):
    """Return mapped rows as fractions, as the map is defined: no rounding at all."""
    low, high, shift, scale = (
        [Fraction(float(v)) for v in column] for column in rows.bounds_and_scales
    )
    found = []
    for raw in X.toarray():
        values = [
            min(max(Fraction(float(v)), a), b) for v, a, b in zip(raw, low, high, strict=True)
        ]
        mapped = [(v - c) * s for v, c, s in zip(values, shift, scale, strict=True)]
        found.append([Fraction(1)] * int(rows.row_map.fit_intercept) + mapped)
    return found


def square_of(matrix, row, constant):
    placed = [
        sum(Fraction(float(m)) * x for m, x in zip(line, row, strict=True)) for line in matrix
    ]
    return sum(v * v for v in placed) + constant


@pytest.mark.parametrize("bounds", ["contain 0", "exclude 0", "wide"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("stretch", [1.0, 1e3])
@pytest.mark.parametrize("shape", ["full", "diagonal"])
def test_lengths_are_never_below_the_exact_ones(bounds, intercept, stretch, shape):
    """Also where nearly everything cancels: rows at the centre of coordinates that stretch what
    is around it.
    """
    rng = np.random.default_rng(int(stretch))
    X, _ = table(40)
    X = sparse.csr_matrix(np.vstack([X.toarray(), np.tile(X.toarray()[:1], (3, 1))]))
    row_map = RowMap.from_bounds(COLUMNS, BOUNDS[bounds], None, intercept)
    rows = SparseRows(X, np.zeros(43), row_map)
    lead = int(intercept)
    dim = rows.dim
    if shape == "diagonal":
        given_matrix = stretch ** rng.uniform(-1, 1, dim)
        given_matrix[:lead] = 1.0
        matrix = np.diag(given_matrix)
    else:
        turn = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
        matrix = turn * stretch ** rng.uniform(-1, 1, dim)
        if lead:
            matrix[0] = 0.0
            matrix[0, 0] = 1.0
            # The centre is the first row: its own part of the coordinates is 0 but for rounding.
            matrix[1:, 0] = -matrix[1:, 1:] @ rows.mapped()[0][0, 1:]
        given_matrix = matrix
    found = rows.lengths(given_matrix)
    for length, row in zip(found, exact_rows(rows, X), strict=True):
        exact = square_of(matrix, row, Fraction(1 - lead))
        assert Fraction(float(length)) ** 2 >= exact
        # And not much above: what is added is what rounding can take.
        reach = sum(
            abs(float(x)) * math.sqrt(float(matrix[:, j] @ matrix[:, j])) for j, x in enumerate(row)
        )
        assert (
            float(length) ** 2 <= float(exact) * (1 + 1e-12) + 1e-12 * (reach + dim * stretch) ** 2
        )


@pytest.mark.parametrize("bounds", ["none", "exclude 0"])
@pytest.mark.parametrize("influence", ["weight", "shorten"])
def test_influence_is_bounded_in_exact_arithmetic(bounds, influence):
    X, _ = table(60)
    X = sparse.csr_matrix(X.toarray() + (np.arange(60) % 3 == 0)[:, None] * 0.7)
    fields = RowMap.from_bounds(COLUMNS, BOUNDS[bounds], 1.7).to_dict()
    row_map = RowMap.from_dict({**fields, "influence": influence})
    rows = SparseRows(X, np.zeros(60), row_map)
    factors = rows.weights if influence == "weight" else rows._shortening
    assert (factors < 1).sum() > 30
    for factor, row in zip(factors, exact_rows(rows, X), strict=True):
        square = sum(x * x for x in row[1:]) * Fraction(float(factor)) ** 2
        assert square <= Fraction(1.7) ** 2


@given(st.integers(0, 2**31), st.booleans(), st.sampled_from([1.0, 30.0, 1e3]))
@settings(max_examples=25, deadline=None)
@example(81614, True, 1e3)  # a row that is far shorter than what its base becomes
def test_sums_err_less_than_is_paid_for(seed, excludes, stretch):
    """Of multiples of rows, and of moments mapped to coordinates in which most of them cancels."""
    from dpconvex.core.summation import summation_rounding_error

    rng = np.random.default_rng(seed)
    X, _ = table(30, seed)
    bounds = EXCLUDES_ZERO if excludes else CONTAINS_ZERO
    rows = SparseRows(X, np.zeros(30), RowMap.from_bounds(COLUMNS, bounds))
    multiples = rng.normal(size=30)
    exact = exact_rows(rows, X)
    (total,) = rows.combine(np.zeros(rows.dim), lambda y, z, w: (multiples,))
    for j, found in enumerate(total):
        terms = [Fraction(float(m)) * row[j] for m, row in zip(multiples, exact, strict=True)]
        error = abs(Fraction(float(found)) - sum(terms))
        # What a record adds errs by some roundings of its own; the sum by two of its result.
        own = sum(abs(Fraction(float(m))) for m in multiples) * Fraction(8 * 2.0**-53)
        assert error <= own + abs(sum(terms)) * Fraction(2.0**-52)
    turn = np.linalg.qr(rng.normal(size=(rows.dim, rows.dim)))[0]
    matrix = turn * stretch ** rng.uniform(-1, 1, rows.dim)
    matrix[0] = 0.0
    matrix[0, 0] = 1.0
    lengths = rows.lengths(matrix)
    sums = rows.moment_sums(1 / lengths)
    found = sums.mapped(matrix, 30)
    factors = [Fraction(float(f)) for f in 1 / lengths]
    lines = [[Fraction(float(m)) for m in line] for line in matrix]
    placed = [
        [f * sum(m * x for m, x in zip(line, row, strict=True)) for line in lines]
        for f, row in zip(factors, exact, strict=True)
    ]
    error = math.sqrt(
        sum(
            float(Fraction(float(found[a, b])) - sum(v[a] * v[b] for v in placed)) ** 2
            for a in range(rows.dim)
            for b in range(rows.dim)
        )
    )
    # Rows are added without their base: products of what is left, and of the base, are rounded
    # before they cancel.
    base = np.concatenate([[0.0], rows.base]) if rows.base.size else np.zeros(rows.dim)
    sizes = np.abs(rows.mapped()[0] - base) + np.abs(base)
    reach = sizes @ np.linalg.norm(matrix, axis=0) / lengths
    assert error <= summation_rounding_error(30, rows.dim, 1.0) + 16 * 2.0**-53 * float(
        reach @ reach
    )


def test_without_the_allowance_lengths_would_be_too_short(monkeypatch):
    """So that the test of lengths can fail: the rows at the centre of stretched coordinates
    tell.
    """
    monkeypatch.setattr("dpconvex.engine.sparse_rows._ROUNDINGS", (0, 0))
    with pytest.raises(AssertionError):
        test_lengths_are_never_below_the_exact_ones("exclude 0", True, 1e3, "full")


def test_what_additions_lose_is_kept():
    """Rows that cancel: a plain sum loses what is left of them."""
    n = 100_000
    values = np.random.default_rng(0).normal(size=n) * 1e8
    values = np.concatenate([values, 1e-3 - values[::-1]])
    n = values.size
    X = sparse.csr_matrix((values, np.zeros(n, int), np.arange(n + 1)), shape=(n, 1))
    rows = SparseRows(X, np.zeros(n), RowMap(1, 1e9))
    (total,) = rows.combine(np.zeros(2), lambda y, z, w: (np.ones(len(y)),))
    exact = sum(map(Fraction, values.tolist()))
    ours, plain = (abs(Fraction(float(v)) - exact) for v in (total[1], np.cumsum(values)[-1]))
    assert 20 * ours < plain


def test_what_second_moments_lose_is_kept():
    """Values that cancel: plain sums lose what is left of them, and so would wrong errors of
    additions.
    """
    values = np.random.default_rng(1).normal(size=20_000) * 1e8
    values = np.concatenate([values, 1e-3 - values[::-1]])
    n = values.size
    X = sparse.csr_matrix((values, np.zeros(n, int), np.arange(n + 1)), shape=(n, 1))
    sums = SparseRows(X, np.zeros(n), RowMap(1, 1e9).weighted()).moment_sums(np.ones(n))
    exact = sum(map(Fraction, values.tolist()))
    ours = abs(Fraction(float(sums.high[1, 0])) + Fraction(float(sums.low[1, 0])) - exact)
    assert 1000 * ours < abs(Fraction(float(np.cumsum(values)[-1])) - exact)


def test_row_weights_are_refused():
    """Sums that did not know of them would count every row of a person in full."""
    _, rows = engines("contain 0")
    for ask in (
        lambda: rows.with_row_weights(object()),
        lambda: SparseRows(rows.raw, rows.targets, rows.row_map, row_weights=object()),
    ):
        with pytest.raises(TypeError, match=r"need dense ones\. Use X\.toarray\(\)"):
            ask()


def test_geometry_of_shortened_rows_is_refused():
    _, rows = engines("contain 0", influence="shorten")
    for ask in (
        lambda: rows.lengths(np.ones(rows.dim)),
        lambda: rows.octave_counts(4, 0),
        lambda: rows.moment_sums(np.ones(rows.n_rows)),
    ):
        with pytest.raises(ValueError, match=r"Use RowMap\.weighted\(\)"):
            ask()
