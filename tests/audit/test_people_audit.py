"""Attacks on a whole person: the claim survives them, and half the noise or one forgotten row does
not.

Every audit is wrong about a correct claim with probability at most 1e-6.
"""

from dataclasses import replace

import numpy as np
import pytest
from releases import phase_claim

from dpconvex import DPQuantileRegressor
from dpconvex.audit import NeighborPair, audit, audit_estimator
from dpconvex.core.person_identifiers import person_tags
from dpconvex.core.private_rows import PrivateRows
from dpconvex.core.queries import QuerySlope
from dpconvex.core.row_coordinates import Coordinates
from dpconvex.core.row_weights import RowWeights, equal_person_weights, round_weights_to_grid
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Hinge, Logistic, Pinball
from dpconvex.mechanisms import (
    NoisyGradientDescent,
    NoisySGD,
    ObjectivePerturbation,
    OutputPerturbation,
    PhasedERM,
)
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import ApproxDP, GaussianDP, LinearBounds, NoiseSource
from dpconvex.smoothing import LogisticKernel, convolve

MU = 1.0
RUNS = 4_000
ROW_MAP = RowMap.from_bounds(1, (-1.0, 1.0))


def objective(people, loss, alpha=0.0, forgotten=False):
    """Return the objective of people, each given by its number of rows and the target of all of
    them.
    """
    names = np.repeat(np.arange(len(people)), [rows for rows, _ in people])
    y = np.repeat([target for _, target in people], [rows for rows, _ in people])
    tags = person_tags(names)
    count, shares = equal_person_weights(tags)
    shares = round_weights_to_grid(shares, count)
    if forgotten:
        shares[0] = 1.0
    rows = MemoryRows(
        np.ones((y.size, 1)), y, ROW_MAP, threads=1, row_weights=RowWeights(shares, count, tags)
    )
    return EmpiricalObjective(rows, loss, alpha, divisor=2)


def attack(mechanism, certificate, pair, claim, runs=RUNS):
    def sampler(problem):
        def sample(count, rng):
            noise = NoiseSource(rng)
            return np.array([mechanism.release(problem, certificate, noise) for _ in range(count)])

        return sample

    return audit(sampler(pair[0]), sampler(pair[1]), claim, runs=runs, rng=0)


def bounds_of(loss, alpha=0.0):
    return LinearBounds(2, 1, loss, 1.0, 1.0, alpha=alpha, people=True)


class Silence(NoiseSource):
    """Adds no noise."""

    def add(self, value, term):
        return np.array(value, dtype=float)


def attack_gradients(loss, factor=1.0, forgotten=False):
    """One row against fifty at the other end, in a fit's gradients, in coordinates in which
    every row is long.
    """
    certificate = NoisyGradientDescent(steps=2).certify(bounds_of(loss), GaussianDP(4.0))
    far = 1.0 if loss.kind == "margin" else 1e6
    pair = [objective([(50, way * far), (3, far)], loss, 0.0, forgotten) for way in (-1.0, 1.0)]
    if not forgotten:
        pair[1] = objective([(1, far), (3, far)], loss)
    term = certificate.noise["gradients"]
    slope = QuerySlope(loss, weighting="clip" if loss.kind == "margin" else "weight")
    asked = "gradients", np.zeros(2), slope, Coordinates(np.diag([1.0, 50.0]), 1)

    def sampler(problem):
        exact = PrivateRows([problem.rows], certificate, Silence(0)).slope_sum(*asked)

        def sample(count, rng):  # the sum of both releases of one run
            values = np.tile(exact, 2 * count)
            noisy = NoiseSource(rng).add_gaussian(values, factor * term.scale)
            return noisy.reshape(count, 2, -1).sum(axis=1)

        return sample

    assert term.releases == 2
    claim = phase_claim(certificate, "gradients")
    return audit(*map(sampler, pair), claim, runs=RUNS, rng=0)


def weaker(certificate, factor=0.5):
    noise = {
        name: replace(term, scale=factor * term.scale) for name, term in certificate.noise.items()
    }
    return replace(certificate, noise=noise)


