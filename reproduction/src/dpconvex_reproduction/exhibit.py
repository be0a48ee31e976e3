"""What a reproduction is made of: studies that are run, exhibits that show them, checks that
judge them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Cell", "Check", "Exhibit", "PrivacyLine", "Row", "Study", "select", "summarise"]

#: One independent piece of work, and one measured or summarised line: plain JSON values by name.
Cell = dict[str, Any]
Row = dict[str, Any]


@dataclass(frozen=True)
class Study:
    """Runs behind one or several exhibits.

    Attributes
    ----------
    name : str
        Unique, e.g. ``"quantile-sco/three-columns"``.
    cells : callable
        ``cells(quick)`` lists independent pieces of work of a second to half a minute each. The
        quick list should be a part of the full one, so that a full run goes on from a quick one.
    measure : callable
        Module-level function of one cell; returns its rows. Everything random follows from the
        cell.
    data : tuple of str
        Data files that it reads; without them the exhibits say that they were not run.
    timed : bool
        Whether it measures time, so that nothing else may run beside it.
    of_default : bool
        Whether cells are run again when the default changes; False where cells state themselves
        what they ran.
    """

    name: str
    cells: Callable[[bool], Sequence[Cell]]
    measure: Callable[[Cell], list[Row]]
    data: tuple[str, ...] = ()
    timed: bool = False
    of_default: bool = True


@dataclass(frozen=True)
class Check:
    """One statement held against the numbers.

    Attributes
    ----------
    statement : str
        What should be seen.
    holds : bool
        Whether it is, by the numbers of this run.
    evidence : str
        Those numbers, in a few words.
    about : {"paper", "dpconvex"}
        Whose claim it is: the verdict on a paper counts the paper's claims alone.
    """

    statement: str
    holds: bool
    evidence: str
    about: Literal["paper", "dpconvex"] = "paper"


@dataclass(frozen=True)
class PrivacyLine:
    """The privacy that one algorithm of an exhibit truly has.

    Attributes
    ----------
    algorithm, variant : str
        Which one; the variant is ``paper``, ``sound`` or ``dpconvex``.
    claimed : str
        What its source promises.
    true : str
        What can be proven of it, or the attack that refutes the promise.
    why : str
        The argument in a sentence.
    """

    algorithm: str
    variant: str
    claimed: str
    true: str
    why: str


@dataclass(frozen=True)
class Exhibit:
    """A table or figure of a paper, run again.

    Attributes
    ----------
    paper : str
        Short name of the paper, or ``"peers"``.
    label : str
        ``"Figure 4"``.
    title : str
        What it shows, in a line.
    claim : str
        What the paper says of it, in our words, with the place.
    studies : tuple of Study
        Where the rows come from, concatenated in this order.
    table : callable
        Summary of the rows: the CSV file and the page's table.
    judge : callable
        Checks of the rows.
    draw : callable, optional
        Draws the rows on a matplotlib figure in the paper's layout.
    privacy : callable, optional
        States the privacy that each algorithm truly has.
    notes : str
        What differs from the paper's setting, and why.
    shown : int
        Lines of the table that the page shows; the CSV file has all.
    """

    paper: str
    label: str
    title: str
    claim: str
    studies: tuple[Study, ...]
    table: Callable[[list[Row]], list[Row]]
    judge: Callable[[list[Row]], list[Check]]
    draw: Callable[[list[Row], Any], None] | None = None
    privacy: Callable[[], list[PrivacyLine]] | None = None
    notes: str = ""
    shown: int = field(default=80)

    @property
    def slug(self) -> str:
        """File name without ending."""
        return self.label.lower().replace(" ", "-")

    @property
    def name(self) -> str:
        """What the command line calls it."""
        return f"{self.paper}/{self.slug}"

    @property
    def data(self) -> tuple[str, ...]:
        """Data files that its studies read."""
        return tuple(sorted({filename for study in self.studies for filename in study.data}))


def select(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """Return the rows with these values.

    Examples
    --------
    >>> select([{"n": 1, "risk": 2.0}, {"n": 2, "risk": 1.0}], n=2)
    [{'n': 2, 'risk': 1.0}]
    """
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def summarise(rows: Iterable[Row], by: Sequence[str], value: str) -> list[Row]:
    """Return mean, standard deviation and standard error of a value for each combination of keys.

    Rows without a finite value are counted as ``failed`` and left out of the mean.

    Examples
    --------
    >>> summarise([{"n": 1, "risk": 2.0}, {"n": 1, "risk": 4.0}], ["n"], "risk")
    [{'n': 1, 'risk': 3.0, 'std': 1.4142135623730951, 'error': 1.0, 'repeats': 2, 'failed': 0}]
    """
    groups: dict[tuple[Any, ...], list[float]] = {}
    failed: dict[tuple[Any, ...], int] = {}
    for row in rows:
        key = tuple(row.get(name) for name in by)
        values = groups.setdefault(key, [])
        failed.setdefault(key, 0)
        number = row.get(value)
        if number is None:
            continue
        if math.isfinite(number):
            values.append(float(number))
        else:
            failed[key] += 1
    table = []
    for key, values in groups.items():
        count = len(values)
        mean = math.fsum(values) / count if count else math.nan
        spread = math.fsum((x - mean) ** 2 for x in values) / (count - 1) if count > 1 else math.nan
        table.append(
            {
                **dict(zip(by, key, strict=True)),
                value: mean,
                "std": math.sqrt(spread) if count > 1 else math.nan,
                "error": math.sqrt(spread / count) if count > 1 else math.nan,
                "repeats": count,
                "failed": failed[key],
            }
        )
    return table
