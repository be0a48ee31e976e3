"""Numerical attacks on objective perturbation of structured losses: exact output densities on a
grid.

The density of the minimiser at theta is that of the noise at ``-J'(theta)`` times
``det J''(theta)``; sums over a fine grid give delta to about 1 %. No randomness: a failure is a
failure.
"""

import math

import numpy as np
import pytest

from dpconvex.losses import Bowl, Huber, L1Norm, L1WithLink, PiecewiseLinear
from dpconvex.privacy import StructuredBounds, objective_perturbation_scale
from dpconvex.privacy.linear_terms import linear_term_scale
from dpconvex.smoothing import GaussianKernel, convolve_vector

REPLACE = "replace_one"
ADD_REMOVE = "add_or_remove_one"


class Record:
    """One record (A, Y, level) of a smoothed loss on a grid of thetas."""

    def __init__(self, loss, A, Y, level=None):
        self.loss = loss
        self.A = np.asarray(A)
        self.Y = np.asarray(Y)
        self.level = level

    def parts(self, theta):
        u = self.Y - theta @ self.A.T
        level = None if self.level is None else np.full(len(u), self.level)
        slopes = self.loss.gradient(u, level)
        bends = self.loss.hessian(u, level)
        return -slopes @ self.A, self.A.T @ bends @ self.A


def attack(epsilon, first, second, ridge, std, points):
    """Largest delta(epsilon) over both orders of two data sets, each a list of records (d = 1, 2
    or 3).
    """
    d = first[0].A.shape[1]
    pull = max(
        sum(r.loss.lipschitz * np.linalg.norm(r.A, 2) for r in side) for side in (first, second)
    )
    axis = np.linspace(-1, 1, points) * (6.5 * std + pull) / ridge
    theta = np.stack(np.meshgrid(*[axis] * d, indexing="ij"), axis=-1).reshape(-1, d)
    laws = []
    for records in (first, second):
        slope = ridge * theta
        hessian = np.broadcast_to(ridge * np.eye(d), (len(theta), d, d))
        for record in records:
            gradient, bend = record.parts(theta)
            slope = slope + gradient
            hessian = hessian + bend
        log_law = -0.5 * (slope**2).sum(axis=1) / std**2 - d / 2 * math.log(2 * math.pi * std**2)
        law = np.exp(log_law) * np.linalg.det(hessian) * (axis[1] - axis[0]) ** d
        assert law.sum() == pytest.approx(1, abs=2e-3)
        laws.append(law)
    p, q = laws
    factor = math.exp(epsilon)
    return max(np.maximum(p - factor * q, 0).sum(), np.maximum(q - factor * p, 0).sum())


def direction(rng, m, d):
    """A matrix of spectral norm 1, often with orthogonal rows, which make the longest gradients."""
    A = rng.normal(size=(m, d))
    if rng.uniform() < 0.7 and m <= d:
        A = np.linalg.qr(A.T)[0].T
    return A / np.linalg.norm(A, 2)


def random_pair(rng, loss, neighbors, std, ridge):
    """Neighbouring lists of records; kinks within a few output spreads, or far away on one side."""
    m = loss.outputs
    d = min(m, 3)

    def record(A, far):
        Y = rng.uniform(-3, 3, size=m) * std / ridge
        if far:
            Y = np.where(rng.uniform(size=m) < 0.5, 1.0, -1.0) * 40 * std / ridge
        level = float(rng.uniform(0, 2) * std / ridge) if loss.uses_level else None
        return Record(loss, A, Y, level)

    A = direction(rng, m, d)
    first = [record(A, rng.uniform() < 0.3)]
    if neighbors == ADD_REMOVE:
        return first, []
    other = A if rng.uniform() < 0.6 else direction(rng, m, d)
    return first, [record(other, rng.uniform() < 0.5)]


def certified(loss, kappa, epsilon, delta, neighbors):
    """Ridge and noise that a certificate would have at this curvature ratio."""
    ridge = loss.smoothness / kappa
    bounds = StructuredBounds(1, min(loss.outputs, 3), loss, 1.0, alpha=ridge, neighbors=neighbors)
    assert bounds.curvature_ratio == pytest.approx(kappa)
    std = objective_perturbation_scale(
        epsilon, delta, bounds.lipschitz, kappa, rank=bounds.rank, neighbors=neighbors
    )
    return ridge, std


LOSSES = {
    "l1, m=1": (L1Norm(1), 4001, 12),
    "l1, m=2": (L1Norm(2), 121, 8),
    "l1, m=3": (L1Norm(3), 41, 3),
    "largest, m=2": (PiecewiseLinear([[1.0, 0], [-1.0, 0], [0, 1.0], [0, -1.0]]), 71, 4),
    "two pieces, m=2": (PiecewiseLinear([[1.0, 0.5], [-0.5, 1.0]]), 121, 6),
    "bowl, m=2": (Bowl(2), 71, 4),
    "fan, m=2": (PiecewiseLinear([[1.0, 0.0], [-0.4, 0.9], [-0.6, -0.7], [0.1, 0.1]]), 61, 4),
}


@pytest.mark.parametrize("neighbors", [ADD_REMOVE, REPLACE])
@pytest.mark.parametrize("name", LOSSES)
def test_no_attack_beats_the_certificate(name, neighbors):
    kinked, points, runs = LOSSES[name]
    rng = np.random.default_rng(len(name))
    loss = convolve_vector(kinked, GaussianKernel(kinked.outputs), 1.0)
    worst = 0.0
    for index in range(runs):
        epsilon, delta = (1.0, 1e-3) if index % 2 else (0.4, 1e-2)
        kappa = math.expm1(epsilon * rng.choice([0.02, 0.06, 0.15]))
        ridge, std = certified(loss, kappa, epsilon, delta, neighbors)
        first, second = random_pair(rng, loss, neighbors, std, ridge)
        assert attack(epsilon, first, second, ridge, std, points) <= delta
        worst = max(worst, attack(epsilon, first, second, ridge, std / 4, points) / delta)
    assert worst > 1  # a quarter of the noise is broken: the attacks have teeth


