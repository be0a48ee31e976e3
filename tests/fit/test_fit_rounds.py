"""Whole runs: they tend to the fit without privacy as records grow, and to a constant as they go.

Seeds are fixed: the same fits are made whenever it runs.
"""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from dpconvex.engine import MemoryRows, RowMap
from dpconvex.fit.joint_margins import simulated_margins
from dpconvex.losses import Hinge, Huber, Logistic, Pinball, Squared
from dpconvex.mechanisms import NoisyGradientDescent
from dpconvex.objectives import EmpiricalObjective
from dpconvex.privacy import GaussianDP, LinearBounds
from dpconvex.smoothing import LogisticKernel, convolve

LOSSES = {
    "median": Pinball(0.5),
    "high quantile": Pinball(0.9),
    "Huber": Huber(0.2),
    "squares": Squared(),
    "logistic": Logistic(),
    "hinge": Hinge(),
}


def table(loss, n, seed=0):
    """Correlated rows off the centre of their bounds, with a flag."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))
    X = np.column_stack([0.2 + 0.1 * z[:, 0], 0.08 * z[:, 0] + 0.05 * z[:, 1], rng.random(n) < 0.2])
    line = 0.1 + 0.2 * z[:, 0] - 0.1 * z[:, 1] + 0.2 * X[:, 2]
    if loss.kind == "margin":
        return X, np.where(rng.random(n) < expit(6 * line - 1), 1.0, -1.0)
    return X, line + 0.2 * rng.normal(size=n)


def fitted(loss, X, y, mu, seed=0, intercept=True, **parameters):
    n, d = X.shape
    row_map = RowMap.from_bounds(d, (-1.0, 1.0), fit_intercept=intercept)
    bounds = LinearBounds(n, d, loss, row_map.row_norm, row_map.max_norm, intercept)
    certificate = NoisyGradientDescent().certify(bounds, GaussianDP(mu), parameters)
    objective = EmpiricalObjective(MemoryRows(X, y, row_map, threads=1), loss, 0.0)
    released = {}
    found = NoisyGradientDescent().release(objective, certificate, seed, released)
    assert np.isfinite(found).all()
    return found, released


def risk(loss, theta, X, y):
    z = theta[0] + X @ theta[1:] if theta.size > X.shape[1] else X @ theta
    return float(np.mean(loss.value(y, z)))


def best_risk(loss, X, y, intercept=True):
    rows = np.column_stack([np.ones(len(y)), X]) if intercept else X
    smooth = convolve(loss, LogisticKernel(), 0.003) if math.isinf(loss.smoothness) else loss

    def value(theta):
        z = rows @ theta
        return np.mean(smooth.value(y, z)), smooth.gradient(y, z) @ rows / len(y)

    found = minimize(value, np.zeros(rows.shape[1]), jac=True, options={"maxiter": 2000}).x
    return risk(loss, found, X, y)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", LOSSES)
def test_runs_tend_to_the_fit_without_privacy(name, intercept):
    """Excess over the best risk, relative to it: below a percent without noise, and no worse
    with more budget.
    """
    loss = LOSSES[name]
    X, y = table(loss, 8000)
    least = best_risk(loss, X, y, intercept)
    excess = [
        risk(loss, fitted(loss, X, y, mu, intercept=intercept)[0], X, y) / least - 1
        for mu in (1.0, 30.0, 1e4)
    ]
    assert excess[2] < 0.01
    assert excess[1] < 0.02
    assert excess[0] < 0.25


@pytest.mark.parametrize("name", LOSSES)
def test_a_handful_of_records_gives_a_constant_near_the_best(name):
    """Forty rows at mu = 0.3: noise of 12 fits stays within what the worst constants of the
    range would cost.
    """
    loss = LOSSES[name]
    X, y = table(loss, 40)
    losses = [risk(loss, fitted(loss, X, y, 0.3, seed)[0], X, y) for seed in range(12)]
    worst = max(np.mean(loss.value(y, np.full(40, end))) for end in (-1.0, 1.0))
    assert np.median(losses) < worst


@pytest.mark.parametrize("name", LOSSES)
def test_intervals_are_of_the_same_size_as_errors(name):
    """12 fits of 4 coefficients: squared errors over their variances have the mean 1, give or take
    0.2 in the mean.

    Curvature that is not known widens them, so that they may be smaller.
    """
    loss = LOSSES[name]
    ratios = []
    large = table(loss, 200_000, seed=99)
    truth = fitted(loss, *large, 1e4)[0]
    for seed in range(12):
        X, y = table(loss, 6000, seed)
        found, released = fitted(loss, X, y, 3.0, seed, inference=True)
        covariance = released["covariance"]
        assert np.linalg.eigvalsh(covariance).min() > 0
        ratios.append((found - truth) ** 2 / np.diag(covariance))
    assert 0.1 < np.mean(ratios) < 2.2


def test_the_mean_of_a_margin_is_that_of_the_labels():
    """Rare labels: probabilities of a calibrated fit have the mean that labels have."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (20_000, 3))
    y = np.where(rng.random(20_000) < expit(X @ [1.5, -1.0, 0.5] - 3.5), 1.0, -1.0)
    found, released = fitted(Logistic(), X, y, 1.0)
    chances = expit(found[0] + X @ found[1:])
    assert chances.mean() == pytest.approx(np.mean(y > 0), rel=0.15)
    assert released["positive_share"] == pytest.approx(np.mean(y > 0), rel=0.1)


def test_a_ranking_gives_no_column_up():
    """Any direction ranks better than none: where a fit of the same few records is a constant, a
    ranking is not.
    """
    X, y = table(Logistic(), 5000)
    settings = {**NoisyGradientDescent().settings(), "ranking": True}
    found, _ = fitted(Logistic(), X, y, 3.0, gradient=settings)
    ranks = np.argsort(np.argsort(X @ found[1:]))
    area = (ranks[y > 0].mean() - ranks[y < 0].mean()) / 5000 + 0.5
    assert area > 0.7
    X = X[:30]
    y = y[:30]
    plain, ranked = (
        [fitted(Logistic(), X, y, 0.1, seed, gradient=way)[1]["kept_share"] for seed in range(8)]
        for way in (NoisyGradientDescent().settings(), settings)
    )
    assert np.median(plain) < np.median(ranked)


@pytest.mark.parametrize("columns", [2, 4, 30])
def test_the_model_of_several_margins_does_not_follow_rounding(columns):
    """Last digits of coefficients choose no directions and no signs: a fit in partitions is that
    in memory.
    """
    rng = np.random.default_rng(columns)
    classes = 4
    fit = SimpleNamespace(
        lead=1,
        separate=True,
        margins=classes,
        moments=rng.uniform(0.5, 2.0, columns),
        columns=np.ones((classes - 1, classes)),
        frame=SimpleNamespace(constant=1.0, median_row_norm=2.0),
    )
    coefficients = rng.standard_normal((classes, 1 + columns))
    coefficients -= coefficients.mean(axis=0)
    expected, _, directions, norms = simulated_margins(fit, coefficients)
    assert directions.shape[1] == min(classes - 1, columns)
    for _ in range(20):
        nearly = coefficients * (1 + 1e-13 * rng.standard_normal(coefficients.shape))
        z, _, _, found = simulated_margins(fit, nearly)
        np.testing.assert_allclose(z, expected, atol=1e-10)
        np.testing.assert_allclose(found, norms, atol=1e-10)
