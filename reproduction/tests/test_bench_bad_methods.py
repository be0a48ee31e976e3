"""Methods of one's own in the benchmark: what is wrong with them is said in words, and what is
right works.
"""

import hashlib
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from dpconvex.cli import main
from dpconvex_reproduction import runner
from dpconvex_reproduction.bench import Method, methods, problems, remote
from dpconvex_reproduction.bench.method import (
    ADD_OR_REMOVE,
    Budget,
    FitError,
    checked_guarantee,
    checked_scores,
)
from dpconvex_reproduction.bench.methods import digest, find_methods, unknown_name
from dpconvex_reproduction.bench.page import page_files
from dpconvex_reproduction.peers import diffprivlib_peer, diffprivlib_worker, environments

MINE = """
import numpy as np
from dpconvex_reproduction.bench import Method


class Mine(Method):
    name = "mine"

    def fit(self, problem, budget, seed):
        if budget.epsilon > 3:
            raise ArithmeticError("too much: {4}")
        self.seen = problem
        return self

    def predict(self, X):
        return X[:, 0] - 5.0

    def guarantee(self, problem, budget):
        return "none"


METHODS = (Mine(),)
"""
REMOTE = """
from dpconvex_reproduction.bench.remote import RemoteMethod
from dpconvex_reproduction.peers.environments import PeerEnvironment


class Far(RemoteMethod):
    name = "far away"
    environment = PeerEnvironment("fake", ("fake==1.0",))
    worker = "far_worker.py"

    def guarantee(self, problem, budget):
        return "none"


METHODS = (Far(),)
"""
WORKER = """
import json, sys
import numpy as np

data = np.load(sys.argv[1])
assert sorted(data.files) == ["X", "X_test", "y"]
requests = json.load(open(sys.argv[2]))
scores = [data["X_test"][:, 1] for _ in requests]
np.savez(sys.argv[3], scores=scores, seconds=np.ones(len(requests)))
"""


@pytest.fixture
def write(tmp_path):
    def written(text, name="mine.py"):
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return written


@pytest.fixture
def toy():
    return problems.toy_problem("logistic", rows=300)


@pytest.fixture
def bench(tmp_path, capsys, monkeypatch):
    """Run the command, its cells in this process; return the exit code, output and errors."""

    def inline(batch, workers, end):
        for study, cell in batch:
            end(study, cell, runner._measure(study.measure, cell))

    monkeypatch.setattr(runner, "_run_batch", inline)

    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(
                [
                    "reproduce",
                    "bench",
                    "toy",
                    "--task",
                    "logistic",
                    "--out",
                    str(tmp_path / "out"),
                    *words,
                ]
            )
        printed = capsys.readouterr()
        return ended.value.code, printed.out, " ".join(printed.err.split())

    return run


def only(write, text=MINE):
    return find_methods((write(text),))["mine"][0]


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (np.ones((1000, 1)), r"'mine' .* shape \(1000,\). Got shape \(1000, 1\)"),
        (np.ones(999), r"Got shape \(999,\)"),
        (np.float64(1.0), r"Got shape \(\)"),
        (
            np.append(np.ones(998), [np.nan, np.inf]),
            r"Got 2 that are not finite, the first, nan, in row 998",
        ),
    ],
)
def test_scores_are_one_finite_number_for_each_test_row(write, toy, scores, message):
    with pytest.raises(ValueError, match=message):
        checked_scores(only(write), toy, scores)
    fine = np.arange(1000.0)
    assert checked_scores(only(write), toy, fine) is fine


