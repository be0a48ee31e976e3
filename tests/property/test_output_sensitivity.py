"""Brute force over neighbours never beats the minimiser's sensitivity, and attains it where it
is tight.
"""

from dataclasses import replace

import numpy as np
import pytest
from brute_force import certified, check_move, drawn_records, minimiser
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex.engine import MemoryRows
from dpconvex.losses import Absolute, Hinge, Huber, Logistic, Pinball, SoftThreshold
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import LinearBounds
from dpconvex.smoothing import LogisticKernel, convolve

PROFILE = settings(max_examples=40, derandomize=True, deadline=None)

LOSSES = [
    Logistic(),
    Huber(0.3),
    convolve(Pinball(0.8), LogisticKernel(), 0.1),
    Pinball(0.8),
    Hinge(),
    Absolute(),
    SoftThreshold(0.2),
]


def facts(loss, n, d, alpha, row_norm, neighbors, gap=None):
    row_map, certificate = certified(
        LinearBounds, loss, n, d, row_norm, gap=gap, alpha=alpha, neighbors=neighbors
    )
    return row_map, certificate.bounds, certificate


@st.composite
def neighbours(draw):
    loss, X, y = draw(drawn_records(LOSSES))
    alpha = draw(st.sampled_from([0.02, 0.3, 2.0]))
    row_norm = draw(st.sampled_from([0.5, 1.0, 2.0]))
    return loss, X, y, alpha, row_norm


@PROFILE
@given(neighbours())
def test_replace_one_never_beats_the_bound(case):
    loss, X, y, alpha, row_norm = case
    n = len(X) - 1
    row_map, _, certificate = facts(loss, n, X.shape[1], alpha, row_norm, "replace_one")
    check_move(X, y, row_map, certificate)


@PROFILE
@given(neighbours(), st.sampled_from([1, 3, 10]))
def test_add_or_remove_one_never_beats_the_bound(case, nominal):
    loss, X, y, alpha, row_norm = case
    row_map, _, certificate = facts(loss, nominal, X.shape[1], alpha, row_norm, "add_or_remove_one")
    check_move(X, y, row_map, certificate)


@PROFILE
@given(neighbours(), st.sampled_from([0.3, 0.01]))
def test_points_within_a_gap_never_beat_the_bound(case, gap):
    """The farthest points that a gap allows, away from the other data set's minimiser."""
    loss, X, y, alpha, row_norm = case
    n = len(X) - 1
    row_map, bounds, certificate = facts(loss, n, X.shape[1], alpha, row_norm, "replace_one")
    sensitivity = bounds.minimiser_sensitivity(gap=gap)
    points = []
    objectives = []
    for part in (slice(0, n), slice(1, n + 1)):
        points.append(minimiser(X[part], y[part], row_map, certificate))
        rows = MemoryRows(X[part], y[part], row_map, threads=1)
        objectives.append(EmpiricalObjective(rows, loss, alpha))
    axis = points[1] - points[0]
    axis = axis / np.linalg.norm(axis) if np.linalg.norm(axis) > 0 else np.eye(len(axis))[0]
    ends = []
    for point, objective, sign in zip(points, objectives, (-1, 1), strict=True):
        low = 0.0
        high = 1e3
        for _ in range(60):
            middle = (low + high) / 2
            inside = objective.value(point + sign * middle * axis) <= objective.value(point) + gap
            low, high = (middle, high) if inside else (low, middle)
        ends.append(point + sign * low * axis)
    # The envelope of a kinked loss lowers the value by at most slope^2 / (2 b).
    slack = 1e-2 if np.isinf(loss.smoothness) else 1e-6
    assert np.linalg.norm(ends[1] - ends[0]) <= sensitivity + slack


@pytest.mark.parametrize(
    ("loss", "targets"),
    [(Huber(0.1), (50.0, -50.0)), (Absolute(), (50.0, -50.0)), (Hinge(), (1.0, -1.0))],
)
def test_replace_one_is_attained(loss, targets):
    """The same row with the target at opposite extremes (a label flip) moves the minimiser by 2
    L / (n alpha).
    """
    row_map, bounds, certificate = facts(loss, 1, 1, 5.0, 1.0, "replace_one")
    X = np.ones((1, 1))
    first, second = (minimiser(X, np.array([y]), row_map, certificate) for y in targets)
    exact = 2 * bounds.lipschitz / bounds.regularisation
    assert np.linalg.norm(first - second) == pytest.approx(exact, rel=1e-6)


def test_add_or_remove_one_is_attained():
    row_map, bounds, certificate = facts(Hinge(), 4, 1, 5.0, 1.0, "add_or_remove_one")
    X = np.ones((1, 1))
    moved = minimiser(X, np.array([1.0]), row_map, certificate)
    assert np.linalg.norm(moved) == pytest.approx(
        bounds.lipschitz / bounds.regularisation, rel=1e-6
    )


def test_a_gap_is_attained_by_the_penalty_alone():
    """Far out on its linear piece a loss is all penalty: the gap's term cannot be improved."""
    loss = Huber(0.1)
    alpha = 1.0
    gap = 0.02
    row_map, bounds, certificate = facts(loss, 1, 1, alpha, 1.0, "replace_one")
    X = np.ones((1, 1))
    ends = []
    for target, sign in ((50.0, 1), (-50.0, -1)):
        point = minimiser(X, np.array([target]), row_map, certificate)
        rows = MemoryRows(X, np.array([target]), row_map)
        objective = EmpiricalObjective(rows, loss, alpha)
        far = point + sign * np.sqrt(2 * gap / alpha) * np.ones(2) / np.sqrt(2)
        assert objective.value(far) - objective.value(point) == pytest.approx(gap, rel=1e-9)
        ends.append(far)
    distance = np.linalg.norm(ends[0] - ends[1])
    assert distance == pytest.approx(bounds.minimiser_sensitivity(gap=gap), rel=1e-9)


@PROFILE
@given(
    st.floats(1e-3, 10),
    st.integers(1, 10**6),
    st.floats(0, 1e-2),
    st.floats(0, 1e-2),
    st.sampled_from(["replace_one", "add_or_remove_one"]),
)
def test_sensitivity_is_monotone(alpha, n, tolerance, gap, neighbors):
    bounds = LinearBounds(n, 3, Logistic(), 1.0, 2.0, alpha=alpha, neighbors=neighbors)
    base = bounds.minimiser_sensitivity(tolerance, gap)
    assert replace(bounds, alpha=2 * alpha).minimiser_sensitivity(tolerance, gap) < base
    assert replace(bounds, n_samples=2 * n).minimiser_sensitivity(tolerance, gap) < base
    assert bounds.minimiser_sensitivity(2 * tolerance + 1e-9, gap) > base
    assert bounds.minimiser_sensitivity(tolerance, 2 * gap + 1e-9) > base
