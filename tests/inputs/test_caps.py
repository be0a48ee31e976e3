"""Files of strangers that would take long to read are refused before the work begins."""

import datetime
import tomllib

import polars as pl
import pytest

from dpconvex.inputs import InputError, schema_file
from dpconvex.inputs.formula import formula_schema
from dpconvex.inputs.schema import MOST_COLUMNS
from dpconvex.inputs.schema_file import parse_schema, parse_schema_toml, read_schema
from dpconvex.inputs.table_files import open_table_file
from dpconvex.reports.release_file import read_release_file
from dpconvex.reports.studio_pages import check_studio_schema as shown_schema

SHORT_NAMES = {"features": {name: [1, 2] for name in "abcdefghij"}, "target": {"y": [0, 1]}}
LONG_KEYS = [
    "a." * 16_000 + "a = 1",
    "[" + "a." * 16_000 + "a]",
    "x = {" + "a . " * 8 + "a = 1}",
    '"a".' * 9 + "a = 1",
    "'a=b,'. " * 9 + "a = 1",
    'x = {b = """a"""", ' + "a." * 9 + "a = 1}",
    "x = {b = '''a'''', " + "a." * 9 + "a = 1}",
    "# '\n" + "a." * 9 + "a = 1",
    "x = [1, # it's\n{" + "a." * 9 + "a = 1}]",
    'x = "\\"" # "\n' + "é-1." * 9 + "a = 1",
    "x = '''\n'''\n" + "a\t.\t" * 9 + "a = 1",
]


def never(*_, **__):
    raise AssertionError("work that should not have begun")


@pytest.mark.parametrize("text", LONG_KEYS)
def test_dotted_keys_are_short(text, tmp_path, monkeypatch):
    """A key of 16,000 parts took 25 seconds: the parser's work grows with the square of their
    number.
    """
    monkeypatch.setattr(tomllib, "loads", never)
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(InputError, match="at most 8 parts"):
        read_schema(tmp_path / "t.toml")
    with pytest.raises(InputError, match="must be TOML"):
        read_release_file(tmp_path / "t.toml")
    assert "at most 8 parts" in shown_schema(text)


@pytest.mark.parametrize(
    "text",
    [
        "a.b.c.d.e.f.g.h = 1",
        'x = "' + "a." * 100 + '"',
        "x = '" + "a." * 100 + "'",
        "x = '''\n" + "a." * 100 + "'''",
        'x = """\\"""' + "a." * 100 + '"""""',
        "# " + "a." * 100,
        "x = [" + "0.1, " * 100 + "]",
    ],
)
def test_other_points_are_no_keys(text):
    assert parse_schema_toml(text) == tomllib.loads(text)


def test_formats_of_dates_are_short(monkeypatch):
    """One of 20,000 signs in a model file stalled ``verify`` for 15 seconds."""
    long = {"dates": {"d": {"parts": ["month"], "format": "%d %m %Y" + " x" * 50}}}

    class Clock(datetime.datetime):
        strptime = strftime = never

    monkeypatch.setattr(schema_file.datetime, "datetime", Clock)
    with pytest.raises(InputError, match="format of at most 100 characters"):
        parse_schema(long)


def test_tables_have_a_number_of_columns_that_can_be_read(tmp_path, monkeypatch):
    """Checks of 100,004 names against each other took minutes."""
    names = [f"c{number}" for number in range(MOST_COLUMNS + 1)]
    monkeypatch.setattr(schema_file, "_parse_schema_number", never)
    with pytest.raises(InputError, match="at most 100,000 columns"):
        parse_schema({"features": {name: [0, 1] for name in names}})
    (tmp_path / "t.csv").write_text(",".join(names) + "\n")
    pl.DataFrame({name: [0] for name in names}).write_parquet(tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        with pytest.raises(InputError, match="at most 100,000 columns"):
            open_table_file(tmp_path / name)


@pytest.mark.parametrize(
    ("formula", "why"),
    [
        ("y ~ (a + b + c)**30", "200,000"),
        ("y ~ (a + b + c)^100000000", "200,000"),
        ("y ~ a**99999999999999999999", "200,000"),
        ("y ~ " + "|".join("ab" * 1500), "several formulas"),
        ("y ~ " + " + ".join(["a"] * 20_000), "20,000 characters"),
        ("y ~ log(" + "-" * 1500 + "a)", "too long|cannot be parsed"),
        ("y ~ C(" + "a" * 1500 + ")", "is too long"),
    ],
)
def test_formulas_are_short_where_they_are_written_out(formula, why, monkeypatch):
    """Three terms to the power of 30 took 15 seconds: all of 3^30 products are looked at."""
    types = pytest.importorskip("formulaic.parser.types")
    monkeypatch.setattr(types.Term, "__mul__", never)
    with pytest.raises(InputError, match=why):
        formula_schema(parse_schema(SHORT_NAMES), formula)


def test_products_of_a_formula_are_counted_over_all_its_operators(monkeypatch):
    types = pytest.importorskip("formulaic.parser.types")
    made = 0
    plain = types.Term.__mul__

    def counted(*terms):
        nonlocal made
        made += 1
        return plain(*terms)

    monkeypatch.setattr(types.Term, "__mul__", counted)
    schema = parse_schema(SHORT_NAMES)
    assert formula_schema(schema, "y ~ (a + b + c)**2").names[3] == "a × b"
    with pytest.raises(InputError, match="200,000"):
        formula_schema(schema, "y ~ " + "*".join(["(a+b+c+d+e+f+g+h+i+j)"] * 30))
    assert made < 250_000
