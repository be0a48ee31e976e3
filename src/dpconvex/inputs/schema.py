"""Public schema of a table: its columns, the bounded numeric columns they become, and the TOML that declares them.

A schema is written before the data are seen and never changes. Every cell by itself becomes numbers, whatever it
holds, so that nothing but the model's own noise depends on other records. Parsing is strict and never sees data;
:mod:`dpconvex.inputs.column_encoding` applies it. Tables: ``[features]`` (``column = [low, high]``, or bounds,
transform, knots, column, unit, drop and missing), ``[categories]`` (``column = ["a", "b"]``, or values, other, drop and
missing), ``[flags]``, ``[dates]``, ``[interactions]``, ``[target]``, ``[person]``, ``[ignore]``, ``[encoding]`` (drop
for all columns) and ``[file]``.
"""

from __future__ import annotations

import datetime
import itertools
import math
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from dpconvex.inputs import InputError
from dpconvex.inputs.bounded_transforms import WORDS, TransformError, transform_numbers
from dpconvex.inputs.csv_reader import CSVFormat, parse_csv_format

Range = tuple[float, float]

TABLES = (
    "features", "target", "categories", "flags", "dates", "interactions", "person", "ignore", "encoding", "file",
)  # fmt: skip

MOST_COLUMNS = 100_000  # of a table, and of what its columns become
LARGEST_FILE = 4 * 2**20  # bytes
LONGEST_FORMAT = 100  # of dates: the work of reading one grows with it
MOST_KEY_PARTS = 8  # of a dotted TOML key: a schema needs four, and the parser's work grows with the square
_LARGEST, _NARROWEST = 1e100, 1e-100  # beyond these the estimators refuse bounds

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
#: Parts of a date that are indicators, and those that are a point on a circle.
CALENDAR = {"weekday": WEEKDAYS, "month": MONTHS, "hour": tuple(str(hour) for hour in range(24))}
CYCLES = ("weekday-cycle", "month-cycle", "hour-cycle", "year-cycle")
PARTS = (*CALENDAR, *CYCLES, "days")


