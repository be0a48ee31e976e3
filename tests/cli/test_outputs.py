"""Outputs never replace inputs; names of options and the order of lines are the same in all
commands.
"""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import nullcontext

import pytest

from dpconvex import load_model, save_model
from dpconvex.cli import output_and_errors
from dpconvex.cli.output_and_errors import OutputError
from dpconvex.privacy import Ledger, LedgerError
from dpconvex.system import atomic_files
from dpconvex.system.atomic_files import ReservedName


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


def kept_files(folder):
    return sorted(folder.path.glob("*.unsaved-*.json"))


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
def test_a_model_that_appeared_during_the_fit_stays(folder, monkeypatch, overwrite):
    """A file of another program took the name: what was fitted is kept beside it, for it is paid
    for.
    """
    from dpconvex import DPQuantileRegressor

    plain = DPQuantileRegressor.fit
    other = '{"format": "dpconvex-model-1"}'

    def slow(self, *rows, **more):
        (folder / "model.json").write_text(other)
        return plain(self, *rows, **more)

    monkeypatch.setattr(DPQuantileRegressor, "fit", slow)
    result = folder.run(
        *("fit", "sales.csv", "--feature-bounds", "bounds.toml", "--out", "model.json", *overwrite)
    )
    (kept,) = kept_files(folder)
    assert (result.exit_code, "budget is spent" in result.stderr) == (2, True)
    assert str(kept) in result.stderr
    assert (folder / "model.json").read_text() == other
    assert folder.run("verify", kept.name).exit_code == 0


def test_an_earlier_model_that_changed_during_the_fit_stays(fitted, monkeypatch):
    from dpconvex import DPQuantileRegressor

    plain = DPQuantileRegressor.fit
    other = '{"format": "dpconvex-model-1"}'

    def slow(self, *rows, **more):
        (fitted / "model.json").write_text(other)
        return plain(self, *rows, **more)

    monkeypatch.setattr(DPQuantileRegressor, "fit", slow)
    result = fitted.fit()
    assert (result.exit_code, "budget is spent" in result.stderr) == (2, True)
    assert (fitted / "model.json").read_text() == other
    assert len(kept_files(fitted)) == 1


def full_disk(monkeypatch, *names):
    """Let writing files of these names fail halfway, as a full disk does; all if there is none."""
    plain = ReservedName.write
    plain_new = atomic_files.write_new_file

    def refuse(target):
        if not names or str(target).endswith(names):
            raise OSError(errno.ENOSPC, "No space left on device", str(target))

    def write(self, content):
        refuse(self.target)
        plain(self, content)

    def write_new(path, content):
        refuse(path)
        plain_new(path, content)

    monkeypatch.setattr(ReservedName, "write", write)
    monkeypatch.setattr(output_and_errors, "write_new_file", write_new)


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_model_that_cannot_be_written_is_kept_elsewhere(ready, monkeypatch, more):
    full_disk(monkeypatch, "model.json")
    before = set(contents(ready))
    result = ready.fit("--ledger", "b.db", "--report", "r.html", "--epsilon", 0.5, *more)
    assert result.exit_code == 2
    assert "No space left" in result.stderr
    assert "budget is spent" in result.stderr
    (kept,) = kept_files(ready)
    assert str(kept) in result.stderr
    assert set(contents(ready)) == {*before, kept.name}  # no draft, no report
    monkeypatch.undo()
    assert ready.run("verify", kept.name).exit_code == 0
    assert ready.run("predict", kept.name, "sales.csv", "--out", "p.csv").exit_code == 0


def test_a_model_for_which_no_disk_has_room_is_printed(ready, monkeypatch):
    full_disk(monkeypatch)
    before = set(contents(ready))
    result = ready.fit("--ledger", "b.db", "--epsilon", 0.5)
    assert result.exit_code == 2
    assert "stands on the standard output" in result.stderr
    assert "budget is spent" in result.stderr
    assert set(contents(ready)) == before
    (ready / "kept.json").write_text(result.stdout)
    monkeypatch.undo()
    assert ready.run("verify", "kept.json").exit_code == 0


def test_a_model_that_has_no_place_at_all_is_printed_as_an_error(ready, monkeypatch):
    full_disk(monkeypatch)
    monkeypatch.setattr(output_and_errors, "_OUTPUT", FullOutput())
    result = ready.fit("--ledger", "b.db", "--epsilon", 0.5)
    assert result.exit_code == 2
    text, _, told = result.stderr.rpartition("error: ")
    assert "The model stands above instead: keep it." in told
    (ready / "kept.json").write_text(text)
    monkeypatch.undo()
    assert ready.run("verify", "kept.json").exit_code == 0


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


