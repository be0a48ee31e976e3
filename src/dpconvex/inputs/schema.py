"""What is public about a table: its columns, and the columns of numbers that they become.

A schema is written before the data are seen and never changes. Every cell by itself becomes numbers, whatever it
holds, so that nothing but the model's own noise depends on other records. Reading a schema is in
:mod:`dpconvex.inputs.schema_parsing`, applying it in :mod:`dpconvex.inputs.encoding`.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass, field, replace
from functools import cached_property

from dpconvex.inputs.errors import InputError

__all__ = [
    "Block",
    "Category",
    "Column",
    "Date",
    "FileFormat",
    "Flag",
    "Interaction",
    "Missing",
    "Number",
    "Range",
    "Schema",
    "Target",
    "shown_name",
]

Range = tuple[float, float]

TABLES = (
    "features", "target", "categories", "flags", "dates", "interactions", "person", "ignore", "file",
)  # fmt: skip

MOST_COLUMNS = 100_000  # of a table, and of what its columns become

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
HOURS = tuple(str(hour) for hour in range(24))
#: Parts of a date that are indicators, and those that are a point on a circle.
CALENDAR = {"weekday": WEEKDAYS, "month": MONTHS, "hour": HOURS}
CYCLES = ("weekday-cycle", "month-cycle", "hour-cycle", "year-cycle")
PARTS = (*CALENDAR, *CYCLES, "days")
TRANSFORMS = ("clip", "log1p", "log", "sqrt")
#: How a missing value is spelled, unless such a word is declared as a category.
MISSING_WORDS = ("", "NA", "N/A", "NaN", "nan", "NULL", "null", "None", "?")


@dataclass(frozen=True)
class Missing:
    """What a missing value becomes: ``row``, ``indicator``, ``value`` or, for categories, ``other``.

    ``row`` makes the whole row invalid, and ``invalid_rows`` of the estimator says what that means; ``indicator`` gives
    the column a further one that is 1 where it is missing; ``value`` puts a public constant in its place; ``other``
    counts it as a category that was not declared.
    """

    rule: str = "row"
    value: object = None


@dataclass(frozen=True)
class Block:
    """Columns of ``X`` that belong together.

    Attributes
    ----------
    name : str
        What interactions call it.
    names : tuple of str
        Of its columns.
    low, high : tuple of float
        Smallest and largest value of each.
    square : float
        Largest squared length once the estimator has mapped the columns to order 1: at most 1 for indicators of which
        one is 1, whatever their number.
    length : float
        Largest length of the columns, each divided by its largest size.
    """

    name: str
    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    square: float = 1.0
    length: float = 1.0


def _indicators(name: str, names: tuple[str, ...], square: float = 1.0) -> Block:
    return Block(name, names, (0.0,) * len(names), (1.0,) * len(names), square)


@dataclass(frozen=True)
class Number:
    """A column of numbers, clipped to public bounds.

    With ``knots`` it becomes hat functions: the column ``age@30`` is 1 at 30 and falls to 0 at the neighbouring knots
    (the bounds are knots too), so that a model is the straight lines between its coefficients.
    """

    name: str
    low: float
    high: float
    transform: str = "clip"
    knots: tuple[float, ...] = ()
    unit: str = ""
    missing: Missing = Missing()

    def apply(self, value: float) -> float:
        """Return the transform of one number within the bounds."""
        if self.transform == "log1p":
            return math.log1p(value)
        if self.transform == "log":
            return math.log(value)
        return math.sqrt(value) if self.transform == "sqrt" else value

    @property
    def ends(self) -> Range:
        """The bounds after the transform."""
        return self.apply(self.low), self.apply(self.high)

    @property
    def points(self) -> tuple[float, ...]:
        """The knots with both bounds, after the transform; none for a straight line."""
        if not self.knots:
            return ()
        return tuple(self.apply(knot) for knot in (self.low, *self.knots, self.high))

    @property
    def filler(self) -> float:
        """What stands where a value is missing: 0 once the estimator has mapped the column."""
        low, high = self.ends
        return 0.0 if low <= 0 <= high else low / 2 + high / 2

    @property
    def blocks(self) -> tuple[Block, ...]:
        """What it becomes; a transform is part of the name, so that no raw column is taken for it."""
        extra = (f"{self.name} is missing",) if self.missing.rule == "indicator" else ()
        if self.knots:
            knots = (self.low, *self.knots, self.high)
            hats = tuple(f"{self.name}@{_number(knot)}" for knot in knots)
            return (_indicators(self.name, (*hats, *extra)),)
        low, high = self.ends
        reach = max(abs(low), abs(high))
        length = math.hypot(1, self.filler / reach) if extra and reach > 0 else 1.0
        ones = tuple(1.0 for _ in extra)
        lows, highs = (low, *(0.0 for _ in extra)), (high, *ones)
        shown = self.name if self.transform == "clip" else f"{self.transform}({self.name})"
        return (Block(self.name, (shown, *extra), lows, highs, 1.0, length),)


@dataclass(frozen=True)
class Flag:
    """A column that is true or false: 1 or 0."""

    name: str
    true: tuple[str, ...] = ("true", "yes", "y", "t", "1")
    false: tuple[str, ...] = ("false", "no", "n", "f", "0")
    missing: Missing = Missing()

    @property
    def blocks(self) -> tuple[Block, ...]:
        """What it becomes."""
        extra = (f"{self.name} is missing",) if self.missing.rule == "indicator" else ()
        return (_indicators(self.name, (self.name, *extra)),)


@dataclass(frozen=True)
class Category:
    """A column of public categories: one indicator each; what is none of them has zeros, or the bin ``(other)``."""

    name: str
    values: tuple[str, ...]
    other: bool = False
    missing: Missing = Missing("other")

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories, then the bins of others and of missing ones where there are such."""
        extra = ("(missing)",) if self.missing.rule == "indicator" else ()
        return (*self.values, *(("(other)",) if self.other else ()), *extra)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """What it becomes."""
        return (_indicators(self.name, tuple(f"{self.name}={label}" for label in self.labels)),)


