"""Every cell is read by itself: one that changes, and the type of its column with it, changes no
other row.
"""

import datetime
import io
import math
import random
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dpconvex.inputs import InputError
from dpconvex.inputs.column_encoding import encode_columns, encoded_array
from dpconvex.inputs.column_types import ColumnType, column_type
from dpconvex.inputs.labels import LabelPositions
from dpconvex.inputs.public_table import public_table_cells
from dpconvex.inputs.schema_file import parse_schema
from dpconvex.inputs.table_files import read_training_file
from dpconvex.preprocessing import PublicTable

# Older pandas reads numbers of 16 digits and more otherwise than everybody else, unless it is asked
# not to.
LONG = 2**60 + 1
EXACT = (
    {}
    if pd.read_csv(io.StringIO(f"c\n{LONG}\n0.5"))["c"][0] == float(LONG)
    else {"float_precision": "round_trip"}
)
ROWS = 12
PEOPLE = {f"p{row}" for row in range(6)}
LARGE = [2**53 + 3, 2**60 + 1, 10**18 + 7]
DAYS = {"parts": ["weekday", "days"], "since": "2020-01-01", "until": "2030-01-01"}
# What is declared about the column, and values of one type that it may hold.
COLUMNS = {
    "number": (
        {"features": {"c": {"bounds": [-1e9, 1e9], "missing": "indicator"}}},
        [1.5, 123.456, -7.0, 1e5],
    ),
    "whole number": ({"features": {"c": [-1e19, 1e19]}}, [*LARGE, 3]),
    "knots": ({"features": {"c": {"bounds": [0, 200], "knots": [50]}}}, [1.5, 123.456]),
    "codes": (
        {"categories": {"c": {"values": ["1", "2"], "other": True, "missing": "indicator"}}},
        [1, 2, 3],
    ),
    "codes with zeros": ({"categories": {"c": ["01", "02"]}}, [1, 2, 3]),
    "codes with points": ({"categories": {"c": ["1.0", "0.0", "2.5"]}}, [1.0, 0.0, 2.5, 3.0]),
    "large codes": ({"categories": {"c": [str(code) for code in LARGE]}}, [*LARGE, 5]),
    "truth": ({"categories": {"c": ["TRUE", "False"]}}, [True, False]),
    "flag": ({"flags": {"c": {"missing": "indicator"}}}, [True, False]),
    "numbered flag": ({"flags": {"c": ["02", "01"]}}, [1, 2, 3]),
    "words": ({"categories": {"c": ["a", "b"]}}, ["a", "b", "z"]),
    "date": ({"dates": {"c": DAYS}}, [datetime.datetime(2024, 5, day, 7) for day in range(1, 9)]),
    "date with a format": (
        {"dates": {"c": DAYS | {"format": "%d.%m.%Y"}}},
        [datetime.datetime(2024, 5, day) for day in range(1, 9)],
    ),
    "date of digits": ({"dates": {"c": DAYS | {"format": "%d%m%Y"}}}, [1022024, 11022024]),
    "day as category": (
        {"categories": {"c": ["2024-05-01", "2024-05-02"]}},
        [datetime.datetime(2024, 5, day) for day in (1, 2, 3)],
    ),
    "target": ({"features": {"d": [0, 1]}, "target": {"c": [-1e9, 1e9]}}, [1.5, 123.456, -7.0]),
    "classes": ({"features": {"d": [0, 1]}, "target": {"c": {"classes": ["1", "2"]}}}, [1.0, 2.0]),
    "classes with zeros": (
        {"features": {"d": [0, 1]}, "target": {"c": {"classes": ["01", "02"]}}},
        [1, 2],
    ),
    "large classes": (
        {"features": {"d": [0, 1]}, "target": {"c": {"classes": [str(code) for code in LARGE]}}},
        LARGE,
    ),
}
ANYTHING = (
    "unknown",
    "",
    "NaN",
    "1.5",
    "1,5",
    "1.234",
    None,
    float("nan"),
    float("inf"),
    10**400,
    -(2**63),
    2**64,
    0.5,
    b"x",
    datetime.date(2024, 5, 1),
    datetime.datetime(1, 1, 1),
    datetime.timedelta(1),
    True,
    pd.NA,
    pd.NaT,
    np.timedelta64(5, "s"),
    np.datetime64("2024-05-01"),
    Decimal("sNaN"),
    Decimal("2.5"),
    [1],
    1j,
)


