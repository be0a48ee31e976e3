"""Input that is wrong: clear errors with exit code 2 that hold no data value."""

from __future__ import annotations

import json

import pytest

from dpconvex.cli import output_and_errors
from dpconvex.inputs.schema_file import parse_schema
from dpconvex.inputs.table_files import read_training_file

SECRET = "SECRETVALUE"
NUMBER = "7777123"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "at least one column"),
        ("[features]\n", "at least one column"),
        ("[feature]\na = [0, 1]\n", "may have the tables"),
        ("features = 3\n", "must be a table"),
        ("[features]\nprice = [1, 1]\n", "low < high"),
        ("[features]\nprice = [2, 1]\n", "low < high"),
        ("[features]\nprice = [0, inf]\n", "finite"),
        ("[features]\nprice = [nan, 1]\n", "finite"),
        ("[features]\nprice = [-1e308, 1e308]\n", "low < high"),
        (f"[features]\nprice = [0, 1{'0' * 400}]\n", "finite"),
        ("[features]\nprice = [0, true]\n", "two finite numbers"),
        ('[features]\nprice = ["0", "1"]\n', "two finite numbers"),
        ("[features]\nprice = [0, 1, 2]\n", "two finite numbers"),
        ("[features]\nprice.low = 0\n", "two finite numbers"),
        ("[features]\nprice = [0, 1]\nprice = [0, 2]\n", "not valid TOML (at line 3"),
        ("[features]\nprice = [0, 1]\n[categories]\nprice = ['a']\n", "in [features] and in"),
        ("[features]\nprice = [0, 1]\n[categories]\ncity = []\n", "must be a list"),
        ("[features]\nprice = [0, 1]\n[categories]\ncity = [1]\n", "in quotes"),
        ("[features]\nprice = [0, 1]\n[categories]\ncity = ['a', 'a']\n", "without repetitions"),
        ("[features]\nprice = [0, 1]\n[target]\na = [0, 1]\nb = [0, 1]\n", "one column only"),
        ("[features]\nprice = [0, 1]\n[target]\nprice = [0, 1]\n", "must not be a feature"),
        ("[features]\nnone = [0, 1]\n[target]\ndemand = [0, 1]\n", "has no column 'none'"),
        ("[features]\nprice = [0, 1]\n", "Give --target"),
        ("[features\n", "not valid TOML (at line 1"),
        ("a = " + "[" * 5000, "nested too deeply"),
    ],
)
def test_bounds_files(folder, text, part):
    (folder / "bounds.toml").write_text(text)
    result = folder.fit()
    assert result.exit_code == 2
    assert part in result.stderr
    assert result.stderr.count("\n") == 1


def test_target_must_agree_with_the_bounds_file(folder):
    result = folder.fit("--target", "day")
    assert result.exit_code == 2
    assert "[target] in the schema names 'demand'" in result.stderr


def test_target_without_a_range_warns(folder):
    (folder / "bounds.toml").write_text("[features]\nprice = [0, 10]\n")
    result = folder.fit("--target", "demand")
    assert result.exit_code == 0
    assert "the default mechanism spends a part of its budget on the scale" in result.stderr


HEADER = "day,temperature,price,city,demand\n"
ROW = "1,2.0,3.0,paris,50\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        HEADER,
        HEADER + "1,,3.0,paris,50\n",
        HEADER + "1,2.0\n",
        HEADER + f"1,{SECRET},3.0,paris,50\n",
        HEADER + f"1,2.0,3.0,paris,{SECRET}\n",
        HEADER + "1,nan,3.0,paris,50\n",
        HEADER + "1,1e999,3.0,paris,50\n",
        HEADER + f"1,2.0,3.0,paris,50,{NUMBER}\n",
        HEADER + f'1,2.0,"{NUMBER},{SECRET}\n' + ROW,
        HEADER.replace("day", "price") + ROW,
        HEADER.replace(",", ";") + f"1;2;3;paris;{SECRET}\n",
        HEADER.replace(",", "/") + f"1/2/3/{SECRET}/{NUMBER}\n",
        f"{NUMBER},2.0,3.0,{SECRET},50\n" + ROW,
        HEADER.replace("day", '"da\ny"') + ROW,
    ],
)
def test_tables(folder, text):
    (folder / "sales.csv").write_text(text)
    for result in (folder.fit(), folder.fit("--json")):
        assert result.exit_code == 2
        assert result.stdout == ""
        assert SECRET not in result.output
        assert NUMBER not in result.output
        assert result.stderr.count("\n") == 1


def test_a_file_without_header_shows_no_value_in_bounds_init(folder):
    (folder / "sales.csv").write_text(f"{NUMBER},2.0,3.0,{SECRET},50\n" + ROW)
    result = folder.run("bounds", "init", "sales.csv")
    assert result.exit_code == 2
    assert "Add a header" in result.stderr
    assert SECRET not in result.output
    assert NUMBER not in result.output


