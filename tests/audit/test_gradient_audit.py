"""Audits of noisy gradient descent as it runs: the claim holds, half the noise and forgotten composition are caught.

Every audit is wrong about a correct claim with probability at most 1e-6. At mu = 1, and at (1, 0.1), a thousand runs
told half the noise from the whole for 60 of 60 seeds; 750 did for 58. There are 2000.
"""

import numpy as np
import pytest
from releases import releases_of, with_noise

from dpconvex.audit import audit
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Hinge, Logistic, Pinball
from dpconvex.mechanisms import NewtonSteps, NoisyGradientDescent
from dpconvex.objectives import EmpiricalObjective
from dpconvex.objectives.empirical import SeveralTargets
from dpconvex.privacy import ApproxDP, GaussianDP, LinearBounds, NoiseSource

MU, RUNS = 1.0, 2_000


def problem(
    loss, neighbors="replace_one", geometry="given", claim=None, steps=2, levels=(), targets=1
):
    """Certificate and two objectives: the last record at the influence bound, with opposite target or label."""
    row_map = RowMap.from_bounds(1, (-1.0, 1.0))
    bounds = LinearBounds(2, 1, loss, 1.0, 1.0, neighbors=neighbors)
    mechanism = NoisyGradientDescent(steps=steps, geometry=geometry)
    # A wide bandwidth keeps all steps equally long, so the result shows the sum of all releases.
    bandwidth = 1.0 if geometry == "given" else None
    certificate = mechanism.certify(
        bounds,
        claim or GaussianDP(MU),
        {"gradient": mechanism.settings(bandwidth, None, levels, targets)},
    )
    extreme = 1.0 if loss.kind == "margin" else 1e6
    data = [(np.ones((2, 1)), np.array([extreme, y])) for y in (extreme, -extreme)]
    if neighbors == "add_or_remove_one":
        data = [(np.ones((1, 1)), np.array([extreme])), data[0]]
    rows = [MemoryRows(X, y, row_map, threads=1) for X, y in data]
    objectives = [EmpiricalObjective(each, loss, 0.0, divisor=2) for each in rows]
    if targets > 1:
        objectives = [SeveralTargets([each] * targets, loss, 0.0, 2) for each in rows]
    return mechanism, certificate, objectives


def attack(mechanism, certificate, objectives, claim, runs=RUNS):
    first, second = (releases_of(mechanism, objective, certificate) for objective in objectives)
    return audit(first, second, claim, runs=runs, rng=0)


@pytest.mark.parametrize(
    ("loss", "neighbors"),
    [
        (Pinball(0.5), "replace_one"),
        (Pinball(0.5), "add_or_remove_one"),
        (Pinball(0.8), "replace_one"),
        (Logistic(), "replace_one"),
        (Hinge(), "replace_one"),
    ],
)
def test_the_claim_survives(loss, neighbors):
    mechanism, certificate, objectives = problem(loss, neighbors)
    result = attack(mechanism, certificate, objectives, GaussianDP(MU))
    assert result.passed
    assert result.epsilon_lower_bound > 0.1  # the attack is not blind


@pytest.mark.parametrize("neighbors", ["replace_one", "add_or_remove_one"])
def test_half_the_noise_is_caught(neighbors):
    mechanism, certificate, objectives = problem(Pinball(0.5), neighbors)
    weak = with_noise(certificate, 0.5)
    assert not attack(mechanism, weak, objectives, GaussianDP(MU)).passed


def test_half_the_noise_is_caught_at_epsilon_and_delta():
    claim = ApproxDP(1.0, 0.1)
    mechanism, certificate, objectives = problem(Pinball(0.5), claim=claim)
    assert attack(mechanism, certificate, objectives, claim).passed
    assert not attack(mechanism, with_noise(certificate, 0.5), objectives, claim).passed


def test_forgotten_composition_is_caught():
    """Six steps, each with the noise that a single one would need."""
    mechanism, certificate, objectives = problem(Pinball(0.5), steps=6)
    weak = with_noise(certificate, 6**-0.5)
    assert not attack(mechanism, weak, objectives, GaussianDP(MU)).passed


@pytest.mark.slow
@pytest.mark.parametrize("intervals", [False, True])
def test_all_phases_together_survive(intervals):
    """Private coordinates, rough fit and residual scale included, at a budget that affords them for two rows."""
    claim = GaussianDP(60.0)
    mechanism, certificate, objectives = problem(Pinball(0.5), geometry="private", claim=claim)
    if intervals:  # the same facts, by Newton steps
        mechanism = NewtonSteps()
        certificate = mechanism.certify(certificate.bounds, claim)
    assert {"moments", "residuals"} <= set(certificate.noise)
    assert attack(mechanism, certificate, objectives, claim, runs=500).passed


class Watched(NoiseSource):
    """Adds up what is released, in units of its noise, kind by kind."""

    def __init__(self, rng):
        super().__init__(rng)
        self.sums = {}

    def add_gaussian(self, value, std):
        released = super().add_gaussian(value, std)
        self.sums[std] = self.sums.get(std, 0.0) + np.ravel(released) / std
        return released


@pytest.mark.slow
@pytest.mark.parametrize("targets", [1, 3])
def test_several_levels_keep_the_claim_together(targets):
    """All that is released of three levels is watched, of one target or of three."""
    claim = GaussianDP(2.0)
    mechanism, certificate, objectives = problem(
        Pinball(0.9), geometry="private", claim=claim, levels=(0.1, 0.5, 0.9), targets=targets
    )

    def watched(objective, stated):
        def one(rng):
            noise = Watched(rng)
            mechanism.release(objective, stated, noise)
            # Counts and gradients: histograms and moments have many numbers that say nothing.
            return np.concatenate([found for found in noise.sums.values() if found.size <= 2])

        return lambda count, rng: np.array([one(rng) for _ in range(count)])

    result = audit(*(watched(each, certificate) for each in objectives), claim, runs=200, rng=0)
    assert result.passed
    assert result.epsilon_lower_bound > 0.1  # the attack is not blind
