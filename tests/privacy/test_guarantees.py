"""Guarantees: exact conversions between the languages of privacy."""

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from dpconvex.privacy import ApproxDP, GaussianDP, PureDP
from dpconvex.privacy.guarantees import guarantee_from_dict

ALL = [PureDP(0.3), PureDP(4.0), ApproxDP(1.0, 1e-6), ApproxDP(0.1, 0.05), GaussianDP(0.5), GaussianDP(3.0)]


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
        assert PureDP(3.0).delta(epsilon) == pytest.approx(p - math.exp(epsilon) * (1 - p), rel=1e-12)
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
