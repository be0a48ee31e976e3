"""Tables as they come on the command line: packed, delimited, encoded; what predictions carry;
splits; interrupts.
"""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import polars as pl
import pytest
from command_line import sales_csv

from dpconvex.cli.bounds_split import split_by_index, split_by_value
from dpconvex.cli.output_and_errors import error_in_options
from dpconvex.inputs.cells import Cells

MESSY = """\
[features]
temperature = {bounds = [-20, 40], missing = "indicator", unit = "degree"}
price = {bounds = [0, 10], knots = [3, 6], missing = {value = 5}}

[categories]
city = {values = ["berlin", "paris"], other = true, missing = "indicator"}

[target]
demand = [0, 150]
"""
CLASSES = """\
[features]
temperature = [-20, 40]

[target]
city = {classes = ["berlin", "paris", "rome"]}
"""


def certificate(folder, *arguments):
    result = folder.run(
        "fit",
        *arguments,
        "--feature-bounds",
        "bounds.toml",
        "--out",
        "m.json",
        "--overwrite",
        "--json",
    )
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["certificate"]


def test_packed_delimited_and_marked_files_are_the_same_table(folder):
    text = (folder / "sales.csv").read_text()
    expected = certificate(folder, "sales.csv")
    (folder / "packed.csv.gz").write_bytes(gzip.compress(text.encode()))
    with zipfile.ZipFile(folder / "packed.zip", "w") as archive:
        archive.writestr("inner/sales.csv", text)
        archive.writestr("__MACOSX/sales.csv", "x")
    (folder / "tabs.tsv").write_text(text.replace(",", "\t"))
    (folder / "semicolons.csv").write_text(text.replace(",", ";"))
    (folder / "bars.csv").write_bytes(text.replace(",", "|").encode("utf-8-sig"))
    for name in ("packed.csv.gz", "packed.zip", "tabs.tsv", "semicolons.csv", "bars.csv"):
        assert certificate(folder, folder / name) == expected
    (folder / "odd.csv").write_text(text.replace(",", ":"))
    assert certificate(folder, "odd.csv", "--delimiter", ":") == expected
    (folder / "bounds.toml").write_text(
        (folder / "bounds.toml").read_text() + '[file]\ndelimiter = ";"\ndecimal = ","\n'
    )
    (folder / "german.csv").write_text(text.replace(",", ";").replace(".", ","))
    assert certificate(folder, "german.csv") == expected


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("bad.csv.gz", b"no", "cannot be unpacked"),
        ("bad.zip", b"no", "cannot be unpacked"),
        ("bad.parquet.gz", b"no", "must end with"),
        ("bad.gz", b"no", "must end with"),
        ("bad.txt", b"no", "must end with"),
    ],
)
def test_files_that_cannot_be_opened(folder, name, content, part):
    (folder / name).write_bytes(content)
    result = folder.run("fit", folder / name, "--feature-bounds", "bounds.toml", "--out", "m.json")
    assert result.exit_code == 2
    assert part in result.stderr
    with zipfile.ZipFile(folder / "two.zip", "w") as archive:
        archive.writestr("a.csv", "x")
        archive.writestr("b.csv", "x")
    result = folder.run("fit", folder / "two.zip", "--schema", "bounds.toml", "--out", "m.json")
    assert "must hold one" in result.stderr


def test_dask_says_what_it_cannot_read_in_pieces(folder):
    (folder / "sales.csv.gz").write_bytes(gzip.compress(sales_csv(20).encode()))
    packed = folder / "sales.csv.gz"
    result = folder.run(
        "fit", packed, "--schema", "bounds.toml", "--out", "m.json", "--engine", "dask"
    )
    assert result.exit_code == 2
    assert "Unpack it first" in result.stderr


def messy(folder):
    lines = sales_csv(300).splitlines()
    for row in range(1, 300, 5):
        cells = lines[row].split(",")
        cells[1 + row % 3] = ("", "NA", "oops")[row % 3]
        lines[row] = ",".join(cells)
    (folder / "messy.csv").write_text("\n".join(lines) + "\n")
    (folder / "messy.toml").write_text(MESSY)


