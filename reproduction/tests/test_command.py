"""``dpconvex reproduce`` lists, runs and judges; what cannot be run says why."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from dpconvex.cli import main
from dpconvex_reproduction import runner
from dpconvex_reproduction.catalogue import PAPERS, find
from dpconvex_reproduction.outputs import check_outputs, is_ours
from dpconvex_reproduction.pages import exhibit_files, index_files

ASKED = {
    "quantile-sco": [*(f"figure-{number}" for number in range(1, 13)), "table-2"],
    "convolution-objective-perturbation": [*(f"figure-{n}" for n in range(1, 9)), "table-3"],
    "auc-erm": ["figure-1", "figure-2", "figure-3", "table-2"],
    "newsvendor-gdp": [*(f"figure-{number}" for number in range(2, 10)), "table-1", "table-2"],
    "output-perturbation": [f"table-{number}" for number in range(1, 7)],
}


@pytest.fixture
def run(capsys):
    """Return exit code, output and errors of ``dpconvex reproduce`` with these words."""

    def called(*words):
        with pytest.raises(SystemExit) as ended:
            main(["reproduce", *map(str, words)])
        return ended.value.code, *capsys.readouterr()

    return called


def test_every_table_and_figure_is_there():
    names = [exhibit.name for exhibit in find("all")]
    assert len(set(names)) == len(names)
    for paper, slugs in ASKED.items():
        assert {f"{paper}/{slug}" for slug in slugs} <= set(names)
    assert {name.partition("/")[0] for name in names} == set(PAPERS)


@pytest.mark.parametrize("words", [["--json"], ["--list", "--json"], ["--json", "all", "--list"]])
def test_without_a_name_it_lists_what_there_is(words, run):
    code, out, _ = run(*words)
    assert code == 0
    listed = {entry["name"]: entry["title"] for entry in json.loads(out)}
    assert list(listed) == [exhibit.name for exhibit in find("all")]
    assert all(listed.values())


def test_the_list_has_data_files_and_times_of_an_earlier_run(run, tmp_path):
    memory = tmp_path / "cells" / "index.json"
    memory.parent.mkdir()
    memory.write_text(json.dumps({"auc-erm/figure-1": {"a full run": "10 minutes of one core"}}))
    code, out, _ = run("--list", "--out", tmp_path, "--json")
    assert code == 0
    listed = {entry["name"]: (entry["data"], entry["full_run"]) for entry in json.loads(out)}
    assert listed["auc-erm/figure-1"] == (
        ["http.npz", "ijcnn1.npz", "satimage.npz"],
        "10 minutes of one core",
    )
    assert listed["quantile-sco/figure-1"] == ([], None)
    _, out, _ = run("--list", "--out", tmp_path)
    assert "data: http.npz, ijcnn1.npz, satimage.npz" in out
    assert "a full run: 10 minutes of one core" in out
    assert all(exhibit.name in out for exhibit in find("all"))
    _, out, _ = run("--list", "--out", tmp_path / "nothing")
    assert "satimage.npz" in out
    assert "a full run" not in out


def test_help_is_that_of_this_distribution(run):
    code, out, _ = run("--help")
    assert code == 0
    for option in ("--quick", "--list", "--out", "--install-peers"):
        assert option in out


def test_one_figure_gets_its_page_and_the_index(run, tmp_path):
    pages = tmp_path / "pages"
    code, out, err = run(
        *("newsvendor-gdp/figure-2", "--within", 1, "--jobs", 1, "--out", pages, "--json")
    )
    assert code == 0, err
    content = json.loads(out)
    assert content["failed_cells"] == 0
    (exhibit,) = content["exhibits"]
    assert exhibit["verdict"] in ("matches", "matches in part")
    page = (pages / "newsvendor-gdp" / "figure-2.md").read_text()
    assert f"Verdict: {exhibit['verdict']}" in page
    for ending in (".csv", ".png"):
        assert (pages / "newsvendor-gdp" / f"figure-2{ending}").stat().st_size > 200
    assert "newsvendor-gdp/figure-2.md" in (pages / "index.md").read_text()


def test_without_its_data_an_exhibit_says_so(run, tmp_path, monkeypatch):
    monkeypatch.delenv("DPCONVEX_DATA", raising=False)
    words = (
        "auc-erm/figure-1",
        "auc-erm/table-2",
        "--quick",
        "--jobs",
        1,
        "--out",
        tmp_path / "pages",
    )
    code, out, _ = run(*words)
    assert code == 1
    assert (
        "Not run: auc-erm/figure-1, auc-erm/table-2. The data file 'ijcnn1.npz' was not"
        in " ".join(out.split())
    )
    assert "DPCONVEX_DATA" in (tmp_path / "pages" / "auc-erm" / "figure-1.md").read_text()
    code, out, _ = run(*words, "--json")
    assert code == 1
    assert all("DPCONVEX_DATA" in entry["not_run_because"] for entry in json.loads(out)["exhibits"])
    # What could be run is what was asked for in part.
    code, out, _ = run("newsvendor-gdp/figure-2", *words)
    assert code == 0
    assert "Not run: auc-erm/figure-1, auc-erm/table-2. " in " ".join(out.split())


@pytest.mark.parametrize("package", ["dpconvex", "dpconvex_reproduction"])
def test_an_interrupt_says_that_the_same_command_goes_on(package, tmp_path):
    """A reproduction has no ledger."""
    (tmp_path / "run.py").write_text(
        "import runpy, sys\n"
        "from dpconvex_reproduction import runner\n"
        "def stop(*_):\n"
        "    raise KeyboardInterrupt\n"
        "runner._run_batch = stop\n"
        f"words = ['reproduce'] * ({package!r} == 'dpconvex')\n"
        "sys.argv = ['dpconvex', *words, 'newsvendor-gdp/figure-2', '--out', "
        f"{str(tmp_path / 'pages')!r}]\n"
        f"runpy.run_module({package!r}, run_name='__main__')\n"
    )
    ended = subprocess.run(
        [sys.executable, tmp_path / "run.py"], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 130, ended.stderr
    assert (
        ended.stderr.splitlines()[-1]
        == "interrupted; finished cells are kept, the same command goes on."
    )
    assert "ledger" not in ended.stderr
    assert "Traceback" not in ended.stderr


FILES = (
    "index.md",
    "newsvendor-gdp/figure-2.md",
    "newsvendor-gdp/figure-2.csv",
    "newsvendor-gdp/figure-2.png",
    "cells/index.json",
    "runs/newsvendor-gdp--smoothed-losses.jsonl",
    "cells/newsvendor-gdp--smoothed-losses.jsonl.xz",
)


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("fresh", [(), ("--fresh",)])
@pytest.mark.parametrize("name", FILES)
def test_files_of_others_are_kept_and_found_before_the_first_cell(
    run, tmp_path, monkeypatch, name, fresh
):
    monkeypatch.setattr(runner, "_run_batch", lambda *_: pytest.fail("a cell began"))
    asked = ("newsvendor-gdp/figure-2", "--quick", "--out", tmp_path, *fresh)
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"mine": 1}\n')
    before = contents(tmp_path)
    code, _, err = run(*asked)
    assert code == 2
    assert f"{str(path)!r} is there, was not written by `dpconvex reproduce`" in err
    assert contents(tmp_path) == before
    path.unlink()
    victim = tmp_path.parent / f"{tmp_path.name}-victim"
    path.symlink_to(victim)
    assert run(*asked)[0] == 2
    assert not victim.exists()


def test_what_a_run_wrote_is_what_was_checked_and_is_ours(run, tmp_path):
    pages = tmp_path / "pages"
    words = ("newsvendor-gdp/figure-2", "--quick", "--jobs", 1, "--out", pages)
    (exhibit,) = find("newsvendor-gdp/figure-2")
    assert run(*words)[0] == 0
    written = contents(pages)
    known = [*exhibit_files(exhibit, pages), *index_files(pages)]
    known += runner.study_files(exhibit.studies, pages / "runs", pages / "cells")
    assert {*written} <= {*known}
    assert len(written) >= 6
    assert all(map(is_ours, written))
    check_outputs(known, pages)
    assert run(*words, "--fresh")[0] == 0


def test_all_pages_and_cells_that_are_kept_here_are_known_as_ours():
    root = Path(__file__).parents[2] / "docs" / "reproduction"
    kept = [path for path in root.rglob("*") if path.is_file() and path.name != "run.log"]
    assert len(kept) > 100
    assert [path for path in kept if not is_ours(path)] == []


@pytest.mark.parametrize("command", ["numbers", "scale", "canaries"])
def test_pages_of_others_are_kept_and_found_before_the_work(run, tmp_path, monkeypatch, command):
    module = importlib.import_module(f"dpconvex_reproduction.{command}")
    work = {"numbers": "basic_numbers", "scale": "measure_pace", "canaries": "attack"}[command]
    monkeypatch.setattr(module, work, lambda *_: pytest.fail("the work began"))
    page = tmp_path / "page.md"
    page.write_text("# Mine\n")
    code, _, err = run(command, "--out", page)
    assert (code, "was not written by" in err) == (2, True)
    assert page.read_text() == "# Mine\n"


@pytest.mark.parametrize("name", ["nothing", "auc-erm/figure-99"])
def test_unknown_names_are_an_input_error(name, run, tmp_path):
    code, _, err = run(name, "--out", tmp_path / "pages")
    assert code == 2
    assert "auc-erm" in err


def test_peers_that_cannot_be_installed_are_an_input_error(run, monkeypatch):
    def fail(self):
        raise RuntimeError(f"{self.name} could not be installed: no such index")

    monkeypatch.setattr("dpconvex_reproduction.peers.environments.PeerEnvironment.install", fail)
    code, _, err = run("--install-peers")
    assert code == 2
    assert "opacus could not be installed: no such index" in " ".join(err.split())
