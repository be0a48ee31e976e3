"""Questions that got more out of the handle than their terms allow, each of which is refused or
bounded now.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array

from dpconvex import DPLogisticRegression
from dpconvex.core import queries
from dpconvex.core.certificate import CertificateError
from dpconvex.core.convolution import ConvolvedLoss
from dpconvex.core.private_rows import PrivateRows
from dpconvex.core.queries import Query, QueryFactor, QueryScore, QuerySlope, QueryStatistic
from dpconvex.core.row_coordinates import Coordinates, row_norms
from dpconvex.core.row_weights import RowWeights
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.engine.sparse_rows import SparseRows
from dpconvex.losses import Hinge, Logistic, Pinball
from dpconvex.privacy import LinearBounds, NoiseSource
from dpconvex.smoothing import LogisticKernel, convolve

ROWS = 1000
COLUMNS = 3
SIZE = 4
BOUNDS = LinearBounds(ROWS, COLUMNS, Logistic(), np.sqrt(3), np.sqrt(3))
QUERIES = {
    "vector": Query("vector", 1.0, SIZE),
    "moments": Query.moments(SIZE),
    "count": Query("count"),
    "score": Query("limited sum"),
}


def unproven(bounds, terms):
    """Return bounds and terms of any noise, which no guarantee has to follow from."""
    return SimpleNamespace(bounds=bounds, noise=terms, verify=lambda: None)


class Silence(NoiseSource):
    """Only rounds to the grid: what is left is what noise would hide."""

    def __init__(self):
        super().__init__(0)

    def gaussian(self, std, size):
        return np.zeros(size)


def handle(X, y, asked=QUERIES):
    terms = {
        name: replace(query.calibrated_noise(BOUNDS, 1.0), releases=10**6)
        for name, query in asked.items()
    }
    rows = MemoryRows(X, y, RowMap.from_bounds(COLUMNS, (-1, 1)), threads=1)
    return PrivateRows([rows], unproven(BOUNDS, terms), Silence())


def tables(row=None, target=None):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (ROWS, COLUMNS))
    y = rng.uniform(-1, 1, ROWS)
    other_X = X.copy()
    other_y = y.copy()
    other_X[0] = -X[0] if row is None else row
    other_y[0] = -y[0] if target is None else target
    return (X, y), (other_X, other_y)


def moved(name, ask, **change):
    """Return how far an answer moves, over the sensitivity of its query."""
    first, second = (np.ravel(ask(handle(*table))) for table in tables(**change))
    return float(np.linalg.norm(first - second)) / QUERIES[name].sensitivity(BOUNDS)


class Looking(LogisticKernel):
    """A kernel of the caller's, which would be shown residuals."""

    def cdf(self, t):
        raise AssertionError("a function of the caller saw rows")


def test_kernels_of_the_caller_are_refused():
    slope = QuerySlope(ConvolvedLoss(Pinball(0.5), Looking(), 0.1))
    with pytest.raises(TypeError, match="kernel"):
        handle(*tables()[0]).slope_sum(
            "vector", np.zeros(SIZE), slope, Coordinates(np.eye(SIZE), 1)
        )


@pytest.mark.parametrize("loss", [Logistic(), convolve(Hinge(), LogisticKernel(), 0.3), Hinge()])
@pytest.mark.parametrize("weighting", ["weight", "clip"])
def test_margin_losses_see_labels_whatever_targets_are(loss, weighting):
    def ask(rows):
        slope = QuerySlope(loss, weighting=weighting)
        return rows.slope_sum("vector", np.full(SIZE, 0.3), slope, Coordinates(np.eye(SIZE), 1))

    assert moved("vector", ask, target=1e6) <= 1


def test_labels_weigh_rows_by_1_at_most_whatever_targets_are():
    def ask(rows):
        slope = QuerySlope(None, weighting="clip", by_label=True)
        return rows.slope_sum("vector", np.zeros(SIZE), slope, Coordinates(np.eye(SIZE), 1))

    assert 0.2 < moved("vector", ask, target=1e6) <= 1