def test_missing_values_follow_the_schema_from_fit_to_predict(folder):
    messy(folder)
    result = folder.run("fit", "messy.csv", "--schema", "messy.toml", "--out", "model.json")
    assert result.exit_code == 0, result.output
    for name in ("temperature is missing", "price@3", "city=(other)", "city=(missing)"):
        assert name in result.stdout
    arguments = ("predict", "model.json", "messy.csv", "--out", "p.csv")
    assert folder.run(*arguments).exit_code == 0
    assert pl.read_csv(folder / "p.csv")["prediction"].null_count() == 0
    certified = folder.run("certify", "--n-samples", 300, "--schema", "messy.toml", "--json").stdout
    assert json.loads(certified) == json.loads((folder / "model.json").read_text())["certificate"]


def test_rows_that_the_schema_calls_invalid_have_empty_predictions(fitted):
    messy(fitted)
    result = fitted.run("predict", "model.json", "messy.csv", "--out", "p.csv", "--json")
    assert result.exit_code == 0, result.output
    found = pl.read_csv(fitted / "p.csv")["prediction"]
    told = json.loads(result.stdout)
    assert told["rows"] == len(found) == 300
    assert told["empty"] == found.null_count() > 10
    refused = fitted.run("fit", "messy.csv", "--schema", "bounds.toml", "--out", "m.json")
    assert refused.exit_code == 2
    assert 'missing = "indicator"' in refused.stderr
    assert "oops" not in refused.stderr


def test_predictions_carry_ids_columns_scores_and_probabilities(folder):
    (folder / "bounds.toml").write_text(CLASSES)
    assert folder.fit("--task", "logistic").exit_code == 0
    predict = ("predict", "model.json", "sales.csv", "--out", "p.csv")
    assert folder.run(*predict, "--id", "day", "--id", "city").exit_code == 0
    table = pl.read_csv(folder / "p.csv")
    data = pl.read_csv(folder / "sales.csv")
    assert table.columns == ["day", "city", "prediction"]
    assert table["day"].to_list() == data["day"].to_list()
    keep = [word for name in data.columns for word in ("--id", name)]
    assert folder.run(*predict, *keep, "--id", "day").exit_code == 0
    named = (folder / "p.csv").read_text()
    assert folder.run(*predict, "--all-columns").exit_code == 0
    assert (folder / "p.csv").read_text() == named
    assert folder.run(*predict, "--all-columns", "--scores", "--probabilities").exit_code == 0
    table = pl.read_csv(folder / "p.csv")
    labels = ["berlin", "paris", "rome"]
    new = ["prediction", *(f"score={x}" for x in labels), *(f"probability={x}" for x in labels)]
    assert table.columns == [*data.columns, *new]
    shares = table.select(f"probability={x}" for x in labels).to_numpy()
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert [labels[i] for i in shares.argmax(axis=1)] == table["prediction"].to_list()
    (folder / "again.csv").write_text((folder / "p.csv").read_text())
    assert "no column 'none'" in folder.run(*predict, "--id", "none").stderr
    again = folder.run("predict", "model.json", "again.csv", "--out", "p.csv", "--id", "prediction")
    assert "have a column 'prediction' already" in again.stderr


def test_a_model_of_numbers_has_no_scores(fitted):
    for option in ("--scores", "--probabilities"):
        result = fitted.run("predict", "model.json", "sales.csv", "--out", "p.csv", option)
        assert result.exit_code == 2
        assert f"has nothing for {option}" in result.stderr


