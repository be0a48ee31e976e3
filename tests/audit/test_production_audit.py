"""Audits see what users run: the unseeded sampler, every released number, its bits, and the
relation that is promised.

False-alarm rate: an audit refutes a true claim with probability at most 1e-6. Nothing is seeded
here, so defects that must be caught are gross: with 150 runs and no noise at all, the audit is
certain.
"""

import json

import numpy as np
import pytest

from dpconvex import DPAUCClassifier, DPLogisticRegression, DPQuantileRegressor
from dpconvex.audit import NeighborPair, audit, audit_estimator, neighbor_pairs
from dpconvex.audit.attacks import attack_lowest_bit
from dpconvex.audit.estimators_on_neighbors import fitted_estimator_outputs, released_numbers
from dpconvex.core import normal_and_laplace
from dpconvex.preprocessing import DPQuantileBounds
from dpconvex.privacy import ApproxDP, GaussianDP, NoiseSource, PureDP

RUNS = 150
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (16, 1))
Y = RNG.uniform(-1, 1, 16)
LABELS = np.arange(16) % 2
OWN_NOISE = {"feature_bounds": (-1, 1), "epsilon": 1.0, "delta": 1e-2, "alpha": 1.0}


def regressor(**settings):
    facts = {"mechanism": "output", "target_bounds": (-1, 1), **OWN_NOISE, **settings}
    return DPQuantileRegressor(0.5, **facts)


def pair_of(name, labels=False, relation="replace_one"):
    targets, y = ((0, 1), LABELS) if labels else ((-1e3, 1e3), Y)
    return {p.name: p for p in neighbor_pairs(X, y, np.ones(1), targets, relation)}[name]


@pytest.mark.parametrize("settings", [{}, {"delta": 0.0}, {"random_state": 3}])
def test_a_production_sampler_that_adds_no_noise_is_caught(settings, monkeypatch):
    """Seeds took another way before: the audit passed while everybody's fits were without noise."""
    assert audit_estimator(regressor(**settings), pair_of("target"), RUNS).passed
    monkeypatch.setattr(
        normal_and_laplace, "rounded_normals", lambda words, ratio, size: np.zeros(size, int)
    )
    monkeypatch.setattr(
        normal_and_laplace, "rounded_l2_laplace", lambda words, ratio, size: np.zeros(size, int)
    )
    result = audit_estimator(regressor(**settings), pair_of("target"), RUNS)
    assert not result.passed, result.summary()


#: An honest model fails one run of an attack in ten million; the time suffices on any machine.
CERTAIN = ("--confidence", "0.9999999", "--seconds", "3000")


def test_the_command_sees_it_too(monkeypatch):
    from typer.testing import CliRunner

    from dpconvex.cli import app

    options = ["--mechanism", "output", "--alpha", "1", "--delta", "0.01", "--seed", "0", "--json"]
    command = ["audit", *options, "--runs", "150", *CERTAIN, "--n-samples", "8"]
    honest = CliRunner().invoke(app, command)
    assert honest.exit_code == 0, honest.output
    assert all(
        "detectable_noise" in found for found in json.loads(honest.stdout)["attacks"].values()
    )
    monkeypatch.setattr(
        normal_and_laplace, "rounded_normals", lambda words, ratio, size: np.zeros(size, int)
    )
    broken = CliRunner().invoke(app, command)
    assert broken.exit_code == 4, broken.output


def test_noise_is_never_seeded():
    model = regressor(random_state=1)
    outputs = fitted_estimator_outputs(model, (X, Y), 5)
    assert len(np.unique(outputs[:, 0])) == 5
    assert model.random_state == 1


class Leaky(DPLogisticRegression):
    """Releases a number beside its coefficients that nobody paid for."""

    def fit(self, X, y):
        super().fit(X, y)
        self.released_ = {**self.released_, "note": {"positive": int(np.sum(y))}}
        return self


def test_every_released_number_is_looked_at():
    model = DPAUCClassifier(mechanism="moments", feature_bounds=(-1, 1)).fit(X, LABELS)
    # A coefficient, an intercept, a midpoint and a prevalence.
    assert released_numbers(model).tolist() == [
        *model.coef_.ravel(),
        *model.intercept_,
        *model.released_["midpoint"],
        model.released_["prevalence"],
    ]
    bounds = DPQuantileBounds((-1, 1)).fit(X)
    assert released_numbers(bounds).tolist() == [bounds.low_[0], bounds.high_[0]]
    settings = {"mechanism": "output", "classes": [0, 1], **OWN_NOISE}
    flip = pair_of("target", labels=True)
    assert audit_estimator(DPLogisticRegression(**settings), flip, RUNS).passed
    caught = audit_estimator(Leaky(**settings), flip, RUNS)
    assert not caught.passed
    assert caught.statistic in ("projection", "deviation", "number 2")


def test_one_number_among_many_is_found():
    """Thirty numbers of pure noise, and one that tells by its tails: equal means leave no
    direction to project on.
    """

    def release(centre):
        def sample(count, rng):
            outputs = rng.standard_normal((count, 31))
            outputs[:, 17] += rng.choice([-centre, centre], count)
            return outputs

        return sample

    result = audit(release(0.0), release(4.0), GaussianDP(1.0), 2_000, rng=0)
    assert not result.passed
    assert result.statistic == "number 17"


