"""Identifiers of people in files: the same people whatever type the file gives their column."""

import json
from dataclasses import replace
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

from dpconvex.cli.bounds_split import split_by_value
from dpconvex.core.person_identifiers import NOBODY, person_tags
from dpconvex.inputs import InputError
from dpconvex.inputs.inspection import inspect_file
from dpconvex.inputs.schema_file import parse_schema
from dpconvex.inputs.table_files import read_training_file

SCHEMA = parse_schema(
    {
        "features": {"x": [0, 1]},
        "target": {"y": [0, 1]},
        "person": {"column": "id"},
    }
)
LARGE = 2**60 + 1
WRITTEN = {
    "text": ["7", " 7.0 ", "007", "NA", "", "nan", str(LARGE), f"{LARGE}"],
    "floats": [7.0, 7.0, 7.0, None, np.nan, np.inf, float(LARGE), 0.5],
    "whole": [7, 7, 7, None, None, None, LARGE, LARGE],
    "decimals": [
        Decimal(7),
        Decimal(7),
        Decimal(7),
        None,
        None,
        None,
        Decimal(LARGE),
        Decimal(LARGE),
    ],
    "bytes": [b"7", b" 7", b"7.0", b"NA", b"", None, str(LARGE).encode(), str(LARGE).encode()],
}


def tagged(path, schema=SCHEMA):
    _, _, people = read_training_file(path, schema, ignored=True, person=schema.person)
    return person_tags(people)


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_file_names_the_same_people_whatever_the_type_of_their_column(kind, tmp_path):
    """NaN in a Parquet file was a person of that name, and 7.0 another one than 7."""
    path = tmp_path / "t.parquet"
    rows = {"id": pl.Series(WRITTEN[kind], strict=False), "x": [0.5] * 8, "y": [0.5] * 8}
    pl.DataFrame(rows).write_parquet(path)
    tags = tagged(path)
    expected = person_tags(np.array([7, 7, 7, 0, 0, 0, LARGE, LARGE]))
    expected[3:6] = NOBODY
    if kind == "floats":  # which hold no whole number that large
        expected[6:] = NOBODY
    assert np.array_equal(tags, expected)
    checked = {column.name: column for column in inspect_file(path, SCHEMA, "id").columns}
    assert checked["id"].empty == int((tags == NOBODY).sum())


def test_words_that_stand_for_nothing_name_nobody(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id,x,y\n7,0.5,0.5\nunknown,0.5,0.5\nNULL,0.5,0.5\n")
    assert (tagged(path) == NOBODY).tolist() == [False, False, True]
    words = parse_schema(
        {
            "features": {"x": [0, 1]},
            "target": {"y": [0, 1]},
            "person": {"column": "id"},
            "file": {"missing": ["unknown"]},
        }
    )
    assert (tagged(path, words) == NOBODY).tolist() == [False, True, False]
    numbers = replace(SCHEMA, file=replace(SCHEMA.file, missing=("-999",)))
    for kind, column in (("csv", ["7", "-999", " -999.0 "]), ("parquet", [7, -999, -999])):
        rows = pl.DataFrame({"id": column, "x": [0.5] * 3, "y": [0.5] * 3})
        path = tmp_path / f"numbers.{kind}"
        rows.write_csv(path) if kind == "csv" else rows.write_parquet(path)
        assert (tagged(path, numbers) == NOBODY).tolist() == [False, True, True]


def test_a_type_that_names_nobody_is_refused_whatever_it_holds(tmp_path):
    path = tmp_path / "t.parquet"
    for column in (pl.Series([[7], [8]]), pl.Series([1, 2], dtype=pl.Duration)):
        pl.DataFrame({"id": column, "x": [0.5] * 2, "y": [0.5] * 2}).write_parquet(path)
        with pytest.raises(InputError, match="must hold identifiers"):
            tagged(path)


def test_a_split_keeps_a_person_together_however_it_is_written():
    forms = pl.Series([f for n in range(200) for f in (f"{n}", f"{n}.0", f" 0{n}")])
    sides = split_by_value(forms, seed=3, share=0.4).reshape(200, 3)
    assert (sides == sides[:, :1]).all()
    assert np.array_equal(split_by_value(pl.Series(range(200)), 3, 0.4), sides[:, 0])
    large = pl.Series([LARGE + number for number in range(200)])
    assert (
        40 < split_by_value(large, 3, 0.4).sum() < 120
    )  # each by itself, although they are one float
    halves = pl.Series([number + 0.5 for number in range(200)])
    assert 40 < split_by_value(halves, 3, 0.4).sum() < 120


def test_the_command_line_counts_people_and_nobody_else(folder):
    ids = [*range(50), *range(50), *([float("nan")] * 20)]
    frame = {"id": pl.Series(ids, dtype=pl.Float64), "x": [0.5] * 120, "y": [0.5] * 120}
    pl.DataFrame(frame).write_parquet(folder / "t.parquet")
    schema = '[features]\nx = [0, 1]\n[target]\ny = [0, 1]\n[person]\ncolumn = "id"\n'
    (folder / "s.toml").write_text(schema)
    options = ("--schema", "s.toml", "--out", "m.json", "--invalid-rows", "ignore", "--json")
    run = folder.run("fit", "t.parquet", *options)
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["certificate"]["bounds"]["n_samples"] == 50
