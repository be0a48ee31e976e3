"""A private quantile and scale from noisy counts: near the truth, never outside of what is possible."""

import math

import numpy as np
import pytest
from handles import CountedNumbers
from scipy import stats

from dpconvex.core.release import Statistic
from dpconvex.mechanisms.quantile_location import Belief, private_location
from dpconvex.mechanisms.quantile_search import Walk, private_quantile

TARGET = Statistic("target")

LAWS = {
    "normal": stats.norm(3.0, 0.02),
    "skew": stats.gamma(1.5),
    "heavy tails": stats.t(2.0, 5.0, 0.5),
    "far in a wide range": stats.norm(-900.0, 0.5),
}


def search(values, level, std, seed=0, steps=20):
    belief = Belief(-1000.0, 1000.0, 2000 * 2.0**-18, 500.0)
    rows = CountedNumbers(values, std, seed)
    return private_location(rows, "counts", TARGET, level, belief, steps, len(values))


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("law", LAWS)
def test_it_finds_quantile_and_density(law, level):
    values = LAWS[law].ppf((np.arange(4000) + 0.5) / 4000)
    truth = LAWS[law].ppf(level)
    scale = level * (1 - level) / LAWS[law].pdf(truth)
    point, found = search(values, level, 1e-3)
    assert abs(point - truth) < 0.25 * scale
    assert 0.3 < found / scale < 3


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_noise_costs_little(level):
    """Counts with a noise of a tenth of the records each: the share below what is found is right on the whole."""
    values = LAWS["normal"].ppf((np.arange(1000) + 0.5) / 1000)
    found = [LAWS["normal"].cdf(search(values, level, 100.0, seed)[0]) for seed in range(20)]
    # Shares within 0.1 of the level at least 16 times in 20: more than 19 out of 20 are in longer trials.
    assert np.sum(np.abs(np.array(found) - level) < 0.1) >= 16


@pytest.mark.parametrize("std", [1e5, 1e280])
def test_drowned_it_stays_within_the_bracket(std):
    for seed in range(5):
        point, scale = search(np.full(100, 7.0), 0.9, std, seed)
        assert -1000 <= point <= 1000
        assert 0 < scale <= 500 * (1 + 1e-9)


def test_one_value_is_found():
    point, scale = search(np.full(5000, 7.0), 0.5, 1.0)
    assert abs(point - 7) < 2
    assert math.isfinite(scale)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_it_leaves_its_bracket_where_most_values_are_the_same(level, sign):
    """Three in four are 0, so that their middle half has no width; the others are hundreds away."""
    values = sign * np.concatenate(
        [np.zeros(3000), stats.expon(0, 500).ppf((np.arange(1000) + 0.5) / 1000)]
    )
    far = {"above" if sign > 0 else "below": 1e5}
    belief = Belief(min(-1.0, 3 * sign), max(1.0, 3 * sign), 1e-3, 1.0, **far)
    wanted = level if sign > 0 else 1 - level
    rows = CountedNumbers(values, 5.0)
    point, scale = private_location(rows, "counts", TARGET, wanted, belief, 20, 4000)
    assert abs(np.mean(sign * values < sign * point) - level) < 0.02
    assert 100 < scale < 2000


@pytest.mark.parametrize("wrong", [0.8, 1.25])
@pytest.mark.parametrize("level", [0.1, 0.5, 0.9])
def test_a_wrong_number_of_records_moves_no_centred_search(level, wrong):
    """Ignored rows leave a number that is known with noise only: a plain search for 0.9 finds 0.72, or the end."""
    law = LAWS["normal"]
    values = law.ppf((np.arange(4000) + 0.5) / 4000)
    belief = Belief(-1000.0, 1000.0, 2000 * 2.0**-18, 500.0)
    walk = Walk(level, 3.0, 0.1, 1.0, 40, 0.9)
    found = {}
    for ignored in (True, False):
        rows = CountedNumbers(values, 1.0, ignored=ignored)
        located = private_location(rows, "counts", TARGET, level, belief, 20, 4000 * wrong)[0]
        walked = private_quantile(rows, "counts", TARGET, walk, 4000 * wrong)
        found[ignored] = law.cdf([located, walked])
    assert found[True] == pytest.approx(level, abs=0.03)
    assert (np.abs(found[False] - level) > 0.015).all()
