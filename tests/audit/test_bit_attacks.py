"""Attacks by the low bits of released numbers: floating-point noise on a floating-point value gave
neighbours away.

Every audit is wrong about a correct claim with probability at most 1e-6. Before there was a grid
each of these attacks refuted its claim; the docstrings say how often its event was seen on the two
data sets.
"""

import numpy as np
import pytest

from dpconvex import DPAUCClassifier, DPQuantileRegressor, DPRobustClassifier
from dpconvex.audit import audit
from dpconvex.inputs import preprocessing
from dpconvex.inputs.people_and_weights import PersonUnit
from dpconvex.mechanisms import auc_moments
from dpconvex.privacy import ApproxDP, NoiseSource, PureDP
from dpconvex.releases import perturbed_minimiser


def lowest_bit(numbers):
    """Exponent of the last binary digit that is set, of each number; large for 0."""
    fraction, exponent = np.frexp(np.ravel(numbers))
    digits = (fraction * 2.0**53).astype(np.int64)
    last = np.frexp((digits & -digits).astype(np.float64))[1] - 1
    return np.where(digits == 0, 2000, exponent - 53 + last).astype(np.float64)


def releases(estimator, X, y, read):
    """A sampler of what an estimator releases on these rows: its mechanism, charged and
    certified as in a fit.
    """
    rows, targets, shape = estimator._read(X, y)
    records = PersonUnit(shape[0])
    plan = estimator._plan(records, *shape[1:])
    (objective,) = estimator._objectives(rows, targets, plan, None)

    def sample(count, rng):
        return np.array([read(plan, objective) for _ in range(count)])

    return sample


def output(plan, objective):
    """The release of output perturbation; its minimiser is the same in every fit, and is worked
    out once.
    """
    return plan.mechanism.release(objective, plan.certificate, None)[0]


@pytest.fixture
def solved_once(monkeypatch):
    solve = perturbed_minimiser.exact_minimiser
    found = {}

    def once(objective, *arguments):
        if id(objective) not in found:
            found[id(objective)] = objective, solve(objective, *arguments)
        return found[id(objective)][1]

    monkeypatch.setattr(perturbed_minimiser, "exact_minimiser", once)


NOTHING = np.zeros((10, 1)), np.zeros(10, dtype=int)
ONE_ROW = np.eye(10, 1), np.eye(10, 1, dtype=int)[:, 0]


def in_floating_point(self, value, term):
    """A gate that is no gate: noise with all its digits, added with rounding."""
    noise = np.random.default_rng().laplace(0, term["scale"], np.shape(value))
    return np.asarray(value) + noise


@pytest.mark.usefixtures("solved_once")
@pytest.mark.parametrize("gate", [NoiseSource.add, in_floating_point])
def test_pure_output_perturbation_of_ten_rows(gate, monkeypatch):
    """265 of 3200 against none: a minimiser of 0 leaves the noise's own digits."""
    model = DPQuantileRegressor(
        0.5,
        mechanism="output",
        epsilon=1.0,
        delta=0.0,
        alpha=0.1,
        bandwidth=0.5,
        fit_intercept=False,
        feature_bounds=(-1, 1),
        target_bounds=(-1, 1),
    )
    monkeypatch.setattr(NoiseSource, "add", gate)
    pair = [releases(model, *data, output) for data in (NOTHING, ONE_ROW)]
    result = audit(*pair, PureDP(1.0), 4_000, statistic=lowest_bit, rng=0)
    assert result.passed == (gate is not in_floating_point)


@pytest.mark.usefixtures("solved_once")
def test_pure_robust_classifier():
    """317 of 3200 against none."""
    model = DPRobustClassifier(
        0.01,
        loss="hinge",
        epsilon=1.0,
        delta=0.0,
        alpha=0.5,
        fit_intercept=False,
        feature_bounds=(-1, 1),
        classes=[0, 1],
    )
    pair = [releases(model, *data, output) for data in (NOTHING, ONE_ROW)]
    assert audit(*pair, PureDP(1.0), 4_000, statistic=lowest_bit, rng=0).passed


@pytest.mark.slow
def test_prevalence_of_auc_by_moments(monkeypatch):
    """118 of 3600 against none: not every number is a floating-point normal times the noise's
    scale.
    """
    # Searches for row lengths take most of the time and have no part in the count.
    monkeypatch.setattr(auc_moments, "private_auc_median", lambda *arguments: 1.0)
    claim = ApproxDP(1.25, 1e-6)
    rows = 16
    model = DPAUCClassifier(
        mechanism="moments", epsilon=1.25, delta=1e-6, feature_bounds=(-1, 1), classes=[0, 1]
    )
    X = np.random.default_rng(0).uniform(-1, 1, (rows, 1))
    scale = model.certify(rows, 1).noise["count"]["std"]

    def prevalence(plan, objective):
        released = {}
        plan.mechanism.release(objective, plan.certificate, None, released)
        return released["prevalence"]

    def no_multiple(outputs):
        """Whether no floating-point number times the noise's scale is this count; 0 where it was
        cut off.
        """
        counts = outputs * rows
        near = counts / scale
        around = [near]
        for _ in range(2):
            around = [np.nextafter(around[0], -np.inf), *around, np.nextafter(around[-1], np.inf)]
        missed = np.all([candidate * scale != counts for candidate in around], axis=0)
        return (missed & (counts > 1) & (counts < rows - 1)).astype(float)

    pair = [releases(model, X, np.arange(rows) < positives, prevalence) for positives in (1, 0)]
    assert audit(*pair, claim, 4_500, statistic=no_multiple, rng=0).passed


def test_quantile_bounds_between_values_of_the_data(monkeypatch):
    """192 of 2400 against none: a point between two values has the digits of the larger one."""
    # The draws themselves, before they are moved outwards.
    monkeypatch.setattr(preprocessing, "_MARGIN", 0.0)
    monkeypatch.setattr(preprocessing, "_LARGEST_TAIL", 0.2)

    def bounds(value):
        def sample(count, rng):
            model = preprocessing.DPQuantileBounds((-5e5, 5e5), epsilon=1.0, delta=0.0)
            return np.array([model.fit([[value]]).low_[0] for _ in range(count)])

        return sample

    pair = [bounds(0.0), bounds(-4e5)]
    assert audit(*pair, PureDP(1.0), 3_000, statistic=lowest_bit, rng=0).passed
