"""``dpconvex bounds check``: counts what a schema cannot read, and says that it is not private."""

from __future__ import annotations

import json

import pytest

SCHEMA = """\
[features]
age = [0, 110]
temp = {bounds = [34, 42], missing = "indicator"}

[flags]
smoker = {missing = "indicator"}

[categories]
ward = ["ER", "cardiology", "Surgery"]

[dates]
day = ["weekday"]

[person]
column = "who"

[target]
back = {classes = ["0", "1"]}
"""
ROWS = [
    "who;age;temp;smoker;ward;day;back",
    "P1;30;37,1;1;ER;2024-01-01;0",
    "P1;;37,2;0;Cardiology;2024-01-02;1.0",
    "P2;unknown;38;maybe;Surgery;01.02.2024;1",
    "P3;130;NA;;;2024-01-03;2",
    ";50;36,6;1;ER;2024-01-04;",
]


@pytest.fixture
def visits(folder):
    (folder / "visits.csv").write_text("\n".join(ROWS) + "\n")
    (folder / "schema.toml").write_text(SCHEMA)
    return folder


def checked(folder, *more):
    result = folder.run("bounds", "check", "visits.csv", "--schema", "schema.toml", "--json", *more)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    return found, {column["name"]: column for column in found["columns"]}


def test_every_column_is_counted(visits):
    found, columns = checked(visits)
    counts = {
        name: [column[key] for key in ("empty", "unread", "outside", "absent")]
        for name, column in columns.items()
    }
    assert counts == {
        "age": [1, 1, 1, 0],
        "temp": [1, 3, 0, 0],
        "smoker": [1, 1, 0, 0],
        "ward": [1, 1, 0, 1],
        "day": [0, 1, 0, 0],
        "back": [1, 1, 0, 0],
        "who": [1, 0, 0, 0],
    }
    assert "decimal" in columns["temp"]["hint"]
    assert "capital" in columns["ward"]["hint"]
    assert "format" in columns["day"]["hint"]
    assert (found["private"], found["rows"], found["invalid"]) == (True, 5, 4)


def test_invalid_rows_are_those_of_a_fit(visits, monkeypatch):
    """The same rows hold NaN, name nobody, or have no class, when a fit reads the file."""
    import numpy as np

    from dpconvex.inputs.inspection import inspect_file
    from dpconvex.inputs.schema_file import read_schema
    from dpconvex.inputs.table_files import read_training_file

    schema = read_schema(visits / "schema.toml")
    X, y, people = read_training_file(
        visits / "visits.csv", schema, labels=True, kind="text", ignored=True, person="who"
    )
    lost = np.isnan(X.to_numpy()).any(axis=1) | np.array([name is None for name in people])
    known = np.isin(np.array(y.to_list(), dtype=object), ["0", "1", "1.0"])
    assert inspect_file(visits / "visits.csv", schema, "who").invalid == int((lost | ~known).sum())


def test_it_says_that_it_is_private_and_shows_no_value(visits):
    result = visits.run("bounds", "check", "visits.csv", "--schema", "schema.toml")
    assert result.exit_code == 0
    assert "For your eyes only" in result.stdout
    assert "4 of 5 rows are invalid" in " ".join(result.stdout.split())
    for value in ("unknown", "Cardiology", "maybe", "P1", "130"):
        assert value not in result.output


def test_a_schema_that_fits_nothing_is_told_before_a_fit_is_paid_for(visits):
    wrong = SCHEMA.replace('["0", "1"]', '["no", "yes"]')
    (visits / "schema.toml").write_text(wrong)
    result = visits.run("bounds", "check", "visits.csv", "--schema", "schema.toml")
    assert "No row is valid" in result.stdout


def test_a_column_that_is_absent_is_an_error(visits):
    (visits / "schema.toml").write_text(SCHEMA.replace("age =", "Age ="))
    result = visits.run("bounds", "check", "visits.csv", "--schema", "schema.toml")
    assert result.exit_code == 2
    assert "capital letters or spaces" in result.stderr


def test_a_fit_says_the_same_whether_rows_are_invalid_or_not(folder):
    """The note that points here depends on the option, never on the rows."""
    said = []
    for line in ("a,t\n0.5,1\n" + "0.1,1\n" * 30, "a,t\nx,y\n" + "x,y\n" * 30):
        (folder / "data.csv").write_text(line)
        (folder / "s.toml").write_text("[features]\na = [0, 1]\n[target]\nt = [0, 2]\n")
        result = folder.run(
            *("fit", "data.csv", "--schema", "s.toml", "--out", "m.json", "--overwrite", "--json"),
            *("--invalid-rows", "ignore"),
        )
        assert result.exit_code == 0, result.output
        said.append(result.stderr)
    assert said[0] == said[1]
    assert "bounds check" in said[0]


def test_labels_that_are_no_classes_are_refused_with_a_remedy(visits):
    (visits / "labels.csv").write_text("\n".join(["back,age", *["3,40"] * 20, *["0,41"] * 20]))
    (visits / "s.toml").write_text(
        '[features]\nage = [0, 110]\n[target]\nback = {classes = ["0", "1"]}\n'
    )
    result = visits.run("fit", "labels.csv", "--schema", "s.toml", "--out", "m.json")
    assert result.exit_code == 2
    for word in ("'back'", "'0', '1'", "--invalid-rows ignore", "bounds check"):
        assert word in result.stderr


def test_numbers_as_the_file_writes_them_are_classes(visits):
    """0.0 and 1 are the classes "0" and "1", and the task of classes need not be named."""
    (visits / "labels.csv").write_text("\n".join(["back,age", *["0.0,40"] * 60, *["1,41"] * 60]))
    (visits / "s.toml").write_text(
        '[features]\nage = [0, 110]\n[target]\nback = {classes = ["0", "1"]}\n'
    )
    result = visits.run("fit", "labels.csv", "--schema", "s.toml", "--out", "m.json", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["task"] == "logistic"


def test_classes_of_an_option_must_be_the_schemas(visits):
    (visits / "labels.csv").write_text("\n".join(["back,age", *["0,40"] * 60, *["1,41"] * 60]))
    (visits / "s.toml").write_text(
        '[features]\nage = [0, 110]\n[target]\nback = {classes = ["0", "1"]}\n'
    )
    fit = ("fit", "labels.csv", "--schema", "s.toml", "--out", "m.json", "--classes")
    result = visits.run(*fit, "no,yes")
    assert result.exit_code == 2
    assert "['0', '1']" in result.stderr
    assert visits.run(*fit, "0,1").exit_code == 0