@pytest.mark.parametrize("far", [50.0, 290.0])
def test_bounds_of_lengths_know_the_whole_matrix(far):
    matrix = np.eye(SIZE)
    matrix[0, 1] = far

    def ask(rows):
        return rows.slope_sum(
            "vector", np.zeros(SIZE), QuerySlope(None), Coordinates(matrix, 1, 1.0)
        )

    assert moved("vector", ask, row=np.ones(COLUMNS)) <= 1


@pytest.mark.parametrize("size", [1e-90, 1e-150, 1e-180])
@pytest.mark.parametrize("unit", [1e-95, 1e-100])
def test_lengths_do_not_underflow(size, unit):
    diagonal = np.full(SIZE, size)

    def ask(rows):
        slope = QuerySlope(Pinball(0.5))
        return (
            rows.slope_sum("vector", np.zeros(SIZE), slope, Coordinates(diagonal, 1), unit) / unit
        )

    assert moved("vector", ask, row=np.ones(COLUMNS), target=-1e3) <= 1
    assert row_norms(np.full((1, 3), 1e-200))[0] > 0


def test_a_row_of_zeros_turns_no_sum_into_nothing():
    frame = Coordinates(np.array([0.0, 1.0, 1.0, 1.0]), 1)

    def ask(rows):
        return rows.slope_sum("vector", np.zeros(SIZE), QuerySlope(None, weighting="clip"), frame)

    assert moved("vector", ask, row=np.zeros(COLUMNS)) <= 1


def test_products_do_not_overflow():
    frame = Coordinates(np.array([1e-100, 1e100, 1e100, 1e100]), 1)

    def ask(rows):
        inside = QueryFactor("inside", width=1e9)
        return rows.second_moments("moments", frame, 1e-100, inside, np.zeros(SIZE))

    assert moved("moments", ask, row=np.ones(COLUMNS)) <= 1


@pytest.mark.parametrize("unit", [5e-324, 1e-200, 1e200])
def test_units_that_lose_digits_are_refused(unit):
    rows = handle(*tables()[0])
    frame = Coordinates(np.eye(SIZE), 1)
    with pytest.raises(ValueError, match="between"):
        rows.slope_sum("vector", np.zeros(SIZE), QuerySlope(Pinball(0.5)), frame, unit)
    with pytest.raises(ValueError, match="bounded"):
        rows.slope_sum("vector", np.zeros(SIZE), QuerySlope(Logistic(), 1e300), frame)


def test_a_part_of_a_histogram_is_refused():
    rows = handle(*tables()[0], {"bins": Query("histogram", 1e-4, 4)})
    with pytest.raises(CertificateError, match="add less"):
        rows.histogram("bins", QueryStatistic("target"), [-0.5, 0.0, 0.5])


def test_floating_point_signals_do_not_tell_of_rows():
    """A fit that asks numpy to raise: zeros, and targets far away, would be seen."""
    frame = Coordinates(np.array([0.0, 1.0, 1.0, 1.0]), 1)
    with np.errstate(all="raise"):
        for table in tables(row=np.zeros(COLUMNS), target=1e300):
            rows = handle(*table)
            rows.count("count", QueryStatistic("length", coordinates=frame), 0.0)
            rows.limited_sum("score", QueryScore("residual", np.full(SIZE, 1e99), 1e-100))


def sparse_moved(X, other, query, ask, *, intercept=True):
    """Return how far an answer about two sparse tables of one column moves, over the sensitivity
    of its query.
    """
    bounds = LinearBounds(ROWS, 1, Logistic(), 1.0, 1.0, intercept)
    terms = {"asked": replace(query.calibrated_noise(bounds, 1.0), releases=9)}

    def answer(table):
        row_map = RowMap.from_bounds(1, (-1, 1), fit_intercept=intercept)
        rows = SparseRows(table, np.ones(ROWS), row_map, threads=1)
        return ask(PrivateRows([rows], unproven(bounds, terms), Silence()))

    return float(np.linalg.norm(answer(X) - answer(other))) / query.sensitivity(bounds)


