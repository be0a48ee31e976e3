"""Profiles against mpmath, quadrature and Monte Carlo."""

import math

import mpmath
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi, norm

from dpconvex.core.calibration import gaussian_delta
from dpconvex.privacy.objective_perturbation_calibration import (
    chi_objective_delta,
    glm_add_remove_objective_delta,
    glm_replace_objective_delta,
    renyi_objective_curve,
    renyi_objective_delta,
    structured_objective_delta,
    two_sided_objective_delta,
)


def exact_gaussian(epsilon, mu):
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)
        m = mpmath.mpf(mu)
        return float(mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m))


@pytest.mark.parametrize("epsilon", [-2.0, 0.0, 1e-3, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("mu", [1e-3, 0.02, 0.1, 0.7, 3.0, 20.0])
def test_gaussian_delta_has_nine_digits(epsilon, mu):
    exact = exact_gaussian(epsilon, mu)
    if exact > 1e-300:
        assert gaussian_delta(epsilon, mu) == pytest.approx(exact, rel=1e-9)
    else:
        assert gaussian_delta(epsilon, mu) < 1e-290


def test_gaussian_delta_at_the_ends():
    assert gaussian_delta(1.0, 0.0) == 0.0
    assert gaussian_delta(-1.0, 0.0) == pytest.approx(1 - math.exp(-1))
    assert gaussian_delta(1.0, math.inf) == 1.0
    with pytest.raises(ValueError, match="'mu'"):
        gaussian_delta(1.0, -1.0)


@pytest.mark.parametrize(
    ("epsilon", "ratio"), [(1.0, 0.3), (1.0, 1.4), (0.1, 0.9), (0.0, 0.5), (-0.5, 0.4), (3.0, 2.6)]
)
def test_two_sided_delta_against_quadrature(epsilon, ratio):
    def integrand(u):
        return 2 * norm.pdf(u) * max(0.0, -math.expm1(min(0.0, epsilon - ratio * u - ratio**2 / 2)))

    kink = max(0.0, (epsilon - ratio**2 / 2) / ratio)
    value, _ = quad(integrand, kink, kink + 14, epsabs=1e-15)
    assert two_sided_objective_delta(epsilon, ratio) == pytest.approx(value, rel=1e-8)


@pytest.mark.parametrize("dimension", [1, 2, 3, 10, 60])
@pytest.mark.parametrize(
    ("epsilon", "ratio"), [(1.0, 0.05), (1.0, 0.3), (0.2, 0.8), (4.0, 0.5), (-0.2, 0.3), (1.0, 4.0)]
)
def test_chi_delta_against_quadrature_and_never_below(dimension, epsilon, ratio):
    offset = epsilon - ratio**2 / 2
    kink = max(0.0, offset / ratio)
    with mpmath.workdps(30):
        k = dimension

        def integrand(r):
            density = (
                r ** (k - 1)
                * mpmath.exp(-r * r / 2)
                / (2 ** (mpmath.mpf(k) / 2 - 1) * mpmath.gamma(mpmath.mpf(k) / 2))
            )
            return density * (1 - mpmath.exp(min(mpmath.mpf(0), offset - ratio * r)))

        middle = max(kink, math.sqrt(k))
        points = sorted({kink, middle, middle + 1, middle + 4, middle + 30})
        exact = float(mpmath.quad(integrand, points))
    found = chi_objective_delta(epsilon, ratio, dimension)
    if exact > 1e-250:
        assert found == pytest.approx(exact, rel=1e-8)
        assert found >= exact * (1 - 1e-9)


def test_chi_delta_by_monte_carlo():
    """Half a million draws; the tolerance is 6 standard errors (false alarm below 1e-8)."""
    rng = np.random.default_rng(5)
    r = chi.rvs(7, size=500_000, random_state=rng)
    sample = np.maximum(0.0, -np.expm1(np.minimum(0.0, 0.7 - 0.6 * r - 0.18)))
    error = sample.std() / math.sqrt(len(sample))
    assert abs(chi_objective_delta(0.7, 0.6, 7) - sample.mean()) < 6 * error


def test_glm_profiles_by_their_parts():
    """Written out again from the statement, with scipy's normal law."""

    def phi_delta(epsilon, a):
        return norm.cdf(a / 2 - epsilon / a) - math.exp(epsilon) * norm.cdf(-a / 2 - epsilon / a)

    for epsilon, a, kappa in [(1.0, 0.3, 0.05), (0.2, 0.05, 0.01), (0.3, 0.4, 0.5)]:
        reduced = epsilon - math.log1p(kappa)
        both = 2 * phi_delta(epsilon, a)
        one = (
            phi_delta(reduced, a)
            if reduced >= 0
            else 1 - math.exp(reduced) * (1 - phi_delta(0.0, a))
        )
        assert glm_add_remove_objective_delta(epsilon, a, kappa) == pytest.approx(
            max(both, one), rel=1e-8
        )
        if reduced > 0:
            value = 2 * phi_delta(reduced, 2 * a)
            if 4 * a * a > 2 * (math.sqrt(1 + reduced**2) - 1):
                value = min(1.0, 2 * two_sided_objective_delta(reduced, 2 * a))
            assert glm_replace_objective_delta(epsilon, a, kappa) == pytest.approx(value, rel=1e-8)
    assert glm_replace_objective_delta(0.1, 0.01, 0.2) == 1.0  # log(1 + kappa) exceeds epsilon


@pytest.mark.parametrize("order", [1.5, 4.0])
def test_renyi_determinants_are_attained_by_a_quadratic_record(order):
    """With f = (beta/2) theta^2 the minimisers are centred normals, whose integral of p^order
    q^(1-order) is known.

    Their densities are phi_sigma(b) |db/dtheta|. What the gradient of f adds is left to the attack
    tests: here the part that the determinants cost is compared by completing the square
    numerically.
    """
    base = 1.0
    beta = 0.15
    sigma = 1.5
    kappa = beta / base

    def divergence(stiff_p, stiff_q):
        def integrand(theta):
            p = norm.pdf(stiff_p * theta, scale=sigma) * stiff_p
            q = norm.pdf(stiff_q * theta, scale=sigma) * stiff_q
            # remove the gradient's own share exp(order (order-1) |g|^2 / (2 sigma^2)), g = (p - q)
            # theta
            gradient = (stiff_p - stiff_q) * theta
            share = math.exp(-order * (order - 1) * gradient**2 / (2 * sigma**2))
            return p**order * q ** (1 - order) * share

        value, _ = quad(integrand, -20, 20, epsabs=1e-14, points=[0.0], limit=400)
        return math.log(value) / (order - 1)

    orders = np.array([order])
    found = divergence(base + beta, base)
    assert found == pytest.approx(renyi_objective_curve(orders, 0.0, kappa, 1, "with")[0], rel=1e-6)
    found = divergence(base, base + beta)
    assert found == pytest.approx(
        renyi_objective_curve(orders, 0.0, kappa, 1, "without")[0], rel=1e-6
    )


def test_renyi_curve_is_infinite_beyond_its_pole():
    curve = renyi_objective_curve(np.array([2.0, 11.0, 20.0]), 0.1, 0.1, 1, "without")
    assert np.isfinite(curve[0])
    assert np.isinf(curve[2])


def test_renyi_delta_is_a_minimum_over_orders():
    best = renyi_objective_delta(1.0, 0.12, 0.01, 3, "replace")
    for order in np.geomspace(1.5, 90, 400):
        curve = renyi_objective_curve(np.array([order]), 0.12, 0.01, 3, "replace")[0]
        value = math.exp((order - 1) * (curve - 1.0)) * (1 - 1 / order) ** (order - 1) / order
        assert best <= value * (1 + 1e-9)


@pytest.mark.parametrize("neighbors", ["replace_one", "add_or_remove_one"])
def test_structured_delta_grows_with_rank_noise_ratio_and_curvature(neighbors):
    base = structured_objective_delta(1.0, 0.1, 0.01, 3, neighbors)
    assert structured_objective_delta(1.0, 0.1, 0.01, 6, neighbors) >= base
    assert structured_objective_delta(1.0, 0.12, 0.01, 3, neighbors) > base
    assert structured_objective_delta(1.0, 0.1, 0.03, 3, neighbors) > base
    assert structured_objective_delta(1.2, 0.1, 0.01, 3, neighbors) < base


@pytest.mark.parametrize("epsilon", [1e-15, 1e-12, 1e-8, 1e-4, 0.01])
@pytest.mark.parametrize("ratio", [0.3, 1.0, 5.0])
def test_gaussian_profile_keeps_its_digits_at_tiny_epsilon(epsilon, ratio):
    """Calibration at tiny budgets rests on differences of nearly equal tails."""
    mu = epsilon / ratio
    with mpmath.workdps(60):
        e = mpmath.mpf(epsilon)
        m = mpmath.mpf(mu)
        exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        assert abs(gaussian_delta(epsilon, mu) / exact - 1) < 1e-9