class FullOutput:
    """A standard output on a full disk, or one that nobody reads any more."""

    def __init__(self, unread=False):
        self.unread = unread

    def write(self, text):
        raise OutputError("No space left on device", self.unread)

    def flush(self):
        pass


def charges(folder):
    return len(Ledger(folder / "b.db").entries())


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_fit_whose_output_is_full_says_where_its_model_is(ready, monkeypatch, more):
    monkeypatch.setattr(output_and_errors, "_OUTPUT", FullOutput())
    result = ready.fit("--ledger", "b.db", "--epsilon", 0.5, *more)
    assert result.exit_code == 2
    for words in ("No space left", "The model is written to", "The budget is spent"):
        assert words in result.stderr
    monkeypatch.undo()
    assert ready.run("verify", "model.json").exit_code == 0
    assert charges(ready) == 1


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_fit_is_done_although_nobody_reads_its_output(ready, monkeypatch, more):
    monkeypatch.setattr(output_and_errors, "_OUTPUT", FullOutput(unread=True))
    result = ready.fit("--ledger", "b.db", "--epsilon", 0.5, *more)
    assert result.exit_code == 0
    for words in ("nobody reads", "The model is written to", "The budget is spent"):
        assert words in result.stderr
    assert charges(ready) == 1


@pytest.mark.parametrize("unread", [True, False])
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_score_that_cannot_be_printed_is_kept(ready, monkeypatch, more, unread):
    assert ready.fit("--epsilon", 0.5).exit_code == 0
    monkeypatch.setattr(output_and_errors, "_OUTPUT", FullOutput(unread))
    result = ready.run(
        "score", "model.json", "sales.csv", "--ledger", "b.db", "--epsilon", 0.5, *more
    )
    assert result.exit_code == 2
    (kept,) = kept_files(ready)
    assert str(kept) in result.stderr
    assert "The budget is spent" in result.stderr
    found = json.loads(kept.read_text())
    assert (found["metric"], found["interval"][0] < found["value"]) == ("pinball", True)
    assert charges(ready) == 1


def test_a_closed_output_is_refused_before_the_charge(ready, monkeypatch):
    assert ready.fit("--epsilon", 0.5).exit_code == 0
    for words in (
        ("fit", "sales.csv", "--feature-bounds", "bounds.toml", "--out", "new.json"),
        ("score", "model.json", "sales.csv"),
    ):
        with monkeypatch.context() as closed:
            closed.setattr(output_and_errors.sys, "stdout", None)
            closed.setattr("command_line.redirect_stdout", lambda stream: nullcontext(stream))
            result = ready.run(*words, "--ledger", "b.db", "--epsilon", 0.5)
        assert (result.exit_code, "Nothing was charged" in result.stderr) == (2, True)
    assert charges(ready) == 0
    assert not (ready / "new.json").exists()


def test_what_remains_is_not_needed_after_a_charge(ready, monkeypatch):
    """A ledger that was locked when it was read again ended a fit with "nothing was charged"."""
    plain = Ledger.remaining

    def locked(self):
        if charges(ready):
            raise LedgerError("The ledger is locked: nothing was charged.")
        return plain(self)

    monkeypatch.setattr(Ledger, "remaining", locked)
    result = ready.fit("--ledger", "b.db", "--epsilon", 0.5)
    assert result.exit_code == 0
    assert "the charge is on record" in " ".join(result.stdout.split())


@pytest.mark.parametrize("error", [OSError(2, "No such file", "d.csv"), RuntimeError("x")])
def test_whatever_ends_a_fit_after_its_charge_says_that_it_is_spent(ready, monkeypatch, error):
    """A file that Dask reads in every pass was removed: the message was that there is no such
    file.
    """
    from dpconvex.mechanisms.mechanism import PrivateMechanism

    def fail(*_):
        raise error

    monkeypatch.setattr(PrivateMechanism, "release", fail)
    result = ready.fit("--ledger", "b.db", "--epsilon", 0.5)
    assert result.exit_code == (2 if isinstance(error, OSError) else 1)
    assert "The budget is spent" in result.stderr
    assert charges(ready) == 1
    assert set(contents(ready)) == {"sales.csv", "bounds.toml", "b.db"}


def test_errors_before_the_charge_do_not_speak_of_it(ready):
    result = ready.fit("--ledger", "b.db", "--epsilon", 0.5, "--row-norm", -1)
    assert (result.exit_code, "spent" in result.stderr) == (2, False)
    assert ready.fit("--ledger", "b.db", "--epsilon", 5).exit_code == 3
    assert charges(ready) == 0


