"""TOML that declares a schema: parsed strictly and without data, checked, and written as plain
data.

Tables: ``[features]`` (``column = [low, high]``, or bounds, transform, knots, smooth, column, unit,
drop and missing), ``[categories]`` (``column = ["a", "b"]``, or values, other, also, drop and
missing), ``[flags]``, ``[dates]``, ``[interactions]``, ``[target]``, ``[person]``, ``[ignore]``,
``[encoding]`` (drop for all columns) and ``[file]``.
"""

from __future__ import annotations

import datetime
import itertools
import math
import os
import re
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dpconvex.inputs import InputError
from dpconvex.inputs.bounded_transforms import WORDS, TransformError, transform_numbers
from dpconvex.inputs.csv_reader import CSVFormat, parse_csv_format
from dpconvex.inputs.schema import (
    MOST_COLUMNS,
    PARTS,
    Column,
    Range,
    Schema,
    SchemaCategory,
    SchemaDate,
    SchemaFlag,
    SchemaInteraction,
    SchemaMissing,
    SchemaNumber,
    SchemaTarget,
    shown_name,
)

TABLES = (
    "features",
    "target",
    "categories",
    "flags",
    "dates",
    "interactions",
    "person",
    "ignore",
    "encoding",
    "file",
)
LARGEST_FILE = 4 * 2**20  # bytes
LONGEST_FORMAT = 100  # of dates: the work of reading one grows with it
MOST_KEY_PARTS = (
    8  # of a dotted TOML key: a schema needs four, and the parser's work grows with the square
)
# beyond these the estimators refuse bounds
_LARGEST = 1e100
_NARROWEST = 1e-100

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
    """Return the tables of TOML from strangers; what would take the parser long is refused
    before it begins.
    """
    if _LONG_KEY.search(_TOML_TEXT.sub("_", text)):
        raise InputError(
            f"A dotted key of TOML must have at most {MOST_KEY_PARTS} parts. Got more instead. "
            "Write tables as [name]."
        )
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise InputError(
            "TOML that is nested too deeply is not read. Write tables as [name]."
        ) from None


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
        raise InputError(
            f"The schema may have the tables {list(TABLES)} only. Check "
            f"{shown_name(str(unknown[0]))}."
        )
    tables: dict[str, Mapping[str, Any]] = {}
    for name in TABLES:
        table = data.get(name, {})
        if not isinstance(table, Mapping) or not all(isinstance(key, str) for key in table):
            raise InputError(f"The schema's '{name}' must be a table: write [{name}].")
        tables[name] = table
    readers: dict[str, Callable[[_Entry, Any], Column]] = {
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
        raise InputError(
            'The schema\'s [encoding] must be drop = "first", for all blocks of indicators.'
        )
    dropped = "first" if tables["encoding"].get("drop") else ""

    def check_is_new(name: str, table_name: str) -> None:
        if name in table_of:
            raise InputError(
                f"The column {shown_name(name)} is in [{table_of[name]}] and in [{table_name}]."
            )

    for table_name, read in readers.items():
        for name, value in tables[table_name].items():
            check_is_new(name, table_name)
            table_of[name] = table_name
            column = read(_Entry(table_name, name), value)
            own = isinstance(value, Mapping) and "drop" in value
            columns.append(column if own else with_reference(column, dropped))
    if not columns:
        raise InputError(
            "The schema must name at least one column in [features], [flags], [categories] or "
            "[dates], for instance: temperature = [-20, 40]."
        )
    target = _parse_schema_target(tables["target"])
    person = tables["person"]
    ignored = tables["ignore"]
    if person and (set(person) != {"column"} or not isinstance(person["column"], str)):
        raise InputError('The schema\'s [person] must be column = "name".')
    if ignored and set(ignored) != {"columns"}:
        raise InputError('The schema\'s [ignore] must be columns = ["a", "b"].')
    unused = _parse_schema_words(_Entry("ignore", "columns"), ignored["columns"]) if ignored else ()
    for name in person.values():
        check_is_new(name, "person")
    for name in unused:
        check_is_new(name, "ignore")
    schema = Schema(
        tuple(columns), (), target, person.get("column"), unused, parse_csv_format(tables["file"])
    )
    return check_schema(
        replace(schema, interactions=_parse_schema_interactions(tables["interactions"], schema))
    )


def with_reference(column: Column, level: str) -> Column:
    """Return a column that is compared with a level, where it becomes indicators or hat
    functions.
    """
    if isinstance(column, SchemaFlag) or (isinstance(column, SchemaNumber) and not column.knots):
        return column
    return replace(column, drop=level)


def check_schema(schema: Schema) -> Schema:
    """Return a schema whose parts are checked, or raise where they do not go together."""
    for block in schema.blocks:
        if not block.names:
            raise InputError(
                f"The schema drops the only level of {shown_name(block.name)}. Declare others, or "
                "drop = false."
            )
    if len(set(schema.names)) < len(schema.names):
        raise InputError("Two columns or categories of the schema lead to the same name.")
    for name, low, high in zip(schema.names, *schema.feature_bounds, strict=True):
        if not (low < high and high - low >= _NARROWEST and max(-low, high) <= _LARGEST):
            raise InputError(
                f"The schema's bounds of {shown_name(name)} are beyond {_LARGEST:g}, or so close "
                "that they cannot be told apart. Change the units."
            )
    _check_schema_words(schema)
    return schema


def _check_schema_words(schema: Schema) -> None:
    """Raise if a column has two words that its type would have to tell apart, like ``01`` and
    ``1``.
    """
    from dpconvex.inputs.cells import (
        Cell,
        cell_meaning,
    )  # with numpy, which most commands do without

    listed: list[tuple[str, list[tuple[str, str]]]] = []
    for column in (*schema.columns, schema.target):
        if isinstance(column, SchemaFlag):
            true = ((word, "true") for word in column.true)
            false = ((word, "false") for word in column.false)
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
                first, before = (
                    (word, purpose)
                    if value is None
                    else seen.setdefault((kind, value), (word, purpose))
                )
                if before != purpose:
                    raise InputError(
                        f"In the schema, the words of {shown_name(name)} must differ in whatever "
                        f"type a reader gives the column. Got {shown_name(first)} and "
                        f"{shown_name(word)} instead, which are one {kinds[kind]}. Declare one of "
                        "them: it stands for both."
                    )


@dataclass(frozen=True)
class _Entry:
    """Entry of a table of the schema: what is wrong with it is said of its name."""

    table: str
    name: str

    def error(self, must: str) -> InputError:
        return InputError(f"In the schema, {shown_name(self.name)} in [{self.table}] must {must}.")

    def require(self, holds: object, must: str) -> None:
        if not holds:
            raise self.error(must)

    def check_keys(self, value: Mapping[str, Any], *allowed: str) -> None:
        for key in value:
            self.require(key in allowed, f"have {list(allowed)} only. Check {shown_name(str(key))}")


def _parse_schema_range(entry: _Entry, value: object) -> Range:
    must = "be [low, high]: two finite numbers"
    ends = [_finite_schema_number(end) for end in value] if isinstance(value, (list, tuple)) else []
    low, high = ends if len(ends) == 2 else (None, None)
    if low is None or high is None:
        raise entry.error(must)
    entry.require(low < high and math.isfinite(high - low), f"{must} with low < high")
    return low, high


def _finite_schema_number(value: Any) -> float | None:
    """Return a number as a float, or None if it is none, or not finite."""
    return (
        float(value) if type(value) in (int, float) and abs(value) <= sys.float_info.max else None
    )


def _parse_schema_words(entry: _Entry, value: object, least: int = 1) -> tuple[str, ...]:
    must = 'be a list like ["a", "b"]'
    if not isinstance(value, (list, tuple)) or len(value) < least:
        raise entry.error(must)
    texts = all(isinstance(item, str) and item.strip() for item in value)
    entry.require(texts, f"{must}, of non-empty text; write numbers in quotes")
    words = tuple(item.strip() for item in value)
    entry.require(len(set(words)) == len(words), f"{must} without repetitions")
    return words


def _parse_schema_missing(
    entry: _Entry, value: object, rules: tuple[str, ...], read: Callable[[object], object]
) -> SchemaMissing:
    """Return a missing rule: one of these words, or ``{value = ...}`` of what the column holds."""
    if isinstance(value, str) and value in rules:
        return SchemaMissing(value)
    if isinstance(value, Mapping):
        value = value["value"] if set(value) == {"value"} else None
    elif isinstance(value, str) and entry.table != "dates":
        value = None
    constant = None if value is None else read(value)
    must = (
        f"have a missing rule of {list(rules)}, or {{value = ...}} with a public value of the "
        "column"
    )
    entry.require(constant is not None, must)
    return SchemaMissing("value", constant)


def _increasing(numbers: Sequence[float]) -> bool:
    return all(a < b for a, b in itertools.pairwise(numbers))


def _parse_schema_number(entry: _Entry, value: Any) -> SchemaNumber:
    if not isinstance(value, Mapping):
        return SchemaNumber(entry.name, *_parse_schema_range(entry, value))
    entry.require("bounds" in value, "have bounds = [low, high]: two finite numbers")
    entry.check_keys(
        value, "bounds", "transform", "knots", "smooth", "column", "unit", "drop", "missing"
    )
    low, high = _parse_schema_range(entry, value["bounds"])
    transform = value.get("transform", "clip")
    unit = value.get("unit", "")
    source = value.get("column", "")
    _check_transform(entry, transform, (low, high))
    entry.require(isinstance(unit, str), "have a unit in quotes")
    entry.require(isinstance(source, str), "have a column in quotes")
    listed = value.get("knots", [])
    knots = (
        [_finite_schema_number(knot) for knot in listed]
        if isinstance(listed, (list, tuple))
        else [None]
    )
    ordered = [low, *(math.nan if knot is None else knot for knot in knots), high]
    entry.require(
        _increasing(ordered), "have knots between its bounds, each larger than the one before"
    )

    def within(constant: object) -> float | None:
        number = _finite_schema_number(constant)
        return number if number is not None and low <= number <= high else None

    missing = _parse_schema_missing(
        entry, value.get("missing", "row"), ("row", "indicator"), within
    )
    drop = _parse_schema_drop(entry, value.get("drop", ""))
    smooth = _finite_schema_number(value.get("smooth", 0.0))
    fine = smooth is not None and smooth >= 0 and not (smooth and (drop or not knots))
    entry.require(fine, "have smooth = a number of at least 0, with knots and without drop")
    number = SchemaNumber(
        entry.name,
        low,
        high,
        transform,
        tuple(ordered[1:-1]),
        unit,
        missing,
        drop,
        source,
        smooth or None,
    )
    entry.require(
        _increasing(number.transformed_knots), "have knots that differ after its transform"
    )
    return number


def _check_transform(entry: _Entry, transform: object, bounds: Range) -> None:
    must = f"have a transform of {list(WORDS)}, or an expression of x"
    entry.require(isinstance(transform, str), must)
    try:
        transform_numbers(str(transform), 0.0, *bounds)
    except TransformError as error:
        raise entry.error(f"{must}. Got one that {error}") from None


def _parse_schema_drop(entry: _Entry, value: object, levels: tuple[str, ...] = ()) -> str:
    """Return which level is left out: ``"first"``, one of the column's, or none."""
    named = f", or one of {list(levels[:10])}" if levels else ""
    must = f'have drop = "first"{named}, or false'
    entry.require(
        value in ("", False) or (isinstance(value, str) and value in ("first", *levels)), must
    )
    return str(value or "")


def _parse_schema_category(entry: _Entry, value: Any) -> SchemaCategory:
    if not isinstance(value, Mapping):
        return SchemaCategory(entry.name, _parse_schema_words(entry, value))
    entry.check_keys(value, "values", "other", "drop", "missing", "also")
    values = _parse_schema_words(entry, value.get("values"))
    other = value.get("other", False)
    entry.require(isinstance(other, bool), "have other = true or false")
    rule = value.get("missing", "other")
    rules = ("row", "indicator", "other")
    missing = _parse_schema_missing(
        entry, rule, rules, lambda word: word if word in values else None
    )
    also = value.get("also", {})
    spelled = isinstance(also, Mapping) and all(
        isinstance(word, str) and word.strip() for word in also
    )
    listed = set(values)
    known = (
        spelled
        and all(isinstance(meant, str) and meant in listed for meant in also.values())
        and not set(also) & listed
    )
    entry.require(known, 'have also = {"other spelling" = "a category"}')
    drop = _parse_schema_drop(entry, value.get("drop", ""), values)
    pairs = tuple((word.strip(), meant) for word, meant in also.items())
    return SchemaCategory(entry.name, values, other, missing, drop, pairs)


def _parse_schema_flag(entry: _Entry, value: Any) -> SchemaFlag:
    if isinstance(value, (list, tuple)):
        words = _parse_schema_words(entry, value)
        entry.require(len(words) == 2, 'be ["no", "yes"]: what is false, then what is true')
        value = {"false": [words[0]], "true": [words[1]]}
    entry.require(
        isinstance(value, Mapping), 'be ["no", "yes"], or {}, which knows the usual words'
    )
    entry.check_keys(value, "true", "false", "missing")
    usual = SchemaFlag(entry.name)
    true, false = (
        tuple(word.lower() for word in _parse_schema_words(entry, value[key]))
        if key in value
        else words
        for key, words in (("true", usual.true), ("false", usual.false))
    )
    entry.require(not set(true) & set(false), "not have a word that is true and false")
    rule = value.get("missing", "row")
    rules = ("row", "indicator")
    missing = _parse_schema_missing(
        entry, rule, rules, lambda word: word if isinstance(word, bool) else None
    )
    return SchemaFlag(entry.name, true, false, missing)


def _parse_schema_day(value: object) -> datetime.date | None:
    if isinstance(value, datetime.date):  # or a time
        return datetime.date(value.year, value.month, value.day)
    try:
        return datetime.date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _parse_schema_date(entry: _Entry, value: Any) -> SchemaDate:
    if isinstance(value, (list, tuple)):
        value = {"parts": list(value)}
    entry.require(isinstance(value, Mapping), f"be a list of {list(PARTS)}")
    entry.check_keys(value, "parts", "format", "since", "until", "drop", "missing")
    parts = _parse_schema_words(entry, value.get("parts"))
    entry.require(set(parts) <= set(PARTS), f"have parts of {list(PARTS)}")
    since, until = (_parse_schema_day(value.get(key)) for key in ("since", "until"))
    given = ("days" in parts) == (since is not None) == (until is not None)
    entry.require(given, "have since = 2020-01-01 and until = 2029-12-31 with days, and only then")
    entry.require(since is None or until is None or since < until, "have since before until")
    pattern = value.get("format", "")
    short = not isinstance(pattern, str) or len(pattern) <= LONGEST_FORMAT
    entry.require(short, f"have a format of at most {LONGEST_FORMAT} characters")
    known = isinstance(pattern, str) and _schema_format_reads_back(pattern)
    entry.require(known, 'have a format like "%d.%m.%Y %H:%M", with day, month and year')
    missing = _parse_schema_missing(
        entry, value.get("missing", "row"), ("row", "indicator"), _parse_schema_day
    )
    drop = _parse_schema_drop(entry, value.get("drop", ""))
    return SchemaDate(entry.name, parts, pattern, since, until, missing, drop)


def _schema_format_reads_back(pattern: str) -> bool:
    if not pattern:
        return True
    probe = datetime.datetime(2024, 11, 23, 0, 0)
    try:
        found = datetime.datetime.strptime(probe.strftime(pattern), pattern)
    except (ValueError, re.error, UnicodeError):
        return False
    return found.date() == probe.date()


def _parse_schema_interactions(
    table: Mapping[str, Any], schema: Schema
) -> tuple[SchemaInteraction, ...]:
    widths = {block.name: len(block.names) for block in schema.blocks}
    total = sum(widths.values())
    found = []
    for name, value in table.items():
        entry = _Entry("interactions", name)
        two = isinstance(value, (list, tuple)) and len(value) == 2
        entry.require(two and value[0] != value[1], 'be two columns: ["store", "day.weekday"]')
        for part in value:
            known = isinstance(part, str) and part in widths
            entry.require(known, f"be two of the schema's columns. Check {shown_name(str(part))}")
        entry.require(name not in widths, "not have the name of a column")
        total += widths[value[0]] * widths[value[1]]
        found.append(SchemaInteraction(name, value[0], value[1]))
    if total > MOST_COLUMNS:
        raise InputError(f"The schema leads to more than {MOST_COLUMNS:,} columns.")
    return tuple(found)


def _parse_schema_target(table: Mapping[str, Any]) -> SchemaTarget | None:
    if len(table) > 1:
        raise InputError(
            f"The schema's [target] must name one column only. Got {len(table)} instead. Fit one "
            "product at a time, each with its part of the budget, or several together in Python "
            "with DPNewsvendor."
        )
    for name, value in table.items():
        entry = _Entry("target", name)
        if not isinstance(value, Mapping):
            return SchemaTarget(name, _parse_schema_range(entry, value))
        entry.check_keys(value, "bounds", "classes", "transform", "event")
        event = value.get("event")
        transform = value.get("transform", "clip")
        entry.require(
            event is None or (isinstance(event, str) and event != name), "name another event column"
        )
        entry.require(
            event is None or set(value) <= {"bounds", "event"}, "have no classes beside an event"
        )
        entry.require(not {"bounds", "classes"} <= set(value), "have bounds or classes, not both")
        entry.require(
            "transform" not in value or "bounds" in value, "have bounds beside its transform"
        )
        if "classes" in value:
            return SchemaTarget(name, None, _parse_schema_words(entry, value["classes"], 2))
        bounds = _parse_schema_range(entry, value["bounds"]) if "bounds" in value else None
        if bounds is not None:
            _check_transform(entry, transform, bounds)
        return SchemaTarget(name, bounds, transform=transform, event=event)
    return None


def schema_to_dict(schema: Schema) -> dict[str, Any]:
    """Return the tables of a schema as plain data, which model files carry; ``parse_schema``
    reads them again.
    """
    tables: dict[str, dict[str, Any]] = {name: {} for name in TABLES}
    table_of = {
        SchemaNumber: "features",
        SchemaCategory: "categories",
        SchemaFlag: "flags",
        SchemaDate: "dates",
    }
    for column in schema.columns:
        settings = vars(column).copy()
        del settings["name"]
        if isinstance(column, SchemaNumber):
            settings["bounds"] = (settings.pop("low"), settings.pop("high"))
        rule = column.missing.rule
        constant = _to_plain(column.missing.value)
        settings["missing"] = {"value": constant} if rule == "value" else rule
        given = {
            key: _to_plain(value) for key, value in settings.items() if value not in ("", (), None)
        }
        if "also" in given:
            given["also"] = dict(settings["also"])
        tables[table_of[type(column)]][column.name] = given
    for item in schema.interactions:
        tables["interactions"][item.name] = [item.left, item.right]
    if schema.target is not None:
        public = vars(schema.target).items()
        given = {
            key: _to_plain(value)
            for key, value in public
            if key != "name" and value not in (None, "clip")
        }
        tables["target"][schema.target.name] = given
    if schema.person is not None:
        tables["person"]["column"] = schema.person
    if schema.ignored:
        tables["ignore"]["columns"] = list(schema.ignored)
    if schema.file != CSVFormat():
        tables["file"] = {
            key: _to_plain(value) for key, value in vars(schema.file).items() if value is not None
        }
    return {name: table for name, table in tables.items() if table}


def _to_plain(value: object) -> object:
    """Return a tuple as a list and a date as text, as JSON has them."""
    if isinstance(value, tuple):
        return list(value)
    return value.isoformat() if isinstance(value, datetime.date) else value