def test_classes_of_the_schema_are_those_of_the_model(folder):
    (folder / "bounds.toml").write_text(CLASSES)
    found = certificate(folder, "sales.csv", "--task", "logistic", "--invalid-rows", "ignore")
    assert found["parameters"]["label_set"] == "given"
    certified = folder.run(
        *("certify", "--task", "logistic", "--n-samples", 400, "--schema", "bounds.toml", "--json"),
        *("--invalid-rows", "ignore"),
    )
    assert json.loads(certified.stdout) == found
    assert "has classes" in folder.fit("--task", "quantile").stderr
    (folder / "bounds.toml").write_text(CLASSES + '[person]\ncolumn = "day"\n')
    assert "one person" in folder.fit("--task", "logistic").stdout


def test_split_keeps_every_row_once_whatever_rows_hold(folder):
    split = ("split", "sales.csv", "--train", "a.csv", "--test", "b.csv", "--seed", 7)
    assert folder.run(*split, "--share", 0.2).exit_code == 0
    train, test = (pl.read_csv(folder / name, infer_schema=False) for name in ("a.csv", "b.csv"))
    data = pl.read_csv(folder / "sales.csv", infer_schema=False)
    assert (train.height, test.height) == (320, 80)
    assert sorted(pl.concat([train, test]).rows()) == sorted(data.rows())
    days = test["day"].to_list()
    other = sales_csv(400, seed=1)  # the same places of other rows
    (folder / "sales.csv").write_text(other)
    assert folder.run(*split, "--share", 0.2).exit_code == 0
    assert pl.read_csv(folder / "b.csv", infer_schema=False)["day"].to_list() == days
    for more, part in (
        (("--share", 1.5), "between 0 and 1"),
        (("--by", "none"), "no column 'none'"),
    ):
        assert part in folder.run(*split, *more).stderr
    same = folder.run("split", "sales.csv", "--train", "a.csv", "--test", "a.csv", "--seed", 1)
    assert same.exit_code == 2


def test_what_reads_a_table_reads_the_parts_of_its_split(folder):
    text = "city;price\n" + "Kölln;1,5\n" * 8
    (folder / "german.csv").write_bytes(text.encode("latin-1"))
    run = folder.run(
        "split",
        "german.csv",
        "--train",
        "a.csv",
        "--test",
        "b.csv",
        "--seed",
        1,
        "--encoding",
        "latin-1",
    )
    assert run.exit_code == 0
    assert (folder / "b.csv").read_bytes() == ("city;price\n" + "Kölln;1,5\n" * 2).encode("latin-1")


TYPES = {
    "list": pl.Series([[1, 2]] * 8),
    "array": pl.Series([[1, 2]] * 8, dtype=pl.Array(pl.Int64, 2)),
    "struct": pl.Series([{"a": 1}] * 8),
    "duration": pl.Series(range(8), dtype=pl.Duration),
    "bytes": pl.Series([b"\xff"] * 8),
}


@pytest.mark.parametrize("kind", TYPES)
def test_what_no_csv_file_holds_is_refused_before_anything_is_written(folder, kind):
    pl.DataFrame({"day": range(8), "odd": TYPES[kind]}).write_parquet(folder / "t.parquet")
    split = ("split", "t.parquet", "--seed", 1, "--train")
    result = folder.run(*split, "a.parquet", "--test", "b.csv")
    assert result.exit_code == 2
    assert "a CSV file has no lists, structs, durations or bytes" in result.stderr
    assert not (folder / "a.parquet").exists()
    assert folder.run(*split, "a.parquet", "--test", "b.parquet").exit_code == 0
    assert pl.read_parquet(folder / "a.parquet").schema["odd"] == TYPES[kind].dtype


def test_a_split_by_whole_numbers_of_128_bits_is_that_by_others(folder):
    sides = []
    for kind in (pl.Int64, pl.Int128):
        days = pl.Series(range(40), dtype=kind)
        pl.DataFrame({"day": days}).write_parquet(folder / "t.parquet")
        paths = ("t.parquet", "--train", "a.csv", "--test", "b.csv")
        assert folder.run("split", *paths, "--seed", 1, "--by", "day").exit_code == 0
        sides.append((folder / "a.csv").read_text())
    assert sides[0] == sides[1]


