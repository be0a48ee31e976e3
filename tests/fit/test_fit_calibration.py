"""Slope and intercept of a margin from a histogram by label: right for flat and steep slopes,
cautious in noise.
"""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.metrics import log_loss

from dpconvex import DPLinearSVC, DPLogisticRegression
from dpconvex.fit.margin_calibration import (
    calibrate_margin,
    calibrated_intercept,
    calibrated_label_share,
    margin_edges,
    margin_moments,
)
from dpconvex.losses import Hinge, Logistic
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


def calibrated(counts, std, share, claimed, loss=None, intercept=True, penalty=None):
    penalty = np.zeros((2, 2)) if penalty is None else penalty
    return calibrate_margin(
        counts, std, EDGES, share, loss or Logistic(), intercept, penalty, claimed
    )


@pytest.mark.parametrize("law", ["normal", "double exponential"])
@pytest.mark.parametrize("intercept", [0.0, -2.0])
@pytest.mark.parametrize("slope", [0.5, 2.0, 6.0])
def test_slopes_are_found_whatever_the_rounds_claim(slope, intercept, law):
    counts, share = histogram(slope, intercept, law)
    for claimed in ((0.0, 1.0), (intercept, 0.3 * slope)):
        found = calibrated(counts, 1e-6, share, claimed)
        assert found[1] == pytest.approx(slope, rel=0.1)
        assert found[0] == pytest.approx(intercept, abs=0.1 * slope)
        assert found[2] > 0


def test_noise_that_hides_the_answer_leaves_what_the_rounds_claim():
    counts, share = histogram(2.0, 0.0)
    for seed in range(20):
        noisy = counts + np.random.default_rng(seed).normal(size=counts.shape)
        intercept, slope, bend = calibrated(noisy, 1.0, share, (0.1, 0.7))
        assert slope == pytest.approx(0.7, abs=0.15)
        assert intercept == pytest.approx(0.1, abs=0.15)
        assert np.isfinite(bend)


@pytest.mark.parametrize("std", [0.0, 1e-9, 1.0, 1e150])
def test_any_noise_gives_numbers(std):
    rng = np.random.default_rng(0)
    for claimed in ((0.0, 0.0), (6.0, 1e-9), (-3.0, 40.0)):
        counts = np.clip(std * rng.normal(size=(2, 16)), -1e100, 1e100)
        found = calibrated(counts, std, 0.01, claimed)
        assert np.isfinite(found).all()
        assert found[1] >= 0


@pytest.mark.parametrize("spread", [0.0, 0.5, 5.0])
@pytest.mark.parametrize("share", [0.001, 0.3, 0.98])
def test_intercepts_give_their_share(share, spread):
    points = np.random.default_rng(0).normal(size=200_000)
    intercept = calibrated_intercept(share, spread)
    assert expit(intercept + spread * points).mean() == pytest.approx(share, rel=0.1)


@pytest.mark.parametrize("loss", [Logistic(), convolve(Hinge(), LogisticKernel(), 0.25)])
def test_curvatures_of_normal_margins_are_positive_definite(loss):
    """And right where nothing is clipped: means over normal margins with the labels that they
    say.
    """
    for middle in (-6.0, 0.0, 2.0):
        for spread in (0.0, 1.0, 30.0):
            height, tilt, along = margin_moments(loss, middle, spread, 0.5)
            assert height > 0 < along
            assert tilt**2 < height * along
    z = 0.5 + 0.7 * np.random.default_rng(0).normal(size=400_000)
    bends = sum(
        expit(label * z) * loss.curvature(np.full_like(z, label), z) for label in (-1.0, 1.0)
    )
    assert margin_moments(loss, 0.5, 0.7, 10.0)[0] == pytest.approx(bends.mean(), rel=0.02)


def test_edges_are_finer_where_margin_and_intercept_cancel():
    for intercept, spread in ((0.0, 1.0), (-3.0, 2.0), (50.0, 1e-9), (1e3, 1e3)):
        edges = margin_edges(intercept, spread)
        assert np.isfinite(edges).all()
        assert (np.diff(edges) > 0).all()
    widths = np.diff(margin_edges(-3.0, 3.0))
    assert widths.argmin() in (7, 8)
    assert widths.max() > 2 * widths.min()


