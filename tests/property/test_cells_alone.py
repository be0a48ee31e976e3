"""One cell changes what no other one is: neighbours whose identifier, weight, label or demand is
anything at all.
"""

import datetime as dt
import io
import math
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex import DPLogisticRegression, DPNewsvendor, DPQuantileRegressor
from dpconvex.core.person_identifiers import NOBODY, exact_identifiers, person_tags
from dpconvex.core.row_weights import RowWeights, weights_limiting_rows
from dpconvex.evaluation import private_score
from dpconvex.inputs.people_and_weights import read_people, read_row_weights

PROFILE = settings(max_examples=100, derandomize=True, deadline=None)
BIG = 2**60  # neighbours of it are one float
ZONE = dt.timezone(dt.timedelta(hours=-5))


class Odd(str):
    """Text that says something else when it is written."""

    def __format__(self, spec):
        raise RuntimeError


ODD = [
    *(
        None,
        float("nan"),
        float("inf"),
        "new",
        "",
        b"x",
        0.5,
        1j,
        Decimal(1),
        1 + 0j,
        True,
        -1,
        10**400,
        [1],
        {},
        (),
    ),
    *(
        np.timedelta64(1, "D"),
        np.datetime64("NaT"),
        np.datetime64("2020-01-01"),
        np.complex128(1j),
        np.array([1]),
    ),
    *(
        dt.date(2020, 1, 1),
        dt.datetime(2020, 1, 1, tzinfo=ZONE),
        dt.datetime.max.replace(tzinfo=ZONE),
        dt.time(1),
    ),
    *(Odd("x"), object(), np.int8(1), np.float32(1), np.str_("x"), 2**63, -(2**70)),
]
IDS = [
    [1, 2, 1, 3, 2, 1, 4],
    [BIG + k for k in (0, 1, 0, 2, 3, 0, 1)],
    list("abacbad"),
    [0.5, 1, 0.5, 1.0, 2, 7, 2],
]


def as_objects(values):
    cells = np.empty(len(values), dtype=object)
    cells[:] = values
    return cells


def model(**more):
    return DPQuantileRegressor(0.5, invalid_rows="ignore", **more)


@given(
    st.sampled_from(IDS),
    st.integers(0, 6),
    st.sampled_from(ODD),
    st.sampled_from([list, tuple, as_objects]),
)
@PROFILE
def test_no_identifier_changes_anybody_else(ids, place, odd, container):
    """A person is replaced by anything of any type: all else that is known of the others stays
    as it was.
    """
    replaced = [odd if name == ids[place] else name for name in ids]
    others = np.array([name != ids[place] for name in ids])
    X = np.zeros((len(ids), 1))
    by_rows = model(person_weight="rows")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before, after = (tags_of(container(v)) for v in (ids, replaced))
        alone = tags_of([ids[k] for k in np.flatnonzero(others)])
        equal = [read_row_weights(model(), X, None, container(v))[1] for v in (ids, replaced)]
        some = [read_row_weights(by_rows, X, None, container(v))[1] for v in (ids, replaced)]
    assert np.array_equal(before[others], after[others])
    assert np.array_equal(before[others], alone)
    # Unless the newcomer is somebody who is there already, and so one person more of the same name.
    new = not np.isin(after[~others], before[others]).any()
    if new:
        assert np.array_equal(equal[0].values[others], equal[1].values[others])
        assert np.array_equal(some[0].values[others], some[1].values[others])
        parts = [RowWeights(v.values, 4, v.tags).rows_in_part(2) for v in equal]
        assert len({tuple(part[others[part]]) for part in parts}) == 1
    assert np.array_equal(weights_limiting_rows(before[others], 1), weights_limiting_rows(alone, 1))


