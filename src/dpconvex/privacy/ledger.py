"""Ledger: the privacy budget of a data set, in one SQLite file that many processes may charge at
once.

A charge is written, flushed to disk and committed before it is granted, so the noise of a release
is drawn only after its cost is on record: a crash in between loses budget, never privacy.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime

from dpconvex.core.bounds import PERSON, RECORD
from dpconvex.core.checks import check_number, parameter_error
from dpconvex.core.description import Facts
from dpconvex.core.guarantees import (
    ApproxDP,
    GaussianDP,
    Guarantee,
    PureDP,
    group_guarantee,
    guarantee_from_dict,
)
from dpconvex.privacy.bounds.scores import RELATIONS
from dpconvex.privacy.ledger_file import MALFORMED, LedgerError, LedgerFile
from dpconvex.privacy.privacy_filter import (
    COMPOSITIONS,
    DEFAULT_DELTA,
    FilterCost,
    FilterRemaining,
    PrivacyFilter,
)

_PERSON_OF_ROWS = re.compile(r"one person, at most ([1-9][0-9]{0,9}) rows")


class BudgetExceeded(LedgerError):
    """A charge of ``guarantee`` was refused because the total would exceed the budget;
    ``remaining`` is left.
    """

    def __init__(self, message: str, guarantee: Guarantee, remaining: FilterRemaining) -> None:
        super().__init__(message)
        self.guarantee = guarantee
        self.remaining = remaining

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.args[0], self.guarantee, self.remaining)


@dataclass(frozen=True)
class LedgerEntry:
    """One granted charge. Public facts only: no value of the data is ever recorded."""

    number: int
    time: str
    dataset: str
    guarantee: Guarantee
    description: str
    mechanism: str
    neighbors: str
    mu: float | None = None  # of a release known to be Gaussian DP, whatever its guarantee states
    unit: str = RECORD

    @classmethod
    def from_record(cls, number: int, record: Facts) -> LedgerEntry:
        """Return the charge that a record of the ledger states; raise where it states none."""
        values = {item.name: record[item.name] for item in fields(cls) if item.name != "number"}
        for name in ("time", "dataset", "description", "mechanism", "neighbors"):
            if not isinstance(values[name], str):
                raise ValueError("This is no record of a charge.")
        values["guarantee"] = guarantee_from_dict(values["guarantee"])
        return cls(number, **{**values, "unit": _check_ledger_unit(values["unit"])})


class Ledger:
    """Open the privacy budget of one data set, or create it when ``epsilon`` or ``mu`` is given.

    A budget of (epsilon, delta) takes charges of all kinds. Epsilons and deltas are added; Gaussian
    charges are added in squares, so that many of them cost little. Default fits are Gaussian
    releases that state an epsilon and a delta, and are charged their mu. A budget in mu takes
    Gaussian and pure charges, and is the most exact for them.

    Parameters
    ----------
    path : str or path-like
        The SQLite file. Keep it on a local disk: locks of network file systems are unreliable.
    dataset : str
        Name of the data set; one file may hold the budgets of many.
    epsilon, delta, mu : float or None
        The whole budget of a new data set: epsilon and delta (1e-6 if None; 0 allows pure
        guarantees only), or mu. Without them an existing one is opened, whose budget cannot be
        changed.
    composition : {"gaussian", "sums"} or None
        For a new budget of (epsilon, delta). "gaussian" (what None means) is as above. "sums"
        charges every release the epsilon and delta that it states and nothing else: better for few
        releases of which some are not Gaussian.

    Notes
    -----
    Privacy: whatever is granted keeps the budget, although each charge, and its kind, may be chosen
    in view of all earlier results: :mod:`dpconvex.privacy.privacy_filter` has the proof.

    Copies are the ledger itself, and a pickled ledger reopens its file, so that scikit-learn's
    ``clone``, ``cross_val_score`` and ``GridSearchCV`` are charged for every fit, in every process.
    All charges must use one neighbouring relation: the first charge fixes it.

    A charge takes the same time however many there are: it checks the newest record and the sealed
    totals. :meth:`check` and :meth:`entries` check every record. The chain of hashes finds
    accidents (truncation, flipped bits, hand edits), not forgery: somebody who writes the file can
    remove the last charges and make the rest agree, and an older copy put back in its place is an
    older budget. Keep :meth:`head` elsewhere, and :meth:`check` finds that too.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from dpconvex.privacy import Ledger, PureDP
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
            raise TypeError(
                f"The 'path' parameter of Ledger must be a file path. Got {type(path).__name__} "
                "instead."
            )
        if os.fspath(path) in ("", ":memory:"):
            wanted = "must name a file: a budget has to outlive the process"
            raise ValueError(
                f"The 'path' parameter of Ledger {wanted}. Got {os.fspath(path)!r} instead."
            )
        if not isinstance(dataset, str) or not dataset:
            raise ValueError(
                f"The 'dataset' parameter of Ledger must be a non-empty string. Got {dataset!r} "
                "instead."
            )
        asked = _checked_ledger_budget(epsilon, delta, mu, composition)
        new = epsilon is not None or mu is not None
        # Absolute, because a worker process that unpickles the ledger may run elsewhere.
        self.path = os.path.abspath(os.fspath(path))
        self.dataset = dataset
        self._file = LedgerFile(self.path, _ledger_totals_after)
        if not os.path.lexists(self.path):
            if not new:
                raise LedgerError(
                    f"There is no ledger at '{path}'. To create it with a budget for '{dataset}', "
                    "give epsilon (and delta) or mu: Ledger(path, dataset, epsilon=1.0, "
                    "delta=1e-6)."
                )
            self._file.create(_ledger_budget_record(dataset, asked))
        states = self._file.read().states
        if new and dataset not in states:
            with self._file.append() as snapshot:
                if dataset not in snapshot.states:
                    snapshot.add(_ledger_budget_record(dataset, asked))
            states = snapshot.states
        if dataset not in states:
            raise LedgerError(
                f"The ledger at '{self.path}' has no budget for '{dataset}'; it has "
                f"{sorted(states)}. To add one, give epsilon (and delta) or mu."
            )
        budget = self._totals(states)
        for name, value in asked.items():
            existing = getattr(budget, name)
            if value is not None and value != existing:
                raise LedgerError(
                    f"The budget of '{dataset}' has {name}={existing!r}, but Ledger was opened "
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
    ) -> LedgerEntry:
        """Record the cost of a release in the ledger, durably, or raise; call it before noise is
        drawn.

        Parameters
        ----------
        guarantee : PureDP, ApproxDP or GaussianDP
            What the release promises.
        mu : float or None
            The release is mu-Gaussian DP as well, and may be charged as such; None if that is not
            known.
        description, mechanism : str
            Public words for the record: never put a data value here.
        neighbors : {"replace_one", "add_or_remove_one", "replace_one_keeping_label"}
            The relation under which the guarantee holds.
        unit : str
            Whom the guarantee is made to, as a certificate says: ``"one record"``,
            ``"one person"``, or ``"one person, at most k rows"``. The first charge fixes the
            ledger's; others are converted where something follows for it.

        Raises
        ------
        BudgetExceeded, LedgerError
            If the total would exceed the budget, or the file cannot be read, written or trusted.
            Nothing is charged, and nothing may be released.
        """
        if not isinstance(guarantee, (PureDP, ApproxDP, GaussianDP)):
            allowed = "PureDP, ApproxDP or GaussianDP"
            raise parameter_error(
                "guarantee", "Ledger", allowed, type(guarantee).__name__, kind=TypeError
            )
        if mu is not None:
            mu = check_number(
                "mu", "Ledger.charge", mu, "a finite number of at least 0", 0, math.inf
            )
        for name, value in (("description", description), ("mechanism", mechanism)):
            if not isinstance(value, str):
                kind = type(value).__name__
                raise TypeError(
                    f"The '{name}' parameter of Ledger.charge must be a string. Got {kind} instead."
                )
        if neighbors not in RELATIONS:
            raise parameter_error(
                "neighbors", "Ledger.charge", f"one of {RELATIONS}", repr(neighbors)
            )
        unit = _check_ledger_unit(unit)
        with self._file.append() as snapshot:
            totals = self._totals(snapshot.states)
            if totals.charges:
                same = convert_ledger_unit(guarantee, mu, unit, totals.unit)
                if same is None:
                    raise LedgerError(
                        f"The charges of '{self.dataset}' are promises to {totals.unit}, and "
                        f"nothing follows for that from a promise to {unit}. Fit for the same "
                        "unit, or keep a second budget for the other one."
                    )
                (guarantee, mu) = same
                unit = totals.unit
            if totals.neighbors not in (None, neighbors):
                raise LedgerError(
                    f"The charges of '{self.dataset}' hold under neighbors='{totals.neighbors}' "
                    f"and do not add up with neighbors='{neighbors}'. Fit with the same relation, "
                    "or keep a second budget for the other one."
                )
            cost = totals.cost(guarantee, mu)
            if not totals.charged(cost, neighbors, unit).within_budget():
                remaining = totals.remaining()
                raise BudgetExceeded(
                    f"The budget of '{self.dataset}' does not allow {guarantee!r}: {remaining}. "
                    + _ledger_refusal_advice(totals, cost, guarantee, mu),
                    guarantee,
                    remaining,
                )
            words = {
                "description": description,
                "mechanism": mechanism,
                "neighbors": neighbors,
                "unit": unit,
            }
            amounts = {"guarantee": guarantee.to_dict(), "mu": mu, "cost": asdict(cost)}
            record = {"kind": "charge", "dataset": self.dataset, "time": _now(), **words, **amounts}
            snapshot.add(record)
        return LedgerEntry.from_record(totals.charges + 1, record)

    def entries(self) -> list[LedgerEntry]:
        """Return the granted charges of this data set, oldest first, after checking every record
        of the file.
        """
        records = self._file.verify()[1]
        mine = (
            record
            for record in records
            if record["kind"] == "charge" and record["dataset"] == self.dataset
        )
        return [
            LedgerEntry.from_record(number, record) for number, record in enumerate(mine, start=1)
        ]

    def spent(self, delta: float | None = None) -> float:
        """Return the ledger's total epsilon so far at ``delta`` (the budget's by default, 1e-6 for
        a budget in mu).

        It holds for charges that were planned beforehand. If they were chosen in view of results,
        what is certain is the budget: a total that is read off at a moment chosen in view of
        results may be larger than it says.
        """
        if delta is None:
            delta = DEFAULT_DELTA if self.delta is None else self.delta
        else:
            delta = check_number("delta", "Ledger.spent", delta, "a number in [0, 1)", 0, 1)
        return self._totals().epsilon_at(delta)

    def total(self) -> Guarantee:
        """Return one guarantee for everything that was released so far; what :meth:`spent` says of
        it holds here.

        ``GaussianDP`` if all charges were Gaussian, else (epsilon, delta) at the budget's delta.
        """
        return self._totals().total()

    def remaining(self) -> FilterRemaining:
        """Return what is left of the budget."""
        return self._totals().remaining()

    def head(self) -> str:
        """Return number and hash of the newest record, to be kept elsewhere: :meth:`check` tells
        if a file has it.
        """
        snapshot = self._file.read()
        return f"{snapshot.number}-{snapshot.digest}"

    def check(self, head: str | None = None) -> str:
        """Check every record and every total of the file, or raise LedgerError; return its head.

        ``head`` is what :meth:`head` returned earlier. Without it, a file whose last charges were
        removed by somebody who made the rest agree, or an older copy, passes.
        """
        expected = None
        if head is not None:
            found = re.fullmatch(r"([1-9]\d{0,17})-([0-9a-f]{64})", str(head).strip())
            if found is None:
                allowed = "what Ledger.head returned, a number, '-' and 64 hexadecimal digits"
                raise parameter_error("head", "Ledger.check", allowed, repr(head))
            expected = (int(found[1]), found[2])
        snapshot, _ = self._file.verify(expected)
        return f"{snapshot.number}-{snapshot.digest}"

    def _totals(self, states: Mapping[str, Facts] | None = None) -> PrivacyFilter:
        """Return the budget and totals of this data set, by default the newest."""
        states = self._file.read().states if states is None else states
        try:
            return PrivacyFilter.from_dict(states[self.dataset])
        except MALFORMED as error:
            raise self._file.damaged("its totals are malformed") from error

    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Ledger:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return _reopen_ledger, (self.path, self.dataset, self._file.seen)

    def __repr__(self) -> str:
        budget = (
            f"epsilon={self.epsilon!r}, delta={self.delta!r}"
            if self.mu is None
            else f"mu={self.mu!r}"
        )
        return f"Ledger({self.path!r}, {self.dataset!r}, {budget})"


