"""An objective of one's own, which is no mean: solved, released, and no pair of data sets beats
its sensitivity.
"""

import numpy as np
import pytest

from dpconvex.mechanisms import ObjectivePerturbation, OutputPerturbation
from dpconvex.objectives import OwnObjective
from dpconvex.privacy import ApproxDP, DeclaredBounds, PureDP

WIDTH = 0.3
ALPHA = 0.5


def largest_residual(X, y):
    """The smoothed largest absolute residual; rows are not longer than 1, so slopes are not
    either.
    """
    rows = np.concatenate([-X, X])

    def evaluate(theta):
        residuals = np.concatenate([y, -y]) + rows @ theta
        weights = np.exp((residuals - residuals.max()) / WIDTH)
        value = residuals.max() + WIDTH * np.log(weights.mean())
        return value, rows.T @ (weights / weights.sum())

    return OwnObjective(evaluate, X.shape[1], ALPHA, slope=1.0, curvature=1 / WIDTH, n_rows=len(X))


def data(seed, n=8, d=2):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None], rng.normal(size=n) * 3


BOUNDS = DeclaredBounds(8, 2, slope=1.0, curvature=1 / WIDTH, alpha=ALPHA)


def test_no_data_set_moves_the_minimiser_further():
    certificate = OutputPerturbation().certify(BOUNDS, PureDP(1.0))
    certificate.verify()
    points = [
        OutputPerturbation().minimise(largest_residual(*data(seed)), certificate)
        for seed in range(30)
    ]
    apart = max(np.linalg.norm(first - second) for first in points for second in points)
    claimed = BOUNDS.minimiser_sensitivity(certificate.solver_tolerance)
    assert apart <= claimed
    # Opposite data attain it: both minimisers sit at slope / alpha.
    far = [np.array([[1.0, 0.0]] * 8), np.array([50.0] * 8)]
    ends = [
        OutputPerturbation().minimise(largest_residual(far[0], sign * far[1]), certificate)
        for sign in (1, -1)
    ]
    assert np.linalg.norm(ends[0] - ends[1]) == pytest.approx(claimed, rel=1e-6)


def test_hessians_of_differences_serve():
    F = largest_residual(*data(1))
    theta = np.array([0.3, -0.2])
    step = 1e-5
    numeric = [
        (F.gradient(theta + step * e) - F.gradient(theta - step * e)) / (2 * step)
        for e in np.eye(2)
    ]
    np.testing.assert_allclose(F.hessian(theta), numeric, atol=1e-5)
    assert np.linalg.eigvalsh(F.hessian(theta)).max() <= F.smoothness * (1 + 1e-6)


def test_what_whole_objectives_allow_less():
    tight = DeclaredBounds(8, 2, slope=1.0, curvature=1.0, whole_slope=1.2, alpha=ALPHA)
    assert tight.minimiser_sensitivity() == pytest.approx(1.2 / ALPHA)


def test_constants_are_compared_and_other_mechanisms_refused():
    certificate = OutputPerturbation().certify(BOUNDS, PureDP(1.0))
    X, y = data(0)
    wrong = largest_residual(X, y)
    wrong.slope = 2.0
    with pytest.raises(ValueError, match="slope"):
        OutputPerturbation().release(wrong, certificate)
    with pytest.raises(ValueError, match="mean over records"):
        ObjectivePerturbation().certify(BOUNDS, ApproxDP(1.0, 1e-6))
