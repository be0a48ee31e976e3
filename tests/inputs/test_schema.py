"""Schemas: what they may say, what columns become, and how long rows can be."""

from __future__ import annotations

import datetime
import math

import numpy as np
import pytest

from dpconvex.engine import RowMap
from dpconvex.inputs import InputError
from dpconvex.inputs.cells import read_cells
from dpconvex.inputs.column_encoding import encode_columns, encoded_array, encoded_sparse_matrix
from dpconvex.inputs.schema_file import parse_schema, schema_to_dict


def encoded(tables, **columns):
    """Return the columns of X by name."""
    schema = parse_schema(tables)
    rows = encoded_array(
        encode_columns(schema, {name: read_cells(cells) for name, cells in columns.items()})
    )
    return dict(zip(schema.names, rows.T.tolist(), strict=True))


def features(**columns):
    return {"features": columns}


def test_files_of_bounds_mean_what_they_meant():
    schema = parse_schema(
        {"features": {"t": [-20, 40]}, "target": {"y": [0, 9]}, "categories": {"c": ["a", "b"]}}
    )
    assert schema.names == ["t", "c=a", "c=b"]
    assert schema.feature_bounds == ([-20, 0, 0], [40, 1, 1])
    assert schema.target_bounds == (0, 9)
    found = encoded({"categories": {"c": ["a", "b"]}}, c=["b", "z", None])
    assert found == {"c=a": [0, 0, 0], "c=b": [1, 0, 0]}


def test_numbers_are_clipped_transformed_and_missing_by_their_rule():
    cells = [5, "7", "x", 99, float("inf")]
    nan = math.nan
    found = encoded(features(n=[0, 10]), n=cells)["n"]
    np.testing.assert_array_equal(found, [5, 7, nan, 10, nan])
    tables = features(n={"bounds": [0, 10], "missing": {"value": 3}})
    assert encoded(tables, n=cells)["n"] == [5, 7, 3, 10, 3]
    found = encoded(features(n={"bounds": [2, 10], "missing": "indicator"}), n=cells)
    assert found == {"n": [5, 7, 6, 10, 6], "n is missing": [0, 0, 1, 0, 1]}
    found = encoded(features(n={"bounds": [0, 10], "transform": "log1p", "missing": 0}), n=cells)
    expected = [math.log1p(value) for value in (5, 7, 0, 10, 0)]
    np.testing.assert_allclose(found["log1p(n)"], expected, rtol=1e-15)


def test_hat_functions_are_straight_lines_between_knots():
    tables = features(n={"bounds": [0, 10], "knots": [4], "missing": "indicator"})
    found = encoded(tables, n=[0, 1, 4, 7, 10, None])
    assert found == {
        "n@0": [1, 0.75, 0, 0, 0, 0],
        "n@4": [0, 0.25, 1, 0.5, 0, 0],
        "n@10": [0, 0, 0, 0.5, 1, 0],
        "n is missing": [0, 0, 0, 0, 0, 1],
    }
    values = np.linspace(0, 10, 57)
    rows = np.column_stack(list(encoded(tables, n=values).values()))
    np.testing.assert_allclose(rows @ [3, -1, 2, 0], np.interp(values, [0, 4, 10], [3, -1, 2]))


def test_a_cell_means_the_same_in_every_type_of_column():
    tables = {"categories": {"c": ["1", "2.5", "True"]}}
    for cells in (
        ["1", "2.5", "True", "3"],
        [1, 2.5, True, 3],
        np.array([1, 2.5, "True", 3], dtype=object),
    ):
        assert list(encoded(tables, c=cells).values()) == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0]]
    assert encoded(tables, c=np.array([1.0, math.nan]))["c=1"] == [1, 0]
    tables = {"flags": {"f": {"missing": False}}}
    for cells in (["yes", "NO", "maybe"], [1.0, 0.0, 7.0], [True, False, None], ["1.0", "0", ""]):
        assert encoded(tables, f=cells)["f"] == [1, 0, 0]


