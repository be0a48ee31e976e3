"""Sums of several slopes of a record: brute-force neighbours, what each step of the clip is for,
every record alone.
"""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from coupled_runs import silent_rows
from scipy.sparse import csr_array

from dpconvex.core import private_rows
from dpconvex.core.queries import Query, QuerySlope, QuerySlopes, largest_query_cancellation
from dpconvex.core.row_coordinates import Coordinates, coordinate_cancellation
from dpconvex.core.row_weights import RowWeights
from dpconvex.core.several_margin_losses import SeveralMarginLoss
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.engine.sparse_rows import SparseRows
from dpconvex.losses import (
    CrammerSinger,
    DiscreteHazard,
    Huber,
    Logistic,
    ProportionalOdds,
    Softmax,
)
from dpconvex.privacy import LinearBounds

LOSSES = (Softmax(3), Softmax(5), CrammerSinger(4, 0.05), DiscreteHazard(4), ProportionalOdds(4))
UNIT = 1.7


def facts(loss: SeveralMarginLoss, n: int, d: int, **more: object) -> LinearBounds:
    return LinearBounds(n, d, loss, math.sqrt(d), math.sqrt(d), **more)


def matrices(rng: np.random.Generator, d: int) -> np.ndarray:
    """Return coordinates that geometry may come up with: stretched, turned and shifted, or a
    diagonal.
    """
    if rng.random() < 0.3:
        return np.concatenate([[1.0], 10.0 ** rng.uniform(-2, 3, d)])
    matrix = np.eye(d + 1)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    matrix[1:, 1:] = turn @ np.diag(100.0 ** rng.uniform(-1, 1, d)) @ turn.T
    matrix[1:, 0] = rng.normal(size=d)
    return matrix