def encoded(tables, column, decimal):
    schema = parse_schema(tables | {"file": {"decimal": decimal}})
    table = {"c": column, "d": [0.0] * len(column)}
    if schema.target is None:
        cells = public_table_cells(table, ["c"], schema, "test")
        return encoded_array(encode_columns(schema, cells)).view(np.int64)
    found = PublicTable(schema).target(table)
    return found if found.dtype == object else found.view(np.int64)


def refused_types(name, decimal):
    """Return types that a column must not have, because its schema says how text is read."""
    numbers = {ColumnType.NUMBERS} if decimal != "." else set()
    if name == "date with a format":
        return {ColumnType.NUMBERS, ColumnType.TIMES}
    return numbers | ({ColumnType.TIMES} if name == "date of digits" else set())


def columns_of(values):
    """Return the same values in columns of every type that holds them."""
    yield "list", values
    yield "object", np.array([*values, None], dtype=object)[:-1]
    yield "pandas", pd.Series(values)
    yield "pandas object", pd.Series(values, dtype=object)
    yield "pandas category", pd.Series(values).astype("category")
    yield "nullable", pd.Series(values).convert_dtypes()
    yield "arrow in pandas", pd.Series(values).convert_dtypes(dtype_backend="pyarrow")
    yield "numpy", np.array(values)
    yield "polars", pl.Series(values)
    yield "polars object", pl.Series(values, dtype=pl.Object)
    yield "pyarrow", pa.array(values)
    yield "chunks", pa.chunked_array([values[:3], values[3:]])
    if all(isinstance(value, (int, float)) for value in values):
        yield (
            "missing nothing",
            pd.Series([*values, None])[:-1],
        )  # floats, because of a value that was there


def spoilt(values, place, cell):
    """Return columns in which one cell is another one, with the types that this leads to."""
    other = [*values[:place], cell, *values[place + 1 :]]
    yield "list", other
    found = np.empty(len(other), dtype=object)
    found[:] = other
    yield "object", found
    yield "pandas object", pd.Series(found)
    yield "polars object", pl.Series(other, dtype=pl.Object)
    for kind, make in (("pandas", pd.Series), ("polars", pl.Series)):
        try:
            column = make(other)
        except BaseException as error:
            if type(error).__name__ != "PanicException" and not isinstance(error, Exception):
                raise
        else:
            yield kind, column


@pytest.mark.parametrize("number", [2, pytest.param(len(ANYTHING), marks=pytest.mark.slow)])
@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("name", COLUMNS)
def test_one_cell_changes_no_other_row(name, decimal, number):
    tables, pool = COLUMNS[name]
    rng = random.Random(f"{name}{decimal}")
    values = [*pool, *rng.choices(pool, k=ROWS - len(pool))]
    expected = encoded(tables, values, decimal)
    for kind, column in columns_of(values):
        if column_type(column) in refused_types(name, decimal):
            with pytest.raises(InputError, match="'c' must be text"):
                encoded(tables, column, decimal)
        else:
            np.testing.assert_array_equal(encoded(tables, column, decimal), expected, kind)
    for cell in (ANYTHING[0], *rng.sample(ANYTHING[1:], number - 1)):
        place = rng.randrange(ROWS)
        others = np.arange(ROWS) != place
        for kind, column in spoilt(values, place, cell):
            if column_type(column) in refused_types(name, decimal):
                continue
            found = encoded(tables, column, decimal)
            np.testing.assert_array_equal(
                found[others], expected[others], f"{kind}, {cell!r} at {place}"
            )


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ({"categories": {"c": ["1", "2"]}}, ["1.0", "2.0", "3.0"]),
        ({"categories": {"c": ["01", "02"]}}, ["01", "02", "03"]),
        ({"categories": {"c": ["1.0", "0.0"]}}, ["1.0", "0.0"]),
        ({"categories": {"c": [str(code) for code in LARGE]}}, [str(code) for code in LARGE]),
        ({"categories": {"c": ["True", "False"]}}, ["TRUE", "false"]),
        ({"categories": {"c": {"values": ["1"], "missing": "indicator"}}}, ["1", "inf", "2"]),
        ({"categories": {"c": ["a", "99"]}, "file": {"missing": ["7"]}}, ["7", "99", "7.0"]),
        ({"flags": {"c": {}}}, ["True", "False"]),
        ({"flags": {"c": ["02", "01"]}}, ["01", "02"]),
        ({"features": {"c": [0, 10]}}, ["1.25", "2", "7.5"]),
        ({"dates": {"c": DAYS | {"format": "%d%m%Y"}}}, ["01022024", "11022024"]),
        ({"dates": {"c": DAYS}}, ["20240105", "20240209"]),
        ({"features": {"d": [0, 1]}, "target": {"c": {"classes": ["1", "2"]}}}, ["1.0", "2.0"]),
    ],
)
@pytest.mark.parametrize("cell", ["unknown", "NA", "0.5", "9" * 30, "1e999"])
def test_a_reader_that_guesses_types_changes_no_other_row(tables, words, cell):
    lines = [*words, *words]
    frames = (
        pd.read_csv(io.StringIO("\n".join(["c", *lines, last])), **EXACT)
        for last in (words[0], cell)
    )
    plain, spoiled = (encoded(tables, frame["c"], ".")[:-1] for frame in frames)
    text = encoded(tables, lines, ".")
    np.testing.assert_array_equal(plain, text)
    np.testing.assert_array_equal(spoiled, text)