def test_a_point_among_decimal_commas_sets_off_thousands_or_is_no_number():
    words = pl.Series(["1.234,5", "1,5", "12", "1.21", "1.234.567", "-,5", "1,5e3", "1,2,3", None])
    found = Cells(text=words).as_numbers(",")
    np.testing.assert_array_equal(
        found, [1234.5, 1.5, 12, np.nan, 1234567, -0.5, 1500, np.nan, np.nan]
    )


def test_decimal_commas_are_read_once_from_fit_to_score(folder):
    """What the schema has read already are numbers with points, and no text of the file."""
    rng = np.random.default_rng(0)
    cells = rng.uniform(0, 9, (300, 2)).round(3)
    rows = [f"{a};{b};{a + b:.3f}".replace(".", ",") for a, b in cells.tolist()]
    (folder / "german.csv").write_text("\n".join(["a;b;y", *rows, ""]))
    (folder / "s.toml").write_text(
        '[features]\na = [0, 9]\nb = [0, 9]\n[target]\ny = [0, 18]\n[file]\ndecimal = ","\n'
    )
    for engine in ("memory", "dask"):
        more = ("--out", "m.json", "--overwrite", "--epsilon", 50, "--engine", engine)
        run = folder.run("fit", "german.csv", "--schema", "s.toml", *more)
        assert run.exit_code == 0, run.output
    run = folder.run("predict", "m.json", "german.csv", "--out", "p.csv")
    assert run.exit_code == 0, run.output
    predicted = pl.read_csv(folder / "p.csv")["prediction"].to_numpy()
    assert np.abs(predicted - cells.sum(axis=1)).mean() < 1
    assert folder.run("score", "m.json", "german.csv").exit_code == 0


def test_a_delimiter_that_is_the_decimal_sign_is_refused_before_the_charge(folder):
    bounds = (folder / "bounds.toml").read_text() + '[file]\ndecimal = ","\n'
    (folder / "bounds.toml").write_text(bounds)
    run = folder.run(
        "fit", "sales.csv", "--schema", "bounds.toml", "--out", "m.json", "--delimiter", ","
    )
    assert run.exit_code == 2
    assert "decimal sign" in run.stderr


@pytest.mark.parametrize("odd", [",,,,", '1,2.0,3.0,"paris,50', "1,2.0,3.0,paris,50,6", '"'])
def test_a_row_that_cannot_be_read_has_an_empty_prediction(fitted, odd):
    (fitted / "new.csv").write_text(
        (fitted / "sales.csv").read_text().replace("\n", f"\n{odd}\n\n", 1)
    )
    run = fitted.run("predict", "model.json", "new.csv", "--out", "p.csv", "--json")
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout) | {"predictions": ""} == {
        "predictions": "",
        "rows": 401,
        "empty": 1,
    }
    assert pl.read_csv(fitted / "p.csv")["prediction"].is_null().arg_max() == 0


def test_a_split_says_which_lines_it_cannot_read(folder):
    with (folder / "sales.csv").open("a") as file:
        file.write('1,2.0,3.0,"par\nis",50\n')
    split = ("split", "sales.csv", "--train", "a.csv", "--test", "b.csv", "--seed", 7)
    result = folder.run(*split)
    assert result.exit_code == 2
    assert "fields that hold line breaks as Parquet" in result.stderr
    assert 'is"' not in result.stderr


def test_a_split_by_a_column_moves_no_other_record():
    people = pl.Series([f"p{number % 700}" for number in range(5000)])
    chosen = split_by_value(people, seed=3, share=0.3)
    sides = {}
    for person, side in zip(people, chosen, strict=True):
        assert sides.setdefault(person, side) == side
    assert 0.2 < np.mean(list(sides.values())) < 0.4
    np.testing.assert_array_equal(split_by_value(people[1:], 3, 0.3), chosen[1:])
    assert not np.array_equal(split_by_value(people, 4, 0.3), chosen)
    assert split_by_index(10, 0, 0.001).sum() == 1
    assert split_by_index(2, 0, 0.999).sum() == 1


