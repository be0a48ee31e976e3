"""Brute force over neighbours, label flips included, never beats the bound for accuracy at the
top.
"""

import numpy as np
import pytest
from brute_force import numeric_gradient
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex.losses import Hinge, Huber, Logistic
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.objectives import TopRankObjective
from dpconvex.privacy import GaussianDP, TopRankBounds
from dpconvex.smoothing import LogisticKernel, convolve

PROFILE = settings(max_examples=40, derandomize=True, deadline=None)
LOSSES = [Logistic(), convolve(Hinge(), LogisticKernel(), 0.1)]


@st.composite
def tables(draw):
    n = draw(st.integers(2, 9))
    d = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    X = rng.choice([-2.0, -1.0, 0.0, 0.3, 1.0, 2.0], (n, d))
    public = {
        "loss": draw(st.sampled_from(LOSSES)),
        "row_norm": draw(st.sampled_from([0.5, 1.0])),
        "top": draw(st.sampled_from([1, 2, 5])),
        "min_positive": draw(st.sampled_from([1, 3])),
        "alpha": draw(st.sampled_from([0.01, 0.3, 3.0])),
        "width": draw(st.sampled_from([0.01, 0.3])),
    }
    return X, rng.integers(0, 2, n), public, rng


@PROFILE
@given(tables())
def test_no_neighbour_beats_the_bound(case):
    X, y, public, rng = case
    certificate = OutputPerturbation().certify(TopRankBounds(*X.shape, **public), GaussianDP(1.0))
    before = OutputPerturbation().minimise(TopRankObjective(X, y, **public), certificate)
    sensitivity = certificate.noise["release"]["sensitivity"]
    for label in (0, 1):
        for row in (-X[0], rng.normal(size=X.shape[1]) * 5):
            X2 = X.copy()
            y2 = y.copy()
            X2[0] = row
            y2[0] = label
            after = OutputPerturbation().minimise(TopRankObjective(X2, y2, **public), certificate)
            assert np.linalg.norm(before - after) <= sensitivity * (1 + 1e-9)
    # A void record belongs to no class: the number of records stays, and it is gone.
    after = OutputPerturbation().minimise(TopRankObjective(X[1:], y[1:], **public), certificate)
    assert np.linalg.norm(before - after) <= sensitivity * (1 + 1e-9)


@PROFILE
@given(tables())
def test_gradients_at_one_point_never_beat_the_bound(case):
    """At any point of the ball that holds minimisers, which is where sensitivities come from."""
    X, y, public, rng = case
    bounds = TopRankBounds(*X.shape, **public)
    theta = rng.normal(size=X.shape[1])
    theta *= bounds.radius * rng.random() / np.linalg.norm(theta)
    before = TopRankObjective(X, y, **public).gradient(theta)
    assert np.linalg.norm(before - bounds.alpha * theta) <= bounds.lipschitz * (1 + 1e-9)
    for label in (0, 1):
        for sign in (1.0, -1.0):
            X2 = X.copy()
            y2 = y.copy()
            X2[0] = sign * 9 * theta / np.linalg.norm(theta)
            y2[0] = label
            after = TopRankObjective(X2, y2, **public).gradient(theta)
            moved = np.linalg.norm(after - before)
            assert moved <= bounds.gradient_sensitivity * (1 + 1e-9)


def test_the_bound_is_nearly_attained():
    """All losses steep: another negative record takes the top over, on the opposite side of the
    ball.
    """
    public = {"loss": LOSSES[1], "row_norm": 1.0, "top": 1, "min_positive": 100}
    public |= {"alpha": 200.0, "width": 1e-6}
    bounds = TopRankBounds(102, 2, **public)
    X = np.tile([[-0.5, 0.0]], (102, 1))
    y = np.arange(102) >= 2
    X[0] = 0.1, -0.99
    points = []
    for first in ([0.2, 0.97], [-0.2, 0.97]):
        X[1] = first
        points.append(TopRankObjective(X, y, **public).gradient(np.array([bounds.radius, 0.0])))
    ratio = np.linalg.norm(points[0] - points[1]) / bounds.gradient_sensitivity
    assert 0.9 < ratio <= 1


@PROFILE
@given(tables())
def test_value_is_the_printed_one_and_derivatives_are_its(case):
    """Against a sort in place of the smoothing, differences in place of derivatives."""
    X, y, public, rng = case
    F = TopRankObjective(X, y, **public)
    bounds = TopRankBounds(*X.shape, **public)
    theta = rng.normal(size=X.shape[1])
    rows = (
        X * np.minimum(1, public["row_norm"] / np.maximum(np.linalg.norm(X, axis=1), 1e-9))[:, None]
    )
    scores = rows @ theta
    top = public["top"]
    level = np.sort(np.append(scores[y == 0], np.zeros(2 * top)))[::-1][:top].mean()
    losses = public["loss"].value(1.0, scores[y == 1] - level)
    exact = losses.sum() / max(len(losses), public["min_positive"])
    gap = public["width"] * (1 + np.log(2 + len(X) / top)) * public["loss"].lipschitz
    found = F.value(theta) - 0.5 * public["alpha"] * theta @ theta
    assert exact - 1e-9 <= found <= exact + gap
    assert F.gradient(theta) == pytest.approx(
        numeric_gradient(F, theta), abs=1e-6 / public["width"]
    )
    eigenvalues = np.linalg.eigvalsh(F.hessian(theta))
    assert public["alpha"] * (1 - 1e-6) <= eigenvalues[0]
    assert eigenvalues[-1] <= (bounds.smoothness + public["alpha"]) * (1 + 1e-9)


def test_it_is_accurate_at_the_top_where_the_mean_is_not():
    """Many easy negatives and a few hard ones that a score of all pairs neglects."""
    rng = np.random.default_rng(0)
    y = (np.arange(3000) < 600).astype(int)
    X = np.where(y[:, None] == 1, [0.5, 0.3], [-0.5, 0.0]) + 0.1 * rng.normal(size=(3000, 2))
    X[600:700] = [0.7, -0.3] + 0.1 * rng.normal(size=(100, 2))
    public = {"loss": Logistic(), "row_norm": 1.0, "top": 60, "min_positive": 300, "alpha": 1e-3}
    certificate = OutputPerturbation().certify(TopRankBounds(3000, 2, **public), GaussianDP(1.0))
    theta = OutputPerturbation().minimise(TopRankObjective(X, y, **public), certificate)
    scores = X @ theta
    assert np.mean(y[np.argsort(-scores)[:500]]) > 0.95  # the list's top
    plain = X @ [1.0, 0.1]  # what separates most pairs
    assert np.mean(y[np.argsort(-plain)[:500]]) < 0.9


@pytest.mark.parametrize(
    "wrong",
    [{"loss": Huber(1.0)}, {"loss": Hinge()}, {"neighbors": "add_or_remove_one"}, {"top": 0}],
)
def test_what_has_no_proof_is_refused(wrong):
    public = {"loss": Logistic(), "row_norm": 1.0, "top": 5, "min_positive": 5, "alpha": 0.1}
    with pytest.raises(ValueError, match="TopRankBounds"):
        TopRankBounds(100, 2, **{**public, **wrong})
