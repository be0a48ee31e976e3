"""Coupled runs on neighbouring data (`coupled_runs`): what noisy descent releases differs by no
more than was paid.
"""

import math

import numpy as np
import pytest
from coupled_runs import LOSSES, differences, facts, pair, problems, silent_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex.core.queries import (
    Query,
    QueryFactor,
    QuerySlope,
    QueryStatistic,
    largest_query_cancellation,
)
from dpconvex.core.row_coordinates import Coordinates, coordinate_cancellation
from dpconvex.engine import MemoryRows
from dpconvex.fit import constants
from dpconvex.losses import Absolute, Hinge, Huber, Logistic, Pinball, Squared
from dpconvex.smoothing import LogisticKernel, convolve

PROFILE = settings(max_examples=80, derandomize=True, deadline=None)


@given(problem=problems())
@PROFILE
def test_coupled_runs_spend_at_most_the_budget(problem):
    loss, X, y, mu, public = problem
    n = len(y) - 1
    d = X.shape[1]
    row_map, bounds, certificate = facts(loss, n, d, mu, **public)
    # Replace row 1 by the extra record, or have that record as well.
    rows = [0, n, *range(2, n)] if public["neighbors"] == "replace_one" else slice(None)
    ratios, spent = differences((X[:-1], y[:-1]), (X[rows], y[rows]), bounds, row_map, certificate)
    assert max(ratios.values()) <= 1 + 1e-9
    assert spent <= mu * (1 + 1e-9)


@given(
    seed=st.integers(0, 10_000),
    loss=st.sampled_from(LOSSES),
    neighbors=st.sampled_from(["replace_one", "add_or_remove_one"]),
    stretch=st.sampled_from([1.0, 1e3, 1e5]),
    clip=st.sampled_from([0.1, 0.5, 3.0]),
)
@PROFILE
def test_clipped_and_weighted_gradients_in_random_coordinates(seed, loss, neighbors, stretch, clip):
    """Whatever matrix geometry comes up with: rows, targets and labels at their extremes, both
    ways to bound.
    """
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 4))
    n = 5
    lead = int(rng.integers(0, 2))
    row_map, bounds, _ = facts(
        loss, n, d, 1.0, intercept=bool(lead), row_norm=None, neighbors=neighbors
    )
    X = rng.choice([-1.0, -0.3, 0.0, 0.3, 1.0], size=(n + 1, d))
    y = rng.choice([-1.0, 1.0], size=n + 1) * (1.0 if loss.kind == "margin" else 1e3)
    if rng.random() < 0.3:
        X[n] = X[0]  # the same row with another target or label
    matrix = np.eye(d + lead)
    turn = np.linalg.qr(rng.normal(size=(d, d)))[0]
    matrix[lead:, lead:] = turn @ np.diag(stretch ** rng.uniform(-1, 1, size=d)) @ turn.T
    matrix[lead:, :lead] = rng.normal(size=(d, lead))
    frame = Coordinates(matrix, lead)
    if coordinate_cancellation(matrix) > largest_query_cancellation(
        bounds
    ):  # refused: sums would lose their digits
        return
    phi = rng.normal(size=d + lead) / stretch
    smooth = convolve(loss, LogisticKernel(), 0.3) if loss.piecewise_linear is not None else loss
    ways = [QuerySlope(smooth, weighting="weight"), QuerySlope(smooth, weighting="square")]
    if loss.kind == "margin":
        ways.append(QuerySlope(smooth, weighting="clip"))
    else:
        ways.append(QuerySlope(smooth, sum(loss.slope_range) / 2))
    kept = slice(1, n) if neighbors == "add_or_remove_one" else [n, *range(1, n)]
    for slope in ways:
        query = Query("vector", clip * slope.largest, d + lead)
        sums = []
        for chosen in (slice(0, n), kept):
            rows = MemoryRows(X[chosen], y[chosen], row_map, threads=1)
            handle = silent_rows(rows, bounds, gradients=query)
            theta = frame.row_coefficients(phi)
            sums.append(handle.slope_sum("gradients", theta, slope, frame, 1.7) / 1.7)
        change = np.linalg.norm(sums[0] - sums[1])
        assert change <= query.sensitivity(bounds) * (1 + 1e-12)


