"""Random schemas and random tables: what is public is drawn apart from what is private.

Private cells hold words and numbers that occur nowhere else, so that a message that quotes one is
found.
"""

from __future__ import annotations

import datetime
import io
import random

import numpy as np
import pandas as pd
import polars as pl

SECRETS = ("SECRETWORD", "7777123", "1907-03-04")
NUMBERS = (
    "7777123",
    "-7777123.5",
    "1e308",
    "-1e999",
    "nan",
    "inf",
    "0",
    "",
    " 12 ",
    "3,5",
    "0x7777123",
    "1_0",
    "٣",
)
WORDS = (
    "SECRETWORD",
    "a",
    "b ",
    "A",
    "NA",
    "?",
    "1",
    "1.0",
    "true",
    "True",
    "é",
    "\u0000SECRETWORD",
    "x" * 300,
)
DATES = (
    "1907-03-04",
    "2024-02-30",
    "2024-01-05 13:59",
    "2024-01-05T13:59:01+02:00",
    "0001-01-01",
    "9999-12-31",
    "04.03.1907",
    "20240105",
    "soon SECRETWORD",
)
OBJECTS = (
    None,
    float("nan"),
    7777123,
    -7777123.25,
    10**400,
    True,
    np.float64(3),
    np.int8(1),
    b"SECRETWORD",
    datetime.date(1907, 3, 4),
    datetime.datetime(1907, 3, 4, 5),
    pd.NA,
    pd.NaT,
    ["SECRETWORD"],
    object(),
    complex(7777123, 1),
    pd.Timestamp("1907-03-04", tz="Europe/Berlin"),
)
NAMES = ("age", "job", "when", "a b", "ünit", "x=y", "class", "p.q", "a is missing", "no 1")


def random_schema(rng: random.Random) -> dict[str, dict[str, object]]:
    """Return the tables of a schema, most of them valid."""
    names = rng.sample(NAMES, rng.randint(1, 5))
    tables: dict[str, dict[str, object]] = {}
    for name in names:
        table, value = rng.choice(KINDS)(rng)
        tables.setdefault(table, {})[name] = value
    blocks = [
        f"{name}.{part}" if table == "dates" and isinstance(value, dict) else name
        for table, columns in tables.items()
        for name, value in columns.items()
        for part in (value["parts"] if table == "dates" and isinstance(value, dict) else [""])
    ]
    if rng.random() < 0.3 and len(blocks) > 1:
        tables["interactions"] = {"product": rng.sample(blocks, 2)}
    tables["target"] = {
        "goal": rng.choice([[-1, 1], {"classes": ["a", "b"]}, {"classes": ["0", "1"]}])
    }
    if rng.random() < 0.2:
        tables["file"] = {"decimal": rng.choice([".", ","]), "missing": ["NA", "a"]}
    if rng.random() < 0.1:
        broken = rng.choice(list(tables))
        tables[broken] = rng.choice(
            [{}, {"age": rng.choice([3, [], {}, [1, 0], "a"])}, {"age": {"bounds": 3}}]
        )
    return tables


def _number(rng: random.Random) -> tuple[str, object]:
    low = rng.choice([-3.0, 0.0, 0.5, 10.0])
    found: dict[str, object] = {"bounds": [low, low + rng.choice([1.0, 8.0, 1e6])]}
    if rng.random() < 0.4:
        found["transform"] = rng.choice(["clip", "log1p", "sqrt", "log"])
    if rng.random() < 0.3:
        found["knots"] = [low + 0.25, low + 0.5]
    if rng.random() < 0.7:
        found["missing"] = rng.choice(["row", "indicator", {"value": low + 0.25}])
    return "features", found if rng.random() < 0.8 else found["bounds"]


def _category(rng: random.Random) -> tuple[str, object]:
    values = rng.sample(["a", "b", "A", "1", "true", "é", "NA"], rng.randint(1, 5))
    if rng.random() < 0.4:
        return "categories", values
    missing = rng.choice(["row", "other", "indicator", {"value": values[0]}])
    return "categories", {"values": values, "other": rng.random() < 0.5, "missing": missing}


def _flag(rng: random.Random) -> tuple[str, object]:
    if rng.random() < 0.3:
        return "flags", ["a", "b"]
    return "flags", {"missing": rng.choice(["row", "indicator", {"value": True}])}


def _date(rng: random.Random) -> tuple[str, object]:
    parts = ["weekday", "month", "hour", "hour-cycle", "year-cycle", "month-cycle", "days"]
    chosen = rng.sample(parts, rng.randint(1, 4))
    found: dict[str, object] = {"parts": chosen}
    if "days" in chosen:
        found |= {"since": "2020-01-01", "until": "2026-01-01"}
    if rng.random() < 0.3:
        found["format"] = rng.choice(["%d.%m.%Y", "%Y%m%d"])
    found["missing"] = rng.choice(["row", "indicator", {"value": "2024-01-01"}])
    return "dates", found


KINDS = (_number, _number, _category, _category, _flag, _date)


def random_cells(rng: random.Random, rows: int) -> list[object]:
    """Return a column of private cells."""
    pools = [
        NUMBERS,
        WORDS,
        DATES,
        OBJECTS,
        tuple(rng.gauss(0, 5) for _ in range(4)),
        (0, 1),
        ("a", "b"),
    ]
    chosen = rng.sample(pools, rng.randint(1, 3))
    return [rng.choice(rng.choice(chosen)) for _ in range(rows)]


def as_text(value: object) -> str:
    return "" if value is None or value is pd.NA else str(value).replace("\u0000", "")


def as_container(
    columns: dict[str, list[object]], rng: random.Random, guessed: bool = True
) -> object:
    """Return the columns as one of the containers that tables come in; types of columns may be
    guessed from all of their cells.
    """
    kind = rng.choice(["pandas", "polars", "dict", "inferred", "arrow"])
    if kind == "pandas":
        return pd.DataFrame(
            {name: pd.Series(cells, dtype=object) for name, cells in columns.items()}
        )
    if kind == "dict":
        return columns
    text = pl.DataFrame(
        {name: [as_text(cell) for cell in cells] for name, cells in columns.items()}
    )
    if kind == "polars":
        return text
    if kind == "arrow":
        return text.to_arrow()
    return pd.read_csv(
        io.BytesIO(text.write_csv().encode()),
        skip_blank_lines=False,
        dtype=None if guessed else str,
    )


def csv_bytes(columns: dict[str, list[object]], rng: random.Random, encoding: str) -> bytes:
    text = pl.DataFrame(
        {name: [as_text(cell) for cell in cells] for name, cells in columns.items()}
    )
    content = text.write_csv(separator=rng.choice(",;\t|"))
    if rng.random() < 0.3:
        content += rng.choice(
            [",,,,,,,,,,,SECRETWORD\n", "SECRETWORD\n", "\n\n", '"SECRETWORD\n', "\ufffd\n"]
        )
    return content.encode(encoding, "replace")
