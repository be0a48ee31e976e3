"""What one line of a CSV file becomes depends on that line alone: no quote, byte or delimiter of
another changes it.
"""

import gzip

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpconvex.inputs import InputError, table_files
from dpconvex.inputs.csv_reader import CSVFormat, CSVLineProblem, split_csv_fields
from dpconvex.inputs.schema_file import parse_schema
from dpconvex.inputs.table_files import (
    open_table_file,
    read_feature_file,
    read_training_file,
    write_table_file,
)

PROFILE = settings(max_examples=300, derandomize=True, deadline=None)
NAMES = ["a", "b", "c"]
SCHEMA = parse_schema({"features": {"a": [0, 1]}, "target": {"y": [0, 1]}})
# Fields, parts of fields and damage: quotes in all places, delimiters, marks, other line ends,
# bytes of no encoding.
PIECES = [
    *(
        b"a",
        b"0.5",
        b" ",
        b",",
        b",",
        b",",
        b'"',
        b'"',
        b'""',
        b'"x"',
        b'","',
        b'"a,b"',
        b'""0.5""',
        b'12" pipe',
    ),
    *(
        b"\r",
        b"\0",
        b"\xef\xbb\xbf",
        b"\xff",
        b"\xc3",
        b"\xc3\xbc",
        b"\xed\xa0\x80",
        b"\x85",
        b"\xe2\x80\xa8",
        b";",
    ),
    *(b"\t", b"'", b"\\", b"#", b"nan"),
]
LINES = st.lists(st.sampled_from(PIECES), max_size=8).map(b"".join)


def cells(path, **file):
    rows = open_table_file(path, CSVFormat(**file)).read_rows(NAMES)
    return [(*row, problem) for row, problem in zip(rows.cells.rows(), rows.problems, strict=True)]


def written(path, lines, header=b"a,b,c", end=True):
    content = b"\n".join([header, *lines]) + (b"\n" if end else b"")
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@given(st.lists(LINES, min_size=1, max_size=6), st.booleans())
@PROFILE
def test_a_file_is_its_lines_read_one_by_one(tmp_path_factory, lines, end):
    folder = tmp_path_factory.getbasetemp()
    # Without its line end a blank last line is none.
    end = end or not lines[-1]
    whole = cells(written(folder / "whole.csv", lines, end=end))
    alone = [cells(written(folder / "alone.csv", [line])) for line in lines]
    assert whole == [row for rows in alone for row in rows]
    assert all(len(rows) == 1 for rows in alone)


@given(st.lists(LINES, min_size=1, max_size=3), LINES, st.integers(0, 2))
@PROFILE
def test_the_fast_way_gives_the_cells_of_the_slow_one(tmp_path_factory, lines, odd, place):
    """Blocks of one line, of all lines, and :func:`split_csv_fields` agree, whatever stands
    beside a line.
    """
    folder = tmp_path_factory.getbasetemp()
    lines.insert(place, odd)
    for line, row in zip(lines, cells(written(folder / "whole.csv", lines)), strict=True):
        problem = CSVLineProblem(row[-1])
        try:
            text = line.decode("utf-8").removesuffix("\r")
        except UnicodeDecodeError:
            assert row == (None, None, None, CSVLineProblem.UNDECODED)
            continue
        fields = split_csv_fields(text, ",")
        assert (problem == CSVLineProblem.BLANK) == (text == "")
        assert (problem == CSVLineProblem.OPEN_QUOTE) == (fields is None)
        assert (problem == CSVLineProblem.LONG) == (fields is not None and len(fields) > 3)
        if fields is None or len(fields) > 3:
            assert row[:-1] == (None, None, None)
        else:
            assert row[:-1] == (*fields, *[None] * (3 - len(fields)))


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1", "cp1252", "shift_jis", "gb18030"])
@pytest.mark.parametrize(
    "odd", [b"\x00", b"\n", b"\xff", b"\x81", b"\x00\xd8", b'"', b"\xfe\xff", b"\x0e\x0f"]
)
@pytest.mark.parametrize("place", [0, 1, 5, 99])
def test_an_extra_byte_changes_its_own_line(tmp_path, encoding, odd, place):
    raw = [f"{row},x{row},".encode(encoding) for row in range(4)]
    before = cells(written(tmp_path / "t.csv", raw), encoding=encoding)
    assert [row[0] for row in before] == ["0", "1", "2", "3"]
    raw[1] = raw[1][:place] + odd + raw[1][place:]
    after = cells(written(tmp_path / "t.csv", raw), encoding=encoding)
    assert len(after) == 4 + (b"\n" in raw[1])
    assert [after[row] for row in (0, -2, -1)] == [before[row] for row in (0, -2, -1)]


