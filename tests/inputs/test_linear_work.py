"""Time and memory grow with the length of a file, and with nothing else: operations are counted,
never seconds.

Each case was found with a file that took seconds to hours: a quoted cell of 2.4 MB (30 s), a header
of 10,000 names above one line (90 s), short lines below a long header, and numbers that are made to
share one hash.
"""

from __future__ import annotations

import tracemalloc
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

from dpconvex.cli.bounds_split import split_by_value
from dpconvex.core.person_identifiers import canonical_identifier, person_tags
from dpconvex.inputs import InputError
from dpconvex.inputs.csv_reader import CSVFormat, CSVLayout, read_csv_layout, split_csv_fields
from dpconvex.inputs.inspection import inspect_column_kinds
from dpconvex.inputs.labels import declared_label_set
from dpconvex.inputs.schema_file import parse_schema
from dpconvex.preprocessing import PublicTable

SHARED_HASH = 2**61 - 1  # Python's hash of a number is its remainder


class CountedText(str):
    """Text that counts the signs which concatenations copy; its parts are of its kind."""

    copied = 0

    def split(self, *arguments):
        return [CountedText(part) for part in super().split(*arguments)]

    def __add__(self, other):
        return CountedText(self.join_counted(str(self), other))

    def __radd__(self, other):
        return CountedText(self.join_counted(other, str(self)))

    @staticmethod
    def join_counted(first, second):
        CountedText.copied += len(first) + len(second)
        return str(first) + str(second)


@pytest.mark.parametrize("cell", ['""' * 4000, 'x""' * 4000, '""x' * 4000])
def test_a_quoted_cell_is_copied_a_few_times(cell):
    line = CountedText(f'1,"{cell}",2')
    CountedText.copied = 0
    assert split_csv_fields(line, ",") == ["1", cell.replace('""', '"'), "2"]
    assert CountedText.copied <= 10 * len(line)


@pytest.fixture
def counted_fields(monkeypatch):
    """Count the fields that polars looks at while lines are split."""
    seen = {"split": 0, "taken": 0}
    texts = type(pl.Series([""]).str)
    records = type(pl.Series([{"a": 1}]).struct)
    split = texts.split_exact
    field = records.field
    unnest = records.unnest

    def counted_split(self, delimiter, number, **more):
        seen["split"] += (number + 1) * len(pl.Series._from_pyseries(self._s))
        return split(self, delimiter, number, **more)

    def counted_field(self, name):
        seen["taken"] += len(self.fields)
        return field(self, name)

    def counted_unnest(self):
        seen["taken"] += len(self.fields)
        return unnest(self)

    monkeypatch.setattr(texts, "split_exact", counted_split)
    monkeypatch.setattr(records, "field", counted_field)
    monkeypatch.setattr(records, "unnest", counted_unnest)
    return seen


def layout(names):
    return CSVLayout(tuple(names), ",", "utf-8", 0)


@pytest.mark.parametrize("rows", [1, 3])
def test_many_columns_are_taken_at_once(counted_fields, rows):
    names = [f"c{number}" for number in range(2000)]
    found = layout(names).read_block(b"\n".join([b",".join([b"7"] * 2000)] * rows), names)
    assert found.cells.shape == (rows, 2000)
    assert found.cells.unique().row(0) == ("7",) * 2000
    assert counted_fields["taken"] <= 3 * 2000
    assert counted_fields["split"] <= 3 * 2000 * rows


def test_short_lines_below_a_long_header_take_what_they_hold(counted_fields):
    names = [f"c{number}" for number in range(5000)]
    lines = [b"1,2"] * 1000 + [b",".join([b"3"] * 5000), b"4", b"", b",".join([b"5"] * 40)]
    found = layout(names).read_block(b"\n".join(lines), ["c4999", "c1", "c0"])
    held = sum(line.count(b",") + 1 for line in lines)
    assert counted_fields["split"] <= 3 * held
    assert counted_fields["taken"] <= 3 * held
    expected = [(None, "2", "1")] * 1000
    expected += [("3", "3", "3"), (None, None, "4"), (None, None, ""), (None, "5", "5")]
    assert found.cells.rows() == expected
    assert found.problems.tolist() == [0] * 1002 + [1, 0]


def test_lines_of_all_lengths_keep_their_order_and_fields():
    names = [f"c{number}" for number in range(70)]
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 80, 500)
    lines = [",".join(f"{row}.{place}" for place in range(size)) for row, size in enumerate(sizes)]
    wanted = ["c3", "c69", "c0", "c31"]
    found = layout(names).read_block("\n".join(lines).encode(), wanted)
    for row, size in enumerate(sizes):
        places = [int(name[1:]) for name in wanted]
        expected = [f"{row}.{place}" if place < size <= 70 else None for place in places]
        assert list(found.cells.row(row)) == expected
    assert ((found.problems == 3) == (sizes > 70)).all()


def test_a_table_of_missing_fields_alone_is_refused_where_all_columns_are_read(tmp_path):
    """A header of 50,000 names above 200,000 short lines, 1.2 MB: 10 billion cells."""
    path = tmp_path / "t.csv"
    path.write_text(",".join(f"c{n}" for n in range(5000)) + "\n" + "1,2\n" * 5000)
    with pytest.raises(InputError, match="lack nearly all of the fields"):
        inspect_column_kinds(path, CSVFormat())
    assert read_csv_layout(path, CSVFormat()).read(path, ["c1"]).cells.height == 5000