def test_categories_have_bins_for_others_and_for_missing_ones():
    tables = {"categories": {"c": {"values": ["a", "NA"], "other": True, "missing": "indicator"}}}
    found = encoded(tables, c=["a", "NA", "z", "", None, "?"])
    assert found == {
        "c=a": [1, 0, 0, 0, 0, 0],
        "c=NA": [0, 1, 0, 0, 0, 0],  # declared, so it is not taken for missing
        "c=(other)": [0, 0, 1, 0, 0, 0],
        "c=(missing)": [0, 0, 0, 1, 1, 1],
    }
    tables = {"categories": {"c": {"values": ["a"], "missing": {"value": "a"}}}}
    assert encoded(tables, c=["a", None, "b"])["c=a"] == [1, 1, 0]
    tables = {"categories": {"c": {"values": ["a"], "missing": "row"}}}
    np.testing.assert_array_equal(encoded(tables, c=["a", None, "b"])["c=a"], [1, math.nan, 0])


def test_calendar_features_agree_with_the_calendar():
    days = [datetime.datetime(2024, 1, 1) + datetime.timedelta(hours=37 * k) for k in range(400)]
    parts = ["weekday", "month", "hour", "year-cycle", "days"]
    tables = {"dates": {"d": {"parts": parts, "since": "2024-01-01", "until": "2025-01-01"}}}
    found = encoded(tables, d=[day.isoformat() for day in days])
    for row, day in enumerate(days):
        assert found[f"d.weekday={day:%a}"][row] == 1
        assert found[f"d.month={day:%b}"][row] == 1
        assert found[f"d.hour={day.hour}"][row] == 1
        angle = 2 * math.pi * (day.timetuple().tm_yday - 1) / 366
        assert found["d.year-cycle sin"][row] == pytest.approx(math.sin(angle), abs=1e-12)
        passed = (day - datetime.datetime(2024, 1, 1)) / datetime.timedelta(days=1)
        assert found["d.days"][row] == pytest.approx(min(passed, 366))
    typed = encoded(tables, d=np.array(days, dtype="datetime64[us]"))
    assert typed == found


def test_dates_have_formats_and_missing_rules():
    tables = {"dates": {"d": {"parts": ["month"], "format": "%d.%m.%Y", "missing": "indicator"}}}
    found = encoded(tables, d=["05.03.2024", "2024-03-05", ""])
    assert found["d.month=Mar"] == [1, 0, 0]
    assert found["d is missing"] == [0, 1, 1]
    tables = {"dates": {"d": {"parts": ["weekday"], "missing": {"value": "2024-01-01"}}}}
    assert encoded(tables, d=["never", "2024-01-02"])["d.weekday=Mon"] == [1, 0]


def test_interactions_are_products():
    tables = {
        "features": {"n": [0, 10]},
        "categories": {"c": ["a", "b"]},
        "dates": {"d": ["weekday"]},
        "interactions": {"first": ["c", "d.weekday"], "second": ["n", "c"]},
    }
    found = encoded(tables, n=[3, 4], c=["a", "b"], d=["2024-01-01", "2024-01-02"])
    ones = [name for name, column in found.items() if " × " in name and any(column)]
    assert ones == ["c=a × d.weekday=Mon", "c=b × d.weekday=Tue", "n × c=a", "n × c=b"]
    assert found["n × c=b"] == [0, 4]


@pytest.mark.parametrize(("drop", "gone"), [("first", "c=a"), ("b", "c=b")])
def test_a_level_of_reference_has_no_column(drop, gone):
    tables = {
        "categories": {
            "c": {"values": ["a", "b", "x"], "other": True, "missing": "indicator", "drop": drop}
        }
    }
    cells = ["a", "b", "x", "z", None]
    full = encoded({"categories": {"c": {**tables["categories"]["c"], "drop": False}}}, c=cells)
    assert encoded(tables, c=cells) == {
        name: column for name, column in full.items() if name != gone
    }
    schema = parse_schema(tables)
    assert schema.blocks[0].reference[1] == gone
    assert schema.row_norm == 1.0
    assert parse_schema(schema_to_dict(schema)) == schema


