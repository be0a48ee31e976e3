"""``dpconvex reproduce`` lists, runs and judges; what cannot be run says why."""

from __future__ import annotations

import json

import pytest

from dpconvex.experiments.catalogue import PAPERS, find

ASKED = {
    "quantile-sco": [*(f"figure-{number}" for number in range(1, 13)), "table-2"],
    "convolution-objective-perturbation": [*(f"figure-{n}" for n in range(1, 9)), "table-3"],
    "auc-erm": ["figure-1", "figure-2", "figure-3", "table-2"],
    "newsvendor-gdp": [*(f"figure-{number}" for number in range(2, 10)), "table-1", "table-2"],
    "output-perturbation": [f"table-{number}" for number in range(1, 7)],
}


def test_every_table_and_figure_is_there():
    names = [exhibit.name for exhibit in find("all")]
    assert len(set(names)) == len(names)
    for paper, slugs in ASKED.items():
        assert {f"{paper}/{slug}" for slug in slugs} <= set(names)
    assert {name.partition("/")[0] for name in names} == set(PAPERS)


def test_without_a_name_it_lists_what_there_is(folder):
    result = folder.run("reproduce", "--json")
    assert result.exit_code == 0
    listed = {entry["name"]: entry["title"] for entry in json.loads(result.stdout)}
    assert list(listed) == [exhibit.name for exhibit in find("all")]
    assert all(listed.values())


def test_one_figure_gets_its_page_and_the_index(folder, tmp_path):
    result = folder.run(
        "reproduce",
        "newsvendor-gdp/figure-2",
        "--quick",
        "--jobs",
        1,
        "--out",
        tmp_path / "pages",
        "--json",
    )
    assert result.exit_code == 0, result.stderr
    content = json.loads(result.stdout)
    assert content["failed_cells"] == 0
    (exhibit,) = content["exhibits"]
    assert exhibit["verdict"] in ("matches", "matches in part")
    page = (tmp_path / "pages" / "newsvendor-gdp" / "figure-2.md").read_text()
    assert f"Verdict: {exhibit['verdict']}" in page
    for ending in (".csv", ".png"):
        assert (tmp_path / "pages" / "newsvendor-gdp" / f"figure-2{ending}").stat().st_size > 200
    assert "newsvendor-gdp/figure-2.md" in (tmp_path / "pages" / "index.md").read_text()


def test_without_its_data_an_exhibit_says_so(folder, tmp_path, monkeypatch):
    monkeypatch.delenv("DPCONVEX_DATA", raising=False)
    result = folder.run("reproduce", "auc-erm/figure-1", "--quick", "--out", tmp_path / "pages")
    assert result.exit_code == 0
    assert "not run" in result.stdout
    assert "DPCONVEX_DATA" in (tmp_path / "pages" / "auc-erm" / "figure-1.md").read_text()


@pytest.mark.parametrize("name", ["nothing", "auc-erm/figure-99"])
def test_unknown_names_are_an_input_error(name, folder, tmp_path):
    result = folder.run("reproduce", name, "--out", tmp_path / "pages")
    assert result.exit_code == 2
    assert "auc-erm" in result.stderr
