"""Numerical composition of sampled steps is an upper bound, and close to the truth."""

import itertools
import math

import numpy as np
import pytest
from certificate_judge import sampled_delta, step_profiles

from dpconvex.privacy import GaussianDP
from dpconvex.privacy.subsampling import (
    composed_subsampling_epsilon,
    subsampled_epsilon,
    subsampled_multiplier,
)

CASES = [
    ("replace_one", 1e-3, 10**6, 8.0, 1e-6, 1.0),
    ("replace_one", 0.01, 5000, 1.5, 1e-5, 0.5),
    ("replace_one", 0.1, 40, 3.0, 1e-5, 0.7),
    ("replace_one", 0.01, 300, 0.7, 1e-8, 0.5),
    ("replace_one", 0.1, 2, 1.0, 1e-6, 0.5),
    ("replace_one", 0.01, 1, 0.8, 1e-7, 1.0),
    ("replace_one", 0.05, 7, 1.5, 1e-6, 1.0),
    ("add_or_remove_one", 0.05, 50, 1.2, 1e-5, 1.0),
    ("add_or_remove_one", 0.01, 5000, 1.0, 1e-6, 1.0),
]


@pytest.mark.parametrize(("neighbors", "rate", "steps", "multiplier", "delta", "alone"), CASES)
def test_it_lies_just_above_a_contour_integral(neighbors, rate, steps, multiplier, delta, alone):
    """No grid, no transform, no tilt of masses: the integral shares the profile of a step alone
    with the library.
    """
    epsilon = composed_subsampling_epsilon(neighbors, rate, steps, 1 / multiplier, delta, alone)
    exact = sampled_delta(neighbors, rate, 1 / multiplier, steps, epsilon, alone)
    assert 0.95 * delta < exact <= delta
    # Sabotage: noise that is ten percent smaller than stated is seen.
    assert sampled_delta(neighbors, rate, 1.1 / multiplier, steps, epsilon, alone) > 1.2 * delta


@pytest.mark.parametrize(("steps", "multiplier"), [(1, 4.0), (9, 4.0), (400, 40.0)])
def test_full_batches_are_gaussian_releases(steps, multiplier):
    for neighbors in ("replace_one", "add_or_remove_one"):
        found = composed_subsampling_epsilon(neighbors, 1.0, steps, 1 / multiplier, 1e-5)
        exact = GaussianDP(math.sqrt(steps) / multiplier).epsilon(1e-5)
        assert exact <= found <= exact * 1.005


def mixtures(rate, *centres):
    """Densities ``(1 - q) N(0) + q N(c)`` on a grid of the plane, and the area of a cell."""
    grid = np.linspace(-8, 8, 241)
    x, y = np.meshgrid(grid, grid)
    laws = [
        np.exp(-((x - a) ** 2 + (y - b) ** 2) / 2) / (2 * np.pi) for a, b in ((0.0, 0.0), *centres)
    ]
    return [(1 - rate) * laws[0] + rate * law for law in laws[1:]], (grid[1] - grid[0]) ** 2


@pytest.mark.parametrize(("rate", "mu"), [(0.3, 1.0), (0.05, 2.0), (0.02, 3.0)])
def test_no_two_records_beat_the_profile_of_a_poisson_batch(rate, mu):
    """Records of length mu/2 around the others' sum; the profile of one tail alone would be
    beaten.
    """
    ((alpha, profile, _, _),) = step_profiles("replace_one", rate, mu, 0.5)
    angles = (0.0, math.pi / 3, 2 * math.pi / 3, math.pi)
    ends = [(r * math.cos(a), r * math.sin(a)) for r in (mu / 4, mu / 2) for a in angles]
    beaten = 0.0
    closest = 0.0
    for first, second in itertools.product(ends, ends):
        (p, q), cell = mixtures(rate, first, second)
        for s in (0.05, 0.5, 1.5, 3.0):
            s = np.float64(s)
            moved = float(np.maximum(p - alpha(s) * q, 0).sum()) * cell
            assert moved <= profile(s) * (1 + 1e-6) + 1e-9
            closest = max(closest, moved / profile(s))
            single = step_profiles("add_or_remove_one", rate, mu / 2)[0][1](s)
            beaten = max(beaten, moved / single)
    assert closest > 0.8
    assert beaten > 1.2


@pytest.mark.parametrize("epsilon", [0.2, 0.8])
def test_two_steps_by_hand(epsilon):
    """All outcomes of two Poisson steps on a line, records at both ends of their range."""
    rate = 0.2
    mu = 1.5
    x = np.linspace(-9, 9, 1201)
    p, q = (
        (1 - rate) * np.exp(-x * x / 2) + rate * np.exp(-((x - centre) ** 2) / 2)
        for centre in (mu / 2, -mu / 2)
    )
    p = p / p.sum()
    q = q / q.sum()
    moved = np.maximum(np.outer(p, p) - math.exp(epsilon) * np.outer(q, q), 0).sum()
    bound = composed_subsampling_epsilon("replace_one", rate, 2, mu, float(moved), 0.5)
    assert epsilon <= bound <= 1.75 * epsilon + 0.1


def test_less_noise_than_renyi_divergences_need():
    """Poisson batches by up to 1.5 times, batches of a fixed size by a few percent, at the same
    budget.
    """
    facts = (0.05, 100, 3.0, 1e-6)
    plain = subsampled_multiplier("fixed", "replace_one", *facts)
    poisson = subsampled_multiplier("poisson", "replace_one", *facts, 0.5)
    assert plain == subsampled_multiplier("poisson", "replace_one", *facts, 1.0)
    assert poisson < 0.85 * plain
    assert plain < 0.96 * 1.302  # by Renyi divergences alone
    assert subsampled_epsilon("poisson", "replace_one", 0.05, 100, poisson, 1e-6, 0.5) <= 3.0
    assert subsampled_epsilon("poisson", "replace_one", 0.05, 100, poisson, 1e-6, 1.0) > 3.0


def test_huge_numbers_of_steps_fall_back_on_renyi_divergences():
    assert composed_subsampling_epsilon("replace_one", 1e-9, 10**14, 0.5, 1e-6) == math.inf
    assert math.isfinite(subsampled_epsilon("fixed", "replace_one", 1e-9, 10**14, 8.0, 1e-6))
