"""A record of a CSV file is a line: what is written has one line a record, and what is read may
have a public number of them.
"""

from __future__ import annotations

import csv
import json

import numpy as np
import polars as pl
import pytest

from dpconvex import load_model
from dpconvex.core.certificate import TABLE_RECORDS
from dpconvex.privacy import Ledger
from dpconvex.reports.wording import unprotected_wording

SCHEMA = "[features]\nx = [-1, 1]\n[target]\ny = [-3, 3]\n"
ROWS = 200


def table(note="one line", person="p0"):
    """Return a table whose slope is 1, with the note and the name of its first record."""
    x = np.linspace(-1, 1, ROWS)
    notes = [note] + ["nothing"] * (ROWS - 1)
    names = [person] + [f"p{row}" for row in range(1, ROWS)]
    return pl.DataFrame({"note": notes, "x": x, "y": x, "id": names})


FORGED = 'begin "x"\n' + "begin,-1.0,3.0,p1\n" * 300 + "end\r\u2028end"


@pytest.fixture
def tables(folder):
    (folder / "s.toml").write_text(SCHEMA)
    table(FORGED, "p0\n-1.0,3.0,p1").write_parquet(folder / "t.parquet")
    table().write_parquet(folder / "plain.parquet")
    return folder


def fit(folder, data, *more):
    return folder.run(
        *("fit", data, "--schema", "s.toml", "--out", "m.json", "--overwrite", "--json"),
        *("--epsilon", 100, "--invalid-rows", "ignore", *more),
    )