def test_templates_sort_columns_and_offer_no_ranges_for_codes_and_classes(folder):
    rows = "".join(
        f"{k % 2},{k % 4},{k / 7},2024-01-{k % 28 + 1:02d},w{k},{k % 2}\n" for k in range(60)
    )
    (folder / "t.csv").write_text("smoker,season,height,when,name,ill\n" + rows)
    text = folder.run("bounds", "init", "t.csv", "--target", "ill").stdout
    lines = text.splitlines()
    place = {line.split(" ")[1]: number for number, line in enumerate(lines) if " = " in line}
    tables = {line: number for number, line in enumerate(lines) if line.startswith("[")}
    assert tables["[features]"] < place["height"] < tables["[flags]"] < place["smoker"]
    assert tables["[categories]"] < place["season"] < tables["[dates]"] < place["when"]
    assert '# ill = {classes = ["no", "yes"]}' in lines
    assert "every value of the file was read" in text
    for name in ("ill", "season", "smoker"):
        assert "low" not in lines[place[name]]


def test_templates_see_decimal_commas_and_other_dates(folder):
    rows = "".join(f"{k},5;{k % 28 + 1}.2.2024\n" for k in range(30))
    (folder / "t.csv").write_text("height;when\n" + rows)
    text = folder.run("bounds", "init", "t.csv").stdout
    assert 'decimal = ","' in text
    assert '# when = {format = "%d.%m.%Y", parts = ' in text
    assert text.index("# height = ") < text.index("[flags]")


def test_templates_know_identifiers_and_times(folder):
    rows = "".join(
        f"{k:06d};{7000 + 13 * k};0{k % 9}067;{1000 + 13 * (k % 90)};{k % 28 + 1:02d}.02.2024 "
        f"{k % 24:02d}:00\n"
        for k in range(100)
    )
    (folder / "t.csv").write_text("case;account;postcode;income;when\n" + rows)
    text = folder.run("bounds", "init", "t.csv", "--target", "account").stdout
    assert text.index("# postcode = {values") < text.index("identifiers") < text.index("# case\n")
    assert '# when = {format = "%d.%m.%Y %H:%M", parts = ' in text
    assert "# income = [low, high]" in text
    assert "# account = [low, high]" in text  # a target of amounts, as nobody learns identifiers
    assert "# account\n" in folder.run("bounds", "init", "t.csv").stdout
    filled = text.replace("# income", "income").replace("# when", "when")
    (folder / "t.toml").write_text(filled)
    result = folder.run("certify", "--rows", 100, "--schema", "t.toml")
    assert result.exit_code == 2
    assert "Write numbers in place of low and high." in result.stderr
    (folder / "t.toml").write_text(filled.replace("[low, high]", "[0, 5000]"))
    found = json.loads(
        folder.run("bounds", "check", "t.csv", "--schema", "t.toml", "--json").stdout
    )
    assert found["invalid"] == 0
    (folder / "t.toml").write_text("[features]\nincome = [0, 1\n# account = [low, high]\n")
    assert "in place of" not in folder.run("certify", "--rows", 9, "--schema", "t.toml").stderr


def test_plans_know_schemas_and_class_rates(folder):
    plan = ("plan", "--rows", 20_000, "--json")
    by_schema = json.loads(folder.run(*plan, "--schema", "bounds.toml").stdout)
    by_hand = json.loads(folder.run(*plan, "--features", 4, "--row-norm", 3**0.5).stdout)
    assert by_schema == by_hand
    assert "either --features or --feature-bounds" in folder.run(*plan).stderr
    (folder / "classes.toml").write_text(CLASSES)
    of_classes = (*plan, "--schema", "classes.toml")
    assert json.loads(folder.run(*of_classes).stdout)["task"] == "logistic"
    assert "[target] has classes" in folder.run(*of_classes, "--task", "quantile").stderr
    logistic = (*plan, "--task", "logistic", "--features", 4)
    usual = json.loads(folder.run(*logistic).stdout)["forecasts"]
    rare = json.loads(folder.run(*logistic, "--class-rate", 0.02).stdout)["forecasts"]
    assert usual != rare
    assert (
        "no option --class-rate" in folder.run(*plan, "--features", 4, "--class-rate", 0.1).stderr
    )


