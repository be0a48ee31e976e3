"""The privacy budget of a data set, in one SQLite file that many processes may charge at once.

A charge is written, flushed to disk and committed before it is granted, so the noise of a release
is drawn only after its cost is on record: a crash in between loses budget, never privacy. The
file holds an append-only log of public facts, each record chained to the one before by its hash;
whatever breaks the chain is an error, never a fresh budget.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict

from dpconvex.checks import check_number
from dpconvex.privacy.bounds.base import RECORD
from dpconvex.privacy.description import Facts
from dpconvex.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, PureDP
from dpconvex.privacy.ledger.account import DEFAULT_DELTA, Account, Cost, Remaining
from dpconvex.privacy.ledger.chain import MALFORMED, ChainedLog, LedgerError
from dpconvex.privacy.ledger.records import Entry, advance, asked_budget, budget_record, entry_of, now
from dpconvex.privacy.ledger.units import check_unit, converted

_NEIGHBORS = ("replace_one", "add_or_remove_one", "replace_one_keeping_label")


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

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0], self.guarantee, self.remaining)


class Ledger:
    """Open the privacy budget of one data set, or create it when ``epsilon`` or ``mu`` is given.

    A budget of (epsilon, delta) takes charges of all kinds. Epsilons and deltas are added; Gaussian charges are added
    in squares, so that many of them cost little. Default fits are Gaussian releases that state an epsilon and a delta,
    and are charged their mu. A budget in mu takes Gaussian and pure charges, and is the most exact for them.

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
    mu : float or None
        The whole budget in mu, instead of epsilon and delta.
    composition : {"gaussian", "sums"} or None
        For a new budget of (epsilon, delta). "gaussian" (what None means) is as above. "sums" charges every release the
        epsilon and delta that it states and nothing else: better for few releases of which some are not Gaussian.

    Notes
    -----
    Whatever is granted keeps the budget, although each charge, and its kind, may be chosen in view of all earlier
    results: :mod:`dpconvex.privacy.ledger.account` has the proof.

    Copies are the ledger itself, and a pickled ledger reopens its file, so that scikit-learn's
    ``clone``, ``cross_val_score`` and ``GridSearchCV`` are charged for every fit, in every
    process. All charges must use one neighbouring relation: the first charge fixes it.

    A charge takes the same time however many there are: it checks the newest record and the sealed totals.
    :meth:`check` and :meth:`entries` check every record. The chain of hashes finds accidents (truncation, flipped bits,
    hand edits), not forgery: somebody who writes the file can remove the last charges and make the rest agree, and an
    older copy put back in its place is an older budget. Keep :meth:`head` elsewhere, and :meth:`check` finds that too.

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
        mu: float | None = None,
        *,
        composition: str | None = None,
    ) -> None:
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"The 'path' parameter of Ledger must be a file path. Got {type(path).__name__} instead.")
        if os.fspath(path) in ("", ":memory:"):
            raise ValueError(
                "The 'path' parameter of Ledger must name a file: a budget has to outlive the "
                f"process. Got {os.fspath(path)!r} instead."
            )
        if not isinstance(dataset, str) or not dataset:
            raise ValueError(f"The 'dataset' parameter of Ledger must be a non-empty string. Got {dataset!r} instead.")
        asked = asked_budget(epsilon, delta, mu, composition)
        new = epsilon is not None or mu is not None
        # Absolute, because a worker process that unpickles the ledger may run elsewhere.
        self.path = os.path.abspath(os.fspath(path))
        self.dataset = dataset
        self._log = ChainedLog(self.path, advance)
        if not os.path.lexists(self.path):
            if not new:
                raise LedgerError(
                    f"There is no ledger at '{path}'. To create it with a budget for '{dataset}', "
                    "give epsilon (and delta) or mu: Ledger(path, dataset, epsilon=1.0, delta=1e-6)."
                )
            self._log.create(budget_record(dataset, asked))
        states = self._log.read().states
        if new and dataset not in states:
            with self._log.append() as snapshot:
                if dataset not in snapshot.states:
                    snapshot.add(budget_record(dataset, asked))
            states = snapshot.states
        if dataset not in states:
            raise LedgerError(
                f"The ledger at '{self.path}' has no budget for '{dataset}'; it has "
                f"{sorted(states)}. To add one, give epsilon (and delta) or mu."
            )
        budget = self._account(states)
        for name, value in asked.items():
            kept = getattr(budget, name)
            if value is not None and value != kept:
                raise LedgerError(
                    f"The budget of '{dataset}' has {name}={kept!r}, but Ledger was opened "
                    f"with {name}={value!r}. Leave {name} out to open the existing budget: it "
                    "cannot be changed."
                )
        self.epsilon: float | None = budget.epsilon
        self.delta: float | None = budget.delta
        self.mu: float | None = budget.mu
        self.composition: str = budget.composition

    def charge(
        self,
        guarantee: Guarantee,
        *,
        mu: float | None = None,
        description: str = "",
        mechanism: str = "",
        neighbors: str = "replace_one",
        unit: str = RECORD,
    ) -> Entry:
        """Record the cost of a release, durably, or raise; call it before noise is drawn.

        Parameters
        ----------
        guarantee : PureDP, ApproxDP or GaussianDP
            What the release promises.
        mu : float or None
            The release is mu-Gaussian DP as well, and may be charged as such; None if that is not known.
        description, mechanism : str
            Public words for the record: never put a data value here.
        neighbors : {"replace_one", "add_or_remove_one", "replace_one_keeping_label"}
            The relation under which the guarantee holds.
        unit : str
            Whom the guarantee is made to, as a certificate says: ``"one record"``, ``"one person"``, or ``"one person,
            at most k rows"``. The first charge fixes the ledger's; others are converted where something follows for it.

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
        mu = _check_charge(guarantee, mu)
        for name, value in (("description", description), ("mechanism", mechanism)):
            if not isinstance(value, str):
                raise TypeError(
                    f"The '{name}' parameter of Ledger.charge must be a string. Got {type(value).__name__} instead."
                )
        if neighbors not in _NEIGHBORS:
            raise ValueError(
                f"The 'neighbors' parameter of Ledger.charge must be one of {_NEIGHBORS}. Got {neighbors!r} instead."
            )
        unit = check_unit(unit)
        with self._log.append() as snapshot:
            account = self._account(snapshot.states)
            if account.charges:
                same = converted(guarantee, mu, unit, account.unit)
                if same is None:
                    raise LedgerError(
                        f"The charges of '{self.dataset}' are promises to {account.unit}, and nothing follows for that "
                        f"from a promise to {unit}. Fit for the same unit, or keep a second budget for the other one."
                    )
                (guarantee, mu), unit = same, account.unit
            record = {
                "kind": "charge",
                "dataset": self.dataset,
                "guarantee": guarantee.to_dict(),
                "mu": mu,
                "description": description,
                "mechanism": mechanism,
                "neighbors": neighbors,
                "time": now(),
            }
            if unit != RECORD:
                record["unit"] = unit
            if account.neighbors not in (None, neighbors):
                raise LedgerError(
                    f"The charges of '{self.dataset}' hold under neighbors="
                    f"'{account.neighbors}' and do not add up with neighbors='{neighbors}'. "
                    "Fit with the same relation, or keep a second budget for the other one."
                )
            cost = account.cost(guarantee, mu)
            after = account.charged(cost, neighbors, unit)
            if not after.within_budget():
                remaining = account.remaining()
                raise BudgetExceeded(
                    f"The budget of '{self.dataset}' does not allow {guarantee!r}: {remaining}."
                    + _hint(account, cost, guarantee, mu),
                    guarantee,
                    remaining,
                )
            # What was charged is recorded, so that nobody has to work it out again.
            record["cost"] = asdict(cost)
            snapshot.add(record)
        return entry_of(after.charges, record)

    def entries(self) -> list[Entry]:
        """Return the granted charges of this data set, oldest first, after checking every record of the file."""
        records = self._log.verify()[1]
        mine = (r for r in records if r["kind"] == "charge" and r["dataset"] == self.dataset)
        return [entry_of(number, record) for number, record in enumerate(mine, start=1)]

    def affords(self, guarantee: Guarantee, *, mu: float | None = None) -> bool:
        """Return whether a charge would be granted now; charges nothing."""
        mu = _check_charge(guarantee, mu)
        account = self._account()
        return account.charged(account.cost(guarantee, mu), _NEIGHBORS[0]).within_budget()

    def spent(self, delta: float | None = None) -> float:
        """Return the total epsilon so far at ``delta`` (the budget's by default, 1e-6 for a budget in mu).

        It holds for charges that were planned beforehand. If they were chosen in view of results, what is certain is
        the budget: a total that is read off at a moment chosen in view of results may be larger than it says.
        """
        if delta is None:
            delta = DEFAULT_DELTA if self.delta is None else self.delta
        else:
            delta = check_number("delta", "Ledger.spent", delta, "a number in [0, 1)", 0, 1)
        return self._account().epsilon_at(delta)

    def total(self) -> Guarantee:
        """Return one guarantee for everything that was released so far; what :meth:`spent` says of it holds here.

        ``GaussianDP`` if all charges were Gaussian, else (epsilon, delta) at the budget's delta.
        """
        return self._account().total()

    def remaining(self) -> Remaining:
        """Return what is left of the budget."""
        return self._account().remaining()

    def head(self) -> str:
        """Return the number and the hash of the newest record of the file, to be kept elsewhere.

        Whoever has it can tell by :meth:`check` whether a later file still holds every record up to this one.
        """
        snapshot = self._log.read()
        return f"{snapshot.number}-{snapshot.digest}"

    def check(self, head: str | None = None) -> str:
        """Check every record and every total of the file, or raise LedgerError; return its head.

        Parameters
        ----------
        head : str, optional
            What :meth:`head` returned earlier. Without it, a file whose last charges were removed by somebody who
            made the rest agree, or an older copy, passes.
        """
        expected = None
        if head is not None:
            found = re.fullmatch(r"([1-9]\d{0,17})-([0-9a-f]{64})", str(head).strip())
            if found is None:
                raise ValueError(
                    "The 'head' parameter of Ledger.check must be what Ledger.head returned, a number, '-' and 64 "
                    f"hexadecimal digits. Got {head!r} instead."
                )
            expected = (int(found[1]), found[2])
        snapshot, _ = self._log.verify(expected)
        return f"{snapshot.number}-{snapshot.digest}"

    def _account(self, states: Mapping[str, Facts] | None = None) -> Account:
        """Return the account of this data set, by default the newest."""
        states = self._log.read().states if states is None else states
        try:
            return Account.from_dict(states[self.dataset])
        except MALFORMED as error:
            raise self._log.damaged("its totals are none") from error

    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Ledger:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen, (self.path, self.dataset, self._log.seen)

    def __repr__(self) -> str:
        budget = f"epsilon={self.epsilon!r}, delta={self.delta!r}"
        if self.mu is not None:
            budget = f"mu={self.mu!r}"
        return f"Ledger({self.path!r}, {self.dataset!r}, {budget})"


def _reopen(path: str, dataset: str, seen: tuple[int, str]) -> Ledger:
    """Open a pickled ledger again, where it is unpickled, and require what it had seen."""
    ledger = Ledger(path, dataset)
    ChainedLog(path, advance, seen).read()
    return ledger


def _check_charge(guarantee: object, mu: object) -> float | None:
    if not isinstance(guarantee, (PureDP, ApproxDP, GaussianDP)):
        raise TypeError(
            "The 'guarantee' parameter of Ledger must be PureDP, ApproxDP or GaussianDP. "
            f"Got {type(guarantee).__name__} instead."
        )
    if mu is None:
        return None
    return check_number("mu", "Ledger.charge", mu, "a finite number of at least 0", 0, math.inf)


def _hint(account: Account, cost: Cost, guarantee: Guarantee, mu: float | None) -> str:
    if account.delta == 0 and not isinstance(guarantee, PureDP):
        return " A budget with delta=0 takes pure guarantees only: fit with delta=0."
    if math.isinf(cost.epsilon):
        return " This budget adds epsilons and deltas: fit with epsilon and delta instead of mu."
    if math.isinf(cost.mu_squared):
        return (
            " This budget adds squares of mu, and the release has a delta without being Gaussian: use a Gaussian "
            "mechanism ('gradient' or 'output'), or delta=0."
        )
    if cost.delta > 0 and mu is None:
        return " Each charge adds its delta: fit with a smaller epsilon or delta."
    return " Fit with a smaller epsilon or mu, or stop here."