@pytest.mark.parametrize("loss", [Pinball(0.5), Pinball(0.8), Logistic(), Hinge()], ids=repr)
def test_a_descent_keeps_its_promise_to_people(loss):
    result = attack_gradients(loss)
    assert result.passed
    assert result.epsilon_lower_bound > 0.1  # the attack is not blind


def test_half_the_noise_of_a_descent_is_caught():
    assert not attack_gradients(Pinball(0.5), 0.5).passed


def test_one_forgotten_row_is_caught():
    """It counts as a whole person beside the 49 others that share one weight."""
    assert not attack_gradients(Pinball(0.5), forgotten=True).passed


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 0.5])
def test_output_perturbation(factor):
    alpha = 1.0
    loss = Pinball(0.5)
    mechanism = OutputPerturbation()
    claim = GaussianDP(MU)
    certificate = mechanism.certify(bounds_of(loss, alpha), claim)
    pair = [objective([(rows, way), (3, 1e6)], loss, alpha) for rows, way in ((50, -1e6), (1, 1e6))]
    result = attack(mechanism, weaker(certificate, factor), pair, claim)
    assert result.passed == (factor == 1.0)


@pytest.mark.parametrize("factor", [1.0, 0.25])
def test_objective_perturbation(factor):
    """The trace form pays more than is needed for such neighbours: a quarter of its noise is
    caught.
    """
    loss = convolve(Pinball(0.5), LogisticKernel(), 1.0)
    alpha = 40.0
    mechanism = ObjectivePerturbation()
    claim = ApproxDP(1.0, 0.01)
    certificate = mechanism.certify(bounds_of(loss, alpha), claim)
    assert "trace" in certificate.theorem
    pair = [objective([(rows, way), (3, 1e6)], loss, alpha) for rows, way in ((50, -1e6), (1, 1e6))]
    result = attack(mechanism, weaker(certificate, factor), pair, claim, runs=1_000)
    assert result.passed == (factor == 1.0)


@pytest.mark.parametrize(
    "mechanism", [NoisySGD(steps=4, batch_size=2), PhasedERM(phases=1)], ids=repr
)
def test_batches_and_phases_of_people(mechanism):
    claim = ApproxDP(1.0, 0.01)
    certificate = mechanism.certify(bounds_of(Logistic()), claim)
    pair = [objective([(rows, way), (3, 1.0)], Logistic()) for rows, way in ((50, -1.0), (1, 1.0))]
    assert attack(mechanism, certificate, pair, claim, runs=1_000).passed


def person_pairs(X, y, groups, rows):
    """Yield pairs of tables that differ in one person, of so many rows, all alike, in the first
    and in the second.
    """

    def data(feature, target, count):
        added = (
            np.full((count, 1), feature),
            np.full(count, target),
            np.full(count, groups.max() + 1),
        )
        return tuple(np.concatenate(part) for part in zip(added, (X, y, groups), strict=True))

    few, many = rows
    yield NeighborPair("mirror", data(1.0, 1e3, few), data(-1.0, 1e3, many))
    yield NeighborPair("target", data(1.0, 1e3, few), data(1.0, -1e3, many))
    yield NeighborPair("both", data(1.0, 1e3, many), data(-1.0, -1e3, many))


@pytest.mark.slow
def test_whole_estimators_and_pairs_that_are_no_neighbours():
    X = np.zeros((4, 1))
    y = np.zeros(4)
    names = np.array([1, 1, 2, 3])
    model = DPQuantileRegressor(
        0.5,
        mu=0.5,
        feature_bounds=(-1, 1),
        target_bounds=(-1, 1),
        mechanism="output",
        alpha=1.0,
    )
    for pair in person_pairs(X, y, names, rows=(1, 20)):
        assert audit_estimator(model, pair, 200, rng=0).passed
    far = NeighborPair("two", (X, y, names), (X + np.array([[1], [0], [1], [0]]), y, names))
    with pytest.raises(ValueError, match="neighbouring"):
        audit_estimator(model, far, 100)
