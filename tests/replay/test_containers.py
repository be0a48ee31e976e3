"""What becomes of a record follows from the record and public facts alone, whatever holds it.

First all containers with all odd records are read, and every other record must stay what it was,
bit by bit. Then fits, scores, intervals and searches run on neighbours with their answers frozen,
as `transcript` says.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import dask
import dask.array
import dask.dataframe
import numpy as np
import pandas as pd
import pytest
from containers import (
    ODD_CELLS,
    ODD_RECORDS,
    OF_CELLS,
    OF_MAYBE,
    OF_NUMBERS,
    OF_RECORDS,
    OF_VALUES,
)
from fits import ESTIMATORS, REPLACE, Fit, Scored, public_model
from replaying import fit_by_known_plans
from transcript import ROUNDING, run, spent

import dpconvex as dp
from dpconvex.core.person_identifiers import NOBODY
from dpconvex.evaluation import private_score, private_score_difference
from dpconvex.inputs.people_and_weights import read_row_weights
from dpconvex.intervals import DPConformal
from dpconvex.selection import DPSelect

ROWS = 8
ODD = 3  # the place of the record that may be odd
OTHERS = [place for place in range(ROWS) if place != ODD]
RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (ROWS, 2))
Y = X.sum(axis=1)
PUBLIC = {"feature_bounds": ([-1, -1], [1, 1]), "invalid_rows": "ignore"}
NUMBERS = {**PUBLIC, "target_bounds": (-2, 2)}


@pytest.fixture(autouse=True)
def one_thread_and_no_warning():
    with dask.config.set(scheduler="synchronous"), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Privacy will cost more|Without feature_bounds|The delta")
        warnings.filterwarnings("ignore", "private_score: the interval")
        yield


def replaced(records: Any, odd: Any) -> list[Any]:
    """Return the records with an odd one in its place."""
    found = list(records)
    found[ODD] = odd
    return found


def beside(table: Any, y: np.ndarray) -> Any:
    """Return a target in the kind of container that a table of Dask asks for."""
    if isinstance(table, dask.array.Array):
        return dask.array.from_array(y, chunks=4)
    if hasattr(table, "npartitions"):
        return dask.dataframe.from_pandas(pd.Series(y), npartitions=2)
    return y


def read(model: Any, table: Any, target: Any) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return rows and targets as a fit reads them, of Dask as its partitions hold them."""
    rows, targets, _ = model._read(table, target)
    if isinstance(rows, np.ndarray):
        return rows, list(targets)
    parts = [partition.X.open() for partition in rows.partitions]
    marks = [partition.y.open() for partition in rows.partitions]
    marked = np.concatenate(marks)
    return np.concatenate(parts), [
        target(marked) if callable(target) else marked for target in targets
    ]


def check_others(model: Any, table: Any, target: Any, plain: Any) -> None:
    """Read a table of which a record is odd: all others are those of a plain array of numbers."""
    rows, targets = read(model, table, target)
    wanted, others = plain
    assert rows.dtype == np.float64
    assert np.array_equal(rows[OTHERS], wanted[OTHERS])
    assert len(targets) == len(others)
    for found, expected in zip(targets, others, strict=True):
        assert found.shape == expected.shape
        assert np.isfinite(expected[OTHERS]).all()
        assert found[OTHERS].tobytes() == expected[OTHERS].tobytes()


REGRESSION = dp.DPQuantileRegressor(0.7, **NUMBERS)


@pytest.mark.parametrize("kind", [*OF_RECORDS, *OF_CELLS])
def test_no_odd_row_changes_another_one(kind):
    plain = read(REGRESSION, X, Y)
    alone = kind in OF_RECORDS
    for odd in (ODD_RECORDS if alone else ODD_CELLS).values():
        row = odd() if alone else [odd(), 0.5]
        table = OF_ROWS[kind](replaced(X.tolist(), row))
        check_others(REGRESSION, table, beside(table, Y), plain)