class CountedNumber(int):
    """A number that counts how often it is compared."""

    compared = 0

    def __eq__(self, other):
        CountedNumber.compared += 1
        return int(self) == other

    def __hash__(self):
        return int.__hash__(self)


def test_identifiers_of_one_hash_are_not_compared_with_each_other(monkeypatch):
    rows = 400
    longer = [number * SHARED_HASH for number in range(2**40, 2**40 + rows)]
    assert len(set(map(hash, longer))) == 1
    kinds = {bool, int, float, str, bytes, CountedNumber}
    monkeypatch.setattr("dpconvex.core.person_identifiers._PLAIN", kinds)
    cells = np.empty(rows, dtype=object)
    cells[:] = [CountedNumber(number) for number in longer]
    CountedNumber.compared = 0
    tags = person_tags(cells)
    assert len(np.unique(tags)) == rows
    assert CountedNumber.compared <= 10 * rows


def test_decimals_of_one_hash_are_not_compared_with_each_other(monkeypatch):
    rows = 300
    values = [Decimal(number * SHARED_HASH) for number in range(1, rows + 1)]
    compared = 0
    plain = Decimal.__eq__

    class Counted(Decimal):
        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return plain(self, other)

        __hash__ = Decimal.__hash__

    cells = np.empty(rows, dtype=object)
    cells[:] = [Counted(value) for value in values]
    monkeypatch.setattr("dpconvex.core.person_identifiers.exact_identifiers", lambda _: cells)
    assert split_by_value(pl.Series("id", [], dtype=pl.String), 1, 0.5).shape == (rows,)
    assert compared <= 10 * rows


@pytest.mark.parametrize(
    ("text", "person"),
    [
        ("0" * 5000 + "7", 7),
        ("-" + "0" * 5000, 0),
        ("+7.000", 7),
        ("." + "0" * 3000, 0),
        ("1" * 601, None),
        ("1" * 5000 + "x", "1" * 5000 + "x"),
        ("0" * 5000 + ".5.", "0" * 5000 + ".5."),
    ],
)
def test_long_identifiers_are_who_they_were(text, person):
    assert canonical_identifier(text) == person


def test_other_spellings_are_looked_up_once(monkeypatch):
    """A category with as many other spellings as values was compared with all values for each."""
    compared = 0

    class Word(str):
        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return str(self) == other

        __hash__ = str.__hash__

    number = 300
    also = {f"w{n}": Word(f"v{n}") for n in range(number)}
    tables = {"categories": {"c": {"values": [f"v{n}" for n in range(number)], "also": also}}}
    table = PublicTable(parse_schema(tables))
    assert table.transform({"c": ["w5", "v7"]}).to_numpy().argmax(axis=1).tolist() == [5, 7]
    assert compared <= 20 * number


def test_a_schema_has_a_few_words_for_missing_values():
    """All columns are compared with all of them, and 100,000 of both are in a file of 4 MiB."""
    words = [f"w{number}" for number in range(1001)]
    with pytest.raises(InputError, match="at most 1,000 words"):
        parse_schema({"features": {"a": [0, 1]}, "file": {"missing": words}})
    parse_schema({"features": {"a": [0, 1]}, "file": {"missing": words[:1000]}})


@pytest.mark.parametrize("labels", [["a" * 100_000, *"bcdefgh"], [*range(100_000)]])
def test_labels_are_short_and_few_before_they_become_an_array(labels):
    """An array gives every label the room of the longest: of 1,000 labels and one of 60 MB, 240
    GB.
    """
    tracemalloc.start()
    with pytest.raises(ValueError, match="2 to 1000 different labels"):
        declared_label_set(labels, "A")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_a_fit_of_many_columns_makes_no_matrix_of_all_pairs(monkeypatch):
    """A fit of 25,000 columns in 0.3 MB took 9.9 GB and 500 s."""
    from dpconvex import DPLogisticRegression, DPPoissonRegressor, DPQuantileRegressor

    X = np.random.default_rng(0).uniform(-1, 1, (5, 3000))
    y = np.array([0.1, 0.9, 0.2, 0.8, 0.5])
    made = []
    diagonal = np.diag
    solve = np.linalg.solve

    def counted(values):
        made.append(np.ndim(values) == 1 and len(values) > 2000)
        return diagonal(values)

    def small(matrix, vector):
        assert len(matrix) < 100
        return solve(matrix, vector)

    monkeypatch.setattr(np, "diag", counted)
    monkeypatch.setattr(np.linalg, "solve", small)
    for kind, target in (
        (DPQuantileRegressor, y),
        (DPLogisticRegression, y > 0.3),
        (DPPoissonRegressor, y),
    ):
        scale = {} if kind is DPLogisticRegression else {"target_bounds": (0, 1)}
        for alpha in (None, 0.1):
            made.clear()
            kind(feature_bounds=(-1, 1), alpha=alpha, **scale).fit(X, target)
            assert sum(made) <= (alpha is not None)
