"""The ledger in one process: what is granted, what is refused, and damage that must be noticed."""

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

from dpconvex.privacy.composition import compose_epsilon
from dpconvex.privacy.guarantees import ApproxDP, GaussianDP, PureDP
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


def test_a_pure_budget_allows_exactly_its_sum(path):
    ledger = Ledger(path, epsilon=1.0, delta=0.0)
    assert charges_until_refused(ledger, PureDP(0.05)) == 20
    assert ledger.remaining().epsilon == pytest.approx(0.0, abs=1e-12)
    assert ledger.total() == PureDP(1.0)


def test_a_delta_buys_more_charges_but_not_with_plain_sums(tmp_path):
    best = Ledger(tmp_path / "best.db", epsilon=1.0, delta=1e-4, composition="best")
    sums = Ledger(tmp_path / "sums.db", epsilon=1.0, delta=1e-4)
    assert charges_until_refused(sums, PureDP(0.1)) == 10
    many = charges_until_refused(best, PureDP(0.1))
    assert many > 10
    assert compose_epsilon([PureDP(0.1)] * many, 1e-4) <= 1.0
    assert compose_epsilon([PureDP(0.1)] * (many + 1), 1e-4) > 1.0
    assert best.spent() <= 1.0 < best.spent(1e-9)


def test_gaussian_charges_add_in_squares(path):
    ledger = Ledger(path, epsilon=GaussianDP(1.0).epsilon(1e-6), delta=1e-6)
    assert charges_until_refused(ledger, GaussianDP(0.25)) == 16
    assert ledger.total() == GaussianDP(1.0)


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


def test_a_refusal_charges_nothing_and_says_what_is_left(path):
    ledger = Ledger(path, "survey", epsilon=1.0)
    ledger.charge(ApproxDP(0.75, 1e-6))
    assert not ledger.affords(ApproxDP(0.1, 1e-6))
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
        ({"composition": "best"}, "composition"),
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
        ({"epsilon": 1.0, "composition": "pld"}, ValueError, "composition"),
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
    X, y = np.zeros((20, 1)), np.arange(20.0)
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


# Damage


def spent_ledger(path, charges=12):
    ledger = Ledger(path, epsilon=2.0, delta=0.0)
    for index in range(charges):
        ledger.charge(PureDP(0.1), description=f"release {index} " + "x" * 300)
    return path.read_bytes()


def budget_after(path, content):
    """Overwrite the file and return what a fresh opening grants, or None for a LedgerError."""
    path.write_bytes(content)
    try:
        return Ledger(path, epsilon=2.0, delta=0.0).remaining().epsilon
    except LedgerError:
        return None
    finally:
        for name in os.listdir(path.parent):
            if name != path.name:
                os.unlink(path.parent / name)


def test_a_truncated_file_is_never_a_fresh_budget(path):
    whole = spent_ledger(path)
    rng = np.random.default_rng(0)
    lengths = {0, 1, 15, 16, 99, 100, 4096, 8192, len(whole) - 4096, len(whole) - 1}
    lengths |= set(rng.integers(0, len(whole), size=150).tolist())
    for length in sorted(lengths):
        assert budget_after(path, whole[:length]) is None, length
    assert budget_after(path, whole) == pytest.approx(0.8)


def test_flipped_bits_never_give_budget_back(path):
    whole = spent_ledger(path)
    rng = np.random.default_rng(1)
    # The first pages hold the header, the schema and the roots of both tables.
    places = np.r_[np.arange(0, 120), rng.integers(0, len(whole), size=300)]
    noticed = 0
    for place in places:
        broken = bytearray(whole)
        broken[place] ^= 1 << int(rng.integers(8))
        left = budget_after(path, bytes(broken))
        assert left is None or left == pytest.approx(0.8), place
        noticed += left is None
    assert noticed > 100


def test_flipped_page_headers_never_give_budget_back(path):
    """Page headers say how many rows a page has: one bit could make rows vanish."""
    whole = spent_ledger(path)
    for page in range(0, len(whole), 4096):
        for offset in range(100 * (page == 0), 100 * (page == 0) + 20):
            for bit in range(8):
                broken = bytearray(whole)
                broken[page + offset] ^= 1 << bit
                left = budget_after(path, bytes(broken))
                assert left is None or left == pytest.approx(0.8), (page, offset, bit)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM log WHERE number = 13",
        "DELETE FROM log WHERE number = 5",
        "DELETE FROM log",
        "DELETE FROM head",
        "UPDATE log SET record = replace(record, '0.1', '0.01') WHERE number = 3",
        "UPDATE log SET record = replace(record, '2.0', '20.0') WHERE number = 1",
        "UPDATE log SET record = replace(record, 'default', 'other') WHERE number = 1",
        "UPDATE log SET record = NULL WHERE number = 4",
        "DROP TABLE log",
        "PRAGMA application_id = 0",
        "PRAGMA user_version = 2",
    ],
)
def test_edits_are_noticed(path, statement):
    spent_ledger(path)
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    assert budget_after(path, path.read_bytes()) is None


@pytest.mark.parametrize("content", [b"", b"{}", b"SQLite format 3\0", os.urandom(5000)])
def test_foreign_files_are_refused_and_left_alone(path, content):
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="not an intact ledger"):
        Ledger(path, epsilon=1.0)
    assert path.read_bytes() == content


def test_another_applications_database_is_refused(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE budgets (epsilon REAL)")
    connection.commit()
    connection.close()
    with pytest.raises(LedgerError, match="not made by dpconvex"):
        Ledger(path, epsilon=1.0)


def test_a_file_that_vanishes_or_goes_back_in_time_is_noticed(path):
    ledger = Ledger(path, epsilon=1.0)
    older = path.read_bytes()
    ledger.charge(PureDP(0.5))
    frozen = pickle.dumps(ledger)
    path.write_bytes(older)
    for attempt in (lambda: ledger.charge(PureDP(0.5)), lambda: pickle.loads(frozen)):
        with pytest.raises(LedgerError, match="replaced by another or an older"):
            attempt()
    path.unlink()
    with pytest.raises(LedgerError, match="is gone"):
        ledger.charge(PureDP(0.5))
    assert not path.exists()


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(LedgerError):
        Ledger(tmp_path, epsilon=1.0)


def test_records_are_plain_json(path):
    Ledger(path, epsilon=1.0).charge(ApproxDP(0.5, 1e-7), mechanism="objective")
    connection = sqlite3.connect(path)
    rows = [json.loads(row) for (row,) in connection.execute("SELECT record FROM log")]
    connection.close()
    assert [row["kind"] for row in rows] == ["budget", "charge"]
    assert rows[1]["guarantee"] == {"kind": "approx", "epsilon": 0.5, "delta": 1e-7}
