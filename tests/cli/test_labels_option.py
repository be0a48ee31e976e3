"""Labels on the command line: measurements are refused, label sets are declared, several classes
work end to end.
"""

from __future__ import annotations

import datetime
import io
import json

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import dpconvex
from dpconvex.cli.task_options import TASKS, parse_classes_option
from dpconvex.inputs import InputError
from dpconvex.inputs.table_files import read_table_file_labels
from dpconvex.reports.summary import MOST_CLASSES, coefficient_summary_table

BOUNDS = "[features]\nprice = [0, 10]\n"
CITY = ("--target", "city", "--classes", "berlin,paris,rome")


@pytest.fixture
def sales(folder):
    (folder / "bounds.toml").write_text(BOUNDS)
    return folder


@pytest.mark.parametrize("more", [(), ("--engine", "dask")])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("task", ["logistic", "tilted"])
def test_measurements_are_no_labels(sales, task, ending, more):
    if more:
        pytest.importorskip("dask.dataframe")
    pl.read_csv(sales / "sales.csv").write_parquet(sales / "sales.parquet")
    sales.run("ledger", "init", "b.db", "--epsilon", 1)
    result = sales.run(
        *("fit", f"sales.{ending}", "--task", task, "--target", "temperature", *more),
        *("--feature-bounds", "bounds.toml", "--out", "model.json", "--ledger", "b.db"),
    )
    assert result.exit_code == 2
    assert "must hold labels" in result.stderr
    assert not (sales / "model.json").exists()
    assert json.loads(sales.run("ledger", "show", "b.db", "--json").stdout)["entries"] == []


@pytest.mark.parametrize("more", [(), ("--engine", "dask")])
def test_whole_numbers_without_end_are_no_labels(sales, more):
    if more:
        pytest.importorskip("dask.dataframe")
    result = sales.fit("--task", "logistic", "--target", "day", *more)
    assert result.exit_code == 2
    assert "at most 100 different ones" in result.stderr
    assert "400" not in result.stderr


@pytest.mark.parametrize("task", [name for name, task in TASKS.items() if task.labels])
def test_a_range_is_no_set_of_labels(folder, task):
    folder.run("ledger", "init", "b.db", "--epsilon", 1)
    for command in (
        ("fit", "sales.csv", "--out", "model.json", "--ledger", "b.db"),
        ("certify", "--rows", 400),
    ):
        result = folder.run(*command, "--schema", "bounds.toml", "--task", task)
        assert result.exit_code == 2
        assert "has a range" in result.stderr
        assert "{classes = " in result.stderr
    assert json.loads(folder.run("ledger", "show", "b.db", "--json").stdout)["entries"] == []
    declared = ("--schema", "bounds.toml", "--task", task, "--classes", "0,1")
    assert folder.run("certify", "--rows", 400, *declared).exit_code == 0


def test_where_the_label_set_is_from_is_said(sales):
    found = sales.fit("--task", "logistic", "--target", "city")
    assert "read from the data without noise" in " ".join(found.stdout.split())
    said = " ".join(sales.run("verify", "model.json").stdout.split())
    assert "read from the data without noise" in said
    assert "or --classes" in said
    assert "declared beforehand" in sales.fit("--task", "logistic", *CITY).stdout
    assert "label set" not in sales.fit("--target", "temperature").stdout


def test_verification_says_what_it_does_not_check(sales):
    sales.fit("--target", "temperature")
    said = " ".join(sales.run("verify", "model.json").stdout.split())
    assert said.startswith("Verified: the guarantee of this model follows from its public facts.")
    assert "Not checked: the coefficients" in said
    certificate = dpconvex.load_model(sales / "model.json").certificate_
    (sales / "certificate.json").write_text(certificate.to_json())
    said = sales.run("verify", "certificate.json").stdout
    assert "Not checked: who wrote it" in said


def test_dates_are_no_labels():
    table = pl.DataFrame({"day": [datetime.date(2026, 1, 1)], "gap": [float("nan")]})
    with pytest.raises(InputError, match="whole numbers or text"):
        read_table_file_labels(table, "day")
    with pytest.raises(InputError, match="a label in every row"):
        read_table_file_labels(table, "gap")


@pytest.mark.parametrize("more", [(), ("--engine", "dask")])
@pytest.mark.parametrize("task", ["logistic", "svm", "tilted", "robust"])
def test_several_classes_end_to_end(sales, task, more):
    if more:
        pytest.importorskip("dask.dataframe")
    result = sales.fit("--task", task, *CITY, *more)
    assert result.exit_code == 0, result.output
    assert sales.run("verify", "model.json").exit_code == 0
    assert sales.run("predict", "model.json", "sales.csv", "--out", "p.csv").exit_code == 0
    assert set(pl.read_csv(sales / "p.csv")["prediction"]) <= {"berlin", "paris", "rome"}
    options = ("--n-samples", 400, "--feature-bounds", "bounds.toml", "--json", "--task", task)
    certified = sales.run("certify", *options, "--classes", "berlin,paris,rome")
    fitted = dpconvex.load_model(sales / "model.json").certificate_
    assert certified.stdout.strip() == fitted.to_json()
    other = json.loads(sales.run("certify", *options, "--n-classes", 3).stdout)
    assert other["noise"] == json.loads(fitted.to_json())["noise"]
    assert other["parameters"]["label_set"] == "assumed public"


def test_declared_labels_decide_how_the_column_is_read(sales):
    table = pl.read_csv(sales / "sales.csv").with_columns(kind=pl.col("day") % 2)
    table.write_csv(sales / "sales.csv")
    for classes, found in (("0,1", [0, 1]), ("1,0,other", ["0", "1", "other"])):
        result = sales.fit("--task", "logistic", "--target", "kind", "--classes", classes)
        assert result.exit_code == 0, result.output
        assert dpconvex.load_model(sales / "model.json").classes_.tolist() == found
    for classes in ("0,2", "5,6"):
        result = sales.fit("--task", "logistic", "--target", "kind", "--classes", classes)
        assert result.exit_code == 2
        assert "'classes'" in result.stderr
    result = sales.fit("--task", "logistic", "--target", "city", "--classes", "0,1")
    assert result.exit_code == 2
    assert "labels of --classes only" in result.stderr


def test_classes_are_separated_by_commas_or_given_one_by_one():
    assert parse_classes_option(["0, 1,2"]) == [0, 1, 2]
    assert parse_classes_option(["a,b", "c"]) == ["a,b", "c"]
    assert parse_classes_option(["1_0,2"]) == ["1_0", "2"]
    for wrong in (["a"], ["a,,b"], ["a,a"]):
        with pytest.raises(InputError, match="--classes"):
            parse_classes_option(wrong)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("certify", "--n-samples", 9, "--n-features", 1, "--n-classes", 3), "no option --n-cl"),
        (("certify", "--n-samples", 9, "--n-features", 1, "--classes", "a,b"), "no option --cl"),
        (("audit", "--task", "logistic", "--classes", "a,b"), "leave out --classes"),
    ],
)
def test_options_of_labels_where_there_are_none(folder, arguments, words):
    result = folder.run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_table_of_many_classes_is_cut():
    y = np.arange(300) % 40
    model = dpconvex.DPLogisticRegression(feature_bounds=(0, 1)).fit(np.eye(300)[:, :2], y)
    screen = Console(file=io.StringIO(), width=100)
    table = coefficient_summary_table(model)
    screen.print(table)
    text = screen.file.getvalue()
    assert len(table.columns) == 1 + MOST_CLASSES
    assert "and 32 more classes" in text
    assert max(map(len, text.splitlines())) <= 100
