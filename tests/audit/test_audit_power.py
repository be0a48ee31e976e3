"""Audits of calibrated mechanisms: correct noise passes, half of it is caught.

False-alarm rate: each audit refutes a true claim with probability at most 1e-6 (its confidence),
and all seeds are fixed. Power: at (1, 1e-5), half the noise of a Gaussian mechanism takes about
1e5 to 2e5 runs and of objective perturbation 3e5; the numbers below leave a reserve.
"""

import math

import numpy as np
import pytest
from scalar_mechanisms import GaussianRelease, LaplaceRelease, PerturbedObjective, likelihood_ratio
from scipy.stats import binom

from dpconvex.audit import audit
from dpconvex.losses import Hinge, Logistic, Pinball
from dpconvex.privacy import (
    ApproxDP,
    GaussianDP,
    PureDP,
    gaussian_scale,
    objective_perturbation_laplace_scale,
    objective_perturbation_scale,
)
from dpconvex.smoothing import LogisticKernel, convolve

EPSILON = 1.0
DELTA = 1e-5
KAPPA = 0.05
CLAIM = ApproxDP(EPSILON, DELTA)

PINBALL = convolve(Pinball(0.5), LogisticKernel(), 1.0)
HINGE = convolve(Hinge(), LogisticKernel(), 0.1)


def verdict(first, second, claim, runs, exact=False, seed=7):
    statistic = likelihood_ratio(first, second) if exact else None
    return audit(first.sample, second.sample, claim, runs, rng=seed, statistic=statistic)


@pytest.mark.parametrize("exact", [False, True])
def test_gaussian_mechanism(exact):
    std = gaussian_scale(EPSILON, DELTA, 1.0)

    def run(factor):
        pair = (GaussianRelease(center, factor * std) for center in (0.0, 1.0))
        return verdict(*pair, CLAIM, 200_000, exact)

    honest = run(1.0)
    assert honest.passed
    assert honest.epsilon_lower_bound > 0.3  # the audit is not blind
    assert not run(0.5).passed


def test_gaussian_dp_claim_is_audited_along_its_profile():
    def run(std):
        pair = (GaussianRelease(center, std) for center in (0.0, 1.0))
        return verdict(*pair, GaussianDP(1.0), 50_000)

    assert run(1.0).passed
    assert not run(0.9).passed
    # Away from tiny deltas ten per cent of missing noise shows, and the audit finds that place.
    assert run(0.9).delta > 1e-5


def test_laplace_mechanism():
    def run(factor):
        pair = (LaplaceRelease(center, factor / EPSILON) for center in (0.0, 1.0))
        return verdict(*pair, PureDP(EPSILON), 50_000)

    assert run(1.0).passed
    assert run(1.0).epsilon_lower_bound > 0.9
    assert not run(0.9).passed
    assert not run(0.5).passed


def columns(*values):
    return np.array(values, dtype=float).reshape(len(values), -1)


# name: loss, first (rows, targets), second (rows, targets), bound on the row norm. Far targets
# put a record's slope at its extreme; the row (1, x) has an intercept.
REPLACED = {
    "target extremes": (
        PINBALL,
        (columns(1.0, 0.5), [1e3, 0.0]),
        (columns(1.0, 0.5), [-1e3, 0.0]),
        1.0,
    ),
    "mirrored row": (
        PINBALL,
        (columns(1.0, 0.5), [1e3, 0.0]),
        (columns(-1.0, 0.5), [1e3, 0.0]),
        1.0,
    ),
    "label flip": (HINGE, (columns(1.0, 0.5), [1.0, 1.0]), (columns(1.0, 0.5), [-1.0, 1.0]), 1.0),
    "target extremes with intercept": (
        PINBALL,
        (columns((1, 1), (1, -0.3)), [1e3, 1.0]),
        (columns((1, 1), (1, -0.3)), [-1e3, 1.0]),
        math.sqrt(2.0),
    ),
}


def objective_pair(loss, first, second, row_norm, factor, neighbors, noise="gaussian"):
    lipschitz = loss.lipschitz * row_norm
    ridge = loss.smoothness * row_norm**2 / KAPPA
    if noise == "gaussian":
        scale = objective_perturbation_scale(EPSILON, DELTA, lipschitz, KAPPA, 1, neighbors)
    else:
        scale = objective_perturbation_laplace_scale(EPSILON, lipschitz, KAPPA, neighbors)
    return [
        PerturbedObjective(loss, rows, targets, ridge, factor * scale, noise)
        for rows, targets in (first, second)
    ]


