"""The ledger in one process: what is granted and what is refused."""

import copy
import itertools
import json
import math
import os
import pickle
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.model_selection import GridSearchCV, cross_val_score

from dpconvex.core.calibration import gaussian_mu
from dpconvex.core.guarantees import (
    ApproxDP,
    GaussianDP,
    PureDP,
    compose_epsilon,
    pure_guarantee_mu,
)
from dpconvex.privacy.ledger import BudgetExceeded, Ledger, LedgerError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "privacy.db"


def charges_until_refused(ledger, guarantee, most=10_000):
    for count in range(most):
        try:
            ledger.charge(guarantee)
        except BudgetExceeded:
            return count
    raise AssertionError("the budget never ran out")


class ChargedMean(RegressorMixin, BaseEstimator):
    """The least estimator that pays for every fit."""

    def __init__(self, epsilon=0.1, ledger=None):
        self.epsilon = epsilon
        self.ledger = ledger

    def fit(self, X, y):
        self.ledger.charge(PureDP(self.epsilon), mechanism="mean")
        self.mean_ = 0.0
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)


# Composition


def randomised_response_delta(epsilons, at):
    """Exact delta of composed randomised responses, by listing every outcome."""
    total = 0.0
    for signs in itertools.product((1, -1), repeat=len(epsilons)):
        loss = math.fsum(s * e for s, e in zip(signs, epsilons, strict=True))
        mass = math.prod(1 / (1 + math.exp(-s * e)) for s, e in zip(signs, epsilons, strict=True))
        total += mass * max(0.0, -math.expm1(at - loss))
    return total


@pytest.mark.parametrize("epsilons", [[0.5] * 8, [0.1, 0.2, 0.3, 0.7], [1.0, 1e-3], [0.123] * 12])
@pytest.mark.parametrize("delta", [1e-2, 1e-5])
def test_composition_of_pure_guarantees_is_above_the_exact_total_and_close(epsilons, delta):
    bound = compose_epsilon([PureDP(e) for e in epsilons], delta)
    assert randomised_response_delta(epsilons, bound) <= delta
    # Close: a bound smaller by 2 % would be wrong.
    assert randomised_response_delta(epsilons, 0.98 * bound) > delta


def test_gaussian_guarantees_compose_exactly():
    mus = [0.3] * 5 + [0.1] * 7
    mu = math.sqrt(sum(m * m for m in mus))
    assert compose_epsilon([GaussianDP(m) for m in mus], 1e-6) == pytest.approx(
        GaussianDP(mu).epsilon(1e-6), rel=1e-12
    )


def test_a_mixture_costs_less_than_its_sums_and_more_than_its_parts():
    gaussian = [GaussianDP(0.1)] * 20
    pure = [PureDP(0.1)] * 20
    both = compose_epsilon(gaussian + pure, 1e-6)
    assert both < compose_epsilon(gaussian + pure, 1e-6, method="sums")
    assert both > compose_epsilon(gaussian, 1e-6)
    assert both > compose_epsilon(pure, 1e-6)


def test_many_distinct_guarantees_compose_in_time_and_above_a_lower_bound():
    rng = np.random.default_rng(0)
    epsilons = rng.uniform(0.001, 0.1, size=300)
    assert (epsilons > 0.02).sum() >= 200
    bound = compose_epsilon([PureDP(e) for e in epsilons], 1e-6)
    # At least 200 of them exceed 0.02, and the total is monotone in every charge.
    assert bound > compose_epsilon([PureDP(0.02)] * 200, 1e-6)
    assert bound < 0.6 * epsilons.sum()


@settings(derandomize=True, deadline=None, max_examples=12)
@given(
    st.permutations(
        [PureDP(0.3), PureDP(0.11), GaussianDP(0.2), ApproxDP(0.17, 1e-8), GaussianDP(0.37)]
    ),
    st.floats(1e-7, 1e-2),
)
def test_the_total_does_not_depend_on_the_order(guarantees, delta):
    ordered = sorted(guarantees, key=repr)
    assert compose_epsilon(guarantees, delta) == compose_epsilon(ordered, delta)


