"""``dpconvex fit --engine dask``: the same table in pieces, the same checks, the same
certificate.
"""

import json

import numpy as np
import polars as pl
import pytest
from command_line import sales_csv

pytest.importorskip("dask.dataframe")

from dpconvex.inputs import InputError
from dpconvex.inputs import table_files as partitions
from dpconvex.inputs.schema_file import parse_schema, read_schema
from dpconvex.inputs.table_files import read_training_file

MEMORY = 1 << 30


def table_of(**features):
    return parse_schema({"features": features})


@pytest.fixture
def pieces(folder, monkeypatch):
    """Three CSV and three Parquet files of the sales table, cut into small pieces."""
    monkeypatch.setattr(partitions, "FEWEST_BYTES", 2000)
    monkeypatch.setattr(partitions, "MOST_ROWS", 60)
    monkeypatch.setattr(partitions, "COPIES", 50_000)
    table = pl.read_csv(folder.path / "sales.csv")
    for number, part in enumerate((table[:150], table[150:151], table[151:])):
        part.write_csv(folder.path / f"part{number}.csv")
        part.write_parquet(folder.path / f"part{number}.parquet", row_group_size=50)
    return folder


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("labels", [False, True])
def test_pieces_are_the_table(pieces, ending, labels):
    columns = read_schema(pieces.path / "bounds.toml")
    if labels:
        columns = table_of(temperature=[-20, 40]).for_target("city")
    files = partitions.matching_files(pieces.path / f"part*.{ending}")
    pieces_found, _ = partitions.split_files(files, columns, MEMORY, 2)
    assert len(pieces_found) > 4
    X, y = partitions.read_file_partitions(pieces_found, columns, labels)
    expected_X, expected_y, _ = read_training_file(pieces.path / "sales.csv", columns, labels)
    assert list(X.columns) == columns.names
    np.testing.assert_array_equal(X.compute().to_numpy(), expected_X.to_numpy())
    np.testing.assert_array_equal(y.compute().to_numpy(), expected_y.to_numpy())


def test_labels_are_whole_only_if_all_pieces_are(tmp_path):
    for number, labels in enumerate((["1", "2"], ["1", "x"])):
        pl.DataFrame({"a": [0.0, 1.0], "t": labels}).write_parquet(tmp_path / f"{number}.parquet")
    columns = table_of(a=[0, 1]).for_target("t")
    for pattern, expected in (("*.parquet", ["1", "2", "1", "x"]), ("0.parquet", [1, 2])):
        files = partitions.matching_files(tmp_path / pattern)
        pieces_found, _ = partitions.split_files(files, columns, MEMORY, 1)
        assert (
            partitions.read_file_partitions(pieces_found, columns, True)[1].compute().tolist()
            == expected
        )


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_fit_on_a_pattern_has_the_certificate_of_the_whole(pieces, ending):
    options = ["--feature-bounds", "bounds.toml", "--epsilon", "2", "--json"]
    whole = pieces.run("fit", "sales.csv", *options, "--out", "whole.json")
    parts = pieces.run(
        "fit", f"part*.{ending}", *options, "--out", "parts.json", "--engine", "dask"
    )
    assert (whole.exit_code, parts.exit_code) == (0, 0), parts.output
    first = json.loads(whole.stdout)
    second = json.loads(parts.stdout)
    assert first["certificate"] == second["certificate"]
    assert first["feature_names"] == second["feature_names"]
    assert "Pass over the data" not in parts.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["sales.csv", "--engine", "spark"], "memory or dask"),
        (["sales.csv", "--scheduler", "tcp://localhost:1"], "go with --engine dask"),
        (["none*.csv", "--engine", "dask"], "There is no file"),
        (["sales.csv", "--engine", "dask", "--memory-limit", "lots"], "memory limit"),
        (["gap.csv", "--engine", "dask"], "must hold finite numbers only"),
        (["quoted.csv", "--engine", "dask"], "quotes that do not match"),
    ],
)
def test_refusals_quote_no_data(pieces, options, message):
    content = sales_csv(30)
    (pieces.path / "gap.csv").write_text(content + "31,12345.67,,berlin,4\n")
    (pieces.path / "quoted.csv").write_text(content + '31,12345.67,2,"ber\nlin,4\n')
    result = pieces.run("fit", *options, "--feature-bounds", "bounds.toml", "--out", "m.json")
    assert result.exit_code == 2
    assert message in result.stderr
    assert "12345" not in result.output
    assert len(result.stderr.strip().splitlines()) == 1


def test_memory_limit_bounds_pieces_and_threads(tmp_path):
    rows = 40_000
    pl.DataFrame({"a": np.zeros(rows), "t": np.zeros(rows)}).write_parquet(
        tmp_path / "t.parquet", row_group_size=rows
    )
    columns = table_of(a=[0, 1]).for_target("t")
    needed = 8 * 2 * partitions.COPIES * rows
    files = [tmp_path / "t.parquet"]
    assert partitions.split_files(files, columns, 16 * needed, 4)[1] == 4
    assert partitions.split_files(files, columns, 4 * needed, 4)[1] == 1
    with pytest.raises(InputError, match="memory limit"):
        partitions.split_files(files, columns, 2 * needed, 4)


def test_pairs_of_records_in_different_files(folder):
    rng = np.random.default_rng(0)
    a = rng.normal(size=400)
    table = pl.DataFrame({"a": a, "b": rng.normal(size=400), "t": (a > 0).astype(int)})
    (folder.path / "ab.toml").write_text(
        "[features]\na = [-4, 4]\nb = [-4, 4]\n[target]\nt = [0, 1]\n"
    )
    table.write_parquet(folder.path / "whole.parquet")
    for label in (0, 1):  # each file holds one class
        table.filter(pl.col("t") == label).write_parquet(folder.path / f"x{label}.parquet")
    options = ["--task", "auc", "--feature-bounds", "ab.toml", "--epsilon", "50", "--json"]
    options += ["--classes", "0,1"]
    whole = folder.run("fit", "whole.parquet", *options, "--out", "whole.json")
    parts = folder.run("fit", "x*.parquet", *options, "--out", "parts.json", "--engine", "dask")
    assert (whole.exit_code, parts.exit_code) == (0, 0), parts.output
    first = json.loads(whole.stdout)
    second = json.loads(parts.stdout)
    assert first["certificate"] == second["certificate"]
    coefficients = np.ravel(second["coef"])
    assert coefficients[0] > 3 * abs(coefficients[1])  # the pairs were seen