@pytest.mark.parametrize("declared", [(1, 2), ("1", "2"), ("01", "02"), (1.0, 2.0)])
def test_labels_that_become_text_are_the_same_labels(declared):
    position = LabelPositions(declared)
    for lines in (["1", "2", "3"], ["1.0", "2.0", "3.0"]):
        for cell in ("unknown", "3", "NA"):
            labels = pd.read_csv(io.StringIO("\n".join(["y", *lines, cell])))["y"].to_numpy()
            for column in (labels, labels.astype(object), labels.astype(str)):
                np.testing.assert_array_equal(position(column), [0, 1, np.nan, np.nan])
    flags = LabelPositions((False, True))
    for column in ([True, False, "x"], ["True", "False", "x"], [1.0, 0.0, np.nan]):
        np.testing.assert_array_equal(flags(np.array(column, dtype=object)), [1, 0, np.nan])


@pytest.mark.parametrize(
    "words",
    [
        ["01", "1"],
        ["1.0", "1e0"],
        [str(2**53), str(2**53 + 1)],
        ["True", "TRUE"],
        ["2024-01-01", "20240101"],
    ],
)
def test_words_that_a_column_of_numbers_cannot_tell_apart_are_refused(words):
    for tables in (
        {"categories": {"c": words}},
        {"features": {"d": [0, 1]}, "target": {"c": {"classes": words}}},
    ):
        with pytest.raises(InputError, match="stands for both"):
            parse_schema(tables)
    if words[0].lower() != words[1].lower():
        with pytest.raises(InputError, match="stands for both"):
            parse_schema({"flags": {"c": words}})
    parse_schema({"flags": {"c": {"true": words, "false": ["no"]}}})


@pytest.mark.parametrize("cell", ['"', '"x', 'x"', '"1"x', '"a"b"', '""x', "\0", "a\rb"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_whose_a_row_is_is_read_with_the_row(cell, place, tmp_path):
    schema = parse_schema({"features": {"a": [0, 9]}, "target": {"y": [0, 9]}})
    for spoilt_row in (0, 2, 5):
        rows = [[f"{row}", f"p{row}", f"{row}"] for row in range(6)]
        rows[spoilt_row][place] = cell
        path = tmp_path / "t.csv"
        path.write_bytes("\n".join(["a,id,y", *map(",".join, rows)]).encode())
        X, y, people = read_training_file(path, schema, ignored=True, person="id")
        assert X.height == len(y) == len(people)
        for a, target, person in zip(X["a"], y, people, strict=True):
            numbers = {a, target, float(person[1:]) if person in PEOPLE else math.nan}
            assert len({number for number in numbers if number == number}) <= 1


@pytest.mark.parametrize("classes", [["0", "1"], ["0", "1", "x"]])
@pytest.mark.parametrize(
    "column",
    [[False, True], [0, 1], [0.0, 1.0], ["0", "1"], ["0.0", "01"], [Decimal("0"), Decimal("1.00")]],
)
def test_labels_mean_the_same_whether_invalid_rows_are_refused_or_ignored(
    classes, column, tmp_path
):
    """Truth values were no classes where invalid rows are ignored: a fit was charged and learned
    nothing.
    """
    schema = parse_schema({"features": {"a": [0, 1]}, "target": {"y": {"classes": classes}}})
    kind = "whole" if len(classes) == 2 else "text"
    pl.DataFrame({"a": [0.5, 0.5], "y": column}).write_parquet(tmp_path / "t.parquet")
    found = [
        read_training_file(tmp_path / "t.parquet", schema, True, kind, ignored)[1].to_list()
        for ignored in (False, True)
    ]
    assert found[0] == found[1] == ([0, 1] if kind == "whole" else ["0", "1"])