@pytest.mark.parametrize(
    "encoding",
    [
        "iso2022_jp",
        "iso2022_kr",
        "hz",
        "utf-7",
        "unicode_escape",
        "idna",
        "utf-16",
        "utf-32",
        "cp500",
    ],
)
def test_encodings_in_which_a_line_changes_the_next_one_are_refused(encoding):
    with pytest.raises(InputError, match="each line can be read by"):
        parse_schema({"features": {"a": [0, 1]}, "file": {"encoding": encoding}})


def read(path):
    X, y, _ = read_training_file(path, SCHEMA, ignored=True)
    return X.to_numpy()[:, 0], y.to_numpy()


@pytest.mark.parametrize(
    "odd", [b"0.5,1,\xff", b"0.5,\xff1,x", b"\xc3,1,x", b'"0.5\xff",1,x', b"\xff"]
)
@pytest.mark.parametrize("place", [0, 3, 6])
def test_a_line_with_other_bytes_is_a_row_without_any_value(tmp_path, odd, place):
    """Wherever such a byte stands: in a column that nobody reads the line counted in full."""
    lines = [b"0.%d,1,x" % row for row in range(6)]
    X, y = read(written(tmp_path / "t.csv", lines, header=b"a,y,note"))
    spoilt = [*lines[:place], odd, *lines[place:]]
    again = read(written(tmp_path / "t.csv", spoilt, header=b"a,y,note"))
    for found, expected in zip(again, (X, y), strict=True):
        assert np.isnan(found[place])
        np.testing.assert_array_equal(np.delete(found, place), expected)
    schema = parse_schema(
        {
            "features": {"a": {"bounds": [0, 1], "missing": {"value": 0.5}}},
            "categories": {"note": ["x"]},
        }
    )
    rows, kept = read_feature_file(tmp_path / "t.csv", schema, ["y", "note"])
    assert np.isnan(rows[place]).all()
    assert kept.row(place) == (None, None)
    assert not np.isnan(np.delete(rows, place, axis=0)).any()


ATTACKS = [
    b'0.5,1,12" pipe',
    b'"0.5,1,x',
    b'0.5,1,"',
    b"0.5,1,\xff",
    b'0.5,1,"a"b"',
    b"0.5,1,2,3,4",
    b'""',
    b'"\n"',
]


@pytest.mark.parametrize("odd", ATTACKS)
@pytest.mark.parametrize("place", [0, 17, 1000])
@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_a_stray_quote_changes_no_other_row(tmp_path, odd, place, ending):
    """Numbers in doubled quotes and one open quote: 1,000 valid rows became 0, or 11."""
    rows = [b'""0.%03d"",1,"note, %d"' % (row, row) for row in range(1000)]
    path = written(tmp_path / f"t{ending}", rows, header=b"a,y,note")
    X, y = read(path)
    np.testing.assert_array_equal(X, np.arange(1000) / 1000)
    assert not np.isnan(y).any()
    read_again = read(written(path, [*rows[:place], odd, *rows[place:]], header=b"a,y,note"))
    more = odd.count(b"\n") + 1
    for found, expected in zip(read_again, (X, y), strict=True):
        np.testing.assert_array_equal(np.delete(found, np.s_[place : place + more]), expected)


@pytest.mark.parametrize("odd", ATTACKS)
def test_pieces_are_read_like_the_whole(tmp_path, monkeypatch, odd):
    monkeypatch.setattr(table_files, "FEWEST_BYTES", 100)
    rows = [b"0.%03d,1,x%d" % (row, row) for row in range(100)]
    lines = [*rows[:50], odd, *rows[50:]]
    (tmp_path / "t.csv").write_bytes(b"\n".join([b"a,y,note", *lines]))
    pieces, _ = table_files.split_files([tmp_path / "t.csv"], SCHEMA, 1200, 1)
    assert len(pieces) > 5
    found = [table_files.load_file_piece(piece, SCHEMA, None, ignored=True) for piece in pieces]
    X, y = read(tmp_path / "t.csv")
    np.testing.assert_array_equal(np.concatenate([part["a"] for part in found]), X)
    np.testing.assert_array_equal(np.concatenate([part[table_files.TARGET] for part in found]), y)


def test_blocks_end_with_lines(tmp_path, monkeypatch):
    """Where a file is cut into blocks changes nothing, wherever a quote is open."""
    from dpconvex.inputs import csv_reader

    lines = [b'1,"x', b"\xef\xbb\xbf2,y", b"", b"3,z" * 40, b'4,"a""b",']
    expected = cells(written(tmp_path / "t.csv", lines * 20))
    for size in (1, 7, 64, 1000):
        monkeypatch.setattr(csv_reader.read_csv_blocks, "__defaults__", (size,))
        assert cells(tmp_path / "t.csv") == expected


def test_fields_hold_no_line_breaks(tmp_path):
    path = written(tmp_path / "t.csv", [b'1,"x\r\ny",2', b"3,z,4", b'5,"open', b"6,z,7"])
    assert [row[-1] for row in cells(path)] == [2, 2, 0, 2, 0]