def test_deltas_beyond_the_budget_cost_infinitely_much():
    assert compose_epsilon([ApproxDP(0.1, 1e-6)] * 2, 1e-6) == math.inf
    assert compose_epsilon([ApproxDP(0.1, 1e-6)] * 2, 2e-6) == pytest.approx(0.2)
    assert compose_epsilon([GaussianDP(0.1)], 0.0) == math.inf
    with pytest.raises(TypeError, match="PureDP, ApproxDP or GaussianDP"):
        compose_epsilon([(1.0, 1e-6)], 1e-6)
    with pytest.raises(ValueError, match="'method'"):
        compose_epsilon([], 1e-6, method="optimal")


# Granting


@pytest.mark.parametrize(
    ("budget", "guarantee"),
    [
        ((1.0, 1e-6), ApproxDP(1.0, 1e-6)),
        ((1.0, 0.0), PureDP(1.0)),
        ((1.0, 1e-6), PureDP(1.0)),
        ((GaussianDP(0.7).epsilon(1e-6), 1e-6), GaussianDP(0.7)),
    ],
)
def test_a_single_charge_costs_exactly_itself(path, budget, guarantee):
    ledger = Ledger(path, epsilon=budget[0], delta=budget[1])
    entry = ledger.charge(guarantee, description="one", mechanism="objective")
    assert entry.guarantee == guarantee
    assert ledger.spent() == budget[0]
    with pytest.raises(BudgetExceeded):
        ledger.charge(PureDP(0.01) if budget[1] == 0 else GaussianDP(0.3))
    ledger.check()


def test_a_pure_budget_allows_exactly_its_sum(path):
    ledger = Ledger(path, epsilon=1.0, delta=0.0)
    assert charges_until_refused(ledger, PureDP(0.05)) == 20
    assert ledger.remaining().epsilon == pytest.approx(0.0, abs=1e-12)
    assert ledger.total() == PureDP(1.0)


def test_a_budget_in_mu_allows_exactly_its_squares(path):
    ledger = Ledger(path, mu=1.0)
    assert charges_until_refused(ledger, GaussianDP(0.25)) == 16
    assert ledger.total() == GaussianDP(1.0)
    assert ledger.spent(1e-5) == GaussianDP(1.0).epsilon(1e-5)
    assert (ledger.epsilon, ledger.delta, ledger.mu) == (None, None, 1.0)
    assert ledger.remaining().mu == 0
    assert "mu=1.0" in repr(Ledger(path, mu=1.0))


def test_a_budget_in_mu_takes_what_is_pure_or_gaussian(path):
    ledger = Ledger(path, mu=1.0)
    said = str(ledger.remaining())
    assert (
        "the next release may spend epsilon 4.887 at delta 1e-06 (mu 1) if its noise is Gaussian"
        in said
    )
    assert (
        "Any other release, such as a score, may spend epsilon 0.807 and delta 0 instead." in said
    )
    assert said.endswith("The whole budget is mu 1; releases so far: 0")
    with pytest.raises(BudgetExceeded, match=r"delta without being Gaussian.*'output'"):
        ledger.charge(ApproxDP(0.01, 1e-9))
    ledger.charge(ApproxDP(1.0, 1e-6), mu=0.23)
    ledger.charge(PureDP(0.5))
    assert ledger.entries()[0].mu == 0.23
    assert ledger.total().mu == pytest.approx(math.hypot(0.23, pure_guarantee_mu(0.5)))
    ledger.charge(PureDP(ledger.remaining().epsilon))
    assert ledger.remaining().mu < 1e-3


def test_sums_take_every_charge_at_face_value(path):
    ledger = Ledger(path, epsilon=1.0, delta=1e-5, composition="sums")
    ledger.charge(ApproxDP(0.3, 1e-6), mu=0.1)
    ledger.charge(PureDP(0.3))
    ledger.charge(ApproxDP(0.3, 1e-6))
    assert ledger.remaining().epsilon == pytest.approx(0.1)
    assert ledger.remaining().delta == pytest.approx(8e-6)
    assert ledger.remaining().mu == 0
    with pytest.raises(BudgetExceeded, match="epsilon and delta instead of mu"):
        ledger.charge(GaussianDP(1e-6))


