"""No table, whatever it holds, leads to a traceback, a message that quotes it, or an error that
depends on it.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from table_fuzz import SECRETS, as_container, csv_bytes, random_cells, random_schema

from dpconvex import DPLogisticRegression, DPQuantileRegressor
from dpconvex.engine import RowMap
from dpconvex.inputs import InputError
from dpconvex.inputs.schema_file import parse_schema, schema_to_dict
from dpconvex.preprocessing import PublicTable


def mapped_lengths(table: PublicTable, rows: np.ndarray) -> np.ndarray:
    """Return the lengths of rows as an estimator maps them."""
    row_map = RowMap.from_bounds(rows.shape[1], table.feature_bounds)
    mapped = (np.clip(rows, row_map.low, row_map.high) - row_map.shift) * row_map.scale
    return np.linalg.norm(mapped, axis=1)


def columns_for(schema, rng, rows):
    names = [*schema.inputs, schema.target.name]
    return {name: random_cells(rng, rows) for name in names}


def says_how_text_is_read(schema):
    """Whether columns must be text, so that none may have a type that a reader guessed."""
    return schema.file.decimal != "." or any(
        getattr(column, "format", "") for column in schema.columns
    )


def container_of(schema, columns, rng):
    return as_container(columns, rng, guessed=not says_how_text_is_read(schema))


def check_rows(schema, table, columns, rng):
    """Every cell becomes numbers within the public bounds, by itself."""
    rows = len(next(iter(columns.values())))
    found = table.transform(container_of(schema, columns, rng))
    array = np.asarray(found)
    assert array.shape == (rows, len(schema.names))
    low, high = map(np.array, table.feature_bounds)
    valid = ~np.isnan(array).any(axis=1)
    assert ((array[valid] >= low) & (array[valid] <= high)).all()
    assert (mapped_lengths(table, array[valid]) <= table.row_norm * (1 + 1e-9)).all()
    if all(column.missing.rule != "row" for column in schema.columns):
        assert valid.all()
    sparse = PublicTable(schema, sparse=True).transform(columns).toarray()
    dense = np.asarray(table.transform(columns))
    np.testing.assert_array_equal(sparse, dense)
    # A row alone becomes what it becomes among others.
    row = rng.randrange(rows)
    alone = np.asarray(table.transform({name: [cells[row]] for name, cells in columns.items()}))
    np.testing.assert_array_equal(alone[0], dense[row])


def check_fit(schema, table, columns, rng):
    """A fit runs whatever the rows are, and its certificate does not know them."""
    classes = table.classes
    settings = {
        "feature_bounds": table.feature_bounds,
        "row_norm": table.row_norm,
        "invalid_rows": "ignore",
        "epsilon": 1.0,
        "mechanism": rng.choice(["output", "gradient"]),
    }
    if classes is None:
        model = DPQuantileRegressor(target_bounds=table.target_bounds, **settings)
    else:
        model = DPLogisticRegression(classes=classes, **settings)
    container = container_of(schema, columns, rng)
    model.fit(table.transform(container), table.target(container))
    rows = len(next(iter(columns.values())))
    certified = model.certify(rows, len(schema.names), table=True)
    assert model.certificate_.to_json() == certified.to_json()


def check_file(schema, columns, rng, folder):
    encoding = rng.choice(["utf-8", "utf-8-sig", "latin-1"])
    path = folder / "table.csv"
    path.write_bytes(csv_bytes(columns, rng, encoding))
    tables = schema_to_dict(schema)
    if encoding == "latin-1":
        tables["file"] = {**tables.get("file", {}), "encoding": encoding}
    table = PublicTable(tables)
    assert table.transform(path).shape[1] == len(schema.names)
    assert table.target(path).ndim == 1


def attack(seed: int, folder, share_of_fits: float) -> str:
    rng = random.Random(seed)
    tables = random_schema(rng)
    try:
        schema = parse_schema(tables)
        schema = schema.for_target("goal" if schema.target is None else None)
    except InputError:
        return "refused"
    assert parse_schema(schema_to_dict(schema)) == schema
    table = PublicTable(schema)
    columns = columns_for(schema, rng, rng.randint(1, 6))
    action = "rows"
    if rng.random() < share_of_fits:
        action = rng.choice(["fit", "file"])
    try:
        if action == "rows":
            check_rows(schema, table, columns, rng)
        elif action == "fit":
            check_fit(schema, table, columns, rng)
        else:
            check_file(schema, columns, rng, folder)
    except Exception as error:
        shown = str(error)
        quoted = [secret for secret in SECRETS if secret in shown]
        raise AssertionError(
            f"seed {seed}, {action}: {type(error).__name__}, quoting {quoted}"
        ) from error
    return action


@pytest.mark.parametrize("start", [0, 100, 200])
def test_tables_and_schemas(start, tmp_path):
    seen = [attack(seed, tmp_path, 0.2) for seed in range(start, start + 100)]
    assert {"rows", "fit", "file", "refused"} <= set(seen)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(1000, 11_000, 1000))
def test_ten_thousand_tables_and_schemas(start, tmp_path):
    seen = [attack(seed, tmp_path, 0.2) for seed in range(start, start + 1000)]
    assert seen.count("refused") < 300