@pytest.mark.parametrize("kind", OF_NUMBERS)
def test_no_missing_cell_changes_another_row(kind):
    plain = read(REGRESSION, X, Y)
    table = OF_NUMBERS[kind](replaced(X.tolist(), [None, 0.5]))
    check_others(REGRESSION, table, beside(table, Y), plain)
    assert np.isnan(read(REGRESSION, table, beside(table, Y))[1][0][ODD])


def signs(y: np.ndarray) -> list[list[Any]]:
    return [[abs(float(time)), bool(time > 0)] for time in y]


# By name: an estimator, its target as a plain array, and as records whatever they are.
TARGETS: dict[str, tuple[Any, Any, list[Any]]] = {
    "number": (REGRESSION, Y, Y.tolist()),
    "list of a number": (REGRESSION, Y, [[value] for value in Y]),
    "array of a number": (dp.DPLinearRegression(**NUMBERS), Y, [np.array([v]) for v in Y]),
    "rate": (dp.DPPoissonRegressor(**{**PUBLIC, "target_bounds": (0, 2)}), Y, [(v,) for v in Y]),
    "demands": (dp.DPNewsvendor([3.0, 1.0], **NUMBERS), X + 1, (X + 1).tolist()),
    "one demand": (dp.DPNewsvendor([3.0], **NUMBERS), X[:, :1], X[:, :1].tolist()),
    "time": (dp.DPDiscreteHazard([0.5, 1.0], **PUBLIC), Y, Y.tolist()),
    "time and event": (dp.DPDiscreteHazard([0.5, 1.0], **PUBLIC), Y, signs(Y)),
    "label": (dp.DPLogisticRegression(classes=[0, 1], **PUBLIC), Y > 0, [int(v > 0) for v in Y]),
    "list of a label": (
        dp.DPLinearSVC(classes=[False, True], **PUBLIC),
        Y > 0,
        [[bool(v > 0)] for v in Y],
    ),
    "text": (
        dp.DPLogisticRegression(classes=["no", "yes"], **PUBLIC),
        np.where(Y > 0, "yes", "no"),
        ["yes" if v > 0 else "no" for v in Y],
    ),
    "list of text": (
        dp.DPOrdinalRegression(classes=["yes", "no"], **PUBLIC),
        np.where(Y > 0, "yes", "no"),
        [("yes" if v > 0 else "no",) for v in Y],
    ),
}


@pytest.mark.parametrize("kind", OF_VALUES)
@pytest.mark.parametrize("name", TARGETS)
def test_no_odd_target_changes_another_one(name, kind):
    model, y, records = TARGETS[name]
    plain = read(model, X, y)
    for odd in ODD_RECORDS.values():
        check_others(model, X, OF_VALUES[kind](replaced(records, odd())), plain)


@pytest.mark.parametrize("kind", OF_MAYBE)
def test_no_missing_target_changes_another_one(kind):
    plain = read(REGRESSION, X, Y)
    check_others(REGRESSION, X, OF_MAYBE[kind](replaced(Y.tolist(), None)), plain)


A = RNG.uniform(-1, 1, (ROWS, 2, 3))
B = RNG.uniform(-1, 1, (ROWS, 2))
SHARED = np.eye(2)


@pytest.mark.parametrize("kind", OF_RECORDS)
def test_no_odd_matrix_record_changes_another_one(kind):
    make = OF_RECORDS[kind]
    median = dp.DPMedian(invalid_rows="ignore")
    bowl = dp.DPBowl(invalid_rows="ignore")
    link = dp.DPL1Link(matrix=SHARED, invalid_rows="ignore")
    targets = read(median, A, B)
    levels = read(bowl, A, (B, Y))
    rows = read(link, X, Y)
    for odd in ODD_RECORDS.values():
        check_others(median, A, make(replaced(B.tolist(), odd())), targets)
        check_others(bowl, A, (B, make(replaced(Y.tolist(), odd()))), levels)
        check_others(link, make(replaced(X.tolist(), odd())), Y, rows)
        check_others(link, X, make(replaced(Y.tolist(), odd())), rows)


