"""The newsvendor generator's best coefficients are the best, and its risk is the mean loss."""

import pickle

import numpy as np
import pytest
from scipy.optimize import minimize

from dpconvex.datasets import make_newsvendor

OPTIONS = [
    {"error": "normal", "quantile": 0.25},
    {"error": "t3", "quantile": 0.75},
    {"error": "mixture", "quantile": 0.75},
    {"error": "t3", "p": 9},
]


@pytest.mark.parametrize("options", OPTIONS)
def test_the_risk_is_the_mean_loss_of_a_large_sample(options):
    """Six standard errors: a false alarm has probability 2e-9; catches an error of about 1 %."""
    sample = make_newsvendor(100_000, rng=0, **options)
    star = sample.theta_star
    quantile = sample.population.quantile
    for theta in (star, star + np.random.default_rng(1).normal(size=len(star)) * 0.5):
        residuals = sample.y - theta[0] - sample.X @ theta[1:]
        losses = np.maximum(quantile * residuals, (quantile - 1) * residuals)
        error = losses.std() / np.sqrt(len(losses))
        assert abs(losses.mean() - sample.risk(theta)) <= 6 * error + 1e-4
        assert error < 0.01 * losses.mean()


@pytest.mark.parametrize("options", OPTIONS)
def test_theta_star_has_no_slope_and_nothing_is_better(options):
    sample = make_newsvendor(10, rng=0, **options)
    star = sample.theta_star
    step = 1e-4
    slopes = [
        (sample.risk(star + step * e) - sample.risk(star - step * e)) / (2 * step)
        for e in np.eye(len(star))
    ]
    assert np.abs(slopes).max() < 2e-6
    rng = np.random.default_rng(2)
    for scale in (0.01, 0.1, 1.0):
        assert sample.excess_risk(star + scale * rng.normal(size=len(star))) > 0
    assert sample.excess_risk(star) == 0
    assert sample.relative_excess_risk(star + 0.1) == pytest.approx(
        sample.excess_risk(star + 0.1) / sample.risk(star)
    )


@pytest.mark.parametrize("options", OPTIONS[1:3])
def test_theta_star_agrees_with_a_numerical_minimum(options):
    sample = make_newsvendor(10, rng=0, **options)
    found = minimize(sample.risk, np.zeros(len(sample.theta_star)), method="BFGS")
    assert found.x == pytest.approx(sample.theta_star, abs=2e-3)


def test_newsvendor_features_follow_the_study():
    sample = make_newsvendor(100_000, rng=4, quantile=0.75)
    assert np.cov(sample.X.T) == pytest.approx(
        0.5 ** np.abs(np.subtract.outer(range(4), range(4))), abs=0.03
    )
    assert sample.theta_star == pytest.approx([1.5 + 0.67449, 1, -2.5, -1.5, 3], abs=1e-5)


def test_samples_repeat_with_the_seed_and_survive_pickling():
    one = make_newsvendor(20, rng=6)
    two = make_newsvendor(20, rng=np.random.default_rng(6))
    assert np.array_equal(one.X, two.X)
    assert np.array_equal(one.y, two.y)
    again = pickle.loads(pickle.dumps(one))
    assert again.risk(np.zeros(5)) == one.risk(np.zeros(5))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [({"n": 5.5}, "n"), ({"n": 5, "p": 1}, "p"), ({"n": 5, "error": "exogenous"}, "error")],
)
def test_wrong_arguments_are_explained(arguments, name):
    with pytest.raises(ValueError, match=f"The '{name}' parameter of make_newsvendor must"):
        make_newsvendor(**arguments)


def test_risk_checks_the_number_of_coefficients():
    with pytest.raises(ValueError, match="'theta' parameter of risk"):
        make_newsvendor(5, rng=0).risk(np.zeros(4))
