"""Attacks on the ledger: charges, and their kinds, chosen in view of earlier results."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import norm

from dpconvex.core.guarantees import ApproxDP, GaussianDP, PureDP, pure_guarantee_mu
from dpconvex.privacy.ledger import Ledger
from dpconvex.privacy.privacy_filter import PrivacyFilter, pure_epsilon

EPSILON = 1.0
DELTA = 1e-6
# Losses on a grid: fine against the steps below, and wide against 10 standard deviations of the
# whole.
LOSSES = np.arange(-3.0, 4.0, 0.002)


def largest(allows, most):
    """Return the largest number, to 1e-6 of it, that is allowed."""
    low = 0.0
    high = most
    while high - low > 1e-6 * most:
        middle = (low + high) / 2
        low, high = (middle, high) if allows(middle) else (low, middle)
    return low


def affords(ledger, guarantee):
    """Return whether a charge would be granted now."""
    totals = ledger._totals()
    return totals.charged(totals.cost(guarantee), "replace_one").within_budget()


def last_moves(ledger):
    """Return guarantees one of which an attacker may choose for a last release, each as large as
    it is granted.
    """
    left = ledger.remaining()
    moves = [PureDP(largest(lambda e: affords(ledger, PureDP(e)), EPSILON))]
    moves.append(GaussianDP(largest(lambda m: affords(ledger, GaussianDP(m)), 1.0)))
    for delta in (left.delta, left.delta / 2):
        moves.append(
            ApproxDP(largest(lambda e, d=delta: affords(ledger, ApproxDP(e, d)), EPSILON), delta)
        )
    return moves


def advantage(moves):
    """Return, by the loss so far, the delta at EPSILON that the best of the last moves reaches."""
    return np.max([[move.delta(EPSILON - loss) for loss in LOSSES] for move in moves], axis=0)


def expected_after(value, mu):
    """Average over the loss that one more Gaussian release adds under the first neighbour."""
    reach = int(12 * mu / 0.002) + 1
    added = 0.002 * np.arange(-reach, reach + 1)
    weights = norm.pdf(added, mu * mu / 2, mu)
    weights /= weights.sum()
    padded = np.pad(value, reach, mode="edge")
    return np.convolve(padded, weights[::-1], mode="valid")


def attack(ledger, mu, steps):
    """Release small Gaussians; after each, do the best of a last move and of going on, in view
    of the loss so far.
    """
    granted = []
    while len(granted) < steps and affords(ledger, GaussianDP(mu)):
        ledger.charge(GaussianDP(mu))
        granted.append(last_moves(ledger))
    value = np.zeros_like(LOSSES)
    for moves in reversed(granted):
        value = expected_after(np.maximum(advantage(moves), value), mu)
    return float(np.interp(0.0, LOSSES, value))


@pytest.mark.parametrize(("mu", "steps"), [(0.02, 1), (0.05, 1), (0.1, 1), (0.04, 12)])
def test_choosing_the_kind_in_view_of_a_result_gains_nothing(tmp_path, mu, steps):
    """An account that allows E + epsilon_G(sqrt(S)) <= epsilon is driven to 1.7e-6 in one step,
    to 5e-6 in twelve.
    """
    ledger = Ledger(tmp_path / "privacy.db", epsilon=EPSILON, delta=DELTA)
    reached = attack(ledger, mu, steps)
    assert reached <= DELTA * (1 + 1e-3)
    assert reached > DELTA / 10  # the attack does attack


@pytest.mark.parametrize("first", [PureDP(0.3), ApproxDP(0.2, 3e-7)])
def test_a_first_charge_at_its_epsilon_and_delta_gains_nothing(tmp_path, first):
    ledger = Ledger(tmp_path / "privacy.db", epsilon=EPSILON, delta=DELTA)
    ledger.charge(first)
    # What the first release tells, as randomised response that tells everything with probability
    # delta.
    own = first.epsilon_bound
    everything = first.delta(math.inf)
    value = advantage(last_moves(ledger))
    truth = (1 - everything) / (1 + math.exp(-own))
    reached = everything + truth * np.interp(own, LOSSES, value)
    reached += (1 - everything - truth) * np.interp(-own, LOSSES, value)
    assert reached <= DELTA * (1 + 1e-3)


def test_a_line_is_crossed_as_rarely_as_the_filter_says():
    """Charges beside Gaussian ones rest on it: exp(-2 a b) for a Brownian motion, by 100,000
    paths.
    """
    fresh = PrivacyFilter(1.0, 0.02, None)
    start, slope = fresh.charged(fresh.cost(GaussianDP(1e-9)), "")._line()
    probability = 0.1 * 0.02
    assert math.exp(-2 * start * (slope - 0.5)) == pytest.approx(probability)
    rng = np.random.default_rng(0)
    times = np.linspace(0, 0.6, 121)
    crossed = 0
    paths = 100_000
    for _ in range(10):
        steps = rng.normal(0.0, math.sqrt(times[1]), size=(paths // 10, len(times) - 1))
        loss = np.cumsum(steps, axis=1) + times[1:] / 2
        crossed += int((loss > start + slope * times[1:]).any(axis=1).sum())
    # Steps miss some crossings; five standard deviations above the probability is a false alarm of
    # 3e-7.
    deviation = math.sqrt(probability / paths)
    assert probability / 4 < crossed / paths < probability + 5 * deviation


@pytest.mark.parametrize("epsilon", [1e-9, 1e-5, 1.1e-4, 0.01, 0.5, 1.0, 5.0, 40.0])
def test_a_pure_charge_in_mu_is_dominated_by_its_gaussian(epsilon):
    mu = pure_guarantee_mu(epsilon)
    for type_one in (1e-3, 0.2, 1 / (1 + math.exp(epsilon)), 0.5, 0.9):
        floor = GaussianDP(mu).tradeoff(type_one)
        assert PureDP(epsilon).tradeoff(type_one) >= floor - 1e-12
    assert epsilon * (1 - 1e-7) <= pure_epsilon(mu) <= epsilon * (1 + 1e-8)
    assert pure_guarantee_mu(pure_epsilon(mu)) <= mu


def test_whatever_is_granted_can_be_granted_in_no_other_order_for_more(tmp_path):
    """Every sequence of kinds stays within the bound that holds for plans fixed beforehand."""
    for index, kinds in enumerate(itertools.product("pag", repeat=3)):
        ledger = Ledger(tmp_path / f"{index}.db", epsilon=EPSILON, delta=DELTA)
        for kind in kinds:
            left = ledger.remaining()
            if kind == "g":
                guarantee = GaussianDP(0.6 * left.mu)
            elif kind == "p":
                guarantee = PureDP(0.6 * left.epsilon)
            else:
                guarantee = ApproxDP(0.6 * left.epsilon, 0.6 * left.delta)
            ledger.charge(guarantee)  # what is said to be left is granted
        assert ledger.spent() <= EPSILON
        ledger.check()
