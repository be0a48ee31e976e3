"""Outputs never replace inputs; names of options and the order of lines are the same in all
commands.
"""

from __future__ import annotations

import errno
import json
import os
import re

import pytest

from dpconvex import load_model, save_model


@pytest.fixture
def ready(folder):
    assert folder.run("ledger", "init", "b.db", "--epsilon", 1).exit_code == 0
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.path.iterdir() if path.is_file()}


@pytest.mark.parametrize(
    "outputs",
    [
        ("--out", "sales.csv"),
        ("--out", "bounds.toml"),
        ("--out", "b.db"),
        ("--out", "b.db-journal"),
        ("--out", "release.toml", "--release", "release.toml"),
        ("--out", "other.db", "--overwrite"),
        ("--out", "notes.json", "--overwrite"),
        ("--out", "model.json", "--report", "other.db"),
        ("--out", "model.json", "--report", "paid.json"),
        ("--out", "model.json", "--registry", "paid.json"),
        ("--out", "link.json"),
        ("--out", "hard.json"),
        ("--out", "model.json", "--report", "model.json"),
        ("--out", "model.json", "--report", "sales.csv"),
        ("--out", "model.json", "--report", "bounds.toml"),
        ("--out", "model.json", "--report", "b.db"),
    ],
)
def test_fit_does_not_write_over_its_inputs(ready, outputs):
    (ready / "link.json").symlink_to(ready / "sales.csv")
    os.link(ready / "bounds.toml", ready / "hard.json")
    (ready / "release.toml").write_text('name = "weather"')
    (ready / "notes.json").write_text('{"format": "mine"}')
    (ready / "paid.json").write_text('{"certificate": {}, "format": "dpconvex-model-1"}')
    assert ready.run("ledger", "init", "other.db", "--epsilon", 1).exit_code == 0
    before = contents(ready)
    paths = [str(ready / word) if "." in word else word for word in outputs]
    result = ready.run(
        *("fit", "sales.csv", "--feature-bounds", "bounds.toml", "--ledger", "b.db", *paths)
    )
    assert result.exit_code == 2
    assert "Choose another name" in result.stderr
    assert contents(ready) == before


def test_fit_does_not_write_over_a_file_of_its_pattern(ready):
    before = contents(ready)
    result = ready.run(
        *("fit", "s*.csv", "--feature-bounds", "bounds.toml", "--engine", "dask"),
        *("--out", "sales.csv"),
    )
    assert result.exit_code == 2
    assert "the data is there" in result.stderr
    assert contents(ready) == before


def test_predict_and_report_do_not_write_over_their_inputs(fitted):
    model = (fitted / "model.json").read_bytes()
    (fitted / "model.csv").write_bytes(model)
    before = contents(fitted)
    for arguments in (
        ("predict", "model.json", "sales.csv", "--out", "sales.csv"),
        ("predict", "model.csv", "sales.csv", "--out", "model.csv"),
        ("report", "model.json", "--out", "model.json"),
    ):
        result = fitted.run(*arguments)
        assert result.exit_code == 2
        assert "Choose another name" in result.stderr
        assert contents(fitted) == before


def test_an_earlier_result_may_be_replaced_but_a_paid_model_on_request_only(fitted):
    before = contents(fitted)
    words = ("fit", "sales.csv", "--feature-bounds", "bounds.toml", "--out", "model.json")
    result = fitted.run(*words)
    assert (result.exit_code, "--overwrite" in result.stderr) == (2, True)
    assert contents(fitted) == before
    assert fitted.run(*words, "--overwrite", "--quantile", 0.7).exit_code == 0
    assert contents(fitted)["model.json"] != before["model.json"]
    for _ in range(2):
        assert fitted.run("predict", "model.json", "sales.csv", "--out", "p.csv").exit_code == 0


def test_a_model_that_appeared_during_the_fit_stays(folder, monkeypatch):
    """Two fits of one name side by side: the second is printed, for it is paid for as well."""
    from dpconvex import DPQuantileRegressor

    plain = DPQuantileRegressor.fit
    other = '{"format": "dpconvex-model-1"}'

    def slow(self, *rows, **more):
        (folder / "model.json").write_text(other)
        return plain(self, *rows, **more)

    monkeypatch.setattr(DPQuantileRegressor, "fit", slow)
    result = folder.run(
        *("fit", "sales.csv", "--feature-bounds", "bounds.toml", "--out", "model.json")
    )
    assert (result.exit_code, "budget is spent" in result.stderr) == (2, True)
    assert (folder / "model.json").read_text() == other
    (folder / "kept.json").write_text(result.stdout)
    assert folder.run("verify", "kept.json").exit_code == 0


