"""The site builds without network, every link leads somewhere, every public name and example is on it and runs."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import runpy
import shlex
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def load(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


check_pages, reference, site = load("check_pages"), load("reference"), load("build")


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    return site.build(tmp_path_factory.mktemp("site"), with_pictures=False)


def test_every_page_is_whole(pages):
    assert {page.name for page in pages} >= {
        "index.html",
        "choosing.html",
        "gallery.html",
        "api.html",
    }
    for page in pages:
        assert check_pages.problems(page) == []


@pytest.mark.parametrize("package", reference.PACKAGES)
def test_every_public_name_is_on_the_site(package, pages):
    module = importlib.import_module(package)
    target = next(page for page in pages if page.name == f"api-{package.replace('.', '-')}.html")
    text = target.read_text()
    for name in module.__all__:
        if not name.startswith("_"):
            assert f'id="{name}"' in text
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                assert inspect.getdoc(value), name


def test_gallery_page_is_that_of_the_examples():
    written = (ROOT / "docs" / "gallery.md").read_text()
    assert written == site.gallery_markdown(), "run `make docs`, which writes docs/gallery.md"


@pytest.mark.parametrize("path", site.examples(), ids=lambda path: path.stem)
def test_examples_run_and_draw(path, tmp_path, monkeypatch, capsys):
    # In this process: a new one spends most of its time on imports.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path), *site.quick_options(path, tmp_path, points=3)])
    try:
        runpy.run_path(str(path), run_name="__main__")
    except FileNotFoundError as error:
        if site.DATA not in str(error):
            raise
        pytest.skip(f"needs real data: {site.DATA} is not set")
    pictures = list(tmp_path.glob("*.png"))
    assert capsys.readouterr().out
    assert all(picture.stat().st_size > 5_000 for picture in pictures)
    assert bool(pictures) == path.stem.startswith("plot_")


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ('<a href="none.html">x</a>', "not there"),
        ('<a href="#none">x</a>', "no such place"),
        ('<img src="https://example.org/x.png" alt="x">', "loads"),
        ('<img src="page.html">', "alt text"),
        ("<script>1</script>", "script"),
        ('<svg role="img" aria-labelledby="a"><title id="a">t</title></svg>', "description"),
        ("<style>@import 'x.css';</style>", "style sheet"),
        ("<p>open", "leaves open"),
    ],
)
def test_the_check_finds_what_is_broken(body, complaint, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(f"<html><body>{body}</body></html>")
    assert any(complaint in problem for problem in check_pages.problems(path))


def commands(page):
    """Yield the dpconvex commands of a page's console blocks, continuation lines joined."""
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.S):
        for line in re.findall(r"^\$ dpconvex (.*)$", block.replace("\\\n", " "), re.M):
            yield shlex.split(line)


def test_session_of_the_readme_in_under_two_minutes(tmp_path, monkeypatch, capsys):
    from dpconvex.cli import main

    monkeypatch.chdir(tmp_path)
    session = list(commands(ROOT / "README.md"))
    assert [words[0] for words in session] == ["demo", "fit", "verify", "predict"]
    start = time.perf_counter()
    for words in session:
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0, capsys.readouterr().err
    assert time.perf_counter() - start < 120
    assert check_pages.problems(tmp_path / "report.html", alone=True) == []
    assert len((tmp_path / "orders.csv").read_text().splitlines()) == 5_001
    assert "Verified: this model" in capsys.readouterr().out
