"""Reading a schema: TOML or a dictionary of its tables, checked strictly. It never sees data.

Tables: ``[features]`` (``column = [low, high]`` or a table with bounds, transform, knots, unit and missing),
``[categories]`` (``column = ["a", "b"]`` or a table with values, other and missing), ``[flags]``, ``[dates]``,
``[interactions]``, ``[target]``, ``[person]``, ``[ignore]`` and ``[file]``.
"""

from __future__ import annotations

import datetime
import itertools
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from dpconvex.inputs.delimited import is_stateless
from dpconvex.inputs.errors import InputError
from dpconvex.inputs.schema import (
    MOST_COLUMNS,
    PARTS,
    TABLES,
    TRANSFORMS,
    Category,
    Column,
    Date,
    FileFormat,
    Flag,
    Interaction,
    Missing,
    Number,
    Range,
    Schema,
    Target,
    shown_name,
)
from dpconvex.inputs.toml_text import parse_toml

__all__ = ["check_delimiter", "check_encoding", "parse_schema", "read_schema"]

LARGEST_FILE = 4 * 2**20
LONGEST_FORMAT = 100  # of dates: the work of reading one grows with it
_LARGEST, _NARROWEST = 1e100, 1e-100  # beyond these the estimators refuse bounds


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
        data = parse_toml(text)
    except InputError:
        raise
    except UnicodeDecodeError:
        raise InputError("The schema must be text in UTF-8.") from None
    except ValueError as error:
        # Only the place: should somebody pass the data here, no part of it is shown.
        place = re.search(r"\(at (line \d+, column \d+|end of document)\)$", str(error))
        where = f" (at {place.group(1)})" if place else ""
        left = re.search(r"^[^#\n]*\[\s*low\s*,\s*high\s*\]", text, re.MULTILINE)
        hint = " Write numbers in place of low and high." if left else ""
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
        "features": _number,
        "flags": _flag,
        "categories": _category,
        "dates": _date,
    }
    if sum(len(tables[name]) for name in readers) > MOST_COLUMNS:
        raise InputError(f"The schema must name at most {MOST_COLUMNS:,} columns.")
    columns: list[Column] = []
    where: dict[str, str] = {}
    for table_name, read in readers.items():
        for name, value in tables[table_name].items():
            if name in where:
                raise InputError(f"The column {shown_name(name)} is in [{where[name]}] and in [{table_name}].")
            where[name] = table_name
            columns.append(read(name, value))
    if not columns:
        raise InputError(
            "The schema must name at least one column in [features], [flags], [categories] or [dates], "
            "for instance: temperature = [-20, 40]."
        )
    target = _target(tables["target"])
    person, ignored = _person(tables["person"]), _ignored(tables["ignore"])
    for unused, table_name in ((person, "person"), *((name, "ignore") for name in ignored)):
        if unused in where:
            raise InputError(f"The column {shown_name(unused)} is in [{where[unused]}] and in [{table_name}].")
    schema = Schema(tuple(columns), (), target, person, ignored, _file(tables["file"]))
    schema = replace(schema, interactions=_interactions(tables["interactions"], schema))
    from dpconvex.inputs.matching import check_words  # with numpy, which most commands do without

    _check_columns(schema)
    check_words(schema)
    return schema


def _check_columns(schema: Schema) -> None:
    """Raise if two columns of X share a name, or bounds are such that no estimator takes them."""
    if len(set(schema.names)) < len(schema.names):
        raise InputError("Two columns or categories of the schema lead to the same name.")
    for name, low, high in zip(schema.names, *schema.feature_bounds, strict=True):
        if not (low < high and high - low >= _NARROWEST and max(-low, high) <= _LARGEST):
            raise InputError(
                f"The schema's bounds of {shown_name(name)} are beyond {_LARGEST:g}, or so close that they "
                "cannot be told apart. Change the units."
            )


def _problem(table: str, name: str, must: str) -> InputError:
    return InputError(f"In the schema, {shown_name(name)} in [{table}] must {must}.")


def _settings(table: str, name: str, value: Mapping[str, Any], allowed: tuple[str, ...]) -> None:
    """Raise if a column's own table holds what it cannot."""
    unknown = [key for key in value if key not in allowed]
    if unknown:
        raise _problem(table, name, f"have {list(allowed)} only. Check {shown_name(str(unknown[0]))}")


def _range(table: str, name: str, value: object) -> Range:
    must = "be [low, high]: two finite numbers"
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise _problem(table, name, must)
    low, high = (_finite(end) for end in value)
    if low is None or high is None:
        raise _problem(table, name, must)
    if not (low < high and math.isfinite(high - low)):
        raise _problem(table, name, f"{must} with low < high")
    return low, high


def _finite(value: object) -> float | None:
    """Return a number as a float, or None if it is none, or not finite."""
    if type(value) not in (int, float):
        return None
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _words(table: str, name: str, value: object, least: int = 1) -> tuple[str, ...]:
    must = 'be a list like ["a", "b"]'
    if not isinstance(value, (list, tuple)) or len(value) < least:
        raise _problem(table, name, must)
    if not all(isinstance(item, str) and item.strip() for item in value):
        raise _problem(table, name, f"{must}, of non-empty text; write numbers in quotes")
    words = tuple(item.strip() for item in value)
    if len(set(words)) < len(words):
        raise _problem(table, name, f"{must} without repetitions")
    return words


