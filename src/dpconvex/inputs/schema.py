"""The bounds file: public ranges and categories of columns, in TOML, checked strictly.

``[features]`` and ``[target]`` hold ``column = [low, high]``; ``[categories]`` holds
``column = ["a", "b"]``. The file says which columns are used, in which order: numbers first, then
one indicator per category. A value that is no declared category gives zeros in all indicators.
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dpconvex.inputs.columns import Columns
from dpconvex.inputs.errors import InputError

LARGEST_FILE = 4 * 2**20
_TABLES = ("features", "target", "categories")
Range = tuple[float, float]


@dataclass(frozen=True)
class BoundsFile:
    """The content of a bounds file.

    Attributes
    ----------
    features : mapping of str to (low, high)
        Columns of numbers.
    target : mapping of str to (low, high)
        At most one column.
    categories : mapping of str to tuple of str
        Columns of text.
    """

    features: Mapping[str, Range]
    target: Mapping[str, Range] = field(default_factory=dict)
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def columns(self, target: str | None) -> Columns:
        """Return the columns to read; ``target`` must not be among the features."""
        target = self.target_name(target)
        if target in self.features or target in self.categories:
            raise InputError(
                f"The target {target!r} must not be a feature: take it out of [features] and "
                "[categories] in the bounds file."
            )
        return Columns(tuple(self.features), dict(self.categories), target)

    def target_name(self, target: str | None) -> str:
        """Return the target's column: the one asked for, which must agree with [target]."""
        declared = next(iter(self.target), None)
        if target is None and declared is None:
            raise InputError("Give --target, or the target's column in [target].")
        if target is not None and declared is not None and target != declared:
            raise InputError(
                f"The target is {target!r}, but [target] in the bounds file names {declared!r}."
            )
        return str(target if target is not None else declared)

    @property
    def feature_bounds(self) -> tuple[list[float], list[float]]:
        """Lowest and highest value of each column of ``X``; indicators are 0 or 1."""
        indicators = [(0.0, 1.0) for items in self.categories.values() for _ in items]
        pairs = [*self.features.values(), *indicators]
        return [low for low, _ in pairs], [high for _, high in pairs]

    @property
    def target_bounds(self) -> Range | None:
        """Range of the target, if declared."""
        return next(iter(self.target.values()), None)


def read_bounds(path: Path) -> BoundsFile:
    """Read and check a bounds file."""
    if not path.is_file():
        raise InputError(f"The bounds file {str(path)!r} is not a file.")
    if os.path.getsize(path) > LARGEST_FILE:
        raise InputError(f"The bounds file is larger than {LARGEST_FILE // 2**20} MiB.")
    raw = path.read_bytes()
    try:
        data = tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError:
        raise InputError("The bounds file must be text in UTF-8.") from None
    except RecursionError:
        raise InputError("The bounds file is nested too deeply.") from None
    except ValueError as error:
        # Only the place: should somebody pass the data here, no part of it is shown.
        place = re.search(r"\(at (line \d+, column \d+|end of document)\)$", str(error))
        where = f" (at {place.group(1)})" if place else ""
        raise InputError(f"The bounds file is not valid TOML{where}.") from None
    return parse_bounds(data)


def parse_bounds(data: Mapping[str, object]) -> BoundsFile:
    """Check the content of a bounds file."""
    unknown = [name for name in data if name not in _TABLES]
    if unknown:
        raise InputError(
            f"The bounds file may have the tables {list(_TABLES)} only. Check {_short(unknown[0])}."
        )
    tables: dict[str, dict[str, object]] = {}
    for name in _TABLES:
        table = data.get(name, {})
        if not isinstance(table, dict):
            raise InputError(f"The bounds file's '{name}' must be a table: write [{name}].")
        tables[name] = table
    result = BoundsFile(
        {name: _range("features", name, value) for name, value in tables["features"].items()},
        {name: _range("target", name, value) for name, value in tables["target"].items()},
        {name: _labels(name, value) for name, value in tables["categories"].items()},
    )
    if not result.features and not result.categories:
        raise InputError(
            "The bounds file must name at least one column in [features] or [categories], "
            "for instance: temperature = [-20, 40]."
        )
    if len(result.target) > 1:
        raise InputError("The bounds file's [target] must name one column only.")
    both = sorted(set(result.features) & set(result.categories))
    if both:
        raise InputError(f"The column {_short(both[0])} is in [features] and in [categories].")
    names = Columns(tuple(result.features), result.categories).names
    if len(set(names)) < len(names):
        raise InputError("Two columns or categories of the bounds file lead to the same name.")
    return result


def _range(table: str, name: str, value: object) -> Range:
    problem = (
        f"In the bounds file, {_short(name)} in [{table}] must be [low, high]: two finite numbers"
    )
    if not isinstance(value, list) or len(value) != 2:
        raise InputError(f"{problem}.")
    if not all(type(end) in (int, float) for end in value):
        raise InputError(f"{problem}.")
    try:
        low, high = float(value[0]), float(value[1])
    except OverflowError:
        raise InputError(f"{problem}.") from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise InputError(f"{problem}.")
    if not (low < high and math.isfinite(high - low)):
        raise InputError(f"{problem} with low < high.")
    return low, high


def _labels(name: str, value: object) -> tuple[str, ...]:
    problem = f'In the bounds file, {_short(name)} in [categories] must be a list like ["a", "b"]'
    if not isinstance(value, list) or not value:
        raise InputError(f"{problem}.")
    if not all(isinstance(item, str) and item for item in value):
        raise InputError(f"{problem}, of non-empty text; write numbers in quotes.")
    if len(set(value)) < len(value):
        raise InputError(f"{problem} without repetitions.")
    return tuple(value)


def _short(name: str) -> str:
    return repr(name if len(name) <= 80 else name[:80] + "...")
