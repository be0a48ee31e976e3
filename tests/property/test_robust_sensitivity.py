"""Brute force over neighbours never beats the robust minimiser's sensitivity, and attains it
where it is tight.
"""

import numpy as np
import pytest
from brute_force import certified, check_move, drawn_records, minimiser
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex.engine import MemoryRows
from dpconvex.losses import Hinge, Logistic
from dpconvex.objectives import AdversarialObjective
from dpconvex.privacy import RobustBounds
from dpconvex.smoothing import LogisticKernel, convolve

PROFILE = settings(max_examples=50, derandomize=True, deadline=None)
SMOOTH_HINGE = convolve(Hinge(), LogisticKernel(), 0.05)


def facts(loss, n, d, alpha, row_norm, **adversary):
    return certified(RobustBounds, loss, n, d, row_norm, alpha=alpha, **adversary)


@st.composite
def neighbours(draw):
    loss, X, y = draw(drawn_records([Logistic(), SMOOTH_HINGE]))
    alpha = draw(st.sampled_from([0.05, 0.3, 2.0]))
    row_norm = draw(st.sampled_from([0.5, 1.0, 2.0]))
    norm = draw(st.sampled_from(["l2", "linf", "l1"]))
    radius = draw(st.sampled_from([0.0, 0.1, 1.0]))
    return loss, X, y, alpha, row_norm, {"norm": norm, "radius": radius}


@PROFILE
@given(neighbours())
def test_replace_one_never_beats_the_bound(case):
    loss, X, y, alpha, row_norm, adversary = case
    n = len(X) - 1
    row_map, certificate = facts(loss, n, X.shape[1], alpha, row_norm, **adversary)
    check_move(X, y, row_map, certificate)


@PROFILE
@given(neighbours(), st.sampled_from([1, 3, 10]))
def test_add_or_remove_one_never_beats_the_bound(case, nominal):
    loss, X, y, alpha, row_norm, adversary = case
    row_map, certificate = facts(
        loss, nominal, X.shape[1], alpha, row_norm, neighbors="add_or_remove_one", **adversary
    )
    check_move(X, y, row_map, certificate)


@PROFILE
@given(neighbours(), st.sampled_from([1.0, 4.0]))
def test_a_cost_never_beats_the_bound(case, factor):
    _, X, y, alpha, row_norm, _ = case
    n = len(X) - 1
    cost = factor * 4 * 0.25 * np.log(2) / alpha * 1.001
    row_map, certificate = facts(Logistic(), n, X.shape[1], alpha, row_norm, cost=cost)
    check_move(X, y, row_map, certificate)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_a_label_flip_attains_the_bound(norm):
    """Other records decide the sign of the coefficients, and with it the adversary's move; all
    losses are steep.
    """
    n = 400
    alpha = 6.0
    row_map, certificate = facts(SMOOTH_HINGE, n, 2, alpha, np.sqrt(2), norm=norm, radius=0.1)
    X = np.ones((n, 2))
    y = np.ones(n)
    agree = minimiser(X, y, row_map, certificate)
    y[0] = -1.0
    disagree = minimiser(X, y, row_map, certificate)
    ratio = np.linalg.norm(agree - disagree) / certificate.bounds.minimiser_sensitivity()
    assert 0.99 <= ratio <= 1


@PROFILE
@given(neighbours(), st.integers(0, 10**6))
def test_gradients_at_one_point_never_beat_the_bound(case, seed):
    """Before any solving: the sum of gradients at a point, the records' slopes being free by its
    choice.
    """
    loss, X, y, alpha, row_norm, adversary = case
    row_map, certificate = facts(loss, 1, X.shape[1], alpha, row_norm, **adversary)
    rng = np.random.default_rng(seed)
    theta = 10.0 ** rng.uniform(-2, 2) * rng.normal(size=X.shape[1] + 1)
    gradients = [
        AdversarialObjective(
            MemoryRows(X[i : i + 1], y[i : i + 1], row_map),
            loss,
            0.0,
            adversary["radius"],
            adversary["norm"],
        ).gradient(theta)
        for i in (0, 1)
    ]
    bound = certificate.bounds.gradient_sum_sensitivity()
    assert np.linalg.norm(gradients[0] - gradients[1]) <= bound * (1 + 1e-12)