def test_bits_are_attacked_where_floating_point_is_covered():
    """A minimiser of 0 against another one: noise in floating point is refuted, on the grid it
    is not.
    """

    def floating(value):
        return lambda count, rng: value + rng.laplace(0, 1.0, count)

    def gated(value):
        return lambda count, rng: NoiseSource().add_gaussian(np.full(count, value), 2.0)

    claim = PureDP(1.0)
    assert audit(floating(0.0), floating(1.0), claim, 4_000, rng=0).passed
    found = audit(floating(0.0), floating(1.0), claim, 4_000, rng=0, bits=True)
    assert not found.passed
    assert found.statistic == "last bit of number 0"
    assert audit(gated(0.0), gated(1 / 3), GaussianDP(1 / 2), 20_000, bits=True).passed


def test_lowest_bits():
    numbers = [1.0, -1.0, 0.75, 6.0, 0.1, 5e-324, 2.0**1000, 0.0, 3 * 2.0**-1060]
    assert attack_lowest_bit(np.array(numbers)).tolist() == [
        0,
        0,
        -2,
        1,
        -55,
        -1074,
        1000,
        2000,
        -1060,
    ]


@pytest.mark.parametrize("mechanism", ["output", "objective"])
def test_attacks_keep_labels_where_labels_are_public(mechanism):
    model = DPAUCClassifier(
        "hinge",
        mechanism=mechanism,
        label_private=False,
        min_positive=7,
        min_negative=7,
        classes=[0, 1],
        **{**OWN_NOISE, "alpha": 10.0},
    )
    relation = model.certify(16, 1).neighbors
    assert relation == "replace_one_keeping_label"
    pairs = list(neighbor_pairs(X, LABELS, np.ones(1), (0, 1), relation))
    assert [pair.name for pair in pairs] == ["mirror, high", "mirror, low"]
    for pair in pairs:
        assert pair.first[1].tolist() == pair.second[1].tolist()
    assert audit_estimator(model, pairs[0], 100).passed
    with pytest.raises(ValueError, match="'replace_one_keeping_label'"):
        audit_estimator(model, pair_of("target", labels=True), 100)


def test_the_command_keeps_labels():
    from typer.testing import CliRunner

    from dpconvex.cli import app

    options = ["--task", "auc", "--no-label-private", "--mechanism", "output", "--alpha", "1"]
    found = CliRunner().invoke(
        app, ["audit", *options, "--runs", "100", *CERTAIN, "--n-samples", "8", "--json"]
    )
    assert found.exit_code == 0, found.output
    assert set(json.loads(found.stdout)["attacks"]) == {"mirror, high", "mirror, low"}


def test_pairs_that_are_no_neighbours_are_refused():
    far = NeighborPair("two rows", (X, Y), (np.vstack([-X[:2], X[2:]]), Y))
    with pytest.raises(ValueError, match="must be two neighbouring data sets"):
        audit_estimator(regressor(), far, 100)
    with pytest.raises(ValueError, match="must be two neighbouring data sets"):
        audit_estimator(regressor(), NeighborPair("shorter", (X, Y), (X[1:], Y[1:])), 100)
    counted = regressor(neighbors="add_or_remove_one", nominal_samples=16)
    assert audit_estimator(
        counted, NeighborPair("order", (X, Y), (X[::-1][1:], Y[::-1][1:])), 100
    ).passed
    with pytest.raises(ValueError, match="must be two neighbouring data sets"):
        audit_estimator(counted, pair_of("target"), 100)
    with pytest.raises(ValueError, match="'relation' parameter of neighbor_pairs"):
        list(neighbor_pairs(X, Y, np.ones(1), (0.0, 1.0), "swap"))


@pytest.mark.parametrize(
    ("claim", "std"), [(GaussianDP(0.5), 2.0), (ApproxDP(1.0, 1e-5), 3.730632)]
)
def test_the_stated_defect_is_caught_and_a_smaller_one_is_not(claim, std):
    """What a run says it would have caught is caught by most others, and half as much again less
    often.

    With 20,000 runs 12 of 12 were caught at the stated size, and 2 of 12 at most beyond. Seeds are
    fixed.
    """

    def gaussian(centre, size):
        return lambda count, rng: centre + size * rng.standard_normal(count)

    def verdict(size, seed):
        return audit(gaussian(0.0, size), gaussian(1.0, size), claim, 20_000, rng=seed)

    honest = verdict(std, 0)
    assert honest.passed
    share = honest.detectable_noise
    assert 0.2 < share < 0.9
    assert f"noise below {share:.2g} of what was drawn" in honest.summary()
    caught = [not verdict(share * std, seed).passed for seed in range(1, 6)]
    assert sum(caught) >= 4
    assert not all(not verdict(1.5 * share * std, seed).passed for seed in range(1, 4))


def test_few_runs_and_pairs_without_a_difference_promise_nothing():
    def normal_noise(count, rng):
        return rng.standard_normal(count)

    same = audit(normal_noise, normal_noise, GaussianDP(0.5), 2_000, rng=0)
    assert same.detectable_noise is None
    assert "no defect for certain" in same.summary()
    silent = [lambda count, rng, c=c: np.full(count, c) for c in (0.0, 1.0)]
    assert not audit(*silent, GaussianDP(0.5), 1_000, rng=0).passed