def _missing(table: str, name: str, value: object, rules: tuple[str, ...], read: Callable[[object], object]) -> Missing:
    """Return a missing rule: one of these words, or ``{value = ...}`` of what the column holds."""
    if isinstance(value, str) and value in rules:
        return Missing(value)
    if isinstance(value, Mapping):
        value = value["value"] if set(value) == {"value"} else None
    elif isinstance(value, str) and table != "dates":
        value = None
    constant = None if value is None else read(value)
    if constant is None:
        raise _problem(
            table, name, f"have a missing rule of {list(rules)}, or {{value = ...}} with a public value of the column"
        )
    return Missing("value", constant)


def _number(name: str, value: Any) -> Number:
    table = "features"
    if not isinstance(value, Mapping):
        return Number(name, *_range(table, name, value))
    if "bounds" not in value:
        raise _problem(table, name, "have bounds = [low, high]: two finite numbers")
    _settings(table, name, value, ("bounds", "transform", "knots", "unit", "missing"))
    low, high = _range(table, name, value["bounds"])
    transform, unit = value.get("transform", "clip"), value.get("unit", "")
    if transform not in TRANSFORMS:
        raise _problem(table, name, f"have a transform of {list(TRANSFORMS)}")
    least = {"log1p": -1.0, "log": 0.0, "sqrt": -math.ulp(0.0)}.get(transform, -math.inf)
    if not low > least:
        raise _problem(table, name, f"have bounds for which {transform} is a number")
    if not isinstance(unit, str):
        raise _problem(table, name, "have a unit in quotes")
    listed = value.get("knots", [])
    knots = [_finite(knot) for knot in listed] if isinstance(listed, (list, tuple)) else [None]
    ordered = [low, *(math.nan if knot is None else knot for knot in knots), high]
    if not all(a < b for a, b in itertools.pairwise(ordered)):
        raise _problem(table, name, "have knots between its bounds, each larger than the one before")

    def within(constant: object) -> float | None:
        number = _finite(constant)
        return number if number is not None and low <= number <= high else None

    missing = _missing(table, name, value.get("missing", "row"), ("row", "indicator"), within)
    number = Number(name, low, high, transform, tuple(ordered[1:-1]), unit, missing)
    points = number.points
    if not all(a < b for a, b in itertools.pairwise(points)):
        raise _problem(table, name, "have knots that differ after its transform")
    return number


def _category(name: str, value: Any) -> Category:
    table = "categories"
    if not isinstance(value, Mapping):
        return Category(name, _words(table, name, value))
    _settings(table, name, value, ("values", "other", "missing"))
    values, other = _words(table, name, value.get("values")), value.get("other", False)
    if not isinstance(other, bool):
        raise _problem(table, name, "have other = true or false")
    rules = ("row", "indicator", "other")
    missing = _missing(
        table, name, value.get("missing", "other"), rules, lambda word: word if word in values else None
    )  # fmt: skip
    return Category(name, values, other, missing)


def _flag(name: str, value: Any) -> Flag:
    table = "flags"
    rules = ("row", "indicator")

    def constant(word: object) -> bool | None:
        return word if isinstance(word, bool) else None

    if isinstance(value, (list, tuple)):
        words = _words(table, name, value)
        if len(words) != 2:
            raise _problem(table, name, 'be ["no", "yes"]: what is false, then what is true')
        value = {"false": [words[0]], "true": [words[1]]}
    if not isinstance(value, Mapping):
        raise _problem(table, name, 'be ["no", "yes"], or {}, which knows the usual words')
    _settings(table, name, value, ("true", "false", "missing"))
    usual = Flag(name)
    true, false = (
        tuple(word.lower() for word in _words(table, name, value[key])) if key in value else words
        for key, words in (("true", usual.true), ("false", usual.false))
    )
    if set(true) & set(false):
        raise _problem(table, name, "not have a word that is true and false")
    missing = _missing(table, name, value.get("missing", "row"), rules, constant)
    return Flag(name, true, false, missing)


def _day(value: object) -> datetime.date | None:
    """Return a date of the schema, or None."""
    if isinstance(value, datetime.datetime):
        return value.date()
    if isinstance(value, datetime.date):
        return value
    try:
        return datetime.date.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _date(name: str, value: Any) -> Date:
    table = "dates"
    if isinstance(value, (list, tuple)):
        value = {"parts": list(value)}
    if not isinstance(value, Mapping):
        raise _problem(table, name, f"be a list of {list(PARTS)}")
    _settings(table, name, value, ("parts", "format", "since", "until", "missing"))
    parts = _words(table, name, value.get("parts"))
    if not set(parts) <= set(PARTS):
        raise _problem(table, name, f"have parts of {list(PARTS)}")
    since, until = (_day(value.get(key)) for key in ("since", "until"))
    wanted = "days" in parts
    if wanted != (since is not None) or wanted != (until is not None):
        raise _problem(table, name, "have since = 2020-01-01 and until = 2029-12-31 with days, and only then")
    if since is not None and until is not None and not since < until:
        raise _problem(table, name, "have since before until")
    pattern = value.get("format", "")
    if isinstance(pattern, str) and len(pattern) > LONGEST_FORMAT:
        raise _problem(table, name, f"have a format of at most {LONGEST_FORMAT} characters")
    if not isinstance(pattern, str) or not _reads_back(pattern):
        raise _problem(table, name, 'have a format like "%d.%m.%Y %H:%M", with day, month and year')
    missing = _missing(table, name, value.get("missing", "row"), ("row", "indicator"), _day)
    return Date(name, parts, pattern, since, until, missing)


