"""Survival and ordered levels from files: two columns of the schema's target, or classes in
their order.
"""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from dpconvex import load_model
from dpconvex.cli import app

SCHEMA = """
[features]
age = [20, 80]

[target]
months = {event = "churned"}
"""


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    age = rng.uniform(20, 80, 3000)
    time = rng.exponential(20 * np.exp((age - 50) / 30))
    end = rng.uniform(0, 48, 3000)
    lines = ["age,months,churned"]
    lines += [
        f"{a:.1f},{min(t, e):.2f},{int(t <= e)}" for a, t, e in zip(age, time, end, strict=True)
    ]
    (tmp_path / "customers.csv").write_text("\n".join(lines))
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


def call(folder, *words):
    files = ["--schema", str(folder / "schema.toml"), "--out", str(folder / "model.json")]
    return CliRunner().invoke(app, ["fit", str(folder / "customers.csv"), *files, *words])


def test_a_hazard_is_fitted_from_two_columns(folder):
    found = call(folder, "--task", "hazard", "--horizons", "6,12,24,36", "--epsilon", "5", "--json")
    assert found.exit_code == 0, found.output
    model = load_model(folder / "model.json")
    assert -0.06 < model.coef_[0] < -0.01  # older people stay longer
    rows = pl.DataFrame({"age": [30.0, 70.0]})
    assert model.predict_survival(rows).shape == (2, 4)
    assert model.schema_.target.event == "churned"
    assert json.loads(found.stdout)["task"] == "hazard"
    for metric in ("concordance", "brier"):
        files = [str(folder / "model.json"), str(folder / "customers.csv")]
        scored = CliRunner().invoke(
            app, ["score", *files, "--metric", metric, "--epsilon", "5", "--json"]
        )
        assert scored.exit_code == 0, scored.output
        assert 0 < json.loads(scored.stdout)["value"] < 0.9


def test_events_belong_to_hazards(folder):
    refused = call(folder, "--task", "linear")
    assert refused.exit_code != 0
    assert "hazard" in refused.output
    (folder / "schema.toml").write_text(SCHEMA.replace('{event = "churned"}', "[0, 48]"))
    refused = call(folder, "--task", "hazard", "--horizons", "6,12")
    assert "event" in refused.output
    (folder / "schema.toml").write_text(SCHEMA)
    assert "--horizons" in call(folder, "--task", "hazard", "--horizons", "6;12").output


def test_levels_of_a_schema_are_in_its_order(folder, tmp_path):
    table = pl.read_csv(folder / "customers.csv")
    level = (
        pl.when(pl.col("months") < 5)
        .then(pl.lit("short"))
        .when(pl.col("months") < 15)
        .then(pl.lit("middle"))
    )
    table.with_columns(stay=level.otherwise(pl.lit("long"))).write_csv(folder / "customers.csv")
    target = 'stay = {classes = ["short", "middle", "long"]}'
    (folder / "schema.toml").write_text(SCHEMA.replace('months = {event = "churned"}', target))
    report = str(folder / "report.html")
    found = call(folder, "--task", "ordinal", "--epsilon", "5", "--json", "--report", report)
    assert found.exit_code == 0, found.output
    model = load_model(folder / "model.json")
    assert model.classes_.tolist() == ["short", "middle", "long"]
    assert 0 < model.coef_[0] < 0.1  # older people stay longer
    assert len(json.loads(found.stdout)["intercept"]) == 2
    text = (folder / "report.html").read_text()
    assert "(above middle)" in text
    assert "extra log loss" in text  # what was forecast