def _reopen_ledger(path: str, dataset: str, seen: tuple[int, str]) -> Ledger:
    ledger = Ledger(path, dataset)
    LedgerFile(path, _ledger_totals_after, seen).read()
    return ledger


def convert_ledger_unit(
    guarantee: Guarantee, mu: float | None, unit: str, wanted: str
) -> tuple[Guarantee, float | None] | None:
    """Return what a promise to one unit, with its proven mu, is for another unit; None if nothing
    follows.

    What holds for a person holds for a person with at most k rows, what holds for k rows for fewer
    of them; what holds for j rows holds for k rows as for ``ceil(k / j)`` groups. Somebody with any
    number of rows is covered by nothing but a promise to just that, which in turn says nothing of a
    record that may change its person.
    """
    if unit == wanted:
        return guarantee, mu
    theirs = _most_rows(wanted)
    own = _most_rows(unit)
    if theirs is None or (unit == PERSON and wanted == RECORD):
        return None
    if own is None or own >= theirs:
        return guarantee, mu
    size = -(-theirs // own)
    proven = guarantee if mu is None else GaussianDP(mu)
    return group_guarantee(guarantee, proven, size), None if mu is None else size * mu


def _most_rows(unit: str) -> int | None:
    """Return how many rows a unit has at most; None for any number."""
    found = _PERSON_OF_ROWS.fullmatch(unit)
    return int(found[1]) if found else 1 if unit == RECORD else None


def _check_ledger_unit(unit: object) -> str:
    if isinstance(unit, str) and (
        unit in (RECORD, PERSON) or _PERSON_OF_ROWS.fullmatch(unit) is not None
    ):
        return unit
    allowed = f"{RECORD!r}, {PERSON!r} or 'one person, at most k rows'"
    raise parameter_error("unit", "Ledger.charge", allowed, repr(unit))


def _checked_ledger_budget(
    epsilon: float | None, delta: float | None, mu: float | None, composition: str | None
) -> Facts:
    asked: Facts = {"epsilon": epsilon, "delta": delta, "composition": composition, "mu": mu}
    for name, value in asked.items():
        if value is None:
            continue
        allowed = "None for a budget in mu" if mu is not None else f"one of {COMPOSITIONS}"
        if (mu is not None and name != "mu") or (
            name == "composition" and value not in COMPOSITIONS
        ):
            raise ValueError(
                f"The '{name}' parameter of Ledger must be {allowed}. Got {value!r} instead."
            )
        if name in ("epsilon", "mu"):
            asked[name] = check_number(
                name, "Ledger", value, "a finite positive number", 0, math.inf, True
            )
        elif name == "delta":
            asked[name] = check_number(name, "Ledger", value, "a number in [0, 1)", 0, 1)
    return asked


def _ledger_budget_record(dataset: str, asked: Facts) -> Facts:
    delta = DEFAULT_DELTA if asked["mu"] is None and asked["delta"] is None else asked["delta"]
    composition = asked["composition"] or "gaussian"
    return {
        "kind": "budget",
        "dataset": dataset,
        "time": _now(),
        **asked,
        "delta": delta,
        "composition": composition,
    }


def _ledger_totals_after(state: Facts | None, record: Facts) -> Facts:
    """Return the totals of a data set after a record of its log."""
    if record["kind"] == "budget":
        # A second budget of one name was never written; the first one counts.
        opened = PrivacyFilter(
            *(record[name] for name in ("epsilon", "delta", "mu", "composition"))
        )
        return dict(vars(opened)) if state is None else state
    if state is None:
        raise LedgerError("Its data set has no budget.")
    totals = PrivacyFilter.from_dict(state)
    LedgerEntry.from_record(totals.charges, record)  # raises where it is no charge
    cost = FilterCost(**record["cost"])
    if not all(value >= 0 for value in vars(cost).values()):
        raise LedgerError("It gives something back.")
    after = totals.charged(cost, record["neighbors"], record["unit"])
    if not after.within_budget():
        raise LedgerError("It goes beyond the budget.")
    return dict(vars(after))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _ledger_refusal_advice(
    totals: PrivacyFilter, cost: FilterCost, guarantee: Guarantee, mu: float | None
) -> str:
    if totals.delta == 0 and not isinstance(guarantee, PureDP):
        return "A budget with delta=0 takes pure guarantees only: fit with delta=0."
    if math.isinf(cost.epsilon):
        return "This budget adds epsilons and deltas: fit with epsilon and delta instead of mu."
    if math.isinf(cost.mu_squared):
        return (
            "This budget adds squares of mu, and the release has a delta without being Gaussian: "
            "use a Gaussian mechanism ('gradient' or 'output'), or delta=0."
        )
    if cost.delta > 0 and mu is None:
        return "Each charge adds its delta: fit with a smaller epsilon or delta."
    return "Fit with a smaller epsilon or mu, or stop here."