def _reads_back(pattern: str) -> bool:
    """Whether a format writes a date that it reads again."""
    if not pattern:
        return True
    probe = datetime.datetime(2024, 11, 23, 0, 0)
    try:
        found = datetime.datetime.strptime(probe.strftime(pattern), pattern)
    except (ValueError, re.error, UnicodeError):
        return False
    return found.date() == probe.date()


def _interactions(table: Mapping[str, Any], schema: Schema) -> tuple[Interaction, ...]:
    widths = {block.name: len(block.names) for block in schema.blocks}
    total, found = sum(widths.values()), []
    for name, value in table.items():
        if not isinstance(value, (list, tuple)) or len(value) != 2 or value[0] == value[1]:
            raise _problem("interactions", name, 'be two columns: ["store", "day.weekday"]')
        for part in value:
            if not isinstance(part, str) or part not in widths:
                raise _problem("interactions", name, f"be two of the schema's columns. Check {shown_name(str(part))}")
        if name in widths:
            raise _problem("interactions", name, "not have the name of a column")
        total += widths[value[0]] * widths[value[1]]
        found.append(Interaction(name, value[0], value[1]))
    if total > MOST_COLUMNS:
        raise InputError(f"The schema leads to more than {MOST_COLUMNS:,} columns.")
    return tuple(found)


def _target(table: Mapping[str, Any]) -> Target | None:
    if len(table) > 1:
        raise InputError(
            f"The schema's [target] must name one column only. Got {len(table)} instead. Fit one product at a time, "
            "each with its part of the budget, or several together in Python with DPNewsvendor."
        )
    for name, value in table.items():
        if not isinstance(value, Mapping):
            return Target(name, _range("target", name, value))
        _settings("target", name, value, ("bounds", "classes"))
        if set(value) == {"classes"}:
            return Target(name, None, _words("target", name, value["classes"], 2))
        if "classes" in value:
            raise _problem("target", name, "have bounds or classes, not both")
        return Target(name, _range("target", name, value["bounds"]) if value else None)
    return None


def _person(table: Mapping[str, Any]) -> str | None:
    if not table:
        return None
    if set(table) != {"column"} or not isinstance(table["column"], str):
        raise InputError('The schema\'s [person] must be column = "name".')
    return str(table["column"])


def _ignored(table: Mapping[str, Any]) -> tuple[str, ...]:
    if not table:
        return ()
    if set(table) != {"columns"}:
        raise InputError('The schema\'s [ignore] must be columns = ["a", "b"].')
    return _words("ignore", "columns", table["columns"])


def _file(table: Mapping[str, Any]) -> FileFormat:
    allowed = tuple(item.name for item in fields(FileFormat))
    unknown = [key for key in table if key not in allowed]
    if unknown:
        raise InputError(f"The schema's [file] may have {list(allowed)} only.")
    values = dict(table)
    delimiter, decimal = values.get("delimiter"), values.get("decimal", ".")
    if "delimiter" in values:
        check_delimiter(delimiter)
    if "encoding" in values:
        check_encoding(values["encoding"])
    if decimal not in (".", ",") or (decimal == "," and delimiter == ","):
        raise InputError('The schema\'s decimal in [file] must be "." or ",", and not the delimiter.')
    if not isinstance(values.get("line_breaks", False), bool):
        raise InputError("The schema's line_breaks in [file] must be true or false.")
    if "missing" in values:
        words = values["missing"]
        if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
            raise InputError('The schema\'s missing in [file] must be a list like ["NA", "?"].')
        values["missing"] = ("", *(word.strip() for word in words if word.strip()))
    return FileFormat(**values)


def check_delimiter(value: object) -> str:
    """Return what separates fields, or raise."""
    if value == "\\t":
        value = "\t"
    if not isinstance(value, str) or len(value) != 1 or not (value.isascii() and value not in '"\r\n'):
        raise InputError('The delimiter must be one sign, like ";" or "\\t".')
    return value


def check_encoding(value: object) -> str:
    """Return the name of an encoding of text whose lines can be read one by one, or raise."""
    if not isinstance(value, str) or not is_stateless(value):
        raise InputError(
            'The encoding must be one that Python knows, like "utf-8" or "latin-1", in which each line can be read by '
            "itself: not UTF-7, HZ or ISO 2022. Write the file in UTF-8."
        )
    return value