class Common:
    """A shared penalty ``count * ||matrix theta||_1``, smoothed: the same for both sides."""

    def __init__(self, matrix, width, count):
        self.A = np.asarray(matrix)
        self.count = count
        self.loss = convolve_vector(L1Norm(len(self.A)), GaussianKernel(len(self.A)), width)

    def parts(self, theta):
        slopes = self.loss.gradient(-theta @ self.A.T)
        bends = self.loss.hessian(-theta @ self.A.T)
        return -self.count * slopes @ self.A, self.count * self.A.T @ bends @ self.A


def shared_attack(rng, epsilon, delta, factor, strength=1.0):
    """Delta of a replaced record of a link beside a strong shared penalty, with a factor on the
    certified noise.
    """
    link = Huber(1.0)
    d = 2
    matrix = rng.normal(size=(3, d))
    norm = float(np.linalg.norm(matrix, 2)) * (1 + 1e-12)
    kappa = math.expm1(epsilon * rng.choice([0.05, 0.2]))
    bounds = StructuredBounds(
        1,
        d,
        convolve_vector(L1WithLink(3, link), GaussianKernel(3), 0.1),
        norm,
        1.0,
        alpha=1.0 / kappa,
        shared=matrix.tolist(),
    )
    assert bounds.curvature_ratio == pytest.approx(kappa)
    std = factor * linear_term_scale(bounds, epsilon, delta)
    ridge = bounds.alpha
    spread = std / ridge
    single = convolve_vector(
        PiecewiseLinear([[1.0], [-1.0]]), GaussianKernel(1), 0.8
    )  # slope 1, curvature below 1
    assert single.smoothness <= link.smoothness
    z = rng.normal(size=d)
    z /= np.linalg.norm(z)
    first = Record(single, [z], [rng.choice([0.0, 40 * spread])])
    second = Record(single, [z], [rng.choice([0.5 * spread, -40 * spread])])
    # The penalty's own kinks must be wider than the grid.
    penalty = Common(matrix, 2.0 * spread, strength * std / norm)
    return attack(epsilon, [first, penalty], [second, penalty], ridge, std, 141)


def test_a_shared_penalty_costs_no_noise():
    rng = np.random.default_rng(5)
    worst = 0.0
    for index in range(8):
        epsilon, delta = (1.0, 1e-3) if index % 2 else (0.4, 1e-2)
        state = rng.bit_generator.state
        assert shared_attack(rng, epsilon, delta, 1.0) <= delta
        rng.bit_generator.state = state
        worst = max(worst, shared_attack(rng, epsilon, delta, 0.25) / delta)
    assert worst > 1


def relu_pair(size, kinks, width):
    """A hinge of a row of this norm, and its mirror image; far kinks make constant gradients."""
    loss = convolve_vector(PiecewiseLinear([[1.0], [0.0]]), GaussianKernel(1), width)
    return [Record(loss, [[size]], [kinks[0]])], [Record(loss, [[-size]], [kinks[1]])]


def printed_constants(size, epsilon, delta):
    """Noise and bandwidth as printed for hinges of rows of norm ``size``, for a ridge of 1 in sum
    form.

    ``(x)^+ = |x|/2 + x/2``, so A = z/2 and h(x) = x/2: ``C^2 = ||A||^2 + (D L_h)^2 = size^2 / 2``,
    although gradients are as long as ``size``;
    ``std^2 = C^2 (8 log(1/delta) + 8 epsilon) / epsilon^2``;
    ``lambda = beta (m + 1) / (n epsilon)`` with ``beta = 1 / bandwidth``, in which ``||A||^2`` is
    missing. The ridge is ``2 n lambda``, m = 1.
    """
    std = size * math.sqrt(0.5 * (8 * math.log(1 / delta) + 8 * epsilon)) / epsilon
    bandwidth = 4 / epsilon
    return std, 2 * bandwidth  # of A theta, hence twice that of z theta


@pytest.mark.parametrize(("size", "excess"), [(1.0, 2.0), (4.0, 20.0)])
def test_published_constants_fail_under_replace_one(size, excess):
    epsilon = 1.0
    delta = 1e-5
    std, width = printed_constants(size, epsilon, delta)
    pairs = [(1e7, 6.0), (-1.0, 4.0), (3.0, -2.0), (2.0, -2.0), (0.0, 1.0)]
    true = [
        attack(epsilon, *relu_pair(size, np.array(kinks) * size * std, width), 1.0, std, 8001)
        for kinks in pairs
    ]
    assert max(true) > excess * delta
    # The certificate asks for more noise, or for a wider kernel, and then the attacks stay below
    # delta.
    if size > 1:
        width *= 16
    loss = relu_pair(size, (0.0, 0.0), width)[0][0].loss
    bounds = StructuredBounds(1, 1, loss, size, alpha=1.0)
    safe = objective_perturbation_scale(epsilon, delta, bounds.lipschitz, bounds.curvature_ratio)
    assert safe > std
    assert all(
        attack(epsilon, *relu_pair(size, np.array(kinks) * size * safe, width), 1.0, safe, 8001)
        <= delta
        for kinks in pairs
    )
