"""--invalid-rows ignore, tables without rows, and progress that counts nothing private."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from dpconvex.cli import fit as fit_command
from dpconvex.estimators.linear import PrivateLinearModel
from dpconvex.inputs import table_files as partitions

BOUNDS = "[features]\na = [-1, 1]\nb = [-1, 1]\n\n[target]\nt = [0, 4]\n"
ENGINES = [["--engine", "memory"], ["--engine", "dask"]]
LABELS = ["--task", "logistic", "--classes", "0,1"]


@pytest.fixture
def seen(monkeypatch):
    """What fits were given."""
    found = []
    release = PrivateLinearModel._fit

    def noted(self, X, y, *more):
        found.append((X.compute(), y.compute()) if hasattr(X, "compute") else (X, y))
        return release(self, X, y, *more)

    monkeypatch.setattr(PrivateLinearModel, "_fit", noted)
    return found


def write(folder, name, columns):
    (folder / "bounds.toml").write_text(BOUNDS)
    table = pl.DataFrame(columns)
    if name.endswith("csv"):
        table.write_csv(folder / name)
    else:
        table.write_parquet(folder / name)


def run(folder, name, *more):
    return folder.run(
        *(
            "fit",
            name,
            "--feature-bounds",
            "bounds.toml",
            "--out",
            "out.json",
            "--overwrite",
            "--json",
            *more,
        )
    )


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("more", [[], LABELS])
def test_invalid_rows(folder, engine, more, seen):
    rng = np.random.default_rng(0)
    a = [f"{value:.3f}" for value in rng.uniform(-1, 1, 60)]
    target = [str(value) for value in rng.integers(0, 2, 60)]
    write(folder, "valid.csv", {"a": a, "b": a, "t": target})
    a[3] = ""
    a[4] = "inf"
    a[5] = "text"
    a[6] = "1e999"
    target[8] = ""
    target[9] = "2.5"
    target[10] = "nothing"
    write(folder, "invalid.csv", {"a": a, "b": a, "t": target})
    assert run(folder, "valid.csv", *engine, *more).exit_code == 0
    plain = run(folder, "invalid.csv", *engine, *more)
    assert plain.exit_code == 2
    result = run(folder, "invalid.csv", *engine, *more, "--invalid-rows", "ignore")
    assert result.exit_code == 0, result.output
    stated = json.loads(result.stdout)["certificate"]["parameters"]["invalid_rows"]
    assert stated.startswith("ignore")
    X, y = seen[-1]
    assert len(X) == len(y) == 60
    assert folder.run("verify", "out.json").exit_code == 0
    certified = folder.run(
        *("certify", "--n-samples", 60, "--feature-bounds", "bounds.toml", "--json"),
        *("--invalid-rows", "ignore", *more),
    )
    assert json.loads(certified.stdout) == json.loads(result.stdout)["certificate"]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_row_without_any_value_counts(folder, engine, seen):
    """Else the public number of rows told that a record was replaced by nothing."""
    (folder / "bounds.toml").write_text(BOUNDS)
    counts = []
    for row in ("0.1,0.2,3", ",,", ""):
        (folder / "data.csv").write_text("a,b,t\n" + "0.5,0.5,1\n" * 20 + row + "\n")
        assert run(folder, "data.csv", *engine, "--invalid-rows", "ignore").exit_code == 0
        counts.append(len(seen[-1][0]))
    assert counts == [21, 21, 21]


def test_the_label_set_must_be_declared(folder):
    write(folder, "data.csv", {"a": [0.1, 0.2], "b": [0.1, 0.2], "t": [0, 1]})
    result = run(folder, "data.csv", "--task", "logistic", "--invalid-rows", "ignore")
    assert result.exit_code == 2
    assert "--classes" in result.stderr


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("more", [[], LABELS])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("ignored", ["error", "ignore"])
def test_no_rows(folder, engine, more, ending, ignored):
    name = f"data.{ending}"
    nothing = pl.Series([], dtype=pl.Float64)
    labels = nothing.cast(pl.Int64) if more else nothing
    write(folder, name, {"a": nothing, "b": nothing, "t": labels})
    private = ["--neighbors", "add_or_remove_one", "--nominal-samples", "50"]
    more = [*engine, *more, "--invalid-rows", ignored]
    result = run(folder, name, *more, *private)
    assert result.exit_code == 0, result.output
    assert run(folder, name, *more).exit_code == 2


def test_progress_does_not_count_passes(folder, monkeypatch):
    """Two tables of one shape on which the solver needs different numbers of passes look alike."""
    said = []

    class Screen:
        def __enter__(self):
            return said[-1].append

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(fit_command.output, "output_progress", lambda message: Screen())
    monkeypatch.setattr(partitions, "FEWEST_BYTES", 200)
    monkeypatch.setattr(partitions, "COPIES", 1 << 24)
    rng = np.random.default_rng(0)
    a = rng.uniform(-1, 1, 200).round(3)
    for target in (np.full(200, 1.5), np.where(a > 0, 9e5, -9e5).round(3)):
        said.append([])
        write(folder, "data.csv", {"a": a, "b": -a, "t": target})
        options = ["--engine", "dask", "--mechanism", "output"]
        assert run(folder, "data.csv", *options).exit_code == 0
    steps = [message.split()[1] for message in said[0] if message.startswith("Reading")]
    assert steps == [str(part) for part in range(1, len(steps) + 1)]
    assert [message for message in said[0] if message == "Fitting"] == ["Fitting"]
    assert {message.split(":")[0] for message in said[1]} == {"Reading", "Fitting"}
    assert said[1].count("Fitting") == 1


def test_progress_does_not_tell_a_private_number_of_rows(folder, monkeypatch):
    """One more record may make one more part."""
    said = []

    class Screen:
        def __enter__(self):
            return said[-1].append

        def __exit__(self, *_):
            return None

    monkeypatch.setattr(fit_command.output, "output_progress", lambda message: Screen())
    monkeypatch.setattr(partitions, "FEWEST_BYTES", 200)
    monkeypatch.setattr(partitions, "COPIES", 1 << 24)
    private = ["--neighbors", "add_or_remove_one", "--nominal-samples", "50"]
    for rows in (20, 200):
        said.append([])
        a = np.linspace(-1, 1, rows).round(3)
        write(folder, "data.csv", {"a": a, "b": -a, "t": a})
        result = run(folder, "data.csv", "--engine", "dask", "--mechanism", "output", *private)
        assert result.exit_code == 0, result.output
    assert said[0] == said[1] == ["Fitting"]


def test_a_row_group_that_is_too_large_is_not_counted(folder, monkeypatch):
    monkeypatch.setattr(partitions, "COPIES", 1 << 24)
    private = ["--neighbors", "add_or_remove_one", "--nominal-samples", "50"]
    found = []
    for rows in (701, 702):
        a = np.zeros(rows)
        write(folder, "data.parquet", {"a": a, "b": a, "t": a})
        result = run(folder, "data.parquet", "--engine", "dask", "--memory-limit", "16MB", *private)
        assert result.exit_code == 2
        assert "memory limit" in result.output
        found.append(result.output)
    assert found[0] == found[1]


@pytest.mark.parametrize("engine", ["memory", "dask"])
@pytest.mark.parametrize("record", [",,", ",", ",,\r"])
@pytest.mark.parametrize("place", [0, 4, 9])
def test_an_empty_record_is_not_dropped(folder, engine, record, place):
    """Without it the certificate would state one row less than a neighbour's."""
    (folder / "bounds.toml").write_text(BOUNDS)
    lines = ["0.5,0.5,1"] * 9
    for found, code in (("0.1,0.2,1", 0), ("", 0), (record, 2)):
        text = "\n".join(["a,b,t", *lines[:place], found, *lines[place:]])
        (folder / "data.csv").write_bytes(text.encode())
        result = run(folder, "data.csv", "--engine", engine, "--mechanism", "output")
        assert result.exit_code == code, result.output
    assert "It has missing values" in result.output
    result = run(folder, "data.csv", "--engine", engine, "--invalid-rows", "ignore")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["certificate"]["bounds"]["n_samples"] == 10
