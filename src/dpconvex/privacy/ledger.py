"""The privacy budget of a data set, in one SQLite file that many processes may charge at once.

A charge is written, flushed to disk and committed before it is granted, so the noise of a release
is drawn only after its cost is on record: a crash in between loses budget, never privacy. The
file holds an append-only log of public facts, each record chained to the one before by its hash;
whatever breaks the chain is an error, never a fresh budget.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from .chain import ChainedLog, LedgerError, Record
from .composition import compose_delta, compose_epsilon
from .guarantees import ApproxDP, GaussianDP, Guarantee, PureDP, check_number, guarantee_from_dict

DEFAULT_DELTA = 1e-6
# A total above the budget by no more than this factor is rounding: 10 charges of 0.1 fit into 1.
ROUNDING = 1e-12

_NEIGHBORS = ("replace_one", "add_or_remove_one", "replace_one_keeping_label")
_COMPOSITIONS = ("best", "sums")


class BudgetExceeded(LedgerError):
    """A charge was refused because the total would exceed the budget.

    Attributes
    ----------
    guarantee : PureDP, ApproxDP or GaussianDP
        What was asked for. Nothing was charged.
    remaining : Remaining
        What is left.
    """

    def __init__(self, message: str, guarantee: Guarantee, remaining: Remaining) -> None:
        super().__init__(message)
        self.guarantee = guarantee
        self.remaining = remaining

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args[0], self.guarantee, self.remaining)


@dataclass(frozen=True)
class Entry:
    """One granted charge. Public facts only: no value of the data is ever recorded."""

    number: int
    time: str
    dataset: str
    guarantee: Guarantee
    description: str
    mechanism: str
    neighbors: str


@dataclass(frozen=True)
class Remaining:
    """What is left of a budget.

    A charge of ``ApproxDP(epsilon, delta)``, or of ``PureDP(epsilon)``, is certain to be granted.
    When ``spent_epsilon`` is below ``budget_epsilon - epsilon``, the total is tighter than plain
    sums and further small charges may be granted too: ask :meth:`Ledger.affords`.

    Attributes
    ----------
    epsilon, delta : float
        Left under basic composition. After Gaussian charges half of the unspent delta is kept to
        read their epsilon, so that both numbers can be spent together.
    spent_epsilon : float
        Best upper bound on the total epsilon at ``budget_delta``.
    budget_epsilon, budget_delta : float
        The whole budget.
    charges : int
        Number of granted charges.
    """

    epsilon: float
    delta: float
    spent_epsilon: float
    budget_epsilon: float
    budget_delta: float
    charges: int

    def __str__(self) -> str:
        return (
            f"epsilon {self.epsilon:.4g} and delta {self.delta:.3g} left of "
            f"({self.budget_epsilon:g}, {self.budget_delta:g}) after {self.charges} charges; "
            f"the best bound on the total is epsilon {self.spent_epsilon:.4g}"
        )


class Ledger:
    """Open the privacy budget of one data set, or create it when ``epsilon`` is given.

    A charge is granted if and only if ``compose_epsilon(all charges, delta)`` is at most
    ``epsilon * (1 + 1e-12)``, whatever the order of the charges; the factor is for rounding.

    Parameters
    ----------
    path : str or path-like
        The SQLite file. Keep it on a local disk: locks of network file systems are unreliable.
    dataset : str
        Which budget of the file; one file may hold many.
    epsilon : float or None
        The whole budget, for a new data set. None opens an existing one. Opening an existing
        budget with another value is an error.
    delta : float or None
        Likewise; None means 1e-6 for a new budget, 0 allows pure guarantees only.
    composition : {"best", "sums"} or None
        How charges add up, for a new budget. "sums" (what None means) stays true when every charge is chosen in
        view of earlier results; "best" also uses dp-accounting's privacy loss distributions, for plans that were
        fixed beforehand: see :mod:`dpconvex.privacy.composition`.

    Notes
    -----
    Copies are the ledger itself, and a pickled ledger reopens its file, so that scikit-learn's
    ``clone``, ``cross_val_score`` and ``GridSearchCV`` are charged for every fit, in every
    process. All charges must use one neighbouring relation: the first charge fixes it.

    The chain of hashes finds accidents (truncation, flipped bits, hand edits), not forgery, and an
    older copy put back in place of the file is an older budget.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from dpconvex.privacy.guarantees import PureDP
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "privacy.db"
    >>> ledger = Ledger(path, "survey", epsilon=1.0, delta=0.0)
    >>> ledger.charge(PureDP(0.25), description="median income").guarantee
    PureDP(epsilon=0.25)
    >>> Ledger(path, "survey").remaining().epsilon
    0.75
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        dataset: str = "default",
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        composition: str | None = None,
    ) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(
                "The 'path' parameter of Ledger must be a file path. "
                f"Got {type(path).__name__} instead."
            )
        if os.fspath(path) in ("", ":memory:"):
            raise ValueError(
                "The 'path' parameter of Ledger must name a file: a budget has to outlive the "
                f"process. Got {os.fspath(path)!r} instead."
            )
        if not isinstance(dataset, str) or not dataset:
            raise ValueError(
                "The 'dataset' parameter of Ledger must be a non-empty string. "
                f"Got {dataset!r} instead."
            )
        if composition is not None and composition not in _COMPOSITIONS:
            raise ValueError(
                f"The 'composition' parameter of Ledger must be one of {_COMPOSITIONS}. "
                f"Got {composition!r} instead."
            )
        if epsilon is not None:
            epsilon = check_number(
                "epsilon", "Ledger", epsilon, "a finite positive number", 0, math.inf, True
            )
        if delta is not None:
            delta = check_number("delta", "Ledger", delta, "a number in [0, 1)", 0, 1)
        # Absolute, because a worker process that unpickles the ledger may run elsewhere.
        self.path = os.path.abspath(os.fspath(path))
        self.dataset = dataset
        self._log = ChainedLog(self.path)
        asked = {"epsilon": epsilon, "delta": delta, "composition": composition}
        if not os.path.lexists(self.path):
            if epsilon is None:
                raise LedgerError(
                    f"There is no ledger at '{path}'. To create it with a budget for '{dataset}', "
                    "give epsilon (and delta): Ledger(path, dataset, epsilon=1.0, delta=1e-6)."
                )
            self._log.create(_budget_record(dataset, asked))
        budget = self._find_or_add_budget(asked)
        for name, value in asked.items():
            if value is not None and value != budget[name]:
                raise LedgerError(
                    f"The budget of '{dataset}' has {name}={budget[name]!r}, but Ledger was opened "
                    f"with {name}={value!r}. Leave {name} out to open the existing budget: it "
                    "cannot be changed."
                )
        self.epsilon: float = budget["epsilon"]
        self.delta: float = budget["delta"]
        self.composition: str = budget["composition"]

    def _find_or_add_budget(self, asked: dict[str, Any]) -> Record:
        records = self._log.read()
        if asked["epsilon"] is not None and _budget_of(records, self.dataset) is None:
            with self._log.append() as (before, added):
                if _budget_of(before, self.dataset) is None:
                    added.append(_budget_record(self.dataset, asked))
            records = before + added
        budget = _budget_of(records, self.dataset)
        if budget is None:
            names = [record["dataset"] for record in records if record["kind"] == "budget"]
            raise LedgerError(
                f"The ledger at '{self.path}' has no budget for '{self.dataset}'; it has "
                f"{names}. To add one, give epsilon (and delta)."
            )
        return budget

    def charge(
        self,
        guarantee: Guarantee,
        *,
        description: str = "",
        mechanism: str = "",
        neighbors: str = "replace_one",
    ) -> Entry:
        """Record the cost of a release, durably, or raise; call it before noise is drawn.

        Parameters
        ----------
        guarantee : PureDP, ApproxDP or GaussianDP
            What the release promises.
        description, mechanism : str
            Public words for the record: never put a data value here.
        neighbors : {"replace_one", "add_or_remove_one", "replace_one_keeping_label"}
            The relation under which the guarantee holds.

        Returns
        -------
        Entry
            The charge, which is on disk by now.

        Raises
        ------
        BudgetExceeded
            If the total would exceed the budget; nothing is charged.
        LedgerError
            If the file cannot be read, written or trusted; nothing may be released.
        """
        _check_guarantee(guarantee)
        for name, value in (("description", description), ("mechanism", mechanism)):
            if not isinstance(value, str):
                raise TypeError(
                    f"The '{name}' parameter of Ledger.charge must be a string. "
                    f"Got {type(value).__name__} instead."
                )
        if neighbors not in _NEIGHBORS:
            raise ValueError(
                f"The 'neighbors' parameter of Ledger.charge must be one of {_NEIGHBORS}. "
                f"Got {neighbors!r} instead."
            )
        record = {
            "kind": "charge",
            "dataset": self.dataset,
            "guarantee": guarantee.to_dict(),
            "description": description,
            "mechanism": mechanism,
            "neighbors": neighbors,
            "time": _now(),
        }
        # The total is worked out once without the lock, which leaves it in the cache: nobody waits
        # for the accountant unless somebody else charged in between.
        self.affords(guarantee)
        with self._log.append() as (records, added):
            entries = _entries(records, self.dataset)
            if entries and entries[0].neighbors != neighbors:
                raise LedgerError(
                    f"The charges of '{self.dataset}' hold under neighbors="
                    f"'{entries[0].neighbors}' and do not add up with neighbors='{neighbors}'. "
                    "Fit with the same relation, or keep a second budget for the other one."
                )
            spent = [entry.guarantee for entry in entries]
            if not self._fits([*spent, guarantee]):
                remaining = self._remaining(spent)
                raise BudgetExceeded(
                    f"The budget of '{self.dataset}' does not allow {guarantee!r}: {remaining}."
                    + self._hint(guarantee),
                    guarantee,
                    remaining,
                )
            added.append(record)
        return _entries(records + added, self.dataset)[-1]

    def entries(self) -> list[Entry]:
        """Return the granted charges of this data set, oldest first."""
        return _entries(self._log.read(), self.dataset)

    def affords(self, guarantee: Guarantee) -> bool:
        """Return whether a charge would be granted now; charges nothing."""
        _check_guarantee(guarantee)
        return self._fits([*(entry.guarantee for entry in self.entries()), guarantee])

    def spent(self, delta: float | None = None) -> float:
        """Return the best upper bound on the total epsilon at ``delta`` (the budget's by default)."""
        if delta is None:
            delta = self.delta
        else:
            delta = check_number("delta", "Ledger.spent", delta, "a number in [0, 1)", 0, 1)
        return self._total([entry.guarantee for entry in self.entries()], delta)

    def total(self) -> Guarantee:
        """Return one guarantee for everything that was released so far.

        ``GaussianDP`` if all charges were Gaussian, else (epsilon, delta) at the budget's delta.
        """
        guarantees = [entry.guarantee for entry in self.entries()]
        mus = [guarantee.mu for guarantee in guarantees if isinstance(guarantee, GaussianDP)]
        if mus and len(mus) == len(guarantees):
            return GaussianDP(math.sqrt(math.fsum(mu * mu for mu in mus)))
        epsilon = self._total(guarantees, self.delta)
        return ApproxDP(epsilon, self.delta) if self.delta > 0 else PureDP(epsilon)

    def remaining(self) -> Remaining:
        """Return what is left of the budget."""
        return self._remaining([entry.guarantee for entry in self.entries()])

    def _total(self, guarantees: list[Guarantee], delta: float) -> float:
        return compose_epsilon(guarantees, delta, method=self.composition)

    def _fits(self, guarantees: list[Guarantee]) -> bool:
        limit = self.epsilon * (1 + ROUNDING)
        # The sums alone settle most charges without the accountant; the answer is the same.
        if compose_epsilon(guarantees, self.delta, method="sums") <= limit:
            return True
        return self._total(guarantees, self.delta) <= limit

    def _remaining(self, guarantees: list[Guarantee]) -> Remaining:
        unspent = max(0.0, self.delta - compose_delta(guarantees))
        reading = self.delta
        if any(isinstance(guarantee, GaussianDP) for guarantee in guarantees):
            unspent /= 2
            reading -= unspent
        sums = compose_epsilon(guarantees, reading, method="sums")
        return Remaining(
            epsilon=max(0.0, self.epsilon - sums),
            delta=unspent,
            spent_epsilon=self._total(guarantees, self.delta),
            budget_epsilon=self.epsilon,
            budget_delta=self.delta,
            charges=len(guarantees),
        )

    def _hint(self, guarantee: Guarantee) -> str:
        if self.delta == 0 and not isinstance(guarantee, PureDP):
            return " A budget with delta=0 takes pure guarantees only: fit with delta=0."
        if isinstance(guarantee, ApproxDP) and guarantee.delta_bound > 0:
            return " Each charge adds its delta: fit with a smaller epsilon or delta."
        return " Fit with a smaller epsilon or mu, or stop here."

    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.path, self.dataset, self._log.seen)

    def __repr__(self) -> str:
        return f"Ledger({self.path!r}, {self.dataset!r}, epsilon={self.epsilon!r}, delta={self.delta!r})"