def records(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("by", [(), ("--by", "id")])
def test_a_split_writes_a_line_for_each_record(tables, by):
    """A note of 300 lines became 300 records, with identifiers of others."""
    parts = ("--train", "train.csv", "--test", "test.csv", "--seed", 1)
    counts = []
    for data in ("t.parquet", "plain.parquet"):
        run = tables.run("split", data, *parts, *by, "--json")
        assert run.exit_code == 0, run.output
        counts.append(json.loads(run.stdout))
        content = [(tables / name).read_text() for name in ("train.csv", "test.csv")]
        assert sum(text.count("\n") for text in content) == ROWS + 2
        assert sum(len(text.splitlines()) for text in content) == ROWS + 2
        found = [row for name in ("train.csv", "test.csv") for row in records(tables / name)]
        assert len({row["id"] for row in found}) == ROWS
        assert fit(tables, "train.csv", "--person", "id").exit_code == 0
        certificate = json.loads((tables / "m.json").read_text())["certificate"]
        assert certificate["bounds"]["n_samples"] == counts[-1]["train_rows"]
    if not by:
        assert counts[0]["train_rows"] == counts[1]["train_rows"] == 150


def test_predictions_keep_identifiers_on_their_line(tables):
    assert fit(tables, "plain.parquet").exit_code == 0
    run = tables.run(
        "predict", "m.json", "t.parquet", "--out", "p.csv", "--id", "note", "--id", "id"
    )
    assert run.exit_code == 0, run.output
    assert len((tables / "p.csv").read_text().splitlines()) == ROWS + 1
    assert [row["id"] for row in records(tables / "p.csv")][1:] == [f"p{k}" for k in range(1, ROWS)]
    assert len({row["prediction"] for row in records(tables / "p.csv")}) > ROWS / 2


def test_an_export_with_line_breaks_is_refused_where_the_schema_says_how_many_rows(tables):
    """What other programs write into one quoted field is several lines: of 200 records 502."""
    table(FORGED).write_csv(tables / "export.csv")
    assert fit(tables, "export.csv").exit_code == 0
    certificate = json.loads((tables / "m.json").read_text())["certificate"]
    assert certificate["bounds"]["n_samples"] > ROWS + 300
    assert "or a line of a CSV file" in certificate["parameters"]["records"]
    (tables / "s.toml").write_text(SCHEMA + f"[file]\nrows = {ROWS}\n")
    assert tables.run("ledger", "init", "privacy.db", "--epsilon", 500).exit_code == 0
    for engine in ("memory", "dask"):
        more = ("--engine", engine, "--ledger", "privacy.db")
        refused = fit(tables, "export.csv", *more)
        assert refused.exit_code == 2
        assert f"must have {ROWS} records" in refused.stderr
        assert "Got another number" in refused.stderr
        assert Ledger(tables / "privacy.db").entries() == []
    told = tables.run("bounds", "check", "export.csv", "--schema", "s.toml").stdout
    assert f"not the {ROWS} that rows in" in " ".join(told.split())
    for engine in ("memory", "dask"):
        for data in ("plain.csv", "plain.parquet"):
            table().write_csv(tables / "plain.csv")
            assert fit(tables, data, "--engine", engine).exit_code == 0
    assert (
        "records that rows"
        not in tables.run("bounds", "check", "plain.csv", "--schema", "s.toml").stdout
    )


@pytest.mark.parametrize("more", [0, 1])
def test_a_parquet_file_with_another_number_of_rows_is_refused(tables, more):
    (tables / "s.toml").write_text(SCHEMA + f"[file]\nrows = {ROWS - 1 + 2 * more}\n")
    refused = fit(tables, "plain.parquet")
    assert refused.exit_code == 2
    assert "Got another number" in refused.stderr
    told = tables.run("bounds", "check", "plain.parquet", "--schema", "s.toml").stdout
    assert f"The file has {ROWS} rows" in told


def test_a_number_of_records_that_is_private_is_not_compared(tables):
    """Whether a file has so many would tell of it: refused whatever the file holds."""
    said = []
    for rows in (ROWS, ROWS + 1):
        (tables / "s.toml").write_text(SCHEMA + f"[file]\nrows = {rows}\n")
        private = ("--neighbors", "add_or_remove_one", "--nominal-samples", ROWS)
        refused = fit(tables, "plain.parquet", *private)
        assert refused.exit_code == 2
        assert "must not declare rows with --neighbors add_or_remove_one" in refused.stderr
        said.append(refused.stderr)
    assert said[0] == said[1]


def test_a_number_of_records_is_that_of_one_file(tables):
    """A model reads other files as well: the number goes no further than the fit."""
    (tables / "s.toml").write_text(SCHEMA + f"[file]\nrows = {ROWS}\n")
    assert fit(tables, "plain.parquet").exit_code == 0
    assert "file" not in json.loads((tables / "m.json").read_text())["columns"]
    table()[:50].write_csv(tables / "few.csv")
    predicted = tables.run("predict", "m.json", "few.csv", "--out", "p.csv")
    assert predicted.exit_code == 0, predicted.output
    assert tables.run("score", "m.json", "few.csv").exit_code == 0
    assert tables.run("score", "m.json", "few.csv", "--rows", 50).exit_code == 0
    refused = tables.run("score", "m.json", "few.csv", "--rows", 51)
    assert refused.exit_code == 2
    assert "must have 51 records" in refused.stderr


def test_a_certificate_is_for_the_declared_number_of_records(tables):
    (tables / "s.toml").write_text(SCHEMA + f"[file]\nrows = {ROWS}\n")
    certify = ("certify", "--schema", "s.toml", "--json", "--n-samples")
    assert tables.run(*certify, ROWS).exit_code == 0
    assert tables.run(*certify, 9, "--person", "id").exit_code == 0  # so many people
    for more in ((9,), (ROWS, "--neighbors", "add_or_remove_one", "--nominal-samples", ROWS)):
        refused = tables.run(*certify, *more)
        assert refused.exit_code == 2
        assert "rows in [file]" in refused.stderr or "must not declare rows" in refused.stderr


@pytest.mark.parametrize("rows", ["0", "-1", "1.0", '"800"', "true"])
def test_a_number_of_records_is_a_whole_number(tables, rows):
    (tables / "s.toml").write_text(SCHEMA + f"[file]\nrows = {rows}\n")
    refused = fit(tables, "plain.parquet")
    assert refused.exit_code == 2
    assert "must be a whole number of at least 1" in refused.stderr


def test_templates_propose_the_number_of_records(folder):
    text = folder.run("bounds", "init", "sales.csv", "--target", "demand").stdout
    assert "# rows = 400" in text.splitlines()
    lines = text.replace("# [file]", "[file]").replace("# rows", "rows")
    lines = lines.replace("# price = [low, high]", "price = [0, 10]")
    (folder / "s.toml").write_text(lines.replace("# demand = [low, high]", "demand = [0, 150]"))
    run = folder.run("fit", "sales.csv", "--schema", "s.toml", "--out", "m.json")
    assert run.exit_code == 0, run.output


def other_bytes(folder, rows, name="t.csv"):
    """Write a file whose lines, but for some, hold a byte of no UTF-8 where nobody reads it."""
    lines = [
        b"%s,%.3f,%.3f,p%d" % (b"\xff" if row < rows else b"x", row / ROWS, row / ROWS, row)
        for row in range(ROWS)
    ]
    (folder / name).write_bytes(b"\n".join([b"note,x,y,id", *lines, b""]))


def test_lines_that_cannot_be_decoded_count_for_nothing(tables):
    """A file of such lines alone was fitted, and a score counted all of them."""
    assert fit(tables, "plain.parquet").exit_code == 0
    counts = []
    for rows in (0, ROWS // 2, ROWS):
        other_bytes(tables, rows)
        scored = tables.run("score", "m.json", "t.csv", "--epsilon", 10**4, "--json")
        counts.append(round(json.loads(scored.stdout)["rows"]))
        checked = tables.run("bounds", "check", "t.csv", "--schema", "s.toml", "--json")
        assert json.loads(checked.stdout)["invalid"] == rows
        predicted = tables.run("predict", "m.json", "t.csv", "--out", "p.csv", "--id", "id")
        assert predicted.exit_code == 0, predicted.output
        empty = [row["prediction"] == "" for row in records(tables / "p.csv")]
        assert empty == [row < rows for row in range(ROWS)]
    assert counts == [ROWS, ROWS // 2, ROWS - ROWS]


def test_a_prediction_is_empty_where_a_line_cannot_be_read_whatever_the_rules(tables):
    (tables / "s.toml").write_text(
        SCHEMA.replace("[-1, 1]", '{bounds = [-1, 1], missing = "indicator"}')
    )
    assert fit(tables, "plain.parquet").exit_code == 0
    for odd in (b"\xff,0.5,0.5,p", b'"x,0.5,0.5,p', b"x,0.5,0.5,p,1"):
        (tables / "t.csv").write_bytes(b"note,x,y,id\nx,0.5,0.5,p\n" + odd + b"\nx,,0.5,p\n")
        run = tables.run("predict", "m.json", "t.csv", "--out", "p.csv", "--id", "id")
        assert run.exit_code == 0, run.output
        assert [row["prediction"] == "" for row in records(tables / "p.csv")] == [
            False,
            True,
            False,
        ]


def test_what_a_record_is_stands_in_certificates_of_files(folder):
    options = ("--schema", "bounds.toml", "--json")
    run = folder.run("fit", "sales.csv", "--out", "m.json", *options)
    found = json.loads(run.stdout)["certificate"]
    assert found == json.loads(folder.run("certify", "--rows", 400, *options).stdout)
    assert found["parameters"]["records"] == TABLE_RECORDS
    assert "a record is a row, or a line of a CSV file" in TABLE_RECORDS
    fitted = load_model(folder / "m.json")
    assert "types of a table's columns" in unprotected_wording(fitted.certificate_)
    assert "one record: a row of a table, or a line of a CSV file" in repr(fitted.summary())
    assert folder.run("verify", "m.json").exit_code == 0
    found["parameters"]["records"] = "table: whatever a stranger says"
    (folder / "c.json").write_text(json.dumps(found))
    forged = folder.run("verify", "c.json")
    assert forged.exit_code == 4