@dataclass(frozen=True)
class SchemaMissing:
    """Rule for missing values.

    ``row`` makes the row invalid, ``indicator`` adds a column that is 1 where the value is missing, ``value`` puts a
    public constant in its place, and ``other`` counts it as a category that was not declared.
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
    square: float = 1.0  # largest squared length of columns mapped to order 1: 1 for indicators of which one is 1
    length: float = 1.0  # of the columns, each divided by its largest size
    reference: tuple[int, str] | None = None  # the indicator that is left out, to which coefficients compare


def _indicators(name: str, names: tuple[str, ...], square: float = 1.0, drop: int | None = None) -> SchemaBlock:
    """Return a block of indicators without the one of index ``drop``."""
    reference = None if drop is None else (drop, names[drop])
    names = tuple(each for index, each in enumerate(names) if index != drop)
    return SchemaBlock(name, names, (0.0,) * len(names), (1.0,) * len(names), square, reference=reference)


@dataclass(frozen=True)
class SchemaNumber:
    """A column of numbers, clipped to public bounds.

    With ``knots`` it becomes hat functions: the column ``age@30`` is 1 at 30 and falls to 0 at the neighbouring knots
    (the bounds are knots too), so that a model is the straight lines between its coefficients.
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
    smooth: float | None = None  # strength of the penalty of second differences of the coefficients at the knots

    @property
    def transformed_bounds(self) -> Range:
        """The bounds after the transform."""
        return transform_numbers(self.transform, 0.0, self.low, self.high)[1:]

    @property
    def transformed_knots(self) -> tuple[float, ...]:
        """The knots with both bounds, after the transform; none for a straight line."""
        knots = (self.low, *self.knots, self.high) if self.knots else ()
        return tuple(map(float, transform_numbers(self.transform, knots, self.low, self.high).values))

    @property
    def missing_value(self) -> float:
        """The number beside a missing indicator: 0 once the estimator has mapped the column."""
        low, high = self.transformed_bounds
        return 0.0 if low <= 0 <= high else low / 2 + high / 2

    @property
    def blocks(self) -> tuple[SchemaBlock, ...]:
        """Columns that the schema makes of a number; a transform is part of the name, not to be taken for a raw one."""
        extra = (f"{self.name} is missing",) if self.missing.rule == "indicator" else ()
        if self.knots:
            knots = (self.low, *self.knots, self.high)
            shown = [str(int(knot)) if knot == int(knot) and abs(knot) < 1e15 else repr(knot) for knot in knots]
            names = tuple(f"{self.name}@{knot}" for knot in shown)
            return (_indicators(self.name, (*names, *extra), drop=0 if self.drop else None),)
        low, high = self.transformed_bounds
        largest = max(abs(low), abs(high))
        length = math.hypot(1, self.missing_value / largest) if extra and largest > 0 else 1.0
        title = f"{self.transform}({self.name})" if self.transform in WORDS[1:] and not self.column else self.name
        added = len(extra)
        return (SchemaBlock(self.name, (title, *extra), (low, *(0.0,) * added), (high, *(1.0,) * added), 1.0, length),)


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
    """A column of public categories: one indicator each; other cells have zeros, or the bin ``(other)``."""

    name: str
    values: tuple[str, ...]
    other: bool = False
    missing: SchemaMissing = SchemaMissing("other")
    drop: str = ""  # a category, or the first one for "first", with zeros: the others are compared with it
    also: tuple[tuple[str, str], ...] = ()  # pairs of another spelling and the category it stands for

    @property
    def labels(self) -> tuple[str, ...]:
        """The categories, then the bins of others and of missing ones where there are such."""
        extra = ("(missing)",) if self.missing.rule == "indicator" else ()
        return (*self.values, *(("(other)",) if self.other else ()), *extra)

    @property
    def blocks(self) -> tuple[SchemaBlock, ...]:
        """Its indicators."""
        drop = None if not self.drop else self.values.index(self.drop) if self.drop in self.values else 0
        return (_indicators(self.name, tuple(f"{self.name}={label}" for label in self.labels), drop=drop),)