def test_one_setting_drops_the_first_of_all_blocks_that_do_not_say_otherwise():
    tables = {
        "encoding": {"drop": "first"},
        "features": {"n": {"bounds": [0, 10], "knots": [4], "missing": "indicator"}, "m": [0, 1]},
        "categories": {"c": ["a", "b"], "e": {"values": ["a", "b"], "drop": False}},
        "dates": {"d": ["weekday", "hour-cycle"]},
    }
    cells = {"n": [0, 1, 4, 7, 10, None], "m": [1] * 6, "c": list("abbbbb"), "e": list("ababab")}
    cells["d"] = [f"2024-01-0{day} 07:00" for day in range(1, 7)]
    found = encoded(tables, **cells)
    full = encoded({**tables, "encoding": {}}, **cells)
    assert set(full) - set(found) == {"n@0", "c=a", "d.weekday=Mon"}
    assert found == {name: full[name] for name in found}
    schema = parse_schema(tables)
    assert parse_schema(schema_to_dict(schema)) == schema
    sparse = encoded_sparse_matrix(
        encode_columns(schema, {name: read_cells(column) for name, column in cells.items()})
    )
    np.testing.assert_array_equal(sparse.toarray(), np.column_stack(list(found.values())))


def test_other_spellings_of_a_category_are_that_category():
    tables = {
        "categories": {"c": {"values": ["F", "M"], "also": {"female": "F", "f": "F"}, "drop": "M"}}
    }
    assert encoded(tables, c=["F", "female", "f", "M", "m"]) == {"c=F": [1, 1, 1, 0, 0]}
    schema = parse_schema(tables)
    assert parse_schema(schema_to_dict(schema)) == schema


def test_commas_that_set_off_thousands_are_declared():
    cells = ["4,373", "1,234,567.5", "12", "12,34", "0.5", "1,2345"]
    nan = math.nan
    tables = {**features(n=[0, 1e9]), "file": {"decimal": "1,234.5"}}
    np.testing.assert_array_equal(
        encoded(tables, n=cells)["n"], [4373, 1234567.5, 12, nan, 0.5, nan]
    )
    np.testing.assert_array_equal(
        encoded(features(n=[0, 1e9]), n=cells)["n"], [nan, nan, 12, nan, 0.5, nan]
    )
    schema = parse_schema(tables)
    assert parse_schema(schema_to_dict(schema)) == schema
    codes = {"categories": {"c": ["4373", "12"]}, "file": {"decimal": "1,234.5"}}
    assert encoded(codes, c=["4,373", "12.0"]) == {"c=4373": [1, 0], "c=12": [0, 1]}


EXPRESSIONS = (
    "x ** 2",
    "(x - 3) ** 3",
    "log(x + 6)",
    "1 / (x + 7)",
    "x * (1 - x)",
    "exp(-x / 10)",
    "abs(x - 1)",
    "(x + 5) ** 0.5",
    "sqrt(abs(x))",
    "(x + 9) ** -1",
    "log(exp(x / 5) + 1)",
    "-x + 2e3",
    "log10(x + 6) - log2(x + 8) * log1p(x + 5)",
)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_bounds_of_a_transform_hold_for_whatever_a_cell_is(text):
    schema = parse_schema(features(n={"bounds": [-5, 5], "transform": text}))
    (low,), (high,) = schema.feature_bounds
    cells = [-1e300, *np.random.default_rng(0).uniform(-6, 6, 5000), 1e300, "5", 5, -5, 0, "inf"]
    found = np.array(encoded(features(n={"bounds": [-5, 5], "transform": text}), n=cells)["n"])
    known = np.clip(np.array([float(cell) for cell in cells[:-1]]), -5, 5)
    functions = {
        name: getattr(np, name) for name in ("log", "log10", "log2", "log1p", "sqrt", "exp", "abs")
    }
    np.testing.assert_allclose(
        found[:-1], eval(text, {"x": known, **functions}), rtol=1e-12, atol=1e-12
    )
    assert low <= np.min(found[:-1])
    assert np.max(found[:-1]) <= high
    assert np.isnan(found[-1])  # infinite, so missing
    assert parse_schema(schema_to_dict(schema)) == schema


