"""Public schema of a table: its columns, and the bounded numeric columns they become.

A schema is written before the data are seen and never changes (:mod:`dpconvex.inputs.schema_file`
reads it). Every cell by itself becomes numbers, whatever it holds, so that nothing but the model's
own noise depends on other records; :mod:`dpconvex.inputs.column_encoding` applies it.
"""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from dpconvex.inputs import InputError
from dpconvex.inputs.bounded_transforms import WORDS, transform_numbers
from dpconvex.inputs.csv_reader import CSVFormat

Range = tuple[float, float]

MOST_COLUMNS = 100_000  # of a table, and of what its columns become

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
#: Parts of a date that are indicators, and those that are a point on a circle.
CALENDAR = {"weekday": WEEKDAYS, "month": MONTHS, "hour": tuple(str(hour) for hour in range(24))}
CYCLES = ("weekday-cycle", "month-cycle", "hour-cycle", "year-cycle")
PARTS = (*CALENDAR, *CYCLES, "days")


@dataclass(frozen=True)
class SchemaMissing:
    """Rule for missing values.

    ``row`` makes the row invalid, ``indicator`` adds a column that is 1 where the value is missing,
    ``value`` puts a public constant in its place, and ``other`` counts it as a category that was
    not declared.
    """

    rule: str = "row"
    value: object = None


@dataclass(frozen=True)
class SchemaBlock:
    """Columns of ``X`` that one column of the table becomes, with their bounds."""

    name: str
    names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    # largest squared length of columns mapped to order 1: 1 for indicators of which one is 1
    square: float = 1.0
    length: float = 1.0  # of the columns, each divided by its largest size
    reference: tuple[int, str] | None = (
        None  # the indicator that is left out, to which coefficients compare
    )


def _indicators(
    name: str, names: tuple[str, ...], square: float = 1.0, drop: int | None = None
) -> SchemaBlock:
    """Return a block of indicators without the one of index ``drop``."""
    reference = None if drop is None else (drop, names[drop])
    names = tuple(each for index, each in enumerate(names) if index != drop)
    return SchemaBlock(
        name, names, (0.0,) * len(names), (1.0,) * len(names), square, reference=reference
    )


@dataclass(frozen=True)
class SchemaNumber:
    """A column of numbers, clipped to public bounds.

    With ``knots`` it becomes hat functions: the column ``age@30`` is 1 at 30 and falls to 0 at the
    neighbouring knots (the bounds are knots too), so that a model is the straight lines between its
    coefficients.
    """

    name: str
    low: float
    high: float
    transform: str = "clip"  # a word, or an expression of x
    knots: tuple[float, ...] = ()
    unit: str = ""
    missing: SchemaMissing = SchemaMissing()
    drop: str = ""
    column: str = ""  # of the table, where it is another one than the name says
    smooth: float | None = (
        None  # strength of the penalty of second differences of the coefficients at the knots
    )

    @property
    def transformed_bounds(self) -> Range:
        """The bounds after the transform."""
        return transform_numbers(self.transform, 0.0, self.low, self.high)[1:]

    @property
    def transformed_knots(self) -> tuple[float, ...]:
        """The knots with both bounds, after the transform; none for a straight line."""
        knots = (self.low, *self.knots, self.high) if self.knots else ()
        return tuple(
            map(float, transform_numbers(self.transform, knots, self.low, self.high).values)
        )

    @property
    def missing_value(self) -> float:
        """The number beside a missing indicator: 0 once the estimator has mapped the column."""
        low, high = self.transformed_bounds
        return 0.0 if low <= 0 <= high else low / 2 + high / 2

    @property
    def blocks(self) -> tuple[SchemaBlock, ...]:
        """Columns that the schema makes of a number; a transform is part of the name, not to be
        taken for a raw one.
        """
        extra = (f"{self.name} is missing",) if self.missing.rule == "indicator" else ()
        if self.knots:
            knots = (self.low, *self.knots, self.high)
            shown = [
                str(int(knot)) if knot == int(knot) and abs(knot) < 1e15 else repr(knot)
                for knot in knots
            ]
            names = tuple(f"{self.name}@{knot}" for knot in shown)
            return (_indicators(self.name, (*names, *extra), drop=0 if self.drop else None),)
        low, high = self.transformed_bounds
        largest = max(abs(low), abs(high))
        length = math.hypot(1, self.missing_value / largest) if extra and largest > 0 else 1.0
        title = (
            f"{self.transform}({self.name})"
            if self.transform in WORDS[1:] and not self.column
            else self.name
        )
        added = len(extra)
        return (
            SchemaBlock(
                self.name,
                (title, *extra),
                (low, *(0.0,) * added),
                (high, *(1.0,) * added),
                1.0,
                length,
            ),
        )


