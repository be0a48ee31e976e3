"""A schema as plain data, which model files carry."""

from __future__ import annotations

import datetime
from typing import Any

from dpconvex.inputs.schema import TABLES, Category, FileFormat, Flag, Missing, Number, Schema

__all__ = ["schema_to_dict"]


def schema_to_dict(schema: Schema) -> dict[str, Any]:
    """Return the tables of a schema as plain data; ``parse_schema`` reads them again."""
    tables: dict[str, dict[str, Any]] = {name: {} for name in TABLES}
    for column in schema.columns:
        if isinstance(column, Number):
            tables["features"][column.name] = _number_to_dict(column)
        elif isinstance(column, Category):
            tables["categories"][column.name] = {
                "values": list(column.values),
                "other": column.other,
                "missing": _missing_to_dict(column.missing),
            }
        elif isinstance(column, Flag):
            tables["flags"][column.name] = {
                "true": list(column.true),
                "false": list(column.false),
                "missing": _missing_to_dict(column.missing),
            }
        else:
            ends = {"since": column.since, "until": column.until}
            tables["dates"][column.name] = {
                "parts": list(column.parts),
                "format": column.format,
                **{key: day.isoformat() for key, day in ends.items() if day is not None},
                "missing": _missing_to_dict(column.missing),
            }
    for item in schema.interactions:
        tables["interactions"][item.name] = [item.left, item.right]
    if schema.target is not None:
        target = schema.target
        ends_or_classes: dict[str, Any] = {}
        if target.bounds is not None:
            ends_or_classes["bounds"] = list(target.bounds)
        if target.classes is not None:
            ends_or_classes["classes"] = list(target.classes)
        tables["target"][target.name] = ends_or_classes
    if schema.person is not None:
        tables["person"]["column"] = schema.person
    if schema.ignored:
        tables["ignore"]["columns"] = list(schema.ignored)
    if schema.file != FileFormat():
        tables["file"] = {
            "decimal": schema.file.decimal,
            "missing": list(schema.file.missing),
            **{key: value for key in ("delimiter", "encoding") if (value := getattr(schema.file, key)) is not None},
            **({"line_breaks": True} if schema.file.line_breaks else {}),
        }
    return {name: table for name, table in tables.items() if table}


def _number_to_dict(column: Number) -> dict[str, Any]:
    found: dict[str, Any] = {
        "bounds": [column.low, column.high],
        "transform": column.transform,
        "missing": _missing_to_dict(column.missing),
    }
    if column.knots:
        found["knots"] = list(column.knots)
    if column.unit:
        found["unit"] = column.unit
    return found


def _missing_to_dict(missing: Missing) -> object:
    if missing.rule != "value":
        return missing.rule
    value = missing.value
    return {"value": value.isoformat() if isinstance(value, datetime.date) else value}