@pytest.mark.parametrize("ids", IDS[:3], ids=["small", "large", "text"])
def test_a_missing_identifier_rounds_no_other_one(ids):
    kind = "string" if isinstance(ids[0], str) else "Int64"
    arrow = "string[pyarrow]" if kind == "string" else "int64[pyarrow]"
    missing = [None, *ids[1:]]
    makers = [
        *(
            list,
            pl.Series,
            pa.array,
            lambda v: pa.chunked_array([v]),
            lambda v: pl.DataFrame({"a": v}),
        ),
        *(
            lambda v: pd.Series(v, dtype=kind),
            lambda v: pd.Series(v, dtype=arrow),
            lambda v: pa.table({"a": v}),
        ),
        *(
            lambda v: pd.Series(pd.Categorical(v, categories=sorted(set(ids)))),
            lambda v: pd.Series(v, dtype=object),
        ),
        lambda v: pd.DataFrame({"a": pd.Series(v, dtype=kind)}),
    ]
    expected = person_tags(np.array(ids))
    for make in makers:
        assert np.array_equal(read_people(make(ids), np.zeros((7, 1)), "it").tags, expected)
        found = read_people(make(missing), np.zeros((7, 1)), "it")
        assert np.array_equal(found.tags[1:], expected[1:])
        assert (found.tags != NOBODY).tolist() == [False] + [True] * 6


SEVEN = [
    7,
    7.0,
    "7",
    " 007 ",
    "+7",
    "7.0",
    "7e0",
    b"7",
    Decimal("7.00"),
    np.int8(7),
    np.uint64(7),
    np.float16(7),
]
LARGE = [2**53 + 1, str(2**53 + 1), f" 0{2**53 + 1}", Decimal(2**53 + 1), np.uint64(2**53 + 1)]
LONG = [10**30, "1" + 30 * "0", Decimal("1e30")]
NAMES = [
    SEVEN,
    LARGE,
    LONG,
    ["True", True, "TRUE", np.bool_(True), b"true"],
    ["a", " a ", b"a", np.str_("a"), "a\0", b"a \0\0"],
]
NOBODIES = [
    *(
        None,
        math.nan,
        "",
        "  ",
        "nan",
        " NaN",
        "inf",
        "-Infinity",
        b"",
        b"nan",
        0.5,
        "0.5",
        Decimal("0.5"),
        7 + 0j,
    ),
    *(
        2.0**53,
        -(2.0**60),
        "9007199254740993.0",
        "1e300",
        np.float32(2**24),
        np.float16(2**11),
        10**700,
        700 * "1",
    ),
    *(
        Decimal("1e700"),
        Decimal("sNaN"),
        np.datetime64("NaT"),
        np.timedelta64(7, "D"),
        dt.time(7),
        [7],
    ),
]


def tags_of(values):
    return person_tags(exact_identifiers(values))


@pytest.mark.parametrize("held", NAMES, ids=lambda held: str(held[0])[:9])
def test_a_person_has_one_tag_whatever_holds_the_identifier(held):
    """Whatever a reader makes of some rows and not of others, text of numbers or floats: nobody
    has two names.
    """
    alone = {int(tags_of(as_objects([cell]))[0]) for cell in held}
    assert len(alone) == 1
    assert alone == set(tags_of(as_objects([None, *held, 0.5, "other"]))[1:-2].tolist())
    for cell in held:
        if isinstance(cell, (int, float, str, np.generic)):
            assert tags_of(np.array([cell]))[0] in alone
    assert NOBODY not in alone
    assert read_people(as_objects(held), np.zeros((len(held), 1)), "it").records == 1


@pytest.mark.parametrize("odd", NOBODIES, ids=lambda odd: f"{type(odd).__name__} {odd!s:.9}")
def test_what_names_nobody_does_so_in_every_column(odd):
    assert tags_of(as_objects([7, odd, "a"])).tolist()[1] == NOBODY
    if isinstance(odd, (float, str, np.generic)):
        assert tags_of(np.array([odd]))[0] == NOBODY
    X = np.zeros((3, 1))
    ids = as_objects([7, odd, "7"])
    unit, weights = read_row_weights(model(), X, None, ids)
    assert unit.count == 1
    assert weights.values.tolist() == [0.5, 0, 0.5]
    with pytest.raises(ValueError, match="name a person in every row"):
        read_row_weights(DPQuantileRegressor(), X, None, ids)