def test_many_flags_tell_labels_at_a_small_budget():
    """Six records for each of 100 flags; seeded, so that the same three fits are made whenever it
    runs.

    Of 20 fits the loss is 0.89 of a constant's in the mean, with a standard deviation of 0.026.
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
    assert np.mean(losses) < 0.95 * log_loss(labels, np.full(labels.size, y.mean()))


LOSSES = {
    DPLogisticRegression: Logistic(),
    DPLinearSVC: convolve(
        Hinge(), LogisticKernel(), 0.05
    ),  # what late rounds have is as good as the hinge
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

    Seeded, so that the same fits are made whenever it runs; at epsilon = 100 noise is far below a
    hundredth.
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
@pytest.mark.parametrize("intercept", [True, False])
def test_penalised_slopes_of_a_histogram(loss, intercept):
    counts, share = histogram(2.0, -1.0 if intercept else 0.0)
    points = np.tile(np.linspace(-6, 6, 24_001), 2)
    law = np.exp(-(points**2) / 2)
    labels = np.repeat([-1.0, 1.0], points.size // 2)
    weights = law * expit(labels * (2.0 * points - (1.0 if intercept else 0.0)))
    rows = np.column_stack([np.ones_like(points), points])[:, 0 if intercept else 1 :]
    wanted = penalised_minimiser(rows, labels, weights / weights.sum(), loss, 0.05)
    penalty = 0.05 * np.eye(2)
    found = calibrated(counts, 1e-6, share, (0.0, 1.0), loss, intercept, penalty)[:2]
    full = wanted if intercept else np.r_[0.0, wanted]
    assert found == pytest.approx(full, rel=0.04, abs=0.03)


# A share from a noisy count: what is to be expected of it, never 0 or 1.


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.99])
def test_without_noise_it_is_the_share(share):
    assert calibrated_label_share(share, 1e-9, 10_000) == pytest.approx(share, abs=1e-6)


@pytest.mark.parametrize("std", [1e-12, 1e-3, 0.05, 1.0, 1e250])
@pytest.mark.parametrize("noisy", [-5.0, 0.0, 1.0, 7.0, -1e250])
def test_it_is_never_certain(noisy, std):
    assert 0.5 / 100 <= calibrated_label_share(noisy, std, 100) <= 1 - 0.5 / 100


def test_drowned_it_says_half():
    assert calibrated_label_share(0.3, 1e9, 100) == pytest.approx(0.5, abs=1e-6)


def test_it_moves_without_jumps():
    """Neighbouring noise levels and counts give neighbouring shares, also where the grid ends."""
    for std in np.geomspace(1e-5, 1, 40):
        one, other = (calibrated_label_share(0.02, s, 10**6) for s in (std, 1.05 * std))
        assert abs(one - other) < 0.15 * std + 1e-6


def test_noise_costs_less_than_clipping_does():
    rng = np.random.default_rng(0)
    share = 0.05
    std = 0.05
    n = 500

    def loss(p):
        return float(np.mean(-share * np.log(p) - (1 - share) * np.log(1 - p)))

    noisy = share + std * rng.standard_normal(500)
    mine = np.array([calibrated_label_share(value, std, n) for value in noisy])
    assert loss(mine) < loss(np.clip(noisy, 1 / n, 1 - 1 / n)) - 0.01


@pytest.mark.parametrize(("n", "std"), [(500, 0.07), (6000, 0.006), (20_000, 4e-4)])
def test_labels_that_are_all_the_same_are_believed(n, std):
    """Where the share is 0 the loss is hardly more than by clipping, which says 1 / n half of
    the time.
    """
    noisy = std * np.random.default_rng(1).standard_normal(500)
    mine = np.array([calibrated_label_share(value, std, n) for value in noisy])
    assert np.log1p(-mine).sum() > 1.2 * np.log1p(-np.clip(noisy, 1 / n, 1)).sum()