def _reopen(path: str, dataset: str, seen: tuple[int, str]) -> Ledger:
    """Open a pickled ledger again, where it is unpickled, and require what it had seen."""
    ledger = Ledger(path, dataset)
    ChainedLog(path, seen).read()
    return ledger


def _check_guarantee(guarantee: object) -> None:
    if not isinstance(guarantee, (PureDP, ApproxDP, GaussianDP)):
        raise TypeError(
            "The 'guarantee' parameter of Ledger must be PureDP, ApproxDP or GaussianDP. "
            f"Got {type(guarantee).__name__} instead."
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _budget_record(dataset: str, asked: dict[str, Any]) -> Record:
    return {
        "kind": "budget",
        "dataset": dataset,
        "epsilon": asked["epsilon"],
        "delta": DEFAULT_DELTA if asked["delta"] is None else asked["delta"],
        "composition": asked["composition"] or "sums",
        "time": _now(),
    }


def _budget_of(log: list[Record], dataset: str) -> Record | None:
    for record in log:
        if record["kind"] == "budget" and record["dataset"] == dataset:
            return record
    return None


def _entries(log: list[Record], dataset: str) -> list[Entry]:
    charges = [
        record for record in log if record["kind"] == "charge" and record["dataset"] == dataset
    ]
    return [
        Entry(
            number=number,
            time=record["time"],
            dataset=record["dataset"],
            guarantee=guarantee_from_dict(record["guarantee"]),
            description=record["description"],
            mechanism=record["mechanism"],
            neighbors=record["neighbors"],
        )
        for number, record in enumerate(charges, start=1)
    ]
