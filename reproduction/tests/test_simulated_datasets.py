"""The simulated data sets' best coefficients are the best, and their risk is the mean loss."""

import numpy as np
import pytest
from scipy.optimize import minimize

from dpconvex_reproduction.datasets import simulated

pytestmark = pytest.mark.slow

PINBALL = [
    (simulated.make_quantile_regression, {"d": 3, "error": "exogenous"}),
    (simulated.make_quantile_regression, {"d": 3, "error": "endogenous"}),
    (simulated.make_quantile_regression, {"d": 51, "error": "exogenous"}),
    (simulated.make_quantile_regression, {"d": 51, "error": "endogenous"}),
    (simulated.make_quantile_regression, {"d": 3, "error": "endogenous", "quantile": 0.2}),
]
STRUCTURED = [
    (simulated.make_structured_median, {}),
    (simulated.make_structured_median, {"d": 20}),
    (simulated.make_structured_median, {"fixed": True}),
    (simulated.make_piecewise_linear, {}),
    (
        simulated.make_piecewise_linear,
        {"d": 10, "slopes": [[1, 2, 0], [-1, -2, 0], [0, 0, 0]], "offsets": [0.5, 0.5, 1]},
    ),
]


def per_record_loss(sample, theta):
    """The loss of every record, straight from its definition."""
    theta = np.asarray(theta)
    if sample.X.ndim == 2:
        u = sample.y - theta[0] - sample.X @ theta[1:]
        return np.maximum(sample.population.quantile * u, (sample.population.quantile - 1) * u)
    residual = sample.y - sample.X @ theta
    if hasattr(sample.population, "slopes"):
        slopes = np.array(sample.population.slopes)
        offsets = np.array(sample.population.offsets)
        return (residual @ slopes.T + offsets).max(axis=1)
    return np.abs(residual).sum(axis=1)


@pytest.mark.parametrize(("make", "options"), PINBALL + STRUCTURED)
def test_the_risk_is_the_mean_loss_of_a_large_sample(make, options):
    """Six standard errors: a false alarm has probability 2e-9; catches an error of about 1 %."""
    sample = make(100_000, rng=0, **options)
    star = sample.theta_star
    for theta in (star, star + np.random.default_rng(1).normal(size=len(star)) * 0.5):
        losses = per_record_loss(sample, theta)
        error = losses.std() / np.sqrt(len(losses))
        assert abs(losses.mean() - sample.risk(theta)) <= 6 * error + 1e-4
        assert error < 0.01 * losses.mean()


@pytest.mark.parametrize(("make", "options"), PINBALL + STRUCTURED)
def test_theta_star_has_no_slope_and_nothing_is_better(make, options):
    sample = make(10, rng=0, **options)
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


@pytest.mark.parametrize(("make", "options"), PINBALL[:3])
def test_theta_star_agrees_with_a_numerical_minimum(make, options):
    sample = make(10, rng=0, **options)
    found = minimize(sample.risk, np.zeros(len(sample.theta_star)), method="BFGS")
    assert found.x == pytest.approx(sample.theta_star, abs=2e-3)


def test_quantile_features_follow_the_study():
    sample = simulated.make_quantile_regression(50_000, rng=3)
    assert np.linalg.norm(sample.X, axis=1).max() <= 10
    assert sample.X.std(axis=0) == pytest.approx([2.0, 3.0], rel=0.05)
    wide = simulated.make_quantile_regression(20_000, 51, rng=3)
    assert wide.X.shape == (20_000, 50)
    assert wide.X.var(axis=0).mean() == pytest.approx(50**-0.5, rel=0.02)
    assert wide.theta_star[[1, 50]] == pytest.approx([-2 + 7 / 50, 5])
    assert wide.theta_star[0] == pytest.approx(10 - 2 + 1.5732, abs=1e-4)


def test_structured_records_follow_the_study():
    sample = simulated.make_structured_median(50_000, 10, rng=5)
    mean = [[1, 0.5, 0, 0, 1], [0.5, 0.5, 0, 0, 1], [0, 0, -0.5, 0, 1]]
    assert sample.X.mean(axis=0) == pytest.approx(np.tile(mean, 2), abs=0.04)
    assert sample.X.std(axis=0) == pytest.approx(np.ones((3, 10)), abs=0.03)
    fixed = simulated.make_structured_median(10, rng=5, fixed=True)
    assert fixed.X[3] @ fixed.theta_star == pytest.approx([1.25, 1.0, 0.5])


@pytest.mark.parametrize(
    ("make", "arguments", "name"),
    [
        (simulated.make_quantile_regression, {"n": 0}, "n"),
        (simulated.make_quantile_regression, {"n": 5, "d": 2}, "d"),
        (simulated.make_quantile_regression, {"n": 5, "error": "t3"}, "error"),
        (simulated.make_quantile_regression, {"n": 5, "quantile": 1.0}, "quantile"),
        (simulated.make_structured_median, {"n": 5, "d": 7}, "d"),
        (simulated.make_piecewise_linear, {"n": 5, "slopes": [[1, 0, 0]]}, "slopes"),
        (simulated.make_piecewise_linear, {"n": 5, "slopes": [1, 0, 0]}, "slopes"),
        (simulated.make_piecewise_linear, {"n": 5, "offsets": [1.0]}, "offsets"),
    ],
)
def test_wrong_arguments_are_explained(make, arguments, name):
    with pytest.raises(ValueError, match=f"The '{name}' parameter of {make.__name__} must"):
        make(**arguments)


def test_risk_checks_the_number_of_coefficients():
    with pytest.raises(ValueError, match="'theta' parameter of risk"):
        simulated.make_structured_median(5, rng=0).risk(np.zeros(4))