@pytest.mark.parametrize("name", REPLACED)
def test_objective_perturbation_replace_one(name):
    honest = objective_pair(*REPLACED[name], 1.0, "replace_one")
    assert verdict(*honest, CLAIM, 100_000, exact=True).passed
    halved = objective_pair(*REPLACED[name], 0.5, "replace_one")
    assert not verdict(*halved, CLAIM, 400_000).passed


def test_objective_perturbation_with_the_exact_likelihood_ratio():
    halved = objective_pair(*REPLACED["target extremes"], 0.5, "replace_one")
    assert not verdict(*halved, CLAIM, 300_000, exact=True).passed


def test_objective_perturbation_add_or_remove_one():
    first = (columns(1.0, 0.5), [1e3, 0.0])
    second = (columns(0.5), [0.0])
    honest = objective_pair(PINBALL, first, second, 1.0, 1.0, "add_or_remove_one")
    assert verdict(*honest, CLAIM, 100_000, exact=True).passed
    halved = objective_pair(PINBALL, first, second, 1.0, 0.5, "add_or_remove_one")
    assert not verdict(*halved, CLAIM, 300_000).passed


@pytest.mark.parametrize("name", ["target extremes", "mirrored row"])
def test_objective_perturbation_pure_epsilon(name):
    honest = objective_pair(*REPLACED[name], 1.0, "replace_one", "laplace")
    assert verdict(*honest, PureDP(EPSILON), 50_000).passed
    halved = objective_pair(*REPLACED[name], 0.5, "replace_one", "laplace")
    assert not verdict(*halved, PureDP(EPSILON), 50_000).passed


def test_logistic_label_flip_has_a_reserve_of_two():
    # Slopes of the two labels differ by exactly L, not 2 L, at every margin: in one dimension the
    # replace-one calibration has a reserve of two, and half the noise is no violation there.
    flip = (columns(1.0, 0.5), [1.0, 1.0]), (columns(1.0, 0.5), [-1.0, 1.0])
    for factor, passes in ((1.0, True), (0.5, True), (0.2, False)):
        pair = objective_pair(Logistic(), *flip, 1.0, factor, "replace_one")
        assert verdict(*pair, CLAIM, 200_000).passed == passes


def test_true_claims_are_refuted_no_more_often_than_stated():
    # The Laplace mechanism attains its epsilon on every tail event, so this is the hardest true
    # claim. False-alarm rate of this test 1e-6; frequencies in place of confidence limits would
    # refute about every second time.
    audits = 150
    confidence = 0.9
    pair = LaplaceRelease(0.0, 1.0).sample, LaplaceRelease(1.0, 1.0).sample
    refuted = sum(
        not audit(*pair, PureDP(1.0), 400, confidence=confidence, rng=seed).passed
        for seed in range(audits)
    )
    assert refuted <= binom.isf(1e-6, audits, 1 - confidence)


@pytest.mark.parametrize("fresh", [True, False])
def test_the_event_is_counted_on_runs_that_did_not_choose_it(fresh):
    # Pure noise in 100 dimensions: a direction fitted to some runs separates just those runs.
    # 50 audits at confidence 0.6, false-alarm rate 1e-6; the control, whose samplers repeat the
    # selection runs, is refuted.
    audits = 50
    confidence = 0.6
    refuted = 0
    for seed in range(audits):
        kept = {}

        def sampler(name, kept=kept):
            def sample(count, rng):
                if fresh or name not in kept:
                    kept[name] = rng.standard_normal((count, 100))
                return kept[name]

            return sample

        pair = sampler("first"), sampler("second")
        claim = PureDP(0.1)
        share = 0.5
        result = audit(*pair, claim, 400, confidence=confidence, selection_share=share, rng=seed)
        refuted += not result.passed
    assert (refuted <= binom.isf(1e-6, audits, 1 - confidence)) == fresh


def test_half_the_noise_is_caught_whatever_the_seed():
    # Power about 0.99 at 2e5 runs; at least 5 of 6 fixed seeds must refute.
    std = 0.5 * gaussian_scale(EPSILON, DELTA, 1.0)
    pair = [GaussianRelease(center, std) for center in (0.0, 1.0)]
    caught = [not verdict(*pair, CLAIM, 200_000, seed=seed).passed for seed in range(6)]
    assert sum(caught) >= 5
