"""Audits of pairwise mechanisms in one dimension, a label change between the data sets.

Every audit is wrong about a correct claim with probability at most 1e-6. A monotone loss uses at
most half of the claimed gradient difference, so what must be caught is an eighth of the noise.
"""

import numpy as np
import pytest

from dpconvex.audit import audit
from dpconvex.losses import PairHinge
from dpconvex.mechanisms import (
    Moments,
    OutputPerturbation,
    PairwiseObjectivePerturbation,
    auc_moments,
)
from dpconvex.objectives import PairwiseObjective
from dpconvex.privacy import ApproxDP, GaussianDP, NoiseSource, PairwiseBounds, PureDP

LOSS = PairHinge(1.0)
ALPHA = 500.0
# One positive record at the bound; its place, or its label, changes.
ROWS = np.array([[1.0], [-1.0], [-1.0], [-1.0]])
LABELS = np.array([True, False, False, False])
MOVED = ROWS * [[-1.0], [1.0], [1.0], [1.0]]
FLIPPED = np.array([False, False, False, False])
BOUNDS = PairwiseBounds(4, 1, LOSS, 1.0, None, 1, 3, alpha=ALPHA)


def objectives(other_rows, other_labels):
    return [
        PairwiseObjective(rows, labels, LOSS, ALPHA, 1, 3, row_norm=1.0)
        for rows, labels in ((ROWS, LABELS), (other_rows, other_labels))
    ]


def table(objective):
    """Minimisers of ``F(w) + b w`` as a function of b: the inverse of a monotone function."""
    points = np.linspace(-1, 1, 401)
    slopes = np.array([objective.gradient(np.array([w]))[0] for w in points])
    return lambda tilts: np.interp(-tilts, slopes, points)


@pytest.mark.parametrize("case", [(MOVED, LABELS), (ROWS, FLIPPED)], ids=["moved", "flipped"])
@pytest.mark.parametrize("claim", [ApproxDP(1.0, 1e-5), PureDP(1.0)], ids=repr)
def test_objective_perturbation_survives(case, claim):
    term = PairwiseObjectivePerturbation().certify(BOUNDS, claim).noise["objective"]
    first, second = map(table, objectives(*case))

    def release(minimiser, factor):
        def sample(size, rng):
            noise = NoiseSource(rng)
            if "std" in term:
                tilts = noise.gaussian(factor * term["std"], size)
            else:
                tilts = rng.laplace(0.0, factor * term["scale"], size)
            return minimiser(tilts)

        return sample

    honest = audit(release(first, 1.0), release(second, 1.0), claim, runs=100_000, rng=0)
    assert honest.passed
    weak = audit(release(first, 0.125), release(second, 0.125), claim, runs=100_000, rng=0)
    assert not weak.passed


@pytest.mark.parametrize("claim", [ApproxDP(1.0, 1e-5), GaussianDP(1.0)], ids=repr)
def test_output_perturbation_survives(claim):
    mechanism = OutputPerturbation()
    certificate = mechanism.certify(BOUNDS, claim)
    first, second = (mechanism.minimise(o, certificate)[0] for o in objectives(ROWS, FLIPPED))
    std = certificate.noise["release"]["std"]

    def release(point, factor):
        return lambda size, rng: point + factor * std * rng.standard_normal(size)

    assert audit(release(first, 1.0), release(second, 1.0), claim, runs=100_000, rng=0).passed
    weak = audit(release(first, 0.125), release(second, 0.125), claim, runs=100_000, rng=0)
    assert not weak.passed


def test_moments_survive(monkeypatch):
    """Neighbours that differ in one record's label and place; statistic: the prevalence."""
    # Searches for row lengths take most of the time and have no part in the count.
    monkeypatch.setattr(auc_moments, "private_auc_median", lambda *arguments: 1.0)
    claim = GaussianDP(1.0)
    X = np.tile(np.array([[1.0], [-1.0]]), (6, 1))
    y = np.arange(12) < 5
    other = X.copy()
    labels = y.copy()
    other[0] = -1.0
    labels[0] = False
    bounds = PairwiseBounds(12, 1, LOSS, 1.0)

    def release(X, y, mu):
        objective = PairwiseObjective(X, y, LOSS, 0.0, row_norm=1.0)
        certificate = Moments().certify(bounds, GaussianDP(mu))

        def sample(size, rng):
            noise = NoiseSource(rng)
            seen = []
            for _ in range(size):
                record = {}
                Moments().release(objective, certificate, noise, record)
                seen.append(record["prevalence"])
            return np.array(seen)

        return sample

    assert audit(release(X, y, 1.0), release(other, labels, 1.0), claim, runs=500, rng=0).passed
    weak = audit(release(X, y, 40.0), release(other, labels, 40.0), claim, runs=500, rng=0)
    assert not weak.passed