@dataclass(frozen=True)
class SchemaDate:
    """A date or time, and the public calendar features it becomes.

    ``weekday``, ``month`` and ``hour`` are indicators; the same with ``-cycle``, and ``year-cycle``, are sine and
    cosine of the part of the cycle that is over; ``days`` counts from ``since``, at most to ``until``.
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
        return 0.0 if self.since is None or self.until is None else float((self.until - self.since).days)

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
                found.append(SchemaBlock(name, (f"{name} sin", f"{name} cos"), (-1.0, -1.0), (1.0, 1.0)))
            else:
                found.append(SchemaBlock(name, (name,), (0.0,), (self.days,)))
        if self.missing.rule == "indicator":
            # No square of its own: where it is 1 all parts are 0.
            found.append(_indicators(f"{self.name} is missing", (f"{self.name} is missing",), square=0.0))
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
        names, lows, highs = [], [], []
        for a, a_low, a_high in zip(left.names, left.low, left.high, strict=True):
            for b, b_low, b_high in zip(right.names, right.low, right.high, strict=True):
                corners = (a_low * b_low, a_low * b_high, a_high * b_low, a_high * b_high)
                names.append(f"{a} × {b}")
                lows.append(min(corners))
                highs.append(max(corners))
        square, length = float(len(names)), left.length * right.length
        # With 0 within all bounds a product is divided by its largest size, that of one factor times the other's.
        if all(low <= 0 <= high for low, high in zip(lows, highs, strict=True)):
            square = min(square, length**2)
        return SchemaBlock(self.name, tuple(names), tuple(lows), tuple(highs), square, length)


@dataclass(frozen=True)
class SchemaTarget:
    """The column to learn, with its public range or its public classes; a transform, if any, is what is learned."""

    name: str
    bounds: Range | None = None
    classes: tuple[str, ...] | None = None
    transform: str = "clip"
    event: str | None = None  # of a time: the column that is above 0 where an event ended it

    def transformed(self, numbers: Any) -> Any:
        """Return what the schema's target is learned as: numbers, or their transform once clipped; NaN stays NaN."""
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
    file: CSVFormat = field(default_factory=CSVFormat)  # of CSV files

    @property
    def inputs(self) -> list[str]:
        """Names of the table's columns that features are made of."""
        return list(dict.fromkeys(map(source_column, self.columns)))

    @cached_property
    def blocks(self) -> tuple[SchemaBlock, ...]:
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
    def smooth(self) -> list[tuple[int, int, float]]:
        """First column, number of columns and strength of the schema's curves with penalised second differences."""
        curves, first = [], 0
        numbers = {column.name: column for column in self.columns if isinstance(column, SchemaNumber)}
        for block in self.blocks:
            column = numbers.get(block.name)
            if column is not None and column.smooth:
                curves.append((first, len(column.knots) + 2, column.smooth))
            first += len(block.names)
        return curves

    @property
    def row_norm(self) -> float:
        """Largest length of a row once the estimator has mapped it: ``sqrt`` of the sum of the blocks' squares."""
        return math.sqrt(math.fsum(block.square for block in self.blocks))

    @property
    def target_bounds(self) -> Range | None:
        """Range of the target, if declared, after its transform."""
        if self.target is None or self.target.bounds is None:
            return None
        return transform_numbers(self.target.transform, 0.0, *self.target.bounds)[1:]

    def for_target(self, name: str | None) -> Schema:
        """Return the schema with a target: the one asked for, which must agree with the declared one."""
        declared = None if self.target is None else self.target.name
        if name is None and declared is None:
            raise InputError("Give --target, or the target's column in [target].")
        if name is not None and declared is not None and name != declared:
            raise InputError(f"The target is {name!r}, but [target] in the schema names {declared!r}.")
        found = self.target or SchemaTarget(str(name))
        if found.name in self.inputs:
            raise InputError(
                f"The target {found.name!r} must not be a feature: take it out of the schema's other tables."
            )
        return replace(self, target=found)


def shown_name(name: str) -> str:
    """Return a name as messages show it."""
    return repr(name if len(name) <= 80 else name[:80] + "...")


# TOML strings of all kinds, which may lack their end, and comments.
_TOML_TEXT = re.compile(
    r'"""(?:\\.|[^\\])*?(?:"{3,5}|\Z)'
    r"|'''.*?(?:'{3,5}|\Z)"
    r'|"(?:\\[^\n]|[^"\\\n])*+"?'
    r"|'[^'\n]*+'?"
    r"|\#[^\n]*+",
    re.DOTALL,
)
_LONG_KEY = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{MOST_KEY_PARTS}}}")


def parse_schema_toml(text: str) -> dict[str, Any]:
    """Return the tables of TOML from strangers; what would take the parser long is refused before it begins."""
    if _LONG_KEY.search(_TOML_TEXT.sub("_", text)):
        raise InputError(
            f"A dotted key of TOML must have at most {MOST_KEY_PARTS} parts. Got more instead. Write tables as [name]."
        )
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError("TOML that is nested too deeply is not read. Write tables as [name].") from None


def read_schema(path: str | os.PathLike[str]) -> Schema:
    """Read and check a schema file."""
    path = Path(path)
    if not path.is_file():
        raise InputError(f"The schema {str(path)!r} is not a file.")
    if os.path.getsize(path) > LARGEST_FILE:
        raise InputError(f"The schema is larger than {LARGEST_FILE // 2**20} MiB.")
    text = ""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        data = parse_schema_toml(text)
    except InputError:
        raise
    except UnicodeDecodeError:
        raise InputError("The schema must be text in UTF-8.") from None
    except ValueError as error:
        # The position only: should somebody pass the data here, no part of it is shown.
        position = re.search(r"\(at (line \d+, column \d+|end of document)\)$", str(error))
        where = f" (at {position.group(1)})" if position else ""
        template = re.search(r"^[^#\n]*\[\s*low\s*,\s*high\s*\]", text, re.MULTILINE)
        hint = " Write numbers in place of low and high." if template else ""
        raise InputError(f"The schema is not valid TOML{where}.{hint}") from None
    return parse_schema(data)


