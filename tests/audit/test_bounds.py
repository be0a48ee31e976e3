import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from dpconvex.audit import (
    clopper_pearson_lower,
    clopper_pearson_upper,
    epsilon_from_probabilities,
    epsilon_lower_bound,
)


@pytest.mark.parametrize("trials", [1, 10, 1000, 300_000])
@pytest.mark.parametrize("error", [0.05, 5e-7])
def test_limits_solve_the_binomial_equations(trials, error):
    for successes in {0, 1, trials // 3, trials - 1, trials}:
        low = clopper_pearson_lower(successes, trials, error)
        high = clopper_pearson_upper(successes, trials, error)
        assert 0 <= low <= successes / trials <= high <= 1
        if successes > 0:
            assert binom.sf(successes - 1, trials, low) == pytest.approx(error, rel=1e-6)
        if successes < trials:
            assert binom.cdf(successes, trials, high) == pytest.approx(error, rel=1e-6)


def test_limits_agree_with_an_independent_implementation():
    interval = binomtest(37, 500).proportion_ci(confidence_level=0.99, method="exact")
    assert clopper_pearson_lower(37, 500, 0.005) == pytest.approx(interval.low, rel=1e-6)
    assert clopper_pearson_upper(37, 500, 0.005) == pytest.approx(interval.high, rel=1e-6)


def test_edges():
    assert clopper_pearson_lower(0, 50, 5e-7) == 0.0
    assert clopper_pearson_upper(50, 50, 5e-7) == 1.0
    # No hit in n runs: (1 - p)^n = error.
    assert clopper_pearson_upper(0, 50, 0.01) == pytest.approx(1 - 0.01 ** (1 / 50))


def test_limits_are_vectorised_and_monotone():
    counts = np.arange(101)
    low = clopper_pearson_lower(counts, 100, 1e-3)
    high = clopper_pearson_upper(counts, 100, 1e-3)
    assert low.shape == high.shape == (101,)
    assert np.all(np.diff(low) > 0)
    assert np.all(np.diff(high)[:-1] > 0)
    np.testing.assert_allclose(low, 1 - high[::-1], atol=1e-12)


@pytest.mark.parametrize("probability", [0.003, 0.2, 0.5])
def test_exact_coverage(probability):
    # No simulation: the chance that a limit is wrong is summed over all counts.
    trials = 200
    error = 0.02
    counts = np.arange(trials + 1)
    weight = binom.pmf(counts, trials, probability)
    assert weight[clopper_pearson_lower(counts, trials, error) > probability].sum() <= error
    assert weight[clopper_pearson_upper(counts, trials, error) < probability].sum() <= error


def test_epsilon_from_probabilities():
    assert epsilon_from_probabilities(0.5, 0.1, 0.1) == pytest.approx(math.log(4))
    assert epsilon_from_probabilities(0.1, 0.5, 0.0) == 0.0
    assert epsilon_from_probabilities(1e-6, 1e-9, 1e-5) == 0.0
    assert epsilon_from_probabilities(0.5, 0.0, 0.0) == math.inf
    assert epsilon_from_probabilities(0.0, 0.0, 0.0) == 0.0


def test_epsilon_lower_bound_is_the_formula():
    low = clopper_pearson_lower(600, 1000, 5e-7)
    high = clopper_pearson_upper(90, 900, 5e-7)
    expected = math.log((low - 1e-3) / high)
    assert epsilon_lower_bound(600, 1000, 90, 900, 1e-3) == pytest.approx(expected, rel=1e-9)
    assert epsilon_lower_bound(100, 1000, 100, 1000, 0.0) == 0.0


def test_a_bound_on_epsilon_is_rarely_wrong():
    # Exact, by enumerating both counts: the truth is log 3 at delta = 0.
    trials = 60
    confidence = 0.95
    counts = np.arange(trials + 1)
    likely = binom.pmf(counts, trials, 0.6)
    rare = binom.pmf(counts, trials, 0.2)
    first, second = np.meshgrid(counts, counts, indexing="ij")
    bound = epsilon_lower_bound(first, trials, second, trials, 0.0, confidence)
    wrong = np.outer(likely, rare)[bound > math.log(3)].sum()
    assert 0 < wrong <= 1 - confidence


def test_parameter_errors():
    with pytest.raises(ValueError, match="'error' parameter of clopper_pearson_lower"):
        clopper_pearson_lower(1, 10, 0.0)
    with pytest.raises(ValueError, match="'successes' parameter of clopper_pearson_upper"):
        clopper_pearson_upper(11, 10, 0.1)
    with pytest.raises(ValueError, match="'trials' parameter"):
        clopper_pearson_upper(0, 0, 0.1)
