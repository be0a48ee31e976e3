"""Columns with a type that a reader may have guessed: refused where the schema says how text is
read, and otherwise the same as text.
"""

from __future__ import annotations

import datetime
import io
from decimal import Decimal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest

from dpconvex import DPQuantileRegressor, load_model, save_model
from dpconvex.core.certificate import TABLE_RECORDS
from dpconvex.evaluation import private_score
from dpconvex.inputs import InputError
from dpconvex.inputs.column_types import ColumnType, column_type
from dpconvex.inputs.inspection import inspect_file
from dpconvex.inputs.schema_file import parse_schema
from dpconvex.inputs.table_files import (
    read_feature_file,
    read_file_partitions,
    read_training_file,
    split_files,
)
from dpconvex.preprocessing import PublicTable

ROWS = 40
COMMA = {"file": {"decimal": ","}}
THOUSANDS = {"file": {"decimal": "1,234.5"}}
DAY = {"parts": ["month"], "format": "%d.%m.%Y"}
NOON = datetime.datetime(2024, 5, 1, 12)
OTHER = {"features": {"x": [0, 1]}}
# What a schema says, and a column "c" of a type in which its text cannot be seen any more.
REFUSED = {
    "number": ({"features": {"c": [0, 9000]}, **COMMA}, [6.732, 1.5]),
    "whole number": ({"features": {"c": [0, 9000]}, **COMMA}, [6732, 15]),
    "decimal": ({"features": {"c": [0, 9000]}, **COMMA}, [Decimal("6.732"), Decimal("1.500")]),
    "thousands": ({"features": {"c": [0, 9000]}, **THOUSANDS}, [6.732, 1.5]),
    "two columns of one": (
        {"features": {"a": {"column": "c", "bounds": [0, 9]}}, **COMMA},
        [6.732, 1.5],
    ),
    "category": ({"categories": {"c": ["6.732", "1.5"]}, **COMMA}, [6.732, 1.5]),
    "code": ({"categories": {"c": ["1", "2"]}, **COMMA}, [1, 2]),
    "flag": ({"flags": {"c": {}}, **COMMA}, [1, 0]),
    "date as a time": ({"dates": {"c": DAY}}, [NOON, NOON]),
    "date as a number": ({"dates": {"c": DAY}}, [1.0, 2.0]),
    "day of the year": (
        {"dates": {"c": {"parts": ["month"], "format": "%Y.%j"}}},
        [2024.032, 2024.1],
    ),
    "digits as a time": ({"dates": {"c": {"parts": ["month"], "format": "%Y%d%m"}}}, [NOON, NOON]),
    "digits with commas": (
        {"dates": {"c": {"parts": ["month"], "format": "%Y%m%d"}}, **COMMA},
        [20240501, 20240502],
    ),
    "target": ({**OTHER, "target": {"c": [0, 9000]}, **COMMA}, [6.732, 1.5]),
    "class": ({**OTHER, "target": {"c": {"classes": ["1", "2"]}}, **COMMA}, [1, 2]),
    "event": ({**OTHER, "target": {"y": {"event": "c"}}, **COMMA}, [1, 0]),
}
# Types that say no more than text does, with the text that has the same cells.
READ = {
    "number": ({"features": {"c": [0, 9000]}}, [6.732, 1.5], ["6.732", "1.5"]),
    "whole number": ({"features": {"c": [0, 9000]}}, [6732, 15], ["6732", "15"]),
    "truth beside commas": ({"flags": {"c": {}}, **COMMA}, [True, False], ["True", "false"]),
    "code": ({"categories": {"c": ["01", "02"]}}, [1, 2], ["01", "02"]),
    "category": ({"categories": {"c": ["6.732", "1.5"]}}, [6.732, 1.5], ["6.732", "1.5"]),
    "digits": (
        {"dates": {"c": {"parts": ["month"], "format": "%d%m%Y"}}},
        [1052024, 12102024],
        ["01052024", "12102024"],
    ),
    "date": ({"dates": {"c": ["month"]}}, [NOON, NOON], ["2024-05-01T12:00:00", "2024-05-01"]),
    "words beside commas": (
        {"categories": {"c": ["a", "b"]}, **COMMA},
        ["a", "b"],
        ["a", "b"],
    ),
}