def test_a_look_at_some_rows_keeps_to_the_sensitivities(monkeypatch):
    """Geometry of a public part of the rows: the record that differs is in it, or not."""
    monkeypatch.setattr(constants, "GEOMETRY_ROWS", (4, 4))
    monkeypatch.setattr(constants, "EARLY_ROWS", (5, 0.0))
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(12, 2))
    y = rng.uniform(-1, 1, size=12)
    row_map, bounds, certificate = facts(
        Pinball(0.9),
        12,
        2,
        1e4,
        intercept=True,
        row_norm=None,
        neighbors="replace_one",
    )
    fit = certificate.parameters["fit"]
    assert (fit["geometry_rows"], fit["early_rows"]) == (4, 5)
    for changed in range(12):
        other_X = X.copy()
        other_y = y.copy()
        other_X[changed] = -1.0
        other_y[changed] = 1e3
        ratios, spent = differences((X, y), (other_X, other_y), bounds, row_map, certificate)
        assert max(ratios.values()) <= 1 + 1e-9
        assert spent <= 1e4 * (1 + 1e-9)


def test_the_clip_is_attained_by_a_label_flip():
    """A long row far on the wrong side, with one label and with the other."""
    row_map, bounds, _ = facts(
        Logistic(), 1, 1, 1.0, intercept=True, row_norm=None, neighbors="replace_one"
    )
    frame = Coordinates(np.diag([1.0, 50.0]), 1)
    query = Query("vector", 0.5, 2)
    sums = []
    for label in (-1.0, 1.0):
        rows = MemoryRows(np.ones((1, 1)), np.array([label]), row_map, threads=1)
        handle = silent_rows(rows, bounds, gradients=query)
        slope = QuerySlope(Logistic(), weighting="clip")
        sums.append(handle.slope_sum("gradients", np.zeros(2), slope, frame, 2.0) / 2.0)
    claimed = query.sensitivity(bounds)
    assert 0.998 * claimed <= np.linalg.norm(sums[0] - sums[1]) <= claimed


@pytest.mark.parametrize("loss", [Pinball(0.9), Pinball(0.5), Huber(0.3), Absolute(), Hinge()])
def test_slope_sums_are_attained(loss):
    """A long record against the same with the opposite target, or label: twice the bound, but
    for its rounding.
    """
    row_map, bounds, _ = facts(
        loss, 1, 2, 1.0, intercept=True, row_norm=None, neighbors="replace_one"
    )
    frame = Coordinates(np.diag([1.0, 50.0, 50.0]), 1)
    query = Query("vector", 0.7, 3)
    far = np.array([0.0, 1e3, 1e3]) if loss.kind == "margin" else np.zeros(3)
    slope = QuerySlope(loss, sum(loss.slope_range) / 2 if loss.kind == "residual" else 0.0)
    sums = []
    for sign in (-1.0, 1.0):
        y = np.array([sign if loss.kind == "margin" else 1e6 * sign])
        rows = MemoryRows(np.ones((1, 2)), y, row_map, threads=1)
        handle = silent_rows(rows, bounds, gradients=query)
        sums.append(handle.slope_sum("gradients", far, slope, frame, 2.0) / 2.0)
    claimed = query.sensitivity(bounds)
    moved = np.linalg.norm(sums[0] - sums[1])
    # A hinge is flat on one side, so that half of it is all that a flip can do.
    least = 0.499 if loss.kind == "margin" else 0.998
    assert least * claimed <= moved <= claimed


@pytest.mark.parametrize("loss", [Pinball(0.9), Pinball(0.5), Huber(0.3), Squared(), Hinge()])
def test_the_gradients_of_a_run_come_near_their_sensitivity(loss):
    """A long record against the same with the opposite target, or label, in a whole run."""
    extreme = 1.0 if loss.kind == "margin" else 1e6
    row_map, bounds, certificate = facts(
        loss, 3, 2, 20.0, intercept=True, row_norm=None, neighbors="replace_one"
    )
    first, second = pair(2, extreme, -extreme, np.ones(2), np.ones(2))
    ratios, spent = differences(first, second, bounds, row_map, certificate)
    assert spent <= 20.0 * (1 + 1e-9)
    assert ratios["gradients"] >= 0.3