@pytest.mark.parametrize("stored", [0.0, -0.0])
@pytest.mark.parametrize("max_octave", [0, -1018, -1019, -1022, -1060])
def test_the_octave_of_a_stored_zero_does_not_follow_the_record_before_it(max_octave, stored):
    """1,000 sensitivities at ``max_octave=-1022`` once: the octave of the value before was taken
    for a 0's.
    """

    def table(first):
        values = np.full(ROWS, stored)
        values[0] = first
        return csr_array((values, np.zeros(ROWS, int), np.arange(ROWS + 1)), shape=(ROWS, 1))

    query = Query("histogram", 1, 9 * 1)
    ask = lambda rows: rows.column_octaves("asked", max_octave, 4)  # noqa: E731
    assert sparse_moved(table(1.0), table(0.0), query, ask) <= 1 + 1e-9


@pytest.mark.parametrize(
    "matrix", [(1e-90, 1e95), (1e-100, 1e100), (1e-170, 1e-170), (1.0, 1e-160)]
)
@pytest.mark.parametrize("value", [1e-180, 1e-150, 1.0])
def test_lengths_of_sparse_rows_do_not_underflow(matrix, value):
    """A squared length that is too small for a number took the clip away: 5e19 sensitivities."""
    X = np.zeros((ROWS, 1))
    other = np.zeros((ROWS, 1))
    other[0] = value
    query = Query("vector", 1.0, 2)

    def ask(rows):
        coordinates = Coordinates(np.array(matrix), 1)
        return (
            rows.slope_sum("asked", np.zeros(2), QuerySlope(None, 0.0, "clip"), coordinates, 1e-90)
            / 1e-90
        )

    assert sparse_moved(csr_array(X), csr_array(other), query, ask) <= 1 + 1e-9


class Anything(str):
    """Text of the caller's own, which equals whatever it is compared with."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __str__(self):
        return self

    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False


@pytest.mark.parametrize("known", list(QUERIES))
def test_a_weighting_that_equals_anything_does_not_get_norms_for_weights(known):
    """Norms of rows are kept for the next question; a slope that is multiplied by them has no
    bound.
    """
    frame = Coordinates(np.diag([1.0, 50.0, 50.0, 50.0]), 1)

    def ask(rows):
        if known == "count":
            rows.count("count", QueryStatistic("length", coordinates=frame), 1.0)
        elif known == "moments":
            rows.second_moments("moments", frame, 1.0)
        return rows.slope_sum(
            "vector", np.zeros(SIZE), QuerySlope(None, weighting=Anything("weight")), frame
        )

    assert moved("vector", ask) <= 1


def test_factors_have_weightings_of_the_library():
    factor = queries.registered_query_factor(
        QueryFactor("inside", weighting=Anything("square")), None
    )
    slope = queries.registered_query_slope(QuerySlope(None, weighting=Anything("clip")), None)
    assert type(factor.weighting) is str
    assert type(slope.weighting) is str


class Changing:
    """Says another thing each time that it is asked."""

    def __init__(self):
        self.asked = 0

    def __bool__(self):
        self.asked += 1
        return self.asked > 1


def test_whether_a_histogram_is_by_label_is_asked_once():
    """A histogram with more bins than its term only where some label is positive would raise by
    the labels.
    """
    (X, y), _ = tables()
    bins = {"bins": Query("histogram", 1, 3)}
    for targets in (y, -np.abs(y)):
        counts = handle(X, targets, bins).histogram(
            "bins", QueryStatistic("target"), [0.0, 0.5], Changing()
        )
        assert counts.size == 3


def test_a_handle_needs_noise_that_suffices_for_the_guarantee():
    """A certificate that ``verify`` would refuse is refused before a question can be asked."""
    table = np.zeros((ROWS, COLUMNS)), np.ones(ROWS)
    rows = MemoryRows(*table, RowMap.from_bounds(COLUMNS, (-1, 1)), threads=1)
    certificate = DPLogisticRegression(feature_bounds=(-1, 1)).certify(ROWS, COLUMNS)
    noise = {
        name: replace(term, scale=term.scale / 1000) for name, term in certificate.noise.items()
    }
    with pytest.raises(CertificateError, match="does not suffice"):
        PrivateRows([rows], replace(certificate, noise=noise), NoiseSource())
    PrivateRows([rows], certificate, NoiseSource())


@pytest.mark.parametrize("weight", [1.5, -0.5, np.nan, np.inf])
def test_no_row_counts_for_more_than_one(weight):
    with pytest.raises(ValueError, match="between 0 and 1"):
        RowWeights(np.array([1.0, weight]), 2)
