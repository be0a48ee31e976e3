"""Rates to plan with: the printed formulas written down a second time, limits, and where they
must not be believed.
"""

import math

import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import binom

from dpconvex.losses import Huber, Pinball
from dpconvex.mechanisms import OutputPerturbation
from dpconvex.privacy import LinearBounds, PureDP
from dpconvex.smoothing import GaussianKernel, UniformKernel, convolve
from dpconvex_reproduction.rates import (
    convolution_objective_risk,
    newsvendor_estimation_error,
    newsvendor_regret,
    quantile_estimation_error,
    quantile_risk_floor,
    strongly_convex_risk_floor,
)


def test_regret_has_a_private_and_a_sampling_part():
    n = 10_000
    p = 7
    sampling = math.log(n) * 2.0 * p / (0.5**2 * n)
    assert newsvendor_regret(n, p, 1e9, 0.5, 2.0) == pytest.approx(sampling)
    private = newsvendor_regret(n, p, 0.1, 0.5, 2.0) - sampling
    assert private == pytest.approx(math.log(n) / 2 * ((p + math.log(n)) / (0.1 * n)) ** 2)
    assert newsvendor_regret(n, p, 0.05, 0.5, 2.0) - sampling == pytest.approx(4 * private)


def test_estimation_errors_of_the_newsvendor_have_the_same_parts():
    n = 10_000
    p = 7
    sampling = math.sqrt(math.log(n) * p / n) / 0.5
    assert newsvendor_estimation_error(n, p, 1e12, 0.5) == pytest.approx(sampling)
    private = newsvendor_estimation_error(n, p, 0.1, 0.5, 0.25) - sampling
    assert private == pytest.approx(math.sqrt(math.log(n)) * 0.25 * (p + math.log(n)) / (0.1 * n))


def test_the_floor_of_strongly_convex_means_is_below_what_output_perturbation_does():
    """The expected excess of a quadratic with noise on its minimiser is above the floor, and
    falls as it does.
    """
    d = 5
    epsilon = 1.0
    for n in (100, 1000, 10_000):
        floor = strongly_convex_risk_floor(n, d, epsilon)
        bounds = LinearBounds(n, d, Huber(1.0), 1.0, 1.0, fit_intercept=False, alpha=1.0)
        noise = OutputPerturbation().certify(bounds, PureDP(epsilon)).noise["release"]
        excess = 0.5 * d * (d + 1) * noise.scale**2  # E ||b||^2 of l2-Laplace noise, curvature 1
        assert floor <= excess <= 10 * floor
    assert strongly_convex_risk_floor(2, 5, 1.0, scale=3.0) == 3.0
    ratio = strongly_convex_risk_floor(100, d, 1.0) / strongly_convex_risk_floor(100, d, 1.0, 1e-9)
    assert ratio == pytest.approx(d)


def test_the_floor_is_where_privacy_begins_to_cost():
    n = 10_000
    d = 50
    turn = math.sqrt(d / n) / math.log(d)  # epsilon at which both parts are equal
    assert quantile_risk_floor(n, d, 2 * turn) == 0.5 / math.sqrt(n)
    assert quantile_risk_floor(n, d, turn / 2) == pytest.approx(1 / math.sqrt(n))
    assert quantile_risk_floor(n, 1, 1e-9) == pytest.approx(
        0.5e9 / n
    )  # log 1 does not make it infinite


@pytest.mark.parametrize("level", [0.5, 0.9])
def test_no_rule_beats_the_floor_on_two_laws(level):
    """Targets 0 or B with a chance just above or below the level: the best rule for two laws errs
    by counting.

    Its exact worst excess risk, the best of all thresholds, is above a tenth of the floor and falls
    as the floor does.
    """
    ratios = []
    for n in (100, 400, 1600):
        gap = 0.5 * math.sqrt(level * (1 - level) / n)
        size = 3.0
        # P(target = B): the quantile is B, or 0
        high = 1 - level + gap
        low = 1 - level - gap
        best = min(max(binom.cdf(k, n, high), binom.sf(k, n, low)) for k in range(n))
        floor = quantile_risk_floor(n, 1, 1e9, quantile=level, row_norm=1.0, coef_norm=size)
        ratios.append(gap * size * best / floor)
    assert min(ratios) > 0.1
    assert max(ratios) < 1.3 * min(ratios)


