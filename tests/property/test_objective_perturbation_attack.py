"""Brute-force attacks on objective perturbation with exact output laws.

In one dimension the perturbed minimiser has a known law: ``-J'(theta)`` is the noise b. So the
probability of any interval of theta is a difference of two normal cdfs, and

    sum over cells of (P(cell) - e^epsilon Q(cell))_+

is a rigorous LOWER bound on delta(epsilon), whatever the grid (a union of cells is an event). No
quadrature error can make an attack look stronger than it is; rounding contributes about 1e-12.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import expit, ndtr

from dpconvex.losses import Huber, Logistic, Pinball
from dpconvex.privacy import objective_perturbation_laplace_scale, objective_perturbation_scale
from dpconvex.privacy.objective_perturbation_calibration import (
    renyi_objective_curve,
    structured_objective_delta,
)
from dpconvex.smoothing import (
    EpanechnikovKernel,
    GaussianKernel,
    LaplacianKernel,
    LogisticKernel,
    UniformKernel,
    convolve,
)

ADD_REMOVE = "add_or_remove_one"
REPLACE = "replace_one"

# Cdf of a smoothing kernel and the largest value of its density, written out independently.
KERNELS = {
    "logistic": (expit, 0.25),
    "gaussian": (ndtr, 1 / math.sqrt(2 * math.pi)),
    "uniform": (lambda t: np.clip(0.5 * (t + 1), 0, 1), 0.5),
    "epanechnikov": (lambda t: 0.25 * (2 + 3 * (c := np.clip(t, -1, 1)) - c**3), 0.75),
}


@dataclass(frozen=True)
class Record:
    """One record: its slope in theta runs from x*low to x*high like a kernel's cdf in x*theta.

    Smoothed pinball: low = -quantile, high = 1 - quantile. Huber: -width, width, uniform kernel
    of bandwidth width. Logistic loss of label +1: -1, 0; of label -1: 0, 1.
    """

    x: float
    low: float
    high: float
    kink: float
    bandwidth: float
    kernel: str = "uniform"

    def slope(self, theta):
        cdf = KERNELS[self.kernel][0]
        margin = (self.x * theta - self.kink) / self.bandwidth
        return self.x * (self.low + (self.high - self.low) * cdf(margin))

    @property
    def lipschitz(self):
        return abs(self.x) * max(abs(self.low), abs(self.high))

    @property
    def curvature(self):
        return self.x**2 * (self.high - self.low) * KERNELS[self.kernel][1] / self.bandwidth


def cell_masses(edges, cdf):
    """Probabilities of the cells between increasing edges, both unbounded ones included."""
    edges = np.concatenate([[-np.inf], edges, [np.inf]])
    left = edges[:-1]
    right = edges[1:]
    # Differences in the nearer tail keep their digits; the law is symmetric.
    upper = np.append((left[:-1] + right[:-1]) > 0, True)
    return np.where(upper, cdf(-left) - cdf(-right), cdf(right) - cdf(left))


def laplace_cdf(t):
    return 0.5 * np.where(t < 0, np.exp(-np.abs(t)), 2 - np.exp(-np.abs(t)))


def output_laws(first, second, base, ridge, scale, cdf=ndtr, points=2001, reach=9.0):
    """Masses of the same cells of theta under two data sets, base plus first or second."""
    pull = sum(r.lipschitz for r in [*first, *second, *base])
    theta = np.linspace(-1, 1, points) * (reach * scale + pull) / ridge
    common = ridge * theta + sum((r.slope(theta) for r in base), np.zeros(points))
    laws = []
    for records in (first, second):
        slope = common + sum((r.slope(theta) for r in records), np.zeros(points))
        laws.append(cell_masses(slope / scale, cdf))
    return laws


def attack(epsilon, *problem, **options):
    """Largest delta(epsilon) that the cells prove, over both orders of the two data sets."""
    p, q = output_laws(*problem, **options)
    factor = math.exp(epsilon)
    return max(np.maximum(p - factor * q, 0).sum(), np.maximum(q - factor * p, 0).sum())


def random_record(rng, spread):
    """A smoothed pinball, Huber or logistic record with its kink within a few output spreads."""
    x = rng.choice([1.0, rng.uniform(0.2, 1.0)]) * rng.choice([-1.0, 1.0])
    # Far kinks make a constant slope, the strongest single push.
    kink = x * spread * rng.uniform(-5, 5) * rng.choice([1.0, 10.0])
    kind = rng.integers(3)
    if kind == 0:
        quantile = rng.choice([0.05, 0.3, 0.5, 0.9])
        kernel = rng.choice(list(KERNELS))
        return Record(x, -quantile, 1 - quantile, kink, spread * 10 ** rng.uniform(-1, 1), kernel)
    if kind == 1:
        return Record(x, -1.0, 1.0, kink, spread * 10 ** rng.uniform(-1, 1))
    low = float(rng.integers(2)) - 1.0
    return Record(x, low, low + 1.0, kink, spread * 10 ** rng.uniform(-1, 1), "logistic")


def random_problem(rng, neighbors):
    """Budget, neighbouring records, base data, ridge and the declared bounds of the family."""
    epsilon = 10 ** rng.uniform(-1, 0.7)
    delta = 10 ** rng.uniform(-8, -2)
    kappa = math.expm1(epsilon * rng.uniform(0.02, 0.9))
    spread = 10 ** rng.uniform(-1, 1)
    first = [random_record(rng, spread)]
    second = [random_record(rng, spread)] if neighbors == REPLACE else []
    base = [random_record(rng, spread) for _ in range(rng.integers(6))]
    lipschitz = max(r.lipschitz for r in first + second)
    ridge = max(r.curvature for r in first + second) / kappa
    return epsilon, delta, kappa, lipschitz, (first, second, base, ridge)


@pytest.mark.parametrize("neighbors", [ADD_REMOVE, REPLACE])
def test_no_attack_beats_the_certified_noise(neighbors):
    rng = np.random.default_rng(20)
    worst = 0.0
    for _ in range(400):
        epsilon, delta, kappa, lipschitz, problem = random_problem(rng, neighbors)
        std = objective_perturbation_scale(epsilon, delta, lipschitz, kappa, 1, neighbors)
        proved = attack(epsilon, *problem, std)
        assert proved <= delta * (1 + 1e-6) + 1e-11
        worst = max(worst, proved / delta)
    # The attacks are not toothless: some random problem comes within a factor of ten.
    assert worst > 0.1


CASES = [
    (0.2, 1e-5, 0.01),
    (1.0, 1e-5, 0.05),
    (1.0, 1e-2, 0.05),
    (1.0, 1e-5, 0.5),
    (3.0, 1e-5, 2.0),
]


def steepest_pairs(kappa, std, neighbors):
    """Records with L = 1 that climb from -1 to 1 as fast as kappa allows (ridge 1), any kinks.

    In one dimension base data can only slow the climb, so these need none. A kink out of reach
    makes the slope constant.
    """
    kinks = np.concatenate([[-1e6], np.linspace(-6, 6, 33) * std, [1e6]])
    records = [Record(1.0, -1.0, 1.0, kink, 1 / kappa) for kink in kinks]
    if neighbors == ADD_REMOVE:
        return [([r], []) for r in records]
    return [([r], [s]) for i, r in enumerate(records) for s in records[i + 1 :]]


def strongest(epsilon, kappa, std, neighbors):
    pairs = steepest_pairs(kappa, std, neighbors)
    return max(attack(epsilon, *pair, [], 1.0, std, points=601) for pair in pairs)


@pytest.mark.parametrize(
    ("neighbors", "tightness"),
    # Share of the certified noise that these attacks prove necessary, in the order of CASES.
    [(ADD_REMOVE, (0.94, 0.95, 0.89, 0.76, 0.80)), (REPLACE, (0.90, 0.91, 0.86, 0.73, 0.77))],
)
def test_worst_case_search_stays_below_and_comes_close(neighbors, tightness):
    for (epsilon, delta, kappa), expected in zip(CASES, tightness, strict=True):
        std = objective_perturbation_scale(epsilon, delta, 1.0, kappa, 1, neighbors)
        assert strongest(epsilon, kappa, std, neighbors) <= delta
        assert strongest(epsilon, kappa, expected * std, neighbors) > delta


def normal_mass(left, right):
    upper = left + right > 0
    return np.where(upper, ndtr(-left) - ndtr(-right), ndtr(right) - ndtr(left))


def optimal_attack(epsilon, ratio, kappa, levels=40):
    """Exact worst case over ALL one-dimensional problems with one record added or removed.

    In units of the noise, and with u the slope of the other records' objective as coordinate, the
    record's slope is any increasing function g(u) with values within +-ratio and rate at most
    kappa. Delta is a sum over cells of u of a convex function of the increment of g, so the worst
    g stands still or climbs at full rate: dynamic programming over (u, g). Every g on the lattice
    is attainable, so the result is a lower bound again.
    """
    levels = max(levels, math.ceil(2 * ratio / kappa / 0.02))
    width = 2 * ratio / levels / kappa
    g = np.linspace(-ratio, ratio, levels + 1)
    left = np.arange(-8.0, 8.0, width)
    factor = math.exp(epsilon)
    results = []
    for with_first in (True, False):

        def gain(u_left, u_right, v_left, v_right, with_first=with_first):
            without = normal_mass(u_left, u_right)
            record = normal_mass(v_left, v_right)
            likely, rare = (record, without) if with_first else (without, record)
            return np.maximum(likely - factor * rare, 0)

        value = gain(left[-1] + width, 40.0, left[-1] + width + g, 40.0)
        for u in left[::-1]:
            climb = gain(u, u + width, u + g[:-1], u + width + g[1:]) + value[1:]
            value = gain(u, u + width, u + g, u + width + g) + value
            value[:-1] = np.maximum(value[:-1], climb)
        results.append(float(np.max(value + gain(-40.0, left[0], -40.0, left[0] + g))))
    return max(results)


@pytest.mark.parametrize(
    ("case", "tightness"), list(zip(CASES, (0.95, 0.955, 0.895, 0.80, 0.84), strict=True))
)
def test_exact_worst_case_of_adding_or_removing(case, tightness):
    epsilon, delta, kappa = case
    std = objective_perturbation_scale(epsilon, delta, 1.0, kappa, 1, ADD_REMOVE)
    assert optimal_attack(epsilon, 1 / std, kappa) <= delta
    assert optimal_attack(epsilon, 1 / (tightness * std), kappa) > delta


@pytest.mark.parametrize("neighbors", [ADD_REMOVE, REPLACE])
def test_half_the_noise_is_broken(neighbors):
    for epsilon, delta, kappa in CASES:
        std = objective_perturbation_scale(epsilon, delta, 1.0, kappa, 1, neighbors) / 2
        assert strongest(epsilon, kappa, std, neighbors) > 2 * delta


def test_published_constant_fails_under_replace_one_only():
    # std^2 = L^2 (8 log(2/delta) + 4 epsilon) / epsilon^2 with kappa = epsilon / 2.
    epsilon = 0.2
    delta = 1e-8
    std = math.sqrt(8 * math.log(2 / delta) + 4 * epsilon) / epsilon
    width = 2 / epsilon
    constant = Record(1.0, -1.0, 1.0, -1e6, width)
    ramp = Record(1.0, -1.0, 1.0, 3.914 * std, width)
    assert attack(epsilon, [constant], [ramp], [], 1.0, std, points=16001) > 1.4e-7
    assert std < objective_perturbation_scale(epsilon, delta, 1.0, epsilon / 2)
    # With one record added or removed the same constant is loose.
    assert std > objective_perturbation_scale(epsilon, delta, 1.0, epsilon / 2, 1, ADD_REMOVE)
    assert (
        max(attack(epsilon, *p, [], 1.0, std) for p in steepest_pairs(0.1, std, ADD_REMOVE)) < delta
    )


@pytest.mark.parametrize("neighbors", [ADD_REMOVE, REPLACE])
def test_pure_epsilon_with_laplace_noise(neighbors):
    rng = np.random.default_rng(21)

    def proved_epsilon(*problem):
        p, q = output_laws(*problem, cdf=laplace_cdf, reach=25.0)
        seen = (p > 1e-9) & (q > 1e-9)  # below that rounding of the cdf would count
        return float(np.max(np.abs(np.log(p[seen] / q[seen]))))

    worst = 0.0
    for _ in range(300):
        epsilon, _, kappa, lipschitz, problem = random_problem(rng, neighbors)
        scale = objective_perturbation_laplace_scale(epsilon, lipschitz, kappa, neighbors)
        assert proved_epsilon(*problem, scale) <= epsilon + 1e-5
        worst = max(worst, proved_epsilon(*problem, scale / 2) / epsilon)
    assert worst > 1.0  # half the noise is broken


@pytest.mark.parametrize("neighbors", [ADD_REMOVE, REPLACE])
def test_renyi_bound_of_rank_one(neighbors):
    # Merging outcomes into cells can only lower a Renyi divergence, so the cells prove a bound.
    rng = np.random.default_rng(22)
    orders = np.array([1.5, 2.0, 4.0, 16.0])
    tightest = 0.0
    for _ in range(150):
        epsilon, _, kappa, lipschitz, problem = random_problem(rng, neighbors)
        std = lipschitz * 10 ** rng.uniform(0, 1)
        laws = output_laws(*problem, std)
        directions = ("with", "without") if neighbors == ADD_REMOVE else ("replace", "replace")
        for (p, q), direction in zip((laws, laws[::-1]), directions, strict=True):
            keep = (p > 1e-14) & (q > 1e-14)
            bound = renyi_objective_curve(orders, lipschitz / std, kappa, 1, direction)
            moments = np.array([(p[keep] ** o * q[keep] ** (1 - o)).sum() for o in orders])
            divergence = np.log(moments) / (orders - 1)
            assert np.all(divergence <= bound * (1 + 1e-9) + 1e-9)
            tightest = max(tightest, float(np.max(divergence / bound)))
        proved = attack(epsilon, *problem, std)
        assert (
            proved
            <= structured_objective_delta(epsilon, lipschitz / std, kappa, 1, neighbors) + 1e-11
        )
    assert tightest > 0.3


class LossRecord:
    """A record of one of the package's own losses, with the constants the package declares."""

    def __init__(self, loss, x, y):
        self.loss = loss
        self.x = x
        self.y = y
        self.lipschitz = abs(x) * loss.lipschitz
        self.curvature = x**2 * loss.smoothness

    def slope(self, theta):
        return self.x * self.loss.gradient(self.y, self.x * theta)