@pytest.mark.parametrize("odd", ODD_CELLS)
def test_no_odd_cell_of_a_matrix_changes_another_record(odd):
    median = dp.DPMedian(invalid_rows="ignore")
    cells = A.astype(object)
    cells[ODD, 1, 2] = ODD_CELLS[odd]()
    check_others(median, cells, B, read(median, A, B))


@pytest.mark.parametrize("kind", OF_VALUES)
def test_no_odd_identifier_and_no_odd_weight_changes_another_one(kind):
    names = ["a", "b", "a", "c", "b", 7, "d", 8]  # the odd one is a person of its own
    weights = [0.5, 1.0, 0.25, 0.5, 0, 1, 0.125, 1.0]
    wanted = read_row_weights(REGRESSION, X, weights, names)[1]
    for odd in ODD_RECORDS.values():
        people = OF_VALUES[kind](replaced(names, odd()))
        one_each = OF_VALUES[kind](replaced(weights, odd()))
        found = read_row_weights(REGRESSION, X, one_each, people)[1]
        assert np.array_equal(found.tags[OTHERS], wanted.tags[OTHERS])
        assert found.tags[ODD] == NOBODY or found.tags[ODD] not in found.tags[OTHERS]
        assert found.values[OTHERS].tobytes() == wanted.values[OTHERS].tobytes()
        assert 0 <= found.values[ODD] <= 1


def test_what_is_masked_names_nobody_and_weighs_nothing():
    hidden = np.arange(ROWS) == ODD
    names = np.ma.array(np.arange(ROWS), mask=hidden)
    found = read_row_weights(REGRESSION, X, np.ma.array(np.ones(ROWS), mask=hidden), names)[1]
    assert found.tags[ODD] == NOBODY
    assert found.values.tolist() == (~hidden).tolist()
    found = read_row_weights(REGRESSION, X, np.ma.array(np.ones(ROWS), mask=hidden), None)[1]
    assert found.values.tolist() == (~hidden).tolist()


# Containers that are refused by their type, whatever they hold.


def refusal(model: Any, *given: Any) -> str:
    with pytest.raises(TypeError) as caught:
        model.fit(*given)
    for shown in (caught.value, caught.value.__cause__, caught.value.__context__):
        assert "SECRET" not in str(shown)
    return str(caught.value)


@pytest.mark.parametrize(
    "kind", [kind for kind in OF_RECORDS if "array" not in kind and kind != "objects"]
)
def test_what_nothing_declares_is_refused_before_a_record_is_looked_at(kind):
    make = OF_RECORDS[kind]
    undeclared = dp.DPQuantileRegressor(invalid_rows="ignore", target_bounds=(-2, 2))
    orders = dp.DPNewsvendor(3.0, 1.0, **NUMBERS)
    median = dp.DPMedian(invalid_rows="ignore")
    cases = [
        (undeclared, lambda records: (make(records), Y), X, "feature_bounds for each column"),
        (undeclared, lambda records: (make(records), Y), Y, "feature_bounds for each column"),
        (orders, lambda records: (X, make(records)), Y, "the costs of each product"),
        (orders, lambda records: (X, make(records)), X, "the costs of each product"),
        (median, lambda records: (make(records), B), A, "rows and columns"),
        (dp.DPL1Link(0.01, invalid_rows="ignore"), lambda r: (make(r), Y), X, "of columns"),
    ]
    cases[-1][0].set_params(link="logistic", matrix=0.01)
    for model, given, plain, words in cases:
        said = {refusal(model, *given(plain.tolist()))}
        said |= {
            refusal(model, *given(replaced(plain.tolist(), odd()))) for odd in ODD_RECORDS.values()
        }
        said.add(refusal(model, *given([])))
        assert len(said) == 1
        assert words in said.pop()


