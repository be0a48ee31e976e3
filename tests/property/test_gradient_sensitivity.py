"""Coupled runs on neighbouring data (`coupled_runs`): what noisy descent releases differs by no more than was paid."""

import math

import numpy as np
import pytest
from coupled_runs import LOSSES, differences, facts, pair, problems, silent_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex.core.coordinates import Coordinates, cancellation
from dpconvex.core.queries import Query, largest_cancellation
from dpconvex.core.slopes import Slope
from dpconvex.engine import MemoryRows
from dpconvex.losses import Hinge, Huber, Logistic, Pinball
from dpconvex.mechanisms import gradient_plan
from dpconvex.mechanisms.gradient_geometry import given_coordinates
from dpconvex.smoothing import LogisticKernel, convolve

PROFILE = settings(max_examples=80, derandomize=True, deadline=None)


@given(problem=problems())
@PROFILE
def test_coupled_runs_spend_at_most_the_budget(problem):
    loss, X, y, mu, public = problem
    n, d = len(y) - 1, X.shape[1]
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
    """Whatever matrix geometry comes up with: rows, targets and labels at their extremes, both ways to bound."""
    rng = np.random.default_rng(seed)
    d, n, lead = int(rng.integers(1, 4)), 5, int(rng.integers(0, 2))
    row_map, bounds, _ = facts(
        loss, n, d, 1.0, intercept=bool(lead), row_norm=None, neighbors=neighbors, how="private"
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
    if cancellation(matrix) > largest_cancellation(bounds):  # refused: sums would lose their digits
        return
    phi = rng.normal(size=d + lead) / stretch
    smooth = convolve(loss, LogisticKernel(), 0.3) if loss.kinks is not None else loss
    ways = [Slope(smooth, weighting="weight"), Slope(smooth, weighting="square")]
    if loss.kind == "margin":
        ways.append(Slope(smooth, weighting="clip"))
    else:
        ways.append(Slope(smooth, sum(loss.slope_range) / 2))
    kept = slice(1, n) if neighbors == "add_or_remove_one" else [n, *range(1, n)]
    for slope in ways:
        query = Query("vector", clip * slope.largest, d + lead)
        sums = []
        for chosen in (slice(0, n), kept):
            rows = MemoryRows(X[chosen], y[chosen], row_map, threads=1)
            handle = silent_rows(rows, bounds, gradients=query)
            theta = frame.to_rows(phi)
            sums.append(handle.slope_sum("gradients", theta, slope, frame, 1.7) / 1.7)
        change = np.linalg.norm(sums[0] - sums[1])
        assert change <= query.sensitivity(bounds) * (1 + 1e-12)


def test_a_look_at_some_rows_keeps_to_the_sensitivities(monkeypatch):
    """Geometry of a public part of the rows: the record that differs is in it, or not."""
    for name in ("_LOOK_LEAST", "_LOOK_MOST"):
        monkeypatch.setattr(gradient_plan, name, 4)
    rng = np.random.default_rng(0)
    X, y = rng.uniform(-1, 1, size=(12, 2)), rng.uniform(-1, 1, size=12)
    row_map, bounds, certificate = facts(
        Pinball(0.9), 12, 2, 1e4, intercept=True, row_norm=None, neighbors="replace_one",
        how="private",
    )  # fmt: skip
    for changed in range(12):
        other_X, other_y = X.copy(), y.copy()
        other_X[changed], other_y[changed] = -1.0, 1e3
        ratios, spent = differences((X, y), (other_X, other_y), bounds, row_map, certificate)
        assert max(ratios.values()) <= 1 + 1e-9
        assert spent <= 1e4 * (1 + 1e-9)


def test_the_clip_is_attained_by_a_label_flip():
    """A long row far on the wrong side, with one label and with the other."""
    row_map, bounds, _ = facts(
        Logistic(), 1, 1, 1.0, intercept=True, row_norm=None, neighbors="replace_one", how="private"
    )
    frame, query = Coordinates(np.diag([1.0, 50.0]), 1), Query("vector", 0.5, 2)
    sums = []
    for label in (-1.0, 1.0):
        rows = MemoryRows(np.ones((1, 1)), np.array([label]), row_map, threads=1)
        handle = silent_rows(rows, bounds, gradients=query)
        slope = Slope(Logistic(), weighting="clip")
        sums.append(handle.slope_sum("gradients", np.zeros(2), slope, frame, 2.0) / 2.0)
    claimed = query.sensitivity(bounds)
    assert 0.998 * claimed <= np.linalg.norm(sums[0] - sums[1]) <= claimed


@pytest.mark.parametrize("how", ["private", "given"])
@pytest.mark.parametrize("loss", [Pinball(0.9), Pinball(0.5), Huber(0.3), Hinge()])
def test_gradient_sensitivity_is_attained(loss, how):
    """A record at the influence bound against the same with the opposite target, or label."""
    extreme = 1.0 if loss.kind == "margin" else 1e6
    d, row_norm = 2, None if how == "private" else 0.5
    row_map, bounds, certificate = facts(
        loss, 3, d, 20.0, intercept=True, row_norm=row_norm, neighbors="replace_one", how=how
    )
    record = np.full(d, 0.5 / math.sqrt(d)) if how == "given" else np.ones(d)
    first, second = pair(d, extreme, -extreme, record, record)
    ratios, spent = differences(first, second, bounds, row_map, certificate)
    assert spent <= 20.0 * (1 + 1e-9)
    # The hinge saturates only far from the origin; private coordinates weight long rows.
    least = 0.95 if how == "given" and loss.kind == "residual" else 0.3
    assert ratios["gradients"] >= least
    if how == "given" and loss == Pinball(0.5):
        assert spent >= 0.99 * 20.0  # nothing but gradients was released: all of mu is needed


def test_the_constant_part_is_attained():
    """Mirrored records, and one record more or less, where the influence bound gives the coordinates."""
    d = 2
    row_map, bounds, certificate = facts(
        Pinball(0.9), 3, d, 2.0, intercept=True, row_norm=None,
        neighbors="add_or_remove_one", how="given",
    )  # fmt: skip
    first, _ = pair(d, 0.0, 0.0, np.ones(d), -np.ones(d))
    shorter = first[0][:-1], first[1][:-1]
    ratios, _ = differences(first, shorter, bounds, row_map, certificate)
    assert ratios["constant part"] == pytest.approx(1.0, abs=2e-3)  # a thousandth pays for rounding


@pytest.mark.parametrize("targets", [1, 3])
def test_several_levels_attain_their_sensitivities(targets):
    """A record gets the opposite targets, which every level's sums feel, or the opposite row, which their sum does."""
    n, levels = 20, (0.1, 0.5, 0.9)
    # With much budget the first phases see, and with little rows are clipped.
    much, little = (
        facts(
            Pinball(0.9), n, 1, mu, intercept=True, row_norm=None, neighbors="replace_one",
            how="private", levels=levels, targets=targets,
        )
        for mu in (1e4, 1.0)
    )  # fmt: skip
    X = np.where(np.arange(n) < n // 2, -0.5, 0.5)[:, None]
    y = np.zeros((n, targets))

    def with_last(x, target):
        features, demands = (
            np.vstack([X[:-1], [[x]]]),
            np.vstack([y[:-1], np.full(targets, target)]),
        )
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
    assert certificate.noise["residuals"].releases == 20 * len(levels)
    assert certificate.noise["targets"].releases == 16 * targets
    found = ratios((1.0, 1e6), (1.0, -1e6), little)
    for phase in ("rough gradients", "early gradients", "gradients"):
        assert 0.9 < found[phase] <= 1
    assert 0.5 < ratios((1.0, 0.0), (-1.0, 0.0), little)["constant part"] <= 1
    assert certificate.noise["gradients"].sensitivity == pytest.approx(
        certificate.noise["constant part"].sensitivity / 2
    )


def test_counts_and_histograms_are_attained():
    """A long row against a short one, targets and residuals in other bins, a label flip."""
    n = 20
    X, y = np.full((n, 1), 0.5), np.zeros(n)
    X[: n // 2] = -0.5
    other_X, other_y = X.copy(), y.copy()
    X[-1], y[-1] = 1.0, 1e3
    other_X[-1], other_y[-1] = 1e-3, -1e3
    row_map, bounds, certificate = facts(
        Pinball(0.5), n, 1, 1e4, intercept=True, row_norm=None, neighbors="replace_one",
        how="private",
    )  # fmt: skip
    ratios, _ = differences((X, y), (other_X, other_y), bounds, row_map, certificate)
    for phase in ("scales", "octaves", "targets", "residuals"):
        assert ratios[phase] == pytest.approx(1.0, abs=1e-12)
    assert ratios["lengths"] > 0.99
    years = np.where(np.arange(n) % 2, 1990.0, 2024.0)[:, None]
    row_map, bounds, certificate = facts(
        Pinball(0.5), n, 1, 1e4, intercept=True, row_norm=None, neighbors="replace_one",
        how="private", raw=True,
    )  # fmt: skip
    changed = np.vstack([years[:-1], [[-1e9]]])
    ratios, _ = differences((years, y), (changed, other_y), bounds, row_map, certificate)
    for phase in ("scales", "places", "octaves"):
        assert ratios[phase] == pytest.approx(1.0, abs=1e-12)
    row_map, bounds, certificate = facts(
        Logistic(), n, 1, 1e4, intercept=True, row_norm=None, neighbors="replace_one",
        how="private",
    )  # fmt: skip
    y = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    ratios, _ = differences((X, y), (X, np.r_[y[:-1], -y[-1]]), bounds, row_map, certificate)
    assert ratios["labels"] == 1.0
    assert ratios["margins"] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("ranking", [False, True])
@pytest.mark.parametrize("neighbors", ["replace_one", "add_or_remove_one"])
def test_counts_in_place_of_vectors_are_attained(neighbors, ranking):
    """Labels that are all the same, and one that is not: what follows counts them, and costs all that was planned."""
    row_map, bounds, certificate = facts(
        Logistic(), 20, 3, 0.5, intercept=True, row_norm=None, neighbors=neighbors, how="private",
        ranking=ranking,
    )  # fmt: skip
    X, y = np.full((20, 3), 0.5), -np.ones(20)
    other = (X, np.r_[y[:-1], 1.0])
    if neighbors == "add_or_remove_one":
        other = (np.vstack([X, X[:1]]), np.r_[y, 1.0])
    ratios, _ = differences((X, y), other, bounds, row_map, certificate)
    for phase in {"early gradients", "gradients", "margin range", "margins"} & set(ratios):
        assert 1 - 2e-6 < ratios[phase] <= 1


def test_logistic_sensitivity_is_attained():
    """The moving part of a logistic gradient knows no label: two rows on both sides of a steep separator attain it."""
    row_map, _, certificate = facts(
        Logistic(), 1, 1, 1.0, intercept=True, row_norm=None, neighbors="replace_one", how="given"
    )
    frame, term = given_coordinates(1, True, 1.0), certificate.noise["gradients"]
    query = Query(term.kind, term.bound, term.dimension)
    theta, sums = frame.to_rows(np.array([-0.9995e6, 1e6])), []
    for x in (1.0, 0.999):
        rows = MemoryRows(np.full((1, 1), x), np.ones(1), row_map, threads=1)
        handle = silent_rows(rows, certificate.bounds, gradients=query)
        sums.append(handle.slope_sum("gradients", theta, Slope(Logistic(), -0.5), frame))
    claimed = term.sensitivity
    assert 0.998 * claimed <= np.linalg.norm(sums[0] - sums[1]) <= claimed
