"""Every command does what it says, with its exit code."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib

import numpy as np
import polars as pl
import pytest
from command_line import COMMAND

import dpconvex
from dpconvex.cli.task_options import OPTIONS, TASKS
from dpconvex.privacy import Certificate, Ledger, PureDP


def test_fit_writes_a_model_that_loads_and_says_what_it_guarantees(folder):
    result = folder.fit("--quantile", 0.9, "--epsilon", 2, "--delta", 1e-7)
    assert result.exit_code == 0, result.output
    assert "epsilon = 2, delta = 1e-07" in result.stdout
    assert "city=paris" in result.stdout
    model = dpconvex.load_model(folder / "model.json")
    assert model.quantile == 0.9
    assert list(model.feature_names_in_) == ["temperature", "price", "city=berlin", "city=paris"]
    assert model.certificate_.bounds.n_samples == 400


def test_json_of_fit_is_alone_on_stdout_and_its_certificate_verifies(folder):
    result = folder.fit("--json")
    content = json.loads(result.stdout)
    Certificate.from_json(json.dumps(content["certificate"])).verify()
    saved = json.loads((folder / "model.json").read_text())
    assert saved["coef"] == content["coef"]
    assert len(content["coef"]) == len(content["feature_names"]) == 4


def test_certify_without_data_equals_the_certificate_of_the_fit(folder):
    options = ("--quantile", 0.8, "--epsilon", 0.5, "--kernel", "gaussian")
    assert folder.fit(*options).exit_code == 0
    certified = folder.run(
        *("certify", "--n-samples", 400, "--feature-bounds", "bounds.toml", "--json", *options)
    )
    fitted = dpconvex.load_model(folder / "model.json").certificate_
    assert certified.stdout.strip() == fitted.to_json()


@pytest.mark.parametrize("task", ["poisson", "gamma", "tweedie"])
def test_rates(folder, task):
    options = ("--task", task, "--epsilon", 2, "--rate-bounds", "0.5,200")
    options = (*options, *(("--power", 1.2) if task == "tweedie" else ()))
    result = folder.fit(*options, "--report", "report.html")
    assert result.exit_code == 0, result.output
    model = dpconvex.load_model(folder / "model.json")
    public = ("--n-samples", 400, "--feature-bounds", "bounds.toml")
    certified = folder.run("certify", *public, "--json", *options)
    assert certified.stdout.strip() == model.certificate_.to_json()
    planned = folder.run("plan", "--rows", 20_000, "--features", 5, "--task", task)
    assert "deviance" in planned.stdout
    predicted = folder.run("predict", "model.json", "sales.csv", "--out", "predicted.csv")
    assert predicted.exit_code == 0, predicted.output
    assert (pl.read_csv(folder / "predicted.csv")["prediction"] > 0).all()


def test_several_levels_in_one_fit(folder):
    options = ("--quantile", "0.1,0.5,0.9", "--epsilon", 2)
    result = folder.fit(*options, "--report", "report.html")
    assert result.exit_code == 0, result.output
    assert "quantile 0.9" in result.stdout
    model = dpconvex.load_model(folder / "model.json")
    assert model.coef_.shape == (3, 4)
    assert model.certificate_.parameters["quantile"] == [0.1, 0.5, 0.9]
    public = ("--n-samples", 400, "--feature-bounds", "bounds.toml")
    certified = folder.run("certify", *public, "--json", *options)
    assert certified.stdout.strip() == model.certificate_.to_json()
    planned = folder.run("plan", "--rows", 20_000, "--features", 5, *options)
    assert planned.exit_code == 0
    assert "gradient" in planned.stdout
    result = folder.fit("--quantile", "0.1;0.9")
    assert result.exit_code == 2
    assert "--quantile 0.1,0.5,0.9" in result.stderr


def test_certify_by_number_of_features(folder):
    result = folder.run("certify", "--n-samples", 1000, "--n-features", 3, "--delta", 0)
    assert result.exit_code == 0
    assert "pure differential privacy" in result.stdout
    for arguments in ([], ["--n-features", 3, "--feature-bounds", "bounds.toml"]):
        result = folder.run("certify", "--n-samples", 1000, *arguments)
        assert result.exit_code == 2
        assert "either --n-features or --feature-bounds" in result.stderr


def test_parquet_gives_the_same_rows_as_csv(fitted):
    pl.read_csv(fitted / "sales.csv").write_parquet(fitted / "sales.parquet")
    assert fitted.run("predict", "model.json", "sales.csv", "--out", "a.csv").exit_code == 0
    assert fitted.run("predict", "model.json", "sales.parquet", "--out", "b.parquet").exit_code == 0
    first = pl.read_csv(fitted / "a.csv")
    second = pl.read_parquet(fitted / "b.parquet")
    assert first.columns == ["prediction"]
    assert np.array_equal(first.to_numpy(), second.to_numpy())


def test_predictions_follow_from_the_published_coefficients(fitted):
    result = fitted.run("predict", "model.json", "sales.csv", "--out", "p.csv", "--json")
    assert json.loads(result.stdout)["rows"] == 400
    model = dpconvex.load_model(fitted / "model.json")
    table = pl.read_csv(fitted / "sales.csv")
    rows = np.column_stack(
        [table["temperature"], table["price"], table["city"] == "berlin", table["city"] == "paris"]
    )
    found = pl.read_csv(fitted / "p.csv")["prediction"].to_numpy()
    np.testing.assert_allclose(found, rows @ model.coef_ + model.intercept_, rtol=1e-12)


def test_columns_are_found_by_name_whatever_their_order(fitted):
    table = pl.read_csv(fitted / "sales.csv")
    table.select("city", "price", "temperature").write_csv(fitted / "other.csv")
    fitted.run("predict", "model.json", "sales.csv", "--out", "a.csv")
    fitted.run("predict", "model.json", "other.csv", "--out", "b.csv")
    assert (fitted / "a.csv").read_text() == (fitted / "b.csv").read_text()


def test_verify_takes_models_and_certificates(fitted):
    result = fitted.run("verify", "model.json")
    assert result.exit_code == 0
    assert "Verified: the guarantee of this model" in result.stdout
    certificate = fitted.run("certify", "--n-samples", 50, "--n-features", 2, "--json").stdout
    (fitted / "certificate.json").write_text(certificate)
    result = fitted.run("verify", "certificate.json", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["kind"] == "certificate"


@pytest.mark.parametrize("as_json", [False, True])
def test_verify_refuses_too_little_noise(fitted, as_json):
    content = json.loads((fitted / "model.json").read_text())
    next(iter(content["certificate"]["noise"].values()))["scale"] *= 0.99
    (fitted / "model.json").write_text(json.dumps(content))
    result = fitted.run("verify", "model.json", *(["--json"] if as_json else []))
    assert result.exit_code == 4
    assert "noise does not suffice" in (result.stdout if as_json else result.stderr)
    assert fitted.run("predict", "model.json", "sales.csv", "--out", "p.csv").exit_code == 4


def test_seeded_models_are_called_what_they_are(folder):
    model = dpconvex.DPQuantileRegressor(feature_bounds=(0, 1), random_state=0)
    dpconvex.save_model(model.fit(np.eye(20), np.ones(20)), folder / "seeded.json")
    result = folder.run("verify", "seeded.json")
    assert result.exit_code == 0
    assert "protects nobody" in result.stdout
    result = folder.run("predict", "seeded.json", "sales.csv", "--out", "p.csv")
    assert result.exit_code == 2  # saved from Python: it knows no columns of a table
    assert "load_model" in result.stderr


def test_bounds_init_shows_names_and_types_only(folder):
    text = folder.run("bounds", "init", "sales.csv", "--target", "demand").stdout
    tables = ("features", "flags", "categories", "dates", "target")
    assert tomllib.loads(text) == {table: {} for table in tables}
    for line in (
        "# temperature = [low, high]",
        "# demand = [low, high]",
        '# city = {values = ["a", "b"], other = true}',
    ):
        assert line in text.splitlines()
    values = {
        word
        for row in (folder / "sales.csv").read_text().splitlines()[1:]
        for word in row.split(",")
    }
    assert not values & set(text.replace(",", " ").split())
    content = json.loads(folder.run("bounds", "init", "sales.csv", "--json").stdout)
    assert {"name": "city", "type": "text"} in content["columns"]


def test_bounds_init_keeps_a_file_that_exists_and_its_template_must_be_filled(folder):
    assert folder.run("bounds", "init", "sales.csv", "--out", "bounds.toml").exit_code == 2
    assert folder.run("bounds", "init", "sales.csv", "--out", "new.toml").exit_code == 0
    result = folder.run("certify", "--n-samples", 10, "--feature-bounds", "new.toml")
    assert result.exit_code == 2
    assert "at least one column" in result.stderr


def test_bounds_init_on_parquet_reads_the_schema(folder):
    table = pl.DataFrame({"a": [1, 2], "ok": [True, False], "name of it": ["u", "v"]})
    table.write_parquet(folder / "t.parquet")
    text = folder.run("bounds", "init", "t.parquet").stdout
    assert "[flags]\n# ok = {}" in text
    assert '# "name of it" = {values = ["a", "b"], other = true}' in text


def test_ledger_is_charged_and_refuses_with_its_own_exit_code(folder):
    assert folder.run("ledger", "init", "b.db", "--epsilon", 0.7, "--delta", 1e-5).exit_code == 0
    assert folder.fit("--ledger", "b.db", "--epsilon", 0.6).exit_code == 0
    before = (folder / "model.json").read_text()
    result = folder.fit("--ledger", "b.db", "--epsilon", 0.6)
    assert result.exit_code == 3
    assert "does not allow" in result.stderr
    assert (folder / "model.json").read_text() == before
    shown = json.loads(folder.run("ledger", "show", "b.db", "--json").stdout)
    assert [entry["guarantee"]["epsilon"] for entry in shown["entries"]] == [0.6]
    assert 0 < shown["remaining"]["mu"] < shown["entries"][0]["mu"]
    assert "DPQuantileRegressor.fit" in folder.run("ledger", "show", "b.db").stdout


def test_a_budget_in_mu_or_of_sums(folder):
    result = folder.run("ledger", "init", "b.db", "--mu", 0.2)
    assert result.exit_code == 0
    assert "mu 0.2" in result.stdout
    assert folder.fit("--ledger", "b.db", "--epsilon", 0.6).exit_code == 0
    assert folder.fit("--ledger", "b.db", "--epsilon", 0.6).exit_code == 3
    sums = ("--dataset", "other", "--epsilon", 1, "--delta", 1e-5, "--composition", "sums")
    assert folder.run("ledger", "init", "b.db", *sums).exit_code == 0
    assert folder.fit("--ledger", "b.db", *sums[:2], "--epsilon", 0.6).exit_code == 0
    shown = json.loads(folder.run("ledger", "show", "b.db", *sums[:2], "--json").stdout)
    assert shown["remaining"]["epsilon"] == pytest.approx(0.4)
    assert folder.run("ledger", "init", "c.db").exit_code == 2
    assert folder.run("ledger", "init", "c.db", "--mu", 1, "--epsilon", 1).exit_code == 2


def commands(group, name=()):
    """Yield every command with its full name."""
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*name, word))
        else:
            yield (*name, word), command


def test_every_command_prints_json_on_request():
    """That of the papers is parsed by the distribution that has it."""
    own = {name: command for name, command in commands(COMMAND) if name != ("reproduce",)}
    without = [
        name
        for name, command in own.items()
        if not any("--json" in parameter.opts for parameter in command.params)
    ]
    assert len(own) > 12
    assert without == []


def test_the_head_of_a_ledger_is_json_on_request(folder):
    folder.run("ledger", "init", "b.db", "--epsilon", 2)
    plain = folder.run("ledger", "head", "b.db").stdout.strip()
    assert json.loads(folder.run("ledger", "head", "b.db", "--json").stdout) == {"head": plain}


def test_a_ledger_is_checked_against_a_head_kept_elsewhere(folder):
    folder.run("ledger", "init", "b.db", "--epsilon", 2, "--delta", 1e-5)
    older = (folder / "b.db").read_bytes()
    first = folder.run("ledger", "head", "b.db").stdout.strip()
    assert folder.fit("--ledger", "b.db").exit_code == 0
    newest = folder.run("ledger", "head", "b.db").stdout.strip()
    assert newest.startswith("2-")
    result = folder.run("ledger", "check", "b.db", "--head", first)
    assert result.exit_code == 0
    assert newest in result.stdout
    (folder / "b.db").write_bytes(older)
    assert folder.run("ledger", "check", "b.db").exit_code == 0
    result = folder.run("ledger", "check", "b.db", "--head", newest)
    assert result.exit_code == 2
    assert "older ledger" in result.stderr
    assert folder.run("ledger", "check", "b.db", "--head", "2").exit_code == 2
    assert folder.run("ledger", "check", "none.db").exit_code == 2


def test_input_is_checked_before_the_ledger_is_charged(folder):
    folder.run("ledger", "init", "b.db", "--epsilon", 1)
    text = (folder / "sales.csv").read_text()
    (folder / "sales.csv").write_text(text + "9,,1.0,rome,3.0\n")
    assert folder.fit("--ledger", "b.db").exit_code == 2
    (folder / "sales.csv").write_text(text)
    assert folder.fit("--ledger", "b.db", "--quantile", 1.5).exit_code == 2
    assert folder.fit("--ledger", "b.db", "--out", "nowhere/model.json").exit_code == 2
    assert json.loads(folder.run("ledger", "show", "b.db", "--json").stdout)["entries"] == []


def test_ledger_that_is_missing_or_damaged(folder):
    result = folder.fit("--ledger", "none.db")
    assert result.exit_code == 2
    assert "dpconvex ledger init" in result.stderr
    (folder / "bad.db").write_text("no ledger")
    result = folder.run("ledger", "show", "bad.db")
    assert result.exit_code == 2
    assert "not an intact ledger" in result.stderr


def test_demo_prints_a_certificate_that_verifies_and_small_costs(folder):
    content = json.loads(folder.run("demo", "--json").stdout)
    Certificate.from_json(json.dumps(content["certificate"])).verify()
    costs = [row["excess"] for row in content["costs"]]
    assert costs[0] == 0.0
    assert min(costs) >= 0.0  # nobody beats the best possible
    # Excess is about a multiple of chi-square with 5 degrees of freedom, of mean below 6 % and
    # 0.05 % at epsilon 0.25 and 4 for every mechanism: 15 times the mean has probability below
    # 1e-13. Coefficients in wrong units would exceed it.
    assert costs[1] < 0.001
    assert costs[2] < 0.9
    assert costs[4] < 0.0075
    text = folder.run("demo").stdout
    assert "cost of privacy" in text
    assert "epsilon = 0.25" in text


def test_the_package_runs_as_a_module():
    command = [sys.executable, "-m", "dpconvex", "certify", "--n-samples", "9", "--n-features", "1"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0
    assert "guarantee" in run.stdout
    assert run.stderr == ""


def test_every_option_belongs_to_a_task_and_is_explained(folder):
    text = folder.run("fit", "--help").stdout
    for name in OPTIONS:
        assert any(name in task.parameters for task in TASKS.values())
        assert "--" + name.replace("_", "-") in text


@pytest.mark.parametrize("task", TASKS)
def test_every_task_fits_verifies_and_predicts(folder, task):
    target = ()
    if TASKS[task].labels:
        table = pl.read_csv(folder / "sales.csv")
        label = pl.when(pl.col("demand") > 50).then(pl.lit("busy")).otherwise(pl.lit("quiet"))
        table.with_columns(label.alias("kind")).write_csv(folder / "sales.csv")
        bounds = (folder / "bounds.toml").read_text().replace("[target]\ndemand = [0, 150]\n", "")
        (folder / "bounds.toml").write_text(bounds)
        target = ("--target", "kind")
    if task == "hazard":  # times with a column of events
        pl.read_csv(folder / "sales.csv").with_columns(seen=pl.lit(1)).write_csv(
            folder / "sales.csv"
        )
        bounds = (
            (folder / "bounds.toml")
            .read_text()
            .replace("demand = [0, 150]", 'demand = {event = "seen"}')
        )
        (folder / "bounds.toml").write_text(bounds)
        target = ("--horizons", "20,40,80")
    if task == "ordinal":  # words have no order of their own
        assert "levels in their order" in folder.fit("--task", task, *target).stderr
        target = (*target, "--classes", "quiet,busy")
    result = folder.fit("--task", task, *target)
    assert result.exit_code == 0, result.output
    assert folder.run("verify", "model.json").exit_code == 0
    assert folder.run("predict", "model.json", "sales.csv", "--out", "p.csv").exit_code == 0
    assert pl.read_csv(folder / "p.csv").height == 400


def test_intervals_are_printed_and_too_few_rows_are_refused_before_anything_is_charged(folder):
    ledger = ("--ledger", "privacy.db")
    assert folder.run("ledger", "init", "privacy.db", "--mu", 5).exit_code == 0
    refused = folder.fit("--inference", "--epsilon", 0.1, *ledger)
    assert refused.exit_code == 2
    assert "Intervals are not available" in refused.stderr
    result = folder.fit("--inference", "--mu", 4, *ledger, "--json", "--report", "report.html")
    assert result.exit_code == 0, result.output
    found = dpconvex.load_model(folder / "model.json").confidence_interval()
    assert np.array_equal(json.loads(result.stdout)["interval"], found)
    assert "95 % interval" in (folder / "report.html").read_text()
    assert (
        "has no option --inference"
        in folder.fit("--task", "svm", "--classes", "0,1", "--inference").stderr
    )


def test_newsvendor_takes_costs_and_no_quantile(folder):
    costs = ("--task", "newsvendor", "--underage-cost", 3, "--overage-cost", 1)
    assert folder.fit(*costs).exit_code == 0
    assert dpconvex.load_model(folder / "model.json").service_level == 0.75
    result = folder.fit(*costs, "--quantile", 0.5)
    assert result.exit_code == 2
    assert "The task newsvendor has no option --quantile" in result.stderr


def test_add_or_remove_one_shows_the_nominal_number_of_rows_only(folder):
    options = ("--neighbors", "add_or_remove_one", "--nominal-samples", 1000)
    result = folder.fit(*options)
    assert result.exit_code == 0, result.output
    assert "400 rows" not in result.output
    assert "1,000 rows" in result.output
    assert folder.run("verify", "model.json").exit_code == 0


# Signs that clear a screen, start a command in one sign, turn writing round, or are no text at all.
COMMANDS_TO_TERMINALS = "\x1b[2J\x1b]0;owned\x07 \x9b31m \u202e \x7f \r"


def test_nothing_from_a_file_commands_the_terminal(folder, capfd):
    """`ledger show` passed on escape sequences of a description, with which a terminal can be
    made to lie.
    """
    ledger = Ledger(folder / "b.db", epsilon=5.0)
    ledger.charge(PureDP(0.1), description=COMMANDS_TO_TERMINALS, mechanism=COMMANDS_TO_TERMINALS)
    toml = (folder / "bounds.toml").read_text()
    city = json.dumps(f"city {COMMANDS_TO_TERMINALS}").replace("\x7f", "\\u007f")
    (folder / "bounds.toml").write_text(toml.replace('"paris"', city), encoding="utf-8")
    odd = f"out{COMMANDS_TO_TERMINALS}.json"
    for arguments in (
        ("ledger", "show", "b.db"),
        ("ledger", "show", "b.db", "--json"),
        ("fit", "sales.csv", "--feature-bounds", "bounds.toml", "--out", odd, "--ledger", "b.db"),
        ("report", odd, "--out", f"{odd}.html"),
        ("verify", odd),
        ("bounds", "check", "sales.csv", "--schema", "bounds.toml"),
        ("bounds", "init", "sales.csv"),
        ("ledger", "show", "b.db", "--dataset", COMMANDS_TO_TERMINALS),
    ):
        result = folder.run(*arguments)
        shown = capfd.readouterr()
        text = result.output + shown.out + shown.err
        wrong = {sign for sign in text if not sign.isprintable() and sign != "\n"}
        assert not wrong, (arguments, wrong)
        assert result.exit_code == 0 or "--dataset" in arguments, result.output
        assert "1b[2J" in text or arguments[0] in ("verify", "bounds") or result.exit_code, text
