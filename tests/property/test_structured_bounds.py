"""No record of admissible norm exceeds the declared constants in theta."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex.losses import Bowl, Huber, L1Norm, L1WithLink, Logistic, PiecewiseLinear
from dpconvex.objectives import StructuredObjective, StructuredRecords
from dpconvex.privacy import StructuredBounds
from dpconvex.smoothing import (
    ExponentialKernel,
    GaussianKernel,
    LaplacianKernel,
    LogisticKernel,
    convolve_vector,
)

FIXED = settings(derandomize=True, deadline=None, max_examples=30)
PIECES = PiecewiseLinear([[1.0, 0.0], [-0.5, 1.0], [0.3, -2.0], [0.0, 0.0]], [0.0, 0.1, -0.2, 0.3])
CASES = [
    (L1Norm(1), LogisticKernel()),
    (L1Norm(2), GaussianKernel(2)),
    (L1Norm(3), LaplacianKernel(3)),
    (L1Norm(2), ExponentialKernel(2)),
    (L1WithLink(2, Logistic()), GaussianKernel(2)),
    (L1WithLink(1, Huber(0.5)), GaussianKernel(1)),
    (PIECES, GaussianKernel(2)),
    (PiecewiseLinear([[1.0, 1.0], [-1.0, 0.5]]), LaplacianKernel(2)),
    (PiecewiseLinear(np.concatenate([np.eye(3), -np.eye(3)])), GaussianKernel(3)),
    (Bowl(2), GaussianKernel(2)),
    (PIECES, ExponentialKernel(2)),
    (Bowl(3), GaussianKernel(3)),
]
NAMES = [f"{type(loss).__name__}{loss.outputs}-{type(kernel).__name__}" for loss, kernel in CASES]


def one_record(rng, loss, bounds, d, spread):
    """The objective of one random record at its norm bound, with kinks near the origin."""
    A = rng.normal(size=(1, loss.outputs, d)) * 10 ** rng.uniform(-1, 2)
    if rng.uniform() < 0.5:  # rows along one direction: the longest gradients
        A = A[:, :1] * rng.choice([-1.0, 1.0], size=(1, loss.outputs, 1)) + 1e-3 * A
    Y = rng.normal(size=(1, loss.outputs)) * spread * 0.3
    level = np.abs(rng.normal(size=1)) * spread if loss.uses_level else None
    records = StructuredRecords(A, Y, bounds.operator_norm, bounds.link_norm, level)
    records.targets[:] = Y
    return StructuredObjective(records, loss, 0.0)


@pytest.mark.parametrize(("loss", "kernel"), CASES, ids=NAMES)
@FIXED
@given(seed=st.integers(0, 2**32 - 1))
def test_constants_in_theta(loss, kernel, seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    width = 10 ** rng.uniform(-1, 1)
    smooth = convolve_vector(loss, kernel, width)
    norm = 10 ** rng.uniform(-1, 1)
    link = 10 ** rng.uniform(-1, 1) if loss.link is not None else 0.0
    bounds = StructuredBounds(10, d, smooth, norm, link)
    F = one_record(rng, smooth, bounds, d, width)
    stack = []
    for _ in range(6):
        theta = rng.normal(size=d) * width / max(norm, link) * rng.choice([0.1, 1.0, 10.0])
        gradient = F.gradient(theta)
        assert np.linalg.norm(gradient) <= bounds.lipschitz * (1 + 1e-9)
        assert np.linalg.eigvalsh(F.hessian(theta)).max() <= bounds.smoothness * (1 + 1e-9)
        stack.append(gradient)
    # Gradients of one record stay in one subspace of the declared dimension.
    assert np.linalg.matrix_rank(np.array(stack), tol=1e-8 * bounds.lipschitz) <= bounds.rank


@pytest.mark.parametrize("neighbors", ["replace_one", "add_or_remove_one"])
@FIXED
@given(seed=st.integers(0, 2**32 - 1))
def test_sums_of_gradients_keep_to_their_sensitivity(neighbors, seed):
    rng = np.random.default_rng(seed)
    loss = [L1Norm(2), PIECES][seed % 2]
    norm = 10 ** rng.uniform(-1, 1)
    bounds = StructuredBounds(10, 3, loss, norm, neighbors=neighbors)
    A = rng.normal(size=(6, 2, 3))
    Y = rng.normal(size=(6, 2))
    other = A.copy()
    target = Y.copy()
    # Records that nobody expects, and the worst pair: opposite gradients at the norm bound.
    size = rng.choice([1e-3, 1.0, 1e3, 1e150])
    other[0] = [A[0] * -size, rng.normal(size=(2, 3)) * size, A[0]][seed % 3]
    target[0] = [-Y[0] * size, rng.choice([-1e300, 1e300], size=2), -Y[0]][seed % 3]
    if neighbors == "add_or_remove_one":
        other = other[1:]
        target = target[1:]
    theta = rng.normal(size=3) * rng.choice([0.0, 1.0, 1e3])
    sums = [
        StructuredObjective(StructuredRecords(*data, norm), loss, 0.0, divisor=10).gradient_sum(
            theta
        )
        for data in ((A, Y), (other, target))
    ]
    moved = np.linalg.norm(sums[0] - sums[1])
    assert moved <= bounds.gradient_sum_sensitivity() * (1 + 1e-9)


def test_sensitivity_is_attained():
    loss = L1Norm(2)
    bounds = StructuredBounds(10, 2, L1Norm(2), 3.0)
    sums = [
        StructuredObjective(
            StructuredRecords([np.eye(2) * 5], [[y, y]], 3.0), loss, 0.0
        ).gradient_sum([0.0, 0.0])
        for y in (1.0, -1.0)
    ]
    assert np.linalg.norm(sums[0] - sums[1]) == pytest.approx(bounds.gradient_sum_sensitivity())


def worst(loss, kernel, A, link=0.0, runs=4000, spread=1.0):
    """Largest ratios of gradient and curvature to their bounds that random thetas attain."""
    smooth = convolve_vector(loss, kernel, 1.0)
    A = np.asarray(A, dtype=float)[None]
    bounds = StructuredBounds(10, A.shape[2], smooth, 1.0, link)
    F = StructuredObjective(StructuredRecords(A, np.zeros(A.shape[:2]), 1.0, link), smooth, 0.0)
    rng = np.random.default_rng(0)
    slope = bend = 0.0
    for _ in range(runs // 10):
        theta = rng.normal(size=A.shape[2]) * spread * rng.choice([0.01, 1.0, 30.0])
        slope = max(slope, np.linalg.norm(F.gradient(theta)) / bounds.lipschitz)
        bend = max(bend, np.linalg.eigvalsh(F.hessian(theta)).max() / bounds.smoothness)
    return slope, bend


def test_constants_are_attained():
    # Orthogonal rows of norm 1: the l1 norm has gradients of length sqrt(m) and curvature 2 p / h.
    for kernel in (GaussianKernel(3), LaplacianKernel(3), ExponentialKernel(3)):
        slope, bend = worst(L1Norm(3), kernel, np.eye(3))
        assert slope > 0.999
        assert bend > 0.95
    slope, bend = worst(PiecewiseLinear([[1.0], [-1.0]]), GaussianKernel(1), [[1.0]])
    assert slope > 0.999
    assert bend > 0.999
    # The link's gradient adds to that of the norm: sqrt(m) U + D L_h, not the root of squares.
    slope, _ = worst(
        L1WithLink(1, Logistic()), GaussianKernel(1), [[1.0], [1.0]], link=1.0, spread=5
    )
    assert slope > 0.999
    assert math.hypot(1, 1) < 0.999 * 2


def test_ranks():
    assert StructuredBounds(10, 30, L1Norm(3), 1.0).rank == 3
    assert StructuredBounds(10, 2, L1Norm(3), 1.0).rank == 2
    assert StructuredBounds(10, 30, L1Norm(1), 1.0).rank == 1
    assert StructuredBounds(10, 30, L1WithLink(3, Logistic()), 1.0, 1.0).rank == 4


def test_refusals():
    with pytest.raises(TypeError, match="'loss'"):
        StructuredBounds(10, 3, Logistic(), 1.0)
    with pytest.raises(ValueError, match="'operator_norm'"):
        StructuredBounds(10, 3, L1Norm(3), 0.0)
    with pytest.raises(ValueError, match="'link_norm'"):
        StructuredBounds(10, 3, L1Norm(3), 1.0, 1.0)
    with pytest.raises(ValueError, match="'link_norm'"):
        StructuredBounds(10, 3, L1WithLink(3, Logistic()), 1.0)
    with pytest.raises(ValueError, match="'neighbors'"):
        StructuredBounds(10, 3, L1Norm(3), 1.0, neighbors="all")


@FIXED
@given(seed=st.integers(0, 2**32 - 1))
def test_a_shared_matrix_cancels(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    m = int(rng.integers(1, 4))
    matrix = rng.normal(size=(m, d)) * 10 ** rng.uniform(-1, 1)
    link = [Logistic(), Huber(0.5)][seed % 2]
    smooth = convolve_vector(L1WithLink(m, link), GaussianKernel(m), 10 ** rng.uniform(-1, 1))
    norm = 10 ** rng.uniform(-1, 1)
    operator = float(np.linalg.norm(matrix, 2)) * (1 + 1e-12)
    bounds = StructuredBounds(6, d, smooth, operator, norm, alpha=0.1, shared=matrix.tolist())
    rows = rng.normal(size=(6, 1, d)) * 3
    y = rng.normal(size=(6, 1)) * 3
    other = rows.copy()
    z = y.copy()
    other[0] = -rows[0] if seed % 3 else rng.normal(size=(1, d))
    z[0] = -z[0]
    sides = [
        StructuredObjective(StructuredRecords(A, Y, operator, norm, shared=matrix), smooth, 0.1)
        for A, Y in ((rows, y), (other, z))
    ]
    assert sides[0].public_facts["shared"] == bounds.shared
    for _ in range(4):
        theta = rng.normal(size=d) * 10 ** rng.uniform(-1, 1)
        first, second = (side.gradient_sum(theta) for side in sides)
        assert np.linalg.norm(first - second) <= bounds.gradient_sum_sensitivity() * (1 + 1e-9)
        bends = [6 * side.hessian(theta) for side in sides]
        difference = np.linalg.eigvalsh(bends[0] - bends[1])
        assert np.abs(difference).max() <= bounds.smoothness * (1 + 1e-9)
        assert (np.abs(difference) > 1e-8 * bounds.smoothness).sum() <= 2  # one record in, one out


def test_a_shared_matrix_is_that_of_every_record():
    rng = np.random.default_rng(3)
    matrix = rng.normal(size=(3, 4))
    rows = rng.normal(size=(50, 1, 4))
    y = rng.normal(size=(50, 1))
    smooth = convolve_vector(L1WithLink(3, Huber(0.5)), GaussianKernel(3), 0.7)
    operator = float(np.linalg.norm(matrix, 2)) * (1 + 1e-12)
    whole = np.concatenate([np.broadcast_to(matrix, (50, 3, 4)), rows], axis=1)
    targets = np.concatenate([np.zeros((50, 3)), y], axis=1)
    short, long = (
        StructuredObjective(StructuredRecords(A, Y, operator, 1.5, **more), smooth, 0.1, divisor=40)
        for A, Y, more in ((rows, y, {"shared": matrix}), (whole, targets, {}))
    )
    for _ in range(3):
        theta = rng.normal(size=4)
        offset = rng.normal(size=4) * 1e-3
        pairs = [
            (short.value(theta), long.value(theta)),
            (short.gradient(theta), long.gradient(theta)),
            (short.gradient_sum(theta), long.gradient_sum(theta)),
            (short.hessian(theta), long.hessian(theta)),
            (short.refined_gradient(theta, offset)[0], long.refined_gradient(theta, offset)[0]),
        ]
        for found, expected in pairs:
            np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_a_shared_matrix_is_refused_where_it_does_not_cancel():
    smooth = convolve_vector(L1WithLink(1, Logistic()), GaussianKernel(1), 1.0)
    for facts in (
        {"neighbors": "add_or_remove_one"},
        {"shared": [[1.0, 0.0], [0.0, 1.0]]},
        {"shared": [[3.0, 0.0]]},
    ):
        with pytest.raises(ValueError, match=r"shared|operator_norm"):
            StructuredBounds(6, 2, smooth, 1.0, 1.0, **{"shared": [[1.0, 0.0]], **facts})