def moved(
    loss: SeveralMarginLoss,
    neighbors: str,
    seed: int,
    weights: str = "none",
    weighting: str = "clip",
) -> float:
    """Return how far a sum moves between two neighbours, over its sensitivity; 0 where
    coordinates are refused.
    """
    rng = np.random.default_rng(seed)
    n = 6
    d = int(rng.integers(1, 4))
    bounds = facts(
        loss, n, d, neighbors=neighbors, people=weights == "people", weighted_rows=weights == "rows"
    )
    frame = Coordinates(matrices(rng, d), 1)
    if coordinate_cancellation(frame.matrix) > largest_query_cancellation(bounds):
        return 0.0
    X = rng.choice([-1.0, -0.3, 0.0, 0.3, 1.0], size=(n + 1, d))
    y = rng.integers(0, loss.outcomes, n + 1).astype(float)
    y[rng.random(n + 1) < 0.1] = rng.choice([-7.0, 0.4, 1e100])  # whatever a reader lets pass
    if rng.random() < 0.3:
        X[n] = X[0]
    thetas = rng.normal(size=(loss.margins, d + 1)) * rng.choice([0.0, 0.3, 5.0, 1e6])
    query = Query("vector", float(rng.choice([0.1, 0.7, 3.0])), loss.coefficients(d + 1))
    kept = slice(1, n) if neighbors == "add_or_remove_one" else [n, *range(1, n)]
    sums = []
    for number, chosen in enumerate((slice(0, n), kept)):
        some = np.arange(n + 1)[chosen]
        votes = None
        if weights == "people":  # of the first record two rows here and three there
            some = (
                np.concatenate([some, rng.integers(0, n + 1, number + 1)])
                if neighbors == "replace_one"
                else some
            )
            shares = np.ones(some.size)
            if neighbors == "replace_one":
                shares[[0, *range(n, some.size)]] = 1 / (number + 2)
            votes = RowWeights(shares, n)
        elif weights == "rows":
            votes = RowWeights(np.array([1.0, 0.5, 1.0, 0.0, 0.25, 1.0, 1.0])[some], some.size)
        rows = MemoryRows(
            X[some], y[some], RowMap.from_bounds(d, (-1, 1)), threads=1, row_weights=votes
        )
        handle = silent_rows(rows, bounds, gradients=query)
        asked = QuerySlopes(loss, weighting)
        sums.append(np.ravel(handle.slopes_sum("gradients", thetas, asked, frame, UNIT)) / UNIT)
    return float(np.linalg.norm(sums[0] - sums[1])) / query.sensitivity(bounds)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("neighbors", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize("weights", ["none", "rows", "people"])
def test_no_neighbour_exceeds_the_sensitivity(loss, neighbors, weights):
    found = [
        moved(loss, neighbors, seed, weights, ("clip", "square", "weight")[seed % 3])
        for seed in range(240)
    ]
    assert max(found) <= 1
    assert max(found) > (
        0.5 if neighbors == "replace_one" else 0.9
    )  # opposite slopes of classes need luck


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_bound_is_nearly_attained(loss):
    """The same long row with opposite signs, and the outcomes that pull most."""
    bounds = facts(loss, 1, 1)
    frame = Coordinates(np.diag([1.0, 50.0]), 1)
    query = Query("vector", 0.5, loss.coefficients(2))
    sums = []
    for x in (-1.0, 1.0):
        rows = MemoryRows(
            np.full((1, 1), x), np.zeros(1) + (loss.outcomes - 2), RowMap.from_bounds(1, (-1, 1))
        )
        handle = silent_rows(rows, bounds, gradients=query)
        thetas = np.zeros((loss.margins, 2))
        thetas[:, 0] = np.arange(loss.margins) if isinstance(loss, ProportionalOdds) else 0.0
        sums.append(np.ravel(handle.slopes_sum("gradients", thetas, QuerySlopes(loss), frame)))
    claimed = query.sensitivity(bounds)
    assert 0.99 * claimed <= np.linalg.norm(sums[0] - sums[1]) <= claimed


class SlopeBySlope(private_rows._ClippedMarginSlopes):
    """Every slope clipped on its own: a record adds up to sqrt(k) times the bound."""

    def __call__(self, y, z, norms):
        slopes = self.slopes.loss.slopes(y, z.T)
        return (np.clip(slopes, -self.bound / norms, self.bound / norms).T,)


class WithoutTheSum(private_rows._ClippedMarginSlopes):
    """Common coefficients whose part of the norm is forgotten."""

    def __call__(self, y, z, norms):
        slopes = self.slopes.loss.slopes(y, z.T)
        slopes = slopes * np.minimum(1, self.bound / np.sqrt((slopes**2).sum(axis=0)))
        return (np.vstack([slopes, slopes.sum(axis=0)]).T,)


class WithoutNorms(private_rows._ClippedMarginSlopes):
    """Slopes clipped without the length of their row."""

    def __call__(self, y, z, norms):
        return super().__call__(y, z, np.ones_like(norms))


@pytest.mark.parametrize(
    ("loss", "wrong"),
    [
        (Softmax(5), SlopeBySlope),
        (Softmax(3), WithoutNorms),
        (DiscreteHazard(4), WithoutTheSum),
        (DiscreteHazard(4), WithoutNorms),
        (ProportionalOdds(4), WithoutTheSum),
    ],
)
def test_wrong_clips_are_caught(loss, wrong):
    with mock.patch.object(private_rows, "_ClippedMarginSlopes", wrong):
        assert max(moved(loss, "add_or_remove_one", seed) for seed in range(120)) > 1.05


def table(n: int, d: int, outcomes: int, seed: int = 0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, d)) * (rng.random((n, d)) < 0.5)
    return X, rng.integers(0, outcomes, n).astype(float)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_what_a_record_adds_depends_on_it_alone_bit_by_bit(loss):
    """Multiples of a row are the same in every table, wherever it stands, dense and by
    non-zeros.
    """
    X, y = table(67, 5, loss.outcomes)
    thetas = np.random.default_rng(1).normal(size=(loss.margins, 6)) * 3
    lifted = private_rows._ClippedMarginSlopes(QuerySlopes(loss), 0.8)
    row_map = RowMap.from_bounds(5, (-1, 1))
    orders = (
        np.arange(67),
        np.arange(66, -1, -1),
        np.arange(13, 30),
        np.array([29]),
        np.arange(20, 67),
    )
    for engine, kind in ((MemoryRows, np.asarray), (SparseRows, csr_array)):
        whole: dict[int, bytes] = {}
        for order in orders:
            found: list[np.ndarray] = []

            def keep(y, z, w, found=found):
                with np.errstate(all="ignore"):
                    (multiples,) = lifted(y, z, w + 1.5)
                found.extend(multiples)
                return (multiples,)

            engine(kind(X[order]), y[order], row_map, threads=1).combine(thetas.T, keep)
            seen = {
                int(row): multiples.tobytes() for row, multiples in zip(order, found, strict=True)
            }
            whole = whole or seen
            assert seen == {row: whole[row] for row in seen}


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_sparse_rows_add_the_same(loss):
    X, y = table(300, 6, loss.outcomes)
    thetas = np.random.default_rng(2).normal(size=(loss.margins, 7))
    frame = Coordinates(np.eye(7), 1)
    query = Query("vector", 0.6, loss.coefficients(7))
    row_map = RowMap.from_bounds(6, (-1, 1))
    engines = MemoryRows(X, y, row_map), SparseRows(csr_array(X), y, row_map)
    sums = [
        silent_rows(rows, facts(loss, 300, 6), gradients=query).slopes_sum(
            "gradients", thetas, QuerySlopes(loss), frame
        )
        for rows in engines
    ]
    assert np.allclose(*sums, rtol=0, atol=1e-6)
    assert np.abs(sums[0]).max() > 1


