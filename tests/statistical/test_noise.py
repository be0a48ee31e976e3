"""The law of the noise.

False-alarm rates: every Kolmogorov-Smirnov test below rejects at p < 1e-7; with fewer than ten of
them the file fails by chance less than once in a million runs. Power: the last test shows that
noise 2 % too small is caught.
"""

import numpy as np
import pytest
from scipy import stats

from dpconvex.core.calibration import GRID_BITS
from dpconvex.core.noise_source import NoiseSource

LEVEL = 1e-7


def test_exact_gaussian_follows_the_normal_law():
    draws = NoiseSource().add_gaussian(np.full(20_000, 3.0), 0.7) - 3.0
    assert stats.kstest(draws, "norm", args=(0, 0.7)).pvalue > LEVEL


def test_exact_gaussian_lies_on_its_grid():
    draws = NoiseSource().add_gaussian(np.full(50, 1 / 3), 1.0)
    assert np.all(draws * 2.0**GRID_BITS == np.round(draws * 2.0**GRID_BITS))


@pytest.mark.parametrize("std", [1e-12, 1.0, 1e9])
def test_exact_gaussian_works_at_every_scale(std):
    draws = NoiseSource().add_gaussian(np.zeros(4000), std)
    assert stats.kstest(draws / std, "norm").pvalue > LEVEL


def test_drawn_gaussian_follows_the_normal_law():
    draws = NoiseSource().gaussian(2.0, 400_000)
    assert stats.kstest(draws, "norm", args=(0, 2.0)).pvalue > LEVEL


@pytest.mark.parametrize("size", [1, 5])
def test_l2_laplace_norm_and_direction(size):
    source = NoiseSource()
    draws = np.array([source.l2_laplace(1.5, size) for _ in range(20_000)])
    norms = np.linalg.norm(draws, axis=1)
    assert stats.kstest(norms, "gamma", args=(size, 0, 1.5)).pvalue > LEVEL
    first = draws[:, 0] / norms
    # One coordinate of a uniform direction: (1 + t) / 2 follows Beta((d-1)/2, (d-1)/2); a fair sign
    # for d = 1.
    if size == 1:
        assert stats.binomtest(int((first > 0).sum()), len(first)).pvalue > LEVEL
    else:
        half = (size - 1) / 2
        assert stats.kstest((1 + first) / 2, "beta", args=(half, half)).pvalue > LEVEL


def test_unseeded_sources_differ_and_seeded_ones_repeat():
    assert not np.array_equal(NoiseSource().gaussian(1.0, 5), NoiseSource().gaussian(1.0, 5))
    assert np.array_equal(NoiseSource(7).gaussian(1.0, 5), NoiseSource(7).gaussian(1.0, 5))
    assert NoiseSource(7).seeded
    assert not NoiseSource().seeded


def test_two_percent_less_noise_would_be_caught():
    draws = 0.98 * NoiseSource(1).gaussian(2.0, 400_000)
    assert stats.kstest(draws, "norm", args=(0, 2.0)).pvalue < LEVEL