def unmixed(tag):
    """Return the whole number whose mixed bits are a tag."""
    full = 2**64
    tag ^= (tag >> 31) ^ (tag >> 62)
    tag = tag * pow(0x94D049BB133111EB, -1, full) % full
    tag ^= (tag >> 27) ^ (tag >> 54)
    tag = tag * pow(0xBF58476D1CE4E5B9, -1, full) % full
    tag ^= (tag >> 30) ^ (tag >> 60)
    return (tag - 0x9E3779B97F4A7C15) % full


def test_no_identifier_has_the_tag_of_nobody():
    """Of whole numbers one would, and was taken for all rows that name nobody."""
    assert unmixed(0) == 7046029254386353131
    for number in (7046029254386353131, unmixed(int(NOBODY))):
        for held in (
            [number],
            [str(number)],
            np.array([number], dtype=np.uint64),
            as_objects([number]),
        ):
            assert tags_of(held)[0] != NOBODY
        X = np.zeros((4, 1))
        ids = [number, None, number, None]
        found = read_people(ids, X, "it")
        assert (found.tags != NOBODY).tolist() == [True, False, True, False]
        unit, weights = read_row_weights(model(), X, None, ids)
        assert (weights.tags == NOBODY).tolist() == [False, True, False, True]
        assert unit.count == 1


def test_dates_name_the_same_people_whatever_holds_them():
    day = dt.datetime(2020, 1, 1, 5)
    held = [day, day.replace(hour=0, tzinfo=ZONE), np.datetime64(day), np.datetime64(day, "h")]
    assert (tags_of(held) == person_tags(np.array([day], dtype="datetime64[s]"))).all()


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: type(odd).__name__)
def test_no_weight_and_no_demand_raises_or_changes_others(odd):
    X = np.zeros((5, 1))
    weights = [0.5, 1, 0.25, 1.0, 0]
    demands = [[float(i + j) for j in range(2)] for i in range(5)]
    several = DPNewsvendor([3.0, 1.0], target_bounds=(0, 9), invalid_rows="ignore")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = read_row_weights(model(), X, [odd, *weights[1:]], None)[1].values
        cells = [[1.0, odd], *demands[1:]]
        _, (first, second), _ = several._read(X, cells)
    assert found[1:].tolist() == weights[1:]
    assert 0 <= found[0] <= 1
    assert first[1:].tolist() == [1.0, 2.0, 3.0, 4.0]
    assert second[1:].tolist() == [2.0, 3.0, 4.0, 5.0]
    assert np.isnan(first[0]) == np.isnan(second[0])


def test_a_missing_label_rounds_no_other_one():
    labels = [None, BIG, BIG + 1, BIG, BIG + 1]
    X = np.zeros((5, 1))
    classifier = DPLogisticRegression(
        classes=[BIG, BIG + 1], invalid_rows="ignore", feature_bounds=(0, 1)
    )
    expected = classifier._read(X, labels)[1]
    for make in (pl.Series, pa.array, lambda v: pd.Series(v, dtype="Int64")):
        assert np.array_equal(classifier._read(X, make(labels))[1], expected, equal_nan=True)


