"""Slope and intercept of a margin from a histogram by label: right for flat and steep slopes, cautious in noise."""

import numpy as np
import pytest
from scipy.special import expit

from dpconvex.mechanisms.gradient_margins import margin_calibration

EDGES = np.linspace(-3.2, 3.2, 17)


def histogram(slope, intercept, law="normal"):
    """Return exact shares of both labels in every bin, and the share of positives."""
    points = np.linspace(-6, 6, 240_001)
    density = np.exp(-(points**2) / 2) if law == "normal" else np.exp(-np.abs(points - 0.3))
    density /= density.sum()
    chances = expit(intercept + slope * points)
    bins = np.searchsorted(EDGES[1:-1], points)
    counts = [np.bincount(bins, density * label, minlength=16) for label in (1 - chances, chances)]
    return np.array(counts), float(density @ chances)


@pytest.mark.parametrize("law", ["normal", "double exponential"])
@pytest.mark.parametrize("intercept", [0.0, -2.0])
@pytest.mark.parametrize("slope", [0.5, 2.0, 6.0, 12.0])
def test_slopes_are_found_whatever_the_descent_claims(slope, intercept, law):
    counts, share = histogram(slope, intercept, law)
    found = margin_calibration(counts, 1e-6, EDGES, share, claimed=1.0, most=50.0)
    assert found[1] == pytest.approx(slope, rel=0.06)
    assert found[0] == pytest.approx(intercept, abs=0.06 * slope)


def test_noise_that_hides_the_answer_leaves_what_the_descent_claims():
    counts, share = histogram(2.0, 0.0)
    noisy = counts + np.random.default_rng(0).normal(size=counts.shape)
    assert margin_calibration(noisy, 1.0, EDGES, share, 0.7, 3.0)[1] == pytest.approx(0.7, abs=0.05)


def test_no_slope_beyond_the_limit():
    counts, share = histogram(12.0, 0.0)
    assert margin_calibration(counts, 1e-6, EDGES, share, 1.0, 4.0)[1] <= 4.0