def test_plans_and_certificates_follow_the_person_and_target_of_a_schema(folder):
    """A promise to people, and a budget that three classes share, cost what they cost."""
    plan = ("plan", "--rows", 20_000, "--json", "--schema", "s.toml")
    columns = "[features]\nprice = [0, 10]\n"
    person = '[person]\ncolumn = "day"\n'
    numbers = "[target]\ndemand = [0, 150]\n"

    def planned(schema, *more):
        (folder / "s.toml").write_text(columns + schema)
        return json.loads(folder.run(*plan, *more).stdout)

    def risk(found, mechanism):
        return next(f["excess_risk"] for f in found["forecasts"] if f["mechanism"] == mechanism)

    rows = planned(numbers)
    people = planned(numbers + person)
    assert (rows["unit"], people["unit"]) == ("one record", "one person")
    assert risk(people, "objective") > 1.001 * risk(rows, "objective")
    assert risk(people, "gradient") == pytest.approx(risk(rows, "gradient"), rel=0.01)
    classes = [f"[target]\nc = {{classes = {list(names)}}}\n" for names in ("ab", "abc")]
    two, three = map(planned, classes)
    for mechanism in ("gradient", "objective", "output"):
        assert risk(three, mechanism) > 1.2 * risk(two, mechanism)
    assert three["without_privacy"] == two["without_privacy"]
    (folder / "s.toml").write_text(columns + numbers)
    refused = folder.run(*plan, "--task", "logistic")
    assert refused.exit_code == 2
    assert "[target] has a range" in refused.stderr
    certify = ("certify", "--rows", 200, "--json", "--schema", "s.toml")
    assert json.loads(folder.run(*certify).stdout)["unit"] == "one record"
    fitted = folder.run(
        "fit", "sales.csv", "--schema", "s.toml", "--person", "city", "--out", "m.json", "--json"
    )
    certified = folder.run(*certify[:2], 3, *certify[3:], "--person", "city")
    assert json.loads(fitted.stdout)["certificate"] == json.loads(certified.stdout)
    (folder / "s.toml").write_text(columns + numbers + person)
    assert json.loads(folder.run(*certify).stdout)["unit"] == "one person"


def test_messages_speak_of_options(folder):
    result = folder.run(
        "certify", "--n-samples", 9, "--n-features", 2, "--neighbors", "add_or_remove_one"
    )
    assert (
        "--nominal-samples must be a positive integer with --neighbors add_or_remove_one"
        in result.stderr
    )
    text = (
        "The 'classes' parameter of DPLinearSVC must be given. Write classes=[0, 1] with x=3, "
        "delta=0."
    )
    told = "The option --classes must be given. Write --classes 0,1 with x=3, --delta 0."
    assert error_in_options(text) == told
    assert error_in_options("with fit_intercept=False, inference=True: label_private=False.") == (
        "with --no-fit-intercept, --inference: --no-label-private."
    )
    assert error_in_options("not ApproxDP(epsilon=2.0, delta=1e-06): mu=1.") == (
        "not epsilon 2.0 and delta 1e-06: --mu 1."
    )