def test_parquet_cells_stand_alone(tmp_path):
    """Neither the type that one value gives a column nor NaN changes other rows."""
    schema = parse_schema(
        {
            "features": {"a": {"bounds": [-1e19, 1e19], "missing": "indicator"}},
            "categories": {"b": ["1", "2"]},
            "dates": {"d": {"parts": ["month"], "format": "%Y%m%d"}},
            "target": {"y": [0, 9]},
        }
    )
    numbers = [1, 2, 2**53 + 1]
    days = [20240105, 20240209, 20240301]
    plain = {"a": numbers, "b": numbers, "d": days, "y": numbers}
    kinds = (pl.Int64, pl.Float64, pl.String, pl.Decimal(38, 0), pl.UInt64)
    expected = None
    for kind in kinds:
        for last in ([], [None], [float("nan")] if kind == pl.Float64 else []):
            table = pl.DataFrame(
                {
                    name: pl.Series(column, dtype=pl.Int64)
                    .cast(kind)
                    .append(pl.Series(last, dtype=kind))
                    for name, column in plain.items()
                }
            )
            table.write_parquet(tmp_path / "t.parquet")
            X, y, _ = read_training_file(tmp_path / "t.parquet", schema, ignored=True)
            found = np.column_stack([X.to_numpy(), y.to_numpy()])[:3]
            expected = found if expected is None else expected
            np.testing.assert_array_equal(found, expected, str(kind))


BREAKS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"]
WORDS = [
    "a",
    "0.5",
    " ",
    ",",
    ";",
    "\t",
    "|",
    '"',
    '""',
    '"x"',
    "\0",
    "\ufeff",
    "ü",
    "'",
    "\\",
    "#",
]
TEXTS = st.one_of(st.none(), st.lists(st.sampled_from([*BREAKS, *WORDS]), max_size=6).map("".join))


@given(
    st.integers(1, 3).flatmap(
        lambda width: st.lists(st.lists(TEXTS, min_size=width, max_size=width), max_size=4)
    ),
    st.sampled_from([",", ";", "\t", "|", None]),
    st.sampled_from(["t.csv", "t.csv.gz", "t.tsv"]),
    st.sampled_from([pl.String, pl.Categorical]),
)
@PROFILE
def test_whatever_text_holds_a_record_is_written_as_one_line(
    tmp_path_factory, rows, delimiter, name, dtype
):
    """And read again as it was, but for spaces in place of line breaks and around a field."""
    path = tmp_path_factory.getbasetemp() / name
    names = NAMES[: len(rows[0]) if rows else 1]
    table = pl.DataFrame(rows, schema=dict.fromkeys(names, pl.String), orient="row").cast(dtype)
    write_table_file(table, path, CSVFormat(delimiter=delimiter))
    content = gzip.decompress(path.read_bytes()) if name.endswith("gz") else path.read_bytes()
    text = content.decode()
    assert len(text.splitlines()) == text.count("\n") == len(rows) + 1
    found = open_table_file(path, CSVFormat(delimiter=delimiter)).read_rows(names)
    assert not found.problems.any()
    for before, after in zip(rows, found.cells.rows(), strict=True):
        # Line breaks are white space to Python, and so is the space that stands for them.
        assert [(cell or "").split() for cell in before] == [(cell or "").split() for cell in after]


def test_names_of_columns_are_written_on_one_line(tmp_path):
    names = ["a\nb", 'c"d', "e;f;g", " h", "i,j\u2028"]
    table = pl.DataFrame({name: [str(number)] for number, name in enumerate(names)})
    write_table_file(table, tmp_path / "t.csv")
    opened = open_table_file(tmp_path / "t.csv")
    assert opened.names == ["a b", 'c"d', "e;f;g", " h", "i,j "]
    assert opened.read(opened.names).row(0) == ("0", "1", "2", "3", "4")
    alike = pl.DataFrame({"a\nb": ["1"], "a b": ["2"]})
    with pytest.raises(InputError, match="differ in more than line breaks"):
        write_table_file(alike, tmp_path / "t.csv")


def test_no_row_of_one_column_is_a_blank_line(tmp_path):
    for cells_of in (["x", None, "", " ", "y"], [1.0, None, 2.0]):
        table = pl.DataFrame({"a": cells_of})
        write_table_file(table, tmp_path / "t.csv")
        assert open_table_file(tmp_path / "t.csv").read(["a"]).height == len(cells_of)


def test_signs_that_an_encoding_lacks_are_an_error_of_the_table(tmp_path):
    table = pl.DataFrame({"a": ["\u20ac"]})
    with pytest.raises(InputError, match="Say --encoding utf-8, or write Parquet"):
        write_table_file(table, tmp_path / "t.csv", CSVFormat(encoding="latin-1"))
