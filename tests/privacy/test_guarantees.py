"""Guarantees: exact conversions between the languages of privacy."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpconvex.core.calibration import GRID_BITS, gaussian_delta, grid_of
from dpconvex.core.guarantees import group_guarantee, guarantee_from_dict, pure_guarantee_mu
from dpconvex.core.summation import summation_rounding_error
from dpconvex.privacy import ApproxDP, GaussianDP, PureDP
from dpconvex.privacy.bounds.scores import AUCScoreBounds
from dpconvex.privacy.objective_perturbation_calibration import (
    trace_objective_delta,
    trace_objective_scale,
)
from dpconvex.privacy.subsampling import dominating_subsampled_rdp, subsampled_multiplier

ALL = [
    PureDP(0.3),
    PureDP(4.0),
    ApproxDP(1.0, 1e-6),
    ApproxDP(0.1, 0.05),
    GaussianDP(0.5),
    GaussianDP(3.0),
]


@pytest.mark.parametrize("guarantee", ALL, ids=repr)
def test_epsilon_inverts_delta(guarantee):
    for epsilon in (0.01, 0.2, 1.0, 3.0):
        delta = guarantee.delta(epsilon)
        if delta > 1e-280:
            back = guarantee.epsilon(delta)
            assert back <= epsilon * (1 + 1e-9) + 1e-12
            assert guarantee.delta(back) <= delta * (1 + 1e-9)


@pytest.mark.parametrize("guarantee", ALL, ids=repr)
def test_tradeoff_and_profile_describe_the_same_thing(guarantee):
    """delta(eps) = sup over x of 1 - f(x) - e^eps x, for a symmetric trade-off curve f."""
    x = np.concatenate([np.geomspace(1e-12, 1e-3, 20001), np.linspace(1e-3, 1, 400001)])
    curve = guarantee.tradeoff(x)
    for epsilon in (0.0, 0.1, 1.0, 2.0):
        supremum = np.max(1 - curve - np.exp(epsilon) * x)
        assert guarantee.delta(epsilon) == pytest.approx(max(supremum, 0.0), abs=2e-5)
        assert guarantee.delta(epsilon) >= supremum - 1e-12
    assert guarantee.tradeoff(0.0) <= 1.0
    assert guarantee.tradeoff(1.0) == 0.0


def test_pure_profile_is_that_of_randomised_response():
    """Randomised response with odds e^3 is the extreme pair: its two outcomes can be counted."""
    p = math.exp(3) / (1 + math.exp(3))
    for epsilon in (0.0, 0.5, 2.9):
        assert PureDP(3.0).delta(epsilon) == pytest.approx(
            p - math.exp(epsilon) * (1 - p), rel=1e-12
        )
    assert PureDP(3.0).delta(3.0) == 0.0


@pytest.mark.parametrize(("mu", "epsilon"), [(0.5, 0.2), (1.0, 1.0), (3.0, 2.0), (0.1, 0.0)])
def test_gaussian_profile_against_quadrature(mu, epsilon):
    def excess(x):
        return max(0.0, norm.pdf(x - mu) - math.exp(epsilon) * norm.pdf(x))

    edge = epsilon / mu + mu / 2
    value, _ = quad(excess, edge, edge + 12, epsabs=1e-14)
    assert GaussianDP(mu).delta(epsilon) == pytest.approx(value, rel=1e-9)


def test_dictionary_round_trip():
    for guarantee in ALL:
        assert guarantee_from_dict(guarantee.to_dict()) == guarantee
    with pytest.raises(ValueError, match="kind must be one of"):
        guarantee_from_dict({"kind": "none"})


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: PureDP(-1.0), "'epsilon' parameter of PureDP"),
        (lambda: PureDP(math.nan), "'epsilon' parameter of PureDP"),
        (lambda: ApproxDP(1.0, 1.0), "'delta' parameter of ApproxDP"),
        (lambda: ApproxDP(1.0, -1e-9), "'delta' parameter of ApproxDP"),
        (lambda: GaussianDP(math.inf), "'mu' parameter of GaussianDP"),
    ],
)
def test_impossible_guarantees_are_refused(make, match):
    with pytest.raises(ValueError, match=match):
        make()


def test_text_is_not_a_number():
    with pytest.raises(TypeError, match="'epsilon' parameter of PureDP"):
        PureDP("1")


def test_known_values():
    assert gaussian_delta(1.0, 1.0) == pytest.approx(0.1269367, abs=5e-8)
    assert pure_guarantee_mu(1.0) == pytest.approx(1.232035, abs=5e-7)
    assert ApproxDP(1.0, 1e-6).as_gaussian().mu == pytest.approx(0.236704, abs=5e-7)
    assert grid_of(3.0) == 2.0 ** (1 - GRID_BITS)
    assert summation_rounding_error(10_000, 100, 1.0) < 2e-9
    assert float(AUCScoreBounds(50, 200).sensitivity("replace_one_keeping_label")) == 1 / 50
    assert float(AUCScoreBounds(50, 200).sensitivity("replace_one")) == pytest.approx(
        0.024876, abs=5e-7
    )


def test_three_records_together():
    three = group_guarantee(ApproxDP(1.0, 1e-6), ApproxDP(1.0, 1e-6), 3)
    assert three.epsilon_bound == 3.0
    assert three.delta_bound == pytest.approx(11.107338e-6, abs=5e-13)


def test_trace_form_falls_with_the_curvature():
    assert (
        trace_objective_delta(1.0, 0.1, 0.01, "replace_one")
        < trace_objective_delta(1.0, 0.1, 0.05, "replace_one")
        < 2e-6
    )
    assert trace_objective_scale(1.0, 1e-6, 1.0, 0.05, "replace_one") == pytest.approx(
        10.3, abs=0.05
    )


def test_batches_of_all_records_are_the_gaussian_mechanism():
    assert float(dominating_subsampled_rdp(1.0, 0.5, [3.0])[0]) == 0.375
    # The exact Gaussian mechanism needs 3.7306.
    assert 3.7306 <= subsampled_multiplier("fixed", "replace_one", 1.0, 1, 1.0, 1e-5) <= 3.745