def test_nobody_is_named_without_a_warning():
    X = np.random.default_rng(0).uniform(0, 1, (50, 2))
    fitted = DPQuantileRegressor(0.5, feature_bounds=(0, 1), target_bounds=(0, 2)).fit(X, X.sum(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The number of people is public, and 50 or none of them are few.
        warnings.filterwarnings("ignore", "private_score: the interval")
        for metric in (None, "residuals"):
            private_score(fitted, X, X.sum(1), metric, epsilon=1.0, groups=[None] * 50)


# Columns as readers of files and users make them of the same cells: their types are guessed from
# all cells, or are those of text. A missing cell is None.
def csv_of(cells):
    return "\n".join(["c", *("" if cell is None else f'"{cell}"' for cell in cells)]) + "\n"


def as_pandas(dtype):
    return lambda cells: pd.Series(cells, dtype=dtype)


COLUMNS = {
    "read_csv of pandas": lambda cells: pd.read_csv(
        io.StringIO(csv_of(cells)), skip_blank_lines=False
    )["c"],
    "read_csv with types of pyarrow": lambda cells: pd.read_csv(
        io.StringIO(csv_of(cells)), skip_blank_lines=False, dtype_backend="pyarrow"
    )["c"],
    "read_csv with nullable types": lambda cells: pd.read_csv(
        io.StringIO(csv_of(cells)), skip_blank_lines=False, dtype_backend="numpy_nullable"
    )["c"],
    "read_csv of polars": lambda cells: pl.read_csv(
        csv_of(cells).replace('"', "").encode(), separator=";"
    )["c"],
    "read_csv of pyarrow": lambda cells: pa_csv.read_csv(
        io.BytesIO(csv_of(cells).encode()),
        parse_options=pa_csv.ParseOptions(ignore_empty_lines=False),
    )["c"],
    "text of pandas": as_pandas(None),
    "text of pandas 3": as_pandas("str"),
    "string[python]": as_pandas("string[python]"),
    "string[pyarrow]": as_pandas("string[pyarrow]"),
    "objects of pandas": as_pandas(object),
    "categories of pandas": as_pandas("category"),
    "text of polars": lambda cells: pl.Series("c", cells, dtype=pl.String),
    "categories of polars": lambda cells: pl.Series("c", cells, dtype=pl.Categorical),
    "objects of polars": lambda cells: pl.Series("c", cells, dtype=pl.Object),
    "text of pyarrow": lambda cells: pa.chunked_array([cells], type=pa.string()),
    "dictionary of pyarrow": lambda cells: pa.chunked_array(
        [pa.array(cells, type=pa.string()).dictionary_encode()]
    ),
    "text of numpy": lambda cells: np.array([str(cell) for cell in cells]),
    "objects of numpy": as_objects,
}
NUMBERS = ["0.25", "-1", "0.1", "1e-3", "123456789.123", "7", "0", "0.30000000000000004"]
TRUTHS = ["True", "False", "False", "True", "True", "False", "True", "False"]
ODD_CELLS = [
    None,
    "x",
    "nan",
    "inf",
    "1e999",
    "True",
    "1,5",
    "2024-01-05",
    "0x1A",
    "1_0",
    "9" * 400,
]


def table_of(column, other):
    """Return a table of the library that a column is of, with another column of numbers."""
    if isinstance(column, np.ndarray):
        return np.column_stack([column, as_objects(other) if column.dtype == object else other])
    library = type(column).__module__.split(".")[0]
    make = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[library]
    return make({"c": column, "d": other})


def invalid_or_number(cell):
    """Return what a cell is read as where it is no number like the others."""
    return {"True": 1.0, "1_0": 10.0}.get(cell, np.nan)


@pytest.mark.parametrize("cells", [NUMBERS, TRUTHS], ids=["numbers", "truth values"])
@pytest.mark.parametrize("kind", COLUMNS)
def test_no_odd_cell_of_a_typed_or_text_column_changes_another_row(kind, cells):
    """One cell made text of its column, and the fit raised, or truth values were read no more."""
    truths = {"True": 1.0, "False": 0.0}
    expected = np.array([truths[cell] if cell in truths else float(cell) for cell in cells])
    other = [float(k) for k in range(len(cells))]
    for number, odd in enumerate([cells[0], *ODD_CELLS]):
        place = number % len(cells)
        spoilt = list(cells)
        spoilt[place] = odd
        others = np.arange(len(cells)) != place
        if number == 0:
            others[:] = True
        column = COLUMNS[kind](spoilt)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            X, (y,), _ = model()._read(table_of(column, other), column)
            weights = read_row_weights(model(), np.zeros((len(cells), 1)), column, None)[1].values
        np.testing.assert_array_equal(X[others, 0], expected[others], f"{odd!r}")
        np.testing.assert_array_equal(X[:, 1], other)
        np.testing.assert_array_equal(y[others], expected[others])
        np.testing.assert_array_equal(weights[others], np.clip(expected[others], 0, 1))
        if number:
            assert np.array_equal(X[place, 0], invalid_or_number(odd), equal_nan=True) or np.isinf(
                X[place, 0]
            ), odd
            assert np.array_equal(y[place], invalid_or_number(odd), equal_nan=True)


@pytest.mark.parametrize("odd", [1j, 2 + 1j, complex("nan"), 3 + 0j])
def test_no_complex_number_changes_another_row(odd):
    """One of them makes complex numbers of its column, which was refused."""
    cells = np.array([0.5, -1.0, odd, 7.0])
    expected = [0.5, -1.0, 3.0 if odd == 3 else math.nan, 7.0]
    for table, column in (
        (np.column_stack([cells, cells]), cells),
        (pd.DataFrame({"c": cells, "d": cells}), pd.Series(cells)),
        (pd.DataFrame({"c": cells, "d": cells.real}), pd.Series(cells)),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            X, (y,), _ = model()._read(table, column)
        np.testing.assert_array_equal(X[:, 0], expected)
        np.testing.assert_array_equal(y, expected)
        with pytest.raises(ValueError, match="Complex data"):
            DPQuantileRegressor()._read(table, [1.0] * 4)
    ids = np.array([7, 8, odd, 7])
    tags = read_people(ids, np.zeros((4, 1)), "it").tags
    assert tags[[0, 1, 3]].tolist() == person_tags(np.array([7, 8, 7])).tolist()


@pytest.mark.parametrize("kind", COLUMNS)
def test_no_odd_identifier_of_a_typed_or_text_column_changes_anybody_else(kind):
    names = ["7", "8", "7", "12", "8", "9", "7", "8"]
    X = np.zeros((len(names), 1))
    expected = read_people(names, X, "it").tags
    for number, odd in enumerate([None, "x", "0.5", "nan", "1_0", "True"]):
        spoilt = [*names[:number], odd, *names[number + 1 :]]
        found = read_people(COLUMNS[kind](spoilt), X, "it").tags
        others = np.arange(len(names)) != number
        np.testing.assert_array_equal(found[others], expected[others], f"{odd!r}")


@pytest.mark.parametrize("classes", [[0, 1], ["0", "1"], [False, True], ["False", "True"]])
@pytest.mark.parametrize("kind", COLUMNS)
def test_no_odd_label_of_a_typed_or_text_column_changes_another_row(kind, classes):
    words = ["1", "0", "0", "1", "1", "0", "1", "0"]
    if "True" in map(str, classes):
        words = TRUTHS
    X = np.zeros((len(words), 1))
    classifier = DPLogisticRegression(classes=classes, invalid_rows="ignore", feature_bounds=(0, 1))
    for number, odd in enumerate([words[0], None, "x", "2", "0.5", "nan"]):
        spoilt = list(words)
        spoilt[number] = words[number] if number == 0 else odd
        _, (targets,), _ = classifier._read(X, COLUMNS[kind](spoilt))
        expected = np.where(np.isin(words, ["1", "True"]), 1.0, -1.0)
        if number:
            expected[number] = np.nan
        np.testing.assert_array_equal(targets, expected, f"{odd!r}")