@pytest.mark.parametrize("moment", ["loading", "working"])
def test_an_interrupt_is_one_line(moment, tmp_path):
    (tmp_path / "run.py").write_text(
        "import sys, types\n"
        + (
            "class Slow:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        if name == 'dpconvex.cli':\n"
            "            print('ready', flush=True)\n"
            "            import time; time.sleep(60)\n"
            "sys.meta_path.insert(0, Slow())\n"
            if moment == "loading"
            else "import dpconvex.cli.audit as a\n"
            "import dpconvex.cli.demo_reproduce\n"
            "import dpconvex.inputs.schema as s, time\n"
            "import dpconvex.cli.task_options as f\n"
            "def slow(path):\n"
            "    print('ready', flush=True)\n"
            "    time.sleep(60)\n"
            "f.read_schema = slow\n"
            "sys.argv = ['dpconvex', 'certify', '--n-samples', '9', '--schema', 'x.toml']\n"
        )
        + "from dpconvex.__main__ import main\nmain()\n"
    )
    process = subprocess.Popen(
        [sys.executable, tmp_path / "run.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told.startswith("interrupted")
    assert told.count("\n") == 1


def test_predictions_of_several_levels_have_a_column_each(folder):
    assert folder.fit("--quantile", "0.1,0.5,0.9").exit_code == 0
    result = folder.run("predict", "model.json", "sales.csv", "--out", "p.csv")
    assert result.exit_code == 0, result.output
    found = pl.read_csv(folder / "p.csv")
    assert found.columns == ["prediction=0.1", "prediction=0.5", "prediction=0.9"]
    assert (np.diff(found.to_numpy(), axis=1) >= 0).all()


def test_a_formula_picks_columns_of_the_schema(folder):
    (folder / "bounds.toml").write_text(
        '[features]\nprice = [0, 10]\ndemand = [1, 150]\n[categories]\ncity = ["berlin", "paris"]\n'
    )
    formula = "log(demand) ~ I(price ** 2) + C(city)"
    result = folder.run(
        "fit",
        "sales.csv",
        "--schema",
        "bounds.toml",
        "--formula",
        formula,
        "--out",
        "f.json",
        "--task",
        "linear",
        "--json",
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["feature_names"] == ["I(price ** 2)", "city=paris"]
    asked = (
        "--schema",
        "bounds.toml",
        "--formula",
        formula,
        "--task",
        "linear",
        "--rows",
        300,
        "--json",
    )
    assert json.loads(folder.run("certify", *asked).stdout)["bounds"]["n_features"] == 2
    assert folder.run("predict", "f.json", "sales.csv", "--out", "p.csv").exit_code == 0
    assert pl.read_csv(folder / "p.csv")["prediction"].abs().max() < 10  # logarithms
    refused = folder.run(
        "fit",
        "sales.csv",
        "--schema",
        "bounds.toml",
        "--formula",
        "demand ~ bs(price)",
        "--out",
        "g.json",
    )
    assert refused.exit_code == 2
    assert "A formula may have" in refused.stderr
    for formula in ("demand ~ price - 1", "demand ~ 0 + price"):
        through = ("--schema", "bounds.toml", "--formula", formula, "--rows", 300)
        advice = folder.run("certify", *through).stderr
        assert "--no-fit-intercept" in advice
        assert "False" not in advice
    assert folder.run("certify", *asked, "--no-fit-intercept").exit_code == 0


def test_templates_tell_thousands_from_decimals(folder):
    """Read with a decimal comma, 4,373 is a thousandth of what it is: nobody would notice."""
    rows = "".join(f"{1000 + 371 * k:,};{k};{k}.5\n" for k in range(90))
    (folder / "t.csv").write_text("income;age;height\n" + rows)
    text = folder.run("bounds", "init", "t.csv", "--target", "age").stdout
    assert 'decimal = "1,234.5"' in text
    (folder / "t.toml").write_text(
        "[features]\nincome = [0, 100000]\nheight = [0, 100]\n[target]\nage = [0, 99]\n"
    )
    checked = json.loads(
        folder.run("bounds", "check", "t.csv", "--schema", "t.toml", "--json").stdout
    )
    assert '"1,234.5"' in checked["columns"][0]["hint"]
    (folder / "t.toml").write_text(
        '[file]\ndecimal = "1,234.5"\n' + (folder / "t.toml").read_text()
    )
    assert (
        json.loads(folder.run("bounds", "check", "t.csv", "--schema", "t.toml", "--json").stdout)[
            "invalid"
        ]
        == 0
    )
