"""Audits of tilted and robust releases: ours survives, a mean's sensitivity or a tenth of the noise
does not.

Every audit is wrong about a correct claim with probability at most 1e-6.
"""

from dataclasses import fields

import numpy as np
import pytest
from scalar_mechanisms import GaussianRelease
from sklearn.base import clone, is_classifier

from dpconvex import (
    DPRobustClassifier,
    DPRobustRegressor,
    DPTiltedClassifier,
    DPTiltedRegressor,
    DPTopRankClassifier,
)
from dpconvex.audit import audit, audit_estimator, neighbor_pairs
from dpconvex.engine import MemoryRows, RowMap
from dpconvex.losses import Huber
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.objectives import TiltedObjective
from dpconvex.privacy import ApproxDP, GaussianDP, LinearBounds, TiltedBounds

pytestmark = pytest.mark.slow  # thousands of runs each


def tight_pair(exponent, n):
    """Minimisers of the neighbours that attain the tilted sensitivity, and the bounds."""
    width = 0.002
    reach = 0.5
    row_map = RowMap.from_bounds(1, (-1.0, 1.0), 1.0, fit_intercept=False)
    tilt = exponent / (width * (1 + reach))
    bounds = TiltedBounds(
        n, 1, Huber(width), 1.0, 1.0, fit_intercept=False, alpha=width / reach, tilt=tilt
    )
    certificate = OutputPerturbation().certify(bounds, GaussianDP(1.0))
    X = np.ones((n, 1))
    y = np.full(n, -reach - width)
    points = []
    for first in (-reach - width, 1.0):
        y[0] = first
        objective = TiltedObjective(MemoryRows(X, y, row_map), bounds.loss, bounds.alpha, tilt)
        points.append(float(OutputPerturbation().minimise(objective, certificate)[0]))
    return points, bounds


def as_a_mean(bounds):
    """Return the same facts without the tilt."""
    return LinearBounds(
        **{field.name: getattr(bounds, field.name) for field in fields(LinearBounds)}
    )


@pytest.mark.parametrize("claim", [ApproxDP(1.0, 1e-5), GaussianDP(1.0)])
def test_tilted_noise_survives_and_that_of_a_mean_does_not(claim):
    points, bounds = tight_pair(1.5, 5000)
    for facts, passes in ((bounds, True), (as_a_mean(bounds), False)):
        std = OutputPerturbation().certify(facts, claim).noise["release"]["std"]
        laws = [GaussianRelease(point, std) for point in points]
        result = audit(laws[0].sample, laws[1].sample, claim, runs=100_000, rng=0)
        assert result.passed is passes


MODELS = [
    DPTiltedClassifier(0.1, mu=10.0, alpha=3.0, coef_bound=5.0, feature_bounds=(-1, 1)),
    DPTiltedRegressor(2.0, mu=10.0, alpha=0.3, coef_bound=5.0, feature_bounds=(-1, 1)),
    DPTiltedClassifier(share=0.5, mu=10.0, alpha=3.0, feature_bounds=(-1, 1)),
    DPTiltedRegressor(share="max", mu=10.0, alpha=0.3, feature_bounds=(-1, 1)),
    DPRobustClassifier(0.1, "linf", mu=10.0, alpha=1.0, feature_bounds=(-1, 1)),
    DPRobustClassifier(0.1, "box", shape=[0.5], mu=10.0, alpha=1.0, feature_bounds=(-1, 1)),
    DPRobustClassifier(0.1, "hull", shape=[[2.0]], mu=10.0, alpha=1.0, feature_bounds=(-1, 1)),
    DPRobustRegressor(0.1, "l1", mu=10.0, alpha=0.3, feature_bounds=(-1, 1)),
    DPTopRankClassifier(1000, "hinge", min_positive=4, mu=10.0, alpha=3.0, feature_bounds=(-1, 1)),
    DPRobustClassifier(cost=9.0, mu=10.0, alpha=1.0, feature_bounds=(-1, 1)),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_fitted_models_survive_and_a_tenth_of_the_noise_would_not(model):
    """Whole fits, noise source included: the record at the influence bound with its target at
    opposite extremes.

    A tenth of mu is refuted: this is what noise ten times too small would look like.
    """
    labels = is_classifier(model)
    X = np.tile([[1.0], [-1.0]], (2, 1))
    y = np.array([1, 0, 1, 0]) if labels else X[:, 0]
    pairs = neighbor_pairs(X, y, np.ones(1), (0, 1) if labels else (-1.0, 1.0))
    (pair,) = (pair for pair in pairs if pair.name == "target")
    if labels:
        model = clone(model).set_params(classes=[0, 1])
    assert audit_estimator(model, pair, runs=100, rng=0).passed
    assert not audit_estimator(model, pair, runs=300, guarantee=GaussianDP(1.0), rng=0).passed
