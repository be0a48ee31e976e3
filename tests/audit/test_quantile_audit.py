"""Audits of DPQuantileRegressor on tiny data, with every mechanism it offers.

False-alarm rate: each audit refutes a true claim with probability at most 1e-6, and seeds are
fixed. Power: at (1, 1e-2) and 400 runs per data set an eighth of the noise is refuted with a wide
margin (the audit then proves an epsilon of 2 and more where 1 is claimed). Noisy gradient descent
spends part of its budget on what the coefficients hardly show, so a twentieth is tried there. Finer
errors, down to half the noise, take 1e5 runs and are left to the audits of the calibrated scalar
mechanisms.
"""

from dataclasses import dataclass

import numpy as np
import pytest
from releases import releases_of, with_noise
from sklearn.base import clone

from dpconvex import DPQuantileRegressor
from dpconvex.audit import NeighborPair, audit, audit_estimator, neighbor_pairs
from dpconvex.engine import MemoryRows
from dpconvex.inputs.people_and_weights import PersonUnit
from dpconvex.mechanisms import ObjectivePerturbation
from dpconvex.objectives import EmpiricalObjective

RUNS = 400
LESS = {"objective": 1 / 8, "output": 1 / 8, "gradient": 1 / 20}  # noise a sabotaged copy keeps
FAR = 1e3  # targets at opposite extremes: slopes are at their largest

X = np.array([[0.0], [0.5], [-0.2]])
y = np.array([0.0, 0.1, -0.3])
PAIRS = {pair.name: pair for pair in neighbor_pairs(X, y, np.array([1.0]), (-FAR, FAR))}
PAIRS["removed"] = NeighborPair(
    "removed", PAIRS["target"].first, (PAIRS["target"].first[0][1:], PAIRS["target"].first[1][1:])
)
ADD_REMOVE = {"neighbors": "add_or_remove_one", "nominal_samples": 3}


def estimator(**settings):
    defaults = {
        "epsilon": 1.0,
        "delta": 1e-2,
        "feature_bounds": (-1.0, 1.0),
        "target_bounds": (-1.0, 1.0),
        "alpha": 2.0,
        "bandwidth": 1.0,
        "mechanism": "objective",
    }
    return DPQuantileRegressor(0.5, **{**defaults, **settings})


def sampler(model, data, factor):
    """Return a sampler of the coefficients that a fit releases; the plan is made once."""
    table, target = data
    plan = model._plan(PersonUnit(len(table)), table.shape[1])
    bounds = plan.certificate.bounds
    rows = MemoryRows(table, target, plan.row_map, plan.target_shift, plan.target_scale, threads=1)
    objective = EmpiricalObjective(rows, bounds.loss, bounds.alpha, divisor=bounds.n_samples)
    return releases_of(plan.mechanism, objective, with_noise(plan.certificate, factor))


def verdict(pair, factor, runs=RUNS, **settings):
    model = estimator(**settings)
    first, second = (sampler(model, data, factor) for data in (pair.first, pair.second))
    return audit(first, second, model.certify(len(X), 1), runs, rng=1)


# Settings and the pair of data sets that is worst for them.
CASES = {
    "objective, target": ({}, "target"),
    "objective, mirror and target": ({}, "both"),
    "objective, mirror without intercept": ({"fit_intercept": False}, "mirror"),
    "objective, pure": ({"delta": 0.0}, "target"),
    "objective, record removed": (ADD_REMOVE, "removed"),
    "output, target": ({"mechanism": "output"}, "target"),
    "gradient, target": ({"mechanism": "gradient", "alpha": None}, "target"),
}


# The descent has audits of its own (test_gradient_audit.py), which are shorter.
LONG = {"gradient, target"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in CASES]
)
def test_honest_noise_survives_and_a_fraction_of_it_does_not(name):
    settings, pair = CASES[name]
    honest = verdict(PAIRS[pair], 1.0, **settings)
    assert honest.passed, honest.summary()
    assert honest.confidence >= 1 - 1.1e-6
    sabotaged = verdict(PAIRS[pair], LESS[settings.get("mechanism", "objective")], **settings)
    assert not sabotaged.passed, sabotaged.summary()
    assert sabotaged.epsilon_lower_bound > 1.5 * sabotaged.epsilon


@dataclass(frozen=True)
class Quiet(ObjectivePerturbation):
    """Objective perturbation that certifies honestly and then adds too little noise."""

    def release(self, objective, certificate, *arguments):
        return super().release(objective, with_noise(certificate, LESS[self.name]), *arguments)


def test_the_estimator_itself():
    honest = audit_estimator(estimator(), PAIRS["target"], 200, rng=0)
    assert honest.passed, honest.summary()
    sabotaged = audit_estimator(estimator(mechanism=Quiet()), PAIRS["target"], 200, rng=0)
    assert not sabotaged.passed, sabotaged.summary()
    # The claim that was refuted is the one a user would read.
    certificate = clone(estimator(mechanism=Quiet())).fit(*PAIRS["target"].first).certificate_
    assert certificate.guarantee == estimator().certify(len(X), 1).guarantee


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_honest_noise_survives_longer_audits(name):
    settings, pair = CASES[name]
    assert verdict(PAIRS[pair], 1.0, runs=20_000, **settings).passed