def test_blank_lines_an_index_and_spaces_are_harmless(folder):
    lines = (folder / "sales.csv").read_text().replace("day", "").replace(",", ", ").splitlines()
    lines[0] = lines[0].replace(" ", "")
    (folder / "sales.csv").write_text("\n\n".join(lines) + "\n\n\n")
    result = folder.fit()
    assert result.exit_code == 0, result.output
    assert "400 rows" in result.output


def test_labels_are_whole_numbers_or_text(folder):
    columns = parse_schema({"features": {"price": [0, 10]}}).for_target("label")
    for words, found in [
        (["1", "-1", " 1"], [1, -1, 1]),
        (["yes", "no ", "1"], ["yes", "no", "1"]),
        (["1.0", "2", "1e0"], [1, 2, 1]),
    ]:
        rows = "".join(f"2.5,{word}\n" for word in words)
        (folder / "labels.csv").write_text("price,label\n" + rows)
        assert read_training_file(folder / "labels.csv", columns, labels=True)[1].to_list() == found
    (folder / "labels.csv").write_text("price,label\n1,yes\n2,\n")
    with pytest.raises(output_and_errors.InputError, match="a label in every row"):
        read_training_file(folder / "labels.csv", columns, labels=True)
    (folder / "labels.csv").write_text(f"price,label\n1,yes\n2,{NUMBER}.5\n")
    with pytest.raises(output_and_errors.InputError, match="other numbers") as caught:
        read_training_file(folder / "labels.csv", columns, labels=True)
    assert NUMBER not in str(caught.value)


def test_encodings_are_marked_or_said_and_never_guessed(folder):
    text = (folder / "sales.csv").read_text().replace("rome", "münchen")
    (folder / "sales.csv").write_bytes(text.encode("latin-1"))
    result = folder.fit()
    assert result.exit_code == 2
    assert "--encoding" in result.stderr
    assert folder.fit("--encoding", "latin-1").exit_code == 0
    (folder / "sales.csv").write_bytes(text.encode("utf-8-sig"))
    assert folder.fit().exit_code == 0
    (folder / "sales.csv").write_bytes(text.encode("utf-16"))
    assert "Write the file in UTF-8" in folder.fit("--encoding", "utf-16").stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["fit", "sales.txt"],
        ["fit", "."],
        ["fit", "none.csv"],
        ["predict", "none.json", "sales.csv", "--out", "p.csv"],
        ["verify", "none.json"],
        ["fit"],
        ["nonsense"],
        ["certify", "--n-samples", "many", "--n-features", "3"],
        ["certify", "--n-samples", "0", "--n-features", "3"],
        ["certify", "--n-samples", "10", "--n-features", "3", "--task", "tea"],
        ["certify", "--n-samples", "10", "--n-features", "3", "--epsilon", "nan"],
        ["certify", "--n-samples", "10", "--n-features", "3", "--epsilon", "-1"],
        ["certify", "--n-samples", "10", "--n-features", "3", "--mechanism", "magic"],
        ["ledger", "init", "x.db", "--epsilon", "0"],
    ],
)
def test_usage(folder, arguments):
    if arguments[0] == "fit" and len(arguments) > 1:
        arguments = [*arguments, "--feature-bounds", "bounds.toml", "--out", "model.json"]
    result = folder.run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.output


def test_options_of_other_tasks_are_refused():
    from dpconvex.cli.task_options import build_task

    with pytest.raises(output_and_errors.InputError, match="quantile has no option --tilt"):
        build_task("quantile", {"tilt": 2.0})


def test_unexpected_errors_say_their_type_only(folder, monkeypatch):
    def broken(*_, **__):
        raise KeyError(SECRET)

    monkeypatch.setattr("dpconvex.cli.fit.read_training_file", broken)
    result = folder.fit()
    assert result.exit_code == 1
    assert "internal error (KeyError)" in result.stderr
    assert SECRET not in result.output
    monkeypatch.setenv(output_and_errors.DEBUG, "1")
    assert "Traceback" in folder.fit().stderr


def test_panics_of_compiled_readers_are_input_errors(folder, monkeypatch):
    class PanicException(BaseException):
        pass

    def panic(*_, **__):
        raise PanicException(SECRET)

    monkeypatch.setattr("polars.scan_parquet", panic)
    (folder / "sales.parquet").write_bytes(b"x")
    result = folder.run(
        "fit", "sales.parquet", "--feature-bounds", "bounds.toml", "--out", "model.json"
    )
    assert result.exit_code == 2
    assert SECRET not in result.output


UNREADABLE = {
    b"price,demand\n\xfc,1\n": "1 line has bytes that are not UTF-8: say --encoding",
    b"price,demand\n1,5,3\n": "1 line has more fields than the 2 of the header",
    b'price,demand\n1,"3\n2,"4\n': "2 lines have quotes that do not match",
}


