"""A ledger has one unit: promises to records and to people add up only as far as one follows
from the other.
"""

import numpy as np
import pytest

from dpconvex import DPLogisticRegression
from dpconvex.privacy import ApproxDP, GaussianDP, Ledger, PureDP
from dpconvex.privacy.ledger import LedgerError, convert_ledger_unit

FIVE = "one person, at most 5 rows"


def test_what_follows_from_a_promise_to_another_unit():
    record = "one record"
    anybody = "one person"
    assert convert_ledger_unit(PureDP(0.1), None, record, FIVE) == (PureDP(0.5), None)
    assert convert_ledger_unit(GaussianDP(0.1), 0.1, record, FIVE) == (GaussianDP(0.5), 0.5)
    two = "one person, at most 2 rows"
    assert convert_ledger_unit(PureDP(0.1), None, two, FIVE)[0].epsilon_bound == pytest.approx(0.3)
    for stronger in (FIVE, anybody):
        assert convert_ledger_unit(PureDP(0.1), None, stronger, two) == (PureDP(0.1), None)
    for weaker in (record, FIVE):
        assert convert_ledger_unit(PureDP(0.1), None, weaker, anybody) is None
    assert convert_ledger_unit(PureDP(0.1), None, anybody, record) is None
    generic, _ = convert_ledger_unit(ApproxDP(0.1, 1e-8), None, record, FIVE)
    assert generic.delta_bound == pytest.approx(1e-8 * np.expm1(0.5) / np.expm1(0.1))


def test_the_first_charge_fixes_the_unit(tmp_path):
    ledger = Ledger(tmp_path / "privacy.db", epsilon=2.0, delta=0.0)
    ledger.charge(PureDP(0.5), unit=FIVE)
    assert ledger.charge(PureDP(0.1)).guarantee == PureDP(0.5)
    assert [entry.unit for entry in ledger.entries()] == [FIVE, FIVE]
    assert Ledger(tmp_path / "privacy.db").remaining().epsilon == pytest.approx(1.0)
    with pytest.raises(ValueError, match="unit"):
        ledger.charge(PureDP(0.1), unit="one household")


def test_a_fit_for_people_charges_for_people(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 2))
    y = rng.integers(0, 2, 200)
    ids = rng.integers(0, 40, 200)
    ledger = Ledger(tmp_path / "privacy.db", epsilon=3.0, delta=1e-4)
    DPLogisticRegression(feature_bounds=(-1, 1), ledger=ledger).fit(X, y, groups=ids)
    assert ledger.entries()[0].unit == "one person"
    with pytest.raises(LedgerError, match="one person"):
        DPLogisticRegression(feature_bounds=(-1, 1), ledger=ledger).fit(X, y)
    assert len(ledger.entries()) == 1