def full_disk(monkeypatch, name):
    """Let writing a file of this name fail halfway, as a full disk does."""
    plain = os.replace

    def replace(draft, target):
        if str(target).endswith(name):
            raise OSError(errno.ENOSPC, "No space left on device")
        plain(draft, target)

    monkeypatch.setattr(os, "replace", replace)


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_model_that_cannot_be_written_is_printed(ready, monkeypatch, more):
    full_disk(monkeypatch, "model.json")
    before = set(contents(ready))
    result = ready.fit("--ledger", "b.db", "--report", "r.html", "--epsilon", 0.5, *more)
    assert result.exit_code == 2
    assert "No space left" in result.stderr
    assert "budget is spent" in result.stderr
    assert set(contents(ready)) == before  # no draft, no report
    (ready / "kept.json").write_text(result.stdout)
    monkeypatch.undo()
    assert ready.run("verify", "kept.json").exit_code == 0
    assert ready.run("predict", "kept.json", "sales.csv", "--out", "p.csv").exit_code == 0


@pytest.mark.parametrize(("option", "name"), [("--report", "r.html"), ("--registry", "e.yaml")])
def test_a_report_that_cannot_be_written_leaves_nothing_and_says_what_is_spent(
    ready, monkeypatch, option, name
):
    full_disk(monkeypatch, name)
    result = ready.fit("--ledger", "b.db", option, ready / name)
    assert result.exit_code == 2
    assert "The model is written to" in result.stderr
    assert "budget is spent" in result.stderr
    assert not (ready / name).exists()
    assert not list(ready.path.glob(".*"))
    assert ready.run("verify", "model.json").exit_code == 0


def test_drafts_have_names_that_nobody_guesses_and_follow_no_link(fitted, monkeypatch):
    """A link under the name of the draft made a fit write its model into a stranger's choice of
    file.
    """
    model = load_model(fitted / "model.json")
    victim = fitted / "victim.txt"
    victim.write_text("mine")
    names = set()
    plain = os.open

    def watched(path, *flags):
        if str(path).endswith(".draft"):
            names.add(str(path))
        return plain(path, *flags)

    monkeypatch.setattr(os, "open", watched)
    for _ in range(2):
        save_model(model, fitted / "model.json")
    assert len(names) == 2
    monkeypatch.setattr("secrets.token_hex", lambda size: "guessed")
    (fitted / ".dpconvex-guessed.draft").symlink_to(victim)
    with pytest.raises(FileExistsError):
        save_model(model, fitted / "model.json")
    (fitted / "link.json").symlink_to(victim)
    with pytest.raises(FileExistsError, match="link"):
        save_model(model, fitted / "link.json")
    assert victim.read_text() == "mine"
    assert (fitted / ".dpconvex-guessed.draft").is_symlink()  # not ours to remove
    result = fitted.run("report", "model.json", "--out", "link.json")
    assert (result.exit_code, "link" in result.stderr) == (2, True)


def test_commands_take_each_others_names_of_rows_and_columns(folder):
    names = [("--rows", "--features"), ("--n-samples", "--n-features")]
    for command in ("certify", "plan"):
        results = [folder.run(command, a, 1000, b, 3, "--json") for a, b in names]
        assert [result.exit_code for result in results] == [0, 0]
        assert results[0].stdout == results[1].stdout


def test_noise_is_listed_in_the_same_order_by_all_commands(folder):
    options = ("--mu", 0.5, "--mechanism", "gradient")
    shown = [
        folder.fit(*options),
        folder.run("certify", "--rows", 400, "--feature-bounds", "bounds.toml", *options),
        folder.run("verify", "model.json"),
    ]
    lists = [
        [
            line.strip()
            for line in result.stdout.splitlines()
            if re.search(r" for [0-9,]+ sums?: ", line)
        ]
        for result in shown
    ]
    assert lists[0] == lists[1] == lists[2]
    assert len(lists[0]) > 1
    assert lists[0] != sorted(lists[0])  # phases, as they run
    names = json.loads((folder / "model.json").read_text())["certificate"]["noise"]
    assert len(names) == len(lists[0])