@pytest.mark.parametrize("engine", ["memory", "dask"])
def test_reasons_for_unreadable_lines_follow_from_what_the_user_said(folder, engine):
    """And not from the rows: other bytes, decimal commas and open quotes have the same words."""
    schema = "[features]\nprice = [0, 9]\n[target]\ndemand = [0, 9]\n"
    texts = []
    for content in UNREADABLE:
        (folder / "bounds.toml").write_text(schema)
        (folder / "sales.csv").write_bytes(content)
        texts.append(folder.fit("--engine", engine).stderr)
    assert len(set(texts)) == 1
    for part in ("--encoding", "decimal commas", "that hold line breaks", "--invalid-rows ignore"):
        assert part in texts[0]
    (folder / "bounds.toml").write_text(f"{schema}[file]\ndelimiter = ';'\nencoding = 'cp1252'\n")
    (folder / "sales.csv").write_bytes(b"price;demand\n1;2;3\n")
    said = folder.fit("--engine", engine).stderr
    assert "CP1252" in said
    assert "decimal commas" not in said


@pytest.mark.parametrize("content", UNREADABLE)
def test_those_who_hold_the_rows_are_told_which_lines_cannot_be_read(folder, content):
    (folder / "sales.csv").write_bytes(content)
    (folder / "bounds.toml").write_text("[features]\nprice = [0, 9]\n[target]\ndemand = [0, 9]\n")
    for command in (
        ("bounds", "init", "sales.csv"),
        ("bounds", "check", "sales.csv", "--schema", "bounds.toml"),
    ):
        result = folder.run(*command)
        assert result.exit_code == 0
        assert UNREADABLE[content] in " ".join(result.output.split())


def test_decimal_commas_are_named_where_the_schema_has_points(folder):
    schema = "[features]\nprice = [0, 9]\n[target]\ndemand = [0, 9]\n"
    for row in ("1,5;2", "1;2,5"):
        (folder / "sales.csv").write_text(f"price;demand\n{row}\n")
        (folder / "bounds.toml").write_text(schema)
        result = folder.fit()
        assert result.exit_code == 2
        assert 'Commas need decimal = "," in [file]' in result.stderr
        (folder / "bounds.toml").write_text(schema + '[file]\ndecimal = ","\n')
        (folder / "sales.csv").write_text("price;demand\n1,5;x\n")
        assert "Commas need" not in folder.fit().stderr


def test_other_line_ends_and_open_quotes_of_a_header_are_named(folder):
    for content, part in (
        (b"price,demand\r1,2\r3,4\r", "end with LF or CRLF"),
        (b"price,demand\r1,2\r3,4\n", "end with LF or CRLF"),
        (b'price,"demand\n1,2\n', "quotes that end on it"),
        (b"\nprice,demand\n1,2\n", "but it is blank"),
        (b"pr\xefce,demand\n1,2\n", "say --encoding"),
        (b"", "'sales.csv' is empty"),
    ):
        (folder / "sales.csv").write_bytes(content)
        for result in (folder.fit(), folder.run("bounds", "init", "sales.csv")):
            assert result.exit_code == 2
            assert part in result.stderr
            assert ("encoding" in result.stderr) == ("encoding" in part)


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", "sales.csv", "--schema", "bounds.toml", "--out", "model.json", "--epsilon"),
        ("plan", "--rows", 10, "--features", 2, "--class-rate"),
        ("score", "model.json", "sales.csv", "--mu"),
        ("ledger", "init", "b.db", "--epsilon"),
    ],
)
def test_a_decimal_comma_is_shown_and_refused(folder, arguments):
    result = folder.run(*arguments, "0,3")
    assert result.exit_code == 2
    assert "'0,3' is no number. Use a point" in " ".join(result.stderr.split())


def test_fits_always_recommend_a_check(folder):
    said = " ".join(folder.fit().stdout.split())
    assert "`dpconvex bounds check` counts them, for your eyes only." in said


def test_numbers_of_columns_that_no_table_has_are_refused(folder):
    for command in (("certify", "--n-samples"), ("plan", "--rows")):
        result = folder.run(*command, 100, "--n-features", 99_999_999)
        assert result.exit_code == 2
        assert "from 1 to 1,048,576. Got 99999999 instead" in " ".join(result.stderr.split())


def test_a_model_with_a_long_format_of_dates_is_refused_unread(fitted, monkeypatch):
    """One of 20,000 signs stalled the command for 15 seconds."""
    read = []
    monkeypatch.setattr("dpconvex.inputs.schema_file._schema_format_reads_back", read.append)
    content = json.loads((fitted / "model.json").read_text())
    content["columns"]["dates"] = {"d": {"parts": ["month"], "format": "%d %m %Y" + " x" * 8000}}
    (fitted / "model.json").write_text(json.dumps(content))
    result = fitted.run("verify", "model.json")
    assert result.exit_code == 4
    assert not read
