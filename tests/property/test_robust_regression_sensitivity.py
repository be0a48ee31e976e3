"""Robust regression: the worst case is that of a numeric search, and no neighbour beats the
sensitivity.
"""

import numpy as np
import pytest
from brute_force import certified, check_move, drawn_records, minimiser, numeric_gradient
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Absolute, Huber, Logistic, Pinball
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.objectives import AdversarialObjective, AdversarialResidualObjective, hull_of
from dpconvex.privacy import GaussianDP, RobustBounds
from dpconvex.smoothing import GaussianKernel, LogisticKernel, convolve

PROFILE = settings(max_examples=40, derandomize=True, deadline=None)
LOSSES = [
    *(Huber(0.3), Huber(2.0), convolve(Absolute(), LogisticKernel(), 0.05)),
    *(convolve(Pinball(0.9), GaussianKernel(), 0.1), convolve(Pinball(0.2), LogisticKernel(), 0.3)),
]
AXES = np.array([1.0, 2.0])


@st.composite
def cases(draw):
    loss, X, y = draw(drawn_records(LOSSES))
    d = X.shape[1]
    norm = draw(st.sampled_from(["l2", "linf", "l1", "box", "hull"]))
    shape = {
        "box": tuple(0.3 + np.arange(d)),
        "hull": (tuple(np.ones(d)), tuple(np.arange(d) - 0.5)),
    }
    return (
        loss,
        X,
        y,
        {
            "alpha": draw(st.sampled_from([0.05, 0.3, 2.0])),
            "radius": draw(st.sampled_from([0.0, 0.1, 1.0])),
            "norm": norm,
            "width": draw(st.sampled_from([0.001, 0.05])),
            "shape": shape.get(norm),
        },
        draw(st.sampled_from([0.5, 1.0, 2.0])),
    )


def facts(loss, n, d, row_norm, adversary, neighbors="replace_one"):
    return certified(RobustBounds, loss, n, d, row_norm, neighbors=neighbors, **adversary)


def objective(X, y, row_map, loss, adversary):
    return AdversarialResidualObjective(MemoryRows(X, y, row_map, threads=1), loss, **adversary)


@PROFILE
@given(cases(), st.booleans())
def test_no_neighbour_beats_the_bound(case, added):
    loss, X, y, adversary, row_norm = case
    n = len(X) - 1
    relation = "add_or_remove_one" if added else "replace_one"
    row_map, certificate = facts(loss, n, X.shape[1], row_norm, adversary, relation)
    check_move(X, y, row_map, certificate)


@PROFILE
@given(cases(), st.integers(0, 10**6))
def test_gradients_at_one_point_never_beat_the_bound(case, seed):
    loss, X, y, adversary, row_norm = case
    row_map, certificate = facts(loss, 1, X.shape[1], row_norm, adversary)
    rng = np.random.default_rng(seed)
    theta = 10.0 ** rng.uniform(-2, 2) * rng.normal(size=X.shape[1] + 1)
    plain = {**adversary, "alpha": 0.0}
    first, second = (
        objective(X[i : i + 1], y[i : i + 1], row_map, loss, plain).gradient(theta) for i in (0, 1)
    )
    bounds = certificate.bounds
    assert np.linalg.norm(first) <= bounds.lipschitz * (1 + 1e-9)
    assert np.linalg.norm(first - second) <= bounds.gradient_sum_sensitivity() * (1 + 1e-9)