def parse_schema(data: Mapping[str, object]) -> Schema:
    """Check the tables of a schema."""
    if not isinstance(data, Mapping):
        raise InputError("A schema must be a table of tables.")
    unknown = [name for name in data if name not in TABLES]
    if unknown:
        raise InputError(f"The schema may have the tables {list(TABLES)} only. Check {shown_name(str(unknown[0]))}.")
    tables: dict[str, Mapping[str, Any]] = {}
    for name in TABLES:
        table = data.get(name, {})
        if not isinstance(table, Mapping) or not all(isinstance(key, str) for key in table):
            raise InputError(f"The schema's '{name}' must be a table: write [{name}].")
        tables[name] = table
    readers: dict[str, Callable[[str, Any], Column]] = {
        "features": _parse_schema_number,
        "flags": _parse_schema_flag,
        "categories": _parse_schema_category,
        "dates": _parse_schema_date,
    }
    if sum(len(tables[name]) for name in readers) > MOST_COLUMNS:
        raise InputError(f"The schema must name at most {MOST_COLUMNS:,} columns.")
    columns: list[Column] = []
    table_of: dict[str, str] = {}
    if tables["encoding"] not in ({}, {"drop": "first"}, {"drop": False}):
        raise InputError('The schema\'s [encoding] must be drop = "first", for all blocks of indicators.')
    dropped = "first" if tables["encoding"].get("drop") else ""

    def check_is_new(name: str, table_name: str) -> None:
        if name in table_of:
            raise InputError(f"The column {shown_name(name)} is in [{table_of[name]}] and in [{table_name}].")

    for table_name, read in readers.items():
        for name, value in tables[table_name].items():
            check_is_new(name, table_name)
            table_of[name] = table_name
            column = read(name, value)
            own = isinstance(value, Mapping) and "drop" in value
            columns.append(column if own else with_reference(column, dropped))
    if not columns:
        raise InputError(
            "The schema must name at least one column in [features], [flags], [categories] or [dates], "
            "for instance: temperature = [-20, 40]."
        )
    target, person, ignored = _parse_schema_target(tables["target"]), tables["person"], tables["ignore"]
    if person and (set(person) != {"column"} or not isinstance(person["column"], str)):
        raise InputError('The schema\'s [person] must be column = "name".')
    if ignored and set(ignored) != {"columns"}:
        raise InputError('The schema\'s [ignore] must be columns = ["a", "b"].')
    unused = _parse_schema_words("ignore", "columns", ignored["columns"]) if ignored else ()
    for name in person.values():
        check_is_new(name, "person")
    for name in unused:
        check_is_new(name, "ignore")
    schema = Schema(tuple(columns), (), target, person.get("column"), unused, parse_csv_format(tables["file"]))
    return check_schema(replace(schema, interactions=_parse_schema_interactions(tables["interactions"], schema)))


def with_reference(column: Column, level: str) -> Column:
    """Return a column that is compared with a level, where it becomes indicators or hat functions."""
    if isinstance(column, SchemaFlag) or (isinstance(column, SchemaNumber) and not column.knots):
        return column
    return replace(column, drop=level)


