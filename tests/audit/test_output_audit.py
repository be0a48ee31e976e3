"""Audits of output perturbation: ours survives, half of its noise does not.

Every audit is wrong about a correct claim with probability at most 1e-6.
"""

import math

import numpy as np
import pytest
from releases import releases_of
from scalar_mechanisms import GaussianRelease, LaplaceRelease

from dpconvex.audit import audit
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Huber
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import ApproxDP, GaussianDP, LinearBounds, PureDP

ALPHA = 0.5
LOSS = Huber(0.1)


def neighbours(gap=0.0):
    """Objectives of one record with the target at opposite extremes, their far points, and the
    bounds.

    On its linear piece the loss is all penalty, so a point ``sqrt(2 gap / alpha)`` further out has
    exactly this gap.
    """
    row_map = RowMap.from_bounds(1, (-1.0, 1.0))
    bounds = LinearBounds(1, 1, LOSS, 1.0, 1.0, alpha=ALPHA)
    certificate = OutputPerturbation().certify(bounds, GaussianDP(1.0))
    objectives = []
    points = []
    for target in (100.0, -100.0):
        rows = MemoryRows(np.ones((1, 1)), np.array([target]), row_map)
        objective = EmpiricalObjective(rows, LOSS, ALPHA)
        point = OutputPerturbation().minimise(objective, certificate)
        out = point / np.linalg.norm(point) * math.sqrt(2 * gap / ALPHA)
        assert objective.value(point + out) - objective.value(point) == pytest.approx(gap, abs=1e-9)
        objectives.append(objective)
        points.append(point + out)
    return objectives, points, bounds


def attack(points, std, claim, runs):
    distance = float(np.linalg.norm(points[0] - points[1]))
    first = GaussianRelease(0.0, std)
    second = GaussianRelease(distance, std)
    return audit(first.sample, second.sample, claim, runs=runs, rng=0)


@pytest.mark.parametrize("claim", [ApproxDP(1.0, 1e-5), ApproxDP(5.0, 1e-2), GaussianDP(1.0)])
def test_our_noise_survives_and_half_of_it_does_not(claim):
    _, points, bounds = neighbours()
    std = OutputPerturbation().certify(bounds, claim).noise["release"]["std"]
    assert attack(points, std, claim, 200_000).passed
    assert not attack(points, std / 2, claim, 200_000).passed


def test_our_laplace_noise_survives_and_half_of_it_does_not():
    """In one dimension: a projection of l2-Laplace noise in more hides the ratio."""
    bounds = LinearBounds(1, 1, LOSS, 1.0, 1.0, fit_intercept=False, alpha=ALPHA)
    claim = PureDP(1.0)
    scale = OutputPerturbation().certify(bounds, claim).noise["release"]["scale"]
    distance = 2 * bounds.lipschitz / ALPHA
    for factor, passes in ((1.0, True), (0.5, False)):
        laws = (LaplaceRelease(0.0, factor * scale), LaplaceRelease(distance, factor * scale))
        result = audit(laws[0].sample, laws[1].sample, claim, runs=100_000, rng=0)
        assert result.passed is passes


def test_whole_release_survives():
    """The mechanism as called by a fit, noise source included."""
    objectives, _, bounds = neighbours()
    claim = GaussianDP(0.5)
    mechanism = OutputPerturbation(solver="L-BFGS-B", radius=2.0)
    certificate = mechanism.certify(bounds, claim, seeded=True)
    first, second = (releases_of(mechanism, objective, certificate) for objective in objectives)
    assert audit(first, second, claim, runs=1000, rng=0).passed


def test_a_certified_gap_is_paid_for():
    """Ours, stopped at the same gap, at the farthest points the gap allows."""
    gap = 0.05
    claim = ApproxDP(1.0, 1e-5)
    _, points, bounds = neighbours(gap)
    std = OutputPerturbation(gap=gap).certify(bounds, claim).noise["release"]["std"]
    assert attack(points, std, claim, 200_000).passed
    unpaid = OutputPerturbation().certify(bounds, claim).noise["release"]["std"]
    assert not attack(points, unpaid, claim, 200_000).passed
    exact = np.linalg.norm(points[0] - points[1])
    assert exact == pytest.approx(bounds.minimiser_sensitivity(gap=gap), rel=1e-7)
