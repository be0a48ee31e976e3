"""The records of a ledger's file: a budget that was opened, and each charge that was granted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime

from dpconvex.checks import check_number
from dpconvex.privacy.bounds.base import RECORD
from dpconvex.privacy.guarantees import Guarantee, guarantee_from_dict
from dpconvex.privacy.ledger.account import COMPOSITIONS, DEFAULT_DELTA, Account, Cost
from dpconvex.privacy.ledger.chain import LedgerError, Record, State
from dpconvex.privacy.ledger.units import check_unit

__all__ = ["Entry", "advance", "asked_budget", "budget_record", "entry_of", "now"]


@dataclass(frozen=True)
class Entry:
    """One granted charge. Public facts only: no value of the data is ever recorded.

    ``mu`` is that of a release known to be Gaussian DP, whatever its guarantee states; else None.
    """

    number: int
    time: str
    dataset: str
    guarantee: Guarantee
    description: str
    mechanism: str
    neighbors: str
    mu: float | None = None
    unit: str = RECORD


def asked_budget(epsilon: float | None, delta: float | None, mu: float | None, composition: str | None) -> Record:
    """Return the budget that was asked for, checked."""
    if mu is not None:
        for name, value in (("epsilon", epsilon), ("delta", delta), ("composition", composition)):
            if value is not None:
                raise ValueError(
                    f"The '{name}' parameter of Ledger must be None for a budget in mu. Got {value!r} instead."
                )
        mu = check_number("mu", "Ledger", mu, "a finite positive number", 0, math.inf, True)
    if composition is not None and composition not in COMPOSITIONS:
        raise ValueError(
            f"The 'composition' parameter of Ledger must be one of {COMPOSITIONS}. Got {composition!r} instead."
        )
    if epsilon is not None:
        epsilon = check_number("epsilon", "Ledger", epsilon, "a finite positive number", 0, math.inf, True)
    if delta is not None:
        delta = check_number("delta", "Ledger", delta, "a number in [0, 1)", 0, 1)
    return {"epsilon": epsilon, "delta": delta, "mu": mu, "composition": composition}


def advance(state: State | None, record: Record) -> State:
    """Return the account after a record: the log's running state."""
    if record["kind"] == "budget":
        # A second budget of one name was never written; the first one counts.
        return state if state is not None else _opened(record).to_dict()
    assert state is not None
    account = Account.from_dict(state)
    entry_of(account.charges, record)  # raises where it is none
    if "cost" in record:
        cost = Cost(**record["cost"])
        if not all(value >= 0 for value in vars(cost).values()):
            raise LedgerError("It gives something back.")
    else:  # a charge of format 1
        cost = account.cost(guarantee_from_dict(record["guarantee"]))
    after = account.charged(cost, record["neighbors"], record.get("unit", RECORD))
    if "cost" in record and not after.within_budget():  # rules of format 1 granted other charges
        raise LedgerError("It goes beyond the budget.")
    return after.to_dict()


def _opened(record: Record) -> Account:
    # Files of format 1 know no mu. Their "sums" and "best" are read as what is safe of both.
    composition = record["composition"] if "mu" in record else "gaussian"
    return Account(record["epsilon"], record["delta"], record.get("mu"), composition)


def now() -> str:
    """Return the time of a record."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def budget_record(dataset: str, asked: Record) -> Record:
    """Return the record that opens a budget."""
    delta = asked["delta"]
    if asked["mu"] is None and delta is None:
        delta = DEFAULT_DELTA
    return {
        "kind": "budget",
        "dataset": dataset,
        "epsilon": asked["epsilon"],
        "delta": delta,
        "mu": asked["mu"],
        "composition": asked["composition"] or "gaussian",
        "time": now(),
    }


def entry_of(number: int, record: Record) -> Entry:
    """Return a charge as users see it; raise ValueError where a record is none."""
    words = ("time", "dataset", "description", "mechanism", "neighbors")
    if not all(isinstance(record[name], str) for name in words):
        raise ValueError("This is no record of a charge.")
    return Entry(
        number=number,
        time=record["time"],
        dataset=record["dataset"],
        guarantee=guarantee_from_dict(record["guarantee"]),
        description=record["description"],
        mechanism=record["mechanism"],
        neighbors=record["neighbors"],
        mu=record.get("mu"),
        unit=check_unit(record.get("unit", RECORD)),
    )