@dataclass(frozen=True)
class SchemaFlag:
    """A column that is true or false: 1 or 0."""

    name: str
    true: tuple[str, ...] = ("true", "yes", "y", "t", "1")
    false: tuple[str, ...] = ("false", "no", "n", "f", "0")
    missing: SchemaMissing = SchemaMissing()

    @property
    def blocks(self) -> tuple[SchemaBlock, ...]:
        """Its indicator, and that of missing values."""
        extra = (f"{self.name} is missing",) if self.missing.rule == "indicator" else ()
        return (_indicators(self.name, (self.name, *extra)),)


@dataclass(frozen=True)
class SchemaCategory:
    """A column of public categories: one indicator each; other cells have zeros, or the bin
    ``(other)``.
    """

    name: str
    values: tuple[str, ...]
    other: bool = False
    missing: SchemaMissing = SchemaMissing("other")
    drop: str = (
        ""  # a category, or the first one for "first", with zeros: the others are compared with it
    )
    also: tuple[
        tuple[str, str], ...
    ] = ()  # pairs of another spelling and the category it stands for

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories, then the bins of others and of missing ones where there are such."""
        extra = ("(missing)",) if self.missing.rule == "indicator" else ()
        return (*self.values, *(("(other)",) if self.other else ()), *extra)

    @property
    def blocks(self) -> tuple[SchemaBlock, ...]:
        """Its indicators."""
        drop = (
            None
            if not self.drop
            else self.values.index(self.drop)
            if self.drop in self.values
            else 0
        )
        return (
            _indicators(
                self.name, tuple(f"{self.name}={label}" for label in self.labels), drop=drop
            ),
        )


@dataclass(frozen=True)
class SchemaDate:
    """A date or time, and the public calendar features it becomes.

    ``weekday``, ``month`` and ``hour`` are indicators; the same with ``-cycle``, and
    ``year-cycle``, are sine and cosine of the part of the cycle that is over; ``days`` counts from
    ``since``, at most to ``until``.
    """

    name: str
    parts: tuple[str, ...]
    format: str = ""
    since: datetime.date | None = None
    until: datetime.date | None = None
    missing: SchemaMissing = SchemaMissing()
    drop: str = ""

    @property
    def days(self) -> float:
        """Days from ``since`` to ``until``; 0 where they are not declared."""
        return (
            0.0
            if self.since is None or self.until is None
            else float((self.until - self.since).days)
        )

    @property
    def blocks(self) -> tuple[SchemaBlock, ...]:
        """Blocks of columns that the schema makes of a date, one for each part."""
        found = []
        for part in self.parts:
            name = f"{self.name}.{part}"
            if part in CALENDAR:
                names = tuple(f"{name}={item}" for item in CALENDAR[part])
                found.append(_indicators(name, names, drop=0 if self.drop else None))
            elif part in CYCLES:
                found.append(
                    SchemaBlock(name, (f"{name} sin", f"{name} cos"), (-1.0, -1.0), (1.0, 1.0))
                )
            else:
                found.append(SchemaBlock(name, (name,), (0.0,), (self.days,)))
        if self.missing.rule == "indicator":
            # No square of its own: where it is 1 all parts are 0.
            found.append(
                _indicators(f"{self.name} is missing", (f"{self.name} is missing",), square=0.0)
            )
        return tuple(found)


Column = SchemaNumber | SchemaFlag | SchemaCategory | SchemaDate


def source_column(column: Column) -> str:
    """Return the name of the table's column that a schema's column is made of."""
    return column.column or column.name if isinstance(column, SchemaNumber) else column.name


@dataclass(frozen=True)
class SchemaInteraction:
    """Products of the columns of two blocks."""

    name: str
    left: str
    right: str

    def block(self, left: SchemaBlock, right: SchemaBlock) -> SchemaBlock:
        """Return the columns of the schema's interaction."""
        names = []
        lows = []
        highs = []
        for a, a_low, a_high in zip(left.names, left.low, left.high, strict=True):
            for b, b_low, b_high in zip(right.names, right.low, right.high, strict=True):
                corners = (a_low * b_low, a_low * b_high, a_high * b_low, a_high * b_high)
                names.append(f"{a} × {b}")
                lows.append(min(corners))
                highs.append(max(corners))
        square = float(len(names))
        length = left.length * right.length
        # With 0 within all bounds a product is divided by its largest size, that of one factor
        # times the other's.
        if all(low <= 0 <= high for low, high in zip(lows, highs, strict=True)):
            square = min(square, length**2)
        return SchemaBlock(self.name, tuple(names), tuple(lows), tuple(highs), square, length)