def check_schema(schema: Schema) -> Schema:
    """Return a schema whose parts are checked, or raise where they do not go together."""
    for block in schema.blocks:
        if not block.names:
            raise InputError(
                f"The schema drops the only level of {shown_name(block.name)}. Declare others, or drop = false."
            )
    if len(set(schema.names)) < len(schema.names):
        raise InputError("Two columns or categories of the schema lead to the same name.")
    for name, low, high in zip(schema.names, *schema.feature_bounds, strict=True):
        if not (low < high and high - low >= _NARROWEST and max(-low, high) <= _LARGEST):
            raise InputError(
                f"The schema's bounds of {shown_name(name)} are beyond {_LARGEST:g}, or so close that they "
                "cannot be told apart. Change the units."
            )
    _check_schema_words(schema)
    return schema


def _check_schema_words(schema: Schema) -> None:
    """Raise if a column has two words that its type would have to tell apart, like ``01`` and ``1``."""
    from dpconvex.inputs.cells import Cell, cell_meaning  # with numpy, which most commands do without

    listed: list[tuple[str, list[tuple[str, str]]]] = []
    for column in (*schema.columns, schema.target):
        if isinstance(column, SchemaFlag):
            true, false = ((word, "true") for word in column.true), ((word, "false") for word in column.false)
            listed.append((column.name, [*true, *false]))
        if isinstance(column, SchemaCategory):
            listed.append((column.name, [*((word, word) for word in column.values), *column.also]))
        words = column.classes if isinstance(column, SchemaTarget) else None
        if column is not None and words is not None:
            listed.append((column.name, [(word, word) for word in words]))
    kinds = {"number": "number as float64", "truth": "truth value", "time": "time"}
    for name, meant in listed:
        seen: dict[tuple[str, object], tuple[str, str]] = {}
        for word, purpose in meant:
            for kind, value in cell_meaning(Cell(text=word), schema.file.decimal)._asdict().items():
                first, before = (word, purpose) if value is None else seen.setdefault((kind, value), (word, purpose))
                if before != purpose:
                    raise InputError(
                        f"In the schema, the words of {shown_name(name)} must differ in whatever type a reader gives "
                        f"the column. Got {shown_name(first)} and {shown_name(word)} instead, which are one "
                        f"{kinds[kind]}. Declare one of them: it stands for both."
                    )


def _error(table: str, name: str, must: str) -> InputError:
    return InputError(f"In the schema, {shown_name(name)} in [{table}] must {must}.")


def _require(holds: object, table: str, name: str, must: str) -> None:
    if not holds:
        raise _error(table, name, must)