def test_targets_are_clipped_before_they_are_transformed():
    schema = parse_schema(
        {**features(n=[0, 1]), "target": {"y": {"bounds": [1, 100], "transform": "log"}}}
    )
    assert schema.target_bounds == (0.0, math.log(100))
    found = schema.target.transformed(np.array([0.0, 10.0, 1e9, math.nan]))
    np.testing.assert_allclose(found, [0, math.log(10), math.log(100), math.nan])
    assert parse_schema(schema_to_dict(schema)) == schema


def longest_mapped_row(tables, trials=400, seed=0):
    """Return the longest row, as estimators map rows, among random ones of all kinds of cells."""
    rng = np.random.default_rng(seed)
    schema = parse_schema(tables)
    pool = ["a", "b", "", "yes", "no", "2024-05-06 07:00", *range(-3, 25), None, -1e9, 1e9]
    cells = {
        name: read_cells([pool[i] for i in rng.integers(len(pool), size=trials)])
        for name in schema.inputs
    }
    rows = encoded_array(encode_columns(schema, cells))
    row_map = RowMap.from_bounds(rows.shape[1], schema.feature_bounds)
    mapped = (rows[~np.isnan(rows).any(axis=1)] - row_map.shift) * row_map.scale
    return np.linalg.norm(mapped, axis=1).max(), schema.row_norm


@pytest.mark.parametrize(
    ("tables", "square"),
    [
        (features(n=[0, 10], m=[5, 20]), 2),
        (features(n={"bounds": [5, 20], "missing": "indicator"}), 1),
        (features(n={"bounds": [5, 20], "knots": [8, 9]}), 1),
        ({"categories": {"c": {"values": ["a", "b"], "other": True, "missing": "indicator"}}}, 1),
        ({"dates": {"d": {"parts": ["weekday", "hour-cycle"], "missing": "indicator"}}}, 2),
        ({"categories": {"c": ["a", "b"], "e": ["a", "b"]}, "interactions": {"i": ["c", "e"]}}, 3),
        ({"features": {"n": [5, 20]}, "flags": {"f": {}}, "interactions": {"i": ["n", "f"]}}, 3),
    ],
)
def test_no_row_is_longer_than_the_schema_says_and_some_are_as_long(tables, square):
    found, bound = longest_mapped_row(tables)
    assert bound == pytest.approx(math.sqrt(square))
    assert found <= bound * (1 + 1e-12)
    assert found == pytest.approx(bound)


def test_products_of_two_positive_numbers_are_bounded_by_their_number():
    tables = features(n={"bounds": [5, 20], "missing": "indicator"}, m=[1, 2])
    found, bound = longest_mapped_row({**tables, "interactions": {"i": ["n", "m"]}})
    assert found <= bound