@dataclass(frozen=True)
class SchemaTarget:
    """The column to learn, with its public range or its public classes; a transform, if any, is
    what is learned.
    """

    name: str
    bounds: Range | None = None
    classes: tuple[str, ...] | None = None
    transform: str = "clip"
    event: str | None = None  # of a time: the column that is above 0 where an event ended it

    def transformed(self, numbers: Any) -> Any:
        """Return what the schema's target is learned as: numbers, or their transform once
        clipped; NaN stays NaN.
        """
        if self.transform == "clip" or self.bounds is None:
            return numbers
        import numpy as np

        known = np.clip(np.where(np.isnan(numbers), self.bounds[0], numbers), *self.bounds)
        found = transform_numbers(self.transform, known, *self.bounds).values
        return np.where(np.isnan(numbers), np.nan, found)


@dataclass(frozen=True)
class Schema:
    """Public facts about a table; columns come in the order of ``X``, interactions behind them."""

    columns: tuple[Column, ...]
    interactions: tuple[SchemaInteraction, ...] = ()
    target: SchemaTarget | None = None  # the column that is learned
    person: str | None = None  # the column that identifies the person of a row
    ignored: tuple[str, ...] = ()  # columns that are known and not used
    # of CSV files, and how many records a file has
    file: CSVFormat = field(default_factory=CSVFormat)

    @property
    def inputs(self) -> list[str]:
        """Names of the table's columns that features are made of."""
        return list(dict.fromkeys(map(source_column, self.columns)))

    @cached_property
    def blocks(self) -> tuple[SchemaBlock, ...]:
        """All blocks, in the order of ``X``."""
        found = {block.name: block for column in self.columns for block in column.blocks}
        plain = tuple(found.values())
        return plain + tuple(
            item.block(found[item.left], found[item.right]) for item in self.interactions
        )

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
    def smooth(self) -> list[tuple[int, int, float]]:
        """First column, number of columns and strength of the schema's curves with penalised
        second differences.
        """
        curves = []
        first = 0
        numbers = {
            column.name: column for column in self.columns if isinstance(column, SchemaNumber)
        }
        for block in self.blocks:
            column = numbers.get(block.name)
            if column is not None and column.smooth:
                curves.append((first, len(column.knots) + 2, column.smooth))
            first += len(block.names)
        return curves

    @property
    def row_norm(self) -> float:
        """Largest length of a row once the estimator has mapped it: ``sqrt`` of the sum of the
        blocks' squares.
        """
        return math.sqrt(math.fsum(block.square for block in self.blocks))

    @property
    def target_bounds(self) -> Range | None:
        """Range of the target, if declared, after its transform."""
        if self.target is None or self.target.bounds is None:
            return None
        return transform_numbers(self.target.transform, 0.0, *self.target.bounds)[1:]

    @property
    def for_other_files(self) -> Schema:
        """The schema without what is true of one file alone: its number of records."""
        return replace(self, file=replace(self.file, rows=None))

    def for_target(self, name: str | None) -> Schema:
        """Return the schema with a target: the one asked for, which must agree with the declared
        one.
        """
        declared = None if self.target is None else self.target.name
        if name is None and declared is None:
            raise InputError("Give --target, or the target's column in [target].")
        if name is not None and declared is not None and name != declared:
            raise InputError(
                f"The target is {name!r}, but [target] in the schema names {declared!r}."
            )
        found = self.target or SchemaTarget(str(name))
        if found.name in self.inputs:
            raise InputError(
                f"The target {found.name!r} must not be a feature: take it out of the schema's "
                "other tables."
            )
        return replace(self, target=found)


def shown_name(name: str) -> str:
    """Return a name as messages show it."""
    return repr(name if len(name) <= 80 else name[:80] + "...")
