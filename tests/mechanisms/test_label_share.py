"""A share from a noisy count: what is to be expected of it, never 0 or 1."""

import numpy as np
import pytest

from dpconvex.mechanisms.gradient_margins import expected_label_share


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.99])
def test_without_noise_it_is_the_share(share):
    assert expected_label_share(share, 1e-9, 10_000) == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize("std", [1e-12, 1e-3, 0.05, 1.0, 1e250])
@pytest.mark.parametrize("noisy", [-5.0, 0.0, 1.0, 7.0, -1e250])
def test_it_is_never_certain(noisy, std):
    assert 0.5 / 100 <= expected_label_share(noisy, std, 100) <= 1 - 0.5 / 100


def test_drowned_it_says_half():
    assert expected_label_share(0.3, 1e9, 100) == pytest.approx(0.5, abs=1e-6)


def test_it_moves_without_jumps():
    """Neighbouring noise levels and counts give neighbouring shares, also where the grid ends."""
    for std in np.geomspace(1e-5, 1, 40):
        one, other = (expected_label_share(0.02, s, 10**6) for s in (std, 1.05 * std))
        assert abs(one - other) < 0.15 * std + 1e-6


def test_noise_costs_less_than_clipping_does():
    rng = np.random.default_rng(0)
    share, std, n = 0.05, 0.05, 500

    def loss(p):
        return float(np.mean(-share * np.log(p) - (1 - share) * np.log(1 - p)))

    noisy = share + std * rng.standard_normal(500)
    mine = np.array([expected_label_share(value, std, n) for value in noisy])
    assert loss(mine) < loss(np.clip(noisy, 1 / n, 1 - 1 / n)) - 0.01


@pytest.mark.parametrize(("n", "std"), [(500, 0.07), (6000, 0.006), (20_000, 4e-4)])
def test_labels_that_are_all_the_same_are_believed(n, std):
    """Where the share is 0 the loss is hardly more than by clipping, which says 1 / n half of the time."""
    noisy = std * np.random.default_rng(1).standard_normal(500)
    mine = np.array([expected_label_share(value, std, n) for value in noisy])
    assert np.log1p(-mine).sum() > 1.2 * np.log1p(-np.clip(noisy, 1 / n, 1)).sum()