def test_gaussian_releases_that_state_an_epsilon_add_up_in_squares(path):
    """Two fits at (0.5, 1e-6) fit into (1, 1e-6), and a third one: their deltas do not add up."""
    ledger = Ledger(path, epsilon=1.0, delta=1e-6)
    mu = gaussian_mu(0.5, 1e-6)
    for _ in range(3):
        ledger.charge(ApproxDP(0.5, 1e-6), mu=mu)
    with pytest.raises(BudgetExceeded):
        ledger.charge(ApproxDP(0.5, 1e-6), mu=mu)
    assert ledger.spent() < 1.0


def test_a_release_whose_mu_says_less_than_its_guarantee_stays_at_face_value(path):
    ledger = Ledger(path, epsilon=1.0, delta=1e-6)
    ledger.charge(ApproxDP(0.5, 1e-7), mu=0.9)
    ledger.charge(PureDP(0.1), mu=0.01)
    assert ledger.remaining().epsilon == pytest.approx(0.4)


def test_kinds_may_alternate(path):
    """A Gaussian charge leaves room for others, and they for it."""
    ledger = Ledger(path, epsilon=4.0, delta=1e-5)
    for _ in range(3):
        ledger.charge(GaussianDP(0.1))
        ledger.charge(ApproxDP(0.2, 1e-6))
        ledger.charge(PureDP(0.1))
    left = ledger.remaining()
    assert left.epsilon > 1.0
    assert left.delta == pytest.approx(1e-6)
    assert left.mu > 0.2
    with pytest.raises(BudgetExceeded, match="smaller epsilon or delta"):
        ledger.charge(ApproxDP(0.2, 2e-6))
    ledger.check()


def test_gaussian_charges_add_in_squares(path):
    """As many as half of delta allows: the other half is kept for charges of other kinds."""
    epsilon = GaussianDP(1.0).epsilon(1e-6)
    ledger = Ledger(path, epsilon=epsilon, delta=1e-6)
    count = charges_until_refused(ledger, GaussianDP(0.1))
    assert count == math.floor((gaussian_mu(epsilon, 5e-7) / 0.1) ** 2) == 95
    assert ledger.total().mu == pytest.approx(math.sqrt(0.95))


def test_what_remains_is_certain_to_be_granted(tmp_path):
    mixtures = [[], [PureDP(0.3)], [GaussianDP(0.1)], [ApproxDP(0.2, 1e-7), GaussianDP(0.1)]]
    for index, spent in enumerate(mixtures):
        ledger = Ledger(tmp_path / f"{index}.db", epsilon=2.0, delta=1e-6)
        for guarantee in spent:
            ledger.charge(guarantee)
        left = ledger.remaining()
        assert left.charges == len(spent)
        assert 0 < left.epsilon <= 2.0
        ledger.charge(ApproxDP(left.epsilon, left.delta))
        assert ledger.spent() <= 2.0 * (1 + 1e-12)
        again = Ledger(tmp_path / f"{index} again.db", epsilon=2.0, delta=1e-6)
        for guarantee in spent:
            again.charge(guarantee)
        again.charge(GaussianDP(left.mu))
        assert again.remaining().mu < 1e-2


def test_a_refusal_charges_nothing_and_says_what_is_left(path):
    ledger = Ledger(path, "survey", epsilon=1.0)
    ledger.charge(ApproxDP(0.75, 1e-6))
    with pytest.raises(BudgetExceeded, match=r"'survey'.*epsilon 0\.25.*smaller epsilon") as caught:
        ledger.charge(ApproxDP(0.1, 1e-6))
    assert caught.value.remaining == ledger.remaining()
    assert len(ledger.entries()) == 1
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.remaining == caught.value.remaining
    assert str(again) == str(caught.value)


