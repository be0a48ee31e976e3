"""Outputs never replace inputs; names of options and the order of lines are the same in all commands."""

from __future__ import annotations

import json
import os
import re

import pytest


@pytest.fixture
def ready(folder):
    assert folder.run("ledger", "init", "b.db", "--epsilon", 1).exit_code == 0
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.path.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    "outputs",
    [
        ("--out", "sales.csv"),
        ("--out", "bounds.toml"),
        ("--out", "b.db"),
        ("--out", "link.json"),
        ("--out", "hard.json"),
        ("--out", "model.json", "--report", "model.json"),
        ("--out", "model.json", "--report", "sales.csv"),
        ("--out", "model.json", "--report", "bounds.toml"),
        ("--out", "model.json", "--report", "b.db"),
    ],
)
def test_fit_does_not_write_over_its_inputs(ready, outputs):
    (ready / "link.json").symlink_to(ready / "sales.csv")
    os.link(ready / "bounds.toml", ready / "hard.json")
    before = contents(ready)
    result = ready.run(
        *("fit", "sales.csv", "--feature-bounds", "bounds.toml", "--ledger", "b.db", *outputs)
    )
    assert result.exit_code == 2
    assert "Choose another name" in result.stderr
    assert contents(ready) == before


def test_fit_does_not_write_over_a_file_of_its_pattern(ready):
    before = contents(ready)
    result = ready.run(
        *("fit", "s*.csv", "--feature-bounds", "bounds.toml", "--engine", "dask"),
        *("--out", "sales.csv"),
    )
    assert result.exit_code == 2
    assert "the data is there" in result.stderr
    assert contents(ready) == before


def test_predict_and_report_do_not_write_over_their_inputs(fitted):
    model = (fitted / "model.json").read_bytes()
    (fitted / "model.csv").write_bytes(model)
    before = contents(fitted)
    for arguments in (
        ("predict", "model.json", "sales.csv", "--out", "sales.csv"),
        ("predict", "model.csv", "sales.csv", "--out", "model.csv"),
        ("report", "model.json", "--out", "model.json"),
    ):
        result = fitted.run(*arguments)
        assert result.exit_code == 2
        assert "Choose another name" in result.stderr
        assert contents(fitted) == before


def test_an_earlier_result_may_be_replaced(fitted):
    assert fitted.fit().exit_code == 0
    for _ in range(2):
        assert fitted.run("predict", "model.json", "sales.csv", "--out", "p.csv").exit_code == 0


def test_commands_take_each_others_names_of_rows_and_columns(folder):
    names = [("--rows", "--features"), ("--n-samples", "--n-features")]
    for command in ("certify", "plan"):
        results = [folder.run(command, a, 1000, b, 3, "--json") for a, b in names]
        assert [result.exit_code for result in results] == [0, 0]
        assert results[0].stdout == results[1].stdout


def test_noise_is_listed_in_the_same_order_by_all_commands(folder):
    options = ("--mu", 0.5, "--mechanism", "gradient")
    shown = [
        folder.fit(*options),
        folder.run("certify", "--rows", 400, "--feature-bounds", "bounds.toml", *options),
        folder.run("verify", "model.json"),
    ]
    lists = [
        [
            line.strip()
            for line in result.stdout.splitlines()
            if re.search(r" for the .*sums?\)", line)
        ]
        for result in shown
    ]
    assert lists[0] == lists[1] == lists[2]
    assert len(lists[0]) > 1
    assert lists[0] != sorted(lists[0])  # phases, as they run
    names = json.loads((folder / "model.json").read_text())["certificate"]["noise"]
    assert len(names) == len(lists[0])