@pytest.mark.parametrize("kind", ["X", "y", "groups", "sample_weight"])
@pytest.mark.parametrize(
    "data", ["SECRET", b"SECRET", {"SECRET": 1}, {1.0, 2.0}, {"SECRET": 1}.keys()]
)
def test_what_is_no_container_of_records_is_refused_in_its_own_words(kind, data):
    given = {"X": X, "y": Y, kind: data}
    with pytest.raises((TypeError, ValueError)) as caught:
        REGRESSION.fit(**given)
    assert "SECRET" not in str(caught.value)


class Breaks:
    def __iter__(self):
        yield 1.0
        raise RuntimeError("SECRET")


class BreaksAsArray:
    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("SECRET")


@pytest.mark.parametrize("data", [Breaks(), BreaksAsArray()])
@pytest.mark.parametrize("kind", ["X", "y", "groups", "sample_weight"])
def test_a_container_that_breaks_off_is_not_quoted(kind, data):
    given = {"X": X, "y": Y, kind: data}
    with pytest.raises(ValueError, match="RuntimeError") as caught:
        REGRESSION.fit(**given)
    for shown in (caught.value, caught.value.__cause__, caught.value.__context__):
        assert "SECRET" not in str(shown)


# Record and replay.


@dataclass(frozen=True)
class Case:
    """Which part of the data of a fit is in which container, and which record is odd."""

    part: str  # "X", "y", "groups" or "sample_weight"
    kind: str
    odd: str

    def held(self, records: Any, replacing: bool) -> Any:
        """Return records in their container, of which one is odd if it is replaced."""
        if self.part != "X" or self.kind in OF_RECORDS:
            row = ODD_RECORDS[self.odd]()
        else:
            row = [ODD_CELLS[self.odd](), *records[ODD][1:]]
        makers = OF_ROWS if self.part == "X" else OF_COLUMNS
        return makers[self.kind](replaced(records, row) if replacing else records)


OF_ROWS = {**OF_RECORDS, **OF_CELLS, **OF_NUMBERS}
OF_COLUMNS = {**OF_VALUES, **OF_MAYBE}
MISSING = ("none",)
TABLES = {**dict.fromkeys(OF_RECORDS, ODD_RECORDS), **dict.fromkeys(OF_CELLS, ODD_CELLS)}
TABLES |= dict.fromkeys(OF_NUMBERS, MISSING)
COLUMNS = {**dict.fromkeys(OF_VALUES, ODD_RECORDS), **dict.fromkeys(OF_MAYBE, MISSING)}
SOMEBODY = ["text", "bytes", "true", "huge whole number", "day"]  # who is nobody else


def cases_of(fit: Fit) -> list[Case]:
    """Return all cases of a fit."""
    if fit.target == "matrix":
        return [Case("y", kind, odd) for kind in OF_RECORDS for odd in ODD_RECORDS]
    tables = {
        kind: odds for kind, odds in TABLES.items() if "dask" in fit.variants or "dask" not in kind
    }
    found = [Case("X", kind, odd) for kind, odds in tables.items() for odd in odds]
    if fit.target != "kept label":  # of which the neighbour keeps its label
        found += [Case("y", kind, odd) for kind, odds in COLUMNS.items() for odd in odds]
    if "people" in fit.variants:
        found += [Case("groups", kind, odd) for kind in OF_VALUES for odd in SOMEBODY]
    if "weights" in fit.variants:
        found += [Case("sample_weight", kind, o) for kind in OF_VALUES for o in ODD_RECORDS]
    return found