def test_entries_keep_public_facts_in_order(path):
    ledger = Ledger(path, epsilon=1.0)
    ledger.charge(PureDP(0.1), description="first", mechanism="output")
    ledger.charge(GaussianDP(0.05))
    first, second = ledger.entries()
    assert (first.number, first.description, first.mechanism) == (1, "first", "output")
    assert first.guarantee == PureDP(0.1)
    assert second.guarantee == GaussianDP(0.05)
    assert first.neighbors == "replace_one"
    assert first.time <= second.time


def test_neighbouring_relations_do_not_mix(path):
    ledger = Ledger(path, epsilon=1.0)
    ledger.charge(PureDP(0.1), neighbors="add_or_remove_one")
    with pytest.raises(LedgerError, match=r"add_or_remove_one.*do not add up"):
        ledger.charge(PureDP(0.1))
    assert len(ledger.entries()) == 1


# Opening


def test_data_sets_in_one_file_are_separate(path):
    one = Ledger(path, "one", epsilon=1.0, delta=0.0)
    two = Ledger(path, "two", epsilon=2.0, delta=0.0)
    one.charge(PureDP(1.0))
    two.charge(PureDP(1.5))
    assert one.remaining().epsilon == 0.0
    assert Ledger(path, "two").remaining().epsilon == 0.5
    assert (Ledger(path, "two").epsilon, Ledger(path, "two").delta) == (2.0, 0.0)


def test_delta_defaults_to_one_in_a_million(path):
    assert Ledger(path, epsilon=1.0).delta == 1e-6


def test_opening_asks_for_what_is_missing(path):
    with pytest.raises(LedgerError, match=r"no ledger at .*give epsilon"):
        Ledger(path)
    assert not path.exists()
    Ledger(path, "survey", epsilon=1.0)
    with pytest.raises(LedgerError, match=r"no budget for 'servey'; it has \['survey'\]"):
        Ledger(path, "servey")


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"epsilon": 2.0}, "epsilon"),
        ({"epsilon": 1.0, "delta": 1e-5}, "delta"),
        ({"delta": 0.0}, "delta"),
        ({"composition": "sums"}, "composition"),
        ({"mu": 1.0}, "mu"),
    ],
)
def test_a_budget_cannot_be_changed(path, changed, name):
    Ledger(path, epsilon=1.0)
    Ledger(path, epsilon=1.0)
    with pytest.raises(LedgerError, match=f"{name}=.*cannot be changed"):
        Ledger(path, **changed)


@pytest.mark.parametrize(
    ("arguments", "error", "name"),
    [
        ({"epsilon": 0.0}, ValueError, "epsilon"),
        ({"epsilon": math.inf}, ValueError, "epsilon"),
        ({"epsilon": math.nan}, ValueError, "epsilon"),
        ({"epsilon": "1"}, TypeError, "epsilon"),
        ({"epsilon": 1.0, "delta": 1.0}, ValueError, "delta"),
        ({"epsilon": 1.0, "delta": -1e-9}, ValueError, "delta"),
        ({"epsilon": 1.0, "dataset": ""}, ValueError, "dataset"),
        ({"epsilon": 1.0, "composition": "best"}, ValueError, "composition"),
        ({"mu": 0.0}, ValueError, "mu"),
        ({"mu": True}, TypeError, "mu"),
        ({"mu": 1.0, "epsilon": 1.0}, ValueError, "epsilon"),
        ({"mu": 1.0, "delta": 1e-6}, ValueError, "delta"),
        ({"mu": 1.0, "composition": "sums"}, ValueError, "composition"),
    ],
)
def test_wrong_arguments_create_nothing(path, arguments, error, name):
    with pytest.raises(error, match=f"The '{name}' parameter of Ledger must be"):
        Ledger(path, **arguments)
    assert not path.exists()


def test_wrong_charges_are_refused(path):
    ledger = Ledger(path, epsilon=1.0)
    with pytest.raises(TypeError, match="'guarantee'"):
        ledger.charge(0.1)
    with pytest.raises(ValueError, match=r"'mu' parameter of Ledger\.charge"):
        ledger.charge(PureDP(0.1), mu=-1.0)
    with pytest.raises(TypeError, match="'description'"):
        ledger.charge(PureDP(0.1), description=np.ones(3))
    with pytest.raises(ValueError, match="'neighbors'"):
        ledger.charge(PureDP(0.1), neighbors="swap")
    with pytest.raises(ValueError, match="must name a file"):
        Ledger(":memory:", epsilon=1.0)
    with pytest.raises(TypeError, match="'path'"):
        Ledger(3, epsilon=1.0)
    assert ledger.entries() == []


