"""Calibration: published test vectors, safe side, errors."""

import math

import pytest

from dpconvex.core.calibration import (
    calibrated_release_scale,
    gaussian_delta,
    smallest_safe_scale,
)
from dpconvex.core.certificate import CertifiedNoise
from dpconvex.privacy import (
    gaussian_mu,
    gaussian_scale,
    objective_perturbation_laplace_scale,
    objective_perturbation_scale,
)

VECTORS = [
    (0.2, 1e-5, 0.01, 16.304133, 17.141835, 35.938386),
    (1.0, 1e-5, 0.05, 3.730632, 3.904564, 8.132858),
    (1.0, 1e-2, 0.05, 1.877876, 2.097816, 4.363545),
]


@pytest.mark.parametrize(("epsilon", "delta", "kappa", "plain", "add_remove", "replace"), VECTORS)
def test_generalised_linear_model_vectors(epsilon, delta, kappa, plain, add_remove, replace):
    assert gaussian_scale(epsilon, delta, 1.0) == pytest.approx(plain, abs=6e-7)
    found = objective_perturbation_scale(epsilon, delta, 1.0, kappa, neighbors="add_or_remove_one")
    assert found == pytest.approx(add_remove, abs=6e-7)
    assert objective_perturbation_scale(epsilon, delta, 1.0, kappa) == pytest.approx(
        replace, abs=6e-7
    )


@pytest.mark.parametrize(
    ("rank", "add_remove", "replace"), [(1, 3.88, 7.85), (3, 4.06, 8.14), (10, 4.09, 8.25)]
)
def test_structured_vectors(rank, add_remove, replace):
    kappa = 1 / (8 * math.log(1e5))
    found = objective_perturbation_scale(1.0, 1e-5, 1.0, kappa, rank, "add_or_remove_one")
    assert found == pytest.approx(add_remove, abs=0.005)
    assert objective_perturbation_scale(1.0, 1e-5, 1.0, kappa, rank) == pytest.approx(
        replace, abs=0.005
    )


def test_scales_are_proportional_to_the_sensitivity():
    one = objective_perturbation_scale(1.0, 1e-6, 1.0, 0.1)
    assert objective_perturbation_scale(1.0, 1e-6, 7.0, 0.1) == pytest.approx(7 * one, rel=1e-12)
    assert gaussian_scale(1.0, 1e-6, 0.0) == 0.0
    assert gaussian_mu(1.0, 1e-6) == pytest.approx(1 / gaussian_scale(1.0, 1e-6, 1.0), rel=1e-12)


def test_pure_scale():
    kappa = 0.2
    expected = 2 * 3.0 / (0.9 - math.log(1.2))
    assert objective_perturbation_laplace_scale(0.9, 3.0, kappa) == pytest.approx(expected)
    found = objective_perturbation_laplace_scale(0.9, 3.0, kappa, "add_or_remove_one")
    assert found == pytest.approx(expected / 2)


@pytest.mark.parametrize("law", ["gaussian", "l2-laplace"])
def test_releases_pay_for_their_grid(law):
    scale = calibrated_release_scale(0.3, 1.0, 50)
    term = CertifiedNoise(law, scale, 1.0, 50, "sum")
    assert 1.0 < term.rounded_sensitivity <= 0.3 * scale


def test_search_stays_on_the_safe_side_of_jumps_and_bumps():
    """Discontinuous and non-monotone conditions: what is returned must itself hold."""
    jump = smallest_safe_scale(lambda x: x >= math.pi)
    assert math.pi <= jump <= math.pi * (1 + 1e-12)
    bump = smallest_safe_scale(lambda x: x > 100 or 3 < x < 4)
    assert bump > 100 or 3 < bump < 4
    with pytest.raises(ValueError, match="No finite noise"):
        smallest_safe_scale(lambda x: False)


def test_gaussian_scale_holds_at_the_returned_value():
    for epsilon in (0.01, 0.3, 1.0, 8.0):
        for delta in (1e-12, 1e-6, 0.01, 0.5):
            std = gaussian_scale(epsilon, delta, 1.0)
            assert gaussian_delta(epsilon, 1 / std) <= delta
            assert gaussian_delta(epsilon, 1 / (std * (1 - 1e-6))) > delta * (1 - 1e-5)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ((0.0, 1e-6, 1.0, 0.1), "'epsilon'"),
        ((1.0, 0.0, 1.0, 0.1), "'delta'"),
        ((1.0, 1e-6, math.inf, 0.1), "'lipschitz'"),
        ((1.0, 1e-6, 1.0, math.inf), "'curvature_ratio'"),
        ((1.0, 1e-6, 1.0, 0.1, 0), "'rank'"),
        ((1.0, 1e-6, 1.0, 0.1, 1, "swap"), "'neighbors'"),
        ((0.1, 1e-6, 1.0, 0.2), "larger alpha"),
        ((0.1, 1e-6, 1.0, 50.0, 3), "larger alpha"),
        ((0.1, 1e-6, 1.0, 50.0, 1, "add_or_remove_one"), "larger alpha"),
    ],
)
def test_impossible_requests_are_refused(arguments, match):
    with pytest.raises(ValueError, match=match):
        objective_perturbation_scale(*arguments)


def test_a_budget_below_the_samplers_grid_is_refused():
    with pytest.raises(ValueError, match="larger budget"):
        calibrated_release_scale(1e-12, 1.0, 4)
    assert calibrated_release_scale(1e-6, 1.0, 4) > 1e6