def whole(cells):
    return [cells[row % len(cells)] for row in range(ROWS)]


def typed_columns(cells):
    """Yield the cells in columns of every type that readers may guess for them."""
    yield "pandas", pd.Series(cells)
    yield "nullable", pd.Series(cells).convert_dtypes()
    yield "pandas category", pd.Series(cells).astype("category")
    yield "arrow in pandas", pd.Series(cells, dtype=pd.ArrowDtype(pa.array(cells).type))
    yield "polars", pl.Series(cells)
    yield "pyarrow", pa.array(cells)
    yield "chunks", pa.chunked_array([cells])
    yield "dictionary", pa.array(cells).dictionary_encode()
    yield "numpy", np.array(cells)


def read_of(schema, table):
    """Return what a schema makes of a table: its target, if the schema has one, or features."""
    if schema.target is not None and schema.target.event is None:
        return PublicTable(schema).target(table)
    return np.asarray(PublicTable(schema).transform(table))


def with_others(schema, column, kind=dict):
    """Return a table of the column and of all others that a schema names, as text."""
    names = [*schema.inputs, "y"]
    others = {name: ["0", "1"] * (ROWS // 2) for name in names if name != "c"}
    return kind({"c": column, **others})


@pytest.mark.parametrize("name", REFUSED)
def test_a_typed_column_is_refused_where_the_schema_says_how_text_is_read(name):
    tables, cells = REFUSED[name]
    schema = parse_schema(tables)
    for kind, column in typed_columns(whole(cells)):
        if column_type(column) is ColumnType.CELLS:  # Python's objects: each says what it is
            assert kind in ("pandas", "nullable", "pandas category", "numpy")
            assert isinstance(cells[0], (Decimal, datetime.datetime))
            continue
        assert column_type(column) in (ColumnType.NUMBERS, ColumnType.TIMES), kind
        if name == "event":  # a table's event is read by the command line alone
            continue
        for held in (column, column[:0]):  # whatever it holds
            with pytest.raises(InputError, match="'c' must be text, because the schema says by"):
                read_of(schema, with_others(schema, held))
    if schema.target is None and name != "decimal":
        frame = pd.DataFrame(with_others(schema, pd.Series(whole(cells))))
        for container in (frame, pl.from_pandas(frame), dd.from_pandas(frame, npartitions=2)):
            with pytest.raises(InputError, match="must be text"):
                PublicTable(schema).transform(container)


@pytest.mark.parametrize("name", READ)
def test_a_typed_column_without_such_a_rule_is_read_like_its_text(name):
    tables, cells, text = READ[name]
    schema = parse_schema(tables)
    expected = read_of(schema, {"c": whole(text)})
    for kind, column in typed_columns(whole(cells)):
        np.testing.assert_array_equal(read_of(schema, {"c": column}), expected, kind)
    for kind, column in typed_columns(whole(text)):
        np.testing.assert_array_equal(read_of(schema, {"c": column}), expected, kind)


@pytest.mark.parametrize("name", REFUSED)
def test_parquet_is_refused_wherever_it_is_read(name, tmp_path):
    """`fit`, with Dask too, `score`, `predict` and `bounds check`: whether invalid rows are
    ignored or not.
    """
    tables, cells = REFUSED[name]
    schema = parse_schema({"target": {"y": [0, 1]}, **tables})
    table = pl.DataFrame(with_others(schema, pl.Series(whole(cells))))
    path = tmp_path / "t.parquet"
    table.write_parquet(path)
    labels = schema.target.classes is not None
    kind = "text" if labels else None
    pieces, _ = split_files([path], schema, 1 << 30, 1)

    def in_parts():
        X, _ = read_file_partitions(pieces, schema, labels, kind, True)
        X.compute(scheduler="synchronous")

    reads = [
        lambda: read_training_file(path, schema, labels, kind, False),
        lambda: read_training_file(path, schema, labels, kind, True),
        lambda: inspect_file(path, schema),
        in_parts,
    ]
    if schema.target.name == "y" and schema.target.event is None:
        reads.append(lambda: read_feature_file(path, schema, []))
    for read in reads:
        with pytest.raises(InputError, match="'c' must be text"):
            read()
    text = table.with_columns(pl.Series("c", ["x"] * ROWS))
    text.write_parquet(path)
    read_training_file(path, schema, labels, kind, True)


def test_one_cell_no_longer_changes_what_numbers_mean(tmp_path):
    """Guessed numbers were 1,000 times as large once one cell was ``1.234,5``."""
    schema = parse_schema({"features": {"c": [0, 90000]}, "target": {"y": [0, 9]}, **COMMA})
    cells = [f"{row}.{100 + row}" for row in range(ROWS)]
    for odd in ("0.100", "1.234,5"):
        lines = "\n".join(["c;y", *(f"{cell};1" for cell in [*cells[:-1], odd])])
        (tmp_path / "t.csv").write_text(lines + "\n")
        guessed = pl.read_csv(tmp_path / "t.csv", separator=";", schema_overrides={"y": pl.String})
        guessed.write_parquet(tmp_path / "t.parquet")
        text = read_training_file(tmp_path / "t.csv", schema, ignored=True)[0]["c"][:-1]
        np.testing.assert_array_equal(text, [float(cell.replace(".", "")) for cell in cells[:-1]])
        if guessed["c"].dtype == pl.String:
            found = read_training_file(tmp_path / "t.parquet", schema, ignored=True)[0]["c"]
            np.testing.assert_array_equal(found[:-1], text)
        else:
            with pytest.raises(InputError, match="must be text"):
                read_training_file(tmp_path / "t.parquet", schema, ignored=True)


def test_models_and_scores_refuse_what_their_fit_refuses(tmp_path):
    schema = parse_schema({"features": {"c": [0, 9]}, "target": {"y": [0, 9]}, **COMMA})
    text = pd.DataFrame({"c": whole(["1,5", "2,5"]), "y": whole(["1,5", "2,5"])})
    table = PublicTable(schema)
    model = DPQuantileRegressor(feature_bounds=table.feature_bounds, target_bounds=(0, 9))
    model.fit(table.transform(text), table.target(text))
    save_model(model, tmp_path / "m.json", schema=schema)
    loaded = load_model(tmp_path / "m.json")
    numbers = pd.DataFrame({"c": whole([1.5, 2.5])})
    assert len(loaded.predict(text)) == ROWS
    with pytest.raises(InputError, match="must be text"):
        loaded.predict(numbers)
    target = table.target(text)
    with pytest.raises(InputError, match="must be text"):
        private_score(loaded, numbers, target)
    certificate = private_score(loaded, text, target).certificate
    assert certificate.records == TABLE_RECORDS
    certificate.verify()


@pytest.mark.parametrize("kind", ["zone", "time of day", "duration", "list", "bytes", "struct"])
def test_types_in_which_text_cannot_be_seen_are_refused_in_every_schema(kind):
    """Readers turn times with an offset to UTC, and read a time of day as no text."""
    cells = {
        "zone": pl.Series(whole([NOON])).dt.replace_time_zone("UTC"),
        "time of day": pl.Series(whole([NOON.time()])),
        "duration": pl.Series(whole([datetime.timedelta(1)])),
        "list": pl.Series(whole([[1.0]])),
        "bytes": pl.Series(whole([b"1"])),
        "struct": pl.Series(whole([{"a": 1}])),
    }[kind]
    columns = [cells, cells.to_arrow()]
    if kind in ("zone", "duration"):
        columns.append(cells.to_pandas())
    for tables in (
        {"dates": {"c": ["month"]}},
        {"categories": {"c": ["2024-05-01"]}},
        {"flags": {"c": {}}},
        {"features": {"c": [0, 9]}},
        {**OTHER, "target": {"c": [0, 9]}},
        {**OTHER, "target": {"c": {"classes": ["12:00", "13:00"]}}},
    ):
        schema = parse_schema(tables)
        for column in columns:
            with pytest.raises(InputError, match="'c' must be text"):
                read_of(schema, with_others(schema, column))


# What a column may hold, as text, and what a schema may say of it without a rule about text.
POOLS = {
    "numbers": ["1", "2", "3.5", "-4", "1e3", "0.1", "+7", "007", "5.", ".5"],
    "whole numbers": ["1", "2", "3", "10", "007"],
    "long numbers": ["9007199254740993", "9007199254740992", "123456789012345678901234567890"],
    "truth values": ["True", "False", "true", "FALSE"],
    "days": ["2024-01-05", "2024-02-09", "2024-12-31"],
    "seconds": ["2024-01-05 13:59:01", "2024-02-09 00:00:00"],
    "offsets": ["2024-01-05T13:59:01+02:00", "2024-02-09T01:00:00+02:00"],
    "days of digits": ["20240105", "20241231"],
    "times of day": ["13:59", "01:00"],
    "words": ["a", "b", "c"],
    "nothing": ["", ""],
}
SCHEMAS = [
    {"features": {"c": {"bounds": [-1e9, 1e9], "missing": "indicator"}}},
    {"flags": {"c": {"missing": "indicator"}}},
    {"flags": {"c": {"true": ["1"], "false": ["2"], "missing": "indicator"}}},
    {"dates": {"c": {"parts": ["weekday", "hour"], "missing": "indicator"}}},
    *(
        {"categories": {"c": {"values": words, "other": True, "missing": "indicator"}}}
        for words in (
            ["1", "2"],
            ["a", "b"],
            ["True", "False"],
            ["2024-01-05", "2024-02-09"],
            ["3.5", "7"],
            ["9007199254740992", "1"],
        )
    ),
    {**OTHER, "target": {"c": [-1e9, 1e9]}},
    {**OTHER, "target": {"c": {"classes": ["1", "2"]}}},
    {**OTHER, "target": {"c": {"classes": ["2024-01-05", "2024-02-09"]}}},
]
GUESSES = {
    "pandas": lambda text: pd.read_csv(io.StringIO(text), skip_blank_lines=False),
    "pandas, nullable": lambda text: pd.read_csv(
        io.StringIO(text), skip_blank_lines=False, dtype_backend="numpy_nullable"
    ),
    "polars": lambda text: pl.read_csv(text.encode()),
    "polars, dates": lambda text: pl.read_csv(text.encode(), try_parse_dates=True),
    "pyarrow": lambda text: pa_csv.read_csv(io.BytesIO(text.encode())),
}
ODD = ["", "x", "1,5", "NA", "inf", "True", "2024-01-05", "0.25", "1e400", "13:59"]


@pytest.mark.parametrize("guess", GUESSES)
@pytest.mark.parametrize("pool", POOLS)
def test_no_guess_of_a_reader_changes_another_row_where_no_rule_is_stated(pool, guess):
    cells = (POOLS[pool] * 4)[:6]
    for number, tables in enumerate(SCHEMAS):
        schema = parse_schema(tables)
        place = number % 6
        odd = [*cells[:place], ODD[number % len(ODD)], *cells[place + 1 :]]
        tables_of = []
        for held in (cells, odd):
            quoted = [f'"{cell}"' if "," in cell else cell for cell in held]
            tables_of.append(GUESSES[guess]("x,c\n" + "".join(f"1,{cell}\n" for cell in quoted)))
        if {column_type(table["c"]) for table in tables_of} & {ColumnType.ZONED, ColumnType.OTHER}:
            # Readers find a zone, or times of day, where nothing or little else is in a column.
            assert pool in ("offsets", "times of day", "nothing")
            continue
        plain, spoilt = (read_of(schema, table) for table in tables_of)
        others = np.arange(6) != place
        np.testing.assert_array_equal(plain[others], spoilt[others], str(tables))


def test_a_list_is_no_column_with_a_type():
    """Each of its cells says itself whether it is text."""
    schema = parse_schema({"features": {"c": [0, 9000]}, **COMMA})
    for make in (list, tuple, lambda cells: np.array(cells, dtype=object)):
        found = read_of(schema, {"c": make([6.732, "6,732", "6.732"])})
        assert found.ravel().tolist() == [6.732, 6.732, 6732]