@dataclass(frozen=True)
class Date:
    """A date or time, and the public calendar features it becomes.

    ``weekday``, ``month`` and ``hour`` are indicators; the same with ``-cycle``, and ``year-cycle``, are sine and
    cosine of the part of the cycle that is over; ``days`` counts from ``since``, at most to ``until``.
    """

    name: str
    parts: tuple[str, ...]
    format: str = ""
    since: datetime.date | None = None
    until: datetime.date | None = None
    missing: Missing = Missing()

    @property
    def length(self) -> float:
        """Days from ``since`` to ``until``; 0 where they are not declared."""
        if self.since is None or self.until is None:
            return 0.0
        return float((self.until - self.since).days)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """What it becomes: one block per part."""
        found = []
        for part in self.parts:
            name = f"{self.name}.{part}"
            if part in CALENDAR:
                found.append(_indicators(name, tuple(f"{name}={item}" for item in CALENDAR[part])))
            elif part in CYCLES:
                found.append(Block(name, (f"{name} sin", f"{name} cos"), (-1.0, -1.0), (1.0, 1.0)))
            else:
                found.append(Block(name, (name,), (0.0,), (self.length,)))
        if self.missing.rule == "indicator":
            # No square of its own: where it is 1 all parts are 0.
            found.append(_indicators(f"{self.name} is missing", (f"{self.name} is missing",), square=0.0))
        return tuple(found)


Column = Number | Flag | Category | Date