def run_apart(folder, lines, *words):
    """Start the command line in a process of its own, after these lines of Python."""
    (folder / "run.py").write_text(
        "\n".join(["import sys", *lines, "from dpconvex.__main__ import main", "main()", ""])
    )
    return subprocess.Popen(
        [sys.executable, folder / "run.py", *map(str, words)],
        cwd=folder.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(process, words):
    """Read what a process says until it says this."""
    for line in process.stderr:
        if line.startswith(words):
            return
    raise AssertionError(f"it ended without {words!r}")


# Waits behind the charge for a file, or for signals.
WAIT = [
    "import time",
    "from dpconvex.estimators import private_model",
    "plain = private_model.charge_private_model",
    "def charge(*words):",
    "    plain(*words)",
    "    print('charged', file=sys.stderr, flush=True)",
    "    end = time.monotonic() + {seconds}",
    "    while time.monotonic() < end and not __import__('pathlib').Path('go').exists():",
    "        time.sleep(0.01)",
    "private_model.charge_private_model = charge",
]
FIT = ("fit", "sales.csv", "--feature-bounds", "bounds.toml", "--ledger", "b.db", "--epsilon", 0.1)


def test_of_two_fits_to_one_name_one_is_charged(ready):
    """In 4 of 8 pairs both said "Written", both were charged, and one model was gone."""
    first = run_apart(ready, [line.format(seconds=60) for line in WAIT], *FIT, "--out", "m.json")
    wait_for(first, "charged")
    results = [ready.run(*FIT, "--out", "m.json", *more) for more in ((), ("--overwrite",))]
    results.append(ready.run("report", "m.json", "--out", "m.json"))
    (ready / "go").touch()
    written, _ = first.communicate(timeout=120)
    assert (first.returncode, "Written to m.json" in written) == (0, True)
    for result in results:
        assert result.exit_code == 2
    for result in results[:2]:
        assert "The name is reserved (process" in result.stderr
        assert ".m.json.reserved" in result.stderr
    assert charges(ready) == 1
    assert ready.run("verify", "m.json").exit_code == 0
    assert not list(ready.path.glob(".*"))


def test_what_a_killed_fit_had_reserved_is_taken_over(ready):
    process = run_apart(ready, [line.format(seconds=60) for line in WAIT], *FIT, "--out", "m.json")
    wait_for(process, "charged")
    process.kill()
    process.communicate(timeout=60)
    assert [path.name for path in ready.path.glob(".*")] == [".m.json.reserved"]
    assert ready.run(*FIT, "--out", "m.json").exit_code == 0
    assert not list(ready.path.glob(".*"))


@pytest.mark.parametrize(
    ("signals", "code"),
    [(["SIGINT"], 0), (["SIGINT", "SIGINT"], 130), (["SIGTERM"], 130), (["SIGHUP"], 130)],
)
def test_signals_after_the_charge(ready, signals, code):
    process = run_apart(ready, [line.format(seconds=60) for line in WAIT], *FIT, "--out", "m.json")
    wait_for(process, "charged")
    for number, name in enumerate(signals):
        process.send_signal(getattr(signal, name))
        if name == "SIGINT" and number == 0:
            wait_for(process, "The budget is spent, so this goes on. Press Ctrl-C again")
    (ready / "go").touch()
    _, told = process.communicate(timeout=120)
    assert process.returncode == code
    assert charges(ready) == 1
    assert not list(ready.path.glob(".*"))
    assert (ready / "m.json").exists() == (code == 0)
    if code:
        assert told.startswith("interrupted; the budget is spent")


@pytest.mark.parametrize(
    ("words", "code"),
    [((*FIT, "--out", "m.json"), 0), (("ledger", "show", "b.db"), 141)],
)
def test_an_output_that_nobody_reads(ready, words, code):
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-m", "dpconvex", *map(str, words)],
        cwd=ready.path,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writer)
    assert process.returncode == code, process.stderr
    if words[0] != "fit":
        assert process.stderr == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full device")
@pytest.mark.parametrize("words", [("ledger", "show", "b.db"), ("--help",)])
def test_an_output_on_a_full_disk(ready, words):
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [sys.executable, "-m", "dpconvex", *words],
            cwd=ready.path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert process.returncode == 2
    assert process.stderr.startswith("error: The standard output cannot be written: No space")
    assert process.stderr.count("\n") == 1


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
