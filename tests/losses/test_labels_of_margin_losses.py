"""A loss of y z is as steep as its largest label: objectives clip labels to [-1, 1] whatever the
rows hold.
"""

import numpy as np
import pytest

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Hinge, Logistic, Pinball
from dpconvex.mechanisms import NoisySGD, OutputPerturbation
from dpconvex.objectives import (
    AdversarialObjective,
    CostlyAdversaryObjective,
    EmpiricalObjective,
    TiltedObjective,
)
from dpconvex.privacy import ApproxDP, GaussianDP, LinearBounds

N = 50
ROW_MAP = RowMap(2, 1.0)
BUILDERS = {
    "mean": lambda rows: EmpiricalObjective(rows, Logistic(), 0.1),
    "kinked": lambda rows: EmpiricalObjective(rows, Hinge(), 0.1),
    "robust": lambda rows: AdversarialObjective(rows, Logistic(), 0.1, 0.2),
    "costly": lambda rows: CostlyAdversaryObjective(rows, Logistic(), 0.1, 40.0),
    "tilted": lambda rows: TiltedObjective(rows, Logistic(), 0.1, 1.0),
}


def neighbours(label):
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (N, 2))
    for first in (1.0, label):
        yield X, np.r_[first, np.ones(N - 1)]


@pytest.mark.parametrize("builder", BUILDERS)
@pytest.mark.parametrize("label", [-1e4, 1e300, -1e-3])
def test_gradients_move_no_further_than_labels_allow(builder, label):
    theta = np.array([0.3, -0.2, 0.1])
    gradients = []
    clipped = []
    for X, y in neighbours(label):
        gradients.append(BUILDERS[builder](MemoryRows(X, y, ROW_MAP)).gradient(theta))
        labels = np.clip(y, -1, 1)
        clipped.append(BUILDERS[builder](MemoryRows(X, labels, ROW_MAP)).gradient(theta))
    np.testing.assert_array_equal(gradients, clipped)
    if builder != "tilted":
        assert N * np.linalg.norm(gradients[0] - gradients[1]) <= 2 * 1.2 * np.sqrt(2)


@pytest.mark.parametrize(
    ("mechanism", "term", "alpha", "guarantee"),
    [
        (NoisySGD(steps=200, batch_size=N), "gradients", 0.0, ApproxDP(1.0, 1e-6)),
        (OutputPerturbation(), "release", 0.1, GaussianDP(1.0)),
    ],
)
def test_a_release_by_hand_is_moved_by_no_more_than_is_certified(mechanism, term, alpha, guarantee):
    certificate = mechanism.certify(
        LinearBounds(N, 2, Logistic(), 1.0, 1.0, alpha=alpha), guarantee
    )
    found = []
    for X, y in neighbours(-1e4):
        objective = EmpiricalObjective(MemoryRows(X, y, ROW_MAP), Logistic(), alpha)
        mechanism.release(objective, certificate)
        if term == "release":
            found.append(mechanism.minimise(objective, certificate))
        else:
            found.append(N * objective.gradient(np.zeros(3)))
    assert np.linalg.norm(found[0] - found[1]) <= certificate.noise[term].sensitivity


def test_residuals_keep_their_targets():
    X, y = next(iter(neighbours(1.0)))
    rows = MemoryRows(X, 7 * y, ROW_MAP)
    assert EmpiricalObjective(rows, Pinball(0.5), 0.1).rows is rows
    assert EmpiricalObjective(rows, Logistic(), 0.1).rows.mean_target_size == 1.0
    assert rows.mean_target_size == 7.0
    labels = MemoryRows(X, y, ROW_MAP)
    assert EmpiricalObjective(labels, Logistic(), 0.1).rows is labels


def test_partitions_clip_labels():
    da = pytest.importorskip("dask.array")
    from dpconvex.engine.dask.rows_and_table import DaskTable

    theta = np.array([0.3, -0.2, 0.1])
    for X, y in neighbours(-1e4):
        table = DaskTable(da.from_array(X, (20, 2)), da.from_array(y, 20), "Test")
        objective = EmpiricalObjective(table.rows(ROW_MAP), Logistic(), 0.1)
        inside = EmpiricalObjective(MemoryRows(X, np.clip(y, -1, 1), ROW_MAP), Logistic(), 0.1)
        np.testing.assert_allclose(objective.gradient(theta), inside.gradient(theta), rtol=1e-12)
        assert objective.rows.subsample(10).mean_target_size == 1.0
