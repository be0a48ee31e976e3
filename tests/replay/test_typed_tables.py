"""Tables whose columns have types, and files, with one odd cell or one odd line: record and replay.

A reader guesses the type of a column from all of its cells, so that one odd cell makes text of the
others. The neighbour of a table is the table with that cell, as the reader would have made it: the
same questions must be asked, and nothing may differ but what is paid for.
"""

import io
import itertools

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from fits import ESTIMATORS, REPLACE, TWO, public_model
from neighbours import Family
from transcript import ROUNDING, run, spent

import dpconvex as dp
from dpconvex.evaluation import private_score
from dpconvex.inputs.records import told_of_records
from dpconvex.inputs.schema_file import parse_schema
from dpconvex.inputs.table_files import (
    read_file_partitions,
    read_training_file,
    split_files,
)
from dpconvex.intervals import DPConformal

ODD = ["x", "", "nan", "1,5", "True", "2024-01-05", "1e999"]
NAMES = [name for name, fit in ESTIMATORS.items() if "ignored" in fit.variants]


@pytest.fixture(autouse=True)
def one_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def guessed_by_pandas(text):
    return pd.read_csv(io.StringIO(text))


def in_partitions(text):
    return dd.from_pandas(guessed_by_pandas(text), npartitions=2)


def as_text(dtype):
    return lambda text: pd.read_csv(io.StringIO(text), dtype=dtype)


# What readers make of the text of a table.
READERS = {
    "pandas": guessed_by_pandas,
    "pandas, nullable": lambda text: pd.read_csv(io.StringIO(text), dtype_backend="numpy_nullable"),
    "pandas, types of pyarrow": lambda text: pd.read_csv(
        io.StringIO(text), dtype_backend="pyarrow"
    ),
    "text of pandas": as_text("str"),
    "string[python]": as_text("string[python]"),
    "string[pyarrow]": as_text("string[pyarrow]"),
    "objects of pandas": as_text(object),
    "polars": lambda text: pl.read_csv(text.encode()),
    "text of polars": lambda text: pl.read_csv(text.encode(), infer_schema=False),
    "pyarrow": lambda text: pa_csv.read_csv(io.BytesIO(text.encode())),
    "text of pyarrow": lambda text: pa.Table.from_pandas(
        as_text("str")(text), preserve_index=False
    ),
    "dask": in_partitions,
}


def text_of(cells, odd=None):
    """Return a table as text; ``odd`` replaces one cell, the row and column of which it has."""
    rows = [[repr(cell) for cell in row] for row in cells.tolist()]
    if odd is not None:
        row, column, cell = odd
        rows[row][column] = cell
    names = [f"c{column}" for column in range(cells.shape[1])]
    lines = [",".join(f'"{cell}"' if "," in cell else cell for cell in row) for row in rows]
    return "\n".join([",".join(names), *lines]) + "\n"


def selected(frame, names):
    return frame.select(names) if hasattr(frame, "select") else frame[names]


class TypedPair:
    """A table and its neighbour with one odd cell, read by one reader.

    Where a fit is given records that are matrices, their targets alone are a table.
    """

    def __init__(self, fit, reader, seed):
        self.fit = fit
        self.read = READERS[reader]
        sizes = (16, 33) if fit.sizes == () else fit.sizes
        family = Family(fit, "rows", REPLACE, seed, (1, fit.columns), sizes)
        family.layout = ("C", "f8")
        self.size = family.size
        self.X, self.y = family.table().X, np.asarray(family.table().y)
        if fit.target not in ("number", "matrix"):
            self.y = self.y.astype(int)
        self.matrices = fit.target == "matrix"
        self.rng = np.random.default_rng([seed, 17])
        self.seed = seed

    def cells(self):
        if self.matrices:
            return self.y
        return np.column_stack([self.X.astype(object), self.y.astype(object)])

    def odd(self, number):
        """Return an odd cell and where it stands: in a row and column drawn by the seed."""
        cells = self.cells()
        row = int(self.rng.integers(len(cells)))
        return row, int(self.rng.integers(cells.shape[1])), ODD[number % len(ODD)]

    def given(self, odd=None):
        frame = self.read(text_of(self.cells(), odd))
        if self.matrices:
            return self.X, frame
        names = [f"c{column}" for column in range(self.X.shape[1] + 1)]
        target = names[-1]
        return selected(frame, names[:-1]), frame[target]

    def fitted(self, odd=None):
        model = self.fit.model(REPLACE, self.size, True, self.seed)
        return model.fit(*self.given(odd))


def check(fitted, odd, seed):
    """Run a fit without the odd cell and one with it, whose answers are frozen."""
    leader = run(fitted, seed=seed)
    follower = run(lambda: fitted(odd), seed=seed, leader=leader.transcript)
    assert spent(leader, follower) <= ROUNDING


@pytest.mark.parametrize(
    ("number", "name"), list(enumerate(NAMES)), ids=lambda each: each if type(each) is str else ""
)
def test_an_odd_cell_costs_no_more_than_is_promised(number, name):
    fit = ESTIMATORS[name]
    readers = [reader for reader in READERS if reader != "dask"]
    if "dask" in fit.variants and fit.target != "matrix":
        readers.append("dask")
    for place in range(2):
        reader = readers[(2 * number + place) % len(readers)]
        pair = TypedPair(fit, reader, 1000 + number)
        check(pair.fitted, pair.odd(number + place), pair.seed)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", ["DPQuantileRegressor-output", "DPLogisticRegression-gradient"])
def test_no_reader_makes_an_odd_cell_cost_more(reader, name):
    for number in range(len(ODD)):
        pair = TypedPair(ESTIMATORS[name], reader, 2000 + number)
        check(pair.fitted, pair.odd(number), pair.seed)