@dataclass(frozen=True)
class Interaction:
    """Products of the columns of two blocks."""

    name: str
    left: str
    right: str

    def block(self, left: Block, right: Block) -> Block:
        """Return what it becomes.

        Where 0 is within all bounds the estimator divides every product by its largest size, which is that of one
        factor times that of the other: the length of products is then the product of lengths.
        """
        names, lows, highs = [], [], []
        for a, a_low, a_high in zip(left.names, left.low, left.high, strict=True):
            for b, b_low, b_high in zip(right.names, right.low, right.high, strict=True):
                corners = (a_low * b_low, a_low * b_high, a_high * b_low, a_high * b_high)
                names.append(f"{a} × {b}")
                lows.append(min(corners))
                highs.append(max(corners))
        square, length = float(len(names)), left.length * right.length
        if all(low <= 0 <= high for low, high in zip(lows, highs, strict=True)):
            square = min(square, length**2)
        return Block(self.name, tuple(names), tuple(lows), tuple(highs), square, length)


@dataclass(frozen=True)
class Target:
    """The column to learn, with its public range or its public classes."""

    name: str
    bounds: Range | None = None
    classes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class FileFormat:
    """How a CSV file is written; None where the header and a byte-order mark say it.

    With ``line_breaks`` quoted fields may hold line ends: an open quote then changes how the lines below are read.
    """

    delimiter: str | None = None
    encoding: str | None = None
    decimal: str = "."
    missing: tuple[str, ...] = MISSING_WORDS
    line_breaks: bool = False


@dataclass(frozen=True)
class Schema:
    """Public facts about a table.

    Attributes
    ----------
    columns : tuple of Number, Flag, Category or Date
        What is used, in the order of ``X``.
    interactions : tuple of Interaction
        After the columns.
    target : Target, optional
        What is learned.
    person : str, optional
        The column that says whose a row is.
    ignored : tuple of str
        Columns that are known and not used.
    file : FileFormat
        How CSV files are written.
    """

    columns: tuple[Column, ...]
    interactions: tuple[Interaction, ...] = ()
    target: Target | None = None
    person: str | None = None
    ignored: tuple[str, ...] = ()
    file: FileFormat = field(default_factory=FileFormat)

    @property
    def inputs(self) -> list[str]:
        """Names of the table's columns that features are made of."""
        return [column.name for column in self.columns]

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """All blocks, in the order of ``X``."""
        found = {block.name: block for column in self.columns for block in column.blocks}
        plain = tuple(found.values())
        return plain + tuple(item.block(found[item.left], found[item.right]) for item in self.interactions)

    @cached_property
    def names(self) -> list[str]:
        """Names of the columns of ``X``."""
        return [name for block in self.blocks for name in block.names]

    @property
    def feature_bounds(self) -> tuple[list[float], list[float]]:
        """Lowest and highest value of each column of ``X``."""
        lows = [low for block in self.blocks for low in block.low]
        return lows, [high for block in self.blocks for high in block.high]

    @property
    def row_norm(self) -> float:
        """Largest length of a row once the estimator has mapped it: ``sqrt`` of the sum of the blocks' squares."""
        return math.sqrt(math.fsum(block.square for block in self.blocks))

    @property
    def target_bounds(self) -> Range | None:
        """Range of the target, if declared."""
        return None if self.target is None else self.target.bounds

    def for_target(self, name: str | None) -> Schema:
        """Return the schema with a target: the one asked for, which must agree with the declared one."""
        declared = None if self.target is None else self.target.name
        if name is None and declared is None:
            raise InputError("Give --target, or the target's column in [target].")
        if name is not None and declared is not None and name != declared:
            raise InputError(f"The target is {name!r}, but [target] in the schema names {declared!r}.")
        found = self.target or Target(str(name))
        if found.name in self.inputs:
            raise InputError(
                f"The target {found.name!r} must not be a feature: take it out of the schema's other tables."
            )
        return replace(self, target=found)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)


def shown_name(name: str) -> str:
    """Return a name as messages show it."""
    return repr(name if len(name) <= 80 else name[:80] + "...")