def _check_keys(table: str, name: str, value: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    for key in value:
        _require(key in allowed, table, name, f"have {list(allowed)} only. Check {shown_name(str(key))}")


def _parse_schema_range(table: str, name: str, value: object) -> Range:
    must = "be [low, high]: two finite numbers"
    ends = [_finite_schema_number(end) for end in value] if isinstance(value, (list, tuple)) else []
    low, high = ends if len(ends) == 2 else (None, None)
    if low is None or high is None:
        raise _error(table, name, must)
    _require(low < high and math.isfinite(high - low), table, name, f"{must} with low < high")
    return low, high


def _finite_schema_number(value: object) -> float | None:
    """Return a number as a float, or None if it is none, or not finite."""
    if type(value) not in (int, float):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _parse_schema_words(table: str, name: str, value: object, least: int = 1) -> tuple[str, ...]:
    must = 'be a list like ["a", "b"]'
    if not isinstance(value, (list, tuple)) or len(value) < least:
        raise _error(table, name, must)
    texts = all(isinstance(item, str) and item.strip() for item in value)
    _require(texts, table, name, f"{must}, of non-empty text; write numbers in quotes")
    words = tuple(item.strip() for item in value)
    _require(len(set(words)) == len(words), table, name, f"{must} without repetitions")
    return words


def _parse_schema_missing(
    table: str, name: str, value: object, rules: tuple[str, ...], read: Callable[[object], object]
) -> SchemaMissing:
    """Return a missing rule: one of these words, or ``{value = ...}`` of what the column holds."""
    if isinstance(value, str) and value in rules:
        return SchemaMissing(value)
    if isinstance(value, Mapping):
        value = value["value"] if set(value) == {"value"} else None
    elif isinstance(value, str) and table != "dates":
        value = None
    constant = None if value is None else read(value)
    must = f"have a missing rule of {list(rules)}, or {{value = ...}} with a public value of the column"
    _require(constant is not None, table, name, must)
    return SchemaMissing("value", constant)


def _increasing(numbers: Sequence[float]) -> bool:
    return all(a < b for a, b in itertools.pairwise(numbers))


def _parse_schema_number(name: str, value: Any) -> SchemaNumber:
    table = "features"
    if not isinstance(value, Mapping):
        return SchemaNumber(name, *_parse_schema_range(table, name, value))
    _require("bounds" in value, table, name, "have bounds = [low, high]: two finite numbers")
    _check_keys(table, name, value, ("bounds", "transform", "knots", "smooth", "column", "unit", "drop", "missing"))
    low, high = _parse_schema_range(table, name, value["bounds"])
    transform, unit, source = value.get("transform", "clip"), value.get("unit", ""), value.get("column", "")
    _check_transform(table, name, transform, (low, high))
    _require(isinstance(unit, str), table, name, "have a unit in quotes")
    _require(isinstance(source, str), table, name, "have a column in quotes")
    listed = value.get("knots", [])
    knots = [_finite_schema_number(knot) for knot in listed] if isinstance(listed, (list, tuple)) else [None]
    ordered = [low, *(math.nan if knot is None else knot for knot in knots), high]
    _require(_increasing(ordered), table, name, "have knots between its bounds, each larger than the one before")

    def within(constant: object) -> float | None:
        number = _finite_schema_number(constant)
        return number if number is not None and low <= number <= high else None

    missing = _parse_schema_missing(table, name, value.get("missing", "row"), ("row", "indicator"), within)
    drop = _parse_schema_drop(table, name, value.get("drop", ""))
    smooth = _finite_schema_number(value.get("smooth", 0.0))
    fine = smooth is not None and smooth >= 0 and not (smooth and (drop or not knots))
    _require(fine, table, name, "have smooth = a number of at least 0, with knots and without drop")
    number = SchemaNumber(name, low, high, transform, tuple(ordered[1:-1]), unit, missing, drop, source, smooth or None)
    _require(_increasing(number.transformed_knots), table, name, "have knots that differ after its transform")
    return number


def _check_transform(table: str, name: str, transform: object, bounds: Range) -> None:
    must = f"have a transform of {list(WORDS)}, or an expression of x"
    _require(isinstance(transform, str), table, name, must)
    try:
        transform_numbers(str(transform), 0.0, *bounds)
    except TransformError as error:
        raise _error(table, name, f"{must}. Got one that {error}") from None


def _parse_schema_drop(table: str, name: str, value: object, levels: tuple[str, ...] = ()) -> str:
    """Return which level is left out: ``"first"``, one of the column's, or none."""
    named = f", or one of {list(levels[:10])}" if levels else ""
    must = f'have drop = "first"{named}, or false'
    _require(value in ("", False) or (isinstance(value, str) and value in ("first", *levels)), table, name, must)
    return str(value or "")


def _parse_schema_category(name: str, value: Any) -> SchemaCategory:
    table = "categories"
    if not isinstance(value, Mapping):
        return SchemaCategory(name, _parse_schema_words(table, name, value))
    _check_keys(table, name, value, ("values", "other", "drop", "missing", "also"))
    values, other = _parse_schema_words(table, name, value.get("values")), value.get("other", False)
    _require(isinstance(other, bool), table, name, "have other = true or false")
    rule, rules = value.get("missing", "other"), ("row", "indicator", "other")
    missing = _parse_schema_missing(table, name, rule, rules, lambda word: word if word in values else None)
    also = value.get("also", {})
    spelled = isinstance(also, Mapping) and all(isinstance(word, str) and word.strip() for word in also)
    known = spelled and all(meant in values for meant in also.values()) and not set(also) & set(values)
    _require(known, table, name, 'have also = {"other spelling" = "a category"}')
    drop = _parse_schema_drop(table, name, value.get("drop", ""), values)
    pairs = tuple((word.strip(), meant) for word, meant in also.items())
    return SchemaCategory(name, values, other, missing, drop, pairs)


def _parse_schema_flag(name: str, value: Any) -> SchemaFlag:
    table = "flags"
    if isinstance(value, (list, tuple)):
        words = _parse_schema_words(table, name, value)
        _require(len(words) == 2, table, name, 'be ["no", "yes"]: what is false, then what is true')
        value = {"false": [words[0]], "true": [words[1]]}
    _require(isinstance(value, Mapping), table, name, 'be ["no", "yes"], or {}, which knows the usual words')
    _check_keys(table, name, value, ("true", "false", "missing"))
    usual = SchemaFlag(name)
    true, false = (
        tuple(word.lower() for word in _parse_schema_words(table, name, value[key])) if key in value else words
        for key, words in (("true", usual.true), ("false", usual.false))
    )
    _require(not set(true) & set(false), table, name, "not have a word that is true and false")
    rule, rules = value.get("missing", "row"), ("row", "indicator")
    missing = _parse_schema_missing(table, name, rule, rules, lambda word: word if isinstance(word, bool) else None)
    return SchemaFlag(name, true, false, missing)


def _parse_schema_day(value: object) -> datetime.date | None:
    if isinstance(value, datetime.date):  # or a time
        return datetime.date(value.year, value.month, value.day)
    try:
        return datetime.date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _parse_schema_date(name: str, value: Any) -> SchemaDate:
    table = "dates"
    if isinstance(value, (list, tuple)):
        value = {"parts": list(value)}
    _require(isinstance(value, Mapping), table, name, f"be a list of {list(PARTS)}")
    _check_keys(table, name, value, ("parts", "format", "since", "until", "drop", "missing"))
    parts = _parse_schema_words(table, name, value.get("parts"))
    _require(set(parts) <= set(PARTS), table, name, f"have parts of {list(PARTS)}")
    since, until = (_parse_schema_day(value.get(key)) for key in ("since", "until"))
    given = ("days" in parts) == (since is not None) == (until is not None)
    _require(given, table, name, "have since = 2020-01-01 and until = 2029-12-31 with days, and only then")
    _require(since is None or until is None or since < until, table, name, "have since before until")
    pattern = value.get("format", "")
    short = not isinstance(pattern, str) or len(pattern) <= LONGEST_FORMAT
    _require(short, table, name, f"have a format of at most {LONGEST_FORMAT} characters")
    known = isinstance(pattern, str) and _schema_format_reads_back(pattern)
    _require(known, table, name, 'have a format like "%d.%m.%Y %H:%M", with day, month and year')
    missing = _parse_schema_missing(table, name, value.get("missing", "row"), ("row", "indicator"), _parse_schema_day)
    drop = _parse_schema_drop(table, name, value.get("drop", ""))
    return SchemaDate(name, parts, pattern, since, until, missing, drop)


def _schema_format_reads_back(pattern: str) -> bool:
    """Whether a format writes a date that it reads again."""
    if not pattern:
        return True
    probe = datetime.datetime(2024, 11, 23, 0, 0)
    try:
        found = datetime.datetime.strptime(probe.strftime(pattern), pattern)
    except (ValueError, re.error, UnicodeError):
        return False
    return found.date() == probe.date()


def _parse_schema_interactions(table: Mapping[str, Any], schema: Schema) -> tuple[SchemaInteraction, ...]:
    widths = {block.name: len(block.names) for block in schema.blocks}
    total, found = sum(widths.values()), []
    for name, value in table.items():
        where, two = ("interactions", name), isinstance(value, (list, tuple)) and len(value) == 2
        _require(two and value[0] != value[1], *where, 'be two columns: ["store", "day.weekday"]')
        for part in value:
            known = isinstance(part, str) and part in widths
            _require(known, *where, f"be two of the schema's columns. Check {shown_name(str(part))}")
        _require(name not in widths, *where, "not have the name of a column")
        total += widths[value[0]] * widths[value[1]]
        found.append(SchemaInteraction(name, value[0], value[1]))
    if total > MOST_COLUMNS:
        raise InputError(f"The schema leads to more than {MOST_COLUMNS:,} columns.")
    return tuple(found)


def _parse_schema_target(table: Mapping[str, Any]) -> SchemaTarget | None:
    if len(table) > 1:
        raise InputError(
            f"The schema's [target] must name one column only. Got {len(table)} instead. Fit one product at a time, "
            "each with its part of the budget, or several together in Python with DPNewsvendor."
        )
    for name, value in table.items():
        if not isinstance(value, Mapping):
            return SchemaTarget(name, _parse_schema_range("target", name, value))
        _check_keys("target", name, value, ("bounds", "classes", "transform", "event"))
        event = value.get("event")
        other = event is None or (isinstance(event, str) and event != name)
        _require(other, "target", name, "name another event column")
        _require(event is None or set(value) <= {"bounds", "event"}, "target", name, "have no classes beside an event")
        _require(not {"bounds", "classes"} <= set(value), "target", name, "have bounds or classes, not both")
        _require("transform" not in value or "bounds" in value, "target", name, "have bounds beside its transform")
        if "classes" in value:
            return SchemaTarget(name, None, _parse_schema_words("target", name, value["classes"], 2))
        limits = _parse_schema_range("target", name, value["bounds"]) if "bounds" in value else None
        if limits is not None:
            _check_transform("target", name, value.get("transform", "clip"), limits)
        return SchemaTarget(name, limits, transform=value.get("transform", "clip"), event=event)
    return None


def schema_to_dict(schema: Schema) -> dict[str, Any]:
    """Return the tables of a schema as plain data, which model files carry; ``parse_schema`` reads them again."""
    tables: dict[str, dict[str, Any]] = {name: {} for name in TABLES}
    table_of = {SchemaNumber: "features", SchemaCategory: "categories", SchemaFlag: "flags", SchemaDate: "dates"}
    for column in schema.columns:
        settings = vars(column).copy()
        del settings["name"]
        if isinstance(column, SchemaNumber):
            settings["bounds"] = (settings.pop("low"), settings.pop("high"))
        rule, constant = column.missing.rule, _to_plain(column.missing.value)
        settings["missing"] = {"value": constant} if rule == "value" else rule
        given = {key: _to_plain(value) for key, value in settings.items() if value not in ("", (), None)}
        if "also" in given:
            given["also"] = dict(settings["also"])
        tables[table_of[type(column)]][column.name] = given
    for item in schema.interactions:
        tables["interactions"][item.name] = [item.left, item.right]
    if schema.target is not None:
        public = {"bounds": schema.target.bounds, "classes": schema.target.classes}
        tables["target"][schema.target.name] = {key: list(value) for key, value in public.items() if value is not None}
        if schema.target.event is not None:
            tables["target"][schema.target.name]["event"] = schema.target.event
        if schema.target.transform != "clip":
            tables["target"][schema.target.name]["transform"] = schema.target.transform
    if schema.person is not None:
        tables["person"]["column"] = schema.person
    if schema.ignored:
        tables["ignore"]["columns"] = list(schema.ignored)
    if schema.file != CSVFormat():
        tables["file"] = {key: _to_plain(value) for key, value in vars(schema.file).items() if value is not None}
    return {name: table for name, table in tables.items() if table}


def _to_plain(value: object) -> object:
    """Return a tuple as a list and a date as text, as JSON has them."""
    if isinstance(value, tuple):
        return list(value)
    return value.isoformat() if isinstance(value, datetime.date) else value