@pytest.mark.parametrize("loss", [Pinball(0.7), Squared(), Logistic()])
def test_curvature_and_scores_of_intervals_come_near_theirs(loss):
    """Records at a right angle, and one that is near the kink and one that is not."""
    row_map, bounds, certificate = facts(
        loss, 3, 2, 1e4, intercept=False, row_norm=None, neighbors="replace_one", inference=True
    )
    sign = 1.0 if loss.kind == "margin" else 1e-3
    first, second = pair(2, sign, -sign, np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    ratios, spent = differences(first, second, bounds, row_map, certificate)
    assert spent <= 1e4 * (1 + 1e-9)
    assert {"curvature", "late gradients", "scores"} <= set(ratios)
    assert min(ratios[name] for name in ("curvature", "scores")) > 0
    assert ratios["moments"] > 0.3


@pytest.mark.parametrize("targets", [1, 3])
def test_several_levels_attain_their_sensitivities(targets):
    """A record gets the opposite targets, which every level's sums feel, or the opposite row,
    which their sum does.
    """
    n = 20
    levels = (0.1, 0.5, 0.9)
    # With much budget the first phases see, and with little rows are clipped.
    much, little = (
        facts(
            Pinball(0.9),
            n,
            1,
            mu,
            intercept=True,
            row_norm=None,
            neighbors="replace_one",
            levels=levels,
            targets=targets,
        )
        for mu in (1e4, 1.0)
    )
    X = np.where(np.arange(n) < n // 2, -0.5, 0.5)[:, None]
    y = np.zeros((n, targets))

    def with_last(x, target):
        features = np.vstack([X[:-1], [[x]]])
        demands = np.vstack([y[:-1], np.full(targets, target)])
        return features, demands if targets > 1 else demands[:, 0]

    def ratios(one, other, public):
        row_map, bounds, certificate = public
        found, spent = differences(with_last(*one), with_last(*other), bounds, row_map, certificate)
        assert spent <= certificate.guarantee.mu * (1 + 1e-9)
        return found

    found = ratios((1.0, 1e3), (1.0, -1e3), much)
    for phase in ("octaves", "targets", "residuals"):
        assert found[phase] == pytest.approx(1.0, abs=1e-12)
    certificate = much[-1]
    assert certificate.noise["residuals"].releases == 10 * len(levels)
    assert certificate.noise["targets"].releases == 12 * targets
    found = ratios((1.0, 1e6), (1.0, -1e6), little)
    for phase in ("rough gradients", "gradients"):
        assert 0.9 < found[phase] <= 1
    assert 0.5 < ratios((1.0, 0.0), (-1.0, 0.0), little)["mean row"] <= 1
    assert certificate.noise["gradients"].sensitivity == pytest.approx(
        certificate.noise["mean row"].sensitivity / 2
    )


def test_counts_and_histograms_are_attained():
    """A long row against a short one, targets and residuals in other bins, a label flip."""
    n = 20
    X = np.full((n, 1), 0.5)
    y = np.zeros(n)
    X[: n // 2] = -0.5
    other_X = X.copy()
    other_y = y.copy()
    X[-1] = 1.0
    y[-1] = 1e3
    other_X[-1] = 1e-3
    other_y[-1] = -1e3
    row_map, bounds, certificate = facts(
        Pinball(0.5),
        n,
        1,
        1e4,
        intercept=True,
        row_norm=None,
        neighbors="replace_one",
    )
    ratios, _ = differences((X, y), (other_X, other_y), bounds, row_map, certificate)
    for phase in ("columns", "octaves", "targets", "residuals"):
        assert ratios[phase] == pytest.approx(1.0, abs=1e-12)
    assert ratios["lengths"] > 0.99
    years = np.where(np.arange(n) % 2, 1990.0, 2024.0)[:, None]
    row_map, bounds, certificate = facts(
        Pinball(0.5),
        n,
        1,
        1e4,
        intercept=True,
        row_norm=None,
        neighbors="replace_one",
        raw=True,
    )
    changed = np.vstack([years[:-1], [[-1e9]]])
    ratios, _ = differences((years, y), (changed, other_y), bounds, row_map, certificate)
    for phase in ("columns", "octaves"):
        assert ratios[phase] == pytest.approx(1.0, abs=1e-12)
    row_map, bounds, certificate = facts(
        Logistic(),
        n,
        1,
        1e4,
        intercept=True,
        row_norm=None,
        neighbors="replace_one",
    )
    y = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    ratios, _ = differences((X, y), (X, np.r_[y[:-1], -y[-1]]), bounds, row_map, certificate)
    assert ratios["labels"] == 1.0
    assert ratios["margins"] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("neighbors", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize(
    "query", [Query("vector", 0.3, 4), Query("histogram", 3, 99), Query("second moments", 1.0, 10)]
)
def test_counts_in_place_of_other_sums_are_attained(query, neighbors):
    """A term may be spent on a count that is scaled to it: one record moves it as far as was
    paid for, no further.
    """
    row_map, bounds, _ = facts(
        Logistic(), 20, 3, 0.5, intercept=True, row_norm=None, neighbors=neighbors
    )
    X = np.full((20, 3), 0.5)
    y = -np.ones(20)
    changed = (X, np.r_[y[:-1], 1.0])
    if neighbors == "add_or_remove_one":
        changed = (np.vstack([X, X[:1]]), np.r_[y, 1.0])
    found = []
    for rows in ((X, y), changed):
        handle = silent_rows(MemoryRows(*rows, row_map, threads=1), bounds, asked=query)
        released = []
        add = handle._answers.noise.add
        handle._answers.noise.add = lambda value, term, add=add, kept=released: (
            kept.append(value) or add(value, term)
        )
        assert handle.count("asked", QueryStatistic("label"), -0.5) == pytest.approx(
            np.sum(rows[1] > 0), abs=1e-12
        )
        found.append(released[0])
    ratio = np.linalg.norm(found[0] - found[1]) / query.sensitivity(bounds)
    assert 1 - 2e-6 < ratio <= 1


def test_logistic_sensitivity_is_attained():
    """The moving part of a logistic gradient knows no label: two rows on both sides of a steep
    separator attain it.
    """
    row_map, bounds, _ = facts(
        Logistic(), 1, 1, 1.0, intercept=True, row_norm=None, neighbors="replace_one"
    )
    frame = Coordinates(np.eye(2), 1)
    query = Query("vector", math.sqrt(2) / 2, 2)
    theta = np.array([-0.9995e6, 1e6])
    sums = []
    for x in (1.0, 0.999):
        rows = MemoryRows(np.full((1, 1), x), np.ones(1), row_map, threads=1)
        handle = silent_rows(rows, bounds, gradients=query)
        sums.append(handle.slope_sum("gradients", theta, QuerySlope(Logistic(), -0.5), frame))
    claimed = query.sensitivity(bounds)
    assert 0.998 * claimed <= np.linalg.norm(sums[0] - sums[1]) <= claimed


@pytest.mark.parametrize("neighbors", ["replace_one", "add_or_remove_one"])
@pytest.mark.parametrize(
    "factor", [None, QueryFactor("inside", width=0.5), QueryFactor("slope", Huber(0.3))]
)
def test_second_moments_are_attained(factor, neighbors):
    """Two long rows at a right angle, shortened to the radius: a Frobenius distance of sqrt(2),
    or 1.
    """
    row_map, bounds, _ = facts(
        Huber(0.3), 1, 2, 1.0, intercept=False, row_norm=None, neighbors=neighbors
    )
    frame = Coordinates(np.diag([1e3, 1e3]), 0, constant_norm=0.0)
    y = np.full(1, 1e3 if factor is not None and factor.kind == "slope" else 0.0)
    sums = []
    for row in ([1.0, 0.0], [0.0, 1.0]):
        X = np.array([row]) if neighbors == "replace_one" or row[0] else np.zeros((0, 2))
        rows = MemoryRows(X, y[: len(X)], row_map, threads=1)
        handle = silent_rows(rows, bounds, moments=Query.moments(2))
        sums.append(handle.second_moments("moments", frame, 2.0, factor, np.zeros(2)))
    claimed = Query.moments(2).sensitivity(bounds)
    assert 0.999 * claimed <= np.linalg.norm(sums[0] - sums[1]) <= claimed