@PROFILE
@given(cases(), st.integers(0, 10**6))
def test_values_are_the_worst_case_and_derivatives_are_theirs(case, seed):
    """The adversary's part by trying moves, extreme ones and some inside; derivatives by
    differences.
    """
    loss, X, y, adversary, row_norm = case
    d = X.shape[1]
    radius = adversary["radius"]
    width = adversary["width"]
    row_map, certificate = facts(loss, len(X), d, row_norm, adversary)
    F = objective(X, y, row_map, loss, adversary)
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=d + 1)
    c = theta[1:]
    best = {
        "l2": [c / np.linalg.norm(c)],
        "linf": [np.sign(c)],
        "l1": np.eye(d),
        "box": [np.sign(c) * np.array(adversary["shape"] if adversary["norm"] == "box" else 1.0)],
        "hull": adversary["shape"],
    }[adversary["norm"]]
    moves = radius * np.vstack([*(s * np.atleast_2d(best) for s in (1, -1, 0.5, 0.0))])
    block, target, weight = MemoryRows(X, y, row_map).mapped()
    residuals = np.clip(target, -1, 1)[:, None] - (block @ theta)[:, None] - (moves @ c)[None, :]
    worst = weight @ loss.value_at(residuals).max(axis=1) / len(X)
    found = F.value(theta) - 0.5 * adversary["alpha"] * theta @ theta
    slack = width * np.log(2) + loss.lipschitz * radius * width * 8 * (d + 2)
    assert worst - slack <= found <= worst + slack
    assert F.gradient(theta) == pytest.approx(
        numeric_gradient(F, theta), abs=1e-5 * (1 + 1 / width)
    )
    eigenvalues = np.linalg.eigvalsh(F.hessian(theta))
    assert adversary["alpha"] - 1e-6 * (1 + abs(eigenvalues[-1])) <= eigenvalues[0]
    assert eigenvalues[-1] <= (certificate.bounds.smoothness + adversary["alpha"]) * (1 + 1e-9)


def test_hessians_are_differences_of_gradients():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20, 2))
    y = rng.uniform(-1, 1, 20)
    adversary = {"alpha": 0.1, "radius": 0.2, "norm": "linf", "width": 0.1, "shape": None}
    loss = convolve(Pinball(0.7), LogisticKernel(), 0.3)
    F = objective(X, y, RowMap.from_bounds(2, (-1, 1), 2.0), loss, adversary)
    theta = rng.normal(size=3)
    step = 1e-6
    rows = [
        (F.gradient(theta + step * e) - F.gradient(theta - step * e)) / (2 * step)
        for e in np.eye(3)
    ]
    assert F.hessian(theta) == pytest.approx(np.array(rows), abs=1e-6)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_opposite_targets_attain_the_bound(norm):
    n = 400
    alpha = 6.0
    adversary = {"alpha": alpha, "radius": 0.1, "norm": norm, "width": 1e-4, "shape": None}
    row_map, certificate = facts(Huber(0.05), n, 2, np.sqrt(2), adversary)
    X = np.ones((n, 2))
    y = np.full(n, 0.9)
    points = []
    for first in (1.0, -1.0):
        y[0] = first
        points.append(minimiser(X, y, row_map, certificate))
    ratio = np.linalg.norm(points[0] - points[1]) / certificate.bounds.minimiser_sensitivity()
    assert 0.98 <= ratio <= 1


@pytest.mark.parametrize(
    ("loss", "kind"),
    [(Huber(0.3), AdversarialResidualObjective), (Logistic(), AdversarialObjective)],
)
def test_the_hull_of_a_set_of_ones_own(loss, kind):
    """An ellipse by its support points: the hull lies inside, and a robust fit for it is
    released.
    """
    rng = np.random.default_rng(1)
    X = rng.uniform(-1, 1, (50, 2))
    y = np.sign(rng.normal(size=50))
    row_map = RowMap.from_bounds(2, (-1, 1), 2.0)
    common = {"alpha": 0.3, "radius": 0.2}
    shape = hull_of(lambda c: AXES**2 * c / np.linalg.norm(AXES * c), 2, 200)
    assert (np.linalg.norm(np.array(shape) / AXES, axis=1) <= 1 + 1e-12).all()
    bounds = RobustBounds(50, 2, loss, 2.0, row_map.max_norm, norm="hull", shape=shape, **common)
    F = kind(MemoryRows(X, y, row_map), loss, norm="hull", shape=bounds.shape, divisor=50, **common)
    certificate = OutputPerturbation().certify(bounds, GaussianDP(1.0))
    certificate.verify()
    assert OutputPerturbation().release(F, certificate).shape == (3,)