@pytest.mark.parametrize("kernel", [GaussianKernel(), UniformKernel()], ids=["gaussian", "uniform"])
def test_the_smoothing_error_bounds_a_true_one(kernel):
    # y = theta* + noise with density f(e) = f0 + l1 e near 0, so that the smoothed level is off by
    # a known amount.
    n = 1000
    epsilon = 1.0
    delta = 1e-6
    least = 0.4
    slope = 0.3
    error = quantile_estimation_error(
        n, 1, epsilon, delta, least_density=least, density_slope=slope, kernel=kernel
    )
    assert 0 < error.smoothing < error.total
    square = kernel.mean_abs * kernel.peak / (n * epsilon)
    variance = 0.25 * (8 * math.log(2 / delta) + 4 * epsilon) / epsilon**2
    penalty = math.sqrt(square + variance / n**2)
    width = kernel.peak / (penalty * n * epsilon)
    smooth = convolve(Pinball(0.5), kernel, width)
    reach = 0.9

    def tilt(theta):
        # Derivative of the smoothed risk; outside the reach slopes are +-1/2 and cancel but for the
        # masses' difference.
        inner = quad(
            lambda e: -float(smooth.gradient(e, theta)) * (least + slope * e),
            -reach,
            reach,
            points=[theta],
            limit=200,
        )[0]
        masses = [quad(lambda e: least + slope * e, *side)[0] for side in ((-reach, 0), (0, reach))]
        return inner - 0.5 * (masses[1] - masses[0])

    shift = brentq(tilt, -0.05, 0.05, xtol=1e-12)
    assert abs(shift) <= error.smoothing
    assert abs(shift) >= error.smoothing / 4  # the lemma is not far from it here


def test_parts_of_the_estimation_error():
    error = quantile_estimation_error(
        10**6, 5, 1.0, 1e-6, quantile=0.9, row_norm=2.0, coef_norm=3.0
    )
    slope = 1.8
    first = 2 * math.log(2)
    peak = 0.25
    assert error.privacy == pytest.approx(
        slope * 3 / (2 * math.sqrt(first * peak)) * math.sqrt(5 * math.log(1e6) / 1e6)
    )
    assert (
        quantile_estimation_error(100, 5, 0.1, 1e-6, least_density=0.01).smoothing == math.inf
    )  # the bandwidth is too wide
    more = quantile_estimation_error(
        4 * 10**6, 5, 1.0, 1e-6, quantile=0.9, row_norm=2.0, coef_norm=3.0
    )
    assert more.privacy == pytest.approx(error.privacy / 2)


def test_the_risk_of_convolution_and_objective_perturbation():
    rate = 1 / 100 + math.sqrt(10 * math.log(1e6)) / 1e4
    assert convolution_objective_risk(10**4, 10, 1.0, 1e-6, 2.0, 3.0) == pytest.approx(
        48 * math.sqrt(2) * rate
    )
    assert convolution_objective_risk(
        10**4, 10, 1.0, 1e-6, 2.0, 3.0, smoothing_gap=0.1
    ) == pytest.approx(24 * math.sqrt(2) * rate + 0.1)


def test_refusals():
    for call in (
        lambda: newsvendor_regret(1, 5, 1.0),
        lambda: quantile_risk_floor(100, 5, 0.0),
        lambda: quantile_estimation_error(100, 5, 1.0, 0.0),
        lambda: convolution_objective_risk(100, 5, 1.0, 1.0),
    ):
        with pytest.raises(ValueError, match="must be"):
            call()
