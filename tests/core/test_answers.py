"""What the handle sums, computed again row by row, and the sensitivities of its queries, computed
again from the table.

Rows, people's weights, ignored rows, sparse rows, parts and further targets; without noise, so that
nothing is random.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import FrozenInstanceError, fields, replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array

from dpconvex.core import queries
from dpconvex.core.certificate import CertificateError, CertifiedNoise
from dpconvex.core.private_rows import PrivateAnswers, PrivateRows, _ClippedMarginSlopes
from dpconvex.core.queries import (
    Query,
    QueryFactor,
    QueryScore,
    QuerySlope,
    QuerySlopes,
    QueryStatistic,
)
from dpconvex.core.row_coordinates import (
    Coordinates,
    _bulk_of_row_eigenvalues,
    coordinate_cancellation,
    row_norms,
    shorten_rows,
)
from dpconvex.core.row_weights import RowWeights
from dpconvex.core.summation import relative_rounding_error, summation_rounding_error
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.engine.sparse_rows import SparseRows
from dpconvex.losses import Huber, Logistic, Pinball, ProportionalOdds, Softmax, Squared
from dpconvex.privacy import LinearBounds, NoiseSource
from dpconvex.smoothing import GaussianKernel, convolve

N = 60
COLUMNS = 3
SIZE = 4
THETA = np.array([0.2, -0.5, 1.0, 0.3])
FRAME = Coordinates(
    np.diag([1.0, 2.0, 0.5, 3.0])
    + np.array([[0, 0, 0, 0], [0.2, 0, 0.3, 0], [0.1] + [0] * 3, [0] * 4]),
    1,
)
NEARLY_SINGULAR = Coordinates(np.ones((SIZE, SIZE)) + 1e-14 * np.diag(np.arange(SIZE)), 1)
KINDS = ("rows", "people", "ignored", "sparse")


def unproven(bounds, terms):
    """Return bounds and terms of any noise, which no guarantee has to follow from."""
    return SimpleNamespace(bounds=bounds, noise=terms, verify=lambda: None)


class Exact(NoiseSource):
    """Adds nothing."""

    def __init__(self):
        super().__init__(0)

    def add(self, value, term):
        return np.array(value)


def table(kind):
    """Return features, targets and what each row counts for."""
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (N, COLUMNS))
    y = rng.uniform(-1, 1, N)
    if kind == "sparse":
        X = X * (rng.random(X.shape) < 0.5)
    v = np.ones(N)
    if kind == "people":
        v = np.repeat(1 / np.array([1, 2, 3, 4] * 6), [1, 2, 3, 4] * 6)
    if kind == "ignored":
        v[::5] = 0.0
    return X, y, v


def handle(kind, loss=None, second=None, many=1):
    loss = Pinball(0.8) if loss is None else loss
    X, y, v = table(kind)
    people = kind == "people"
    ignored = kind == "ignored"
    bounds = LinearBounds(
        N,
        COLUMNS,
        loss,
        math.sqrt(3),
        math.sqrt(3),
        people=people,
        ignored_rows=ignored,
        rows_per_person=many,
    )
    asked = {
        "vector": Query("vector", 0.6, SIZE),
        "moments": Query.moments(SIZE),
        "count": Query("count"),
        "score": Query("limited sum"),
        "histogram": Query("histogram", 1, 4),
        "by label": Query("histogram", 1, 8),
        "octaves": Query("histogram", COLUMNS, 9 * COLUMNS),
        "small": Query("second moments", 0.5, 10),
        "separate": Query("vector", 0.6, Softmax(3).coefficients(SIZE)),
        "common": Query("vector", 0.6, ProportionalOdds(3).coefficients(SIZE)),
    }
    terms = {
        name: replace(query.calibrated_noise(bounds, 1.0), releases=100)
        for name, query in asked.items()
    }
    targets = [np.where(v == 0, np.nan, y)] + ([] if second is None else [second])
    kinds = SparseRows if kind == "sparse" else MemoryRows
    weights = RowWeights(v, 24) if people else None
    given = {} if weights is None else {"row_weights": weights}
    row_map = RowMap.from_bounds(COLUMNS, (-1, 1))
    rows = [
        kinds(csr_array(X) if kind == "sparse" else X, t, row_map, threads=1, **given)
        for t in targets
    ]
    return PrivateRows(rows, unproven(bounds, terms), Exact())


def whole_rows(kind):
    X, y, v = table(kind)
    return np.hstack([np.ones((N, 1)), X]), y, v


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["target", "label", "residual", "margin", "distance", "length"])
def test_counts_and_histograms(kind, name):
    Z, y, v = whole_rows(kind)
    if kind == "ignored":  # whose features and targets are 0
        Z = np.where(v[:, None] == 0, [1.0, 0, 0, 0], Z)
        y = y * v
    norms = np.linalg.norm(Z @ FRAME.matrix.T, axis=1)
    values = {
        "target": y,
        "label": np.where(y > 0, -1.0, 0.0),
        "residual": y - Z @ THETA,
        "margin": Z @ THETA,
        "distance": np.log2(np.abs(Z @ THETA - 0.1)),
        "length": np.log2(norms),
    }[name]
    rows = handle(kind)
    statistic = QueryStatistic(name, THETA, 0.1, FRAME)
    edges = (
        np.sort(np.r_[np.quantile(values, [0.2, 0.7]), 1e6])
        if name != "label"
        else np.array([-2.0, -0.5, 3.0])
    )
    edges[:2] += 1e-7
    for point in edges:
        level = 0.3 if kind == "ignored" else 0.0  # centred only where that was paid for
        assert rows.count("count", statistic, point) == pytest.approx(
            v @ (values < point), abs=1e-9
        )
        assert rows.count("count", statistic, point, 0.3) == pytest.approx(
            v @ ((values < point) - level), abs=1e-9
        )
    assert rows.count("count", statistic, 1e7, 5.0) == pytest.approx(
        0.0 if kind == "ignored" else v.sum(), abs=1e-9
    )
    assert rows.count("count", statistic, 1e7, -5.0) == pytest.approx(v.sum(), abs=1e-9)
    bins = np.searchsorted(edges, values, side="right")
    np.testing.assert_allclose(
        rows.histogram("histogram", statistic, edges), np.bincount(bins, v, 4), atol=1e-9
    )
    wanted = np.stack([np.bincount(bins, v * side, 4) for side in (y <= 0, y > 0)])
    np.testing.assert_allclose(
        rows.histogram("by label", statistic, edges, by_label=True), wanted, atol=1e-9
    )


def test_a_target_of_exactly_0_is_no_positive_label():
    rows = handle("rows", second=np.r_[np.zeros(20), np.ones(N - 20)]).target(1)
    assert rows.count("count", QueryStatistic("label"), -0.5) == N - 20


@pytest.mark.parametrize(
    "question",
    [
        QueryStatistic("target"),
        QueryScore("residual", THETA, 1.0),
        QuerySlope(None),
        QuerySlopes(Softmax(3)),
        QueryFactor("slope", Logistic()),
        Query("count"),
        FRAME,
    ],
)
def test_what_was_checked_cannot_change_afterwards(question):
    for field in fields(question):
        with pytest.raises(FrozenInstanceError):
            setattr(question, field.name, getattr(question, field.name))


def test_only_the_same_question_is_answered_from_memory():
    asked = handle("rows")
    asked._kept["slot"] = "a", "answer"
    assert asked._held("slot", "a") == "answer"
    assert asked._held("slot", "b") is None
    assert asked._held("another slot", "a") is None


def test_memory_is_freed_before_what_takes_its_place_is_computed(monkeypatch):
    """A part and its weights before another part, and all that belongs to parts once all rows
    are weighed.
    """
    asked = handle("rows")
    held = []
    part = ("part", id(asked._rows))
    reweighted = MemoryRows.reweighted
    taken = MemoryRows.part
    look = lambda found: lambda *arguments: (held.append(set(asked._kept)), found(*arguments))[1]  # noqa: E731
    monkeypatch.setattr(MemoryRows, "reweighted", look(reweighted))
    monkeypatch.setattr(MemoryRows, "part", look(taken))
    asked._kept |= {
        slot: ("a", "answer") for slot in ("coordinates", "counter", part, "weights of a part")
    }
    assert asked._view(asked._rows, 7)._own_rows.n_rows == 7
    assert held.pop() == {"coordinates", "counter"}
    asked._weighted(FRAME, "clip", 1.0)
    assert held.pop() == {"coordinates"}
    assert set(asked._kept) == {"coordinates", "weights"}


def test_eigenvalues_that_are_nearly_equal_are_one_bulk():
    assert _bulk_of_row_eigenvalues(np.full(5, 2.0), 0.1) == (0, 5, 2.0)
    assert _bulk_of_row_eigenvalues(np.array([1e-3, 1.0, 1.01, 1.02, 50.0]), 0.1) == (1, 4, 1.02)


@pytest.mark.parametrize("seed", range(20))
def test_cancellation_is_bounded_closely(seed):
    """From above, whatever the matrix: an allowance for rounding that is too small would not be
    paid for.
    """
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((5, 5)) * np.exp(rng.normal(size=5) * (seed % 4))
    exact = np.linalg.norm(np.abs(matrix) @ np.abs(np.linalg.inv(matrix)), 2)
    assert exact * (1 - 1e-9) <= coordinate_cancellation(matrix) <= 1.1 * exact


@pytest.mark.parametrize("weighting", ["clip", "weight"])
def test_several_slopes_are_never_longer_than_their_bound(weighting):
    """In exact arithmetic: the norm that a record is shortened by is rounded up."""
    rng = np.random.default_rng(0)
    loss = Softmax(3)
    bound = 0.3
    n = 400
    y = rng.integers(0, 3, n).astype(float)
    z = 3 * rng.standard_normal((n, 3))
    norms = rng.uniform(1, 9, n)
    (found,) = _ClippedMarginSlopes(QuerySlopes(loss, weighting), bound)(y, z, norms)
    shortened = 0
    for row, norm in zip(found.tolist(), norms.tolist(), strict=True):
        square = sum(Fraction(entry) ** 2 for entry in row) * Fraction(norm) ** 2
        assert square <= Fraction(bound) ** 2
        shortened += square > Fraction(bound) ** 2 * (1 - Fraction(1, 10**6))
    assert shortened > n / 4 or weighting == "weight"


@pytest.mark.parametrize("many", [1, 3])
def test_a_count_may_stand_in_another_sum(many):
    """In units in which it moves no further than that sum, to within a millionth."""
    rows = handle("rows", many=many)
    statistic = QueryStatistic("target")
    wanted = rows.count("count", statistic, 0.0)
    for name in ("vector", "moments", "histogram"):
        assert rows.count(name, statistic, 0.0) == pytest.approx(wanted, rel=1e-12)
        term = rows.terms[name]
        moved = rows._count_unit(term) * Query("count").sensitivity(rows.bounds)
        assert (
            (1 - 2e-6) * term.sensitivity < moved < (1 - 5e-7) * term.sensitivity
        )  # room for products' rounding
    with pytest.raises(CertificateError, match="not 'count'"):
        rows.count("score", statistic, 0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_octaves(kind):
    X, _, v = table(kind)
    found = handle(kind).column_octaves("octaves", 0, 4)
    away = np.clip(np.frexp(X)[1] + 4, 0, 4) * (X != 0)
    for column in range(COLUMNS):
        bins = 4 + away[:, column] * np.sign(X[:, column]).astype(int)
        np.testing.assert_allclose(found[column], np.bincount(bins, v, 9), atol=1e-12)


SLOPES = [
    QuerySlope(Pinball(0.8), 0.0, "weight"),
    QuerySlope(Pinball(0.8), 0.3, "square"),
    QuerySlope(Huber(0.3), 0.1, "clip"),
    QuerySlope(Logistic(), 0.0, "weight"),
    QuerySlope(Logistic(), -0.4, "clip"),
    QuerySlope(None),
    QuerySlope(None, by_label=True),
    QuerySlope(convolve(Pinball(0.2), GaussianKernel(), 0.2), 0.1),
]


@pytest.mark.parametrize("slope", SLOPES)
@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_slopes(kind, slope):
    """The derivative as its name says, limited by the norm of its row as the weighting says."""
    Z, y, v = whole_rows(kind)
    u = Z @ FRAME.matrix.T
    z = Z @ THETA
    unit = 2.0
    loss = slope.loss
    offset = slope.offset
    if loss is None:
        s = np.clip(y, -1, 1) if slope.by_label else np.ones(N)
        most = 1.0
    elif loss.kind == "margin":
        s = loss.gradient(y, z) - offset * y  # y c'(y z) for targets in [-1, 1], which labels are
        most = max(abs(loss.slope_range[0] - offset), abs(loss.slope_range[1] - offset))
    else:
        s = -(-loss.gradient(y, z) - offset)
        most = max(abs(loss.slope_range[0] - offset), abs(loss.slope_range[1] - offset))
    ratio = 0.6 * unit / most / np.linalg.norm(u, axis=1)
    if slope.weighting == "clip":
        s = np.clip(s, -most * ratio, most * ratio)
    else:
        s = s * np.minimum(1, ratio) ** (2 if slope.weighting == "square" else 1)
    rows = handle(kind)
    found = rows.slope_sum("vector", THETA, slope, FRAME, unit)
    np.testing.assert_allclose(found, (v * s) @ u, rtol=1e-9, atol=1e-9)
    assert (ratio < 1).any()


LEVELS = np.array(
    [[-0.6, *THETA[1:]], [0.4, *THETA[1:]], [1.3, *THETA[1:]]]
)  # common slopes, growing intercepts
CLASSES = np.random.default_rng(3).normal(size=(3, SIZE))


@pytest.mark.parametrize("weighting", ["clip", "weight", "square"])
@pytest.mark.parametrize(("loss", "thetas"), [(Softmax(3), CLASSES), (ProportionalOdds(3), LEVELS)])
@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_several_slopes(kind, loss, thetas, weighting):
    """A record's slopes times its row, as one vector; the vector is shortened to the bound, its
    direction kept.
    """
    _, y, v = table(kind)
    outcomes = np.where(v == 0, np.nan, np.floor(2.999 * np.abs(y)))
    rows = handle(kind, second=outcomes).target(1)
    unit = 2.0
    Z = whole_rows(kind)[0]
    wanted = 0.0
    shortened = 0
    for row, outcome, weight in zip(Z, outcomes, v, strict=True):
        if weight == 0:
            continue
        u = FRAME.matrix @ row
        s = loss.slopes(np.array([outcome]), (thetas @ row)[:, None])[:, 0]
        if weighting != "clip":
            ratio = min(1, 0.6 * unit / loss.lipschitz / np.linalg.norm(u))
            s = s * ratio ** (2 if weighting == "square" else 1)
        added = np.outer(s, u) if loss.lift == "separate" else np.r_[s, s.sum() * u[1:]]
        # Common slopes: the constant's part of u counts in the length, though intercepts are on
        # their own.
        length = np.linalg.norm(added if loss.lift == "separate" else np.r_[s, s.sum() * u])
        shortened += length > 0.6 * unit
        wanted = wanted + weight * added * min(1, 0.6 * unit / length)
    found = rows.slopes_sum(loss.lift, thetas, QuerySlopes(loss, weighting), FRAME, unit)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    assert shortened or weighting != "clip"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("radius", [0.9, 20.0])
def test_second_moments(kind, radius):
    Z, _, v = whole_rows(kind)
    u = Z @ FRAME.matrix.T / radius
    u *= (np.sqrt(v) / np.maximum(1, np.linalg.norm(u, axis=1)))[:, None]
    found = handle(kind).second_moments("moments", FRAME, radius)
    np.testing.assert_allclose(found, u.T @ u, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["rows", "people", "ignored"])
@pytest.mark.parametrize("weighting", ["weight", "square"])
def test_second_moments_with_factors(kind, weighting):
    Z, y, v = whole_rows(kind)
    u = Z @ FRAME.matrix.T
    z = Z @ THETA
    loss = Huber(0.3)
    radius = 2.0
    norms = np.linalg.norm(u, axis=1)
    w = np.minimum(1, radius / norms) ** (2 if weighting == "square" else 1)
    factors = {
        QueryFactor("slope", loss, weighting=weighting): w * loss.gradient(y, z) / loss.lipschitz,
        QueryFactor("curvature", loss, weighting=weighting): np.sqrt(
            w * loss.curvature(y, z) / loss.smoothness
        ),
        QueryFactor("inside", width=0.4, weighting=weighting): np.sqrt(w) * (np.abs(y - z) <= 0.4),
        QueryFactor("inside", weighting=weighting): np.zeros(N),
    }
    rows = handle(kind)
    for factor, f in factors.items():
        vectors = u * (np.minimum(np.abs(f) / radius, 1 / norms) * np.sqrt(v))[:, None]
        found = rows.second_moments("moments", FRAME, radius, factor, THETA)
        np.testing.assert_allclose(found, vectors.T @ vectors, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_limited_sums(kind):
    Z, y, v = whole_rows(kind)
    z = Z @ THETA
    limit = 0.5
    residual = np.clip((y - z) / limit, -1, 1)
    rows = handle(kind)
    assert rows.limited_sum("score", QueryScore("residual", THETA, limit)) == pytest.approx(
        v @ residual, abs=1e-9
    )
    assert (np.abs(residual) == 1).any()
    assert (residual < 0).any()


def test_parts_and_further_targets_after_the_weights_of_all_rows_are_known():
    Z, y, _ = whole_rows("rows")
    second = np.random.default_rng(9).uniform(-1, 1, N)
    slope = QuerySlope(Pinball(0.8))
    fresh = handle("rows", second=second)
    part = fresh.part(17).slope_sum(
        "vector", THETA, slope, FRAME
    )  # before weights of all rows are known
    whole = fresh.slope_sum("vector", THETA, slope, FRAME)
    other = fresh.target(1).slope_sum("vector", THETA, slope, FRAME)
    for view, wanted in (
        (fresh.part(17), part),
        (fresh, whole),
        (fresh.target(1), other),
        (fresh.part(17), part),
    ):
        np.testing.assert_array_equal(view.slope_sum("vector", THETA, slope, FRAME), wanted)
    alone = handle("rows", second=second)
    np.testing.assert_array_equal(alone.target(1).slope_sum("vector", THETA, slope, FRAME), other)
    u = Z @ FRAME.matrix.T
    ratio = np.minimum(1, 0.6 / 0.8 / np.linalg.norm(u, axis=1))
    for t, found in ((y, whole), (second, other)):
        np.testing.assert_allclose(
            found, (ratio * slope.loss.gradient(t, Z @ THETA)) @ u, atol=1e-9
        )
    assert fresh.part(17).count("count", QueryStatistic("target"), 9.0) == 17
    assert fresh.part(N).count("count", QueryStatistic("target"), 9.0) == N


@pytest.mark.parametrize(
    ("ask", "error", "said"),
    [
        (
            lambda rows: rows.count("count", QueryStatistic("name"), 0.0),
            ValueError,
            "A statistic must be",
        ),
        (
            lambda rows: rows.count("count", QueryStatistic("length"), 0.0),
            ValueError,
            "need coordinates",
        ),
        (
            lambda rows: rows.limited_sum("score", QueryScore("loss", THETA, 1.0)),
            ValueError,
            "A score must be",
        ),
        (
            lambda rows: rows.slope_sum("vector", THETA[:3], QuerySlope(None), FRAME),
            ValueError,
            "4 numbers",
        ),
        (
            lambda rows: rows.slope_sum("vector", THETA, QuerySlope(Squared()), FRAME),
            TypeError,
            "must be that of",
        ),
        (
            lambda rows: rows.slope_sum("vector", THETA, QuerySlope(None, 0.0, "x"), FRAME),
            ValueError,
            "weighting",
        ),
        (
            lambda rows: rows.slope_sum("moments", THETA, QuerySlope(None), FRAME),
            CertificateError,
            "not 'vector'",
        ),
        (lambda rows: rows.second_moments("small", FRAME, 1.0), CertificateError, "add less"),
        (
            lambda rows: rows.second_moments("large", FRAME, 1.0),
            CertificateError,
            "states no release 'large'",
        ),
        (
            lambda rows: rows.slopes_sum("separate", CLASSES[:2], QuerySlopes(Softmax(3)), FRAME),
            ValueError,
            "coefficients of shape",
        ),
        (
            lambda rows: rows.slopes_sum(
                "separate", CLASSES, QuerySlopes(type("Own", (Softmax,), {})(3)), FRAME
            ),
            TypeError,
            "a loss of several margins",
        ),
        (
            lambda rows: rows.histogram("histogram", QueryStatistic("target"), [0.0]),
            CertificateError,
            "has 2",
        ),
        (
            lambda rows: rows.second_moments("moments", FRAME, 1.0, QueryFactor("slope"), THETA),
            ValueError,
            "A factor",
        ),
        (
            lambda rows: rows.second_moments(
                "moments", FRAME, 1.0, QueryFactor("inside", weighting="clip"), THETA
            ),
            ValueError,
            "weighting of a factor",
        ),
        (
            lambda rows: rows.second_moments("moments", Coordinates(np.eye(3), 1), 1.0),
            ValueError,
            "square matrix",
        ),
        (
            lambda rows: rows.second_moments("moments", NEARLY_SINGULAR, 1.0),
            ValueError,
            "lose their digits",
        ),
    ],
)
def test_questions_that_are_refused(ask, error, said):
    with pytest.raises(error, match=said):
        ask(handle("rows"))


@pytest.mark.parametrize(
    ("facts", "public"), [({}, True), ({"kind": "people"}, False), ({"many": 3}, False)]
)
def test_norms_are_bounded_in_a_way_that_depends_on_the_number_of_rows_only_where_that_is_public(
    facts, public
):
    rows = handle(**{"kind": "rows"} | facts)
    slack = rows._checked(replace(FRAME, norm_slack=0.5)).norm_slack
    assert slack == (0.5 if public else 0.0)


def test_slopes_without_a_bound_are_refused_even_of_the_stated_loss():
    loss = Squared()
    with pytest.raises(ValueError, match="must be bounded"):
        handle("rows", loss).slope_sum("vector", THETA, QuerySlope(loss), FRAME)


def test_every_use_of_a_term_is_counted_once():
    term = CertifiedNoise("gaussian", 1.0, 1.0, 1, "sum", 3, query="count", record_bound=1.0)
    answers = PrivateAnswers({"count": term}, Exact())
    for used in range(3):
        assert answers.used.get("count", 0) == used
        answers.claim("count", ("count",), 1)
    with pytest.raises(CertificateError, match="all of them are used"):
        answers.claim("count", ("count",), 1)
    with pytest.raises(CertificateError, match="has 1 numbers"):
        PrivateAnswers({"count": term}, Exact()).claim("count", ("count",), 2)
    with pytest.raises(CertificateError, match="another size"):
        answers.release(term, [1.0, 2.0])


@pytest.mark.parametrize("neighbors", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize(("people", "many"), [(False, 1), (False, 3), (True, 1)])
def test_sensitivities_are_those_of_the_table(neighbors, people, many):
    facts = dict(neighbors=neighbors, people=people, rows_per_person=many)
    bounds = LinearBounds(1000, COLUMNS, Logistic(), math.sqrt(3), math.sqrt(3), **facts)
    c = 2 if neighbors == "replace_one" else 1
    assert Query("count").sensitivity(bounds) == many
    assert Query.moments(SIZE) == Query("second moments", 1.0, 10)
    assert Query("histogram", 5, 30).sensitivity(bounds) == pytest.approx(
        many * math.sqrt(5 * c), rel=1e-15
    )
    assert Query("vector", 0.7, SIZE).sensitivity(bounds) == pytest.approx(
        many * c * 0.7 * 1.001, rel=1e-6
    )
    assert Query("limited sum", 0.7).sensitivity(bounds) == pytest.approx(
        many * c * 0.7 * 1.001, rel=1e-6
    )
    number = queries.most_summed_rows(1000, neighbors)
    rounding = 2 * summation_rounding_error(number, SIZE, 0.49, people=people)
    found = Query("second moments", 0.7, 10).sensitivity(bounds)
    assert found == pytest.approx(many * math.sqrt(c) * 0.49 + rounding, rel=1e-15)
    ignored = replace(bounds, ignored_rows=True)
    assert Query("count").sensitivity(ignored) == many * (1 + number * 2.0**-51) > many
    # n e K b = r c b / 2: what rounding may add to a mapped sum is what is paid for.
    allowed = queries.largest_query_cancellation(bounds)
    error = relative_rounding_error(queries.MANY_ROWS if people else number, SIZE)
    share = Query("vector", 0.7, SIZE).sensitivity(bounds) / (many * c * 0.7) - 1
    assert number * error * allowed == pytest.approx(share * c / 2, rel=1e-9)
    term = Query("vector", 0.7, SIZE).calibrated_noise(bounds, 0.5, uses=4)
    moved = Query("vector", 0.7, SIZE).sensitivity(bounds)
    assert (term.sensitivity, term.releases, term.dimension) == (moved, 4, SIZE)
    assert term.scale == pytest.approx(2 * moved / 0.5, rel=1e-6)
    assert term.scale >= 2 * moved / 0.5


@pytest.mark.parametrize(
    "arguments",
    [
        ("mean",),
        ("vector", 0.0),
        ("vector", -1.0),
        ("vector", math.inf),
        ("vector", True),
        ("vector", 1.0, 0),
        ("vector", 1.0, 2.0),
        ("count", 2.0),
        ("count", 1.0, 2),
    ],
)
def test_queries_that_are_refused(arguments):
    with pytest.raises(ValueError, match=r"query|count"):
        Query(*arguments)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_packed_matrices_keep_their_norm_and_come_back(size):
    matrix = np.random.default_rng(size).normal(size=(size, size))
    matrix += matrix.T
    packed = queries.pack_query_matrix(matrix)
    assert (
        packed.size
        == size * (size + 1) // 2
        == len(list(itertools.combinations_with_replacement("x" * size, 2)))
    )
    assert np.linalg.norm(packed) == pytest.approx(np.linalg.norm(matrix), rel=1e-14)
    np.testing.assert_allclose(queries.unpack_query_matrix(packed, size), matrix, rtol=1e-14)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("lead", [0, 1])
def test_coordinates(diagonal, lead):
    """Norms in coordinates are those of the transformed row, rounded up; sums are transformed
    like rows.
    """
    rng = np.random.default_rng(4)
    size = COLUMNS + lead
    entries = rng.uniform(0.5, 2, size)
    matrix = np.diag(entries) + (0 if diagonal else np.tril(rng.normal(size=(size, size)), -1))
    block = rng.normal(size=(7, size))
    block[:, :lead] = 1.0
    wanted = np.array([matrix @ row for row in block])
    for given in (matrix, entries) if diagonal else (matrix,):
        frame = Coordinates(given, lead, constant_norm=0.3)
        np.testing.assert_allclose(frame.transform(block).copy(), wanted, rtol=1e-13)
        constant = 0.0 if lead else 0.3
        norms = np.sqrt(constant**2 + (wanted**2).sum(axis=1))
        np.testing.assert_allclose(frame.norms(block), norms, rtol=1e-13)
        assert (frame.norms(block) > norms).all()
        np.testing.assert_allclose(frame.transform_sum(block[0]), wanted[0], rtol=1e-13)
        np.testing.assert_allclose(
            block @ frame.row_coefficients(entries), wanted @ entries, rtol=1e-12
        )
        assert frame.norm_upper_bound is None  # no slack was given
        if given.ndim == 1:  # nor is there anything to save
            assert Coordinates(given, lead, 0.5).norm_upper_bound is None
    found = shorten_rows(wanted, 1.5)
    np.testing.assert_allclose(
        found, wanted / np.maximum(row_norms(wanted), 1.5)[:, None], rtol=1e-15
    )
    product = np.abs(matrix) @ np.abs(np.linalg.inv(matrix))
    assert 1 <= coordinate_cancellation(matrix) / np.linalg.norm(product, 2) < 1 + 1e-6
