"""Slope and intercept of a margin from a histogram by label: right for flat and steep slopes, cautious in noise."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.metrics import log_loss

from dpconvex import DPLinearSVC, DPLogisticRegression
from dpconvex.losses import Hinge, Logistic
from dpconvex.mechanisms.gradient_margins import margin_calibration, penalised_calibration
from dpconvex.smoothing import LogisticKernel, convolve

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


def test_a_descent_that_is_too_modest_is_told_by_the_histogram():
    """What the descent might hope for is how far evidence may move it; without any, labels that nothing tells stay so.

    Means of 400 histograms with noise: slopes of 1.5 come out as 0.46 without the hope and as 1.42 with it, with a
    standard deviation of 0.01 and less; where there is no slope, the root mean square of what is found is 0.08.
    """
    rng, std = np.random.default_rng(0), 0.0072  # as on 32,561 rows at epsilon = 0.1

    def slopes(true, hoped):
        counts, share = histogram(true, -1.5)
        noisy = counts + std * rng.normal(size=(400, *counts.shape))
        return np.array(
            [margin_calibration(c, std, EDGES, share, 0.0, 8.0, hoped)[1] for c in noisy]
        )

    assert slopes(1.5, 0.0).mean() < 0.6
    assert slopes(1.5, 2.0).mean() > 1.25
    assert np.sqrt(np.mean(slopes(0.0, 2.0) ** 2)) < 0.15


def test_many_flags_tell_labels_at_a_small_budget():
    """Six records for each of 100 flags; seeded, so that the same three fits are made whenever it runs.

    Of 20 fits the loss is 0.855 of a constant's in the mean, with a standard deviation of 0.02; 0.908 without the hope.
    """
    rng = np.random.default_rng(7)
    X = (rng.random((24_000, 100)) < rng.uniform(0.02, 0.5, 100)).astype(float)
    margins = X @ rng.normal(0, 0.7, 100)
    y = rng.random(24_000) < expit(2.0 * (margins - margins.mean()) / margins.std() - 1.0)
    X, y, fresh, labels = X[:8000], y[:8000], X[8000:], y[8000:]
    losses = []
    for seed in range(3):
        model = DPLogisticRegression(epsilon=0.3, feature_bounds=(0, 1), random_state=seed)
        losses.append(log_loss(labels, model.fit(X, y).predict_proba(fresh)))
    assert np.mean(losses) < 0.88 * log_loss(labels, np.full(labels.size, y.mean()))


LOSSES = {
    DPLogisticRegression: Logistic(),
    DPLinearSVC: convolve(Hinge(), LogisticKernel(), 0.5),  # as its documentation says
}


def penalised_minimiser(rows, labels, weights, loss, alpha):
    """Return the minimiser of the mean loss plus ``(alpha / 2) ||theta||^2``."""

    def objective(theta):
        z = rows @ theta
        value = weights @ loss.value(labels, z) + alpha / 2 * theta @ theta
        return value, (weights * loss.gradient(labels, z)) @ rows + alpha * theta

    start = np.zeros(rows.shape[1])
    return minimize(objective, start, jac=True, options={"gtol": 1e-9, "maxiter": 1000}).x


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("alpha", [1e-4, 1e-3, 0.01, 0.1])
def test_a_penalty_is_kept(kind, alpha, intercept):
    """Calibration refitted the slope without it: 3.0 times the penalised minimiser at alpha = 0.1.

    Seeded, so that the same fits are made whenever it runs; at epsilon = 100 noise is far below a hundredth.
    """
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20_000, 3))
    y = (rng.random(20_000) < expit(X @ [3.0, -2.0, 1.0] - 1.0)).astype(int)
    rows = np.column_stack([np.ones(len(X)), X]) if intercept else X
    weights = np.full(len(X), 1 / len(X))
    wanted = penalised_minimiser(rows, 2.0 * y - 1, weights, LOSSES[kind], alpha)
    model = kind(
        epsilon=100.0, alpha=alpha, feature_bounds=(-1, 1), fit_intercept=intercept, random_state=0
    ).fit(X, y)
    found = np.concatenate([np.ravel(model.intercept_)[:intercept], np.ravel(model.coef_)])
    assert np.linalg.norm(found - wanted) < 0.02 * np.linalg.norm(wanted)


@pytest.mark.parametrize("loss", LOSSES.values())
@pytest.mark.parametrize("offset", [None, 0.4])
def test_penalised_slopes_of_a_histogram(loss, offset):
    counts, share = histogram(2.0, -1.0)
    points = np.tile(np.linspace(-6, 6, 24_001), 2)
    law = np.exp(-(points**2) / 2)
    labels = np.repeat([-1.0, 1.0], points.size // 2)
    weights = law * expit(labels * (2.0 * points - 1.0))
    rows = np.column_stack([np.ones_like(points), points]) if offset is None else offset + points
    wanted = penalised_minimiser(
        rows.reshape(points.size, -1), labels, weights / weights.sum(), loss, 0.05
    )
    # Without an intercept of its own it is 0.4 of the slope.
    penalty = 0.05 * (np.eye(2) if offset is None else np.diag([0.0, 1.0]))
    found = penalised_calibration(counts, 1e-6, EDGES, share, loss, offset, penalty, 1.0, 50.0)
    full = wanted if offset is None else np.array([offset * wanted[0], wanted[0]])
    assert found == pytest.approx(full, rel=0.03, abs=0.02)