@pytest.mark.parametrize("neighbors", [ADD_REMOVE, REPLACE])
@pytest.mark.parametrize(
    "loss",
    [
        convolve(Pinball(0.3), LogisticKernel(), 0.7),
        convolve(Pinball(0.9), GaussianKernel(), 0.7),
        convolve(Pinball(0.5), UniformKernel(), 0.7),
        convolve(Pinball(0.5), EpanechnikovKernel(), 0.7),
        convolve(Pinball(0.5), LaplacianKernel(), 0.7),
        Logistic(),
        Huber(1.5),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_declared_constants_of_the_losses_suffice(loss, neighbors):
    rng = np.random.default_rng(23)
    for _ in range(12):
        epsilon = 10 ** rng.uniform(-1, 0.5)
        kappa = math.expm1(epsilon * rng.uniform(0.02, 0.9))
        ridge = loss.smoothness / kappa
        std = objective_perturbation_scale(epsilon, 1e-5, loss.lipschitz, kappa, 1, neighbors)

        def record(std=std, ridge=ridge):
            if loss.kind == "margin":
                return LossRecord(loss, rng.choice([-1.0, 1.0]), rng.choice([-1.0, 1.0]))
            return LossRecord(loss, rng.choice([-1.0, 1.0]), rng.uniform(-5, 5) * std / ridge)

        base = [record() for _ in range(rng.integers(4))]
        second = [record()] if neighbors == REPLACE else []
        assert attack(epsilon, [record()], second, base, ridge, std, points=1001) <= 1e-5


def plane_attack(epsilon, first, second, ridge, std, points=301):
    """Delta of two data sets in the plane, one record or a sum of pieces each, by a fine sum.

    The density of theta is that of the noise at J'(theta) times det J''(theta); the Riemann sum
    of so smooth a function is accurate to about 1 %.
    """
    pull = max(sum(np.linalg.norm(u) * abs(s) for u, s, *_ in r) for r in (first, second))
    axis = np.linspace(-1, 1, points) * (7.0 * std + pull) / ridge
    theta = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1)
    laws = []
    for pieces in (first, second):
        slope = ridge * theta
        hessian = np.broadcast_to(ridge * np.eye(2), (points, points, 2, 2)).copy()
        for direction, size, kink, rate in pieces:
            # Slope tanh-like from -size to size along the direction, curvature at most rate.
            position = rate * (theta @ direction - kink) / size
            slope = slope + (size * np.tanh(position))[..., None] * direction
            curve = rate / np.cosh(np.clip(position, -300, 300)) ** 2
            hessian = hessian + curve[..., None, None] * np.outer(direction, direction)
        log_law = -0.5 * (slope**2).sum(axis=-1) / std**2 - math.log(2 * math.pi * std**2)
        laws.append(np.exp(log_law) * np.linalg.det(hessian) * (axis[1] - axis[0]) ** 2)
    p, q = laws
    assert abs(p.sum() - 1) < 1e-3
    assert abs(q.sum() - 1) < 1e-3
    factor = math.exp(epsilon)
    return max(np.maximum(p - factor * q, 0).sum(), np.maximum(q - factor * p, 0).sum())


def unit_vector(rng):
    angle = rng.uniform(0, 2 * math.pi)
    return np.array([math.cos(angle), math.sin(angle)])


def test_replacing_a_row_by_another_direction_in_the_plane():
    # The one-dimensional reduction fails here: the two gradients span a plane.
    rng = np.random.default_rng(24)
    worst = 0.0
    for index in range(18):
        epsilon, delta = (1.0, 1e-3) if index % 2 else (0.3, 1e-4)
        kappa = math.expm1(epsilon * rng.choice([0.05, 0.3, 0.7]))
        std = objective_perturbation_scale(epsilon, delta, 1.0, kappa)
        axis = unit_vector(rng)
        other = unit_vector(rng)
        # Every third pair nearly parallel, with kinks so far apart that the slopes oppose.
        kinks = rng.uniform(-3, 3, size=2) * std
        if index % 3 == 0:
            other = axis + 0.2 * other
            kinks = np.array([-1e6, rng.uniform(2, 40) * std])
            other /= np.linalg.norm(other)
        first = [(axis, 1.0, kinks[0], kappa)]
        second = [(other, 1.0, kinks[1], kappa)]
        proved = plane_attack(epsilon, first, second, 1.0, std)
        assert proved <= delta
        worst = max(worst, plane_attack(epsilon, first, second, 1.0, std / 2) / delta)
    assert worst > 1.0


@pytest.mark.parametrize("neighbors", [ADD_REMOVE, REPLACE])
def test_records_of_rank_two_in_the_plane(neighbors):
    # A record that is a sum of two orthogonal pieces: gradient norm sqrt(2), rank 2.
    rng = np.random.default_rng(25)
    worst = 0.0

    def record(kappa, std):
        axis = unit_vector(rng)
        kinks = rng.uniform(-3, 3, size=2) * std
        turned = np.array([-axis[1], axis[0]])
        return [(axis, 1.0, kinks[0], kappa), (turned, 1.0, kinks[1], kappa)]

    for index in range(12):
        epsilon, delta = (1.0, 1e-3) if index % 2 else (0.3, 1e-4)
        kappa = math.expm1(epsilon * rng.choice([0.02, 0.1, 0.3]))
        std = objective_perturbation_scale(epsilon, delta, math.sqrt(2), kappa, 2, neighbors)
        first = record(kappa, std)
        second = record(kappa, std) if neighbors == REPLACE else []
        assert plane_attack(epsilon, first, second, 1.0, std) <= delta
        worst = max(worst, plane_attack(epsilon, first, second, 1.0, std / 2) / delta)
    assert worst > 1.0