def records_of(fit: Fit, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and targets of so many records, or matrices and their targets."""
    rng = np.random.default_rng(size)
    if fit.target == "matrix":
        return rng.uniform(-1, 1, (size, 2, 3)), rng.uniform(-1, 1, (size, 2))
    rows = rng.uniform(-1, 1, (size, 2))
    if fit.target == "number":
        return rows, rows.sum(axis=1)
    return rows, np.digitize(rows.sum(axis=1), [-0.2, 0.3] if "three" in fit.target else [0.0])


def check_neighbour(name: str, fit: Fit, case: Case, plans: dict[object, Any]) -> None:
    """Fit records, then a neighbour with the answers frozen."""
    size = fit.sizes[0] if fit.sizes else ROWS
    rows, targets = records_of(fit, size)
    settled: dict[str, Any] = {"coef_bound": None}
    if fit.target != "matrix":
        settled["feature_bounds"] = ([-1.0, -1.0], [1.0, 1.0])
    if name.startswith("DPNewsvendor") and case.part == "y" and case.kind in OF_RECORDS:
        settled["underage_cost"] = [3.0]

    def fitted(replacing: bool) -> Any:
        given: dict[str, Any] = {"X": rows, "y": targets}
        if case.part == "y":
            given["y"] = case.held(targets.tolist(), replacing)
            if name.startswith("DPBowl"):
                given["level"] = 0.1
        elif case.part == "X":
            given["X"] = case.held(rows.tolist(), replacing)
            given["y"] = beside(given["X"], targets)
        else:
            names = list(range(100, 100 + size)) if case.part == "groups" else [0.5, 1.0] * size
            given[case.part] = case.held(names[:size], replacing)
        model = fit.model(REPLACE, size, True, 5, **settled)
        features = given.pop("X")
        return fit_by_known_plans(model, plans, features, given.pop("y"), **given)

    leader = run(lambda: fitted(False), seed=5)
    follower = run(lambda: fitted(True), seed=5, leader=leader.transcript)
    assert spent(leader, follower) <= ROUNDING, case


IGNORING = {name: fit for name, fit in ESTIMATORS.items() if "ignored" in fit.variants}


@pytest.mark.parametrize(
    "name",
    [
        name if crc32(name.encode()) % 2 else pytest.param(name, marks=pytest.mark.slow)
        for name in IGNORING
    ],
)
def test_a_neighbour_in_a_container_costs_no_more_than_is_promised(name):
    fit = IGNORING[name]
    cases = cases_of(fit)
    check_neighbour(name, fit, cases[crc32(name[::-1].encode()) % len(cases)], {})


@pytest.mark.slow
@pytest.mark.parametrize("name", IGNORING)
def test_neighbours_in_all_containers_cost_no_more_than_is_promised(name):
    fit = IGNORING[name]
    plans: dict[object, Any] = {}
    for number, case in enumerate(cases_of(fit)):
        if number % 23 == crc32(name.encode()) % 23:
            check_neighbour(name, fit, case, plans)


# Scores, intervals and searches.

MODELS = {
    "number": public_model(dp.DPQuantileRegressor, target_bounds=(-2.0, 2.0)),
    "label": public_model(dp.DPLogisticRegression, classes=[0, 1]),
    "time": public_model(dp.DPDiscreteHazard, horizons=(0.3, 0.6)),
}
METRICS = {"number": "absolute", "label": "accuracy", "time": "brier"}
WIDE = RNG.uniform(-1, 1, (ROWS, 3))
SUMS = WIDE.sum(axis=1)
GIVEN = {
    "number": [[value] for value in SUMS],
    "label": [(int(value > 0),) for value in SUMS],
    "time": signs(SUMS),
}
PLAIN = {
    "number": SUMS,
    "label": (SUMS > 0).astype(int),
    "time": SUMS,
}


def check_score(case: Case, name: str, second: Any = None) -> None:
    """Score records, then a neighbour with the answers frozen."""

    def scored(replacing: bool) -> Any:
        given: dict[str, Any] = {"X": WIDE.tolist(), "y": GIVEN[name], "groups": None}
        if case.part == "groups":
            given["groups"] = [*range(100, 100 + ROWS)]
        given[case.part] = case.held(given[case.part], replacing)
        model = Scored(7, METRICS[name], MODELS[name], second, epsilon=1.0)
        return model.fit(**given)

    leader = run(lambda: scored(False), seed=5)
    follower = run(lambda: scored(True), seed=5, leader=leader.transcript)
    assert spent(leader, follower) <= ROUNDING, case


SCORED = [
    Case("X", kind, odd) for kind, odds in TABLES.items() if "dask" not in kind for odd in odds
]
SCORED += [Case("y", kind, odd) for kind in OF_VALUES for odd in ODD_RECORDS]
SCORED += [Case("groups", kind, odd) for kind in OF_VALUES for odd in SOMEBODY]


def some(cases: list[Case], share: int) -> list[Any]:
    """Return cases, of which one in so many runs by day."""
    return [
        case if number % share == 0 else pytest.param(case, marks=pytest.mark.slow)
        for number, case in enumerate(cases)
    ]


@pytest.mark.parametrize("case", some(SCORED, 17), ids=str)
def test_a_score_of_a_container_costs_no_more_than_is_promised(case):
    name = list(MODELS)[crc32(str(case).encode()) % 3]
    check_score(case, name)
    if case.part != "groups" and name != "time":
        check_score(case, name, second=MODELS[name])


def test_a_score_of_lists_is_that_of_arrays():
    for name, model in MODELS.items():
        given = {"metric": METRICS[name], "epsilon": 1.0, "random_state": 0}
        wanted = private_score(model, WIDE, PLAIN[name], **given)
        lists = [(row for row in WIDE.tolist()), iter(GIVEN[name])]
        assert private_score(model, *lists, **given).value == wanted.value
        if name != "time":
            lists = [(row for row in WIDE.tolist()), iter(GIVEN[name])]
            private_score_difference(model, model, *lists, **given)


FEW = 33
LONG = RNG.uniform(-1, 1, (FEW, 2))


def check_two_parts(make: Callable[[], Any], case: Case, y: list[Any]) -> None:
    """Fit what splits its records, then a neighbour with the answers frozen."""

    def fitted(replacing: bool) -> Any:
        given: dict[str, Any] = {"X": LONG.tolist(), "y": y}
        given[case.part] = case.held(given[case.part], replacing)
        return make().fit(**given)

    leader = run(lambda: fitted(False), seed=5)
    follower = run(lambda: fitted(True), seed=5, leader=leader.transcript)
    assert spent(leader, follower) <= ROUNDING, case


def intervals() -> DPConformal:
    inner = dp.DPQuantileRegressor(mechanism="output", **NUMBERS)
    return DPConformal(inner, 0.6, mu=40.0, random_state=7)


@pytest.mark.parametrize(
    "case", some([case for case in SCORED if case.part != "groups"], 41), ids=str
)
def test_intervals_of_a_container_cost_no_more_than_is_promised(case):
    check_two_parts(intervals, case, [[value] for value in LONG.sum(axis=1)])


def search() -> DPSelect:
    inner = dp.DPLogisticRegression(mechanism="output", feature_bounds=(-1, 1), classes=[0, 1])
    return DPSelect(inner, {"alpha": [0.1, 1.0]}, epsilon=1.0, delta=0.0, random_state=7)


# All that a search accepts: it refuses invalid rows, which its certificate says.
ACCEPTED = ["true", "decimal", "fraction", "half", "long", "array without axes", "tiny", "huge"]
SEARCHED = [Case("X", kind, odd) for kind in ("list", "tuple", "cells") for odd in ACCEPTED]
SEARCHED += [Case("y", kind, odd) for kind in ("list", "tuple", "deque") for odd in ACCEPTED[:1]]


@pytest.mark.parametrize("case", some(SEARCHED, 5), ids=str)
def test_a_search_in_a_container_costs_no_more_than_is_promised(case):
    labels = [int(value > 0) for value in LONG.sum(axis=1)]
    labels[ODD] = 1
    if case.part == "y":
        return check_two_parts(search, case, labels)

    def fitted(odd: bool) -> Any:
        row = [ODD_CELLS[case.odd](), 0.5] if odd else [0.25, 0.5]
        return search().fit(OF_ROWS[case.kind](replaced(LONG.tolist(), row)), labels)

    leader = run(lambda: fitted(False), seed=5)
    follower = run(lambda: fitted(True), seed=5, leader=leader.transcript)
    assert spent(leader, follower) <= ROUNDING, case
    return None
