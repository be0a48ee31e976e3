"""Compiled kernels, one by one: whole numbers come out exactly, rounding is kept where that is
said, bounds are bounds.

Products and sums of small whole numbers are exact in floating point in any order, so that every
error of an index, a sign or a limit of a loop is a difference; rational arithmetic judges what is
said of rounding.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from dpconvex.core import dense_kernels
from dpconvex.core.row_coordinates import Coordinates
from dpconvex.engine import compensated_kernels, sparse_kernels

SIZES = [
    (rows, columns) for rows in (1, 2, 3, 4, 5, 31, 33, 66) for columns in (1, 2, 3, 4, 5, 7, 8, 9)
]


def whole(rng, *shape):
    """Return whole numbers other than 0, small enough for every sum here."""
    return rng.integers(1, 20, shape) * rng.choice([-1.0, 1.0], shape)


@pytest.mark.parametrize("shape", SIZES)
def test_products_of_dense_rows(shape):
    rng = np.random.default_rng(shape)
    block = whole(rng, *shape)
    theta = whole(rng, shape[1])
    found = np.full(shape[0], np.nan)
    dense_kernels.dense_vector_products(block, theta, found)
    np.testing.assert_array_equal(found, [sum(row * theta) for row in block])
    for width in (1, 3):
        columns = whole(rng, shape[1], width)
        product = np.full((shape[0], width), np.nan)
        dense_kernels.dense_matrix_products(block, columns, product)
        np.testing.assert_array_equal(
            product, [[sum(row * column) for column in columns.T] for row in block]
        )


@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("lead", [0, 1])
def test_squared_norms_of_dense_rows(shape, lead):
    rng = np.random.default_rng(shape)
    block = whole(rng, shape[0], shape[1] + lead)
    centre = whole(rng, shape[1])
    scale = whole(rng, shape[1])
    found = np.full(shape[0], np.nan)
    dense_kernels.dense_squared_norms(block, lead, found)
    np.testing.assert_array_equal(found, [sum(row[lead:] ** 2) for row in block])
    dense_kernels.scaled_dense_norms(block, lead, centre, scale, found)
    np.testing.assert_array_equal(
        found, [sum(((row[lead:] - centre) * scale) ** 2) for row in block]
    )


def test_a_row_counts_in_full_up_to_its_norm_and_not_beyond():
    """The comparison without a square root agrees with the one that has it, digit by digit."""
    limit = 3.0
    values = [limit / (1 + 5 * 2.3e-16)]
    for toward in (0.0, math.inf):
        value = values[0]
        for _ in range(40):
            value = np.nextafter(value, toward)
            values.append(value)
    X = np.sort(np.array([*values, 0.0, 1.0, 2.9, 3.1, 4.0, 1e9]))[:, None]
    facts = np.array([-1e10]), np.array([1e10]), np.zeros(1), np.ones(1)
    mapped = np.empty_like(X)
    weights = np.empty(len(X))
    dense_kernels.map_dense_rows(
        X, np.arange(len(X)), *facts, 0, limit, False, False, mapped, weights
    )
    norms = np.sqrt(X[:, 0] ** 2) * (1 + 5 * 2.3e-16)
    np.testing.assert_array_equal(
        weights, np.where(norms > limit, limit / np.maximum(norms, 1.0), 1.0)
    )
    assert 10 < (weights[:-3] == 1).sum() < 80
    for weight, x in zip(weights, X[:, 0], strict=True):
        assert Fraction(float(weight)) * Fraction(float(x)) <= Fraction(limit) * (
            1 + Fraction(1, 2**52)
        )


@pytest.mark.parametrize("shorten", [False, True])
@pytest.mark.parametrize("row_norm", [1e-3, 0.7, 3.0 - 1e-8, 3.0 - 1e-13, 3.0, 3.0 + 1e-8])
def test_rows_that_are_short_without_a_norm_are_those_of_which_the_norm_says_so(row_norm, shorten):
    """Corners of the box, one digit inside of them, and rows of all lengths: first entries
    decide as norms do.
    """
    rng = np.random.default_rng(0)
    inside = 1 - 10.0 ** rng.integers(-17, 0, (400, 9))
    X = np.concatenate(
        [np.sign(inside), inside, rng.uniform(-1, 1, (400, 9)), np.full((2, 9), np.nan)]
    )
    facts = np.full(9, -1.0), np.full(9, 1.0), np.zeros(9), np.ones(9)
    mapped = np.full(X.shape, np.nan)
    weights = np.full(len(X), np.nan)
    dense_kernels.map_dense_rows(
        X, np.arange(len(X)), *facts, 0, row_norm, shorten, False, mapped, weights
    )
    clipped = np.where(np.isnan(X), -1.0, X)
    squares = np.empty(len(X))
    dense_kernels.dense_squared_norms(clipped, 0, squares)
    norms = np.sqrt(squares) * (1 + 13 * 2.3e-16)
    factors = np.where(norms > row_norm, row_norm / norms, 1.0)
    assert (weights == (1.0 if shorten else factors)).all()
    assert mapped.tobytes() == (clipped * factors[:, None] if shorten else clipped).tobytes()


@pytest.mark.parametrize("columns", [2, 3, 9, 51])
def test_a_diagonal_and_constants_are_that_matrix_bit_by_bit(columns):
    rng = np.random.default_rng(columns)
    block = np.column_stack([np.ones(70), rng.normal(size=(70, columns - 1))])
    matrix = np.diag(rng.normal(size=columns))
    matrix[1:, 0] = rng.normal(size=columns - 1) * (rng.random(columns - 1) < 0.7)
    matrix[0, 0] = 1.0
    frame = Coordinates(matrix, 1)
    expected = np.empty((70, columns))
    assert len(frame._columns) == 2
    dense_kernels.dense_matrix_products(block, np.ascontiguousarray(matrix.T), expected)
    assert frame.transform(block).tobytes() == expected.tobytes()
    matrix[1, -1] += columns == 2 or 0.5  # of two coordinates it is on the diagonal
    assert len(Coordinates(matrix, 1)._columns) == (1 if columns > 2 else 2)
    assert len(Coordinates(matrix, 0)._columns) == 1


def odd_numbers(rng, *shape):
    return rng.normal(size=shape) * 10.0 ** rng.integers(-8, 8, shape)


def fractions(values):
    return [Fraction(float(value)) for value in np.ravel(values)]


def test_dense_margins_keep_twice_the_digits():
    rng = np.random.default_rng(0)
    block = odd_numbers(rng, 5, 9)
    theta = odd_numbers(rng, 9)
    block[:, -1] = -(block[:, :-1] @ theta[:-1]) / theta[-1]  # most digits cancel
    margins = np.full(5, np.nan)
    errors = np.full(5, np.nan)
    compensated_kernels.dense_margins_with_error(block, theta, margins, errors)
    for row, margin, error in zip(block, margins, errors, strict=True):
        terms = [a * b for a, b in zip(fractions(row), fractions(theta), strict=True)]
        assert (
            abs(Fraction(float(margin)) + Fraction(float(error)) - sum(terms))
            < sum(map(abs, terms)) / 2**97
        )
        assert error  # there was something to keep


def test_sums_of_dense_rows_lose_nothing():
    rng = np.random.default_rng(1)
    block = odd_numbers(rng, 9, 4)
    multiples = odd_numbers(rng, 9)
    totals = odd_numbers(rng, 4)
    errors = np.zeros(4)
    start = fractions(totals)
    compensated_kernels.combine_dense_with_error(multiples, block, totals, errors)
    for j, before in enumerate(start):
        terms = [before, *fractions(multiples * block[:, j])]
        found = Fraction(float(totals[j])) + Fraction(float(errors[j]))
        assert abs(found - sum(terms)) < sum(map(abs, terms)) / 2**97


def stored(rows, columns, seed=0):
    """Return whole numbers of which two thirds are stored, as a matrix and as parts of a sparse
    one.
    """
    rng = np.random.default_rng([rows, columns, seed])
    dense = whole(rng, rows, columns) * (rng.random((rows, columns)) < 2 / 3)
    dense[rows // 2] = 0.0  # a row of nothing
    return parts_of(dense)


def parts_of(dense):
    table = sparse.csr_matrix(dense)
    return dense, (table.indptr.astype(np.int64), table.indices.astype(np.uint32), table.data)


CHOSEN = [(1, 1), (5, 3), (300, 4)]  # more rows than a tile has


def chosen_rows(rows):
    """Return some rows, not in their order."""
    return np.random.default_rng(rows).permutation(rows)[: max(1, rows - rows // 9)]


@pytest.mark.parametrize("shape", CHOSEN)
def test_sums_of_sparse_rows(shape):
    rng = np.random.default_rng(shape)
    dense, parts = stored(*shape)
    indices = chosen_rows(shape[0])
    multiples = whole(rng, shape[0])
    multiples = multiples[: indices.size]
    totals = whole(rng, shape[1])
    errors = np.zeros(shape[1])
    wanted = totals + multiples @ dense[indices]
    sparse_kernels.sparse_combine_kernel(*parts, indices, multiples, totals, errors)
    np.testing.assert_array_equal(totals + errors, wanted)


@pytest.mark.parametrize("shape", CHOSEN)
def test_second_moments_of_sparse_rows(shape):
    rng = np.random.default_rng(shape)
    dense, parts = stored(*shape)
    indices = chosen_rows(shape[0])
    scale = whole(rng, shape[1])
    factors = whole(rng, indices.size)
    multiples = whole(rng, indices.size)
    moved = np.hstack([np.ones((indices.size, 1)), dense[indices] * scale]) * factors[:, None]
    totals = np.zeros((shape[1] + 1,) * 2)
    errors = np.zeros((shape[1] + 1,) * 2)
    sparse_kernels.sparse_moment_kernel(*parts, indices, scale, factors, totals, errors)
    np.testing.assert_array_equal(totals + errors, np.tril(moved.T @ moved))
    for given in (factors, np.empty(0)):
        totals = np.zeros((shape[1] + 2,) * 2)
        sparse_kernels.sparse_gram_kernel(*parts, indices, scale, given, multiples, totals)
        own = moved if given.size else moved / factors[:, None]
        own = np.hstack([np.ones((indices.size, 1)), own])
        np.testing.assert_array_equal(totals, np.tril(own.T @ (own * multiples[:, None])))


def test_sparse_sums_and_margins_keep_what_additions_lose():
    rng = np.random.default_rng(2)
    dense, parts = parts_of(odd_numbers(rng, 9, 3))
    indices = np.arange(9)
    scaled = odd_numbers(rng, 3)
    totals = np.zeros(3)
    errors = np.zeros(3)
    sparse_kernels.sparse_combine_kernel(*parts, indices, scaled.repeat(3), totals, errors)
    for j in range(3):
        terms = fractions(scaled.repeat(3) * dense[:, j])
        found = Fraction(float(totals[j])) + Fraction(float(errors[j]))
        assert abs(found - sum(terms)) < sum(map(abs, terms)) / 2**97
    # A row of zeros has a margin that the stored values of others cancel but for the last digits.
    for row in range(9):
        own = sum(a * b for a, b in zip(fractions(dense[row]), fractions(scaled), strict=True))
        start = -float(own)
        margins = np.full(1, np.nan)
        sparse_kernels.sparse_margin_kernel(
            *parts, np.array([row]), scaled, start, start * 2.0**-60, margins
        )
        exact = own + Fraction(start) * (1 + Fraction(1, 2**60))
        assert abs(Fraction(float(margins[0])) - exact) <= abs(exact) / 2**40


@pytest.mark.parametrize("shape", CHOSEN)
@pytest.mark.parametrize("rounding", [0.0, 0.1])
def test_lengths_of_sparse_rows_are_raised_by_what_is_allowed_for(shape, rounding):
    """Their formulas with an allowance that can be seen, and bounds in exact arithmetic without
    one.
    """
    rng = np.random.default_rng(shape)
    dense, parts = stored(*shape)
    indices = chosen_rows(shape[0])
    scale = whole(rng, shape[1])
    diagonal = whole(rng, shape[1])
    lengths = np.full(indices.size, np.nan)

    def judge(squares, allowed):
        for length, square, more in zip(lengths, squares, allowed, strict=True):
            assert length > 0  # of rows of zeros, too: sizes are divided by it
            assert Fraction(float(length)) ** 2 >= Fraction(float(square))
            assert length == pytest.approx(
                math.sqrt(square + rounding * more), rel=4e-15, abs=2e-145
            )

    x = dense[indices] * scale
    for base, start in ((whole(rng, shape[1]), 7.0), (np.empty(0), 0.0)):
        full = base if base.size else np.zeros(shape[1])
        there = dense[indices] != 0
        squares = start + (np.where(there, (x + full) ** 2 - full**2, 0.0) * diagonal**2).sum(
            axis=1
        )
        sizes = start + (np.where(there, x**2 + full**2, 0.0) * diagonal**2).sum(axis=1)
        if base.size:  # of which what is stored may be less than nothing
            least = -min(0.0, float((squares - start).min()))
            start = start + least
            squares = squares + least
            sizes = sizes + least
        facts = scale, diagonal, base, start, rounding, lengths
        sparse_kernels.sparse_diagonal_lengths(*parts, indices, *facts)
        judge(squares, 3 * sizes)
    matrix = whole(rng, shape[1] + 2, shape[1] + 1)
    moved = np.hstack([np.ones((indices.size, 1)), x])
    norms = np.abs(whole(rng, shape[1] + 1))
    sparse_kernels.sparse_quadratic_lengths(
        *parts, indices, scale, np.ascontiguousarray(matrix.T @ matrix), norms, rounding, lengths
    )
    judge(((moved @ matrix.T) ** 2).sum(axis=1), (np.abs(moved) @ norms) ** 2)


@pytest.mark.parametrize("with_base", [False, True])
def test_short_sparse_rows_stay_and_long_ones_are_shortened(with_base, monkeypatch):
    rng = np.random.default_rng(3)
    dense, parts = stored(40, 3)
    base = whole(rng, 3) if with_base else np.empty(0)
    base_square = float(base @ base)
    scale = whole(rng, 3)
    factors = np.full(40, np.nan)
    full = base if with_base else np.zeros(3)
    sums = ((full + dense * scale) ** 2).sum(axis=1)
    facts = np.arange(40), scale, base, base_square, 60.0, factors
    sparse_kernels.sparse_shortening_kernel(*parts, *facts)
    assert 5 < (factors == 1).sum() < 35
    np.testing.assert_allclose(
        factors, np.minimum(1, 60 / np.sqrt(np.maximum(sums, 1e-300))), rtol=1e-14
    )
    for factor, square in zip(factors, sums, strict=True):
        assert Fraction(float(factor)) ** 2 * Fraction(float(square)) <= 3600
    # The same with units of rounding that can be seen.
    monkeypatch.setattr(sparse_kernels, "_UNIT", 0.01)
    kernel = sparse_kernels.sparse_shortening_kernel
    getattr(kernel, "py_func", kernel)(*parts, *facts)  # itself, where nothing is compiled
    there = dense != 0
    sizes = base_square + np.where(there, (dense * scale) ** 2 + full**2, 0.0).sum(axis=1)
    norms = np.sqrt(sums + sizes * (3 * there.sum(axis=1) + 8) * 0.01) * 1.04
    np.testing.assert_allclose(factors, np.minimum(1, 60 / np.maximum(norms, 1e-300)), rtol=1e-12)


@pytest.mark.parametrize(
    ("indptr", "columns", "is_canonical"),
    [
        ([0, 2, 2, 3], [0, 2, 1], True),
        ([0, 0], [], True),
        ([0, 1], [0], True),
        ([0], [], True),
        ([], [], False),
        ([1, 3], [0, 1, 2], False),  # does not begin at the first
        ([0, 2], [0, 1, 2], False),  # does not end at the last
        ([0, 3, 2, 3], [0, 1, 2], False),  # falls
        ([0, 4, 3], [0, 1, 2], False),  # beyond what is stored
        ([0, 2], [1, 1], False),  # a column twice
        ([0, 2], [2, 1], False),  # not in order
        ([0, 1], [3], False),  # no such column
        ([0, 1], [-1], False),
        ([0, 2], [1, 2], True),
    ],
)
def test_sparse_rows_in_order_are_told_from_others(indptr, columns, is_canonical):
    indptr = np.array(indptr, dtype=np.int64)
    columns = np.array(columns, dtype=np.int32)
    stored = 3 if len(columns) == 3 else columns.size
    assert sparse_kernels.is_canonical_sparse(indptr, columns, stored, 3) == is_canonical
    assert not sparse_kernels.is_canonical_sparse(indptr, columns, stored + 1, 3)