@pytest.mark.parametrize(
    ("tables", "part"),
    [
        (features(n={"bounds": [0, 1], "transform": "cube"}), "have a transform of"),
        (
            features(n={"bounds": [-1, 1], "transform": "log1p"}),
            "takes log1p where the bounds allow",
        ),
        (features(n={"bounds": [-1, 1], "transform": "sqrt"}), "takes sqrt where the bounds allow"),
        (features(n={"bounds": [-1, 1], "transform": "1 / x"}), "may be 0 within the bounds"),
        (features(n={"bounds": [-1, 1], "transform": "x ** 0.5"}), "takes a power"),
        (features(n={"bounds": [0, 1], "transform": "exp(1e4 * x)"}), "beyond 1e+150"),
        (features(n={"bounds": [0, 1], "transform": "x.__class__"}), "has parts other than"),
        (
            features(n={"bounds": [0, 1], "transform": "open(x)"}),
            "has more than 200 characters, or parts",
        ),
        (features(n={"bounds": [0, 1], "transform": "3 * 1"}), "told apart"),
        (
            {**features(n=[0, 1]), "target": {"y": {"transform": "log"}}},
            "bounds beside its transform",
        ),
        ({"categories": {"c": {"values": ["a", "b"], "drop": "z"}}}, "have drop"),
        (
            {"categories": {"c": ["a"]}, "encoding": {"drop": "first"}},
            "drops the only level of 'c'",
        ),
        ({"categories": {"c": ["a"]}, "encoding": {"drop": "last"}}, "[encoding] must be"),
        ({"categories": {"c": {"values": ["a"], "also": {"b": "z"}}}}, "have also"),
        ({"categories": {"c": {"values": ["a", "1"], "also": {"1.0": "a"}}}}, "which are one"),
        ({**features(n=[0, 1]), "file": {"decimal": ";"}}, "decimal in [file] must be"),
        (features(n={"bounds": [0, 1], "knots": [2]}), "knots between its bounds"),
        (features(n={"bounds": [0, 1], "missing": 2}), "have a missing rule of"),
        (features(n={"bounds": [0, 1], "missing": "other"}), "have a missing rule of"),
        (features(n={"bounds": [0, 1], "limits": 2}), "Check 'limits'"),
        (features(n=[0, 1e200]), "beyond 1e+100"),
        (features(n={"bounds": [1e16, 1.1e16], "transform": "log1p", "unit": 3}), "unit in quotes"),
        ({"categories": {"c": {"values": ["a"], "missing": {"value": "b"}}}}, "missing rule"),
        ({"flags": {"f": "yes"}}, 'be ["no", "yes"]'),
        ({"flags": {"f": {"true": ["no"]}}}, "true and false"),
        ({"dates": {"d": ["year"]}}, "have parts of"),
        ({"dates": {"d": ["days"]}}, "have since"),
        ({"dates": {"d": {"parts": ["month"], "format": "%H"}}}, "have a format"),
        ({**features(n=[0, 1]), "interactions": {"i": ["n", "m"]}}, "Check 'm'"),
        ({**features(n=[0, 1]), "person": {"column": "n"}}, "in [features] and in [person]"),
        ({**features(n=[0, 1]), "ignore": {"columns": ["n"]}}, "in [features] and in [ignore]"),
        ({**features(n=[0, 1]), "file": {"encoding": "klingon"}}, "encoding must be one"),
        ({**features(n=[0, 1]), "file": {"encoding": "rot13"}}, "encoding must be one"),
        ({**features(n=[0, 1]), "file": {"delimiter": "ab"}}, "delimiter must be one sign"),
        ({**features(n=[0, 1]), "target": {"y": {"classes": ["a"]}}}, "must be a list"),
        ({"categories": {"c": ["a"], "c=a": ["b"]}, "features": {"c=a=b": [0, 1]}}, "same name"),
        (
            {
                "categories": {n: [str(i) for i in range(400)] for n in "ab"},
                "interactions": {"i": ["a", "b"]},
            },
            "more than 100,000 columns",
        ),
    ],
)
def test_what_a_schema_may_not_say(tables, part):
    with pytest.raises(InputError) as caught:
        parse_schema(tables)
    assert part in str(caught.value)


def test_a_schema_can_be_written_down_and_read_again():
    tables = {
        "features": {
            "n": {"bounds": [0, 10], "transform": "sqrt", "knots": [4], "unit": "kg", "missing": 3}
        },
        "categories": {"c": {"values": ["a"], "other": True, "missing": "row"}},
        "flags": {"f": ["off", "on"]},
        "dates": {
            "d": {"parts": ["days"], "since": "2020-01-01", "until": datetime.date(2021, 1, 1)}
        },
        "interactions": {"i": ["c", "f"]},
        "target": {"y": {"classes": ["no", "yes"]}},
        "person": {"column": "id"},
        "ignore": {"columns": ["z"]},
        "file": {"delimiter": ";", "decimal": ",", "missing": ["-"]},
    }
    schema = parse_schema(tables)
    assert parse_schema(schema_to_dict(schema)) == schema