@pytest.mark.parametrize("stated", [None, "", " \n", 3, b"none"])
def test_a_guarantee_is_text(write, stated):
    with pytest.raises(ValueError, match="guarantee of the method 'mine' must return"):
        checked_guarantee(only(write), stated)
    assert checked_guarantee(only(write), "none") == "none"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "relations = 'replace_one'",
            "relations of the method 'mine' .* must be a tuple .* Got 'replace_one'",
        ),
        (
            "relations = ('replace',)",
            "relations .* none, one or both of 'add_or_remove_one', 'replace_one'",
        ),
        ("relations = ('replace_one', 'replace_one')", "relations .* must be"),
        ("relations = (['replace_one'],)", "relations .* must be"),
        ("tasks = 'logistic'", r"tasks .* one alone is written \('logistic',\)"),
        ("tasks = ('ranking',)", "tasks .* must be"),
        ("tasks = ()", "tasks .* one or more of"),
        ("settings = {}", "settings .* must be a mapping"),
        ("settings = [{}]", "settings .* must be a mapping"),
        ("settings = {'a': 1.0}", "settings .* keyword arguments of fit"),
        ("settings = {1: {}}", "settings .* keyword arguments of fit"),
        ("name = ''", "name of Mine in .* must be text"),
        ("name = 7", "name of Mine in .* must be text"),
        ("del name", "name of Mine in .* must be text"),
    ],
)
def test_attributes_are_checked_when_a_file_is_loaded(write, line, message):
    path = write(MINE.replace('name = "mine"', f'name = "mine"\n    {line}'))
    with pytest.raises(ValueError, match=message) as refused:
        find_methods((path,))
    assert path in str(refused.value)


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ("(Mine,)", r"must hold instances of Method. Got .*Write Mine\(\), with brackets"),
        ("Mine()", r"METHODS = \(Mine\(\),\), with a comma"),
        ("Mine", "lists no methods"),
        ("()", "lists no methods"),
        ("('mine',)", "must hold instances of Method. Got 'mine'"),
        ("(Mine(), Mine())", "Two methods are named 'mine'"),
    ],
)
def test_methods_are_instances_in_a_tuple(write, listed, message):
    with pytest.raises(ValueError, match=message):
        find_methods((write(MINE.replace("(Mine(),)", listed)),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a = 1\nb = (\n", "line 2: SyntaxError: '\\(' was never closed"),
        (
            "a = 1\n\nimport no_such_module\n",
            "line 3: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        ("def f():\n    return {}['a']\n\nf()\n", "line 2: KeyError: 'a'"),
        ("import sys\nsys.exit(3)\n", "line 2: SystemExit: 3"),
        (MINE.replace("def guarantee", "def promise"), "line 22: TypeError: Can't instantiate"),
        ("import broken_helper\n", r"line 1: SyntaxError: .*\(broken_helper.py, line 1\)"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_named_with_its_line(write, bench, text, message):
    write("def\n", "broken_helper.py")
    path = write(text)
    before = [*sys.path]
    with pytest.raises(ValueError, match=message) as refused:
        find_methods((path,))
    assert str(refused.value).startswith(f"The file '{path}' cannot be loaded: line ")
    assert sys.path == before
    for more in ((), ("--list",), ("--install-peers",)):
        code, _, said = bench("--add", path, *more)
        assert code == 2
        assert "cannot be loaded: line" in said


def test_a_file_that_is_no_python_is_refused(write):
    with pytest.raises(ValueError, match=r"ends in \.py"):
        find_methods((write(MINE, "mine.txt"),))


def test_modules_beside_a_file_can_be_imported(write, monkeypatch):
    write("def centred(X):\n    return X[:, 0] - 5.0\n", "helper_of_mine.py")
    write(MINE, "base_of_mine.py")
    text = (
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from base_of_mine import Mine\n"
        "from helper_of_mine import centred\n"
        "@dataclass\n"
        "class Facts:\n"
        "    a: float = 1.0\n"
        "class Yours(Mine):\n"
        "    name = 'yours'\n"
        "    def predict(self, X):\n"
        "        return centred(X)\n"
        "METHODS = (Yours(),)\n"
    )
    path = write(text)
    before = [*sys.path]
    for name in ("helper_of_mine", "base_of_mine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    method, _ = find_methods((path,))["yours"]
    assert method.predict(np.full((2, 5), 6.0)).tolist() == [1.0, 1.0]
    assert sys.path == before
    first = digest(path)
    write(MINE + "# changed\n", "base_of_mine.py")  # a class that it inherits from
    assert digest(path) != first
    for name in ("helper_of_mine", "base_of_mine"):
        monkeypatch.delitem(sys.modules, name)


def test_fit_sees_no_test_rows(write, toy):
    method = only(write)
    ((scores, _),) = method.run(toy, [("", Budget(1.0, 1e-6), 0)])
    np.testing.assert_array_equal(scores, toy.X_test[:, 0] - 5.0)
    assert method.seen.X_test.shape == (0, 5)
    assert method.seen.y_test.shape == (0,)
    assert method.seen.X_test.base is None
    assert method.seen.y_test.base is None
    assert method.seen.X is toy.X
    text = MINE.replace("self.seen = problem", "self.seen = float(problem.y_test[0])")
    with pytest.raises(FitError, match=r"IndexError: .* line [0-9]+, seed 0\)"):
        list(only(write, text).run(toy, [("", Budget(1.0, 1e-6), 0)]))


def test_fit_returns_something_that_predicts(write, toy):
    with pytest.raises(FitError, match=r"fit must return self\. Got NoneType"):
        list(
            only(write, MINE.replace("        return self\n", "")).run(
                toy, [("", Budget(1.0, 1e-6), 0)]
            )
        )


@pytest.mark.parametrize("name", ["dpconvex", "dpconvex, splines", "objective perturbation"])
def test_methods_of_ours_fit_alike_with_and_without_test_rows(name, toy):
    method, _ = find_methods()[name]
    budget = Budget(3.0, 1e-5, ADD_OR_REMOVE)
    setting = next(iter(method.settings))
    ((scores, _),) = method.run(toy, [(setting, budget, 0)])
    fitted = method.fit(toy, budget, 0, **method.settings[setting])
    np.testing.assert_array_equal(scores, fitted.predict(toy.X_test))


def test_failed_cells_are_named_and_end_with_exit_code_1(write, bench, tmp_path):
    words = ("--add", write(MINE), "--method", "mine", "--seeds", "2")
    code, printed, _ = bench(*words, "--epsilon", "1,4", "--json")
    assert code == 1
    assert json.loads(printed)["failed_cells"] == 1
    page = (tmp_path / "out" / "index.md").read_text()
    said = re.compile(
        r"mine, toy, logistic, ε 4: ArithmeticError: too much: \{4\} "
        r"\(mine.py line [0-9]+, seed 0\)"
    )
    assert said.search(page)
    assert said.search(json.loads(printed)["failures"][0])
    assert (tmp_path / "out" / "results.parquet").is_file()
    code, printed, _ = bench(*words, "--epsilon", "1,4")
    assert code == 1
    assert "1 cell failed" in printed
    assert "Written:" in printed
    code, _, _ = bench(*words, "--epsilon", "1")
    assert code == 0
    code, _, error = bench(*words, "--epsilon", "4")
    assert code == 2
    assert " error: Every fit failed. The first: " in error
    assert said.search(error)


def test_an_unknown_name_is_told_the_nearest_one():
    words = unknown_name("dpconvex spline", find_methods())
    assert words.startswith(
        "There is no method 'dpconvex spline'. Did you mean 'dpconvex, splines'? There are: "
    )
    assert "'dpconvex', 'dpconvex, splines', 'dpconvex, AUC'" in words
    assert "Did you mean" not in unknown_name("nothing like it", find_methods())


def test_a_worker_stands_beside_the_file_and_its_environment_is_installed(
    write, bench, monkeypatch, tmp_path
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = []

    def install(self):
        made.append(self.name)
        if self.name == "fake":
            python = self.home / environments._INSIDE
            python.parent.mkdir(parents=True)
            python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
            python.chmod(0o755)

    monkeypatch.setattr(environments.PeerEnvironment, "install", install)
    path = write(REMOTE)
    with pytest.raises(
        ValueError, match=r"worker of the method 'far away' .* must be a script beside the file"
    ):
        find_methods((path,))
    write(WORKER, "far_worker.py")
    words = ("--add", path, "--method", "far away", "--epsilon", "1", "--seeds", "2")
    code, _, said = bench(*words)
    assert code == 2
    assert "RuntimeError: fake is not installed" in said
    assert "`dpconvex reproduce bench --install-peers --add your_file.py`" in said
    code, _, _ = bench(*words, "--install-peers")
    assert code == 0
    assert made == ["fake", *(each.name for each in environments.ENVIRONMENTS)]
    assert (tmp_path / "out" / "results.parquet").is_file()
    first = digest(path)
    write(WORKER + "# changed\n", "far_worker.py")
    assert digest(path) != first


def test_an_environment_that_cannot_be_made_is_an_input_error(write, bench, monkeypatch):
    def fail(self):
        raise RuntimeError(f"{self.name} could not be installed: no such index")

    monkeypatch.setattr(environments.PeerEnvironment, "install", fail)
    write(WORKER, "far_worker.py")
    code, _, said = bench("--add", write(REMOTE), "--install-peers")
    assert code == 2
    assert "fake could not be installed: no such index" in said
    with pytest.raises(
        ValueError, match=r"environment of the method 'far away' .* must be a PeerEnvironment"
    ):
        find_methods((write(REMOTE.replace('PeerEnvironment("fake", ("fake==1.0",))', "'fake'")),))


def test_workers_of_this_package_are_beside_the_class_that_names_them(write):
    folder = Path(methods.__file__).parent
    known = {
        place: method
        for method, place in find_methods().values()
        if isinstance(method, remote.RemoteMethod)
    }
    assert known["opacus"].script() == folder / "opacus_worker.py"
    assert all(method.script().is_file() for method in known.values())
    text = (
        "from dpconvex_reproduction.bench.methods.opacus import Opacus\n"
        "class Slow(Opacus):\n    name = 'slow'\n\nMETHODS = (Slow(),)\n"
    )
    assert find_methods((write(text),))["slow"][0].script() == folder / "opacus_worker.py"


def test_a_method_cannot_change_the_rows_of_the_next():
    for rows in (None, 500):
        problem = problems.load_problem("toy", "linear", rows)
        for values in (
            problem.X,
            problem.y,
            problem.X_test,
            problem.y_test,
            *problem.feature_bounds,
        ):
            with pytest.raises(ValueError, match="read-only"):
                values[:1] = 0.0


def test_a_digest_covers_what_a_method_inherits_and_its_worker(monkeypatch):
    folder = Path(methods.__file__).parent

    def of(*paths, pins=()):
        content = [path.read_bytes() for path in paths] + [" ".join(pins).encode()]
        return hashlib.sha256(b"".join(content)).hexdigest()[:12]

    assert digest("adassp") == of(folder / "adassp.py")  # not what every method inherits from
    remotes = folder / "opacus.py", folder / "opacus_worker.py", Path(remote.__file__)
    assert digest("opacus") == of(*remotes, pins=environments.OPACUS.pins)
    formula = Path(diffprivlib_peer.__file__)
    worker = Path(diffprivlib_worker.__file__)
    behind = folder / "diffprivlib.py", formula, worker, Path(remote.__file__)
    pins = [*environments.DIFFPRIVLIB.pins] * 2  # two methods
    assert digest("diffprivlib") == of(*behind, pins=pins)
    assert issubclass(remote.RemoteSGD, Method)


FOREIGN = {
    "index.md": "# My diary\n",
    "results.parquet": "SQLite format 3\0",
    "runs/bench.jsonl": '{"mine": 1}\n',
    "logistic-add-or-remove-one-auc.png": "my photo",
}


@pytest.fixture
def no_fits(monkeypatch):
    monkeypatch.setattr(runner, "_run_batch", lambda *_: pytest.fail("a fit began"))


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("fresh", [(), ("--fresh",)])
@pytest.mark.parametrize("name", FOREIGN)
def test_files_of_others_are_kept_and_found_before_the_first_fit(
    write, bench, tmp_path, no_fits, name, fresh
):
    """A page of the user's was overwritten, with --fresh a ledger too; without it the run failed
    after all fits.
    """
    path = tmp_path / "out" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(FOREIGN[name])
    before = contents(tmp_path / "out")
    code, _, said = bench("--add", write(MINE), "--method", "mine", "--epsilon", "1,2", *fresh)
    assert code == 2
    assert f"{str(path)!r} is there, was not written by `dpconvex reproduce`" in said
    assert contents(tmp_path / "out") == before


@pytest.mark.parametrize("name", [*FOREIGN, "runs"])
def test_links_are_not_followed(write, bench, tmp_path, no_fits, name):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "runs").mkdir(parents=True)
    (tmp_path / "out" / "runs").mkdir(parents=True)
    path = tmp_path / "out" / name
    if path.is_dir():
        path.rmdir()
    path.symlink_to(elsewhere / name)
    code, _, said = bench("--add", write(MINE), "--method", "mine", "--epsilon", "1,2")
    assert code == 2
    assert "was not written by" in said
    assert contents(elsewhere) == {}


def test_a_folder_that_cannot_be_one_is_refused_before_the_first_fit(
    write, bench, tmp_path, no_fits
):
    (tmp_path / "out").write_text("mine")
    code, _, said = bench("--add", write(MINE), "--method", "mine", "--epsilon", "1")
    assert (code, "is a file" in said) == (2, True)


def test_files_of_ours_are_written_again(write, bench, tmp_path):
    words = ("--add", write(MINE), "--method", "mine", "--seeds", "2", "--epsilon", "1,2")
    assert bench(*words)[0] == 0
    first = contents(tmp_path / "out")
    assert {path.suffix for path in first} == {".md", ".parquet", ".jsonl", ".png"}
    table, cells = (tmp_path / "out" / name for name in ("results.parquet", "runs/bench.jsonl"))
    shown = page_files([("logistic", "add_or_remove_one")], tmp_path / "out")
    assert {*first} <= {*shown, table, cells}
    assert bench(*words)[0] == 0
    assert bench(*words, "--fresh")[0] == 0
    assert contents(tmp_path / "out").keys() == first.keys()


def test_figures_of_ours_are_written_again(write, bench, tmp_path):
    words = ("--add", write(MINE), "--method", "mine", "--method", "dpconvex", "--seeds", "2")
    words = (*words, "--epsilon", "0.5,2")
    assert bench(*words)[0] == 0
    (figure, *_) = sorted((tmp_path / "out").glob("*.png"))
    (tmp_path / "out/index.md").unlink()  # the figure itself says whose it is
    before = figure.stat().st_mtime_ns
    assert bench(*words)[0] == 0
    assert figure.stat().st_mtime_ns > before


@pytest.mark.parametrize("ends", ["sys.exit(3)", "raise SystemExit('no')", "sys.exit()"])
@pytest.mark.parametrize("where", ["fit", "guarantee"])
def test_a_method_that_ends_the_process_is_a_cell_that_failed(write, bench, ends, where):
    """The run ended with the exit code of a refused budget."""
    place = "        self.seen = problem\n" if where == "fit" else '        return "none"\n'
    text = MINE.replace(place, f"        import sys; {ends}\n")
    words = ("--add", write(text), "--method", "mine", "--method", "dpconvex", "--seeds", "1")
    code, _, said = bench(*words, "--epsilon", "1")
    assert code == 1, said


def test_a_method_that_ends_the_process_when_it_is_asked_for_its_problems(write, bench, no_fits):
    text = MINE.replace(
        "    def fit(", "    def suits(self, problem):\n        raise SystemExit(3)\n\n    def fit("
    )
    code, _, said = bench("--add", write(text), "--method", "mine", "--epsilon", "1")
    assert (code, "suits of the method 'mine' failed: SystemExit: 3" in said) == (2, True)


def test_a_method_that_kills_its_process_fails_alone(write, tmp_path, capsys):
    text = MINE.replace(
        "        self.seen = problem\n",
        "        if seed == 7:\n            __import__('os')._exit(3)\n",
    )
    words = ("--add", write(text), "--method", "mine", "--seeds", "12", "--epsilon", "1")
    words = (*words, "--out", str(tmp_path / "out"))
    with pytest.raises(SystemExit) as ended:
        main(["reproduce", "bench", "toy", "--task", "logistic", "--jobs", "2", "--json", *words])
    assert ended.value.code == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["fits"], found["failed_cells"]) == (7, 1)
    assert "the process that measured it ended" in found["failures"][0]


@pytest.mark.parametrize("name", [r"$\frac{ $", "a$b$c", "100 $", r"\$x$", "$$"])
def test_names_are_no_formulas(write, bench, tmp_path, name):
    r"""A name with ``$\frac{ $`` failed after all fits, when its figure was drawn."""
    text = MINE.replace('name = "mine"', f"name = {name!r}")
    words = ("--add", write(text), "--method", name, "--method", "dpconvex", "--seeds", "2")
    code, _, said = bench(*words, "--epsilon", "0.5,2")
    assert code == 0, said
    assert list((tmp_path / "out").glob("*.png"))


@pytest.mark.parametrize("name", ["two\nlines", "\ud800", "a" * 61, "tab\t"])
def test_names_that_no_figure_can_show_are_refused_when_a_file_is_loaded(write, name):
    with pytest.raises(ValueError, match="one line of at most 60 characters"):
        find_methods((write(MINE.replace('name = "mine"', f"name = {name!a}")),))


def test_words_that_no_file_can_hold_are_escaped_or_refused(write, bench, tmp_path):
    text = MINE.replace("too much: {4}", "half: \\ud800")
    words = ("--add", write(text), "--method", "mine", "--seeds", "1", "--epsilon", "1,4")
    code, _, _ = bench(*words)
    assert code == 1
    assert "half: \\ud800" in (tmp_path / "out/index.md").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="must return what can be proven"):
        checked_guarantee(only(write), "\ud800")