def test_creation_leaves_one_file(tmp_path):
    Ledger(tmp_path / "privacy.db", epsilon=1.0).charge(PureDP(0.1))
    assert os.listdir(tmp_path) == ["privacy.db"]
    with pytest.raises(LedgerError, match="cannot be created"):
        Ledger(tmp_path / "absent" / "privacy.db", epsilon=1.0)


# Copies


def test_copies_are_the_ledger_itself(path):
    ledger = Ledger(path, epsilon=1.0)
    assert copy.copy(ledger) is ledger
    assert copy.deepcopy({"a": [ledger]})["a"][0] is ledger
    assert clone(ChargedMean(ledger=ledger)).ledger is ledger
    reopened = pickle.loads(pickle.dumps(ledger))
    reopened.charge(PureDP(0.25))
    assert [entry.guarantee for entry in ledger.entries()] == [PureDP(0.25)]
    assert "default" in repr(reopened)


def test_a_relative_path_survives_another_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frozen = pickle.dumps(Ledger("privacy.db", epsilon=1.0))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    pickle.loads(frozen).charge(PureDP(0.5))
    assert len(Ledger(tmp_path / "privacy.db").entries()) == 1


def test_cross_validation_and_grid_search_pay_for_every_fit(path):
    ledger = Ledger(path, epsilon=10.0, delta=0.0)
    X = np.zeros((20, 1))
    y = np.arange(20.0)
    cross_val_score(ChargedMean(ledger=ledger), X, y, cv=5)
    assert len(ledger.entries()) == 5
    GridSearchCV(ChargedMean(ledger=ledger), {"epsilon": [0.1, 0.2]}, cv=3).fit(X, y)
    assert len(ledger.entries()) == 5 + 2 * 3 + 1


def test_threads_share_a_ledger(path):
    ledger = Ledger(path, epsilon=1.0, delta=0.0)

    def pay(_):
        try:
            ledger.charge(PureDP(0.05))
        except BudgetExceeded:
            return 0
        return 1

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(pay, range(40))) == 20


def test_records_are_plain_json(path):
    Ledger(path, epsilon=1.0).charge(ApproxDP(0.5, 1e-7), mechanism="objective")
    connection = sqlite3.connect(path)
    rows = [json.loads(row) for (row,) in connection.execute("SELECT record FROM log")]
    connection.close()
    assert [row["kind"] for row in rows] == ["budget", "charge"]
    assert rows[1]["guarantee"] == {"kind": "approx", "epsilon": 0.5, "delta": 1e-7}
    assert rows[1]["cost"] == {"epsilon": 0.5, "delta": 1e-7, "mu_squared": 0.0}


def test_the_page_on_budgets_says_what_kinds_cost(tmp_path):
    """The numbers of docs/howto/budget.md: a score of another kind is dearer than one in mu."""
    mu = gaussian_mu(0.5, 1e-6)
    assert mu == pytest.approx(0.124, abs=1e-3)
    left = {}
    for name, charge in {
        "none": None,
        "fit": {"guarantee": ApproxDP(0.5, 1e-6), "mu": mu},
        "score": {"guarantee": PureDP(0.5)},
        "score of mu": {"guarantee": GaussianDP(0.124)},
    }.items():
        ledger = Ledger(tmp_path / "privacy.db", name, epsilon=2.0, delta=1e-5)
        ledger.charge(ApproxDP(1.0, 1e-6), mu=gaussian_mu(1.0, 1e-6))
        if charge is not None:
            ledger.charge(**charge)
        left[name] = round(GaussianDP(ledger.remaining().mu).epsilon(1e-5), 2)
    assert left == {"none": 1.65, "fit": 1.57, "score": 0.51, "score of mu": 1.57}
