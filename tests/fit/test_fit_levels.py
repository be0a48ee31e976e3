"""Several quantiles in one run: shared geometry, a smooth curve in the level, each as good as
alone.
"""

import numpy as np
import pytest
from scipy.stats import norm

from dpconvex import DPQuantileRegressor
from dpconvex.fit.several_quantiles import smooth_quantile_levels

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def test_a_line_in_the_normal_quantile_is_kept():
    """Rows of one law at different scales: whatever the noise is said to be."""
    slopes = np.outer(norm.ppf(LEVELS), [1.0, 0.3, 0.0]) + np.array([2.0, -1.0, 0.5])
    for variance in (1e-9, 1.0, 1e6):
        found = smooth_quantile_levels(slopes, LEVELS, np.full(5, variance), np.ones(3))
        np.testing.assert_allclose(found, slopes, atol=1e-9)


def test_noise_is_taken_out_and_curves_are_kept():
    rng = np.random.default_rng(0)
    line = np.outer(norm.ppf(LEVELS), [1.0, 0.3, 0.0])
    curve = line + np.outer(norm.ppf(LEVELS) ** 2, [3.0, 0.0, 0.0])
    before = []
    after = []
    for _ in range(200):
        noise = rng.normal(0, 0.3, line.shape)
        found = smooth_quantile_levels(line + noise, LEVELS, np.full(5, 3 * 0.09), np.ones(3))
        before.append(np.square(noise).sum())
        after.append(np.square(found - line).sum())
    assert np.mean(after) < 0.7 * np.mean(before)
    kept = smooth_quantile_levels(curve, LEVELS, np.full(5, 1e-6), np.ones(3))
    np.testing.assert_allclose(kept, curve, atol=1e-3)


@pytest.mark.parametrize("levels", [(0.5,), (0.1, 0.9), (0.5, 0.5)])
def test_one_or_two_levels_are_left_alone(levels):
    found = np.random.default_rng(0).normal(size=(len(levels), 3))
    if len(set(levels)) == len(levels):
        same = smooth_quantile_levels(found, levels, np.ones(len(levels)), np.ones(3))
        np.testing.assert_allclose(same, found, atol=1e-9)
    else:
        assert np.isfinite(smooth_quantile_levels(found, levels, np.ones(2), np.ones(3))).all()


def test_levels_are_found_together():
    """Residuals whose spread grows with a column: every level has its own slope, and its own share
    of rows below.

    Seeded: one fit. Shares below err by 0.01 and less; the limit is three times that.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (20_000, 2))
    y = X @ [2.0, -1.0] + (0.5 + X[:, 0]) * rng.normal(size=20_000)
    model = DPQuantileRegressor(
        LEVELS, epsilon=2.0, feature_bounds=(0, 1), target_bounds=(-6, 8), random_state=0
    ).fit(X, y)
    below = (y[:, None] < model.predict(X)).mean(axis=0)
    assert below == pytest.approx(LEVELS, abs=0.03)
    assert model.coef_[:, 0] == pytest.approx(2 + norm.ppf(LEVELS), abs=0.5)
    assert (np.diff(model.predict(X), axis=1) >= 0).all()