@pytest.mark.parametrize("reader", [reader for reader in READERS if reader != "dask"])
def test_intervals_and_scores_take_an_odd_cell_like_a_fit(reader):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (33, 3))
    settings = {"feature_bounds": (-1, 1), "invalid_rows": "ignore"}
    regression = dp.DPQuantileRegressor(mechanism="output", target_bounds=(-2, 2), **settings)
    classifier = public_model(dp.DPLogisticRegression, **TWO)
    quantile = public_model(dp.DPQuantileRegressor, target_bounds=(-2, 2))
    labels = np.column_stack([X.astype(object), (X[:, 0] > 0).astype(int).astype(object)])
    numbers = np.column_stack([X, X.sum(axis=1)])

    class Scored:
        def __init__(self, model, metric):
            self.model, self.metric = model, metric

        def fit(self, X, y):
            score = private_score(self.model, X, y, self.metric, mu=1.0, random_state=5)
            self.certificate_ = score.certificate
            self.score_ = (score.value, score.interval, score.curve)
            return self

    cases = [
        (lambda: DPConformal(regression, 0.6, mu=40.0, random_state=5), numbers),
        (lambda: Scored(quantile, "pinball"), numbers),
        (lambda: Scored(quantile, "residuals"), numbers),
        (lambda: Scored(classifier, "accuracy"), labels),
        (lambda: Scored(classifier, "auc"), labels),
    ]
    for number, (make, cells) in enumerate(cases):
        for column in (0, 3):

            def fitted(odd=None, make=make, cells=cells):
                frame = READERS[reader](text_of(cells, odd))
                return make().fit(selected(frame, ["c0", "c1", "c2"]), frame["c3"])

            check(fitted, (5, column, ODD[number]), 3000 + number)


# Lines that cannot be read, that hold nothing, or whose damage might reach another line.
ODD_LINES = [
    b'"0.5,1,x',
    b'0.5,1,12" pipe',
    b"0.5,1,\xff",
    b"\xff",
    b"0.5,1,x,2,3",
    b"",
    b'""',
    b"\xef\xbb\xbf0.5,1,x",
    b"0.5,1,\0",
    b"0.5,1," + b"x" * 100_000,
    b"NA,oops,x",
    b'0.5,1,"x\r',
]
SCHEMA = parse_schema(
    {
        "features": {"a": [-1, 1]},
        "categories": {"note": {"values": ["x"], "missing": "indicator"}},
        "target": {"y": [-2, 2]},
    }
)


@pytest.mark.parametrize("engine", ["memory", "dask"])
@pytest.mark.parametrize("odd", ODD_LINES, ids=lambda line: repr(line[:12]))
def test_an_odd_line_costs_no_more_than_is_promised(odd, engine, tmp_path):
    rng = np.random.default_rng(7)
    x = rng.uniform(-1, 1, 33)
    lines = [b"%.4f,%.4f,x" % (value, value) for value in x]
    model = dp.DPQuantileRegressor(
        mechanism="gradient", feature_bounds=SCHEMA.feature_bounds, target_bounds=(-2, 2), mu=40.0
    )
    model.set_params(invalid_rows="ignore", random_state=1)

    def fitted(odd=None):
        held = list(lines)
        if odd is not None:
            held[17] = odd
        path = tmp_path / f"{odd is None}.csv"
        path.write_bytes(b"\n".join([b"a,y,note", *held, b""]))
        if engine == "dask":
            pieces, _ = split_files([path], SCHEMA, 1200, 1)
            X, y = read_file_partitions(pieces, SCHEMA, ignored=True)
        else:
            X, y, _ = read_training_file(path, SCHEMA, ignored=True)
            y = y.to_numpy()
        again = dp.DPQuantileRegressor(**model.get_params())
        with told_of_records(again, expected=33):
            return again.fit(X, y)

    check(fitted, odd, 4000)


@pytest.mark.parametrize("rule", [{}, {"file": {"decimal": ","}}])
def test_a_typed_file_is_refused_or_read_like_its_text(rule, tmp_path):
    """One cell ``1.234,5`` made a thousand times as much of guessed numbers, and of the fit."""
    schema = parse_schema({"features": {"a": [0, 9000]}, "target": {"y": [0, 9]}, **rule})
    rng = np.random.default_rng(7)
    texts = [f"{value:.3f}" for value in rng.uniform(1, 9, 33)]
    model = dp.DPLinearRegression(
        feature_bounds=(0, 9000), target_bounds=(0, 9), mu=40.0, invalid_rows="ignore"
    )

    def fitted(odd=None):
        cells = [odd or texts[0], *texts[1:]]
        table = pl.DataFrame({"a": cells, "y": ["1"] * 33})
        path = tmp_path / f"{odd is None}.parquet"
        (tmp_path / "t.csv").write_text(table.write_csv(separator=";"))
        types = {"y": pl.String}
        pl.read_csv(tmp_path / "t.csv", separator=";", schema_overrides=types).write_parquet(path)
        X, y, _ = read_training_file(path, schema, ignored=True)
        again = dp.DPLinearRegression(**{**model.get_params(), "random_state": 1})
        return again.fit(X, y.to_numpy())

    if rule:
        with pytest.raises(ValueError, match="'a' must be text"):
            fitted()
    else:
        check(fitted, "1.234,5", 5000)


def test_every_reader_and_every_odd_cell_is_met():
    """The estimators are dealt out to readers: each of them has several."""
    dealt = [reader for number in range(len(NAMES)) for reader in range(2 * number, 2 * number + 2)]
    assert len(dealt) >= 3 * len(READERS)
    assert len(set(itertools.chain(ODD))) == len(ODD)