def test_ignored_rows_and_what_is_no_number_add_nothing():
    X, y = table(8, 2, 3)
    y[[1, 4]] = np.nan
    rows = MemoryRows(X, y, RowMap.from_bounds(2, (-1, 1)))
    kept = MemoryRows(X[~np.isnan(y)], y[~np.isnan(y)], RowMap.from_bounds(2, (-1, 1)))
    query = Query("vector", 1.0, 9)
    bounds = replace(facts(Softmax(3), 8, 2), ignored_rows=True)
    asked = "gradients", np.zeros((3, 3)), QuerySlopes(Softmax(3)), Coordinates(np.eye(3), 1)
    sums = [silent_rows(each, bounds, gradients=query).slopes_sum(*asked) for each in (rows, kept)]
    assert np.allclose(*sums, atol=1e-9)
    odd = np.array([[np.nan] * 3, [np.inf, 0, 0], [1e308, -1e308, 0]])
    with np.errstate(all="ignore"):
        (multiples,) = private_rows._ClippedMarginSlopes(QuerySlopes(Softmax(3)), 1.0)(
            np.zeros(3), odd, np.ones(3)
        )
    assert np.isfinite(multiples).all()
    assert not multiples[:2].any()


class Looking(Softmax):
    def slopes(self, y, z):
        raise AssertionError("a function of the caller saw rows")


def test_questions_are_refused_unless_they_are_data():
    X, y = table(8, 2, 3)
    rows = MemoryRows(X, y, RowMap.from_bounds(2, (-1, 1)))
    handle = silent_rows(rows, facts(Softmax(3), 8, 2), gradients=Query("vector", 1.0, 9))
    frame = Coordinates(np.eye(3), 1)
    thetas = np.zeros((3, 3))
    for loss in (Looking(3), Logistic(), SimpleNamespace(lift="separate", margins=3)):
        with pytest.raises(TypeError, match="several margins"):
            handle.slopes_sum("gradients", thetas, QuerySlopes(loss), frame)
    with pytest.raises(ValueError, match="weighting"):
        handle.slopes_sum("gradients", thetas, QuerySlopes(Softmax(3), "none"), frame)
    with pytest.raises(ValueError, match="shape"):
        handle.slopes_sum("gradients", thetas[:, :2], QuerySlopes(Softmax(3)), frame)
    with pytest.raises(private_rows.CertificateError, match="9 numbers"):
        handle.slopes_sum("gradients", np.zeros((4, 3)), QuerySlopes(Softmax(4)), frame)
    with pytest.raises((TypeError, AttributeError)):
        handle.slope_sum("gradients", np.zeros(3), QuerySlope(Softmax(3)), frame)
    without = MemoryRows(X, y, RowMap.from_bounds(2, (-1, 1), fit_intercept=False))
    bounds = replace(facts(DiscreteHazard(3), 8, 2), fit_intercept=False)
    handle = silent_rows(without, bounds, gradients=Query("vector", 1.0, 4))
    with pytest.raises(ValueError, match="intercept"):
        handle.slopes_sum(
            "gradients", np.zeros((3, 2)), QuerySlopes(DiscreteHazard(3)), Coordinates(np.eye(2), 0)
        )


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("row_norm", [1.0, 1e11])
def test_numbers_too_small_for_their_digits_are_not_rounded_beyond_the_bound(several, row_norm):
    """Large slopes of long rows in the finest unit: weights near 5e-324 would be rounded up by a
    part of themselves.
    """
    odds = ProportionalOdds(2)
    huge = Huber(1e100)
    limit = 2.0**40
    bounds = LinearBounds(
        1, 1, odds if several else huge, row_norm, limit * row_norm, neighbors="add_or_remove_one"
    )
    query = Query("vector", 1.0, odds.coefficients(2) if several else 2)
    frame = Coordinates(np.array([1.0, 1e100]), 1)
    for x in np.geomspace(1e-1, 1, 20) * limit * row_norm:
        rows = MemoryRows(
            np.array([[x]]), np.array([1.0]), RowMap.from_bounds(1, None, row_norm).weighted(limit)
        )
        handle = silent_rows(rows, bounds, gradients=query)
        if several:  # levels in the wrong order: a share of 0
            asked = np.array([[600.0, 0.0], [0.0, 0.0]]), QuerySlopes(odds)
            found = handle.slopes_sum("gradients", *asked, frame, 1e-100)
        else:
            asked = np.array([0.0, 1e100]), QuerySlope(huge, weighting="clip")
            found = handle.slope_sum("gradients", *asked, frame, 1e-100)
        assert np.linalg.norm(found / 1e-100) <= query.sensitivity(bounds)


def test_clips_too_small_for_their_digits_are_refused():
    X, y = table(8, 2, 3)
    rows = MemoryRows(X, y, RowMap.from_bounds(2, (-1, 1)))
    handle = silent_rows(rows, facts(Softmax(3), 8, 2), gradients=Query("vector", 1e-223, 9))
    with pytest.raises(ValueError, match="between"):
        handle.slopes_sum(
            "gradients",
            np.zeros((3, 3)),
            QuerySlopes(Softmax(3)),
            Coordinates(np.eye(3), 1),
            1e-100,
        )
